"""What runs inside the sandbox: a strategy, and a board for it to play on. It needs nothing but the standard library.

The strategy shares this process, and so can reach everything in it: the board, this loop, the way out. It gains nothing.
What leaves is the moves, one letter each, written as they are made, and they are played again on the caller's own board: a
score painted onto the board in here is never looked at, and a letter slipped in is a move like any other. What stays
possible is foresight: the new tiles must be known in here, and whoever digs out the generator can plan with them.
"""

from __future__ import annotations

import ast
import itertools
import os
import sys
from typing import Any, Callable, Union

from board import DIRECTIONS, GameBoard, features, holes, slide_row, slide_row_back

Strategy = Union[str, Callable[[Any], Any]]

# The rows of most games: known once, in the process that all players are copies of.
for _size, _largest in ((3, 8), (4, 5)):
    for _row in itertools.product([0, *(2**power for power in range(1, _largest + 1))], repeat=_size):
        for _known in (slide_row, slide_row_back, features, holes):
            _known(_row)


def strategy_of(source: str) -> Callable[[Any], Any]:
    """The function `strategy` that a text defines."""
    space: dict[str, Any] = {"__name__": "strategy"}
    exec(compile(source, "<strategy>", "exec"), space)
    found = space.get("strategy")
    if not callable(found):
        raise NameError("the text defines no function named strategy")
    return found  # type: ignore[no-any-return]


def play(strategy: Strategy, game: GameBoard) -> None:
    """Plays to the end of the game, writing each move to stdout as it is made."""
    # What the strategy prints goes to stderr, so that stdout holds moves.
    sys.stdout = sys.stderr
    decide = strategy_of(strategy) if isinstance(strategy, str) else strategy
    write = os.write
    while game.state() == "ongoing":
        action = decide(game.board())
        known = isinstance(action, str) and action in DIRECTIONS
        write(1, action.encode() if known else b"?")
        game.move(action if known else "?")


def play_seed(item: tuple[Strategy, int, int]) -> None:
    """Plays the game of a size and seed: what is sent to the sandbox is short, and names nothing but this module."""
    strategy, size, seed = item
    play(strategy, GameBoard(size, seed))


def replay(moves: str, game: GameBoard) -> None:
    """Plays what was played, in the caller."""
    for move in moves:
        if game.state() != "ongoing":
            break
        game.move(move)


def inspect_source(source: str) -> dict[str, Any]:
    """What a text is made of, without running it. In the sandbox, for a text can be made to crash the parser."""
    tree = ast.parse(source)
    imports, hidden = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Attribute) and (node.attr.startswith(("__", "f_", "gi_", "tb_")) or node.attr == "_getframe"):
            hidden.add(node.attr)
        elif isinstance(node, ast.Name) and node.id in ("__import__", "eval", "exec", "open", "globals"):
            hidden.add(node.id)
    return {"imports": sorted(imports), "hidden": sorted(hidden)}


def define(source: str) -> bool:
    """Whether a text's definitions run and give a strategy."""
    strategy_of(source)
    return True
