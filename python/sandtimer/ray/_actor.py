"""The actor of a node: an engine, and the calls that it makes for one pool.

Owns the node's sandbox and the calls that are queued or under way in it. It unpickles neither arguments nor results: both
pass through as bytes, and what a job wrote down is rebuilt by the driver alone. Its event loop only hands over to the
sandbox's workers, so it answers whatever the jobs do; when it dies, the engine's watchdog ends them.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import time
from collections import OrderedDict
from typing import Any, Optional, Sequence

from .. import __version__, _job, _native
from .._sandbox import Answer, CallFuture, Sandbox, answer_of

# Answers beyond this go beside the reply's pickle rather than through it.
_LARGE = 64 * 1024
_MOST_SCOPES = 256
_MOST_CANCELLED = 10_000


class _Queued:
    """A call in this actor."""

    def __init__(self) -> None:
        self.future: Optional[CallFuture] = None
        self.begun: Optional[float] = None


class Actor:
    def __init__(self, parameters: dict[str, Any], paths: Sequence[str]) -> None:
        self._parameters, self._paths = parameters, paths
        self._box: Any = None
        self._calls: dict[int, _Queued] = {}
        # Of calls whose cancellation came before they did.
        self._cancelled: OrderedDict[int, None] = OrderedDict()
        self._scopes: OrderedDict[str, Any] = OrderedDict()

    async def begin(self) -> dict[str, Any]:
        """Starts the engine. What this actor is, or the exception that says why it can make no calls."""
        try:
            self._box = Sandbox(**self._parameters)
            self._extend(self._box._pool.profile)
            if self._parameters.get("start", "zygote") == "zygote":
                await asyncio.to_thread(self._box.warm, 1)
            else:
                await asyncio.to_thread(_native.engine)
        except Exception as error:
            return {"refused": error}
        process = os.getpid()
        return {
            "version": __version__,
            "workers": self._box._pool.workers,
            "process": process,
            "started": start_time(process),
        }

    def _extend(self, profile: dict[str, Any]) -> None:
        """Jobs import from here, and from where the driver does, as far as that is on this node too."""
        here = profile["paths"]
        if here is not None:
            profile["paths"] = [*here, *(each for each in self._paths if each not in here and os.path.exists(each))]

    async def call(
        self,
        key: int,
        options: dict[str, Any],
        body: Any,
        buffers: Sequence[Any],
        limits: dict[str, Any],
        scope: Optional[tuple[str, float]],
    ) -> tuple[Any, ...]:
        """Makes a call. Its settled record, and its answer as it was written down."""
        if self._cancelled.pop(key, key) is None:
            return ("cancelled",)
        queued = self._calls[key] = _Queued()
        box = self._box.limits(**limits)

        def make() -> _job.Job:
            content: Any = memoryview(body)
            job = _job.Job(options, content, [memoryview(each) for each in buffers])
            job.scope = bound
            queued.begun = time.monotonic()
            return job

        def finish(call: Any) -> tuple[Any, ...]:
            answer = answer_of(call)
            return ("answered", call.ended().outcome(True), *_portable(answer))

        try:
            bound = None if scope is None else self._scope(*scope)
            queued.future = box._queue(make, finish)
            return await asyncio.wrap_future(queued.future)
        except asyncio.CancelledError:
            return ("cancelled",)
        except Exception as error:
            return ("refused", error)
        finally:
            del self._calls[key]

    def _scope(self, name: str, left: float) -> Any:
        """What bounds the calls of one `map` together."""
        scope = self._scopes.pop(name, None)
        if scope is None:
            # 0 would be no limit.
            scope = _native.engine().scope("map", max(left, 1e-3))
        self._scopes[name] = scope
        if len(self._scopes) > _MOST_SCOPES:
            self._scopes.popitem(last=False)
        return scope

    async def cancel(self, key: int) -> None:
        queued = self._calls.get(key)
        if queued is None:
            self._cancelled[key] = None
            if len(self._cancelled) > _MOST_CANCELLED:
                self._cancelled.popitem(last=False)
        elif queued.future is not None:
            queued.future.cancel()

    async def elapsed(self, keys: Sequence[int]) -> dict[int, Optional[float]]:
        """For how long each has been under way; None for one that waits, or is not here."""
        now = time.monotonic()
        found = {key: self._calls.get(key) for key in keys}
        return {key: None if each is None or each.begun is None else now - each.begun for key, each in found.items()}

    async def stats(self) -> dict[str, Any]:
        return {"process": os.getpid(), "queued": len(self._calls), **self._box.stats()}

    async def close(self) -> None:
        await asyncio.to_thread(self._box.close)


def _portable(answer: Answer) -> tuple[Any, ...]:
    """An answer as plain values, with the large ones beside the pickle."""
    data: Any = pickle.PickleBuffer(answer.data) if len(answer.data) >= _LARGE else answer.data
    buffers = [(isinstance(each, bytes), pickle.PickleBuffer(each)) for each in answer.buffers]
    return (answer.kind, data, buffers, answer.ending, answer.error)


def unported(kind: str, data: Any, buffers: Any, ending: Optional[str], error: Optional[BaseException]) -> Answer:
    """The answer that `_portable` made these of. Its arrays lie where Ray put them, and cannot be written."""
    parts = [bytes(each) if immutable else memoryview(each) for immutable, each in buffers]
    return Answer(kind, data if isinstance(data, bytes) else bytes(data), parts, ending, error)


def start_time(process: int) -> str:
    """When a process of this machine was started; with its number it names one process for good."""
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]


def end_process(process: int, started: str) -> None:
    """Kills the process of an actor on this machine, if it is still that process."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        if start_time(process) == started:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        pass
    finally:
        os.close(descriptor)
