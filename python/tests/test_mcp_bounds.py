"""Each answer of each tool has at most 20,000 bytes of text and as many of structured content."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Awaitable, Callable

import pytest

mcp = pytest.importorskip("mcp", reason="the MCP client has no package for this Python")

MOST = 20_000
HARD_STOP = 150.0
# Characters that are one byte, several as UTF-8, and six as JSON.
LONG = "x" * 100_000 + "ä" * 50_000 + "\x01" * 50_000
# What commands write: long and short lines, bytes that are not UTF-8, control characters, progress that overwrites itself.
WRITES = {
    "one line": "head -c 300000 /dev/zero | tr '\\0' x",
    "lines": "seq 1 100000",
    "quotes": "yes '\"\\' | head -c 300000",
    "control characters": "head -c 100000 /dev/zero | tr '\\0' '\\1'",
    "not UTF-8": "head -c 100000 /dev/zero | tr '\\0' '\\377'",
    "other letters": "yes äöü€ | head -c 300000",
    "progress": "for i in $(seq 1 20000); do printf '\\r%s of it' $i; done",
    "both streams": "seq 1 30000; seq 1 30000 >&2; exit 3",
}
READS: list[dict[str, Any]] = [
    {}, {"tail": 1}, {"tail": 50_000}, {"stream": "stderr"}, {"filter": "."}, {"cursor": 100}, {"until": "exit"},
]  # fmt: skip


class Bounded:
    """A client that measures each answer, and knows which tools it has used."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.used: set[str] = set()

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        self.used.add(tool)
        try:
            result = await self.client.call_tool(tool, arguments)
        except mcp.MCPError as refused:
            # An error of the protocol, which is an answer as well.
            assert len(str(refused).encode()) <= MOST, tool
            return None
        text = "".join(block.text for block in result.content if block.type == "text")
        structured = json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":"))
        parts = len(text.encode("utf-8", "surrogatepass")), len(structured.encode("utf-8", "surrogatepass"))
        assert max(parts) <= MOST, (tool, parts, text[:300], structured[:300])
        # Clients that show the structured content alone have the first line in it.
        if isinstance(result.structured_content, dict) and not result.is_error:
            assert result.structured_content["headline"] == text.splitlines()[0], (tool, text[:300])
        return result


@pytest.fixture(scope="module", params=["legacy", "2026-07-28"])
def connect(request: pytest.FixtureRequest, server: str) -> Callable[[Callable[[Bounded], Awaitable[None]]], None]:
    def run(act: Callable[[Bounded], Awaitable[None]]) -> None:
        async def main() -> None:
            async with mcp.Client(f"{server}/mcp", mode=request.param) as client:
                await asyncio.wait_for(act(Bounded(client)), HARD_STOP)

        asyncio.run(main())

    return run


def test_what_commands_write_is_bounded(connect: Any) -> None:
    async def act(use: Bounded) -> None:
        for command in WRITES.values():
            for details in (False, True):
                done = await use("bash", command=command, details=details, wait_ms=45000)
                run = done.structured_content["run_id"]
            for more in READS:
                await use("read_output", run_id=run, **more)
            await use("wait", run_ids=[run])
            await use("kill", run_id=run)
            await use("Bash", command=command)
            for tool, name in (("BashOutput", "bash_id"), ("ReadBashOutput", "shell_id")):
                shell = (await use("Bash", command=command, background=True)).structured_content["run_id"]
                await use("wait", run_ids=[shell], wait_ms=45000)
                await use(tool, **{name: shell})
            await use("KillShell", shell_id=shell)
            await use("run_code", language="bash", code=command)

    connect(act)


