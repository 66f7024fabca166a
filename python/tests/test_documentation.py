"""Every public name is documented in Google's style, and its example runs as it is written.

Each function, method, class and exception has a docstring with `Args:` for its parameters and `Examples:`; dataclasses have
`Attributes:`. A property needs only a docstring: the example is that of its class. So does an awaited form ("Awaited form of
`run`."), which has the parameters of the other one.
"""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import pathlib
import re
import urllib.request
from typing import Any, Iterator, NamedTuple

import pytest
import sandtimer
from sandtimer import adtools, jobs
from sandtimer.adtools import auto_server

MODULES = (sandtimer, adtools, jobs, auto_server)
NAMES = [(module, name) for module in MODULES for name in module.__all__ if name not in ("__version__", "jobs")]
SECTION = re.compile(r"^ *(Args|Attributes|Returns|Yields|Raises|Examples):$", re.MULTILINE)
AWAITED = re.compile(r"Awaited form of `(\w+)`")


def label(each: Any) -> str:
    return getattr(each, "__name__", each)


class Documented(NamedTuple):
    name: str
    value: Any
    # The class of a method.
    owner: Any = None

    def text(self) -> str:
        value = self.value.fget if isinstance(self.value, property) else self.value
        return inspect.cleandoc(getattr(value, "__doc__", None) or "")

    def section(self, title: str) -> str:
        """The lines of a section, or ""."""
        parts = SECTION.split(self.text())
        return dict(zip(parts[1::2], parts[2::2])).get(title, "")

    def parameters(self) -> list[str]:
        """Those that a caller gives; what begins with an underscore is internal."""
        if isinstance(self.value, type):
            if issubclass(self.value, BaseException) and "__init__" not in vars(self.value):
                return []
            if dataclasses.is_dataclass(self.value) or not made_by_callers(self.value):
                return []
        try:
            parameters = inspect.signature(self.value).parameters.values()
        except ValueError:
            return []
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        names = [stars.get(each.kind, "") + each.name for each in parameters]
        return [name for name in names if name != "self" and not name.startswith("_")]


# Classes that others make.
NOT_MADE = (
    sandtimer.CallFuture,
    sandtimer.ClientContext,
    sandtimer.ClientFiles,
    sandtimer.ClientJudgement,
    sandtimer.ClientRun,
    sandtimer.ClientSandbox,
    sandtimer.ClientWorkspace,
    sandtimer.Context,
    sandtimer.Outcome,
    sandtimer.Retry,
    adtools.ExecutionResults,
)


def made_by_callers(kind: type) -> bool:
    return kind not in NOT_MADE and not (issubclass(kind, sandtimer.SandtimerError) and kind is not sandtimer.RemoteError)


def documented(module: Any, name: str) -> Iterator[Documented]:
    """A public name and the public members of a class."""
    thing = getattr(module, name)
    yield Documented(name, thing)
    if isinstance(thing, type) and thing is not adtools.ExecutionResults:
        for member, value in vars(thing).items():
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                yield Documented(f"{name}.{member}", value, thing)


def problems(each: Documented) -> list[str]:
    text = each.text()
    if not text:
        return ["it has no docstring"]
    if isinstance(each.value, property):
        return []
    awaited = AWAITED.match(text)
    if awaited:
        return awaited_problems(each, awaited[1])
    found = [f"`Args:` has no {name!r}" for name in each.parameters() if f"\n    {name}: " not in each.section("Args")]
    if dataclasses.is_dataclass(each.value):
        own = [name for name in vars(each.value).get("__annotations__", {}) if not name.startswith("_")]
        found += [f"`Attributes:` has no {name!r}" for name in own if f"\n    {name}: " not in each.section("Attributes")]
    if ">>> " not in each.section("Examples"):
        found.append("it has no `Examples:`")
    return found


def awaited_problems(each: Documented, other: str) -> list[str]:
    function = getattr(each.owner or inspect.getmodule(each.value), other, None)
    if function is None and inspect.ismethod(each.value):
        function = getattr(each.value.__self__, other, None)
    if function is None:
        return [f"there is no {other!r}"]
    ours, theirs = (list(inspect.signature(each).parameters) for each in (each.value, function))
    return [] if ours == theirs else [f"its parameters are {ours}, and those of {other} {theirs}"]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=label)
def test_public_name_is_documented(module: Any, name: str) -> None:
    assert {each.name: found for each in documented(module, name) if (found := problems(each))} == {}


def test_names_of_ray_are_documented() -> None:
    ray = pytest.importorskip("sandtimer.ray", reason="Ray is not installed")
    found = {each.name: problems(each) for name in ray.__all__ for each in documented(ray, name)}
    assert {name: each for name, each in found.items() if each} == {}


def test_public_names_are_on_pages_of_the_reference() -> None:
    pages = pathlib.Path(__file__).parents[2] / "docs/reference/python"
    listed = {name for page in pages.glob("*.md") for name in re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.MULTILINE)}
    # The functions of `jobs` are methods of `Jobs`.
    expected = {f"{module.__name__}.{name}" for module, name in NAMES if not inspect.ismethod(getattr(module, name))}
    ray = {f"sandtimer.ray.{name}" for name in ("Pool", "initialize", "sandbox")}
    assert listed == expected | ray


@pytest.mark.parametrize(("module", "name"), NAMES, ids=label)
def test_examples_run(
    module: Any,
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    if name.startswith(("Client", "Server", "OutputChunk", "RunEvent")):
        monkeypatch.setenv("SANDTIMER_SERVER", request.getfixturevalue("server"))
    for each in documented(module, name):
        # A store of its own, so that none has the jobs of another.
        monkeypatch.setenv("SANDTIMER_STATE_DIR", str(tmp_path / each.name))
        # Without names of the module, as a reader meets it.
        for test in doctest.DocTestFinder(recurse=False).find(each.value, each.name, module=False, globs={}):
            failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
            assert failed == 0, test.name


def undocumented() -> None:
    pass


def without_example(number: int) -> int:
    """Returns it.

    Args:
        number: It.
    """
    return number


def without_parameter(number: int) -> int:
    """Returns it.

    Examples:
        >>> 1
        1
    """
    return number


async def of_nothing() -> None:
    """Awaited form of `nothing_at_all`."""


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (undocumented, "no docstring"),
        (without_example, "no `Examples:`"),
        (without_parameter, "`Args:` has no 'number'"),
        (of_nothing, "there is no 'nothing_at_all'"),
    ],
    ids=label,
)
def test_missing_part_is_found(function: Any, problem: str) -> None:
    (found,) = problems(Documented(function.__name__, function))
    assert problem in found


def test_page_lists_every_metric_of_a_server(server: str) -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs/reference/metrics.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(sandtimer_\w+)` \| (\w+) \|", page, re.MULTILINE))
    with urllib.request.urlopen(f"{server}/metrics", timeout=30) as answer:
        served = dict(re.findall(r"^# TYPE (\w+) (\w+)$", answer.read().decode(), re.MULTILINE))
    assert shown == served
