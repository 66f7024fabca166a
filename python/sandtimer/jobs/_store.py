"""The public class `Jobs`: every request to a store of jobs, in a form that blocks and in one that
is awaited.
"""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import List, Optional, Sequence, Union

from .._choices import JobState
from .._vocabulary import named_parameters
from ..client._io import iterate, now
from ..errors import InvalidArgumentError
from ..sandbox._sandbox import Sandbox
from . import _following, _running
from ._following import PIECE
from ._records import Job, JobBreaker, JobEvent, JobFile, JobLog, JobQueue, JobRecord, JobSchedule, JobWebhook, JobWorker, Submitted
from ._requests import Requests
from ._specs import Spec
from ._stores import location_of
from ._waiting import AWAITING, BLOCKING
from ._worker import Handlers, Worker

Seconds = Union[int, float, None]


@named_parameters
class Jobs(Requests):
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
        self._given = None if state_dir is None and store is None else location_of(store, state_dir)

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

    # Reading

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
        return now(_following.wait_for(self, BLOCKING, ids, timeout, progress))

    async def await_many(self, ids: Iterable[str], timeout: Seconds = None, *, progress: bool = False) -> List[JobRecord]:
        """Awaited form of `wait_many`."""
        return await _following.wait_for(self, AWAITING, ids, timeout, progress)

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
        return iterate(_following.watch(self, BLOCKING, _following.ids_of(ids), progress))

    def awatch(self, ids: Union[str, Iterable[str]], *, progress: bool = False) -> AsyncIterator[JobEvent]:
        """Awaited form of `watch`, for `async for`."""
        return _following.watch(self, AWAITING, _following.ids_of(ids), progress)

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
        make_worker = functools.partial(Worker, self, handlers=handlers, sandbox=sandbox)
        return now(_running.run(self, BLOCKING, spec, make_worker, progress))

    async def arun(
        self,
        spec: Spec,
        *,
        handlers: Optional[Handlers] = None,
        sandbox: Optional[Sandbox] = None,
        progress: bool = False,
    ) -> JobRecord:
        """Awaited form of `run`. Cancelling the task has the effect of Ctrl-C."""
        make_worker = functools.partial(Worker, self, handlers=handlers, sandbox=sandbox)
        return await _running.run(self, AWAITING, spec, make_worker, progress)

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
        _running.work(Worker(self, slots, queues=queues, handlers=handlers, sandbox=sandbox, lease=lease))
