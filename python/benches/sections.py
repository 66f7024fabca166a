"""The measurements: each interleaves its contenders in one pass, the first one rotating, and prints table and bounds."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any, Callable, Optional

import measure
import workloads
from contenders import CONTENDERS, FRESH_PEERS, ORDINARY
from host import Failed, Host
from report import Report, milliseconds

#: Between blocks, so that what one contender leaves behind does not disturb the next.
PAUSE = 0.005
DEADLINE = 0.1
#: From here on a canary was not on time: neither is what was measured beside it.
CANARY_LATE = 0.0005


@dataclasses.dataclass
class Size:
    """How much of everything."""

    blocks: int
    #: Calls in a row; fewer than stand ready in the sandbox's pool.
    block: int
    throughput_rounds: int
    throughput_seconds: float
    large_rounds: int
    large_bytes: int
    ballast: int
    ballast_blocks: int
    deadlines: int
    ordinary_blocks: int
    programs: int
    tests: int
    judging_rounds: int


SIZES = {
    "full": Size(400, 3, 3, 3.0, 7, 256 << 20, 4 << 30, 100, 1000, 60, 256, 10, 3),
    "quick": Size(60, 3, 2, 1.0, 3, 256 << 20, 2 << 30, 20, 200, 20, 64, 10, 2),
    "smoke": Size(2, 2, 1, 0.2, 1, 4 << 20, 64 << 20, 2, 4, 2, 4, 2, 1),
}


class Hosts:
    """The hosts of all contenders that can be measured here, and why the others cannot."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.running: dict[str, Host] = {}
        self.missing: dict[str, str] = {}
        for name in names:
            reason = {**CONTENDERS, **ORDINARY}[name].missing()
            if reason is None:
                self.attempt(name, lambda name=name: self.running.__setitem__(name, Host(name)))  # type: ignore[misc]
            else:
                self.missing[name] = reason

    def attempt(self, name: str, work: Callable[[], None]) -> None:
        """Does `work`; a contender that fails is said to have, and the others go on."""
        try:
            work()
        except Failed as error:
            self.missing[name] = f"failed: {error}"
            host = self.running.pop(name, None)
            if host is not None:
                host.close()

    def rounds(self, count: int, work: Callable[[str, Host], None], only: Optional[list[str]] = None) -> None:
        """`work` for each contender in turn, `count` times, the first one rotating."""
        for number in range(count):
            names = [name for name in only or self.names if name in self.running]
            turn = number % max(1, len(names))
            for name in names[turn:] + names[:turn]:
                time.sleep(PAUSE)
                self.attempt(name, lambda: work(name, self.running[name]))  # noqa: B023

    def close(self) -> None:
        for host in self.running.values():
            host.close()
        self.running.clear()


def facts(report: Report, hosts: Hosts) -> None:
    """What the images and the isolation are that are compared."""
    for name in ("raw_fork", "sandtimer"):
        if name in hosts.running:
            known = hosts.running[name].ask("facts")
            report.record[f"facts {name}"] = known
            report.line(
                f"  child of {CONTENDERS[name].title}: {known['modules']} modules loaded, {known['mappings']} mappings"
            )
    ours = report.record.get("facts sandtimer")
    if ours is not None:
        report.line(f"  isolation of sandtimer: {ours['isolation']}; its last call was {ours['path']}")


def latency(report: Report, hosts: Hosts, size: Size) -> None:
    window = measure.Window()
    taken: dict[str, list[float]] = {name: [] for name in hosts.names}
    used: dict[str, float] = dict.fromkeys(hosts.names, 0.0)

    def block(name: str, host: Host) -> None:
        seconds, processor = host.ask("block", size.block)
        taken[name] += seconds
        used[name] += processor

    hosts.rounds(size.blocks, block)
    report.head(
        f"Latency of a call that does nothing: {size.blocks} blocks of {size.block} calls of each, the pool warm before each block"
    )
    report.steal(window)
    floor = measure.median(taken["raw_fork"]) if taken["raw_fork"] else None
    report.line(
        f"  {'milliseconds':<34}{'kind':<8}{'p50':>10}{'p90':>10}{'p99':>10}{'x floor':>9}{'CPU/call':>10}  samples"
    )
    p50: dict[str, Optional[float]] = dict.fromkeys(hosts.names)
    for name in hosts.names:
        made, samples = CONTENDERS[name], taken[name]
        if name in hosts.missing or not samples:
            report.line(f"  {made.title:<34}{made.kind:<8}  {hosts.missing.get(name, 'no samples')}")
            continue
        p50[name] = measure.median(samples)
        over = measure.ratio(p50[name], floor) or 0.0
        processor = 1000 * used[name] / len(samples)
        row = f"{milliseconds(samples)}{over:9.2f}{processor:10.3f}  {len(samples)}"
        report.line(f"  {made.title:<34}{made.kind:<8}{row}")
    report.record["latency"] = {"seconds": taken, "processor": used, "missing": dict(hosts.missing)}
    _latency_bounds(report, taken, p50)


