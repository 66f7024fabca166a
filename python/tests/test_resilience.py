"""Retries and breakers, by a clock that the test moves; beside a well-known breaker where both mean the same."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import json
import pickle
import random
import time
from typing import Any, Callable

import pybreaker
import pytest
import sandtimer


class Clock:
    """Nanoseconds that stand still."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> int:
        return int(self.seconds * 1e9)


def fail(*_: Any) -> None:
    raise ValueError("missing parameter")


def broken(breaker: sandtimer.CircuitBreaker, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ValueError):
            breaker.call(fail)


def test_five_failures_open_it_and_a_probe_closes_it() -> None:
    clock = Clock()
    breaker = sandtimer.CircuitBreaker("calculator:calculate", successes=1, clock=clock)
    broken(breaker, 5)
    with pytest.raises(sandtimer.CircuitOpen) as caught:
        breaker.call(fail)
    first, why = caught.value.feedback.splitlines()
    assert first == "[SYSTEM: calculator:calculate circuit breaker open - try different approach]"
    assert str(caught.value) == why and "after 5 failures in a row; the last: ValueError: missing parameter" in why
    assert caught.value.retry_after is not None and 15 <= caught.value.retry_after <= 30
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.name, again.retry_after, again.feedback) == ("calculator:calculate", *caught.value.args[1:])
    clock.seconds = 31
    assert breaker.state == "half_open"
    assert breaker.call(int, "7") == 7
    assert breaker.state == "closed"


def test_only_one_probe_at_a_time_and_one_that_hangs_is_a_failure() -> None:
    clock = Clock()
    breaker = sandtimer.CircuitBreaker("a:b", failures=1, probe_seconds=10, clock=clock)
    broken(breaker, 1)
    clock.seconds = 31

    def probe() -> None:
        with pytest.raises(sandtimer.CircuitOpen):
            breaker.call(int)
        clock.seconds += 11
        assert breaker.state == "open"

    breaker.call(probe)
    assert breaker.state == "open", "its late word changes nothing"


def test_what_is_no_failure_is_not_counted() -> None:
    breaker = sandtimer.CircuitBreaker("a:b", failures=1, on=ValueError)
    for error in (KeyError("mine"), KeyboardInterrupt(), SystemExit(3), sandtimer.Cancelled("by me")):
        with pytest.raises(type(error)):
            breaker.call(_raise, error)
    assert breaker.snapshot()["failures_in_a_row"] == 0
    broken(breaker, 1)
    assert breaker.state == "open"


def _raise(error: BaseException) -> None:
    raise error


def test_outcomes_of_sandboxes_count_by_what_ended_them() -> None:
    breaker = sandtimer.CircuitBreaker("strategy:run", failures=3)
    with sandtimer.Sandbox(timeout=0.2) as box:
        assert breaker.call(box.run, exec, "raise ValueError('lost')").ending == "raised"
        assert breaker.call(box.run, exec, "while True: pass").ending == "timeout"
        assert breaker.snapshot()["failures_in_a_row"] == 2
        assert "wall limit" in breaker.snapshot()["said"][-1]
        # Both items end at the limit of the whole, which is not the function's.
        for outcome in box.limits(timeout=None).map(exec, ["while True: pass"] * 2, total=0.2):
            assert outcome.verdict is not None and outcome.verdict.source == "ancestor"
            assert breaker.call(lambda: outcome) is outcome
        assert breaker.snapshot()["failures_in_a_row"] == 2
        with pytest.raises(sandtimer.DeadlineExceeded):
            breaker.call(box.call, exec, "while True: pass")
    assert breaker.state == "open"


def test_it_decorates_functions_of_both_kinds() -> None:
    breaker = sandtimer.CircuitBreaker("a:b", failures=2)

    @breaker
    def plain(text: str) -> int:
        """Reads a number."""
        return int(text)

    @breaker
    async def later(text: str) -> int:
        return int(text)

    assert plain("3") == 3 and plain.__doc__ == "Reads a number."
    assert inspect.iscoroutinefunction(later.__wrapped__) and asyncio.run(later("4")) == 4  # type: ignore[attr-defined]
    for call in (lambda: plain("x"), lambda: asyncio.run(later("x"))):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(sandtimer.CircuitOpen):
        asyncio.run(later("4"))


