"""The process of a sealed test: a child of a fork of the pytest process, in a sandbox of its own.

It has the memory of that process, and none of its descriptors, which are replaced by /dev/null. Its
standard output and error are the engine's, so that they survive the process; where a phase begins
is marked in them.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Optional

import pytest

# Processes that are named; of more, only how many there are is reported.
_MAX_NAMED = 20
_TRIES_TO_READ_COMMAND = 50
# The name of the plug-in that keeps what is reported here.
RUNNER = "sandtimer-runner"
# Kept alive: closing their descriptors would close others of the same numbers.
_kept: list[Any] = []


class Inside:
    """What the process knows, and what it answers. Made in the fork, before there is a process of a test."""

    def __init__(self, session: pytest.Session, marker: str, descriptors: list[int]) -> None:
        self._session, self._config = session, session.config
        self._marker, self._descriptors = marker, descriptors
        self._reports: list[pytest.TestReport] = []
        self.parts: list[pytest.TestReport] = []
        self._warnings: list[tuple[str, str, str, str, int, str]] = []

    def serve(self, items: list[pytest.Item]) -> dict[str, Any]:
        """Runs the test whose number is on stdin."""
        item = items[int(os.read(0, 32))]
        self._settle()
        stop: Optional[tuple[str, str, Optional[int]]] = None
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        except pytest.exit.Exception as error:
            stop = ("exit", str(error.msg), error.returncode)
        except KeyboardInterrupt:
            stop = ("interrupt", "", None)
        serialize = self._config.hook.pytest_report_to_serializable
        reports = [*self._reports[:1], *self.parts, *self._reports[1:]]
        data = [_plain(serialize(config=self._config, report=report)) for report in reports]
        return {"reports": data, "warnings": self._warnings, "stop": stop, "left": _processes_left()}

    def run(self, item: pytest.Item) -> None:
        """Runs the phases of the test."""
        from _pytest.runner import runtestprotocol

        self._reports = runtestprotocol(item, log=False, nextitem=None)

    def prepare(self) -> None:
        """Does in the fork what is the same for the processes of all tests."""
        self._aim_faulthandler()
        self._leave_reporting_to_the_session()
        for name in ("TMPDIR", "TEMP", "TMP"):
            os.environ.pop(name, None)
        tempfile.tempdir = None
        self._take_over_streams()
        _forget_setup(self._session)

    def _settle(self) -> None:
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        for number in self._descriptors:
            # 3 is the channel of the answer.
            if number > 3 and number != null:
                os.dup2(null, number)
        try:
            os.chdir(self._config.invocation_params.dir)
        except OSError:
            # A home directory, which is not shown: it stays in its own empty one.
            pass
        factory = getattr(self._config, "_tmp_path_factory", None)
        if factory is not None:
            base = Path(tempfile.gettempdir(), "pytest")
            base.mkdir(mode=0o700, exist_ok=True)
            factory._basetemp = base

    def _aim_faulthandler(self) -> None:
        """Has the stack of a crash written to standard error, if pytest's plug-in is active."""
        import faulthandler

        if not faulthandler.is_enabled():
            return
        faulthandler.disable()
        faulthandler.enable(2)
        from _pytest import faulthandler as plugin

        key = getattr(plugin, "fault_handler_stderr_fd_key", None)
        if key is not None and key in self._config.stash:
            self._config.stash[key] = 2

    def _leave_reporting_to_the_session(self) -> None:
        """Other plug-ins report in the pytest process what this one answers."""
        for hook in (self._config.hook.pytest_runtest_logreport, self._config.hook.pytest_warning_recorded):
            for implementation in hook.get_hookimpls():
                if implementation.plugin_name != RUNNER:
                    hook._remove_plugin(implementation.plugin)

    def _take_over_streams(self) -> None:
        """Has what the test writes go to the engine, and what pytest's reporter writes nowhere."""
        from _pytest.capture import MultiCapture, SysCapture

        manager: Any = self._config.pluginmanager.getplugin("capturemanager")
        _kept.append(manager._global_capturing)
        has_stdin = self._config.option.capture == "no"
        manager._global_capturing = capture = MultiCapture(in_=None if has_stdin else SysCapture(0), out=None, err=None)
        capture.start_capturing()
        capture.suspend_capturing(in_=True)
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            _kept.append(reporter._tw._file)
            reporter._tw._file = io.StringIO()

    # What is written while it runs

    def mark(self, phase: str) -> None:
        """Marks in both streams that a phase begins."""
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            self._write(stream, number, f"\0{self._marker}:{phase}\0")

    def write_report(self, report: pytest.TestReport) -> None:
        """Writes a report, for the case that this process does not come to answer."""
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._write(sys.stdout, 1, f"\0{self._marker}={json.dumps(_plain(data))}\0")

    def _write(self, stream: Any, number: int, text: str) -> None:
        try:
            stream.flush()
            os.write(number, text.encode())
        except (OSError, ValueError):
            # The test has closed it.
            pass

    def note_warning(self, message: Any, nodeid: str) -> None:
        """Keeps a warning for the answer."""
        kind = message.category
        self._warnings.append((str(message.message), kind.__module__, kind.__name__, str(message.filename), int(message.lineno), nodeid))


def _forget_setup(session: pytest.Session) -> None:
    """What was set up in the pytest process is torn down there."""
    for finalizers, _ in session._setupstate.stack.values():
        finalizers.clear()


def _plain(value: Any) -> Any:
    """The value in types that a result may hold; anything else as its text."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, dict):
        return {_plain(name): _plain(content) for name, content in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else list(map(_plain, value))
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


def _processes_left() -> list[tuple[int, str]]:
    """The processes that the test has started and that are still there.

    Only a process namespace of its own shows them alone: elsewhere the list is empty.
    """
    if os.getpid() != 2:
        return []
    left = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) > 2 and (title := _title(name)) is not None:
            left.append((int(name), title))
    return sorted(left)[:_MAX_NAMED]


def _title(process: str) -> Optional[str]:
    """The command line of a process, its name in brackets if it has none, as in ps(1); None if it has ended."""
    for _ in range(_TRIES_TO_READ_COMMAND):
        try:
            with open(f"/proc/{process}/stat") as file:
                name, _, fields = file.read().partition("(")[2].rpartition(")")
            with open(f"/proc/{process}/cmdline", "rb") as command:
                arguments = command.read(300).decode("utf-8", "replace").replace("\0", " ").strip()
        except OSError:
            return None
        if fields.split()[0] in "ZX":
            return None
        if arguments:
            return arguments
        # A process that is in execve(2) has no command line yet.
        time.sleep(0.001)
    return f"[{name}]"
