"""The store of jobs, and its requests. Each is written once, as a coroutine over a way to wait.

Owns the native stores of this process, one for each server or state directory, opened at the first
use and again in a forked child. Ctrl-C ends a wait and leaves the job; in `run` it cancels the job,
and a second one gives it back to the store.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from .. import _arguments, _native
from .._choices import JobState
from .._locks import Guard
from .._outcome import build
from .._vocabulary import named_parameters
from ..client._wire import iterate, now
from ..errors import (
    InvalidArgumentError,
    JobConflictError,
    JobError,
    JobFileUnknownError,
    JobNotFoundError,
    JobScheduleNotFoundError,
    JobStateRefusedError,
    JobStillRunningError,
    JobStoreUnreachableError,
    UnsupportedPlatform,
)
from ..sandbox._progress import Bar
from ..sandbox._sandbox import Sandbox
from . import _specs
from ._following import PIECE, EndSignals, Following, states_of, status_of
from ._records import (
    Job,
    JobBreaker,
    JobEvent,
    JobFile,
    JobLog,
    JobQueue,
    JobRecord,
    JobSchedule,
    JobWebhook,
    JobWorker,
    Submitted,
    job_of,
    record_of,
)
from ._specs import Spec
from ._waiting import AWAITING, BLOCKING, Io
from ._worker import POLL_INTERVAL, Handlers, Worker

Seconds = Union[int, float, None]

_PAGE = 1000
#: For how long a server that does not answer is asked again, in seconds: twice as long as a lease.
_REPLY_TIMEOUT = 60.0

_guard = Guard()
_opened: Dict[Tuple[int, Optional[str]], Any] = {}
#: Held while one is opened, which may take as long as a server does.
_opening: Dict[Tuple[int, Optional[str]], Guard] = {}


def _named(store: Union[str, "os.PathLike[str]", None], directory: Union[str, "os.PathLike[str]", None]) -> Optional[str]:
    """A server's URL, or an absolute path; None for the default directory. What is given comes before the environment."""
    if store is None and directory is None:
        store, directory = os.environ.get("SANDTIMER_STORE") or None, os.environ.get("SANDTIMER_STATE_DIR") or None
    if isinstance(store, str) and "://" in store:
        return store
    location = directory if store is None else store
    return None if location is None else os.path.abspath(os.fspath(location))


def _open(named: Optional[str]) -> Any:
    """The native store of this process."""
    if not sys.platform.startswith("linux"):
        raise UnsupportedPlatform(f"a store of jobs needs Linux, and this is {sys.platform}")
    from .._sandtimer import JobStore

    key = (os.getpid(), named)
    with _guard.lock:
        for other in [other for other in _opened if other[0] != key[0]]:
            # Its file must not be closed here, and its threads are not here: they are the parent's.
            _native.leave(_opened.pop(other))
        if key in _opened:
            return _opened[key]
        opening = _opening.setdefault(key, Guard())
    with opening.lock:
        with _guard.lock:
            if key in _opened:
                return _opened[key]
        is_server = named is not None and not os.path.isabs(named)
        made = JobStore(None, named) if is_server else JobStore(named, None)
        with _guard.lock:
            return _opened.setdefault(key, made)


def _close() -> None:
    """Closes the stores while the interpreter can wait for threads that need it; later it cannot."""
    from .._sandtimer import end_remarks

    end_remarks()
    process = os.getpid()
    for key in [key for key in _opened if key[0] == process]:
        del _opened[key]


if sys.platform.startswith("linux"):
    atexit.register(_close)


