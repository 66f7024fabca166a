"""A server of its own on a port of loopback, and clients that speak to it with no more than the standard library."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from typing import Any, Iterator, Optional

BINARY = os.environ.get("SANDTIMER_BINARY", "target/release/sandtimer")
#: No answer takes longer.
PATIENCE = 120.0


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
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON; RuntimeError for a refusal."""
        content = None if body is None else json.dumps(body)
        self.connection.request(method, path, content, {"content-type": "application/json"})
        response = self.connection.getresponse()
        text = response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {response.status} {text[:500]!r}")
        return json.loads(text) if text else None

    def open(self, kind: str = "contexts", **fields: Any) -> str:
        """A new context or session; the path of it."""
        return f"/v1/{kind}/{self.ask('POST', f'/v1/{kind}', fields)['context_id']}"

    def execute(self, place: str, **fields: Any) -> dict[str, Any]:
        return self.ask("POST", f"{place}/execute", fields)["outcome"]

    def events(self, run: str, after: Optional[str] = None) -> Iterator[tuple[str, str, Any]]:
        """Id, name and data of each event of a run, to its end."""
        headers = {} if after is None else {"Last-Event-ID": after}
        self.connection.request("GET", f"/v1/runs/{run}/events", headers=headers)
        response = self.connection.getresponse()
        event = {"id": "", "event": "", "data": ""}
        while line := response.readline():
            name, _, value = line.decode().rstrip("\r\n").partition(": ")
            if name in event:
                event[name] = value
            elif not name and event["data"]:
                yield event["id"], event["event"], json.loads(event["data"])
                event = {"id": event["id"], "event": "", "data": ""}
