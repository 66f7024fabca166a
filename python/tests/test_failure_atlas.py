"""docs/concepts/failure-atlas.md: each way in which a run can end, produced on every surface and compared with the page.

Executed as a program, this prints the page's tables and messages as they are now.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import CancelledError
from typing import Any, Callable, Iterator, NamedTuple, Optional

import pytest
import sandtimer
from serving import BINARY, Serving

PAGE = pathlib.Path(__file__).parents[2] / "docs/concepts/failure-atlas.md"
HARD_STOP = 120.0
BOUND = 30.0


class Case(NamedTuple):
    """One way to end: what is executed, and the limits it has, by their names over HTTP."""

    name: str
    command: list[str]
    limits: dict[str, Any] = {}
    function: Optional[Callable[[], Any]] = None
    ended_by: str = ""


def divide() -> float:
    return 1 / 0


def leave() -> None:
    os._exit(3)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep() -> None:
    time.sleep(60)


def compute() -> None:
    while True:
        pass


def allocate() -> int:
    return len(bytearray(1 << 30))


DEAF = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); list(iter(int, 1))"
CELLS: list[tuple[str, str, dict[str, int]]] = [
    ("a value", "6 * 7", {}),
    ("an exception", "1 / 0", {}),
    ("a wall-clock limit, the cell handles the interrupt", "import time; time.sleep(60)", {"wall_ms": 500}),
    ("a wall-clock limit, the cell blocks the interrupt", DEAF, {"wall_ms": 500}),
    ("the cell ends its interpreter", "import os; os._exit(3)", {}),
]
SLEEP = ["sleep", "60"]
CASES = [
    Case("exited", ["true"]),
    Case("exited, code 3", ["sh", "-c", "exit 3"]),
    Case("signaled", ["sh", "-c", "kill -SEGV $$"], function=crash),
    Case("timeout, wall", SLEEP, {"wall_ms": 500}, sleep),
    Case("timeout, cpu", ["sh", "-c", "while :; do :; done"], {"cpu_ms": 300}, compute),
    Case("stalled", SLEEP, {"stall_ms": 500}, sleep),
    Case("out_of_memory", ["python3", "-c", "bytearray(1 << 30)"], {"memory_bytes": "128M"}, allocate),
    Case("output_limit", ["yes"], {"output_bytes": "1K", "on_output_limit": "end"}),
    Case("process_limit", ["sh", "-c", "sleep 1 & sleep 1 & sleep 1 & wait"], {"processes": 2}),
    Case("disk_limit", ["truncate", "-s", "9M", "/tmp/x"], {"disk_bytes": "1M"}),
    Case("cancelled", SLEEP, function=sleep, ended_by="cancel"),
    Case("infra_error", SLEEP, function=sleep, ended_by="killed init"),
]
FUNCTIONS: list[tuple[str, Callable[[], Any]]] = [("returned", list), ("raised", divide), ("no_result", leave)]
FLAGS = {
    "wall_ms": ("--wall", "500ms"),
    "cpu_ms": ("--cpu", "300ms"),
    "stall_ms": ("--stall", "500ms"),
    "memory_bytes": ("--memory", "128M"),
    "output_bytes": ("--output", "1K"),
    "on_output_limit": ("--on-output-limit", "end"),
    "processes": ("--processes", "2"),
    "disk_bytes": ("--disk", "1M"),
}
# The tools of MCP take no such limits: those of the server apply.
SERVERS = {"memory_bytes": "SANDTIMER_MEMORY", "processes": "SANDTIMER_PROCESSES", "disk_bytes": "SANDTIMER_DISK"}
KEYWORDS: dict[str, tuple[str, Any]] = {
    "wall_ms": ("timeout", 0.5),
    "cpu_ms": ("cpu", 0.3),
    "stall_ms": ("stall", 0.5),
    "memory_bytes": ("memory", "128M"),
}
REJECTED: list[tuple[str, list[str], dict[str, Any]]] = [
    ("a flag with a bad value", ["--wall", "abc", "--", "true"], {"wall_ms": "abc", "command": ["true"]}),
    ("a command that is not found", ["--", "no-such-command"], {"command": ["no-such-command"]}),
    ("a file that cannot be executed", ["--", "/etc/hostname"], {"command": ["/etc/hostname"]}),
]


def first_sentence(text: str) -> str:
    """The first sentence without what differs from run to run; an ellipsis if another one follows."""
    # The kernel and the sampling of memory race for the end of a run.
    text = text.replace("Stopped by the run's memory limit", "Failed at the run's memory limit")
    text = re.sub(r"after [\d.]+ m?s", "after … s", text.strip())
    first, *rest = re.split(r"(?<=[\w)])\. (?=[A-Z0-9])", text)
    return f"{first}. …" if rest else first


def descendants(of: int) -> Iterator[int]:
    for task in pathlib.Path(f"/proc/{of}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from descendants(child)


def kill_init(engine: int) -> None:
    """Kills the first process of each jail of an engine, once `sleep` runs in one."""
    wait_for(lambda: any(name(pid) == "sleep" for pid in descendants(engine)))
    end_inits(engine)


def end_inits(engine: int) -> None:
    for init in [pid for pid in descendants(engine) if name(pid) == "st-init"]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(init, signal.SIGKILL)


def name(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def command_line(case: Case) -> tuple[str, str]:
    """Exit code of `sandtimer run`, and the first line that it prints about the end."""
    flags = [word for limit in case.limits for word in FLAGS[limit]]
    process = subprocess.Popen(
        [BINARY, "run", *flags, "--", *case.command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if case.ended_by == "killed init":
        kill_init(process.pid)
    elif case.ended_by == "cancel":
        wait_for(lambda: any(name(pid) == "sleep" for pid in descendants(process.pid)))
        process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=BOUND)
    messages = [line.removeprefix("sandtimer: ") for line in errors.splitlines() if line.startswith("sandtimer: ")]
    return str(process.returncode), first_sentence(messages[0]) if messages else ""


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def over_http(client: Any, engine: int, case: Case) -> str:
    """The ending over HTTP, and the kind of the verdict."""
    if not case.ended_by:
        outcome = client.run(case.command, **keywords(case))
    else:
        run = client.start(case.command)
        if case.ended_by == "cancel":
            run.kill()
        else:
            kill_init(engine)
        outcome = run.wait()
    kind = outcome.verdict.kind if outcome.verdict else None
    return f"`{outcome.ending}`" + (f", `{kind}`" if kind else "")


def keywords(case: Case) -> dict[str, Any]:
    names = {"wall_ms": "timeout", "cpu_ms": "cpu", "stall_ms": "stall", "memory_bytes": "memory"}
    names |= {"output_bytes": "output", "disk_bytes": "disk"}
    return {names.get(key, key): value / 1000 if key.endswith("_ms") else value for key, value in case.limits.items()}


def of_call(case: Case) -> str:
    """What `Sandbox.call` raises, and the ending that `Sandbox.run` has in its Outcome."""
    if case.function is None:
        return "–"
    options: dict[str, Any] = dict(KEYWORDS[limit] for limit in case.limits)
    with contextlib.closing(sandtimer.Sandbox(**options)) as box:
        future = box.submit(case.function)
        if case.ended_by:
            wait_for(future.running)
        if case.ended_by == "cancel":
            future.cancel()
        elif case.ended_by:
            end_inits(os.getpid())
        try:
            return f"returns {future.result()!r}"
        except (Exception, CancelledError) as error:
            return f"`{type(error).__name__}`"


def of_job(state: pathlib.Path, case: Case) -> str:
    """The exit code of `sandtimer jobs run`, and the status of the job's result."""
    if case.ended_by or "on_output_limit" in case.limits:
        return "–"
    whole = {key: value for key, value in case.limits.items() if key == "wall_ms"}
    limits = {key: value for key, value in case.limits.items() if key != "wall_ms"}
    spec = {"command": case.command, **whole, **({"limits": limits} if limits else {})}
    file = state / "spec.json"
    file.write_text(json.dumps(spec))
    asked = [BINARY, "jobs", "run", "--json", "--state-dir", str(state), str(file)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=BOUND)
    result = json.loads(done.stdout)
    return f"`{result['result']['status']}`, {done.returncode}"


