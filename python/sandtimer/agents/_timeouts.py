"""Budgets of an agent's run: its duration, its turns, the durations of its tasks, and the messages for
the agent.

The state machine of the engine decides (crates/sandtimer-agents/src/budget); this module has its
names and its clock, and reads what the tools of a loop print. Nothing here waits or ends a process:
`Sandbox.within` makes the engine end the runs of an agent at these limits.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import re
import time
from typing import Any, Callable, Iterator, Mapping, NamedTuple, Optional, Union

from .. import _arguments, _native
from .._choices import OnTaskTimeout
from .._locks import Guard
from .._vocabulary import named_parameters
from ..errors import InvalidArgumentError, InvalidLimitError

Seconds = Union[int, float, None]

# The defaults.
_DEFAULTS = {"max_runtime_seconds": 7200.0, "max_turns": 100, "stall_timeout_seconds": 1200.0}
_UNSET: Any = object()
_log = logging.getLogger("sandtimer")

# The first line of what ReadBashOutput prints of a process that has ended, in its own form and in that of `sandtimer mcp`.
# Only there: what follows is the process's own.
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


@named_parameters
class TimeoutManager:
    """The budget of an agent's run: time, turns, silence, failures, and the longest duration of each
    task.

    Call `start_turn` and `check_timeout` once in each turn, and `start_task` and `complete_task`
    around long work, or `observe_tool` with the output of each tool. A limit is exceeded at its
    moment, however late the check is. The first check after that has `timed_out` and a `message`
    for the agent: one more turn, the wrap-up, is granted with time of its own; the turn after it is
    rejected, and `state` is "over". Durations are in seconds; None and 0 mean unlimited.

    Args:
        max_runtime_seconds: The whole run. Default 7200.
        max_turns: Number of turns. Default 100.
        stall_timeout_seconds: Time without a turn, without the start or end of a task, without a
            run of `Sandbox.within` and without `register_activity`; at least the longest duration
            of an active task. Default 1200.
        max_failures: Number of calls of `register_failure`.
        wrap_up: Seconds of `max_runtime_seconds` that are reserved for the last turn. None: a
            twentieth of it, or 60 if it is unlimited. 0: no such turn.
        max_duration_factor: A task times out at its longest duration times this factor.
        on_task_timeout: `"notify"` sends the agent a message. "end" also ends the runs of
            `Sandbox.within(manager, task=…)`, at the suggested limit of the estimate or else at
            four times the longest duration, because one healthy run of twenty takes longer than its
            `max_duration`.
        speed: Seconds of the budget in one second, for trials of a budget.
        clock: Returns the time in seconds, for tests.

    Raises:
        InvalidArgumentError: A parameter has a value that cannot be used.
        InvalidLimitError: The value of a limit cannot be enforced.

    Examples:
        >>> import sandtimer
        >>> clock = iter([0, 0, 60, 5460, 5460, 5465, 5470]).__next__
        >>> manager = sandtimer.TimeoutManager(stall_timeout_seconds=None, clock=clock)
        >>> manager.start_task("train_complex_model", estimated_duration=1800, max_duration=5400)
        >>> manager.check_timeout()["timed_out"]
        False
        >>> manager.start_turn()
        'work'
        >>> print(manager.check_timeout()["reason"])
        Task timeout: 'train_complex_model' exceeded 1h 30m (estimated 30m 0s)
        >>> manager.start_turn(), manager.start_turn()
        ('wrap_up', 'refused')
    """

    def __init__(
        self,
        max_runtime_seconds: Seconds = _UNSET,
        max_turns: Optional[int] = _UNSET,
        stall_timeout_seconds: Seconds = _UNSET,
        *,
        max_failures: Optional[int] = None,
        wrap_up: Seconds = None,
        max_duration_factor: float = 1.0,
        on_task_timeout: OnTaskTimeout = "notify",
        speed: float = 1.0,
        clock: Optional[Callable[[], float]] = None,
    ) -> None:
        from .._sandtimer import Budget

        if on_task_timeout not in ("notify", "end"):
            raise InvalidArgumentError(f'on_task_timeout={on_task_timeout!r}: use "notify" or "end"')
        for name, value in (("max_duration_factor", max_duration_factor), ("speed", speed)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
                raise InvalidLimitError(f"{name}={value!r}: use a number above 0, such as 1.5")
        if clock is not None:
            _arguments.function("clock", clock, "use a function that returns the time in seconds, or None")
        self._clock, self._speed = clock, float(speed)
        self._zero = time.monotonic()
        limits = (max_runtime_seconds, max_turns, stall_timeout_seconds, max_failures)
        names = (*_DEFAULTS, "max_failures")
        given = {name: value for name, value in zip(names, limits) if value is not _UNSET}
        for name in ("max_runtime_seconds", "stall_timeout_seconds"):
            _finite(name, given.get(name))
        _finite("wrap_up", wrap_up)
        options = (wrap_up, float(max_duration_factor), on_task_timeout == "end")
        self._budget = Budget(given, _DEFAULTS, options, self._now())
        # The estimate that the next background process is of, and which process each task is.
        self._estimated: Optional[dict[str, Any]] = None
        self._processes: dict[str, str] = {}
        self._guard = Guard()

    def _now(self) -> float:
        if self._clock is not None:
            return float(self._clock())
        return self._zero + (time.monotonic() - self._zero) * self._speed

    # Turns and limits

    def start_turn(self) -> str:
        """Begins a turn.

        The log `sandtimer` has how far the latest task is: `Task status: 10m 27s / 30m 0s (35%
        complete)`, the elapsed time and the estimate. A turn is activity; a silence before it that
        was longer than the stall limit counts nevertheless.

        Returns:
            "work"; "wrap_up" if it is the last turn; "refused" if there is none left.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager(max_turns=1)
            >>> manager.start_turn(), manager.check_timeout()["state"], manager.start_turn(), manager.start_turn()
            ('work', 'wrap_up', 'wrap_up', 'refused')
        """
        now = self._now()
        status = self._budget.task_status(None, now)
        if status is not None:
            _, elapsed, estimated, _, percent, _ = status
            if estimated is not None and percent is not None:
                _log.info("Task status: %s", _tracked(elapsed, estimated, percent))
        return self._budget.start_turn(now)

    def check_timeout(self) -> dict[str, Any]:
        """Returns every limit, with how much of it is used.

        The first check after a limit was exceeded grants the wrap-up turn.

        Returns:
            A dictionary: `timed_out`; `reason`, which limit; `message` for the agent; `state`,
            "going", "wrap_up" or "over"; `wrap_up`, None or its `turn` and `seconds_left`;
            `elapsed_seconds`; `remaining_seconds` of the whole run, None for unlimited; `turn`;
            `limits`, each with `kind`, `layer`, `task`, `used`, `limit`, `remaining`, `source`,
            `hit` and `binding`, times in seconds; `binding`, the limit that ended the work, or will
            first; `warnings`; `repeated`, how the agent repeats itself, or None; `text`, all of it
            in lines.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager(clock=lambda: 0.0)
            >>> manager.start_turn()
            'work'
            >>> print(manager.check_timeout()["text"])
            ✓ Global: 0m / 120m OK
            ✓ Turns: 1 / 100 OK
            ✓ Stall: 0m / 20m OK (activity registered)
            ✓ All checks OK (no active task)
        """
        return _in_seconds(self._budget.check(self._now()))

    def register_activity(self) -> None:
        """Records that the agent is active: its tools, their output, their progress.

        Examples:
            >>> import sandtimer
            >>> sandtimer.TimeoutManager().register_activity()
        """
        self._budget.note_activity(self._now())

    def register_failure(self) -> None:
        """Records a failure of the agent, for `max_failures`.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager(max_failures=1)
            >>> manager.register_failure()
            >>> manager.check_timeout()["timed_out"]
            True
        """
        self._budget.note_failure(self._now())

    def register_action(self, action: str, observation: str, failed: bool = False) -> None:
        """Records an action of the agent and its result, to find repetitions.

        Checks report the same action with the same result four times in a row, the same action
        failing three times, and two alternating actions for six steps.

        Args:
            action: The action.
            observation: Its result.
            failed: Whether it failed.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager()
            >>> for _ in range(4):
            ...     manager.register_action("ls", "train.py")
            >>> manager.check_timeout()["repeated"]
            'same_action'
        """
        _arguments.text("action", action)
        _arguments.text("observation", observation)
        self._budget.note_action(action, observation, _arguments.flag("failed", failed), self._now())

    # Tasks

    def start_task(
        self,
        task_name: str,
        estimated_duration: Seconds,
        max_duration: Seconds,
        *,
        alongside: bool = False,
        suggested_limit: Seconds = None,
    ) -> None:
        """Begins a task. Earlier tasks count as completed, unless `alongside`.

        Args:
            task_name: The name of the task.
            estimated_duration: Its typical duration in seconds; None if it is unknown.
            max_duration: Its longest duration in seconds; None if it is unknown.
            alongside: Whether earlier tasks continue.
            suggested_limit: Seconds after which its runs are ended with `on_task_timeout="end"`;
                None for four times its longest duration.

        Raises:
            InvalidLimitError: A duration is negative or infinite.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager()
            >>> manager.start_task("train", 1800, 5400)
            >>> manager.start_task("evaluate", 300, 900, alongside=True)
            >>> manager.get_task_status("train")["formatted_estimated"]
            '30m 0s'
        """
        _arguments.text("task_name", task_name, "use a name")
        durations = (estimated_duration, max_duration, suggested_limit)
        for name, value in zip(("estimated_duration", "max_duration", "suggested_limit"), durations):
            _finite(name, value)
        alongside = _arguments.flag("alongside", alongside)
        self._budget.start_task(task_name, *durations, (alongside, self._now()))
        times = [("est", estimated_duration), ("max", max_duration)]
        details = ", ".join(f"{name}: {_formatted(value) if value else 'unknown'}" for name, value in times)
        _log.info("⏱️ Started task: %s (%s)", task_name, details)

    def complete_task(self, task_name: Optional[str] = None) -> None:
        """Completes a task. If there is no such task, the call is only activity.

        Args:
            task_name: The name of the task; None for the latest one.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager()
            >>> manager.start_task("train", 1800, 5400)
            >>> manager.complete_task("train")
            >>> manager.get_summary()["tasks_completed"]
            1
        """
        if task_name is not None:
            _arguments.text("task_name", task_name, "use a task's name, or None for the one begun last")
        completed = self._budget.complete_task(task_name, self._now())
        if completed is not None:
            _log.info("✓ Task completed: %s (actual: %s)", completed[0], _formatted(completed[1]))

    def get_task_status(self, task_name: Optional[str] = None) -> Optional[dict[str, Any]]:
        """Returns the state of a task.

        Args:
            task_name: The name of the task; None for the latest one.

        Returns:
            None if there is no such task; else a dictionary: `task_name`; `elapsed_seconds`;
            `estimated_duration` and `max_duration` in seconds, or None; `progress_percent`, the
            elapsed time as a share of the estimate, at most 100; `is_overdue`, whether it takes
            longer than the estimate; `formatted_elapsed` and `formatted_estimated`.

        Examples:
            >>> import sandtimer
            >>> sandtimer.TimeoutManager().get_task_status() is None
            True
        """
        status = self._budget.task_status(task_name, self._now())
        if status is None:
            return None
        name, elapsed, estimated, longest, percent, is_overdue = status
        return {
            "task_name": name,
            "elapsed_seconds": elapsed,
            "estimated_duration": estimated,
            "max_duration": longest,
            "progress_percent": percent,
            "is_overdue": is_overdue,
            "formatted_elapsed": _elapsed(elapsed, estimated),
            "formatted_estimated": None if estimated is None else _formatted(estimated),
        }

    def should_warn_user(self) -> Optional[str]:
        """Returns a warning of the tasks that take longer than estimated; None if there is no such
        task.

        Examples:
            >>> import sandtimer
            >>> sandtimer.TimeoutManager().should_warn_user() is None
            True
        """
        warnings = [text for text in json.loads(self._budget.look(self._now()))["warnings"] if "Expected:" in text]
        return "\n".join(warnings) or None

    # What tools print

    def parse_estimate_result(self, estimate_result: str) -> Optional[dict[str, Any]]:
        r"""Reads an estimate from the output of EstimateTaskDuration, estimate_duration or `sandtimer
        estimate`.

        Args:
            estimate_result: The output of the tool.

        Returns:
            A dictionary of `task_name`, `typical`, `max` and, if the output has it,
            `suggested_limit`, in seconds; None if the output has no estimate, and if
            ENABLE_ESTIMATE_DURATION=0 is set.

        Examples:
            >>> import sandtimer
            >>> text = "⏱️ Task Duration Estimate: train\n   📈 Typical: 30m 0s\n   ⚠️ Worst case: 1h 30m"
            >>> sandtimer.TimeoutManager().parse_estimate_result(text)
            {'task_name': 'train', 'typical': 1800.0, 'max': 5400.0}
        """
        from .._sandtimer import parse_estimate

        _arguments.text("estimate_result", estimate_result, "use the text that the tool printed")
        if os.environ.get("ENABLE_ESTIMATE_DURATION") == "0":
            return None
        read = parse_estimate(estimate_result)
        if read is None:
            return None
        found = dict(zip(("task_name", "typical", "max", "suggested_limit"), read))
        return {name: value for name, value in found.items() if value is not None}

    def observe_tool(self, tool: str, result: str, tool_input: Optional[Mapping[str, Any]] = None) -> None:
        r"""Records the output of a tool of the agent, so that tasks need no calls of their own.

        An estimate by EstimateTaskDuration becomes a task with the next background process that
        Bash starts. The clock of the task begins with the process, and the task is completed when
        the first line of ReadBashOutput reports the end. The task is stopped, and does not count as
        completed, if the process was killed by KillShell, a limit or a signal. The tools of
        `sandtimer mcp` are recognised under all of their names. A process that failed, or that a
        limit or a signal ended, is a failure. Every output is activity, and is compared to find
        repetitions.

        Args:
            tool: The name of the tool.
            result: Its output.
            tool_input: Its arguments.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager()
            >>> manager.observe_tool("EstimateTaskDuration", "Task Duration Estimate: train\nTypical: 30m 0s\nWorst case: 1h 30m")
            >>> manager.observe_tool("Bash", "Started background process: bash_abc123")
            >>> manager.get_task_status()["task_name"]
            'train'
            >>> manager.observe_tool("ReadBashOutput", "[COMPLETED (exit code: 0)] bash_abc123", {"shell_id": "bash_abc123"})
            >>> manager.get_task_status() is None
            True
        """
        _arguments.text("result", result, "use the text that the tool printed")
        tool_input = {} if tool_input is None else tool_input
        over = _ended(tool, _named(tool_input), result)
        # An agent may use several tools at a time.
        with self._guard.lock:
            if tool == "EstimateTaskDuration":
                self._estimated = self.parse_estimate_result(result) or self._estimated
            elif tool in _SHELLS:
                self._begun(result, tool_input)
            for each in over:
                self._over(each)
        failed = any(each.failed for each in over)
        if tool in _READERS or tool == "wait":
            # Asking again whether it is done is how one waits.
            self.register_activity()
        else:
            self.register_action(f"{tool} {json.dumps(dict(tool_input), sort_keys=True, default=str)}", result)
        if failed:
            self.register_failure()

    def _begun(self, result: str, tool_input: Mapping[str, Any]) -> None:
        estimated, background = self._estimated, _BACKGROUND.match(result)
        # In the background, and over before there was an answer.
        at_once = _EXITED.match(result) and (tool_input.get("background") or tool_input.get("run_in_background"))
        if estimated is None or not (background or at_once):
            return
        self._estimated = None
        name, others = estimated["task_name"], 1
        while self._budget.task_status(name, self._now()) is not None:
            others += 1
            name = f"{estimated['task_name']} ({others})"
        limit = estimated.get("suggested_limit")
        self.start_task(name, estimated["typical"], estimated["max"], alongside=True, suggested_limit=limit)
        if background is None:
            self._end_task(name, _exited("", result).killed)
            return
        self._processes[(background[1] or background[2]).removeprefix("bash_")] = name
        status = self._budget.task_status(name, self._now())
        if status is not None and status[2] is not None and status[4] is not None:
            _log.info("TimeoutManager tracking: %s", _tracked(status[1], status[2], status[4]))

    def _over(self, ended: _Process) -> None:
        """Ends the task of a process. A process without a name is that of the latest task."""
        if ended.name in self._processes:
            self._end_task(self._processes.pop(ended.name), ended.killed)
        elif not ended.name or not self._processes:
            self._end_task(None, ended.killed)

    def _end_task(self, task_name: Optional[str], killed: bool) -> None:
        if not killed:
            self.complete_task(task_name)
            return
        stopped = self._budget.stop_task(task_name, self._now())
        if stopped is not None:
            _log.info("✗ Task stopped: %s (after: %s)", stopped[0], _formatted(stopped[1]))

    # The end

    def get_summary(self) -> dict[str, Any]:
        """Returns a summary of the run so far.

        Returns:
            A dictionary: `total_runtime` in seconds, `formatted_runtime`, `turn_count`,
            `tasks_completed`, `current_task`, `timeout_check` (a check that grants nothing) and
            `text`.

        Examples:
            >>> import sandtimer
            >>> sandtimer.TimeoutManager().get_summary()["tasks_completed"]
            0
        """
        now = self._now()
        check, status = _in_seconds(self._budget.look(now)), self._budget.task_status(None, now)
        return {
            "total_runtime": check["elapsed_seconds"],
            "formatted_runtime": _formatted(check["elapsed_seconds"]),
            "turn_count": check["turn"],
            "tasks_completed": check["tasks_completed"],
            "current_task": None if status is None else status[0],
            "timeout_check": check,
            "text": self._budget.summary(now),
        }

    def summary(self) -> str:
        """Returns the summary in lines of text.

        Examples:
            >>> import sandtimer
            >>> print(sandtimer.TimeoutManager().summary())
            Summary:
              - Tasks completed: 0
              - Total runtime: 0 seconds
        """
        return self._budget.summary(self._now())

    def seconds_to_next_event(self) -> Optional[float]:
        """Returns the seconds until a check has a new result if nothing else happens; None for never.

        A loop that waits no longer than this notices every limit in time.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager(max_runtime_seconds=60, stall_timeout_seconds=None, clock=lambda: 0.0)
            >>> 0 < manager.seconds_to_next_event() <= 60
            True
        """
        left = self._budget.next_event(self._now())
        return None if left is None else left / self._speed

    # Its runs

    def run_limits(self, task: Optional[str] = None) -> dict[str, Optional[float]]:
        """Returns the limits of a run that begins now elsewhere, such as on a server.

        They leave time for the wrap-up turn, if there is one. `Sandbox.within` applies them by
        itself.

        Args:
            task: The task that the run is part of, or None. With `on_task_timeout="end"` the task
                limits the run.

        Returns:
            `timeout` and `stall` in seconds; None for unlimited.

        Examples:
            >>> import sandtimer
            >>> sandtimer.TimeoutManager(max_runtime_seconds=None, stall_timeout_seconds=60).run_limits()
            {'timeout': None, 'stall': 60.0}
        """
        return dict(zip(("timeout", "stall"), self._budget.run_limits((task, self._now(), self._speed))))

    def _check_engine(self) -> None:
        """Refuses where the engine cannot keep this budget's limits: its clock is the system's."""
        if self._clock is not None:
            raise InvalidArgumentError("clock= gives this budget its own time, which an engine cannot follow: use speed= instead")

    def _run_scope(self, task: Optional[str] = None) -> Any:
        """What bounds a run that begins now. For `Sandbox.within`."""
        self._check_engine()
        return self._budget.run_scope(_native.engine(), (task, self._now(), self._speed))

    def _note_run(self, since: float) -> None:
        """Records a run of the agent from this moment of the system's clock until now. For `Sandbox.within`."""
        began = self._zero + (since - self._zero) * self._speed
        self._budget.note_run(began, self._now())


