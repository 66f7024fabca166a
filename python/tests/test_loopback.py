"""Sockets of the loopback in every run, context and session: programs reach themselves, and nothing of the host."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from typing import Iterator

import pytest
import sandtimer
from doors import EVERY, Doors, named, request

# Of both families, with and without a connection, and by names of Unix sockets.
OWN_SOCKETS = r"""
import os, socket
done = []
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET, "localhost")):
    with socket.socket(family) as listener, socket.socket(family) as client:
        listener.bind((host, 0))
        listener.listen()
        client.settimeout(20)
        client.connect(listener.getsockname())
        with listener.accept()[0] as served:
            served.sendall(host.encode())
        done.append(client.recv(99).decode())
with socket.socket(type=socket.SOCK_DGRAM) as sender, socket.socket(type=socket.SOCK_DGRAM) as receiver:
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(20)
    sender.sendto(b"datagram", receiver.getsockname())
    done.append(receiver.recv(99).decode())
one, other = socket.socketpair()
one.sendall(b"pair")
done.append(other.recv(99).decode())
for name in ("/tmp/socket-of-a-test", "\0abstract"):
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(name)
        listener.listen()
        client.settimeout(20)
        client.connect(name)
        with listener.accept()[0] as served:
            served.sendall(b"unix")
        done.append(client.recv(99).decode())
os.unlink("/tmp/socket-of-a-test")
print(*done)
"""
# The server and its client are two processes, as `npm run dev` and a test of it are.
SERVER_AND_CLIENT = r"""
import socket, subprocess, sys, time, urllib.request
free = socket.create_server(("127.0.0.1", 0))
port = free.getsockname()[1]
free.close()
command = ["python3", "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", "/usr"]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
try:
    until = time.monotonic() + 40
    while True:
        try:
            print(urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20).status)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
finally:
    server.kill()
    server.wait()
"""


@pytest.fixture(scope="module")
def doors(server: str) -> Iterator[Doors]:
    with sandtimer.Sandbox(timeout=60.0) as box:
        yield Doors(server, box)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Of this process, on the host's loopback."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


def tries(listener: socket.socket) -> str:
    """A program that tries to reach the listener, and says which number the attempt came to."""
    host, port = listener.getsockname()
    return f"import socket\ns = socket.socket()\ns.settimeout(20)\nprint('connected', s.connect_ex(({host!r}, {port})))"


def callers(listener: socket.socket) -> int:
    count = 0
    while True:
        try:
            listener.accept()[0].close()
            count += 1
        except BlockingIOError:
            return count


@named(*EVERY)
def test_program_reaches_sockets_of_its_own(doors: Doors, door: str) -> None:
    ended = getattr(doors, door)(OWN_SOCKETS)
    assert ended.stdout == "127.0.0.1 ::1 localhost datagram pair unix unix\n", ended.whole


@named(*EVERY)
def test_server_and_its_client_are_in_one_run(doors: Doors, door: str) -> None:
    ended = getattr(doors, door)(SERVER_AND_CLIENT)
    assert ended.stdout == "200\n", ended.whole


@named(*EVERY)
def test_listener_of_the_host_is_not_reached(doors: Doors, door: str, listener: socket.socket) -> None:
    code = tries(listener)
    refused = getattr(doors, door)(code).stdout
    assert refused.startswith("connected ") and refused != "connected 0\n"
    assert callers(listener) == 0
    # The control: the same program outside.
    outside = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (outside.stdout, callers(listener)) == ("connected 0\n", 1)


def test_listener_of_the_host_is_reached_with_the_network(doors: Doors, listener: socket.socket) -> None:
    code = tries(listener)
    with sandtimer.Sandbox(timeout=60.0, network=True) as box:
        given = Doors(doors.server, box)
        seen = [getattr(given, door)(code) for door in ("exec", "command", "call", "context", "judge")]
    seen += [getattr(doors, door)(code, flags=("--network",)) for door in ("cli_python", "cli_run")]
    seen += [getattr(doors, door)(code, network=True) for door in ("http_code", "http_command")]
    assert [ended.stdout for ended in seen] == ["connected 0\n"] * 9, [ended.whole for ended in seen]
    assert callers(listener) == 9


def test_port_of_a_run_is_not_the_hosts(doors: Doors) -> None:
    """No process outside reaches it, and its number is free for other runs."""
    code = "import socket, sys\nwith socket.create_server(('127.0.0.1', PORT)):\n    sys.stdin.readline()"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        asked = {"code": code.replace("PORT", str(port)), "language": "python", "stdin_open": True, "wait_ms": 0}
        asked["wall_ms"] = 60_000
        # While this process listens on it, too, and a second run.
        runs = [request(f"{doors.server}/v1/runs", asked)["run_id"] for _ in range(2)]
    try:
        for run in runs:
            waited = request(f"{doors.server}/v1/runs/{run}/wait", {"port": port, "wait_ms": 40000})
            assert waited["listening"], waited
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", port))
    finally:
        for run in runs:
            request(f"{doors.server}/v1/runs/{run}/kill", {})


# A server of one cell or command is asked by the next.
SERVES = """
import http.server, threading
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
"""
ASKS = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:8000/', timeout=20).status)"


def test_later_cells_of_a_context_ask_its_server(doors: Doors) -> None:
    with doors.box.context("python") as opened:
        assert opened.run(SERVES).ok
        assert opened.run(ASKS).stdout == "200\n"
        # Processes that a cell starts are in the same network.
        asks = f"import subprocess; subprocess.run(['python3', '-c', {ASKS!r}], text=True, capture_output=True).stdout"
        assert opened.run(asks).value == "200\n"
    with doors.box.context("python") as other:
        assert "refused" in str(other.run(ASKS).error), "another context has a loopback of its own"


def test_later_commands_of_a_session_ask_its_server(doors: Doors) -> None:
    with sandtimer.Client(doors.server).session() as opened:
        # Ends once the server listens.
        serve = SERVES.replace("threading.Thread", 'print("up", flush=True)\nthreading.Thread').replace(", daemon=True", "")
        started = opened.run(f"coproc python3 -c '{serve}' 2>/dev/null\nread -t 40 line <&${{COPROC[0]}}; echo $line")
        assert started.stdout == "up\n", started
        assert opened.run(f'python3 -c "{ASKS}"').stdout == "200\n"


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
@pytest.mark.parametrize("way", ["code", "context", "run_code"])
def test_javascript_reaches_a_server_of_its_own(doors: Doors, way: str) -> None:
    code = """
const net = require("net");
const said = (host) => new Promise((resolve, reject) => {
  const server = net.createServer((socket) => socket.end(host)).on("error", reject);
  server.listen(0, host, () => net.connect(server.address().port, host).on("error", reject)
    .on("data", (data) => { server.close(); resolve(data.toString()); }));
});
Promise.all([said("127.0.0.1"), said("::1")]).then((hosts) => console.log(hosts.join(" ")))"""
    waits = code.replace("Promise.all", "await Promise.all")
    if way == "code":
        ended = doors.http_run(code=code, language="javascript")
    elif way == "context":
        ended = doors.http_context(waits, language="javascript")
    else:
        ended = doors.mcp("run_code", {"language": "javascript", "code": waits})
    assert ended.stdout == "127.0.0.1 ::1\n", ended.whole