def _latency_bounds(report: Report, taken: dict[str, list[float]], p50: dict[str, Optional[float]]) -> None:
    def p99(name: str) -> Optional[float]:
        return measure.percentile(taken[name], 99) if taken[name] else None

    ours = p50["sandtimer"]
    report.bound("call p50 / os.fork p50", measure.ratio(ours, p50["raw_fork"]), 0.5)
    report.bound("call p99 / os.fork p99", measure.ratio(p99("sandtimer"), p99("raw_fork")), 2)
    report.bound("call p50 / pebble's reused pool p50", measure.ratio(ours, p50["pebble_pool"]), 1.5)
    for name in FRESH_PEERS:
        if p50.get(name) is not None:
            report.bound(f"{CONTENDERS[name].title} p50 / call p50", measure.ratio(p50[name], ours), 5, True)
        elif name in p50:
            report.line(f"  {CONTENDERS[name].title} / call: not measured")


def throughput(report: Report, hosts: Hosts, size: Size) -> None:
    """One engine with as many calls at a time as there are processors, against as many processes of each other."""
    copies = len(os.sched_getaffinity(0))
    names = [name for name in hosts.names if name != "sandtimer_settled" and name in hosts.running]
    # `map` of the sandbox works on all processors from one process, and so does a pool.
    single = ("sandtimer",)
    more: dict[str, list[Host]] = {name: [] for name in names}
    for name in names:
        for _ in range(0 if name in single else copies - 1):
            hosts.attempt(name, lambda: more[name].append(Host(name)))  # noqa: B023
    window = measure.Window()
    rates: dict[str, list[float]] = {name: [] for name in names}
    used: dict[str, list[float]] = {name: [] for name in names}

    def run(name: str, host: Host) -> None:
        group = [host, *more[name]]
        for each in group:
            each.send("throughput", size.throughput_seconds)
        answers = [each.receive() for each in group]
        total = sum(rate for rate, _ in answers)
        rates[name].append(total)
        used[name].append(sum(rate * processor for rate, processor in answers) / total)

    hosts.rounds(size.throughput_rounds, run, names)
    for group in more.values():
        for host in group:
            host.close()
    report.head(
        f"Throughput of calls that do nothing: sandtimer.map, and {copies} processes that call one after the other; "
        f"median of {size.throughput_rounds} x {size.throughput_seconds:g} s"
    )
    report.steal(window)
    middle = {name: measure.median(values) for name, values in rates.items() if values}
    report.line(f"  {'':<34}{'kind':<8}{'calls/s':>10}{'x floor':>9}{'CPU-ms/call':>13}")
    for name in hosts.names:
        made = CONTENDERS[name]
        if name in middle:
            over = measure.ratio(middle[name], middle.get("raw_fork")) or 0.0
            row = f"{middle[name]:10.1f}{over:9.2f}{1000 * measure.median(used[name]):13.3f}"
            report.line(f"  {made.title:<34}{made.kind:<8}{row}")
        elif name in hosts.missing:
            report.line(f"  {made.title:<34}{made.kind:<8}  {hosts.missing[name]}")
    report.line("  The processor time of what runs inside bwrap is not known to its caller, and not counted.")
    report.record["throughput"] = {"calls_per_second": rates, "processor_seconds": used}
    best = max((middle[name] for name in FRESH_PEERS if name in middle), default=None)
    ours = middle.get("sandtimer")
    report.bound("calls/s / raw fork loop", measure.ratio(ours, middle.get("raw_fork")), 0.5, True)
    report.bound("calls/s / best peer with fresh processes", measure.ratio(ours, best), 1.5, True)


def ordinary(report: Report, _: Hosts, size: Size) -> None:
    """Functions as users write them. No contender is told which modules they need; a fork of its caller has them."""
    hosts = Hosts(list(ORDINARY))
    floors = [Host("raw_fork") for _ in os.sched_getaffinity(0)]
    window = measure.Window()
    report.head(
        f"Functions as they are: {size.ordinary_blocks} blocks of {size.block} calls, nothing preloaded by name; calls/s of map, and "
        f"of {len(floors)} processes that fork"
    )
    report.line(f"  {'milliseconds':<64}{'p50':>10}{'p90':>10}{'p99':>10}{'calls/s':>10}")
    for kind in workloads.ORDINARY:
        _ordinary(report, hosts, floors, kind, size)
    report.steal(window)
    for host in floors:
        host.close()
    hosts.close()


