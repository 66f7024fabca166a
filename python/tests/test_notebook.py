"""What a notebook or a script defines: functions and classes of `__main__`, which no sandbox can import.

Also of modules in directories that are not shown. In processes of their own: a test runner's `__main__` is its own.
"""

from __future__ import annotations

import pathlib
import textwrap

import pytest

from test_fork import run_alone

STARTS = ("zygote", "spawn", "fork")

# As a notebook does it: in the module's own namespace, and without a file.
CELLS = """
import asyncio, dataclasses, enum, typing

@dataclasses.dataclass
class Move:
    column: int

    def next(self):
        return Move(shift(self.column))

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

class Pair(typing.NamedTuple):
    first: int

class Illegal(Exception):
    def __init__(self, move, reason):
        super().__init__(move, reason)
        self.reason = reason

class Other:
    pass

def shift(column):
    return column + 1

def refuse(column):
    raise Illegal(column, "no such column")

async def later(column):
    return shift(column)
"""


def run_cells(code: str) -> str:
    return run_alone(f"exec({CELLS!r}, globals())\n" + textwrap.dedent(code))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("trust", ["data", "pickle"])
def test_classes_of_a_notebook_come_back(start: str, trust: str) -> None:
    said = run_cells(f"""
        kinds = [Move, Colour, Pair, Illegal]
        with sandtimer.Sandbox(timeout=20.0, start={start!r}, trust={trust!r}, results=kinds, force=True) as box:
            print(box.call(Move(1).next) == Move(2), box.submit(Move(2).next).result() == Move(3))
            print(box.call(lambda: [Colour.BLUE, Colour.RED]) == [Colour.BLUE, Colour.RED], box.call(lambda: Pair(3)) == Pair(3))
            print(box.call(later, 5), asyncio.run(box.acall(later, 6)))
            print(box.call(lambda move: isinstance(move, Move), Move(1)))
            try:
                box.call(refuse, 9)
            except Illegal as illegal:
                print(illegal.args, illegal.reason)
    """)
    assert said == "True True\nTrue True\n6 7\nTrue\n(9, 'no such column') no such column\n"


@pytest.mark.parametrize("start", STARTS)
def test_one_that_is_not_named_is_refused_by_name(start: str) -> None:
    said = run_cells(f"""
        with sandtimer.Sandbox(timeout=20.0, start={start!r}) as box:
            try:
                box.call(lambda: Other())
            except sandtimer.ResultRefusedError as refusal:
                print("__main__.Other" in str(refusal), "results=" in str(refusal))
            try:
                box.call(refuse, 9)
            except sandtimer.RemoteError as error:
                print(error.type_name)
    """)
    assert said == "True True\n__main__.Illegal\n"


def test_functions_of_a_notebook_are_decorated() -> None:
    said = run_cells("""
        @sandtimer.sandboxed(timeout=20.0, results=[Move])
        def play(move):
            return play(Move(shift(move.column))) if move.column < 3 else move

        @sandtimer.sandboxed
        async def wait(column):
            return await later(column)

        print(play(Move(0)) == Move(3), asyncio.run(wait(1)))
    """)
    assert said == "True 2\n"


def test_methods_of_a_notebook_are_decorated() -> None:
    said = run_cells("""
        class Game:
            def __init__(self):
                self.moves = 1

            @sandtimer.sandboxed(timeout=20.0)
            def play(self, more):
                self.moves += more
                return self.moves

            @sandtimer.sandboxed(timeout=20.0)
            @classmethod
            def name(cls, mark):
                return cls.__name__ + mark

            @staticmethod
            @sandtimer.sandboxed(timeout=20.0)
            def twice(x):
                return 2 * x

        game = Game()
        print(game.play(2), game.moves, Game.name("!"), game.name("?"), Game.twice(3))
    """)
    assert said == "3 1 Game! Game? 6\n"


def test_classes_of_a_module_that_is_not_shown_come_back(tmp_path: pathlib.Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    source = "class Point:\n    def __init__(self, x):\n        self.x = x\ndef make(x):\n    return Point(x)\n"
    (tmp_path / "hidden_points.py").write_text(source)
    (tmp_path / "package" / "points.py").write_text("from . import scale\n" + source.replace("Point(x)", "Point(scale.up(x))"))
    (tmp_path / "package" / "scale.py").write_text("def up(x):\n    return x + 1\n")
    said = run_alone(f"""
        import sys

        sys.path.insert(0, {str(tmp_path)!r})
        import hidden_points, package.points
        del sys.path[0]
        with sandtimer.Sandbox(timeout=20.0, results=[hidden_points.Point, package.points.Point]) as box:
            points = box.call(hidden_points.make, 3), box.call(package.points.make, 3)
            print([(type(point).__module__, point.x) for point in points])
    """)
    assert said == "[('hidden_points', 3), ('package.points', 4)]\n"
