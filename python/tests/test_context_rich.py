"""What contexts show beside text: figures, tables, charts. In this process, and over HTTP."""

from __future__ import annotations

import base64
import contextlib
import importlib.metadata
import os
import pathlib
import struct
import sys
import zlib
from typing import Any, Callable, Iterator
from unittest import mock

import pytest
import sandtimer
from serving import Serving

for needed in ("matplotlib", "pandas"):
    try:
        importlib.metadata.version(needed)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{needed} is not installed", allow_module_level=True)

PNG = "image/png"
TABLE = "application/vnd.dataresource+json"
PLOTLY = "application/vnd.plotly.v1+json"
VEGA = "application/vnd.vegalite.v5+json"
# It does not hear the interrupt before its wall.
DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose `python3` is the interpreter of these tests."""
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with mock.patch.dict(os.environ, {"PATH": path}):
        serving = Serving(tmp_path_factory.mktemp("rich"))
    yield serving.url
    serving.stop()


@contextlib.contextmanager
def opened(where: str, url: str) -> Iterator[Any]:
    if where == "sandbox":
        with sandtimer.Sandbox(timeout=120.0) as box, box.context("python") as ctx:
            yield ctx
    else:
        with sandtimer.Client(url).context("python", timeout=120.0) as ctx:
            yield ctx


@pytest.fixture(scope="module", params=["sandbox", "server"])
def run(request: pytest.FixtureRequest, serving: str) -> Iterator[Run]:
    """Runs code in one context, and gives the outcome of what has to succeed in silence."""
    with opened(request.param, serving) as ctx:

        def run(code: str) -> Any:
            outcome = ctx.run(code)
            assert (outcome.ok, outcome.stderr, outcome.state) == (True, "", "kept"), outcome
            return outcome

        run("from matplotlib import pyplot as plt\nimport numpy as np\nimport pandas as pd")
        yield run


def size(picture: str) -> tuple[int, int]:
    """Of a PNG in base64 that is whole: each of its parts has its sum, and its pixels are as many as it says."""
    data = base64.b64decode(picture, validate=True)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, []
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.pack(">I", zlib.crc32(kind + body)) == data[at + 8 + length : at + 12 + length]
        parts.append((kind, body))
        at += 12 + length
    assert (parts[0][0], parts[-1]) == (b"IHDR", (b"IEND", b""))
    width, height, depth, colour = struct.unpack(">IIBB", parts[0][1][:10])
    pixels = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    assert (depth, colour, len(pixels)) == (8, 6, height * (1 + 4 * width))
    return width, height


# Values


def test_numpy_scalars_have_their_value(run: Run) -> None:
    for code, value in (
        ("np.int64(3)", 3),
        ("np.bool_(True)", True),
        ("np.float32(1.5)", 1.5),
        ("np.float64(2.5)", 2.5),
        ("np.str_('a')", "a"),
        ("[np.int8(1), {'a': np.float64(0.5)}]", [1, {"a": 0.5}]),
    ):
        outcome = run(code)
        assert outcome.value == value and type(outcome.value) is type(value), code
    for code in ("np.float64('nan')", "np.datetime64('2020-01-01T00:00:00.000000001')", "np.array([1])", "np.complex64(1j)"):
        assert "application/json" not in run(code).results[-1], code


# Figures


def test_a_figure_that_is_left_open_is_shown_once(run: Run) -> None:
    outcome = run("plt.plot([1, 3, 2]);")
    (shown,) = outcome.results
    assert set(shown) == {"text/plain", PNG} and shown["text/plain"].startswith("<Figure size 640x480")
    width, height = size(shown[PNG])
    # 6.4 by 4.8 inches, without their margins.
    assert 400 < width <= 700 and 300 < height <= 530
    assert run("plt.get_fignums()").results == [{"text/plain": "[]", "application/json": []}]


def test_figures_come_in_their_order_before_the_last_value(run: Run) -> None:
    outcome = run("for inches in (2, 4):\n    plt.figure(figsize=(inches, 2)); plt.plot([1])\n'last'")
    first, second, last = outcome.results
    assert size(first[PNG])[0] < size(second[PNG])[0] and last["application/json"] == "last" == outcome.value
    assert run("None").results == []


def test_showing_does_no_harm(run: Run) -> None:
    (shown,) = run("plt.plot([1, 2])\nplt.show()").results
    assert PNG in shown


@pytest.mark.parametrize("make", ["plt.figure()", "__import__('matplotlib.figure').figure.Figure()"])
def test_a_figure_as_the_last_expression_is_shown_once(run: Run, make: str) -> None:
    (shown,) = run(f"figure = {make}\nfigure.add_subplot().plot([1, 2])\nfigure").results
    assert size(shown[PNG]) > (400, 300) and shown["text/plain"].startswith("<Figure size 640x480 with 1 Axes")
    assert run("plt.get_fignums()").value == []


@pytest.mark.parametrize("where", ["sandbox", "server"])
def test_a_figure_that_cannot_be_drawn_costs_its_own_cell_only(serving: str, where: str) -> None:
    with opened(where, serving) as ctx:
        outcome = ctx.run("from matplotlib import pyplot as plt\nplt.title(r'$\\frac{$');")
        assert (outcome.ending, outcome.state) == ("raised", "kept") and "frac" in str(outcome.error)
        assert ctx.run("1 + 1").value == 2
        raised = ctx.run("plt.plot([1, 2])\n1 / 0")
        assert raised.ending == "raised" and [PNG in shown for shown in raised.results] == [True]


# Tables


def test_a_table_comes_as_text_as_html_and_as_data(run: Run) -> None:
    outcome = run("""
