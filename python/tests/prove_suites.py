"""Suites of other projects, with and without sealed tests, and jupyter_client's own with sealed kernels.

Not collected by itself: requirements-prove.txt has what it needs. It prints its results; `cargo xtask prove` records them.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree
from collections import Counter
from typing import Any

import pytest
import sandtimer
from serving import BINARY
from test_pytest_plugin import PLUGIN, registered

SUITES = ["iniconfig==2.3.0", "itsdangerous==2.2.0", "toolz==1.1.0", "more-itertools==10.8.0"]
# Its tests of provisioning replace the installed provisioners by their own.
KERNEL_TESTS = ["tests/test_kernelmanager.py", "tests/test_restarter.py", "tests/test_client.py"]
GOOD = """
import time
import pytest
import sandtimer

@pytest.mark.parametrize("number", range(200))
def test_good(number):
    time.sleep({seconds})
"""


def source(requirement: str, directory: pathlib.Path) -> pathlib.Path:
    """The unpacked source distribution."""
    name = requirement.partition("==")[0]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, "-d", str(directory), requirement]
    subprocess.run(command, check=True, timeout=300)
    with tarfile.open(next(directory.glob("*.tar.gz"))) as archive:
        archive.extractall(directory)
    return next(each for each in directory.iterdir() if each.is_dir())


def run(directory: pathlib.Path, *options: str, **variables: str) -> tuple[Counter[str], float]:
    """The results of a suite, each as its test's name and state, and the seconds that it took."""
    plugin = [] if registered() else ["-p", PLUGIN]
    command = [sys.executable, "-m", "pytest", *plugin, "-q", "-p", "no:cacheprovider", "--junitxml", "results.xml"]
    command += ["-o", "asyncio_default_fixture_loop_scope=function", *options]
    package = pathlib.Path(sandtimer.__file__ or "").parents[1]
    inside = directory / "src" if (directory / "src").is_dir() else directory
    path = os.pathsep.join(map(str, (inside, package)))
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, "PYTHONPATH": path, **variables}, capture_output=True, text=True, timeout=1200
    )
    seconds = time.monotonic() - start
    assert (directory / "results.xml").exists(), done.stdout + done.stderr
    cases = xml.etree.ElementTree.parse(directory / "results.xml").iter("testcase")
    found = Counter(f"{each.get('classname')}.{each.get('name')}: {_state(each)}" for each in cases)
    (directory / "results.xml").unlink()
    print(f"{directory.name} {' '.join(options)}: {done.stdout.splitlines()[-1]}")
    return found, seconds


def _state(case: Any) -> str:
    return next((each.tag for each in case if each.tag in ("failure", "error", "skipped")), "passed")


@pytest.fixture(autouse=True)
def readable(tmp_path: pathlib.Path) -> None:
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)


@pytest.mark.parametrize("requirement", SUITES)
def test_a_public_suite_has_the_same_results_sealed(requirement: str, tmp_path: pathlib.Path) -> None:
    directory = source(requirement, tmp_path)
    plain, _ = run(directory)
    assert len(plain) > 10
    assert run(directory, "--sandtimer")[0] == plain
    assert run(directory, "--sandtimer", "-n", "2")[0] == plain


def test_jupyter_clients_suite_has_the_same_results_sealed(tmp_path: pathlib.Path) -> None:
    directory = source("jupyter_client==8.10.0", tmp_path)
    plain, _ = run(directory, *KERNEL_TESTS)
    variables = {"JUPYTER_DEFAULT_PROVISIONER_NAME": "sandtimer-provisioner", "SANDTIMER_BIN": BINARY}
    assert run(directory, *KERNEL_TESTS, **variables)[0] == plain


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1])
def test_200_good_tests(seconds: float, tmp_path: pathlib.Path) -> None:
    """Prints the ratio; a loaded machine has another one than an idle one."""
    (tmp_path / "test_good.py").write_text(GOOD.format(seconds=seconds))
    times: dict[str, list[float]] = {"": [], "--sandtimer": []}
    for _ in range(3):
        for option, measured in times.items():
            results, took = run(tmp_path, *filter(None, [option]))
            assert set(each.rpartition(": ")[2] for each in results) == {"passed"} and sum(results.values()) == 200
            measured.append(took)
    plain, sealed = (min(each) for each in times.values())
    print(f"200 tests of {seconds * 1000:g} ms: {plain:.2f} s plain, {sealed:.2f} s sealed, ratio {sealed / plain:.2f}")
