"""`sandtimer.jobs` on a NATS server: the same as on this machine, for programs that share nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import sandtimer
from sandtimer import jobs

# After this a wait has failed.
HARD_STOP = 60.0
SERVER = shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin")


class Server:
    """A server with JetStream on loopback, at a port that was free; killed with the test."""

    def __init__(self, place: pathlib.Path) -> None:
        assert SERVER, "nats-server is not installed: cargo xtask test does it"
        self._place = place
        self.port = -1
        self.start()

    def start(self) -> None:
        """Begins, or comes back where it was, with what it had."""
        place = str(self._place)
        listening = ["-js", "-a", "127.0.0.1", "-p", str(self.port), "-sd", place, "--ports_file_dir", place]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._child = subprocess.Popen([str(SERVER), *listening], **quiet)  # type: ignore[call-overload]
        told = self._place / f"nats-server_{self._child.pid}.ports"
        until = time.monotonic() + HARD_STOP
        while not told.exists() or not told.read_text().endswith("}"):
            assert self._child.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        self.port = int(json.loads(told.read_text())["nats"][0].rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def kill(self) -> None:
        self._child.kill()
        self._child.wait()


@pytest.fixture
def server(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(tmp_path / "state"))
    place = tmp_path / "nats"
    place.mkdir()
    started = Server(place)
    yield started
    started.kill()


def double(number: int) -> int:
    return 2 * number


def test_commands_and_handlers_run_and_are_kept(server: Server) -> None:
    here = jobs.Jobs(store=server.url)
    record = here.run({"command": ["sh", "-c", "echo out; exit 3"], "wall_ms": "1m"})
    assert record.result is not None and record.result.outcome is not None
    assert (record.state, record.ok, record.result.outcome.stdout) == ("ended", False, "out\n")
    assert here.read_log(record.id).text.splitlines()[0] == "out"
    called = here.run({"handler": "double", "input": 21, "wall_ms": "1m"}, handlers={"double": double})
    assert called.result is not None and called.result.value == 42, called.error
    assert {job.id for job in here.list()} == {record.id, called.id}


def test_it_is_the_store_that_the_environment_names(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDTIMER_STORE", server.url)
    job = jobs.submit({"command": ["true"]})
    there = jobs.Jobs(store=server.url)
    assert [each.id for each in there.list()] == [job.id]
    # What is typed comes before it.
    assert not jobs.Jobs(os.environ["SANDTIMER_STATE_DIR"]).list()
    assert not jobs.Jobs(store=pathlib.Path(os.environ["SANDTIMER_STATE_DIR"])).list()


ELSEWHERE = """
import sys
from sandtimer import jobs

def double(number, name=sys.argv[2]):
    return 2 * number, name

jobs.Jobs(store=sys.argv[1]).work(slots=2, handlers={"double": double})
"""


def test_workers_of_several_programs_share_it(server: Server, tmp_path: pathlib.Path) -> None:
    here = jobs.Jobs(store=server.url)
    made = here.submit_many([{"handler": "double", "input": number, "wall_ms": "1m"} for number in range(60)])
    command = [sys.executable, "-c", ELSEWHERE, server.url]
    workers = [subprocess.Popen([*command, name]) for name in ("one", "two")]
    try:
        records = here.wait_many([each.id for each in made], timeout=HARD_STOP)
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
    assert [worker.wait(HARD_STOP) for worker in workers] == [0, 0]
    assert all(record.ok for record in records), {record.error for record in records}
    values = [record.result.value for record in records if record.result]
    assert [value for value, _ in values] == [2 * number for number in range(60)]
    assert {worker for _, worker in values} == {"one", "two"}
    assert all(record.deliveries == 1 and not record.duplicates for record in records)


def test_a_forked_child_has_a_connection_of_its_own(server: Server) -> None:
    here = jobs.Jobs(store=server.url)
    first = here.submit({"command": ["true"]})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if here.show(first.id).state == "queued" and here.submit({"command": ["true"]}).id else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(here.list()) == 2


def test_a_child_that_never_asks_ends_as_ever(server: Server) -> None:
    text = f"""
