"""Workers of this process: their handlers, and the sandboxes of the calls."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Union

from .. import _arguments, _native, _values
from .._results import RemoteTraceback
from .._vocabulary import named_parameters
from ..errors import (
    InvalidArgumentError,
    InvalidArgumentTypeError,
    IsolationRefusedError,
    ProfileRefusedError,
    RemoteError,
    SandboxUnavailableError,
)
from ..sandbox._sandbox import Sandbox
from ._handler import Handler
from ._stores import location_of, open_store
from ._waiting import POLL_INTERVAL

if TYPE_CHECKING:
    from ._store import Jobs

Handlers = Mapping[str, Union[Callable[[Any], Any], Handler]]

_MAX_SLOTS = 1024


@named_parameters
class Worker:
    """Executes jobs in the background, until it is closed.

    A thread of its own renews the leases. They end with the process: then the jobs are delivered to
    another worker, with their deadlines. A job that names a handler which this worker does not have
    waits for a worker that has it. As a context manager it drains at the end; if an exception ends
    the block it gives the jobs back.

    Args:
        jobs: The store; None for that of `sandtimer.jobs`.
        slots: How many jobs are executed at a time, from 1 to 1024.
        queues: The queues; empty for all.
        handlers: Functions by the names that specs use. Each is called with the input of the job,
            in a parked child of the sandbox; its value must be JSON data, and is the value of the
            job. A `Handler` gives one a soft limit.
        sandbox: Its limits hold for runs whose spec has none, commands too; `preload`, `network`,
            `trust` and others hold for handlers. None for `Sandbox()`.
        lease: Seconds for which a job stays with this worker if it is not renewed, from 1 to 86400.

    Raises:
        JobError: The store cannot be used.
        InvalidArgumentError: A parameter has a value that cannot be used.

    Examples:
        >>> from sandtimer import jobs
        >>> def double(number):
        ...     return 2 * number
        >>> with jobs.Worker(slots=2, queues=["sums"], handlers={"double": double}):
        ...     submitted = [jobs.submit({"handler": "double", "input": n, "queue": "sums"}) for n in (1, 2, 3)]
        ...     [record.result.value for record in jobs.wait_many(each.id for each in submitted)]
        [2, 4, 6]
    """

    def __init__(
        self,
        jobs: Optional[Jobs] = None,
        slots: int = 1,
        *,
        queues: Sequence[str] = (),
        handlers: Optional[Handlers] = None,
        sandbox: Optional[Sandbox] = None,
        lease: float = 30.0,
        _only: Optional[str] = None,
    ) -> None:
        from .._sandtimer import JobWorker

        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= _MAX_SLOTS:
            raise InvalidArgumentError(f"slots={slots!r}: use a whole number from 1 to {_MAX_SLOTS}")
        if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 1 <= lease <= 86_400:
            raise InvalidArgumentError(f"lease={lease!r}: use a number of seconds from 1 to 86400")
        if isinstance(queues, str):
            raise InvalidArgumentTypeError(f"queues={queues!r} is one string: use a list, such as [{queues!r}]")
        if sandbox is not None and not isinstance(sandbox, Sandbox):
            raise InvalidArgumentTypeError(f"sandbox={sandbox!r:.200} is of type {type(sandbox).__name__}: use a Sandbox, or None")
        names = [_arguments.text("queues", each, "use a list of the names of queues") for each in queues]
        functions = _checked(handlers, None if sandbox is None else sandbox._limits["timeout"])
        self._own = Sandbox() if sandbox is None else None
        box = sandbox or self._own
        assert box is not None
        try:
            if functions:
                # What cannot be used is refused here, and not with every job.
                box.warm(1)
            calls = {name: functools.partial(_answer, box, function) for name, function in functions.items()}
            settings = {"slots": slots, "queues": names, "only": _only, "lease": float(lease)}
            store = open_store(location_of(None, None)) if jobs is None else jobs._store()
            self._native = JobWorker(store, _native.engine(), settings, box._checked, calls)
        except BaseException:
            self._close_own()
            raise

    def drain(self) -> None:
        """Begins no further jobs; active ones run to their end.

        Examples:
            >>> from sandtimer import jobs
            >>> worker = jobs.Worker(queues=["idle"])
            >>> worker.drain()
            >>> worker.wait(20)
            True
            >>> worker.close()
        """
        self._native.drain()

    def give_back(self) -> None:
        """Begins no further jobs, and ends the active ones, which are delivered again.

        Examples:
            >>> from sandtimer import jobs
            >>> worker = jobs.Worker(queues=["idle"])
            >>> worker.give_back()
            >>> worker.close()
        """
        self._native.give_back()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the worker has drained.

        Args:
            timeout: Seconds; None and 0 for unlimited.

        Returns:
            False if it has not drained within the timeout.

        Examples:
            >>> from sandtimer import jobs
            >>> with jobs.Worker(queues=["idle"]) as worker:
            ...     worker.wait(0.1)
            False
        """
        left = _arguments.total(timeout)
        while left is None or left > 0:
            if self._native.wait(POLL_INTERVAL if left is None else min(POLL_INTERVAL, left)):
                return True
            left = None if left is None else left - POLL_INTERVAL
        return False

    def close(self) -> None:
        """Drains, and waits for the end of the active jobs.

        Examples:
            >>> from sandtimer import jobs
            >>> jobs.Worker(queues=["idle"]).close()
        """
        try:
            self.drain()
            self.wait()
        except BaseException:
            self.give_back()
            raise
        finally:
            self._close_own()

    def _close_own(self) -> None:
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        if kind is not None:
            self.give_back()
        self.close()


