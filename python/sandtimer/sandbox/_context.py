"""Contexts: live interpreters, each in a sandbox that lives for many runs.

A thread of the native half drives a run. The calling thread waits for its events, makes the
callbacks, and handles interrupts: the first Ctrl-C interrupts the cell, as in a notebook, the
second one ends it. A context belongs to the process that opened it: in a forked process it rejects
all calls, and nothing of it is removed there.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import contextlib
import dataclasses
import inspect
import json
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Union

from .. import _arguments, _results
from .._outcome import Outcome
from .._vocabulary import named_parameters
from ..errors import (
    ContextLostError,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    ResultTooLargeError,
    SandboxUnavailableError,
)

if TYPE_CHECKING:
    import asyncio

Seconds = Union[int, float, None]

_UNSET: Any = object()
LANGUAGES = ("python",)
# Of the context as a whole; what is not here is of each run.
_TOTAL_LIMITS = ("memory", "processes", "require")
# Branches that are made at once.
_MAX_BRANCHES = 64
# How long output may wait for being called back, where no thread looks for it.
_OUTPUT_INTERVAL = 0.02


@dataclasses.dataclass(frozen=True)
class ContextInfo:
    """The state of a context.

    Attributes:
        executions: How many runs it has had.
        waiting: How many runs wait for their turn.
        checkpoint: Whether a copy of the interpreter exists, to which the next run would be rolled
            back.
        why_no_checkpoint: Why there is no copy; None if there is one.
        can_undo: Whether the last run that changed something can be undone.
        lost: Why the interpreter was last lost between two runs; None if it never was.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox() as box, box.context() as ctx:
        ...     outcome = ctx.run("x = 1")
        ...     ctx.info.executions, ctx.info.checkpoint, ctx.info.can_undo
        (1, True, True)
    """

    executions: int
    waiting: int
    checkpoint: bool
    why_no_checkpoint: Optional[str]
    can_undo: bool
    lost: Optional[str]


class _Listener:
    """Passes the events of a run to the callbacks."""

    def __init__(self, on_stdout: Any, on_stderr: Any, on_display: Any) -> None:
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr, "display": on_display}
        for name, callback in self._callbacks.items():
            if callback is not None:
                _arguments.function(f"on_{name}", callback, "use a function of one argument, or None")
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        # How the interpreter was lost before the run, and the exception that ended it.
        self.lost: Optional[tuple[str, str]] = None
        self.raised: Optional[str] = None

    def wants(self, name: str) -> bool:
        return self._callbacks[name] is not None

    def receive(self, kind: str, content: Any) -> Any:
        """Calls the callback of an event, if there is one; returns its value."""
        if kind in ("rolled_back", "reset"):
            self.lost = (kind, content)
        elif kind == "raised":
            self.raised = content
        elif kind == "display":
            return self._callbacks[kind](json.loads(content))
        else:
            return self._call_back(kind, self._decoders[kind].decode(content))

    def finish(self) -> Iterator[Any]:
        """Calls back with what a stream ended in the middle of."""
        for name, decoder in self._decoders.items():
            yield self._call_back(name, decoder.decode(b"", True))

    def _call_back(self, name: str, text: str) -> Any:
        return self._callbacks[name](text) if text and self._callbacks[name] is not None else None


def _defaults(limits: Mapping[str, Any]) -> Any:
    """Of a context's runs: with those of the whole, so that the outcome of a run names them."""
    return _arguments.limits({name: value for name, value in limits.items() if name != "require"})


