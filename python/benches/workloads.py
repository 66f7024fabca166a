"""What the benches call. Every contender calls the same functions; in fresh processes their module is loaded already."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import sys
import time
from typing import Any, Callable

import numpy

_TABLE = numpy.arange(16.0)
_LIBRARY = ctypes.CDLL(None)
_SET_NAME = 15


def nothing(_: object = None) -> None:
    """The call that does nothing."""


def score(_: object = None) -> float:
    """What a user's own module with numpy does."""
    return float(numpy.sum(_TABLE) * 2)


class Scorer:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def score(self, _: object = None) -> float:
        return float(numpy.sum(_TABLE) * self.factor)


def _of_a_notebook() -> Callable[..., float]:
    """A function that no module has, which uses numpy."""
    namespace = {"__name__": "__main__", "numpy": numpy}
    exec("def score(_=None):\n    return float(numpy.sum(numpy.arange(16.0)) * 2)\n", namespace)
    return namespace["score"]  # type: ignore[return-value]


ORDINARY: dict[str, Callable[..., float]] = {
    "function of an own module": score,
    "function of a notebook": _of_a_notebook(),
    "method": Scorer(2.0).score,
    "lambda": eval("lambda _=None: float(numpy.sum(numpy.arange(16.0)) * 2)", {"__name__": "__main__", "numpy": numpy}),
}


def loaded() -> tuple[int, int]:
    """How many modules the interpreter has loaded, and how many mappings its memory has."""
    try:
        with open("/proc/self/maps") as file:
            mappings = sum(1 for _ in file)
    except OSError:
        mappings = 0
    return len(sys.modules), mappings


def array(size: int) -> tuple[Any, float]:
    """An array of so many bytes, and when it was there (monotonic clock)."""
    value = numpy.full(size // 8, 1.5)
    return value, time.monotonic()


def text(size: int) -> tuple[bytes, float]:
    """So many bytes, and when they were there."""
    value = b"\x5a" * size
    return value, time.monotonic()


def mark(name: str) -> None:
    """Names this process so that a census of the host finds it and all its forks, whatever they do to their environment."""
    _LIBRARY.prctl(_SET_NAME, name.encode(), 0, 0, 0)


def busy(name: str) -> None:
    mark(name)
    while True:
        pass


def busy_in_c(name: str) -> None:
    """A loop in C that never lets go of the interpreter's lock and never looks for signals."""
    mark(name)
    all(itertools.repeat(True))


def swallow(name: str) -> None:
    """Goes on whatever is raised in it and whatever signal it may ignore."""
    mark(name)
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_IGN)
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def leave_daemon(name: str) -> int:
    """Leaves a process in a session of its own that ignores signals, and returns."""
    mark(name)
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            while True:
                time.sleep(0.01)
        os._exit(0)
    os.waitpid(child, 0)
    return child


def daemonise(name: str) -> None:
    """Leaves a daemon, and goes on for ever itself."""
    leave_daemon(name)
    busy(name)


HOSTILE = {
    "busy loop": busy,
    "C loop holding the GIL": busy_in_c,
    "swallows every exception": swallow,
    "daemonises": daemonise,
}