def over_mcp(cases: list[Case]) -> dict[str, str]:
    """The first line of an answer of the tool `bash`, of each case."""
    import mcp

    lines: dict[str, str] = {}

    async def use(case: Case, client: Any, state: str) -> None:
        arguments: dict[str, Any] = {key: value for key, value in case.limits.items() if key not in SERVERS}
        command = " ".join(case.command) if case.command[0] != "sh" else case.command[2]
        if case.command[0] == "python3":
            command = f"python3 -c '{case.command[2]}'"
        if not case.ended_by:
            answer = await client.call_tool("bash", {"command": command, **arguments})
        else:
            started = await client.call_tool("bash", {"command": command, "background": True})
            run = started.structured_content["run_id"]
            if case.ended_by == "cancel":
                await client.call_tool("kill", {"run_id": run})
            else:
                await asyncio.to_thread(kill_init, served(state))
            answer = await client.call_tool("read_output", {"run_id": run, "until": "exit", "wait_ms": 30000})
        lines[case.name] = "".join(block.text for block in answer.content).splitlines()[0]

    async def main() -> None:
        for case in cases:
            if "on_output_limit" in case.limits:
                continue
            with tempfile.TemporaryDirectory(prefix="sandtimer-mcp-") as state:
                variables = {SERVERS[key]: str(value) for key, value in case.limits.items() if key in SERVERS}
                environment = dict(os.environ, **variables)
                asked = mcp.StdioServerParameters(command=BINARY, args=["mcp", "--state-dir", state], env=environment)
                async with mcp.Client(asked) as client:
                    await use(case, client, state)
                engine = served(state)
                os.kill(engine, signal.SIGTERM)
                await asyncio.to_thread(wait_for, lambda: not pathlib.Path(f"/proc/{engine}/exe").exists())

    asyncio.run(asyncio.wait_for(main(), HARD_STOP))
    return lines


