"""What a case costs: a process for each, given the program's source or its code, against one process for all cases.

    python python/benches/judge.py [cases] [rounds]

The three ways take turns in one run; medians of the rounds, milliseconds for each case, one case at a time.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from typing import Any, Callable

import sandtimer

STDIN = "5\n1 2 3 -4 5\n"
SMALL = """
import sys

def main():
    numbers = list(map(int, sys.stdin.read().split()))[1:]
    best = current = 0
    for number in numbers:
        current = max(number, current + number)
        best = max(best, current)
    print(best)

main()
"""
NODE = """
class Node{}:
    def __init__(self, value, left=None, right=None):
        self.value, self.left, self.right = value, left, right
    def walk(self, depth=0):
        for child in (self.left, self.right):
            if child is not None:
                yield from child.walk(depth + 1)
        yield (self.value * 2 + depth) % 7, [x for x in range(3) if x > self.value]
"""


def all_in_one(source: str, inputs: list[str]) -> list[str]:
    """What is not done: every case in one process, which any of them can change for the next."""
    code = compile(source, "<program>", "exec")
    answers, kept = [], sys.stdout
    for text in inputs:
        sys.stdin, sys.stdout = io.StringIO(text), io.StringIO()
        exec(code, {"__name__": "__main__"})
        answers.append(sys.stdout.getvalue())
        sys.stdout = kept
    return answers


def measure(name: str, source: str, preload: list[str], cases: int, rounds: int) -> None:
    with sandtimer.Sandbox(timeout=60.0, preload=preload, workers=1) as box:
        box.warm(1)
        ways: dict[str, Callable[[], Any]] = {
            "source": lambda: [box.exec(source, stdin=STDIN).stdout for _ in range(cases)],
            "code": lambda: box.judge(source, [(STDIN, "7")] * cases).passed,
            "one process": lambda: box.call(all_in_one, source, [STDIN] * cases),
        }
        took: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, run in ways.items():
                started = time.perf_counter()
                run()
                took[way].append((time.perf_counter() - started) / cases * 1000)
    columns = "  ".join(f"{way} {statistics.median(times):6.2f} ms" for way, times in took.items())
    print(f"{name:18} {len(source.splitlines()):4} lines  {columns}")


def main() -> None:
    cases, rounds = (int(number) for number in (sys.argv[1:] + ["20", "9"][len(sys.argv[1:]) :])[:2])
    long = SMALL + "".join(NODE.format(number) for number in range(12))
    measure("small", SMALL, [], cases, rounds)
    measure("long", long, [], cases, rounds)
    measure("numpy", "import numpy\n" + SMALL, [], cases, rounds)
    measure("numpy, preloaded", "import numpy\n" + SMALL, ["numpy"], cases, rounds)


if __name__ == "__main__":
    main()
