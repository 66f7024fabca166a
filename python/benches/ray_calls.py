"""What a call on Ray costs: `sandtimer.ray.Pool` beside py-adtools' executor, interleaved in one run on one cluster.

    python python/benches/ray_calls.py [--quick] [--json FILE]

Run it where the package is installed in its release build, together with requirements.txt. Both peers get the same worker
object, which is pickled for each call. In brackets what a call of the pool is made of: the same call in a sandbox of the
driver's, and one of an actor that stays, which isolates nothing. The exit code is 1 if the bound on the ratio is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

# Read when Ray is imported, and by the processes that it starts.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Else Ray replaces the loopback address by another of the machine's.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

try:
    import ray
    from adtools.sandbox import SandboxExecutorRay
except ImportError as missing:
    sys.exit(f"{missing}: install requirements.txt, with Python 3.10 or later, which py-adtools needs")
import sandtimer
import sandtimer.ray

import measure
from report import Report, machine, milliseconds

#: Above what any call here takes: what is measured is the price of having a limit.
LIMIT = 30.0
#: How many times what a call of the pool costs the peer's must cost, by their medians.
BOUND = 100
PEER, OURS = "py-adtools SandboxExecutorRay", "sandtimer.ray.Pool.call"
#: Rounds, and calls of each cheap contender in a round.
SIZES = {"full": (40, 20), "quick": (8, 20), "smoke": (2, 3)}


class Worker:
    """Of the main module, so that it is sent with its code, and no contender has to import anything."""

    def evaluate(self) -> int:
        return 1


class Stays:
    def execute(self, worker: Worker) -> int:
        return worker.evaluate()


def begin() -> None:
    ray.init(
        num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, logging_level="ERROR",
        log_to_driver=False, _node_ip_address="127.0.0.1",
    )  # fmt: skip


def contenders(pool: sandtimer.ray.Pool, local: sandtimer.Sandbox) -> dict[str, Any]:
    worker = Worker()
    executor = SandboxExecutorRay(worker, init_ray=False)
    stays = ray.remote(num_cpus=0)(Stays).remote()

    def peer() -> Any:
        results = executor.secure_execute("evaluate", timeout_seconds=LIMIT)
        if results["error_msg"]:
            raise RuntimeError(results["error_msg"])
        return results["result"]

    return {
        PEER: peer,
        OURS: lambda: pool.call(worker.evaluate),
        "[sandtimer.Sandbox.call]": lambda: local.call(worker.evaluate),
        "[actor that stays]": lambda: ray.get(stays.execute.remote(worker)),
    }


def timed(call: Any) -> float:
    started = time.perf_counter()
    value = call()
    seconds = time.perf_counter() - started
    if value != 1:
        raise RuntimeError(f"it gave {value!r}")
    return seconds


def latency(report: Report, calls: dict[str, Any], size: str) -> bool:
    """Whether the bound is met."""
    rounds, cheap = SIZES[size]
    taken: dict[str, list[float]] = {name: [] for name in calls}
    used = dict.fromkeys(calls, 0.0)
    for call in calls.values():
        timed(call)
    window = measure.Window()
    names = list(calls)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if size != "smoke":
                # What the one before leaves running, as Ray starts a worker for one that was killed, is not to slow the next.
                measure.wait_for_quiet(15, 10)
            processor = measure.ProcessorTime()
            taken[name] += [timed(calls[name]) for _ in range(1 if name == PEER else cheap)]
            used[name] += processor.seconds()
    report.head(f"Latency of a call that does nothing: {rounds} rounds, the first contender rotating")
    report.steal(window)
    report.line(f"  {'milliseconds':<34}{'p50':>10}{'p90':>10}{'p99':>10}{'CPU/call':>10}  samples")
    for name, samples in taken.items():
        report.line(f"  {name:<34}{milliseconds(samples)}{1000 * used[name] / len(samples):10.2f}  {len(samples)}")
    report.record["latency"] = {"seconds": taken, "processor": used}
    ratio = measure.ratio(measure.median(taken[PEER]), measure.median(taken[OURS]))
    report.bound(f"{PEER} p50 / {OURS} p50", ratio, BOUND, at_least=True)
    return bool(report.record["bounds"][-1]["met"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--quick", action="store_const", const="quick", dest="size", help="as --size quick")
    parser.add_argument("--json", metavar="FILE", help="every sample")
    options = parser.parse_args()
    report = Report()
    report.line(
        f"Python calls on Ray {ray.__version__}, size {options.size}: {machine()}, Python {sys.version.split()[0]}"
    )
    begin()
    try:
        with sandtimer.ray.Pool(timeout=LIMIT) as pool, sandtimer.Sandbox(timeout=LIMIT) as local:
            pool.warm()
            outcome = pool.run(Worker().evaluate)
            degraded = ", ".join(each["layer"] for each in outcome.isolation.degraded) or "nothing"
            isolation = f"{outcome.isolation.tier}, {outcome.isolation.kill}, degraded: {degraded}"
            report.line(f"  isolation of the pool's calls: {isolation}; its last call was {outcome.path}")
            met = latency(report, contenders(pool, local), options.size)
    finally:
        ray.shutdown()
    report.conclude(options.json)
    # A few calls say nothing about the bound.
    return 0 if met or options.size == "smoke" else 1


if __name__ == "__main__":
    sys.exit(main())
