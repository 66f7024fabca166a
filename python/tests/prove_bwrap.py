"""Bubblewrap's own suite, and the sandboxes of coding agents, over `sandtimer bwrap`.

Not collected by itself; `cargo xtask prove` runs it. It needs root, npm, and Debian's gcc, python3-seccomp, ripgrep and
socat.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
from typing import Iterator

import pytest
from conformance import DIFFERS, IS_FULL_SIZE, PASSED, SKIPPED, archive, npm_packages, record
from expected_differences import EXPECTED
from serving import BINARY

VERSION = "0.11.0"
# As upstream has released it; Debian's mirrors keep it.
SOURCE = f"http://deb.debian.org/debian/pool/main/b/bubblewrap/bubblewrap_{VERSION}.orig.tar.xz"
SHA256 = "988fd6b232dafa04b8b8198723efeaccdb3c6aa9c1c7936219d5791a8b7a8646"
PAGE = "coding-agents"
WITHIN = 600
USERS = {"root": [], "another user": ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"]}
FORK_BOMB = ":(){ :|:& };:; sleep 5"
RUNS = 1000 if IS_FULL_SIZE else 20


@pytest.fixture(scope="module")
def open_directory() -> Iterator[pathlib.Path]:
    """A directory that every user can enter, outside of /tmp, which agents and the suite replace."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="prove-bwrap-") as made:
        os.chmod(made, 0o755)
        yield pathlib.Path(made)


@pytest.fixture(scope="module")
def bwrap(open_directory: pathlib.Path) -> pathlib.Path:
    """Sandtimer under the name that agents look for."""
    (open_directory / "bin").mkdir()
    return pathlib.Path(shutil.copy(BINARY, open_directory / "bin/bwrap"))


@pytest.fixture(scope="module")
def suite(open_directory: pathlib.Path) -> pathlib.Path:
    """The tests of bubblewrap, with the program that they need."""
    (open_directory / "source").mkdir()
    tests = archive(SOURCE, SHA256, open_directory / "source") / "tests"
    subprocess.run(["gcc", "-o", tests / "try-syscall", tests / "try-syscall.c"], check=True, timeout=120)
    return tests


