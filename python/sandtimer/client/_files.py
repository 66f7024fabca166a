"""Workspaces of a server, and their files, from outside of the runs that work there."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any, AsyncGenerator, AsyncIterator, Iterator, Mapping, Optional, Union

from .. import _arguments
from .._choices import Links
from .._vocabulary import named_parameters
from ._io import AWAITING, BLOCKING, Io, iterate, now
from ._wire import Server

Entry = dict[str, Any]


@named_parameters
class ClientFiles:
    """The files of one workspace.

    Made by `ClientContext.files` and `ClientWorkspace.files`. Paths are relative to the workspace,
    or below /workspace. Entries are dictionaries of `path`, `type`, `size` in bytes, `mode`,
    `modified_at_ms` and, for links, `target`.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Client().context(timeout=20.0) as ctx:
        ...     written = ctx.files.write("data/numbers", "1 2 3", parents=True)
        ...     print(ctx.run("sum(map(int, open('data/numbers').read().split()))").value)
        ...     print([entry["path"] for entry in ctx.files.list(recursive=True)], ctx.files.read("data/numbers"))
        6
        ['data', 'data/numbers'] b'1 2 3'
    """

    def __init__(self, server: Server, address: Mapping[str, str]) -> None:
        self._server, self._address = server, address

    def _at(self, what: str, asked: Mapping[str, Any]) -> str:
        """A path with its query; what is None is left out."""
        given = {**self._address, **{name: value for name, value in asked.items() if value is not None}}
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
        return f"/v1/files{what}?{urllib.parse.urlencode(texts)}"

    async def _ask(self, io: Io, method: str, path: str, body: Any = None) -> Entry:
        answer: Entry = await self._server.ask(io, method, path, body)
        return answer

    # Reading

    def read(self, path: str, offset: Optional[int] = None, length: Optional[int] = None) -> bytes:
        """Returns the bytes of a file, or of a part of it.

        Args:
            path: The path of the file.
            offset: The first byte; None for the beginning.
            length: How many bytes; None for all.

        Raises:
            ServerNotFoundError: There is no such file.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     written = ctx.files.write("greeting", "hello")
            ...     ctx.files.read("greeting", 1, 3)
            b'ell'
        """
        return b"".join(self.stream(path, offset, length))

    async def aread(self, path: str, offset: Optional[int] = None, length: Optional[int] = None) -> bytes:
        """Awaited form of `read`."""
        return b"".join([piece async for piece in self.astream(path, offset, length)])

    def stream(self, path: str, offset: Optional[int] = None, length: Optional[int] = None) -> Iterator[bytes]:
        """Iterates over the bytes of a file, as they arrive.

        Args:
            path: The path of the file.
            offset: The first byte; None for the beginning.
            length: How many bytes; None for all.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     written = ctx.files.write("greeting", "hello")
            ...     b"".join(ctx.files.stream("greeting"))
            b'hello'
        """
        return iterate(self._stream(BLOCKING, path, offset, length))

    def astream(self, path: str, offset: Optional[int] = None, length: Optional[int] = None) -> AsyncIterator[bytes]:
        """Awaited form of `stream`, for `async for`."""
        return self._stream(AWAITING, path, offset, length)

    def _stream(self, io: Io, path: str, offset: Optional[int], length: Optional[int]) -> AsyncGenerator[bytes, None]:
        return self._server.pieces(io, self._at("", {"path": path, "offset": offset, "length": length}))

    def list(self, path: str = ".", recursive: bool = False) -> Iterator[Entry]:
        """Iterates over the entries of a directory, in the order of their names. Pages are requested
        when they are needed.

        Args:
            path: The path of the directory.
            recursive: Whether directories below it are listed too.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     written = ctx.files.write("a/b", "", parents=True)
            ...     [entry["path"] for entry in ctx.files.list(recursive=True)]
            ['a', 'a/b']
        """
        return iterate(self._list(BLOCKING, path, recursive))

    def alist(self, path: str = ".", recursive: bool = False) -> AsyncIterator[Entry]:
        """Awaited form of `list`, for `async for`."""
        return self._list(AWAITING, path, recursive)

    async def _list(self, io: Io, path: str, recursive: bool) -> AsyncGenerator[Entry, None]:
        after: Optional[str] = None
        while True:
            page = await self._ask(io, "GET", self._at("/list", {"path": path, "recursive": recursive, "after": after}))
            for entry in page["entries"]:
                yield entry
            after = page["next_after"]
            if after is None:
                return

    def stat(self, path: str) -> Entry:
        """Returns the entry of a path. A link is not followed.

        Args:
            path: The path.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     written = ctx.files.write("greeting", "hello")
            ...     ctx.files.stat("greeting")["size"]
            5
        """
        return now(self._ask(BLOCKING, "GET", self._at("/stat", {"path": path})))

    async def astat(self, path: str) -> Entry:
        """Awaited form of `stat`."""
        return await self._ask(AWAITING, "GET", self._at("/stat", {"path": path}))

    def watch(self, path: str = ".", recursive: bool = False) -> Iterator[dict[str, Any]]:
        """Iterates over the changes in a directory, until the directory is removed.

        Events are not stored for a reader whose connection breaks (`ServerUnreachableError`): list
        the directory again.

        Args:
            path: The path of the directory.
            recursive: Whether directories below it are watched too.

        Yields:
            First `{"event": "ready"}`; then "created", "modified", "deleted", "moved_from",
            "moved_to" and others, each with its `path`. "unwatched" names a directory whose events
            are missing, and the `reason`: "full" (an owner has at most 4,096 watched directories),
            "closed" or "deep" (more than 64 levels).

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     changes = ctx.files.watch()
            ...     first = next(changes)
            ...     written = ctx.files.write("greeting", "hello")
            ...     first["event"], next(changes)["path"] is not None
            ('ready', True)
        """
        return iterate(self._watch(BLOCKING, path, recursive))

    def awatch(self, path: str = ".", recursive: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Awaited form of `watch`, for `async for`."""
        return self._watch(AWAITING, path, recursive)

    async def _watch(self, io: Io, path: str, recursive: bool) -> AsyncGenerator[dict[str, Any], None]:
        changes = self._server.changes(io, self._at("/watch", {"path": path, "recursive": recursive}))
        try:
            async for change in changes:
                yield {"event": change.event, **json.loads(change.data)}
        finally:
            await changes.aclose()

    def archive(self, path: str = ".") -> Iterator[bytes]:
        """Iterates over the bytes of a tar archive of a directory: files, directories and links, with
        modes and times.

        At most 200,000 entries and 4 GiB.

        Args:
            path: The path of the directory.

        Raises:
            ServerUnreachableError: The archive is incomplete, because a file became shorter while
                it was read.

        Examples:
            >>> import io, sandtimer, tarfile
            >>> with sandtimer.Client().context(timeout=20.0) as ctx:
            ...     made = ctx.run("import os; os.mkdir('out'); open('out/a', 'w').write('1'); open('out/b', 'w').write('2')")
            ...     with tarfile.open(fileobj=io.BytesIO(b"".join(ctx.files.archive("out")))) as archive:
            ...         print(sorted(archive.getnames()))
            ['a', 'b']
        """
        return iterate(self._archive(BLOCKING, path))

    def aarchive(self, path: str = ".") -> AsyncIterator[bytes]:
        """Awaited form of `archive`, for `async for`."""
        return self._archive(AWAITING, path)

    def _archive(self, io: Io, path: str) -> AsyncGenerator[bytes, None]:
        return self._server.pieces(io, self._at("/tar", {"path": path}))

    # Changing

    def extract(self, archive: bytes, path: str = ".", *, parents: bool = False, links: Links = "inside") -> Entry:
        """Unpacks a tar archive into a directory. Its files and links replace those of the same names.

        Nothing is changed if a member leaves the directory, or is not a file, directory or link.

        Args:
            archive: The bytes of the archive.
            path: The path of the directory.
            parents: Whether the directory is made.
            links: "inside" rejects links that leave the directory; "keep" makes them.

        Examples:
            >>> import io, sandtimer, tarfile
            >>> content = io.BytesIO()
            >>> with tarfile.open(fileobj=content, mode="w") as archive:
            ...     archive.addfile(tarfile.TarInfo("empty"))
            >>> with sandtimer.Client().context() as ctx:
            ...     ctx.files.extract(content.getvalue())["members"]
            1
        """
        asked = {"path": path, "parents": parents, "links": links}
        return now(self._ask(BLOCKING, "PUT", self._at("/tar", asked), _arguments.encoded("archive", archive)))

    async def aextract(self, archive: bytes, path: str = ".", *, parents: bool = False, links: Links = "inside") -> Entry:
        """Awaited form of `extract`."""
        asked = {"path": path, "parents": parents, "links": links}
        return await self._ask(AWAITING, "PUT", self._at("/tar", asked), _arguments.encoded("archive", archive))

    def write(
        self,
        path: str,
        content: Union[str, bytes],
        *,
        parents: bool = False,
        create_only: bool = False,
        mode: Optional[str] = None,
    ) -> Entry:
        r"""Writes a file, which is replaced as a whole.

        Args:
            path: The path of the file.
            content: Text, written as UTF-8, or bytes.
            parents: Whether missing directories are made.
            create_only: Whether an existing file is an error.
            mode: Permission bits, such as "0644".

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     written = ctx.files.write("bin/tool", "#!/bin/sh\n", parents=True, mode="0755")
            ...     ctx.files.stat("bin/tool")["mode"]
            '0755'
        """
        asked = {"path": path, "parents": parents, "create_only": create_only, "mode": mode}
        return now(self._ask(BLOCKING, "PUT", self._at("", asked), _arguments.encoded("content", content)))

    async def awrite(
        self,
        path: str,
        content: Union[str, bytes],
        *,
        parents: bool = False,
        create_only: bool = False,
        mode: Optional[str] = None,
    ) -> Entry:
        """Awaited form of `write`."""
        asked = {"path": path, "parents": parents, "create_only": create_only, "mode": mode}
        return await self._ask(AWAITING, "PUT", self._at("", asked), _arguments.encoded("content", content))

    def append(self, path: str, content: Union[str, bytes], create: bool = True) -> Entry:
        r"""Appends to a file.

        Args:
            path: The path of the file.
            content: Text, written as UTF-8, or bytes.
            create: Whether a missing file is made.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     appended = ctx.files.append("log", "one\n"), ctx.files.append("log", "two\n")
            ...     ctx.files.read("log")
            b'one\ntwo\n'
        """
        asked = self._at("/append", {"path": path, "create": create})
        return now(self._ask(BLOCKING, "POST", asked, _arguments.encoded("content", content)))

    async def aappend(self, path: str, content: Union[str, bytes], create: bool = True) -> Entry:
        """Awaited form of `append`."""
        asked = self._at("/append", {"path": path, "create": create})
        return await self._ask(AWAITING, "POST", asked, _arguments.encoded("content", content))

    def move(self, source: str, target: str, overwrite: bool = False) -> Entry:
        """Moves a file or a directory.

        Args:
            source: Its path.
            target: Its new path.
            overwrite: Whether an existing file is replaced.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     written = ctx.files.write("a", "1")
            ...     ctx.files.move("a", "b")["path"]
            'b'
        """
        return now(self._move(BLOCKING, source, target, overwrite))

    async def amove(self, source: str, target: str, overwrite: bool = False) -> Entry:
        """Awaited form of `move`."""
        return await self._move(AWAITING, source, target, overwrite)

    async def _move(self, io: Io, source: str, target: str, overwrite: bool) -> Entry:
        body = {**self._address, "from": source, "to": target, "overwrite": overwrite}
        return await self._ask(io, "POST", "/v1/files/move", body)

    def mkdir(self, path: str, parents: bool = False) -> Entry:
        """Makes a directory.

        Args:
            path: The path of the directory.
            parents: Whether missing directories are made; the directory may exist then.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     ctx.files.mkdir("a/b", parents=True)["type"]
            'directory'
        """
        return now(self._mkdir(BLOCKING, path, parents))

    async def amkdir(self, path: str, parents: bool = False) -> Entry:
        """Awaited form of `mkdir`."""
        return await self._mkdir(AWAITING, path, parents)

    async def _mkdir(self, io: Io, path: str, parents: bool) -> Entry:
        return await self._ask(io, "POST", "/v1/files/mkdir", {**self._address, "path": path, "parents": parents})

    def delete(self, path: str, recursive: bool = False) -> None:
        """Deletes a file, a link or a directory.

        Args:
            path: The path.
            recursive: Whether a directory is deleted with all that is in it; otherwise it must be
                empty.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().context() as ctx:
            ...     written = ctx.files.write("a/b", "", parents=True)
            ...     ctx.files.delete("a", recursive=True)
            ...     list(ctx.files.list())
            []
        """
        now(self._ask(BLOCKING, "DELETE", self._at("", {"path": path, "recursive": recursive})))

    async def adelete(self, path: str, recursive: bool = False) -> None:
        """Awaited form of `delete`."""
        await self._ask(AWAITING, "DELETE", self._at("", {"path": path, "recursive": recursive}))


