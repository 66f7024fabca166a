"""Sandboxes of a server: file systems in which many runs work, and which outlive them."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any, AsyncGenerator, AsyncIterator, Iterator, Optional, Sequence, Union

from .. import _arguments
from .._arguments import flag
from .._choices import Language
from .._outcome import Outcome
from .._vocabulary import named_parameters
from ..errors import ServerError, ServerNotFoundError
from ._files import ClientFiles
from ._io import AWAITING, BLOCKING, Io, iterate, now
from ._rejections import server_error
from ._request import RunOptions, fields, milliseconds, program
from ._run import WAIT_MS, ClientRun, outcome_of
from ._wire import Server

if TYPE_CHECKING:
    from typing_extensions import Unpack

Command = Union[str, Sequence[str], None]
# The most changes that the server lists.
_MAX_CHANGES = 100_000


@named_parameters
class ClientSandbox:
    r"""A sandbox of a server: a private file system with a user, in which commands run one after the
    other or at the same time, each under its own limits.

    Made by `Client.sandbox`. `/tmp`, `/home/user`, `/workspace` and `/var` last until it is
    deleted or reaches its `timeout` or `idle` limit, also over a restart of the server. It is a context
    manager; at its end it is deleted.

    Attributes:
        id: The id of the sandbox.
        files: All of its files, as its user: paths are absolute, or below /workspace.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Client().sandbox() as box:
        ...     outcome = box.run("echo kept >/home/user/file", timeout=20.0)
        ...     print(box.run("cat ~/file; id -un", timeout=20.0).stdout)
        kept
        user
        <BLANKLINE>
    """

    def __init__(self, server: Server, id: str) -> None:
        self.id = id
        self.files = ClientFiles(server, {"sandbox": id})
        self._server = server
        self._path = f"/v1/sandboxes/{urllib.parse.quote(_arguments.text('id', id), safe='')}"

    def run(
        self, command: Command = None, *, code: Optional[str] = None, language: Language = "python", **options: Unpack[RunOptions]
    ) -> Outcome:
        r"""Runs a command or code in the sandbox, and waits for its end. Never raises for what it did.

        Args:
            command: A list of words, or a line for a shell.
            code: Code to be run instead of a command.
            language: The language of the code: "python", "javascript", "typescript" or "bash".
            **options: As for `Client.run`, without workspace.

        Raises:
            ServerError: The server rejected the request, or did not answer.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     outcome = box.run("touch a; while :; do :; done", timeout=0.3)
            ...     print(outcome.ending, box.run(["ls"], timeout=20.0).stdout)
            timeout a
            <BLANKLINE>
        """
        return now(self._run(BLOCKING, program(command, code, language), options))

    async def arun(
        self, command: Command = None, *, code: Optional[str] = None, language: Language = "python", **options: Unpack[RunOptions]
    ) -> Outcome:
        """Awaited form of `run`. Cancelling the task cancels the run."""
        return await self._run(AWAITING, program(command, code, language), options)

    async def _run(self, io: Io, asked: dict[str, Any], options: RunOptions) -> Outcome:
        body = {**asked, **fields(options, RunOptions), "wait_ms": WAIT_MS, "attached": True}
        info = await self._ask(io, "POST", "/exec", body)
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
        r"""Starts a run in the sandbox, in the background. Deleting the sandbox ends it.

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
            >>> with sandtimer.Client().sandbox() as box:
            ...     run = box.start("sleep 60")
            ...     box.info()["runs"]
            1
            >>> run.wait().ending
            'cancelled'
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
        return ClientRun(self._server, (await self._ask(io, "POST", "/exec", body))["run_id"])

    def info(self) -> dict[str, Any]:
        """Returns its state, as the server sends it: `template`, `layers`, `network`,
        `created_at_ms`, `durability`, how many `runs` are in it now, whether it is `paused`,
        `idle_left_ms`, `wall_left_ms`, `memory_used_bytes`, `processes_used` and more.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     box.info()["template"]
            'host'
        """
        return now(self._ask(BLOCKING, "GET", ""))

    async def ainfo(self) -> dict[str, Any]:
        """Awaited form of `info`."""
        return await self._ask(AWAITING, "GET", "")

    def ports(self) -> list[dict[str, Any]]:
        """Returns the ports that something in it listens on, the lowest first: `port`, and the
        `addresses` of its sockets.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     box.ports()
            []
        """
        return now(self._ports(BLOCKING))

    async def aports(self) -> list[dict[str, Any]]:
        """Awaited form of `ports`."""
        return await self._ports(AWAITING)

    async def _ports(self, io: Io) -> list[dict[str, Any]]:
        ports: list[dict[str, Any]] = (await self._ask(io, "GET", "/ports"))["ports"]
        return ports

    def wait_for_port(self, port: int, *, timeout: float = 30.0) -> bool:
        """Waits until something in it listens on a port, and returns whether that is so.

        Args:
            port: The port, from 1 to 65535.
            timeout: Seconds after which False is returned.

        Raises:
            ServerError: It is not a port, or the sandbox has the host's network.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     run = box.start(["python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"])
            ...     box.wait_for_port(8000)
            True
        """
        return now(self._wait_for_port(BLOCKING, port, timeout))

    async def await_for_port(self, port: int, *, timeout: float = 30.0) -> bool:
        """Awaited form of `wait_for_port`."""
        return await self._wait_for_port(AWAITING, port, timeout)

    async def _wait_for_port(self, io: Io, port: int, timeout: float) -> bool:
        wait_ms = max(0, round(timeout * 1000))
        listening: bool = (await self._ask(io, "GET", f"/ports?port={port}&wait_ms={wait_ms}"))["listening"]
        return listening

    def expose(self, port: int, *, lifetime: float = 3600.0) -> str:
        """Returns a URL of a port that needs no token until its time has passed, or the server is started
        again.

        Args:
            port: The port, from 1 to 65535. Nothing has to listen on it yet.
            lifetime: Seconds for which the URL is valid, at most 30 days.

        Raises:
            ServerError: It is not a port, or the sandbox has the host's network.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     box.expose(8000).startswith(f"http://8000-{box.id}.localhost")
            True
        """
        return now(self._expose(BLOCKING, port, lifetime))

    async def aexpose(self, port: int, *, lifetime: float = 3600.0) -> str:
        """Awaited form of `expose`."""
        return await self._expose(AWAITING, port, lifetime)

    async def _expose(self, io: Io, port: int, lifetime: float) -> str:
        url: str = (await self._ask(io, "POST", "/expose", {"port": port, "ttl_ms": round(lifetime * 1000)}))["url"]
        return url

    def snapshot(self, name: Optional[str] = None) -> str:
        r"""Makes a template of its files, which nothing changes any more, and returns the name of the
        template. Nothing may run in it. No file is copied.

        Args:
            name: What the template is called: its id, if not given.

        Raises:
            ServerError: Something runs in it (`sandbox_busy`), it has 32 layers (`too_many_layers`),
                or there is a template of this name (`template_exists`).

        Examples:
            >>> import sandtimer
            >>> client = sandtimer.Client()
            >>> with client.sandbox() as box:
            ...     outcome = box.run("echo 42 >answer", timeout=20.0)
            ...     ready = box.snapshot()
            >>> with client.sandbox(ready) as box:
            ...     print(box.run("cat answer", timeout=20.0).stdout)
            42
            <BLANKLINE>
            >>> client.delete_template(ready)
        """
        return now(self._snapshot(BLOCKING, name))

    async def asnapshot(self, name: Optional[str] = None) -> str:
        """Awaited form of `snapshot`."""
        return await self._snapshot(AWAITING, name)

    async def _snapshot(self, io: Io, name: Optional[str]) -> str:
        body = {} if name is None else {"name": _arguments.text("name", name)}
        made: str = (await self._ask(io, "POST", "/snapshot", body))["name"]
        return made

    def fork(self, count: int = 1) -> list[ClientSandbox]:
        """Makes sandboxes with its files, which then change independently. Nothing may run in it. No
        file is copied, and all are made or none.

        Args:
            count: How many, at most 100.

        Raises:
            ServerError: As for `snapshot`; or the server has no room for them (`quota`, `capacity`).

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     outcome = box.run("echo 42 >answer", timeout=20.0)
            ...     forks = box.fork(2)
            >>> [fork.run("cat answer", timeout=20.0).stdout for fork in forks]
            ['42\\n', '42\\n']
            >>> for fork in forks:
            ...     fork.delete()
        """
        return now(self._fork(BLOCKING, count))

    async def afork(self, count: int = 1) -> list[ClientSandbox]:
        """Awaited form of `fork`."""
        return await self._fork(AWAITING, count)

    async def _fork(self, io: Io, count: int) -> list[ClientSandbox]:
        made = await self._ask(io, "POST", "/fork", {"count": count})
        return [ClientSandbox(self._server, each["sandbox_id"]) for each in made["sandboxes"]]

    def diff(self, limit: Optional[int] = None) -> list[dict[str, Any]]:
        r"""Returns what has changed in it against its template, sorted by path: `path`, `change`
        ("added", "changed" or "deleted"), `kind` ("file", "directory", "link" or "other") and
        `size_bytes`. A deleted directory stands for all that was in it.

        Args:
            limit: How many changes are returned; if there are more, the others are left out. None: all.

        Raises:
            ServerError: There are more than 100,000 changes, and no limit was given
                (`too_many_changes`): `export(changes=True)` has all of them.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     outcome = box.run("echo 42 >answer", timeout=20.0)
            ...     [(each["path"], each["change"]) for each in box.diff()]
            [('/workspace/answer', 'added')]
        """
        return now(self._diff(BLOCKING, limit))

    async def adiff(self, limit: Optional[int] = None) -> list[dict[str, Any]]:
        """Awaited form of `diff`."""
        return await self._diff(AWAITING, limit)

    async def _diff(self, io: Io, limit: Optional[int]) -> list[dict[str, Any]]:
        answer = await self._ask(io, "GET", f"/diff?limit={_MAX_CHANGES if limit is None else limit}")
        if limit is None and answer["truncated"]:
            hint = "use export(changes=True), or give a limit"
            message = f"the sandbox has more than {_MAX_CHANGES:,} changes, the most that are listed; {hint}"
            raise server_error(ServerError, "too_many_changes", message, hint)
        changes: list[dict[str, Any]] = answer["changes"]
        return changes

    def export(self, *, changes: bool = False) -> Iterator[bytes]:
        """Iterates over the bytes of a tar archive of its files: files, directories and links. What is
        shown of the host is not in it.

        Args:
            changes: Whether only what was added or changed against its template is in the archive.

        Raises:
            ServerError: A file may not be read by its owner, or the files are more than 4 GiB.
            ServerUnreachableError: The archive is incomplete.

        Examples:
            >>> import io, sandtimer, tarfile
            >>> with sandtimer.Client().sandbox() as box:
            ...     outcome = box.run("echo 42 >answer", timeout=20.0)
            ...     with tarfile.open(fileobj=io.BytesIO(b"".join(box.export(changes=True)))) as archive:
            ...         print(archive.getnames())
            ['workspace/answer']
        """
        return iterate(self._export(BLOCKING, changes))

    def aexport(self, *, changes: bool = False) -> AsyncIterator[bytes]:
        """Awaited form of `export`, for `async for`."""
        return self._export(AWAITING, changes)

    def _export(self, io: Io, changes: bool) -> AsyncGenerator[bytes, None]:
        what = "changes" if flag("changes", changes) else "all"
        return self._server.pieces(io, f"{self._path}/export?what={what}")

    def pause(self) -> None:
        """Stops all processes in it, and the clocks of its limits and theirs. Until it is resumed,
        nothing can be started in it, and its files can only be read.

        Raises:
            ServerError: It is paused already (`sandbox_paused`), or it ended at a limit
                (`sandbox_ended`).

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox(timeout=3600.0) as box:
            ...     box.pause()
            ...     try:
            ...         box.run("true")
            ...     except sandtimer.ServerError as error:
            ...         print(error.code)
            ...     box.resume()
            sandbox_paused
        """
        now(self._ask(BLOCKING, "POST", "/pause", {}))

    async def apause(self) -> None:
        """Awaited form of `pause`."""
        await self._ask(AWAITING, "POST", "/pause", {})

    def resume(self) -> None:
        """Continues what `pause` has stopped: its limits end later by the length of the pause.

        Raises:
            ServerError: It is not paused (`wrong_state`).

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox() as box:
            ...     box.pause()
            ...     box.resume()
            ...     box.info()["paused"]
            False
        """
        now(self._ask(BLOCKING, "POST", "/resume", {}))

    async def aresume(self) -> None:
        """Awaited form of `resume`."""
        await self._ask(AWAITING, "POST", "/resume", {})

    def extend(self, seconds: float) -> dict[str, Any]:
        """Extends its timeout, if it has one, and begins its idle limit again.

        Args:
            seconds: By how many seconds.

        Returns:
            Its state, as `info` returns it; `wall_left_ms` is the time that is left.

        Raises:
            ServerError: It ended at a limit (`sandbox_ended`).

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().sandbox(timeout=60.0) as box:
            ...     box.extend(60)["wall_left_ms"] > 60_000
            True
        """
        return now(self._ask(BLOCKING, "POST", "/extend", {"by_ms": milliseconds("seconds", seconds)}))

    async def aextend(self, seconds: float) -> dict[str, Any]:
        """Awaited form of `extend`."""
        return await self._ask(AWAITING, "POST", "/extend", {"by_ms": milliseconds("seconds", seconds)})

    def delete(self) -> None:
        """Ends all runs in it, and deletes it with all of its files. If it was deleted already, or ended at
        a limit, the call has no effect.

        Examples:
            >>> import sandtimer
            >>> box = sandtimer.Client().sandbox()
            >>> box.delete()
        """
        now(self._delete(BLOCKING))

    async def adelete(self) -> None:
        """Awaited form of `delete`."""
        await self._delete(AWAITING)

    async def _delete(self, io: Io) -> None:
        try:
            await self._ask(io, "DELETE", "")
        except ServerNotFoundError:
            pass

    async def _ask(self, io: Io, method: str, what: str, body: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = await self._server.ask(io, method, self._path + what, body)
        return answer

    def __enter__(self) -> ClientSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()

    async def __aenter__(self) -> ClientSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.adelete()

    def __repr__(self) -> str:
        return f"<ClientSandbox {self.id}>"
