"""The agent's tools: commands in the foreground and in the background, on a Sandtimer server, and estimates.

They print what agents are trained to read. Processes are the server's: their limits are kept by it, whatever becomes of this
program, and killing one ends all that it started.
"""

from __future__ import annotations

import pathlib
from typing import Any, Optional

import sandtimer

TRAINING = pathlib.Path(__file__).with_name("train.py")


class Tools:
    def __init__(self, manager: sandtimer.TimeoutManager, state_dir: Optional[str]) -> None:
        self._manager, self._state_dir = manager, state_dir
        self._client = sandtimer.Client()
        self._workspace = self._client.workspace()
        self._workspace.files.write("train.py", TRAINING.read_text())
        # Each process with the position that was read up to.
        self._processes: dict[str, tuple[sandtimer.ClientRun, int]] = {}

    def use(self, tool: str, **given: Any) -> str:
        """Uses a tool, and has the budget take note of it."""
        result = str(getattr(self, tool)(**given))
        self._manager.observe_tool(tool, result, given)
        return result

    def EstimateTaskDuration(self, task_type: str, data_size_mb: int) -> str:
        return str(sandtimer.estimate(task_type, data_size_mb, state_dir=self._state_dir))

    def Bash(self, command: str, background: bool = False) -> str:
        run = self._client.start(command, workspace=self._workspace, **self._limits())
        if not background:
            outcome = run.wait()
            said = "" if outcome.verdict is None else f"\n{outcome.verdict.sentence}"
            return f"{outcome.stdout}{outcome.stderr}[exit code: {outcome.exit_code}]{said}"
        shell_id = f"bash_{run.id}"
        self._processes[shell_id] = (run, 0)
        return f"Started background process: {shell_id}"

    def _limits(self) -> dict[str, Any]:
        # The server ends it when the budget does, and not only when the agent asks.
        return {"timeout": self._manager.run_limits()["timeout"]}

    def ReadBashOutput(self, shell_id: str) -> str:
        run, cursor = self._processes[shell_id]
        outcome = run.info()["outcome"]
        chunk = run.read_output(cursor)
        self._processes[shell_id] = (run, chunk["next_cursor"])
        status = "RUNNING" if outcome is None else f"COMPLETED (exit code: {outcome['exit_code']})"
        return f"=== Status: {status} ===\n{chunk['data'] or '(no new output since last read)'}"

    def KillShell(self, shell_id: str) -> str:
        killed = self._processes[shell_id][0].kill("the agent's budget")
        return f"Killed {shell_id}; {killed['outcome']['tree']['survivors']} of its processes are left"

    def close(self) -> None:
        """Ends what still runs, whoever forgot it."""
        for run, _ in self._processes.values():
            run.kill("the agent is done")
        self._workspace.delete()

