"""`sandtimer mcp`, driven by the official Python client: clients come and go, what they started in the background stays."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any, Awaitable, Callable, Iterator

import pytest
from every_tool import use_every_tool
from serving import BINARY

mcp = pytest.importorskip("mcp", reason="the MCP client has no package for this Python")

HARD_STOP = 90.0
Act = Callable[[Any], Awaitable[None]]


def data(result: Any) -> Any:
    return result.structured_content


def first(result: Any) -> str:
    return str("".join(block.text for block in result.content).splitlines()[0])


def with_argument(words: str) -> list[int]:
    """The processes that have this among their arguments."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


class Agents:
    """Clients of one server, each with a `sandtimer mcp` of its own."""

    def __init__(self, state: str) -> None:
        self.state = state

    def client(self, *flags: str, mode: str = "auto") -> Any:
        asked = mcp.StdioServerParameters(command=BINARY, args=["mcp", "--state-dir", self.state, *flags])
        return mcp.Client(asked, mode=mode)

    def run(self, act: Act, *flags: str, mode: str = "auto") -> None:
        async def main() -> None:
            async with self.client(*flags, mode=mode) as client:
                await asyncio.wait_for(act(client), HARD_STOP)

        asyncio.run(main())

    def processes(self, command: str) -> list[int]:
        return [pid for pid in with_argument(self.state) if words(pid)[1:2] == [command]]


def words(pid: int) -> list[str]:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    # A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="sandtimer-mcp-") as state:
        agents = Agents(state)
        yield agents
        for pid in agents.processes("serve"):
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + 30
        while agents.processes("serve") and time.monotonic() < until:
            time.sleep(0.1)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_tools_work_over_stdin_and_stdout(agents: Agents, mode: str) -> None:
    async def act(client: Any) -> None:
        assert len((await client.list_tools()).tools) >= 15
        done = await client.call_tool("bash", {"command": "echo $((6 * 7))"})
        assert first(done) == "EXITED 0" and data(done)["stdout"] == "42\n"
        value = await client.call_tool("run_code", {"language": "python", "code": "6 * 7"})
        assert data(value)["value"] == 42

    agents.run(act, mode=mode)


def test_every_tool_is_used_over_stdin_and_stdout(agents: Agents) -> None:
    agents.run(use_every_tool)


def test_another_client_sees_the_same_runs_and_one_server_serves_all(agents: Agents) -> None:
    async def main() -> None:
        async with agents.client() as one, agents.client() as other:
            run = data(await one.call_tool("bash", {"command": "echo here; sleep 60", "background": True}))["run_id"]
            read = await other.call_tool("read_output", {"run_id": run, "wait_ms": 20000})
            assert data(read)["data"] == "here\n"
            assert len(agents.processes("serve")) == 1
            await other.call_tool("kill", {"run_id": run})

    asyncio.run(asyncio.wait_for(main(), HARD_STOP))


def test_a_killed_client_leaves_its_background_runs_and_takes_what_it_waited_for(agents: Agents) -> None:
    known: dict[str, str] = {}
    mark = f": {time.monotonic_ns()}"

    async def vanish(client: Any) -> None:
        asked = {"command": f"echo begun; sleep 3; echo finished; {mark}", "background": True, "timeout_ms": 60000}
        known["background"] = data(await client.call_tool("bash", asked))["run_id"]
        limited = {"command": "echo limited; sleep 60", "background": True, "timeout_ms": 2000}
        known["limited"] = data(await client.call_tool("bash", limited))["run_id"]
        waiting = asyncio.create_task(client.call_tool("bash", {"command": f"sleep 77; {mark}", "wait_ms": 45000}))
        while "waited" not in known:
            for run in data(await client.call_tool("list_runs"))["runs"]:
                if run["command"][-1].startswith("sleep 77"):
                    known["waited"] = run["run_id"]
            await asyncio.sleep(0.05)
        for pid in agents.processes("mcp"):
            os.kill(pid, signal.SIGKILL)
        waiting.cancel()

    try:
        agents.run(vanish)
    except BaseException as error:  # The client's own word for a server that is gone; any will do.
        assert len(known) == 3, error

    async def find(client: Any) -> None:
        read = {"run_id": known["background"], "until": "exit", "wait_ms": 30000}
        done = await client.call_tool("read_output", read)
        assert first(done) == "EXITED 0" and "finished" in data(done)["data"]
        limited = await client.call_tool("wait", {"run_ids": [known["limited"]]})
        assert data(limited)["runs"][0]["ending"] == "timeout"
        waited = await client.call_tool("wait", {"run_ids": [known["waited"]], "wait_ms": 20000})
        assert data(waited)["runs"][0]["ending"] == "cancelled"

    agents.run(find)


