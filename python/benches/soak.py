"""Good and hostile calls from eight threads for a long time: nothing ends wrongly, nothing is left, nothing grows.

    python python/benches/soak.py [--quick | --calls N] [--json FILE]

What the process and its engine hold is counted at rest five times on the way. The exit code is 1 if a good call timed out
on an undisturbed machine, if a call ended otherwise than its kind must, if a process was left, or if something grew.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import gc
import itertools
import os
import re
import sys
import threading
import time
from typing import Any, Optional

import sandtimer

import measure
import soak_mix
import workloads
from report import Report, machine

THREADS = 8
#: Of good calls, which take milliseconds.
GOOD_LIMIT = 2.0
#: A late call counts as disturbed from this share of stolen processor time on, in percent.
DISTURBED = 5.0
#: A counter in the group of one sandbox, opened when a call first needs it.
COUNTER = re.compile(r".*/run-\d+/(cpu\.(stat|pressure)|pids\.(current|peak|events)|memory\.(current|peak|events|usage_in_bytes|max_usage_in_bytes))")
#: Rests, by the share of the calls that lie behind them.
RESTS = (0.1, 0.3, 0.5, 0.75, 1)
#: What is counted at rest, and how much more of it in the end is no growth.
COUNTED = {
    "descriptors": 0,
    "threads": 0,
    "memory of the caller (KiB)": 8 << 10,
    "memory of launcher and watchdog (KiB)": 2 << 10,
    "processes": 0,
    "mounts": 0,
    "mounts of the host": 0,
    "control groups": 0,
}


class Tally:
    """What became of the calls. Threads add to it under its lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: collections.Counter[tuple[str, str]] = collections.Counter()
        self.survivors = 0
        self.unproven = 0
        self.wrong: list[str] = []
        self.false_timeouts = 0
        self.disturbed_timeouts = 0

    def add(self, kind: soak_mix.Kind, outcome: sandtimer.Outcome, steal: float) -> None:
        tree, ending = outcome.tree, outcome.ending
        with self.lock:
            self.calls[kind.name, ending] += 1
            self.survivors += tree.survivors or 0
            self.unproven += tree.survivors is None
            if kind.good and ending == "timeout":
                if steal < DISTURBED:
                    self.false_timeouts += 1
                else:
                    self.disturbed_timeouts += 1
            elif ending not in kind.endings:
                self.wrong.append(f"{kind.name}: ended as {ending}: {outcome.error!r:.300}")
            elif ending == "returned" and kind.value is not None and not kind.value(outcome.value):
                self.wrong.append(f"{kind.name}: {outcome!r:.300}")


