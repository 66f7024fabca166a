"""Types of the package as its users' checkers see them: typing/every_name.py uses every public name, and is checked strictly."""

from __future__ import annotations

import ast
import inspect
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

import pytest
import sandtimer
from sandtimer import adtools, jobs
from sandtimer.adtools import auto_server

ROOT = pathlib.Path(__file__).parents[2]
SAMPLE = ROOT / "python/tests/typing/every_name.py"
MODULES = (sandtimer, adtools, jobs, auto_server)
# Words that are none of those of their parameters, options without their names, and a name that the
# package does not have.
WRONG = """
# pyright: strict
import sandtimer

box = sandtimer.Sandbox(start="thread")
box = sandtimer.Sandbox(trust="everything")
box = sandtimer.Sandbox(stdout="print")
box = sandtimer.Sandbox(1.0, 2.0)
error = sandtimer.JobUnknown
"""


def mypy(file: pathlib.Path, tmp_path: pathlib.Path) -> subprocess.CompletedProcess[str]:
    settings = ["--config-file", str(ROOT / "python/pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]
    return checked([sys.executable, "-m", "mypy", *settings, str(file)], {"MYPYPATH": package_parent()})


def pyright(file: pathlib.Path, tmp_path: pathlib.Path) -> subprocess.CompletedProcess[str]:
    modules = pathlib.Path(os.environ.get("SANDTIMER_TEST_NPM") or ROOT / "target/npm/node_modules")
    assert shutil.which("node") is not None, "there is no node, which pyright needs: apt-get install nodejs npm"
    assert (modules / "pyright").is_dir(), f"{modules} has no pyright: cargo xtask python installs it"
    return checked(["node", str(modules / "pyright/index.js"), "--pythonpath", sys.executable, str(file)], {})


def package_parent() -> str:
    """The directory of the package if it is not an installed one, which mypy finds by itself."""
    parent = pathlib.Path(sandtimer.__file__).parent.parent
    return "" if parent.name == "site-packages" else str(parent)


def checked(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, **environment})


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_sample_is_clean(checker: Any, tmp_path: pathlib.Path) -> None:
    done = checker(SAMPLE, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_wrong_words_and_missing_names_are_found(checker: Any, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG, encoding="utf-8")
    done = checker(file, tmp_path)
    lines = [line for line in done.stdout.splitlines() if "error" in line and "wrong.py:" in line]
    for number in (5, 6, 7, 8, 9):
        assert any(f"wrong.py:{number}:" in line for line in lines), done.stdout + done.stderr


def public_names() -> set[str]:
    """Every name of `__all__`, and every public member of the classes among them."""
    names = set()
    for module in MODULES:
        for name in module.__all__:
            names.add(name)
            thing = getattr(module, name)
            if isinstance(thing, type) and thing is not adtools.ExecutionResults:
                members = vars(thing).items()
                names |= {name for name, value in members if not name.startswith("_") and is_own(value)}
    return names


def is_own(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, property)


def test_sample_uses_every_public_name() -> None:
    tree = ast.parse(SAMPLE.read_text(encoding="utf-8"))
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, (ast.FunctionDef, ast.alias)):
            used.add(node.name)
    assert public_names() - used == set()
