"""Following jobs to their ends: their states, their output, and waiting for them."""

from __future__ import annotations

import codecs
import time
from collections.abc import AsyncGenerator, Iterable
from typing import Dict, Optional, Sequence, Union

from .. import _arguments
from ..errors import JobStillRunningError, JobStoreUnreachableError
from ..sandbox._progress import Bar
from ._records import JobEvent, JobRecord
from ._requests import Requests
from ._waiting import POLL_INTERVAL, Io

Seconds = Union[int, float, None]

#: For how long a server that does not answer is asked again, in seconds: twice as long as a lease.
_REPLY_TIMEOUT = 60.0
#: How many bytes of a log are read at a time.
PIECE = 256 * 1024


class _Following:
    """One job that is watched."""

    def __init__(self, requests: Requests, id: str, has_logs: bool) -> None:
        self.id, self.state, self.has_ended = id, "", False
        self._requests, self._has_logs, self._cursor = requests, has_logs, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def new_events(self, io: Io) -> AsyncGenerator[JobEvent, None]:
        """Yields what has happened since the call before."""
        # Before its log, which is complete once it has ended.
        job = await self._requests._show(io, self.id)
        if job.state != self.state:
            self.state = job.state
            yield JobEvent("state", job)
        while self._has_logs:
            log = await self._requests._read_log(io, self.id, self._cursor, PIECE)
            if not log.data:
                break
            self._cursor = log.next_cursor
            yield JobEvent("log", job, self._decoder.decode(log.data), log.data)
        if job.is_over:
            self.has_ended = True
            rest = self._decoder.decode(b"", True)
            if rest:
                yield JobEvent("log", job, rest)
            yield JobEvent("ended", job)


def _status_of(job: JobRecord) -> str:
    return job.result.status if job.result is not None else job.state


def _states_of(following: Sequence[_Following]) -> str:
    counts: Dict[str, int] = {}
    for each in following:
        status = "running" if each.state == "leased" else each.state
        counts[status] = counts.get(status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


async def wait_for(requests: Requests, io: Io, ids: Iterable[str], timeout: Seconds, progress: bool) -> list[JobRecord]:
    """Waits until jobs have ended, and returns their records in the order of the ids. Raises if the
    timeout passes.
    """
    ids, ended = ids_of(ids), {}
    events = watch(requests, io, ids, progress, timeout, has_logs=False)
    try:
        async for event in events:
            if event.event == "ended":
                ended[event.job.id] = event.job
    finally:
        await events.aclose()
    return [ended[id] for id in ids]


async def watch(
    requests: Requests,
    io: Io,
    ids: Sequence[str],
    progress: bool,
    timeout: Seconds = None,
    has_logs: bool = True,
) -> AsyncGenerator[JobEvent, None]:
    """Yields the events of jobs until all have ended. Raises if the timeout passes."""
    total = _arguments.total(timeout)
    bar = Bar(len(set(ids)), "job") if _arguments.flag("progress", progress) else None
    following = [_Following(requests, id, has_logs) for id in dict.fromkeys(ids)]
    # One that cannot be opened is not asked again.
    await io.call(requests._store)
    began = answered_at = time.monotonic()
    try:
        while True:
            try:
                for each in following:
                    async for event in each.new_events(io):
                        if bar is not None and event.event == "ended":
                            bar.add(_status_of(event.job), bool(event.job.ok))
                        yield event
                answered_at = time.monotonic()
            except JobStoreUnreachableError:
                if time.monotonic() - answered_at >= _REPLY_TIMEOUT:
                    raise
            following = [each for each in following if not each.has_ended]
            if not following:
                return
            left = None if total is None else began + total - time.monotonic()
            if left is not None and left <= 0:
                states = ", ".join(f"{each.id} is {each.state or 'not seen yet'}" for each in following[:3])
                raise JobStillRunningError(f"the wait of {timeout} s has passed, and the jobs continue: {states}")
            if bar is not None:
                bar.note(_states_of(following))
            await io.sleep(POLL_INTERVAL if left is None else min(POLL_INTERVAL, left))
    finally:
        if bar is not None:
            bar.close()


def ids_of(ids: Union[str, Iterable[str]]) -> list[str]:
    """Returns the ids of one job or several. Raises if there is another value among them."""
    if isinstance(ids, str):
        return [ids]
    _arguments.iterable("ids", ids)
    return [_arguments.text("ids", id, "use the ids of jobs") for id in ids]
