"""What the tests of the Ray pool run on its nodes: importable there, and quick to import in each call."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

# Set where something unpickles what it should not.
MARK = "SANDTIMER_TEST_HARMED"


class Harm:
    """Unpickling it runs code."""

    def __reduce__(self) -> Any:
        return os.putenv and exec, (f"import os; os.environ[{MARK!r}] = str(os.getpid())",)


class Named:
    """A class that a caller names in `results`; plain pickling would run what its fields say, on both ways."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __reduce__(self) -> Any:
        return exec, (self.code,)


def forged() -> Any:
    """Its pickle says `Named`, made without a call of anything, with a field of the job's choosing."""
    Named.__reduce__ = object.__reduce__  # type: ignore[method-assign]
    return Named(f"import os; os.environ[{MARK!r}] = str(os.getpid())")


def interval(seconds: float) -> tuple[float, float]:
    begun = time.monotonic()
    time.sleep(seconds)
    return begun, time.monotonic()


def spin() -> None:
    while True:
        pass


def family(mark: str) -> None:
    """Leaves a child and a daemon about, which can be seen from outside by their command line, and does not end."""
    for _ in range(2):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", mark], start_new_session=True)
    spin()


class Worker:
    def divide(self, a: int, b: int) -> float:
        return a / b

    def where(self) -> int:
        return os.getpid()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
