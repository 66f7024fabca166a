"""Handlers with a soft limit, and the notice of it in the process of the call."""

from __future__ import annotations

import functools
import inspect
import re
import signal
from typing import Any, Callable, Optional, Union

from .. import _arguments
from .._vocabulary import named_parameters
from ..errors import InvalidArgumentError, InvalidLimitError, SoftTimeLimitError

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:h|ms|m|s))+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s)")


@named_parameters
class Handler:
    """A function as a handler of jobs, with a soft limit of each call.

    At the soft limit `SoftTimeLimitError` is raised in the function, which then can save its work
    until the wall-clock limit. It is raised by a handler of SIGALRM, between two steps of Python in
    the main thread: a function that sets an alarm of its own loses it, and C code that does not
    return delays it. Async functions are rejected: `asyncio.timeout` does the same in them.

    Args:
        function: A function of one parameter, the input of the job.
        soft: Seconds, or a string such as "5m"; None and 0 for no soft limit. It must be below the
            `timeout` of the worker's sandbox; a job whose own `wall_ms` is shorter ends at that.

    Raises:
        InvalidLimitError: `soft` is not a duration.
        InvalidArgumentError: The function is async.

    Examples:
        >>> import sandtimer, time
        >>> from sandtimer import jobs
        >>> def train(steps):
        ...     try:
        ...         time.sleep(60)
        ...     except sandtimer.SoftTimeLimitError:
        ...         return "saved what there is"
        >>> record = jobs.run({"handler": "train", "wall_ms": "20s"}, handlers={"train": jobs.Handler(train, soft=0.2)})
        >>> record.result.value
        'saved what there is'
    """

    def __init__(self, function: Callable[[Any], Any], *, soft: Union[int, float, str, None] = None) -> None:
        _arguments.function("function", function, "use a function of one parameter, the job's input")
        self.function, self.soft = function, _seconds(soft)
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        if self.soft is not None and is_async:
            name = getattr(function, "__qualname__", None) or repr(function)
            raise InvalidArgumentError(f"soft={soft!r}: {name} is an async function; use asyncio.timeout({self.soft:g}) in it")

    def __repr__(self) -> str:
        return f"Handler({self.function!r}, soft={self.soft!r})"

    def _within(self, name: str, wall: Union[int, float, None]) -> Callable[[Any], Any]:
        """The function that is called. Rejects a soft limit that is not below the wall-clock limit."""
        if self.soft is None:
            return self.function
        if wall and self.soft >= wall:
            raise InvalidLimitError(
                f"handlers[{name!r}]: soft={self.soft:g} is not below the wall-clock limit, timeout={wall:g} of the worker's sandbox, which "
                "would come first; use less, or a longer timeout"
            )
        return SoftLimited(self.function, self.soft)


def _seconds(soft: Union[int, float, str, None]) -> Optional[float]:
    remedy = 'use a number of seconds, a string such as "90s" or "1h30m", or None for no soft limit'
    if soft is None:
        return None
    if isinstance(soft, bool) or not isinstance(soft, (int, float, str)):
        raise InvalidLimitError(f"soft={soft!r:.200} is of type {type(soft).__name__}: {remedy}")
    if not isinstance(soft, str):
        seconds = float(soft) if -1 <= soft <= _arguments.FOR_EVER else -1.0
    elif _DURATION.fullmatch(soft):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(soft))
    else:
        seconds = -1.0
    if not 0 <= seconds <= _arguments.FOR_EVER:
        raise InvalidLimitError(f"soft={soft!r:.200} is not a duration: {remedy}")
    return seconds or None


class SoftLimited:
    """A function that is interrupted after `seconds`, in the process that it is called in."""

    def __init__(self, function: Callable[[Any], Any], seconds: float) -> None:
        functools.update_wrapper(self, function)
        # By which a sandbox knows what modules a function needs.
        self.__code__ = getattr(function, "__code__", None)
        self.function, self.seconds = function, seconds

    def __reduce__(self) -> Any:
        return SoftLimited, (self.function, self.seconds)

    def __call__(self, asked: Any) -> Any:
        has_ended = False

        def interrupt(*_: Any) -> None:
            if not has_ended:
                raise SoftTimeLimitError(f"the soft limit of {self.seconds:g} s has passed, and the wall-clock limit is near")

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        try:
            return self.function(asked)
        finally:
            has_ended = True
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
