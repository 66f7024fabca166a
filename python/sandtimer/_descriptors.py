"""Descriptors of this process: its limit is raised for the sandboxes of a pool, and where that does not suffice there are fewer.

A sandbox that is ready, in use, or left for the next call takes some descriptors of this process. What its own code opens comes first.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

# A sandbox takes 20, and 8 more for counters that stay open where the limit is high.
PER_SANDBOX = 28
# A pool without idle children grows to at least this size, or to as many for each processor.
_MIN_GROWN, _GROWN_PER_PROCESSOR = 16, 4
# Left to this process's own code: this number, and a quarter of its limit.
MIN_RESERVE, RESERVE_SHARE = 64, 4


class Room(NamedTuple):
    """How many sandboxes of a pool are warm, and how many of its calls run at a time."""

    size: int
    workers: int


def make_room(size: int, workers: int) -> Room:
    """Raises the limit for a pool of this size if need be; the pool that there is room for, which is of 1 at least."""
    ready = max(size, _MIN_GROWN, _GROWN_PER_PROCESSOR * (os.cpu_count() or 1))
    opened = _opened()
    # Calls that have ended may leave as many as are warm.
    soft = _raise_limit(opened + PER_SANDBOX * (2 * ready + workers))
    if soft is None:
        return Room(size, workers)
    # The rest is for the pools to come.
    room = (soft - opened - max(soft // RESERVE_SHARE, MIN_RESERVE)) * 3 // 4 // PER_SANDBOX
    if 2 * size + workers <= room:
        return Room(size, workers)
    slots = max(room // 3, 1)
    return Room(min(size, slots), min(workers, slots))


def _opened() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return MIN_RESERVE


def _raise_limit(sandboxes: int) -> Optional[int]:
    """The limit of descriptors, for `sandboxes` in addition to the reserve and the next pools; None without a limit."""
    # Not on Windows, where the package is a client.
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return None
    wanted = 2 * sandboxes * RESERVE_SHARE // (RESERVE_SHARE - 1)
    if soft < wanted and soft != hard:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (OSError, ValueError):
            # Not allowed here.
            pass
    return soft
