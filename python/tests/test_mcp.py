"""The server's /mcp, driven by the official Python client, in both forms of the protocol: with sessions, and without."""

from __future__ import annotations

import asyncio
import json
import pathlib
import shlex
import time
import urllib.error
import urllib.request
from typing import Any, Awaitable, Callable

import pytest
from every_tool import use_every_tool
from serving import Serving

import sandtimer

mcp = pytest.importorskip("mcp", reason="the MCP client has no package for this Python")

HARD_STOP = 60.0
Act = Callable[[Any], Awaitable[None]]


def text(result: Any) -> str:
    return "".join(block.text for block in result.content)


def first(result: Any) -> str:
    return text(result).splitlines()[0]


def data(result: Any) -> Any:
    return result.structured_content


async def running(client: Any, command: str) -> str:
    for _ in range(200):
        for run in data(await client.call_tool("list_runs"))["runs"]:
            if run["command"][-1] == command:
                return str(run["run_id"])
        await asyncio.sleep(0.05)
    raise AssertionError("it does not run")


@pytest.fixture(scope="module", params=["legacy", "2026-07-28"])
def connect(request: pytest.FixtureRequest, server: str) -> Callable[[Act], None]:
    """Runs something with a client of the server."""

    def run(act: Act) -> None:
        async def main() -> None:
            async with mcp.Client(f"{server}/mcp", mode=request.param) as client:
                await asyncio.wait_for(act(client), HARD_STOP)

        asyncio.run(main())

    return run


