"""Contexts and sessions of a server: live interpreters and live shells."""

from __future__ import annotations

import urllib.parse
import warnings
from typing import TYPE_CHECKING, Any

from .. import _arguments
from .._arguments import flag
from .._outcome import Outcome
from .._vocabulary import named_parameters
from ..errors import ContextLostError, ServerError, ServerNotFoundError
from ._files import ClientFiles
from ._io import AWAITING, BLOCKING, Io, now
from ._request import BranchOptions, CellOptions, fields
from ._run import WAIT_MS, ClientRun, outcome_of
from ._wire import Server

if TYPE_CHECKING:
    from typing_extensions import Unpack

# How long one request waits for its turn, in milliseconds.
_TURN_MS = 240_000


@named_parameters
class ClientContext:
    """A live interpreter of a server, or a live shell: each run has the state that the runs before it
    left.

    Made by `Client.context` and `Client.session`. It ends when it is closed, or after its `idle`
    time without use. Runs are executed one at a time, in the order of the calls. It is a context
    manager; at its end it is closed.

    Attributes:
        id: The id of the context or session.
        files: The files of its workspace, which it has as /workspace.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Client().context(timeout=20.0) as ctx:
        ...     outcome = ctx.run("x = 40")
        ...     outcome = ctx.run("x = 0; import os; os._exit(1)")
        ...     print(outcome.ending, outcome.state, ctx.run("x + 2").value)
        no_result rolled_back 42
    """

    def __init__(self, server: Server, kind: str, id: str) -> None:
        self.id = id
        self._server = server
        # Of what it works on, seen there as /workspace.
        self.files = ClientFiles(server, {"session" if kind == "sessions" else "context": id})
        self._path = f"/v1/{kind}/{urllib.parse.quote(_arguments.text('id', id), safe='')}"

    def run(self, code: str, **options: Unpack[CellOptions]) -> Outcome:
        """Executes code (in a session: a command), and waits for its end. Never raises for what the
        code did.

        Ctrl-C ends the run; the context is rolled back if that is necessary.

        Args:
            code: The code, or the command.
            **options: timeout, cpu, stall, grace in seconds; output, result_bytes in bytes; stdin;
                warn (seconds before the timeout), warn_signal; on_output_limit.

        Raises:
            ServerError: The server rejected the request, or did not answer.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     outcome = ctx.run("display([1]); 6 * 7", timeout=20.0)
            ...     print(outcome.value, outcome.results[0]["application/json"])
            42 [1]
        """
        return now(self._run(BLOCKING, code, options))

    async def arun(self, code: str, **options: Unpack[CellOptions]) -> Outcome:
        """Awaited form of `run`. Cancelling the task ends the run."""
        return await self._run(AWAITING, code, options)

    async def _run(self, io: Io, code: str, options: CellOptions) -> Outcome:
        executed = await self._execute(io, code, options, {"wait_ms": WAIT_MS, "attached": True})
        if executed["outcome"] is not None:
            return outcome_of(executed["outcome"])
        return await self._begun(executed)._wait_or_cancel(io)

    def start(self, code: str, *, stdin_open: bool = False, **options: Unpack[CellOptions]) -> ClientRun:
        r"""Starts the execution of code (in a session: of a command), and returns its run.

        The call returns when the run has its turn, or after some minutes; the run continues in the
        background.

        Args:
            code: The code, or the command.
            stdin_open: Whether stdin stays open for `ClientRun.write`.
            **options: As for `run`.

        Raises:
            ServerError: The server rejected the request, or did not answer.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().session() as shell:
            ...     run = shell.start("cd /tmp; pwd", timeout=20.0)
            ...     print([chunk.text for chunk in run.output()], shell.run("pwd").stdout)
            ['/tmp\n'] /tmp
            <BLANKLINE>
        """
        return now(self._start(BLOCKING, code, stdin_open, options))

    async def astart(self, code: str, *, stdin_open: bool = False, **options: Unpack[CellOptions]) -> ClientRun:
        """Awaited form of `start`. Cancelling the task before the run has its turn withdraws the run.
        """
        return await self._start(AWAITING, code, stdin_open, options)

    async def _start(self, io: Io, code: str, stdin_open: bool, options: CellOptions) -> ClientRun:
        waiting = {"wait_ms": 0, "stdin_open": flag("stdin_open", stdin_open)}
        return self._begun(await self._execute(io, code, options, waiting))

    async def _execute(self, io: Io, code: str, options: CellOptions, waiting: dict[str, Any]) -> dict[str, Any]:
        body = {"code": _arguments.text("code", code), **fields(options, CellOptions)}
        executed = await self._ask(io, "POST", "/execute", {**body, **waiting, "turn_ms": _TURN_MS})
        for note in executed["notes"]:
            # At the caller's line: `now` is one more step on the way there.
            warnings.warn(note, ContextLostError, stacklevel=5 if io is BLOCKING else 4)
        return executed

    def _begun(self, executed: dict[str, Any]) -> ClientRun:
        return ClientRun(self._server, executed["run_id"])

    def branch(self, n: int = 1, **options: Unpack[BranchOptions]) -> list[ClientContext]:
        """Makes copies of the context, each with a sandbox and files of its own. Only Python contexts
        can be branched.

        A workspace that was named for this context is shared by the branches.

        Args:
            n: How many branches, from 1 to 64.
            **options: Limits of each branch as a whole, limits of its runs, and idle; those of this
                context if they are not given.

        Raises:
            ServerError: The server rejected the request, or did not answer.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     outcome = ctx.run("x = 40")
            ...     [branch.run(f"x + {number}").value for number, branch in enumerate(ctx.branch(2, timeout=20.0))]
            [40, 41]
        """
        return now(self._branch(BLOCKING, n, options))

    async def abranch(self, n: int = 1, **options: Unpack[BranchOptions]) -> list[ClientContext]:
        """Awaited form of `branch`."""
        return await self._branch(AWAITING, n, options)

    async def _branch(self, io: Io, n: int, options: BranchOptions) -> list[ClientContext]:
        body = {**fields(options, BranchOptions), "count": n}
        # A session is a context whose language cannot be branched, which the server reports.
        made = await self._server.ask(io, "POST", f"/v1/contexts/{urllib.parse.quote(self.id, safe='')}/branch", body)
        return [ClientContext(self._server, "contexts", context["context_id"]) for context in made["contexts"]]

    def undo(self) -> bool:
        """Restores the state before the last run that changed something.

        Returns:
            False if that state no longer exists.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context(timeout=20.0) as ctx:
            ...     outcomes = ctx.run("x = 1"), ctx.run("x = 2")
            ...     ctx.undo(), ctx.run("x").value
            (True, 1)
        """
        return now(self._undo(BLOCKING))

    async def aundo(self) -> bool:
        """Awaited form of `undo`."""
        return await self._undo(AWAITING)

    async def _undo(self, io: Io) -> bool:
        try:
            await self._ask(io, "POST", "/undo", {})
        except ServerError as error:
            if error.code != "nothing_to_undo":
                raise
            return False
        return True

    def interrupt(self) -> bool:
        """Interrupts the active run, as Ctrl-C does.

        Returns:
            False if no run is active.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     ctx.interrupt()
            False
        """
        return bool(now(self._ask(BLOCKING, "POST", "/interrupt", {}))["interrupted"])

    async def ainterrupt(self) -> bool:
        """Awaited form of `interrupt`."""
        return bool((await self._ask(AWAITING, "POST", "/interrupt", {}))["interrupted"])

    def info(self) -> dict[str, Any]:
        """Returns the state of the context: `status`, `waiting`, `executions`, `checkpoint`,
        `can_undo`, `idle_left_ms` and more.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     ctx.info()["executions"]
            0
        """
        return now(self._ask(BLOCKING, "GET", ""))

    async def ainfo(self) -> dict[str, Any]:
        """Awaited form of `info`."""
        return await self._ask(AWAITING, "GET", "")

    def close(self) -> None:
        """Ends the context and all processes that it started. If it has ended already, the call has no
        effect.

        Examples:
            >>> import sandtimer
            >>> ctx = sandtimer.Client().context()
            >>> ctx.close()
        """
        now(self._close(BLOCKING))

    async def aclose(self) -> None:
        """Awaited form of `close`."""
        await self._close(AWAITING)

    async def _close(self, io: Io) -> None:
        try:
            await self._ask(io, "DELETE", "")
        except ServerError as error:
            # The latter if it has ended with its sandbox or its server.
            if not isinstance(error, ServerNotFoundError) and error.code != "context_ended":
                raise

    async def _ask(self, io: Io, method: str, what: str, body: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = await self._server.ask(io, method, self._path + what, body)
        return answer

    def __enter__(self) -> ClientContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> ClientContext:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<ClientContext {self.id}>"
