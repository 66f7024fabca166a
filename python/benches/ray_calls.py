"""What a call costs on Ray: `Pool.call` beside py-adtools' scheme, interleaved in one run.

The scheme is that of py-adtools' SandboxExecutorRay: a new actor for each call, `ray.get` with the timeout, `ray.kill`. In
brackets what a `Pool.call` is made of: a call in a sandbox here, and one of an actor that stays, which isolates nothing.

Run it where the package is installed in its release build: python python/benches/ray_calls.py [--quick]
It ends with 1 where the scheme costs less than 100 times as much.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# Else Ray replaces the loopback address by another of the machine's.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"

import ray
import sandtimer.ray

BOUND = 100
TIMEOUT = 30.0


class Evaluator:
    def evaluate(self):
        return 1


class Executor:
    """What py-adtools sends: the worker object, into an actor made for it."""

    def execute(self, worker, name, args, kwargs):
        return getattr(worker, name)(*args, **kwargs)


def new_actor(worker):
    actor = ray.remote(Executor).options(max_concurrency=1).remote()
    try:
        return ray.get(actor.execute.remote(worker, "evaluate", [], {}), timeout=TIMEOUT)
    finally:
        ray.kill(actor, no_restart=True)


def milliseconds(call, *arguments):
    started = time.perf_counter()
    assert call(*arguments) == 1
    return (time.perf_counter() - started) * 1e3


def busy():
    """Seconds of the processors', spent on whatever it was."""
    with open("/proc/stat") as file:
        fields = [int(each) for each in file.readline().split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def settle(most=3.0):
    """What the one before leaves running (Ray replaces the worker that was killed) is not to slow the next."""
    limit = time.monotonic() + most
    while time.monotonic() < limit:
        before = busy()
        time.sleep(0.25)
        if busy() - before < 0.25 * os.cpu_count() * 0.3:
            return


def steal():
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 8 if parser.parse_args().quick else 40
    ray.init(
        num_cpus=2, object_store_memory=100 << 20, include_dashboard=False, logging_level="ERROR",
        log_to_driver=False, _node_ip_address="127.0.0.1",
    )  # fmt: skip
    worker = Evaluator()
    stolen = steal()
    with sandtimer.ray.Pool(timeout=TIMEOUT) as pool:
        pool.warm()
        stays = ray.remote(num_cpus=0)(Executor).remote()
        local = sandtimer.Sandbox(timeout=TIMEOUT)
        contenders = {
            "new actor": (1, lambda: new_actor(worker)),
            "Pool.call": (20, lambda: pool.call(worker.evaluate)),
            "[Sandbox.call]": (20, lambda: local.call(worker.evaluate)),
            "[actor stays]": (20, lambda: ray.get(stays.execute.remote(worker, "evaluate", [], {}))),
        }
        taken = {name: [] for name in contenders}
        for call in (each for _, each in contenders.values()):
            call()
        for _ in range(rounds):
            for name, (repeats, call) in contenders.items():
                settle()
                taken[name] += [milliseconds(call) for _ in range(repeats)]
    local.close()
    ray.shutdown()
    for name, each in taken.items():
        cuts = statistics.quantiles(each, n=100)
        print(f"{name:15} n {len(each):4}  p50 {statistics.median(each):8.2f} ms  p99 {cuts[98]:8.2f} ms")
    ratio = statistics.median(taken["new actor"]) / statistics.median(taken["Pool.call"])
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"ratio of the medians {ratio:.0f} (bound {BOUND}), steal {steal() - stolen:.1f} s, "
          f"driver's CPU {used.ru_utime + used.ru_stime:.1f} s, load {os.getloadavg()[0]:.1f}")  # fmt: skip
    return 0 if ratio >= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
