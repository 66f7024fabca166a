"""Ways to wait, and connections to a server, for callers that block and for those that await.

With `BLOCKING` no coroutine ever waits for an event loop, so `now` runs one to its end in a single
step; with `AWAITING` the caller's loop does.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, AsyncGenerator, BinaryIO, Coroutine, Generator, Optional, TypeVar

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

_CONNECT_TIMEOUT = 30.0
#: How many bytes are read at a time.
PIECE = 256 * 1024


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
    """Bytes to a server and back. `read` returns none at the end, and waits for at most `patience`
    seconds.
    """

    async def write(self, data: bytes) -> None:
        raise NotImplementedError

    async def read(self, patience: Optional[float]) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class Blocking(Io):
    """Waits in the calling thread."""

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext]) -> Connection:
        connected = socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT)
        try:
            _detect_lost_peer(connected)
            if tls is not None:
                connected = tls.wrap_socket(connected, server_hostname=host)
        except BaseException:
            connected.close()
            raise
        return _BlockingConnection(connected)

    async def connect_socket(self, path: str) -> Connection:
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(_CONNECT_TIMEOUT)
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
        return self._socket.recv(PIECE)

    def close(self) -> None:
        self._socket.close()


class Awaiting(Io):
    """Waits in the running event loop."""

    async def connect(self, host: str, port: int, tls: Optional[ssl.SSLContext]) -> Connection:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port, ssl=tls), _CONNECT_TIMEOUT)
        _detect_lost_peer(writer.get_extra_info("socket"))
        return _AwaitingConnection(reader, writer)

    async def connect_socket(self, path: str) -> Connection:
        reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(path), _CONNECT_TIMEOUT)
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
        return await asyncio.wait_for(self._reader.read(PIECE), patience)

    def close(self) -> None:
        self._writer.close()


def _detect_lost_peer(connected: Any) -> None:
    """Makes the kernel detect a peer that is lost without a message, so that a wait without a limit
    ends.
    """
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _check_owner(connected: Any) -> None:
    """Raises `PermissionError` if the server at the other end of a Unix socket belongs to another
    user.
    """
    _, uid, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid != os.geteuid():
        raise PermissionError(f"the server belongs to user {uid}")


BLOCKING = Blocking()
AWAITING = Awaiting()
_END: Any = object()


def now(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` over `BLOCKING` to its end, and returns its value."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("the work waited for an event loop")


def iterate(items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Iterates over a generator over `BLOCKING`."""

    async def following() -> Any:
        try:
            return await items.__anext__()
        except StopAsyncIteration:
            return _END

    try:
        while True:
            item = now(following())
            if item is _END:
                return
            yield item
    finally:
        now(items.aclose())
