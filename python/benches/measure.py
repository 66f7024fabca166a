"""What the benches read from the system, and how they sum it up. Linux only; no module beyond the standard library."""

from __future__ import annotations

import math
import os
import resource
import time
from typing import Any, Optional, Sequence

TICKS = os.sysconf("SC_CLK_TCK")


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def median(samples: Sequence[float]) -> float:
    return percentile(samples, 50)


class Window:
    """A time span, with the share of it that the hypervisor gave to others."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.ticks = _processor_ticks()

    def seconds(self) -> float:
        return time.monotonic() - self.start

    def steal(self) -> float:
        """Percent of all processors' time."""
        passed = [now - then for now, then in zip(_processor_ticks(), self.ticks)]
        return 100 * passed[7] / max(1, sum(passed[:8]))


def _processor_ticks() -> list[int]:
    with open("/proc/stat") as file:
        return [int(field) for field in file.readline().split()[1:]]


def wait_for_quiet(most: float, seconds: float) -> float:
    """Waits until others used less than `most` percent of the processors for a second; how busy they were in the end."""
    limit = time.monotonic() + seconds
    while True:
        before = _processor_ticks()
        time.sleep(1.0)
        passed = [now - then for now, then in zip(_processor_ticks(), before)]
        busy = 100 * (1 - (passed[3] + passed[4]) / max(1, sum(passed[:8])))
        if busy < most or time.monotonic() > limit:
            return busy


def fields(process: object, name: str = "status") -> dict[str, str]:
    """A file of lines `key: value` of a process's; empty where it is gone."""
    try:
        with open(f"/proc/{process}/{name}") as file:
            return dict(line.rstrip("\n").split(":", 1) for line in file if ":" in line)
    except (OSError, ValueError):
        return {}


def bytes_of(process: object, key: str) -> int:
    """A size such as VmRSS or VmHWM."""
    return int(fields(process).get(key, "0 kB").split()[0]) * 1024


def forget_peak() -> None:
    """Has VmHWM of this process start from what it holds now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def available_memory() -> int:
    return int(fields("", "meminfo")["MemAvailable"].split()[0]) * 1024


def processes() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def descendants(root: int) -> list[int]:
    """All processes below one."""
    children: dict[int, list[int]] = {}
    for process in processes():
        stat = _stat(process)
        if stat is not None:
            children.setdefault(int(stat[1]), []).append(process)
    found, ahead = [], [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def _stat(process: int) -> Optional[list[str]]:
    """The fields of /proc/PID/stat from the state on."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


class ProcessorTime:
    """Processor time of this process, of what it waited for, and of all that lives below it with what they waited for.

    Looking at what lives costs milliseconds, which are kept out of the span.
    """

    def __init__(self) -> None:
        self.below = _below()
        self.own = _own()

    def seconds(self) -> float:
        own = _own()
        return own - self.own + _below() - self.below


def _own() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


def _below() -> float:
    total = 0.0
    for process in descendants(os.getpid()):
        stat = _stat(process)
        if stat is not None:
            total += sum(int(field) for field in stat[11:15]) / TICKS
    return total


def named(name: str) -> list[int]:
    """Processes that gave themselves this name, which their forks inherit."""
    found = []
    for process in processes():
        try:
            with open(f"/proc/{process}/comm") as file:
                if file.read().rstrip("\n") == name:
                    found.append(process)
        except OSError:
            pass
    return found


def most_named(name: str, future: Any) -> int:
    """The most processes of this name seen until `future` is done; ends it once there are two."""
    most = 0
    while most < 2 and not future.done():
        most = max(most, len(named(name)))
    future.cancel()
    return most


def ratio(value: Optional[float], base: Optional[float]) -> Optional[float]:
    return value / base if value is not None and base else None


def engine_groups(helpers: Sequence[int]) -> set[str]:
    """The directories of control groups that the engine of these helpers has made, one in each hierarchy."""
    places = {}
    with open("/proc/self/mountinfo") as file:
        for line in file:
            mount, _, source = line.partition(" - ")
            if source.startswith("cgroup"):
                for name in source.split()[2].split(",") if source.startswith("cgroup ") else [""]:
                    places[name] = mount.split()[4]
    groups = set()
    for helper in helpers:
        try:
            with open(f"/proc/{helper}/cgroup") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in lines:
            _, controllers, path = line.split(":", 2)
            above, found, below = path.partition("/sandtimer-")
            place = places.get(controllers.split(",")[0])
            if found and place is not None:
                groups.add(place + above + found + below.split("/")[0])
    return groups


def directories(root: str) -> int:
    """How many there are below one, it included."""
    return sum(1 for _ in os.walk(root))