def test_what_a_running_command_writes_is_bounded(connect: Any) -> None:
    async def act(use: Bounded) -> None:
        command = "while read line; do for i in $(seq 1 3000); do echo $line $i; done; done"
        begun = await use("bash", command=command, background=True, stdin_open=True, timeout_ms=100_000)
        run = begun.structured_content["run_id"]
        await use("write_stdin", run_id=run, data="y" * 3000 + "\n", wait_ms=20_000)
        await use("read_output", run_id=run, wait_ms=20_000)
        for tool in ("pause", "resume", "time_left"):
            await use(tool, run_id=run)
        await use("extend", run_id=run, by_ms=1000, reason=LONG)
        await use("report_progress", run_id=run, done=1, total=3, message="m" * 2000)
        await use("kill", run_id=run, reason=LONG)
        await use("wait", run_ids=[run])
        await use("read_output", run_id=run)

    connect(act)


VALUES = {
    "text": "'x' * 7_000_000",
    "list": "[['ä' * 50] * 1000] * 10",
    "set": "set(range(100_000))",
    "nested": "x = [1]\nfor _ in range(500): x = [x]\nx",
    "keys": "{'k' * 1000 + str(i): i for i in range(1000)}",
    "bytes": "bytes(1_000_000)",
    "repr": "class A:\n  def __repr__(self): return 'y' * 1_000_000\nA()",
    "error": "raise ValueError('y' * 300_000)",
    "deep recursion": "def f(n): return f(n + 1)\nf('w' * 1000)",
    "chain of errors": (
        "for i in range(300):\n  try: raise ValueError(str(i) * 100) from globals().get('last')\n"
        "  except ValueError as error: last = error\nraise last"
    ),
    "displays": "for _ in range(50): display('z' * 3000)",
    "HTML": "class H:\n  def _repr_html_(self): return '<b>' * 100_000\nH()",
    "Markdown": "class M:\n  def _repr_markdown_(self): return '| a ' * 100_000\nM()",
    "JSON": "class J:\n  def _repr_json_(self): return {'a': ['b' * 100] * 10_000}\nJ()",
    "SVG": "class S:\n  def _repr_svg_(self): return '<svg>' + '<g/>' * 100_000 + '</svg>'\nS()",
    "streams": "import sys\nprint('o' * 100_000); print('e' * 100_000, file=sys.stderr)",
    "name": "v" * 50_000,
}
IN_JAVASCRIPT = (
    "'x'.repeat(1e6)",
    "throw new Error('y'.repeat(1e6))",
    "console.log('z'.repeat(1e6))",
    "Array(1e5).fill('w')",
    "new Map([[1, 'x'.repeat(1e5)]])",
)


def test_values_of_code_are_bounded(connect: Any) -> None:
    async def act(use: Bounded) -> None:
        for code in VALUES.values():
            await use("run_code", language="python", code=code)
            await use("run_code", language="python", code=code, details=True)
        for code in IN_JAVASCRIPT:
            await use("run_code", language="javascript", code=code)

    connect(act)


