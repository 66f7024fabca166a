"""Schedules, fan-out, and jobs that wait for others, in Python."""

from __future__ import annotations

import asyncio
import json
import pathlib
import pickle
import time

import pytest

import sandtimer
from sandtimer import jobs

# After this a wait has failed.
HARD_STOP = 120.0


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(tmp_path / "state"))


def test_schedule_submits_its_job(tmp_path: pathlib.Path) -> None:
    (tmp_path / "s.toml").write_text('name = "file"\ncron = "@daily"\n[job]\ncommand = ["./x"]\n')
    assert jobs.schedule(tmp_path / "s.toml").spec["cron"] == "@daily"
    stored = jobs.schedule({"name": "tick", "every_ms": "1s", "job": {"command": ["true"], "queue": "q"}})
    assert (stored.queue, stored.submitted, stored.last_job) == ("q", 0, None)
    assert [one.name for one in jobs.schedules()] == ["file", "tick"]
    with jobs.Worker(queues=["q"]):
        until = time.monotonic() + HARD_STOP
        while not (tick := jobs.schedules()[1]).last_job:
            assert time.monotonic() < until
            time.sleep(0.05)
        record = jobs.wait(tick.last_job, HARD_STOP)
    assert record.ok and record.name == "tick"
    assert record.spec["scheduled"] == {"schedule": "tick", "moment_ms": tick.last_ms}
    assert jobs.pause_schedule("tick").spec["paused"] is True
    assert jobs.schedules()[1].next_ms is None
    assert jobs.resume_schedule("tick").next_ms >= tick.last_ms
    assert (jobs.unschedule("tick"), jobs.unschedule("tick")) == (True, False)
    for change in (jobs.pause_schedule, jobs.resume_schedule):
        with pytest.raises(sandtimer.JobScheduleNotFoundError, match="no schedule 'tick'") as unknown:
            change("tick")
        assert isinstance(unknown.value, (sandtimer.JobError, LookupError)) and unknown.value.name == "tick"
        assert pickle.loads(pickle.dumps(unknown.value)).name == "tick"


def test_breakers_are_listed_by_key() -> None:
    assert jobs.breakers() == []
    for key in ("mail:sent", "mail:send"):
        jobs.run({"command": ["false"], "key": key, "breaker": {"failures": 1, "open_ms": "1h", "scope": "store"}})
    first, second = jobs.breakers()
    assert [first.key, second.key] == ["mail:send", "mail:sent"]
    assert (first.state, first.failures_in_a_row, len(first.said)) == ("open", 1, 1)
    assert 0 < (first.retry_after_ms or 0) <= 3_600_000
    assert asyncio.run(jobs.abreakers(most=1))[0].key == "mail:send"
    with pytest.raises(ValueError, match="most=-1"):
        jobs.breakers(most=-1)


def test_schedules_are_awaited_and_refused() -> None:
    async def awaited() -> None:
        stored = await jobs.aschedule({"name": "s", "every_ms": 60_000, "job": {"handler": "h"}})
        assert stored.next_ms is not None
        assert [one.name for one in await jobs.aschedules()] == ["s"]
        assert (await jobs.apause_schedule("s")).next_ms is None
        assert (await jobs.aresume_schedule("s")).next_ms is not None
        assert await jobs.aunschedule("s")

    asyncio.run(awaited())
    for spec, path in [
        ({"name": "s", "cron": "* * *", "job": {"command": ["true"]}}, "cron"),
        ({"name": "s", "cron": "@daily", "time_zone": "Mars", "job": {"command": ["true"]}}, "time_zone"),
        ({"name": "s", "every_ms": 1, "job": {"command": ["true"]}}, "every_ms"),
        ({"name": "s", "every_ms": 1000, "job": {"command": ["true"], "wal_ms": 1}}, "job.wal_ms"),
    ]:
        with pytest.raises(sandtimer.JobSpecRefusedError) as refused:
            jobs.schedule(spec)
        assert refused.value.path == path
    with pytest.raises(TypeError, match="name=5"):
        jobs.unschedule(5)  # type: ignore[arg-type]


def test_map_gives_handlers_their_items_and_the_results_to_the_last() -> None:
    spec = {
        "name": "double",
        "handler": "double",
        "map": {"over": [1, 2, 3], "most": 2, "then": {"command": ["cat", "r"], "after_results": "r"}},
    }
    for refusing in (jobs.submit, jobs.run):
        with pytest.raises(sandtimer.JobSpecRefusedError, match="submit_many"):
            refusing(spec)
    assert jobs.list() == []
    submitted = jobs.submit_many([spec])
    assert [one.state for one in submitted] == ["queued", "queued", "queued", "scheduled"]
    assert jobs.show(submitted[3].id).waiting_for == 3
    with jobs.Worker(slots=2, handlers={"double": _double}):
        last = jobs.wait(submitted[3].id, HARD_STOP)
    assert last.result is not None and last.result.outcome is not None
    assert [one["value"] for one in json.loads(last.result.outcome.stdout)] == [2, 4, 6]


def _double(item: int) -> int:
    return item * 2


def test_job_waits_for_another_and_is_cancelled_by_its_failure() -> None:
    first, second = jobs.submit_many(
        [{"name": "first", "command": ["false"]}, {"name": "second", "command": ["true"], "after": ["first"]}]
    )
    with jobs.Worker():
        record = jobs.wait(second.id, HARD_STOP)
    assert record.state == "cancelled" and first.id in str(record.error)
    with pytest.raises(sandtimer.JobSpecRefusedError, match="circle") as circle:
        jobs.submit_many([{"name": "a", "command": ["true"], "after": ["b"]}, {"name": "b", "command": ["true"], "after": ["a"]}])
    assert circle.value.path == "after"


def test_words_of_other_tools_lead_to_schedules_and_after() -> None:
    with pytest.raises(TypeError, match="jobs.schedule"):
        jobs.submit({"command": ["true"]}, cron="@daily")  # type: ignore[call-arg]
    with pytest.raises(sandtimer.JobSpecRefusedError, match="in a schedule"):
        jobs.submit({"command": ["true"], "cron": "@daily"})
    with pytest.raises(sandtimer.JobSpecRefusedError, match="which is `after` here"):
        jobs.submit({"command": ["true"], "depends_on": []})
