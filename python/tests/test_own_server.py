"""A client without an address: the user's own server is started, shared and started again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import os
import pathlib
import signal
import socket
import struct
import threading
import time
from typing import Any, Callable, Iterator

import pytest
import sandtimer
from sandtimer.client import _wire as _client_wire
from serving import BINARY, Serving
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


def health(client: sandtimer.Client, awaited: bool) -> Any:
    return asyncio.run(client.ahealth()) if awaited else client.health()


def script(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> Callable[[], list[str]]:
    """Replaces the program. Returns a function that reads the PIDs of those which were executed."""
    program, pids = path / "program", path / "pids"
    program.write_text(f"#!/bin/sh\necho $$ >>'{pids}'\n{lines}\n")
    program.chmod(0o755)
    monkeypatch.setenv("SANDTIMER_BIN", str(program))
    return lambda: pids.read_text().split() if pids.exists() else []


@pytest.mark.parametrize("awaited", [False, True])
def test_usual_server_that_restarts_is_not_replaced(
    own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, awaited: bool
) -> None:
    usual = Serving(tmp_path / "usual")
    try:
        monkeypatch.setattr(_client_wire, "DEFAULT_URL", usual.url)
        client = sandtimer.Client()
        assert health(client, awaited)["status"] == "ok"
        usual.stop()
        with pytest.raises(sandtimer.ServerUnreachableError, match=f"{usual.url} does not answer") as gone:
            health(client, awaited)
    finally:
        usual.stop()
    assert gone.value.retryable
    assert not own.exists()


def test_own_server_is_kept_once_it_was_chosen(own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = sandtimer.Client()
    run = client.start(["true"])
    port = int(_client_wire.DEFAULT_URL.rpartition(":")[2])
    # What connects there would wait for an answer.
    with socket.create_server(("127.0.0.1", port)):
        assert run.wait().exit_code == 0
        assert copy.deepcopy(client).health()["status"] == "ok"


class EndingServer:
    """Answers at a Unix socket, in the order of `acts`: "reset" without reading, "crash" after reading, "ending", "ok"."""

    ANSWERS = {
        "ending": (b"503 Service Unavailable", b'{"code": "shutting_down", "message": "it is ending", "retryable": true}'),
        "ok": (b"200 OK", b'{"status": "ok"}'),
    }

    def __init__(self, path: pathlib.Path, acts: list[str]) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self.acts = list(acts)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while self.acts:
            connection, _ = self._listener.accept()
            with connection:
                act = self.acts.pop(0)
                if act != "reset":
                    connection.recv(65536)
                if act in self.ANSWERS:
                    status, body = self.ANSWERS[act]
                    connection.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
        self._listener.close()


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("acts", [["reset"], ["ending"], ["crash"], ["ending", "reset"]], ids=" ".join)
def test_own_server_that_is_ending_is_started_again(
    own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, acts: list[str], awaited: bool
) -> None:
    socket_path = tmp_path / "own.sock"
    programs = script(tmp_path, monkeypatch, f"echo 'unix:{socket_path}'")
    EndingServer(socket_path, ["ok", *acts, "ok"])
    client = sandtimer.Client()
    assert health(client, awaited)["status"] == "ok"
    assert health(client, awaited)["status"] == "ok"
    assert len(programs()) == 1 + len(acts)


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize(
    "acts, error",
    [
        (["crash", "ok"], "closed the connection"),
        (["ending", "crash", "ok"], "closed the connection"),
        (["ending", "ending", "ending", "ok"], "it is ending"),
    ],
)
def test_request_to_own_server_is_not_repeated_for_ever(
    own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, acts: list[str], error: str, awaited: bool
) -> None:
    socket_path = tmp_path / "own.sock"
    script(tmp_path, monkeypatch, f"echo 'unix:{socket_path}'")
    server = EndingServer(socket_path, acts)
    with pytest.raises(sandtimer.ServerError, match=error) as ended:
        client = sandtimer.Client()
        asyncio.run(client.arun(["true"])) if awaited else client.run(["true"])
    assert ended.value.retryable
    # A request that the server may have processed is not sent again.
    assert server.acts == ["ok"]
    if ended.value.code == "unreachable":
        assert str(ended.value).startswith(f"unix:{socket_path} does not answer")


def test_first_calls_share_one_start(own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def all_of(client: sandtimer.Client) -> list[Any]:
        return await asyncio.gather(*[client.ahealth() for _ in range(30)])

    programs = script(tmp_path, monkeypatch, f"exec '{BINARY}' \"$@\"")
    answers = asyncio.run(all_of(sandtimer.Client()))
    assert [answer["status"] for answer in answers] == ["ok"] * 30
    assert len(programs()) == 1
    client = sandtimer.Client()
    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(lambda _: client.health(), range(30)))
    assert [answer["status"] for answer in answers] == ["ok"] * 30
    assert len(programs()) == 2


def test_call_uses_a_start_whose_calls_have_not_continued(
    own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = script(tmp_path, monkeypatch, f"exec '{BINARY}' \"$@\"")
    client = sandtimer.Client()
    server = client._server
    start = server._own.join_start(None)
    start.socket.result(60)
    assert client.health()["status"] == "ok"
    assert len(programs()) == 1
    server._own.leave_start(start)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_cancelled_start_ends_the_program(own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancelled() -> None:
        call = asyncio.create_task(sandtimer.Client().ahealth())
        while not programs():
            await asyncio.sleep(0.01)
        call.cancel()
        await call

    programs = script(tmp_path, monkeypatch, "exec sleep 600")
    begun = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert time.monotonic() - begun < 20
    wait_until(lambda: not os.path.exists(f"/proc/{programs()[0]}"))


def test_start_continues_for_other_calls(own: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def one_cancelled() -> Any:
        client = sandtimer.Client()
        first, second = asyncio.create_task(client.ahealth()), asyncio.create_task(client.ahealth())
        while not programs():
            await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        (tmp_path / "go").touch()
        return await second

    programs = script(tmp_path, monkeypatch, f"until [ -e '{tmp_path}/go' ]; do sleep 0.05; done; exec '{BINARY}' \"$@\"")
    assert asyncio.run(one_cancelled())["status"] == "ok"
    assert len(programs()) == 1
