"""Budgets of agents' runs: what the source promises, in the order of calls in which its own loop makes them."""

from __future__ import annotations

import concurrent.futures
import logging
from typing import Any, Callable, Optional

import pytest
import sandtimer
from sandtimer import TimeoutManager

ESTIMATE = (
    "⏱️ Task Duration Estimate: train_complex_model\n\n📊 Estimated Duration:\n"
    "   ⚡ Best case:  12m 0s\n   📈 Typical:    30m 0s\n   ⚠️ Worst case: 1h 30m\n"
)


class Clock:
    def __init__(self) -> None:
        self.minute = 0.0

    def __call__(self) -> float:
        return 1_000.0 + 60 * self.minute


@pytest.fixture
def clock() -> Clock:
    return Clock()


def turn(manager: TimeoutManager) -> dict[str, Any]:
    """A turn as the source's loop begins one: `start_turn` just before `check_timeout`."""
    manager.start_turn()
    return manager.check_timeout()


def limit(check: dict[str, Any], kind: str, task: Optional[str] = None) -> dict[str, Any]:
    (found,) = [limit for limit in check["limits"] if (limit["kind"], limit["task"]) == (kind, task)]
    return found


def test_without_arguments_it_has_the_sources_limits(clock: Clock) -> None:
    check = TimeoutManager(clock=clock).check_timeout()
    told = {limit["kind"]: (limit["limit"], limit["source"]) for limit in check["limits"]}
    assert told == {
        "wall": (7200.0, "builtin"),
        "turns": (100, "builtin"),
        "stall": (1200.0, "builtin"),
        "failures": (None, None),
    }
    assert (check["timed_out"], check["reason"], check["remaining_seconds"]) == (False, None, 7200.0)


@pytest.mark.parametrize("none", [None, 0])
def test_none_and_0_are_unlimited(clock: Clock, none: Optional[int]) -> None:
    manager = TimeoutManager(none, none, none, clock=clock)
    for clock.minute in (0, 1e6):
        check = turn(manager)
        assert not check["timed_out"]
    assert [limit["limit"] for limit in check["limits"]] == [None] * 4
    assert (check["remaining_seconds"], check["binding"]) == (None, None)
    assert manager.run_limits() == {"timeout": None, "stall": None}


@pytest.mark.parametrize("name", ["max_runtime_seconds", "max_turns", "stall_timeout_seconds", "max_failures", "wrap_up"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), True, "soon", [1]])
def test_what_is_no_limit_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(sandtimer.InvalidLimitError, match=name):
        TimeoutManager(**{name: value})


def test_other_parameters_are_refused_by_name() -> None:
    refused: list[tuple[str, Callable[[], Any]]] = [
        ("on_task_timeout", lambda: TimeoutManager(on_task_timeout="kill")),
        ("max_duration_factor", lambda: TimeoutManager(max_duration_factor=0)),
        ("speed", lambda: TimeoutManager(speed=float("nan"))),
        ("wrap_up", lambda: TimeoutManager(10, wrap_up=10)),
        ("max_turns", lambda: TimeoutManager(max_turns=1.5)),  # type: ignore[arg-type]
    ]
    for name, make in refused:
        with pytest.raises(ValueError, match=name):
            make()


def test_a_stall_is_seen_although_a_turn_was_begun_just_before_the_check(clock: Clock) -> None:
    manager = TimeoutManager(clock=clock)
    turn(manager)
    clock.minute = 19
    assert not turn(manager)["timed_out"]
    clock.minute = 19 + 20
    check = turn(manager)
    assert (check["timed_out"], check["reason"]) == (True, "Stalled: no activity for 20m 0s")


def test_activity_is_no_stall(clock: Clock) -> None:
    manager = TimeoutManager(None, clock=clock)
    for clock.minute in range(0, 600, 15):
        manager.register_activity()
    assert not turn(manager)["timed_out"]


