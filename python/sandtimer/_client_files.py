"""Workspaces of a server, and the files in them, from outside of the runs that work there."""

from __future__ import annotations

import json
import urllib.parse
from typing import Any, AsyncGenerator, AsyncIterator, Iterator, Mapping, Optional, Union

from . import _arguments
from ._choices import Links
from ._client_wire import AWAITING, BLOCKING, Io, Server, iterate, now
from ._vocabulary import named_parameters

Entry = dict[str, Any]


@named_parameters
class ClientFiles:
    """The files of one workspace. Paths are relative to it, or below /workspace.

    Entries are dictionaries of `path`, `type`, `size`, `mode`, `modified_at_ms` and, of links, `target`.

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
        """The bytes of a file, or of a part of it."""
        return b"".join(self.stream(path, offset, length))

    async def aread(self, path: str, offset: Optional[int] = None, length: Optional[int] = None) -> bytes:
        """As `read`, awaited."""
        return b"".join([piece async for piece in self.astream(path, offset, length)])

    def stream(self, path: str, offset: Optional[int] = None, length: Optional[int] = None) -> Iterator[bytes]:
        """The bytes of a file, as they come."""
        return iterate(self._stream(BLOCKING, path, offset, length))

    def astream(self, path: str, offset: Optional[int] = None, length: Optional[int] = None) -> AsyncIterator[bytes]:
        """As `stream`, for `async for`."""
        return self._stream(AWAITING, path, offset, length)

    def _stream(self, io: Io, path: str, offset: Optional[int], length: Optional[int]) -> AsyncGenerator[bytes, None]:
        return self._server.pieces(io, self._at("", {"path": path, "offset": offset, "length": length}))

    def list(self, path: str = ".", recursive: bool = False) -> Iterator[Entry]:
        """What is in a directory, in the order of names: page after page, as it is asked for."""
        return iterate(self._list(BLOCKING, path, recursive))

    def alist(self, path: str = ".", recursive: bool = False) -> AsyncIterator[Entry]:
        """As `list`, for `async for`."""
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
        """What is at a path; a link is not followed."""
        return now(self._ask(BLOCKING, "GET", self._at("/stat", {"path": path})))

    async def astat(self, path: str) -> Entry:
        """As `stat`, awaited."""
        return await self._ask(AWAITING, "GET", self._at("/stat", {"path": path}))

    def watch(self, path: str = ".", recursive: bool = False) -> Iterator[dict[str, Any]]:
        """What changes in a directory, with `recursive` also in all below it: first `{"event": "ready"}`, then "created", "modified",
        "deleted", "moved_from", "moved_to", … with their `path`. Of a tree, "unwatched" names a directory whose events do not come, and
        the `reason`: "full" (an owner has 4,096 watched directories), "closed" or "deep" (more than 64 levels). It ends with the
        directory. Nothing is kept for a reader whose connection breaks (`ServerUnreachableError`): list the directory again.
        """
        return iterate(self._watch(BLOCKING, path, recursive))

    def awatch(self, path: str = ".", recursive: bool = False) -> AsyncIterator[dict[str, Any]]:
        """As `watch`, for `async for`."""
        return self._watch(AWAITING, path, recursive)

    async def _watch(self, io: Io, path: str, recursive: bool) -> AsyncGenerator[dict[str, Any], None]:
        changes = self._server.changes(io, self._at("/watch", {"path": path, "recursive": recursive}))
        try:
            async for change in changes:
                yield {"event": change.event, **json.loads(change.data)}
        finally:
            await changes.aclose()

    def archive(self, path: str = ".") -> Iterator[bytes]:
        """A directory as a tar archive, as its bytes come: files, directories and links, with their modes and times. At most 200,000 of
        them and 4 GiB. An archive that breaks off, because a file was made shorter while it was read, raises `ServerUnreachableError`.

        >>> import io, sandtimer, tarfile
        >>> with sandtimer.Client().context(timeout=20.0) as ctx:
        ...     made = ctx.run("import os; os.mkdir('out'); open('out/a', 'w').write('1'); open('out/b', 'w').write('2')")
        ...     with tarfile.open(fileobj=io.BytesIO(b"".join(ctx.files.archive("out")))) as archive:
        ...         print(sorted(archive.getnames()))
        ['a', 'b']
        """
        return iterate(self._archive(BLOCKING, path))

    def aarchive(self, path: str = ".") -> AsyncIterator[bytes]:
        """As `archive`, for `async for`."""
        return self._archive(AWAITING, path)

    def _archive(self, io: Io, path: str) -> AsyncGenerator[bytes, None]:
        return self._server.pieces(io, self._at("/tar", {"path": path}))

    # Changing

    def extract(self, archive: bytes, path: str = ".", *, parents: bool = False, links: Links = "inside") -> Entry:
        """Unpacks a tar archive into a directory, which `parents` makes. Its files and links replace those of the same names. Nothing is
        changed where a member leaves the directory or is not a file, directory or link; `links="keep"` also takes links that lead out.
        """
        asked = {"path": path, "parents": parents, "links": links}
        return now(self._ask(BLOCKING, "PUT", self._at("/tar", asked), _arguments.encoded("archive", archive)))

    async def aextract(self, archive: bytes, path: str = ".", *, parents: bool = False, links: Links = "inside") -> Entry:
        """As `extract`, awaited."""
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
        """Replaces a file, at once and as a whole, or makes it. `mode`: permission bits, such as "0644"."""
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
        """As `write`, awaited."""
        asked = {"path": path, "parents": parents, "create_only": create_only, "mode": mode}
        return await self._ask(AWAITING, "PUT", self._at("", asked), _arguments.encoded("content", content))

    def append(self, path: str, content: Union[str, bytes], create: bool = True) -> Entry:
        """Adds to the end of a file."""
        asked = self._at("/append", {"path": path, "create": create})
        return now(self._ask(BLOCKING, "POST", asked, _arguments.encoded("content", content)))

    async def aappend(self, path: str, content: Union[str, bytes], create: bool = True) -> Entry:
        """As `append`, awaited."""
        asked = self._at("/append", {"path": path, "create": create})
        return await self._ask(AWAITING, "POST", asked, _arguments.encoded("content", content))

    def move(self, source: str, target: str, overwrite: bool = False) -> Entry:
        """Moves a file or a directory."""
        return now(self._move(BLOCKING, source, target, overwrite))

    async def amove(self, source: str, target: str, overwrite: bool = False) -> Entry:
        """As `move`, awaited."""
        return await self._move(AWAITING, source, target, overwrite)

    async def _move(self, io: Io, source: str, target: str, overwrite: bool) -> Entry:
        body = {**self._address, "from": source, "to": target, "overwrite": overwrite}
        return await self._ask(io, "POST", "/v1/files/move", body)

    def mkdir(self, path: str, parents: bool = False) -> Entry:
        """Makes a directory; with `parents` those on the way as well, and it may be there."""
        return now(self._mkdir(BLOCKING, path, parents))

    async def amkdir(self, path: str, parents: bool = False) -> Entry:
        """As `mkdir`, awaited."""
        return await self._mkdir(AWAITING, path, parents)

    async def _mkdir(self, io: Io, path: str, parents: bool) -> Entry:
        return await self._ask(io, "POST", "/v1/files/mkdir", {**self._address, "path": path, "parents": parents})

    def delete(self, path: str, recursive: bool = False) -> None:
        """Deletes a file, a link, an empty directory, or with `recursive` any directory."""
        now(self._ask(BLOCKING, "DELETE", self._at("", {"path": path, "recursive": recursive})))

    async def adelete(self, path: str, recursive: bool = False) -> None:
        """As `delete`, awaited."""
        await self._ask(AWAITING, "DELETE", self._at("", {"path": path, "recursive": recursive}))


@named_parameters
class ClientWorkspace:
    """A workspace of a server's, by its `id`, with its `files`. It stays until it is deleted. Made by `Client.workspace`."""

    def __init__(self, server: Server, id: str) -> None:
        self.id = id
        self.files = ClientFiles(server, {"workspace": id})
        self._server = server
        self._path = f"/v1/workspaces/{urllib.parse.quote(_arguments.text('id', id), safe='')}"

    def info(self) -> dict[str, Any]:
        """What is known of it, with its size."""
        return now(self._info(BLOCKING))

    async def ainfo(self) -> dict[str, Any]:
        """As `info`, awaited."""
        return await self._info(AWAITING)

    async def _info(self, io: Io) -> dict[str, Any]:
        answer: dict[str, Any] = await self._server.ask(io, "GET", self._path)
        return answer

    def delete(self) -> None:
        """Deletes it and all that is in it."""
        now(self._server.ask(BLOCKING, "DELETE", self._path))

    async def adelete(self) -> None:
        """As `delete`, awaited."""
        await self._server.ask(AWAITING, "DELETE", self._path)

    def __repr__(self) -> str:
        return f"<ClientWorkspace {self.id}>"