def test_a_budget_bounds_all_that_a_connection_starts(agents: Agents) -> None:
    async def act(client: Any) -> None:
        stopped = await client.call_tool("bash", {"command": "sleep 60"})
        assert first(stopped).startswith("STOPPED BY loop wall limit"), stopped

    agents.run(act, "--wall", "2s")


@pytest.mark.parametrize("language, code", [("python", "import time; time.sleep(60)"), ("bash", "sleep 60")])
def test_a_budget_bounds_what_runs_in_interpreters(agents: Agents, language: str, code: str) -> None:
    async def act(client: Any) -> None:
        stopped = await client.call_tool("run_code", {"language": language, "code": code})
        assert first(stopped).startswith("STOPPED BY loop wall limit"), stopped
        assert data(stopped)["verdict"]["layer"] == "loop"

    agents.run(act, "--wall", "4s")

    async def silent(client: Any) -> None:
        stalled = await client.call_tool("run_code", {"language": language, "code": code})
        assert data(stalled)["ending"] == "stalled", stalled

    agents.run(silent, "--stall", "2s")


def test_a_call_that_is_repeated_in_an_interpreter_is_noticed(agents: Agents) -> None:
    async def act(client: Any) -> None:
        told = ""
        for _ in range(4):
            done = await client.call_tool("run_code", {"language": "python", "code": "print('again')"})
            told = "".join(block.text for block in done.content)
        assert "same" in told, told

    agents.run(act)


def test_turns_are_counted_and_one_more_is_left_for_wrapping_up(agents: Agents) -> None:
    async def act(client: Any) -> None:
        for turn in range(2):
            done = await client.call_tool("bash", {"command": f"echo {turn}"})
            assert first(done) == "EXITED 0"
        assert "TIMEOUT" in "".join(block.text for block in done.content)
        last = await client.call_tool("bash", {"command": "echo last"})
        assert data(last)["stdout"] == "last\n"
        over = await client.call_tool("bash", {"command": "echo more"})
        assert over.is_error and data(over)["code"] == "budget_over"
        assert not (await client.call_tool("list_runs")).is_error

    agents.run(act, "--turns", "2")


def test_what_is_refused_for_its_arguments_is_no_turn(agents: Agents) -> None:
    wrong = [
        ("bash", {"command": "true", "timeout_ms": -5}),
        ("bash", {"command": "true", "wait_ms": "soon"}),
        ("bash", {"command": "true", "task_type": "no_such_type"}),
        ("bash", {"command": "true", "idempotency_key": "k" * 1000}),
        ("run_code", {"language": "python", "code": "1", "wall_ms": 5, "timeout_ms": 5}),
        ("run_code", {"language": "python", "code": "1", "warn_signal": "SIGNOTHING"}),
        ("run_code", {"language": "python", "code": "1", "context_id": "0123456789ab"}),
    ]

    async def act(client: Any) -> None:
        async def all_refused() -> None:
            for tool, arguments in wrong:
                refused = await client.call_tool(tool, arguments)
                assert refused.is_error and data(refused)["code"] != "budget_over", refused

        await all_refused()
        assert first(await client.call_tool("bash", {"command": "true"})) == "EXITED 0"
        await all_refused()
        key = {"command": "echo last", "idempotency_key": f"key-{time.monotonic_ns()}"}
        assert data(await client.call_tool("bash", key))["stdout"] == "last\n", "the turn for wrapping up was kept"
        again = await client.call_tool("bash", key)
        assert data(again)["stdout"] == "last\n", "what is there already is no turn"
        for tool, arguments in (("bash", {"command": "true"}), ("run_code", {"language": "python", "code": "1"})):
            assert data(await client.call_tool(tool, arguments))["code"] == "budget_over"

    agents.run(act, "--turns", "1")


