"""A server of its own on a port of loopback, and clients that speak to it with no more than the standard library."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from typing import Any, Iterator, Optional

BINARY = os.environ.get("SANDTIMER_BINARY", "target/release/sandtimer")
#: No answer takes longer.
PATIENCE = 120.0
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)


class Server:
    """`sandtimer serve` in a directory of its own, until the end of a `with` block."""

    def __init__(self, state: Optional[str] = None, arguments: tuple[str, ...] = ()) -> None:
        self.own = state is None
        self.state = state or tempfile.mkdtemp(prefix="sandtimer-bench-")
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--state-dir", self.state, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)\s*$", line)
        if found is None:
            raise RuntimeError(f"the server did not come up: {line!r}")
        self.port = int(found.group(1))

    def client(self) -> Client:
        return Client(self.port)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.own:
            shutil.rmtree(self.state, ignore_errors=True)


class Client:
    """One connection that is kept. It measures the server: a request is written in one piece, as browsers, Node.js, Go and Rust
    write it, and of an answer's head only what is needed is read."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, method: str, path: str, body: bytes = b"", headers: str = "") -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(body)}\r\n{headers}\r\n".encode() + body)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON; RuntimeError for a refusal."""
        self.send(method, path, b"" if body is None else json.dumps(body).encode())
        status, content = self.answer()
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {content[:500]!r}")
        return json.loads(content) if content else None

    def answer(self) -> tuple[int, bytes]:
        """The status of an answer and its content, of which the head says how long it is."""
        parts: list[bytes] = []
        head, found, rest = b"", b"", b""
        while not found:
            head, found, rest = (head + self.more()).partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        status = int(head[9:12])
        if length is None and status != 204:
            raise RuntimeError(f"an answer does not say how long it is: {head!r}")
        left = (int(length.group(1)) if length else 0) - len(rest)
        while left > 0:
            parts.append(self.more())
            left -= len(parts[-1])
        return status, rest + b"".join(parts)

    def more(self) -> bytes:
        received = self.socket.recv(1 << 18)
        if not received:
            raise RuntimeError("the server has closed the connection")
        return received

    def open(self, kind: str = "contexts", **fields: Any) -> str:
        """A new context or session; the path of it."""
        return f"/v1/{kind}/{self.ask('POST', f'/v1/{kind}', fields)['context_id']}"

    def execute(self, place: str, **fields: Any) -> dict[str, Any]:
        return self.ask("POST", f"{place}/execute", fields)["outcome"]

    def events(self, run: str, after: Optional[str] = None) -> Iterator[tuple[str, str, Any]]:
        """Id, name and data of each event of a run, to its end."""
        self.send("GET", f"/v1/runs/{run}/events", headers="" if after is None else f"Last-Event-ID: {after}\r\n")
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        event = {"id": "", "event": "", "data": ""}
        while line := response.readline():
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name in event:
                event[name] = value
            elif not name and event["data"]:
                yield event["id"], event["event"], json.loads(event["data"])
                event = {"id": event["id"], "event": "", "data": ""}
