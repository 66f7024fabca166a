"""Parameters that are none, and arguments that cannot be sent, are refused where they are given, with the remedy."""

from __future__ import annotations

import ast
import asyncio
import datetime
import enum
import inspect
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
from typing import Any, Callable, Iterator

import pytest
import sandtimer
from sandtimer import adtools

from test_fork import run_alone

NAN, INFINITY = float("nan"), float("inf")
SURROGATE = "/tmp/\udcff"


class Move:
    pass


class Colour(enum.Enum):
    RED = 1


def refused(kind: type[Exception], words: list[str], given: Any) -> None:
    with pytest.raises(kind) as caught:
        given()
    for word in words:
        assert word in str(caught.value), caught.value
    # All but what Python itself checks.
    assert isinstance(caught.value, sandtimer.SandtimerError) or "unexpected keyword argument" in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        ({"preload": [5]}, TypeError, ["preload", "5", "module names"]),
        ({"preload": 5}, TypeError, ["preload", "5", "module names"]),
        ({"preload": 1}, TypeError, ["preload", "1", "module names"]),
        ({"preload": "numpy"}, TypeError, ["preload", "'numpy'", "list"]),
        ({"preload": b"numpy"}, TypeError, ["preload", "numpy", "list"]),
        ({"preload": [""]}, ValueError, ["preload", "''", "module names"]),
        ({"preload": ["a..b"]}, ValueError, ["preload", "a..b"]),
        ({"network": "yes"}, TypeError, ["network", "'yes'", "True or False"]),
        ({"network": 1}, TypeError, ["network", "1", "True or False"]),
        ({"force": "no"}, TypeError, ["force", "'no'", "True or False"]),
        ({"gpu": "no"}, TypeError, ["gpu", "'no'", "True or False"]),
        ({"gpu": 1, "start": "spawn"}, TypeError, ["gpu", "1", "True or False"]),
        ({"gpu": True}, ValueError, ["gpu=True", 'start="spawn"', "sealed"]),
        ({"gpu": True, "start": "fork"}, ValueError, ["gpu=True", 'start="spawn"', "CUDA"]),
        ({"gpu": True, "start": "threads"}, ValueError, ["start", "'threads'", '"spawn"']),
        ({"results": ["Move"]}, TypeError, ["results", "'Move'", "class"]),
        ({"results": "Move"}, TypeError, ["results", "'Move'", "list"]),
        ({"results": Move}, TypeError, ["results", "Move", "list"]),
        ({"results": Colour}, TypeError, ["results", "Colour", "list"]),
        ({"results": 5}, TypeError, ["results", "5", "list"]),
        ({"require": 5}, TypeError, ["require", "5", '"T3"']),
        ({"require": "T9"}, sandtimer.InvalidLimitError, ["require", "T9", "T3"]),
        ({"python": ""}, ValueError, ["python", "''", "path"]),
        ({"python": 5}, TypeError, ["python", "5", "path"]),
        ({"python": b"python3"}, TypeError, ["python", "python3", "path"]),
        ({"python": "a\0b"}, ValueError, ["python", "path"]),
        ({"python": SURROGATE}, ValueError, ["python", "path"]),
        ({"workers": True}, ValueError, ["workers", "True", "whole number"]),
        ({"workers": 0}, ValueError, ["workers", "0", "whole number"]),
        ({"workers": 10**9}, ValueError, ["workers", "1000000000"]),
        ({"start": "threads"}, ValueError, ["start", "'threads'", '"spawn"']),
        ({"trust": "x"}, ValueError, ["trust", "'x'", '"pickle"']),
        ({"stdout": "x"}, ValueError, ["stdout", "'x'", '"drop"']),
        ({"seed": "x"}, TypeError, ["seed", "'x'", "whole number"]),
        ({"seed": 1.5}, TypeError, ["seed", "1.5", "whole number"]),
        ({"seed": True}, TypeError, ["seed", "True", "whole number"]),
        ({"seed": 2**64}, ValueError, ["seed", str(2**64), "64 bits"]),
        ({"memory": "abc"}, sandtimer.InvalidLimitError, ["memory", "abc", "512M"]),
        ({"memory": -1}, sandtimer.InvalidLimitError, ["memory", "-1", "512M"]),
        ({"memory": NAN}, sandtimer.InvalidLimitError, ["memory", "NaN"]),
        ({"output": True}, sandtimer.InvalidLimitError, ["output", "True"]),
        ({"processes": 1.5}, sandtimer.InvalidLimitError, ["processes", "1.5"]),
        ({"result_bytes": "x"}, sandtimer.InvalidLimitError, ["result_bytes", "x"]),
        ({"timeouts": 1}, TypeError, ["timeouts"]),
    ],
    ids=lambda value: f"{value!r:.40}" if isinstance(value, dict) else "",
)
def test_a_sandbox_refuses_them(bad: dict[str, Any], kind: type[Exception], words: list[str]) -> None:
    refused(kind, words, lambda: sandtimer.Sandbox(**bad))
    refused(kind, words, lambda: sandtimer.sandboxed(**bad))
    if not bad.keys() & {"stdout"}:
        refused(kind, words, lambda: adtools.SandboxExecutor("worker", **bad))


