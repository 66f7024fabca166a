"""The 2048 example: strategies that nobody has vouched for, played for as long as they are allowed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
import sandtimer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "2048"
if not EXAMPLE.is_dir():
    pytest.skip("examples/2048 is not beside these tests", allow_module_level=True)
sys.path.insert(0, str(EXAMPLE))

import board  # noqa: E402
import execute_strategy as example  # noqa: E402
import player  # noqa: E402
import rewards  # noqa: E402
import strategies  # noqa: E402
from board import GameBoard  # noqa: E402
from execute_strategy import execute_strategy, run_strategy  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def sandbox() -> Iterator[sandtimer.Sandbox]:
    box = example.sandbox()
    box.warm(1)
    yield box
    box.close()
    example.sandbox.cache_clear()


# The six behaviours that such an executor is for


@pytest.mark.parametrize("name", ["corner", "greedy", "random"])
def test_a_good_strategy_plays_to_the_end(name: str) -> None:
    game = GameBoard(seed=1)
    # One that draws its moves may lose within fifty of them.
    seeded = "import random\nrandom.seed(1)\n" + strategies.ALL[name]
    steps, state = execute_strategy(seeded, game, timeout=20.0)
    assert state in ("success", "failed")
    assert (game.steps, game.state()) == (steps, state)
    assert steps > 50
    assert game.score > 100


@pytest.mark.parametrize("name", ["infinite loop", "slow computation", "nested loops", "swallows everything"])
def test_one_that_never_ends_is_ended(name: str) -> None:
    started = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        execute_strategy(strategies.ALL[name], GameBoard(seed=1), timeout=0.3)
    assert time.monotonic() - started >= 0.3
    error = caught.value
    assert isinstance(error, sandtimer.DeadlineExceeded)
    assert isinstance(error, example.StrategyTimeout)
    assert error.steps == 0
    assert error.outcome.tree.survivors == 0


def test_its_exception_is_raised_as_itself() -> None:
    with pytest.raises(KeyError) as caught:
        execute_strategy(strategies.EXCEPTION, GameBoard(seed=1))
    assert "<strategy>" in str(caught.value.__cause__)
    with pytest.raises(SyntaxError):
        execute_strategy(strategies.SYNTAX_ERROR, GameBoard(seed=1))
    with pytest.raises(NameError, match="no function named strategy"):
        execute_strategy(strategies.NO_STRATEGY, GameBoard(seed=1))


@pytest.mark.parametrize("leaves", ["raise SystemExit(0)", "raise KeyboardInterrupt", "raise GeneratorExit"])
def test_one_that_would_end_its_caller_does_not(leaves: str) -> None:
    with pytest.raises(sandtimer.RemoteError) as caught:
        execute_strategy(f"def strategy(board): {leaves}", GameBoard(seed=1))
    assert caught.value.type_name in leaves
    assert caught.value.outcome.ending == "raised"


def test_a_fast_one_is_done_long_before_its_limit() -> None:
    started = time.monotonic()
    assert execute_strategy(strategies.ALWAYS_UP, GameBoard(seed=1), timeout=300.0)[1] == "failed"
    assert time.monotonic() - started < 300


# What such executors are known to get wrong


def test_steps_made_before_the_deadline_are_kept() -> None:
    game = GameBoard(seed=1)
    with pytest.raises(TimeoutError) as caught:
        execute_strategy(strategies.LOOP_LATER, game, timeout=1.0)
    assert isinstance(caught.value, example.StrategyTimeout)
    assert caught.value.steps == game.steps == 10
    assert game.state() == "ongoing"


def test_results_longer_than_a_pipe_come_back(sandbox: sandtimer.Sandbox) -> None:
    assert len(sandbox.limits(timeout=20.0).call(bytes, 3 << 20)) == 3 << 20
    talkative = "def strategy(board):\n    print('x' * 300_000)\n    return '?'\n"
    outcome = run_strategy(talkative, GameBoard(seed=1), timeout=20.0)
    assert outcome.ok
    assert len(outcome.stderr) == 300_001


def test_threads_cause_no_false_timeouts() -> None:
    endings: list[Any] = []

    def many() -> None:
        for seed in range(15):
            try:
                endings.append(execute_strategy(strategies.ALWAYS_UP, GameBoard(seed=seed), timeout=60.0)[1])
            except Exception as error:
                endings.append(error)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert endings == ["failed"] * 60


def test_one_that_ignores_sigterm_is_killed_after_its_grace() -> None:
    outcome = run_strategy(strategies.SWALLOWS_EVERYTHING, GameBoard(seed=1), timeout=0.3, grace=1.0)
    assert outcome.ending == "timeout"
    assert outcome.verdict is not None
    told, killed = outcome.verdict.signals
    assert (told["signal"], killed["signal"]) == ("SIGTERM", "SIGKILL")
    assert killed["at_ms"] - told["at_ms"] >= 1000
    assert outcome.tree.survivors == 0


def test_without_grace_it_is_killed_at_once() -> None:
    outcome = run_strategy(strategies.SWALLOWS_EVERYTHING, GameBoard(seed=1), timeout=0.3)
    assert outcome.verdict is not None
    assert [said["signal"] for said in outcome.verdict.signals] == ["SIGKILL"]


def test_one_that_heeds_sigterm_may_put_its_things_in_order() -> None:
    heeding = (
        "import os, signal\n"
        "def end(*_):\n    print('ended', flush=True)\n    os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "def strategy(board):\n    while True: pass\n"
    )
    outcome = run_strategy(heeding, GameBoard(seed=1), timeout=0.3, grace=20.0)
    assert outcome.ending == "timeout"
    assert outcome.stderr == "ended\n"
    assert outcome.usage.wall_ms < 20_000


def test_what_it_forked_is_dead() -> None:
    outcome = run_strategy(strategies.FORKS, GameBoard(seed=1), timeout=20.0)
    assert outcome.tree.survivors == 0
    assert outcome.tree.killed > 1
    # It had no more processes than it may have.
    assert isinstance(outcome.error, BlockingIOError)


def test_one_that_takes_all_memory_is_ended() -> None:
    with pytest.raises(MemoryError):
        execute_strategy(strategies.MEMORY_HOG, GameBoard(seed=1), timeout=60.0)


def test_touching_the_board_gains_nothing() -> None:
    game, honest = GameBoard(seed=1), GameBoard(seed=1)
    steps, state = execute_strategy(strategies.CHEAT, game)
    assert steps == 1
    assert state != "success"
    honest.move("W")
    assert (game.score, game.cells) == (honest.score, honest.cells)


def test_forged_moves_are_moves_like_any_other() -> None:
    game = GameBoard(seed=1)
    with pytest.raises(sandtimer.Crashed):
        execute_strategy(strategies.FORGER, game)
    # "W" is played; "I" is no move, and loses.
    assert (game.steps, game.state()) == (2, "failed")


def test_a_callable_is_played_too() -> None:
    turns = "AS"

    def strategy(cells: Any) -> str:
        return turns[sum(map(sum, cells)) // 2 % 2]

    assert execute_strategy(strategy, GameBoard(seed=1), timeout=20.0)[1] == "failed"
    assert execute_strategy(lambda cells: 3, GameBoard(seed=1), timeout=20.0) == (1, "failed")


def test_a_game_under_way_is_gone_on_with() -> None:
    game = GameBoard(seed=1)
    game.move("A")
    before = game.steps
    steps, _ = execute_strategy(strategies.ALWAYS_UP, game, timeout=20.0)
    assert game.steps == before + steps


# The game


@pytest.mark.parametrize(
    ("row", "slid", "gained"),
    [
        ((0, 0, 0, 0), (0, 0, 0, 0), 0),
        ((2, 0, 2, 0), (4, 0, 0, 0), 4),
        ((2, 2, 2, 0), (4, 2, 0, 0), 4),
        ((2, 2, 2, 2), (4, 4, 0, 0), 8),
        ((4, 2, 2, 0), (4, 4, 0, 0), 4),
        ((0, 2, 4, 8), (2, 4, 8, 0), 0),
    ],
)
def test_rows_slide(row: Any, slid: Any, gained: int) -> None:
    assert board.slide_row(row) == (slid, gained)
    assert board.slide_row_back(row[::-1]) == (slid[::-1], gained)


def test_boards_slide_in_four_directions() -> None:
    cells = ((2, 0, 0), (2, 0, 4), (0, 0, 4))
    assert board.slide(cells, "W") == (((4, 0, 8), (0, 0, 0), (0, 0, 0)), 12)
    assert board.slide(cells, "S") == (((0, 0, 0), (0, 0, 0), (4, 0, 8)), 12)
    assert board.slide(cells, "A") == (((2, 0, 0), (2, 4, 0), (4, 0, 0)), 0)
    assert board.slide(cells, "D") == (((0, 0, 2), (0, 2, 4), (0, 0, 4)), 0)


def test_moves_are_those_that_change_something() -> None:
    for cells in (((2, 0, 0), (2, 0, 4), (0, 0, 4)), ((2, 4, 2), (4, 2, 4), (2, 4, 2)), ((2, 2, 2), (0, 0, 0), (0, 0, 0))):
        every = {direction: board.slide(cells, direction) for direction in board.DIRECTIONS}
        wanted = {direction: it for direction, it in every.items() if it[0] != cells}
        for given in (cells, [list(row) for row in cells]):
            assert {direction: (after, gained) for direction, after, gained in board.moves(given)} == wanted


def test_features_of_lines() -> None:
    assert board.features((0, 2, 2, 8)) == (1, 1, True, 4, 2)
    assert board.features((8, 0, 16, 4)) == (1, 0, False, 4, 5)
    assert board.features((0, 0, 0)) == (3, 0, True, 0, 0)
    assert board.LineValues(1, 10, 100, 0.5, 2)[0, 2, 2, 8] == 1 + 10 + 100 + 0.5 * 4 + 2 * 2


def test_the_same_seed_and_moves_give_the_same_game() -> None:
    one, two, other = GameBoard(seed=7), GameBoard(seed=7), GameBoard(seed=8)
    player.replay("WASD" * 20, one)
    player.replay("WASD" * 20, two)
    player.replay("WASD" * 20, other)
    assert (one.cells, one.score) == (two.cells, two.score)
    assert one.cells != other.cells


def test_games_are_won_and_lost() -> None:
    game = GameBoard(seed=1, target=16)
    player.replay("WASD" * 100, game)
    assert game.state() == "success"
    assert game.largest() == 16
    assert not game.move("W")
    game = GameBoard(seed=1)
    game.move("up")
    assert game.state() == "failed"
    full = GameBoard(seed=1, size=2)
    player.replay("WASD" * 100, full)
    assert full.state() == "failed"
    assert "failed" in str(full)


# Rewards and evolution


def completion(source: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": f"Like this:\n```python\n{source}```\nIt wins."}]


def test_rewards() -> None:
    names = ["corner", "infinite loop", "exception", "syntax error", "no strategy", "cheat"]
    completions: list[Any] = [completion(strategies.ALL[name]) for name in names]
    completions += ["no code at all", completion("import numpy\ndef strategy(board):\n    return 'W'\n")]
    completions += [completion("1 / 0\ndef strategy(board):\n    return 'W'\n")]
    assert rewards.function_works(completions)[:8] in ([1, 1, 1, -2, -2, 1, -2, 1], [1, 1, 1, -2, -2, 1, -2, -0.5])
    assert rewards.function_works(completions)[8] == -0.5
    if sys.version_info >= (3, 10):
        assert rewards.no_cheating(completions) == [1, 1, 1, -1, -1, -20, -1, -20, 1]
    succeeds = rewards.strategy_succeeds(completions, prompts=None, seed=1, timeout=3.0)
    assert succeeds[:7] == [2, -1, -3, 0, 0, 2, 0]
    assert succeeds[8] == -3


def test_a_win_is_rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    # The game is won here, where it counts, whatever the board in the sandbox was played to.
    monkeypatch.setattr(rewards, "GameBoard", lambda size, seed: GameBoard(size, seed, target=16))
    cycle = "turn = 0\ndef strategy(board):\n    global turn\n    turn += 1\n    return 'WASD'[turn % 4]\n"
    assert rewards.strategy_succeeds([completion(cycle)], seed=1, timeout=20.0) == [20]


def test_evolution_runs_as_a_command() -> None:
    command = [sys.executable, str(EXAMPLE / "evolve.py"), "--generations", "2", "--population", "12", "--accidents", "0.3"]
    ended = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert summary["strategies"] == sum(summary["endings"].values()) == 24
    assert len(summary["medians"]) == 2
    assert summary["best"]["score"] > 0
    assert summary["endings"]["played out"] >= 12
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "on the full board" in ended.stdout
    assert ended.stderr == ""
