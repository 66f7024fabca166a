"""What breakers and retries call: how each kind of callable ends, and that no end leaves a breaker waiting."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, Callable

import cloudpickle
import pytest
import sandtimer
from test_resilience import Clock, broken, fail


def half_open(**parameters: Any) -> sandtimer.CircuitBreaker:
    """A breaker that admits one probe."""
    clock = Clock()
    breaker = sandtimer.CircuitBreaker("a:b", failures=1, clock=clock, **parameters)
    broken(breaker, 1)
    clock.seconds = 31
    assert breaker.state == "half_open"
    return breaker


def admits(breaker: sandtimer.CircuitBreaker) -> bool:
    """Whether it admits a probe at once."""
    return bool(breaker.call(lambda: True))


class TestPauses:
    def test_interrupt_in_pause_releases_the_probe(self, monkeypatch: pytest.MonkeyPatch) -> None:
        breaker = half_open()

        def interrupted(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("time.sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sandtimer.retry(2, pauses=[5], breaker=breaker).call(fail)
        assert admits(breaker)

    def test_cancel_in_pause_releases_the_probe(self) -> None:
        breaker = half_open()

        async def cancelled() -> None:
            failed = asyncio.Event()

            async def attempt() -> None:
                failed.set()
                raise ValueError

            task = asyncio.ensure_future(sandtimer.retry(2, pauses=[600], breaker=breaker).acall(attempt))
            await failed.wait()
            # The attempt has failed, and its pause has begun, when the loop comes here again.
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        assert admits(breaker)

    def test_coroutine_closed_in_pause_releases_the_probe(self) -> None:
        breaker = half_open()

        async def attempt() -> None:
            raise ValueError

        async def begun() -> None:
            coroutine = sandtimer.retry(2, pauses=[600], breaker=breaker).acall(attempt)
            coroutine.send(None)
            coroutine.close()

        asyncio.run(begun())
        assert admits(breaker)

    def test_cancel_before_fallback_counts_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        breaker = sandtimer.CircuitBreaker("a:b")

        def interrupted(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("time.sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sandtimer.retry(1, pauses=[5], fallback=int, breaker=breaker).call(fail)
        assert breaker.snapshot()["window"] == []


class Mute(Exception):
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Touchy(Exception):
    """Its attributes cannot be read."""

    @property
    def retry_after(self) -> float:
        raise RuntimeError("not now")


class Greedy(Exception):
    retry_after = 1e300


@pytest.mark.parametrize("error", [Mute(), Touchy("lost"), Greedy("lost"), ValueError("\ud800")], ids=lambda error: type(error).__name__)
def test_any_exception_settles_its_ticket(error: Exception) -> None:
    def attempt() -> None:
        raise error

    breaker = half_open()
    with pytest.raises(type(error)):
        breaker.call(attempt)
    assert breaker.state == "open", "the probe failed"
    assert type(error).__name__ in breaker.snapshot()["said"][-1]
    breaker = sandtimer.CircuitBreaker("a:b", failures=1)
    ended = sandtimer.retry(1, breaker=breaker, fallback=lambda: "otherwise").run(attempt)
    assert ended.value == "otherwise"
    ended = sandtimer.retry(1, breaker=breaker).run(attempt)
    assert ended.error is error and breaker.state == "open"


class Proxy:
    """An object that answers for another one, which is not there."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no object is bound")


def test_value_that_cannot_be_inspected_is_a_success() -> None:
    breaker, proxy = half_open(successes=1), Proxy()
    assert breaker.call(lambda: proxy) is proxy
    assert breaker.state == "closed"
    assert sandtimer.retry(2).call(lambda: proxy) is proxy


def yields() -> Iterator[int]:
    yield 1


async def yields_later() -> AsyncIterator[int]:
    yield 1


async def later(value: int) -> int:
    return value


