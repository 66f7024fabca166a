"""Evolves a 2048 strategy: hundreds of generated programs, each run in a sandbox of its own, the best bred on.

A strategy is a text with six weights in it. Some of the offspring are broken, as generated programs are: they loop, raise,
crash or eat memory, and cost the run no more than their deadline. What is bred for is the score on a board of 3 x 3, where
games are short and luck runs out soon; the best then plays the full game.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator, NamedTuple

import sandtimer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import player  # noqa: E402
from execute_strategy import StrategyTimeout, execute_strategy, sandbox  # noqa: E402
from board import GameBoard  # noqa: E402

PROCESSORS = len(os.sched_getaffinity(0))

TEMPLATE = '''
from board import LineValues, moves

value_of = LineValues({weights}).__getitem__

def strategy(board):
    best, chosen = None, "W"
    for move, cells, gained in moves(board):
        value = sum(map(value_of, cells)) + sum(map(value_of, zip(*cells))) + {gain} * gained.bit_length()
        if best is None or value > best:
            best, chosen = value, move
    return chosen
'''

# What goes wrong with generated programs; each line is put at the start of `strategy`.
ACCIDENTS = [
    "while True: pass",
    "return undefined",
    "return board[0][9]",
    "import os; os.abort()",
    "hoard = []\n    while True: hoard.append(bytearray(10**7))",
    "return (",
]


class Played(NamedTuple):
    weights: tuple[float, ...]
    ending: str
    score: int
    largest: int
    steps: int


def source_of(weights: tuple[float, ...], accident: str | None) -> str:
    *lines, gain = (f"{weight:.3f}" for weight in weights)
    source = TEMPLATE.format(weights=", ".join(lines), gain=gain)
    if accident is not None:
        source = source.replace("def strategy(board):\n", f"def strategy(board):\n    {accident}\n")
    return source


def ending_of(outcome: sandtimer.Outcome, game: GameBoard) -> str:
    if outcome.ending == "returned":
        return {"success": "won", "failed": "played out", "ongoing": "left the game"}[game.state()]
    if outcome.ending == "raised":
        return type(outcome.error).__name__
    return outcome.signal or "" if outcome.ending == "signaled" else outcome.ending.replace("_", " ")


def evaluate(
    box: sandtimer.Sandbox, population: list[tuple[tuple[float, ...], str | None]], seed: int, size: int
) -> Iterator[Played]:
    """Plays each of a generation in its own sandbox, all the same game; what counts is its moves, played again here."""

    def play(one: tuple[tuple[float, ...], str | None]) -> sandtimer.Outcome:
        return box.run(player.play_seed, (source_of(*one), size, seed))

    # A thread for each processor: the others go on while one plays for as long as it is allowed.
    with ThreadPoolExecutor(PROCESSORS) as threads, contextlib.closing(threads.map(play, population)) as outcomes:
        for (weights, _), outcome in zip(population, outcomes):
            game = GameBoard(size, seed)
            player.replay(outcome.stdout, game)
            yield Played(weights, ending_of(outcome, game), game.score, game.largest(), game.steps)


def offspring(parents: list[Played], size: int, accidents: float, chance: random.Random) -> Any:
    """The best as they are, then mixtures of two of them with some weights changed; a few have an accident."""
    yield from ((parent.weights, None) for parent in parents[:2])
    for _ in range(size - len(parents[:2])):
        one, two = chance.choice(parents).weights, chance.choice(parents).weights
        mixed = (chance.choice(pair) for pair in zip(one, two))
        weights = tuple(weight + chance.gauss(0, 1) if chance.random() < 0.4 else weight for weight in mixed)
        yield weights, chance.choice(ACCIDENTS) if chance.random() < accidents else None


def evolve(options: argparse.Namespace, advance: Any) -> list[list[Played]]:
    chance = random.Random(options.seed)
    random_weights = (tuple(chance.uniform(-3, 3) for _ in range(6)) for _ in range(options.population))
    population: Any = [(weights, None) for weights in random_weights]
    generations = []
    # Many times what a game takes. Of processor time: one that has to wait for its turn loses nothing by it.
    cpu = 0.1 * (options.size - 2) ** 2
    with sandtimer.Sandbox(cpu=cpu, timeout=100 * cpu, memory="96MB", processes=8, preload=["player"]) as box:
        box.warm(PROCESSORS)
        for number in range(options.generations):
            played = []
            for one in evaluate(box, population, options.seed * 1000 + number, options.size):
                played.append(one)
                advance(number, one)
            generations.append(played)
            best = sorted(played, key=lambda one: one.score, reverse=True)[: max(2, options.population // 5)]
            population = list(offspring(best, options.population, options.accidents, chance))
    return generations


# What a person sees


class Progress:
    """A bar by tqdm or rich, whichever is there; else a line now and then."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.best = total, 0, 0
        self.started = time.monotonic()
        self.bar: Any = None
        self.rich: Any = None
        if not sys.stderr.isatty():
            return
        try:
            from tqdm import tqdm

            self.bar = tqdm(total=total, unit=" strategies", file=sys.stderr, dynamic_ncols=True)
        except ImportError:
            try:
                from rich.console import Console
                from rich.progress import Progress as RichProgress

                self.rich = RichProgress(console=Console(file=sys.stderr))
                self.rich.start()
                self.task = self.rich.add_task("evolving", total=total)
            except ImportError:
                pass

    def __call__(self, number: int, one: Played) -> None:
        self.done += 1
        self.best = max(self.best, one.score)
        if self.bar is not None:
            self.bar.set_postfix(generation=number + 1, best=self.best, refresh=False)
            self.bar.update()
        elif self.rich is not None:
            self.rich.update(self.task, advance=1, description=f"generation {number + 1}, best {self.best}")
        elif sys.stderr.isatty() and self.done % 10 == 0:
            rate = self.done / (time.monotonic() - self.started)
            text = f"\r{self.done}/{self.total} strategies, {rate:.0f} a second, generation {number + 1}, best {self.best} "
            print(text, end="", file=sys.stderr, flush=True)

    def close(self) -> float:
        if self.bar is not None:
            self.bar.close()
        elif self.rich is not None:
            self.rich.stop()
        elif sys.stderr.isatty():
            print(file=sys.stderr)
        return time.monotonic() - self.started