_NO_BUDGET = contextlib.nullcontext()


def noted_run(budget: Optional[tuple[TimeoutManager, Optional[str]]]) -> contextlib.AbstractContextManager[None]:
    """Has a budget, where there is one, know of a run, whatever becomes of it."""
    return _NO_BUDGET if budget is None else _noted_run(budget[0])


@contextlib.contextmanager
def _noted_run(manager: TimeoutManager) -> Iterator[None]:
    since = time.monotonic()
    try:
        yield
    finally:
        manager._note_run(since)


def _named(tool_input: Mapping[str, Any]) -> str:
    """The process that a tool was given, however the tool calls that."""
    names = (tool_input.get(key) for key in ("shell_id", "bash_id", "run_id"))
    return str(next((name for name in names if name), "")).removeprefix("bash_")


class _Process(NamedTuple):
    """A process that has ended."""

    name: str
    failed: bool
    #: By what ends processes: it is not completed.
    killed: bool


def _ended(tool: str, process: str, result: str) -> list[_Process]:
    """The processes whose end a tool reports."""
    if tool == "wait":
        return [_exited(run, line) for run, line in _WAITED.findall(result)]
    if tool in _KILLERS:
        # It may have ended by itself before.
        had_ended = result.startswith("EXITED ")
        return [] if result.startswith("STILL RUNNING\n") else [_Process(process, False, not had_ended)]
    if tool not in _READERS:
        return []
    completed, killed = _COMPLETED.match(result), _KILLED.match(result)
    if completed is not None:
        code = int(completed[1] or 0)
        return [_Process(process, code != 0, code < 0 or code in _BY_SIGNAL)]
    if killed is not None:
        return [_Process(process, killed[1] is not None, True)]
    return [_exited(process, result)] if _EXITED.match(result) else []