class AsyncCallable:
    async def __call__(self, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return value


class YieldingCallable:
    def __call__(self) -> Iterator[int]:
        yield 1


def protectors() -> list[Any]:
    return [sandtimer.CircuitBreaker("a:b", failures=1), sandtimer.retry(3, pauses=[0])]


@pytest.mark.parametrize("protector", protectors(), ids=["breaker", "retry"])
@pytest.mark.parametrize(
    "function",
    [yields, yields_later, functools.partial(yields), YieldingCallable()],
    ids=["generator", "async generator", "partial", "object"],
)
def test_generators_are_refused_with_a_remedy(protector: Any, function: Callable[..., Any]) -> None:
    for refused in (lambda: protector(function), lambda: protector.call(function), lambda: asyncio.run(protector.acall(function))):
        with pytest.raises(TypeError, match="generator.*a list of what it yields") as caught:
            refused()
        assert isinstance(caught.value, sandtimer.SandtimerError)
    with pytest.raises(TypeError, match="returned an? (async )?generator, whose work has not been done"):
        protector.call(lambda: function())


@pytest.mark.parametrize("protector", protectors(), ids=["breaker", "retry"])
@pytest.mark.filterwarnings("error")
def test_coroutine_that_is_not_awaited_is_refused(protector: Any) -> None:
    for function in (later, functools.partial(later, 1), AsyncCallable()):
        with pytest.raises(TypeError, match="is async, .*await acall"):
            protector.call(function, 1)
    tried: list[int] = []

    @protector
    def returns_coroutine() -> Any:
        tried.append(1)
        return later(1)

    with pytest.raises(TypeError, match="returns_coroutine returned a coroutine, .*decorate the async function"):
        returns_coroutine()
    assert tried == [1], "a mistake of the caller is not tried again"
    assert asyncio.run(protector.acall(lambda: later(1))) == 1
    if isinstance(protector, sandtimer.CircuitBreaker):
        assert protector.state == "closed"


def test_async_fallback_of_a_plain_call_is_refused_at_once() -> None:
    tried: list[int] = []
    with pytest.raises(TypeError, match="fallback=.*is async"):
        sandtimer.retry(1, fallback=later).call(lambda value: tried.append(value), 1)
    assert tried == []
    with pytest.raises(TypeError, match="fallback=.*generator"):
        sandtimer.retry(1, fallback=yields)


@pytest.mark.parametrize("function", [AsyncCallable(), functools.partial(AsyncCallable().__call__)], ids=["object", "partial"])
def test_every_async_callable_is_protected(function: Callable[..., Any]) -> None:
    breaker = sandtimer.CircuitBreaker("a:b", failures=1)
    # Each protects what the other one has made.
    protected = sandtimer.retry(2, pauses=[0])(breaker(function))
    assert asyncio.run(protected(4)) == 4
    with pytest.raises(sandtimer.CircuitOpen):
        asyncio.run(protected(-1))
    assert breaker.state == "open"


def test_stacked_decorators_try_an_async_function_again() -> None:
    tried: list[int] = []

    @sandtimer.retry(3, pauses=[0])
    @sandtimer.CircuitBreaker("a:b")
    async def flaky() -> int:
        tried.append(1)
        if len(tried) < 3:
            raise ConnectionError("no")
        return len(tried)

    assert asyncio.run(flaky()) == 3


def test_async_call_of_a_plain_function_is_protected() -> None:
    breaker = sandtimer.CircuitBreaker("a:b")
    assert asyncio.run(breaker.acall(int, "7")) == 7
    assert asyncio.run(sandtimer.retry(2).acall(int, "7")) == 7


class Tool:
    breaker = sandtimer.CircuitBreaker("a:b")

    @breaker
    @staticmethod
    def double(number: int) -> int:
        return 2 * number

    @sandtimer.retry(2)
    @classmethod
    def called(cls) -> str:
        return cls.__name__

    @breaker
    def myself(self) -> Tool:
        return self


def test_methods_of_each_kind_keep_their_kind() -> None:
    tool = Tool()
    assert (tool.double(2), Tool.double(3), tool.called(), Tool.called()) == (4, 6, "Tool", "Tool")
    assert tool.myself() is tool


@pytest.mark.parametrize("protector", protectors(), ids=["breaker", "retry"])
def test_what_cannot_be_called_is_refused_by_value(protector: Any) -> None:
    for refused in (lambda: protector(5), lambda: protector.call(5), lambda: asyncio.run(protector.acall(5))):
        with pytest.raises(TypeError, match="5 cannot be called: use a function"):
            refused()


@pytest.mark.parametrize("on", [ValueError, StopIteration])
def test_stop_iteration_passes_as_itself(on: type[Exception]) -> None:
    tried: list[int] = []

    def empty() -> None:
        tried.append(1)
        next(iter(()))

    with pytest.raises(StopIteration):
        sandtimer.retry(3, pauses=[0], on=on).call(empty)
    assert len(tried) == (3 if on is StopIteration else 1)


def test_stop_iteration_of_an_async_retry_is_reported() -> None:
    ended = asyncio.run(sandtimer.retry(2, pauses=[0]).arun(lambda: next(iter(()))))
    assert isinstance(ended.error, StopIteration) and len(ended.spent) == 2


def copies() -> list[Callable[[Any], Any]]:
    return [copy.copy, copy.deepcopy, lambda breaker: pickle.loads(pickle.dumps(breaker))]


@pytest.mark.parametrize("copied", copies(), ids=["copy", "deepcopy", "pickle"])
def test_copy_of_a_breaker_knows_what_it_knew(copied: Callable[[Any], Any]) -> None:
    breaker = sandtimer.CircuitBreaker("a:b", failures=2, open_seconds=40, on=(ValueError, KeyError))
    with pytest.raises(ValueError):
        breaker.call(fail)
    other = copied(breaker)
    with pytest.raises(ValueError):
        other.call(fail)
    assert (other.state, breaker.state) == ("open", "closed"), "each counts for itself"
    assert other.retry_after is not None and 19 < other.retry_after <= 40
    with pytest.raises(TypeError):
        breaker.call(len, 3)
    assert breaker.snapshot()["failures_in_a_row"] == 1, "its classes are the same"
    breaker.hold("open")
    assert copied(breaker).snapshot()["held"] == "open"


def test_retry_with_a_breaker_goes_to_another_process() -> None:
    policy = pickle.loads(pickle.dumps(sandtimer.retry(2, pauses=[0], breaker=sandtimer.CircuitBreaker("a:b"))))
    assert policy.call(int, "7") == 7

    @sandtimer.CircuitBreaker("a:b", failures=1)
    def inner(text: str) -> int:
        return int(text)

    assert cloudpickle.loads(cloudpickle.dumps(inner))("7") == 7
    with sandtimer.Sandbox(timeout=20) as box:
        assert box.call(inner, "8") == 8


def test_threads_share_one_probe() -> None:
    breaker, began, release = half_open(successes=1), threading.Event(), threading.Event()

    def probe() -> None:
        began.set()
        assert release.wait(60)

    thread = threading.Thread(target=breaker.call, args=(probe,))
    thread.start()
    assert began.wait(60)
    with pytest.raises(sandtimer.CircuitOpen):
        breaker.call(int)
    release.set()
    thread.join(60)
    assert breaker.state == "closed"
