"""Cases as callers write them, checked before anything runs."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from .. import _arguments
from ..errors import InvalidArgumentError, InvalidArgumentTypeError


class Case(NamedTuple):
    """A case as it is run. `given` is what the caller wrote, which checkers are shown."""

    stdin: bytes
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    expected: Any
    given: Any


def read_cases(given: Sequence[Any], is_program: bool, is_compared: bool) -> list[Case]:
    """The cases of a program, or of a function. Raises, with the index, for one that is malformed."""
    read_case = _program_case if is_program else _function_case
    cases = []
    for index, case in enumerate(given):
        try:
            cases.append(read_case(case, is_compared))
        except (InvalidArgumentError, InvalidArgumentTypeError) as error:
            raise type(error)(f"cases[{index}]: {error}") from None
    return cases


def _program_case(given: Any, is_compared: bool) -> Case:
    if isinstance(given, dict):
        _check_expected(given, ("expected", "output"), is_compared)
        unknown = given.keys() - {"stdin", "input", "expected", "output"}
        if unknown or len(given.keys() & {"stdin", "input"}) != 1:
            raise InvalidArgumentTypeError(f"a program's case has the keys stdin and expected, not {sorted(map(str, given))}")
        stdin, expected = given.get("stdin", given.get("input")), given.get("expected", given.get("output"))
    else:
        stdin, expected = _pair(given, "(stdin, expected)")
    if not isinstance(stdin, (str, bytes)):
        raise InvalidArgumentTypeError(f"a program's stdin is a string or bytes, not {type(stdin).__name__}")
    return Case(_arguments.encoded("stdin", stdin), (), {}, expected, given)


def _function_case(given: Any, is_compared: bool) -> Case:
    if isinstance(given, dict):
        _check_expected(given, ("expected",), is_compared)
        unknown = given.keys() - {"arguments", "keywords", "expected"}
        if unknown:
            raise InvalidArgumentTypeError(f"a function's case has the keys arguments, keywords and expected, not {sorted(map(str, given))}")
        arguments, keywords = given.get("arguments", ()), dict(given.get("keywords", {}))
        if not isinstance(arguments, (tuple, list)):
            raise InvalidArgumentTypeError(f"a case's arguments are a list or tuple of them, not {type(arguments).__name__}")
        return Case(b"", tuple(arguments), keywords, given.get("expected"), given)
    arguments, expected = _pair(given, "(arguments, expected)")
    if isinstance(arguments, (tuple, list)):
        return Case(b"", tuple(arguments), {}, expected, given)
    if isinstance(arguments, dict):
        return Case(b"", (), arguments, expected, given)
    raise InvalidArgumentTypeError(
        f"a case's arguments are a list or tuple of them, or a dict of keywords, not {type(arguments).__name__}; "
        "one argument is written (argument,)"
    )


def _check_expected(given: dict[Any, Any], names: tuple[str, ...], is_compared: bool) -> None:
    """Fails for a case that does not say what is expected, where no checker decides: None would be a right answer."""
    if is_compared and not any(name in given for name in names):
        raise InvalidArgumentTypeError(
            f"a case has no {names[0]}, only {sorted(map(str, given))}; name what is expected, even where it is None, or judge "
            "with a checker"
        )


def _pair(given: Any, shape: str) -> tuple[Any, Any]:
    if isinstance(given, (tuple, list)) and len(given) == 2:
        return given[0], given[1]
    raise InvalidArgumentTypeError(f"a case is {shape}, or a dict of the same, not {given!r:.200}")
