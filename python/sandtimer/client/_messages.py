"""Parts of HTTP messages: the answer of a server, its events, and a file as a body."""

from __future__ import annotations

import os
from typing import AsyncGenerator, BinaryIO, NamedTuple, Optional

from ..errors import ServerError
from ._io import PIECE, Connection, Io
from ._rejections import server_error

_MAX_HEAD = 64 * 1024


class ServerEvent(NamedTuple):
    """One event of a stream."""

    id: str
    event: str
    data: str


class Events:
    """Parser of server-sent events, from bytes in pieces of any size. An event that is incomplete
    at the end is dropped.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, data: bytes) -> list[ServerEvent]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [event for event in map(self._line, lines) if event is not None]

    def _line(self, line: bytes) -> Optional[ServerEvent]:
        text = line.rstrip(b"\r").decode("utf-8", "replace")
        if text:
            name, _, value = text.partition(":")
            # Without a name it is a comment, such as a heartbeat. The data of these events is one
            # line.
            self._fields[name] = value[1:] if value.startswith(" ") else value
            return None
        fields, self._fields = self._fields, {}
        return ServerEvent(fields.get("id", ""), fields.get("event", "message"), fields["data"]) if "data" in fields else None


class Answer:
    """An answer of a server, which is read from its connection."""

    def __init__(self, connection: Connection, patience: Optional[float]) -> None:
        self._connection, self._patience = connection, patience
        self._rest = b""
        self.has_begun = False
        self.status = 0
        self._headers: dict[str, str] = {}

    async def read_head(self) -> None:
        """Reads the status and the headers."""
        while True:
            head = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            self.status = int(head[0].split(" ", 2)[1])
            pairs = (line.partition(":") for line in head[1:])
            self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            # Informational, followed by the answer.
            if self.status >= 200:
                return

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yields the body in pieces, as they arrive."""
        if self.status == 204:
            return
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = int((await self._until(b"\r\n")).split(b";")[0], 16)
                if size == 0:
                    return
                async for piece in self._exactly(size):
                    yield piece
                await self._until(b"\r\n")
        elif "content-length" in self._headers:
            async for piece in self._exactly(int(self._headers["content-length"])):
                yield piece
        else:
            if self._rest:
                yield self._rest
            while True:
                piece = await self._connection.read(self._patience)
                if not piece:
                    return
                yield piece

    async def body(self) -> bytes:
        """Returns the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def _more(self) -> None:
        data = await self._connection.read(self._patience)
        if not data:
            raise ConnectionError("the server closed the connection in the middle of an answer")
        self._rest += data
        self.has_begun = True

    async def _until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            if len(self._rest) > _MAX_HEAD:
                raise ValueError("a line without an end")
            await self._more()
        found, _, self._rest = self._rest.partition(mark)
        return found

    async def _exactly(self, size: int) -> AsyncGenerator[bytes, None]:
        while size > 0:
            if not self._rest:
                await self._more()
            piece, self._rest = self._rest[:size], self._rest[size:]
            size -= len(piece)
            yield piece


class FileBody:
    """A regular file as the body of a request. It is read in pieces while it is sent."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.size = file, os.fstat(file.fileno()).st_size

    async def send(self, io: Io, connection: Connection) -> None:
        """Sends the file from its beginning. Raises a `ServerError` if it cannot be read, or was
        truncated.
        """
        self._file.seek(0)
        left = self.size
        while left > 0:
            try:
                piece = await io.read_file(self._file, min(PIECE, left))
            except OSError as error:
                raise server_error(ServerError, "bad_archive", f"the file cannot be read: {error}") from error
            if not piece:
                raise server_error(ServerError, "bad_archive", "the file was truncated while it was sent")
            await connection.write(piece)
            left -= len(piece)
