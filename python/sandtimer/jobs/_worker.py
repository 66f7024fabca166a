"""Workers of this process: which functions are handlers, and in what they are called."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Union

from .. import _arguments, _native, _values
from .._results import RemoteTraceback
from .._sandbox import Sandbox
from .._vocabulary import named_parameters
from ..errors import (
    InvalidArgumentError,
    InvalidArgumentTypeError,
    IsolationRefusedError,
    ProfileRefusedError,
    RemoteError,
    SandboxUnavailableError,
)
from ._handler import Handler

if TYPE_CHECKING:
    from ._store import Jobs

Handlers = Mapping[str, Union[Callable[[Any], Any], Handler]]

#: How long a wait goes on before signals are looked at.
LOOK = 0.1
_MOST_SLOTS = 1024


@named_parameters
class Worker:
    """Executes jobs in the background, from its making to `close`: `slots` at a time, from all queues or from those named.

    handlers: functions by the names that specs give them, each called with the job's `input` in a process of its own, a
    parked child of `sandbox`; what it returns must be JSON, and is the job's `value`. `Handler` gives one a soft limit. sandbox: its limits hold for each run
    where a spec does not say, commands too; `preload`, `network`, `trust` and so on for handlers (default: `Sandbox()`).
    lease: how long, in seconds, a job stays with this worker if it says nothing more; a thread of its own renews it, and it is
    lost with the process: then the job is handed out again, with the deadline it had.

    A job whose handler this worker does not have is given back, and is dead when no worker has it in its deliveries: give
    jobs with handlers a queue of their own. As a context manager it drains at the end, and gives back where an exception ends it.

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
        from . import _default

        if isinstance(slots, bool) or not isinstance(slots, int) or not 1 <= slots <= _MOST_SLOTS:
            raise InvalidArgumentError(f"slots={slots!r}: use a whole number from 1 to {_MOST_SLOTS}")
        if isinstance(lease, bool) or not isinstance(lease, (int, float)) or not 1 <= lease <= 86_400:
            raise InvalidArgumentError(f"lease={lease!r}: use a number of seconds from 1 to 86400")
        if isinstance(queues, str):
            raise InvalidArgumentTypeError(f"queues={queues!r} is one text: use a list, such as [{queues!r}]")
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
            store = (_default if jobs is None else jobs)._store()
            self._native = JobWorker(store, _native.engine(), settings, box._checked, calls)
        except BaseException:
            self._close_own()
            raise

    def drain(self) -> None:
        """Begins nothing more; what goes on is brought to its end."""
        self._native.drain()

    def give_back(self) -> None:
        """As `drain`, and ends what goes on, which is handed out again."""
        self._native.give_back()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until it has drained; False where it has not within `timeout` seconds (None and 0: without end)."""
        left = _arguments.total(timeout)
        while left is None or left > 0:
            if self._native.wait(LOOK if left is None else min(LOOK, left)):
                return True
            left = None if left is None else left - LOOK
        return False

    def close(self) -> None:
        """Drains, and waits for the end of what goes on."""
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
        _arguments.text("the name of a handler", name, "use a text")
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
