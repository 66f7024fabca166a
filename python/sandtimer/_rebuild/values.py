"""Values of the standard library."""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import re
import uuid
import zoneinfo
from typing import Any, Callable

from .common import MAX_DIGITS, Arguments, Unbuilt, Value, check, refuse

# Built-in types that may be values themselves, or factories of a defaultdict.
TYPES: dict[str, type] = {
    each.__name__: each
    for each in (
        bool, bytearray, bytes, complex, dict, float, frozenset, int, list, object, range, set, slice, str, tuple,
    )
}  # fmt: skip
# Pickles spell these as calls of their types.
for _name in ("bytearray", "complex", "range", "slice"):
    del TYPES[_name]

_ZONES = (datetime.timezone, zoneinfo.ZoneInfo)
_BUFFERS = ((bytes,), (bytearray,), (memoryview,))


def _timed(*types: type) -> tuple[tuple[type, ...], ...]:
    return types, *((*types, zone) for zone in _ZONES)


def _as_bytearray(buffer: bytes | bytearray | memoryview) -> bytearray:
    return buffer if type(buffer) is bytearray else bytearray(buffer)


# What the standard library's own constructors make of plain arguments.
VALUES: dict[tuple[str, str], Value] = {
    ("builtins", "bytearray"): Value(bytearray, ((), (bytes,)), False, bytearray),
    ("builtins", "complex"): Value(complex, ((float, float),), True, complex),
    ("builtins", "range"): Value(range, ((int, int, int),), True, range),
    ("datetime", "date"): Value(datetime.date, ((bytes,),), True),
    ("datetime", "datetime"): Value(datetime.datetime, _timed(bytes), True),
    ("datetime", "time"): Value(datetime.time, _timed(bytes), True),
    ("datetime", "timedelta"): Value(datetime.timedelta, ((int, int, int),), True),
    ("datetime", "timezone"): Value(
        datetime.timezone, ((datetime.timedelta,), (datetime.timedelta, str)), True
    ),
    ("_sandtimer_tokens", "as_bytes"): Value(bytes, _BUFFERS, True),
    ("_sandtimer_tokens", "as_bytearray"): Value(_as_bytearray, _BUFFERS),
}

_Function = Callable[[Arguments], object]


def rebuilds(
    module: str, *names: str, hashable: bool = True, type_object: type | None = None, objects: int = 0
) -> Callable[[_Function], _Function]:
    def add(function: _Function) -> _Function:
        for name in names:
            VALUES[module, name] = Value(function, (), hashable, type_object, objects)
        return function

    return add


@rebuilds("builtins", "slice", hashable=False, type_object=slice)
def _slice(arguments: Arguments) -> slice:
    if len(arguments) != 3 or not all(each is None or type(each) is int for each in arguments):
        refuse("slice is not made of integers")
    return slice(*arguments)


@rebuilds("zoneinfo", "ZoneInfo", type_object=zoneinfo.ZoneInfo)
def _zone(arguments: Arguments) -> object:
    refuse("ZoneInfo is not made of these arguments")


# A zone's key is a path below the time zone database's directories, or in a package of the same layout.
_ZONE_KEY = re.compile(r"(?:[A-Za-z0-9+_-]{1,32}/){0,3}[A-Za-z0-9+_-]{1,32}")


# One that is not from the cache has tables of its own.
@rebuilds("zoneinfo", "ZoneInfo._unpickle", objects=128)
def _zone_by_key(arguments: Arguments) -> zoneinfo.ZoneInfo:
    check(arguments, str, int, of="ZoneInfo")
    key, from_cache = arguments
    if not _ZONE_KEY.fullmatch(key):
        refuse("ZoneInfo has an impossible key")
    return zoneinfo.ZoneInfo(key) if from_cache else zoneinfo.ZoneInfo.no_cache(key)


# Exponents beyond these come from no arithmetic in the default context, and make int() and format() run for ever.
_LARGEST_EXPONENT = decimal.MAX_EMAX if decimal.MAX_EMAX < 999_999 else 999_999


@rebuilds("decimal", "Decimal")
def _decimal(arguments: Arguments) -> decimal.Decimal:
    check(arguments, str, of="Decimal")
    (text,) = arguments
    if len(text) > MAX_DIGITS + 20:
        refuse(f"Decimal has more than {MAX_DIGITS} digits")
    number = decimal.Decimal(text)
    if number.is_finite() and abs(number.adjusted()) > _LARGEST_EXPONENT:
        refuse(f"Decimal has an exponent beyond {_LARGEST_EXPONENT}")
    return number


@rebuilds("fractions", "Fraction")
def _fraction(arguments: Arguments) -> fractions.Fraction:
    if len(arguments) == 1:
        check(arguments, str, of="Fraction")
        numerator, _, denominator = arguments[0].partition("/")
        arguments = (int(numerator), int(denominator or "1"))
    check(arguments, int, int, of="Fraction")
    return fractions.Fraction(*arguments)


@rebuilds("uuid", "UUID")
def _uuid(arguments: Arguments) -> Unbuilt:
    check(arguments, of="UUID")
    return Unbuilt(_build_uuid, hashable=True)


def _build_uuid(state: object) -> uuid.UUID:
    if type(state) is not dict or not all(type(each) is int for each in state.values()):
        refuse("UUID is not made of numbers")
    fields: dict[str, Any] = dict(state)
    number = fields.pop("int", None)
    safe = fields.pop("is_safe", None)
    if number is None or fields:
        refuse("UUID has other fields than its number")
    return uuid.UUID(int=number, is_safe=uuid.SafeUUID(safe))


def _path(class_: type[pathlib.PurePath]) -> _Function:
    def rebuild(arguments: Arguments) -> pathlib.PurePath:
        if not all(type(each) is str for each in arguments):
            refuse(f"{class_.__name__} is not made of text")
        return class_(*arguments)

    return rebuild


# Where pathlib is a package, its pickles name the module inside.
for _class in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath):
    for _module in ("pathlib", "pathlib._local"):
        VALUES[_module, _class.__name__] = Value(_path(_class), hashable=True)
