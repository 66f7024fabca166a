"""The example of an agent's loop: the source's walkthrough and its scenarios, with real processes and a fast clock."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agent_loop" / "agent_loop.py"
if not EXAMPLE.is_file():
    pytest.skip("examples/agent_loop is not beside these tests", allow_module_level=True)
# Seconds of the budget in one second. Where minutes are compared, a busy machine adds some.
SPEEDS = {"walkthrough": 120, "exceeds": 240, "overruns": 240, "sequence": 240}


@pytest.fixture(scope="module")
def told(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each scenario prints. They take their time side by side, and know of no runs before."""
    state = str(tmp_path_factory.mktemp("state"))
    environment = {**os.environ, "SANDTIMER_SERVER": server}
    loops = {
        name: subprocess.Popen(
            [sys.executable, str(EXAMPLE), name, "--speed", str(speed), "--state-dir", state],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, speed in SPEEDS.items()
    }
    try:
        ended = {name: loop.communicate(timeout=120) for name, loop in loops.items()}
    finally:
        for loop in loops.values():
            loop.kill()
    for name, (_, errors) in ended.items():
        assert loops[name].returncode == 0, errors
    yield {name: output for name, (output, _) in ended.items()}


def turns(output: str) -> list[str]:
    return re.split(r"^Turn \d+ ", output, flags=re.MULTILINE)[1:]


def test_the_walkthrough_goes_as_the_source_has_it(told: dict[str, str]) -> None:
    said = turns(told["walkthrough"])
    assert "⏱️ Task Duration Estimate: train_complex_model" in said[0]
    # Its clock begins with its process.
    assert "(no active task)" in said[0]
    assert "Started background process: bash_" in said[1]
    for part in said[1:-1]:
        assert re.search(r"[✓⚠️]+ Task: \d+m / 90m", part), part
    assert any("=== Status: RUNNING ===\n    Epoch 1/15: loss=" in part for part in said)
    assert "Training complete! Best val_acc: 0.847" in said[-1]
    assert "=== Status: COMPLETED (exit code: 0) ===" in said[-1]
    assert "✓ All checks OK (no active task)" in said[-1]
    assert re.search(r"✓ Global: \d+m / 120m OK", said[-1])
    # At the hour of the source's lines, give or take what a busy machine adds.
    assert re.search(r"✓ Task: 1\dm / 90m OK \(\d\d% of estimated, \d\d% of max\)", told["walkthrough"])
    assert "Tasks completed: 1 (train_complex_model)" in told["walkthrough"]


def test_a_training_that_takes_too_long_is_stopped_in_the_wrap_up_turn(told: dict[str, str]) -> None:
    *_, hit, last = turns(told["exceeds"])
    assert "❌ Task timeout: 'train_complex_model' exceeded 1h 30m" in hit
    assert "⏱️ TIMEOUT: Task 'train_complex_model' exceeded 1h 30m (estimated 30m 0s)" in hit
    assert "Please stop this task and proceed with current best model." in hit
    assert "(final)" in last
    assert "Killed bash_" in last and "; 0 of its processes are left" in last
    assert "submission.csv written\n    [exit code: 0]" in last
    assert told["exceeds"].count("(final)") == 1
    assert "No turn is left." in told["exceeds"]


def test_a_training_that_takes_longer_than_estimated_goes_on(told: dict[str, str]) -> None:
    output = told["overruns"]
    assert re.search(r"⚠️ Task: \d+m / 90m \(OVERRUN by \d+m\)", output)
    assert "is taking longer than expected" in output
    assert re.search(r"Expected: 30m, Actual: \d+m \(\d+m overrun\)\n\s+Max allowed: 1h 30m", output)
    assert "TIMEOUT" not in output
    assert "Over their estimates: train_complex_model by" in output
    assert "All tasks within maximum durations" in output


def test_tasks_follow_one_another(told: dict[str, str]) -> None:
    output = told["sequence"]
    assert "✓ Task: " in output
    assert "Tasks completed: 2 (explore_data, train_complex_model)" in output
    assert output.count("=== Status: COMPLETED (exit code: 0) ===") == 2
    assert "TIMEOUT" not in output