def run_of_suite(command: list[str], bwrap: pathlib.Path, user: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BWRAP": str(bwrap), "BWRAP_MUST_WORK": "1", "PATH": f"/usr/sbin:/usr/bin:/sbin:/bin:{os.environ['PATH']}"}
    return subprocess.run([*USERS[user], *command], env=environment, cwd="/", capture_output=True, text=True, timeout=WITHIN)


def tap(script: pathlib.Path, bwrap: pathlib.Path, user: str, expected: dict[str, str]) -> dict[str, str]:
    """The checks of a script that ends at the first that fails: if that is expected, it is run again without it."""
    results: dict[str, str] = {}
    for left in range(len(expected), -1, -1):
        # Shows the line of each command.
        ended = run_of_suite(["bash", "-c", r"PS4='+${BASH_SOURCE[0]-}:${LINENO} '; . $0", str(script)], bwrap, user)
        found = re.findall(r"^ok (?:\d+ )?(?:- )?(.*)$", ended.stdout, re.MULTILINE)
        if ended.returncode == 0:
            break
        name = cut_failed_check(script, ended.stderr)
        results[name] = DIFFERS
        assert left and name in expected, f"{name}: {ended.stderr[-3000:]}"
    for number, name in enumerate(found):
        results[f"{number} {name}"] = SKIPPED if "# SKIP" in name else PASSED
    return results


def cut_failed_check(script: pathlib.Path, trace: str) -> str:
    """Removes the check whose line was executed last from the script, and returns its name."""
    lines = script.read_text().splitlines()
    last = int(re.findall(rf"^\++\S*{re.escape(script.name)}:(\d+) ", trace, re.MULTILINE)[-1]) - 1
    end = next(number for number in range(last, len(lines)) if lines[number].startswith("ok "))
    start = next(number for number in range(last, -1, -1) if lines[number].startswith("ok ")) + 1
    name = lines[end].removeprefix("ok ").strip('"')
    lines[start : end + 1] = [""] * (end + 1 - start)
    script.write_text("\n".join(lines) + "\n")
    return name


def unittest_states(ended: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The states of the tests that `unittest -v` lists on stderr, with what they print between their name and their state.

    Fails if the number of tests or the exit code contradicts them.
    """
    shown = ended.stdout + ended.stderr[-3000:]
    listed = r"^(test_\w+) \((?:(?!^test_\w+ \().)*?(ok|FAIL|ERROR|skipped [^\n]*)$"
    lines = re.findall(listed, ended.stderr, re.MULTILINE | re.DOTALL)
    states = {name: {"o": PASSED, "s": SKIPPED}.get(state[0], DIFFERS) for name, state in lines}
    assert states, shown
    ran = re.search(r"^Ran (\d+) tests? in ", ended.stderr, re.MULTILINE)
    assert ran is None or int(ran[1]) == len(states), f"{len(states)} of {ran[1]} tests have a state: {shown}"
    assert (ended.returncode == 0) == (DIFFERS not in states.values()), f"exit code {ended.returncode}: {shown}"
    return states


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", ["test-run.sh", "test-specifying-pidns.sh", "test-specifying-userns.sh"])
def test_scripts_of_bubblewrap(name: str, user: str, suite: pathlib.Path, bwrap: pathlib.Path) -> None:
    copy = pathlib.Path(shutil.copytree(suite, suite.with_name(f"tests-{user.split()[0]}-{name}")))
    title = f"`tests/{name}` of bubblewrap"
    record(PAGE, title, VERSION, tap(copy / name, bwrap, user, EXPECTED.get(title, {})), user)


@pytest.mark.parametrize("user", USERS)
def test_filters_of_bubblewrap(user: str, suite: pathlib.Path, bwrap: pathlib.Path) -> None:
    # The interpreter that Debian's python3-seccomp is for.
    ended = run_of_suite(["/usr/bin/python3", str(suite / "test-seccomp.py"), "-v"], bwrap, user)
    record(PAGE, "`tests/test-seccomp.py` of bubblewrap", VERSION, unittest_states(ended), user)


# The agents' sandboxes


@pytest.fixture(scope="module")
def modules() -> pathlib.Path:
    return npm_packages()


@pytest.fixture
def tree(open_directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """A work tree in which nothing may be left."""
    with tempfile.TemporaryDirectory(dir=open_directory) as made:
        yield pathlib.Path(made)


def agent_variables(bwrap: pathlib.Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PATH": f"{bwrap.parent}:{os.environ['PATH']}", **more}


def same(name: str, holds: bool, shown: object = "") -> dict[str, str]:
    if not holds:
        print(f"{name}: {shown!s:.3000}")
    return {name: PASSED if holds else DIFFERS}


def version_of(modules: pathlib.Path, package: str) -> str:
    return str(json.loads((modules / package / "package.json").read_text())["version"])


def test_srt(modules: pathlib.Path, bwrap: pathlib.Path, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    package = "@anthropic-ai/sandbox-runtime"
    settings = tmp_path / "settings.json"
    allowed = {"allowWrite": [str(tree)], "denyRead": [], "denyWrite": []}
    settings.write_text(json.dumps({"network": {"allowedDomains": [], "deniedDomains": []}, "filesystem": allowed}))

    def srt(command: str, **limits: str) -> subprocess.CompletedProcess[str]:
        words = ["node", str(modules / package / "dist/cli.js"), "--settings", str(settings), "-c", command]
        return subprocess.run(words, cwd=tree, env=agent_variables(bwrap, **limits), capture_output=True, text=True, timeout=WITHIN)

    first = srt("echo a; exit 3")
    assert first.returncode == 3, first.stderr
    results = same("a command's output and exit code", first.stdout == "a\n")
    srt("echo a > written")
    results |= same("a file in the work tree", (tree / "written").read_text() == "a\n")
    (tree / "written").unlink()
    elsewhere = tree.with_name("elsewhere")
    refused = srt(f"echo a > {elsewhere}")
    results |= same("no file elsewhere", refused.returncode != 0 and not elsewhere.exists(), refused)
    results |= same("no network", "unreachable" in srt("echo > /dev/tcp/1.1.1.1/80").stderr)
    ended = srt("sleep 600", SANDTIMER_WALL="2s")
    results |= same("a wall-clock limit with its line", ended.returncode == 124 and "wall limit of 2 s" in ended.stderr)
    fork_bomb = srt(FORK_BOMB, SANDTIMER_PROCESSES="100", SANDTIMER_WALL="60s")
    results |= same("the process limit holds a fork bomb", "fork: " in fork_bomb.stderr, fork_bomb)
    codes = {srt("true").returncode for _ in range(RUNS)}
    results |= same("commands leave nothing in the work tree", codes == {0} and list(tree.iterdir()) == [])
    record(PAGE, "commands of `srt` (sandbox-runtime)", version_of(modules, package), results, "many in a row")


def test_codex(modules: pathlib.Path, bwrap: pathlib.Path, tree: pathlib.Path) -> None:
    # Not below the directory of temporary files, where it refuses to be.
    home = tree / "home"
    home.mkdir()
    work = tree / "work"
    work.mkdir()
    (binary,) = (modules / "@openai/codex").glob("vendor/*/bin/codex")

    def codex(command: str, **limits: str) -> subprocess.CompletedProcess[str]:
        words = [str(binary), "sandbox", "--", "bash", "-c", command]
        variables = agent_variables(bwrap, CODEX_HOME=str(home), **limits)
        return subprocess.run(words, cwd=work, env=variables, capture_output=True, text=True, timeout=WITHIN)

    first = codex("echo a; exit 3")
    assert first.returncode == 3, first.stderr
    results = same("a command's output and exit code", first.stdout == "a\n")
    results |= same("no file in a read-only work tree", codex("echo a > written").returncode != 0)
    results |= same("its filter is active", "Seccomp:\t2" in codex("cat /proc/self/status").stdout)
    ended = codex("sleep 600", SANDTIMER_WALL="2s")
    results |= same("a wall-clock limit with its line", ended.returncode == 124 and "wall limit of 2 s" in ended.stderr)
    fork_bomb = codex(FORK_BOMB, SANDTIMER_PROCESSES="100", SANDTIMER_WALL="60s")
    results |= same("the process limit holds a fork bomb", "fork: " in fork_bomb.stderr, fork_bomb)
    results |= same("nothing in the work tree", list(work.iterdir()) == [])
    record(PAGE, "commands of `codex sandbox`", version_of(modules, "@openai/codex").partition("-")[0], results)