def test_parameters_after_the_obvious_ones_are_keyword_only() -> None:
    functions = (
        sandtimer.Sandbox,
        sandtimer.Sandbox.exec,
        sandtimer.LoopGuard,
        sandtimer.estimate,
        sandtimer.ClientFiles.write,
        sandtimer.ClientFiles.extract,
        sandtimer.ClientRun.read_output,
    )
    for function in functions:
        optional = [
            each
            for each in inspect.signature(function).parameters.values()
            if each.default is not each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        assert len(optional) <= 2, function
    with pytest.raises(TypeError, match="positional"):
        sandtimer.Sandbox(1.0, 2.0)  # type: ignore[misc]


@pytest.mark.parametrize("bad", [NAN, INFINITY, -1, -0.5, True, "2", "2s", [], datetime.timedelta(seconds=1)], ids=repr)
@pytest.mark.parametrize("name", ["timeout", "cpu", "stall", "grace"])
def test_what_is_no_duration_is_refused_everywhere(name: str, bad: Any) -> None:
    words = [name, repr(bad), "seconds"]
    with sandtimer.Sandbox() as box:
        refused(sandtimer.InvalidLimitError, words, lambda: sandtimer.Sandbox(**{name: bad}))
        refused(sandtimer.InvalidLimitError, words, lambda: box.limits(**{name: bad}))
        refused(sandtimer.InvalidLimitError, words, lambda: sandtimer.sandboxed(**{name: bad}))
        refused(sandtimer.InvalidLimitError, words, lambda: adtools.sandbox_run(**{name: bad}))
        if name == "timeout":
            executor = adtools.SandboxExecutor("worker")
            refused(sandtimer.InvalidLimitError, words, lambda: executor.secure_execute("upper", timeout_seconds=bad))
            refused(sandtimer.InvalidLimitError, words, lambda: box.judge("print(1)", [("", "1")], timeout=bad))
            words[0] = "total"
            refused(sandtimer.InvalidLimitError, words, lambda: box.judge("print(1)", [("", "1")], total=bad))
            # At the call: the iterator that it gives would never be made.
            refused(sandtimer.InvalidLimitError, words, lambda: box.map(abs, [1], total=bad))


# What a remedy says in words, and values that do what it says.
SAID: dict[str, list[Any]] = {
    "a number of seconds from 0 on": [0, 0.5, 2],
    "a number of seconds": [0.5, 2],
    "a whole number of bytes": [2 << 20],
    "a whole number from 1 on": [1, 64],
    "a whole number from 1 to 4096": [1, 4096],
    "a tier such as": [],
    "a kill class such as": [],
    "a size such as": [],
    "from": [],
    "on": [],
    "or": [],
    "for no limit": [],
    "for none": [],
    "for one each processor": [],
}


def followed(message: str) -> list[Any]:
    """What the remedy at the end of a message says to give: all of it, word for word."""
    rest = re.split(r"[:;] use ", message)[-1]
    values: list[Any] = []
    while rest := rest.strip(" ,"):
        if literal := re.match(r'"[^"]*"|None\b', rest):
            values.append(ast.literal_eval(literal[0]))
            rest = rest[literal.end() :]
        else:
            words = max((each for each in SAID if rest.startswith(each)), key=len, default=None)
            assert words is not None, f"nobody follows {rest!r} of {message!r}"
            values += SAID[words]
            rest = rest[len(words) :]
    return values


@pytest.mark.parametrize("bad", ["abc", -1, 1.5, NAN, True, [], 2**64, b"1", 4096.5], ids=repr)
@pytest.mark.parametrize(
    "name",
    ["timeout", "cpu", "stall", "grace", "memory", "processes", "output", "result_bytes", "require", "workers", "total"],
)
def test_what_a_refused_limit_recommends_is_taken(name: str, bad: Any) -> None:
    def give(value: Any) -> None:
        if name == "total":
            with sandtimer.Sandbox() as box:
                return box.map(abs, [], total=value).close()  # type: ignore[attr-defined, no-any-return]
        sandtimer.Sandbox(**{name: value}).close()

    try:
        give(bad)
    except (TypeError, ValueError) as error:
        values = followed(str(error))
        assert None in values and len(values) > 1, error
        for value in values:
            give(value)
    else:
        assert bad in (1.5, 2**64, 4096.5), "what is no limit is taken"


def test_too_little_memory_is_told_how_much_is_enough() -> None:
    with pytest.raises(sandtimer.InvalidLimitError, match='"1MB"') as caught:
        sandtimer.Sandbox(memory=4096)
    for value in followed(str(caught.value)):
        sandtimer.Sandbox(memory=value).close()


def test_whole_numbers_of_other_types_are_taken() -> None:
    class Index:
        def __index__(self) -> int:
            return 64

    with sandtimer.Sandbox(timeout=Index(), processes=Index(), output=Index()) as box:  # type: ignore[arg-type]
        outcome = box.run(print, "x" * 200)
        assert outcome.ok and outcome.stdout_truncated


def test_calls_refuse_them() -> None:
    with sandtimer.Sandbox(timeout=20.0) as box:
        for call in (box.run, box.call, box.submit, lambda fn: box.map(fn, [1])):
            refused(TypeError, ["fn", "5", "function"], lambda: call(5))
        refused(TypeError, ["items", "5", "list"], lambda: box.map(abs, 5))  # type: ignore[arg-type]
        refused(TypeError, ["progress", "5", "True or False"], lambda: box.map(abs, [5], progress=5))  # type: ignore[arg-type]
        for count in (-1, "x", True, 1.5, None, 10**30):
            refused(ValueError, ["count", repr(count), "whole number"], lambda: box.warm(count))  # type: ignore[arg-type]
        refused(TypeError, ["unknown"], lambda: box.limits(unknown=1))  # type: ignore[call-arg]
        refused(TypeError, ["code", "5", "text"], lambda: box.exec(5))  # type: ignore[arg-type]
        refused(TypeError, ["name", "5", "string"], lambda: box.exec("1", name=5))  # type: ignore[arg-type]
        refused(TypeError, ["stdin", "5", "bytes"], lambda: box.exec("1", stdin=5))  # type: ignore[arg-type]
        refused(ValueError, ["stdin", "surrogate", "bytes"], lambda: box.exec("1", stdin="\ud800"))
        refused(ValueError, ["language", "'perl'", '"python"'], lambda: box.exec("1", language="perl"))
        assert box.call(abs, -1) == 1


def test_judging_refuses_them() -> None:
    program, cases = "print(1)", [("", "1")]
    with sandtimer.Sandbox(timeout=20.0) as box:
        for bad, kind, words in (
            ({"checker": 5}, TypeError, ["checker", "5", "function"]),
            ({"entry": 5}, TypeError, ["entry", "5", "name"]),
            ({"name": 5}, TypeError, ["name", "5", "string"]),
            ({"stop_early": "no"}, TypeError, ["stop_early", "'no'", "True or False"]),
        ):
            refused(kind, words, lambda: box.judge(program, cases, **bad))  # type: ignore[arg-type]
        refused(TypeError, ["cases", "5", "list"], lambda: box.judge(program, 5))  # type: ignore[arg-type]
        refused(TypeError, ["programs", "list"], lambda: box.judge_many(program, cases))
        refused(ValueError, ["stdin", "surrogate", "bytes"], lambda: box.judge(program, [("\ud800", "1")]))


def test_executors_refuse_them() -> None:
    execute = adtools.SandboxExecutor("worker").secure_execute
    refused(TypeError, ["method_name", "5", "name of a method"], lambda: execute(5))  # type: ignore[arg-type]
    refused(TypeError, ["method_args", "5", "list"], lambda: execute("upper", 5))  # type: ignore[arg-type]
    refused(TypeError, ["method_kwargs", "5", "dict"], lambda: execute("upper", None, 5))  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", [b"/usr", SURROGATE, 5, None, "/a\0b"], ids=repr)
def test_a_path_that_no_import_can_take_is_named(entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, entry])
    kind = ValueError if isinstance(entry, str) else TypeError
    refused(kind, ["sys.path", repr(entry), "remove it"], lambda: sandtimer.Sandbox())
    # Another interpreter has its own.
    sandtimer.Sandbox(python=sys.executable).close()


