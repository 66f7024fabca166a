"""Suites of other projects, with and without sealed tests, jupyter_client's own with sealed kernels, and the
integrations' own tests with what they integrate.

Not collected by itself: requirements-prove.txt has what it needs. `cargo xtask prove` runs it.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tarfile
import time
from importlib.metadata import version

import nbformat
import pytest
import sandtimer
from conformance import DIFFERS, PASSED, compared, record, states_of
from sandtimer.integrations._jupyter_install import main as install
from serving import BINARY
from test_pytest_plugin import PLUGIN, registered

SUITES = ["iniconfig==2.3.0", "itsdangerous==2.2.0", "toolz==1.1.0", "more-itertools==10.8.0"]
# Its tests of provisioning replace the installed provisioners by their own.
KERNEL_TESTS = ["tests/test_kernelmanager.py", "tests/test_restarter.py", "tests/test_client.py"]
# Tests that fail without Sandtimer too, by the suite's name.
FAILING: dict[str, list[str]] = {}
# The page, the tests of an integration, and the package that they drive.
OWN = [
    ("dspy", "prove_dspy.py", "dspy"),
    ("jupyter", "test_jupyter.py", "nbclient"),
    ("pytest", "test_pytest_plugin.py", "pytest"),
    ("smolagents", "test_smolagents.py", "smolagents"),
]
GOOD = """
import time
import pytest

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


def run(directory: pathlib.Path, *options: str, **variables: str) -> tuple[dict[str, str], float]:
    """The states of a suite's tests, and the seconds that it took."""
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
    found = states_of(directory / "results.xml")
    (directory / "results.xml").unlink()
    print(f"{directory.name} {' '.join(options)}: {done.stdout.splitlines()[-1]}")
    return found, seconds


@pytest.fixture(autouse=True)
def readable(tmp_path: pathlib.Path) -> None:
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)


@pytest.mark.parametrize("requirement", SUITES)
def test_a_public_suite_has_the_same_results_sealed(requirement: str, tmp_path: pathlib.Path) -> None:
    directory = source(requirement, tmp_path)
    plain, _ = run(directory)
    name, _, release = requirement.partition("==")
    for options in (["--sandtimer"], ["--sandtimer", "-n", "2"]):
        results = compared(plain, run(directory, *options)[0], FAILING.get(name, ()))
        record("pytest", f"{name}'s own", release, results, f"`{' '.join(options)}`")


def test_jupyter_clients_suite_has_the_same_results_sealed(tmp_path: pathlib.Path) -> None:
    requirement = f"jupyter_client=={version('jupyter_client')}"
    directory = source(requirement, tmp_path)
    plain, _ = run(directory, *KERNEL_TESTS)
    variables = {"JUPYTER_DEFAULT_PROVISIONER_NAME": "sandtimer-provisioner", "SANDTIMER_BIN": BINARY}
    sealed, _ = run(directory, *KERNEL_TESTS, **variables)
    results = compared(plain, sealed, FAILING.get("jupyter_client", ()))
    record("jupyter", "jupyter_client's tests of managers, restarters and clients", version("jupyter_client"), results)


def test_papermill_runs_sealed_notebooks(tmp_path: pathlib.Path) -> None:
    assert install(["install", "--prefix", str(tmp_path), "--name", "sealed", "--cell-timeout", "3s"]) == 0
    variables = {**os.environ, "JUPYTER_PATH": str(tmp_path / "share/jupyter"), "SANDTIMER_BIN": BINARY}

    def papermill(*cells: str) -> tuple[int, str]:
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        made.metadata["language_info"] = {"name": "python"}
        made.cells[0].metadata["tags"] = ["parameters"]
        nbformat.write(made, tmp_path / "in.ipynb")
        command = [sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "-k", "sealed", "-p", "x", "40"]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
        assert (tmp_path / "out.ipynb").exists(), done.stderr
        return done.returncode, (tmp_path / "out.ipynb").read_text()

    code, good = papermill("x = 1", "print(x + 2)")
    results = {"parameters and output": PASSED if code == 0 and '"42\\n"' in good else DIFFERS}
    code, ended = papermill("x = 1", "while True: pass")
    results["a cell past its limit"] = PASSED if code != 0 and "limit of 3 s" in ended else DIFFERS
    record("jupyter", "notebooks run by papermill", version("papermill"), results)


@pytest.mark.parametrize("page, file, package", OWN)
def test_an_integrations_own_tests(page: str, file: str, package: str, tmp_path: pathlib.Path) -> None:
    results = tmp_path / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", str(results), file]
    done = subprocess.run(command, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    record(page, f"`python/tests/{file}` with {package}", version(package), states_of(results))


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1])
def test_200_good_tests(seconds: float, tmp_path: pathlib.Path) -> None:
    """Prints the ratio; a loaded machine has another one than an idle one."""
    (tmp_path / "test_good.py").write_text(GOOD.format(seconds=seconds))
    times: dict[str, list[float]] = {"": [], "--sandtimer": []}
    for _ in range(3):
        for option, measured in times.items():
            results, took = run(tmp_path, *filter(None, [option]))
            assert list(results.values()) == [PASSED] * 200
            measured.append(took)
    plain, sealed = (min(each) for each in times.values())
    print(f"200 tests of {seconds * 1000:g} ms: {plain:.2f} s plain, {sealed:.2f} s sealed, ratio {sealed / plain:.2f}")
