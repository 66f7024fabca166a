"""Reports of sealed tests that did not come to their end, and the output of those that did."""

from __future__ import annotations

import json
import re
from typing import Any, Optional

import pytest

from .._outcome import Outcome

_PHASES = ("setup", "call", "teardown")
# Endings that no xfail mark can expect.
_NOT_BY_THE_TEST = ("returned", "raised", "cancelled", "infra_error")
# Files whose frames are pytest's and this package's, from the test's own outwards.
_NOT_OF_THE_TEST = re.compile(r"[/\\](_pytest|pluggy)[/\\]|^<sandtimer>")


class Output:
    """What a test's process wrote, by phases."""

    def __init__(self, stdout: str, stderr: str, marker: str) -> None:
        self.reports: list[Any] = []
        self.phases: list[str] = []
        self._sections: dict[tuple[str, str], str] = {}
        for name, text in (("stdout", stdout), ("stderr", stderr)):
            self._read(name, text, marker)

    def _read(self, stream: str, text: str, marker: str) -> None:
        phase = "setup"
        pattern = f"\0{marker}(?:(:)(setup|call|teardown)|(=)([^\0]*))\0"
        parts = re.split(pattern, text)
        # Text, then a marker's four groups and the text that follows it, again and again.
        self._add(phase, stream, parts[0])
        for at in range(1, len(parts), 5):
            if parts[at]:
                phase = parts[at + 1]
                if stream == "stdout":
                    self.phases.append(phase)
            else:
                try:
                    self.reports.append(json.loads(parts[at + 3]))
                except (ValueError, RecursionError):
                    # Output of a child process within it, or a string that the test wrote.
                    self._add(phase, stream, parts[at + 3])
            self._add(phase, stream, parts[at + 4])

    def _add(self, phase: str, stream: str, text: str) -> None:
        if text:
            self._sections[phase, stream] = self._sections.get((phase, stream), "") + text

    def all_of(self, stream: str) -> str:
        """All of one stream, without marks."""
        return "".join(self._sections.get((phase, stream), "") for phase in _PHASES)

    def sections(self, until: Optional[str]) -> list[tuple[str, str]]:
        """The sections of a report of this phase, as pytest names them."""
        phases = _PHASES[: _PHASES.index(until) + 1] if until in _PHASES else _PHASES
        found = []
        for phase in phases:
            for stream in ("stdout", "stderr"):
                text = self._sections.get((phase, stream))
                if text:
                    found.append((f"Captured {stream} {phase}", text))
        return found


def sentence_about_left(left: list[Any]) -> str:
    """Which processes a test has left."""
    names = ", ".join(f"{command} (PID {number})" for number, command in left)
    count = "1 process, which was" if len(left) == 1 else f"{len(left)} processes, which were"
    return f"the test left {count} killed: {names}"


def is_answer(value: dict[Any, Any]) -> bool:
    """Whether this is what the process of a test returns: its code can have replaced that."""
    if not value.keys() >= {"reports", "warnings", "stop", "left"}:
        return False
    stop = value["stop"]
    return (
        # A test that ends the session has no reports.
        bool(value["reports"] or stop)
        and all(isinstance(value[name], (list, tuple)) for name in ("reports", "warnings", "left"))
        and all(isinstance(each, (list, tuple)) and len(each) == 6 for each in value["warnings"])
        and all(isinstance(each, (list, tuple)) and len(each) == 2 for each in value["left"])
        and (stop is None or (isinstance(stop, (list, tuple)) and len(stop) == 3))
    )


def rebuilt(config: pytest.Config, data: Any) -> Optional[pytest.TestReport]:
    """The report that a test's process has serialized; None if this is not one."""
    try:
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        if not isinstance(report, pytest.TestReport) or report.when not in _PHASES:
            return None
        if report.outcome not in ("passed", "failed", "skipped"):
            return None
        report.sections = [(str(name), str(text)) for name, text in report.sections]
    except Exception:
        return None
    return report


