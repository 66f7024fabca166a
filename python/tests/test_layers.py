"""A call ends on time when the layer that should end it does not run: its engine stopped, and its init too."""

from __future__ import annotations

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
import sandtimer

def spin():
    while True:
        pass

box = sandtimer.Sandbox(timeout=30.0)
for _ in range(3):
    # So that the enforcer is awake early anyway, and is not woken by the call.
    box.call(abs, -1)
print("ready", flush=True)
input()
print(box.limits(timeout={LIMIT}).run(spin).ending, flush=True)
"""


@pytest.fixture
def caller() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


def test_init_ends_a_call_whose_engine_is_stopped(caller: subprocess.Popen[str]) -> None:
    job = begin(caller)
    caller.send_signal(signal.SIGSTOP)
    until = time.monotonic() + LIMIT + LATE
    while not is_dead(job):
        assert time.monotonic() < until, "it runs on"
        time.sleep(0.01)
    caller.send_signal(signal.SIGCONT)
    assert caller.stdout is not None and caller.stdout.readline() == "timeout\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="which init is a job's is only root's to see")
def test_the_watchdog_ends_a_call_whose_engine_and_init_are_stopped(caller: subprocess.Popen[str]) -> None:
    job = begin(caller)
    space = os.readlink(f"/proc/{job}/ns/pid")
    inits = [process for process in children(caller.pid) if process != job and os.readlink(f"/proc/{process}/ns/pid") == space]
    assert len(inits) == 1, inits
    caller.send_signal(signal.SIGSTOP)
    os.kill(inits[0], signal.SIGSTOP)
    until = time.monotonic() + LIMIT + LATE
    while not is_dead(job):
        assert time.monotonic() < until, "it runs on"
        time.sleep(0.01)
