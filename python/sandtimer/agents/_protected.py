"""What `retry` and `CircuitBreaker` call, and what its ending means for them.

Only work that has finished when the call returns, or when its awaitable has been awaited, can be judged. What returns
before its work is done (a generator, and a coroutine that nothing here awaits) is refused, so that it never counts as
a success.
"""

from __future__ import annotations

import functools
import inspect
import types
from dataclasses import dataclass
from typing import Any, Callable, Optional, TypeVar

from .._decorated import Decorated
from .._outcome import Outcome
from ..errors import Cancelled, CircuitOpen, InvalidArgumentTypeError, SandboxUnavailableError, SandtimerError

F = TypeVar("F", bound=Callable[..., Any])

#: Endings of an Outcome that reveal nothing about what was run.
_NOT_ITS_OWN = ("cancelled", "infra_error", "budget")
#: Characters of a failure's text that are kept.
_MAX_MESSAGE = 1_000
#: Seconds for which an exception may ask to be left alone.
_MAX_RETRY_AFTER = 1e9


@dataclass(frozen=True)
class Judged:
    """An ending: `success`, `failure` or `ignored`, what a failure's text is, and what a retry asks of it."""

    kind: str
    text: str = ""
    retryable: bool = False
    is_timeout: bool = False
    retry_after: Optional[float] = None


def judge(value: Any, error: Optional[BaseException], on: tuple[type[Exception], ...]) -> Judged:
    """What a call's value, or the exception that it raised, means."""
    if isinstance(error, CircuitOpen):
        return Judged("failure", message_of(error))
    if isinstance(error, (Cancelled, SandboxUnavailableError)) or unfinished(value) is not None:
        return Judged("ignored")
    outcome = error.outcome if isinstance(error, SandtimerError) else value
    if _is_outcome(outcome) and not outcome.ok:
        source = outcome.verdict.source if outcome.verdict is not None else None
        if outcome.ending in _NOT_ITS_OWN or source in ("ancestor", "ceiling"):
            return Judged("ignored")
    if error is None:
        if not _is_outcome(value) or value.ok:
            return Judged("success")
        return Judged("failure", _carried(_outcome_message(value)), True, value.ending == "timeout")
    if not isinstance(error, on):
        return Judged("ignored")
    text = _carried(f"{type(error).__name__}: {message_of(error)}")
    return Judged("failure", text, True, isinstance(error, TimeoutError), _retry_after(error))


def message_of(error: Any) -> str:
    """`str(error)`, also of an exception whose own text cannot be made."""
    try:
        return _carried(str(error))
    except Exception as failed:
        return f"(its text cannot be made: {type(failed).__name__})"


def _carried(text: str) -> str:
    """A string as the engine takes it: UTF-8, and not longer than what is read of it."""
    return text[:_MAX_MESSAGE].encode("utf-8", "backslashreplace").decode()


def _outcome_message(outcome: Outcome) -> str:
    if outcome.verdict is not None:
        return str(outcome.verdict.sentence)
    return message_of(outcome.error) if outcome.error is not None else f"{outcome.ending} {outcome.exit_code}"


def _is_outcome(value: Any) -> bool:
    # By its type alone: `isinstance` reads `__class__`, where a proxy may raise.
    return issubclass(type(value), Outcome)


def _retry_after(error: BaseException) -> Optional[float]:
    try:
        asked: Any = getattr(error, "retry_after", None)
        is_number = isinstance(asked, (int, float)) and not isinstance(asked, bool)
        return float(min(asked, _MAX_RETRY_AFTER)) if is_number and asked >= 0 else None
    except Exception:
        return None


def is_async(function: Any) -> bool:
    """Whether its calls give a coroutine."""
    if isinstance(function, Decorated):
        return function._is_async
    return any(inspect.iscoroutinefunction(each) for each in _called(function))


def _called(function: Any) -> tuple[Any, Any]:
    """What a call of it runs: the function itself, and the `__call__` of an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, getattr(type(function), "__call__", None)


def check_callable(function: Any, what: str, awaits: bool) -> None:
    """Refuses what cannot be called, generators, and async functions where the caller does not await.

    `what` is how a message names it: a parameter with its value, or the function.
    """
    if not callable(function):
        raise InvalidArgumentTypeError(f"{what} cannot be called: use a function")
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in _called(function)):
        raise InvalidArgumentTypeError(
            f"{what} is a generator, which has done nothing when its call returns: use a function that returns a list of what it yields"
        )
    if not awaits and is_async(function):
        raise InvalidArgumentTypeError(
            f"{what} is async, and has done nothing when its call returns: await acall(…) or arun(…), or decorate an async function"
        )


def unfinished(value: Any) -> Optional[str]:
    """What a value is whose work is still to be done; None for any other value."""
    kind = type(value)
    if hasattr(kind, "__await__") or is_awaitable_generator(value):
        return "a coroutine" if issubclass(kind, types.CoroutineType) else "an awaitable"
    if issubclass(kind, types.GeneratorType):
        return "a generator"
    return "an async generator" if issubclass(kind, types.AsyncGeneratorType) else None


def is_awaitable_generator(value: Any) -> bool:
    """Whether it comes from a generator function with `types.coroutine`."""
    return issubclass(type(value), types.GeneratorType) and bool(value.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE)


async def awaited(value: Any) -> Any:
    """A value, or what its awaitable gives."""
    return await value if hasattr(type(value), "__await__") or is_awaitable_generator(value) else value


def check_value(value: Any, function: Any) -> None:
    """Refuses a value whose work is still to be done."""
    kind = unfinished(value)
    if kind is None:
        return
    if inspect.iscoroutine(value) and inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
        value.close()
    remedy = "return a list of what it yields"
    if kind in ("a coroutine", "an awaitable"):
        remedy = "await acall(…) or arun(…), or decorate the async function itself"
    raise InvalidArgumentTypeError(f"{name_of(function)} returned {kind}, whose work has not been done: {remedy}")


def name_of(function: Any) -> str:
    """A function's name for messages."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else f"{function!r:.200}"


def decorated(function: F, call: Callable[..., Any], acall: Callable[..., Any]) -> F:
    """`function` with its calls going through `call`, or `acall` where it is async."""
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorated(function.__func__, call, acall))
    check_callable(function, name_of(function), awaits=True)

    if is_async(function):

        @functools.wraps(function)
        async def through(*args: Any, **kwargs: Any) -> Any:
            return await acall(function, *args, **kwargs)

    else:

        @functools.wraps(function)
        def through(*args: Any, **kwargs: Any) -> Any:
            return call(function, *args, **kwargs)

    return through  # type: ignore[return-value]
