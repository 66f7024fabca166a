"""Calls in the background: their futures, and the outcomes of many in order."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from concurrent.futures import Future
from typing import Any, Callable, Generator, Iterable, Iterator, Optional, Sized, Union

from .._outcome import Outcome, never_begun
from ..errors import DeadlineExceeded, SandboxUnavailableError, SandtimerError, UnserializableError
from ._progress import Bar


class CallFuture(Future):  # type: ignore[type-arg]
    """A `concurrent.futures.Future` of a call in the background.

    Made by `Sandbox.submit`. Cancelling it ends the call, also while it is running.

    Examples:
        >>> import sandtimer, time
        >>> with sandtimer.Sandbox() as box:
        ...     future = box.submit(time.sleep, 60)
        ...     future.cancel()
        True
    """

    def __init__(self) -> None:
        super().__init__()
        self._call: Any = None

    def cancel(self) -> bool:
        """Cancels the call, and ends it if it is running.

        Returns:
            False if the call has ended.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box:
            ...     future = box.submit(abs, -1)
            ...     future.result(), future.cancel()
            (1, False)
        """
        cancelled = super().cancel()
        call = self._call
        if cancelled and call is not None:
            call.cancel("its future was cancelled")
        return cancelled

    def progress(self) -> Optional[dict[str, Any]]:
        """Returns how far the call is.

        The source is what the call prints (tqdm, "Epoch 3/10") or reports with
        `sandtimer.progress`.

        Returns:
            A dictionary of `done`, `total`, `eta_ms` and, with a timeout,
            `p_finish_before_deadline`; None if that is unknown, and before and after the call.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box:
            ...     future = box.submit(abs, -1)
            ...     future.result(), future.progress()
            (1, None)
        """
        call = None if self.done() else self._call
        report = None if call is None else call.progress()
        return None if report is None else dict(json.loads(report))

    def running(self) -> bool:
        """Returns whether the call is running. It can be cancelled nevertheless.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box:
            ...     future = box.submit(abs, -1)
            ...     future.result(), future.running()
            (1, False)
        """
        return self._call is not None and not self.done()


def ordered_outcomes(
    submit: Callable[[tuple[Any, ...]], CallFuture],
    items: Iterable[Any],
    most: Callable[[], int],
    progress: bool,
    check_open: Optional[Callable[[], None]] = None,
) -> Iterator[Outcome]:
    """Submits each item as the arguments of a call, at most `most()` ahead, and yields their outcomes in order.

    check_open: raises once no call can begin any more. With it, a call that the machine had no room for has an outcome, too, unless
    no call at all could begin: that is raised.
    """
    outcomes = _ordered_outcomes(submit, items, most, progress, check_open)
    first: list[Outcome] = []
    with contextlib.closing(outcomes):
        for outcome in outcomes:
            if outcome.ending == "infra_error" and not outcome.run_id:
                first.append(outcome)
                if len(first) >= most():
                    break
                continue
            yield from first
            yield outcome
            yield from outcomes
            return
    if first:
        raise first[0].error or SandboxUnavailableError("no call could begin")


def _ordered_outcomes(
    submit: Callable[[tuple[Any, ...]], CallFuture],
    items: Iterable[Any],
    most: Callable[[], int],
    progress: bool,
    check_open: Optional[Callable[[], None]],
) -> Generator[Outcome, None, None]:
    bar = Bar(len(items) if isinstance(items, Sized) else None) if progress else None
    pending: deque[Union[CallFuture, Outcome]] = deque()

    def first() -> Outcome:
        # Taken out after the wait: an interrupt in it cancels this one too.
        front = pending[0]
        outcome = front if isinstance(front, Outcome) else _outcome_of(front, check_open)
        pending.popleft()
        if bar is not None:
            bar.add(outcome.ending, outcome.ok)
        return outcome

    try:
        for item in items:
            try:
                pending.append(submit((item,)))
            except UnserializableError as error:
                pending.append(never_begun("raised", error))
            except OSError as error:
                # Its arguments found no room in memory, or no descriptor.
                pending.append(_outcome_without_room(error, check_open))
            if len(pending) >= most():
                yield first()
        while pending:
            yield first()
    finally:
        for future in pending:
            if isinstance(future, CallFuture):
                future.cancel()
        if bar is not None:
            bar.close()


def _outcome_of(future: CallFuture, check_open: Optional[Callable[[], None]]) -> Outcome:
    try:
        return future.result()  # type: ignore[no-any-return]
    except DeadlineExceeded as error:
        return never_begun("timeout", error)
    except (SandboxUnavailableError, OSError) as error:
        return _outcome_without_room(error, check_open)


def _outcome_without_room(error: Exception, check_open: Optional[Callable[[], None]]) -> Outcome:
    """The outcome of a call that could not begin. Raises the error where no other can."""
    if check_open is None or (isinstance(error, SandtimerError) and not isinstance(error, SandboxUnavailableError)):
        raise error
    check_open()
    return never_begun("infra_error", SandboxUnavailableError(str(error)))
