"""Executing jobs in this process until they end, or until signals end the worker."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import threading
from typing import Callable, Optional

from ..errors import JobError
from ._following import wait_for
from ._records import JobRecord, Submitted
from ._requests import Requests
from ._specs import Spec
from ._waiting import Io
from ._worker import Worker


async def run(requests: Requests, io: Io, spec: Spec, make_worker: Callable[..., Worker], progress: bool) -> JobRecord:
    """Submits a job, executes it here, and waits for its end.

    The first interrupt cancels the job, and is raised at its end; the second one ends the wait.
    """
    submitted = await requests._submit_one(io, spec)
    try:
        worker: Worker = await io.call(functools.partial(make_worker, _only=submitted.id))
    except BaseException as error:
        if not submitted.existed:
            # No other client knows of it, so none waits for it.
            with contextlib.suppress(JobError):
                await requests._ask(io, "cancel", submitted.id, f"there is no worker for it: {type(error).__name__}")
        raise
    try:
        return await _wait_or_cancel(requests, io, submitted, worker, progress)
    finally:
        await io.call(worker.close)


async def _wait_or_cancel(requests: Requests, io: Io, submitted: Submitted, worker: Worker, progress: bool) -> JobRecord:
    """Waits for the end of a job. The first interrupt cancels it; the second one gives it back to
    the store.
    """
    interrupt: Optional[BaseException] = None
    try:
        while True:
            try:
                (record,) = await wait_for(requests, io, [submitted.id], None, progress)
                break
            except (KeyboardInterrupt, asyncio.CancelledError) as another:
                if interrupt is not None:
                    raise
                interrupt = another
                try:
                    await requests._ask(io, "cancel", submitted.id, "interrupted")
                except JobError:
                    raise another from None
    except BaseException:
        worker.give_back()
        raise
    if interrupt is not None:
        raise interrupt
    return record


def work(worker: Worker) -> None:
    """Waits until a worker has drained, and closes it. SIGTERM and Ctrl-C drain it; the latter is
    raised at the end.
    """
    signals = _EndSignals(worker)
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


class _EndSignals:
    """How often a worker received a signal to end; handles SIGTERM while it is entered."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._count, self._handles_sigterm = worker, 0, False

    def once_more(self, *_: object) -> None:
        """Drains the worker at the first signal, and gives its jobs back at the second."""
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
