"""Sandboxes of processes whose environment is unusual."""

from __future__ import annotations

import pytest

from test_fork import run_alone

CALLS = """
import os, sandtimer
box = sandtimer.Sandbox(timeout=20.0)
ways = {
    "call": lambda: box.call(len, [1]),
    "exec": lambda: box.exec("1"),
    "spawn": lambda: sandtimer.Sandbox(timeout=20.0, start="spawn").call(len, [1]),
    "command": lambda: box.command(["true"]),
    "judge": lambda: box.judge("print(1)", [("", "1")]),
    "context": lambda: box.context().run("1"),
}
for name, way in ways.items():
    try:
        way()
        print(name, "worked")
    except sandtimer.SandboxUnavailableError as error:
        print(name, error)
box.close()
"""


@pytest.mark.parametrize(
    "directory", ["/nonexistent", "/etc/passwd", "/proc/self"], ids=["missing", "a file", "takes no file"]
)
def test_temporary_directory_that_is_none_is_named_at_once(directory: str) -> None:
    """It was looked for again for ever, with every child that stood ready."""
    printed = run_alone(CALLS, environment={"TMPDIR": directory}).splitlines()
    assert len(printed) == 6
    for line in printed:
        assert f"`{directory}`" in line and "set TMPDIR to a directory that exists" in line, line


def test_empty_temporary_directory_is_the_usual_one() -> None:
    assert all(line.endswith(" worked") for line in run_alone(CALLS, environment={"TMPDIR": ""}).splitlines())
