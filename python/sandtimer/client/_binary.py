"""The `sandtimer` program, and the user's own server, which it starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import Future
from typing import Optional

from .._locks import Guard

# The program itself waits 30 s for the server.
_START_TIMEOUT = 60.0


def find_binary(purpose: str) -> str:
    """The path of the `sandtimer` program. Raises `RuntimeError` if there is none."""
    named = os.environ.get("SANDTIMER_BIN")
    sibling = os.path.join(os.path.dirname(sys.executable), "sandtimer")
    found = shutil.which(named) if named else shutil.which("sandtimer") or shutil.which(sibling)
    if found is None:
        where = f"SANDTIMER_BIN={named!r} does not name it" if named else "it is not on PATH"
        raise RuntimeError(f"{purpose} needs the program `sandtimer`, and {where}; install it, or set SANDTIMER_BIN to its path")
    return found


class ServerStart:
    """A run of the program that starts the user's server. The calls that wait for it share it."""

    def __init__(self) -> None:
        self.socket: Future[str] = Future()
        # Running: a call that is cancelled does not cancel it for the others.
        self.socket.set_running_or_notify_cancel()
        self.waiting_calls = 0
        self.owner_pid = os.getpid()
        command = [find_binary("a server of your own"), "serve", "--on-demand"]
        self._program = command[0]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise RuntimeError(f"{self._program} cannot start a server: {error}") from error
        # Neither an event loop nor the interpreter waits for it at its end.
        threading.Thread(target=self._wait, name="sandtimer-start", daemon=True).start()

    def _wait(self) -> None:
        with self._process as process:
            try:
                output, errors = map(os.fsdecode, process.communicate(timeout=_START_TIMEOUT))
            except subprocess.TimeoutExpired as error:
                process.kill()
                self.socket.set_exception(RuntimeError(f"{self._program} cannot start a server: {error}"))
                return
        if process.returncode == 0:
            self.socket.set_result(output.strip().replace("unix:", "", 1))
        else:
            reason = errors.strip().replace("sandtimer: ", "", 1)
            self.socket.set_exception(RuntimeError(reason or f"{self._program} ended with {process.returncode}"))

    def result(self) -> Optional[str]:
        """The path of the server's socket, if the program has ended and named it."""
        return self.socket.result() if self.socket.done() and self.socket.exception() is None else None

    def kill(self) -> None:
        self._process.kill()


class OwnServer:
    """Starts this user's server once for all calls that need it at a time, in any thread or task."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._start: Optional[ServerStart] = None

    def __reduce__(self) -> tuple[type[OwnServer], tuple[()]]:
        return OwnServer, ()

    @property
    def ended_start(self) -> Optional[ServerStart]:
        """The latest start, if it has ended."""
        start = self._start
        return start if start is not None and start.socket.done() else None

    def join_start(self, ended: Optional[ServerStart]) -> ServerStart:
        """Returns a start that is not `ended`, and begins it unless another call has done so.

        `ended` is what `ended_start` was before the caller tried to connect. Each call is followed
        by one of `leave_start`. Raises `RuntimeError` if there is no `sandtimer` program, or it
        cannot be executed.
        """
        with self._guard.lock:
            start = self._start
            # The thread that waits for a start of the parent process does not exist in a fork.
            if start is None or start is ended or start.owner_pid != os.getpid():
                start = self._start = ServerStart()
            start.waiting_calls += 1
            return start

    def leave_start(self, start: ServerStart) -> None:
        """Ends the program if no other call waits for it."""
        with self._guard.lock:
            start.waiting_calls -= 1
            if start.waiting_calls or start.socket.done():
                return
            if self._start is start:
                self._start = None
        start.kill()
