"""What the modules of `sandtimer.integrations` share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any, Optional

import pytest

from sandtimer.errors import UnsupportedPlatform
from sandtimer.integrations import _tool_values
from sandtimer.integrations._host_tools import MIME, HostTools
from sandtimer.integrations._settings import need_python, seconds


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (0, None), ("0", None), ("none", None), ("unlimited", None), (2, 2.0), (0.5, 0.5), ("2.5", 2.5),
        ("500ms", 0.5), ("1h30m", 5400.0), (" 10M ", 600.0), ("1d", 86400.0),
    ],
)  # fmt: skip
def test_a_duration_is_read(value: Any, expected: Optional[float]) -> None:
    assert seconds(value) == expected


@pytest.mark.parametrize("value", [True, -1, float("nan"), float("inf"), "soon", "", "1 s", "5x", "s", "-1s", [1]])
def test_what_is_not_a_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError):
        seconds(value)


def test_an_older_python_is_told_which_one_is_needed() -> None:
    need_python("a door", "its project", (3, 9))
    with pytest.raises(UnsupportedPlatform, match=r"a door needs Python 3\.99 or newer, as its project does, and this is 3\."):
        need_python("a door", "its project", (3, 99))


def test_the_package_imports_no_engine_and_no_integration() -> None:
    code = "import sys, sandtimer; print([name for name in sys.modules if name.startswith('sandtimer.')]); sandtimer.Sandbox; print(sandtimer.errors)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("[]\n<module 'sandtimer.errors'"), done.stderr


@pytest.mark.parametrize(
    "value",
    [None, True, 1, 1.5, "ü", b"\xff", [1, [2]], (1, (2,)), {1, 2}, frozenset({1}), {"a": {1: 2}}, {(1, 2): b""}, {_tool_values.MARK: 1}],
)
def test_a_plain_value_comes_back_as_it_was(value: Any) -> None:
    back = _tool_values.loads(_tool_values.dumps(value))
    assert back == value and type(back) is type(value)


def test_another_value_is_refused_with_its_type() -> None:
    with pytest.raises(TypeError, match="a value of type object cannot be sent: use plain values"):
        _tool_values.dumps([object()])


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "[]", "[" * 200_000, '["../../etc/x", "f", [], {}]', '["0123456789abcdef", 1, [], {}]',
        '["0123456789abcdef", "f", [], 1]',
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_malformed_call_is_not_answered(text: str) -> None:
    tools = HostTools({"f": lambda: 1})
    try:
        tools.on_display({MIME: text})
        assert os.listdir(tools.directory) == []
        tools.on_display({MIME: '["0123456789abcdef", "f", [], {}]'})
        assert os.listdir(tools.directory) == ["0123456789abcdef"]
        tools.forget()
        assert os.listdir(tools.directory) == []
    finally:
        tools.close()


def test_the_directory_of_forgotten_tools_is_removed_by_its_process() -> None:
    tools = HostTools({"f": lambda: 1})
    directory = tools.directory
    child = os.fork()
    if child == 0:
        try:
            tools.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.path.isdir(directory)
    del tools
    gc.collect()
    assert not os.path.exists(os.path.dirname(directory))
