"""What compares the suites of other projects: an unexpected result fails, and so does an expected one that is missing."""

from __future__ import annotations

import json
import pathlib
import subprocess

import conformance
import pytest
from conformance import DIFFERS, PASSED, SKIPPED, compared, record
from prove_bwrap import tap, unittest_states

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
    monkeypatch.setattr(conformance, "IS_FULL_SIZE", True)
    return tmp_path / "docs/conformance/page.json"


def test_results_are_counted_and_replace_those_before(elsewhere: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    record("page", "another", "1", {"a": PASSED})
    for version in ("1", "2"):
        record("page", "a suite", version, {"a": PASSED, "b": DIFFERS, "c": SKIPPED})
    assert "a suite 2: 1 passed, 1 skipped, 1 differ (b)" in capsys.readouterr().out
    first, second = json.loads(elsewhere.read_text())
    assert (first["suite"], first["differ"]) == ("another", {})
    assert (second["version"], second["passed"], second["skipped"], second["differ"]) == ("2", 1, 1, {"b": "it cannot"})


def test_trial_is_compared_and_not_recorded(elsewhere: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "IS_FULL_SIZE", False)
    record("page", "another", "1", {"a": PASSED})
    with pytest.raises(AssertionError, match="differs"):
        record("page", "another", "1", {"a": PASSED, "b": DIFFERS})
    assert not elsewhere.exists()


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


def test_sealed_states_that_are_not_the_plain_ones_differ() -> None:
    plain = {"a": PASSED, "b": PASSED, "c": SKIPPED, "d": PASSED}
    sealed = {"a": PASSED, "b": DIFFERS, "c": SKIPPED, "e": PASSED}
    assert compared(plain, sealed) == {"a": PASSED, "b": DIFFERS, "c": SKIPPED, "d": DIFFERS, "e": DIFFERS}


@pytest.mark.parametrize(
    "plain, failing, message",
    [
        ({"a": DIFFERS, "b": DIFFERS}, ["a", "b"], "no test of the plain run has passed"),
        ({"a": SKIPPED}, [], "no test of the plain run has passed"),
        ({}, [], "no test of the plain run has passed"),
        ({"a": PASSED, "b": DIFFERS}, [], "fails \\['b'\\]"),
        ({"a": PASSED, "b": PASSED}, ["b"], "\\['b'\\] is listed"),
    ],
)
def test_plain_run_that_fails_is_rejected(plain: dict[str, str], failing: list[str], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        compared(plain, plain, failing)


def test_known_failure_counts_only_if_sealing_changes_it() -> None:
    plain = {"a": PASSED, "b": DIFFERS}
    assert compared(plain, plain, ["b"]) == {"a": PASSED}
    assert compared(plain, {"a": PASSED, "b": PASSED}, ["b"]) == {"a": PASSED, "b": DIFFERS}
    assert compared(plain, {"a": PASSED}, ["b"]) == {"a": PASSED, "b": DIFFERS}


UNITTEST = """
test_a (__main__.Test.test_a) ... INFO:a log
ok
test_b (__main__.Test.test_b)
What it tests. ... skipped 'it cannot'
test_c (__main__.Test.test_c) ... FAIL
test_d (__main__.Test.test_d) ... ok

======================================================================
FAIL: test_c (__main__.Test.test_c)
----------------------------------------------------------------------
Ran 4 tests in 0.001s

FAILED (failures=1, skipped=1)
"""


def unittest_run(code: int, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, "", text)


def test_unittest_states_are_those_of_each_line() -> None:
    states = unittest_states(unittest_run(1, UNITTEST))
    assert states == {"test_a": PASSED, "test_b": SKIPPED, "test_c": DIFFERS, "test_d": PASSED}


@pytest.mark.parametrize(
    "code, text, message",
    [
        (0, UNITTEST, "exit code 0"),
        (1, UNITTEST.replace("FAIL\n", "ok\n"), "exit code 1"),
        (1, UNITTEST.replace("FAIL\n", "expected failure\n"), "3 of 4 tests"),
        (1, "Killed", "Killed"),
    ],
)
def test_unittest_output_that_contradicts_itself_fails(code: int, text: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        unittest_states(unittest_run(code, text))
