"""The command that a sealed kernel is started by, and the process that runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from typing import Any, Iterable, Mapping, Optional, Sequence

from ..client._binary import find_binary

# The kernel takes the place of this shell. What is left of it sends signals to the kernel and what
# that has started in its process group, by the numbers that it reads, and writes texts to the
# kernel's standard error, which ipykernel shows in the running cell. At the end of its input, which
# is that of the Jupyter server, it kills both. The first line is the connection file: it is written
# here and not by the server, because earlier code of this kernel may have put a link in its place.
_PROGRAM = """
exec 3<&0
mark=$1
shift
IFS= read -r connection <&3
rm -rf "$0/connection.json"
(umask 077; printf '%s\\n' "$connection" >"$0/connection.json")
(
    trap '' INT TERM HUP QUIT USR1 USR2
    while read -r what text <&3; do
        case $what in
            say) printf '%s\\n' "$text" >/proc/$$/fd/2 2>/dev/null & ;;
            *) kill -"$what" 0 ;;
        esac
    done
    kill -KILL 0
) &
: >"$0/$mark"
exec "$@" </dev/null 3<&-
"""
# Variables of the server that are not the kernel's: ipykernel ends itself if its parent has not
# this PID.
_NOT_PASSED = ("JPY_PARENT_PID",)
# Variables that `sandtimer run` itself reads, none of them a secret: with values for the kernel,
# they stay in its arguments.
_READ_BY_SANDTIMER = re.compile(r"(SANDTIMER_(?!TOKEN|NATS)|LD_|XDG_).*|PATH|HOME|TMPDIR|TERM|NO_COLOR|RUST_.*")


def connection_path(directory: str) -> str:
    """The path of the connection file of a kernel whose sockets are in `directory`."""
    return os.path.join(directory, "connection.json")


def kernel_variables(given: Mapping[Any, Any], of_kernelspec: Iterable[str]) -> dict[str, str]:
    """The variables of a kernel: its kernelspec's, and those that differ from the server's."""
    variables = {str(name): str(value) for name, value in given.items()}
    wanted = set(of_kernelspec)
    return {
        name: value
        for name, value in variables.items()
        if name not in _NOT_PASSED and (name in wanted or os.environ.get(name) != value)
    }


def command(directory: str, mark: str, kernel: Sequence[str], options: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The command of a kernel that writes the file `mark` in `directory` when it starts.

    Arguments of processes are public, and their environment is not: values of variables are not
    among the arguments.
    """
    passed = [
        f"--env={name}={value}" if _READ_BY_SANDTIMER.fullmatch(name) else f"--env={name}"
        for name, value in variables.items()
    ]
    run = [find_binary("a sealed kernel"), "run", "--json", "--errors=replace", f"--workspace={directory}", *options, *passed]
    return [*run, "--", "/bin/sh", "-c", _PROGRAM, directory, mark, *kernel]


class SealedProcess:
    """A running kernel: the process of `sandtimer run`, its signals, and its Outcome at the end."""

    def __init__(self, arguments: Sequence[str], kernel: str, cwd: Any, variables: Mapping[str, str]) -> None:
        # What the kernel is installed with is shown if its directory is on PATH.
        path = os.environ.get("PATH", "")
        if os.sep in kernel:
            path = os.pathsep.join([os.path.dirname(kernel), path])
        shown = {name: value for name, value in variables.items() if not _READ_BY_SANDTIMER.fullmatch(name)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            arguments,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=cwd,
            env={**os.environ, **shown, "PATH": path},
            start_new_session=True,
        )
        self._outputs = {"stdout": b"", "stderr": b""}
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._outputs]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        self._outputs[name] = getattr(self.process, name).read()

    def connect(self, file: str) -> None:
        """Sends the contents of the connection file, before anything else."""
        with open(file, encoding="utf-8") as opened:
            self._send(json.dumps(json.load(opened)))

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
            record = json.loads(self._outputs["stdout"])
        except ValueError:
            return None
        return record if isinstance(record, dict) else None

    def startup_error(self) -> str:
        """What `sandtimer` itself has written when it could not start the run."""
        self._join()
        return self._outputs["stderr"].decode("utf-8", "replace").strip()

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
