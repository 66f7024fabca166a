"""Locks that are free in a fork of this process, for a thread that held one is not there.

Owns the one hook that puts new locks in their place there. A lock is taken by `with guard.lock:`, which releases what it took
even where the process was forked in between.
"""

from __future__ import annotations

import os
import threading
import weakref

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


class Guard:
    """A lock, and another one in each fork of this process."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        _guards.add(self)


def _after_fork() -> None:
    for guard in _guards:
        guard.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
