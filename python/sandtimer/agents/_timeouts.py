"""Budgets of an agent's run: its duration, its turns, the durations of its tasks, and the messages for
the agent.

The state machine of the engine decides (crates/sandtimer-agents/src/budget); this module has its
names and its clock. Nothing here waits or ends a process: `Sandbox.within` makes the engine end the
runs of an agent at these limits.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from typing import Any, Callable, Mapping, Optional, Union

from .. import _arguments, _native
from .._choices import OnTaskTimeout
from .._locks import Guard
from .._vocabulary import named_parameters
from ..errors import InvalidArgumentError, InvalidLimitError
from ._budget_format import TaskStatus, check_in_seconds, formatted
from ._tool_output import EndedProcess, StartedProcess, ended_processes, only_reads, started_process

Seconds = Union[int, float, None]

# The defaults.
_DEFAULTS = {"max_runtime_seconds": 7200.0, "max_turns": 100, "stall_timeout_seconds": 1200.0}
_UNSET: Any = object()
_log = logging.getLogger("sandtimer")


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
        status = self._task_status(None, now)
        if status is not None and status.progress is not None:
            _log.info("Task status: %s", status.progress)
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
        return check_in_seconds(self._budget.check(self._now()))

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
        details = ", ".join(f"{name}: {formatted(value) if value else 'unknown'}" for name, value in times)
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
            _log.info("✓ Task completed: %s (actual: %s)", completed[0], formatted(completed[1]))

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
        status = self._task_status(task_name, self._now())
        return None if status is None else status.as_dictionary()

    def _task_status(self, task_name: Optional[str], now: float) -> Optional[TaskStatus]:
        status = self._budget.task_status(task_name, now)
        return None if status is None else TaskStatus(*status)

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
        ended = ended_processes(tool, tool_input, result)
        # An agent may use several tools at a time.
        with self._guard.lock:
            if tool == "EstimateTaskDuration":
                self._estimated = self.parse_estimate_result(result) or self._estimated
            started = started_process(tool, tool_input, result)
            if started is not None and self._estimated is not None:
                self._start_estimated(started, self._estimated)
            for process in ended:
                self._end_process(process)
        if only_reads(tool):
            # Asking again whether it is done is how one waits.
            self.register_activity()
        else:
            self.register_action(f"{tool} {json.dumps(dict(tool_input), sort_keys=True, default=str)}", result)
        if any(process.failed for process in ended):
            self.register_failure()

    def _start_estimated(self, started: StartedProcess, estimated: dict[str, Any]) -> None:
        """Begins the task that was estimated, with its process."""
        self._estimated = None
        name, others = estimated["task_name"], 1
        while self._budget.task_status(name, self._now()) is not None:
            others += 1
            name = f"{estimated['task_name']} ({others})"
        limit = estimated.get("suggested_limit")
        self.start_task(name, estimated["typical"], estimated["max"], alongside=True, suggested_limit=limit)
        if started.end is not None:
            self._end_task(name, started.end.killed)
            return
        self._processes[started.name] = name
        status = self._task_status(name, self._now())
        if status is not None and status.progress is not None:
            _log.info("TimeoutManager tracking: %s", status.progress)

    def _end_process(self, ended: EndedProcess) -> None:
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
            _log.info("✗ Task stopped: %s (after: %s)", stopped[0], formatted(stopped[1]))

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
        check, status = check_in_seconds(self._budget.look(now)), self._task_status(None, now)
        return {
            "total_runtime": check["elapsed_seconds"],
            "formatted_runtime": formatted(check["elapsed_seconds"]),
            "turn_count": check["turn"],
            "tasks_completed": check["tasks_completed"],
            "current_task": None if status is None else status.name,
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
        """Records a run of the agent from this moment of the system's clock until now. For
        `Sandbox.within`.
        """
        began = self._zero + (since - self._zero) * self._speed
        self._budget.note_run(began, self._now())


def _finite(name: str, value: Any) -> None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < math.inf:
        raise InvalidLimitError(f"{name}={value!r}: use a number of seconds from 0 on, or None")
