"""Calls and cells end on time when the layer that should end them does not run: the engine stopped, and init or the watchdog too."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Iterator, Optional

import pytest

LIMIT = 1.0
# Both layers behind the engine act within milliseconds; whoever looks on shares the processors with them.
LATE = 3.0

PROGRAM = f"""
import sys
import sandtimer

def spin():
    while True:
        pass

box = sandtimer.Sandbox(timeout=30.0)
for _ in range(3):
    # So that the enforcer is awake early anyway, and is not woken by the call.
    box.call(abs, -1)
if sys.argv[1] == "cell":
    ctx = box.context()
    ctx.run("kept = 41")
    print("ready", flush=True)
    input()
    outcome = ctx.run("while True: pass", timeout={LIMIT})
    print(outcome.ending, outcome.state, ctx.run("kept + 1").value, flush=True)
else:
    print("ready", flush=True)
    input()
    print(box.limits(timeout={LIMIT}).run(spin).ending, flush=True)
"""


@pytest.fixture
def kind() -> str:
    return "call"


@pytest.fixture
def caller(kind: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def fields(process: int) -> Optional[list[str]]:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def children(parent: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        stat = fields(int(entry)) if entry.isdigit() else None
        if stat is not None and int(stat[1]) == parent:
            found.append(int(entry))
    return found


def spinning(parent: int) -> int:
    """The child that has used a twentieth of a second of processor time since the look before."""
    ticks = os.sysconf("SC_CLK_TCK")
    before: dict[int, int] = {}
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for process in children(parent):
            stat = fields(process)
            if stat is None:
                continue
            used = int(stat[11])
            if used - before.setdefault(process, used) > ticks / 20:
                return process
        time.sleep(0.01)
    raise AssertionError("no child of the caller is busy")


def is_dead(process: int) -> bool:
    stat = fields(process)
    return stat is None or stat[0] in "ZX"


def begin(caller: subprocess.Popen[str]) -> int:
    assert caller.stdin is not None
    caller.stdin.write("\n")
    caller.stdin.flush()
    return spinning(caller.pid)


def the_watchdog(caller: subprocess.Popen[str]) -> int:
    found = [process for process in children(caller.pid) if name(process) == "st-watchdog"]
    assert len(found) == 1, found
    return found[0]


def name(process: int) -> str:
    try:
        with open(f"/proc/{process}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def the_init(caller: subprocess.Popen[str], job: int) -> int:
    space = os.readlink(f"/proc/{job}/ns/pid")
    inits = [process for process in children(caller.pid) if process != job and os.readlink(f"/proc/{process}/ns/pid") == space]
    assert len(inits) == 1, inits
    return inits[0]


@contextlib.contextmanager
def stopped(*processes: int) -> Iterator[None]:
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def dies(job: int) -> bool:
    until = time.monotonic() + LIMIT + LATE
    while not is_dead(job):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize(("kind", "said"), [("call", "timeout\n"), ("cell", "timeout rolled_back 42\n")])
def test_init_ends_what_runs_beside_a_stopped_engine_and_watchdog(caller: subprocess.Popen[str], said: str) -> None:
    job = begin(caller)
    with stopped(the_watchdog(caller), caller.pid):
        assert dies(job), "it runs on"
    assert caller.stdout is not None and caller.stdout.readline() == said


@pytest.mark.skipif(os.geteuid() != 0, reason="which init is a job's is only root's to see")
def test_the_watchdog_ends_a_call_whose_engine_and_init_are_stopped(caller: subprocess.Popen[str]) -> None:
    job = begin(caller)
    with stopped(caller.pid, the_init(caller, job)):
        assert dies(job), "it runs on"


@pytest.mark.skipif(os.geteuid() != 0, reason="which init is a job's is only root's to see")
@pytest.mark.parametrize("kind", ["call", "cell"])
def test_nobody_else_would_have_ended_it(caller: subprocess.Popen[str]) -> None:
    job = begin(caller)
    with stopped(the_watchdog(caller), caller.pid, the_init(caller, job)):
        assert not dies(job)
