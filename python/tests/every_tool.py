"""Uses each of the MCP tools once, by whatever client there is a connection of."""

from __future__ import annotations

from typing import Any


def _text(result: Any) -> str:
    return "".join(block.text for block in result.content)


async def use_every_tool(client: Any) -> None:
    """Each tool does what it is there for; there is none besides."""
    used = set()

    async def act(name: str, says: str, **arguments: Any) -> Any:
        used.add(name)
        result = await client.call_tool(name, arguments)
        assert not result.is_error and says in _text(result), f"{name}: {_text(result)}"
        return result.structured_content

    command = "echo begun; read line; echo got $line; sleep 60"
    begun = await act("bash", "STILL RUNNING", command=command, background=True, stdin_open=True, timeout_ms=60000)
    run = begun["run_id"]
    await act("read_output", "begun", run_id=run, wait_ms=20000)
    await act("write_stdin", "got it", run_id=run, data="it\n", wait_ms=20000)
    await act("list_runs", run)
    await act("extend", "STILL RUNNING", run_id=run, by_ms=60000)
    await act("pause", "is paused", run_id=run)
    await act("resume", "continues", run_id=run)
    await act("time_left", "wall_ms 12", run_id=run)
    await act("wait", "STILL RUNNING: 1 of 1", run_ids=[run], wait_ms=0)
    await act("kill", "STOPPED BY cancel", run_id=run)
    await act("run_code", "Value: 42", language="python", code="6 * 7")
    shell = (await act("Bash", "Started background process: bash_", command="sleep 60", background=True))["bash_id"]
    await act("BashOutput", "=== Status: RUNNING ===", bash_id=shell)
    await act("KillShell", "STOPPED BY cancel", shell_id=shell)
    await act("ReadBashOutput", "=== Status: KILLED ===", shell_id=shell)
    await act("estimate_duration", "Typical", task_type="load_data")
    await act("begin_task", "Task `each` has begun", label="each", max_ms=60000)
    await act("report_progress", "1 of 3", task="each", done=1, total=3)
    await act("end_task", "Task `each` took", label="each")
    await act("EstimateTaskDuration", "Typical:", task_type="explore_data")
    assert used == {tool.name for tool in (await client.list_tools()).tools}
