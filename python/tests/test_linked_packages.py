"""Packages that are symbolic links into a store, as uv, Nix and Bazel install them: calls import them inside."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import venv
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
def linked() -> Iterator[Path]:
    """A directory with a package and a module that are links, a package whose part is one, and a package of linked files."""
    # Every user may search it; pytest's own directories only their owner.
    base = Path(tempfile.mkdtemp(prefix="linked-", dir="/tmp"))
    base.chmod(0o755)
    store, site = base / "store", base / "site"
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
    shutil.rmtree(base)


def test_links_on_the_callers_path_are_found(linked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(linked))
    with sandtimer.Sandbox(timeout=30.0) as box:
        assert box.call(names) == ["package", "part", "module", "files"]
        # What lies next to where a link leads is not shown.
        secret = linked.parent / "store/b2/secret.py"
        assert box.call(os.path.exists, secret) is False and secret.exists()


CODE = """
import linked_files, linked_module, linked_package
from linked_package import part

[linked_package.NAME, part.NAME, linked_module.NAME, linked_files.NAME]
"""
NAMES = ["package", "part", "module", "files"]


def test_links_of_named_directories_are_found(linked: Path) -> None:
    with sandtimer.Sandbox(timeout=30.0, paths=[linked]) as box:
        outcome = box.exec(CODE)
        assert outcome.value == NAMES, outcome.stderr
        secret = linked.parent / "store/b2/secret.py"
        assert box.exec(f"import os; os.path.exists({str(secret)!r})").value is False and secret.exists()


def test_named_directory_does_not_show_private_files(linked: Path) -> None:
    private = linked.parent / "store/a1/linked_package/private.py"
    private.write_text("")
    private.chmod(0o600)
    closed = linked.parent / "closed"
    closed.mkdir(mode=0o700)
    (closed / "file").write_text("secret")
    (linked / "closed").symlink_to(closed)
    # A directory that every user may read, below one that only its owner may search.
    below = closed / "below"
    below.mkdir()
    (below / "file").write_text("secret")
    (linked / "below").symlink_to(below)
    with sandtimer.Sandbox(timeout=30.0, paths=[linked]) as box:
        for path in (private, closed / "file", below / "file"):
            outcome = box.exec(f"open({str(path)!r}).read()")
            assert outcome.ending == "raised", (path, outcome)


@pytest.mark.parametrize("named_by", ["link", "pth"])
def test_links_of_another_environment_are_found(linked: Path, tmp_path: Path, named_by: str) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = environment / "lib" / version / "site-packages"
    if named_by == "pth":
        (packages / "linked.pth").write_text(f"# a comment\n{linked}\nimport os\n")
    else:
        for each in linked.iterdir():
            (packages / each.name).symlink_to(each.resolve() if each.is_symlink() else each)
    with sandtimer.Sandbox(timeout=30.0, python=environment / "bin" / "python") as box:
        outcome = box.exec(CODE)
        assert outcome.value == NAMES, outcome.stderr


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_path_file_shows_nothing_below_private_directories(linked: Path, tmp_path: Path, mode: int) -> None:
    """A run may have written the environment. The control: every user may search all directories."""
    environment, above = tmp_path / "environment", linked.parent / "above"
    venv.create(environment, symlinks=True)
    below = above / "below"
    below.mkdir(parents=True)
    (below / "file").write_text("secret")
    above.chmod(mode)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = environment / "lib" / version / "site-packages"
    (packages / "below.pth").write_text(f"{below}\n")
    with sandtimer.Sandbox(timeout=30.0, python=environment / "bin" / "python") as box:
        outcome = box.exec(f"open({str(below / 'file')!r}).read()")
    assert (outcome.ending, outcome.value) == (("raised", None) if mode == 0o700 else ("returned", "secret"))


def test_path_files_of_one_directory_are_followed_once(linked: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = environment / "lib" / version / "site-packages"
    many = linked.parent / "many"
    many.mkdir(mode=0o755)
    for number in range(5_000):
        (many / f"file{number}").write_text("")
    for number in range(64):
        (packages / f"many{number}.pth").write_text(f"{many}\n" * 64)
    begun = time.monotonic()
    with sandtimer.Sandbox(timeout=60.0, python=environment / "bin" / "python") as box:
        assert box.exec("1 + 1").value == 2
    # Followed 4,096 times, it took minutes.
    assert time.monotonic() - begun < 40
