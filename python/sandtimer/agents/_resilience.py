"""Retries, fallbacks and circuit breakers: `retry` and `CircuitBreaker`, on those of the engine.

The engine decides and has no clock: this module reads the clock, makes the calls and classifies
their endings.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from .._choices import BreakerState
from .._sandtimer import Attempts, Breakers
from .._vocabulary import named, named_parameters
from ..errors import CircuitOpen, InvalidArgumentError, InvalidArgumentTypeError
from ._breaker_snapshot import FRESH, checked
from ._protected import F, awaited, check_callable, check_value, decorated, judge, name_of

Classes = Union[type[Exception], tuple[type[Exception], ...]]


@named_parameters
class CircuitBreaker:
    """Rejects calls of a function that keeps failing, and tries it again after a time.

    The breaker opens after `failures` failures in a row, or when `rate` of the latest `window`
    results are failures. While it is open it rejects all calls with `CircuitOpen`, for between half
    of `open_seconds` and all of it; each further time for twice as long, up to `max_open_seconds`.
    Then one call at a time is a probe: `successes` of them close the breaker; a failure, or a probe
    that takes longer than `probe_seconds`, opens it again. Calls that began before it opened do not
    count afterwards.

    A failure is an exception of the classes in `on`, or an `Outcome` that is not `ok`, unless it
    was cancelled or a limit of an outer scope ended it. Any thread can use the breaker. Each
    process has its own: a copy, also by pickle, has the settings and the state of that moment, and
    counts separately from then on.

    Functions and async functions can be called and decorated. Generators, and other functions that
    return before their work is done, are rejected with a TypeError.

    Args:
        name: What the breaker protects, as `name:action`.
        failures: Failures in a row that open it; None for no such rule.
        rate: Share of failures that opens it, above 0 and up to 1; None for no such rule.
        window: How many of the latest results count for `rate`.
        least: How many results there must be for `rate`.
        open_seconds: Seconds for which it rejects calls the first time.
        max_open_seconds: The most seconds for which it rejects calls.
        successes: Probes that must succeed to close it.
        probe_seconds: Seconds after which a probe counts as a failure.
        on: The class of exceptions that are failures, or a tuple of classes.
        clock: Returns the time in nanoseconds, for tests.

    Raises:
        InvalidArgumentError: A parameter has a value that cannot be used.
        InvalidArgumentTypeError: A parameter has a type that cannot be used.

    Examples:
        >>> import sandtimer
        >>> breaker = sandtimer.CircuitBreaker("calculator:calculate", failures=2)
        >>> for _ in range(2):
        ...     try:
        ...         breaker.call(int, "seven")
        ...     except ValueError:
        ...         pass
        >>> breaker.state
        'open'
        >>> try:
        ...     breaker.call(int, "7")
        ... except sandtimer.CircuitOpen as error:
        ...     print(error.feedback.splitlines()[0])
        [SYSTEM: calculator:calculate circuit breaker open - try different approach]
    """

    def __init__(
        self,
        name: str,
        *,
        failures: Optional[int] = 5,
        rate: Optional[float] = 0.5,
        window: int = 20,
        least: int = 5,
        open_seconds: float = 30.0,
        max_open_seconds: float = 600.0,
        successes: int = 2,
        probe_seconds: float = 60.0,
        on: Classes = Exception,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidArgumentTypeError(f"name={name!r:.200}: use a string such as 'calculator:calculate'")
        if not name.isprintable():
            raise InvalidArgumentError(f"name={name!r:.200}: use printable characters, as in 'calculator:calculate'")
        check_callable(clock, f"clock={clock!r:.200}", awaits=False)
        if failures is not None:
            _count("failures", failures)
        if rate is not None and (not _is_number(rate) or not 0 < rate <= 1):
            raise InvalidArgumentError(f"rate={rate!r}: use a share above 0 and up to 1, or None")
        for parameter, count in (("window", window), ("least", least), ("successes", successes)):
            _count(parameter, count)
        if least > window:
            raise InvalidArgumentError(f"least={least!r}: use no more than the window, which is {window}")
        _seconds("open_seconds", open_seconds)
        _seconds("max_open_seconds", max_open_seconds)
        _seconds("probe_seconds", probe_seconds)
        if max_open_seconds < open_seconds:
            raise InvalidArgumentError(f"max_open_seconds={max_open_seconds!r}: use at least open_seconds, {open_seconds!r}")
        self.name = name
        self._on = _classes("on", on)
        self._clock = clock
        rule = None if rate is None else (float(rate), window, least)
        open_times = (float(open_seconds), float(max_open_seconds))
        self._native = Breakers(failures, rule, open_times, successes, float(probe_seconds), _seed())
        self._settings: dict[str, Any] = {
            "failures": failures,
            "rate": rate,
            "window": window,
            "least": least,
            "open_seconds": open_seconds,
            "max_open_seconds": max_open_seconds,
            "successes": successes,
            "probe_seconds": probe_seconds,
            "on": on,
            "clock": clock,
        }

    @property
    def state(self) -> str:
        """"closed", "open" or "half_open", at this moment."""
        return str(self.snapshot()["state"])

    @property
    def retry_after(self) -> Optional[float]:
        """Seconds until an open breaker admits a probe; None if it is not open, or is held open."""
        milliseconds = self.snapshot()["retry_after_ms"]
        return None if milliseconds is None else milliseconds / 1000

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function, and returns its value. Its exceptions pass through.

        Args:
            function: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Raises:
            CircuitOpen: The breaker is open.

        Examples:
            >>> import sandtimer
            >>> sandtimer.CircuitBreaker("numbers:parse").call(int, "7")
            7
        """
        check_callable(function, name_of(function), awaits=False)
        with _Guarded(self) as guarded:
            guarded.value = function(*args, **kwargs)
        check_value(guarded.value, function)
        return guarded.value

    async def acall(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Awaited form of `call`, for functions that return an awaitable."""
        check_callable(function, name_of(function), awaits=True)
        with _Guarded(self) as guarded:
            guarded.value = await awaited(function(*args, **kwargs))
        check_value(guarded.value, function)
        return guarded.value

    def __call__(self, function: F) -> F:
        """Decorates a function, async ones too: each of its calls goes through the breaker."""
        return decorated(function, self.call, self.acall)

    def hold(self, state: Optional[BreakerState]) -> None:
        """Keeps the breaker in a state.

        Args:
            state: "open" or "closed"; None closes the breaker, forgets the failures, and lets it
                change again.

        Examples:
            >>> import sandtimer
            >>> breaker = sandtimer.CircuitBreaker("numbers:parse")
            >>> breaker.hold("open")
            >>> breaker.state
            'open'
        """
        if state not in ("open", "closed", None):
            raise InvalidArgumentError(f"state={state!r}: use 'open', 'closed' or None")
        self._native.hold(self.name, state, self._clock())

    def snapshot(self) -> dict[str, Any]:
        """Returns the state of the breaker, as data for `restore`.

        Returns:
            A dictionary that JSON can represent. Its times are spans in milliseconds.

        Examples:
            >>> import sandtimer
            >>> sandtimer.CircuitBreaker("numbers:parse").snapshot()["state"]
            'closed'
        """
        known = [each for each in json.loads(self._native.snapshot(self._clock())) if each["key"] == self.name]
        return dict(known[0]) if known else dict(FRESH, key=self.name)

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Takes over the state of a snapshot, of another process or of an earlier one. An active probe
        is forgotten.

        Args:
            snapshot: What `snapshot` returned.

        Raises:
            InvalidArgumentError: It is not a snapshot.

        Examples:
            >>> import sandtimer
            >>> breaker, other = sandtimer.CircuitBreaker("a:b"), sandtimer.CircuitBreaker("a:b")
            >>> breaker.hold("open")
            >>> other.restore(breaker.snapshot())
            >>> other.state
            'open'
        """
        kept = dict(checked(snapshot), key=self.name)
        try:
            self._native.restore(json.dumps([kept]), self._clock())
        except ValueError as error:
            raise InvalidArgumentError(f"snapshot={snapshot!r:.200}: {error}; use what snapshot() returned") from None

    def __reduce__(self) -> Any:
        return _copied, (self.name, self._settings, self.snapshot())

    def __repr__(self) -> str:
        return f"<CircuitBreaker {self.name!r} {self.state}>"


def _copied(name: str, settings: dict[str, Any], snapshot: dict[str, Any]) -> CircuitBreaker:
    breaker = CircuitBreaker(name, **settings)
    breaker.restore(snapshot)
    return breaker


class _Guarded:
    """One thing done under a breaker."""

    value: Any = None

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker

    def __enter__(self) -> _Guarded:
        breaker = self._breaker
        ticket, refused = breaker._native.admit(breaker.name, None, breaker._clock())
        if ticket is None:
            assert refused is not None
            raise CircuitOpen(breaker.name, refused[0], refused[2])
        self._ticket = ticket
        return self

    def __exit__(self, _: Any, error: Optional[BaseException], __: Any) -> None:
        breaker = self._breaker
        kind, text = "ignored", ""
        try:
            # A rejection of another breaker does not count for this one.
            if not isinstance(error, CircuitOpen):
                judged = judge(self.value, error, breaker._on)
                kind, text = judged.kind, judged.text
        finally:
            breaker._native.settle(self._ticket, kind, text, breaker._clock())


@dataclass(frozen=True)
class Retried:
    """The result of a call with retries.

    Attributes:
        ok: Whether there is a value.
        value: The value; None if there is none.
        error: The last exception, or `CircuitOpen` if nothing could be tried; None on success.
        way: Which function returned the value: 0, or the number of a fallback, from 1 on; None
            without a value.
        why: Why there were no further attempts, in one line.
        spent: How the time was spent: dictionaries of `spent_on` ("attempt", "backoff" or
            "breaker_open") and `ms`.

    Examples:
        >>> import sandtimer
        >>> retried = sandtimer.retry(2, pauses=[0]).run(int, "seven")
        >>> retried.ok, type(retried.error).__name__, [each["spent_on"] for each in retried.spent]
        (False, 'ValueError', ['attempt', 'attempt'])
    """

    ok: bool
    value: Any
    error: Optional[BaseException]
    way: Optional[int]
    why: str
    spent: tuple[dict[str, Any], ...]

    @property
    def degraded(self) -> bool:
        """Whether a fallback returned the value."""
        return bool(self.way)


@named
def retry(
    attempts: int = 3,
    pauses: Optional[Sequence[float]] = None,
    *,
    on: Classes = Exception,
    total: Optional[float] = None,
    fallback: Union[Callable[..., Any], Sequence[Callable[..., Any]]] = (),
    breaker: Optional[CircuitBreaker] = None,
) -> Retry:
    """Returns a policy of retries: a decorator, with the methods `call`, `acall`, `run` and `arun`.

    A failure is an exception of the classes in `on`, or an `Outcome` that is not `ok`; any other
    exception is raised at once. After all attempts have failed, the fallbacks are called in turn
    with the same arguments.

    Functions and async functions can be called and decorated. Generators, and other functions that
    return before their work is done, are rejected with a TypeError.

    Args:
        attempts: How many attempts there are, including the first one.
        pauses: Seconds after each attempt; the last value is used again. None for random pauses up
            to 0.1 s, 0.2 s, … 20 s.
        on: The class of exceptions that are failures, or a tuple of classes.
        total: Seconds after which no attempt begins; a pause that would end later is not made. It
            ends no attempt, which the `timeout` of a sandbox does. None for unlimited.
        fallback: A function, or a list of functions.
        breaker: A breaker that is asked first, and that counts the call once, after all attempts
            and fallbacks. A call that is cancelled or interrupted, also in a pause, is neither a
            success nor a failure.

    Raises:
        InvalidArgumentError: A parameter has a value that cannot be used.
        InvalidArgumentTypeError: A parameter has a type that cannot be used.

    Examples:
        >>> import sandtimer
        >>> tries = []
        >>> @sandtimer.retry(3, pauses=[0.01])
        ... def flaky():
        ...     tries.append(1)
        ...     return 10 / (len(tries) - 2)
        >>> flaky(), len(tries)
        (-10.0, 1)
        >>> flaky()
        10.0
        >>> sandtimer.retry(2, pauses=[0], fallback=lambda text: 0).run(int, "seven").degraded
        True
    """
    return Retry(attempts, pauses, on, total, fallback, breaker)


class Retry:
    """A policy of retries, made by `retry`.

    Examples:
        >>> import sandtimer
        >>> policy = sandtimer.retry(2, pauses=[0])
        >>> policy.call(int, "7")
        7
    """

    def __init__(
        self,
        attempts: int,
        pauses: Optional[Sequence[float]],
        on: Classes,
        total: Optional[float],
        fallback: Union[Callable[..., Any], Sequence[Callable[..., Any]]],
        breaker: Optional[CircuitBreaker],
    ) -> None:
        _count("attempts", attempts)
        if pauses is not None:
            if isinstance(pauses, (str, bytes)) or not isinstance(pauses, Iterable):
                raise InvalidArgumentTypeError(f"pauses={pauses!r:.200}: use a list of seconds, or None for pauses at random")
            pauses = [_seconds("pauses", pause, least=0.0) for pause in pauses]
        if total is not None:
            total = _seconds("total", total)
        if callable(fallback):
            fallbacks: tuple[Callable[..., Any], ...] = (fallback,)
        elif isinstance(fallback, (str, bytes)) or not isinstance(fallback, Iterable):
            raise InvalidArgumentTypeError(f"fallback={fallback!r:.200} cannot be called: use a function, or a list of functions")
        else:
            fallbacks = tuple(fallback)
        for each in fallbacks:
            check_callable(each, f"fallback={each!r:.200}", awaits=True)
        if breaker is not None and not isinstance(breaker, CircuitBreaker):
            raise InvalidArgumentTypeError(f"breaker={breaker!r:.200}: use a CircuitBreaker, or None")
        self._attempts, self._pauses, self._total = attempts, pauses, total
        self._on, self._fallbacks, self._breaker = _classes("on", on), fallbacks, breaker

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function with retries, and returns its value. An `Outcome` is returned whatever its
        ending.

        Args:
            function: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Raises:
            CircuitOpen: The breaker is open.
            Exception: The last exception of the function, after all attempts.

        Examples:
            >>> import sandtimer
            >>> sandtimer.retry(2, pauses=[0], fallback=len).call(int, "seven")
            5
        """
        return _value(self.run(function, *args, **kwargs))

    async def acall(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Awaited form of `call`, for async functions. Fallbacks may be async or not."""
        return _value(await self.arun(function, *args, **kwargs))

    def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Retried:
        """Calls a function with retries. Never raises for a failure; other exceptions are raised.

        Args:
            function: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Examples:
            >>> import sandtimer
            >>> sandtimer.retry(2, pauses=[0]).run(int, "seven").ok
            False
        """
        with _Call(self, function, awaits=False) as call:
            while True:
                step = call.next()
                if isinstance(step, Retried):
                    return step
                if isinstance(step, float):
                    time.sleep(step)
                    continue
                try:
                    value, error = step(*args, **kwargs), None
                except BaseException as raised:
                    value, error = None, raised
                call.ended(value, error)

    async def arun(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Retried:
        """Awaited form of `run`, for async functions. Fallbacks may be async or not."""
        with _Call(self, function, awaits=True) as call:
            while True:
                step = call.next()
                if isinstance(step, Retried):
                    return step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    continue
                try:
                    value, error = await awaited(step(*args, **kwargs)), None
                except BaseException as raised:
                    value, error = None, raised
                call.ended(value, error)

    def __call__(self, function: F) -> F:
        """Decorates a function, async ones too."""
        return decorated(function, self.call, self.acall)


class _Call:
    """One call from its first attempt to its end. However it is left, its breaker waits for nothing of it afterwards."""

    def __init__(self, policy: Retry, function: Callable[..., Any], awaits: bool) -> None:
        check_callable(function, name_of(function), awaits)
        for each in policy._fallbacks:
            check_callable(each, f"fallback={each!r:.200}", awaits)
        self._breaker = breaker = policy._breaker
        self._native = _unused() if breaker is None else breaker._native
        self._clock = time.monotonic_ns if breaker is None else breaker._clock
        self._ways, self._on = (function, *policy._fallbacks), policy._on
        deadline = None if policy._total is None else self._clock() + int(policy._total * 1e9)
        key = None if breaker is None else breaker.name
        self._attempts = Attempts(key, policy._attempts, policy._pauses, len(policy._fallbacks), deadline, _seed())
        self._way = 0
        self._value: Any = None
        self._error: Optional[BaseException] = None

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, *_: Any) -> None:
        self._attempts.abandon(self._native, self._clock())

    def next(self) -> Union[Retried, float, Callable[..., Any]]:
        """What is to be called, or waited for in seconds, and at last how it ended."""
        step, way, seconds, why = self._attempts.next(self._native, self._clock())
        if step == "wait":
            return seconds
        if step == "attempt":
            self._way = way
            return self._ways[way]
        spent = tuple(json.loads(self._attempts.spent()))
        if step == "open" and self._error is None and self._value is None:
            breaker = self._breaker
            name, after = ("", None) if breaker is None else (breaker.name, breaker.retry_after)
            self._error = CircuitOpen(name, after, why)
        is_done = step == "done"
        return Retried(is_done, self._value, self._error, way if is_done else None, why, spent)

    def ended(self, value: Any, error: Optional[BaseException]) -> None:
        """Takes an attempt's value, or what it raised. Raises what is not a failure."""
        judged = judge(value, error, self._on)
        self._value, self._error = value, error
        self._attempts.ended(
            self._native,
            judged.kind,
            judged.text,
            judged.retryable,
            judged.is_timeout,
            judged.retry_after,
            self._clock(),
        )
        if judged.kind == "ignored" and error is not None:
            raise error
        check_value(value, self._ways[self._way])


def _value(retried: Retried) -> Any:
    if retried.error is not None:
        raise retried.error
    return retried.value


def _unused() -> Breakers:
    """Breakers for a call that has none."""
    return Breakers(None, None, (1.0, 1.0), 1, 1.0, 0)


def _seed() -> int:
    return int.from_bytes(os.urandom(8), "little")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgumentTypeError(f"{name}={value!r:.200} is of type {type(value).__name__}: use a whole number from 1 on")
    if not 1 <= value <= 1_000_000:
        raise InvalidArgumentError(f"{name}={value!r}: use a whole number from 1 to 1,000,000")


def _seconds(name: str, value: Any, least: float = 1e-9) -> float:
    if not _is_number(value):
        raise InvalidArgumentTypeError(f"{name}={value!r:.200} is of type {type(value).__name__}: use a number of seconds")
    if not least <= value <= 1e9:
        raise InvalidArgumentError(f"{name}={value!r}: use a number of seconds {'from 0 on' if least == 0 else 'above 0'}")
    return float(value)


def _classes(name: str, value: Any) -> tuple[type[Exception], ...]:
    classes = value if isinstance(value, tuple) else (value,)
    if not classes or not all(isinstance(each, type) and issubclass(each, Exception) for each in classes):
        raise InvalidArgumentTypeError(f"{name}={value!r:.200}: use a class of exceptions, or a tuple of them")
    return classes
