"""Ways to wait: what a store does is written once, as coroutines over one of these.

With `BLOCKING` no coroutine ever waits for an event loop, so `now` of the client runs one to its end in a single step. With
`AWAITING` the store is asked in threads, so that a slow disk does not delay an event loop.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, TypeVar

T = TypeVar("T")

#: How long a wait lasts before signals are handled, in seconds.
POLL_INTERVAL = 0.1


class Io:
    """A way to wait."""

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class Blocking(Io):
    """Waits in the calling thread."""

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Awaiting(Io):
    """Waits in the running event loop."""

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(function, *arguments)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


BLOCKING = Blocking()
AWAITING = Awaiting()
