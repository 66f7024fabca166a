"""What the tools of an agent print about background processes: their starts and their ends."""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple, Optional

# The first line of what ReadBashOutput prints of a process that has ended, in its own form and in
# that of `sandtimer mcp`. Only there: what follows is the process's own.
_COMPLETED = re.compile(r"\s*(?:=+\s*)?(?:\[|Status:\s*)COMPLETED\b(?:.*?exit code:\s*(-?\d+))?")
_EXITED = re.compile(r"EXITED (\d+)|(STOPPED BY cancel)|STOPPED BY ")
# The same of a process that was killed, and of one that a limit ended.
_KILLED = re.compile(r"\s*(?:=+\s*)?(?:\[|Status:\s*)(?:KILLED\b|(STOPPED)\b)")
# Exit codes of a shell whose command a signal has ended.
_BY_SIGNAL = range(129, 193)
_BACKGROUND = re.compile(r"\s*Started background process:\s*(\w+)|STILL RUNNING\nRun (\w+) continues in the background")
# What `wait` prints of each run, below its own first line.
_WAITED = re.compile(r"^(\w+) ((?:EXITED|STOPPED BY) .*)", re.MULTILINE)
_READERS = ("ReadBashOutput", "BashOutput", "read_output")
_SHELLS = ("Bash", "bash")
_KILLERS = ("KillShell", "kill")


class EndedProcess(NamedTuple):
    """A process whose end a tool reports."""

    #: Empty if the tool does not name it.
    name: str
    failed: bool
    #: By what ends processes: its task is not completed.
    killed: bool


class StartedProcess(NamedTuple):
    """A background process that a tool has started."""

    #: Empty if it has ended.
    name: str
    #: Set if the process ended before the tool returned.
    end: Optional[EndedProcess]


def only_reads(tool: str) -> bool:
    """Returns whether a tool only asks what has become of processes."""
    return tool in _READERS or tool == "wait"


def started_process(tool: str, tool_input: Mapping[str, Any], result: str) -> Optional[StartedProcess]:
    """Returns the background process that a call of a tool has started; None if there is none."""
    if tool not in _SHELLS:
        return None
    background = _BACKGROUND.match(result)
    if background is not None:
        return StartedProcess((background[1] or background[2]).removeprefix("bash_"), None)
    if _EXITED.match(result) and (tool_input.get("background") or tool_input.get("run_in_background")):
        return StartedProcess("", _exited("", result))
    return None


def ended_processes(tool: str, tool_input: Mapping[str, Any], result: str) -> list[EndedProcess]:
    """Returns the processes whose end a call of a tool reports."""
    if tool == "wait":
        return [_exited(run, line) for run, line in _WAITED.findall(result)]
    process = _process_name(tool_input)
    if tool in _KILLERS:
        # It may have ended by itself before.
        had_ended = result.startswith("EXITED ")
        return [] if result.startswith("STILL RUNNING\n") else [EndedProcess(process, False, not had_ended)]
    if tool not in _READERS:
        return []
    completed, killed = _COMPLETED.match(result), _KILLED.match(result)
    if completed is not None:
        code = int(completed[1] or 0)
        return [EndedProcess(process, code != 0, code < 0 or code in _BY_SIGNAL)]
    if killed is not None:
        return [EndedProcess(process, killed[1] is not None, True)]
    return [_exited(process, result)] if _EXITED.match(result) else []


def _process_name(tool_input: Mapping[str, Any]) -> str:
    """Returns the name of the process that a tool was given, under any of the keys that tools have
    for it.
    """
    names = (tool_input.get(key) for key in ("shell_id", "bash_id", "run_id"))
    return str(next((name for name in names if name), "")).removeprefix("bash_")


def _exited(process: str, line: str) -> EndedProcess:
    """Reads a line of `sandtimer mcp` about a process that has ended."""
    exited = _EXITED.match(line)
    code = None if exited is None else exited[1]
    killed = exited is not None and (code is None or int(code) in _BY_SIGNAL)
    return EndedProcess(process, exited is not None and exited[2] is None and code != "0", killed)
