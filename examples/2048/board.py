"""The game 2048: tiles slide, equal neighbours merge, and every move that changes something brings a new tile.

The same seed and the same moves give the same game, in any process: a game played elsewhere is checked by playing its moves
again here.
"""

from __future__ import annotations

import functools
import operator
import random
from typing import Sequence

DIRECTIONS = {"W": "up", "A": "left", "S": "down", "D": "right"}
# So many moves in a row that change nothing, and the game is lost: without it a strategy could go on for ever.
MOST_IDLE = 50

Row = tuple  # of int
Cells = tuple  # of Row


@functools.lru_cache(maxsize=None)
def slide_row(row: Row) -> tuple[Row, int]:
    """A row slid to the left, and what its merges score."""
    tiles = [tile for tile in row if tile]
    slid, gained, at = [], 0, 0
    while at < len(tiles):
        if at + 1 < len(tiles) and tiles[at] == tiles[at + 1]:
            slid.append(2 * tiles[at])
            gained += 2 * tiles[at]
            at += 1
        else:
            slid.append(tiles[at])
        at += 1
    return tuple(slid + [0] * (len(row) - len(slid))), gained


@functools.lru_cache(maxsize=None)
def slide_row_back(row: Row) -> tuple[Row, int]:
    """The same to the right."""
    slid, gained = slide_row(row[::-1])
    return slid[::-1], gained


def slide(cells: Sequence[Sequence[int]], direction: str) -> tuple[Cells, int]:
    """The board after a move, before its new tile, and what the move scores."""
    across = direction in "WS"
    lines = zip(*cells) if across else map(tuple, cells)
    slid, gains = zip(*map(slide_row if direction in "WA" else slide_row_back, lines))
    return (tuple(zip(*slid)) if across else slid), sum(gains)


def moves(cells: Sequence[Sequence[int]]) -> list[tuple[str, Cells, int]]:
    """The moves that change something: each with the board after it, before its new tile, and what it scores."""
    rows, columns = tuple(map(tuple, cells)), tuple(zip(*cells))
    found = []
    for direction, lines, slide_line in (
        ("S", columns, slide_row_back),
        ("A", rows, slide_row),
        ("D", rows, slide_row_back),
        ("W", columns, slide_row),
    ):
        slid, gains = zip(*map(slide_line, lines))
        if slid != lines:
            found.append((direction, tuple(zip(*slid)) if lines is columns else slid, sum(gains)))
    return found


@functools.lru_cache(maxsize=None)
def features(line: Row) -> tuple[int, int, bool, int, int]:
    """What a strategy may look for in a row or column: empty cells, equal neighbours, whether it is in order, and the
    lengths in bits of the largest tile at its ends and between them."""
    equal = sum(one == two != 0 for one, two in zip(line, line[1:]))
    ordered = line in (tuple(sorted(line)), tuple(sorted(line, reverse=True)))
    return line.count(0), equal, ordered, max(line[0], line[-1]).bit_length(), max(line[1:-1]).bit_length()


class LineValues(dict):  # type: ignore[type-arg]
    """What rows and columns are worth: their features by these weights, each worked out once.

    >>> LineValues(1, 10, 0, 0, 0)[0, 2, 2]
    11
    """

    def __init__(self, *weights: float) -> None:
        self.weights = weights

    def __missing__(self, line: Row) -> float:
        self[line] = value = sum(map(operator.mul, self.weights, features(line)))
        return value


@functools.lru_cache(maxsize=None)
def holes(row: Row) -> tuple[int, ...]:
    """Where a row is empty."""
    return tuple(column for column, tile in enumerate(row) if not tile)


class GameBoard:
    """A game under way.

    >>> game = GameBoard(seed=3)
    >>> game.move("A"), game.score, game.state()
    (True, 0, 'ongoing')
    """

    def __init__(self, size: int = 4, seed: int | None = None, target: int = 2048, probability_fours: float = 0.1) -> None:
        self.size, self.target, self.probability_fours = size, target, probability_fours
        self.random = random.Random(seed)
        self.cells: Cells = ((0,) * size,) * size
        self.score = self.steps = self.idle = 0
        self._state = "ongoing"
        self._spawn()
        self._spawn()

    def board(self) -> list[list[int]]:
        """A copy of the tiles, row by row; 0 is empty."""
        return [list(row) for row in self.cells]

    def move(self, direction: str) -> bool:
        """Makes a move: "W" up, "A" left, "S" down, "D" right. Whether it changed anything; any other text loses the game."""
        if self._state != "ongoing":
            return False
        self.steps += 1
        if direction not in DIRECTIONS:
            self._state = "failed"
            return False
        slid, gained = slide(self.cells, direction)
        if slid == self.cells:
            self.idle += 1
            if self.idle >= MOST_IDLE:
                self._state = "failed"
            return False
        self.idle = 0
        self.cells = slid
        self.score += gained
        self._spawn()
        if gained >= self.target and self.largest() >= self.target:
            self._state = "success"
        elif not self._can_move():
            self._state = "failed"
        return True

    def state(self) -> str:
        """ "ongoing", "success" with a tile of the target, or "failed"."""
        return self._state

    def largest(self) -> int:
        return max(map(max, self.cells))

    def _can_move(self) -> bool:
        for row in self.cells:
            if 0 in row:
                return True
        lines = (*self.cells, *zip(*self.cells))
        return any(one == two for line in lines for one, two in zip(line, line[1:]))

    def _spawn(self) -> None:
        cells = self.cells
        empty = [(row, column) for row, line in enumerate(cells) for column in holes(line)]
        row, column = empty[int(self.random.random() * len(empty))]
        line = cells[row]
        tile = 4 if self.random.random() < self.probability_fours else 2
        filled = (*line[:column], tile, *line[column + 1 :])
        self.cells = (*cells[:row], filled, *cells[row + 1 :])

    def __str__(self) -> str:
        width = max(4, len(str(self.largest())))
        rule = "+" + ("-" * (width + 2) + "+") * self.size
        rows = ["|" + "|".join(f" {tile or '.':>{width}} " for tile in row) + "|" for row in self.cells]
        return "\n".join([f"score {self.score}, {self.steps} steps, {self.state()}", rule, *rows, rule])
