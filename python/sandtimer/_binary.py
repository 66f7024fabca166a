"""The `sandtimer` program, and the user's own server, which it starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

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


def start_own_server() -> str:
    """The path of the socket of this user's server, which is started if it is not running.

    Raises `RuntimeError` if there is no `sandtimer` program, or it cannot start the server.
    """
    command = [find_binary("a server of your own"), "serve", "--on-demand"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_START_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{command[0]} cannot start a server: {error}") from error
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().replace("sandtimer: ", "", 1) or f"{command[0]} ended with {done.returncode}")
    return done.stdout.strip().replace("unix:", "", 1)
