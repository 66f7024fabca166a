"""Running the cases of submissions by the threads of their sandbox, and judging them in order."""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError
from typing import Iterable, NamedTuple, Optional, Sequence

from ._futures import CallFuture
from ._submitted import CaseRun, Submission


class SubmittedCases(NamedTuple):
    """The cases of a submission that are to be run, by their indices."""

    submission: Submission
    indices: Sequence[int]


class _ActiveCase(NamedTuple):
    submission: Submission
    number: int
    future: CallFuture


class CaseQueue:
    """Cases that are run, or are next to be.

    Args:
        window: How many at most.
        raises_on_failure: Raises what kept the first cases from beginning, if that were all, or as
            many as the window has: nothing is lost then.
    """

    def __init__(self, window: int, raises_on_failure: bool = True) -> None:
        self._window, self._is_vain = window, raises_on_failure
        self._active: deque[_ActiveCase] = deque()
        # Of cases that could not begin.
        self._error: Optional[BaseException] = None
        self._failures = 0

    def work_off(self, todo: Iterable[SubmittedCases]) -> None:
        """Runs and judges cases, in order."""
        try:
            for submission, indices in todo:
                for index in indices:
                    while len(self._active) >= self._window:
                        self._collect()
                    if index <= submission.stopped:
                        self._active.append(_ActiveCase(submission, index, _start(submission, index)))
            while self._active:
                self._collect()
            if self._is_vain and self._error is not None:
                raise self._error
        except BaseException:
            for case in self._active:
                case.future.cancel()
            raise

    def _collect(self) -> None:
        """Waits for the first case, and settles it."""
        submission, number, future = self._active[0]
        try:
            run = future.result()
        except CancelledError:
            run = None
        self._active.popleft()
        if run is not None:
            self._note_beginning(run)
        stopped = submission.stopped
        submission.settle(number, run)
        if submission.stopped != stopped:
            for case in self._active:
                if case.submission is submission:
                    case.future.cancel()

    def _note_beginning(self, run: CaseRun) -> None:
        if run.has_begun():
            self._is_vain = False
            return
        self._error, self._failures = self._error or run.outcome.error, self._failures + 1
        if self._is_vain and self._failures >= self._window and self._error is not None:
            raise self._error


def _start(submission: Submission, index: int) -> CallFuture:
    """Has a thread of the sandbox run a case."""
    future = CallFuture()

    def task() -> None:
        try:
            run = submission.run(index, future)
        except BaseException as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(run)

    submission.box._pool.work(task)
    return future
