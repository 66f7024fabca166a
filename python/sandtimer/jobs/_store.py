"""The store of jobs, and what can be asked of it. Each thing is written once, as a coroutine over a way to wait.

Owns the native stores of this process, one for each server or state directory that was used, made when it is first needed and
anew in a forked child. Ctrl-C ends a wait and leaves the job; in `run` it cancels the job, and a second one gives it back to the store.
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
from .._client_wire import iterate, now
from .._locks import Guard
from .._outcome import build
from .._progress import Bar
from .._sandbox import Sandbox
from .._vocabulary import named_parameters
from ..errors import (
    InvalidArgumentError,
    JobConflictError,
    JobError,
    JobFileUnknownError,
    JobStillRunningError,
    JobStateRefusedError,
    JobStoreUnreachableError,
    JobNotFoundError,
    UnsupportedPlatform,
)
from . import _specs
from ._following import PIECE, Following, Told, states_of, word_of
from ._records import Job, JobEvent, JobFile, JobLog, JobQueue, JobRecord, JobSchedule, Submitted, job_of, record_of
from ._specs import Spec
from ._waiting import AWAITING, BLOCKING, Io
from ._worker import LOOK, Handlers, Worker

Seconds = Union[int, float, None]

_PAGE = 1000
#: For how long a server that is away is asked for what goes on there, or here: twice as long as a lease.
_PATIENCE = 60.0

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
    place = directory if store is None else store
    return None if place is None else os.path.abspath(os.fspath(place))


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
    """While the interpreter still can: later, nobody may wait for a thread that wants it."""
    from .._sandtimer import end_remarks

    end_remarks()
    process = os.getpid()
    for key in [key for key in _opened if key[0] == process]:
        del _opened[key]


if sys.platform.startswith("linux"):
    atexit.register(_close)


@named_parameters
class Jobs:
    """Jobs of a store: a state directory, or a NATS server with JetStream that programs on any number of machines share.

    state_dir: a directory. store: a directory, or a server as in `nats://127.0.0.1:4222`. Where neither is given they are those of
    SANDTIMER_STORE, else of SANDTIMER_STATE_DIR, else of /var/lib/sandtimer for root and ~/.local/state/sandtimer for others. A
    server that is not on this machine takes `tls://USER:PASSWORD@HOST`, or `tls://HOST` and the file of credentials that
    SANDTIMER_NATS_CREDENTIALS names; SANDTIMER_NATS_CA names certificates to trust.

    The functions of `sandtimer.jobs` are those of one without parameters. Everything here can be called from any thread, and
    any number of processes may share a store. What it refuses is a `JobError`.

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
        """Takes in a job: a dictionary, or the path of a file in TOML or JSON, whose relative paths count from its directory.

        JobSpecRefusedError names the field; JobConflictError has the job that there is already, whose idempotency key is the same.
        """
        return now(self._submit_one(BLOCKING, spec))

    async def asubmit(self, spec: Spec) -> Submitted:
        """As `submit`, awaited."""
        return await self._submit_one(AWAITING, spec)

    async def _submit_one(self, io: Io, spec: Spec) -> Submitted:
        (submitted,) = await self._take_in(io, [_specs.given_one(spec)])
        return submitted

    def submit_many(self, specs: Iterable[Spec]) -> List[Submitted]:
        """Takes in all of them, or none. As `submit`; a message says of which it is.

        A spec with `map` is one job for each of its items, and one more for `map.then`.
        """
        return now(self._submit(BLOCKING, specs))

    async def asubmit_many(self, specs: Iterable[Spec]) -> List[Submitted]:
        """As `submit_many`, awaited."""
        return await self._submit(AWAITING, specs)

    async def _submit(self, io: Io, specs: Iterable[Spec]) -> List[Submitted]:
        _arguments.iterable("specs", specs)
        several = list(specs)
        place = "specs[{}]: " if len(several) > 1 else ""
        return await self._take_in(io, [_specs.given(spec, place.format(index)) for index, spec in enumerate(several)])

    async def _take_in(self, io: Io, given: List[Tuple[str, str, str]]) -> List[Submitted]:
        try:
            answer = await self._ask(io, "submit", given)
        except JobConflictError as error:
            # One that is purged meanwhile is a conflict no more, but that is what was met.
            with contextlib.suppress(JobNotFoundError):
                error.job = record_of(json.loads(await self._ask(io, "get", error.existing)))
            raise
        return [build(Submitted, each) for each in json.loads(answer)]

    # Looking

    def list(self, *, queue: Optional[str] = None, state: Optional[JobState] = None, most: Optional[int] = None) -> List[Job]:
        """Jobs, the latest first: of one queue, in one state, at most so many (None: all)."""
        return now(self._list(BLOCKING, queue, state, most))

    async def alist(self, *, queue: Optional[str] = None, state: Optional[JobState] = None, most: Optional[int] = None) -> List[Job]:
        """As `list`, awaited."""
        return await self._list(AWAITING, queue, state, most)

    async def _list(self, io: Io, queue: Optional[str], state: Optional[JobState], most: Optional[int]) -> List[Job]:
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
            raise InvalidArgumentError(f"most={most!r}: use a whole number from 0 on, or None for all")
        cursor = None
        found: List[Job] = []
        while most is None or len(found) < most:
            count = _PAGE if most is None else min(_PAGE, most - len(found))
            page = json.loads(await self._ask(io, "list", queue, state, cursor, count))
            found.extend(job_of(line) for line in page["jobs"])
            cursor = page["next"]
            if cursor is None:
                break
        return found

    def show(self, id: str) -> JobRecord:
        """Everything about a job."""
        return now(self._show(BLOCKING, id))

    async def ashow(self, id: str) -> JobRecord:
        """As `show`, awaited."""
        return await self._show(AWAITING, id)

    async def _show(self, io: Io, id: str) -> JobRecord:
        return record_of(json.loads(await self._ask(io, "get", _arguments.text("id", id))))

    def read_log(self, id: str, cursor: int = 0, max_bytes: int = PIECE) -> JobLog:
        """What a job has written, from a position: one piece, while it goes on and after."""
        return now(self._read_log(BLOCKING, id, cursor, max_bytes))

    async def aread_log(self, id: str, cursor: int = 0, max_bytes: int = PIECE) -> JobLog:
        """As `read_log`, awaited."""
        return await self._read_log(AWAITING, id, cursor, max_bytes)

    async def _read_log(self, io: Io, id: str, cursor: int, max_bytes: int) -> JobLog:
        return JobLog(*await self._ask(io, "read_log", _arguments.text("id", id), cursor, max_bytes))

    def files(self, id: str) -> List[JobFile]:
        """The files that a job has left; none while it goes on. What was not kept is `result.files_refused` of its record.

        >>> from sandtimer import jobs
        >>> spec = {"command": ["sh", "-c", "tr a-z A-Z < in > out"], "inputs": {"in": "hello"}, "outputs": ["out"]}
        >>> record = jobs.run(spec)
        >>> [file.name for file in jobs.files(record.id)], jobs.read_file(record.id, "out")
        (['out'], b'HELLO')
        """
        return now(self._files(BLOCKING, id))

    async def afiles(self, id: str) -> List[JobFile]:
        """As `files`, awaited."""
        return await self._files(AWAITING, id)

    async def _files(self, io: Io, id: str) -> List[JobFile]:
        result = (await self._show(io, id)).result
        return [] if result is None else result.files

    def read_file(self, id: str, name: str) -> bytes:
        """A file that a job has left. `JobFileUnknownError` where there is none of this name."""
        return now(self._read_file(BLOCKING, id, name))

    async def aread_file(self, id: str, name: str) -> bytes:
        """As `read_file`, awaited."""
        return await self._read_file(AWAITING, id, name)

    async def _read_file(self, io: Io, id: str, name: str) -> bytes:
        _arguments.text("name", name)
        found = [file for file in await self._files(io, id) if file.name == name]
        if not found:
            raise JobFileUnknownError(f"job {id} has left no file {name!r}; `files` lists what there is, once it is over", id, name)
        content = bytearray()
        while len(content) < found[0].bytes:
            piece = await self._ask(io, "read_file", id, name, len(content))
            if not piece:
                raise JobFileUnknownError(f"the file {name!r} of job {id} is gone: the job was queued again, or purged", id, name)
            content += piece
        return bytes(content)

    def queues(self) -> List[JobQueue]:
        """Every queue that has jobs or is paused."""
        return now(self._queues(BLOCKING))

    async def aqueues(self) -> List[JobQueue]:
        """As `queues`, awaited."""
        return await self._queues(AWAITING)

    async def _queues(self, io: Io) -> List[JobQueue]:
        return [build(JobQueue, each) for each in json.loads(await self._ask(io, "queues"))]

    # Schedules

    def schedule(self, spec: Spec) -> JobSchedule:
        """Stores a schedule, a job that recurs, in place of the one of its name. Its next moment stays unless the moments change.

        spec: a dictionary, or the path of a TOML or JSON file: `name`; `cron` (five fields as in crontab(5), or @daily and the
        like) with `time_zone` (UTC unless given), or `every_ms`; `job`, the spec of the job; `missed` ("one", "skip", "all"): what
        happens when no worker was there; `overlap` ("skip", "queue", "allow"): what happens when the job before has not finished;
        `paused`. Any worker on the store submits the job when it is due.

        >>> from sandtimer import jobs
        >>> stored = jobs.schedule({"name": "report", "cron": "30 3 * * mon-fri", "time_zone": "Europe/Berlin", "job": {"command": ["true"]}})
        >>> stored.submitted, stored.next_ms is None
        (0, False)
        >>> jobs.unschedule("report")
        True

        Raises:
            JobSpecRefusedError: a field that is refused, by its path and its value.
        """
        return now(self._schedule(BLOCKING, spec))

    async def aschedule(self, spec: Spec) -> JobSchedule:
        """As `schedule`, awaited."""
        return await self._schedule(AWAITING, spec)

    async def _schedule(self, io: Io, spec: Spec) -> JobSchedule:
        return build(JobSchedule, json.loads(await self._ask(io, "put_schedule", _specs.given(spec))))

    def schedules(self) -> List[JobSchedule]:
        """Every schedule, by name."""
        return now(self._schedules(BLOCKING))

    async def aschedules(self) -> List[JobSchedule]:
        """As `schedules`, awaited."""
        return await self._schedules(AWAITING)

    async def _schedules(self, io: Io) -> List[JobSchedule]:
        return [build(JobSchedule, each) for each in json.loads(await self._ask(io, "schedules"))]

    def unschedule(self, name: str) -> bool:
        """Removes a schedule. Returns whether there was one; the jobs that it has submitted stay."""
        return now(self._unschedule(BLOCKING, name))

    async def aunschedule(self, name: str) -> bool:
        """As `unschedule`, awaited."""
        return await self._unschedule(AWAITING, name)

    async def _unschedule(self, io: Io, name: str) -> bool:
        return bool(await self._ask(io, "remove_schedule", _arguments.text("name", name, "use the name of a schedule")))

    # Waiting

    def wait(self, id: str, timeout: Seconds = None, *, progress: bool = False) -> JobRecord:
        """Waits until a job is over. `JobStillRunningError` after `timeout` seconds (None and 0: no end); Ctrl-C ends the waiting, not the job.

        A server that is away meanwhile is asked again for a minute before JobStoreUnreachableError is raised.
        """
        return self.wait_many([id], timeout, progress=progress)[0]

    async def await_(self, id: str, timeout: Seconds = None, *, progress: bool = False) -> JobRecord:
        """As `wait`, awaited. Cancelling the task leaves the job."""
        return (await self.await_many([id], timeout, progress=progress))[0]

    def wait_many(self, ids: Iterable[str], timeout: Seconds = None, *, progress: bool = False) -> List[JobRecord]:
        """As `wait`, for all of several, in their order. progress: a bar of those that are over, by tqdm or rich."""
        return now(self._wait(BLOCKING, ids, timeout, progress))

    async def await_many(self, ids: Iterable[str], timeout: Seconds = None, *, progress: bool = False) -> List[JobRecord]:
        """As `wait_many`, awaited."""
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
        """What happens to a job, or to several, until all are over: states, what they write, ends. A bar with `progress`.

        >>> from sandtimer import jobs
        >>> job = jobs.submit({"command": ["echo", "hello"], "queue": "watched"})
        >>> with jobs.Worker(queues=["watched"]):
        ...     texts = [event.text for event in jobs.watch(job.id) if event.event == "log"]
        >>> "".join(texts)
        'hello\\n'
        """
        return iterate(self._watch(BLOCKING, _ids(ids), progress))

    def awatch(self, ids: Union[str, Iterable[str]], *, progress: bool = False) -> AsyncIterator[JobEvent]:
        """As `watch`, for `async for`."""
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
        begun = seen = time.monotonic()
        try:
            while True:
                try:
                    for each in following:
                        async for event in each.look(io):
                            if bar is not None and event.event == "ended":
                                bar.add(word_of(event.job), bool(event.job.ok))
                            yield event
                    seen = time.monotonic()
                except JobStoreUnreachableError:
                    if time.monotonic() - seen >= _PATIENCE:
                        raise
                following = [each for each in following if not each.is_over]
                if not following:
                    return
                left = None if total is None else begun + total - time.monotonic()
                if left is not None and left <= 0:
                    states = ", ".join(f"{each.id} is {each.state or 'not seen yet'}" for each in following[:3])
                    raise JobStillRunningError(f"the wait of {timeout} s is over, and the work goes on: {states}")
                if bar is not None:
                    bar.note(states_of(following))
                await io.sleep(LOOK if left is None else min(LOOK, left))
        finally:
            if bar is not None:
                bar.close()

    # Changing

    def cancel(self, id: str, reason: str = "asked for by `sandtimer.jobs.cancel`") -> str:
        """Ends a job: "cancelled" where no worker had it, "asked" where its worker is ending it, "too_late" where it was over."""
        return now(self._cancel(BLOCKING, id, reason))

    async def acancel(self, id: str, reason: str = "asked for by `sandtimer.jobs.cancel`") -> str:
        """As `cancel`, awaited."""
        return await self._cancel(AWAITING, id, reason)

    async def _cancel(self, io: Io, id: str, reason: str) -> str:
        done: str = await self._ask(io, "cancel", _arguments.text("id", id), _arguments.text("reason", reason))
        return done

    def retry(self, id: str) -> str:
        """Queues a job again that failed, is dead or was cancelled; its deadline counts from now. The state it is in then."""
        return now(self._retry(BLOCKING, id))

    async def aretry(self, id: str) -> str:
        """As `retry`, awaited."""
        return await self._retry(AWAITING, id)

    async def _retry(self, io: Io, id: str) -> str:
        state: str = await self._ask(io, "retry", _arguments.text("id", id))
        return state

    def requeue_dead(self, queue: Optional[str] = None) -> List[str]:
        """Queues every dead job again, of one queue or of all. The ids of those."""
        return now(self._requeue_dead(BLOCKING, queue))

    async def arequeue_dead(self, queue: Optional[str] = None) -> List[str]:
        """As `requeue_dead`, awaited."""
        return await self._requeue_dead(AWAITING, queue)

    async def _requeue_dead(self, io: Io, queue: Optional[str]) -> List[str]:
        queued = []
        for job in await self._list(io, queue, "dead", None):
            try:
                await self._retry(io, job.id)
            except JobStateRefusedError:
                # Somebody else was faster.
                continue
            queued.append(job.id)
        return queued

    def purge(self, *, queue: Optional[str] = None, state: Optional[JobState] = None) -> int:
        """Forgets jobs that are over, of one queue or in one state; those that go on stay. How many it forgot."""
        return now(self._purge(BLOCKING, queue, state))

    async def apurge(self, *, queue: Optional[str] = None, state: Optional[JobState] = None) -> int:
        """As `purge`, awaited."""
        return await self._purge(AWAITING, queue, state)

    async def _purge(self, io: Io, queue: Optional[str], state: Optional[JobState]) -> int:
        purged: int = await self._ask(io, "purge", queue, state)
        return purged

    def pause(self, queue: str) -> None:
        """Has a queue hand out nothing more. What has begun goes on."""
        now(self._pause(BLOCKING, queue, True))

    async def apause(self, queue: str) -> None:
        """As `pause`, awaited."""
        await self._pause(AWAITING, queue, True)

    def resume(self, queue: str) -> None:
        """Has a paused queue go on."""
        now(self._pause(BLOCKING, queue, False))

    async def aresume(self, queue: str) -> None:
        """As `resume`, awaited."""
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
        """Submits a job, works on it here, and waits for its end. Never raises for what became of it.

        handlers, sandbox: as for `Worker`. Ctrl-C cancels the job, waits for its end and is raised then; a second one ends what
        goes on and leaves the job to another worker.

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
        """As `run`, awaited. Cancelling the task is its Ctrl-C."""
        return await self._run(AWAITING, spec, handlers, sandbox, progress)

    async def _run(
        self, io: Io, spec: Spec, handlers: Optional[Handlers], sandbox: Optional[Sandbox], progress: bool
    ) -> JobRecord:
        submitted = await self._submit_one(io, spec)
        try:
            worker = await io.call(_worker_for, self, submitted.id, handlers, sandbox)
        except BaseException as error:
            if not submitted.existed:
                # Nobody was told of it, so nobody else waits for it.
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
        """Executes jobs until it is told to end, as `Worker` does; `Worker` itself does it in the background.

        SIGTERM and Ctrl-C drain: nothing more is begun, what goes on is brought to its end; a second one ends what goes on, and it
        is handed out again. Then it returns, or raises KeyboardInterrupt. SIGTERM is heard in the main thread, where the
        program has no handler of its own.
        """
        worker = Worker(self, slots, queues=queues, handlers=handlers, sandbox=sandbox, lease=lease)
        told = Told(worker)
        interrupt: Optional[KeyboardInterrupt] = None
        with told:
            while True:
                try:
                    worker.wait()
                    break
                except KeyboardInterrupt as another:
                    interrupt = another
                    told.once_more()
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
