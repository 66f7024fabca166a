"""Parameters by the names of other tools: the message gives the right one, never one that only looks like it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
import sandtimer
from sandtimer import _vocabulary, adtools, jobs

SANDBOX = {
    "timeout_ms": "use timeout, in seconds",
    "time_limit": "use timeout, in seconds",
    "timeLimit": "use timeout, in seconds",
    "wall": "use timeout, in seconds",
    "soft_time_limit": "use warn_before, in seconds before the timeout",
    "kill_after": "use grace, in seconds",
    "mem": 'use memory, in bytes or as "512MB"',
    "memory_limit": 'use memory, in bytes or as "512MB"',
    "cpu_time": "use cpu, in seconds of processor time",
    "pids_limit": "use processes",
    "idle_timeout": "use stall, in seconds",
    "internet": "use network",
    "max_workers": "use workers",
    "rng_seed": "use seed",
    "cpus": "the number of processors is not limited; cpu limits the processor time, in seconds",
    "retries": "call it through sandtimer.retry(attempts, pauses)",
    "max_retries": "call it through sandtimer.retry(attempts, pauses)",
    "delay": "what begins later is a job: sandtimer.jobs.submit",
    "eta": "what begins later is a job: sandtimer.jobs.submit",
    "countdown": "what begins later is a job: sandtimer.jobs.submit",
    "cron": "what begins later is a job: sandtimer.jobs.submit",
    "visibility_timeout": "it belongs to the worker: sandtimer.jobs.work(lease=…)",
    "timout": "use timeout, in seconds",
    "memroy": "use memory",
}
RUN = {
    **{name: SANDBOX[name] for name in ("timeout_ms", "time_limit", "mem", "memory_limit", "cpus", "retries", "delay", "timout")},
    "soft_time_limit": "use warn, in seconds before the timeout",
    "env": "use environment",
    "workdir": "use directory",
    "cwd": "use directory",
    "cmd": "use command",
    "disk_limit": "use disk",
    "nofile": "use open_files",
}
SUBMIT = {
    "soft_time_limit": "it belongs to the handler: sandtimer.jobs.Handler(function, soft=…)",
    "timeout": "put wall_ms into the spec",
    "retries": "put attempts into the spec",
    "max_retries": "put attempts into the spec",
    "delay": "put delay_ms into the spec",
    "eta": "put not_before_ms into the spec",
    "countdown": "put delay_ms into the spec",
    "cmd": "put command into the spec",
    "mem": "put limits.memory_bytes into the spec",
    "env": "put env into the spec",
    "workdir": "put cwd into the spec",
    "queue": "put queue into the spec",
    "visibility_timeout": "it belongs to the worker: sandtimer.jobs.work(lease=…)",
}


def refused(call: Callable[..., Any], name: str) -> str:
    with pytest.raises(TypeError) as caught:
        found = call(**{name: 1234})
        if inspect.isawaitable(found):

            async def wait() -> None:
                await found

            asyncio.run(wait())
    assert isinstance(caught.value, sandtimer.InvalidArgumentTypeError)
    said = str(caught.value)
    assert said.startswith(f"{name}=1234: "), said
    return said.split("no such parameter; ", 1)[1]


@pytest.mark.parametrize("name", SANDBOX)
def test_sandbox_names_the_right_parameter(name: str) -> None:
    for call in (sandtimer.Sandbox, sandtimer.sandboxed, lambda **given: adtools.SandboxExecutor(object(), **given)):
        assert refused(call, name).startswith(SANDBOX[name])


@pytest.mark.parametrize("name", RUN)
def test_client_names_the_right_parameter(name: str) -> None:
    # Nothing is asked of a server for what it would refuse.
    client = sandtimer.Client("http://127.0.0.1:1")
    for call in (client.run, client.arun, client.start):
        assert refused(lambda **given: call(code="1", **given), name).startswith(RUN[name])


@pytest.mark.parametrize("name", SUBMIT)
def test_submit_names_the_right_field(name: str, tmp_path: Path) -> None:
    store = jobs.Jobs(tmp_path)
    for call in (store.submit, store.asubmit, store.run, jobs.submit):
        assert refused(lambda **given: call({"command": ["true"]}, **given), name).startswith(SUBMIT[name])


@pytest.mark.parametrize(
    ("call", "name", "text"),
    [
        (lambda **given: jobs.work(**given), "concurrency", "use slots"),
        (lambda **given: jobs.work(**given), "queue", "use queues"),
        (lambda **given: jobs.work(**given), "visibility_timeout", "use lease, in seconds"),
        (lambda **given: jobs.wait("id", **given), "timeout_ms", "use timeout, in seconds"),
        (lambda **given: jobs.list(**given), "limit", "use most"),
        (sandtimer.retry, "max_retries", "use attempts"),
        (sandtimer.retry, "delay", "use pauses, a list of seconds"),
        (sandtimer.retry, "exceptions", "use on"),
        (sandtimer.retry, "timeout", "use total, in seconds"),
        (lambda **given: sandtimer.CircuitBreaker("a", **given), "fail_max", "use failures"),
        (lambda **given: sandtimer.CircuitBreaker("a", **given), "reset_timeout", "use open_seconds, in seconds"),
        (sandtimer.LoopGuard, "max_steps", "use iterations"),
        (sandtimer.TimeoutManager, "timeout", "use max_runtime_seconds, in seconds"),
        (sandtimer.TimeoutManager, "max_steps", "use max_turns"),
        (sandtimer.TimeoutManager, "stall_timeout", "use stall_timeout_seconds"),
        (sandtimer.Client, "api_key", "use token"),
        (lambda **given: sandtimer.estimate("train", **given), "data_size", "use data_size_mb"),
    ],
)
def test_other_functions_name_the_right_parameter(call: Callable[..., Any], name: str, text: str) -> None:
    assert refused(call, name).startswith(text)


def open_box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=20) as box:
        yield box


box = pytest.fixture(open_box)


def test_methods_of_a_sandbox_name_the_right_parameter(box: sandtimer.Sandbox) -> None:
    assert refused(box.limits, "memory_limit").startswith("use memory")
    assert refused(lambda **given: box.command(["true"], **given), "input") == "use stdin"
    assert refused(lambda **given: box.map(len, ["a"], **given), "timeout").startswith("use total")
    assert refused(lambda **given: box.context(**given), "env").startswith("use environment")
    assert box.limits(timeout=1).call(len, "abc") == 3
    assert box.call(lambda cmd: cmd, cmd="its own parameters are the function's") != ""


def test_word_of_another_tool_never_gives_a_lookalike() -> None:
    for name in ("rate_limit", "crontab", "expires", "image"):
        assert _vocabulary.remedy(name, ["rate", "on", "expected", "stage"]) == ""
    assert _vocabulary.remedy("delays", ["relays"]) == ""
    assert _vocabulary.remedy("frobnicate", ["timeout", "memory"]) == ""
    assert _vocabulary.remedy("x" * 10_000, ["timeout"]) == ""


def test_table_has_each_word_once_in_its_spelling() -> None:
    for table in (_vocabulary._NAMES, _vocabulary._IN_SPEC):
        for words, _ in table:
            assert len(set(words.split())) == len(words.split()), words
            assert all(word == _vocabulary._normal(word) for word in words.split()), words
    candidates = {one for _, ours in _vocabulary._NAMES for one in ours}
    functions = [
        sandtimer.Sandbox.__init__,
        sandtimer.Sandbox.command,
        sandtimer.Sandbox.judge,
        sandtimer.Sandbox.map,
        sandtimer.Sandbox.context,
        sandtimer.Client.__init__,
        sandtimer.Client.run,
        sandtimer.TimeoutManager.__init__,
        sandtimer.LoopGuard.__init__,
        sandtimer.CircuitBreaker.__init__,
        sandtimer.retry,
        jobs.Jobs.__init__,
        jobs.submit,
        jobs.list,
        jobs.show,
        jobs.wait_many,
        jobs.work,
        jobs.Handler.__init__,
        adtools.SandboxExecutor.secure_execute,
    ]
    from sandtimer.client._request import ContextOptions, RunOptions

    known = {name for function in functions for name in inspect.signature(function).parameters}
    known |= {"num_cpus", "num_gpus", *RunOptions.__annotations__, *ContextOptions.__annotations__}
    assert candidates <= known, "each suggestion is a parameter of some function"


def test_signatures_stay_what_they_are() -> None:
    assert list(inspect.signature(sandtimer.Sandbox).parameters)[:3] == ["timeout", "cpu", "stall"]
    assert inspect.iscoroutinefunction(jobs.asubmit) and not inspect.iscoroutinefunction(jobs.submit)
    assert sandtimer.Sandbox.limits.__doc__