def served(state: str) -> int:
    """The process of the MCP server with this state directory."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[1:2] == [b"serve"] and state.encode() in words:
                return int(path.parent.name)
    raise AssertionError(f"no MCP server with the state directory {state}")


def endings(directory: pathlib.Path) -> tuple[list[str], list[str]]:
    """The rows of the page's first table, and the commands with their messages."""
    lines = over_mcp(CASES)
    serving = Serving(directory)
    try:
        engine = serving._process.pid  # type: ignore[union-attr]
        client = sandtimer.Client(serving.url)
        rows, console = [], []
        for case in CASES:
            code, message = command_line(case)
            mcp = f"`{lines[case.name]}`" if case.name in lines else "–"
            cells = [over_http(client, engine, case), code, of_call(case), mcp, of_job(directory, case)]
            rows.append(f"| {' | '.join(cells)} |")
            console.append(f"$ sandtimer run {shown(case)}")
            if message:
                console.append(f"sandtimer: {message}")
        return rows, console
    finally:
        serving.stop()


def shown(case: Case) -> str:
    flags = [word for limit in case.limits for word in FLAGS[limit]]
    how = {"cancel": "   # and SIGTERM to sandtimer", "killed init": "   # and SIGKILL to the run's init"}
    return f"{' '.join(flags + ['--'])} {shlex.join(case.command)}{how.get(case.ended_by, '')}"


def functions() -> list[str]:
    """The rows of the table of Python functions: the ending of `Sandbox.run`, and what `Sandbox.call` raises."""
    rows = []
    with contextlib.closing(sandtimer.Sandbox()) as box:
        for expected, function in FUNCTIONS:
            outcome = box.run(function)
            assert outcome.ending == expected
            try:
                raised = f"nothing; it returns `{box.call(function)!r}`"
            except Exception as error:
                raised = f"`{type(error).__name__}`: {first_sentence(str(error))}"
            rows.append(f"| `{expected}` | {outcome.exit_code} | {raised} |".replace("| None |", "| – |"))
    return rows


def cells(directory: pathlib.Path) -> list[str]:
    """The rows of the table of cells: ending, state, and the first line of the tool `run_code`."""
    serving = Serving(directory)
    try:
        rows = []
        lines = asyncio.run(asyncio.wait_for(cells_over_mcp(serving.url), HARD_STOP))
        context = sandtimer.Client(serving.url).context()
        for (what, code, limits), line in zip(CELLS, lines):
            options: dict[str, Any] = {"timeout": wall / 1000 for wall in limits.values()}
            outcome = context.run(code, **options)
            rows.append(f"| {what} | `{outcome.ending}` | `{outcome.state}` | `{line}` |")
        return rows
    finally:
        serving.stop()


async def cells_over_mcp(url: str) -> list[str]:
    import mcp

    lines = []
    async with mcp.Client(f"{url}/mcp") as client:
        for _, code, limits in CELLS:
            answer = await client.call_tool("run_code", {"language": "python", "code": code, **limits})
            lines.append("".join(getattr(block, "text", "") for block in answer.content).splitlines()[0])
    return lines


def rejections(directory: pathlib.Path) -> list[str]:
    """The rows of the table of rejections: before there is a run."""
    serving = Serving(directory)
    try:
        rows = []
        for what, flags, fields in REJECTED:
            done = subprocess.run([BINARY, "run", *flags], capture_output=True, text=True, timeout=BOUND)
            rows.append(f"| {what}: `{' '.join(flags)}` | {done.returncode} | {rejected(serving.url, fields)} |")
        return rows
    finally:
        serving.stop()


def rejected(url: str, fields: dict[str, Any]) -> str:
    body = json.dumps(fields).encode()
    request = urllib.request.Request(f"{url}/v1/runs", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=BOUND) as answer:
            outcome = json.load(answer)["outcome"]
            return f"`{outcome['ending']}`, `exit_code` {outcome['exit_code']}"
    except urllib.error.HTTPError as error:
        return f"{error.code}, `{json.load(error)['code']}`"


def test_page_has_endings_of_every_surface(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mcp", reason="the MCP client has no package for this Python")
    page = PAGE.read_text(encoding="utf-8")
    rows, console = endings(tmp_path)
    assert [row for row in rows if row not in page.splitlines()] == []
    assert "\n".join(console) in page


def test_page_has_endings_of_functions() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [row for row in functions() if row not in page.splitlines()] == []


def test_page_has_endings_of_cells(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mcp", reason="the MCP client has no package for this Python")
    page = PAGE.read_text(encoding="utf-8")
    assert [row for row in cells(tmp_path) if row not in page.splitlines()] == []


def test_page_has_rejections(tmp_path: pathlib.Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [row for row in rejections(tmp_path) if row not in page.splitlines()] == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place)
        for part in (*endings(directory), functions(), cells(directory), rejections(directory)):
            sys.stdout.write("\n".join(part) + "\n\n")
