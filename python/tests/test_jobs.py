"""`sandtimer.jobs`: what is submitted, what becomes of it, what is refused, and who may wait how."""

from __future__ import annotations

import asyncio
import copy
import datetime
import json
import os
import pathlib
import pickle
import time
from typing import Any

import pytest

import sandtimer
from sandtimer import jobs

# After this a wait has failed.
HARD_STOP = 120.0


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The state directory."""
    state = tmp_path / "state"
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(state))
    return state


def run(spec: Any, **options: Any) -> jobs.JobRecord:
    record = jobs.run(spec, **options)
    assert record.is_over
    return record


def test_a_job_runs_to_its_end_and_is_kept() -> None:
    record = run({"command": ["sh", "-c", "echo out; echo err >&2"], "name": "both", "queue": "q", "priority": 3})
    assert (record.state, record.ok, record.name, record.queue, record.priority) == ("ended", True, "both", "q", 3)
    assert record.result is not None and record.result.outcome is not None
    assert (record.result.outcome.stdout, record.result.outcome.stderr) == ("out\n", "err\n")
    assert record.result.outcome.tree.survivors == 0
    assert sorted(jobs.read_log(record.id).text.splitlines()) == ["err", "out"]
    again = jobs.show(record.id)
    assert again.spec["command"] == ["sh", "-c", "echo out; echo err >&2"]
    assert jobs.purge() == 1
    with pytest.raises(sandtimer.JobNotFoundError) as unknown:
        jobs.show(record.id)
    assert unknown.value.id == record.id and isinstance(unknown.value, LookupError)


def test_log_has_the_time_of_each_line_on_request() -> None:
    before = jobs.run({"command": ["true"]}).now_ms
    record = run({"command": ["sh", "-c", "printf 'one\\ntwo'; sleep 0.01; echo ' more'"]})
    log = jobs.read_log(record.id, timestamps=True)
    lines = [line.split(" ", 1) for line in log.text.splitlines()]
    assert [text for _, text in lines] == ["one", "two more"]
    for stamp, _ in lines:
        assert stamp.endswith("Z"), stamp
        moment = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() * 1000
        assert before - 1000 <= moment <= record.now_ms + 1000, (before, stamp, record.now_ms)
    # Positions are those of the output; a line that began before the position has no time.
    assert log.next_cursor == len("one\ntwo more\n")
    assert jobs.read_log(record.id, 1, 2, timestamps=True).data == b"ne"
    assert jobs.read_log(record.id, 4, timestamps=True).text == f"{lines[1][0]} two more\n"
    assert jobs.read_log(record.id).data == b"one\ntwo more\n"
    assert asyncio.run(jobs.aread_log(record.id, timestamps=True)) == log
    with pytest.raises(TypeError, match="timestamps"):
        jobs.read_log(record.id, timestamps="yes")  # type: ignore[arg-type]


def test_files_go_in_and_come_out(tmp_path: pathlib.Path) -> None:
    (tmp_path / "words").write_text("hello")
    spec = {
        "command": ["sh", "-c", "cat words raw > both; mkfifo pipe"],
        "inputs": {"words": {"file": str(tmp_path / "words")}, "raw": b"\xff\x00"},
        "outputs": ["both", "pipe"],
    }
    record = run(spec)
    assert record.result is not None and record.result.status == "ok", record.error
    assert [(file.name, file.bytes) for file in jobs.files(record.id)] == [("both", 7)]
    assert [refused.name for refused in record.result.files_refused] == ["pipe"]
    assert jobs.read_file(record.id, "both") == b"hello\xff\x00"
    assert asyncio.run(jobs.aread_file(record.id, "both")) == b"hello\xff\x00"
    assert record.spec["inputs"]["words"]["bytes"] == 5
    with pytest.raises(sandtimer.JobFileUnknownError) as unknown:
        jobs.read_file(record.id, "pipe")
    copied = pickle.loads(pickle.dumps(unknown.value))
    assert (copied.id, copied.name) == (record.id, "pipe") and isinstance(copied, LookupError)


def test_a_failure_is_data() -> None:
    record = run({"command": ["sh", "-c", "exit 7"], "attempts": 2, "backoff_ms": [1]})
    assert record.result is not None
    assert (record.result.status, record.result.ok, record.result.spent["attempts"]) == ("failed", False, 2)
    assert "exit code 7" in str(record.error)


@pytest.mark.parametrize("name", ["job.toml", "job.json"])
def test_a_file_is_a_spec_and_its_paths_count_from_its_directory(name: str, tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "place"
    directory.mkdir()
    (directory / "word").write_text("found")
    spec = {"command": ["cat", "word"], "cwd": "."}
    text = json.dumps(spec) if name.endswith("json") else 'command = ["cat", "word"]\ncwd = "."\n'
    (directory / name).write_text(text)
    record = run(directory / name)
    assert record.result is not None and record.result.outcome is not None
    assert record.result.outcome.stdout == "found", record.error


def test_the_scenario_of_the_calculator_is_the_command_lines() -> None:
    example = pathlib.Path(__file__).parents[2] / "examples/jobs/another_way.toml"
    record = run(example)
    assert record.result is not None
    assert (record.result.status, record.result.value, record.result.turns) == ("ok", 42, 8), record.error


def test_many_are_taken_in_or_none() -> None:
    good = {"command": ["true"]}
    with pytest.raises(sandtimer.JobSpecRefusedError, match=r"specs\[1\]: `wall_ms`") as refused:
        jobs.submit_many([good, {**good, "wall_ms": -1}])
    assert refused.value.path == "wall_ms" and isinstance(refused.value, ValueError)
    assert jobs.list() == []
    submitted = jobs.submit_many([good, good, {**good, "not_before_ms": int(time.time() * 1000) + 3_600_000}])
    assert [each.state for each in submitted] == ["queued", "queued", "scheduled"]
    assert [job.id for job in jobs.list()] == [each.id for each in reversed(submitted)]


def test_a_delay_counts_from_the_submission_and_the_same_key_is_the_same_job() -> None:
    spec = {"command": ["true"], "delay_ms": "1h", "idempotency_key": "later"}
    first, again = jobs.submit(spec), jobs.submit(spec)
    assert (first.state, first.existed, again.existed) == ("scheduled", False, True)
    assert first.id == again.id
    at_once = jobs.submit({"command": ["true"], "delay_ms": 0})
    assert at_once.state == "queued"


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({}, "command"),
        ({"command": ["true"], "delay_ms": -1}, "delay_ms"),
        ({"command": ["true"], "delay_ms": "unlimited"}, "delay_ms"),
        ({"command": ["true"], "delay_ms": "1h", "wall_ms": "1h"}, "delay_ms"),
        ({"command": ["true"], "delay_ms": "1h", "not_before_ms": 1}, "not_before_ms"),
        ({"command": ["true"], "prioriti": 1}, "prioriti"),
        ({"steps": [{"name": "a", "command": ["true"], "needs": ["b"]}]}, "steps[0].needs"),
        ({"command": ["true"], "deadline_ms": 1}, "deadline_ms"),
        ({"command": ["true"], "env": {"A": {1, 2}}}, "env.A"),
        ({"command": ["true"], "limits": {"wall_ms": float("nan")}}, "limits.wall_ms"),
        ({"handler": "h", "network": True}, "network"),
        ({"handler": ""}, "handler"),
        ({"command": ["true"], "inputs": {"../a": ""}}, "inputs"),
        ({"command": ["true"], "outputs": ["/a"]}, "outputs[0]"),
    ],
)
def test_a_malformed_spec_names_the_field(spec: Any, path: str) -> None:
    with pytest.raises(sandtimer.JobSpecRefusedError) as refused:
        jobs.submit(spec)
    assert refused.value.path.startswith(path), refused.value
    for copied in (copy.copy(refused.value), pickle.loads(pickle.dumps(refused.value))):
        assert (str(copied), copied.path) == (str(refused.value), refused.value.path)


def test_a_malformed_file_names_itself_and_the_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "job.toml").write_text('command = ["true"]\nname = \n')
    with pytest.raises(sandtimer.JobSpecRefusedError, match="line 2") as refused:
        jobs.submit(tmp_path / "job.toml")
    assert str(tmp_path) in str(refused.value)
    with pytest.raises(FileNotFoundError):
        jobs.submit(tmp_path / "absent.toml")
    with pytest.raises(TypeError, match="spec="):
        jobs.submit(7)  # type: ignore[arg-type]


def test_a_key_with_another_spec_carries_the_job_there_is() -> None:
    spec = {"command": ["true"], "idempotency_key": "k"}
    first = jobs.submit(spec)
    second = jobs.submit(spec)
    assert (first.existed, second.existed, second.id) == (False, True, first.id)
    with pytest.raises(sandtimer.JobConflictError) as conflict:
        jobs.submit({**spec, "command": ["false"]})
    assert (conflict.value.key, conflict.value.existing) == ("k", first.id)
    assert conflict.value.job.id == first.id and conflict.value.job.spec["command"] == ["true"]
    copied = pickle.loads(pickle.dumps(conflict.value))
    assert (copied.existing, copied.job.id) == (first.id, first.id)


def test_filters_queues_cancel_retry_pause_and_purge() -> None:
    one, two = jobs.submit_many([{"command": ["true"], "queue": "a"}, {"command": ["true"], "queue": "b"}])
    assert [job.id for job in jobs.list(queue="a")] == [one.id]
    assert [job.id for job in jobs.list(most=1)] == [two.id]
    assert jobs.list(state="running") == [] == jobs.list(state="failed")
    with pytest.raises(ValueError, match="state='runing': use one of scheduled"):
        jobs.list(state="runing")
    jobs.pause("a")
    assert {queue.queue: (queue.paused, queue.queued) for queue in jobs.queues()} == {"a": (True, 1), "b": (False, 1)}
    jobs.resume("a")
    assert jobs.cancel(one.id, "no need") == "cancelled"
    assert jobs.cancel(one.id) == "too_late"
    assert "no need" in str(jobs.show(one.id).error)
    with pytest.raises(sandtimer.JobStateRefusedError) as goes_on:
        jobs.retry(two.id)
    assert (goes_on.value.id, goes_on.value.state) == (two.id, "queued")
    assert jobs.retry(one.id) == "queued"
    jobs.cancel(one.id)
    assert (jobs.purge(queue="b"), jobs.purge(state="cancelled")) == (0, 1)


def test_a_paused_queue_hands_out_nothing() -> None:
    jobs.pause("held")
    job = jobs.submit({"command": ["true"], "queue": "held"})
    with jobs.Worker():
        other = jobs.submit({"command": ["true"], "queue": "free"})
        assert jobs.wait(other.id, HARD_STOP).ok
        assert jobs.show(job.id).state == "queued"
        jobs.resume("held")
        assert jobs.wait(job.id, HARD_STOP).ok


def test_a_wait_has_an_end_and_the_job_goes_on() -> None:
    job = jobs.submit({"command": ["true"]})
    with pytest.raises(sandtimer.JobStillRunningError, match=f"{job.id} is queued") as goes_on:
        jobs.wait(job.id, 0.2)
    assert isinstance(goes_on.value, TimeoutError)
    assert jobs.show(job.id).state == "queued"


def test_watching_gives_states_output_and_ends() -> None:
    specs = [{"command": ["sh", "-c", f"printf 'é{index}'"]} for index in (1, 2)]
    ids = [each.id for each in jobs.submit_many(specs)]
    events = []
    with jobs.Worker(slots=2):
        for event in jobs.watch(ids, progress=True):
            events.append(event)
    for index, id in enumerate(ids, 1):
        ours = [event for event in events if event.job.id == id]
        assert "".join(event.text for event in ours) == f"é{index}"
        assert ours[-1].event == "ended" and ours[-1].job.ok
        assert [event.event for event in ours].count("ended") == 1
        assert ours[0].event == "state"


def test_a_bar_counts_jobs_and_says_how_they_ended(capfd: pytest.CaptureFixture[str]) -> None:
    ids = [each.id for each in jobs.submit_many([{"command": ["true"]}, {"command": ["false"]}])]
    with jobs.Worker():
        jobs.wait_many(ids, HARD_STOP, progress=True)
    shown = capfd.readouterr().err
    assert "2/2" in shown and "1 failed" in shown and "job" in shown


def test_everything_can_be_awaited() -> None:
    async def main() -> None:
        record = await jobs.arun({"command": ["echo", "hello"]})
        assert record.ok
        assert (await jobs.aread_log(record.id)).data == b"hello\n"
        job = await jobs.asubmit({"command": ["true"], "queue": "q"})
        assert [each.id for each in await jobs.alist(queue="q")] == [job.id]
        assert [queue.queue for queue in await jobs.aqueues()] == ["q"]
        await jobs.apause("q")
        await jobs.aresume("q")
        assert await jobs.acancel(job.id) == "cancelled"
        assert await jobs.aretry(job.id) == "queued"
        waiting = asyncio.ensure_future(jobs.await_(job.id, HARD_STOP))
        # The loop goes on while it waits.
        await asyncio.sleep(0.05)
        assert not waiting.done()
        with jobs.Worker():
            assert (await waiting).ok
        assert [event.event async for event in jobs.awatch(job.id)] == ["state", "ended"]
        assert (await jobs.ashow(job.id)).deliveries == 1
        assert await jobs.apurge() == 2

    asyncio.run(main())


def test_cancelling_the_task_of_a_run_cancels_the_job() -> None:
    async def main() -> str:
        task = asyncio.ensure_future(jobs.arun({"command": ["sleep", "600"]}))
        while not [job for job in jobs.list() if job.state == "leased"]:
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return jobs.list()[0].state

    assert asyncio.run(asyncio.wait_for(main(), HARD_STOP)) == "cancelled"


def test_the_layer_of_a_limit_and_where_it_was_set_are_named() -> None:
    record = run({"command": ["sleep", "60"], "wall_ms": 300})
    assert record.result is not None and record.result.verdict is not None
    assert (record.result.status, record.result.verdict.layer, record.result.verdict.limit_ms) == ("timeout", "job", 300)
    record = run({"command": ["sleep", "60"], "limits": {"wall_ms": 200}})
    assert record.result is not None and record.result.outcome is not None
    verdict = record.result.outcome.verdict
    assert verdict is not None
    assert (verdict.layer, verdict.limit_ms, verdict.source, verdict.origin) == ("run", 200, "call", "the job's spec")


def test_limits_of_the_workers_sandbox_hold_where_a_spec_does_not_say() -> None:
    with sandtimer.Sandbox(timeout=0.2) as box:
        record = run({"command": ["sleep", "60"]}, sandbox=box)
        assert record.result is not None and record.result.outcome is not None
        verdict = record.result.outcome.verdict
        assert verdict is not None
        assert (verdict.limit_ms, verdict.source, verdict.origin) == (200, "session", "the worker's sandbox")
        record = run({"command": ["sleep", "0.3"], "limits": {"wall_ms": "60s"}}, sandbox=box)
        assert record.ok, record.error


def test_a_store_of_a_newer_program_and_one_that_cannot_be_made(here: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import sqlite3

    other = tmp_path / "newer"
    jobs.Jobs(other).submit({"command": ["true"]})
    copied = tmp_path / "copied"
    copied.mkdir()
    with sqlite3.connect(other / "jobs.sqlite") as old, sqlite3.connect(copied / "jobs.sqlite") as new:
        old.backup(new)
        new.execute("PRAGMA user_version = 999")
    with pytest.raises(sandtimer.JobStoreNewerError, match="999"):
        jobs.Jobs(copied).list()
    (tmp_path / "file").write_text("")
    with pytest.raises(sandtimer.JobStoreUnavailableError, match="state directory"):
        jobs.Jobs(tmp_path / "file" / "below").list()


def test_a_forked_process_has_a_store_of_its_own() -> None:
    job = jobs.submit({"command": ["true"]})
    child = os.fork()
    if child == 0:
        try:
            assert jobs.show(job.id).state == "queued"
            jobs.submit({"command": ["true"]})
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(jobs.list()) == 2


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"slots": 0}, "slots=0"),
        ({"slots": True}, "slots=True"),
        ({"lease": 0.5}, "lease=0.5"),
        ({"queues": "gpu"}, "queues="),
        ({"handlers": [print]}, "handlers="),
        ({"handlers": {"a": 7}}, r"handlers\['a'\]=7"),
        ({"sandbox": 7}, "sandbox=7"),
    ],
)
def test_parameters_of_a_worker_are_refused_by_name(parameters: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        jobs.Worker(**parameters)


def test_a_run_without_a_worker_leaves_no_job_behind() -> None:
    with sandtimer.Sandbox(preload=["no_such_module"]) as box, pytest.raises(sandtimer.ProfileRefusedError):
        jobs.run({"handler": "h"}, handlers={"h": abs}, sandbox=box)
    assert [job.state for job in jobs.list()] == ["cancelled"]


def test_what_cannot_be_meant_is_refused_by_name() -> None:
    for state in ("scheduled", "queued", "leased"):
        with pytest.raises(ValueError, match=f"state='{state}': such a job is not over, .*; use 'ended', 'dead' or 'cancelled'"):
            jobs.purge(state=state)
    for queue in ("", "a\tb", "q" * 201):
        with pytest.raises(ValueError, match="queue=.*: use a name of 1 to 200 printable characters"):
            jobs.pause(queue)
    assert jobs.queues() == []
