"""Results that name one object many times, to have it copied: memory and time of the reader are bounded.

A hostile pickle recalls an object for two bytes. Each attack has a control: the same pickle, with fewer copies or an
object that is used once, is rebuilt.
"""

from __future__ import annotations

import collections
import dataclasses
import struct
import subprocess
import sys
import time
from typing import Any

import carry
import pytest
import sandtimer
from sandtimer import ResultRefusedError, _results

PROTO = b"\x80\x05"
MIB = 1 << 20


class Text(str):
    pass


class Items(tuple):  # type: ignore[type-arg]
    pass


Pair = collections.namedtuple("Pair", "left right")


class Plain:
    pass


class Slotted:
    __slots__ = ("__dict__", "other")


@dataclasses.dataclass
class Record:
    number: int
    text: str


class Wide:
    __slots__ = tuple(f"slot{each}" for each in range(1_000))


def name(module: str, attribute: str) -> bytes:
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def text(content: str) -> bytes:
    return b"\x8d" + struct.pack("<Q", len(content)) + content.encode()


def content(length: int) -> bytes:
    return b"\x8e" + struct.pack("<Q", length) + bytes(length)


def entries(count: int) -> bytes:
    """A dict of so many entries."""
    return b"}(" + b"".join(b"J" + struct.pack("<i", each) + b"N" for each in range(count)) + b"u"


def fields(count: int) -> bytes:
    return b"}(" + b"".join(text(f"field{each}") + b"N" for each in range(count)) + b"u"


def copies(shared: bytes, made: bytes, count: int) -> bytes:
    """A list of what `made` makes, so many times, of the object that `shared` puts at place 0 of the memo."""
    return PROTO + shared + b"\x940](" + made * count + b"e."


BOUNDS = {"copied_bytes": 16 * MIB, "objects": 200_000}
OF_BYTES = {
    "bytearray": (content(MIB), name("builtins", "bytearray") + b"h\0\x85R"),
    "as_bytearray": (content(MIB), name("_sandtimer_tokens", "as_bytearray") + b"h\0\x85R"),
    "text of a class": (text("x" * MIB), name(__name__, "Text") + b"h\0\x85\x81"),
    "range": (b"\x8b" + struct.pack("<I", 1_700) + b"\1" * 1_700, name("builtins", "range") + b"h\0h\0h\0\x87R"),
    "Decimal": (text("9" * 4_000), name("decimal", "Decimal") + b"h\0\x85R"),
}
OF_ENTRIES = {
    "Counter": (entries(10_000), name("collections", "Counter") + b"h\0\x85R"),
    "exception": (fields(10_000), name("builtins", "Exception") + b")Rh\0b"),
    "instance": (fields(10_000), name(__name__, "Plain") + b")\x81h\0b"),
    "fields within fields": (
        fields(10_000), name(__name__, "Slotted") + b")\x81}" + text("__dict__") + b"h\0sb",
    ),
    "tuple of a class": (b"(" + b"N" * 10_000 + b"t", name(__name__, "Items") + b"h\0\x85\x81"),
    "group": (
        b"](" + (name("builtins", "ValueError") + b")R") * 10_000 + b"e",
        name("builtins", "ExceptionGroup") + text("group") + b"h\0\x86R",
    ),
}  # fmt: skip


