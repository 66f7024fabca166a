"""Requests to one server over HTTP, with repetitions where they are safe.

Everything here is written as coroutines over an `Io`, once for callers that block and for those that
await. A request has a connection of its own, which is closed when its answer was read, or when the
client ends: that is how a server notices it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
import urllib.parse
from typing import Any, AsyncGenerator, Optional

from ..errors import InvalidArgumentError, ServerError, ServerUnreachableError
from ._binary import OwnServer, ServerStart
from ._io import AWAITING, BLOCKING, Connection, Io, iterate, now
from ._messages import Answer, Events, FileBody, ServerEvent
from ._rejections import UNREACHABLE_HINT, rejection, server_error, unreachable

__all__ = ["AWAITING", "BLOCKING", "FileBody", "Io", "Server", "ServerEvent", "iterate", "now", "server_error"]

# Pauses before a wait or a stream that broke is resumed; then it fails.
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0)
# A stream without data for this long is dead: the server sends heartbeats more often.
EVENT_TIMEOUT = 60.0
# How often a request is sent to the user's own server, which may end between two of them.
_MAX_OWN_TRIES = 3
DEFAULT_URL = "http://127.0.0.1:7880"


class _Retries:
    """The tries of one request, with a longer pause before each of them."""

    def __init__(self, io: Io) -> None:
        self._io, self._pauses = io, iter(_PAUSES)

    async def after(self, error: ServerError) -> None:
        """Waits before the next try. Raises the error of the last one if there is none left, or if
        it would fail again.
        """
        pause = next(self._pauses, None)
        if not error.retryable or pause is None:
            raise error
        # Clients that lost their connections together do not reconnect together.
        await self._io.sleep(pause * random.uniform(0.5, 1.0))


class Server:
    """One server: its address, and the requests that are sent to it."""

    def __init__(self, url: Optional[str], token: Optional[str]) -> None:
        url = url or os.environ.get("SANDTIMER_SERVER")
        # Without an address, the first connection chooses between the server at the usual one and
        # the user's own, for good.
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
        """Sends a request, and returns the answer, decoded from JSON; None if it is empty."""
        async with _Exchange(self, io, method, path, body, patience) as answer:
            text = await answer.body()
            return json.loads(text) if text else None

    async def ask_again(self, io: Io, path: str, patience: float, body: Any = None) -> Any:
        """As `ask`, for a request that only waits, and is sent again when the connection breaks."""
        again = _Retries(io)
        while True:
            try:
                return await self.ask(io, "GET" if body is None else "POST", path, body, patience)
            except ServerError as error:
                await again.after(error)

    async def events(self, io: Io, path: str, last: Optional[str], final: str) -> AsyncGenerator[ServerEvent, None]:
        """Yields the events after `last`, to the `final` one.

        When the connection breaks it is made again, and the server continues after the last event
        that was read: none is lost, none is sent twice.
        """
        again = _Retries(io)
        while True:
            try:
                async with _Exchange(self, io, "GET", path, None, EVENT_TIMEOUT, last) as answer:
                    if answer.status == 204:
                        # The final event was read before.
                        return
                    parser = Events()
                    async for piece in answer.pieces():
                        for event in parser.feed(piece):
                            last, again = event.id, _Retries(io)
                            yield event
                            if event.event == final:
                                return
                raise unreachable(self.address, "the stream ended before its last event")
            except ServerError as error:
                await again.after(error)

    async def pieces(self, io: Io, path: str, patience: Optional[float] = None) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of an answer, as they arrive."""
        async with _Exchange(self, io, "GET", path, None, patience) as answer:
            async for piece in answer.pieces():
                yield piece

    async def changes(self, io: Io, path: str) -> AsyncGenerator[ServerEvent, None]:
        """Yields the events of one connection, whose position is lost when it breaks."""
        parser, pieces = Events(), self.pieces(io, path, EVENT_TIMEOUT)
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
        if self._own_socket is None and self._may_start_own and ended is not None:
            # The calls that waited for that start have not continued yet.
            self._own_socket = ended.result()
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
            message = f"no server answers at {self.address}, and none was started: {error}; {UNREACHABLE_HINT}"
            raise server_error(ServerUnreachableError, "unreachable", message, UNREACHABLE_HINT) from error


class _Exchange:
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
        self._answer: Optional[Answer] = None

    async def __aenter__(self) -> Answer:
        tries = 1
        while True:
            try:
                return await self._send(tries > 1)
            except BaseException as error:
                if tries < _MAX_OWN_TRIES and self._server.is_own and self._is_repeatable(error):
                    self._close()
                    tries += 1
                    continue
                self._leave(error)
                raise

    async def _send(self, must_start: bool) -> Answer:
        self._answer = None
        self._connection = await self._server.open(self._io, must_start)
        self._answer = answer = Answer(self._connection, self._patience)
        await self._connection.write(self._request)
        if self._file is not None:
            await self._file.send(self._io, self._connection)
        await answer.read_head()
        if answer.status >= 300:
            raise rejection(answer.status, await answer.body())
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
            raise unreachable(address, str(error) or type(error).__name__) from error
        if isinstance(error, (ValueError, IndexError)) and not isinstance(error, ServerError):
            raise server_error(ServerError, "bad_answer", f"{address} does not answer as a Sandtimer server: {error}") from error
