"""What the soak calls: good calls, which must end as they should, and hostile ones, which must harm nothing."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import sys
import time
from typing import Any, Callable, Optional

import numpy

import workloads


def add(left: int, right: int) -> int:
    return left + right


def divide(left: int, right: int) -> float:
    return left / right


def chatter(lines: int) -> list[int]:
    for number in range(lines):
        print("line", number)
    return list(range(lines))


def ones(count: int) -> Any:
    return numpy.ones(count)


def length(data: bytes) -> int:
    return len(data)


def wait_for_child() -> int:
    child = os.fork()
    if child == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def exit_silently() -> None:
    os._exit(0)


def crash() -> None:
    ctypes.string_at(0)


def hog() -> int:
    held = []
    while True:
        held.append(bytearray(b"\1" * (8 << 20)))


def storm() -> int:
    """Forks until it is refused; what it started spins."""
    try:
        for _ in range(200):
            if os.fork() == 0:
                while True:
                    time.sleep(0.001)
    except OSError:
        pass
    return 1


def flood() -> int:
    for _ in range(160):
        sys.stdout.write("x" * (64 << 10))
    return 1


def babble() -> int:
    """Writes rubbish to every descriptor it finds, the one that its answer goes through too."""
    for descriptor in range(64):
        try:
            os.write(descriptor, b"A" * 64)
        except OSError:
            pass
    return 1


@dataclasses.dataclass(frozen=True)
class Kind:
    """A sort of call, with how it has to end."""

    name: str
    share: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    endings: tuple[str, ...] = ("returned",)
    value: Optional[Callable[[Any], bool]] = None
    limits: Optional[dict[str, Any]] = None
    good: bool = False


#: Of code that is meant to hit its deadline.
SHORT = 0.05
MARK = f"soak-{os.getpid()}"


def _is(expected: Any) -> Callable[[Any], bool]:
    return lambda value: bool(value == expected)


KINDS = (
    Kind("adds", 24, add, (2, 3), value=_is(5), good=True),
    Kind("adds in a lambda", 6, lambda left: left + 3, (2,), value=_is(5), good=True),
    Kind("raises", 10, divide, (1, 0), ("raised",), good=True),
    Kind("prints", 10, chatter, (50,), value=_is(list(range(50))), good=True),
    Kind("returns 800 KB", 8, ones, (100_000,), value=lambda value: float(value.sum()) == 100_000.0, good=True),
    Kind("takes 400 KB", 6, length, (b"x" * 400_000,), value=_is(400_000), good=True),
    Kind("forks and waits", 6, wait_for_child, value=_is(7), good=True),
    Kind("busy loop", 1, workloads.busy, (MARK,), ("timeout",), limits={"timeout": SHORT}),
    Kind("C loop holding the GIL", 1, workloads.busy_in_c, (MARK,), ("timeout",), limits={"timeout": SHORT}),
    Kind("swallows every exception", 1, workloads.swallow, (MARK,), ("timeout",), limits={"timeout": SHORT}),
    Kind("daemonises", 2, workloads.daemonise, (MARK,), ("timeout",), limits={"timeout": SHORT}),
    Kind("leaves a daemon", 6, workloads.leave_daemon, (MARK,)),
    Kind("exits without a word", 4, exit_silently, endings=("no_result",)),
    Kind("crashes", 4, crash, endings=("signaled",)),
    Kind("hoards memory", 2, hog, endings=("out_of_memory", "raised"), limits={"memory": "64MB"}),
    Kind("storm of forks", 2, storm, endings=("returned", "process_limit"), limits={"processes": 24}),
    Kind("floods its output", 2, flood, limits={"output": "64KB"}),
    Kind("babbles on all descriptors", 5, babble, endings=("returned", "no_result")),
)


def schedule() -> list[Kind]:
    """A hundred calls, kinds spread evenly."""
    ends = [(number + 0.5, kind) for kind in KINDS for number in range(kind.share)]
    spread = sorted(ends, key=lambda pair: pair[0] / pair[1].share)
    assert len(spread) == 100
    return [kind for _, kind in spread]