class TestCopies:
    @pytest.mark.parametrize("kind", OF_BYTES)
    def test_bytes_that_are_copied_are_bounded(self, kind: str) -> None:
        shared, made = OF_BYTES[kind]
        assert len(carry.decode(copies(shared, made, 10), (), [Text], **BOUNDS)) == 10
        with pytest.raises(ResultRefusedError, match=r"copies more than 16777216 bytes.*result_bytes"):
            carry.decode(copies(shared, made, 20_000), (), [Text], **BOUNDS)

    @pytest.mark.parametrize("kind", OF_ENTRIES)
    def test_entries_that_are_copied_are_bounded(self, kind: str) -> None:
        if kind == "group" and sys.version_info < (3, 11):
            pytest.skip("this Python has no groups of exceptions")
        shared, made = OF_ENTRIES[kind]
        classes = [Plain, Slotted, Items]
        assert len(carry.decode(copies(shared, made, 3), (), classes, **BOUNDS)) == 3
        with pytest.raises(ResultRefusedError, match=r"more entries .* its limit of 200000 objects"):
            carry.decode(copies(shared, made, 100), (), classes, **BOUNDS)

    def test_arrays_that_share_a_buffer_are_bounded(self) -> None:
        numpy = pytest.importorskip("numpy")
        array = numpy.zeros(MIB, "u1")
        module = "numpy._core" if numpy.__version__ >= "2" else "numpy.core"
        dtype_state = b"(K\3" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0t"
        dtype = name("numpy", "dtype") + text("u1") + b"\x89\x88\x87R" + dtype_state + b"b\x94"
        state = b"(K\1J" + struct.pack("<i", MIB) + b"\x85h\1\x89h\0tb"
        made = name(f"{module}.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\0\x85C\1b\x87R" + state

        def data(count: int) -> bytes:
            return PROTO + content(MIB) + b"\x940" + dtype + b"0](" + made * count + b"e."

        assert numpy.array_equal(carry.decode(data(3), **BOUNDS)[2], array)
        with pytest.raises(ResultRefusedError, match="copies more than 16777216 bytes"):
            carry.decode(data(20), **BOUNDS)

    def test_zones_that_are_not_from_the_cache_are_bounded(self) -> None:
        made = name("zoneinfo", "ZoneInfo._unpickle") + text("UTC") + b"K\0\x86R"
        assert len(carry.decode(copies(b"N", made, 10), **BOUNDS)) == 10
        with pytest.raises(ResultRefusedError, match="more objects"):
            carry.decode(copies(b"N", made, 2_000), **BOUNDS)

    def test_large_instances_count_as_more_than_one_object(self) -> None:
        made = name(__name__, "Wide") + b")\x81"
        assert len(carry.decode(copies(b"N", made, 10), (), [Wide], **BOUNDS)) == 10
        with pytest.raises(ResultRefusedError, match="more objects"):
            carry.decode(copies(b"N", made, 10_000), (), [Wide], **BOUNDS)

    def test_values_that_a_pickler_writes_are_not_refused(self) -> None:
        long = "x" * MIB
        shared = list(range(10_000))
        values: list[Any] = [
            [Pair(long, shared) for _ in range(1_000)],
            [ValueError(long) for _ in range(1_000)],
            [Record(each, "text") for each in range(15_000)],
            collections.Counter({each: 1 for each in range(60_000)}),
            [bytearray(MIB) for _ in range(16)],
            [Text("x" * MIB) for _ in range(15)],
            [Items(range(100)) for _ in range(1_000)],
        ]
        for value in values:
            rebuilt = carry.pickled(value, [Pair, Record, Text, Items], **BOUNDS)
            plain = [[each.args if isinstance(each, Exception) else each for each in one] for one in (rebuilt, value)]
            assert plain[0] == plain[1]
            assert type(rebuilt) is type(value)


class TestTime:
    def test_rebuilding_ends_at_its_limit_of_processor_time(self) -> None:
        numerator, denominator = (b"\x8b" + struct.pack("<I", 1_700) + bytes([each]) * 1_699 + b"\0" for each in (0x6B, 0x25))
        made = name("fractions", "Fraction") + b"h\0h\1\x86R"

        def data(count: int) -> bytes:
            return PROTO + numerator + b"\x940" + denominator + b"\x940](" + made * count + b"e."

        bounds = {"copied_bytes": 1 << 40, "objects": 10_000_000}
        assert len(carry.decode(data(10), cpu_seconds=0.5, **bounds)) == 10
        begun = time.thread_time()
        with pytest.raises(ResultRefusedError, match=r"took \d+\.\d s of processor time, more than the limit of 0\.5 s"):
            carry.decode(data(1_000_000), cpu_seconds=0.5, **bounds)
        assert time.thread_time() - begun < 5

    def test_the_limit_follows_the_wall_of_the_call(self) -> None:
        seconds = [_results.bounds(None, wall, 0).cpu_seconds for wall in (None, 2.0, 30.0, 3600.0)]
        assert seconds == [60.0, 10.0, 30.0, 60.0]

    def test_copied_bytes_follow_the_result_limit(self) -> None:
        copied = [_results.bounds(limit, None, 5).copied_bytes for limit in (None, 1, 64 * MIB)]
        assert copied == [1 << 30, 16 * MIB, 64 * MIB]
        assert _results.bounds(None, None, 1 << 33).copied_bytes == 1 << 33


CALL = """
import sandtimer

def peak():
    # Not ru_maxrss: a new program inherits that of the process that started it.
    with open("/proc/self/status") as status:
        return int(status.read().partition("VmHWM:")[2].split()[0]) >> 10

def copies(count):
    class Copy:
        def __init__(self, content): self.content = content
        def __reduce__(self): return bytearray, (self.content,)
    content = bytes(4 << 20)
    return [Copy(content) for _ in range(count)]

with sandtimer.Sandbox(timeout=30.0, memory="128MB", result_bytes="16MB") as box:
    assert len(box.call(copies, 3)) == 3
    before = peak()
    outcome = box.run(copies, 150)
    print(type(outcome.error).__name__, peak() - before)
"""


def test_call_with_a_small_result_takes_little_memory() -> None:
    done = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    error, grown = done.stdout.split()
    assert error == "ResultRefusedError"
    # 150 copies would be 600 MiB.
    assert int(grown) < 100, f"{grown} MiB"


def test_a_refusal_names_the_limit_that_was_set() -> None:
    with sandtimer.Sandbox(timeout=30.0, result_bytes="32MB") as box:
        error = box.run(eval, "[__import__('collections').Counter({each: 1 for each in range(1000)})] * 3").error
        assert error is None
        attack = (
            "(lambda counts: [type('C', (), {'__reduce__': lambda self: (__import__('collections').Counter, (counts,))})()"
            " for _ in range(100)])({each: 1 for each in range(100_000)})"
        )
        with pytest.raises(ResultRefusedError, match="limit of 2097152 objects"):
            box.call(eval, attack)
