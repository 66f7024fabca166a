"""Packages that are symbolic links into a store, as uv, Nix and Bazel install them: calls import them inside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest
import sandtimer

def names() -> list[str]:
    import linked_files  # type: ignore[import-not-found]
    import linked_module  # type: ignore[import-not-found]
    import linked_package  # type: ignore[import-not-found]
    from linked_package import part

    return [linked_package.NAME, part.NAME, linked_module.NAME, linked_files.NAME]


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[Path]:
    """A directory with a package and a module that are links, a package whose part is one, and a package of linked files."""
    tmp_path.chmod(0o755)
    store, site = tmp_path / "store", tmp_path / "site"
    for directory in (store / "a1/linked_package", store / "b2", store / "c3", store / "d4/linked_files", site / "linked_files"):
        directory.mkdir(parents=True)
    (store / "a1/linked_package/__init__.py").write_text("NAME = 'package'\n")
    (store / "b2/linked_module.py").write_text("NAME = 'module'\n")
    (store / "b2/secret.py").write_text("")
    (store / "c3/part.py").write_text("NAME = 'part'\n")
    (store / "d4/linked_files/__init__.py").write_text("from .name import NAME\n")
    (store / "d4/linked_files/name.py").write_text("NAME = 'files'\n")
    (store / "a1/linked_package/part.py").symlink_to(store / "c3/part.py")
    (site / "linked_package").symlink_to(store / "a1/linked_package")
    (site / "linked_module.py").symlink_to(os.path.relpath(store / "b2/linked_module.py", site))
    for each in (store / "d4/linked_files").iterdir():
        (site / "linked_files" / each.name).symlink_to(each)
    yield site


def test_links_on_the_callers_path_are_found(linked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(linked))
    with sandtimer.Sandbox(timeout=30.0) as box:
        assert box.call(names) == ["package", "part", "module", "files"]
        # What lies next to where a link leads is not shown.
        secret = linked.parent / "store/b2/secret.py"
        assert box.call(os.path.exists, secret) is False and secret.exists()