def _ordinary(report: Report, hosts: Hosts, floors: list[Host], kind: str, size: Size) -> None:
    taken: dict[str, list[float]] = {name: [] for name in hosts.names}
    rates: dict[str, list[float]] = {"raw_fork": [], "sandtimer_unasked": []}

    def block(name: str, host: Host) -> None:
        taken[name] += host.ask("block", size.block, kind)[0]

    def rate(name: str, host: Host) -> None:
        group = floors if name == "raw_fork" else [host]
        for each in group:
            each.send("throughput", size.throughput_seconds, kind)
        rates[name].append(sum(each.receive()[0] for each in group))

    hosts.rounds(1, lambda _, host: host.ask("learn", kind))
    hosts.rounds(size.ordinary_blocks, block)
    hosts.rounds(size.throughput_rounds, rate, list(rates))
    p50 = {name: measure.median(samples) for name, samples in taken.items() if samples}
    middle = {name: measure.median(samples) for name, samples in rates.items() if samples}
    for name in hosts.names:
        title = f"{kind}: {ORDINARY[name].title}"
        found = milliseconds(taken[name]) if taken[name] else f"  {hosts.missing.get(name, 'no samples')}"
        report.line(f"  {title:<64}{found}" + (f"{middle[name]:10.1f}" if name in middle else ""))
    report.record[f"ordinary {kind}"] = {"seconds": taken, "calls_per_second": rates}

    def over(values: dict[str, float], ours: str, theirs: str) -> Optional[float]:
        return measure.ratio(values.get(ours), values.get(theirs))

    report.bound(f"{kind}: call p50 / os.fork p50", over(p50, "sandtimer_unasked", "raw_fork"), 0.5)
    report.bound(f"{kind}: calls/s / os.fork loops", over(middle, "sandtimer_unasked", "raw_fork"), 1.5, True)
    report.bound(f"{kind}: our SandboxExecutor p50 / py-adtools p50", over(p50, "sandtimer_adtools", "adtools"), 0.5)


def large(report: Report, hosts: Hosts, size: Size) -> None:
    names = [name for name in hosts.names if CONTENDERS[name].returns_values and name != "sandtimer_settled"]
    for kind, floor, target in (("array", "array.copy()", 1.5), ("text", "bytes(bytearray)", 2.5)):
        window = measure.Window()
        copies: list[float] = []
        seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}

        def run(name: str, host: Host) -> None:
            if name == "raw_fork":
                copies.append(host.ask("copy", kind, size.large_bytes))  # noqa: B023
            seen[name].append(host.ask("large", kind, size.large_bytes))  # noqa: B023

        hosts.rounds(size.large_rounds, run, names)
        title = "ndarray" if kind == "array" else "bytes"
        report.head(
            f"A result of {size.large_bytes >> 20} MiB as {title}, {size.large_rounds} rounds, medians; "
            "transfer counts from when the child has made it"
        )
        report.steal(window)
        base = measure.median(copies) if copies else None
        report.line(f"  {'':<34}{'transfer ms':>12}{'x copy':>8}{'whole ms':>10}{'peak RSS growth / result':>26}")
        if base is not None:
            report.line(f"  {floor + ' in the caller':<34}{1000 * base:12.1f}{1.0:8.2f}")
        for name in names:
            made = CONTENDERS[name]
            if name in hosts.missing or not seen[name]:
                report.line(f"  {made.title:<34}  {hosts.missing.get(name, 'no samples')}")
                continue
            transfer, whole, grown = (
                measure.median([each[key] for each in seen[name]]) for key in ("transfer", "whole", "grown")
            )
            over = measure.ratio(transfer, base) or 0.0
            report.line(f"  {made.title:<34}{1000 * transfer:12.1f}{over:8.2f}{1000 * whole:10.1f}{grown:26.3f}")
        report.record[f"large {title}"] = {"copy": copies, "results": seen}
        ours = seen.get("sandtimer") or []
        transfer_of_ours = measure.median([each["transfer"] for each in ours]) if ours else None
        most = max((each["grown"] for each in ours), default=None)
        report.bound(f"{title} transfer / {floor}", measure.ratio(transfer_of_ours, base), target)
        # A percent for what the interpreter itself allocates meanwhile.
        report.bound(f"{title}: growth of the caller's peak RSS / result, largest", most, 1.01)


