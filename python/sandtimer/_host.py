"""How busy the machine was: what tells a slow program from a program on a machine that had no time for it.

Three witnesses. The run's own queue: the share of its time in which it was ready and had no processor. Steal: the share of
the machine's processor time that other virtual machines took. Pressure: the share of the last ten seconds in which
something on the machine waited for a processor. The first speaks of the run itself and is believed first; pressure speaks
of anybody, a judge that uses all processors raises it by itself, and so it counts only where the first is missing.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, NamedTuple, Optional

# Shares above which a verdict counts as taken on an overloaded machine.
QUEUE_SHARE = 0.25
STEAL_SHARE = 0.10
PRESSURE_SHARE = 0.50
# Below these the kernel's clocks are too coarse for a share to mean anything.
LEAST_QUEUE_MS = 5
LEAST_STOLEN_TICKS = 5
# A run that had this much of a processor was held up by its own threads, not by others.
OWN_DOING = 0.75
_FRESH = 0.02


@dataclasses.dataclass(frozen=True)
class HostLoad:
    """The evidence around one run; true when its verdict should not be held against it. Shares are from 0 to 1."""

    run_queue: Optional[float]
    steal: Optional[float]
    cpu_pressure: Optional[float]
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reasons)


class Sample(NamedTuple):
    """The machine at one moment: seconds, ticks stolen, all ticks, share of time under pressure."""

    at: float
    stolen: Optional[int]
    ticks: int
    pressure: Optional[float]


_last: Optional[Sample] = None


def sample() -> Sample:
    """A sample, at most some milliseconds old: on a machine of many processors the file is slow to read."""
    global _last
    now = time.monotonic()
    if _last is None or now - _last.at > _FRESH:
        stolen, ticks = _ticks()
        _last = Sample(now, stolen, ticks, _pressure())
    return _last


def load(before: Sample, after: Sample, usage: Any) -> HostLoad:
    """The evidence for a run between two samples, with its own use of the machine."""
    reasons = []
    queue = None
    if usage.run_queue_ms is not None and usage.wall_ms > 0:
        queue = min(usage.run_queue_ms / usage.wall_ms, 1.0)
        had = (usage.user_ms + usage.system_ms) / usage.wall_ms
        if queue >= QUEUE_SHARE and usage.run_queue_ms >= LEAST_QUEUE_MS and had <= OWN_DOING:
            reasons.append(f"it was ready and had no processor for {queue:.0%} of its time")
    steal = None
    if before.stolen is not None and after.stolen is not None and after.ticks > before.ticks:
        stolen = after.stolen - before.stolen
        steal = max(stolen, 0) / (after.ticks - before.ticks)
        if steal >= STEAL_SHARE and stolen >= LEAST_STOLEN_TICKS:
            reasons.append(f"other virtual machines took {steal:.0%} of the processors")
    if queue is None and after.pressure is not None and after.pressure >= PRESSURE_SHARE:
        reasons.append(f"something waited for a processor {after.pressure:.0%} of the time")
    return HostLoad(queue, steal, after.pressure, tuple(reasons))


def _ticks() -> tuple[Optional[int], int]:
    try:
        with open("/proc/stat", "rb") as file:
            numbers = [int(word) for word in file.readline().split()[1:9]]
        return numbers[7], sum(numbers)
    except (OSError, ValueError, IndexError):
        return None, 0


def _pressure() -> Optional[float]:
    try:
        with open("/proc/pressure/cpu", "rb") as file:
            return float(file.readline().split()[1].partition(b"=")[2]) / 100
    except (OSError, ValueError, IndexError):
        return None
