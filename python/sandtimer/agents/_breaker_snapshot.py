"""What a breaker knows, as plain values: what `CircuitBreaker.snapshot` gives and `restore` takes."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ..errors import InvalidArgumentError, InvalidArgumentTypeError

_MAX_COUNT = 2**32 - 1
_MAX_NUMBER = 2**63 - 1

#: A breaker's that has met nothing yet.
FRESH: dict[str, Any] = {
    "key": "",
    "state": "closed",
    "held": None,
    "retry_after_ms": None,
    "failures_in_a_row": 0,
    "times_opened": 0,
    "successes": 0,
    "probe_ends_ms": None,
    "probe_of": None,
    "generation": 0,
    "window": [],
    "said": [],
}


def _whole(most: int) -> tuple[Callable[[Any], bool], str]:
    return lambda value: type(value) is int and 0 <= value <= most, f"a whole number from 0 to {most}"


def _list_of(kind: type, what: str) -> tuple[Callable[[Any], bool], str]:
    return lambda value: isinstance(value, (list, tuple)) and all(type(each) is kind for each in value), what


def _one_of(*values: Any) -> tuple[Callable[[Any], bool], str]:
    names = [repr(value) for value in values]
    return lambda value: any(value is each or value == each for each in values), f"{', '.join(names[:-1])} or {names[-1]}"


_is_number, _number = _whole(_MAX_NUMBER)
#: What is restored: how a value is checked, and what a message offers instead.
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "state": _one_of("closed", "open", "half_open"),
    "held": _one_of("open", "closed", None),
    "retry_after_ms": (lambda value: value is None or _is_number(value), f"{_number}, or None"),
    "failures_in_a_row": _whole(_MAX_COUNT),
    "times_opened": _whole(_MAX_COUNT),
    "successes": _whole(_MAX_COUNT),
    "generation": _whole(_MAX_NUMBER),
    "window": _list_of(bool, "a list of True and False"),
    "said": _list_of(str, "a list of strings"),
}
#: What a snapshot may leave out.
_OPTIONAL = {field: FRESH[field] for field in ("held", "retry_after_ms", "generation")}


def checked(snapshot: Any) -> dict[str, Any]:
    """What `restore` takes up of a snapshot. InvalidArgumentError names the field, its value and what it may be."""
    if not isinstance(snapshot, Mapping):
        raise InvalidArgumentTypeError(f"snapshot={snapshot!r:.200}: use what snapshot() returned")
    missing = [field for field in _FIELDS if field not in snapshot and field not in _OPTIONAL]
    if missing:
        raise InvalidArgumentError(f"snapshot={snapshot!r:.200} has no {missing[0]!r}: use what snapshot() returned")
    snapshot = {**_OPTIONAL, **snapshot}
    for field, (is_valid, remedy) in _FIELDS.items():
        if not is_valid(snapshot[field]):
            raise InvalidArgumentError(f"{field}={snapshot[field]!r:.200} of the snapshot: use {remedy}")
    return {field: snapshot[field] for field in _FIELDS}
