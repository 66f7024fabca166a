"""One Python program, or one command of a shell, through each way into Sandtimer."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import subprocess
import urllib.error
import urllib.request
from typing import Any, Callable, Iterable, NamedTuple, Optional

import pytest
import sandtimer
from serving import BINARY

# Nothing here takes longer.
HARD_STOP = 90.0


class Ended(NamedTuple):
    stdout: str
    exit_code: Optional[int]
    ending: str
    whole: Any


def request(url: str, body: Any = None, method: Optional[str] = None) -> Any:
    """The server's answer to a request, also if it refuses."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=HARD_STOP) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return json.load(refused)


def _of_outcome(outcome: Any) -> Ended:
    if isinstance(outcome, dict):
        return Ended(outcome["stdout"], outcome["exit_code"], outcome["ending"], outcome)
    return Ended(outcome.stdout, outcome.exit_code, outcome.ending, outcome)


class Doors:
    """Each method takes a Python program and returns what its run has come to."""

    def __init__(self, server: str, box: sandtimer.Sandbox, wall: float = 40.0) -> None:
        self.server, self.box, self.wall_ms = server, box.limits(timeout=wall), int(wall * 1000)

    def within(self, wall: float) -> Doors:
        """The same, with another limit."""
        return Doors(self.server, self.box, wall)

    # The command line

    def cli_python(self, code: str, flags: tuple[str, ...] = ()) -> Ended:
        return self._cli(["python", *flags, "-c", code])

    def cli_run(self, code: str, flags: tuple[str, ...] = ()) -> Ended:
        return self._cli(["run", *flags, "--", "python3", "-c", code])

    def cli_shell(self, command: str, flags: tuple[str, ...] = ()) -> Ended:
        return self._cli(["run", *flags, "--", "bash", "-c", command])

    def _cli(self, arguments: list[str]) -> Ended:
        command = [BINARY, arguments[0], "--json", "--wall", f"{self.wall_ms}ms", *arguments[1:]]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=HARD_STOP)
        return _of_outcome(json.loads(done.stdout))

    # HTTP

    def http_code(self, code: str, **more: Any) -> Ended:
        return self.http_run(code=code, language="python", **more)

    def http_command(self, code: str, **more: Any) -> Ended:
        return self.http_run(command=["python3", "-c", code], **more)

    def http_shell(self, command: str, **more: Any) -> Ended:
        return self.http_run(command=command, **more)

    def http_run(self, **asked: Any) -> Ended:
        answer = request(f"{self.server}/v1/runs", {"wall_ms": self.wall_ms, **asked})
        return _of_outcome(answer["outcome"])

    def listed_runs(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = request(f"{self.server}/v1/runs")["runs"]
        return listed

    def http_context(self, code: str, language: str = "python", **more: Any) -> Ended:
        return self._executed("contexts", {"language": language}, code, more)

    def http_session(self, code: str, **more: Any) -> Ended:
        return self.session_shell(_shell(code), **more)

    def session_shell(self, command: str, **more: Any) -> Ended:
        return self._executed("sessions", {}, command, more)

    def _executed(self, kind: str, wanted: dict[str, Any], code: str, more: dict[str, Any]) -> Ended:
        made = request(f"{self.server}/v1/{kind}", wanted)
        at = f"{self.server}/v1/{kind}/{made['context_id']}"
        try:
            answer = request(f"{at}/execute", {"code": code, "wall_ms": self.wall_ms, **more})
        finally:
            request(at, method="DELETE")
        return _of_outcome(answer["outcome"])

    def http_job(self, code: str, **more: Any) -> Ended:
        return self._job(code=code, language="python", **more)

    def job_code(self, code: str, language: str, **more: Any) -> Ended:
        return self._job(code=code, language=language, **more)

    def job_shell(self, command: str, **more: Any) -> Ended:
        return self._job(command=["bash", "-c", command], **more)

    def _job(self, **spec: Any) -> Ended:
        made = request(f"{self.server}/v1/jobs", {"limits": {"wall_ms": self.wall_ms}, **spec})
        job = request(f"{self.server}/v1/jobs/{made['jobs'][0]['job_id']}?wait_ms=45000")
        return _of_outcome(job["result"]["outcome"])

    # MCP

    def mcp_run_code(self, code: str, **more: Any) -> Ended:
        return self.mcp("run_code", {"language": "python", "code": code, **more})

    def mcp_bash(self, code: str, **more: Any) -> Ended:
        return self.mcp_shell(_shell(code), **more)

    def mcp_shell(self, command: str, **more: Any) -> Ended:
        return self.mcp("bash", {"command": command, **more})

    def mcp_bash_session(self, code: str, **more: Any) -> Ended:
        return self.mcp_session_shell(_shell(code), **more)

    def mcp_session_shell(self, command: str, **more: Any) -> Ended:
        return self.mcp("run_code", {"language": "bash", "code": command, **more})

    def mcp(self, tool: str, arguments: dict[str, Any]) -> Ended:
        result = self.tool(tool, {"details": True, "timeout_ms": self.wall_ms, "wait_ms": 45000, **arguments})
        assert not result.is_error, result
        return _of_outcome({"exit_code": None, **result.structured_content})

    def tool(self, name: str, arguments: dict[str, Any]) -> Any:
        client = pytest.importorskip("mcp", reason="the MCP client has no package for this Python")

        async def main() -> Any:
            async with client.Client(f"{self.server}/mcp", mode="2026-07-28") as connected:
                return await asyncio.wait_for(connected.call_tool(name, arguments), HARD_STOP)

        return asyncio.run(main())

    # Python

    def exec(self, code: str, **more: Any) -> Ended:
        return _of_outcome(self.box.exec(code, **more))

    def command(self, code: str, **more: Any) -> Ended:
        return _of_outcome(self.box.command(["python3", "-c", code], **more))

    def command_shell(self, command: str, **more: Any) -> Ended:
        return _of_outcome(self.box.command(["bash", "-c", command], **more))

    def exec_shell(self, command: str, **more: Any) -> Ended:
        return self.exec(f"import subprocess, sys\nsys.exit(subprocess.run(['bash', '-c', {command!r}]).returncode)", **more)

    def call(self, code: str) -> Ended:
        return _of_outcome(self.box.run(exec, code, {"__name__": "__main__"}))

    def context(self, code: str, **more: Any) -> Ended:
        with self.box.context("python") as opened:
            return _of_outcome(opened.run(code, **more))

    def judge(self, code: str, stdin: str = "") -> Ended:
        outcome = self.box.judge(code, [(stdin, "")], checker=lambda *_: True).outcomes[0]
        assert outcome is not None
        return _of_outcome(outcome)


def together(use: Callable[[str], Ended], names: Iterable[str]) -> dict[str, Ended]:
    """What comes of each of these ways, all at the same time: for programs that wait."""
    names = list(names)
    with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
        return dict(zip(names, threads.map(use, names)))


def _shell(code: str) -> str:
    """A command of a shell that executes this program."""
    return "python3 -c '" + code.replace("'", "'\\''") + "'"


def named(*names: str) -> pytest.MarkDecorator:
    """A parameter `door`: each of these ways."""
    return pytest.mark.parametrize("door", names)


PYTHON = ("exec", "command", "call", "context", "judge")
CLI = ("cli_python", "cli_run")
HTTP = ("http_code", "http_command", "http_context", "http_session", "http_job")
MCP = ("mcp_run_code", "mcp_bash", "mcp_bash_session")
EVERY = (*PYTHON, *CLI, *HTTP, *MCP)

SHELL = ("command_shell", "exec_shell", "cli_shell", "http_shell", "session_shell", "job_shell", "mcp_shell", "mcp_session_shell")