def of_ended(item: pytest.Item, outcome: Outcome, output: Output) -> list[pytest.TestReport]:
    """The reports of a test whose process gave no answer: what it wrote, and what ended it."""
    at = output.phases[-1] if output.phases else "setup"
    written = (rebuilt(item.config, data) for data in output.reports)
    made = {report.when: report for report in written if report is not None}
    reports = []
    for phase in _PHASES[: _PHASES.index(at)]:
        # A test that fails in its setup is not called.
        if phase in made:
            reports.append(made[phase])
        elif phase in output.phases:
            reports.append(failed(item, phase, f"The report of the test's {phase} could not be read."))
    reports.append(_of_end(item, at, outcome, output))
    if at != "teardown":
        reports.append(_report(item, "teardown", "passed", None))
    for report in reports:
        report.sections = [*output.sections(report.when), *report.sections]
    return reports


def _of_end(item: pytest.Item, phase: Any, outcome: Outcome, output: Output) -> pytest.TestReport:
    """The report of what ended the test, as pytest makes it for an exception in the test."""
    reason, duration = _reason(outcome), outcome.usage.wall_ms / 1000
    stack = _stack(outcome, output)
    error = outcome.error
    if error is None or outcome.ending in _NOT_BY_THE_TEST:
        return failed(item, phase, reason, duration, stack)

    def end() -> None:
        assert error is not None
        raise error

    call = pytest.CallInfo.from_call(end, phase)
    call.duration = duration
    call.start = call.stop - duration
    _note_xfail(item)
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    # The exception was raised here: its own traceback is not the test's.
    report.longrepr = _explanation(item, reason, stack)
    return report


def _note_xfail(item: pytest.Item) -> None:
    """Evaluates the test's xfail marks: pytest did it in the setup, in the ended process."""
    from _pytest.skipping import evaluate_xfail_marks, xfailed_key

    try:
        item.stash[xfailed_key] = evaluate_xfail_marks(item)
    except (Exception, pytest.fail.Exception):
        # A wrong condition of a mark expects nothing.
        pass


def failed(item: pytest.Item, phase: str, reason: str, duration: float = 0.0, stack: str = "") -> pytest.TestReport:
    """The report that a test failed for this reason."""
    return _report(item, phase, "failed", _explanation(item, reason, stack), duration)


def _explanation(item: pytest.Item, reason: str, stack: str) -> Any:
    """What a report shows: the stack, and the reason, which is also in the short summary."""
    from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

    path, line, _ = item.location
    lines = [f"{stack}\n\n" if stack else "", f"{reason}\n"]
    traceback = ReprTraceback([ReprEntryNative([each for each in lines if each])], None, "native")
    return ReprExceptionInfo(traceback, ReprFileLocation(str(path), (line or 0) + 1, reason))


def _report(item: pytest.Item, phase: Any, outcome: Any, longrepr: Any, duration: float = 0.0) -> pytest.TestReport:
    keywords: Any = {name: 1 for name in item.keywords}
    properties = list(item.user_properties)
    return pytest.TestReport(
        item.nodeid, item.location, keywords, outcome, longrepr, phase, duration=duration, user_properties=properties
    )


def _reason(outcome: Outcome) -> str:
    if outcome.verdict is not None:
        return outcome.verdict.sentence
    if outcome.ending == "signaled":
        return f"The test's process was ended by {outcome.signal}, which Sandtimer did not send."
    if outcome.ending == "no_result":
        return f"The test's process exited with code {outcome.exit_code} before the test had ended."
    if outcome.ending == "returned" and outcome.error is None:
        return "The test's process returned no report that could be read."
    return f"The test gave no report ({outcome.ending}): {outcome.error}"


def _stack(outcome: Outcome, output: Output) -> str:
    """The Python stack at the end: as the engine has read it, or as a crash has written it."""
    verdict = outcome._wait()["verdict"] or {}
    lines = []
    threads = verdict.get("python") or ()
    for thread in threads:
        frames: list[str] = []
        for frame in thread["frames"]:
            if _NOT_OF_THE_TEST.search(frame["file"]) and frames:
                break
            frames.append(f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}')
        of = f" of thread {thread['thread']}" if len(threads) > 1 else ""
        lines += [f"Python stack{of} (most recent call first):", *frames]
    if lines:
        return "\n".join(lines)
    written = output.all_of("stderr")
    start = written.rfind("Fatal Python error: ")
    if start < 0:
        return ""
    for line in written[start:].splitlines():
        if line.startswith("  File ") and _NOT_OF_THE_TEST.search(line):
            break
        if line.startswith(("Fatal Python error: ", "Current thread ", "  File ")):
            lines.append(line)
    return "\n".join(lines)
