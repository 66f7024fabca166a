"""`run_code` without a context, as an agent uses it first: cheaper than a command that starts Python."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any, Awaitable, Callable

import pytest

mcp = pytest.importorskip("mcp", reason="the MCP client has no package for this Python")

HARD_STOP = 90.0
Act = Callable[[Any], Awaitable[None]]


@pytest.fixture(params=["legacy", "2026-07-28"])
def connect(request: pytest.FixtureRequest, server: str) -> Callable[[Act], None]:
    def run(act: Act) -> None:
        async def main() -> None:
            async with mcp.Client(f"{server}/mcp", mode=request.param) as client:
                await asyncio.wait_for(act(client), HARD_STOP)

        asyncio.run(main())

    return run


async def code(client: Any, text: str, **more: Any) -> Any:
    return await client.call_tool("run_code", {"language": "python", "code": text, "timeout_ms": 60_000, **more})


def test_code_costs_less_than_a_command_that_starts_python(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        ways: dict[str, list[float]] = {"code": [], "command": []}
        for turn in range(14):
            for way, times in ways.items():
                begun = time.monotonic()
                if way == "code":
                    done = await code(client, "import json, re\nprint(json.dumps([6 * 7]))")
                else:
                    command = "python3 -c 'import json, re; print(json.dumps([6 * 7]))'"
                    done = await client.call_tool("bash", {"command": command, "timeout_ms": 60_000})
                assert done.structured_content["stdout"] == "[42]\n"
                # What opens an interpreter is not compared.
                if turn >= 4:
                    times.append(time.monotonic() - begun)
        medians = {way: statistics.median(times) for way, times in ways.items()}
        assert medians["code"] < medians["command"], medians

    connect(act)


PROGRAMS = {
    "print(__name__, __doc__)": "__main__ None\n",
    "import sys\nprint(sys.argv[1:], sys.stdin.read() == '')": "[] True\n",
    "import os\nprint(os.getcwd())": "/workspace\n",
    "try: input()\nexcept EOFError: print('no more')": "no more\n",
    "import sys\nsys.stdout.buffer.write(b'bytes\\n')\nprint('text')": "bytes\ntext\n",
    "import sys\nsys.stdout.write('no end')": "no end",
    "import subprocess\nprint('a', flush=True); subprocess.run(['echo', 'b']); print('c')": "a\nb\nc\n",
    "import threading\nt = threading.Thread(target=print, args=('of a thread',)); t.start(); t.join()": "of a thread\n",
    "import asyncio\nasync def main(): print('in a loop')\nasyncio.run(main())": "in a loop\n",
    "import dataclasses, pickle\n@dataclasses.dataclass\nclass A: x: int\nprint(pickle.loads(pickle.dumps(A(1))))": "A(x=1)\n",
    "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))": "[1, 2]\n",
    "open('own_module.py', 'w').write('x = 7')\nimport own_module\nprint(own_module.x)": "7\n",
    "if __name__ == '__main__': print('main')": "main\n",
}


def test_code_behaves_as_python(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        for text, expected in PROGRAMS.items():
            done = await code(client, text)
            assert done.structured_content.get("stdout") == expected, (text, done)
            assert done.content[0].text.startswith("EXITED 0\n"), (text, done)
        failed = await code(client, "def f():\n    1 / 0\nf()")
        shown = failed.content[0].text
        assert shown.startswith("EXITED 1 (ZeroDivisionError)\n") and "line 2, in f" in shown and "1 / 0" in shown, shown
        wrong = await code(client, "print(1\n")
        assert wrong.content[0].text.startswith("EXITED 1 (SyntaxError)\n"), wrong
        for end, first in (("import os; os._exit(3)", "EXITED 3"), ("import os; os.kill(os.getpid(), 9)", "EXITED 137")):
            assert (await code(client, end)).content[0].text.splitlines()[0].startswith(first), end

    connect(act)


def test_code_of_clients_with_sessions_is_apart(server: str) -> None:
    async def main() -> None:
        async with mcp.Client(f"{server}/mcp", mode="legacy") as one, mcp.Client(f"{server}/mcp", mode="legacy") as other:
            await code(one, "mine = 1")
            seen = await code(other, "'mine' in globals()")
            assert seen.structured_content["value"] is False

    asyncio.run(asyncio.wait_for(main(), HARD_STOP))


def test_exit_of_code_is_as_of_python(connect: Any) -> None:
    async def act(client: Any) -> None:
        for text, first in (("import sys; sys.exit(0)", "EXITED 0"), ("raise SystemExit", "EXITED 0"), ("import sys; sys.exit(3)", "EXITED 3")):
            done = await code(client, text)
            assert done.content[0].text.splitlines()[0].startswith(first), (text, done.content[0].text)

    connect(act)