def run_calls(box: sandtimer.Sandbox, tally: Tally, start: int, end: int) -> None:
    """The calls with these numbers, from all threads."""
    kinds = soak_mix.schedule()
    numbers = itertools.count(start)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not failures and (number := next(numbers)) < end:
                kind = kinds[number % len(kinds)]
                window = measure.Window()
                outcome = box.limits(**(kind.limits or {})).run(kind.function, *kind.arguments)
                tally.add(kind, outcome, window.steal() if outcome.ending == "timeout" else 0.0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def rest(box: sandtimer.Sandbox, seconds: float) -> bool:
    """Waits until the pool, which grows with the demand, is back at its size; whether it is."""
    size = 2 * len(os.sched_getaffinity(0))
    limit = time.monotonic() + seconds
    while True:
        stats = box.stats()
        if stats["wanted"] <= size and stats["ready"] == stats["wanted"]:
            return True
        if time.monotonic() > limit:
            return False
        time.sleep(0.2)


def count() -> dict[str, int]:
    """What is held now; of several looks the least, since others on the host come and go."""
    gc.collect()
    looks = []
    for _ in range(5):
        looks.append(_look())
        time.sleep(0.2)
    return {name: min(look[name] for look in looks) for name in COUNTED}


def _look() -> dict[str, int]:
    below = measure.descendants(os.getpid())
    helpers = [process for process in below if measure.fields(process).get("Name", "").strip() in ("st-launcher", "st-watchdog")]
    return {
        "descriptors": _descriptors(),
        "threads": len(os.listdir("/proc/self/task")),
        "memory of the caller (KiB)": measure.bytes_of("self", "VmRSS") >> 10,
        "memory of launcher and watchdog (KiB)": sum(measure.bytes_of(each, "VmRSS") for each in helpers) >> 10,
        "processes": len(below),
        "mounts": _lines("/proc/self/mountinfo"),
        "mounts of the host": _lines("/proc/1/mountinfo"),
        "control groups": sum(measure.directories(group) for group in measure.engine_groups(below)),
    }


def _descriptors() -> int:
    """Open descriptors, without those of a group's counters: a sandbox that stands ready has those that its last calls needed."""
    held = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            held += not COUNTER.fullmatch(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            pass
    return held


def _lines(path: str) -> int:
    try:
        with open(path) as file:
            return sum(1 for _ in file)
    except OSError:
        return 0


def soak(report: Report, calls: int, patience: float) -> bool:
    tally = Tally()
    points: list[Optional[dict[str, int]]] = []
    window = measure.Window()
    with sandtimer.Sandbox(timeout=GOOD_LIMIT, preload=["numpy", "workloads", "soak_mix"]) as box:
        isolation = box.run(soak_mix.add, 1, 2).isolation
        report.line(f"  isolation: {isolation.tier}, {isolation.kill}, degraded: {isolation.degraded or 'nothing'}")
        seen = measure.most_named(soak_mix.MARK, box.submit(workloads.daemonise, soak_mix.MARK))
        report.line(f"  control: the census saw {seen} processes of a daemonising call under way (must be ≥ 2)")
        done = 0
        for part in (int(calls * share) for share in RESTS):
            start = time.monotonic()
            run_calls(box, tally, done, part)
            seconds = time.monotonic() - start
            report.line(f"  {part} calls; the last {part - done} in {seconds:.0f} s: {(part - done) / seconds:.0f} calls/s")
            done = part
            points.append(count() if rest(box, patience) else None)
        stats = box.stats()
        left = len(measure.named(soak_mix.MARK))
    report.steal(window)
    report.line(f"  pool: {stats['cold']} of {stats['calls']} calls cold, {stats['lost']} lost, {stats['zygotes']} zygotes")
    _table_of_endings(report, tally)
    report.record["endings"] = [[*key, number] for key, number in tally.calls.items()]
    report.line(f"  good calls that timed out while the machine was stolen from: {tally.disturbed_timeouts}")
    report.bound("good calls that timed out otherwise", tally.false_timeouts, 0)
    report.bound("calls that ended otherwise than their kind must", len(tally.wrong), 0)
    for text in tally.wrong[:10]:
        report.line(f"    {text}")
    report.bound("survivors by the outcomes, and calls without proof", tally.survivors + tally.unproven, 0)
    report.bound("survivors by the census of the host", left if seen >= 2 else None, 0)
    _table_of_growth(report, points, patience > 0)
    return all(bound["met"] for bound in report.record["bounds"])


def _table_of_endings(report: Report, tally: Tally) -> None:
    report.head("Calls")
    for kind in soak_mix.KINDS:
        endings = ", ".join(f"{ending} {number}" for (name, ending), number in sorted(tally.calls.items()) if name == kind.name)
        report.line(f"  {kind.name:<28}{'good' if kind.good else 'hostile':<9}{endings}")


def _table_of_growth(report: Report, points: list[Any], judged: bool) -> None:
    report.head("Held at rest")
    report.record["held"] = points
    report.line(f"  {'after':<40}" + "".join(f"{share:>10.0%}" for share in RESTS) + f"{'allowed':>10}")
    for name, allowed in COUNTED.items():
        values = [None if point is None else point[name] for point in points]
        cells = "".join(f"{'-' if value is None else value:>10}" for value in values)
        report.line(f"  {name:<40}{cells}{'+' + str(allowed):>10}")
    for name, allowed in COUNTED.items():
        if not judged:
            report.line(f"  growth of {name}: not judged, the pool was given no time to come to rest")
            continue
        # Of one sandbox more or less that stands ready there are descriptors: the most of the early rests, the least of the late.
        count = 2 if name == "descriptors" else 1
        early, late = points[:count], points[-count:]
        # A pool that never came to rest is a failure too.
        grown = None if None in points else min(point[name] for point in late) - max(point[name] for point in early)
        report.bound(f"growth of {name}", grown, allowed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--quick", action="store_const", const=2_000, dest="calls", help="2,000 calls")
    parser.add_argument("--rest", type=float, default=90.0, help="seconds that the pool has to come to rest; 0: growth is not judged")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    # A call that never returns ends all of it, with the traceback of every thread.
    faulthandler.dump_traceback_later(600 + options.calls // 10, exit=True)
    report = Report()
    report.line(f"Soak: {options.calls} calls from {THREADS} threads: {machine()}, Python {sys.version.split()[0]}")
    passed = soak(report, options.calls, options.rest)
    report.conclude(options.json)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
