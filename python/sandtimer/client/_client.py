"""A client of a Sandtimer server: each call blocks, or is awaited under its name with an `a` before
it.

Each call is written once, as a coroutine over a way to wait (`_wire`); the public methods
choose the way. A client keeps only which server it uses: threads, tasks and forked processes can
share it.
"""

from __future__ import annotations

import os
import stat
import urllib.parse
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from .._arguments import encoded, flag, text
from .._choices import Language, RunStatus, Seconds
from .._outcome import Outcome
from .._vocabulary import named_parameters
from ..errors import ServerNotFoundError
from . import _judge
from ._context import ClientContext
from ._files import ClientWorkspace
from ._request import ContextOptions, JudgeOptions, RunOptions, count, fields, milliseconds, program, size
from ._run import WAIT_MS, ClientRun, outcome_of
from ._sandbox import ClientSandbox
from ._wire import AWAITING, BLOCKING, FileBody, Io, Server, now

if TYPE_CHECKING:
    from typing_extensions import Unpack

Command = Union[str, Sequence[str], None]
# How long unpacking an archive may take.
UNPACK_SECONDS = 600.0


@named_parameters
class Client:
    """A client of a server: one that `sandtimer serve` has started, or the user's own.

    Options have the names and units of `Sandbox`: durations in seconds, sizes in bytes or as
    "512MB"; None and 0 mean unlimited, and the server has the defaults. All exceptions but those
    for options of a wrong type are `ServerError`s. Each method that waits has an awaited form with
    an `a` before its name.

    Args:
        url: The address of the server. None: SANDTIMER_SERVER, else http://127.0.0.1:7880 if a
            server answers there, else the server of this user, as for `sandtimer mcp`. That one is
            started if it is not running, and ends 60 s after its last use.
        token: The token; None for SANDTIMER_TOKEN, else none.

    Examples:
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
        r"""Runs a command or code, and waits for its end. Never raises for what it did.

        Ctrl-C cancels the run. `outcome.error` has what the run raised, also if its result is too
        large.

        Args:
            command: A list of words, or a line for a shell.
            code: Code to be run instead of a command.
            language: The language of the code: "python", "javascript", "typescript" or "bash".
            **options: Limits (timeout, cpu, stall, grace in seconds; memory, output, disk in bytes;
                processes, open_files), environment, directory, network (True gives it the host's),
                workspace, stdin, warn (seconds before the timeout), warn_signal, on_output_limit
                ("drop" or "end"), stall_by ("output" or "progress"), progress_channel.

        Raises:
            ServerError: The server rejected the request, or did not answer.
            InvalidArgumentTypeError: Neither a command nor code was given, or both, or an unknown
                option.

        Examples:
            >>> import sandtimer
            >>> outcome = sandtimer.Client().run(["sh", "-c", "echo hello; exit 3"], timeout=20.0, memory="256MB")
            >>> outcome.ending, outcome.exit_code, outcome.stdout
            ('exited', 3, 'hello\n')
        """
        return now(self._run(BLOCKING, program(command, code, language), options))

    async def arun(
        self, command: Command = None, *, code: Optional[str] = None, language: Language = "python", **options: Unpack[RunOptions]
    ) -> Outcome:
        r"""Awaited form of `run`. Cancelling the task cancels the run.

        Examples:
            >>> import asyncio, sandtimer
            >>> asyncio.run(sandtimer.Client().arun(code="print(6 * 7)", timeout=20.0)).stdout
            '42\n'
        """
        return await self._run(AWAITING, program(command, code, language), options)

    async def _run(self, io: Io, asked: dict[str, Any], options: RunOptions) -> Outcome:
        body = {**asked, **fields(options, RunOptions), "wait_ms": WAIT_MS, "attached": True}
        # A client that ends closes the connection, which cancels the run; later the server misses the waits.
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
        r"""Starts a run in the background. It continues until it ends or a limit ends it.

        Args:
            command: A list of words, or a line for a shell.
            code: Code to be run instead of a command.
            language: The language of the code: "python", "javascript", "typescript" or "bash".
            stdin_open: Whether stdin stays open for `ClientRun.write`.
            **options: As for `run`.

        Raises:
            ServerError: The server rejected the request, or did not answer.

        Examples:
            >>> import sandtimer
            >>> run = sandtimer.Client().start("echo one; echo two >&2", timeout=20.0)
            >>> sorted((chunk.stream, chunk.text) for chunk in run.output())
            [('stderr', 'two\n'), ('stdout', 'one\n')]
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
        """Awaited form of `start`."""
        return await self._start(AWAITING, program(command, code, language), stdin_open, options)

    async def _start(self, io: Io, asked: dict[str, Any], stdin_open: bool, options: RunOptions) -> ClientRun:
        body = {**asked, **fields(options, RunOptions), "stdin_open": flag("stdin_open", stdin_open), "wait_ms": 0}
        return ClientRun(self._server, (await self._server.ask(io, "POST", "/v1/runs", body))["run_id"])

    def attach(self, id: str) -> ClientRun:
        """Returns the run with this id, without a request: an unknown id is noticed by the first use.

        Args:
            id: The id of the run.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> run = client.start(["true"], timeout=20.0)
            >>> client.attach(run.id).wait().exit_code
            0
        """
        return ClientRun(self._server, id)

    def runs(self, status: Optional[RunStatus] = None, limit: int = 100) -> list[dict[str, Any]]:
        """Returns the runs of this token, the newest first.

        Args:
            status: "running" or "ended"; None for both.
            limit: How many at most.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> outcome = client.run(["true"], timeout=20.0)
            >>> outcome.run_id in [run["run_id"] for run in client.runs("ended")]
            True
        """
        return now(self._runs(BLOCKING, status, limit))

    async def aruns(self, status: Optional[RunStatus] = None, limit: int = 100) -> list[dict[str, Any]]:
        """Awaited form of `runs`."""
        return await self._runs(AWAITING, status, limit)

    async def _runs(self, io: Io, status: Optional[RunStatus], limit: int) -> list[dict[str, Any]]:
        asked = {"limit": limit, **({} if status is None else {"status": status})}
        return await self._listed(io, f"/v1/runs?{urllib.parse.urlencode(asked)}", "runs")

    # Judging

    def judge(
        self,
        program: str,
        cases: Iterable[Any],
        *,
        language: str = "python",
        checker: Optional[_judge.Checker] = None,
        total: Seconds = None,
        stop_early: bool = False,
        **options: Unpack[JudgeOptions],
    ) -> _judge.ClientJudgement:
        """Runs a program on each case, and compares what it prints with what is expected.

        Each case is a run of its own. What is expected is sent to the server, which compares, and
        never enters a run.

        Args:
            program: The source of the program.
            cases: The cases, at most 1000: tuples `(stdin, expected stdout)`, or dictionaries with
                those names, "stdin" and "expected".
            language: The language of the program: "python", "javascript", "typescript" or "bash", and those
                that the server's host has of "c", "cpp", "go", "java", "lua", "perl", "php", "r",
                "ruby" and "rust". Programs in these languages are compiled once for all cases.
            checker: A function `checker(case, outcome)` that returns True, False or a score, called
                here for runs that exited with 0. None: programs must print the same words on the
                same lines.
            total: Seconds of all cases; those that have not begun by then are "not_run".
            stop_early: Whether to stop at the first case, in their order, that is not accepted.
            **options: Limits of each case (timeout, cpu, stall in seconds; memory, output, disk in
                bytes; processes, open_files).

        Raises:
            ServerError: The server rejected the request, or did not answer.
            InvalidArgumentTypeError: A case is malformed, or an option is unknown.

        Examples:
            >>> import sandtimer
            >>> judgement = sandtimer.Client().judge("print(int(input()) ** 2)", [("3", "9"), ("4", "15")], timeout=20.0)
            >>> judgement.verdicts, judgement.score
            (['accepted', 'wrong_answer'], 0.5)
        """
        return now(_judge.judge(self._server, BLOCKING, program, cases, language, checker, total, stop_early, options))

    async def ajudge(
        self,
        program: str,
        cases: Iterable[Any],
        *,
        language: str = "python",
        checker: Optional[_judge.Checker] = None,
        total: Seconds = None,
        stop_early: bool = False,
        **options: Unpack[JudgeOptions],
    ) -> _judge.ClientJudgement:
        """Awaited form of `judge`. Cancelling the task cancels the runs.

        Examples:
            >>> import asyncio, sandtimer
            >>> asyncio.run(sandtimer.Client().ajudge("print(9)", [("", "9")], timeout=20.0)).passed
            True
        """
        return await _judge.judge(self._server, AWAITING, program, cases, language, checker, total, stop_early, options)

    # Contexts and sessions

    def context(self, language: Language = "python", **options: Unpack[ContextOptions]) -> ClientContext:
        """Opens a live interpreter.

        Args:
            language: Its language: "python", "javascript", "typescript" or "bash".
            **options: Limits of the context as a whole (memory, processes, disk, open_files),
                limits of each run that has none of its own (timeout, cpu, stall, grace, output,
                result_bytes), environment, directory, network (True gives it the host's), workspace,
                sandbox (a `ClientSandbox`, or its id, whose files it has), and idle: seconds without
                use after which it ends.

        Raises:
            ServerError: The server rejected the request, or did not answer.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context(timeout=20.0, idle=60.0) as ctx:
            ...     outcome = ctx.run("x = 40")
            ...     ctx.run("x + 2").value
            42
        """
        return now(self._context(BLOCKING, "contexts", {"language": text("language", language)}, options))

    async def acontext(self, language: Language = "python", **options: Unpack[ContextOptions]) -> ClientContext:
        """Awaited form of `context`.

        Examples:
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
        r"""Opens a live shell, which retains its directory, variables, functions and options.

        Args:
            **options: As for `context`.

        Raises:
            ServerError: The server rejected the request, or did not answer.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().session(timeout=20.0) as shell:
            ...     outcome = shell.run("cd /tmp; x=1")
            ...     shell.run("pwd; echo $x").stdout
            '/tmp\n1\n'
        """
        return now(self._context(BLOCKING, "sessions", {}, options))

    async def asession(self, **options: Unpack[ContextOptions]) -> ClientContext:
        """Awaited form of `session`."""
        return await self._context(AWAITING, "sessions", {}, options)

    async def _context(self, io: Io, kind: str, asked: dict[str, Any], options: ContextOptions) -> ClientContext:
        body = {**asked, **fields(options, ContextOptions)}
        return ClientContext(self._server, kind, (await self._server.ask(io, "POST", f"/v1/{kind}", body))["context_id"])

    def attach_context(self, id: str) -> ClientContext:
        """Returns the context or session with this id, without a request: an unknown id is noticed by
        the first use.

        Args:
            id: The id of the context or session.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> with client.context(timeout=20.0) as ctx:
            ...     client.attach_context(ctx.id).run("6 * 7").value
            42
        """
        return ClientContext(self._server, "contexts", id)

    def contexts(self) -> list[dict[str, Any]]:
        """Returns the contexts of this token, including sessions.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> with client.context() as ctx:
            ...     ctx.id in [each["context_id"] for each in client.contexts()]
            True
        """
        return now(self._listed(BLOCKING, "/v1/contexts", "contexts"))

    async def acontexts(self) -> list[dict[str, Any]]:
        """Awaited form of `contexts`."""
        return await self._listed(AWAITING, "/v1/contexts", "contexts")

    def sessions(self) -> list[dict[str, Any]]:
        """Returns the sessions of this token.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> with client.session() as shell:
            ...     shell.id in [each["context_id"] for each in client.sessions()]
            True
        """
        return now(self._listed(BLOCKING, "/v1/sessions", "contexts"))

    async def asessions(self) -> list[dict[str, Any]]:
        """Awaited form of `sessions`."""
        return await self._listed(AWAITING, "/v1/sessions", "contexts")

    async def _listed(self, io: Io, path: str, key: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await self._server.ask(io, "GET", path))[key]
        return listed

    # Sandboxes

    def sandbox(
        self,
        template: str = "host",
        *,
        network: Union[str, Sequence[str]] = "none",
        timeout: Optional[float] = None,
        idle: Optional[float] = None,
        memory: Union[int, str, None] = None,
        processes: Optional[int] = None,
    ) -> ClientSandbox:
        """Makes a sandbox: a private file system in which many runs work, and which outlives them.

        Args:
            template: What it is made from: "host", the programs of the server's host, or another
                one of `templates`.
            network: What all that runs in it can reach outside: "none", "host" for the host's
                network, or hosts such as `["pypi.org", "*.example.com:443", "10.1.0.0/16:5432"]`,
                which its programs reach by a proxy.
            timeout: Seconds after which it ends, pauses not counted: what runs in it ends, and it is
                deleted. None or 0: no limit.
            idle: Seconds without use after which it is deleted; runs, live contexts and sessions are
                use, and so is work with its files. None or 0: no limit.
            memory: Memory of all its runs, contexts and sessions together, in bytes or as "2GB"; each
                has its own limit as well. None or 0: no limit.
            processes: Processes and threads of all of them together, at once. None or 0: no limit.

        Raises:
            ServerNotFoundError: The server has no such template.
            ServerError: The server's host cannot give it, an entry of `network` is not a host, the
                token does not allow the network, or the disk is full.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     outcome = box.run("echo 42 >answer", timeout=20.0)
            ...     box.run("cat answer", timeout=20.0).stdout
            '42\\n'
        """
        return now(self._sandbox(BLOCKING, template, network, timeout, idle, memory, processes))

    async def asandbox(
        self,
        template: str = "host",
        *,
        network: Union[str, Sequence[str]] = "none",
        timeout: Optional[float] = None,
        idle: Optional[float] = None,
        memory: Union[int, str, None] = None,
        processes: Optional[int] = None,
    ) -> ClientSandbox:
        """Awaited form of `sandbox`."""
        return await self._sandbox(AWAITING, template, network, timeout, idle, memory, processes)

    async def _sandbox(
        self,
        io: Io,
        template: str,
        network: Union[str, Sequence[str]],
        timeout: Optional[float],
        idle: Optional[float],
        memory: Union[int, str, None],
        processes: Optional[int],
    ) -> ClientSandbox:
        body = {
            "template": text("template", template),
            "network": network if isinstance(network, str) else list(network),
            "wall_ms": milliseconds("timeout", timeout),
            "idle_ms": milliseconds("idle", idle),
            "memory_bytes": size("memory", memory),
            "processes": count("processes", processes),
        }
        made = await self._server.ask(io, "POST", "/v1/sandboxes", body)
        return ClientSandbox(self._server, made["sandbox_id"])

    def attach_sandbox(self, id: str) -> ClientSandbox:
        """Returns the sandbox with this id, without a request: an unknown id is noticed by the first
        use.

        Args:
            id: The id of the sandbox.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> box = client.attach_sandbox(client.sandbox().id)
            >>> box.delete()
        """
        return ClientSandbox(self._server, id)

    def sandboxes(self) -> list[dict[str, Any]]:
        """Returns the sandboxes of this token, the oldest first.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> with client.sandbox() as box:
            ...     box.id in [each["sandbox_id"] for each in client.sandboxes()]
            True
        """
        return now(self._listed(BLOCKING, "/v1/sandboxes", "sandboxes"))

    async def asandboxes(self) -> list[dict[str, Any]]:
        """Awaited form of `sandboxes`."""
        return await self._listed(AWAITING, "/v1/sandboxes", "sandboxes")

    def templates(self) -> list[dict[str, Any]]:
        """Returns what sandboxes can be made from: the server's templates, then those of this token, the
        oldest first.

        Examples:
            >>> import sandtimer
            >>> sandtimer.Client().templates()[0]["name"]
            'host'
        """
        return now(self._listed(BLOCKING, "/v1/templates", "templates"))

    async def atemplates(self) -> list[dict[str, Any]]:
        """Awaited form of `templates`."""
        return await self._listed(AWAITING, "/v1/templates", "templates")

    def import_template(self, name: str, archive: Union[bytes, str, "os.PathLike[str]"]) -> dict[str, Any]:
        """Makes a template of a tar archive that has a root tree, and returns what `templates` lists of it.
        All files belong to the sandbox's user; devices, FIFOs, set-id bits and extended attributes
        are left out (`left_out` counts devices and FIFOs).

        Args:
            name: What the template is called.
            archive: The path of the archive, or its bytes; it may be compressed with gzip or zstd.

        Raises:
            ServerError: The archive cannot be unpacked, or there is a template of this name.

        Examples:
            >>> import io, sandtimer, tarfile
            >>> content = io.BytesIO()
            >>> with tarfile.open(fileobj=content, mode="w:gz") as archive:
            ...     archive.addfile(tarfile.TarInfo("etc/motd"))
            >>> client = sandtimer.Client()
            >>> client.import_template("motd", content.getvalue())["members"]
            1
            >>> client.delete_template("motd")
        """
        return now(self._import_template(BLOCKING, name, archive))

    async def aimport_template(self, name: str, archive: Union[bytes, str, "os.PathLike[str]"]) -> dict[str, Any]:
        """Awaited form of `import_template`."""
        return await self._import_template(AWAITING, name, archive)

    async def _import_template(self, io: Io, name: str, archive: Union[bytes, str, "os.PathLike[str]"]) -> dict[str, Any]:
        if not isinstance(archive, (str, os.PathLike)):
            return await self._send_template(io, name, encoded("archive", archive))
        with open(archive, "rb") as file:
            # A pipe has no size, which is sent first.
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return await self._send_template(io, name, FileBody(file) if is_regular else file.read())

    async def _send_template(self, io: Io, name: str, body: Union[bytes, FileBody]) -> dict[str, Any]:
        path = f"/v1/templates?name={urllib.parse.quote(text('name', name), safe='')}"
        made: dict[str, Any] = await self._server.ask(io, "POST", path, body, UNPACK_SECONDS)
        return made

    def delete_template(self, name: str) -> None:
        """Deletes a template of this token. Sandboxes that were made from it keep its files. If it was
        deleted already, the call has no effect.

        Args:
            name: The name of the template, or its id.

        Raises:
            ServerError: It is the server's.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> with client.sandbox() as box:
            ...     client.delete_template(box.snapshot())
        """
        now(self._delete_template(BLOCKING, name))

    async def adelete_template(self, name: str) -> None:
        """Awaited form of `delete_template`."""
        await self._delete_template(AWAITING, name)

    async def _delete_template(self, io: Io, name: str) -> None:
        path = urllib.parse.quote(text("name", name), safe="")
        try:
            await self._server.ask(io, "DELETE", f"/v1/templates/{path}")
        except ServerNotFoundError:
            pass

    # Workspaces

    def workspace(self) -> ClientWorkspace:
        """Makes a directory that runs, contexts and sessions can work in (`workspace=`), and that
        outlives them.

        Examples:
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
        """Awaited form of `workspace`."""
        return await self._workspace(AWAITING)

    async def _workspace(self, io: Io) -> ClientWorkspace:
        return ClientWorkspace(self._server, (await self._server.ask(io, "POST", "/v1/workspaces", {}))["workspace_id"])

    def attach_workspace(self, id: str) -> ClientWorkspace:
        """Returns the workspace with this id, without a request: an unknown id is noticed by the first
        use.

        Args:
            id: The id of the workspace.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> workspace = client.attach_workspace(client.workspace().id)
            >>> workspace.delete()
        """
        return ClientWorkspace(self._server, id)

    def workspaces(self) -> list[dict[str, Any]]:
        """Returns the workspaces of this token, the oldest first.

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> workspace = client.workspace()
            >>> workspace.id in [each["workspace_id"] for each in client.workspaces()]
            True
            >>> workspace.delete()
        """
        return now(self._listed(BLOCKING, "/v1/workspaces", "workspaces"))

    async def aworkspaces(self) -> list[dict[str, Any]]:
        """Awaited form of `workspaces`."""
        return await self._listed(AWAITING, "/v1/workspaces", "workspaces")

    # The server

    def host(self) -> dict[str, Any]:
        """Returns what the machine of the server can enforce.

        Returns:
            A dictionary: `tier`, `kill`, and `layers` with what is missing and the remedy.

        Examples:
            >>> import sandtimer
            >>> sandtimer.Client().host()["tier"] in ("T0", "T1", "T2", "T3")
            True
        """
        return now(self._facts(BLOCKING, "/v1/host"))

    async def ahost(self) -> dict[str, Any]:
        """Awaited form of `host`."""
        return await self._facts(AWAITING, "/v1/host")

    def config(self) -> dict[str, Any]:
        """Returns every setting and default limit of the server, each with its source.

        Examples:
            >>> import sandtimer
            >>> isinstance(sandtimer.Client().config(), dict)
            True
        """
        return now(self._facts(BLOCKING, "/v1/config"))

    async def aconfig(self) -> dict[str, Any]:
        """Awaited form of `config`."""
        return await self._facts(AWAITING, "/v1/config")

    def health(self) -> dict[str, Any]:
        """Returns the state of the server. Needs no token.

        Examples:
            >>> import sandtimer
            >>> sandtimer.Client().health()["status"]
            'ok'
        """
        return now(self._facts(BLOCKING, "/healthz"))

    async def ahealth(self) -> dict[str, Any]:
        """Awaited form of `health`."""
        return await self._facts(AWAITING, "/healthz")

    async def _facts(self, io: Io, path: str) -> dict[str, Any]:
        facts: dict[str, Any] = await self._server.ask(io, "GET", path)
        return facts

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
