"""HTTP as the client speaks it, once for callers that block and for those that await.

Everything here is written as coroutines over an `Io`. With `Blocking` no coroutine ever waits for an event loop, so `now`
runs one to its end in a single step; with `Awaiting` the caller's loop does. A request has a connection of its own, which
is closed when its answer was read, or when the client ends: that is how a server notices it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import ssl
import struct
import time
import urllib.parse
from concurrent.futures import Future
from typing import Any, AsyncGenerator, BinaryIO, Coroutine, Generator, NamedTuple, Optional, TypeVar

from ..errors import (
    InvalidArgumentError,
    ServerError,
    ServerLimitRefusedError,
    ServerNotFoundError,
    ServerUnauthorizedError,
    ServerUnreachableError,
)
from ._binary import OwnServer, ServerStart

__all__ = ["AWAITING", "BLOCKING", "FileBody", "Io", "Server", "ServerEvent", "iterate", "now", "said"]

T = TypeVar("T")

# Pauses before a wait or a stream that broke is resumed; then it fails.
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0)
# A stream without data for this long is dead: the server sends heartbeats more often.
EVENT_TIMEOUT = 60.0
_CONNECT = 30.0
_PIECE = 256 * 1024
_MAX_HEAD = 64 * 1024
# How often a request is sent to the user's own server, which may end between two of them.
_MAX_OWN_TRIES = 3
DEFAULT_URL = "http://127.0.0.1:7880"
_UNREACHABLE_HINT = "start a server with `sandtimer serve`, or give the address of one: Client(url), SANDTIMER_SERVER"


class Io:
    """A way to wait."""

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext]) -> Connection:
        raise NotImplementedError

    async def connect_socket(self, path: str) -> Connection:
        """Connects to a Unix socket."""
        raise NotImplementedError

    async def result(self, future: Future[T]) -> T:
        """Waits for the result of another thread."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def read_file(self, file: BinaryIO, size: int) -> bytes:
        """Reads at most `size` bytes."""
        raise NotImplementedError


class Connection:
    """Bytes to a server and back. `read` gives none at the end; `patience` bounds each in seconds."""

    async def write(self, data: bytes) -> None:
        raise NotImplementedError

    async def read(self, patience: Optional[float]) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Blocking(Io):
    """Waits in the calling thread."""

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext]) -> Connection:
        connected = socket.create_connection((host, port), timeout=_CONNECT)
        try:
            _watch(connected)
            if tls is not None:
                connected = tls.wrap_socket(connected, server_hostname=host)
        except BaseException:
            connected.close()
            raise
        return _BlockingConnection(connected)

    async def connect_socket(self, path: str) -> Connection:
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(_CONNECT)
            connected.connect(path)
            _check_owner(connected)
        except BaseException:
            connected.close()
            raise
        return _BlockingConnection(connected)

    async def result(self, future: Future[T]) -> T:
        return future.result()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def read_file(self, file: BinaryIO, size: int) -> bytes:
        return file.read(size)


class _BlockingConnection(Connection):
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def write(self, data: bytes) -> None:
        self._socket.settimeout(None)
        self._socket.sendall(data)

    async def read(self, patience: Optional[float]) -> bytes:
        self._socket.settimeout(patience)
        return self._socket.recv(_PIECE)

    def close(self) -> None:
        self._socket.close()


class Awaiting(Io):
    """Waits in the running event loop."""

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext]) -> Connection:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, ssl=tls), _CONNECT)
        _watch(writer.get_extra_info("socket"))
        return _AwaitingConnection(reader, writer)

    async def connect_socket(self, path: str) -> Connection:
        reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(path), _CONNECT)
        try:
            _check_owner(writer.get_extra_info("socket"))
        except BaseException:
            writer.close()
            raise
        return _AwaitingConnection(reader, writer)

    async def result(self, future: Future[T]) -> T:
        return await asyncio.wrap_future(future)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def read_file(self, file: BinaryIO, size: int) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(None, file.read, size)


class _AwaitingConnection(Connection):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def read(self, patience: Optional[float]) -> bytes:
        return await asyncio.wait_for(self._reader.read(_PIECE), patience)

    def close(self) -> None:
        self._writer.close()


