"""Reward functions for a model that writes 2048 strategies, in the shape that TRL's GRPOTrainer calls.

A completion is a text, or a list of messages of which the last one counts. Nothing of it is run, compiled or parsed outside
the sandbox, and one batch is judged on all processors.
"""

from __future__ import annotations

import random
import re
import sys
from typing import Any, Sequence

from execute_strategy import sandbox

import player
from board import GameBoard

# Before 3.10 an interpreter does not tell what its library is.
_LIBRARY = getattr(sys, "stdlib_module_names", None)
_FENCE = re.compile(r"```(?:python|py)?[^\S\n]*\n(.*?)```", re.DOTALL)


def extract_function(completion: Any) -> str | None:
    """The text of the first fenced block that defines `strategy`, from its start: imports and helpers belong to it."""
    text = completion if isinstance(completion, str) else str(completion[-1]["content"])
    for block in _FENCE.findall(text):
        if re.search(r"^def strategy\(", block, re.MULTILINE):
            return str(block)
    return None


def _outcomes(function: Any, sources: Sequence[str | None], timeout: float) -> list[Any]:
    """One outcome for each text, None where there is none."""
    outcomes = sandbox().limits(timeout=timeout).map(function, [source for source in sources if source is not None])
    return [None if source is None else next(outcomes) for source in sources]


def function_works(completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """1 where the definitions run and give a strategy, -0.5 where they fail, -2 where there are none, or no Python."""
    sources = [extract_function(completion) for completion in completions]
    return [
        -2.0 if outcome is None or isinstance(outcome.error, SyntaxError) else 1.0 if outcome.ok else -0.5
        for outcome in _outcomes(player.define, sources, 2.0)
    ]


def no_cheating(completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """1 where only the standard library and the board's rules are used, -20 for anything else or for reaching behind
    the game, -1 where there is nothing to look at.

    This shapes what a model writes. It is not what makes cheating useless: that the moves are played again is.
    """

    def honest(outcome: Any) -> bool:
        strange = [name for name in outcome.value["imports"] if name != "board" and _LIBRARY and name not in _LIBRARY]
        return not strange and not outcome.value["hidden"]

    sources = [extract_function(completion) for completion in completions]
    outcomes = _outcomes(player.inspect_source, sources, 2.0)
    return [-1.0 if one is None or not one.ok else 1.0 if honest(one) else -20.0 for one in outcomes]


def strategy_succeeds(
    completions: Sequence[Any], seed: int | None = None, timeout: float = 2.0, **kwargs: Any
) -> list[float]:
    """20 for a tile of 2048, 2 for a game that was lost or left, -1 for one that took too long, -3 for what raised or
    crashed, 0 where there is nothing to play. All of a batch play the same game.
    """
    seed = random.randrange(10_000) if seed is None else seed
    sources = [extract_function(completion) for completion in completions]
    box = sandbox().limits(timeout=timeout)
    outcomes = box.map(player.play_seed, [(source, 4, seed) for source in sources if source is not None])
    return [0.0 if source is None else _worth(next(outcomes), GameBoard(4, seed)) for source in sources]


def _worth(outcome: Any, game: GameBoard) -> float:
    player.replay(outcome.stdout, game)
    if outcome.ending == "timeout":
        return -1.0
    if isinstance(outcome.error, (SyntaxError, NameError)) and game.steps == 0:
        return 0.0
    if outcome.error is not None:
        return -3.0
    return 20.0 if game.state() == "success" else 2.0


def main() -> None:
    """Rewards for the strategies of strategies.py, as completions of a model."""
    from strategies import ALL

    completions = [[{"role": "assistant", "content": f"Here it is:\n```python\n{source}```\n"}] for source in ALL.values()]
    columns = [reward(completions) for reward in (function_works, no_cheating)]
    columns.append(strategy_succeeds(completions, seed=1))
    print(f"{'strategy':20} {'works':>6} {'honest':>7} {'succeeds':>9}")
    for name, *rewards in zip(ALL, *columns):
        print("{:20} {:6} {:7} {:9}".format(name, *rewards))
    sandbox().close()


if __name__ == "__main__":
    main()
