"""Values that come back as they were: every type that `trust="data"` knows."""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import fractions
import math
import pathlib
import pickle
import random
import uuid
import zoneinfo
from typing import Any

import carry
import pytest
import sandtimer
from hypothesis import given, settings
from hypothesis import strategies as st

from sandtimer import ResultRefusedError

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 255, 256, 65535, 65536, -(2**31), 2**31, 2**40, 2**63 - 1,
    -(2**63), 2**63, 2**64, -(2**64), 2**2000, -(2**2000), 2**14_000, 10**4299, 0.0, -0.0, 1.5, math.inf, -math.inf, 5e-324,
    "", "a", "ä€😀", "a\0b", "\ud800", "x" * 300, "x" * 70_000, b"", b"\0\xff", b"x" * 300, b"x" * 70_000,
    bytearray(), bytearray(b"ab"), bytearray(b"x" * 70_000), complex(1, -2),
    [], [1, [2, []]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((),), {}, {"a": 1, 2: [3], None: (), (1, (2,)): 4, 1.5: 5},
    set(), {1, "a", None, (1, 2)}, frozenset(), frozenset([frozenset([1]), 2]), list(range(5000)),
    {str(each): each for each in range(5000)}, set(range(5000)), range(3), range(5, -5, -2), slice(None), slice(1, None, 2),
    datetime.date(2020, 2, 29), datetime.time(1, 2, 3, 4), datetime.time(1, fold=1), datetime.datetime(1, 1, 1),
    datetime.datetime(2020, 1, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc), datetime.timedelta(-1, 2, 3),
    datetime.timezone(datetime.timedelta(hours=2), "here"), datetime.timezone.utc,
    datetime.datetime(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")), zoneinfo.ZoneInfo("UTC"),
    decimal.Decimal("1.50"), decimal.Decimal("-0"), decimal.Decimal("Infinity"), decimal.Decimal("1E+999"),
    fractions.Fraction(-1, 3), fractions.Fraction(7), uuid.UUID("4aa5a3ac-1f87-4a0f-8b7a-4b46c18ceb50"), uuid.UUID("4b46c18c-eb50-11f1-a0b1-0242ac120002"), uuid.UUID(int=0),
    pathlib.PurePosixPath("/a/b"), pathlib.Path("a b"), pathlib.PureWindowsPath("c:/x"), pathlib.Path(),
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.deque([1, [2]]), collections.deque([1, 2], 3),
    collections.Counter("abracadabra"), collections.defaultdict(list, {"a": [1]}), collections.defaultdict(None, {1: 2}),
    int, str, list, dict, bytes, [float, bool], {int: 1, uuid.UUID(int=1): 2, datetime.date(1, 1, 1): 3, pathlib.Path("a"): 4},
    {decimal.Decimal("1.5"): 1, fractions.Fraction(1, 3): 2, complex(1, 1): 3, range(2): 4, datetime.timezone.utc: 5},
]  # fmt: skip


def same(one: Any, other: Any) -> bool:
    """Equal, of the same types all the way down, in the same order."""
    return (
        type(one) is type(other)
        and pickle.dumps(one, 5) == pickle.dumps(other, 5)
        or (isinstance(one, (set, frozenset)) and type(one) is type(other) and one == other)
    )


@pytest.mark.parametrize("value", VALUES, ids=[f"{index}-{type(value).__name__}" for index, value in enumerate(VALUES)])
@pytest.mark.parametrize("large", [1, 65536])
def test_a_value_comes_back(value: Any, large: int) -> None:
    back = carry.carried(value, large=large)
    assert type(back) is type(value)
    assert back == value
    assert same(back, value)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_values_of_older_protocols_come_back_where_they_say_the_same(protocol: int) -> None:
    value = {"a": [1, (2.5, None), {"b": True}]}
    if protocol >= 4:
        assert carry.decode(pickle.dumps(value, protocol)) == value
    else:
        with pytest.raises(ResultRefusedError, match="opcode BINPUT"):
            carry.decode(pickle.dumps(value, protocol))


def test_not_a_number_comes_back() -> None:
    assert math.isnan(carry.carried(math.nan))
    assert carry.carried(decimal.Decimal("sNaN123")).compare_total(decimal.Decimal("sNaN123")) == 0


def test_details_that_equality_does_not_show() -> None:
    assert math.copysign(1, carry.carried(-0.0)) == -1
    assert str(carry.carried(decimal.Decimal("1.50"))) == "1.50"
    assert carry.carried(datetime.time(1, fold=1)).fold == 1
    assert carry.carried(uuid.uuid1()).is_safe == uuid.uuid1().is_safe
    assert list(carry.carried(collections.OrderedDict([("b", 1), ("a", 2)]))) == ["b", "a"]
    assert carry.carried(collections.defaultdict(list)).default_factory is list
    assert carry.carried(collections.deque([], 3)).maxlen == 3
    moved = carry.carried(collections.OrderedDict([("b", 1), ("a", 2)]))
    moved.move_to_end("b")
    assert list(moved) == ["a", "b"]


def test_references_are_kept() -> None:
    shared = [1]
    one, other, third = carry.carried([shared, shared, {"a": shared}])
    assert one is other is third["a"]


def test_cycles_are_kept() -> None:
    own: list[Any] = [1]
    own.append(own)
    back = carry.carried(own)
    assert back[1] is back
    table: dict[str, Any] = {}
    table["self"] = (table, [table])
    back = carry.carried(table)
    assert back["self"][0] is back and back["self"][1][0] is back
    within: tuple[list[Any]] = ([],)
    within[0].append(within)
    back = carry.carried(within)
    assert back[0][0] is back


def test_a_tree_that_knows_its_parents_comes_back() -> None:
    root: dict[str, Any] = {"parent": None, "children": []}
    for _ in range(20_000):
        root["children"].append({"parent": root, "children": []})
    back = carry.carried(root)
    assert len(back["children"]) == 20_000
    assert all(child["parent"] is back for child in back["children"])


class TestBuffers:
    def test_large_bytes_travel_beside_the_pickle(self) -> None:
        content = random.Random(1).randbytes(100_000)
        for value in (content, bytearray(content), [content, 1], (content,), {"a": content}):
            data, buffers = carry.encode(value)
            assert len(data) < 1000 and len(buffers) == 1
            back = carry.decode(data, carry.copied(buffers))
            assert back == value and type(back) is type(value)

    def test_bytes_that_are_there_already_are_not_copied(self) -> None:
        data, _ = carry.encode(b"x" * 100_000)
        given_ = b"y" * 100_000
        assert carry.decode(data, [given_]) is given_
        data, _ = carry.encode(bytearray(100_000))
        held = bytearray(100_000)
        assert carry.decode(data, [held]) is held

    def test_what_is_there_twice_travels_once(self) -> None:
        content = b"x" * 100_000
        data, buffers = carry.encode([content, content])
        assert len(buffers) == 1
        one, other = carry.decode(data, carry.copied(buffers))
        assert one is other

    def test_a_view_comes_back_as_its_bytes(self) -> None:
        content = bytearray(b"0123456789")
        assert carry.carried(memoryview(content)) == b"0123456789"
        assert carry.carried(memoryview(content)[::2]) == b"02468"
        assert carry.carried([memoryview(b"x" * 100_000)]) == [b"x" * 100_000]
        assert type(carry.carried(memoryview(content))) is bytes
        assert carry.carried(memoryview(b"")) == b""


BUILTIN_EXCEPTIONS = [
    value
    for value in vars(builtins).values()
    if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == "builtins"
]
ARGUMENTS: dict[type, tuple[Any, ...]] = {
    UnicodeDecodeError: ("utf-8", b"\xff", 0, 1, "bad"),
    UnicodeEncodeError: ("ascii", "ä", 0, 1, "bad"),
    UnicodeTranslateError: ("ä", 0, 1, "bad"),
}


@pytest.mark.parametrize("class_", BUILTIN_EXCEPTIONS, ids=lambda class_: class_.__name__)
def test_a_built_in_exception_comes_back(class_: type[BaseException]) -> None:
    arguments = ARGUMENTS.get(class_, ("message", 2))
    if issubclass(class_, SyntaxError):
        arguments = ("bad", ("f.py", 1, 2, "text"))
    if class_.__name__.endswith("ExceptionGroup"):
        arguments = ("several", [ValueError("a"), KeyError("b")])
    error = class_(*arguments)
    error.__dict__["__notes__"] = ["a note"]
    error.__dict__["detail"] = {"x": [1]}
    back = carry.carried(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert repr(back) == repr(error)
    assert back.__dict__ == error.__dict__


def test_the_attributes_of_a_built_in_exception_come_back() -> None:
    error = FileNotFoundError(2, "no such file", "a/b")
    back = carry.carried(error)
    assert (back.errno, back.strerror, back.filename) == (2, "no such file", "a/b")
    assert carry.carried(StopIteration(3)).value == 3
    assert carry.carried(SystemExit(4)).code == 4
    back = carry.carried(ImportError("no", name="game", path="x"))
    assert (back.name, back.path, str(back)) == ("game", "x", "no")
    try:
        compile("a b", "f.py", "exec")
    except SyntaxError as error_:
        back = carry.carried(error_)
        assert (back.lineno, back.filename, back.text) == (1, "f.py", error_.text)


@pytest.mark.parametrize(
    "code",
    ["bytes(range(256)) * 400", "bytearray(100_000)", "[b'a' * 70_000, {'b': 1}, b'c']", "{'all': b'a' * 2**22, 'none': b''}"],
)
def test_large_bytes_come_back_by_pickle(code: str) -> None:
    with sandtimer.Sandbox(timeout=60.0, trust="pickle") as box:
        back = box.call(eval, code)
    assert back == eval(code) and type(back) is type(eval(code))


@pytest.mark.parametrize("kind", ["torch", "pyarrow"])
def test_large_values_of_libraries_come_back_by_pickle(kind: str) -> None:
    library = pytest.importorskip(kind)
    code = {"torch": "__import__('torch').ones(100_000)", "pyarrow": "__import__('pyarrow').table({'a': list(range(100_000))})"}
    with sandtimer.Sandbox(timeout=60.0, trust="pickle") as box:
        back = box.call(eval, code[kind])
    assert library.equal(back, eval(code[kind])) if kind == "torch" else back.equals(eval(code[kind]))


def test_what_stands_for_no_function_here_is_refused_by_pickle() -> None:
    from sandtimer import _results

    with pytest.raises(pickle.UnpicklingError, match="as_nothing"):
        _results.value(b"\x80\x05c_sandtimer_tokens\nas_nothing\n.", [], "pickle", {})


HASHED_ALIKE = "{{each * (2**61 - 1) for each in range(1, {})}}"


@pytest.mark.parametrize(
    "fits, too_much, why",
    [
        ("2**14_300 - 1", "2**14_400", "14300 bits"),
        ("__import__('decimal').Decimal('9' * 4300)", "__import__('decimal').Decimal('9' * 4400)", "4300 digits"),
        ("__import__('decimal').Decimal('1e999999')", "__import__('decimal').Decimal('1e1000000')", "exponent"),
        (HASHED_ALIKE.format(65), HASHED_ALIKE.format(67), "share a hash"),
        ("[None] * 9_900_000", "[None] * 10_000_001", "more objects"),
        ("__import__('http').HTTPStatus.OK.value", "__import__('http').HTTPStatus.OK", "results="),
    ],
)
def test_the_bounds_of_data_are_those_of_the_documentation(fits: str, too_much: str, why: str) -> None:
    """docs/python.md has them as a table."""
    with sandtimer.Sandbox(timeout=60.0) as box, sandtimer.Sandbox(timeout=60.0, trust="pickle") as trusting:
        assert box.call(eval, fits) == eval(fits)
        with pytest.raises(sandtimer.ResultRefusedError, match=why):
            box.call(eval, too_much)
        assert trusting.call(eval, too_much) == eval(too_much)


@pytest.mark.parametrize("trust", ["data", "pickle"])
def test_a_result_has_so_many_buffers_at_most(trust: str) -> None:
    with sandtimer.Sandbox(timeout=60.0, trust=trust) as box:
        assert len(box.call(eval, "[bytes(65536) for _ in range(2000)]")) == 2000
        with pytest.raises(sandtimer.UnserializableError, match="2001 large buffers"):
            box.call(eval, "[bytes(65536) for _ in range(2001)]")


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.dates() | st.timedeltas() | st.uuids() | st.fractions() | st.decimals(allow_nan=False).filter(lambda number: abs(number.adjusted()) < 999_999)
    | st.datetimes() | st.complex_numbers(allow_nan=False),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers() | st.tuples(st.floats(allow_nan=False), st.text()), inner)
    | st.frozensets(st.text() | st.binary()) | st.builds(collections.deque, st.lists(inner)),
    max_leaves=40,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(plain)
def test_any_plain_value_comes_back(value: Any) -> None:
    back = carry.carried(value, large=8)
    assert back == value
    assert type(back) is type(value)