table = pd.DataFrame({'name': ['a', None], 'n': [1, 2], 'x': [0.5, float('nan')], 'day': pd.to_datetime(['2024-01-02', '2024-01-03'])})
table
""")
    (shown,) = outcome.results
    assert set(shown) == {"text/plain", "text/html", TABLE}
    assert "2024-01-02" in shown["text/plain"] and "<table" in shown["text/html"]
    schema, rows = shown[TABLE]["schema"], shown[TABLE]["data"]
    kinds = {field["name"]: field["type"] for field in schema["fields"]}
    assert {name: kinds[name] for name in ("index", "n", "x", "day")} == {
        "index": "integer",
        "n": "integer",
        "x": "number",
        "day": "datetime",
    }
    assert [{**row, "day": row["day"][:10]} for row in rows] == [
        {"index": 0, "name": "a", "n": 1, "x": 0.5, "day": "2024-01-02"},
        {"index": 1, "name": None, "n": 2, "x": None, "day": "2024-01-03"},
    ]
    assert schema["primaryKey"] == ["index"]


def test_a_column_is_a_table_of_one(run: Run) -> None:
    (shown,) = run("pd.Series([1, 2], index=['a', 'b'], name='n')").results
    assert shown["text/plain"].splitlines()[0].split() == ["a", "1"]
    assert shown[TABLE]["data"] == [{"index": "a", "n": 1}, {"index": "b", "n": 2}]


def test_tables_are_displayed_where_the_code_says(run: Run) -> None:
    outcome = run("display(pd.DataFrame({'a': [1]}), pd.DataFrame({'a': [2]}))\nplt.plot([1])\npd.DataFrame({'a': [3]})")
    assert [shown.get(TABLE, {}).get("data") for shown in outcome.results] == [
        [{"index": 0, "a": 1}],
        [{"index": 0, "a": 2}],
        None,
        [{"index": 0, "a": 3}],
    ]
    assert PNG in outcome.results[2]


def test_of_a_long_table_the_first_rows_are_data(run: Run) -> None:
    (shown,) = run("pd.DataFrame({'a': np.arange(3_000_000), 'b': 1})").results
    assert "[3000000 rows x 2 columns]" in shown["text/plain"]
    assert [row["a"] for row in shown[TABLE]["data"]] == list(range(33_333))
    # The most values that as many cells can have.
    (shown,) = run("pd.DataFrame({'a': [str(each) for each in range(100_000)]})").results
    assert [row["a"] for row in shown[TABLE]["data"]] == [str(each) for each in range(50_000)]
    assert "application/vnd.sandtimer.notice" not in shown


@pytest.mark.parametrize("columns", ["['a', 'a']", "pd.MultiIndex.from_tuples([('a', 'b'), ('a', 'c')])"])
def test_a_table_that_has_no_such_form_has_its_text(run: Run, columns: str) -> None:
    (shown,) = run(f"pd.DataFrame([[1, 2]], columns={columns})").results
    assert set(shown) == {"text/plain", "text/html"}


# Charts, and what else says how it is shown


def test_charts_of_other_libraries_pass_whole(run: Run) -> None:
    chart = {"data": [{"type": "bar", "y": [1, 2.5, None], "nested": {"deep": [[{"a": "ü"}]]}}], "layout": {"title": {"text": "t"}}}
    vega = {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "mark": "bar", "data": {"values": [{"a": "x", "b": 28}]}}
    bundle = {PLOTLY: chart, VEGA: vega, PNG: b"\x89P", "text/html": "<b>"}
    code = "class Chart:\n    def __repr__(self): return 'a chart'\n    def _repr_mimebundle_(self{}): return {!r}{}\ndisplay(Chart())\nChart()"
    wanted = {"text/plain": "a chart", **bundle, PNG: "iVA="}
    # As notebooks call it, as simple classes have it, and with metadata.
    for parameters, more in [(", include, exclude", ""), ("", ""), (", *args, **kwargs", ", {'meta': 1}")]:
        assert run(code.format(parameters, bundle, more)).results == [wanted, wanted], parameters


def test_what_is_no_json_costs_only_itself(run: Run) -> None:
    (shown,) = run(f"""
