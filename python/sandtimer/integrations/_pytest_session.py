"""Sealed tests in the pytest process: each is a call in a child of a fork of this process.

The fork is made before the first sealed test, and again after a test that ran in this process,
which may have changed it. It serves a child for each test, so that a test costs a fork and a
sandbox, and no second collection.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, NamedTuple, Optional, Sequence

import pytest

from .. import _native
from .._outcome import Outcome
from ..errors import SandtimerError, UnsupportedPlatform
from ..sandbox import _fork, _job, _sandbox
from . import _pytest_reports
from ._pytest_inside import Inside
from ._pytest_limits import TestLimits

# Tests that start while another runs.
_MAX_AHEAD = 4


def _has_time_limit(limits: TestLimits) -> bool:
    """Whether a test fails if it waits too long for a processor."""
    return bool(limits.wall or limits.stall)


class _StartedTest(NamedTuple):
    box: Any
    call: Any


class SealedTests:
    """All of a session."""

    def __init__(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not sys.platform.startswith("linux"):
            raise pytest.UsageError(str(UnsupportedPlatform(f"sealed tests need Linux, and this is {sys.platform}")))
        self._config = config
        self._inside: Optional[Inside] = None
        self._positions = {id(item): position for position, item in enumerate(items)}
        self._items = list(items)
        self._boxes: dict[TestLimits, Any] = {}
        self._server: Optional[_fork.Server] = None
        # Without root the fork enters a user namespace with its first child, and cannot enter it
        # again for another.
        self._has_one_child = os.geteuid() != 0
        self._marker = os.urandom(8).hex()
        # Begun while the test before it runs.
        self._ahead: dict[int, _StartedTest] = {}
        is_worker = hasattr(config, "workerinput")
        processors = len(os.sched_getaffinity(0))
        # Not in a worker of pytest-xdist, next to which others run tests.
        self.tests_ahead = 0 if is_worker or processors == 1 else min(processors, _MAX_AHEAD)
        try:
            self._box(TestLimits())
        except SandtimerError as error:
            raise pytest.UsageError(f"sealed tests: {error}") from None

    @property
    def is_outside(self) -> bool:
        """Whether this is the pytest process, and not that of a sealed test."""
        return self._inside is None

    # The fork

    def _box(self, limits: TestLimits) -> Any:
        box = self._boxes.get(limits)
        if box is None:
            directories = dict.fromkeys([str(self._config.rootpath), str(self._config.invocation_params.dir)])
            box = self._boxes[limits] = _sandbox.Sandbox(
                limits.wall,
                cpu=limits.cpu,
                stall=limits.stall,
                memory=limits.memory,
                processes=limits.processes,
                network=limits.network,
                start="fork",
                force=True,
                paths=list(directories),
            )
        return box

    def prepare(self, item: pytest.Item) -> None:
        """Makes the fork that the test's process is a child of, unless there is one."""
        if id(item) in self._ahead:
            return
        if id(item) not in self._positions:
            self._positions[id(item)] = len(self._items)
            self._items.append(item)
            self._drop_server()
        if self._has_one_child:
            self._drop_server()
        if self._server is None:
            self._fork()

    def _fork(self) -> None:
        # A worker of pytest-xdist has none.
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter._tw.flush()
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
        self._server = _fork.Server(self._serve, many=not self._has_one_child, prepare=lambda: self._prepare(descriptors))

    def note_ordinary_test(self) -> None:
        """A test has run in this process: what it set up here, later tests are to see."""
        self._drop_server()

    def _drop_server(self) -> None:
        if self._server is not None and not self._ahead:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """Ends what was begun, and the fork."""
        if self._inside is not None:
            return
        for begun in self._ahead.values():
            begun.call.cancel("the session has ended")
            begun.call.release()
        self._ahead.clear()
        self._drop_server()
        for box in self._boxes.values():
            box.close()

    # A test

    def _begin(self, item: pytest.Item, limits: TestLimits) -> _StartedTest:
        box = self._box(limits)
        position = str(self._positions[id(item)]).encode()
        with _job.Job({**box._options, "kind": "call"}, b"", stdin=position) as job:
            assert self._server is not None
            return _StartedTest(box, self._server.begin(_native.engine(), box._pool.profile, job, box._checked))

    def _begin_or_fork(self, item: pytest.Item, limits: TestLimits) -> _StartedTest:
        """Begins a test, in another fork if this one can have no more children.

        The root user of a container may have no more rights than another user.
        """
        try:
            return self._begin(item, limits)
        except SandtimerError:
            if self._has_one_child:
                raise
            self._has_one_child = True
            self._drop_server()
            self._fork()
            return self._begin(item, limits)

    def _begin_ahead(self, running: TestLimits, following: Sequence[tuple[pytest.Item, TestLimits]]) -> None:
        """Begins the next tests, which start while this one runs.

        Does nothing if this process may change in between. The clocks of a test run from its start,
        and a test with a limit on elapsed time needs a processor of its own: only one test runs
        besides it.
        """
        has_time_limit = _has_time_limit(running)
        for position, (item, limits) in enumerate(following[: self.tests_ahead]):
            # Those that have begun already are the first ones.
            has_time_limit = has_time_limit or _has_time_limit(limits)
            if limits.network or (position > 0 and has_time_limit):
                return
            stack = item.session._setupstate.stack
            if id(item) in self._ahead:
                continue
            if id(item) not in self._positions or not all(node in item.listchain() for node in stack):
                return
            try:
                self._ahead[id(item)] = self._begin(item, limits)
            except SandtimerError:
                # Tried again, and reported, when it is its turn.
                return

    def run(self, item: pytest.Item, limits: TestLimits, nextitem: Optional[pytest.Item], following: Sequence[tuple[pytest.Item, TestLimits]]) -> None:
        """Runs a sealed test, and logs its reports. `following`: the sealed tests right after it."""
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, limits, following):
            hook.pytest_runtest_logreport(report=report)
        left = self._tear_down(item, nextitem)
        if left is not None:
            hook.pytest_runtest_logreport(report=left)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _reports(self, item: pytest.Item, limits: TestLimits, following: Sequence[tuple[pytest.Item, TestLimits]]) -> list[pytest.TestReport]:
        try:
            begun = self._ahead.pop(id(item), None) or self._begin_or_fork(item, limits)
        except SandtimerError as error:
            self._drop_server()
            return [_pytest_reports.failed(item, "setup", f"The test's process could not be started: {error}")]
        try:
            if not limits.network:
                self._begin_ahead(limits, following)
            outcome = begun.box._finish(begun.call)
        except BaseException as error:
            begun.call.cancel(f"pytest was interrupted by {type(error).__name__}")
            raise
        return self._reports_of(item, outcome)

    def _reports_of(self, item: pytest.Item, outcome: Outcome) -> list[pytest.TestReport]:
        output = _pytest_reports.Output(outcome.stdout, outcome.stderr, self._marker)
        if self._config.option.capture == "no":
            sys.stdout.write(output.all_of("stdout"))
            sys.stderr.write(output.all_of("stderr"))
        answer = outcome.value if outcome.ending == "returned" and outcome.error is None else None
        if not isinstance(answer, dict) or not _pytest_reports.is_answer(answer):
            return _pytest_reports.of_ended(item, outcome, output)
        reports = []
        for data in answer["reports"]:
            report = _pytest_reports.rebuilt(self._config, data)
            if report is None:
                return _pytest_reports.of_ended(item, outcome, output)
            report.sections = [*output.sections(report.when), *report.sections]
            reports.append(report)
        self._pass_on(answer)
        left = answer["left"]
        if left:
            text = _pytest_reports.sentence_about_left(left)
            reports[-1].sections.append(("Processes left by the test", text))
            self._warn(f"{item.nodeid}: {text}", item.nodeid)
        return reports

    def _warn(self, text: str, nodeid: str) -> None:
        message = warnings.WarningMessage(pytest.PytestWarning(text), pytest.PytestWarning, __file__, 0)
        self._record(message, nodeid)

    def _record(self, message: warnings.WarningMessage, nodeid: str, location: Any = None) -> None:
        arguments = {"warning_message": message, "when": "runtest", "nodeid": nodeid, "location": location}
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=arguments)

    def _pass_on(self, answer: dict[str, Any]) -> None:
        """What the test did besides its reports: warnings, and the end of the session."""
        for text, module, name, file, line, nodeid in answer["warnings"]:
            kind = getattr(sys.modules.get(module), name, None)
            kind = kind if isinstance(kind, type) and issubclass(kind, Warning) else UserWarning
            try:
                message: Warning = kind(text)
            except Exception:
                kind, message = UserWarning, UserWarning(f"{name}: {text}")
            self._record(warnings.WarningMessage(message, kind, file, line), nodeid)
        if answer["stop"] is not None:
            how, text, code = answer["stop"]
            if how == "interrupt":
                raise KeyboardInterrupt
            pytest.exit(text, code)

    def _tear_down(self, item: pytest.Item, nextitem: Optional[pytest.Item]) -> Optional[pytest.TestReport]:
        """Tears down what the next test does not need; returns the report of an error."""
        state = item.session._setupstate
        kept = [] if nextitem is None else nextitem.listchain()
        if all(node in kept for node in state.stack):
            return None
        ended = pytest.CallInfo.from_call(lambda: state.teardown_exact(nextitem), "teardown", reraise=(pytest.exit.Exception, KeyboardInterrupt))
        self._drop_server()
        if ended.excinfo is None:
            return None
        return item.ihook.pytest_runtest_makereport(item=item, call=ended)  # type: ignore[no-any-return]

    # In the fork, and in the process of a sealed test

    def _prepare(self, descriptors: list[int]) -> None:
        self._inside = Inside(self._items[0].session, self._marker, descriptors)
        self._inside.prepare()

    def _serve(self) -> dict[str, Any]:
        assert self._inside is not None
        return self._inside.serve(self._items)

    def run_inside(self, item: pytest.Item) -> bool:
        """Runs the test of this process."""
        assert self._inside is not None
        self._inside.run(item)
        return True

    def note_phase(self, phase: str) -> None:
        """A phase of a test begins in this process."""
        if self._inside is not None:
            self._inside.mark(phase)

    def note_report(self, item: pytest.Item, report: pytest.TestReport) -> None:
        """A report was made in this process."""
        if self._inside is not None and report.when in ("setup", "call"):
            self._inside.write_report(report)

    def note_partial_report(self, report: pytest.TestReport) -> None:
        """A part of a test, such as a subtest, was reported in this process."""
        if self._inside is not None:
            self._inside.parts.append(report)

    def note_warning(self, message: Any, when: str, nodeid: str, location: Any) -> None:
        """A warning was recorded in this process."""
        if self._inside is not None:
            self._inside.note_warning(message, nodeid)
