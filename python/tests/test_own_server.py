"""A client without an address: the user's own server is started, shared and started again."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import socket
import struct
from typing import Iterator

import pytest
import sandtimer
from sandtimer import _client_wire
from serving import BINARY
from waiting import readable


@pytest.fixture
def own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """The socket of a server that is not running yet; nothing answers at the usual address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    monkeypatch.setattr(_client_wire, "DEFAULT_URL", f"http://127.0.0.1:{closed}")
    monkeypatch.delenv("SANDTIMER_SERVER", raising=False)
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("SANDTIMER_BIN", BINARY)
    path = tmp_path / "mcp" / "mcp.sock"
    yield path
    if path.exists():
        end(path)


def server_of(path: pathlib.Path) -> int:
    """The PID of the server at a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def end(path: pathlib.Path) -> None:
    pidfd = os.pidfd_open(server_of(path))
    signal.pidfd_send_signal(pidfd, signal.SIGTERM)
    assert readable([pidfd], 30)
    os.close(pidfd)


def test_own_server_is_started_shared_and_started_again(own: pathlib.Path) -> None:
    client = sandtimer.Client()
    assert client.run(["echo", "one"]).stdout == "one\n"
    first = server_of(own)
    assert asyncio.run(sandtimer.Client().arun(["echo", "two"])).stdout == "two\n"
    assert server_of(own) == first
    end(own)
    assert client.run(["echo", "three"]).stdout == "three\n"
    assert server_of(own) != first


def test_named_server_is_not_replaced(own: pathlib.Path) -> None:
    with pytest.raises(sandtimer.ServerUnreachableError, match="does not answer.*`sandtimer serve`"):
        sandtimer.Client(_client_wire.DEFAULT_URL).run(["true"])
    assert not own.exists()


def test_missing_program_is_named(own: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDTIMER_BIN", "/nowhere/sandtimer")
    with pytest.raises(sandtimer.ServerUnreachableError, match="SANDTIMER_BIN='/nowhere/sandtimer'") as missing:
        sandtimer.Client().run(["true"])
    assert not missing.value.retryable


def test_directory_of_others_is_refused(own: pathlib.Path) -> None:
    own.parent.mkdir(mode=0o777)
    own.parent.chmod(0o777)
    with pytest.raises(sandtimer.ServerUnreachableError, match="others may write to it"):
        sandtimer.Client().run(["true"])
