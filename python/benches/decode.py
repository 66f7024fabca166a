"""How long rebuilding a result takes beside `pickle.loads` of the same bytes, the best of seven, interleaved.

Run it where the package is installed in its release build: python python/benches/decode.py
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import gc
import pickle
import random
import time

from sandtimer import _results, _sandtimer

BOUNDS = _results.bounds(None, None, 0)


@dataclasses.dataclass
class Point:
    x: int
    y: float
    name: str


Pair = collections.namedtuple("Pair", "a b")
source = random.Random(1)
cases = {
    "100k floats": [source.random() for _ in range(100_000)],
    "100k small ints": [source.randrange(256) for _ in range(100_000)],
    "100k ints": [source.randrange(2**31) for _ in range(100_000)],
    "100k big ints": [source.randrange(2**100) for _ in range(100_000)],
    "100k strings": [f"string {i}" for i in range(100_000)],
    "dict 100k str->int": {f"key{i}": i for i in range(100_000)},
    "10k dicts of 10 str": [{f"k{j}": f"v{i}{j}" for j in range(10)} for i in range(10_000)],
    "100k tuples (2)": [(i, 1.5) for i in range(100_000)],
    "100k lists (2)": [[i, 1.5] for i in range(100_000)],
    "100k float keys": {source.random(): i for i in range(100_000)},
    "100k tuple keys": {(i, i + 1): i for i in range(100_000)},
    "set 100k int": set(range(100_000)),
    "50k datetimes": [datetime.datetime(2020, 1, 1) + datetime.timedelta(i) for i in range(50_000)],
    "50k dataclasses": [Point(i, 1.0, "n") for i in range(50_000)],
    "50k namedtuples": [Pair(i, 1.0) for i in range(50_000)],
    "100 MB bytes": b"x" * 100_000_000,
}
results = {(__name__, "Point"): Point, (__name__, "Pair"): Pair}


def best(*functions, n=7):
    seconds = [[] for _ in functions]
    for _ in range(n):
        for function, taken in zip(functions, seconds):
            gc.collect()
            start = time.perf_counter()
            value = function()
            taken.append(time.perf_counter() - start)
            del value
    return map(min, seconds)


for name, value in cases.items():
    data = pickle.dumps(value, 5)
    assert _sandtimer.decode(data, [], results, BOUNDS) == value
    theirs, ours = best(
        lambda: pickle.loads(data), lambda: _sandtimer.decode(data, [], results, BOUNDS)
    )
    print(f"{name:22} loads {theirs * 1e3:8.2f} ms  decode {ours * 1e3:8.2f} ms  ratio {ours / theirs:.2f}")