def test_a_person_holds_it_and_another_process_takes_it_up() -> None:
    breaker = sandtimer.CircuitBreaker("a:b")
    breaker.hold("open")
    with pytest.raises(sandtimer.CircuitOpen) as caught:
        breaker.call(int)
    assert caught.value.retry_after is None
    breaker.hold("closed")
    broken(breaker, 20)
    breaker.hold(None)
    broken(breaker, 5)
    other = sandtimer.CircuitBreaker("of:another")
    other.restore(json.loads(json.dumps(breaker.snapshot())))
    assert other.state == "open" and other.snapshot()["said"] == ["ValueError: missing parameter"] * 3


def test_the_same_as_a_well_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where meanings agree: failures in a row, one opening time, so many successes."""
    clock = Clock()

    class Now(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Now:
            return cls.fromtimestamp(1e9 + clock.seconds, tz)

    monkeypatch.setattr(pybreaker, "datetime", Now)
    for seed in range(2000):
        chance = random.Random(seed)
        failures, successes = chance.randint(1, 6), chance.randint(1, 3)
        theirs = pybreaker.CircuitBreaker(failures, 60, success_threshold=successes)
        ours = sandtimer.CircuitBreaker(
            "a:b", failures=failures, rate=None, successes=successes, open_seconds=60, max_open_seconds=60, clock=clock
        )
        for step in range(60):
            # Ours opens for a time between the half and the whole of it.
            clock.seconds += chance.choice((0, 0, 0, 1, 61))
            fails, tried = chance.random() < 0.6, []

            def work() -> None:
                tried.append(1)
                if fails:
                    raise ValueError

            for breaker, refusals in ((theirs, pybreaker.CircuitBreakerError), (ours, sandtimer.CircuitOpen)):
                try:
                    breaker.call(work)
                except (ValueError, refusals):  # type: ignore[misc]
                    pass
            where = f"seed {seed}, step {step}: {failures} failures, {successes} successes"
            assert len(tried) in (0, 2), where
            if clock.seconds % 61 < 25:
                assert theirs.current_state.replace("-", "_") == ours.state, where


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_is_tried_again_and_then_done_another_way(is_async: bool) -> None:
    tried: list[str] = []

    def calculate(text: str) -> int:
        tried.append("calculate")
        raise ValueError("missing parameter")

    async def calculate_later(text: str) -> int:
        return calculate(text)

    def approximate(text: str) -> int:
        tried.append("approximate")
        return len(text)

    breaker = sandtimer.CircuitBreaker("calculator:calculate")
    policy = sandtimer.retry(3, pauses=[0.01, 0.02, 0.04], fallback=approximate, breaker=breaker)
    done = asyncio.run(policy.arun(calculate_later, "7+7")) if is_async else policy.run(calculate, "7+7")
    assert tried == ["calculate"] * 3 + ["approximate"]
    assert done.ok and done.value == 3 and done.degraded and done.way == 1
    assert [each["spent_on"] for each in done.spent] == ["attempt", "backoff"] * 3 + ["attempt"]
    assert [each["ms"] for each in done.spent if each["spent_on"] == "backoff"] == [10, 20, 40]
    assert breaker.snapshot()["window"] == [False], "one call is one result"


def test_five_calls_that_fail_in_every_way_open_the_breaker() -> None:
    breaker = sandtimer.CircuitBreaker("calculator:calculate")
    policy = sandtimer.retry(3, pauses=[0], fallback=fail, breaker=breaker)
    for _ in range(5):
        assert breaker.state == "closed"
        with pytest.raises(ValueError, match="missing parameter"):
            policy.call(fail)
    with pytest.raises(sandtimer.CircuitOpen):
        sandtimer.retry(3, pauses=[0], breaker=breaker).call(fail)
    refused = sandtimer.retry(3, pauses=[0], fallback=lambda: "otherwise", breaker=breaker).run(fail)
    assert refused.value == "otherwise" and refused.spent[0]["spent_on"] == "breaker_open"


def test_what_another_breaker_refuses_is_no_failure_of_this_one() -> None:
    inner, outer = (sandtimer.CircuitBreaker(name, failures=1, rate=None) for name in ("inner", "outer"))
    with pytest.raises(ValueError):
        inner.call(fail)
    for _ in range(2):
        with pytest.raises(sandtimer.CircuitOpen, match="inner"):
            outer.call(inner.call, fail)
    assert outer.state == "closed"
    with pytest.raises(ValueError):
        outer.call(fail)
    assert outer.state == "open"


def test_nothing_begins_that_could_not_end_in_time() -> None:
    tried: list[float] = []

    def slow() -> None:
        tried.append(time.monotonic())
        raise ConnectionError("no")

    start = time.monotonic()
    ended = sandtimer.retry(10, pauses=[0.3], total=0.5).run(slow)
    assert len(tried) == 2 and not ended.ok and isinstance(ended.error, ConnectionError)
    assert "would not end before the deadline" in ended.why
    assert time.monotonic() - start < 0.5


def test_what_is_not_named_is_the_callers_at_once() -> None:
    tried: list[int] = []

    @sandtimer.retry(5, pauses=[0], on=(ConnectionError, TimeoutError), fallback=lambda: "never")
    def wrong() -> None:
        tried.append(1)
        raise TypeError("a mistake")

    with pytest.raises(TypeError, match="a mistake"):
        wrong()
    assert tried == [1]


def test_a_sandbox_is_tried_again() -> None:
    with sandtimer.Sandbox(timeout=0.1) as box:
        ended = sandtimer.retry(2, pauses=[0]).run(box.run, exec, "while True: pass")
    assert not ended.ok and ended.value.ending == "timeout" and len(ended.spent) == 2
    assert ended.why.startswith("all attempts failed; the last: ")


def restored(**fields: Any) -> None:
    breaker = sandtimer.CircuitBreaker("a")
    breaker.restore({**breaker.snapshot(), **fields})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sandtimer.CircuitBreaker(""), "name=''"),
        (lambda: sandtimer.CircuitBreaker("a", failures=0), "failures=0"),
        (lambda: sandtimer.CircuitBreaker("a", failures=True), "failures=True"),
        (lambda: sandtimer.CircuitBreaker("a", rate=1.5), "rate=1.5"),
        (lambda: sandtimer.CircuitBreaker("a", rate=float("nan")), "rate=nan"),
        (lambda: sandtimer.CircuitBreaker("a", least=30), "least=30"),
        (lambda: sandtimer.CircuitBreaker("a", open_seconds=-1), "open_seconds=-1"),
        (lambda: sandtimer.CircuitBreaker("a", open_seconds=700), "max_open_seconds=600"),
        (lambda: sandtimer.CircuitBreaker("a", on=BaseException), "on=<class 'BaseException'>"),  # type: ignore[arg-type]
        (lambda: sandtimer.CircuitBreaker("a").hold("half"), "state='half'"),
        (lambda: sandtimer.CircuitBreaker("a").restore({"state": 3}), "has no 'failures_in_a_row'"),
        (lambda: sandtimer.CircuitBreaker("a").restore(5), "snapshot=5"),  # type: ignore[arg-type]
        (lambda: restored(state="half"), "state='half' of the snapshot: use 'closed', 'open' or 'half_open'"),
        (lambda: restored(state=3), "state=3"),
        (lambda: restored(held="shut"), "held='shut' of the snapshot: use 'open', 'closed' or None"),
        (lambda: restored(retry_after_ms=-1), "retry_after_ms=-1"),
        (lambda: restored(failures_in_a_row=2**40), "failures_in_a_row=1099511627776"),
        (lambda: restored(window=[3]), "window=[3] of the snapshot: use a list of True and False"),
        (lambda: restored(said="lost"), "said='lost' of the snapshot: use a list of strings"),
        (lambda: sandtimer.CircuitBreaker("a\ud800"), "name='a\\ud800'"),
        (lambda: sandtimer.CircuitBreaker("a", clock=5), "clock=5"),  # type: ignore[arg-type]
        (lambda: sandtimer.retry(0), "attempts=0"),
        (lambda: sandtimer.retry(2, pauses="soon"), "pauses='soon'"),  # type: ignore[arg-type]
        (lambda: sandtimer.retry(2, pauses=[float("nan")]), "pauses=nan"),
        (lambda: sandtimer.retry(2, total=float("inf")), "total=inf"),
        (lambda: sandtimer.retry(2, fallback=[3]), "fallback=3"),  # type: ignore[list-item]
        (lambda: sandtimer.retry(2, fallback=5), "fallback=5 cannot be called: use a function"),  # type: ignore[arg-type]
        (lambda: sandtimer.retry(2, fallback="later"), "fallback='later'"),  # type: ignore[arg-type]
        (lambda: sandtimer.retry(2, breaker="a:b"), "breaker='a:b'"),  # type: ignore[arg-type]
    ],
)
def test_wrong_parameters_are_refused_by_name(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert message in str(caught.value) and isinstance(caught.value, sandtimer.SandtimerError)
