"""Programs judged by `judge_many`, next to as many processes of `subprocess.run` at a time, interleaved."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Callable

import sandtimer

import measure
from report import Report

if TYPE_CHECKING:
    from sections import Hosts, Size

#: Longer than any test takes.
TIMEOUT = 60.0
SUM = """
import sys

def main():
    numbers = list(map(int, sys.stdin.read().split()))[1:]
    best = current = 0
    for number in numbers:
        current = max(number, current + number)
        best = max(best, current)
    print(best + OFFSET)

main()
"""


def judging(report: Report, _hosts: Hosts, size: Size) -> None:
    programs = [SUM.replace("OFFSET", str(number % 2)) for number in range(size.programs)]
    cases = [(f"5\n1 2 3 -4 {number}\n", str(max(6, 2 + number))) for number in range(size.tests)]
    passed = sum(number % 2 == 0 for number in range(size.programs)) * size.tests
    width = len(os.sched_getaffinity(0))
    taken: dict[str, list[float]] = {}
    window = measure.Window()

    def timed(name: str, judge: Callable[[], int]) -> None:
        start = time.perf_counter()
        accepted = judge()
        taken.setdefault(name, []).append(time.perf_counter() - start)
        if accepted != passed:
            raise RuntimeError(f"{name} accepted {accepted} of {size.programs * size.tests} answers, not {passed}")

    def run(program_and_case: tuple[str, tuple[str, str]]) -> bool:
        program, (stdin, expected) = program_and_case
        command: Any = [sys.executable, "-c", program]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT)
        return done.stdout.split() == expected.split()

    with sandtimer.Sandbox(timeout=TIMEOUT) as box, concurrent.futures.ThreadPoolExecutor(width) as pool:
        box.judge(programs[0], cases)
        ways: dict[str, Callable[[], int]] = {
            "subprocess.run": lambda: sum(pool.map(run, [(program, case) for program in programs for case in cases])),
            "judge_many": lambda: sum(judgement.verdicts.count("accepted") for judgement in box.judge_many(programs, cases)),
        }
        for _ in range(size.judging_rounds):
            for name, judge in ways.items():
                timed(name, judge)
    report.head(f"{size.programs} programs with {size.tests} tests each, {width} at a time; median of {size.judging_rounds}")
    report.steal(window)
    medians = {name: measure.median(times) for name, times in taken.items()}
    for name, seconds in medians.items():
        report.line(f"  {name:<34}{seconds:10.3f} s{1000 * seconds / size.programs / size.tests:10.3f} ms/test")
    report.record["judging"] = taken
    report.bound("subprocess.run / judge_many", medians["subprocess.run"] / medians["judge_many"], 5, True)
