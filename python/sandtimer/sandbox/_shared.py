"""Sandboxes for decorators and executors, which share the warm processes.

Owns the pools of this process that no `Sandbox` of the caller's owns: one for each profile (interpreter, preloaded modules,
`sys.path`, network). The `Sandbox` around one is made for each use, for it costs little and holds nothing. A program that
keeps changing `sys.path` makes a profile with each change, so those unused the longest are closed.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any, Iterator, Mapping

from .. import _arguments
from .._locks import Guard
from ._pool import Pool
from ._sandbox import Sandbox

_MAX_IDLE = 4
# What importable functions need inside, and takes too long to import in each call.
PRELOAD = "sandtimer.adtools"


class _Kept:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.users = 0
        self.used = False


_guard = Guard()
_kept: OrderedDict[str, _Kept] = OrderedDict()


@contextlib.contextmanager
def sandbox(parameters: Mapping[str, Any], warm: bool = False) -> Iterator[Sandbox]:
    """A sandbox with these parameters, for one call. `warm` waits for its first process, which no clock then counts."""
    box = _make(parameters)
    with _guard.lock:
        kept = _take(box._pool)
        first, kept.used = not kept.used, True
        stale = _unused()
    for each in stale:
        each.pool.close()
    box._pool = kept.pool
    try:
        if warm and first and parameters.get("start", "zygote") == "zygote":
            box.warm(1)
        yield box
    finally:
        with _guard.lock:
            kept.users -= 1


def check(parameters: Mapping[str, Any], elsewhere: bool = False) -> None:
    """Refuses what `Sandbox` refuses, before anything is called. Of calls elsewhere, not what is lacking here: a GPU."""
    if elsewhere:
        _arguments.gpu(parameters.get("gpu", False), parameters.get("start", "zygote"))
        parameters = {**parameters, "gpu": False}
    _make(parameters)


def _make(parameters: Mapping[str, Any]) -> Sandbox:
    # A fork has what this process has imported.
    if parameters.get("python") is not None or parameters.get("start") == "fork":
        return Sandbox(**parameters)
    preload = parameters.get("preload", ())
    if preload is None:
        return Sandbox(**parameters)
    return Sandbox(**{**parameters, "preload": (PRELOAD, *_arguments.modules(preload))})


def _take(pool: Pool) -> _Kept:
    key = repr((sorted(pool.profile.items()), pool.wanted, pool.learned is None))
    kept = _kept.pop(key, None) or _Kept(pool)
    _kept[key] = kept
    kept.users += 1
    return kept


def _unused() -> list[_Kept]:
    """Takes out what is more than there should be, unless it is in use."""
    idle = [key for key, kept in _kept.items() if kept.users == 0]
    return [_kept.pop(key) for key in idle[: max(0, len(_kept) - _MAX_IDLE)]]