def test_a_call_that_waits_for_several_things_takes_no_longer_than_one(agents: Agents) -> None:
    async def act(client: Any) -> None:
        deaf = {"command": "sleep 100", "background": True, "stdin_open": True, "timeout_ms": 100000}
        run = data(await client.call_tool("bash", deaf))["run_id"]
        begun = time.monotonic()
        # More than a pipe takes: it waits to write, and then for an answer.
        said = await client.call_tool("write_stdin", {"run_id": run, "data": "x" * 500_000, "wait_ms": 45000})
        assert 0 < data(said)["written"] < 500_000
        assert time.monotonic() - begun < 50, "ten seconds for the one and 45 for the other"
        await client.call_tool("kill", {"run_id": run})

    agents.run(act)


def test_tools_that_estimate_are_hidden_where_that_was_chosen(agents: Agents) -> None:
    hidden = {"estimate_duration", "EstimateTaskDuration"}

    async def tools(variables: dict[str, str]) -> set[str]:
        asked = mcp.StdioServerParameters(
            command=BINARY, args=["mcp", "--state-dir", agents.state], env={**os.environ, **variables}
        )
        async with mcp.Client(asked) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            if not hidden & names:
                with pytest.raises(Exception, match="no tool"):
                    await client.call_tool("estimate_duration", {"task_type": "load_data"})
            return names

    async def main() -> None:
        without, usual = await tools({"ENABLE_ESTIMATE_DURATION": "0"}), await tools({"ENABLE_ESTIMATE_DURATION": "1"})
        assert usual - without == hidden and hidden <= await tools({})

    asyncio.run(asyncio.wait_for(main(), HARD_STOP))


def test_an_agent_works_in_a_directory_of_the_users(agents: Agents, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "given").write_text("from outside")

    async def act(client: Any) -> None:
        read = await client.call_tool("bash", {"command": "cat given; echo $PWD > made"})
        assert data(read)["stdout"] == "from outside", read
        code = "open('by_code', 'w').write(open('/workspace/made').read())"
        assert not (await client.call_tool("run_code", {"language": "python", "code": code})).is_error

    agents.run(act, "--workspace", str(tmp_path))
    for name in ("made", "by_code"):
        assert (tmp_path / name).read_text() == f"{tmp_path}\n", "at its own path"
        assert (tmp_path / name).stat().st_uid == os.getuid(), "what is made there is the user's"

    async def other(client: Any) -> None:
        listed = await client.call_tool("bash", {"command": "ls"})
        assert "given" not in data(listed)["stdout"], "another connection has a workspace of its own"

    agents.run(other)


@pytest.mark.parametrize("directory, why", [("/", "is the root"), ("/nowhere", "No such file"), ("/etc/passwd", "not a directory")])
def test_what_cannot_be_an_agents_directory_is_refused(agents: Agents, directory: str, why: str) -> None:
    asked = [BINARY, "mcp", "--state-dir", agents.state, "--workspace", directory]
    refused = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HARD_STOP)
    assert refused.returncode == 125 and directory in refused.stderr and why in refused.stderr, refused


