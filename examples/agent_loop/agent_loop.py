"""An agent that works under a budget: what it says is written down here, what it does is real.

It estimates a training, starts it in the background, looks after it turn by turn, and hears of its limits: the walkthrough
that task-aware timeouts are explained by, and what becomes of a training that takes too long (exceeds), of one that takes
longer than estimated (overruns), and of two tasks in a row (sequence). `--speed 120` lets two minutes pass in a second.

    sandtimer serve &
    python examples/agent_loop/agent_loop.py walkthrough
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from typing import Any, Callable, Optional

import sandtimer
from tools import Tools

# What the agent does: at which minute a turn begins, what it says, a tool with what it is given. A tool that is given a
# `shell_id` of None gets that of the process started last.
Step = tuple[float, str, str, dict[str, Any]]


def train(*phases: tuple[int, float], name: str = "Training", total: int = 15) -> Callable[[float], str]:
    """The command of a training: so many epochs of so many minutes each."""

    def command(speed: float) -> str:
        seconds = " ".join(f"{count}:{60 * minutes / speed:.4f}" for count, minutes in phases)
        return f"python3 train.py {name} {total} {seconds}"

    return command


def estimate(minute: float, task_type: str) -> Step:
    return minute, f"Let me estimate how long {task_type} will take", "EstimateTaskDuration", {
        "task_type": task_type,
        "data_size_mb": 2300,
    }


def start(minute: float, command: Callable[[float], str]) -> Step:
    return minute, "Starting it in the background", "Bash", {"command": command, "background": True}


def read(minute: float) -> Step:
    return minute, "Let me see how far it is", "ReadBashOutput", {"shell_id": None}


WAITING = "It should be done by now"


def wait(minute: float) -> Step:
    """Reads until it is over, every three minutes."""
    return minute, WAITING, "ReadBashOutput", {"shell_id": None}


SCENARIOS: dict[str, list[Step]] = {
    "walkthrough": [
        estimate(0, "train_complex_model"),
        start(0.5, train((8, 1.8), (7, 3.8))),
        *(read(minute) for minute in (2.7, 6, 10, 15.7, 20, 25, 30.8, 37)),
        wait(43),
    ],
    "exceeds": [
        estimate(0, "train_complex_model"),
        start(0.5, train((14, 6.0), (1, 600.0))),
        *(read(minute) for minute in range(5, 100, 5)),
    ],
    "overruns": [
        estimate(0, "train_complex_model"),
        start(0.5, train((15, 3.0))),
        *(read(minute) for minute in (10, 20, 31, 36, 41)),
        wait(50),
    ],
    "sequence": [
        estimate(0, "explore_data"),
        start(0.5, train((3, 2.0), name="EDA", total=3)),
        read(4),
        wait(8),
        estimate(9, "train_complex_model"),
        start(9.5, train((15, 1.8))),
        *(read(minute) for minute in (18, 28)),
        wait(38),
    ],
}
# What it does in its last turn, once it was told.
WRAP_UP: list[tuple[str, str, dict[str, Any]]] = [
    ("Stopping it", "KillShell", {"shell_id": None}),
    ("Creating the submission", "Bash", {"command": "echo submission.csv written > submission.csv; cat submission.csv"}),
]


def loop(scenario: str, speed: float, state_dir: Optional[str], show: Callable[[str], None]) -> sandtimer.TimeoutManager:
    """Works through a scenario; gives the budget as it is then."""
    manager = sandtimer.TimeoutManager(speed=speed)
    tools = Tools(manager, state_dir)
    steps = deque(SCENARIOS[scenario])
    shell_id, timed_out = "", False
    try:
        while True:
            step = steps.popleft() if steps and not timed_out else None
            if step is not None:
                # A model would take its time to answer.
                _wait_until(60 * step[0], manager, speed)
            elif not timed_out:
                break
            turn = manager.start_turn()
            if turn == "refused":
                show("\nNo turn is left.")
                break
            work = WRAP_UP if step is None else [step[1:]]
            show(f"\nTurn {_said(manager)}{' (final)' if turn == 'wrap_up' else ''}:")
            for said, tool, asked in work:
                given = _filled(asked, shell_id, speed)
                result = tools.use(tool, **given)
                if result.startswith("Started background process: "):
                    shell_id = result.split()[-1]
                if said == WAITING and "RUNNING" in result.splitlines()[0] and step is not None:
                    steps.appendleft((step[0] + 3, *step[1:]))
                shown = ", ".join(f"{name}={value!r}" for name, value in given.items())
                show(f'  Agent: "{said}"\n  {tool}({shown})\n{_indented(result)}')
            check = manager.check_timeout()
            timed_out = check["timed_out"]
            show(f"\n  Timeout check:\n{_indented(check['text'])}")
    finally:
        tools.close()
    show(f"\n{manager.summary()}")
    return manager


def _filled(given: dict[str, Any], shell_id: str, speed: float) -> dict[str, Any]:
    filled = {name: value(speed) if callable(value) else value for name, value in given.items()}
    return {**filled, "shell_id": shell_id} if "shell_id" in filled else filled


def _wait_until(seconds: float, manager: sandtimer.TimeoutManager, speed: float) -> None:
    left = seconds - manager.get_summary()["total_runtime"]
    if left > 0:
        time.sleep(left / speed)


def _said(manager: sandtimer.TimeoutManager) -> str:
    summary = manager.get_summary()
    return f"{summary['turn_count']} ({summary['total_runtime'] / 60:.0f} min elapsed)"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=sorted(SCENARIOS), default="walkthrough", nargs="?")
    parser.add_argument("--speed", type=float, default=120.0, help="seconds of the budget in one second")
    parser.add_argument("--state-dir", help="where the server keeps what it knows of durations, which estimates rest on")
    given = parser.parse_args()
    loop(given.scenario, given.speed, given.state_dir, print)