def _exited(process: str, line: str) -> _Process:
    """The process of a line of `sandtimer mcp`."""
    exited = _EXITED.match(line)
    code = None if exited is None else exited[1]
    killed = exited is not None and (code is None or int(code) in _BY_SIGNAL)
    return _Process(process, exited is not None and exited[2] is None and code != "0", killed)


def _finite(name: str, value: Any) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < math.inf:
        raise InvalidLimitError(f"{name}={value!r}: use a number of seconds from 0 on, or None")


def _formatted(seconds: float) -> str:
    from .._sandtimer import duration_text

    return duration_text(seconds)


def _elapsed(seconds: float, estimated: Optional[float]) -> str:
    """An elapsed time in the unit of its estimate: `0m 0s` of `30m 0s`."""
    in_minutes = estimated is not None and estimated >= 60 and seconds < 60
    return f"0m {int(seconds)}s" if in_minutes else _formatted(seconds)


def _tracked(elapsed: float, estimated: float, percent: float) -> str:
    return f"{_elapsed(elapsed, estimated)} / {_formatted(estimated)} ({percent:.0f}% complete)"


def _in_seconds(check: str) -> dict[str, Any]:
    """A check as Python writes it."""
    facts: dict[str, Any] = json.loads(check)
    for limit in facts["limits"]:
        limit.setdefault("task", None)
        if limit.pop("unit") == "ms":
            for name in ("used", "limit", "remaining", "estimated"):
                if limit.get(name) is not None:
                    limit[name] /= 1000
    facts["binding"] = next((limit for limit in facts["limits"] if limit["binding"]), None)
    facts["elapsed_seconds"] = facts.pop("elapsed_ms") / 1000
    remaining = facts.pop("remaining_ms")
    facts["remaining_seconds"] = None if remaining is None else remaining / 1000
    if facts["wrap_up"] is not None:
        facts["wrap_up"]["seconds_left"] = facts["wrap_up"].pop("left_ms") / 1000
    return facts
