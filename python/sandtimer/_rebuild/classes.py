"""How instances of a class are rebuilt without calling any of its code.

The classes are the caller's own (named in `results=`) and the built-in exceptions; the instances are a hostile
process's. A class is looked at through `type`'s own descriptors, so that not even a metaclass is asked. An object is
made by the built-in type that its class extends and gets its fields through `__dict__` and slots; what the class itself
defines (`__new__`, `__init__`, `__setstate__`, `__reduce__`, properties) is not called, so its invariants are not
checked either.
"""

from __future__ import annotations

import builtins
import enum
import types
from typing import Any, Callable, Iterator, Optional

from .common import Arguments, check, is_one_of, refuse

EXCEPTIONS: dict[str, type] = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == "builtins"
}

_mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_dict: Callable[[type], types.MappingProxyType[str, Any]] = type.__dict__["__dict__"].__get__
_basicsize: Callable[[type], int] = type.__dict__["__basicsize__"].__get__
_qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__

# Types whose `__hash__` and `__eq__` are known: those of tuple reach its elements, which are looked at one by one.
_KNOWN_KEYS = (object, int, str, bytes, float, complex, tuple, frozenset, enum.Enum, enum.Flag)
# What an instance can be a value of, besides its fields. The first that fits makes it.
_SCALARS = (int, float, complex, str, bytes)
_CONTAINERS = (list, dict, set)

# Of a flag's members. Each stays in memory as long as the class.
_MAX_COMBINATIONS = 4096


class Plan:
    """What `_sandtimer.decode` needs to know about one class."""

    def __init__(self, class_: type) -> None:
        self.class_ = class_
        self.mro = _mro(class_)
        self.name = f"{_dict(class_).get('__module__')}.{_qualname(class_)}"
        self._refuse_finalizer()
        self.dict_of = self._dict_getter()
        self.slots = dict(self._slot_setters())
        self.fields = self._dataclass_fields()
        self.elements = self._named_elements()
        self.safe_key = self._hash_is_known()
        self.shared = self._extends(enum.Enum)
        self.size = _basicsize(class_)
        plain = not any(
            self._extends(base) for base in (*_SCALARS, *_CONTAINERS, tuple, frozenset, BaseException)
        )
        self.bare: Optional[Callable[[type], object]] = object.__new__ if plain and not self.shared else None

    def _extends(self, base: type) -> bool:
        return any(each is base for each in self.mro)

    def _refuse_finalizer(self) -> None:
        if any("__del__" in _dict(each) for each in self.mro):
            refuse(f"{self.name} has a __del__, which would run with fields of the job's choosing")

    def _own(self) -> Iterator[tuple[str, Any]]:
        """What the classes of the line define, the nearest first."""
        for each in self.mro:
            if each is not object:
                yield from _dict(each).items()

    def _dict_getter(self) -> Optional[Callable[[object], object]]:
        for each in self.mro:
            getter = _dict(each).get("__dict__")
            if isinstance(getter, types.GetSetDescriptorType):
                return getter.__get__
        return None

    def _slot_setters(self) -> Iterator[tuple[str, Callable[[object, object], None]]]:
        known = {"args"}
        if self._extends(BaseException):
            yield "args", _set_args
        for name, value in self._own():
            if isinstance(value, types.MemberDescriptorType) and name not in known and not _is_trusted_by_c(value):
                yield name, value.__set__
            known.add(name)

    def _dataclass_fields(self) -> Optional[list[str]]:
        for each in self.mro:
            fields = _dict(each).get("__dataclass_fields__")
            if type(fields) is dict:
                return [
                    field.name
                    for field in fields.values()
                    if getattr(field._field_type, "name", "") == "_FIELD"
                ]
        return None

    def _named_elements(self) -> Optional[int]:
        names = next((_dict(each)["_fields"] for each in self.mro if "_fields" in _dict(each)), None)
        return len(names) if self._extends(tuple) and type(names) is tuple else None

    def _hash_is_known(self) -> bool:
        for method in ("__hash__", "__eq__"):
            definer = next(each for each in self.mro if method in _dict(each))
            if not any(definer is known for known in _KNOWN_KEYS):
                return False
        return True

    def _builtin_exception(self) -> Any:
        return next(each for each in self.mro if any(each is known for known in EXCEPTIONS.values()))

    def new(self, arguments: Arguments) -> object:
        """An instance, from the arguments of its `__new__`."""
        class_: Any = self.class_
        if self.shared:
            refuse(f"{self.name} is an enumeration, which gets no new members")
        if self._extends(tuple) and self.elements is None:
            check(arguments, tuple, of=self.name)
            return tuple.__new__(class_, arguments[0])
        for base in _SCALARS:
            if self._extends(base) and tuple(map(type, arguments)) == (base,):
                return base.__new__(class_, *arguments)
        for container in _CONTAINERS:
            if self._extends(container) and not arguments:
                return container.__new__(class_)
        if self.bare is not None and not arguments:
            return self.bare(class_)
        refuse(f"{self.name} is made from arguments by its own __new__")

    def reduce(self, arguments: Arguments) -> object:
        """An instance, or a member that is there already, from the arguments of a call of the class."""
        if self.shared:
            return self._member(arguments)
        if self._extends(BaseException):
            return self._exception(arguments)
        for base in (set, frozenset):
            if self._extends(base):
                refuse(
                    f"{self.name} is a {base.__name__} with code of its own: return a plain {base.__name__}"
                )
        refuse(
            f"{self.name} has a __reduce__ of its own, or is not made by object.__new__: give it plain fields"
        )

    def _member(self, arguments: Arguments) -> object:
        members: dict[Any, object] = _dict(self.class_).get("_value2member_map_") or {}
        if len(arguments) == 1 and _plain_once_nested(arguments):
            (value,) = arguments
            if type(value) is int and self._makes_flags_as_the_library_does():
                return self._flags(members, value)
            for known, member in members.items():
                if type(known) is type(value) and _plain_once_nested((known,)) and known == value:
                    return member
        refuse(f"{self.name} has no such member")

    def _flags(self, members: dict[Any, object], value: int) -> object:
        """A member of a flag, or a combination, which the class keeps from then on."""
        if value not in members and len(members) >= _MAX_COMBINATIONS:
            refuse(f"{self.name} has {len(members)} combinations of flags already; return their numbers")
        class_: Any = self.class_
        return class_(value)

    def _makes_flags_as_the_library_does(self) -> bool:
        """Whether a combination of members is made by the standard library's code alone."""
        if not self._extends(enum.Flag) or type(self.class_) is not type(enum.Flag):
            return False
        own = [
            each for each in self.mro if _dict(each).get("__module__", "builtins") not in ("enum", "builtins")
        ]
        changed = (
            "_missing_",
            "_create_pseudo_member_",
            "__new_member__",
            "__hash__",
            "__eq__",
            "__setattr__",
        )
        return not any(name in _dict(each) for each in own for name in changed)

    def _exception(self, arguments: Arguments) -> object:
        builtin = self._builtin_exception()
        if builtin in _STRICT and not _STRICT[builtin](arguments):
            refuse(f"{self.name} is not made of such arguments")
        made = builtin.__new__(self.class_, *arguments)
        builtin.__init__(made, *arguments)
        return made


