"""Classes named in `results=`: rebuilt from the outside, and nothing of them is called."""

from __future__ import annotations

import collections
import dataclasses
import enum
import pickle
import typing
from typing import Any

import carry
import pytest

from sandtimer import ResultRefusedError

from test_fork import run_alone

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> typing.Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


class Plain:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class Slotted:
    __slots__ = ("a", "__private")

    def __init__(self, a: Any, private: Any) -> None:
        self.a = a
        self.__private = private

    def fields(self) -> Any:
        return self.a, self.__private


class SlottedAndMore(Slotted):
    """Has a __dict__ beside its base's slots."""


@dataclasses.dataclass
class Data:
    a: int
    b: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: Any = None


if hasattr(dataclasses, "KW_ONLY"):
    frozen_slots = dataclasses.make_dataclass("FrozenSlots", ["a", "b"], frozen=True, slots=True)
    frozen_slots.__module__ = __name__
    FrozenSlots: Any = frozen_slots

Named = collections.namedtuple("Named", "a b")


class TypedNamed(typing.NamedTuple):
    a: int
    b: str = "x"


class Pair(tuple):
    """A tuple that is not a named one."""


class Number(int):
    pass


class Text(str):
    pass


class Items(list):
    def append(self, item: Any) -> None:
        CALLS.append("append")
        super().append(item)

    extend = append


class Table(dict):
    def __setitem__(self, key: Any, value: Any) -> None:
        CALLS.append("__setitem__")
        super().__setitem__(key, value)


class Lost(Exception):
    def __init__(self, board: Any, *, move: int = 0) -> None:
        CALLS.append("__init__")
        super().__init__(board)
        self.move = move


class LostFile(FileNotFoundError):
    pass


class Outer:
    class Inner:
        pass


