"""Answers of calls: read from the job while it lives, and given to the caller as a value or an exception."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple, Optional, Sequence

from .. import _results
from .._outcome import Outcome
from ..errors import NoResultError, RemoteError, SandtimerError


class Answer(NamedTuple):
    """What a call answered, still as it wrote it down: nothing of it has been rebuilt."""

    # "" where it gave no answer, else what `data` describes: "value", "raised", "refused".
    kind: str = ""
    data: bytes = b""
    buffers: Sequence[Any] = ()
    # Known without rebuilding anything.
    ending: Optional[str] = None
    error: Optional[BaseException] = None
    # What rebuilding its value may cost.
    bounds: _results.Bounds = _results.SMALL


def answer_of(call: Any) -> Answer:
    """Waits for the answer of a call, and reads it. Its sandbox is taken down once the call is released."""
    kind, inline, lengths = call.wait()
    if kind == "nothing":
        return Answer(ending=bytes(inline).decode() or None)
    if kind == "malformed":
        return Answer(ending="no_result", error=NoResultError(bytes(inline).decode()))
    error: Optional[BaseException] = None
    data = b""
    buffers: list[Any] = []
    try:
        data, buffers = _results.fetch(call, lengths, inline)
    except SandtimerError as refused:
        error = refused.with_traceback(None)
    except OSError as wrong:
        # It died while its memory was read, or what it named is not there.
        call.cancel("its answer could not be read")
        if wrong.errno == errno.EFAULT:
            return Answer(ending="no_result", error=NoResultError("the job's answer is not in its own memory"))
        if wrong.errno == errno.EPROTO:
            return Answer(ending="no_result", error=NoResultError("the job sent something other than the answer that it had announced"))
        return Answer()
    if not call.accept(kind == "raised"):
        return Answer()
    size = len(data) + sum(memoryview(each).nbytes for each in buffers)
    bounds = _results.bounds(call.result_limit(), call.wall_limit(), size)
    return Answer(kind, data, buffers, error=error, bounds=bounds)


def value_of(outcome: Outcome) -> Any:
    """The value, or the exception that explains why there is none."""
    error = outcome.error
    if error is None:
        return outcome.value
    if isinstance(error, SandtimerError):
        raise error
    if not isinstance(error, Exception):
        # A SystemExit or KeyboardInterrupt of the call's must not end its caller.
        raise _replacement_of(error, outcome)
    raise error


def awaited_value_of(outcome: Outcome) -> Any:
    """As `value_of`, in a coroutine, or for a future that one may wait for."""
    if isinstance(outcome.error, StopIteration):
        # A coroutine cannot raise it, and a future of asyncio's cannot have it: who waits for one would wait for ever.
        raise _replacement_of(outcome.error, outcome)
    return value_of(outcome)


def _replacement_of(error: BaseException, outcome: Outcome) -> RemoteError:
    """Has the message of an exception that must not be raised here."""
    cause = error.__cause__
    remote = str(cause.args[0]) if isinstance(cause, _results.RemoteTraceback) else ""
    stand_in = RemoteError(type(error).__name__, str(error), remote)
    stand_in.outcome, stand_in.__cause__ = outcome, error
    return stand_in
