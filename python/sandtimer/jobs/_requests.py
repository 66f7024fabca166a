"""The requests to a store of jobs, each written once, as a coroutine over a way to wait."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import Any, Optional

from .. import _arguments
from .._choices import JobState
from .._outcome import build
from ..errors import (
    InvalidArgumentError,
    JobConflictError,
    JobFileUnknownError,
    JobNotFoundError,
    JobScheduleNotFoundError,
    JobStateRefusedError,
)
from . import _specs
from ._records import (
    Job,
    JobBreaker,
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
from ._specs import JsonSpec, Spec
from ._stores import location_of, open_store
from ._waiting import Io

#: How many entries of a list are read at a time.
_PAGE = 1000


class Requests:
    """What can be asked of one store. `Jobs` adds the forms that users call."""

    #: Where the store is; None for what the environment names when it is used.
    _given: Optional[str]

    def _store(self) -> Any:
        return open_store(self._given or location_of(None, None))

    async def _ask(self, io: Io, name: str, *arguments: Any) -> Any:
        """Calls a method of the store, which is opened first if it is not: both may wait for a disk
        or a server.
        """
        return await io.call(lambda: getattr(self._store(), name)(*arguments))

    # Submitting

    async def _submit_one(self, io: Io, spec: Spec) -> Submitted:
        (submitted,) = await self._send(io, [_specs.given_one(spec)])
        return submitted

    async def _submit(self, io: Io, specs: Iterable[Spec]) -> list[Submitted]:
        _arguments.iterable("specs", specs)
        several = list(specs)
        location = "specs[{}]: " if len(several) > 1 else ""
        return await self._send(io, [_specs.given(spec, location.format(index)) for index, spec in enumerate(several)])

    async def _send(self, io: Io, given: list[JsonSpec]) -> list[Submitted]:
        try:
            answer = await self._ask(io, "submit", given)
        except JobConflictError as error:
            # A job that was purged since then was a conflict nevertheless.
            with contextlib.suppress(JobNotFoundError):
                error.job = record_of(json.loads(await self._ask(io, "get", error.existing)))
            raise
        return [build(Submitted, each) for each in json.loads(answer)]

    # Reading

    async def _list(self, io: Io, queue: Optional[str], state: Optional[JobState], most: Optional[int]) -> list[Job]:
        return [job_of(line) for line in await self._all(io, "jobs", most, queue, state)]

    async def _all(self, io: Io, kind: str, most: Optional[int], *filters: Optional[str]) -> list[dict[str, Any]]:
        """Reads a list of the store part by part: all of it, or its first `most` entries."""
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
            raise InvalidArgumentError(f"most={most!r}: use a whole number from 0 on, or None for all")
        call = "list" if kind == "jobs" else kind
        cursor = None
        found: list[dict[str, Any]] = []
        while most is None or len(found) < most:
            count = _PAGE if most is None else min(_PAGE, most - len(found))
            page = json.loads(await self._ask(io, call, *filters, cursor, count))
            found.extend(page[kind])
            cursor = page["next"]
            if cursor is None:
                break
        return found

    async def _show(self, io: Io, id: str) -> JobRecord:
        return record_of(json.loads(await self._ask(io, "get", _arguments.text("id", id))))

    async def _read_log(
        self, io: Io, id: str, cursor: int, max_bytes: int, timestamps: bool = False
    ) -> JobLog:
        job, is_timed = _arguments.text("id", id), _arguments.flag("timestamps", timestamps)
        return JobLog(*await self._ask(io, "read_log", job, cursor, max_bytes, is_timed))

    async def _files(self, io: Io, id: str) -> list[JobFile]:
        result = (await self._show(io, id)).result
        return [] if result is None else result.files

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

    async def _queues(self, io: Io) -> list[JobQueue]:
        return [build(JobQueue, each) for each in json.loads(await self._ask(io, "queues"))]

    # Schedules, breakers, workers and webhooks

    async def _schedule(self, io: Io, spec: Spec) -> JobSchedule:
        return build(JobSchedule, json.loads(await self._ask(io, "put_schedule", _specs.given(spec))))

    async def _schedules(self, io: Io) -> list[JobSchedule]:
        return [build(JobSchedule, each) for each in json.loads(await self._ask(io, "schedules"))]

    async def _pause_schedule(self, io: Io, name: str, paused: bool) -> JobSchedule:
        found = await self._ask(io, "pause_schedule", _arguments.text("name", name, "use the name of a schedule"), paused)
        if found is None:
            raise JobScheduleNotFoundError(f"there is no schedule {name!r}; `schedules` lists them", name)
        return build(JobSchedule, json.loads(found))

    async def _unschedule(self, io: Io, name: str) -> bool:
        return bool(await self._ask(io, "remove_schedule", _arguments.text("name", name, "use the name of a schedule")))

    async def _breakers(self, io: Io, most: Optional[int]) -> list[JobBreaker]:
        return [build(JobBreaker, each) for each in await self._all(io, "breakers", most)]

    async def _workers(self, io: Io) -> list[JobWorker]:
        return [build(JobWorker, each) for each in json.loads(await self._ask(io, "workers"))]

    async def _redeliver(self, io: Io, id: str) -> JobWebhook:
        return build(JobWebhook, json.loads(await self._ask(io, "redeliver", _arguments.text("id", id, "use the id of a job"))))

    # Changing

    async def _cancel(self, io: Io, id: str, reason: str) -> str:
        done: str = await self._ask(io, "cancel", _arguments.text("id", id), _arguments.text("reason", reason))
        return done

    async def _retry(self, io: Io, id: str) -> str:
        state: str = await self._ask(io, "retry", _arguments.text("id", id))
        return state

    async def _requeue_dead(self, io: Io, queue: Optional[str]) -> list[str]:
        queued = []
        for job in await self._list(io, queue, "dead", None):
            try:
                await self._retry(io, job.id)
            except JobStateRefusedError:
                # Another client was faster.
                continue
            queued.append(job.id)
        return queued

    async def _purge(self, io: Io, queue: Optional[str], state: Optional[JobState]) -> int:
        purged: int = await self._ask(io, "purge", queue, state)
        return purged

    async def _pause(self, io: Io, queue: str, paused: bool) -> None:
        await self._ask(io, "pause", _arguments.text("queue", queue), paused)
