"""What the tests of decorators and executors run. Each call imports this inside, so nothing here takes long to import."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from typing import Any, Optional

import sandtimer
from sandtimer.adtools import PyEvaluator, sandbox_run

# Changed by a call inside, never here.
calls: list[int] = []


@sandtimer.sandboxed(timeout=20.0)
def where() -> int:
    """Which process this is."""
    return os.getpid()


@sandtimer.sandboxed(timeout=20.0)
def fibonacci(n: int) -> int:
    calls.append(n)
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@sandtimer.sandboxed(timeout=20.0)
def is_even(n: int) -> bool:
    return n == 0 or is_odd(n - 1)


@sandtimer.sandboxed(timeout=20.0)
def is_odd(n: int) -> bool:
    return n != 0 and is_even(n - 1)


@sandtimer.sandboxed(timeout=20.0)
def inner_outcomes() -> list[Any]:
    good, bad = divide.outcome(7, 2), divide.outcome(7, 0)
    return [good.ending, good.ok, good.value, bad.ending, bad.ok, str(bad.error), bad.stdout, bad.path]


@sandtimer.sandboxed(timeout=20.0)
def divide(a: float, b: float) -> float:
    return a / b


class Base:
    def __init__(self, value: int) -> None:
        self.value = value

    @sandtimer.sandboxed(timeout=20.0)
    def add(self, more: int) -> list[Any]:
        self.value += more
        return ["base", self.value, os.getpid()]

    @sandtimer.sandboxed(timeout=20.0)
    def countdown(self, n: int) -> int:
        return 0 if n == 0 else 1 + self.countdown(n - 1)

    @staticmethod
    @sandtimer.sandboxed(timeout=20.0)
    def static_above(x: int) -> list[int]:
        return [x, os.getpid()]

    @sandtimer.sandboxed(timeout=20.0)
    @staticmethod
    def static_below(x: int) -> list[int]:
        return [x, os.getpid()]

    @classmethod
    @sandtimer.sandboxed(timeout=20.0)
    def class_above(cls, x: int) -> list[Any]:
        return [cls.__name__, x, os.getpid()]

    @sandtimer.sandboxed(timeout=20.0)
    @classmethod
    def class_below(cls, x: int) -> list[Any]:
        return [cls.__name__, x, os.getpid()]

    @sandtimer.sandboxed(timeout=20.0)
    async def later(self, x: int) -> list[int]:
        return [self.value * x, os.getpid()]


class Derived(Base):
    @sandtimer.sandboxed(timeout=20.0)
    def add(self, more: int) -> list[Any]:
        return ["derived", *super().add(more)]


@sandtimer.sandboxed(timeout=20.0)
async def double(x: int) -> list[int]:
    return [(await triple(x)) - x, os.getpid()]


@sandtimer.sandboxed(timeout=20.0)
async def triple(x: int) -> int:
    return 3 * x


class Agent:
    """Decorated the other way."""

    @sandbox_run(timeout=20.0)
    def where(self) -> int:
        return os.getpid()

    @sandbox_run(timeout=20.0)
    def depth(self, n: int) -> int:
        return 0 if n == 0 else 1 + self.depth(n - 1)

    @sandbox_run(timeout=20.0)
    @classmethod
    def where_of_class(cls) -> list[Any]:
        return [cls.__name__, os.getpid()]

    @classmethod
    @sandbox_run(timeout=20.0)
    def where_of_class_above(cls) -> list[Any]:
        return [cls.__name__, os.getpid()]

    @staticmethod
    @sandbox_run(timeout=20.0)
    def where_of_none(x: int) -> list[int]:
        return [x, os.getpid()]

    @sandbox_run(timeout=20.0)
    @staticmethod
    def where_of_none_below(x: int) -> list[int]:
        return [x, os.getpid()]


@sandbox_run(timeout=20.0, return_raw_result=False)
def halve(x: int) -> Any:
    return x / 2 if x < 2 else halve(x // 2)


class Reports:
    """Holds what is rebuilt only where it is named."""

    def __init__(self, score: int) -> None:
        self.score = score


class Worker:
    """What executors are given: it does as it is told."""

    def __init__(self) -> None:
        self.calls = 0

    def add(self, a: int, b: int = 1) -> int:
        self.calls += 1
        return a + b

    def do(self, code: str) -> Any:
        names: dict[str, Any] = {}
        exec(textwrap.dedent(code), names)
        return names.get("result")

    def spin(self) -> None:
        while True:
            pass


class Evaluator(PyEvaluator):
    def evaluate_program(
        self, program_str: str, functions: Any, function_list: Any, classes: Any, class_list: Any, **kwargs: Any
    ) -> Any:
        assert function_list == list(functions.values()) and class_list == list(classes.values())
        return [sorted(functions), sorted(classes), functions["play"](**kwargs), os.getpid()]


class Slow(Evaluator):
    """Its limit is its class's."""

    timeout = 0.3


def many_buffers(count: int) -> list[bytes]:
    return [bytes([index % 256]) * 65536 for index in range(count)]


def reports_and_waits(done: int, total: Optional[int]) -> None:
    # What is printed says less than what is reported.
    print("1/100 files", flush=True)
    assert sandtimer.progress(done, total, "epoch")
    time.sleep(60)


def prints_and_waits() -> None:
    for epoch in (1, 2, 3):
        print(f"Epoch {epoch}/10: loss 1", flush=True)
        time.sleep(0.05)
    time.sleep(60)


def floods() -> int:
    return sum(sandtimer.progress(number, 20_000) for number in range(20_000))


def saves_when_told(seconds: float) -> None:
    def save(*_: object) -> None:
        print("saved", flush=True)

    signal.signal(signal.SIGUSR1, save)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05)