def test_paths_that_are_objects_are_shown(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, pathlib.Path("/usr/lib")])
    with sandtimer.Sandbox(timeout=20.0) as box:
        assert "/usr/lib" in box.call(lambda: __import__("sys").path)


def test_a_current_directory_that_is_gone_is_left_out(tmp_path: pathlib.Path) -> None:
    program = """
import os, sys, sandtimer
os.rmdir(os.getcwd())
assert "" in sys.path
sys.path.append("relative")
with sandtimer.Sandbox(timeout=20.0) as box:
    print(box.call(abs, -1), "" in box.call(lambda: __import__("sys").path))
"""
    gone = tmp_path / "gone"
    gone.mkdir()
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=gone, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert done.stdout == "1 False\n", done.stderr


def test_what_is_meant_is_taken() -> None:
    class Path:
        def __fspath__(self) -> str:
            return sys.executable

    class Index:
        def __index__(self) -> int:
            return 7

    drawn = []
    for seed in (7, Index()):
        with sandtimer.Sandbox(
            timeout=10**400, memory="512MB", preload=("json", "os.path"), python=Path(), seed=seed, results={Move}  # type: ignore[arg-type]
        ) as box:
            drawn.append(box.call(exec, "import random; assert random.random() == random.Random(7).random()"))
    assert drawn == [None, None]


