"""Contexts and sessions of a server: live interpreters and live shells."""

from __future__ import annotations

import urllib.parse
import warnings
from typing import TYPE_CHECKING, Any

from . import _arguments
from ._arguments import flag
from ._client_files import ClientFiles
from ._client_request import BranchOptions, CellOptions, fields
from ._client_run import WAIT_MS, ClientRun, outcome_of
from ._client_wire import AWAITING, BLOCKING, Io, Server, now
from ._outcome import Outcome
from ._vocabulary import named_parameters
from .errors import ContextLostError, ServerError, ServerNotFoundError

if TYPE_CHECKING:
    from typing_extensions import Unpack

# How long one request waits for its turn, in milliseconds.
_TURN_MS = 240_000


@named_parameters
class ClientContext:
    """A live interpreter of a server's, or a live shell, by its `id`: what one run leaves, the next one finds.

    Made by `Client.context` and `Client.session`. It ends when it is closed, or unused for its `idle`. One run at a time,
    others wait in order. `files` are the files of its workspace. As a context manager it is closed.

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
        """Executes code (in a session: a command) and waits for its end. Never raises for what the code did.

        Options: timeout, cpu, stall, grace in seconds, output, result_bytes, stdin, warn, warn_signal, on_output_limit. Ctrl-C ends the run,
        and the context goes back to before it where it must.

        >>> import sandtimer
        >>> with sandtimer.Client().context() as ctx:
        ...     outcome = ctx.run("display([1]); 6 * 7", timeout=20.0)
        ...     print(outcome.value, outcome.results[0]["application/json"])
        42 [1]
        """
        return now(self._run(BLOCKING, code, options))

    async def arun(self, code: str, **options: Unpack[CellOptions]) -> Outcome:
        """As `run`, awaited. Cancelling the task ends the run."""
        return await self._run(AWAITING, code, options)

    async def _run(self, io: Io, code: str, options: CellOptions) -> Outcome:
        executed = await self._execute(io, code, options, {"wait_ms": WAIT_MS, "attached": True})
        if executed["outcome"] is not None:
            return outcome_of(executed["outcome"])
        return await self._begun(executed)._wait_or_cancel(io)

    def start(self, code: str, *, stdin_open: bool = False, **options: Unpack[CellOptions]) -> ClientRun:
        """Gives the run of code (in a session: of a command) once it has its turn, or after some minutes; it continues in the
        background.

        Its output and events can be read as they come. `stdin_open` keeps its stdin for `ClientRun.write` while it runs.

        >>> import sandtimer
        >>> with sandtimer.Client().session() as shell:
        ...     run = shell.start("cd /tmp; pwd", timeout=20.0)
        ...     print([chunk.text for chunk in run.output()], shell.run("pwd").stdout)
        ['/tmp\\n'] /tmp
        <BLANKLINE>
        """
        return now(self._start(BLOCKING, code, stdin_open, options))

    async def astart(self, code: str, *, stdin_open: bool = False, **options: Unpack[CellOptions]) -> ClientRun:
        """As `start`, awaited. Cancelling the task while it waits for its turn withdraws it."""
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
        """Makes `n` contexts (at most 64) that begin with all that this one is, each with a sandbox and files of its own.

        Options are limits: of each as a whole, of its runs, and its idle; this context's where nothing is said. A workspace that
        was named for this context is theirs as well. Only Python contexts can be branched.

        >>> import sandtimer
        >>> with sandtimer.Client().context() as ctx:
        ...     outcome = ctx.run("x = 40")
        ...     [branch.run(f"x + {number}").value for number, branch in enumerate(ctx.branch(2, timeout=20.0))]
        [40, 41]
        """
        return now(self._branch(BLOCKING, n, options))

    async def abranch(self, n: int = 1, **options: Unpack[BranchOptions]) -> list[ClientContext]:
        """As `branch`, awaited."""
        return await self._branch(AWAITING, n, options)

    async def _branch(self, io: Io, n: int, options: BranchOptions) -> list[ClientContext]:
        body = {**fields(options, BranchOptions), "count": n}
        # A session is a context whose language cannot be branched, which the server says.
        made = await self._server.ask(io, "POST", f"/v1/contexts/{urllib.parse.quote(self.id, safe='')}/branch", body)
        return [ClientContext(self._server, "contexts", context["context_id"]) for context in made["contexts"]]

    def undo(self) -> bool:
        """Goes back to before the last run that changed something; False where that state is not there any more."""
        return now(self._undo(BLOCKING))

    async def aundo(self) -> bool:
        """As `undo`, awaited."""
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
        """Interrupts the run that is on, as Ctrl-C does. False where none is."""
        return bool(now(self._ask(BLOCKING, "POST", "/interrupt", {}))["interrupted"])

    async def ainterrupt(self) -> bool:
        """As `interrupt`, awaited."""
        return bool((await self._ask(AWAITING, "POST", "/interrupt", {}))["interrupted"])

    def info(self) -> dict[str, Any]:
        """What is known of it now: `status`, `waiting`, `executions`, `checkpoint`, `can_undo`, `idle_left_ms`, …"""
        return now(self._ask(BLOCKING, "GET", ""))

    async def ainfo(self) -> dict[str, Any]:
        """As `info`, awaited."""
        return await self._ask(AWAITING, "GET", "")

    def close(self) -> None:
        """Ends it and all that it started. One that has ended already is no error."""
        now(self._close(BLOCKING))

    async def aclose(self) -> None:
        """As `close`, awaited."""
        await self._close(AWAITING)

    async def _close(self, io: Io) -> None:
        try:
            await self._ask(io, "DELETE", "")
        except ServerNotFoundError:
            pass

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
