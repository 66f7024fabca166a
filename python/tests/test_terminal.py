"""The command line on a terminal, compared with the command alone: keys, loops of a shell."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from typing import Callable

import pytest
from serving import BINARY

PATIENCE = 60.0
LOOP = "for number in 1 2 3; do {}; done; echo the loop is done"


def on_terminal(script: str, key: bytes, is_time: Callable[[str], bool]) -> tuple[str, int]:
    """What bash shows on a terminal of its own where a key is pressed as soon as that is due; its wait status."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-c", script])
    shown, pressed, until = "", False, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        ready, _, _ = select.select([master], [], [], 1.0)
        try:
            part = os.read(master, 65536) if ready else b""
        except OSError:
            # The terminal has no process left.
            break
        shown += part.decode("utf-8", "replace")
        if not pressed and is_time(shown):
            os.write(master, key)
            pressed = True
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(master)
    assert pressed, shown
    return shown, status


def is_up(shown: str) -> bool:
    return "up" in shown


COMMANDS = {
    "without Sandtimer": "sh -c 'echo up; exec sleep 50'",
    "run": "{sandtimer} run --wall 50 -- sh -c 'echo up; exec sleep 50'",
    # No terminal of its own, as its output is not on one: the key reaches Sandtimer.
    "run, piped": "{sandtimer} run --wall 50 -- sh -c 'echo up; exec sleep 50' | cat",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_interrupt_ends_the_loop_of_a_shell(name: str) -> None:
    command = COMMANDS[name].format(sandtimer=BINARY)
    shown, status = on_terminal(LOOP.format(command), b"\x03", is_up)
    assert "the loop is done" not in shown, shown
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT, (status, shown)


@pytest.mark.parametrize("output", ["", " </dev/null | cat"])
def test_signal_of_a_process_ends_no_loop(output: str) -> None:
    """The control: no key has sent it."""
    command = f"{BINARY} run --wall 50 -- sh -c 'echo up; kill -INT $$; sleep 50'{output}"
    shown, status = on_terminal(LOOP.format(command), b"\n", is_up)
    assert "the loop is done" in shown and status == 0, (status, shown)
