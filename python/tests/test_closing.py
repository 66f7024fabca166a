"""Closing and dropping sandboxes whose interpreter is still starting, or has a child that is not ready yet."""

from __future__ import annotations

import os
import pathlib
import threading
import time

import pytest
import sandtimer

# An interpreter that takes a minute to say that it is ready, which is as long as it may.
SECONDS = "61.7"
# Far below that.
AT_ONCE = 20.0


@pytest.fixture
def slow(tmp_path: pathlib.Path) -> str:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec sleep {SECONDS}\n")
    program.chmod(0o755)
    return str(program)


def starting() -> list[int]:
    """Interpreters of this process's that are not ready."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as line, open(f"/proc/{name}/stat") as stat:
                ours = int(stat.read().rpartition(")")[2].split()[1]) == os.getpid()
                if ours and line.read() == f"sleep\0{SECONDS}\0".encode():
                    found.append(int(name))
        except OSError:
            pass
    return found


def wait_for_one() -> int:
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        for pid in starting():
            return pid
        time.sleep(0.01)
    raise AssertionError("no interpreter was started")


def test_closing_ends_an_interpreter_that_starts_and_tells_who_waits(slow: str) -> None:
    box = sandtimer.Sandbox(python=slow)
    said: list[str] = []

    def wait(how: str) -> None:
        try:
            box.warm(1) if how == "warm" else box.call(abs, -1)
        except sandtimer.SandboxUnavailableError as error:
            said.append(str(error))

    threads = [threading.Thread(target=wait, args=(how,)) for how in ("warm", "call")]
    for thread in threads:
        thread.start()
    wait_for_one()
    begun = time.monotonic()
    box.close()
    for thread in threads:
        thread.join()
    assert time.monotonic() - begun < AT_ONCE
    assert len(said) == 2 and all("closed" in each for each in said)
    assert starting() == []


def test_dropping_a_sandbox_ends_an_interpreter_that_starts(slow: str) -> None:
    box = sandtimer.Sandbox(python=slow)
    # Begins to fill the pool, as any use does.
    box.stats()
    wait_for_one()
    begun = time.monotonic()
    del box
    assert time.monotonic() - begun < AT_ONCE
    assert starting() == []