def test_long_arguments_come_back_bounded(connect: Any) -> None:
    async def act(use: Bounded) -> None:
        run = (await use("bash", command="true")).structured_content["run_id"]
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("bash", {"command": LONG.replace("\x01", "")}),
            ("bash", {"command": "true", "cwd": LONG}),
            ("bash", {"command": "true", LONG: 1}),
            ("bash", {"command": "true", "env": {LONG.replace("\x01", ""): "1"}}),
            ("bash", {"command": "true", "env": {"A": LONG}}),
            ("bash", {"command": "true", "idempotency_key": LONG}),
            ("bash", {"command": "true", "task_type": LONG}),
            ("bash", {"command": "true", "warn_signal": LONG}),
            ("bash", {"command": "true", "timeout_ms": LONG}),
            ("bash", {"command": "true", "description": LONG}),
            ("bash", {"command": ["x"] * 50_000}),
            ("run_code", {"language": LONG, "code": "1"}),
            ("run_code", {"language": "python", "code": LONG}),
            ("run_code", {"language": "python", "code": "1", "context_id": LONG}),
            ("read_output", {"run_id": LONG}),
            ("read_output", {"run_id": run, "filter": LONG}),
            ("read_output", {"run_id": run, "filter": "(" * 900}),
            ("read_output", {"run_id": run, "stream": LONG}),
            ("wait", {"run_ids": [LONG]}),
            ("wait", {"run_ids": [run] * 1000}),
            ("wait", {"run_ids": [str(number) * 20 for number in range(1000)]}),
            ("wait", {"run_ids": [run], "mode": LONG}),
            ("kill", {"run_id": LONG}),
            ("kill", {"run_id": run, "signal": LONG}),
            ("extend", {"run_id": run, "kind": LONG}),
            ("pause", {"run_id": LONG}),
            ("resume", {"run_id": LONG}),
            ("write_stdin", {"run_id": LONG, "data": LONG}),
            ("list_runs", {"status": LONG}),
            ("time_left", {"run_id": LONG}),
            ("estimate_duration", {"command": LONG}),
            ("estimate_duration", {"task_type": LONG}),
            ("estimate_duration", {"task_type": "load_data", "context": LONG}),
            ("EstimateTaskDuration", {"task_type": LONG}),
            ("EstimateTaskDuration", {"task_type": "load_data", "additional_context": LONG}),
            ("report_progress", {"task": LONG, "done": 1, "total": 2}),
            ("begin_task", {"label": LONG}),
            ("end_task", {"label": LONG}),
            ("Bash", {"command": "true", LONG: 1}),
            ("BashOutput", {"bash_id": LONG}),
            ("BashOutput", {"bash_id": run, "filter": LONG}),
            ("ReadBashOutput", {"shell_id": LONG}),
            ("KillShell", {"shell_id": LONG}),
            ("t" * 3000, {}),
        ]  # fmt: skip
        for tool, arguments in wrong:
            await use(tool, **arguments)
        listed = {tool.name for tool in (await use.client.list_tools()).tools}
        assert listed <= use.used, "each tool is asked for too much"

    connect(act)


def test_lists_are_bounded(connect: Any) -> None:
    async def act(use: Bounded) -> None:
        runs = []
        for number in range(40):
            label = f"{number}-" + "l" * 150
            await use("begin_task", label=label, max_ms=600_000)
            begun = await use("bash", command=f"sleep 300; : {'c' * 2000}", background=True)
            runs.append(begun.structured_content["run_id"])
        try:
            for limit in (1, 50, 200):
                await use("list_runs", limit=limit)
            await use("list_runs", status="running", limit=200)
            await use("wait", run_ids=runs, wait_ms=0)
            await use("wait", run_ids=runs, wait_ms=0, mode="all")
            await use("time_left")
            await use("report_progress", task="0-" + "l" * 150, done=1, total=2, message="m" * 10_000)
        finally:
            for run in runs:
                await use("kill", run_id=run)
            for number in range(40):
                await use("end_task", label=f"{number}-" + "l" * 150)
        await use("list_runs", status="ended", limit=200)

    connect(act)


ENDLESS = ["['\\x01' * 5000]", "raise ValueError('\\x01' * 5000)", "display({'a': '\\x01' * 50_000}); 1"]


def test_values_of_control_characters_are_bounded(connect: Any) -> None:
    async def act(use: Any) -> None:
        for code in ENDLESS:
            for details in (False, True):
                await asyncio.wait_for(use("run_code", language="python", code=code, details=details), 30)
        await asyncio.wait_for(use("run_code", language="python", code="'\\x01' * 100_000", details=True), 30)

    connect(act)


def test_first_line_is_bounded(connect: Any) -> None:
    async def act(use: Any) -> None:
        await use("run_code", language="python", code="raise type('E' * 100_000, (Exception,), {})('z')")
        run = (await use("bash", command="sleep 60", background=True)).structured_content["run_id"]
        await use("report_progress", run_id=run, done=1, total=3, message=LONG)
        await use("kill", run_id=run)

    connect(act)