def test_tools_are_listed_in_their_order(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        listed = (await client.list_tools()).tools
        written = pathlib.Path(__file__).parents[2] / "spec/mcp-tools.json"
        assert [tool.name for tool in listed] == [tool["name"] for tool in json.loads(written.read_text())["tools"]]

    connect(act)


def test_every_tool_is_used(connect: Callable[[Act], None]) -> None:
    connect(use_every_tool)


def test_a_command_is_run_and_its_files_stay(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        asked = {"command": "echo one; echo two >&2; echo kept > file; exit 3", "details": True}
        done = await client.call_tool("bash", asked)
        assert first(done) == "EXITED 3" and not done.is_error
        assert text(done).endswith("one\ntwo\n")
        outcome = data(done)
        assert (outcome["ending"], outcome["exit_code"], outcome["tree"]["survivors"]) == ("exited", 3, 0)
        assert outcome["cursor"] == len("one\ntwo\n")
        again = await client.call_tool("bash", {"command": "cat file; pwd; echo $A", "cwd": "/workspace", "env": {"A": "x"}})
        assert data(again)["stdout"] == "kept\n/workspace\nx\n"

    connect(act)


def test_a_command_that_outlives_the_wait_goes_on(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        asked = {"command": "echo begun; sleep 1; echo done", "wait_ms": 200, "timeout_ms": 30000}
        running = await client.call_tool("bash", asked)
        assert first(running) == "STILL RUNNING"
        known = data(running)
        assert known["status"] == "running" and known["kills_at"].endswith("Z") and known["kills_in_ms"] <= 30000
        run = known["run_id"]
        listed = data(await client.call_tool("list_runs"))["runs"]
        assert run in [each["run_id"] for each in listed]
        ended = await client.call_tool("wait", {"run_ids": [run]})
        assert data(ended)["running"] == 0
        rest = await client.call_tool("read_output", {"run_id": run, "cursor": known["cursor"]})
        assert first(rest) == "EXITED 0" and data(rest)["data"].endswith("done\n")

    connect(act)


def test_limits_stop_what_runs_and_say_so(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        stopped = await client.call_tool("bash", {"command": "echo before; sleep 60", "timeout_ms": 300})
        assert first(stopped) == "STOPPED BY run wall limit 300 ms"
        assert data(stopped)["verdict"]["kind"] == "wall" and "before" in text(stopped)

    connect(act)


def test_code_keeps_its_state(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        one = await client.call_tool("run_code", {"language": "python", "code": "x = 40\nprint('said')"})
        assert first(one) == "EXITED 0" and data(one)["stdout"] == "said\n"
        two = await client.call_tool("run_code", {"language": "python", "code": "x + 2"})
        assert data(two)["value"] == 42 and "Value: 42" in text(two)
        spun = await client.call_tool("run_code", {"language": "python", "code": "while True: pass", "timeout_ms": 300})
        assert first(spun).startswith("STOPPED BY run wall limit")
        three = await client.call_tool("run_code", {"language": "python", "code": "x", "context_id": data(one)["context_id"]})
        assert data(three)["value"] == 40
        wrong = await client.call_tool("run_code", {"language": "python", "code": "1/0"})
        assert first(wrong) == "EXITED 1 (ZeroDivisionError)"

    connect(act)


def test_runs_are_steered(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        asked = {"command": "read line; echo got $line; sleep 60", "background": True, "stdin_open": True, "timeout_ms": 20000}
        run = data(await client.call_tool("bash", asked))["run_id"]
        said = await client.call_tool("write_stdin", {"run_id": run, "data": "word\n", "wait_ms": 10000})
        assert data(said)["data"] == "got word\n"
        extended = await client.call_tool("extend", {"run_id": run, "by_ms": 100000})
        assert 60000 < data(extended)["kills_in_ms"] <= 120000
        left = data(await client.call_tool("time_left", {"run_id": run}))["runs"][0]
        wall = left["limits"][0]
        assert wall["kind"] == "wall_ms" and wall["source"] == "call" and wall["remaining"] > 60000
        paused = await client.call_tool("pause", {"run_id": run})
        assert data(paused)["paused"]
        await client.call_tool("resume", {"run_id": run})
        killed = await client.call_tool("kill", {"run_id": run, "reason": "enough"})
        assert first(killed) == "STOPPED BY cancel" and "nothing of it is left alive" in data(killed)["sentence"]

    connect(act)


def test_what_is_said_of_one_run_and_of_none(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        run = data(await client.call_tool("bash", {"command": "sleep 60", "background": True}))["run_id"]
        extended = await client.call_tool("extend", {"run_id": run, "by_ms": 60000})
        assert "has no wall-clock limit: there is nothing to extend" in text(extended) and "more" not in text(extended)
        listed = await client.call_tool("list_runs")
        count = data(listed)["total"]
        assert first(listed) == ("1 run is running or queued" if count == 1 else f"{count} runs are running or queued")
        await client.call_tool("kill", {"run_id": run})

    connect(act)


def test_output_is_cut_filtered_and_waited_for(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        much = await client.call_tool("bash", {"command": "seq 1 100000"})
        assert len(text(much)) <= 20000 and "left out here" in text(much) and text(much).endswith("99999\n100000\n")
        run = data(much)["run_id"]
        found = await client.call_tool("read_output", {"run_id": run, "filter": "^77{3}$"})
        assert data(found)["data"] == "7777\n"
        tail = await client.call_tool("read_output", {"run_id": run, "tail": 2})
        assert data(tail)["data"] == "99999\n100000\n"
        asked = {"command": "for i in 1 2 3 4 5; do echo epoch $i; sleep 0.2; done", "background": True}
        run = data(await client.call_tool("bash", asked))["run_id"]
        match = {"run_id": run, "until": "match", "filter": "epoch 3", "wait_ms": 20000}
        assert data(await client.call_tool("read_output", match))["data"] == "epoch 3\n"
        ended = await client.call_tool("read_output", {"run_id": run, "until": "exit", "wait_ms": 20000})
        assert first(ended) == "EXITED 0" and data(ended)["data"].count("epoch") == 5
        asks = {"command": "echo first; printf 'name: '; read name", "background": True, "stdin_open": True}
        run = data(await client.call_tool("bash", asks))["run_id"]
        prompt = {"run_id": run, "until": "match", "filter": "name: $", "wait_ms": 20000}
        asked_for = data(await client.call_tool("read_output", prompt))
        assert (asked_for["data"], asked_for["next_cursor"]) == ("name: ", 12)
        await client.call_tool("kill", {"run_id": run})

    connect(act)


def test_what_is_wrong_is_named_with_its_remedy(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        async def refused(tool: str, arguments: dict[str, Any]) -> tuple[str, str]:
            result = await client.call_tool(tool, arguments)
            assert result.is_error, text(result)
            assert "Remedy: " in text(result)
            return data(result)["code"], text(result)

        code, said = await refused("bash", {"command": "true", "timout_ms": 5})
        assert code == "unknown_field" and "`timeout_ms`" in said
        assert (await refused("bash", {"command": "true", "timeout_ms": 5, "wall_ms": 5}))[0] == "bad_field"
        code, said = await refused("bash", {"command": "true", "timeout_ms": -5})
        assert code == "bad_limit" and "timeout_ms" in said and "-5" in said
        cut = await client.call_tool("bash", {"command": "true", "wait_ms": 60000})
        assert first(cut) == "EXITED 0" and "taken as 45000" in text(cut)
        assert (await refused("read_output", {"run_id": "nothing"}))[0] == "run_not_found"
        assert "filter" in (await refused("read_output", {"run_id": (await one(client)), "filter": "("}))[1]
        with pytest.raises(Exception, match="BashOutput"):
            await client.call_tool("BashOutputs", {})

    async def one(client: Any) -> str:
        return str(data(await client.call_tool("bash", {"command": "true"}))["run_id"])

    connect(act)


def test_a_key_starts_one_run(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        key = f"key-{time.monotonic_ns()}"
        asked = {"command": "sleep 0.5; echo once", "idempotency_key": key}
        results = await asyncio.gather(*(client.call_tool("bash", asked) for _ in range(4)))
        assert len({data(result)["run_id"] for result in results}) == 1
        other = await client.call_tool("bash", {**asked, "command": "echo other"})
        assert other.is_error and key in text(other)

    connect(act)


def test_calls_of_one_client_go_on_at_the_same_time(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        commands = [f"sleep 1; echo {number}" for number in range(8)]
        asked = [{"command": command, "details": True} for command in commands]
        results = await asyncio.gather(*(client.call_tool("bash", each) for each in asked))
        assert [data(result)["stdout"] for result in results] == [f"{number}\n" for number in range(8)]
        began = [data(result)["usage"]["wall_ms"] for result in results]
        assert max(began) < 8000

    connect(act)


def test_the_names_that_agents_know(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        started = await client.call_tool("Bash", {"command": "echo line; sleep 0.3; echo last", "background": True})
        line = next(line for line in text(started).splitlines() if line.startswith("Started background process: bash_"))
        shell = line.split(": ")[1]
        await client.call_tool("wait", {"run_ids": [shell]})
        read = await client.call_tool("ReadBashOutput", {"shell_id": shell})
        assert "=== Status: COMPLETED (exit code: 0) ===\nline\nlast" in text(read)
        nothing = await client.call_tool("BashOutput", {"bash_id": shell})
        assert "(nothing new)" in text(nothing)
        done = await client.call_tool("Bash", {"command": "echo direct", "timeout": 5000})
        assert first(done) == "EXITED 0" and "direct" in text(done)
        endless = data(await client.call_tool("Bash", {"command": "sleep 60", "run_in_background": True}))["bash_id"]
        killed = await client.call_tool("KillShell", {"shell_id": endless})
        assert first(killed) == "STOPPED BY cancel"
        assert "=== Status: KILLED ===" in text(await client.call_tool("BashOutput", {"bash_id": endless}))

    connect(act)


def test_an_answer_says_one_thing_of_how_a_run_stands(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        for _ in range(40):
            shell = data(await client.call_tool("Bash", {"command": "sleep 0.02; echo done", "background": True}))["bash_id"]
            over = False
            while not over:
                read = await client.call_tool("ReadBashOutput", {"shell_id": shell})
                over = "=== Status: COMPLETED" in text(read)
                assert (first(read) != "STILL RUNNING") == over == (data(read)["headline"] == "EXITED 0"), text(read)

    connect(act)


def test_a_cancelled_call_ends_its_run_unless_it_is_in_the_background(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        mark = f"sleep 61; : {time.monotonic_ns()}"
        call = asyncio.create_task(client.call_tool("bash", {"command": mark}))
        run = await running(client, mark)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        ended = await client.call_tool("wait", {"run_ids": [run], "wait_ms": 20000})
        assert data(ended)["runs"][0]["ending"] == "cancelled"

    connect(act)


def test_a_client_that_takes_tasks_gets_a_handle_of_what_goes_on(server: str) -> None:
    def ask(method: str, params: dict[str, Any], tasks: bool = True) -> Any:
        extensions = {"io.modelcontextprotocol/tasks": {}} if tasks else {}
        about = {
            "protocolVersion": "2026-07-28", "clientInfo": {"name": "t", "version": "1"},
            "clientCapabilities": {"extensions": extensions},
        }
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        head = {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method,
            "Mcp-Name": str(params.get("name", params.get("taskId"))),
        }
        asked = urllib.request.Request(f"{server}/mcp", json.dumps(body).encode(), head)
        try:
            with urllib.request.urlopen(asked, timeout=HARD_STOP) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            return json.load(refused)

    def bash(command: str, tasks: bool = True, **more: Any) -> Any:
        given = {"command": command, "wait_ms": 100, "timeout_ms": 30000, **more}
        return ask("tools/call", {"name": "bash", "arguments": given}, tasks)["result"]

    handle = bash("sleep 1; echo done")
    assert (handle["resultType"], handle["status"]) == ("task", "working") and "wall-clock limit" in handle["statusMessage"]
    until = time.monotonic() + HARD_STOP
    while (task := ask("tasks/get", {"taskId": handle["taskId"]})["result"])["status"] == "working":
        assert time.monotonic() < until
        time.sleep(0.1)
    assert task["status"] == "completed" and task["result"]["structuredContent"]["stdout"] == "done\n", task
    # What is over in time, what is asked for in the background, and a client that takes none: answers as ever.
    assert bash("echo at once", wait_ms=20000)["structuredContent"]["stdout"] == "at once\n"
    assert bash("sleep 2", background=True)["content"][0]["text"].startswith("STILL RUNNING")
    assert bash("sleep 2", tasks=False)["content"][0]["text"].startswith("STILL RUNNING")
    ended = bash("sleep 60", timeout_ms=1000)
    stopped = ask("tools/call", {"name": "wait", "arguments": {"run_ids": [ended["taskId"]]}})["result"]
    assert "STOPPED BY run wall limit" in stopped["content"][0]["text"]
    gone_on = bash("sleep 60")
    ask("tasks/cancel", {"taskId": gone_on["taskId"]})
    while (task := ask("tasks/get", {"taskId": gone_on["taskId"]})["result"])["status"] == "working":
        assert time.monotonic() < until
        time.sleep(0.1)
    assert task["status"] == "cancelled"
    assert "error" in ask("tasks/get", {"taskId": "0123456789ab"})
    assert "error" in ask("tasks/get", {"taskId": handle["taskId"]}, tasks=False)


def test_a_client_without_a_session_that_vanishes_takes_what_it_waited_for(server: str) -> None:
    mark = f"sleep 62; : {time.monotonic_ns()}"

    async def main() -> None:
        async with mcp.Client(f"{server}/mcp", mode="2026-07-28") as client:
            reader, writer = await asyncio.open_connection(*server.removeprefix("http://").split(":"))
            about = {"protocolVersion": "2026-07-28", "clientInfo": {"name": "t", "version": "1"}, "clientCapabilities": {}}
            meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
            params = {"name": "bash", "arguments": {"command": mark}, "_meta": meta}
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            head = {
                "Host": "localhost", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "bash",
                "Content-Length": len(body),
            }
            lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
            writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n{body}".encode())
            run = await running(client, mark)
            writer.transport.abort()
            ended = await client.call_tool("wait", {"run_ids": [run], "wait_ms": 20000})
            assert data(ended)["runs"][0]["ending"] == "cancelled"

    asyncio.run(asyncio.wait_for(main(), HARD_STOP))


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_an_estimated_task_is_bound_to_the_next_command(tmp_path: pathlib.Path, mode: str) -> None:
    async def act(client: Any) -> None:
        asked = {"task_type": "train_complex_model", "data_size_mb": 2300, "complexity": "moderate"}
        told = await client.call_tool("EstimateTaskDuration", {**asked, "additional_context": f"{time.monotonic_ns()}"})
        for line in ("⚡ Best case:  12m 0s", "📈 Typical:    30m 0s", "⚠️ Worst case: 1h 30m"):
            assert line in text(told), text(told)
        task = data(told)["task"]["task_id"]
        shell = await client.call_tool("Bash", {"command": "sleep 1; echo trained", "background": True})
        assert data(shell)["task"].startswith("train_complex_model")
        name = data(shell)["task"]
        left = data(await client.call_tool("time_left"))["budget"]
        assert name in [limit.get("task") for limit in left["limits"]]
        await client.call_tool("wait", {"run_ids": [data(shell)["run_id"]]})
        for _ in range(100):
            tasks = data(await client.call_tool("time_left"))["budget"]["limits"]
            if name not in [limit.get("task") for limit in tasks]:
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("it ends with its run")
        estimate = await client.call_tool("estimate_duration", {"task_type": "train_complex_model", "data_size_mb": 2300})
        assert data(estimate)["typical_ms"] > 0 and task

    async def main() -> None:
        async with mcp.Client(f"{serving.url}/mcp", mode=mode) as client:
            await asyncio.wait_for(act(client), HARD_STOP)

    # One that knows no runs, so that the figures are the table's.
    serving = Serving(tmp_path)
    try:
        asyncio.run(main())
    finally:
        serving.stop()


def test_a_timeout_manager_reads_what_the_tools_print(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        manager = sandtimer.TimeoutManager(max_failures=10)

        async def use(tool: str, **arguments: Any) -> Any:
            result = await client.call_tool(tool, arguments)
            manager.observe_tool(tool, text(result), arguments)
            return data(result)

        command = f"sleep 0.3; : {time.monotonic_ns()}"
        await use("bash", command=command, wait_ms=20000)
        asked = await client.call_tool("estimate_duration", {"command": command})
        read = manager.parse_estimate_result(text(asked))
        assert read is not None and read["task_name"].endswith(command), text(asked)
        for key in ("typical", "max", "suggested_limit"):
            wire = {"max": "worst_ms"}.get(key, f"{key}_ms")
            assert read[key] == pytest.approx(data(asked)[wire] / 1000, rel=0.05), text(asked)
        for alias, reader, key in (("Bash", "ReadBashOutput", "shell_id"), ("bash", "read_output", "run_id")):
            await use("EstimateTaskDuration", task_type="load_data", data_size_mb=50)
            begun = await use(alias, command="echo COMPLETED; sleep 1", background=True)
            process = {key: begun["run_id"]}
            status = manager.get_task_status()
            assert status is not None and status["task_name"] == "load_data"
            await use(reader, **process)
            assert manager.get_task_status() is not None
            await client.call_tool("wait", {"run_ids": [begun["run_id"]], "wait_ms": 20000})
            await use(reader, **process)
            assert manager.get_task_status() is None
        await use("EstimateTaskDuration", task_type="load_data")
        begun = await use("Bash", command="sleep 1; exit 3", run_in_background=True)
        await use("wait", run_ids=[begun["bash_id"]])
        assert manager.get_task_status() is None
        await use("EstimateTaskDuration", task_type="load_data")
        begun = await use("Bash", command="sleep 60", background=True)
        await use("kill", run_id=begun["run_id"], signal="SIGWINCH")
        assert manager.get_task_status() is not None, "a signal alone ends nothing"
        await use("KillShell", shell_id=begun["bash_id"])
        assert manager.get_task_status() is None
        await use("BashOutput", bash_id=begun["bash_id"])
        check = manager.check_timeout()
        [failures] = [limit for limit in check["limits"] if limit["kind"] == "failures"]
        assert failures["used"] == 1 and manager.get_summary()["tasks_completed"] == 3, check

    connect(act)


def test_estimates_name_what_is_wrong(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        wrong = await client.call_tool("estimate_duration", {"task_type": "train_complx_model"})
        assert wrong.is_error and "train_complex_model" in data(wrong)["details"]["nearest"]
        wrong = await client.call_tool("estimate_duration", {"task_type": "load_data", "data_size_mb": -1})
        assert wrong.is_error and "data_size_mb" in text(wrong)
        wrong = await client.call_tool("estimate_duration", {})
        assert wrong.is_error

    connect(act)


def test_runs_and_their_output_are_resources(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        run = data(await client.call_tool("bash", {"command": "echo kept as a document"}))["run_id"]
        output = f"sandtimer://runs/{run}/stdout"
        assert output in [str(resource.uri) for resource in (await client.list_resources()).resources]
        templates = (await client.list_resource_templates()).resource_templates
        assert "sandtimer://runs/{run_id}/stdout" in [template.uri_template for template in templates]

        async def read(uri: str) -> str:
            return str((await client.read_resource(uri)).contents[0].text)

        assert await read(output) == "kept as a document\n"
        assert json.loads(await read(f"sandtimer://runs/{run}"))["outcome"]["exit_code"] == 0
        assert run in [each["run_id"] for each in json.loads(await read("sandtimer://runs"))["runs"]]
        for unknown in ("sandtimer://runs/0123456789ab", f"sandtimer://runs/{run}/stdin", "sandtimer://files"):
            with pytest.raises(Exception, match="no run|neither|none of"):
                await client.read_resource(unknown)

    connect(act)


def test_a_quiet_run_says_why(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        code = "import time\ndef slow():\n    time.sleep(40)\nslow()"
        asked = {"command": f"python3 -c {shlex.quote(code)}", "background": True, "timeout_ms": 60000}
        run = data(await client.call_tool("bash", asked))["run_id"]
        await client.call_tool("wait", {"run_ids": [run], "wait_ms": 6000})
        listed = await client.call_tool("list_runs")
        [seen] = [each for each in data(listed)["runs"] if each["run_id"] == run]
        assert seen["doing"]["quiet_ms"] >= 5000 and seen["doing"]["processes"]
        stacks = [thread for process in seen["doing"]["processes"] for thread in process.get("python", [])]
        assert stacks[0]["frames"][0]["function"] == "slow", seen["doing"]
        assert "has printed nothing for" in text(listed) and "Python: slow <string>:3" in text(listed), text(listed)
        await client.call_tool("kill", {"run_id": run})

    connect(act)


def test_tasks_and_progress(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        label = f"tidy-{time.monotonic_ns()}"
        begun = await client.call_tool("begin_task", {"label": label, "estimated_ms": 60000, "max_ms": 120000})
        assert not begun.is_error, text(begun)
        again = await client.call_tool("begin_task", {"label": label})
        assert again.is_error and label in text(again)
        for done in (1, 2, 3):
            await asyncio.sleep(0.2)
            noted = await client.call_tool("report_progress", {"task": label, "done": done, "total": 10})
        assert data(noted)["progress"]["done"] == 3 and data(noted)["progress"]["eta_ms"] > 0
        for wrong in ({"done": -1, "total": 5}, {"done": 1, "total": 0}, {"done": 9, "total": 5}):
            assert (await client.call_tool("report_progress", {"task": label, **wrong})).is_error
        ended = await client.call_tool("end_task", {"label": label})
        assert data(ended)["took_ms"] >= 500
        assert (await client.call_tool("end_task", {"label": label})).is_error

    connect(act)


def test_a_run_with_a_limit_says_how_likely_it_is_done_in_time(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        command = 'for epoch in 1 2 3; do echo "Epoch $epoch/9: loss 1"; sleep 0.2; done; sleep 60'
        begun = await client.call_tool("bash", {"command": command, "background": True, "timeout_ms": 60000})
        run = data(begun)["run_id"]
        await client.call_tool("read_output", {"run_id": run, "until": "match", "filter": "Epoch 3", "wait_ms": 20000})
        left = await client.call_tool("time_left", {"run_id": run})
        waited = await client.call_tool("wait", {"run_ids": [run], "wait_ms": 0})
        for seen in (left, waited):
            progress = data(seen)["runs"][0]["progress"]
            assert (progress["done"], progress["total"]) == (3, 9)
            assert 0 <= progress["p_finish_before_deadline"] <= 1
            assert "It is at 3 of 9, done in about " in text(seen) and "before its limit with a chance of" in text(seen)
        for done in (4, 5):
            await asyncio.sleep(0.2)
            noted = await client.call_tool("report_progress", {"run_id": run, "done": done, "total": 9})
        assert data(noted)["p_finish_before_deadline"] == data(noted)["progress"]["p_finish_before_deadline"]
        left = await client.call_tool("time_left", {"run_id": run})
        assert data(left)["runs"][0]["progress"]["done"] == 5, "what is reported is the run's"
        await client.call_tool("kill", {"run_id": run})
        late = await client.call_tool("report_progress", {"run_id": run, "done": 6, "total": 9})
        assert late.is_error and data(late)["code"] == "run_ended"

    connect(act)


def test_a_run_reports_its_progress_and_hears_of_its_limit_unasked(connect: Callable[[Act], None]) -> None:
    async def act(client: Any) -> None:
        report = """echo '{"done": 3, "total": 9, "unit": "epoch"}' >&"$SANDTIMER_PROGRESS_FD"; """
        heard = 'read notice <&"$SANDTIMER_NOTICE_FD"; echo "heard $notice"; sleep 60'
        asked = {"command": f"{report} echo said; {heard}", "timeout_ms": 5000, "background": True}
        run = data(await client.call_tool("bash", asked))["run_id"]
        for _ in range(100):
            progress = data(await client.call_tool("time_left", {"run_id": run}))["runs"][0]["progress"]
            if progress is not None:
                break
            await asyncio.sleep(0.02)
        assert (progress["done"], progress["total"]) == (3, 9)
        match = {"run_id": run, "until": "match", "filter": "^heard ", "wait_ms": 20000}
        notice = json.loads(data(await client.call_tool("read_output", match))["data"].removeprefix("heard "))
        assert notice["limit"] == "wall" and 0 < notice["left_ms"] <= 500
        ended = await client.call_tool("wait", {"run_ids": [run]})
        assert data(ended)["runs"][0]["ending"] == "timeout"

    connect(act)


def test_what_is_left_is_said_once(server: str) -> None:
    async def main() -> None:
        async with mcp.Client(f"{server}/mcp", mode="legacy") as client:
            begun = await client.call_tool("begin_task", {"label": "long", "estimated_ms": 100, "max_ms": 60000})
            await asyncio.sleep(0.4)
            left = await client.call_tool("time_left")
            await client.call_tool("begin_task", {"label": "short", "max_ms": 100})
            await asyncio.sleep(0.2)
            hit = await client.call_tool("time_left")
            ended = await client.call_tool("end_task", {"label": "short"})
        for told, line in ((begun, "Task: 0m / 1m"), (left, "is taking longer than expected"), (hit, "TIMEOUT: Task 'short'")):
            assert text(told).count(line) == 1, text(told)
        for told in (begun, left, hit, ended):
            assert "text" not in data(told)["budget"] and data(told)["budget"]["limits"], data(told)
            lines = [line for line in text(told).splitlines() if line]
            assert len(lines) == len(set(lines)), text(told)

    asyncio.run(asyncio.wait_for(main(), HARD_STOP))


def test_a_run_that_can_be_no_task_is_told_all_the_same(server: str) -> None:
    async def main() -> None:
        async with mcp.Client(f"{server}/mcp", mode="legacy") as client:
            for number in range(64):
                assert not (await client.call_tool("begin_task", {"label": f"t{number}"})).is_error
            await client.call_tool("EstimateTaskDuration", {"task_type": "load_data"})
            started = await client.call_tool("bash", {"command": "sleep 30", "background": True, "wall_ms": 30000})
            assert not started.is_error and "this run is not a task: 64 tasks are already open" in text(started), text(started)
            assert not (await client.call_tool("kill", {"run_id": data(started)["run_id"]})).is_error

    asyncio.run(asyncio.wait_for(main(), HARD_STOP))


def test_a_task_that_takes_too_long_is_told(server: str) -> None:
    async def main() -> None:
        # A session has a budget of its own.
        async with mcp.Client(f"{server}/mcp", mode="legacy") as client:
            await client.call_tool("begin_task", {"label": "short", "estimated_ms": 100, "max_ms": 300})
            await asyncio.sleep(0.5)
            remedy = "end_task with label `short`"
            told = await client.call_tool("list_runs")
            assert "⏱️ TIMEOUT: Task 'short' exceeded" in text(told), text(told)
            assert "proceed with current best" in text(told) and remedy in text(told)
            await client.call_tool("bash", {"command": "true"})
            for tool, arguments in (("bash", {"command": "true"}), ("run_code", {"language": "python", "code": "1"})):
                over = await client.call_tool(tool, arguments)
                assert data(over)["code"] == "budget_over" and remedy in text(over), text(over)
            assert remedy in text(await client.call_tool("time_left"))
            await client.call_tool("end_task", {"label": "short"})
            assert first(await client.call_tool("bash", {"command": "true"})) == "EXITED 0"

    asyncio.run(asyncio.wait_for(main(), HARD_STOP))
