"""The command that a sealed kernel is started by, and the process that runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from typing import Any, Optional, Sequence

# The kernel takes the place of this shell. What is left of it sends signals to the kernel and what that has started in
# its process group, by the numbers that it reads, and writes texts to the kernel's standard error, which ipykernel shows in
# the running cell. At the end of its input, which is that of the Jupyter server, it kills both.
_PROGRAM = """
exec 3<&0
(
    trap '' INT TERM HUP
    while read -r what text <&3; do
        case $what in
            say) printf '%s\\n' "$text" >/proc/$$/fd/2 2>/dev/null & ;;
            *) kill -"$what" 0 ;;
        esac
    done
    kill -KILL 0
) &
: >"$0/started"
exec "$@" </dev/null 3<&-
"""
# Variables of the server that are not the kernel's: ipykernel ends itself where its parent has not this number.
_NOT_PASSED = ("JPY_PARENT_PID",)


def find_binary() -> str:
    """The path of the `sandtimer` program. Raises `RuntimeError` where there is none."""
    named = os.environ.get("SANDTIMER_BIN")
    beside = os.path.join(os.path.dirname(sys.executable), "sandtimer")
    found = shutil.which(named) if named else shutil.which("sandtimer") or shutil.which(beside)
    if found is None:
        where = f"SANDTIMER_BIN={named!r} does not name it" if named else "it is not on PATH"
        raise RuntimeError(f"kernels are sealed by the program `sandtimer`, and {where}; install it, or set SANDTIMER_BIN to its path")
    return found


def command(binary: str, directory: str, kernel: Sequence[str], options: Sequence[str], environment: dict[str, str]) -> list[str]:
    """The command of a kernel whose sockets and connection file are in `directory`."""
    passed = [f"--env={name}={value}" for name, value in environment.items() if name not in _NOT_PASSED and os.environ.get(name) != value]
    run = [binary, "run", "--json", "--errors=replace", f"--workspace={directory}", *options, *passed]
    return [*run, "--", "/bin/sh", "-c", _PROGRAM, directory, *kernel]


class SealedProcess:
    """A running kernel: the process of `sandtimer run`, its signals, and its Outcome at the end."""

    def __init__(self, arguments: Sequence[str], kernel: str, cwd: Any) -> None:
        # What the kernel is installed with is shown if its directory is on PATH.
        path = os.pathsep.join([os.path.dirname(kernel), os.environ.get("PATH", "")]) if os.sep in kernel else os.environ.get("PATH", "")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            arguments, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env={**os.environ, "PATH": path}, start_new_session=True
        )
        self._texts = {"stdout": b"", "stderr": b""}
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._texts]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        self._texts[name] = getattr(self.process, name).read()

    def send_signal(self, number: int) -> None:
        """Sends a signal to the kernel's process group. Does nothing where it has ended."""
        self._send(str(number))

    def show(self, text: str) -> None:
        """Writes a line to the kernel's standard error."""
        self._send(f"say {text}")

    def _send(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except (OSError, ValueError):
            # It has ended.
            pass

    def end(self) -> None:
        """Ends the run with all its processes."""
        if self.process.poll() is None:
            self.process.terminate()

    def outcome(self) -> Optional[dict[str, Any]]:
        """The Outcome of the ended run; None where there was none."""
        self._join()
        try:
            record = json.loads(self._texts["stdout"])
        except ValueError:
            return None
        return record if isinstance(record, dict) else None

    def complaint(self) -> str:
        """What `sandtimer` itself has written when it could not start the run."""
        self._join()
        return self._texts["stderr"].decode("utf-8", "replace").strip()

    def _join(self) -> None:
        for reader in self._readers:
            reader.join(5.0)

    def close(self) -> None:
        """Closes its pipes."""
        self._join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                # What was to be sent to a kernel that has ended.
                pass


def reason(outcome: Optional[dict[str, Any]]) -> Optional[str]:
    """Why a kernel ended that was not asked to; None where it ended by itself without an error."""
    if outcome is None:
        return "The kernel's run ended without an outcome."
    if outcome["verdict"]:
        return str(outcome["verdict"]["sentence"])
    if outcome["signal"]:
        return f"The kernel was ended by {outcome['signal']}, which Sandtimer did not send."
    if outcome["exit_code"]:
        return f"The kernel exited with code {outcome['exit_code']}."
    return None
