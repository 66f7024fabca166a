"""The package as it is installed: what it exports, and what its exceptions are besides."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re

import pytest

import sandtimer
from sandtimer import _sandtimer, errors


def test_the_installed_package_is_tested() -> None:
    assert pathlib.Path(__file__).parent.parent not in pathlib.Path(sandtimer.__file__).parents


# Group, name and object, as other programs find them.
ENTRY_POINTS = [
    ("pytest11", "sandtimer", "sandtimer.integrations.pytest"),
    (
        "jupyter_client.kernel_provisioners",
        "sandtimer-provisioner",
        "sandtimer.integrations.jupyter:SandtimerProvisioner",
    ),
]


@pytest.mark.parametrize(("group", "name", "value"), ENTRY_POINTS)
def test_an_entry_point_is_declared(group: str, name: str, value: str) -> None:
    project = (pathlib.Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    table = re.search(rf'^\[project\.entry-points\."?{re.escape(group)}"?\]\n((?:[^\[\n].*\n)+)', project, re.MULTILINE)
    assert table is not None and f'{name} = "{value}"' in table[1].splitlines()


@pytest.mark.parametrize(("group", "name", "value"), ENTRY_POINTS)
def test_an_entry_point_is_installed(group: str, name: str, value: str) -> None:
    parent = pathlib.Path(sandtimer.__file__).parents[1]
    if parent.name != "site-packages":
        pytest.skip(f"the package in {parent} is a copy without metadata: only an installed package has entry points")
    points = importlib.metadata.distribution("sandtimer").entry_points
    assert [each.value for each in points if (each.group, each.name) == (group, name)] == [value]


def test_it_is_typed() -> None:
    package = pathlib.Path(sandtimer.__file__).parent
    assert (package / "py.typed").is_file()
    assert (package / "_sandtimer.pyi").is_file()


def test_it_exports_what_it_names() -> None:
    for name in sandtimer.__all__:
        assert hasattr(sandtimer, name), name
    assert sandtimer.__version__ == _sandtimer.__version__


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (errors.DeadlineExceeded, TimeoutError),
        (errors.OutOfMemory, MemoryError),
        (errors.UnserializableError, TypeError),
        (errors.InvalidArgumentError, ValueError),
        (errors.InvalidArgumentTypeError, TypeError),
        (errors.InvalidLimitError, ValueError),
        (errors.UnsupportedPlatform, OSError),
        (errors.NoResultError, errors.Crashed),
        (errors.JobSpecRefusedError, ValueError),
        (errors.JobNotFoundError, LookupError),
        (errors.JobStoreFullError, OSError),
        (errors.JobStillRunningError, TimeoutError),
        (errors.ServerUnreachableError, ConnectionError),
        (errors.ServerUnauthorizedError, PermissionError),
        (errors.ServerNotFoundError, LookupError),
        (errors.ServerLimitRefusedError, errors.InvalidLimitError),
    ],
)
def test_an_exception_is_also_the_one_a_caller_expects(
    ours: type[Exception], theirs: type[Exception]
) -> None:
    assert issubclass(ours, errors.SandtimerError)
    assert issubclass(ours, theirs)


def test_every_exception_of_the_module_is_exported_and_one_of_ours() -> None:
    classes = [each for each in vars(errors).values() if getattr(each, "__module__", None) == errors.__name__]
    assert len(classes) > 10
    for each in classes:
        assert issubclass(each, errors.SandtimerError)
        assert getattr(sandtimer, each.__name__) is each


def test_every_exception_but_the_listed_ones_ends_in_error() -> None:
    classes = [each for each in vars(errors).values() if getattr(each, "__module__", None) == errors.__name__]
    without = {each.__name__ for each in classes if not each.__name__.endswith("Error")}
    assert without == {"Cancelled", "CircuitOpen", "Crashed", "DeadlineExceeded", "OutOfMemory", "UnsupportedPlatform"}


def test_a_remote_error_shows_the_remote_traceback() -> None:
    error = errors.RemoteError("game.Lost", "no move left", "Traceback (remote)")
    assert (error.type_name, error.message, error.remote_traceback) == (
        "game.Lost",
        "no move left",
        "Traceback (remote)",
    )
    assert str(error) == "game.Lost: no move left\n\nTraceback (remote)"
    assert str(errors.RemoteError("game.Lost", "")) == "game.Lost"
