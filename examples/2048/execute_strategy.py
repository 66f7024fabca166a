"""Playing a strategy that nobody has vouched for, for as long as it is allowed."""

from __future__ import annotations

import functools
import os
import sys

import sandtimer

_HERE = os.path.dirname(os.path.abspath(__file__))
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

import player  # noqa: E402
from board import GameBoard  # noqa: E402


class StrategyTimeout(sandtimer.DeadlineExceeded):
    """The strategy took too long: a TimeoutError. `steps` it had made; the game shows them, `outcome` has all the rest."""

    def __init__(self, message: str, steps: int) -> None:
        super().__init__(message)
        self.steps = steps


@functools.lru_cache(maxsize=None)
def sandbox() -> sandtimer.Sandbox:
    """One for all strategies: interpreters that have imported the player stand ready in it."""
    return sandtimer.Sandbox(memory="256MB", processes=16, preload=["player"])


def run_strategy(
    strategy: player.Strategy, game: GameBoard, timeout: float | None = 2.0, grace: float = 0.0
) -> sandtimer.Outcome:
    """Plays a strategy in the sandbox, then its moves on `game`, however it ended. Never raises for what it did."""
    outcome = sandbox().limits(timeout=timeout, grace=grace).run(player.play, strategy, game)
    player.replay(outcome.stdout, game)
    return outcome


def execute_strategy(
    strategy: player.Strategy, game: GameBoard, timeout: float | None = 2.0, grace: float = 0.0
) -> tuple[int, str]:
    """Plays a strategy, a text that defines `strategy(board)` or a callable, to the end: steps made and the game's state.

    What the strategy raises is raised here; SystemExit and KeyboardInterrupt come as `sandtimer.RemoteError`. One that takes
    longer than `timeout` ends in a TimeoutError with the `steps` made; with a `grace` it gets SIGTERM first, and is killed
    that much later. `game` is played as far as the strategy came.
    """
    before = game.steps
    outcome = run_strategy(strategy, game, timeout, grace)
    steps = game.steps - before
    if outcome.ending == "timeout":
        error = StrategyTimeout(f"after {steps} steps: {outcome.error}", steps)
        error.outcome = outcome
        raise error
    if isinstance(outcome.error, Exception):
        raise outcome.error
    if outcome.error is not None:
        # A strategy's sys.exit() or KeyboardInterrupt must not end its caller.
        stand_in = sandtimer.RemoteError(type(outcome.error).__name__, str(outcome.error))
        stand_in.outcome = outcome
        raise stand_in from outcome.error
    return steps, game.state()
