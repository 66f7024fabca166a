"""The cells of a kernel: which one runs, for how long, and how a reason gets into the notebook.

The watcher reads the kernel's messages as any other client does. When the kernel is dead, the
watcher binds the address of its publishing socket, to which the clients connect again by
themselves, and publishes the reason as output of the cell.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

import zmq
from jupyter_client.session import Session

# Seconds that clients have to connect again, and that further ones have after the first.
_RECONNECT_TIMEOUT = 1.5
_RECONNECT_PAUSE = 0.3
_POLL_INTERVAL = 0.1


class CellWatcher:
    """Follows the cells of one kernel, in a thread of its own, until it has ended."""

    def __init__(self, manager: Any, url: str, timeout: Optional[float], grace: float) -> None:
        own = manager.session
        self._session = Session(key=own.key, signature_scheme=own.signature_scheme, username="sandtimer")
        self._keys = getattr(manager, "curve_publickey", None), getattr(manager, "curve_secretkey", None)
        self._url, self._timeout, self._grace = url, timeout, grace
        # The header of the request whose cell runs, and since when.
        self._cell: Optional[dict[str, Any]] = None
        self._since = 0.0
        self._interrupted = False
        self.ended_cell: Optional[str] = None

    def follow(self, has_ended: Callable[[], bool], interrupt: Callable[[str], None], end: Callable[[], None]) -> None:
        """Follows cells until the kernel has ended; interrupts and ends one that takes too long."""
        with zmq.Context() as context, context.socket(zmq.SUB) as socket:
            self._connect(socket)
            while not has_ended():
                if socket.poll(int(_POLL_INTERVAL * 1000)):
                    self._take(socket.recv_multipart())
                self._check_time(interrupt, end)
            # What a kernel has sent that died at once.
            while socket.poll(int(_POLL_INTERVAL * 1000)):
                self._take(socket.recv_multipart())

    def _connect(self, socket: Any) -> None:
        socket.linger = 0
        if self._keys[0] is not None:
            socket.curve_serverkey = self._keys[0]
            socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(self._url)

    def _take(self, parts: list[bytes]) -> None:
        try:
            _, rest = self._session.feed_identities(parts)
            message = self._session.deserialize(rest)
        except Exception:
            # Not of this kernel, or not signed by it.
            return
        parent = message["parent_header"]
        if message["header"]["msg_type"] != "status" or parent.get("msg_type") != "execute_request":
            return
        state = message["content"].get("execution_state")
        if state == "busy":
            self._cell, self._since, self._interrupted = parent, time.monotonic(), False
        elif state == "idle" and self._cell is not None and self._cell["msg_id"] == parent["msg_id"]:
            self._cell = None

    def _check_time(self, interrupt: Callable[[str], None], end: Callable[[], None]) -> None:
        if self._cell is None or self._timeout is None or self.ended_cell is not None:
            return
        over = time.monotonic() - self._since - self._timeout
        if over >= 0 and not self._interrupted:
            self._interrupted = True
            interrupt(f"Interrupted at the cell limit of {self._timeout:g} s (cell_timeout of the kernelspec).")
        elif over >= self._grace:
            self.ended_cell = (
                f"Stopped by the cell limit of {self._timeout:g} s (cell_timeout of the kernelspec): the cell had not ended "
                f"{self._grace:g} s after its interrupt, so the kernel was ended with all its processes."
            )
            end()

    def publish(self, text: str) -> None:
        """Shows the text as error output of the cell that ran when the kernel ended."""
        with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
            socket.linger = 500
            if self._keys[0] is not None:
                socket.curve_server, socket.curve_secretkey, socket.curve_publickey = True, self._keys[1], self._keys[0]
            socket.bind(self._url)
            deadline = time.monotonic() + _RECONNECT_TIMEOUT
            while (left := deadline - time.monotonic()) > 0:
                if socket.poll(int(left * 1000) + 1):
                    socket.recv()
                    # The server itself connects once for each browser.
                    deadline = min(deadline, time.monotonic() + _RECONNECT_PAUSE)
            content = {"name": "stderr", "text": text + "\n"}
            self._session.send(socket, "stream", content, parent=self._cell or {}, ident=b"stream.stderr")
