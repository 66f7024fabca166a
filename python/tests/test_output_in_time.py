"""What a Python program prints is seen while it runs and kept when a limit ends it, whichever way it came in."""

from __future__ import annotations

import subprocess
import time
from typing import Any, Callable, Iterator

import pytest
import sandtimer
from doors import CLI, PYTHON, Doors, Ended, named, request, together
from serving import BINARY

# Nothing is flushed here, and nothing of it leaves a buffer by its length.
PRINTS = "import time\nprint('first')\nprint('second')\n"
HTTP = ("http_code", "http_command", "http_context", "http_job")
MCP = ("mcp_run_code", "mcp_bash")


@pytest.fixture(scope="module")
def doors(server: str) -> Iterator[Doors]:
    with sandtimer.Sandbox(timeout=60.0) as box:
        yield Doors(server, box)


def test_output_before_a_limit_is_kept(doors: Doors) -> None:
    limited = doors.within(8.0)
    ended = together(lambda door: getattr(limited, door)(f"{PRINTS}time.sleep(100)"), (*PYTHON, *CLI, *HTTP, *MCP))
    seen = {door: (each.ending, each.stdout) for door, each in ended.items()}
    assert seen == dict.fromkeys(seen, ("timeout", "first\nsecond\n"))


@named("exec", "judge", "cli_run", "mcp_bash")
def test_output_before_a_limit_is_kept_of_what_computes(doors: Doors, door: str) -> None:
    """In one call, so that no handler of Python's is called."""
    ended = getattr(doors.within(3.0), door)(f"{PRINTS}sum(range(10**12))")
    assert (ended.ending, ended.stdout) == ("timeout", "first\nsecond\n"), ended.whole


def until(text: str, read: Callable[[], str]) -> None:
    """Reads until the text is there."""
    end, seen = time.monotonic() + 40, ""
    while seen != text:
        assert time.monotonic() < end, f"only {seen!r} is seen"
        seen = read()
        time.sleep(0.02)


