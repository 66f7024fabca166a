"""Where this interpreter's modules are installed: the standard library, and what pip installs. They do not change while a program runs."""

from __future__ import annotations

import functools
import os
import site
import sysconfig
from typing import Iterable


# Once: `sysconfig` takes half a millisecond.
@functools.lru_cache(maxsize=None)
def directories() -> frozenset[str]:
    """The directories of installed modules, as they are named and without links."""
    known = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    known += [sysconfig.get_config_var("DESTSHARED"), site.getusersitepackages(), *site.getsitepackages()]
    return frozenset(path for each in known if each for path in (each, os.path.realpath(each)))


@functools.lru_cache(maxsize=None)
def _libraries() -> frozenset[str]:
    """The directories in which those lie."""
    return frozenset(os.path.dirname(os.path.realpath(each)) for each in directories())


def is_within(file: str) -> bool:
    """Whether an absolute path leads to a file of installed modules, or of this package."""
    return file.startswith(_beginnings())


@functools.lru_cache(maxsize=None)
def _beginnings() -> tuple[str, ...]:
    package = os.path.dirname(os.path.dirname(__file__))
    return tuple(os.path.join(each, "") for each in {*directories(), package, os.path.realpath(package)})


def of_installed(paths: Iterable[str]) -> list[str]:
    """Those of these absolute paths that belong to the interpreter's installation."""

    def is_installed(path: str) -> bool:
        parent, name = os.path.split(path)
        if name in ("site-packages", "dist-packages") or os.path.realpath(path) in directories():
            return True
        return name.startswith("python3") and name.endswith(".zip") and os.path.realpath(parent) in _libraries()

    return [path for path in paths if is_installed(path)]
