"""Soft limits of handlers: the function is told in time, and saves what it has."""

from __future__ import annotations

import pathlib
from typing import Any, Iterator

import pytest
import sandtimer
from sandtimer import jobs

# Longer than any test may take.
LONG = 300


@pytest.fixture(autouse=True)
def state(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=60.0) as box:
        yield box


def save_in_time(way: str) -> str:
    import time

    import sandtimer

    end = time.monotonic() + LONG
    try:
        while time.monotonic() < end:
            if way == "sleeps":
                time.sleep(LONG)
    except sandtimer.SoftTimeLimitError as error:
        return f"saved: {error}"
    return "never told"


@pytest.mark.parametrize("way", ["sleeps", "computes"])
def test_handler_saves_what_it_has_when_its_soft_limit_passes(box: sandtimer.Sandbox, way: str) -> None:
    record = jobs.run({"handler": "save", "input": way}, handlers={"save": jobs.Handler(save_in_time, soft=0.3)}, sandbox=box)
    assert record.result is not None and record.result.ok, record.result
    assert record.result.value == "saved: the soft limit of 0.3 s has passed, and the wall-clock limit is near"


def test_handler_that_lets_the_error_pass_has_failed_by_it(box: sandtimer.Sandbox) -> None:
    def sleep(seconds: float) -> None:
        import time

        time.sleep(seconds)

    spec = {"handler": "sleep", "input": LONG, "wall_ms": "50s"}
    record = jobs.run(spec, handlers={"sleep": jobs.Handler(sleep, soft="200ms")}, sandbox=box)
    assert record.result is not None and record.result.status == "failed"
    assert "SoftTimeLimitError: the soft limit of 0.2 s has passed" in str(record.result.error)


def test_handler_within_its_soft_limit_leaves_no_alarm(box: sandtimer.Sandbox) -> None:
    def state_of_alarm(_: Any) -> list[Any]:
        import signal

        return [signal.getitimer(signal.ITIMER_REAL)[0] > 0, callable(signal.getsignal(signal.SIGALRM))]

    record = jobs.run({"handler": "of"}, handlers={"of": jobs.Handler(state_of_alarm, soft="50s")}, sandbox=box)
    assert record.result is not None and record.result.value == [True, True]
    record = jobs.run({"handler": "of"}, handlers={"of": jobs.Handler(state_of_alarm)}, sandbox=box)
    assert record.result is not None and record.result.value == [False, False]


def test_alarm_ends_with_the_function() -> None:
    import signal

    from sandtimer.jobs._handler import SoftLimited

    before = signal.getsignal(signal.SIGALRM)
    assert SoftLimited(lambda asked: asked, 50.0)(3) == 3
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0 and signal.getsignal(signal.SIGALRM) == before


@pytest.mark.parametrize("soft", [-1, float("nan"), float("inf"), True, "", "5", "5 m", "m", [1], 1e12])
def test_what_is_no_duration_is_refused_by_name(soft: Any) -> None:
    with pytest.raises(sandtimer.InvalidLimitError, match=r"soft=.* use a number of seconds, a string such as"):
        jobs.Handler(save_in_time, soft=soft)


def test_durations_are_taken_as_specs_have_them() -> None:
    given = {"5m": 300.0, "1h30m": 5400.0, "500ms": 0.5, "1.5s": 1.5, 2: 2.0, 0: None, None: None}
    assert {soft: jobs.Handler(save_in_time, soft=soft).soft for soft in given} == given


def test_soft_limit_that_the_wall_limit_leaves_no_time_for_is_refused(box: sandtimer.Sandbox) -> None:
    for soft in (60, "2m"):
        with pytest.raises(sandtimer.InvalidLimitError, match=r"handlers\['save'\]: soft=\d+ is not below the wall-clock limit, timeout=60 of"):
            jobs.Worker(handlers={"save": jobs.Handler(save_in_time, soft=soft)}, sandbox=box)


def test_async_handlers_are_told_what_to_use() -> None:
    async def wait(_: Any) -> None: ...

    with pytest.raises(sandtimer.InvalidArgumentError, match=r"wait is an async function; use asyncio.timeout\(5\) in it"):
        jobs.Handler(wait, soft=5)
    with pytest.raises(sandtimer.InvalidArgumentTypeError, match="function=3 is of type int"):
        jobs.Handler(3)  # type: ignore[arg-type]


def test_async_callables_and_odd_durations_are_refused() -> None:
    import functools

    class Async:
        async def __call__(self, asked: Any) -> None: ...

    async def function(asked: Any) -> None: ...

    for handler in (Async(), function, functools.partial(function)):
        with pytest.raises(sandtimer.InvalidArgumentError, match="async function"):
            jobs.Handler(handler, soft=1)
    for soft in (10**400, float("nan"), float("inf"), "٣s"):
        with pytest.raises(sandtimer.InvalidLimitError, match="not a duration"):
            jobs.Handler(len, soft=soft)