def test_a_task_is_up_at_its_maximum(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sandtimer")
    manager = TimeoutManager(clock=clock)
    manager.start_task("train_complex_model", estimated_duration=1800, max_duration=5400)
    for minute in (15, 30, 45, 60, 75, 89):
        clock.minute = minute
        assert not turn(manager)["timed_out"], minute
    clock.minute = 95
    check = turn(manager)
    assert check["reason"] == "Task timeout: 'train_complex_model' exceeded 1h 30m (estimated 30m 0s)"
    assert "Please stop this task and proceed with current best model." in check["message"]
    assert (check["binding"]["task"], check["binding"]["hit"]) == ("train_complex_model", True)
    # One more turn, which may be looked at as often as one likes; then none.
    assert check["state"] == manager.check_timeout()["state"] == "wrap_up"
    assert manager.start_turn() == "wrap_up"
    assert manager.check_timeout()["state"] == "wrap_up"
    assert manager.start_turn() == "refused"
    check = manager.check_timeout()
    assert (check["state"], check["timed_out"], check["wrap_up"]) == ("over", True, None)
    assert "⏱️ Started task: train_complex_model (est: 30m 0s, max: 1h 30m)" in caplog.text


def test_the_wrap_up_turn_has_time_of_its_own(clock: Clock) -> None:
    manager = TimeoutManager(stall_timeout_seconds=None, clock=clock)
    clock.minute = 113
    assert manager.run_limits()["timeout"] == 60.0
    assert not turn(manager)["timed_out"]
    clock.minute = 114
    check = turn(manager)
    assert (check["state"], check["wrap_up"]) == ("wrap_up", {"turn": None, "seconds_left": 360.0})
    assert manager.run_limits()["timeout"] == 360.0
    clock.minute = 120
    assert manager.check_timeout()["state"] == "over"


def test_a_task_that_takes_longer_than_estimated_is_a_warning(clock: Clock) -> None:
    manager = TimeoutManager(stall_timeout_seconds=None, clock=clock)
    manager.start_task("train_complex_model", 1800, 5400)
    assert manager.should_warn_user() is None
    clock.minute = 35
    check = manager.check_timeout()
    assert not check["timed_out"]
    assert "⚠️ Task: 35m / 90m (OVERRUN by 5m)" in check["text"]
    assert [manager.should_warn_user()] == check["warnings"]
    assert "Expected: 30m, Actual: 35m (5m overrun)" in check["warnings"][0]
    assert manager.get_task_status() == {
        "task_name": "train_complex_model",
        "elapsed_seconds": 2100.0,
        "estimated_duration": 1800.0,
        "max_duration": 5400.0,
        "progress_percent": 100.0,
        "is_overdue": True,
        "formatted_elapsed": "35m 0s",
        "formatted_estimated": "30m 0s",
    }


def test_tasks_follow_one_another_as_in_the_source(clock: Clock) -> None:
    manager = TimeoutManager(clock=clock)
    manager.start_task("EDA", 600, 900)
    clock.minute = 7
    manager.start_task("Training", 3600, 5400)
    assert manager.get_task_status("EDA") is None
    clock.minute = 16
    manager.complete_task()
    manager.complete_task()
    summary = manager.get_summary()
    assert (summary["tasks_completed"], summary["current_task"]) == (2, None)
    assert (summary["total_runtime"], summary["formatted_runtime"]) == (960.0, "16m 0s")
    assert manager.summary() == summary["text"] == (
        "Summary:\n  - Tasks completed: 2 (EDA, Training)\n  - Total runtime: 16 minutes\n"
        "  - All tasks within estimated durations"
    )


def test_several_tasks_go_on_at_once(clock: Clock) -> None:
    manager = TimeoutManager(None, None, None, clock=clock)
    manager.start_task("one", 60, 600)
    manager.start_task("two", 60, 300, alongside=True)
    with pytest.raises(ValueError, match="`two` is already open"):
        manager.start_task("two", 60, 300, alongside=True)
    clock.minute = 2
    check = manager.check_timeout()
    assert limit(check, "wall", "one")["remaining"] == 480.0
    assert limit(check, "wall", "two")["remaining"] == 180.0
    assert check["binding"]["task"] == "two"
    manager.complete_task("two")
    assert manager.check_timeout()["binding"]["task"] == "one"


@pytest.mark.parametrize(
    ("name", "estimated", "longest", "word"),
    [
        ("", 1, 2, "task_name"),
        ("a\nb", 1, 2, "task_name"),
        ("x", -1, 2, "estimated_duration"),
        ("x", 1, float("nan"), "max_duration"),
        ("x", 1, True, "max_duration"),
        ("x", 3, 2, "max_duration"),
    ],
)
def test_tasks_that_cannot_be_are_refused(name: str, estimated: Any, longest: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        TimeoutManager().start_task(name, estimated, longest)
    with pytest.raises(TypeError, match="task_name"):
        TimeoutManager().start_task(7, 1, 2)  # type: ignore[arg-type]


def test_an_estimate_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = TimeoutManager()
    expected = {"task_name": "train_complex_model", "typical": 1800.0, "max": 5400.0}
    assert manager.parse_estimate_result(ESTIMATE) == expected
    assert manager.parse_estimate_result("nothing of the kind") is None
    monkeypatch.setenv("ENABLE_ESTIMATE_DURATION", "0")
    assert manager.parse_estimate_result(ESTIMATE) is None
    manager.observe_tool("EstimateTaskDuration", ESTIMATE)
    manager.observe_tool("Bash", "Started background process: bash_1")
    assert manager.get_task_status() is None
    monkeypatch.setenv("ENABLE_ESTIMATE_DURATION", "1")
    assert manager.parse_estimate_result(ESTIMATE) == expected


@pytest.mark.parametrize(
    "completed",
    [
        "=== Status: COMPLETED (exit code: 0) ===\nTraining complete!",
        "[COMPLETED (exit code: 0)] bash_abc123 (runtime: 3.1s)\nCommand: python train.py",
        "[COMPLETED] bash_abc123 (exit code: 0, runtime: 3s)",
        "Status: COMPLETED",
    ],
)
def test_a_task_is_registered_and_completed_by_what_tools_print(clock: Clock, completed: str) -> None:
    manager = TimeoutManager(max_failures=1, clock=clock)
    manager.observe_tool("EstimateTaskDuration", ESTIMATE, {"task_type": "train_complex_model"})
    assert manager.get_task_status() is None
    # Its clock begins with the process, and not with the estimate.
    clock.minute = 5
    manager.observe_tool("Bash", "Started background process: bash_abc123", {"command": "python train.py", "background": True})
    clock.minute = 10
    given = {"shell_id": "bash_abc123"}
    manager.observe_tool("ReadBashOutput", "=== Status: RUNNING ===\n[COMPLETED (exit code: 0)]\nEpoch 1/15", given)
    status = manager.get_task_status()
    assert status is not None and status["elapsed_seconds"] == 300.0
    manager.observe_tool("ReadBashOutput", completed, given)
    assert manager.get_task_status() is None
    clock.minute = 100
    manager.register_activity()
    assert manager.get_summary()["tasks_completed"] == 1
    assert "failures" not in str(manager.check_timeout()["reason"])


def test_how_far_a_task_is_goes_to_the_log_with_each_turn(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="sandtimer")
    manager = TimeoutManager(clock=clock)
    manager.start_turn()
    assert "Task status" not in caplog.text
    manager.start_task("train", 1800, 5400)
    clock.minute = 10.45
    manager.start_turn()
    assert "Task status: 10m 27s / 30m 0s (35% complete)" in caplog.text


@pytest.mark.parametrize(
    ("tool", "printed", "failures"),
    [
        ("KillShell", "Killed bash_1", 0),
        ("ReadBashOutput", "=== Status: KILLED ===\nEpoch 3/15", 0),
        ("ReadBashOutput", "=== Status: STOPPED (timeout) ===\nEpoch 3/15", 1),
        ("ReadBashOutput", "[COMPLETED (exit code: -9)] bash_1", 1),
        ("ReadBashOutput", "[COMPLETED (exit code: 137)] bash_1", 1),
        ("read_output", "STOPPED BY cancel\nEpoch 3/15", 0),
        ("read_output", "STOPPED BY call wall limit of 5s\nEpoch 3/15", 1),
        ("wait", "EXITED 0\n1 EXITED 143 in 3 s", 1),
    ],
)
def test_killed_task_is_not_completed(
    clock: Clock, caplog: pytest.LogCaptureFixture, tool: str, printed: str, failures: int
) -> None:
    caplog.set_level("INFO", logger="sandtimer")
    manager = TimeoutManager(max_failures=5, clock=clock)
    manager.observe_tool("EstimateTaskDuration", ESTIMATE)
    manager.observe_tool("Bash", "Started background process: bash_1")
    assert "TimeoutManager tracking: 0m 0s / 30m 0s (0% complete)" in caplog.text
    clock.minute = 5
    manager.observe_tool(tool, printed, {"shell_id": "bash_1"})
    assert manager.get_task_status() is None
    assert "✗ Task stopped: train_complex_model (after: 5m 0s)" in caplog.text
    assert "Task completed" not in caplog.text
    assert limit(manager.check_timeout(), "failures")["used"] == failures
    summary = manager.get_summary()
    assert summary["tasks_completed"] == 0 and "Tasks stopped: 1 (train_complex_model)" in summary["text"]


def test_killing_an_ended_process_leaves_its_task_completed(clock: Clock) -> None:
    manager = TimeoutManager(clock=clock)
    manager.observe_tool("EstimateTaskDuration", ESTIMATE)
    manager.observe_tool("Bash", "Started background process: bash_1")
    manager.observe_tool("KillShell", "EXITED 0\n\nBackground process bash_1 had ended", {"shell_id": "bash_1"})
    assert manager.get_summary()["tasks_completed"] == 1


def test_elapsed_time_has_the_unit_of_its_estimate(clock: Clock) -> None:
    manager = TimeoutManager(clock=clock)
    for estimated, text in ((1800, "0m 0s"), (60, "0m 0s"), (30, "0ms"), (None, "0ms")):
        manager.start_task("train", estimated, None)
        status = manager.get_task_status()
        assert status is not None and status["formatted_elapsed"] == text, estimated
    manager.start_task("train", 1800, 5400)
    for clock.minute, text in ((0.5, "0m 30s"), (10.45, "10m 27s"), (90, "1h 30m")):
        status = manager.get_task_status()
        assert status is not None and status["formatted_elapsed"] == text


def test_task_may_be_quiet_for_as_long_as_it_may_take(clock: Clock) -> None:
    manager = TimeoutManager(clock=clock)
    manager.start_task("train", 1800, 5400)
    clock.minute = 25
    check = manager.check_timeout()
    assert not check["timed_out"] and "✓ Stall: 25m / 90m OK (within the time of the task)" in check["text"]
    assert limit(check, "stall")["source"] == "builtin"
    assert manager.run_limits()["stall"] == 5400.0
    clock.minute = 90
    assert manager.check_timeout()["reason"] == "Task timeout: 'train' exceeded 1h 30m (estimated 30m 0s)"


def test_stall_limit_is_kept_where_it_was_chosen(clock: Clock) -> None:
    manager = TimeoutManager(stall_timeout_seconds=1200, clock=clock)
    manager.start_task("train", 1800, 5400)
    clock.minute = 20
    assert manager.check_timeout()["reason"] == "Stalled: no activity for 20m 0s"
    assert manager.run_limits()["stall"] == 1200.0


def test_a_suggested_limit_is_when_a_task_is_ended(clock: Clock) -> None:
    manager = TimeoutManager(None, None, None, on_task_timeout="end", clock=clock)
    manager.observe_tool("EstimateTaskDuration", f"{ESTIMATE}\nSuggested limit: 2h 0m (a guess)")
    manager.observe_tool("Bash", "Started background process: bash_1")
    assert manager.run_limits("train_complex_model")["timeout"] == 7200.0
    manager.start_task("other", 1800, 5400)
    assert manager.run_limits("other")["timeout"] == 4 * 5400.0
    clock.minute = 91
    assert manager.check_timeout()["timed_out"], "the agent is told at its longest duration"


def test_processes_have_a_task_each(clock: Clock) -> None:
    manager = TimeoutManager(max_failures=2, clock=clock)
    for process in ("bash_1", "bash_2"):
        manager.observe_tool("EstimateTaskDuration", ESTIMATE)
        manager.observe_tool("Bash", f"Started background process: {process}")
    assert limit(manager.check_timeout(), "wall", "train_complex_model (2)")["limit"] == 5400.0
    manager.observe_tool("ReadBashOutput", "[COMPLETED (exit code: 1)] bash_1", {"shell_id": "bash_1"})
    check = manager.check_timeout()
    assert limit(check, "failures")["used"] == 1
    assert manager.get_task_status("train_complex_model") is None
    manager.observe_tool("KillShell", "Killed bash_2", {"shell_id": "bash_2"})
    assert manager.get_task_status() is None


def test_tools_may_be_used_at_the_same_time() -> None:
    manager = TimeoutManager(None, None, None)

    def use(number: int) -> None:
        for step in range(50):
            manager.observe_tool("EstimateTaskDuration", ESTIMATE)
            manager.observe_tool("Bash", f"Started background process: bash_{number}_{step}")
            given = {"shell_id": f"bash_{number}_{step}"}
            manager.observe_tool("ReadBashOutput", "[COMPLETED (exit code: 0)]", given)
            manager.check_timeout()

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(use, number) for number in range(8)]:
            done.result()
    # An estimate is of one process, whichever begins next.
    assert 0 < manager.get_summary()["tasks_completed"] <= 400
    assert manager.get_task_status() is None


def test_going_round_in_circles_is_told() -> None:
    manager = TimeoutManager()
    for _ in range(4):
        manager.observe_tool("ReadBashOutput", "=== Status: RUNNING ===", {"shell_id": "bash_1"})
    assert manager.check_timeout()["repeated"] is None
    for command in ["ls", "pwd"] * 3:
        manager.observe_tool("Bash", f"output of {command}", {"command": command})
    assert manager.check_timeout()["repeated"] == "alternating"
    manager = TimeoutManager()
    for number in range(3):
        manager.register_action("make", f"error {number}", failed=True)
    check = manager.check_timeout()
    assert (check["repeated"], len(check["warnings"])) == ("same_error", 1)


def test_a_clock_of_its_own_cannot_bound_runs(clock: Clock) -> None:
    with sandtimer.Sandbox() as box, pytest.raises(ValueError, match="speed"):
        box.within(TimeoutManager(clock=clock))


# With real processes


def test_whoever_waits_for_a_command_still_hears_of_the_limit() -> None:
    with sandtimer.Sandbox() as box:
        manager = TimeoutManager(61, wrap_up=60)
        agent = box.within(manager)
        outcome = agent.command(["sleep", "1000"])
        assert (outcome.ending, outcome.tree.survivors) == ("timeout", 0)
        assert outcome.verdict is not None
        assert (outcome.verdict.layer, outcome.verdict.source) == ("loop", "ancestor")
        assert turn(manager)["state"] == "wrap_up"
        assert manager.start_turn() == "wrap_up"
        assert agent.command(["echo", "submitted"]).stdout == "submitted\n"
        assert manager.start_turn() == "refused"
        assert agent.command(["sleep", "1000"]).ending == "timeout"
        # The sandbox itself has no budget.
        assert box.command(["echo", "free"]).ok


def test_calls_and_maps_are_bounded_too() -> None:
    with sandtimer.Sandbox() as box:
        box.warm(1)
        manager = TimeoutManager(68, wrap_up=60)
        agent = box.within(manager)
        assert agent.call(pow, 2, 10) == 1024
        outcomes = list(agent.map(exec, ["while True: pass"] * 2, total=1000))
        assert [outcome.ending for outcome in outcomes] == ["timeout"] * 2
        verdict = outcomes[0].verdict
        assert verdict is not None and verdict.layer == "loop"
        with pytest.raises(ValueError, match="context"):
            agent.context()


def test_a_task_that_is_up_ends_its_runs_where_that_was_chosen() -> None:
    with sandtimer.Sandbox() as box:
        manager = TimeoutManager(on_task_timeout="end")
        manager.start_task("train", 0.1, 0.5)
        outcome = box.within(manager, task="train").command(["sleep", "1000"])
        assert outcome.verdict is not None
        assert (outcome.ending, outcome.verdict.layer) == ("timeout", "task")
        assert turn(manager)["reason"].startswith("Task timeout: 'train'")


def test_a_silent_command_is_stalled_and_a_busy_one_is_not() -> None:
    with sandtimer.Sandbox() as box:
        manager = TimeoutManager(stall_timeout_seconds=1.5)
        agent = box.within(manager)
        busy = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass"
        assert agent.exec(busy).ok
        assert not turn(manager)["timed_out"]
        assert agent.command(["sleep", "1000"]).ending == "stalled"
