"""The pytest plug-in, by real pytest processes."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any, Callable

import pytest

PLUGIN = "sandtimer.integrations.pytest"
# Notes every report as JSON, in the directory that a variable names.
RECORDER = '''
import json, os

def pytest_runtest_logreport(report):
    with open(os.environ["REPORTS"], "a") as file:
        record = {
            "test": report.nodeid.partition("::")[2], "when": report.when, "outcome": report.outcome,
            "text": report.longreprtext, "sections": [list(each) for each in report.sections],
        }
        file.write(json.dumps(record) + "\\n")
'''


def registered() -> bool:
    """Whether the installed package has its entry point."""
    points = importlib.metadata.entry_points()
    named = points.select(group="pytest11") if hasattr(points, "select") else points.get("pytest11", [])
    return any(each.value == PLUGIN for each in named)


class Suite:
    """A directory of tests."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.output = ""

    def command(self, *options: str, plugin: bool = True) -> list[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        if plugin and not registered():
            command[3:3] = ["-p", PLUGIN]
        return command

    def environment(self) -> dict[str, str]:
        package = str(pathlib.Path(importlib.import_module("sandtimer").__file__ or "").parents[1])
        return {**os.environ, "REPORTS": str(self.directory / "reports.json"), "PYTHONPATH": package}

    def start(self, variables: dict[str, str], *options: str) -> "subprocess.Popen[str]":
        """A session that is not waited for, in a process group of its own."""
        return subprocess.Popen(
            self.command(*options), cwd=self.directory, env={**self.environment(), **variables}, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *options: str, plugin: bool = True) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
        reports = self.directory / "reports.json"
        reports.unlink(missing_ok=True)
        (self.directory / "conftest.py").write_text(RECORDER)
        command = self.command(*options, plugin=plugin)
        done = subprocess.run(command, cwd=self.directory, env=self.environment(), capture_output=True, text=True, timeout=120)
        self.output = done.stdout + done.stderr
        lines = reports.read_text().splitlines() if reports.exists() else []
        records = [json.loads(line) for line in lines]
        return done.returncode, {(each["test"], each["when"]): each for each in records}


@pytest.fixture
def suite(tmp_path: pathlib.Path) -> Callable[..., Suite]:
    # What is sealed may not be below a directory that only its owner may read.
    for directory in (tmp_path, *list(tmp_path.parents)[:2]):
        directory.chmod(0o755)

    def make(tests: str, ini: str = "", name: str = "test_it.py") -> Suite:
        (tmp_path / name).write_text(textwrap.dedent(tests))
        (tmp_path / "pytest.ini").write_text("[pytest]\n" + textwrap.dedent(ini))
        return Suite(tmp_path)

    return make


def test_each_ending_is_reported_with_its_reason(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import ctypes, os, subprocess
        import pytest

        @pytest.mark.sandtimer(wall=0.5)
        def test_hang():
            print("so far")
            def spin():
                while True: pass
            spin()

        @pytest.mark.sandtimer(wall=60)
        def test_leak():
            subprocess.Popen(["sleep", "1000"])

        @pytest.mark.sandtimer()
        def test_crash():
            ctypes.string_at(0)

        @pytest.mark.sandtimer(memory="100MB")
        def test_hog():
            bytearray(400 << 20)

        @pytest.mark.sandtimer(memory="100MB")
        def test_exit():
            os._exit(3)

        @pytest.mark.sandtimer()
        def test_good(tmp_path, capfd):
            os.system("echo written")
            assert capfd.readouterr().out == "written\\n"
            (tmp_path / "file").write_text("1")
    """)
    code, reports = it.run()
    assert code == 1, it.output
    hang = reports["test_hang", "call"]
    assert hang["outcome"] == "failed" and "wall limit of 500 ms" in hang["text"]
    assert "test_it.py" in hang["text"] and "spin" in hang["text"] and "Python stack (most" in hang["text"] and "_pytest" not in hang["text"]
    assert ["Captured stdout call", "so far\n"] in hang["sections"]
    leak = reports["test_leak", "teardown"]
    assert leak["outcome"] == "passed"
    assert leak["sections"][-1][0] == "Processes left by the test" and "sleep 1000" in leak["sections"][-1][1]
    assert "the test left 1 process, which was killed: sleep 1000" in it.output
    crash = reports["test_crash", "call"]["text"]
    assert "SIGSEGV" in crash and "Segmentation fault" in crash and "in test_crash" in crash
    assert "memory limit of 100 MiB" in reports["test_hog", "call"]["text"]
    assert "exited with code 3" in reports["test_exit", "call"]["text"]
    for name in ("test_hang", "test_crash", "test_hog", "test_exit"):
        assert (reports[name, "setup"]["outcome"], reports[name, "teardown"]["outcome"]) == ("passed", "passed")
    assert reports["test_good", "call"]["outcome"] == "passed", reports["test_good", "call"]["text"]


SAME = """
    import os, warnings
    import pytest

    made = []

    @pytest.fixture(scope="session")
    def service():
        made.append("service")
        yield made
        made.append("ended")

    @pytest.fixture
    def broken():
        yield
        1 / 0

    def test_passes(service, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        print("printed")
        os.system("echo below")
        assert "service" in service

    def test_fails():
        assert [1, 2] == [1, 3]

    def test_ends_badly(broken):
        pass

    def test_skips():
        pytest.skip("not now")

    @pytest.mark.xfail(strict=True)
    def test_is_expected_to_fail():
        assert 0

    @pytest.mark.parametrize("n", [1, 2])
    def test_numbers(n, record_property, caplog):
        record_property("n", n)
        warnings.warn(f"number {n}")

    def test_reads_stdin():
        with pytest.raises(OSError):
            input()

    class TestClass:
        def setup_method(self):
            self.x = 1

        def test_method(self):
            assert self.x == 1
"""


def outcomes(reports: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], Any]:
    return {key: (each["outcome"], [name for name, _ in each["sections"]]) for key, each in reports.items()}


def last_line(suite: Suite) -> str:
    """The counts of the last line, without the time and the rule around them, whose length depends on the time's."""
    return suite.output.splitlines()[-1].rpartition(" in ")[0].lstrip("= ")


def test_a_suite_has_the_same_reports_sealed(suite: Callable[..., Suite]) -> None:
    it = suite(SAME)
    code, plain = it.run(plugin=False)
    assert code == 1 and len(plain) == 27, it.output
    summary = last_line(it)
    assert it.run("--sandtimer")[0] == 1
    code, sealed = it.run("--sandtimer")
    assert code == 1
    assert outcomes(sealed) == outcomes(plain)
    assert last_line(it) == summary
    assert "assert [1, 2] == [1, 3]" in sealed["test_fails", "call"]["text"]
    assert "UserWarning: number 2" in it.output


def test_suites_without_marks_do_not_import_the_engine(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import sys

        def test_what_is_imported():
            ours = {name for name in sys.modules if name.split(".")[0] == "sandtimer"}
            assert not {"sandtimer._sandtimer", "sandtimer.sandbox._sandbox"} & ours, ours
            assert "_sandtimer_inside" not in sys.modules
    """)
    code, _ = it.run()
    assert code == 0, it.output
    code, reports = it.run("--sandtimer")
    assert code == 1 and "sandtimer.sandbox._sandbox" in reports["test_what_is_imported", "call"]["text"]


def test_wider_fixtures_of_the_session_are_shared_by_memory(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import os
        import pytest

        ended = []

        @pytest.fixture(scope="module")
        def wide():
            value = {"made_by": os.getpid()}
            yield value
            ended.append(1)
            print("wide ends")

        def test_first(wide):
            wide["seen"] = 1

        @pytest.mark.sandtimer()
        def test_second(wide):
            assert wide["seen"] == 1 and wide["made_by"] != os.getpid()
            wide["seen"] = 2

        def test_third(wide):
            assert wide["seen"] == 1 and wide["made_by"] == os.getpid() and not ended

        @pytest.mark.sandtimer()
        def test_last(wide):
            assert wide["seen"] == 1
    """)
    code, reports = it.run()
    assert code == 0, it.output
    assert [reports[name, "teardown"]["outcome"] for name in ("test_second", "test_last")] == ["passed", "passed"]


def test_an_end_in_the_teardown_keeps_the_report_of_the_call(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import pytest, time

        @pytest.fixture
        def slow():
            yield
            time.sleep(60)

        @pytest.mark.sandtimer(wall="500ms")
        def test_it(slow):
            assert 1 == 2
    """)
    code, reports = it.run()
    assert code == 1
    assert "assert 1 == 2" in reports["test_it", "call"]["text"]
    assert "wall limit of 500 ms" in reports["test_it", "teardown"]["text"]


@pytest.mark.parametrize(
    "fault",
    [
        # Output of another process within a report.
        """
        write = _pytest_inside.Inside._write
        def broken(self, stream, number, text):
            write(self, stream, number, text.replace('"when": "setup"', '"when": "se'))
        _pytest_inside.Inside._write = broken
        """,
        "_pytest_inside._plain = lambda value: {'$report_type': 'Nothing'}",
        "_pytest_inside._plain = lambda value: ['not a report']",
    ],
    ids=["text", "another-type", "no-mapping"],
)
def test_an_unreadable_report_is_a_failure(suite: Callable[..., Suite], fault: str) -> None:
    it = suite(f"""
import os
from sandtimer.integrations import _pytest_inside
{textwrap.dedent(fault)}
def test_exits(): os._exit(3)
def test_next(): pass
""")
    code, reports = it.run("--sandtimer")
    assert code == pytest.ExitCode.TESTS_FAILED and "INTERNALERROR" not in it.output, it.output
    setup = reports["test_exits", "setup"]
    assert setup["outcome"] == "failed" and "The report of the test's setup could not be read" in setup["text"]
    assert "exited with code 3" in reports["test_exits", "call"]["text"]
    assert ("test_next", "setup") in reports


def test_an_unreadable_answer_is_a_failure(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import pytest
        from sandtimer.integrations import _pytest_inside

        wrong = {}
        serve = _pytest_inside.Inside.serve
        _pytest_inside.Inside.serve = lambda self, items: {**serve(self, items), **wrong}

        @pytest.mark.parametrize("field", ["reports", "warnings", "left", "stop"])
        @pytest.mark.parametrize("value", [1, [1]], ids=["number", "list"])
        def test_answers(field, value):
            wrong[field] = value

        def test_next(): pass
    """)
    code, reports = it.run("--sandtimer")
    assert code == pytest.ExitCode.TESTS_FAILED and "INTERNALERROR" not in it.output, it.output
    # Each fails in its teardown, in which the answer was made.
    assert "9 passed, 8 errors" in it.output, it.output
    failures = [each for each in reports.values() if each["outcome"] == "failed"]
    assert all("no report that could be read" in each["text"] for each in failures), failures


def test_an_expected_failure_may_be_a_limit(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import ctypes, os
        import pytest

        @pytest.mark.sandtimer(wall=0.5)
        @pytest.mark.xfail(raises=TimeoutError, strict=True, reason="known")
        def test_hang():
            while True: pass

        @pytest.mark.xfail
        def test_crash():
            ctypes.string_at(0)

        @pytest.mark.xfail(raises=TimeoutError)
        def test_other():
            os._exit(3)

        @pytest.mark.xfail(False, reason="not here")
        def test_condition():
            os._exit(3)
    """)
    code, reports = it.run("--sandtimer", "-rx")
    assert code == 1 and "2 failed, 2 xfailed" in it.output, it.output
    hang = reports["test_hang", "call"]
    assert hang["outcome"] == "skipped" and "wall limit of 500 ms" in hang["text"] and "known" in it.output
    for name in ("test_other", "test_condition"):
        failure = reports[name, "call"]
        assert failure["outcome"] == "failed" and "exited with code 3" in failure["text"]
        assert "_pytest_reports.py" not in failure["text"]
    assert it.run("--sandtimer", "--runxfail")[0] == 1 and "4 failed" in it.output, it.output


def test_other_plugins_see_how_a_test_ended(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import os
        import pytest

        def test_exits(request):
            os._exit(3)
    """)
    (it.directory / "observer.py").write_text(textwrap.dedent("""
        import os
        import pytest

        OBSERVER = os.getpid()

        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_makereport(item, call):
            result = yield
            if os.getpid() == OBSERVER:
                result.get_result().sections.append(("Observed", f"{call.when} {type(call.excinfo.value).__name__}"))
    """))
    code, reports = it.run("--sandtimer", "-p", "observer")
    assert code == 1, it.output
    assert ["Observed", "call NoResultError"] in reports["test_exits", "call"]["sections"]


def test_an_older_pytest_runs_what_is_not_sealed(suite: Callable[..., Suite], monkeypatch: pytest.MonkeyPatch) -> None:
    it = suite("""
        import pytest

        def test_it(): pass

        @pytest.mark.sandtimer(wall=1)
        def test_marked(): pass
    """)
    (it.directory / "older.py").write_text("import pytest\ndel pytest.StashKey\npytest.__version__ = '6.2.5'\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    options = ("-p", "older", "-p", PLUGIN)
    code, reports = it.run(*options, "-k", "not marked", plugin=False)
    assert code == 0 and reports["test_it", "call"]["outcome"] == "passed", it.output
    for wanted in ([], ["--sandtimer", "-k", "not marked"]):
        code, reports = it.run(*options, *wanted, plugin=False)
        assert code == pytest.ExitCode.USAGE_ERROR and reports == {}, it.output
        assert "sealed tests need pytest 7.0 or newer, and this is 6.2.5; use a newer pytest" in it.output


def test_a_fork_that_has_one_child_is_replaced_by_another(suite: Callable[..., Suite]) -> None:
    """As without root, where the fork can enter its user namespace once."""
    it = suite("""
        import os
        import pytest
        from sandtimer import errors
        from sandtimer.sandbox import _fork

        begin = _fork.Server.begin

        def begin_once(server, *arguments):
            if vars(server).setdefault("used", 0):
                raise errors.SandtimerError("cannot fork the interpreter")
            server.used = 1
            return begin(server, *arguments)

        _fork.Server.begin = begin_once

        @pytest.mark.parametrize("n", range(6))
        def test_it(n):
            assert n != 4
    """)
    code, reports = it.run("--sandtimer")
    assert code == 1, it.output
    assert [reports[f"test_it[{n}]", "call"]["outcome"] for n in range(6)] == ["passed"] * 4 + ["failed", "passed"]


def test_limits_come_from_the_ini_file_and_the_nearest_mark(suite: Callable[..., Suite]) -> None:
    it = suite(
        """
        import pytest, time

        def test_default():
            time.sleep(60)

        @pytest.mark.sandtimer(wall=None)
        class TestIt:
            @pytest.mark.sandtimer(wall=0.25)
            def test_near(self):
                time.sleep(60)

            def test_none(self):
                time.sleep(1)
        """,
        ini="sandtimer = true\nsandtimer_wall = 500ms\nsandtimer_memory = 1GB\nsandtimer_network = false\n",
    )
    code, reports = it.run()
    assert code == 1, it.output
    assert "wall limit of 500 ms" in reports["test_default", "call"]["text"]
    assert "wall limit of 250 ms" in reports["TestIt::test_near", "call"]["text"]
    assert reports["TestIt::test_none", "call"]["outcome"] == "passed"


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ("wall='soon'", "wall='soon'"),
        ("wall=True", "wall=True is of type bool: use seconds"),
        ("wall=-1", "wall=-1"),
        ("memory=1.5", "memory=1.5 is of type float: use a whole number of bytes"),
        ("memory='12Q'", '`12Q` is not a size'),
        ("processes='many'", "processes='many' is of type str: use a whole number from 1 on"),
        ("network='yes'", "network='yes' is of type str: use True or False"),
        ("time=3", "no field 'time'=3; use wall, memory"),
        ("3", "3 is not named; write wall=3"),
    ],
)
def test_a_wrong_mark_is_a_usage_error(suite: Callable[..., Suite], mark: str, expected: str) -> None:
    it = suite(f"""
        import pytest

        @pytest.mark.sandtimer({mark})
        def test_it(): pass
    """)
    code, reports = it.run()
    assert code == pytest.ExitCode.USAGE_ERROR and reports == {}
    assert expected in it.output and "@pytest.mark.sandtimer of test_it.py::test_it" in it.output


def test_a_wrong_setting_and_a_debugger_are_usage_errors(suite: Callable[..., Suite]) -> None:
    it = suite("def test_it(): pass\n", ini="sandtimer_memory = much\n")
    assert it.run("--sandtimer")[0] == pytest.ExitCode.USAGE_ERROR
    assert "sandtimer_memory of the ini file" in it.output and "much" in it.output
    assert it.run()[0] == 0, it.output
    it = suite("def test_it(): pass\n")
    assert it.run("--sandtimer", "--pdb")[0] == pytest.ExitCode.USAGE_ERROR
    assert "--pdb with sealed tests" in it.output


def test_output_is_shown_where_it_is_not_captured(suite: Callable[..., Suite]) -> None:
    it = suite("def test_it(): print('to be seen')\n")
    assert it.run("--sandtimer", "-s")[0] == 0
    assert "to be seen" in it.output and "\0" not in it.output


def test_exit_and_interrupt_end_the_session(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import pytest

        def test_first(): pytest.exit("enough", 9)
        def test_second(): pass
    """)
    code, reports = it.run("--sandtimer")
    assert code == 9 and "enough" in it.output and ("test_second", "call") not in reports
    it = suite("def test_first(): raise KeyboardInterrupt\ndef test_second(): pass\n")
    code, reports = it.run("--sandtimer")
    assert code == pytest.ExitCode.INTERRUPTED and ("test_second", "call") not in reports


def test_ctrl_c_ends_the_session_and_all_processes(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import os, time

        def test_waits():
            os.system(f"sh -c 'sleep 1000; : {os.environ['MARK']}' &")
            time.sleep(1000)

        def test_waits_too(): time.sleep(1000)
    """)
    mark = f"mark-{os.getpid()}-ctrl-c"
    process = it.start({"MARK": mark}, "--sandtimer")
    try:
        wait_until(lambda: any(mark in line for line in processes()))
        os.killpg(process.pid, signal.SIGINT)
        output = process.communicate(timeout=60)[0]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == pytest.ExitCode.INTERRUPTED and "KeyboardInterrupt" in output, output
    wait_until(lambda: not any(mark in line for line in processes()))


def processes() -> list[str]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            found.append(pathlib.Path("/proc", name, "cmdline").read_text(errors="replace"))
        except OSError:
            pass
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_sealed_tests_run_in_workers_of_xdist(suite: Callable[..., Suite]) -> None:
    it = suite("""
        import ctypes
        import pytest

        @pytest.mark.sandtimer(wall=0.5)
        def test_hang():
            while True: pass

        def test_crash():
            ctypes.string_at(0)

        @pytest.mark.parametrize("n", range(8))
        def test_good(n):
            print("out")
    """)
    code, reports = it.run("--sandtimer", "-n", "2")
    assert code == 1, it.output
    assert "wall limit of 500 ms" in reports["test_hang", "call"]["text"]
    # The worker itself lives on.
    assert "SIGSEGV" in reports["test_crash", "call"]["text"] and "crashed while running" not in it.output
    assert [reports[f"test_good[{n}]", "call"]["outcome"] for n in range(8)] == ["passed"] * 8


# Notes when tests are begun and when they have ended.
NOTES_ORDER = """
import os

os.sched_getaffinity = lambda _: {0, 1}
from sandtimer.integrations._pytest_session import SealedTests

def noted(name, function):
    def call(tests, item, *rest):
        with open("order", "a") as file:
            file.write(f"{name} {item.name[-1]}\\n")
        return function(tests, item, *rest)
    return call

SealedTests._begin = noted("begin", SealedTests._begin)
SealedTests._reports_of = noted("end", SealedTests._reports_of)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="without root, tests do not start ahead")
@pytest.mark.parametrize(
    "limited, order",
    [
        ("", ["begin a", "begin b", "begin c", "end a", "begin d", "end b", "end c", "end d"]),
        ("a", ["begin a", "begin b", "end a", "begin c", "begin d", "end b", "end c", "end d"]),
        ("b", ["begin a", "begin b", "end a", "begin c", "end b", "begin d", "end c", "end d"]),
        ("c", ["begin a", "begin b", "end a", "begin c", "end b", "begin d", "end c", "end d"]),
        ("d", ["begin a", "begin b", "begin c", "end a", "end b", "begin d", "end c", "end d"]),
        ("abcd", ["begin a", "begin b", "end a", "begin c", "end b", "begin d", "end c", "end d"]),
    ],
)
@pytest.mark.parametrize("limit", ["wall", "stall"])
def test_starts_ahead_unless_limited_in_time(suite: Callable[..., Suite], limited: str, order: list[str], limit: str) -> None:
    marks = {name: f"@pytest.mark.sandtimer({limit}=60)\n" if name in limited else "" for name in "abcd"}
    it = suite("import pytest\n" + "".join(f"{marks[name]}def test_{name}(): pass\n" for name in "abcd"))
    (it.directory / "notes_order.py").write_text(NOTES_ORDER)
    code, _ = it.run("-p", "notes_order", "--sandtimer")
    assert code == 0, it.output
    assert (it.directory / "order").read_text().splitlines() == order
