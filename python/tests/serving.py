"""A real server on a port of loopback, and a proxy in front of it that breaks connections as it is told."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import threading
from typing import Any, Callable, Optional, Sequence

BINARY = os.environ.get("SANDTIMER_BIN") or str(pathlib.Path(__file__).parents[2] / "target/debug/sandtimer")


class Serving:
    """`cargo build` makes what it starts, or SANDTIMER_BIN names it."""

    def __init__(self, directory: pathlib.Path, tokens: Optional[str] = None, flags: Sequence[str] = ()) -> None:
        self._command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--state-dir", str(directory / "state"), *flags]
        if tokens is not None:
            file = directory / "tokens"
            file.touch(mode=0o600)
            file.write_text(tokens)
            self._command += ["--token-file", str(file)]
        self._process: Optional[subprocess.Popen[str]] = None
        self.launch()

    def launch(self) -> None:
        """Starts it, again with the records of the last time."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "http://" in line, f"{BINARY} did not come up: {line}"
        self.url = line[line.index("http://") :].split()[0]

    def crash(self) -> None:
        self._end(subprocess.Popen.kill)

    def stop(self) -> None:
        self._end(subprocess.Popen.terminate)

    def _end(self, how: Callable[[Any], None]) -> None:
        process, self._process = self._process, None
        if process is not None:
            how(process)
            process.wait(30)
            process.stdout.close()  # type: ignore[union-attr]


class Proxy:
    """Passes requests on; answers go through `treat(bytes, connection)`, which gives what goes on, and whether it is cut."""

    def __init__(self, url: str, treat: Callable[[bytes, int], tuple[bytes, bool]]) -> None:
        self.target, self._treat = url, treat
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            host, port = self.target.removeprefix("http://").split(":")
            try:
                far = socket.create_connection((host, int(port)))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self._pass, args=(near, far, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, self.connections), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, connection: Optional[int]) -> None:
        cut = False
        try:
            while not cut:
                data = source.recv(65536)
                if not data:
                    break
                if connection is not None:
                    data, cut = self._treat(data, connection)
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
