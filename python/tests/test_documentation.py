"""Public names say what they are, and their examples run as they are written."""

from __future__ import annotations

import doctest
import inspect
import pathlib
from typing import Any

import pytest
import sandtimer
from sandtimer import adtools, jobs

NAMES = [(module, name) for module in (sandtimer, adtools, jobs) for name in module.__all__ if name != "__version__"]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda each: getattr(each, "__name__", each))
def test_examples_run(
    module: Any,
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
) -> None:
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(tmp_path))
    if name.startswith(("Client", "Server")):
        monkeypatch.setenv("SANDTIMER_SERVER", request.getfixturevalue("server"))
    finder = doctest.DocTestFinder()
    for test in finder.find(getattr(module, name), name, globs={}):
        # Each is alone, as a reader meets it.
        test.globs = {}
        failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        assert failed == 0, test.name


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda each: getattr(each, "__name__", each))
def test_everything_public_is_described(module: Any, name: str) -> None:
    thing = getattr(module, name)
    assert thing.__doc__
    for member, value in vars(thing).items() if isinstance(thing, type) else ():
        if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            assert inspect.getdoc(value), f"{name}.{member}"