import os
from sandtimer import jobs
jobs.Jobs(store={server.url!r}).list()
child = os.fork()
if child == 0:
    raise SystemExit(7)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", text], timeout=HARD_STOP).returncode == 7


def test_a_server_that_was_away_is_waited_for_and_then_told(server: Server) -> None:
    here = jobs.Jobs(store=server.url)
    job = here.submit({"command": ["true"]})
    server.kill()
    with pytest.raises(sandtimer.JobStoreUnavailableError, match="cannot be reached"):
        here.submit({"command": ["true"]})
    server.start()
    until = time.monotonic() + HARD_STOP
    while True:
        try:
            assert here.show(job.id).state == "queued"
            break
        except sandtimer.JobStoreUnavailableError:
            assert time.monotonic() < until


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:1", "use nats://HOST"),
        ("nats://127.0.0.1:1", "127.0.0.1:1"),
        ("nats://192.0.2.1:4222", "tls://"),
        ("nats://user@127.0.0.1", "a user needs a password"),
    ],
)
def test_what_cannot_be_one_is_refused_at_once(url: str, told: str) -> None:
    begun = time.monotonic()
    with pytest.raises(sandtimer.JobStoreUnavailableError) as refused:
        jobs.Jobs(store=url).list()
    assert told in str(refused.value) and time.monotonic() - begun < 10


def test_one_of_both_is_given() -> None:
    with pytest.raises(ValueError, match="give one of them") as refused:
        jobs.Jobs("/tmp", store="tls://me:secret@queue.example.org")
    assert "secret" not in str(refused.value)
    with pytest.raises(ValueError, match="store is empty"):
        jobs.Jobs(store="")


def test_opening_holds_up_no_event_loop() -> None:
    # Takes connections, and never says a word.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = jobs.Jobs(store=f"nats://127.0.0.1:{silent.getsockname()[1]}")

        async def beside() -> float:
            asked = asyncio.create_task(there.alist())
            longest = 0.0
            while not asked.done():
                begun = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - begun)
            with pytest.raises(sandtimer.JobStoreUnavailableError):
                await asked
            return longest

        assert asyncio.run(beside()) < 1


def test_a_wait_outlasts_a_server_that_is_away_but_not_its_own_time(server: Server) -> None:
    here = jobs.Jobs(store=server.url)
    # Control: nobody works on it.
    waits = here.submit({"command": ["true"], "queue": "other"})
    job = here.submit({"command": ["true"], "queue": "worked"})
    with pytest.raises(sandtimer.JobStillRunningError, match="is queued"):
        here.wait(job.id, timeout=0.2)
    server.kill()
    begun = time.monotonic()
    with pytest.raises(sandtimer.JobStillRunningError, match="not seen yet"):
        here.wait(waits.id, timeout=0.2)
    assert time.monotonic() - begun < 15

    def back() -> None:
        # Longer than one call waits for it.
        time.sleep(12)
        server.start()
        with jobs.Worker(jobs.Jobs(store=server.url), queues=["worked"]):
            here.wait(job.id)

    beside = threading.Thread(target=back)
    beside.start()
    try:
        assert here.wait(job.id).ok
    finally:
        beside.join()


def test_a_job_that_runs_here_outlasts_a_server_that_is_away(server: Server) -> None:
    here = jobs.Jobs(store=server.url)

    def away() -> None:
        time.sleep(1)
        server.kill()
        # Longer than one call waits for it.
        time.sleep(14)
        server.start()

    beside = threading.Thread(target=away)
    beside.start()
    try:
        record = here.run({"command": ["sh", "-c", "sleep 4; echo done"], "wall_ms": "1m"})
    finally:
        beside.join()
    assert record.ok and record.deliveries == 1, record
