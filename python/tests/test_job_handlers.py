"""Handlers of jobs, and workers as processes: which process runs what, deadlines, kills, signals."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Iterator

import pytest

import sandtimer
from sandtimer import jobs

HARD_STOP = 120.0


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The state directory, for processes that are started too."""
    state = tmp_path / "state"
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(state))
    return state


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox() as box:
        yield box


def result_of(record: jobs.JobRecord) -> jobs.JobResult:
    assert record.is_over and record.result is not None
    return record.result


def alive(word: str) -> list[str]:
    """Processes of this host with this word among their arguments."""
    found = []
    for process in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            with open(f"/proc/{process}/cmdline", "rb") as file:
                if process.isdigit() and word.encode() in file.read().split(b"\0"):
                    found.append(process)
    return found


def until(what: str, condition: Any) -> None:
    end = time.monotonic() + HARD_STOP
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def test_a_handler_runs_in_a_process_of_its_own_and_its_value_is_the_jobs(box: sandtimer.Sandbox) -> None:
    def where(asked: Any) -> Any:
        import os

        print("called with", asked)
        return {"process": os.getpid(), "asked": asked}

    record = jobs.run({"handler": "where", "input": {"a": [1, None]}}, handlers={"where": where}, sandbox=box)
    result = result_of(record)
    assert result.ok, result.error
    assert result.value["asked"] == {"a": [1, None]} and result.value["process"] != os.getpid()
    assert result.outcome is not None and result.outcome.ending == "returned"
    assert result.outcome.path in ("parked", "cold")
    assert jobs.read_log(record.id).text == "called with {'a': [1, None]}\n"


