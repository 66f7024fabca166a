"""The actor of a node: an engine, and the calls that it makes for one pool.

Owns the node's sandbox and the calls that are queued or under way in it. It unpickles neither arguments nor results: both
pass through as bytes, and what a job wrote down is rebuilt by the driver alone. (Arguments that the driver gave as
references are Ray's, which resolves them here.) Calls have threads of their own, as many as run at a time, and questions
others, so it answers whatever the jobs do; when it dies, the engine's watchdog ends them.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections import OrderedDict
from typing import Any, Callable, Optional, Sequence, TypeVar, Union

import ray

from .. import __version__, _native
from ..sandbox import _job
from ..sandbox._answers import Answer, answer_of
from ..sandbox._sandbox import Sandbox
from ._references import Positions, put_back

F = TypeVar("F", bound=Callable[..., Any])

# Answers beyond this go separately from the reply's pickle.
_LARGE = 64 * 1024
_MAX_SCOPES = 256
_MAX_CANCELLED = 10_000
_MAX_ENDED = 64
# Threads of the actor's: for calls, and for methods that must answer while all of those are taken.
CALLS, QUESTIONS = "calls", "questions"


def _calling(method: F) -> F:
    return ray.method(concurrency_group=CALLS)(method)  # type: ignore[no-any-return]


def _question(method: F) -> F:
    return ray.method(concurrency_group=QUESTIONS)(method)  # type: ignore[no-any-return]


class Actor:
    def __init__(self, parameters: dict[str, Any], paths: Sequence[str]) -> None:
        self._parameters, self._paths = parameters, paths
        self._box: Any = None
        self._lock = threading.Lock()
        # Under way, and since when.
        self._calls: dict[int, tuple[Any, float]] = {}
        # Of calls whose cancellation came before they did.
        self._cancelled: OrderedDict[int, None] = OrderedDict()
        # Answered before they were settled, the latest of them.
        self._ended: OrderedDict[int, Any] = OrderedDict()
        self._scopes: OrderedDict[str, Any] = OrderedDict()

    @_question
    def begin(self) -> dict[str, Any]:
        """Starts the engine. What this actor is, or the exception that explains why it can make no calls."""
        try:
            self._box = Sandbox(**self._parameters)
            self._extend(self._box._pool.profile)
            if self._parameters.get("start", "zygote") == "zygote":
                self._box.warm(1)
            else:
                _native.engine()
        except Exception as error:
            return {"refused": error}
        process = os.getpid()
        return {
            "version": __version__,
            "process": process,
            "started": start_time(process),
        }

    def _extend(self, profile: dict[str, Any]) -> None:
        """Jobs import from here, and from where the driver does, as far as that is on this node too."""
        here = profile["paths"]
        if here is not None:
            profile["paths"] = [*here, *(each for each in self._paths if each not in here and os.path.exists(each))]

    @_calling
    def call(self, request: bytes, *parts: Any) -> Union[bytes, list[Any]]:
        """Makes a call; see `request_of` and `reply_in`. Its parts are its arguments as they were written down.

        After them are the values of arguments that are references. The answer comes with its record: settled, or left out
        of what has a value and is not to `settle`.
        """
        key, options, body, positions, limits, scope, settle, needs = pickle.loads(request)
        split = len(parts) - len(positions)
        buffers, values = [memoryview(each) for each in parts[:split]], parts[split:]
        if body is None:
            body, *buffers = buffers
        return _reply(self._call(key, options, body, buffers, positions, values, limits, scope, settle, needs))

    def _call(
        self,
        key: int,
        options: dict[str, Any],
        body: Any,
        buffers: Sequence[memoryview],
        positions: Positions,
        values: Sequence[Any],
        limits: dict[str, Any],
        scope: Optional[tuple[str, float]],
        settle: bool,
        needs: tuple[str, ...],
    ) -> tuple[Any, ...]:
        try:
            if positions:
                body, buffers = put_back(body, buffers, positions, values)
            with _job.Job(options, body, buffers) as job:
                with self._lock:
                    if self._cancelled.pop(key, key) is None:
                        return ("cancelled",)
                    job.scope = None if scope is None else self._scope(*scope)
                job.needs = (needs, set(needs)) if needs else None
                call = self._box.limits(**limits)._begin(job)
                with self._lock:
                    self._calls[key] = (call, time.monotonic())
                    cancelled = key in self._cancelled
                if cancelled:
                    call.cancel("its future was cancelled")
                try:
                    answer, ended = answer_of(call), call.ended()
                finally:
                    call.release()
            if settle or answer.kind != "value":
                return ("answered", ended.outcome(True), answer)
            with self._lock:
                self._ended[key] = ended
                if len(self._ended) > _MAX_ENDED:
                    self._ended.popitem(last=False)
            return ("answered", None, answer)
        except Exception as error:
            return ("refused", error)
        finally:
            with self._lock:
                self._calls.pop(key, None)
                self._cancelled.pop(key, None)

    @_question
    def record(self, key: int) -> Optional[str]:
        """The settled record of a call that was answered without; None if there have been too many since."""
        with self._lock:
            ended = self._ended.get(key)
        return None if ended is None else ended.outcome(True)

    def _scope(self, name: str, left: float) -> Any:
        """What bounds the calls of one `map` together."""
        scope = self._scopes.pop(name, None)
        if scope is None:
            # 0 would mean unlimited.
            scope = _native.engine().scope("map", max(left, 1e-3))
        self._scopes[name] = scope
        if len(self._scopes) > _MAX_SCOPES:
            self._scopes.popitem(last=False)
        return scope

    @_question
    def cancel(self, key: int) -> None:
        with self._lock:
            call, _ = self._calls.get(key, (None, 0.0))
            if call is None:
                self._cancelled[key] = None
                if len(self._cancelled) > _MAX_CANCELLED:
                    self._cancelled.popitem(last=False)
        if call is not None:
            call.cancel("its future was cancelled")

    @_question
    def elapsed(self, keys: Sequence[int]) -> dict[int, Optional[float]]:
        """For how long each has been under way; None for one that waits, or is not here."""
        now = time.monotonic()
        with self._lock:
            return {key: now - self._calls[key][1] if key in self._calls else None for key in keys}

    @_question
    def stats(self) -> dict[str, Any]:
        return {"process": os.getpid(), "running": len(self._calls), **self._box.stats()}

    @_question
    def close(self) -> None:
        self._box.close()


def request_of(
    key: int,
    options: dict[str, Any],
    body: bytes,
    buffers: Sequence[memoryview],
    positions: Positions,
    references: Sequence[Any],
    limits: dict[str, Any],
    scope: Optional[tuple[str, float]],
    settle: bool,
    needs: tuple[str, ...],
) -> list[Any]:
    """The arguments of `Actor.call`: one of bytes, which costs Ray least, after it what is large, and what Ray resolves."""
    large = len(body) >= _LARGE
    request = pickle.dumps((key, options, None if large else body, positions, limits, scope, settle, needs), 5)
    parts = [pickle.PickleBuffer(each) for each in ([memoryview(body)] if large else []) + list(buffers)]
    return [request, *parts, *references]


def _reply(reply: tuple[Any, ...]) -> Union[bytes, list[Any]]:
    """The reply of the actor as bytes, which cost Ray least, or as those and what is large."""
    parts: list[Any] = []
    if reply[0] == "answered":
        kind, record, answer = reply
        flags = [isinstance(each, bytes) for each in answer.buffers]
        parts = [pickle.PickleBuffer(each) for each in answer.buffers]
        data: Optional[bytes] = answer.data
        if len(answer.data) >= _LARGE:
            parts.append(pickle.PickleBuffer(answer.data))
            data = None
        reply = (kind, record, (answer.kind, data, flags, answer.ending, answer.error, answer.bounds))
    head = pickle.dumps(reply, 5)
    return [head, *parts] if parts else head


def reply_in(reply: Union[bytes, list[Any]]) -> tuple[Any, ...]:
    """The reply of an actor. Arrays of an answer are where Ray put them, and read-only."""
    head, *parts = [reply] if isinstance(reply, bytes) else reply
    message: tuple[Any, ...] = pickle.loads(head)
    if message[0] != "answered":
        return message
    kind, data, flags, ending, error, bounds = message[2]
    buffers = [bytes(part) if immutable else memoryview(part) for immutable, part in zip(flags, parts)]
    data = bytes(parts[-1]) if data is None else data
    return (*message[:2], Answer(kind, data, buffers, ending, error, bounds))


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
