"""What the tables of rebuilding functions share."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, NoReturn, Optional

from ..errors import ResultRefusedError

Arguments = tuple[Any, ...]


class Value(NamedTuple):
    """How the values of one name are rebuilt."""

    # Called with the tuple of arguments; or, if there are signatures, with the arguments of one.
    rebuild: Callable[..., object]
    # The exact types that the arguments may have. Without any, `rebuild` looks at them itself.
    signatures: tuple[tuple[type, ...], ...] = ()
    # Its values may be keys.
    hashable: bool = False
    # What stands for its name among arguments.
    type_object: Optional[type] = None
    # What a value counts as, in objects, where it is larger than its arguments.
    objects: int = 0


# Decimal digits of one number: what `int(text)` takes at most by default.
MAX_DIGITS = 4300


class Unbuilt:
    """A value whose pickle gives its state in a second step."""

    __slots__ = ("build", "hashable")

    def __init__(self, build: Callable[[object], object], hashable: bool = False) -> None:
        self.build = build
        self.hashable = hashable


def refuse(reason: str) -> NoReturn:
    raise ResultRefusedError(f"the result cannot be rebuilt: {reason}")


_name: Callable[[type], str] = type.__dict__["__name__"].__get__


def is_one_of(value: object, *types: type) -> bool:
    """Whether the exact type of `value` is one of `types`. By identity: `==` would ask a metaclass."""
    return any(type(value) is each for each in types)


def check(arguments: Arguments, *types: type, of: str) -> None:
    """Refuses arguments whose exact types are not `types`."""
    if len(types) != len(arguments) or not all(map(is_one_of, arguments, types)):
        names = ", ".join(_name(type(each))[:60] for each in arguments[:8])
        refuse(f"{of} is not made of ({names})")