def test_the_deadline_of_the_job_ends_a_handler_in_a_busy_loop_and_all_that_it_started(box: sandtimer.Sandbox) -> None:
    mark = f"{60_000 + os.getpid() % 10_000}.25"

    def spin(mark: str) -> None:
        import os
        import signal
        import subprocess

        # A daemon that nobody waits for, and signals that nobody hears.
        subprocess.Popen(["setsid", "sleep", mark], start_new_session=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(1, b"spinning\n")
        while True:
            pass

    with jobs.Worker(handlers={"spin": spin}, sandbox=box):
        job = jobs.submit({"handler": "spin", "input": mark, "wall_ms": 5000, "attempts": 3})
        until("the daemon is there", lambda: alive(mark))
        # The worker's process is free while its handler spins.
        assert result_of(jobs.run({"command": ["true"]})).ok
        record = jobs.wait(job.id, HARD_STOP)
    result = result_of(record)
    assert (result.status, result.verdict and result.verdict.layer) == ("timeout", "job")
    assert result.verdict is not None and (result.verdict.limit_ms, result.verdict.phase) == (5000, "running")
    assert record.ended_ms is not None and 5000 <= record.ended_ms - record.submitted_ms < 60_000
    assert result.outcome is not None and result.outcome.tree.survivors == 0
    assert alive(mark) == []


def test_a_cancel_reaches_a_handler_that_computes(box: sandtimer.Sandbox) -> None:
    def spin(_: Any) -> None:
        while True:
            pass

    job = jobs.submit({"handler": "spin"})
    with jobs.Worker(handlers={"spin": spin}, sandbox=box):
        until("it runs", lambda: jobs.show(job.id).state == "leased")
        assert jobs.cancel(job.id, "enough") == "asked"
        record = jobs.wait(job.id, HARD_STOP)
    assert (record.state, result_of(record).status) == ("cancelled", "cancelled")
    assert "enough" in str(record.error)


def test_what_a_handler_raises_is_said_and_its_traceback_is_in_the_log(box: sandtimer.Sandbox) -> None:
    def fail(word: str) -> None:
        raise ValueError(f"no {word}")

    spec = {"handler": "fail", "input": "luck", "attempts": 2, "backoff_ms": [1]}
    record = jobs.run(spec, handlers={"fail": fail}, sandbox=box)
    result = result_of(record)
    assert (result.status, result.spent["attempts"]) == ("failed", 2)
    assert "ValueError: no luck" in str(result.error)
    assert "in fail" in jobs.read_log(record.id).text
    assert result.outcome is not None and isinstance(result.outcome.error, sandtimer.RemoteError)
    assert (result.outcome.error.type_name, result.outcome.error.message) == ("ValueError", "no luck")


@pytest.mark.parametrize("returned", ["float('nan')", "{1, 2}", "object()"])
def test_what_is_not_json_is_no_value(box: sandtimer.Sandbox, returned: str) -> None:
    record = jobs.run({"handler": "odd", "input": returned}, handlers={"odd": lambda text: eval(text)}, sandbox=box)
    result = result_of(record)
    assert (result.status, result.value) == ("failed", None)
    assert "JSON" in str(result.error) or "object" in str(result.error), result.error


def test_a_handler_that_crashes_fails_its_attempt_and_a_fallback_takes_over(box: sandtimer.Sandbox) -> None:
    def crash(_: Any) -> None:
        import os

        os._exit(3)

    spec = {"handler": "crash", "key": "lib:call", "fallback": [{"handler": "answer", "input": 41}]}
    handlers = {"crash": crash, "answer": lambda number: number + 1}
    result = result_of(jobs.run(spec, handlers=handlers, sandbox=box))
    assert (result.status, result.degraded, result.value) == ("ok", True, 42), result.error


def test_handlers_and_commands_are_steps_of_one_job(box: sandtimer.Sandbox) -> None:
    steps = [
        {"name": "make", "command": ["sh", "-c", "echo made"]},
        {"name": "judge", "needs": ["make"], "handler": "judge", "input": 5, "limits": {"wall_ms": "30s"}},
    ]
    result = result_of(jobs.run({"steps": steps}, handlers={"judge": lambda points: points * 2}, sandbox=box))
    assert (result.status, result.value, [step["ok"] for step in result.steps]) == ("ok", 10, [True, True])


def test_a_loop_may_be_driven_by_a_handler(box: sandtimer.Sandbox) -> None:
    def driver(asked: Any) -> Any:
        if asked["turn"] == 1:
            return {"action": "add", "input": [40, 2], "state": "asked"}
        return {"done": int(asked["last"]["output"]), "state": asked["state"]}

    loop = {"driver": {"handler": "driver"}, "actions": {"add": {"handler": "add"}}, "iterations": 5}
    result = result_of(jobs.run({"loop": loop}, handlers={"driver": driver, "add": sum}, sandbox=box))
    assert (result.status, result.value, result.turns) == ("ok", 42, 2), result.error


def test_limits_of_the_spec_hold_for_a_handler(box: sandtimer.Sandbox) -> None:
    def hog(_: Any) -> int:
        return len(bytearray(400 << 20))

    spec = {"handler": "hog", "limits": {"memory_bytes": "100M"}}
    result = result_of(jobs.run(spec, handlers={"hog": hog}, sandbox=box))
    assert result.outcome is not None and result.outcome.ending == "out_of_memory", result.error
    assert result.status == "failed"


def test_a_job_that_no_worker_has_a_handler_for_is_dead_and_can_be_requeued(box: sandtimer.Sandbox) -> None:
    record = jobs.run({"handler": "absent"}, handlers={"present": abs}, sandbox=box)
    assert (record.state, record.deliveries) == ("dead", 3)
    assert "no handler `absent` (it has: present)" in str(record.error)
    assert len(record.earlier) == 2
    assert jobs.requeue_dead() == [record.id]
    with jobs.Worker(handlers={"absent": lambda _: "here"}, sandbox=box):
        assert result_of(jobs.wait(record.id, HARD_STOP)).value == "here"


def test_workers_without_its_handler_leave_a_job_alone(box: sandtimer.Sandbox) -> None:
    with jobs.Worker(slots=4), jobs.Worker(slots=4, handlers={"other": abs}, sandbox=box):
        until("they are known", lambda: len(jobs.workers()) == 2)
        assert sorted(worker.handlers for worker in jobs.workers()) == [[], ["other"]]
        job = jobs.submit({"handler": "later"})
        assert result_of(jobs.wait(jobs.submit({"command": ["true"]}).id, HARD_STOP)).ok
        record = jobs.show(job.id)
        assert (record.state, record.deliveries) == ("queued", 0)
        assert record.blocked_by == [{"reason": "no_handler", "handlers": ["later"]}]
        with jobs.Worker(handlers={"later": lambda _: "here"}, sandbox=box):
            done = jobs.wait(job.id, HARD_STOP)
            assert (result_of(done).value, done.deliveries) == ("here", 1)


WORKER = """
import sys
from sandtimer import jobs

def square(number):
    import time
    time.sleep(0.05)
    return number * number

if __name__ == "__main__":
    print("begins", flush=True)
    jobs.work(slots=3, handlers={"square": square}, lease=3.0)
    print("drained", flush=True)
"""


@contextlib.contextmanager
def process(program: str, directory: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    directory.mkdir(exist_ok=True)
    (directory / "program.py").write_text(program)
    command = [sys.executable, str(directory / "program.py")]
    # In a session of its own, so that Ctrl-C is this one's alone.
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def worker_of(job: jobs.Job) -> str:
    """The number of the process that has it, or had it last."""
    return str(job.worker).rpartition(":")[2]


def test_two_processes_share_a_store_and_one_is_killed_half_way(tmp_path: pathlib.Path) -> None:
    count = 60
    handled = [{"handler": "square", "input": n} for n in range(count // 2)]
    commands = [{"command": ["sh", "-c", f"sleep 0.05; echo {n}"]} for n in range(count // 2)]
    submitted = jobs.submit_many(handled + commands)
    ids = [each.id for each in submitted]
    with process(WORKER, tmp_path / "one") as one, process(WORKER, tmp_path / "two") as two:
        pids = {str(one.pid), str(two.pid)}

        def held() -> set[str]:
            return {job.id for job in jobs.list(state="leased") if worker_of(job) == str(one.pid)}

        until("a third of it is done", lambda: len(jobs.list(state="ended")) >= count // 3)

        def is_stopped_at_work() -> bool:
            one.send_signal(signal.SIGSTOP)
            if held():
                return True
            one.send_signal(signal.SIGCONT)
            return False

        until("the first is at work", is_stopped_at_work)
        lost = held()
        one.send_signal(signal.SIGKILL)
        one.wait(HARD_STOP)
        assert lost and len(jobs.list(state="ended")) < count
        records = jobs.wait_many(ids, HARD_STOP)
        two.send_signal(signal.SIGTERM)
        assert "drained" in two.communicate(timeout=HARD_STOP)[0]
        assert two.returncode == 0
    assert [record.ok for record in records] == [True] * count, [record.error for record in records if not record.ok]
    values = [result_of(record).value for record in records]
    assert values[: count // 2] == [n * n for n in range(count // 2)]
    assert all(record.duplicates == [] for record in records)
    assert {worker_of(record) for record in records} <= pids
    # What the killed one had is what was handed out again.
    assert {record.id for record in records if record.deliveries > 1} == lost


SPINNER = """
from sandtimer import jobs

def spin(_):
    while True:
        pass

if __name__ == "__main__":
    jobs.work(handlers={"spin": spin})
"""


def test_sigterm_drains_a_worker_and_a_second_one_gives_back_what_goes_on(tmp_path: pathlib.Path) -> None:
    job = jobs.submit({"handler": "spin"})
    with process(SPINNER, tmp_path / "spinner") as worker:
        until("it runs", lambda: jobs.show(job.id).state == "leased")
        worker.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(0.5)
        assert jobs.show(job.id).state == "leased"
        worker.send_signal(signal.SIGTERM)
        complaint = worker.communicate(timeout=HARD_STOP)[1]
        assert worker.returncode == 0, complaint
    record = jobs.show(job.id)
    assert (record.state, record.deliveries) == ("queued", 0)
    assert [result.status for result in record.earlier] == ["drained"]


RUNNER = """
import sys
from sandtimer import jobs

def spin(_):
    while True:
        pass

if __name__ == "__main__":
    try:
        jobs.run({"handler": "spin"}, handlers={"spin": spin})
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
"""


def test_ctrl_c_in_a_run_cancels_the_job_and_is_raised_when_it_is_over(tmp_path: pathlib.Path) -> None:
    with process(RUNNER, tmp_path / "runner") as runner:
        until("the job runs", lambda: [job for job in jobs.list() if job.state == "leased"])
        runner.send_signal(signal.SIGINT)
        said, complaint = runner.communicate(timeout=HARD_STOP)
    assert (said, runner.returncode) == ("interrupted\n", 130), complaint
    (job,) = jobs.list()
    assert (job.state, job.error) == ("cancelled", "Cancelled: interrupted.")


WAITER = """
from sandtimer import jobs

try:
    for event in jobs.watch({id!r}):
        print("waits", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_in_a_wait_leaves_the_job(tmp_path: pathlib.Path) -> None:
    job = jobs.submit({"command": ["true"]})
    with process(WAITER.format(id=job.id), tmp_path / "waiter") as waiter:
        assert waiter.stdout is not None and waiter.stdout.readline() == "waits\n"
        waiter.send_signal(signal.SIGINT)
        assert waiter.communicate(timeout=HARD_STOP)[0] == "interrupted\n"
    assert jobs.show(job.id).state == "queued"


def test_exceptions_that_are_named_are_not_retried(box: sandtimer.Sandbox) -> None:
    def raises(name: str) -> None:
        raise {"value": ValueError, "key": KeyError}[name]("no")

    for name, attempts in (("value", 1), ("key", 3)):
        spec = {"handler": "raises", "input": name, "attempts": 3, "backoff_ms": [1], "not_retried": ["ValueError"]}
        record = jobs.run(spec, handlers={"raises": raises}, sandbox=box)
        assert record.result is not None and record.result.status == "failed"
        assert record.result.spent["attempts"] == attempts, record.result
