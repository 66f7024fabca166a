"""Following jobs to their ends, and the signals that end workers."""

from __future__ import annotations

import codecs
import signal
import threading
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Dict, Sequence

from ._records import JobEvent, JobRecord
from ._waiting import Io
from ._worker import Worker

if TYPE_CHECKING:
    from ._store import Jobs

#: Of a log at a time.
PIECE = 256 * 1024


class EndSignals:
    """How often a worker received a signal to end; handles SIGTERM while it is entered."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._count, self._handles_sigterm = worker, 0, False

    def once_more(self, *_: object) -> None:
        self._count += 1
        if self._count == 1:
            self._worker.drain()
        else:
            self._worker.give_back()

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self._handles_sigterm = is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self._handles_sigterm:
            signal.signal(signal.SIGTERM, self.once_more)

    def __exit__(self, *_: object) -> None:
        if self._handles_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Following:
    """One job that is watched."""

    def __init__(self, jobs: Jobs, id: str, logs: bool) -> None:
        self.id, self.state, self.is_over = id, "", False
        self._jobs, self._logs, self._cursor = jobs, logs, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def new_events(self, io: Io) -> AsyncGenerator[JobEvent, None]:
        """What has happened since the look before."""
        # Before its log, which is complete once it has ended.
        job = await self._jobs._show(io, self.id)
        if job.state != self.state:
            self.state = job.state
            yield JobEvent("state", job)
        while self._logs:
            log = await self._jobs._read_log(io, self.id, self._cursor, PIECE)
            if not log.data:
                break
            self._cursor = log.next_cursor
            yield JobEvent("log", job, self._decoder.decode(log.data), log.data)
        if job.is_over:
            self.is_over = True
            rest = self._decoder.decode(b"", True)
            if rest:
                yield JobEvent("log", job, rest)
            yield JobEvent("ended", job)


def status_of(job: JobRecord) -> str:
    return job.result.status if job.result is not None else job.state


def states_of(following: Sequence[Following]) -> str:
    counts: Dict[str, int] = {}
    for each in following:
        status = "running" if each.state == "leased" else each.state
        counts[status] = counts.get(status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