@named_parameters
class Jobs:
    """The jobs of a store: a state directory, or a NATS server with JetStream that programs on several
    machines share.

    The functions of `sandtimer.jobs` are the methods of a `Jobs` without arguments. Any thread can
    call them, and any number of processes can share a store. Each method that waits has an awaited
    form with an `a` before its name (`await_` for `wait`). Rejected requests raise a `JobError`.

    A server on another machine takes `tls://USER:PASSWORD@HOST`, or `tls://HOST` and the file of
    credentials that SANDTIMER_NATS_CREDENTIALS names; SANDTIMER_NATS_CA names certificates to
    trust.

    Args:
        state_dir: A directory.
        store: A directory, or a server such as `nats://127.0.0.1:4222`. Without both, the store is
            that of SANDTIMER_STORE, else of SANDTIMER_STATE_DIR, else /var/lib/sandtimer for root
            and ~/.local/state/sandtimer for others.

    Raises:
        InvalidArgumentError: Both were given, or one is empty.

    Examples:
        >>> from sandtimer import jobs
        >>> here = jobs.Jobs()
        >>> job = here.submit({"command": ["echo", "hello"], "wall_ms": "10s", "queue": "quiet"})
        >>> here.show(job.id).state, here.cancel(job.id), here.show(job.id).state
        ('queued', 'cancelled', 'cancelled')
    """

    def __init__(
        self,
        state_dir: Union[str, "os.PathLike[str]", None] = None,
        *,
        store: Union[str, "os.PathLike[str]", None] = None,
    ) -> None:
        if state_dir is not None and store is not None:
            raise InvalidArgumentError("state_dir and store: give one of them")
        for name, given in (("state_dir", state_dir), ("store", store)):
            if given == "":
                raise InvalidArgumentError(f"{name} is empty: use a directory, or leave it out")
        self._given = None if state_dir is None and store is None else _named(store, state_dir)

    def _store(self) -> Any:
        return _open(self._given or _named(None, None))

    async def _ask(self, io: Io, name: str, *arguments: Any) -> Any:
        """A method of the store, which is opened first where it is not: both may wait for a disk or a server."""
        return await io.call(lambda: getattr(self._store(), name)(*arguments))

    # Submitting

    def submit(self, spec: Spec) -> Submitted:
        """Submits a job.

        Args:
            spec: A dictionary, or the path of a TOML or JSON file, to whose directory relative
                paths refer.

        Raises:
            JobSpecRefusedError: A field is malformed; `path` leads to it.
            JobConflictError: The idempotency key belongs to another spec; `job` is the existing
                job.

        Examples:
            >>> from sandtimer import jobs
            >>> job = jobs.submit({"command": ["make", "test"], "wall_ms": "10m", "queue": "later"})
            >>> job.state
            'queued'
        """
        return now(self._submit_one(BLOCKING, spec))

    async def asubmit(self, spec: Spec) -> Submitted:
        """Awaited form of `submit`."""
        return await self._submit_one(AWAITING, spec)

    async def _submit_one(self, io: Io, spec: Spec) -> Submitted:
        (submitted,) = await self._take_in(io, [_specs.given_one(spec)])
        return submitted

    def submit_many(self, specs: Iterable[Spec]) -> List[Submitted]:
        """Submits several jobs, all of them or none.

        A spec with `map` is one job for each of its items, and one more for `map.then`.

        Args:
            specs: The specs, each as for `submit`.

        Raises:
            JobSpecRefusedError: A field is malformed; the message names the spec.
            JobConflictError: An idempotency key belongs to another spec.

        Examples:
            >>> from sandtimer import jobs
            >>> len(jobs.submit_many([{"command": ["true"], "queue": "later"}] * 3))
            3
        """
        return now(self._submit(BLOCKING, specs))

    async def asubmit_many(self, specs: Iterable[Spec]) -> List[Submitted]:
        """Awaited form of `submit_many`."""
        return await self._submit(AWAITING, specs)

    async def _submit(self, io: Io, specs: Iterable[Spec]) -> List[Submitted]:
        _arguments.iterable("specs", specs)
        several = list(specs)
        location = "specs[{}]: " if len(several) > 1 else ""
        return await self._take_in(io, [_specs.given(spec, location.format(index)) for index, spec in enumerate(several)])

    async def _take_in(self, io: Io, given: List[Tuple[str, str, str]]) -> List[Submitted]:
        try:
            answer = await self._ask(io, "submit", given)
        except JobConflictError as error:
            # A job that was purged since then was a conflict nevertheless.
            with contextlib.suppress(JobNotFoundError):
                error.job = record_of(json.loads(await self._ask(io, "get", error.existing)))
            raise
        return [build(Submitted, each) for each in json.loads(answer)]

    # Looking

    def list(self, *, queue: Optional[str] = None, state: Optional[JobState] = None, most: Optional[int] = None) -> List[Job]:
        """Returns jobs, the latest first.

        Args:
            queue: Only those of this queue; None for all.
            state: Only those in this state; None for all.
            most: How many at most; None for all.

        Examples:
            >>> from sandtimer import jobs
            >>> jobs.list(state="dead", most=10)
            []
        """
        return now(self._list(BLOCKING, queue, state, most))

    async def alist(self, *, queue: Optional[str] = None, state: Optional[JobState] = None, most: Optional[int] = None) -> List[Job]:
        """Awaited form of `list`."""
        return await self._list(AWAITING, queue, state, most)

    async def _list(self, io: Io, queue: Optional[str], state: Optional[JobState], most: Optional[int]) -> List[Job]:
        return [job_of(line) for line in await self._all(io, "jobs", most, queue, state)]

    async def _all(self, io: Io, kind: str, most: Optional[int], *filters: Optional[str]) -> List[dict[str, Any]]:
        """Reads a list of the store part by part: all of it, or its first `most` entries."""
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
            raise InvalidArgumentError(f"most={most!r}: use a whole number from 0 on, or None for all")
        call = "list" if kind == "jobs" else kind
        cursor = None
        found: List[dict[str, Any]] = []
        while most is None or len(found) < most:
            count = _PAGE if most is None else min(_PAGE, most - len(found))
            page = json.loads(await self._ask(io, call, *filters, cursor, count))
            found.extend(page[kind])
            cursor = page["next"]
            if cursor is None:
                break
        return found

    def show(self, id: str) -> JobRecord:
        """Returns everything about a job.

        Args:
            id: The id of the job.

        Raises:
            JobNotFoundError: There is no such job.

        Examples:
            >>> from sandtimer import jobs
            >>> job = jobs.submit({"command": ["true"], "queue": "later"})
            >>> jobs.show(job.id).spec["command"]
            ['true']
        """
        return now(self._show(BLOCKING, id))

    async def ashow(self, id: str) -> JobRecord:
        """Awaited form of `show`."""
        return await self._show(AWAITING, id)

    async def _show(self, io: Io, id: str) -> JobRecord:
        return record_of(json.loads(await self._ask(io, "get", _arguments.text("id", id))))

    def read_log(
        self, id: str, cursor: int = 0, max_bytes: int = PIECE, *, timestamps: bool = False
    ) -> JobLog:
        r"""Returns a part of the output of a job, while it is active and afterwards.

        Args:
            id: The id of the job.
            cursor: The position to read from.
            max_bytes: How many bytes at most.
            timestamps: Put before each line the time at which the store received its beginning,
                such as "2026-11-28T17:20:00.123Z", or "-" if it is unknown. Positions and
                `max_bytes` count the output without the times.

        Raises:
            JobNotFoundError: There is no such job.

        Examples:
            >>> from sandtimer import jobs
            >>> record = jobs.run({"command": ["echo", "hello"]})
            >>> jobs.read_log(record.id).text
            'hello\n'
        """
        return now(self._read_log(BLOCKING, id, cursor, max_bytes, timestamps))

    async def aread_log(
        self, id: str, cursor: int = 0, max_bytes: int = PIECE, *, timestamps: bool = False
    ) -> JobLog:
        """Awaited form of `read_log`."""
        return await self._read_log(AWAITING, id, cursor, max_bytes, timestamps)

    async def _read_log(
        self, io: Io, id: str, cursor: int, max_bytes: int, timestamps: bool = False
    ) -> JobLog:
        job, is_timed = _arguments.text("id", id), _arguments.flag("timestamps", timestamps)
        return JobLog(*await self._ask(io, "read_log", job, cursor, max_bytes, is_timed))

    def files(self, id: str) -> List[JobFile]:
        """Returns the output files of a job; none while it is active.

        Files that were not stored are in `result.files_refused` of its record.

        Args:
            id: The id of the job.

        Raises:
            JobNotFoundError: There is no such job.

        Examples:
            >>> from sandtimer import jobs
            >>> spec = {"command": ["sh", "-c", "tr a-z A-Z < in > out"], "inputs": {"in": "hello"}, "outputs": ["out"]}
            >>> record = jobs.run(spec)
            >>> [file.name for file in jobs.files(record.id)], jobs.read_file(record.id, "out")
            (['out'], b'HELLO')
        """
        return now(self._files(BLOCKING, id))

    async def afiles(self, id: str) -> List[JobFile]:
        """Awaited form of `files`."""
        return await self._files(AWAITING, id)

    async def _files(self, io: Io, id: str) -> List[JobFile]:
        result = (await self._show(io, id)).result
        return [] if result is None else result.files

    def read_file(self, id: str, name: str) -> bytes:
        """Returns the content of an output file of a job.

        Args:
            id: The id of the job.
            name: The name of the file.

        Raises:
            JobFileUnknownError: The job has no such file.
            JobNotFoundError: There is no such job.

        Examples:
            >>> from sandtimer import jobs
            >>> record = jobs.run({"command": ["sh", "-c", "printf hello > out"], "outputs": ["out"]})
            >>> jobs.read_file(record.id, "out")
            b'hello'
        """
        return now(self._read_file(BLOCKING, id, name))

    async def aread_file(self, id: str, name: str) -> bytes:
        """Awaited form of `read_file`."""
        return await self._read_file(AWAITING, id, name)

    async def _read_file(self, io: Io, id: str, name: str) -> bytes:
        _arguments.text("name", name)
        found = [file for file in await self._files(io, id) if file.name == name]
        if not found:
            raise JobFileUnknownError(f"job {id} has no file {name!r}; `files` lists its files, once it has ended", id, name)
        content = bytearray()
        while len(content) < found[0].bytes:
            piece = await self._ask(io, "read_file", id, name, len(content))
            if not piece:
                raise JobFileUnknownError(f"the file {name!r} of job {id} is gone: the job was queued again, or purged", id, name)
            content += piece
        return bytes(content)

    def queues(self) -> List[JobQueue]:
        """Returns every queue that has jobs or is paused.

        Examples:
            >>> from sandtimer import jobs
            >>> job = jobs.submit({"command": ["true"], "queue": "later"})
            >>> [queue.queue for queue in jobs.queues()]
            ['later']
        """
        return now(self._queues(BLOCKING))

    async def aqueues(self) -> List[JobQueue]:
        """Awaited form of `queues`."""
        return await self._queues(AWAITING)

    async def _queues(self, io: Io) -> List[JobQueue]:
        return [build(JobQueue, each) for each in json.loads(await self._ask(io, "queues"))]

    # Schedules

    def schedule(self, spec: Spec) -> JobSchedule:
        """Stores a schedule, a job that recurs. It replaces the schedule of the same name.

        The next moment stays unless the moments change. Any worker of the store submits the job
        when it is due.

        Args:
            spec: A dictionary, or the path of a TOML or JSON file, of `name`; `cron` (five fields
                as in crontab(5), or @daily and similar) with `time_zone` (default UTC), or
                `every_ms`; `job`, the spec of the job; `missed` ("one", "skip" or "all"), for
                moments without a worker; `overlap` ("skip", "queue" or "allow"), for moments at
                which the job before has not finished; `paused` (unless given, a schedule that is
                stored again stays as it was).

        Raises:
            JobSpecRefusedError: A field is malformed; `path` leads to it.

        Examples:
            >>> from sandtimer import jobs
            >>> stored = jobs.schedule({"name": "report", "cron": "30 3 * * mon-fri", "time_zone": "Europe/Berlin", "job": {"command": ["true"]}})
            >>> stored.submitted, stored.next_ms is None
            (0, False)
            >>> jobs.unschedule("report")
            True
        """
        return now(self._schedule(BLOCKING, spec))

    async def aschedule(self, spec: Spec) -> JobSchedule:
        """Awaited form of `schedule`."""
        return await self._schedule(AWAITING, spec)

    async def _schedule(self, io: Io, spec: Spec) -> JobSchedule:
        return build(JobSchedule, json.loads(await self._ask(io, "put_schedule", _specs.given(spec))))

    def schedules(self) -> List[JobSchedule]:
        """Returns every schedule, by name.

        Examples:
            >>> from sandtimer import jobs
            >>> jobs.schedules()
            []
        """
        return now(self._schedules(BLOCKING))

    async def aschedules(self) -> List[JobSchedule]:
        """Awaited form of `schedules`."""
        return await self._schedules(AWAITING)

    async def _schedules(self, io: Io) -> List[JobSchedule]:
        return [build(JobSchedule, each) for each in json.loads(await self._ask(io, "schedules"))]

    def pause_schedule(self, name: str) -> JobSchedule:
        """Pauses a schedule: it submits no jobs. Its active jobs continue.

        Args:
            name: The name of the schedule.

        Raises:
            JobScheduleNotFoundError: There is no such schedule.

        Examples:
            >>> from sandtimer import jobs
            >>> stored = jobs.schedule({"name": "report", "cron": "@daily", "job": {"command": ["true"]}})
            >>> jobs.pause_schedule("report").next_ms is None
            True
            >>> jobs.unschedule("report")
            True
        """
        return now(self._pause_schedule(BLOCKING, name, True))

    async def apause_schedule(self, name: str) -> JobSchedule:
        """Awaited form of `pause_schedule`."""
        return await self._pause_schedule(AWAITING, name, True)

    def resume_schedule(self, name: str) -> JobSchedule:
        """Resumes a paused schedule. It is due at its next moment; moments that passed have no job.

        Args:
            name: The name of the schedule.

        Raises:
            JobScheduleNotFoundError: There is no such schedule.

        Examples:
            >>> from sandtimer import jobs
            >>> stored = jobs.schedule({"name": "report", "cron": "@daily", "paused": True, "job": {"command": ["true"]}})
            >>> jobs.resume_schedule("report").next_ms is None
            False
            >>> jobs.unschedule("report")
            True
        """
        return now(self._pause_schedule(BLOCKING, name, False))

    async def aresume_schedule(self, name: str) -> JobSchedule:
        """Awaited form of `resume_schedule`."""
        return await self._pause_schedule(AWAITING, name, False)

    async def _pause_schedule(self, io: Io, name: str, paused: bool) -> JobSchedule:
        found = await self._ask(io, "pause_schedule", _arguments.text("name", name, "use the name of a schedule"), paused)
        if found is None:
            raise JobScheduleNotFoundError(f"there is no schedule {name!r}; `schedules` lists them", name)
        return build(JobSchedule, json.loads(found))

    def unschedule(self, name: str) -> bool:
        """Removes a schedule. The jobs that it has submitted stay.

        Args:
            name: The name of the schedule.

        Returns:
            Whether there was such a schedule.

        Examples:
            >>> from sandtimer import jobs
            >>> jobs.unschedule("report")
            False
        """
        return now(self._unschedule(BLOCKING, name))

    async def aunschedule(self, name: str) -> bool:
        """Awaited form of `unschedule`."""
        return await self._unschedule(AWAITING, name)

    async def _unschedule(self, io: Io, name: str) -> bool:
        return bool(await self._ask(io, "remove_schedule", _arguments.text("name", name, "use the name of a schedule")))

    def breakers(self, *, most: Optional[int] = None) -> List[JobBreaker]:
        """Returns the circuit breakers that jobs share (`"scope": "store"`), by key.

        Args:
            most: How many at most; None for all.

        Examples:
            >>> from sandtimer import jobs
            >>> breaker = {"failures": 1, "scope": "store"}
            >>> record = jobs.run({"command": ["false"], "key": "mail:send", "breaker": breaker})
            >>> [(breaker.key, breaker.state) for breaker in jobs.breakers()]
            [('mail:send', 'open')]
        """
        return now(self._breakers(BLOCKING, most))

    async def abreakers(self, *, most: Optional[int] = None) -> List[JobBreaker]:
        """Awaited form of `breakers`."""
        return await self._breakers(AWAITING, most)

    async def _breakers(self, io: Io, most: Optional[int]) -> List[JobBreaker]:
        return [build(JobBreaker, each) for each in await self._all(io, "breakers", most)]

    def workers(self) -> List[JobWorker]:
        """Returns the live workers of the store. A killed worker is listed for up to 90 s.

        Examples:
            >>> from sandtimer import jobs
            >>> [worker.name for worker in jobs.workers() if worker.queues == ["nothing"]]
            []
        """
        return now(self._workers(BLOCKING))

    async def aworkers(self) -> List[JobWorker]:
        """Awaited form of `workers`."""
        return await self._workers(AWAITING)

    async def _workers(self, io: Io) -> List[JobWorker]:
        return [build(JobWorker, each) for each in json.loads(await self._ask(io, "workers"))]

    def redeliver(self, id: str) -> JobWebhook:
        """Sends the webhook of an ended job again, at once.

        Args:
            id: The id of the job.

        Returns:
            The delivery, with `due_ms` of the next attempt.

        Raises:
            JobNotFoundError: There is no such job.
            JobStateRefusedError: It has not ended, or has no webhook.

        Examples:
            >>> from sandtimer import jobs
            >>> webhook = {"url": "http://127.0.0.1:9/", "events": ["dead"]}
            >>> record = jobs.run({"command": ["true"], "webhook": webhook})
            >>> jobs.redeliver(record.id).due_ms is None
            False
        """
        return now(self._redeliver(BLOCKING, id))

    async def aredeliver(self, id: str) -> JobWebhook:
        """Awaited form of `redeliver`."""
        return await self._redeliver(AWAITING, id)

    async def _redeliver(self, io: Io, id: str) -> JobWebhook:
        return build(JobWebhook, json.loads(await self._ask(io, "redeliver", _arguments.text("id", id, "use the id of a job"))))

    # Waiting

    def wait(self, id: str, timeout: Seconds = None, *, progress: bool = False) -> JobRecord:
        """Waits until a job has ended. Ctrl-C ends the wait, not the job.

        If the server of the store does not answer, it is asked again for a minute.

        Args:
            id: The id of the job.
            timeout: Seconds; None and 0 for unlimited.
            progress: Whether a bar is shown, by tqdm or rich.

        Raises:
            JobStillRunningError: The timeout has passed.
            JobNotFoundError: There is no such job.
            JobStoreUnreachableError: The server of the store has not answered for a minute.

        Examples:
            >>> from sandtimer import jobs
            >>> job = jobs.submit({"command": ["true"], "queue": "waits"})
            >>> with jobs.Worker(queues=["waits"]):
            ...     jobs.wait(job.id, timeout=60).state
            'ended'
        """
        return self.wait_many([id], timeout, progress=progress)[0]

    async def await_(self, id: str, timeout: Seconds = None, *, progress: bool = False) -> JobRecord:
        """Awaited form of `wait`. Cancelling the task does not cancel the job."""
        return (await self.await_many([id], timeout, progress=progress))[0]

    def wait_many(self, ids: Iterable[str], timeout: Seconds = None, *, progress: bool = False) -> List[JobRecord]:
        """Waits until several jobs have ended.

        Args:
            ids: The ids of the jobs.
            timeout: Seconds for all of them; None and 0 for unlimited.
            progress: Whether a bar is shown, by tqdm or rich.

        Returns:
            The records, in the order of the ids.

        Raises:
            JobStillRunningError: The timeout has passed.

        Examples:
            >>> from sandtimer import jobs
            >>> submitted = jobs.submit_many([{"command": ["true"], "queue": "waits"}] * 2)
            >>> with jobs.Worker(queues=["waits"]):
            ...     [record.ok for record in jobs.wait_many(job.id for job in submitted)]
            [True, True]
        """
        return now(self._wait(BLOCKING, ids, timeout, progress))

    async def await_many(self, ids: Iterable[str], timeout: Seconds = None, *, progress: bool = False) -> List[JobRecord]:
        """Awaited form of `wait_many`."""
        return await self._wait(AWAITING, ids, timeout, progress)

    async def _wait(self, io: Io, ids: Iterable[str], timeout: Seconds, progress: bool) -> List[JobRecord]:
        ids, over = _ids(ids), {}
        events = self._watch(io, ids, progress, timeout, logs=False)
        try:
            async for event in events:
                if event.event == "ended":
                    over[event.job.id] = event.job
        finally:
            await events.aclose()
        return [over[id] for id in ids]

    def watch(self, ids: Union[str, Iterable[str]], *, progress: bool = False) -> Iterator[JobEvent]:
        r"""Iterates over the events of one or several jobs, until all have ended: states, output, ends.

        Args:
            ids: The id of a job, or several.
            progress: Whether a bar is shown, by tqdm or rich.

        Raises:
            JobNotFoundError: There is no such job.

        Examples:
            >>> from sandtimer import jobs
            >>> job = jobs.submit({"command": ["echo", "hello"], "queue": "watched"})
            >>> with jobs.Worker(queues=["watched"]):
            ...     texts = [event.text for event in jobs.watch(job.id) if event.event == "log"]
            >>> "".join(texts)
            'hello\n'
        """
        return iterate(self._watch(BLOCKING, _ids(ids), progress))

    def awatch(self, ids: Union[str, Iterable[str]], *, progress: bool = False) -> AsyncIterator[JobEvent]:
        """Awaited form of `watch`, for `async for`."""
        return self._watch(AWAITING, _ids(ids), progress)

    async def _watch(
        self,
        io: Io,
        ids: Sequence[str],
        progress: bool,
        timeout: Seconds = None,
        logs: bool = True,
    ) -> AsyncGenerator[JobEvent, None]:
        total = _arguments.total(timeout)
        bar = Bar(len(set(ids)), "job") if _arguments.flag("progress", progress) else None
        following = [Following(self, id, logs) for id in dict.fromkeys(ids)]
        # One that cannot be opened is not asked again.
        await io.call(self._store)
        begun = answered_at = time.monotonic()
        try:
            while True:
                try:
                    for each in following:
                        async for event in each.new_events(io):
                            if bar is not None and event.event == "ended":
                                bar.add(status_of(event.job), bool(event.job.ok))
                            yield event
                    answered_at = time.monotonic()
                except JobStoreUnreachableError:
                    if time.monotonic() - answered_at >= _REPLY_TIMEOUT:
                        raise
                following = [each for each in following if not each.is_over]
                if not following:
                    return
                left = None if total is None else begun + total - time.monotonic()
                if left is not None and left <= 0:
                    states = ", ".join(f"{each.id} is {each.state or 'not seen yet'}" for each in following[:3])
                    raise JobStillRunningError(f"the wait of {timeout} s has passed, and the jobs continue: {states}")
                if bar is not None:
                    bar.note(states_of(following))
                await io.sleep(POLL_INTERVAL if left is None else min(POLL_INTERVAL, left))
        finally:
            if bar is not None:
                bar.close()

    # Changing

    def cancel(self, id: str, reason: str = "asked for by `sandtimer.jobs.cancel`") -> str:
        """Cancels a job.

        Args:
            id: The id of the job.
            reason: The reason, for its record.

        Returns:
            "cancelled" if no worker had the job, "asked" if its worker is ending it, "too_late" if
            it had ended.

        Raises:
            JobNotFoundError: There is no such job.

        Examples:
            >>> from sandtimer import jobs
            >>> job = jobs.submit({"command": ["true"], "queue": "later"})
            >>> jobs.cancel(job.id, "no longer needed")
            'cancelled'
        """
        return now(self._cancel(BLOCKING, id, reason))

    async def acancel(self, id: str, reason: str = "asked for by `sandtimer.jobs.cancel`") -> str:
        """Awaited form of `cancel`."""
        return await self._cancel(AWAITING, id, reason)

    async def _cancel(self, io: Io, id: str, reason: str) -> str:
        done: str = await self._ask(io, "cancel", _arguments.text("id", id), _arguments.text("reason", reason))
        return done

    def retry(self, id: str) -> str:
        """Queues a job again that failed, is dead or was cancelled. Its deadline counts from now.

        Args:
            id: The id of the job.

        Returns:
            Its new state.

        Raises:
            JobStateRefusedError: The job is active, or has succeeded.
            JobNotFoundError: There is no such job.

        Examples:
            >>> from sandtimer import jobs
            >>> record = jobs.run({"command": ["false"]})
            >>> jobs.retry(record.id)
            'queued'
        """
        return now(self._retry(BLOCKING, id))

    async def aretry(self, id: str) -> str:
        """Awaited form of `retry`."""
        return await self._retry(AWAITING, id)

    async def _retry(self, io: Io, id: str) -> str:
        state: str = await self._ask(io, "retry", _arguments.text("id", id))
        return state

    def requeue_dead(self, queue: Optional[str] = None) -> List[str]:
        """Queues every dead job again.

        Args:
            queue: Only those of this queue; None for all.

        Returns:
            The ids of the jobs.

        Examples:
            >>> from sandtimer import jobs
            >>> jobs.requeue_dead()
            []
        """
        return now(self._requeue_dead(BLOCKING, queue))

    async def arequeue_dead(self, queue: Optional[str] = None) -> List[str]:
        """Awaited form of `requeue_dead`."""
        return await self._requeue_dead(AWAITING, queue)

    async def _requeue_dead(self, io: Io, queue: Optional[str]) -> List[str]:
        queued = []
        for job in await self._list(io, queue, "dead", None):
            try:
                await self._retry(io, job.id)
            except JobStateRefusedError:
                # Another client was faster.
                continue
            queued.append(job.id)
        return queued

    def purge(self, *, queue: Optional[str] = None, state: Optional[JobState] = None) -> int:
        """Removes the records of jobs that have ended; active ones stay.

        Args:
            queue: Only those of this queue; None for all.
            state: Only those in this state; None for all.

        Returns:
            How many were removed.

        Examples:
            >>> from sandtimer import jobs
            >>> record = jobs.run({"command": ["true"]})
            >>> jobs.purge(state="ended")
            1
        """
        return now(self._purge(BLOCKING, queue, state))

    async def apurge(self, *, queue: Optional[str] = None, state: Optional[JobState] = None) -> int:
        """Awaited form of `purge`."""
        return await self._purge(AWAITING, queue, state)

    async def _purge(self, io: Io, queue: Optional[str], state: Optional[JobState]) -> int:
        purged: int = await self._ask(io, "purge", queue, state)
        return purged

    def pause(self, queue: str) -> None:
        """Pauses a queue: no further job of it is delivered. Active jobs continue.

        Args:
            queue: The name of the queue.

        Examples:
            >>> from sandtimer import jobs
            >>> jobs.pause("later")
            >>> [queue.paused for queue in jobs.queues()]
            [True]
        """
        now(self._pause(BLOCKING, queue, True))

    async def apause(self, queue: str) -> None:
        """Awaited form of `pause`."""
        await self._pause(AWAITING, queue, True)

    def resume(self, queue: str) -> None:
        """Resumes a paused queue.

        Args:
            queue: The name of the queue.

        Examples:
            >>> from sandtimer import jobs
            >>> jobs.pause("later")
            >>> jobs.resume("later")
            >>> jobs.queues()
            []
        """
        now(self._pause(BLOCKING, queue, False))

    async def aresume(self, queue: str) -> None:
        """Awaited form of `resume`."""
        await self._pause(AWAITING, queue, False)

    async def _pause(self, io: Io, queue: str, paused: bool) -> None:
        await self._ask(io, "pause", _arguments.text("queue", queue), paused)

    # Working

    def run(
        self,
        spec: Spec,
        *,
        handlers: Optional[Handlers] = None,
        sandbox: Optional[Sandbox] = None,
        progress: bool = False,
    ) -> JobRecord:
        """Submits a job, executes it here, and waits for its end. Never raises for the result of the
        job.

        Ctrl-C cancels the job, waits for its end, and is then raised; a second one ends the active
        work and leaves the job to another worker.

        Args:
            spec: The spec, as for `submit`.
            handlers: As for `Worker`.
            sandbox: As for `Worker`.
            progress: Whether a bar is shown, by tqdm or rich.

        Raises:
            JobSpecRefusedError: A field is malformed; `path` leads to it.
            JobConflictError: The idempotency key belongs to another spec.

        Examples:
            >>> from sandtimer import jobs
            >>> record = jobs.run({"handler": "area", "input": {"r": 2}}, handlers={"area": lambda of: 3 * of["r"] ** 2})
            >>> record.ok, record.result.value
            (True, 12)
        """
        return now(self._run(BLOCKING, spec, handlers, sandbox, progress))

    async def arun(
        self,
        spec: Spec,
        *,
        handlers: Optional[Handlers] = None,
        sandbox: Optional[Sandbox] = None,
        progress: bool = False,
    ) -> JobRecord:
        """Awaited form of `run`. Cancelling the task has the effect of Ctrl-C."""
        return await self._run(AWAITING, spec, handlers, sandbox, progress)

    async def _run(
        self, io: Io, spec: Spec, handlers: Optional[Handlers], sandbox: Optional[Sandbox], progress: bool
    ) -> JobRecord:
        submitted = await self._submit_one(io, spec)
        try:
            worker = await io.call(_worker_for, self, submitted.id, handlers, sandbox)
        except BaseException as error:
            if not submitted.existed:
                # No other client knows of it, so none waits for it.
                with contextlib.suppress(JobError):
                    await self._ask(io, "cancel", submitted.id, f"there is no worker for it: {type(error).__name__}")
            raise
        interrupt: Optional[BaseException] = None
        try:
            while True:
                try:
                    (record,) = await self._wait(io, [submitted.id], None, progress)
                    break
                except (KeyboardInterrupt, asyncio.CancelledError) as another:
                    if interrupt is not None:
                        worker.give_back()
                        raise
                    interrupt = another
                    try:
                        await self._ask(io, "cancel", submitted.id, "interrupted")
                    except JobError:
                        raise another from None
        except BaseException:
            worker.give_back()
            raise
        finally:
            await io.call(worker.close)
        if interrupt is not None:
            raise interrupt
        return record

    def work(
        self,
        slots: int = 1,
        *,
        queues: Sequence[str] = (),
        handlers: Optional[Handlers] = None,
        sandbox: Optional[Sandbox] = None,
        lease: float = 30.0,
    ) -> None:
        """Executes jobs until it receives a signal; `Worker` does this in the background.

        SIGTERM and Ctrl-C drain: no further job begins, active ones run to their end. A second
        signal ends the active ones, which are delivered again. Then the call returns, or raises
        KeyboardInterrupt. SIGTERM is handled in the main thread, if the program has no handler of
        its own. There is no awaited form.

        Args:
            slots: How many jobs are executed at a time, from 1 to 1024.
            queues: The queues; empty for all.
            handlers: As for `Worker`.
            sandbox: As for `Worker`.
            lease: As for `Worker`, in seconds.

        Examples:
            >>> import os, signal, threading
            >>> from sandtimer import jobs
            >>> timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            >>> timer.start()
            >>> try:
            ...     jobs.work(queues=["idle"])
            ... except KeyboardInterrupt:
            ...     print("drained")
            drained
        """
        worker = Worker(self, slots, queues=queues, handlers=handlers, sandbox=sandbox, lease=lease)
        signals = EndSignals(worker)
        interrupt: Optional[KeyboardInterrupt] = None
        with signals:
            while True:
                try:
                    worker.wait()
                    break
                except KeyboardInterrupt as another:
                    interrupt = another
                    signals.once_more()
            worker.close()
        if interrupt is not None:
            raise interrupt


def _worker_for(jobs: Jobs, id: str, handlers: Optional[Handlers], sandbox: Optional[Sandbox]) -> Worker:
    return Worker(jobs, handlers=handlers, sandbox=sandbox, _only=id)


def _ids(ids: Union[str, Iterable[str]]) -> List[str]:
    if isinstance(ids, str):
        return [ids]
    _arguments.iterable("ids", ids)
    return [_arguments.text("ids", id, "use the ids of jobs") for id in ids]
