"""The encoder as the sandbox has it: source text in a bare interpreter, and errors that say what to do."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import carry
import pytest
from sandtimer import _sandtimer


class Stubborn:
    def __getstate__(self) -> Any:
        raise ValueError("not me")


class Holder:
    def __init__(self) -> None:
        self.fine = 1
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (threading.Lock(), ["_thread.lock"]),
        ({"a": 1, "b": threading.Lock()}, ["['b']", "lock", "dict"]),
        ([1, (yield_ for yield_ in ())], ["[1]", "generator"]),
        ((lambda: 0), ["function"]),
        (Holder(), [".lock", "Holder"]),
        (Stubborn(), ["Stubborn", "not me"]),
    ],
    ids=["a lock", "in a dict", "in a list", "a lambda", "in a field", "by its own code"],
)
def test_what_cannot_be_written_is_named(value: Any, words: list[str]) -> None:
    with pytest.raises(TypeError) as error:
        carry.encode(value)
    for word in words:
        assert word in str(error.value)


def test_a_value_too_deep_is_an_error() -> None:
    value: list[Any] = []
    for _ in range(200_000):
        value = [value]
    with pytest.raises(TypeError, match="recursion"):
        carry.encode(value)
    while value:
        value = value[0]


def test_it_leaves_nothing_behind() -> None:
    before = set(sys.modules)
    carry.encode(b"x" * 100_000)
    with pytest.raises(TypeError):
        carry.encode(threading.Lock())
    assert set(sys.modules) == before


def test_it_runs_in_a_bare_interpreter() -> None:
    source, _ = _sandtimer.child_source()
    program = (
        "import sys\n"
        "names = {'__name__': 'sandtimer_child', '__file__': 'child.py'}\n"
        "exec(compile(sys.stdin.read(), 'encode.py', 'exec'), names)\n"
        "data, buffers = names['encode']([1, b'x' * 100_000])\n"
        "assert 'sandtimer' not in sys.modules and 'typing' not in sys.modules\n"
        "sys.stdout.buffer.write(data)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], input=source.encode(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert carry.decode(done.stdout, [b"x" * 100_000]) == [1, b"x" * 100_000]
