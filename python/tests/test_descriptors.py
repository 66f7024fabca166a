"""Machines with many processors, and few descriptors for this process: there are fewer sandboxes, and the caller keeps its own."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest
import sandtimer
from sandtimer import _descriptors

# Judges and maps on a machine of so many processors, and opens files all the while.
SCRIPT = """
import collections, os, resource, sys, tempfile, threading
processors, soft, hard = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
os.sched_getaffinity = lambda pid: set(range(processors))
os.cpu_count = lambda: processors
import sandtimer

refused, over = [], threading.Event()

def open_files():
    while not over.wait(0.01):
        files = []
        try:
            for _ in range(40):
                files.append(open(os.devnull))
        except OSError as error:
            refused.append(error)
        for file in files:
            file.close()

opener = threading.Thread(target=open_files)
opener.start()
with sandtimer.Sandbox(timeout=60.0) as box:
    values = [outcome.value for outcome in box.map(abs, range(-100, 0))]
    judgements = box.judge_many(["print(input())"] * 4, [(str(each), str(each)) for each in range(25)])
    workers = box.stats()["workers"]
over.set()
opener.join()
print(values == list(range(100, 0, -1)), collections.Counter(sum(judgements.verdicts, [])), len(refused), workers)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def run_script(processors: int, soft: int, hard: int) -> tuple[str, int, int]:
    """What it has seen, how many calls it made at a time, and its limit in the end."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < hard:
        pytest.skip(f"this process may not have {hard} descriptors")
    arguments = [sys.executable, "-c", SCRIPT, str(processors), str(soft), str(hard)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    seen, _, workers = first.rpartition(" ")
    return seen, int(workers), int(last)


@pytest.mark.parametrize(("processors", "soft", "hard"), [(16, 1024, 2048), (64, 1024, 4096), (256, 4096, 4096), (128, 1024, 16384)])
def test_caller_keeps_descriptors_on_large_machines(processors: int, soft: int, hard: int) -> None:
    seen, workers, limit = run_script(processors, soft, hard)
    assert seen == "True Counter({'accepted': 100}) 0"
    assert 1 <= workers <= processors and soft <= limit <= hard
    if hard > 4096:
        assert limit > soft and workers > 64


class Limits:
    """RLIMIT_NOFILE of a process, and how many descriptors it has open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, opened: int, may_raise: bool = True) -> None:
        self.limits = soft, hard
        self.may_raise = may_raise
        monkeypatch.setattr(resource, "getrlimit", lambda _: self.limits)
        monkeypatch.setattr(resource, "setrlimit", self.set)
        monkeypatch.setattr(_descriptors, "_opened", lambda: opened)
        monkeypatch.setattr(_descriptors.os, "cpu_count", lambda: 2)

    def set(self, _: int, limits: tuple[int, int]) -> None:
        if not self.may_raise:
            raise ValueError("not allowed to raise maximum limit")
        self.limits = limits


def test_limit_is_raised_as_far_as_a_pool_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(monkeypatch, 1024, 1 << 20, 100)
    assert _descriptors.make_room(128, 64) == (128, 64)
    assert 10_000 < limits.limits[0] < 50_000 and limits.limits[1] == 1 << 20
    before = limits.limits
    assert _descriptors.make_room(4, 2) == (4, 2) and limits.limits == before
    limits = Limits(monkeypatch, 1 << 16, resource.RLIM_INFINITY, 100)
    assert _descriptors.make_room(4, 2) == (4, 2) and limits.limits == (1 << 16, resource.RLIM_INFINITY)
    limits = Limits(monkeypatch, 256, resource.RLIM_INFINITY, 100)
    assert _descriptors.make_room(4, 2) == (4, 2) and 256 < limits.limits[0] < 10_000


@pytest.mark.parametrize("may_raise", [True, False])
def test_pool_is_smaller_where_the_limit_stays(monkeypatch: pytest.MonkeyPatch, may_raise: bool) -> None:
    soft, hard = (1024, 2048) if may_raise else (2048, 1 << 20)
    Limits(monkeypatch, soft, hard, 500, may_raise)
    size, workers = _descriptors.make_room(512, 256)
    taken = _descriptors.PER_SANDBOX * (2 * size + workers)
    assert size == workers > 1 and taken + 500 < 2048 - 2048 // _descriptors.RESERVE_SHARE
    # Nothing is left, and there is still one.
    Limits(monkeypatch, 256, 256, 250)
    assert _descriptors.make_room(512, 256) == (1, 1)
    Limits(monkeypatch, resource.RLIM_INFINITY, resource.RLIM_INFINITY, 250)
    assert _descriptors.make_room(512, 256) == (512, 256)


