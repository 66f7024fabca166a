"""Text, size and JSON of a value that untrusted code made, each at a bounded cost.

A value may hold one part many times: thirty lists, each with the one before it twice, are some kilobytes here, and gigabytes
where each appearance is written out, as repr() and JSON do.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import gc
import json
import sys
import types
import uuid
from typing import Any, Iterator

# Of the JSON of one value.
MAX_JSON_CHARACTERS = 256 << 20

_SCALARS = (
    bool, float, complex, type(None), type(...), type(NotImplemented), decimal.Decimal, fractions.Fraction, range, slice,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, uuid.UUID,
)  # fmt: skip
_NOT_OF_THE_VALUE = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType, types.TracebackType,
)  # fmt: skip
# Libraries whose arrays say what their elements take.
_ARRAYS = frozenset(("numpy", "torch", "pyarrow"))


def short_repr(value: Any, limit: int = 200) -> str:
    """The first `limit` characters of repr(value), or of something like it where that would cost more than these.

    Calls no method of the value's class, unless the class is of the standard library or numpy.
    """
    text = ""
    for piece in _pieces(value, limit):
        text += piece
        if len(text) > limit:
            return text[: limit - 1] + "…"
    return text


def _pieces(value: Any, limit: int) -> Iterator[str]:
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        yield repr(value[: limit + 1])
    elif isinstance(value, enum.Enum):
        yield f"<{kind.__qualname__}.{value._name_}>"
    elif kind is int:
        # Python refuses to write more digits than that.
        yield repr(value) if value.bit_length() < 2000 else f"<int of {value.bit_length()} bits>"
    elif kind in _SCALARS:
        yield repr(value)
    elif isinstance(value, BaseException):
        yield from _enclosed(f"{kind.__qualname__}(", ((None, each) for each in value.args), ")", limit)
    elif isinstance(value, tuple) and hasattr(kind, "_fields"):
        yield from _enclosed(f"{kind.__qualname__}(", zip(kind._fields, tuple.__iter__(value)), ")", limit)
    elif dataclasses.is_dataclass(kind):
        fields = [each.name for each in dataclasses.fields(kind) if each.repr]
        own = [(name, _attribute(value, name)) for name in fields]
        yield from _enclosed(f"{kind.__qualname__}(", own, ")", limit)
    elif kind is dict or isinstance(value, (collections.OrderedDict, collections.defaultdict, collections.Counter)):
        yield from _items(value, limit)
    elif kind in _BRACKETS:
        opening, closing = _BRACKETS[kind]
        yield from _enclosed(opening, ((None, each) for each in value), ",)" if kind is tuple and len(value) == 1 else closing, limit)
    else:
        yield _described(value, kind)


_BRACKETS: dict[type, tuple[str, str]] = {
    list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("frozenset({", "})"), collections.deque: ("deque([", "])"),
}  # fmt: skip


def _attribute(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return ...


def _enclosed(opening: str, parts: Any, closing: str, limit: int) -> Iterator[str]:
    yield opening
    separator = ""
    for name, each in parts:
        yield separator if name is None else f"{separator}{name}="
        yield from _pieces(each, limit)
        separator = ", "
    yield closing


def _items(value: Any, limit: int) -> Iterator[str]:
    yield "{" if type(value) is dict else f"{type(value).__name__}({{"
    separator = ""
    for key, each in dict.items(value):
        yield separator
        yield from _pieces(key, limit)
        yield ": "
        yield from _pieces(each, limit)
        separator = ", "
    yield "}" if type(value) is dict else "})"


def _described(value: Any, kind: type) -> str:
    module = kind.__module__
    if module == "numpy" and getattr(getattr(value, "dtype", None), "kind", "") in ("b", "i", "u", "f", "c", "M", "m"):
        return repr(value)
    shape = f" of shape {tuple(value.shape)}" if module.partition(".")[0] in ("numpy", "torch") and hasattr(value, "shape") else ""
    return f"<{module}.{kind.__qualname__}{shape}>"


def exceeds_size(value: Any, most: int) -> bool:
    """Whether a value, with all that it holds, takes more than `most` bytes here. Reads no more than that."""
    visited: set[int] = set()
    stack, total = [value], 0
    while stack:
        each = stack.pop()
        if id(each) in visited or isinstance(each, _NOT_OF_THE_VALUE):
            continue
        visited.add(id(each))
        total += _size(each)
        if total > most:
            return True
        stack += _held(each)
    return False


def _size(value: Any) -> int:
    size = sys.getsizeof(value, 64)
    if isinstance(value, memoryview) or type(value).__module__.partition(".")[0] in _ARRAYS:
        # Of a view its own header alone would count.
        size = max(size, int(getattr(value, "nbytes", 0)))
    return size


def _held(value: Any) -> list[Any]:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.hasobject:
        return list(value.ravel().tolist())
    return gc.get_referents(value)


def shortened(value: Any, limit: int) -> str:
    """str(value), within the first `limit` characters where the value holds others."""
    return short_repr(value, limit) if isinstance(value, (list, tuple, set, frozenset, dict, collections.deque)) else str(value)


def encode_json(value: Any, allow_nan: bool = False) -> str:
    """The JSON of a value. Raises TypeError, ValueError or RecursionError where it has none, or one that is too long."""
    if _json_length(value, {}) > MAX_JSON_CHARACTERS:
        raise ValueError(f"its JSON would have more than {MAX_JSON_CHARACTERS >> 20} MiB")
    return json.dumps(value, allow_nan=allow_nan)


def _json_length(value: Any, known: dict[int, int]) -> int:
    """About how many characters the JSON of a value has, looking at each of its parts once."""
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, (list, tuple, dict)):
        return 8
    length = known.get(id(value))
    if length is None:
        # Of one that holds itself, which has no JSON.
        known[id(value)] = MAX_JSON_CHARACTERS
        length = 2
        for each in dict.values(value) if isinstance(value, dict) else value:
            length += _json_length(each, known) + 2
        if isinstance(value, dict):
            for key in value:
                length += len(key) + 4 if isinstance(key, str) else 8
        known[id(value)] = length
    return length