def _watch(connected: Any) -> None:
    """Has the kernel notice a peer that is gone without a word, so that a wait without a limit is none for ever."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _check_owner(connected: Any) -> None:
    """Raises `PermissionError` if the server at the other end of a Unix socket belongs to another user."""
    _, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid != os.geteuid():
        raise PermissionError(f"the server belongs to user {uid}")


BLOCKING = Blocking()
AWAITING = Awaiting()
_OVER: Any = object()


def now(work: Coroutine[Any, Any, T]) -> T:
    """What `work` over `BLOCKING` comes to."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("the work waited for an event loop")


def iterate(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """The items of a generator over `BLOCKING`."""

    async def following() -> Any:
        try:
            return await items.__anext__()
        except StopAsyncIteration:
            return _OVER

    try:
        while True:
            item = now(following())
            if item is _OVER:
                return
            yield item
    finally:
        now(items.aclose())


class ServerEvent(NamedTuple):
    """One event of a stream."""

    id: str
    event: str
    data: str


class _Events:
    """Server-sent events from bytes in pieces of any size. What is incomplete when the stream ends never happened."""

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
            # Without a name it is a comment, such as a heartbeat. The data of these events is one line.
            self._fields[name] = value[1:] if value.startswith(" ") else value
            return None
        fields, self._fields = self._fields, {}
        return ServerEvent(fields.get("id", ""), fields.get("event", "message"), fields["data"]) if "data" in fields else None


class _Answer:
    """An answer whose head was read."""

    def __init__(self, connection: Connection, patience: Optional[float]) -> None:
        self._connection, self._patience = connection, patience
        self._rest = b""
        self.has_begun = False
        self.status = 0
        self._headers: dict[str, str] = {}

    async def read_head(self) -> None:
        while True:
            head = (await self._until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            self.status = int(head[0].split(" ", 2)[1])
            pairs = (line.partition(":") for line in head[1:])
            self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            # Informational, followed by the answer.
            if self.status >= 200:
                return

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body, as it comes."""
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
        self._file.seek(0)
        left = self.size
        while left > 0:
            try:
                piece = await io.read_file(self._file, min(_PIECE, left))
            except OSError as error:
                raise server_error(ServerError, "bad_archive", f"the file cannot be read: {error}") from error
            if not piece:
                raise server_error(ServerError, "bad_archive", "the file was truncated while it was sent")
            await connection.write(piece)
            left -= len(piece)


class _Patience:
    """Waits before each further try, longer each time, until there were enough."""

    def __init__(self, io: Io) -> None:
        self._io, self._pauses = io, iter(_PAUSES)

    async def after(self, error: ServerError) -> None:
        """Returns when to try again, or raises what ended the last try: always, if it would end the next one too."""
        pause = next(self._pauses, None)
        if not error.retryable or pause is None:
            raise error
        # Readers that broke off together do not come back together.
        await self._io.sleep(pause * random.uniform(0.5, 1.0))


class Server:
    """One server: how it is asked, and what its answers mean."""

    def __init__(self, url: Optional[str], token: Optional[str]) -> None:
        url = url or os.environ.get("SANDTIMER_SERVER")
        # Without an address, the first connection chooses between the server at the usual one and the
        # user's own, for good.
        self._may_start_own = not url
        self._own = OwnServer()
        self._own_socket: Optional[str] = None
        url = url or DEFAULT_URL
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgumentError(f"url={url!r}: use an address with its scheme, such as http://127.0.0.1:7880")
        self.url = url.rstrip("/")
        self._host, self._base = parts.hostname, parts.path.rstrip("/")
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        token = token if token is not None else os.environ.get("SANDTIMER_TOKEN")
        if token is not None and (not token.isascii() or not token.isprintable()):
            raise InvalidArgumentError("token: use one of the server's, which has printable ASCII characters only")
        host = parts.netloc.rpartition("@")[2]
        lines = [f"Host: {host}", "Connection: close", *([f"Authorization: Bearer {token}"] if token else [])]
        self._head = "\r\n".join(lines)

    async def ask(self, io: Io, method: str, path: str, body: Any = None, patience: Optional[float] = None) -> Any:
        """What is answered, decoded; None where there is nothing to say."""
        async with _Asked(self, io, method, path, body, patience) as answer:
            text = await answer.body()
            return json.loads(text) if text else None

    async def ask_again(self, io: Io, path: str, patience: float, body: Any = None) -> Any:
        """As `ask`, for what only waits, and may be asked again when the connection breaks."""
        again = _Patience(io)
        while True:
            try:
                return await self.ask(io, "GET" if body is None else "POST", path, body, patience)
            except ServerError as error:
                await again.after(error)

    async def events(self, io: Io, path: str, last: Optional[str], final: str) -> AsyncGenerator[ServerEvent, None]:
        """Events after `last`, to the `final` one. When the connection breaks it is made again, and the server continues
        after the last event that was read: none is lost, none is sent twice.
        """
        again = _Patience(io)
        while True:
            try:
                async with _Asked(self, io, "GET", path, None, EVENT_TIMEOUT, last) as answer:
                    if answer.status == 204:
                        # It has had the last one.
                        return
                    parser = _Events()
                    async for piece in answer.pieces():
                        for event in parser.feed(piece):
                            last, again = event.id, _Patience(io)
                            yield event
                            if event.event == final:
                                return
                raise _unreachable(self.address, "the stream ended before its last event")
            except ServerError as error:
                await again.after(error)

    async def pieces(self, io: Io, path: str, patience: Optional[float] = None) -> AsyncGenerator[bytes, None]:
        """The bytes of an answer, as they come."""
        async with _Asked(self, io, "GET", path, None, patience) as answer:
            async for piece in answer.pieces():
                yield piece

    async def changes(self, io: Io, path: str) -> AsyncGenerator[ServerEvent, None]:
        """Events of one connection, whose position is lost when it breaks."""
        parser, pieces = _Events(), self.pieces(io, path, EVENT_TIMEOUT)
        try:
            async for piece in pieces:
                for event in parser.feed(piece):
                    yield event
        finally:
            await pieces.aclose()

    def request(self, method: str, path: str, body: Any, last: Optional[str]) -> bytes:
        lines = [f"{method} {self._base}{path} HTTP/1.1", self._head]
        content = b""
        if isinstance(body, FileBody):
            lines += ["Content-Type: application/octet-stream", f"Content-Length: {body.size}"]
        elif body is not None:
            raw = isinstance(body, bytes)
            content = body if raw else json.dumps(body, allow_nan=False).encode()
            kind = "octet-stream" if raw else "json"
            lines += [f"Content-Type: application/{kind}", f"Content-Length: {len(content)}"]
        if last is not None:
            lines.append(f"Last-Event-ID: {last}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + content

    @property
    def is_own(self) -> bool:
        """Whether the user's own server was chosen."""
        return self._own_socket is not None

    @property
    def address(self) -> str:
        return self.url if self._own_socket is None else f"unix:{self._own_socket}"

    async def open(self, io: Io, must_start: bool) -> Connection:
        """Connects. `must_start`: the user's own server, if it was chosen, is ending."""
        ended = self._own.ended_start
        if self._own_socket is None:
            try:
                connection = await io.connect(self._host, self._port, self._tls)
            except ConnectionRefusedError:
                if not self._may_start_own:
                    raise
            else:
                # Another call may have chosen in the meantime.
                if self._own_socket is None:
                    self._may_start_own = False
                    return connection
                connection.close()
        elif not must_start:
            try:
                return await io.connect_socket(self._own_socket)
            except (FileNotFoundError, ConnectionRefusedError):
                # It ends when it is not used.
                pass
        path = await self._start_own(io, ended)
        if not self._may_start_own:
            return await io.connect(self._host, self._port, self._tls)
        self._own_socket = path
        return await io.connect_socket(path)

    async def _start_own(self, io: Io, ended: Optional[ServerStart]) -> str:
        """Starts the user's own server unless it is running, and returns the path of its socket."""
        try:
            start = self._own.join_start(ended)
            try:
                return await io.result(start.socket)
            finally:
                self._own.leave_start(start)
        except RuntimeError as error:
            message = f"no server answers at {self.address}, and none was started: {error}; {_UNREACHABLE_HINT}"
            raise server_error(ServerUnreachableError, "unreachable", message, _UNREACHABLE_HINT) from error


class _Asked:
    """One request and its answer, with a connection of its own.

    A broken connection is raised as `ServerUnreachableError`, an answer that reports an error as
    that error. The user's own server ends when it is not used: it is started again, and the request
    sent again, if that cannot do the same thing twice.
    """

    def __init__(
        self, server: Server, io: Io, method: str, path: str, body: Any, patience: Optional[float], last: Optional[str] = None
    ) -> None:
        self._server, self._io, self._patience = server, io, patience
        self._request = server.request(method, path, body, last)
        self._file = body if isinstance(body, FileBody) else None
        self._is_read = method == "GET"
        self._connection: Optional[Connection] = None
        self._answer: Optional[_Answer] = None

    async def __aenter__(self) -> _Answer:
        tries = 1
        while True:
            try:
                return await self._exchange(tries > 1)
            except BaseException as error:
                if tries < _MAX_OWN_TRIES and self._server.is_own and self._is_repeatable(error):
                    self._close()
                    tries += 1
                    continue
                self._leave(error)
                raise

    async def _exchange(self, must_start: bool) -> _Answer:
        self._answer = None
        self._connection = await self._server.open(self._io, must_start)
        self._answer = answer = _Answer(self._connection, self._patience)
        await self._connection.write(self._request)
        if self._file is not None:
            await self._file.send(self._io, self._connection)
        await answer.read_head()
        if answer.status >= 300:
            raise _rejection(answer.status, await answer.body())
        return answer

    def _is_repeatable(self, error: BaseException) -> bool:
        """Whether the request only reads, or the server has certainly not processed it.

        A Unix socket is reset only if the server closed it before it had read the whole request. A
        connection that ends without an answer proves nothing: the server may have crashed while it
        processed the request.
        """
        if isinstance(error, ServerError):
            return error.code == "shutting_down"
        if self._answer is None:
            return isinstance(error, (FileNotFoundError, ConnectionRefusedError))
        if self._answer.has_begun:
            return False
        return isinstance(error, ConnectionError if self._is_read else (BrokenPipeError, ConnectionResetError))

    async def __aexit__(self, _: object, error: Optional[BaseException], __: object) -> None:
        self._leave(error)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _leave(self, error: Optional[BaseException]) -> None:
        self._close()
        address = self._server.address
        # asyncio's is another one before Python 3.11.
        if isinstance(error, (OSError, asyncio.TimeoutError)) and not isinstance(error, ServerError):
            raise _unreachable(address, str(error) or type(error).__name__) from error
        if isinstance(error, (ValueError, IndexError)) and not isinstance(error, ServerError):
            raise server_error(ServerError, "bad_answer", f"{address} does not answer as a Sandtimer server: {error}") from error


def _unreachable(address: str, why: str) -> ServerError:
    message = f"{address} does not answer: {why}; {_UNREACHABLE_HINT}"
    return server_error(ServerUnreachableError, "unreachable", message, _UNREACHABLE_HINT, True)


def _rejection(status: int, text: bytes) -> ServerError:
    """The exception that an answer stands for."""
    try:
        facts = json.loads(text)
        code, message = str(facts["code"]), str(facts["message"])
    except (ValueError, KeyError, TypeError):
        shown = text[:200].decode("utf-8", "replace")
        message = f"the answer (HTTP {status}) is not one of a Sandtimer server: {shown}"
        hint = "check the address; a proxy in between may have answered"
        if status in (502, 503, 504):
            # Proxies say so when they do not get through.
            return server_error(ServerUnreachableError, "unreachable", message, hint, True)
        return server_error(ServerError, "bad_answer", message, hint)
    kind = ServerError
    if code == "unauthorized":
        kind = ServerUnauthorizedError
    elif code == "bad_limit":
        kind = ServerLimitRefusedError
    elif code.endswith("not_found") and status == 404:
        kind = ServerNotFoundError
    return server_error(kind, code, message, str(facts.get("hint", "")), facts.get("retryable") is True, facts.get("details"))


def server_error(
    kind: type[ServerError], code: str, message: str, hint: str = "", retryable: bool = False, details: Any = None
) -> ServerError:
    """An exception with its facts for programs."""
    error = kind(message)
    error.code, error.hint, error.retryable = code, hint, retryable
    error.details = details if isinstance(details, dict) else {}
    return error
