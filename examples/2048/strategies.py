"""Strategies as a model might write them: good ones, and every way to go wrong."""

from __future__ import annotations

CORNER = '''
def strategy(board):
    """Keeps the large tiles in the lower left corner: left or down while it can."""
    def slides(row):
        tiles = [tile for tile in row if tile]
        return row[:len(tiles)] != tiles or any(a == b for a, b in zip(tiles, tiles[1:]))

    columns = [list(column) for column in zip(*board)]
    if any(slides(column[::-1]) for column in columns):
        return "S"
    if any(slides(row) for row in board):
        return "A"
    if any(slides(row[::-1]) for row in board):
        return "D"
    return "W"
'''

GREEDY = '''
def strategy(board):
    """Takes what scores most now, and among equals what leaves most room."""
    def left(row):
        tiles, gained, slid = [tile for tile in row if tile], 0, []
        while tiles:
            tile = tiles.pop(0)
            if tiles and tiles[0] == tile:
                tile += tiles.pop(0)
                gained += tile
            slid.append(tile)
        return slid + [0] * (len(row) - len(slid)), gained

    best = None
    for move in "SADW":
        lines = [list(line) for line in (zip(*board) if move in "WS" else board)]
        if move in "SD":
            lines = [line[::-1] for line in lines]
        slid = [left(line) for line in lines]
        if [line for line, _ in slid] != lines:
            value = (sum(gained for _, gained in slid), sum(line.count(0) for line, _ in slid))
            if best is None or value > best[0]:
                best = (value, move)
    return best[1] if best else "W"
'''

EXPECTIMAX = '''
from board import slide

WEIGHTS = [[2 ** (row + column) for column in range(4)] for row in range(4)]

def worth(cells):
    return sum(weight * tile for weights, row in zip(WEIGHTS, cells) for weight, tile in zip(weights, row))

def after_tile(cells, depth):
    empty = [(r, c) for r in range(4) for c in range(4) if not cells[r][c]][:4]
    total = 0
    for r, c in empty:
        line = cells[r][:c] + (2,) + cells[r][c + 1:]
        total += best(cells[:r] + (line,) + cells[r + 1:], depth - 1)[0]
    return total / len(empty) if empty else worth(cells)

def best(cells, depth):
    """The value of the best move and the move, looking as many moves ahead."""
    found = (-1, "W")
    for move in "SDAW":
        slid, gained = slide(cells, move)
        if slid != cells:
            value = worth(slid) if depth == 0 else after_tile(slid, depth)
            if value > found[0]:
                found = (value, move)
    return found

def strategy(board):
    return best(tuple(map(tuple, board)), 1)[1]
'''

RANDOM = '''
import random

def strategy(board):
    return random.choice("WASD")
'''

ALWAYS_UP = '''
def strategy(board):
    return "W"
'''

INFINITE_LOOP = '''
def strategy(board):
    while True:
        pass
'''

LOOP_LATER = '''
turn = 0

def strategy(board):
    """Plays ten moves, then thinks about the eleventh for ever."""
    global turn
    turn += 1
    while turn > 10:
        pass
    return "WASD"[turn % 4]
'''

NESTED_LOOPS = '''
def strategy(board):
    total = 0
    for a in range(10**6):
        for b in range(10**6):
            for c in range(10**6):
                total += a * b * c
    return "WASD"[total % 4]
'''

SLOW_COMPUTATION = '''
def strategy(board):
    """One long call into C, which no signal handler interrupts."""
    return "WASD"[sum(range(10**13)) % 4]
'''

EXCEPTION = '''
def strategy(board):
    return {"up": "W"}[board[0][0]]
'''

NO_MOVE = '''
def strategy(board):
    return 42
'''

NO_STRATEGY = '''
def tactics(board):
    return "W"
'''

SYNTAX_ERROR = '''
def strategy(board)
    return "W"
'''

MEMORY_HOG = '''
def strategy(board):
    everything = []
    while True:
        everything.append(bytearray(10**7))
'''

SWALLOWS_EVERYTHING = '''
import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)

def strategy(board):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
'''

CHEAT = '''
import sys

def strategy(board):
    """Finds the real board in the frame that called, and paints a winning tile onto it."""
    game = sys._getframe(1).f_locals["game"]
    game.cells = ((2048, 0, 0, 0),) + game.cells[1:]
    game.score, game._state = 10**9, "success"
    board[0][0] = 2048
    return "W"
'''

FORGER = '''
import os

def strategy(board):
    """Writes moves of its own where the player writes them, and ends in good order."""
    os.write(1, b"WIN" + b"D" * 10)
    os._exit(0)
'''

FORKS = '''
import os, time

def strategy(board):
    """Leaves a child and a daemon behind at every move, and plays on."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(3600)
        time.sleep(3600)
    return "WASD"[sum(map(sum, board)) // 2 % 4]
'''

GOOD = {"corner": CORNER, "greedy": GREEDY, "expectimax": EXPECTIMAX, "random": RANDOM}
BAD = {
    "always up": ALWAYS_UP,
    "infinite loop": INFINITE_LOOP,
    "loop later": LOOP_LATER,
    "nested loops": NESTED_LOOPS,
    "slow computation": SLOW_COMPUTATION,
    "exception": EXCEPTION,
    "no move": NO_MOVE,
    "no strategy": NO_STRATEGY,
    "syntax error": SYNTAX_ERROR,
    "memory hog": MEMORY_HOG,
    "swallows everything": SWALLOWS_EVERYTHING,
    "cheat": CHEAT,
    "forger": FORGER,
    "forks": FORKS,
}
ALL = {**GOOD, **BAD}


def main() -> None:
    """Plays each once, and shows what became of it."""
    import time

    from board import GameBoard
    from execute_strategy import execute_strategy, run_strategy, sandbox

    print(f"{'strategy':20} {'took':>7} {'steps':>6} {'score':>6}  ending")
    for name, source in ALL.items():
        game = GameBoard(seed=1)
        started = time.monotonic()
        try:
            _, ending = execute_strategy(source, game, timeout=2.0)
        except Exception as error:
            lines = str(error).splitlines() or [""]
            ending = f"{type(error).__name__}: {lines[0]:.90}"
        print(f"{name:20} {time.monotonic() - started:6.2f}s {game.steps:6} {game.score:6}  {ending}")

    print("\nwith grace=1.0 the one that swallows everything gets a second after SIGTERM:")
    outcome = run_strategy(SWALLOWS_EVERYTHING, GameBoard(seed=1), timeout=0.5, grace=1.0)
    if outcome.verdict is not None:
        print("  " + ", ".join(f"{said['signal']} after {said['at_ms']} ms" for said in outcome.verdict.signals))
        print(f"  {outcome.verdict.sentence}")
    sandbox().close()


if __name__ == "__main__":
    main()
