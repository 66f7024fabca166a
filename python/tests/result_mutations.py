"""Decodes pickles with random changes, in a process that notices whatever else happens. Started by test_result_mutations.

Prints one line of JSON: how many were decoded, refused, and which events of the audit hook were not expected.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import json
import pathlib
import pickle
import random
import sys
import uuid
import zoneinfo
from typing import Any

import carry

from sandtimer import ResultRefusedError


class Plain:
    pass


class Slotted:
    __slots__ = ("a", "b")


class Broken(Exception):
    pass


class Color(enum.Enum):
    RED = 1


Named = collections.namedtuple("Named", "a b")
RESULTS = (Plain, Slotted, Broken, Color, Named)


def samples() -> list[bytes]:
    plain, slotted = Plain(), Slotted()
    plain.a, plain.b = [1, 2], plain  # type: ignore[attr-defined]
    slotted.a = slotted.b = {1.5: "x"}
    values: list[Any] = [
        None, [1, 2.5, "text", b"bytes", None, True, 2**40, -(2**70)], {"a": 1, 2: (3, 4), (5,): {6}}, {1, 2, frozenset([3])},
        bytearray(b"abc"), complex(1, 2), range(3), slice(1, 2), datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
        datetime.date(2020, 1, 1), datetime.timedelta(1), zoneinfo.ZoneInfo("UTC"), decimal.Decimal("1.5"), fractions.Fraction(1, 3),
        uuid.uuid4(), pathlib.Path("a/b"), collections.OrderedDict(a=1), collections.deque([1, [2]], 3), collections.Counter("aab"),
        collections.defaultdict(list, a=[1]), ValueError("a", 1), OSError(2, "x", "f"), KeyError(Plain), plain, slotted, Broken(1, [2]),
        Color.RED, Named(1, [2]), [[[[[[]]]]]], {"k": [{"k": [{"k": ()}]}]},
    ]  # fmt: skip
    try:
        import numpy

        values += [numpy.arange(3.0), numpy.arange(6).reshape(2, 3).T[::2], numpy.float32(1), numpy.zeros(2, [("a", "i4"), ("b", "U2")]),
                   numpy.datetime64("2020-01-01"), numpy.array([True])]  # fmt: skip
    except ImportError:
        pass
    values.append(list(values))
    return [pickle.dumps(value, 5) for value in values]


OPCODES = b"().0123abcdehijlopqrstuBCGIJKLMNPQRSTUVX]}\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"


def mutated(source: random.Random, pickles: list[bytes]) -> bytes:
    data = bytearray(source.choice(pickles))
    for _ in range(source.choice([1, 1, 1, 2, 3, 8])):
        place = source.randrange(len(data) + 1)
        change = source.randrange(6)
        if change == 0 and data:
            data[place % len(data)] = source.randrange(256)
        elif change == 1:
            data[place:place] = source.choices(OPCODES, k=source.randrange(1, 4))
        elif change == 2:
            del data[place : place + source.randrange(1, 5)]
        elif change == 3:
            other = source.choice(pickles)
            start = source.randrange(len(other))
            data[place:place] = other[start : start + source.randrange(1, 40)]
        elif change == 4 and data:
            data[place % len(data)] = source.choice(OPCODES)
        elif data:
            start = source.randrange(len(data))
            data[place:place] = data[start : start + source.randrange(1, 20)]
    return bytes(data)


EVENTS: collections.Counter[str] = collections.Counter()
# What functions of the table do themselves: time zones are read from their database.
EXPECTED = {"object.__getattr__", "sys._getframe", "os.listdir", "os.scandir"}
DECODING = False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not DECODING or event in EXPECTED:
        return
    if event == "open" and "zoneinfo" in str(arguments[0]) and arguments[1] in ("r", "rb"):
        return
    if event == "import" and str(arguments[0]).startswith(
        ("tzdata", "zoneinfo", "importlib", "numpy", "torch", "pyarrow")
    ):
        return
    EVENTS[f"{event} {arguments!r:.80}"] += 1


ALLOWED_MODULES = (
    "builtins",
    "datetime",
    "zoneinfo",
    "decimal",
    "fractions",
    "uuid",
    "pathlib",
    "pathlib._local",
    "collections",
    "enum",
    "numpy",
    __name__,
)


def main(count: int, seed: int) -> None:
    global DECODING
    source = random.Random(seed)
    pickles = samples()
    for data in pickles:
        carry.decode(data, (), RESULTS)
    # Looking for a zone that is not there loads what reads packages, more where there is a package of zones.
    for name in ("No/Such", "Europe/No_Such"):
        with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError):
            zoneinfo.ZoneInfo(name)
    sys.addaudithook(watch)
    decoded = refused = 0
    for _ in range(count):
        data = mutated(source, pickles)
        DECODING = True
        try:
            value = carry.decode(data, [b"12345678", bytearray(8)], RESULTS, objects=100_000)
        except ResultRefusedError:
            refused += 1
            continue
        finally:
            DECODING = False
        decoded += 1
        kind = type(value)
        if kind.__module__ not in ALLOWED_MODULES:
            EVENTS[f"a value of {kind}"] += 1
        if decoded % 4 == 0:
            use(value)
    print(json.dumps({"decoded": decoded, "refused": refused, "unexpected": EVENTS}))


def use(value: Any) -> None:
    """What a caller may do without thinking: nothing of it may end the process."""
    for action in (repr, hash, lambda each: each == each, pickle.dumps):
        try:
            action(value)
        except (
            TypeError,
            ValueError,
            AttributeError,
            RecursionError,
            OverflowError,
            ArithmeticError,
            pickle.PicklingError,
        ):
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