class Chart:
    def __repr__(self): return 'a chart'
    def _repr_mimebundle_(self): return {{{VEGA!r}: {{'n': 1}}, {PLOTLY!r}: {{'n': np.float32(1)}}, 'application/x': float('inf'), 'application/y': {{1}}}}
Chart()
""").results
    assert shown == {"text/plain": "a chart", VEGA: {"n": 1}, PLOTLY: {"n": 1.0}}


def test_every_way_of_being_shown(run: Run) -> None:
    ways = {
        "html": ("text/html", "'<b>'", "<b>"),
        "markdown": ("text/markdown", "'*b*'", "*b*"),
        "latex": ("text/latex", "'$b$'", "$b$"),
        "svg": ("image/svg+xml", "'<svg/>'", "<svg/>"),
        "png": ("image/png", "b'\\x89P'", "iVA="),
        "jpeg": ("image/jpeg", "b'\\xff\\xd8'", "/9g="),
        "pdf": ("application/pdf", "b'%PDF'", "JVBERg=="),
        "json": ("application/json", "{'a': [1]}", {"a": [1]}),
    }
    methods = "\n".join(f"    def _repr_{name}_(self): return {said}" for name, (_, said, _) in ways.items())
    outcome = run(f"class Shown:\n    def __repr__(self): return 'shown'\n{methods}\ndisplay(Shown())\nShown()")
    wanted = {"text/plain": "shown", **{kind: data for kind, _, data in ways.values()}}
    assert outcome.results == [wanted, wanted] and outcome.value == {"a": [1]}


# State


@pytest.mark.parametrize("where", ["sandbox", "server"])
def test_importing_them_is_silent_and_leaves_a_checkpoint(serving: str, where: str) -> None:
    with opened(where, serving) as ctx:
        outcome = ctx.run(
            "import numpy as np, pandas as pd\nfrom matplotlib import pyplot as plt\n"
            "plt.plot(np.ones((300, 300)) @ np.ones((300, 300)))\nplt.close()\ntable = pd.DataFrame({'a': ['x', 'y']})"
        )
        assert (outcome.ok, outcome.stdout, outcome.stderr, outcome.results) == (True, "", "", [])
        ended = ctx.run(f"table = None\n{DEAF}", timeout=1.0)
        assert (ended.ending, ended.state) == ("timeout", "rolled_back"), ended
        assert ctx.run("list(table['a'].str.upper())").value == ["X", "Y"]


def test_threads_that_a_library_does_start_are_said(serving: str) -> None:
    with opened("sandbox", serving) as ctx:
        ctx.run("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\nimport pandas")
        ended = ctx.run(DEAF, timeout=1.0)
        assert (ended.ending, ended.state) == ("timeout", "reset")
        assert ctx.run("'pandas' in globals()").value is False


def test_what_pandas_imports_can_be_preloaded() -> None:
    with sandtimer.Sandbox(timeout=30.0, preload=["pandas", "matplotlib.pyplot"]) as box, box.context() as ctx:
        assert box.call(eval, "'pandas' in __import__('sys').modules") is True
        (shown,) = ctx.run("import pandas\npandas.DataFrame({'a': [1]})").results
        assert shown[TABLE]["data"] == [{"index": 0, "a": 1}]