def sandboxes(agents: Agents) -> list[Any]:
    """The sandboxes of the server that the agents share, which listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(HARD_STOP)
        connection.connect(f"{agents.state}/mcp.sock")
        connection.sendall(b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0], head
    found: list[Any] = json.loads(body)["sandboxes"]
    return found


def test_tools_of_a_connection_share_a_sandbox(agents: Agents) -> None:
    async def act(client: Any) -> None:
        wrote = await client.call_tool("bash", {"command": "echo 42 >~/answer; ln -s /home/user/answer /tmp/link; id -un; pwd"})
        assert data(wrote)["stdout"] == "user\n/workspace\n", wrote
        code = "open('/var/tmp/by_code', 'w').write(open('/tmp/link').read()); 1"
        assert data(await client.call_tool("run_code", {"language": "python", "code": code}))["value"] == 1
        read = await client.call_tool("bash", {"command": "cat /var/tmp/by_code"})
        assert data(read)["stdout"] == "42\n", read
        slow = await client.call_tool("bash", {"command": "sleep 60", "timeout_ms": 500})
        assert data(slow)["ending"] == "timeout", slow
        await client.call_tool("bash", {"command": "sleep 60", "background": True})
        [made] = sandboxes(agents)
        assert (made["template"], made["idle_ms"]) == ("host", 4 * 3_600_000) and made["runs"] >= 1, made

    agents.run(act, "--sandbox", "host", "--wall", "1h")
    until = time.monotonic() + 30
    while sandboxes(agents) and time.monotonic() < until:
        time.sleep(0.1)
    assert sandboxes(agents) == [], "it is deleted with the connection"

    async def other(client: Any) -> None:
        listed = await client.call_tool("bash", {"command": "ls -A /home/user /var/tmp"})
        assert data(listed)["stdout"] == "/home/user:\n\n/var/tmp:\n", "another connection has files of its own"

    agents.run(other, "--sandbox", "host")


def test_sandbox_of_no_template_is_refused(agents: Agents) -> None:
    for flags, why in [(["--sandbox", "nothing"], "use one of host"), (["--sandbox", "host", "--workspace", "/srv"], "cannot be used with")]:
        asked = [BINARY, "mcp", "--state-dir", agents.state, *flags]
        refused = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HARD_STOP)
        assert refused.returncode == 125 and why in refused.stderr, refused


def test_silence_ends_what_a_connection_runs(agents: Agents) -> None:
    async def act(client: Any) -> None:
        stalled = await client.call_tool("bash", {"command": "sleep 60"})
        assert data(stalled)["ending"] == "stalled", stalled

    agents.run(act, "--stall", "2s")


def test_time_in_which_nothing_runs_is_no_stall(agents: Agents) -> None:
    async def act(client: Any) -> None:
        assert first(await client.call_tool("bash", {"command": "true"})) == "EXITED 0"
        await asyncio.sleep(2.5)
        back = await client.call_tool("bash", {"command": "true"})
        assert first(back) == "EXITED 0" and "TIMEOUT" not in str(back.content), back
        left = data(await client.call_tool("time_left"))["budget"]
        [stall] = [limit for limit in left["limits"] if limit["kind"] == "stall"]
        assert left["state"] == "going" and (stall["used"], stall["limit"]) == (0, 1000)

    agents.run(act, "--stall", "1s")


def test_a_server_that_was_killed_is_replaced_and_its_records_are_there(agents: Agents) -> None:
    known: dict[str, str] = {}

    async def act(client: Any) -> None:
        known["run"] = data(await client.call_tool("bash", {"command": "echo recorded"}))["run_id"]

    agents.run(act)
    for pid in agents.processes("serve"):
        os.kill(pid, signal.SIGKILL)

    async def again(client: Any) -> None:
        read = await client.call_tool("read_output", {"run_id": known["run"]})
        assert data(read)["data"] == "recorded\n"

    agents.run(again)
