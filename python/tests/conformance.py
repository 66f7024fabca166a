"""The suites of other projects: fetched by version and hash, and their results compared and recorded.

`docs/conformance/PAGE.json` has the results, from which `cargo xtask generate` writes the tables of the pages.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import tarfile
import urllib.request
import xml.etree.ElementTree
from collections import Counter
from typing import Any, Collection, Mapping

from expected_differences import EXPECTED
from serving import BINARY

ROOT = pathlib.Path(__file__).parents[2]
# What proofs do at full size; a trial is smaller.
IS_FULL_SIZE = os.environ.get("SANDTIMER_FULL") == "1"
PASSED, SKIPPED, DIFFERS = "passed", "skipped", "differs"


def record(page: str, suite: str, version: str, results: Mapping[str, str], detail: str = "") -> None:
    """Compares the results of a suite, each check's name with its state, with what is expected, and records them at full size.

    Fails for a difference that is not listed, and for a listed one that did not occur. `detail` names the row together with
    the suite: it has no sizes or counts.
    """
    expected = EXPECTED.get(suite, {})
    counts = Counter(results.values())
    differing = [name for name, state in results.items() if state == DIFFERS]
    names = f" ({', '.join(differing)})" if differing else ""
    skipped = f", {counts[SKIPPED]} skipped" if counts[SKIPPED] else ""
    print(f"{suite} {version}{', ' + detail if detail else ''}: {counts[PASSED]} passed{skipped}, {len(differing)} differ{names}")
    assert counts[PASSED] > 0, f"no check of {suite} has passed"
    assert sorted(differing) == sorted(expected), f"{suite} differs in {differing}; expected_differences.py lists {list(expected)}"
    if not IS_FULL_SIZE:
        return
    row = {
        "suite": suite,
        "version": version,
        "detail": detail,
        "passed": counts[PASSED],
        "skipped": counts[SKIPPED],
        "differ": {name: expected[name] for name in differing},
        "sandtimer": _version(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }
    _insert(ROOT / f"docs/conformance/{page}.json", row)


def compared(plain: Mapping[str, str], sealed: Mapping[str, str], failing: Collection[str] = ()) -> dict[str, str]:
    """The sealed states: a test with another state than the plain one differs.

    Fails if the plain run cannot be compared with: if none of its tests has passed, or others than `failing` have failed. A test of `failing`
    that fails sealed too is left out.
    """
    assert PASSED in plain.values(), "no test of the plain run has passed"
    failed = [name for name, state in plain.items() if state == DIFFERS]
    assert sorted(failed) == sorted(failing), f"the plain run fails {failed}; {list(failing)} is listed"
    names = [*plain, *(name for name in sealed if name not in plain)]
    states = {name: sealed[name] if name in plain and sealed.get(name) == plain[name] else DIFFERS for name in names}
    return {name: state for name, state in states.items() if name not in failing or sealed.get(name) != DIFFERS}


def _version() -> str:
    shown = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    return shown.split()[1]


def _insert(path: pathlib.Path, row: dict[str, Any]) -> None:
    """Replaces the row of the same suite, or adds one."""
    rows = json.loads(path.read_text()) if path.exists() else []
    same = [place for place, each in enumerate(rows) if (each["suite"], each["detail"]) == (row["suite"], row["detail"])]
    place = same[0] if same else len(rows)
    rows[place : place + 1] = [row]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")


def archive(url: str, sha256: str, directory: pathlib.Path) -> pathlib.Path:
    """Unpacks a source archive with one directory, and returns that. Fails if it is not the one with this hash."""
    with urllib.request.urlopen(url, timeout=120) as answer:
        data = answer.read()
    found = hashlib.sha256(data).hexdigest()
    assert found == sha256, f"{url} has the SHA-256 {found} and not {sha256}"
    file = directory / "archive"
    file.write_bytes(data)
    with tarfile.open(file) as opened:
        opened.extractall(directory)
    file.unlink()
    (made,) = directory.iterdir()
    return made


def checkout(repository: str, commit: str, paths: list[str], directory: pathlib.Path) -> pathlib.Path:
    """Fetches these paths of a commit on GitHub. The commit's name is the hash of what it has."""

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(directory), *arguments], check=True, timeout=600)

    git("init", "--quiet")
    git("fetch", "--quiet", "--depth", "1", f"https://github.com/{repository}", commit)
    git("checkout", "--quiet", commit, "--", *paths)
    return directory


def npm_packages() -> pathlib.Path:
    """The `node_modules` that prove_npm/package-lock.json describes."""
    directory = ROOT / "target/prove-npm"
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        (directory / name).write_bytes((pathlib.Path(__file__).with_name("prove_npm") / name).read_bytes())
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=directory, check=True, timeout=900)
    return directory / "node_modules"


def states_of(results: pathlib.Path) -> dict[str, str]:
    """The tests of a JUnit file with their states. Several of one name are numbered."""
    states: dict[str, str] = {}
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        base = name = f"{case.get('classname')}.{case.get('name')}"
        number = 1
        while name in states:
            number += 1
            name = f"{base} ({number})"
        tags = [each.tag for each in case]
        states[name] = DIFFERS if "failure" in tags or "error" in tags else SKIPPED if "skipped" in tags else PASSED
    return states
