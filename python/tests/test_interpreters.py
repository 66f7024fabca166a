"""Interpreters in environments as the usual tools lay them out: each finds its own modules, and nothing else is shown."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import venv
from typing import Any

import pytest
import sandtimer

LIBRARY = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}"


def add_module(environment: pathlib.Path, where: str = f"{LIBRARY}/site-packages") -> None:
    (environment / where / "of_this_one.py").write_text("name = 'its own'\n")
    (environment / ".secret").write_text("not for jobs")


def seen(python: Any) -> tuple[str, str, list[str]]:
    """What a call in it finds: its prefix, what its own module says, and the names beside its programs."""
    program = "import os, sys, of_this_one, ssl, ctypes\n(sys.prefix, of_this_one.name, sorted(os.listdir(sys.prefix)))"
    with sandtimer.Sandbox(python=python, timeout=30.0) as box:
        outcome = box.exec(program)
        assert outcome.error is None, outcome.error
        return outcome.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("relative", [False, True], ids=["absolute", "relative"])
def test_an_environment_of_venv(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, relative: bool) -> None:
    made = tmp_path / "made"
    venv.create(made, symlinks=True, with_pip=False)
    add_module(made)
    monkeypatch.chdir(tmp_path)
    prefix, name, names = seen("made/bin/python" if relative else made / "bin/python")
    assert (prefix, name) == (str(made), "its own")
    assert ".secret" not in names


def test_a_lambda_in_an_environment_without_cloudpickle_says_what_it_needs(tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    venv.create(made, symlinks=True, with_pip=False)
    with sandtimer.Sandbox(python=made / "bin/python", timeout=30.0) as box:
        with pytest.raises(sandtimer.UnserializableError) as caught:
            box.call(lambda: 1)
        assert box.call(abs, -1) == 1
    said = str(caught.value)
    assert "are sent with their code" in said and f"{made}/bin/python; it has no cloudpickle" in said and "put the function" in said
    assert "not shown" not in said


def test_a_lambda_for_another_python_says_both_versions() -> None:
    from sandtimer import _results

    error = _results.rejection(("module", "cloudpickle"), lambda: ("/opt/python3.9", "3.9.18"))
    assert "/opt/python3.9; that is Python 3.9 instead of {}.{}".format(*sys.version_info) in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    # Any other module, and this interpreter's own cloudpickle, may be where nothing is shown.
    for name, other in (("board", ("/opt/python3.9", "3.9.18")), ("cloudpickle", None)):
        error = _results.rejection(("module", name), lambda other=other: other)  # type: ignore[misc]
        assert f"the module {name}, which cannot be imported inside" in str(error)


def test_a_lambda_for_another_cloudpickle_says_which_one_it_needs(tmp_path: pathlib.Path) -> None:
    import cloudpickle

    made = tmp_path / "made"
    venv.create(made, symlinks=True, with_pip=False)
    packages = next(made.glob("lib/python3*/site-packages"))
    # As an older one, which has other functions.
    (packages / "cloudpickle").mkdir()
    (packages / "cloudpickle/__init__.py").write_text("from .cloudpickle import *\n__version__ = '0.1'\n")
    (packages / "cloudpickle/cloudpickle.py").write_text("")

    def fails() -> None:
        raise AttributeError("of its own, about cloudpickle")

    with sandtimer.Sandbox(python=made / "bin/python", timeout=30.0) as box:
        with pytest.raises(sandtimer.UnserializableError, match=f"install cloudpickle=={cloudpickle.__version__} there") as caught:
            box.call(lambda: 1)
        assert f"{made}/bin/python has another one" in str(caught.value) and caught.value.outcome.ending == "raised"
        assert box.call(abs, -1) == 1
    with sandtimer.Sandbox(timeout=30.0) as box:
        with pytest.raises(AttributeError, match="of its own"):
            box.call(fails)


def test_code_for_another_python_says_both_versions_when_it_is_not_read() -> None:
    from sandtimer import _results

    ours = "{}.{}".format(*sys.version_info)
    wrong = TypeError("code expected at most 16 arguments, got 18")
    wrong.__cause__ = _results.RemoteTraceback("TypeError: code expected at most 16 arguments, got 18")
    error = _results.explain_unread_code(wrong, "raised", "/opt/python3.9", "3.9.18")
    assert isinstance(error, sandtimer.UnserializableError) and f"as here ({ours}), and /opt/python3.9 is Python 3.9" in str(error)
    crashed = sandtimer.Crashed("the process was ended by SIGSEGV")
    error = _results.explain_unread_code(crashed, "signaled", "/opt/python3.9", "3.9.18")
    assert isinstance(error, sandtimer.Crashed) and "SIGSEGV: lambdas" in str(error) and "is Python 3.9" in str(error)
    # Of the same version, and what the call itself raised.
    assert _results.explain_unread_code(crashed, "signaled", "/opt/python", f"{ours}.1") is None
    wrong.__cause__ = _results.RemoteTraceback('Traceback:\n  File "<cell>", line 1\nTypeError: wrong')
    assert _results.explain_unread_code(wrong, "raised", "/opt/python3.9", "3.9.18") is None


def test_an_environment_of_uv(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = pytest.importorskip("uv")
    made = tmp_path / "made"
    done = subprocess.run(
        [uv.find_uv_bin(), "venv", "--offline", "--no-config", "--no-cache", "--python", sys.executable, made],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    add_module(made)
    prefix, name, names = seen(made / "bin/python")
    assert (prefix, name) == (str(made), "its own")
    assert ".secret" not in names
    # By its name, as in a shell where it is activated.
    monkeypatch.setenv("PATH", f"{made / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert seen("python")[0] == str(made)


def test_an_environment_as_of_conda(tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    for part in ("bin", "conda-meta", "ssl", "pkgs"):
        (made / part).mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), made / "bin/python")
    unneeded = shutil.ignore_patterns("test", "site-packages", "dist-packages", "__pycache__", "idlelib", "ensurepip", "config-*")
    shutil.copytree(os.path.dirname(os.__file__), made / LIBRARY, ignore=unneeded)
    # Not every Python that is no environment looks into site-packages.
    add_module(made, LIBRARY)
    prefix, name, names = seen(made / "bin/python")
    assert (prefix, name, names) == (str(made), "its own", ["bin", "lib", "ssl"])