class Stateless:
    """Fails in whatever is asked of it."""

    def __getstate__(self) -> Any:
        raise RuntimeError("no state to give")

    def __repr__(self) -> str:
        raise RuntimeError("no words either")

    def __call__(self) -> None:
        pass

    def step(self) -> None:
        pass


def deep() -> Any:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


UNSENDABLE: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "generator": lambda: (x for x in "abc"),
    "socket": socket.socket,
    "frame": sys._getframe,
    "thread": threading.current_thread,
    "state": Stateless,
    "deep": deep,
}


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=20.0) as made:
        yield made


@pytest.mark.parametrize("name", UNSENDABLE)
def test_an_argument_that_cannot_be_sent_is_refused_with_the_remedy(box: sandtimer.Sandbox, name: str) -> None:
    argument = UNSENDABLE[name]()
    words = ["id", "pickle", "fork"]
    for call in (box.run, box.call, box.submit, lambda *given: asyncio.run(box.acall(*given))):
        refused(sandtimer.UnserializableError, words, lambda: call(id, argument))
    outcomes = list(box.map(repr, [1, argument, 2]))
    assert [outcome.value for outcome in outcomes] == ["1", None, "2"]
    assert isinstance(outcomes[1].error, sandtimer.UnserializableError)
    refused(sandtimer.UnserializableError, ["pickle"], lambda: box.judge(repr, [((argument,), "")]))
    executor = adtools.SandboxExecutor([])
    said = executor.secure_execute("append", [argument], timeout_seconds=20)["error_msg"]
    assert "list.append" in said and "argument 0" in said and "cannot be pickled" in said
    # With a large part beside it, which a file is made for.
    box.call(abs, -1)
    # The pool grew with `map`, and children have descriptors too.
    box.warm(box.stats()["wanted"])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        refused(sandtimer.UnserializableError, ["pickle"], lambda: box.call(max, bytearray(1 << 18), argument))
    # Others' pools may grow meanwhile.
    assert len(os.listdir("/proc/self/fd")) < before + 100
    assert box.call(abs, -3) == 3
    if name == "socket":
        argument.close()


def test_a_worker_that_cannot_be_sent_is_refused(box: sandtimer.Sandbox) -> None:
    worker = Stateless()
    executor = adtools.SandboxExecutor(worker)
    said = executor.secure_execute("step", timeout_seconds=20)["error_msg"]
    assert "Stateless.step" in said and "no state to give" in said and "cannot be pickled" in said
    refused(sandtimer.UnserializableError, ["no state to give", "pickle"], lambda: box.call(worker.step))
    refused(sandtimer.UnserializableError, ["Stateless", "no state to give"], lambda: box.call(worker))
    answers = [each.secure_execute("upper", timeout_seconds=20)["result"] for each in (adtools.SandboxExecutor("a"),) * 2]
    assert answers == ["A", "A"] and box.call(abs, -3) == 3


def test_a_fork_sends_nothing() -> None:
    said = run_alone("""
        import socket, threading

        with sandtimer.Sandbox(timeout=20.0, start="fork") as box, socket.socket() as open_one:
            generator = (x for x in [7])
            print(box.call(next, generator), box.call(threading.Lock().locked), box.call(lambda: open_one.family == socket.AF_INET))
    """)
    assert said == "7 False True\n"
