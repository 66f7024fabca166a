"""Results written to do harm. Each attack is refused here, and shown to work on plain `pickle.loads`."""

from __future__ import annotations

import collections
import copyreg
import enum
import pickle
import signal
import struct
import subprocess
import sys
import time
from typing import Any

import carry
import pytest
import sandtimer
from sandtimer import ResultRefusedError

PROTO = b"\x80\x05"
ECHO = b"X\x09\x00\x00\x00echo HARM"
EXEC = b"X\x0d\x00\x00\x00print('HARM')"


def name(module: str, attribute: str) -> bytes:
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


SYSTEM = name("os", "system") + ECHO + b"\x85R"


class Calls:
    """Pickled as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


CALLS = {
    "os.system": SYSTEM,
    "posix.system": name("posix", "system") + ECHO + b"\x85R",
    "eval": name("builtins", "eval") + EXEC + b"\x85R",
    "exec": name("builtins", "exec") + EXEC + b"\x85R",
    "print": name("builtins", "print") + text("HARM") + b"\x85R",
    "a function by STACK_GLOBAL": text("os") + text("system") + b"\x93" + ECHO + b"\x85R",
    "a name with dots": text("os") + text("path.os.system") + b"\x93" + ECHO + b"\x85R",
    "getattr of a module": name("builtins", "getattr") + name("builtins", "__import__") + text("os") + b"\x85R" + text("system")
    + b"\x86R" + ECHO + b"\x85R",
    "getattr of an allowed type": name("builtins", "getattr") + name("builtins", "object") + text("__subclasses__") + b"\x86R)R0"
    + name("builtins", "print") + text("HARM") + b"\x85R",
    "importlib": name("importlib", "import_module") + text("this") + b"\x85R0" + name("builtins", "print") + text("HARM") + b"\x85R",
    "subprocess": name("subprocess", "getoutput") + text("true") + b"\x85R0" + name("builtins", "print") + text("HARM") + b"\x85R",
    "map": name("builtins", "list") + name("builtins", "map") + name("os", "system") + b"(" + ECHO + b"l\x86R\x85R",
    "partial": name("functools", "partial") + name("os", "system") + ECHO + b"\x86R)R",
    "operator": name("operator", "methodcaller") + text("system") + ECHO + b"\x86R" + name("builtins", "__import__") + text("os")
    + b"\x85R\x85R",
    "INST": b"(" + ECHO + b"ios\nsystem\n",
    "OBJ": b"(" + name("os", "system") + ECHO + b"o",
    "NEWOBJ_EX": name("functools", "partial") + name("os", "system") + ECHO + b"\x86}\x92)R",
    "a code object": name("types", "FunctionType") + name("builtins", "compile") + EXEC + text("x") + text("exec") + b"\x87R}"
    + text("__builtins__") + name("builtins", "__import__") + text("builtins") + b"\x85Rs\x86R)R",
    "a default factory": name("collections", "defaultdict") + name("os", "getpid") + b"\x85R0" + SYSTEM,
    "a state": name("types", "SimpleNamespace") + b")R}" + text("a") + SYSTEM + b"sb",
    "a metaclass": name("builtins", "type") + text("C") + b")}\x87R0" + SYSTEM,
}  # fmt: skip


@pytest.mark.parametrize("attack", CALLS.values(), ids=CALLS)
def test_a_call_is_not_made(attack: bytes) -> None:
    data = PROTO + attack + b"."
    with pytest.raises(ResultRefusedError):
        carry.decode(data)
    assert carry.does_harm(data)


WRAPPED = {
    "in a list": b"]" + SYSTEM + b"a",
    "in a dict": b"}K\x01" + SYSTEM + b"s",
    "as a key": b"}" + SYSTEM + b"K\x01s",
    "in a set": b"\x8f(" + SYSTEM + b"\x90",
    "in a tuple": b"K\x01" + SYSTEM + b"K\x02\x87",
    "as an argument": name("builtins", "ValueError") + SYSTEM + b"\x85R",
    "thrown away": SYSTEM + b"0N",
    "from the memo": name("os", "system") + b"\x940h\x00" + ECHO + b"\x85R",
    "in a state": name("builtins", "ValueError") + b")R}" + text("a") + SYSTEM + b"sb",
    "in a deque": name("collections", "deque") + b")R" + SYSTEM + b"a",
}


@pytest.mark.parametrize("attack", WRAPPED.values(), ids=WRAPPED)
def test_a_call_inside_a_value_is_not_made(attack: bytes) -> None:
    data = PROTO + attack + b"."
    with pytest.raises(ResultRefusedError, match="os.system"):
        carry.decode(data)
    assert carry.does_harm(data)


def test_a_module_is_not_imported() -> None:
    data = PROTO + name("this", "s") + b"0N."
    with pytest.raises(ResultRefusedError, match="this.s"):
        carry.decode(data)
    assert "this" not in sys.modules
    assert carry.does_harm(data, "Zen of Python")


class Watched:
    """Its state is read by its own code."""

    def __setstate__(self, state: Any) -> None:
        print("HARM")


class Slippery:
    def __setattr__(self, attribute: str, value: Any) -> None:
        print("HARM")


def test_the_code_of_a_named_class_is_not_run(capfd: pytest.CaptureFixture[str]) -> None:
    source = "import sys\nsys.path.insert(0, %r)\nimport test_result_hostile" % str(
        __file__.rpartition("/")[0]
    )
    for class_, state in (
        (Watched, b"K\x01"),
        (Watched, b"}"),
        (Slippery, b"N}" + text("a") + b"K\x01s\x86"),
    ):
        data = PROTO + name(__name__, class_.__name__) + b")\x81" + state + b"b."
        try:
            assert type(carry.decode(data, (), [class_])) is class_
        except ResultRefusedError as refusal:
            assert "__setstate__" in str(refusal) or "no field" in str(refusal)
        assert capfd.readouterr().out == ""
        assert state == b"}" or carry.does_harm(data, before=source)


class TestExtensions:
    CODE = 0x7A

    def test_an_extension_code_is_not_looked_up(self) -> None:
        register = f"import copyreg, os\ncopyreg.add_extension('os', 'system', {self.CODE})"
        data = PROTO + b"\x82" + bytes([self.CODE]) + ECHO + b"\x85R."
        copyreg.add_extension("os", "system", self.CODE)
        try:
            for opcode, width in ((b"\x82", 1), (b"\x83", 2), (b"\x84", 4)):
                attack = PROTO + opcode + self.CODE.to_bytes(width, "little") + ECHO + b"\x85R."
                with pytest.raises(ResultRefusedError, match="EXT"):
                    carry.decode(attack)
        finally:
            copyreg.remove_extension("os", "system", self.CODE)
        assert carry.does_harm(data, before=register)

    def test_not_even_one_that_the_caller_has_used_before(self) -> None:
        """Once used, a code is in a cache that `find_class` is not asked about."""
        copyreg.add_extension("builtins", "print", self.CODE)
        data = PROTO + b"\x82" + bytes([self.CODE]) + text("HARM") + b"\x85R."
        try:
            pickle.loads(PROTO + b"\x82" + bytes([self.CODE]) + b".")
            with pytest.raises(ResultRefusedError, match="EXT1"):
                carry.decode(data)

            class Careful(pickle.Unpickler):
                def find_class(self, module: str, attribute: str) -> Any:
                    raise pickle.UnpicklingError("refused")

            import io

            assert Careful(io.BytesIO(data)).load() is None
        finally:
            copyreg.remove_extension("builtins", "print", self.CODE)


@pytest.mark.parametrize("attack", [b"Pharm\n", text("harm") + b"Q"], ids=["PERSID", "BINPERSID"])
def test_a_persistent_id_is_not_loaded(attack: bytes) -> None:
    with pytest.raises(ResultRefusedError, match="PERSID"):
        carry.decode(PROTO + attack + b".")
    loaded: list[Any] = []

    class Loader(pickle.Unpickler):
        def persistent_load(self, pid: Any) -> Any:
            loaded.append(pid)

    import io

    Loader(io.BytesIO(PROTO + attack + b".")).load()
    assert loaded == ["harm"]


class TestSize:
    def test_a_huge_integer(self) -> None:
        for number in (1 << 15_000, -(1 << 15_000), 1 << 8_000_000):
            with pytest.raises(ResultRefusedError, match="integer"):
                carry.pickled(number)
            assert pickle.loads(pickle.dumps(number)) == number
        assert carry.pickled(1 << 15_000, int_bits=20_000) == 1 << 15_000
        with pytest.raises(ResultRefusedError):
            carry.decode(PROTO + b"\x8b\xff\xff\xff\xff\x00.")

    def test_a_huge_decimal(self) -> None:
        def decimal(digits: str) -> bytes:
            return PROTO + name("decimal", "Decimal") + text(digits) + b"\x85R."

        for digits in ("9" * 100_000, "1E+999999999", "1E-999999999", "-1E+1000000"):
            with pytest.raises(ResultRefusedError, match="Decimal"):
                carry.decode(decimal(digits))
            assert pickle.loads(decimal(digits)).is_finite()
        with pytest.raises(ResultRefusedError):
            carry.decode(decimal("harm"))

    def test_a_huge_fraction(self) -> None:
        data = PROTO + name("fractions", "Fraction") + text("1/" + "9" * 10_000) + b"\x85R."
        with pytest.raises(ResultRefusedError):
            carry.decode(data)

    def test_a_length_that_is_not_there(self) -> None:
        for opcode in (
            b"X\xff\xff\xff\xff",
            b"B\xff\xff\xff\xff",
            b"\x8d" + b"\xff" * 8,
            b"\x8e" + b"\xff" * 7 + b"\x7f",
            b"\x96" + b"\xff" * 8,
        ):
            with pytest.raises(ResultRefusedError, match="ends too soon"):
                carry.decode(PROTO + opcode + b"abc.")

    def test_a_memo_that_fills_memory(self) -> None:
        data = PROTO + b"Nr\xff\xff\xff\x7f."
        with pytest.raises(ResultRefusedError, match="LONG_BINPUT"):
            carry.decode(data)
        limit = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        code = (
            limit
            + "import pickle, sys\ntry: pickle.loads(sys.stdin.buffer.read())\nexcept MemoryError: print('HARM')"
        )
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=60)
        assert b"HARM" in done.stdout
        with pytest.raises(ResultRefusedError, match="remembers more"):
            carry.decode(PROTO + b"N" + b"\x94" * 2_000 + b".", objects=1_000)

    def test_more_objects_than_allowed(self) -> None:
        for opcode in (b"]", b"}", b"\x8f", b"N", b"K\x01", b")", b"(", b"h\x00"):
            data = PROTO + b"]\x94" + opcode * 2_000 + b"."
            with pytest.raises(ResultRefusedError, match="more objects"):
                carry.decode(data, objects=1_000)
        empty = name("collections", "deque") + b"\x940" + b"h\x00)R" * 1_000
        with pytest.raises(ResultRefusedError, match="more objects"):
            carry.decode(PROTO + empty + b".", objects=5_000)


def chain(opening: bytes, count: int, closing: bytes) -> bytes:
    return PROTO + opening * count + b"N" + closing * count + b"."


# Built from the inside (late=False), or each put away before it is filled, which a reader that counts as it goes misses.
def deques(count: int, late: bool) -> bytes:
    made = name("collections", "deque") + b"\x940" + b"h\x00)R\x94" * count
    if not late:
        return (
            PROTO + name("collections", "deque") + b"\x940" + b"h\x00)R" * count + b"a" * (count - 1) + b"."
        )
    put = b"".join(
        b"j" + struct.pack("<I", each) + b"j" + struct.pack("<I", each + 1) + b"a0"
        for each in range(1, count)
    )
    return PROTO + b"(" + made + b"t\x940" + put + b"h\x01."


def overflows(data: bytes) -> bool:
    """The control: whether the interpreter dies of plain `pickle.loads`, or when it frees what that gave."""
    code = "import pickle, sys\nvalue = pickle.loads(sys.stdin.buffer.read())\ndel value"
    done = subprocess.run([sys.executable, "-c", code], input=data, timeout=120, capture_output=True)
    return done.returncode == -signal.SIGSEGV


class TestDepth:
    @pytest.mark.parametrize("late", [False, True])
    def test_deques_whose_freeing_would_overflow_the_stack(self, late: bool) -> None:
        for count in (150, 1_000_000):
            with pytest.raises(ResultRefusedError, match="in a cycle" if late else "deep"):
                carry.decode(deques(count, late), objects=10**9)
        if not late:
            assert isinstance(carry.decode(deques(90, late)), collections.deque)
        assert overflows(deques(1_000_000, late))

    def test_tuples_whose_hash_would_overflow_the_stack(self) -> None:
        data = PROTO + b"}" + b"N" + b"\x85" * 1_000_000 + b"Ns."
        with pytest.raises(ResultRefusedError, match="deep"):
            carry.decode(data)
        assert overflows(data)

    @pytest.mark.parametrize("opening", [b"]", b"}N"], ids=["lists", "dicts"])
    def test_what_lies_too_deep(self, opening: bytes) -> None:
        closing = b"a" if opening == b"]" else b"s"
        with pytest.raises(ResultRefusedError, match="deep"):
            carry.decode(chain(opening, 1001, closing))
        value = carry.decode(chain(opening, 1000, closing))
        assert type(pickle.loads(chain(opening, 100_000, closing))) is type(value)

    def test_what_is_filled_late_lies_too_deep(self) -> None:
        """A list is put into the one before it while that one is empty still: no container is deep when it is placed."""

        def lists(count: int) -> bytes:
            put = b"".join(
                b"j" + struct.pack("<I", each) + b"j" + struct.pack("<I", each + 1) + b"a0"
                for each in range(count - 1)
            )
            return PROTO + b"(" + b"]\x94" * count + b"t0" + put + b"h\x00."

        with pytest.raises(ResultRefusedError, match="deep"):
            carry.decode(lists(1_100))
        assert isinstance(carry.decode(lists(900)), list)
        assert isinstance(pickle.loads(lists(100_000)), list)

    def test_a_key_that_takes_for_ever_to_hash(self) -> None:
        data = (
            PROTO
            + b"}N\x94\x85"
            + b"".join(b"\x94h" + bytes([each]) + b"\x86" for each in range(1, 60))
            + b"Ns."
        )
        started = time.monotonic()
        with pytest.raises(ResultRefusedError, match="too large to hash"):
            carry.decode(data)
        assert time.monotonic() - started < 30
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-c", "import pickle, sys\npickle.loads(sys.stdin.buffer.read())"],
                input=data,
                timeout=5,
            )


class TestHashes:
    """Keys that all share one hash make a dict of n of them take n² steps."""

    PRIME = sys.hash_info.modulus
    COUNT = 4_000

    def keys(self, kind: str) -> list[Any]:
        numbers = [1 + each * self.PRIME for each in range(1, self.COUNT + 1)]
        return {
            "integers": numbers,
            "tuples": [(each,) for each in numbers],
            "floats and integers": [*numbers, 1.0],
        }[kind]

    @pytest.mark.parametrize("kind", ["integers", "tuples", "floats and integers"])
    def test_they_are_not_put_into_one(self, kind: str) -> None:
        keys = self.keys(kind)
        assert len({hash(key) for key in keys}) == 1
        for value in (
            dict.fromkeys(keys),
            set(keys),
            frozenset(keys),
            collections.OrderedDict.fromkeys(keys),
        ):
            data = pickle.dumps(value, 5)
            with pytest.raises(ResultRefusedError, match="share a hash"):
                carry.decode(data)
        harmless = pickle.dumps(dict.fromkeys(each * 2**61 + each for each in range(self.COUNT)), 5)
        data = pickle.dumps(dict.fromkeys(keys), 5)
        assert self.seconds(data) > 10 * self.seconds(harmless)

    @staticmethod
    def seconds(data: bytes) -> float:
        started = time.perf_counter()
        pickle.loads(data)
        return time.perf_counter() - started

    def test_a_few_may_meet(self) -> None:
        value = {2.0**each: each for each in range(-1000, 1000)}
        assert carry.pickled(value) == value


MALFORMED = {
    "nothing": b"",
    "no value": PROTO + b".",
    "no end": PROTO + b"N",
    "more than one value": PROTO + b"NN.",
    "an open mark": PROTO + b"(N.",
    "something behind the end": PROTO + b"N.N",
    "protocol 0": b"\x80\x00N.",
    "protocol 6": b"\x80\x06N.",
    "an end without a mark": PROTO + b"t.",
    "below a mark": PROTO + b"N(\x85.",
    "an unknown memo": PROTO + b"h\x00.",
    "an unknown opcode": PROTO + b"\xff.",
    "a key without a value": PROTO + b"}(Nu.",
    "a list as a key": PROTO + b"}]Ns.",
    "a list in a set": PROTO + b"\x8f(]\x90.",
    "a dict in a frozenset": PROTO + b"(}\x91.",
    "appending to a tuple": PROTO + b")Na.",
    "appending to a number": PROTO + b"K\x01Na.",
    "appending to a name": PROTO + name("builtins", "int") + b"Na.",
    "items of a list": PROTO + b"]NNs.",
    "members of a list": PROTO + b"](N\x90.",
    "a state for a list": PROTO + b"]Nb.",
    "a state for a number": PROTO + b"K\x01Nb.",
    "calling a number": PROTO + b"K\x01)R.",
    "calling with a list": PROTO + name("builtins", "complex") + b"]R.",
    "calling a type": PROTO + name("builtins", "int") + text("1") + b"\x85R.",
    "a name that is not text": PROTO + b"K\x01K\x02\x93.",
    "a name that is not UTF-8": PROTO + b"c\xff\n\xff\n.",
    "an unfinished UUID": PROTO + name("uuid", "UUID") + b")\x81.",
    "a UUID of text": PROTO + name("uuid", "UUID") + b")\x81}" + text("int") + text("1") + b"sb.",
    "a UUID twice": PROTO + name("uuid", "UUID") + b")\x81}" + text("int") + b"K\x01sb}" + text("int") + b"K\x01sb.",
    "a huge UUID": PROTO + name("uuid", "UUID") + b")\x81}" + text("int") + b"\x8a\x12" + b"\x01" * 18 + b"sb.",
    "a date of text": PROTO + name("datetime", "date") + text("abcd") + b"\x85R.",
    "a date that is none": PROTO + name("datetime", "date") + b"C\x04\x00\x00\x00\x00\x85R.",
    "a zone by path": PROTO + name("builtins", "getattr") + name("zoneinfo", "ZoneInfo") + text("_unpickle") + b"\x86R"
    + text("../../../etc/passwd") + b"K\x01\x86R.",
    "a zone from /": PROTO + name("zoneinfo", "ZoneInfo._unpickle") + text("/etc/localtime") + b"K\x01\x86R.",
    "another class method": PROTO + name("builtins", "getattr") + name("zoneinfo", "ZoneInfo") + text("from_file") + b"\x86R.",
    "a path of bytes": PROTO + name("pathlib", "PosixPath") + b"C\x01a\x85R.",
    "a range of floats": PROTO + name("builtins", "range") + b"G" + b"\0" * 24 + b"\x87R.",
    "a deque of a length below zero": PROTO + name("collections", "deque") + b")J\xff\xff\xff\xff\x86R.",
    "a deque of text": PROTO + name("collections", "deque") + text("abc") + b"\x85R.",
    "a Counter of a list": PROTO + name("collections", "Counter") + b"]\x85R.",
    "an OSError of a list": PROTO + name("builtins", "OSError") + b"K\x02]\x86R.",
    "a state of an exception": PROTO + name("builtins", "ValueError") + b")RK\x01b.",
    "a buffer that is not there": PROTO + b"\x97.",
    "a list made read-only": PROTO + b"]\x98.",
    "bytes of a list": PROTO + name("_sandtimer_tokens", "as_bytes") + b"]\x85R.",
    "bytes of a number": PROTO + name("_sandtimer_tokens", "as_bytes") + b"J\xff\xff\xff\x7f\x85R.",
    "a function as a value": PROTO + name("builtins", "getattr") + b".",
}  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ResultRefusedError):
        carry.decode(data)


def test_text_from_the_job_is_shortened_and_escaped() -> None:
    data = PROTO + text("\x1b[2J" + "x" * 10_000) + text("\r\nok") + b"\x93."
    with pytest.raises(ResultRefusedError) as refusal:
        carry.decode(data)
    message = str(refusal.value)
    assert len(message) < 600 and message.isprintable()


def test_an_interrupt_is_not_a_refusal() -> None:
    data = PROTO + b"(" + b"N0" * 4_000_000 + b"t."

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(KeyboardInterrupt):
            while True:
                carry.decode(data)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("start, end", [(-(10**14), 1), (2, 3), (1, 0), (0, 2), (10**14, 10**14 + 1)])
def test_no_error_of_coding_points_outside_of_what_was_coded(start: int, end: int) -> None:
    # Printed, such a one reads memory that is not its own.
    for attack in (
        Calls(UnicodeDecodeError, "utf-8", b"x", start, end, "r"),
        Calls(UnicodeEncodeError, "utf-8", "x", start, end, "r"),
        Calls(UnicodeTranslateError, "x", start, end, "r"),
    ):
        data = pickle.dumps(attack, 5)
        with pytest.raises(ResultRefusedError, match="not made of such arguments"):
            carry.decode(data)
        made = pickle.loads(data)
        assert (made.start, made.end) == (start, end)


def test_where_an_error_of_coding_points_is_not_changed_afterwards() -> None:
    good = PROTO + name("builtins", "UnicodeDecodeError") + b"(" + text("utf-8") + b"C\x01xK\0K\x01" + text("r") + b"tR"
    assert str(carry.decode(good + b".")).endswith("position 0: r")
    attack = good + b"}" + text("start") + b"J\0\0\0\x80sb."
    assert carry.decode(attack).start == 0
    assert pickle.loads(attack).start == -(2**31)


class Many(enum.IntFlag):
    ONE = 1


def test_combinations_of_flags_are_bounded_and_found_at_once() -> None:
    begun = time.monotonic()
    flags = carry.decode(pickle.dumps([Many(1)] * 3, 5), (), [Many])
    assert flags == [Many.ONE] * 3
    number = name(__name__, "Many") + b"J"
    attack = PROTO + b"](" + b"".join(number + struct.pack("<i", each) + b"\x85R" for each in range(2, 20_000)) + b"e."
    with pytest.raises(ResultRefusedError, match="4096 combinations"):
        carry.decode(attack, (), [Many])
    assert time.monotonic() - begun < 10


def test_objects_are_bounded_by_the_size_of_a_result() -> None:
    with sandtimer.Sandbox(timeout=60.0, result_bytes="10MB") as box:
        refused = box.run(lambda: [[] for _ in range(700_000)]).error
        assert isinstance(refused, ResultRefusedError)
        assert "655360 that its limit allows" in str(refused)
        assert "result_bytes" in str(refused)
        # Of two bytes each.
        assert isinstance(box.exec("[[] for _ in range(3_000_000)]").error, ResultRefusedError)
        assert len(box.call(lambda: [[] for _ in range(600_000)])) == 600_000
        # The control: the same result under a larger limit.
        assert len(box.limits(result_bytes="100MB").call(lambda: [[] for _ in range(700_000)])) == 700_000
        # Small limits leave room for ordinary values.
        assert len(box.limits(result_bytes="1MB").call(lambda: [None] * 90_000)) == 90_000