@pytest.fixture()
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=30.0, workers=2) as made:
        yield made


def refuse(monkeypatch: pytest.MonkeyPatch, pool: Any, refused: Any) -> None:
    """Has the machine lack something for those calls of a pool, counted from 0, for which `refused` holds."""
    call, counting, count = pool.call, threading.Lock(), 0

    def refusing(job: Any, limits: Any) -> Any:
        nonlocal count
        with counting:
            number, count = count, count + 1
        if refused(number):
            raise sandtimer.SandboxUnavailableError("cannot make a sandbox ready: Too many open files")
        return call(job, limits)

    monkeypatch.setattr(pool, "call", refusing)


def test_case_without_a_sandbox_is_no_error_of_the_batch(box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    # The first call compiles.
    refuse(monkeypatch, box._code_pool, lambda number: number in (3, 5))
    judgement = box.judge("print(input())", [(str(each), str(each)) for each in range(8)])
    assert sorted(judgement.verdicts) == ["accepted"] * 6 + ["infra_error"] * 2
    index = judgement.verdicts.index("infra_error")
    error, outcome = judgement.errors[index], judgement.outcomes[index]
    assert isinstance(error, sandtimer.SandboxUnavailableError) and "Too many open files" in str(error)
    assert outcome is not None and outcome.ending == "infra_error" and not judgement.overloaded[index]
    assert judgement.retry_overloaded().passed


def test_compiler_without_a_sandbox_is_tried_again(box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, box._code_pool, lambda number: number == 0)
    judgement = box.judge("print(input())", [(str(each), str(each)) for each in range(4)])
    assert sorted(judgement.verdicts) == ["accepted"] * 3 + ["infra_error"]


def test_batch_fails_where_no_case_can_begin(box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    refuse(monkeypatch, box._code_pool, lambda number: calls.append(number) or True)
    for count in (1, 3, 1000):
        calls.clear()
        with pytest.raises(sandtimer.SandboxUnavailableError, match="Too many open files"):
            box.judge("print(input())", [("1", "1")] * count)
        assert len(calls) < 20
    monkeypatch.undo()
    box.close()
    with pytest.raises(sandtimer.SandboxUnavailableError, match="closed"):
        box.judge("print(input())", [("1", "1")])


def test_item_without_a_sandbox_is_no_error_of_the_map(box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, box._pool, lambda number: number == 1)
    outcomes = list(box.map(abs, [-1, -2, -3, -4]))
    assert sorted(outcome.ending for outcome in outcomes) == ["infra_error"] + ["returned"] * 3
    assert [outcome.value for outcome in outcomes if outcome.ok] == [each for each in (1, 2, 3, 4) if outcomes[each - 1].ok]
    with pytest.raises(sandtimer.SandboxUnavailableError, match="Too many"):
        refuse(monkeypatch, box._pool, lambda number: True)
        box.call(abs, -1)
    for count in (1, 100):
        with pytest.raises(sandtimer.SandboxUnavailableError, match="Too many"):
            list(box.map(abs, range(count)))
    monkeypatch.undo()
    refuse(monkeypatch, box._pool, lambda number: number < 2)
    endings = [outcome.ending for outcome in box.map(abs, range(8))]
    assert endings.count("infra_error") == 2 and endings.count("returned") == 6
    mapped = box.map(abs, range(100))
    monkeypatch.undo()
    next(mapped)
    box.close()
    with pytest.raises(sandtimer.SandboxUnavailableError, match="closed"):
        list(mapped)


def test_limit_is_raised_for_contexts_and_warm_sandboxes() -> None:
    script = (
        "import resource, sandtimer\nresource.setrlimit(resource.RLIMIT_NOFILE, (128, 4096))\n"
        "with sandtimer.Sandbox(timeout=60.0, workers=1) as box:\n"
        "    contexts = [box.context() for _ in range(10)]\n"
        "    values = [context.run(f'{each} + 1').value for each, context in enumerate(contexts)]\n"
        "    box.warm(24)\n    print(values == list(range(1, 11)), box.stats()['ready'] >= 24)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=Path(__file__).parent)
    assert done.stdout == "True True\n", done.stderr


@pytest.mark.parametrize(("processors", "limit"), [(16, 256), (64, 512), (256, 256)])
def test_caller_keeps_descriptors_with_a_low_limit(processors: int, limit: int) -> None:
    seen, workers, left = run_script(processors, limit, limit)
    assert (seen, left) == ("True Counter({'accepted': 100}) 0", limit) and workers >= 1
