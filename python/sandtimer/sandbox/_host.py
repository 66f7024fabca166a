"""Evidence of an overloaded machine: what distinguishes a slow program from a machine that had no time for it.

Only a verdict of elapsed time can be the machine's fault: a wrong answer, a processor limit and a crash are the program's.
The evidence has to come from others than the judged program, because the program can produce load, and could otherwise
buy a second try:

The run's queue is the share of its time in which it had something ready and no processor at all. It does not grow while the
processes of the run wait for each other. The processors this process may use have to be busy, and to a part with something
else than the cases of this submission: otherwise the run waited for its sibling cases, or for a processor of its own choice.
Steal is the share of the processor time that other virtual machines took. Pressure, the share of the last ten seconds in
which something on the machine waited for a processor, counts only where the run's queue is not known.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

# Shares above which a verdict counts as taken on an overloaded machine.
QUEUE_SHARE = 0.25
STEAL_SHARE = 0.10
PRESSURE_SHARE = 0.50
# Below these the kernel's clocks are too coarse for a share to mean anything.
MIN_QUEUE_MS = 5
MIN_STOLEN_TICKS = 5
# A run that had this much of a processor was held up by its own threads, not by others.
OWN_DOING = 0.75
# Processors that were idle for more than this were free for the run.
IDLE_SHARE = 0.25
# What others than the submission used of the processors, at least.
OTHERS_SHARE = 0.25
_FRESH = 0.02


@dataclasses.dataclass(frozen=True)
class HostLoad:
    """How busy the machine was around one run. Shares are from 0 to 1.

    It is true if a limit of elapsed time ended the run on an overloaded machine.

    Attributes:
        run_queue: The share of its time in which the run was runnable and had no processor.
        steal: The share of the processor time that other virtual machines took.
        cpu_pressure: The share of the last ten seconds in which something waited for a processor.
        reasons: Why the machine counts as overloaded, in words; empty if it does not.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=5.0) as box:
        ...     judgement = box.judge("print(9)", [("", "9")])
        >>> bool(judgement.overloaded[0]), judgement.overloaded[0].reasons
        (False, ())
    """

    run_queue: Optional[float]
    steal: Optional[float]
    cpu_pressure: Optional[float]
    reasons: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reasons)


class Sample(NamedTuple):
    """The machine at one moment. Ticks are those of the processors that this process may use."""

    # Seconds.
    at: float
    stolen: Optional[int]
    ticks: int
    # Share of time under pressure.
    pressure: Optional[float]
    idle: int = 0


class Span(NamedTuple):
    """One run between two samples, with its own use of the machine."""

    before: Sample
    after: Sample
    usage: Any

    def overlap(self, other: Span) -> float:
        """The share of this span in which the other one was running too."""
        length = self.after.at - self.before.at
        common = min(self.after.at, other.after.at) - max(self.before.at, other.before.at)
        return min(max(common / length, 0.0), 1.0) if length > 0 else 1.0


_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_last: Optional[Sample] = None


def sample() -> Sample:
    """A sample, at most some milliseconds old: on a machine of many processors the file is slow to read."""
    global _last
    now = time.monotonic()
    if _last is None or now - _last.at > _FRESH:
        stolen, ticks, idle = _ticks()
        _last = Sample(now, stolen, ticks, _pressure(), idle)
    return _last


def load(run: Span, siblings: Iterable[Span], by_wall: bool) -> HostLoad:
    """The evidence for one run. `siblings`: the runs of the same submission, this one among them; `by_wall`: a limit of
    elapsed time ended it."""
    before, after, usage = run
    queue, steal, reasons = None, None, []
    had = _processor_ms(usage) / usage.wall_ms if usage.wall_ms > 0 else 0.0
    crowded = by_wall and had <= OWN_DOING and _is_crowded(run, siblings)
    if usage.run_queue_ms is not None and usage.wall_ms > 0:
        queue = min(usage.run_queue_ms / usage.wall_ms, 1.0)
        if queue >= QUEUE_SHARE and usage.run_queue_ms >= MIN_QUEUE_MS and crowded:
            reasons.append(f"it was ready and had no processor for {queue:.0%} of its time")
    if before.stolen is not None and after.stolen is not None and after.ticks > before.ticks:
        stolen = after.stolen - before.stolen
        steal = max(stolen, 0) / (after.ticks - before.ticks)
        if steal >= STEAL_SHARE and stolen >= MIN_STOLEN_TICKS:
            reasons.append(f"other virtual machines took {steal:.0%} of the processors")
    if queue is None and after.pressure is not None and after.pressure >= PRESSURE_SHARE and crowded:
        reasons.append(f"processes waited for a processor {after.pressure:.0%} of the time")
    return HostLoad(queue, steal, after.pressure, tuple(reasons) if by_wall else ())


def _processor_ms(usage: Any) -> float:
    return float(usage.user_ms + usage.system_ms)


def _is_crowded(run: Span, siblings: Iterable[Span]) -> bool:
    """Whether the processors were busy, and to a part with something else than the submission."""
    ticks = run.after.ticks - run.before.ticks
    if ticks <= 0:
        return False
    idle = max(run.after.idle - run.before.idle, 0) / ticks
    # A sibling's processor time is taken as spread evenly over its time.
    own_ms = sum(_processor_ms(each.usage) * each.overlap(run) for each in siblings)
    own = own_ms / 1000 * _TICKS_PER_SECOND / ticks
    return idle <= IDLE_SHARE and 1 - idle - own >= OTHERS_SHARE


def _ticks() -> tuple[Optional[int], int, int]:
    """Ticks stolen, all, and idle."""
    try:
        allowed = {b"cpu%d" % number for number in os.sched_getaffinity(0)}
        with open("/proc/stat", "rb") as file:
            lines = [fields for fields in map(bytes.split, file) if fields[0] in allowed]
        columns = [sum(column) for column in zip(*(map(int, fields[1:9]) for fields in lines))]
        return columns[7], sum(columns), columns[3] + columns[4]
    except (OSError, ValueError, IndexError):
        return None, 0, 0


def _pressure() -> Optional[float]:
    try:
        with open("/proc/pressure/cpu", "rb") as file:
            return float(file.readline().split()[1].partition(b"=")[2]) / 100
    except (OSError, ValueError, IndexError):
        return None