def endings(generations: list[list[Played]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for played in generations:
        for one in played:
            counts[one.ending] = counts.get(one.ending, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def report(generations: list[list[Played]]) -> None:
    """Scores by generation and how the runs ended, as text."""
    ended = endings(generations)
    top = max(1, *(one.score for played in generations for one in played))
    print("\ngeneration   median     best  (█ median, · best)")
    for number, played in enumerate(generations, 1):
        scores = [one.score for one in played]
        median, best = statistics.median(scores), max(scores)
        bar = "█" * round(40 * median / top)
        print(f"{number:10} {median:8.0f} {best:8}  {bar}{'·' * (round(40 * best / top) - len(bar))}")
    print("\nending")
    widest = max(ended.values())
    for name, count in ended.items():
        print(f"  {name:16} {count:6}  {'█' * max(1, round(40 * count / widest))}")


def plot(generations: list[list[Played]], file: str) -> bool:
    """Scores and endings as a picture; False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), width_ratios=(3, 2), layout="constrained")
    numbers = range(1, len(generations) + 1)
    scores = [sorted(one.score for one in played) for played in generations]
    low, median, high = ([row[int(share * (len(row) - 1))] for row in scores] for share in (0.25, 0.5, 0.75))
    left.fill_between(numbers, low, high, alpha=0.25, label="middle half")
    left.plot(numbers, median, label="median")
    left.plot(numbers, [row[-1] for row in scores], "o-", markersize=4, label="best")
    left.set(xlabel="generation", ylabel="score", title="Scores", ylim=(0, None))
    left.xaxis.get_major_locator().set_params(integer=True)
    left.legend(loc="center right", frameon=False)
    ended = endings(generations)
    colours = ["tab:blue" if name in ("won", "played out") else "tab:red" for name in ended]
    bars = right.barh(list(ended), list(ended.values()), color=colours)
    right.bar_label(bars, padding=3)
    right.invert_yaxis()
    right.set(xlabel="strategies", title="How the runs ended", xscale="log", xlim=(0.7, 6 * max(ended.values())))
    right.xaxis.set_major_formatter("{x:.0f}")
    right.spines[["top", "right"]].set_visible(False)
    left.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)
    return True


def finale(weights: tuple[float, ...], seed: int) -> None:
    """The best on the full board."""
    game = GameBoard(seed=seed)
    try:
        execute_strategy(source_of(weights, None), game, timeout=2.0)
    except StrategyTimeout as late:
        print(f"\non the full board it ran out of time after {late.steps} steps:")
    else:
        print("\non the full board:")
    print(game)
    sandbox().close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Evolve a 2048 strategy; every candidate runs in a sandbox of its own.")
    parser.add_argument("--generations", type=int, default=12, metavar="N")
    parser.add_argument("--population", type=int, default=120, metavar="N", help="strategies in each generation")
    parser.add_argument("--size", type=int, default=3, metavar="N", help="of the board in the evolution")
    parser.add_argument("--accidents", type=float, default=0.05, metavar="P", help="share of broken offspring")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--plot", metavar="FILE", help="write a picture, such as evolution.png (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the report")
    options = parser.parse_args()
    if min(options.generations, options.population - 1, options.size - 2) < 1:
        parser.error("--generations is at least 1, --population at least 2, --size at least 3")
    total = options.generations * options.population
    progress = Progress(total)
    try:
        generations = evolve(options, progress)
    finally:
        seconds = progress.close()
    best = max((one for played in generations for one in played), key=lambda one: one.score)
    if options.json:
        summary = {
            "strategies": total,
            "seconds": round(seconds, 3),
            "per_second": round(total / seconds, 1),
            "best": best._asdict(),
            "medians": [statistics.median(one.score for one in played) for played in generations],
            "endings": endings(generations),
        }
        print(json.dumps(summary))
    else:
        report(generations)
        print(f"\n{total} strategies in {seconds:.1f} s, {total / seconds:.0f} a second, each in a sandbox of its own")
        print(f"best: {best.score} points, {best.steps} moves, largest tile {best.largest}; its weights:")
        names = ("empty", "merges", "order", "corner", "middle", "gain")
        print("  " + ", ".join(f"{name} {weight:+.2f}" for name, weight in zip(names, best.weights)))
        finale(best.weights, options.seed)
    if options.plot and not plot(generations, options.plot):
        print("no picture: matplotlib is not installed", file=sys.stderr)
    elif options.plot and not options.json:
        print(f"picture: {options.plot}")


if __name__ == "__main__":
    main()