def _checked(handlers: Optional[Handlers], wall: Any) -> dict[str, Callable[[Any], Any]]:
    """The functions that are called, by the names of the handlers; `wall`: the limit of the sandbox that they are called in."""
    if handlers is None:
        return {}
    if not isinstance(handlers, Mapping):
        kind = type(handlers).__name__
        raise InvalidArgumentTypeError(f"handlers={handlers!r:.200} is of type {kind}: use a dictionary of functions by their names")
    functions = {}
    for name, handler in handlers.items():
        _arguments.text("the name of a handler", name, "use a string")
        if not isinstance(handler, Handler):
            _arguments.function(f"handlers[{name!r}]", handler, "use a function of one parameter, the job's input")
            handler = Handler(handler)
        functions[name] = handler._within(name, wall)
    return functions


def _answer(
    box: Sandbox, function: Callable[[Any], Any], asked: str, scope: Any, limits: Any, begun: Callable[[Any], None]
) -> tuple[str, str, str, Optional[str]]:
    """One call, in a process of its own inside `scope`: what it came to, as the native worker takes it."""
    view = box.limits()
    view._checked = limits
    try:
        job = view._make(function, (json.loads(asked),), {})
        job.scope = scope
        outcome = view._perform(job, begun)
    except (SandboxUnavailableError, ProfileRefusedError, IsolationRefusedError) as error:
        return "unavailable", str(error), "", None
    except Exception as error:
        return _failed(error)
    if outcome.error is not None:
        return _failed(outcome.error)
    try:
        return "returned", _values.encode_json(outcome.value), "", None
    except (TypeError, ValueError, RecursionError) as error:
        return "failed", f"it returned {_values.short_repr(outcome.value, 80)}, which is not JSON: {error}", "", None


def _failed(error: BaseException) -> tuple[str, str, str, Optional[str]]:
    if isinstance(error, RemoteError):
        return "failed", f"{error.type_name}: {error.message}", error.remote_traceback, error.type_name
    cause = error.__cause__
    traceback = str(cause.args[0]) if isinstance(cause, RemoteTraceback) else ""
    return "failed", f"{type(error).__name__}: {error}", traceback, type(error).__name__