@named("python", "run", "shell")
def test_command_line_passes_output_on_at_once(door: str) -> None:
    code = f"{PRINTS}time.sleep(100)"
    words = {
        "python": ["python", "--wall", "80s", "-c", code],
        "run": ["run", "--wall", "80s", "--", "python3", "-c", code],
        "shell": ["run", "--wall", "80s", "--", "sh", "-c", 'python3 -c "$0"; true', code],
    }[door]
    running = subprocess.Popen([BINARY, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    try:
        begun = time.monotonic()
        assert [running.stdout.readline() for _ in range(2)] == ["first\n", "second\n"]
        # It would come with the end.
        assert running.poll() is None and time.monotonic() - begun < 60
    finally:
        running.terminate()
        running.wait(30)
        running.stdout.close()


@pytest.mark.parametrize("asked", ["code", "command", "shell"])
def test_server_shows_output_of_a_run_at_once(doors: Doors, asked: str) -> None:
    code = f"{PRINTS}time.sleep(100)"
    bodies: dict[str, dict[str, Any]] = {
        "code": {"code": code, "language": "python"},
        "command": {"command": ["python3", "-c", code]},
        "shell": {"command": 'python3 -c "$CODE"; true', "env": {"CODE": code}},
    }
    run = request(f"{doors.server}/v1/runs", {**bodies[asked], "wait_ms": 0, "wall_ms": 80_000})["run_id"]
    try:
        until("first\nsecond\n", lambda: str(request(f"{doors.server}/v1/runs/{run}/output")["data"]))
        assert request(f"{doors.server}/v1/runs/{run}?wait_ms=0")["status"] == "running"
    finally:
        request(f"{doors.server}/v1/runs/{run}/kill", {})


def test_server_shows_output_of_a_context_at_once(doors: Doors) -> None:
    with sandtimer.Client(doors.server).context() as opened:
        run = opened.start(f"{PRINTS}time.sleep(100)", timeout=80)
        until("first\nsecond\n", lambda: str(run.read_output()["data"]))
        assert run.info()["status"] == "running"
        run.kill("seen enough")


def test_server_shows_output_of_a_job_at_once(doors: Doors) -> None:
    spec = {"code": f"{PRINTS}time.sleep(100)", "language": "python", "limits": {"wall_ms": 80_000}}
    job = request(f"{doors.server}/v1/jobs", spec)["jobs"][0]["job_id"]
    try:
        until("first\nsecond\n", lambda: str(request(f"{doors.server}/v1/jobs/{job}/log")["data"]))
        assert request(f"{doors.server}/v1/jobs/{job}")["ended_ms"] is None
    finally:
        request(f"{doors.server}/v1/jobs/{job}/cancel", {})


@pytest.mark.parametrize("tool", ["bash", "run_code"])
def test_agent_reads_output_at_once(doors: Doors, tool: str) -> None:
    code = f"{PRINTS}time.sleep(100)"
    asked = {"bash": {"command": f'python3 -c "{code}"'}, "run_code": {"language": "python", "code": code}}[tool]
    started = doors.tool(tool, {**asked, "background": True, "timeout_ms": 80_000})
    run = started.structured_content["run_id"]
    try:
        read = {"run_id": run, "until": "match", "filter": "second", "wait_ms": 40_000, "cursor": 0}
        seen = doors.tool("read_output", read)
        assert seen.structured_content["data"] == "second\n" and "STILL RUNNING" in seen.content[0].text
    finally:
        doors.tool("kill", {"run_id": run})


def test_caller_hears_of_output_of_a_context_at_once(doors: Doors) -> None:
    heard: list[tuple[float, str]] = []
    with doors.box.context() as opened:
        begun = time.monotonic()
        opened.run(f"{PRINTS}time.sleep(4)", on_stdout=lambda text: heard.append((time.monotonic() - begun, text)))
        ended = time.monotonic() - begun
    assert "".join(text for _, text in heard) == "first\nsecond\n"
    assert heard[-1][0] < ended - 2, (heard, ended)


# Prints for longer than it may be silent.
TICKS = "import time\nfor i in range(28):\n    print(i)\n    time.sleep(0.25)"


def test_program_that_prints_does_not_stall(doors: Doors) -> None:
    with sandtimer.Sandbox(timeout=60.0, stall=4.0) as box:
        of_box = Doors(doors.server, box)

        def use(door: str, code: str = TICKS) -> Ended:
            if door in PYTHON:
                return getattr(of_box, door)(code)  # type: ignore[no-any-return]
            if door in CLI:
                return getattr(doors, door)(code, flags=("--stall", "4s"))  # type: ignore[no-any-return]
            stall: Any = {"limits": {"stall_ms": 4000}} if door == "http_job" else {"stall_ms": 4000}
            return getattr(doors, door)(code, **stall)  # type: ignore[no-any-return]

        every = (*PYTHON, *CLI, *HTTP, *MCP)
        ended = together(use, every)
        last = {door: each.stdout[-3:] for door, each in ended.items()}
        assert last == dict.fromkeys(every, "27\n"), ended
        # The control: one that prints once, and no more.
        silent = together(lambda door: use(door, f"{PRINTS}time.sleep(100)"), every)
        endings = {door: each.ending for door, each in silent.items()}
        assert endings == dict.fromkeys(every, "stalled"), silent


@named(*PYTHON, *CLI, "http_code", "http_command", "http_context", "mcp_run_code", "mcp_bash")
def test_bytes_at_an_abrupt_end_are_kept(doors: Doors, door: str) -> None:
    """What was printed longer than a moment before a signal that the product does not send."""
    code = "import os, time\nprint('first'); print('second')\ntime.sleep(0.5)\nos.kill(os.getpid(), 9)"
    ended = getattr(doors, door)(code)
    assert ended.stdout == "first\nsecond\n", ended.whole
    assert ended.ending in ("signaled", "exited"), ended.whole


SHORT_PRINTS = "import time\nprint('first')\nprint('second')\n"


@named("http_session", "mcp_bash_session")
def test_output_before_a_limit_is_kept_in_a_session(server: str, door: str) -> None:
    with sandtimer.Sandbox(timeout=60.0) as box:
        ended = getattr(Doors(server, box, 3.0), door)(f"{SHORT_PRINTS}time.sleep(100)")
    assert (ended.ending, ended.stdout) == ("timeout", "first\nsecond\n"), ended.whole


@named("context", "http_context", "mcp_run_code")
def test_output_of_a_process_of_a_cell_is_kept(server: str, door: str) -> None:
    code = f"import subprocess; subprocess.run(['python3', '-c', {SHORT_PRINTS + 'time.sleep(100)'!r}])"
    with sandtimer.Sandbox(timeout=60.0) as box:
        ended = getattr(Doors(server, box, 3.0), door)(code)
    assert (ended.ending, ended.stdout) == ("timeout", "first\nsecond\n"), ended.whole


# The engine inspects the memory that is written to only after something has come by the pipe.
FLUSHES = "import sys, time\nprint('first')\ntime.sleep(0.3)\nsys.stdout.flush()\nprint('second')\ntime.sleep(100)"


@named("run", "context")
def test_output_after_a_flush_of_nothing_is_seen_at_once(doors: Doors, door: str) -> None:
    client = sandtimer.Client(doors.server)
    # The first programs start an interpreter of their own, which writes by a timer.
    end = time.monotonic() + 60
    while client.run(code="1").path != "parked":
        assert time.monotonic() < end
    with client.context() as opened:
        run = opened.start(FLUSHES, timeout=80) if door == "context" else client.start(code=FLUSHES, timeout=80)
        until("first\nsecond\n", lambda: str(run.read_output()["data"]))
        assert run.info()["status"] == "running"
        run.kill("seen enough")


@named("exec", "judge", "call", "context", "command")
def test_verdict_says_when_the_last_output_came(doors: Doors, door: str) -> None:
    outcome = getattr(doors.within(3.0), door)(f"{SHORT_PRINTS}while True: pass").whole
    assert outcome.stdout == "first\nsecond\n" and outcome.verdict.last_output_age_ms > 500, outcome.verdict
