"""A client of a Sandtimer server: each call blocks, or is awaited under its name with an `a` before it.

What a call does is written once, as a coroutine over a way to wait (`_client_wire`); the methods that callers see say
which. Nothing is kept between calls: a client can be shared by threads, tasks and forked processes.
"""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from ._arguments import flag, text
from ._choices import Language, RunStatus
from ._client_context import ClientContext
from ._client_files import ClientWorkspace
from ._client_request import ContextOptions, RunOptions, fields, program
from ._client_run import WAIT_MS, ClientRun, outcome_of
from ._client_wire import AWAITING, BLOCKING, Io, Server, now
from ._outcome import Outcome
from ._vocabulary import named_parameters

if TYPE_CHECKING:
    from typing_extensions import Unpack

Command = Union[str, Sequence[str], None]


@named_parameters
class Client:
    """A client of a server, as `sandtimer serve` starts one.

    url: where it is; SANDTIMER_SERVER, else http://127.0.0.1:7880. token: SANDTIMER_TOKEN, else none. Options are those of a
    `Sandbox`: durations in seconds, sizes in bytes or texts such as "512MB"; None and 0 mean unlimited, and what is not
    given is the server's. What is raised, but for options of a wrong type, is a `ServerError`.

    >>> import sandtimer
    >>> client = sandtimer.Client()
    >>> outcome = client.run(code="while True: pass", timeout=0.2)
    >>> outcome.ending, outcome.tree.survivors
    ('timeout', 0)
    """

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None) -> None:
        self._server = Server(url, token)

    # Runs

    def run(
        self, command: Command = None, *, code: Optional[str] = None, language: Language = "python", **options: Unpack[RunOptions]
    ) -> Outcome:
        """Runs a command (a list of words, or a line for a shell), or code, and waits for its end. Never raises for what it did.

        Options: timeout, cpu, stall, grace in seconds; memory, output, disk; processes, open_files; environment, directory, stdin,
        warn, on_output_limit ("drop" or "end"), stall_by ("output" or "progress"), progress_channel, warn_signal. Ctrl-C
        cancels it. What it raises, or a result too large, is `outcome.error`.

        >>> import sandtimer
        >>> outcome = sandtimer.Client().run(["sh", "-c", "echo hello; exit 3"], timeout=20.0, memory="256MB")
        >>> outcome.ending, outcome.exit_code, outcome.stdout
        ('exited', 3, 'hello\\n')
        """
        return now(self._run(BLOCKING, program(command, code, language), options))

    async def arun(
        self, command: Command = None, *, code: Optional[str] = None, language: Language = "python", **options: Unpack[RunOptions]
    ) -> Outcome:
        """As `run`, awaited. Cancelling the task cancels the run.

        >>> import asyncio, sandtimer
        >>> asyncio.run(sandtimer.Client().arun(code="print(6 * 7)", timeout=20.0)).stdout
        '42\\n'
        """
        return await self._run(AWAITING, program(command, code, language), options)

    async def _run(self, io: Io, asked: dict[str, Any], options: RunOptions) -> Outcome:
        body = {**asked, **fields(options, RunOptions), "wait_ms": WAIT_MS, "attached": True}
        # Whoever goes away here closes the connection, which cancels the run; later the server misses the waits.
        info = await self._server.ask(io, "POST", "/v1/runs", body)
        if info["outcome"] is not None:
            return outcome_of(info["outcome"])
        return await ClientRun(self._server, info["run_id"])._wait_or_cancel(io)

    def start(
        self,
        command: Command = None,
        *,
        code: Optional[str] = None,
        language: Language = "python",
        stdin_open: bool = False,
        **options: Unpack[RunOptions],
    ) -> ClientRun:
        """Starts a run in the background: it goes on until it ends or a limit ends it. `stdin_open` keeps stdin for `write`.

        >>> import sandtimer
        >>> run = sandtimer.Client().start("echo one; echo two >&2", timeout=20.0)
        >>> sorted((chunk.stream, chunk.text) for chunk in run.output())
        [('stderr', 'two\\n'), ('stdout', 'one\\n')]
        """
        return now(self._start(BLOCKING, program(command, code, language), stdin_open, options))

    async def astart(
        self,
        command: Command = None,
        *,
        code: Optional[str] = None,
        language: Language = "python",
        stdin_open: bool = False,
        **options: Unpack[RunOptions],
    ) -> ClientRun:
        """As `start`, awaited."""
        return await self._start(AWAITING, program(command, code, language), stdin_open, options)

    async def _start(self, io: Io, asked: dict[str, Any], stdin_open: bool, options: RunOptions) -> ClientRun:
        body = {**asked, **fields(options, RunOptions), "stdin_open": flag("stdin_open", stdin_open), "wait_ms": 0}
        return ClientRun(self._server, (await self._server.ask(io, "POST", "/v1/runs", body))["run_id"])

    def attach(self, id: str) -> ClientRun:
        """The run with this id, which is not looked for until something is asked of it."""
        return ClientRun(self._server, id)

    def runs(self, status: Optional[RunStatus] = None, limit: int = 100) -> list[dict[str, Any]]:
        """Your runs, the newest first; `status`: only the "running" or the "ended" ones."""
        return now(self._runs(BLOCKING, status, limit))

    async def aruns(self, status: Optional[RunStatus] = None, limit: int = 100) -> list[dict[str, Any]]:
        """As `runs`, awaited."""
        return await self._runs(AWAITING, status, limit)

    async def _runs(self, io: Io, status: Optional[RunStatus], limit: int) -> list[dict[str, Any]]:
        asked = {"limit": limit, **({} if status is None else {"status": status})}
        return await self._listed(io, f"/v1/runs?{urllib.parse.urlencode(asked)}", "runs")

    # Contexts and sessions

    def context(self, language: Language = "python", **options: Unpack[ContextOptions]) -> ClientContext:
        """Opens a live interpreter.

        Options are limits of the whole (memory, processes, disk, open_files), limits of each run that says nothing else
        (timeout, cpu, stall, grace, output, result_bytes), environment, directory, and `idle`: after how many seconds
        without use it ends.
        """
        return now(self._context(BLOCKING, "contexts", {"language": text("language", language)}, options))

    async def acontext(self, language: Language = "python", **options: Unpack[ContextOptions]) -> ClientContext:
        """As `context`, awaited.

        >>> import asyncio, sandtimer
        >>> async def main():
        ...     async with await sandtimer.Client().acontext(timeout=20.0) as ctx:
        ...         await ctx.arun("x = 40")
        ...         return (await ctx.arun("x + 2")).value
        >>> asyncio.run(main())
        42
        """
        return await self._context(AWAITING, "contexts", {"language": text("language", language)}, options)

    def session(self, **options: Unpack[ContextOptions]) -> ClientContext:
        """Opens a live shell, which keeps directory, variables, functions and options. Options as those of `context`."""
        return now(self._context(BLOCKING, "sessions", {}, options))

    async def asession(self, **options: Unpack[ContextOptions]) -> ClientContext:
        """As `session`, awaited."""
        return await self._context(AWAITING, "sessions", {}, options)

    async def _context(self, io: Io, kind: str, asked: dict[str, Any], options: ContextOptions) -> ClientContext:
        body = {**asked, **fields(options, ContextOptions)}
        return ClientContext(self._server, kind, (await self._server.ask(io, "POST", f"/v1/{kind}", body))["context_id"])

    def attach_context(self, id: str) -> ClientContext:
        """The context or session with this id, which is not looked for until something is asked of it."""
        return ClientContext(self._server, "contexts", id)

    def contexts(self) -> list[dict[str, Any]]:
        """Your contexts, sessions among them."""
        return now(self._listed(BLOCKING, "/v1/contexts", "contexts"))

    async def acontexts(self) -> list[dict[str, Any]]:
        """As `contexts`, awaited."""
        return await self._listed(AWAITING, "/v1/contexts", "contexts")

    def sessions(self) -> list[dict[str, Any]]:
        """Your sessions."""
        return now(self._listed(BLOCKING, "/v1/sessions", "contexts"))

    async def asessions(self) -> list[dict[str, Any]]:
        """As `sessions`, awaited."""
        return await self._listed(AWAITING, "/v1/sessions", "contexts")

    async def _listed(self, io: Io, path: str, key: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await self._server.ask(io, "GET", path))[key]
        return listed

    # Workspaces

    def workspace(self) -> ClientWorkspace:
        """Makes a directory that runs, contexts and sessions can work in (`workspace=`), and that outlives them.

        >>> import sandtimer
        >>> client = sandtimer.Client()
        >>> workspace = client.workspace()
        >>> written = workspace.files.write("greeting", "hello")
        >>> client.run("cat greeting", workspace=workspace, timeout=20.0).stdout
        'hello'
        >>> workspace.delete()
        """
        return now(self._workspace(BLOCKING))

    async def aworkspace(self) -> ClientWorkspace:
        """As `workspace`, awaited."""
        return await self._workspace(AWAITING)

    async def _workspace(self, io: Io) -> ClientWorkspace:
        return ClientWorkspace(self._server, (await self._server.ask(io, "POST", "/v1/workspaces", {}))["workspace_id"])

    def attach_workspace(self, id: str) -> ClientWorkspace:
        """The workspace with this id, which is not looked for until something is asked of it."""
        return ClientWorkspace(self._server, id)

    def workspaces(self) -> list[dict[str, Any]]:
        """Your workspaces, the oldest first."""
        return now(self._listed(BLOCKING, "/v1/workspaces", "workspaces"))

    async def aworkspaces(self) -> list[dict[str, Any]]:
        """As `workspaces`, awaited."""
        return await self._listed(AWAITING, "/v1/workspaces", "workspaces")

    # The server

    def host(self) -> dict[str, Any]:
        """What the server's machine can enforce: `tier`, `kill`, `layers` with what is missing and the remedy."""
        return now(self._told(BLOCKING, "/v1/host"))

    async def ahost(self) -> dict[str, Any]:
        """As `host`, awaited."""
        return await self._told(AWAITING, "/v1/host")

    def config(self) -> dict[str, Any]:
        """Every setting and default limit of the server, and where it comes from."""
        return now(self._told(BLOCKING, "/v1/config"))

    async def aconfig(self) -> dict[str, Any]:
        """As `config`, awaited."""
        return await self._told(AWAITING, "/v1/config")

    def health(self) -> dict[str, Any]:
        """Whether it is there; asks for no token."""
        return now(self._told(BLOCKING, "/healthz"))

    async def ahealth(self) -> dict[str, Any]:
        """As `health`, awaited."""
        return await self._told(AWAITING, "/healthz")

    async def _told(self, io: Io, path: str) -> dict[str, Any]:
        told: dict[str, Any] = await self._server.ask(io, "GET", path)
        return told

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept open between calls."""

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is kept open between calls."""

    def __repr__(self) -> str:
        return f"<Client of {self._server.url}>"