@named_parameters
class ClientWorkspace:
    """A workspace of a server. It exists until it is deleted.

    Made by `Client.workspace`.

    Attributes:
        id: The id of the workspace.
        files: Its files.

    Examples:
        >>> import sandtimer
        >>> workspace = sandtimer.Client().workspace()
        >>> written = workspace.files.write("greeting", "hello")
        >>> workspace.delete()
    """

    def __init__(self, server: Server, id: str) -> None:
        self.id = id
        self.files = ClientFiles(server, {"workspace": id})
        self._server = server
        self._path = f"/v1/workspaces/{urllib.parse.quote(_arguments.text('id', id), safe='')}"

    def info(self) -> dict[str, Any]:
        """Returns the state of the workspace, with its size in bytes.

        Examples:
            >>> import sandtimer
            >>> workspace = sandtimer.Client().workspace()
            >>> workspace.info()["workspace_id"] == workspace.id
            True
            >>> workspace.delete()
        """
        return now(self._info(BLOCKING))

    async def ainfo(self) -> dict[str, Any]:
        """Awaited form of `info`."""
        return await self._info(AWAITING)

    async def _info(self, io: Io) -> dict[str, Any]:
        answer: dict[str, Any] = await self._server.ask(io, "GET", self._path)
        return answer

    def delete(self) -> None:
        """Deletes the workspace and all that is in it.

        Examples:
            >>> import sandtimer
            >>> sandtimer.Client().workspace().delete()
        """
        now(self._server.ask(BLOCKING, "DELETE", self._path))

    async def adelete(self) -> None:
        """Awaited form of `delete`."""
        await self._server.ask(AWAITING, "DELETE", self._path)

    def __repr__(self) -> str:
        return f"<ClientWorkspace {self.id}>"
