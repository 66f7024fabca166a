"""What a judgement keeps of its outcomes: enough to see what went wrong, however much a submission has printed or returned.

A trainer holds the judgements of thousands of programs, each of which may print, return or raise as much as its limits allow.
"""

from __future__ import annotations

import base64
import json
import traceback
from typing import Any, Optional

from .. import _values
from .._outcome import Outcome, Record
from .._results import RemoteTraceback
from ..errors import RemoteError

# Bytes of stdout and stderr together, and of a value or an exception, that are kept of one case.
MAX_OUTPUT = 64 << 10
MAX_VALUE = 1 << 20
# Characters of the message and of the traceback that are kept of an exception which takes more.
_MAX_MESSAGE = 16 << 10
_MAX_TRACEBACK = 64 << 10
# Arguments of an exception that become its message.
_MAX_PARTS = 10
# Exceptions in whose handling another was raised, of which frames are looked at.
_MAX_CONTEXTS = 100


def shorten_outcome(outcome: Outcome) -> Outcome:
    """The outcome itself, or, where it holds more than is kept, another one of the same run, with less and a remark."""
    record, value, error = outcome._wait(), outcome.value, outcome.error
    remarks = []
    lacks_output = sum(len(record[name]) for name in ("stdout", "stderr")) > MAX_OUTPUT // 4 and _lacks_output(record)
    if value is not None and _takes_too_much(value):
        value = None
        remarks.append("The judgement does not keep the value, which takes more than 1 MiB; a checker is given it.")
    short_error = shorten_exception(error)
    if short_error is not error:
        remarks.append("The judgement does not keep all of the exception, which takes more than 1 MiB.")
    if not lacks_output and not remarks:
        return outcome
    ended = _ShortenedEnd(outcome, [{"kind": "shortened", "message": each} for each in remarks])
    return Outcome(ended, outcome.ending, value, short_error)


def shorten_exception(error: Optional[BaseException]) -> Optional[BaseException]:
    """The exception itself, or a shorter one with the same message if it takes more than is stored."""
    if error is None:
        return None
    facts = {name: value for name, value in vars(error).items() if name != "outcome"}
    if not _takes_too_much((error.args, facts, _remote_traceback(error))):
        return error
    if isinstance(error, RemoteError):
        name, message = error.type_name, error.message
    else:
        parts = [each if isinstance(each, str) else _values.short_repr(each, _MAX_MESSAGE) for each in error.args[:_MAX_PARTS]]
        name, message = type(error).__name__, ", ".join(part[:_MAX_MESSAGE] for part in parts)
    return RemoteError(name[:200], message[:_MAX_MESSAGE], _remote_traceback(error)[-_MAX_TRACEBACK:])


def release_frames(error: BaseException) -> BaseException:
    """An exception of a checker's whose frames have let go of what they held, such as the outcome."""
    each: Optional[BaseException] = error
    for _ in range(_MAX_CONTEXTS):
        if each is not None:
            traceback.clear_frames(each.__traceback__)
            each = each.__context__
    return error


def _remote_traceback(error: BaseException) -> str:
    if isinstance(error, RemoteError):
        return error.remote_traceback
    cause = error.__cause__
    return str(cause.args[0]) if isinstance(cause, RemoteTraceback) else ""


def _takes_too_much(value: Any) -> bool:
    try:
        return _values.exceeds_size(value, MAX_VALUE)
    except Exception:
        # Of a class of the caller's that cannot be asked.
        return True


class _ShortenedEnd:
    """The end of a run, with what is kept of its output. Lets go of the run itself once its end is final."""

    def __init__(self, outcome: Outcome, remarks: list[dict[str, str]]) -> None:
        self.id = outcome.run_id
        self._remarks = remarks
        self._ended: Any = outcome._ended
        self._record = self._take(outcome._wait())

    def _take(self, record: dict[str, Any]) -> Record:
        if record["tree"]["proof"] != "pending":
            self._ended = None
        return Record(_within_limits(record, self._remarks))

    def outcome(self, settled: bool) -> str:
        if settled and self._ended is not None:
            self._record = self._take(json.loads(self._ended.outcome(True)))
        return self._record.outcome(settled)


def _lacks_output(record: dict[str, Any]) -> bool:
    return sum(_length(record, name) for name in ("stdout", "stderr")) > MAX_OUTPUT


def _length(record: dict[str, Any], name: str) -> int:
    """How many bytes of a stream there are."""
    text = record[name]
    if _is_base64(record, name):
        return len(text) // 4 * 3
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _is_base64(record: dict[str, Any], name: str) -> bool:
    return bool(record.get(f"{name}_encoding", record["encoding"]) == "base64")


def _within_limits(record: dict[str, Any], remarks: list[dict[str, str]]) -> dict[str, Any]:
    """A copy of a record with at most so much output: the head and the tail of each stream."""
    record = {**record, "remarks": [*record.get("remarks", ()), *remarks]}
    lengths = {name: _length(record, name) for name in ("stdout", "stderr")}
    if sum(lengths.values()) <= MAX_OUTPUT:
        return record
    half = MAX_OUTPUT // 2
    for name, other in (("stdout", "stderr"), ("stderr", "stdout")):
        most = MAX_OUTPUT - min(lengths[other], half)
        if lengths[name] <= most:
            continue
        record[name] = _head_and_tail(record, name, most)
        record[f"{name}_truncated"] = True
        message = f"The judgement keeps {most} of the {lengths[name]} bytes of {name}, the first and the last; a checker is given all."
        record["remarks"].append({"kind": "shortened", "message": message})
    return record


def _head_and_tail(record: dict[str, Any], name: str, most: int) -> str:
    text: str = record[name]
    first, last = most // 2, most - most // 2
    if _is_base64(record, name):
        data = base64.b64decode(text)
        return base64.b64encode(data[:first] + data[-last:]).decode("ascii")
    # No character has more than four bytes, or less than one.
    head, tail = (part.encode("utf-8", "surrogatepass") for part in (text[:first], text[-last:]))
    return head[:first].decode("utf-8", "ignore") + tail[-last:].decode("utf-8", "ignore")
