"""What compares the suites of other projects: an unexpected result fails, and so does an expected one that is missing."""

from __future__ import annotations

import json
import pathlib

import conformance
import pytest
from conformance import DIFFERS, PASSED, SKIPPED, record
from prove_bwrap import tap

EXPECTED = {"a suite": {"b": "it cannot"}}
SCRIPT = """
set -xeuo pipefail
ok () { echo "ok 1 $@"; }
true
ok "first"

true
false
ok "second"

true
ok "# SKIP third"
"""


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(conformance, "ROOT", tmp_path)
    monkeypatch.setattr(conformance, "EXPECTED", EXPECTED)
    return tmp_path / "docs/conformance/page.json"


def test_results_are_counted_and_replace_those_before(elsewhere: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    record("page", "another", "1", {"a": PASSED})
    for version in ("1", "2"):
        record("page", "a suite", version, {"a": PASSED, "b": DIFFERS, "c": SKIPPED})
    assert "a suite 2: 1 passed, 1 skipped, 1 differ (b)" in capsys.readouterr().out
    first, second = json.loads(elsewhere.read_text())
    assert (first["suite"], first["differ"]) == ("another", {})
    assert (second["version"], second["passed"], second["skipped"], second["differ"]) == ("2", 1, 1, {"b": "it cannot"})


@pytest.mark.parametrize(
    "results, message",
    [
        ({"a": PASSED, "b": DIFFERS, "c": DIFFERS}, "differs in \\['b', 'c'\\]"),
        ({"a": PASSED, "b": PASSED}, "lists \\['b'\\]"),
        ({"b": DIFFERS}, "no check of a suite has passed"),
    ],
)
def test_unexpected_results_fail_and_are_not_recorded(elsewhere: pathlib.Path, results: dict[str, str], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        record("page", "a suite", "1", results)
    assert not elsewhere.exists()


def test_a_script_is_continued_after_an_expected_failure(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(SCRIPT)
    results = tap(script, tmp_path, "root", {"second": "it cannot"})
    assert results == {"second": DIFFERS, "0 first": PASSED, "1 # SKIP third": SKIPPED}
    script.write_text(SCRIPT)
    with pytest.raises(AssertionError, match="second"):
        tap(script, tmp_path, "root", {})