class Direction(enum.Enum):
    LEFT = 1
    RIGHT = "r"
    BOTH = (1, "r")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(str, enum.Enum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Careful(enum.Flag):
    READ = 1
    WRITE = 2

    @classmethod
    def _missing_(cls, value: Any) -> Any:
        CALLS.append("_missing_")
        return super()._missing_(value)


def test_a_plain_object_comes_back() -> None:
    shared = [1]
    value = Plain(a=1, b=shared, c=shared)
    back = carry.carried(value, [Plain])
    assert type(back) is Plain
    assert back.__dict__ == value.__dict__
    assert back.b is back.c


def test_slots_come_back() -> None:
    assert carry.carried(Slotted(1, [2]), [Slotted]).fields() == (1, [2])
    value = SlottedAndMore(1, 2)
    value.more = 3  # type: ignore[attr-defined]
    back = carry.carried(value, [SlottedAndMore])
    assert back.fields() == (1, 2) and back.more == 3


@pytest.mark.parametrize(
    "value",
    [
        Data(1, [2]),
        Frozen(1),
        Frozen(1, [2]),
        Named(1, [2]),
        TypedNamed(1),
        Pair((1, 2)),
        Number(7),
        Number(2**70),
        Text("t"),
    ],
    ids=repr,
)
def test_a_value_of_a_class_comes_back(value: Any) -> None:
    back = carry.carried(value, [type(value)])
    assert back == value and type(back) is type(value)


@pytest.mark.skipif("FrozenSlots" not in globals(), reason="dataclasses have no slots yet")
def test_a_frozen_dataclass_with_slots_comes_back() -> None:
    assert carry.carried(FrozenSlots(1, [2]), [FrozenSlots]) == FrozenSlots(1, [2])


@pytest.mark.skipif("FrozenSlots" not in globals(), reason="dataclasses have no slots yet")
def test_a_frozen_dataclass_with_slots_of_the_main_module_comes_back() -> None:
    said = run_alone("""
        import dataclasses

        @dataclasses.dataclass(frozen=True, slots=True)
        class Move:
            to: int

        @dataclasses.dataclass
        class Game:
            moves: list

        first = Game

        @dataclasses.dataclass
        class Game:
            moves: list

        with sandtimer.Sandbox(timeout=20.0, results=[Move, Game]) as box:
            print(box.call(lambda to: Move(to), 3), box.call(list, [Move(4)]), box.call(lambda: [Move(5), Game([Move(6)])]))
        # A class whose name has been given to another since.
        with sandtimer.Sandbox(timeout=20.0, results=[first]) as box:
            print(box.call(lambda: first([7])))
    """)
    assert said == "Move(to=3) [Move(to=4)] [Move(to=5), Game(moves=[Move(to=6)])]\nGame(moves=[7])\n"


def test_containers_of_a_class_come_back_without_its_methods() -> None:
    items = Items([1, 2])
    items.name = "x"  # type: ignore[attr-defined]
    back = carry.carried(items, [Items])
    assert type(back) is Items and list(back) == [1, 2] and back.name == "x"
    back = carry.carried(Table({"a": 1}), [Table])
    assert type(back) is Table and dict(back) == {"a": 1}
    assert CALLS == []


def test_a_class_inside_a_class_comes_back() -> None:
    assert type(carry.carried(Outer.Inner(), [Outer.Inner])) is Outer.Inner


def test_a_class_itself_may_be_a_value() -> None:
    assert carry.carried([Plain, ValueError], [Plain]) == [Plain, ValueError]


def test_cycles_through_objects_are_kept() -> None:
    value = Plain()
    value.me = value  # type: ignore[attr-defined]
    value.all = [value]  # type: ignore[attr-defined]
    back = carry.carried(value, [Plain])
    assert back.me is back and back.all[0] is back


def test_an_exception_comes_back_without_its_constructor() -> None:
    error = Lost("board", move=3)
    error.__notes__ = ["note"]  # type: ignore[attr-defined]
    CALLS.clear()
    back = carry.carried(error, [Lost])
    assert type(back) is Lost and back.args == ("board",) and back.move == 3 and back.__notes__ == ["note"]
    assert CALLS == []
    file = carry.carried(LostFile(2, "gone", "f"), [LostFile])
    assert (type(file), file.errno, file.filename) == (LostFile, 2, "f")
    assert str(carry.carried(KeyError(Plain(a=1)), [Plain]).args[0].a) == "1"


@pytest.mark.parametrize("value", [*Direction, *Level, *Word, *Rights, *Bits], ids=repr)
def test_a_member_comes_back_as_itself(value: Any) -> None:
    assert carry.carried(value, [type(value)]) is value
    assert carry.carried([value, {value: 1}], [type(value)]) == [value, {value: 1}]


def test_flags_combine() -> None:
    assert carry.carried(Rights.READ | Rights.WRITE, [Rights]) is Rights.READ | Rights.WRITE
    assert carry.carried(Bits.ONE | Bits.TWO, [Bits]) == Bits.ONE | Bits.TWO
    assert carry.carried(Careful.READ, [Careful]) is Careful.READ
    combined = pickle.dumps(Careful.READ | Careful.WRITE, 5)
    CALLS.clear()
    with pytest.raises(ResultRefusedError, match="no such member"):
        carry.decode(combined.replace(b"K\x03", b"K\x05"), (), [Careful])
    assert CALLS == []


class TestRefused:
    def test_a_class_that_is_not_named(self) -> None:
        with pytest.raises(ResultRefusedError) as refusal:
            carry.carried([Plain()], [])
        message = str(refusal.value)
        assert f"{__name__}.Plain" in message
        assert "results=[...]" in message and 'trust="pickle"' in message

    def test_the_name_is_the_class_and_not_what_the_module_has_now(self) -> None:
        other = type("Plain", (), {"__module__": __name__})
        assert type(carry.carried(Plain(a=1), [other])) is other

    @pytest.mark.parametrize(
        "method", ["__setstate__", "__reduce__", "__init__", "__new__", "__setattr__", "__getattribute__"]
    )
    def test_no_method_of_the_class_is_called(self, method: str) -> None:
        def called(*_: Any, **__: Any) -> Any:
            CALLS.append(method)
            raise AssertionError(method)

        data = pickle.dumps(Plain(a=1), 5)
        watched = type("Plain", (Plain,), {"__module__": __name__, method: called})
        watched.__qualname__ = "Plain"
        assert type(carry.decode(data, (), [watched])) is watched
        assert CALLS == []

    def test_no_metaclass_and_no_descriptor_is_called(self) -> None:
        class Meta(type):
            def __getattribute__(cls, name: str) -> Any:
                CALLS.append(name)
                return super().__getattribute__(name)

            def __call__(cls, *_: Any) -> Any:
                CALLS.append("__call__")

            def __eq__(cls, other: object) -> bool:
                CALLS.append("__eq__")
                return False

            __hash__ = type.__hash__

        class Descriptor:
            def __set__(self, instance: Any, value: Any) -> None:
                CALLS.append("__set__")

            def __get__(self, instance: Any, owner: Any) -> Any:
                CALLS.append("__get__")

        data = pickle.dumps([Plain(a=1), 2], 5)
        watched = Meta("Plain", (), {"__module__": __name__, "a": Descriptor()})
        type.__setattr__(watched, "__qualname__", "Plain")
        CALLS.clear()
        back = carry._sandtimer.decode(data, [], {(__name__, "Plain"): watched}, carry.BOUNDS)
        assert type(back[0]) is watched
        assert CALLS == []

    def test_a_member_is_not_changed(self) -> None:
        harm = (
            b"\x80\x05c"
            + __name__.encode()
            + b"\nDirection\nK\x01\x85R}X\x05\x00\x00\x00_namesX\x01\x00\x00\x00xsb."
        )
        with pytest.raises(ResultRefusedError):
            carry.decode(harm, (), [Direction])
        new = b"\x80\x05c" + __name__.encode() + b"\nDirection\n)\x81."
        with pytest.raises(ResultRefusedError, match="no new members"):
            carry.decode(new, (), [Direction])
        assert [each.name for each in Direction] == ["LEFT", "RIGHT", "BOTH"]

    def test_a_class_with_a_finalizer(self) -> None:
        class Finalized:
            def __del__(self) -> None:
                CALLS.append("__del__")

        data = b"\x80\x05c%s\n%s\n)\x81." % (__name__.encode(), Finalized.__qualname__.encode())
        with pytest.raises(ResultRefusedError, match="__del__"):
            carry.decode(data, (), [Finalized])
        assert CALLS == []

    def test_state_that_only_the_class_could_read(self) -> None:
        class Stateful(Plain):
            def __reduce__(self) -> Any:
                return object.__new__, (Plain,), 7

        data = pickle.dumps(Plain(a=1), 5).replace(b"}\x94\x8c\x01a\x94K\x01sb", b"K\x07b")
        assert pickle.dumps(Plain(a=1), 5) != data
        with pytest.raises(ResultRefusedError, match="__setstate__"):
            carry.decode(data, (), [Plain])

    def test_a_field_that_is_not_there(self) -> None:
        data = pickle.dumps(Slotted(1, 2), 5).replace(b"\x8c\x01a", b"\x8c\x01z")
        with pytest.raises(ResultRefusedError, match="no field z"):
            carry.decode(data, (), [Slotted])

    def test_a_key_with_code_of_its_own(self) -> None:
        with pytest.raises(ResultRefusedError, match="as a key"):
            carry.carried({Frozen(1): 1}, [Frozen])
        with pytest.raises(ResultRefusedError, match="as a key"):
            carry.carried({(1, (Frozen(1),)): 1}, [Frozen])
        with pytest.raises(ResultRefusedError, match="as a key"):
            carry.carried({Named(1, Frozen(2))}, [Frozen, Named])

    def test_keys_whose_hash_is_inherited_come_back(self) -> None:
        value = Plain()
        back = carry.carried({value: 1, Named(1, 2): 2, Number(3): 3}, [Plain, Named, Number])
        assert [type(key) for key in back] == [Plain, Named, Number]
        assert back[Named(1, 2)] == 2 and back[3] == 3

    @pytest.mark.parametrize("value", [print, len, lambda: 0, carry.decode, Plain().__init__], ids=["built-in print", "built-in len", "lambda", "function", "method"])
    def test_a_function(self, value: Any) -> None:
        with pytest.raises((ResultRefusedError, TypeError)):
            carry.carried(value)

    def test_numbers_of_arguments_that_do_not_fit(self) -> None:
        for arguments in (b")", b"K\x01\x85", b"K\x01K\x01K\x01\x87", b"K\x01)\x86"):
            data = b"\x80\x05c" + __name__.encode() + b"\nNamed\n" + arguments + b"\x81."
            if arguments == b"K\x01)\x86":
                assert carry.decode(data, (), [Named]) == Named(1, ())
                continue
            with pytest.raises(ResultRefusedError):
                carry.decode(data, (), [Named])