@named_parameters
class Context:
    """A live Python interpreter in a sandbox: each run has the variables of the runs before it.

    Made by `Sandbox.context`. A run that is ended by force (timeout, crash, out of memory,
    `os._exit`) does not lose the earlier state: the interpreter continues from a copy that was made
    before the run, and `outcome.state` is "rolled_back". If no copy can be made (other threads,
    child processes, CUDA, more than 4 GB) `info` has the reason, and the state is "reset": a new
    interpreter.

    Any thread can use it, for one run at a time, in the order of the calls. Waiting does not count
    as run time. It is a context manager; at its end it is closed.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=5.0) as box, box.context("python") as ctx:
        ...     outcome = ctx.run("x = 40")
        ...     outcome = ctx.run("x = 0; import os; os._exit(1)")
        ...     print(outcome.ending, outcome.state, ctx.run("x + 2").value)
        no_result rolled_back 42
    """

    def __init__(self, pool: Any, limits: Mapping[str, Any], rebuild: tuple[str, dict[tuple[str, str], type]], how: Any) -> None:
        # The pool, which replaces an interpreter that is lost, lives as long.
        self._pool, self._rebuild = pool, rebuild
        self._limits, self._defaults = dict(limits), _defaults(limits)
        whole = _arguments.limits({name: limits.get(name) for name in _TOTAL_LIMITS})
        self._begin(None)
        pool.open_context(self, how, whole)

    def _begin(self, native: Any) -> None:
        self._process = os.getpid()
        self._calling_back: set[int] = set()
        self._lost: Optional[str] = None
        self._native: Any = native

    # Runs

    def run(
        self,
        code: str,
        *,
        timeout: Seconds = _UNSET,
        cpu: Seconds = _UNSET,
        stall: Seconds = _UNSET,
        warn_before: Seconds = _UNSET,
        warn_signal: Union[int, str, None] = _UNSET,
        stdin: Union[str, bytes, None] = None,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_display: Optional[Callable[[dict[str, Any]], Any]] = None,
    ) -> Outcome:
        """Executes code like a cell of a notebook. Never raises for what the code did.

        The code may contain `await`, and its last expression is displayed. `outcome.value` is the
        value of the last expression if JSON can represent it; `outcome.results` has all that was
        displayed, and last that value, by MIME type. Limits that are not given are those of the
        sandbox; None and 0 mean unlimited.

        An exception of a callback ends the run and is raised here. Ctrl-C interrupts the code,
        which keeps its state, and a second Ctrl-C ends it; in both cases KeyboardInterrupt is
        raised here at the end of the run.

        Args:
            code: The code.
            timeout: Elapsed time of the run, in seconds.
            cpu: Processor time of the run, in seconds.
            stall: Seconds without output and without use of the processor.
            warn_before: Seconds before the limits at which `warn_signal` is sent.
            warn_signal: That signal, by number or name.
            stdin: What the code reads from its standard input.
            on_stdout: Called with text that the code writes, while it runs.
            on_stderr: Called with text that the code writes to its standard error.
            on_display: Called with what the code displays, by MIME type.

        Raises:
            SandboxUnavailableError: The context is closed, or belongs to another process.
            InvalidLimitError: The value of a limit cannot be enforced.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box, box.context() as ctx:
            ...     pieces = []
            ...     code = "print('so far'); import time; time.sleep(60)"
            ...     outcome = ctx.run(code, timeout=0.5, on_stdout=pieces.append)
            ...     print("".join(pieces).strip(), outcome.ending, outcome.state, outcome.verdict.limit_ms)
            so far timeout kept 500
        """
        listener = _Listener(on_stdout, on_stderr, on_display)
        limits = {"timeout": timeout, "cpu": cpu, "stall": stall, "warn_before": warn_before, "warn_signal": warn_signal}
        execution = self._execute(code, stdin, limits, listener)
        self._follow(execution, listener)
        return self._outcome(execution, listener)

    async def arun(
        self,
        code: str,
        *,
        timeout: Seconds = _UNSET,
        cpu: Seconds = _UNSET,
        stall: Seconds = _UNSET,
        warn_before: Seconds = _UNSET,
        warn_signal: Union[int, str, None] = _UNSET,
        stdin: Union[str, bytes, None] = None,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_display: Optional[Callable[[dict[str, Any]], Any]] = None,
    ) -> Outcome:
        """Awaited form of `run`. Cancelling the task ends the run, and rolls the context back.

        Callbacks are called in the event loop, and awaited if they are coroutines.

        Examples:
            >>> import asyncio, sandtimer
            >>> with sandtimer.Sandbox() as box, box.context() as ctx:
            ...     asyncio.run(ctx.arun("6 * 7")).value
            42
        """
        # Not with the module: it takes 4 MB, which callers that await nothing can do without.
        import asyncio

        listener = _Listener(on_stdout, on_stderr, on_display)
        limits = {"timeout": timeout, "cpu": cpu, "stall": stall, "warn_before": warn_before, "warn_signal": warn_signal}
        execution = self._execute(code, stdin, limits, listener)
        try:
            await self._follow_awaited(execution, listener)
        except asyncio.CancelledError:
            execution.cancel("its task was cancelled")
            raise
        except BaseException as error:
            execution.cancel(f"a callback raised {type(error).__name__}")
            raise
        return self._outcome(execution, listener)

    def _execute(self, code: str, stdin: Any, limits: dict[str, Any], listener: _Listener) -> Any:
        self._check_usable()
        _arguments.encoded("code", _arguments.text("code", code, "use the text of the code"))
        cell: dict[str, Any] = {name: listener.wants(name) for name in ("stdout", "stderr", "display")}
        cell["source"] = code
        cell["stdin"] = None if stdin is None else _arguments.encoded("stdin", stdin)
        given = _arguments.limits({name: value for name, value in limits.items() if value is not _UNSET})
        return self._native.execute(cell, given, self._defaults)

    def _follow(self, execution: Any, listener: _Listener) -> None:
        """Waits for the end of a run. An exception during the wait ends the run, and is raised then."""
        raised: Optional[BaseException] = None
        while True:
            try:
                event = execution.wait()
                if raised is None:
                    with self._called_back():
                        if event is not None:
                            listener.receive(*event)
                        else:
                            list(listener.finish())
                if event is None:
                    break
            except BaseException as error:
                if not self._interrupted(execution, error, first=raised is None):
                    raise
                raised = raised or error
        if raised is not None:
            raise raised

    def _interrupted(self, execution: Any, error: BaseException, first: bool) -> bool:
        """Ends a run after an interrupt of its caller. False if it had not begun, and will not."""
        if first and isinstance(error, KeyboardInterrupt):
            return bool(execution.interrupt())
        by = "a second Ctrl-C" if isinstance(error, KeyboardInterrupt) else type(error).__name__
        return bool(execution.cancel(f"its caller was interrupted by {by}"))

    async def _follow_awaited(self, execution: Any, listener: _Listener) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        descriptor = execution.descriptor()
        patience = _OUTPUT_INTERVAL if listener.wants("stdout") or listener.wants("stderr") else None
        while True:
            events, over = execution.words()
            for kind, content in events:
                with self._called_back():
                    answer = listener.receive(kind, content)
                if inspect.isawaitable(answer):
                    await answer
            if over:
                break
            if events:
                await asyncio.sleep(0)
            else:
                await _readable(loop, descriptor, patience)
        with self._called_back():
            answers = list(listener.finish())
        for answer in answers:
            if inspect.isawaitable(answer):
                await answer

    @contextlib.contextmanager
    def _called_back(self) -> Iterator[None]:
        thread = threading.get_ident()
        self._calling_back.add(thread)
        try:
            yield
        finally:
            self._calling_back.discard(thread)

    def _outcome(self, execution: Any, listener: _Listener) -> Outcome:
        if listener.lost is not None:
            state, reason = listener.lost
            self._lost = reason
            back = "it is as it was before its last run" if state == "rolled_back" else "it was started again, empty"
            warnings.warn(f"the context's interpreter was lost between two runs ({reason}): {back}", ContextLostError, stacklevel=3)
        ended, _ = execution.ended()
        return self._rebuilt(ended, listener.raised)

    def _rebuilt(self, ended: Any, pickled: Optional[str]) -> Outcome:
        """The outcome with its value, and its exception as the sandbox's `trust` and `results` allow."""
        record = json.loads(ended.outcome(False))
        ending, details = str(record["ending"]), record["error"]
        if ending != "raised" or not isinstance(details, dict):
            outcome = Outcome(ended, ending, record["value"] if ending == "returned" else None)
            if ending == "timeout" and isinstance(details, dict) and outcome.error is not None:
                # Where the code was when it was interrupted.
                outcome.error.__cause__ = _results.RemoteTraceback(str(details.get("traceback", "")))
            return outcome
        if (details.get("module"), details.get("type")) == ("sandtimer", "ResultTooLargeError"):
            return Outcome(ended, ending, error=ResultTooLargeError(str(details.get("message", ""))))
        with contextlib.suppress(binascii.Error, ValueError):
            details["pickled"] = base64.b64decode(pickled) if pickled else None
        return Outcome(ended, ending, error=_results.exception(details, *self._rebuild))

    # What else it can do

    def branch(self, n: int = 1, *, memory: Any = _UNSET, processes: Any = _UNSET) -> list[Context]:
        """Copies the context: variables, imports, the state of random numbers, and the files in its
        own directories.

        Nothing is shared: each branch has a sandbox of its own, and lives until it is closed.
        Limits that are not given are those of this context; None and 0 mean unlimited. The call
        waits for its turn, as runs do.

        Args:
            n: How many branches, from 1 to 64.
            memory: Memory of each branch, in bytes or as "512MB".
            processes: Number of processes of each branch.

        Raises:
            BranchRefusedError: A branch would differ from this context: it has threads, child
                processes, CUDA, or open files and sockets.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box, box.context() as ctx:
            ...     outcome = ctx.run("x = 40")
            ...     tries = ctx.branch(2)
            ...     [branch.run(f"x += {number}; x").value for number, branch in enumerate(tries)], ctx.run("x").value
            ([40, 41], 40)
        """
        self._check_usable()
        count = _arguments.count("n", n, 1)
        if count > _MAX_BRANCHES:
            raise InvalidArgumentError(f"n={n!r}: use a number from 1 to {_MAX_BRANCHES}")
        given = {"memory": memory, "processes": processes}
        chosen = {name: value for name, value in given.items() if value is not _UNSET}
        execution = self._native.branch(count, _arguments.limits(chosen))
        try:
            execution.wait()
        except BaseException:
            execution.withdraw()
            raise
        execution.ended()
        return [self._branched(native, chosen) for native in execution.made()]

    def _branched(self, native: Any, chosen: dict[str, Any]) -> Context:
        branch = Context.__new__(Context)
        branch._pool, branch._rebuild, branch._limits = self._pool, self._rebuild, {**self._limits, **chosen}
        branch._defaults = _defaults(branch._limits)
        branch._begin(native)
        self._pool.adopt_context(branch)
        return branch

    def undo(self) -> bool:
        """Restores the state before the last run that changed something. One run can be undone.

        The call waits for its turn, as runs do.

        Returns:
            False if that state no longer exists.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box, box.context() as ctx:
            ...     outcomes = ctx.run("x = 1"), ctx.run("x = 2")
            ...     ctx.undo(), ctx.run("x").value
            (True, 1)
        """
        self._check_usable()
        execution = self._native.undo()
        try:
            execution.wait()
        except BaseException:
            execution.withdraw()
            raise
        return bool(execution.ended()[1])

    def interrupt(self) -> bool:
        """Interrupts the active run, as Ctrl-C does: KeyboardInterrupt is raised in it.

        Returns:
            False if no run is active.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box, box.context() as ctx:
            ...     ctx.interrupt()
            False
        """
        self._check_process()
        return bool(self._native.interrupt())

    @property
    def info(self) -> ContextInfo:
        """The state of the context.

        If no run is active, it waits until the copy that follows the last run is made, or has
        failed.
        """
        self._check_process()
        executions, waiting, why_none, can_undo = self._native.info()
        return ContextInfo(executions, waiting, why_none is None, why_none, can_undo, self._lost)

    def close(self) -> None:
        """Ends the interpreter and all processes that it started.

        An active run is cancelled; runs that wait for their turn are rejected.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box:
            ...     ctx = box.context()
            ...     ctx.close()
        """
        if self._process == os.getpid():
            self._native.close()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise SandboxUnavailableError(
                "this context belongs to the process that opened it, and this one was forked from that: "
                "open another here with `Sandbox.context`"
            )

    def _check_usable(self) -> None:
        self._check_process()
        if threading.get_ident() in self._calling_back:
            raise SandboxUnavailableError("a callback cannot wait for its own context, which waits for the callback: do it afterwards")

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Context:
        return self

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __reduce__(self) -> Any:
        raise InvalidArgumentTypeError("a context belongs to the process that opened it: open another where it is needed")


async def _readable(loop: asyncio.AbstractEventLoop, descriptor: int, patience: Optional[float]) -> None:
    """Waits until a file is readable, or until `patience` seconds have passed."""
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    timer = None if patience is None else loop.call_later(patience, wake)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
        if timer is not None:
            timer.cancel()


def open_context(
    box: Any, language: str, environment: Optional[Mapping[str, str]], directory: Union[str, "os.PathLike[str]", None]
) -> Context:
    """A context with the limits, the profile and the trust of a sandbox."""
    if language not in LANGUAGES:
        known = ", ".join(f'"{name}"' for name in LANGUAGES)
        raise InvalidArgumentError(f"language={language!r}: a context can be of {known}")
    how = {"environment": _arguments.environment(environment), "directory": _arguments.directory(directory)}
    return Context(box._make_code_pool(), box._limits, (box._trust, box._results), how)