def ballast(report: Report, _: Hosts, size: Size) -> None:
    """The same call from a small process and from one that holds much memory in small pages."""
    report.head(f"Latency in a caller that holds {size.ballast >> 20} MiB in pages of 4 KiB, {size.ballast_blocks} blocks")
    needed, free = 2 * size.ballast + (1 << 30), measure.available_memory()
    if free < needed:
        report.line(f"  skipped: {needed >> 20} MiB of memory are needed, and {free >> 20} MiB are available")
        report.bound("call p50 in the large caller / in a small one", None, 1.2)
        return
    window = measure.Window()
    names = [name for name in ("raw_fork", "sandtimer") if CONTENDERS[name].missing() is None]
    hosts = {(name, held): Host(name, held) for name in names for held in (0, size.ballast)}
    taken: dict[tuple[str, int], list[float]] = {key: [] for key in hosts}
    keys = list(hosts)
    for number in range(size.ballast_blocks):
        turn = number % len(keys)
        for key in keys[turn:] + keys[:turn]:
            time.sleep(PAUSE)
            taken[key] += hosts[key].ask("block", size.block)[0]
    for host in hosts.values():
        host.close()
    report.steal(window)
    report.line(f"  {'milliseconds':<34}{'caller':<8}{'p50':>10}{'p90':>10}{'p99':>10}  samples")
    for (name, held), samples in taken.items():
        caller = "large" if held else "small"
        report.line(f"  {CONTENDERS[name].title:<34}{caller:<8}{milliseconds(samples)}  {len(samples)}")
    report.record["ballast"] = {f"{name} {held}": samples for (name, held), samples in taken.items()}
    middle = {key: measure.median(samples) for key, samples in taken.items()}
    over = measure.ratio(middle.get(("sandtimer", size.ballast)), middle.get(("sandtimer", 0)))
    report.bound("call p50 in the large caller / in a small one", over, 1.2)


def deadlines(report: Report, hosts: Hosts, size: Size) -> None:
    host, limit = hosts.running.get("sandtimer"), DEADLINE
    report.head(f"Deadline of {1000 * limit:.0f} ms on code that does not end, {size.deadlines} runs")
    if host is None:
        report.line(f"  {hosts.missing.get('sandtimer')}")
        return
    seen = host.ask("census", 10.0)
    report.line(f"  control: the census saw {seen} marked processes while a daemonising run was under way (must be ≥ 2)")
    window = measure.Window()
    kinds = list(workloads.HOSTILE)
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for number in range(size.deadlines):
        kind = kinds[number % len(kinds)]
        runs[kind].append(host.ask("deadline", kind, limit))
    every = [run for kind in kinds for run in runs[kind]]
    report.steal(window)
    report.line(f"  {'milliseconds late':<42}{'p50':>10}{'p90':>10}{'p99':>10}{'max':>10}  samples")

    def row(title: str, samples: list[float]) -> None:
        if samples:
            largest = f"{1000 * max(samples):10.3f}"
            report.line(f"  {title:<42}{milliseconds(samples)}{largest}  {len(samples)}")

    on_time = [run for run in every if run["canary"] <= CANARY_LATE]
    row("returned to the caller", [run["late"] for run in every])
    row("returned, canary at most 0.5 ms late", [run["late"] for run in on_time])
    row("verdict", [run["verdict"] for run in every if run["verdict"] is not None])
    row("verdict, canary at most 0.5 ms late", [run["verdict"] for run in on_time if run["verdict"] is not None])
    row("canary (a thread that sleeps as long)", [run["canary"] for run in every])
    for kind in kinds:
        row("  returned: " + kind, [run["late"] for run in runs[kind]])
    wrong = sum(run["ending"] != "timeout" for run in every)
    unproven = sum(run["survivors"] is None for run in every)
    survivors = sum(run["survivors"] or 0 for run in every)
    killed, census = sum(run["killed"] for run in every), sum(run["census"] for run in every)
    report.line(f"  killed in all {killed}; ended otherwise than by the deadline {wrong}; without proof of death {unproven}")
    report.record["deadlines"] = {"runs": runs, "control": seen}
    for title, some in (("all runs", every), ("canary on time", on_time)):
        late = 1000 * measure.percentile([run["late"] for run in some], 99) if some else None
        report.bound(f"returned late, p99, {title} (ms)", late, 2)
    report.bound("survivors by the outcomes, and runs without proof", survivors + unproven, 0)
    report.bound("survivors by the census of the host", census if seen >= 2 else None, 0)
    report.bound("runs that ended otherwise", wrong, 0)