def _is_trusted_by_c(member: types.MemberDescriptorType) -> bool:
    """Whether it is a field that the interpreter reads memory by: where in its text a coding went wrong."""
    return any(member.__objclass__ is each for each in EXCEPTIONS.values() if issubclass(each, UnicodeError))


def _set_args(error: object, args: object) -> None:
    # Of anything but a tuple the built-in code would make one, by its own methods.
    if type(args) is not tuple:
        refuse("the args of an exception are not a tuple")
    BaseException.__dict__["args"].__set__(error, args)


def _plain(arguments: Arguments) -> bool:
    return all(is_one_of(each, int, str, bytes, float, bool, type(None)) for each in arguments)


def _plain_once_nested(arguments: Arguments) -> bool:
    return all(_plain(each) if type(each) is tuple else _plain((each,)) for each in arguments)


def _coding(*types: type) -> Callable[[Arguments], bool]:
    """Of an error of coding: where it went wrong is inside of what was coded, for interpreters before 3.13 read what is there."""

    def are_good(arguments: Arguments) -> bool:
        if len(arguments) != len(types) or not all(map(is_one_of, arguments, types)):
            return False
        coded, start, end = arguments[-4:-1]
        return bool(0 <= start <= end <= len(coded))

    return are_good


def _group(arguments: Arguments) -> bool:
    return len(arguments) == 2 and type(arguments[0]) is str and type(arguments[1]) is list


# Exceptions whose C code looks into its arguments, and could be led to call methods of the caller's classes there.
_STRICT: dict[type, Callable[[Arguments], bool]] = {}
for _class in EXCEPTIONS.values():
    if _class is UnicodeDecodeError:
        _STRICT[_class] = _coding(str, bytes, int, int, str)
    elif _class is UnicodeEncodeError:
        _STRICT[_class] = _coding(str, str, int, int, str)
    elif _class is UnicodeTranslateError:
        _STRICT[_class] = _coding(str, int, int, str)
    elif issubclass(_class, (OSError, UnicodeError)):
        _STRICT[_class] = _plain
    elif issubclass(_class, SyntaxError):
        _STRICT[_class] = _plain_once_nested
    elif _class.__name__.endswith("ExceptionGroup"):
        _STRICT[_class] = _group


def plan(class_: type) -> Plan:
    return Plan(class_)
