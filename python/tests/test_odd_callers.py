"""Callers in unusual states: sandboxes work there as anywhere, and what runs inside does not notice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sandtimer

# What a program can see of its caller.
FACTS = r'''
import os, resource, signal, sys, threading
status = dict(line.rstrip().split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
facts = {
    "umask": os.umask(0), "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "ignored": [each for each in range(1, 32) if signal.getsignal(each) == signal.SIG_IGN], "threads": threading.active_count(),
    **{name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
    "nice": os.nice(0), "policy": os.sched_getscheduler(0), "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "flags": [getattr(sys.flags, name) for name in ("debug", "optimize", "verbose", "dev_mode", "dont_write_bytecode")],
    "recursion": sys.getrecursionlimit(), "switch": sys.getswitchinterval(), "trace": [repr(sys.gettrace()), repr(sys.getprofile())],
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.encoding, sys.getfilesystemencoding()],
    "errors": [sys.stdin.errors, sys.stdout.errors], "warnings": len(sys.warnoptions), "digits": 0.1 + 0.2,
    "environment": {**os.environ}, "directory": os.listdir("."), "terminal": [os.isatty(each) for each in range(3)],
    "debug": __debug__, "input": input(), "group": os.getpgid(0) == os.getpid() or os.getpgid(0),
}
import json
print(json.dumps(facts))
'''

USE = f'''
# Also where assertions are left out.
def check(is_so, what=None):
    if not is_so:
        raise AssertionError(what)

def use():
    import sandtimer
    with sandtimer.Sandbox(timeout=60.0) as box:
        check(box.call(divmod, 7, 2) == (3, 1))
        check(box.call(lambda x: x + 1, 1) == 2)
        endless = box.limits(timeout=0.2).run(exec, "while True: pass")
        check((endless.ending, endless.tree.survivors) == ("timeout", 0), endless)
        check(box.command(["sh", "-c", "cat; exit 3"], stdin="x").exit_code == 3)
        judgement = box.judge("print(int(input()) ** 2)", [("3", "9"), ("x", "")])
        check(judgement.verdicts == ["accepted", "runtime_error"], judgement.errors)
        outcome = box.exec({FACTS!r}, stdin="given")
        check(outcome.ok, outcome.error)
        return outcome.stdout

def report(text):
    import os
    with open(os.environ["REPORT"], "w") as file:
        file.write(text)
'''
PLAIN = "report(use())\n"


class Caller(NamedTuple):
    """A program that calls `use` and reports what that gives."""

    code: str = PLAIN
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    # What is another one inside, as it would be in any child: docs/python.md says so.
    seen: tuple[str, ...] = ()
    # How it is started.
    how: str = "file"


def before(code: str, *seen: str, **options: Any) -> Caller:
    """One that does something before it uses sandboxes."""
    return Caller(f"{code.rstrip()}\n{PLAIN}", seen=seen, **options)


# As far as the machine allows.
LIMIT = """
import resource
name, soft, hard = resource.RLIMIT_{}, {}, {}
most = resource.getrlimit(name)[1]
soft, hard = (each if most == -1 or 0 <= each <= most else most for each in (soft, hard))
resource.setrlimit(name, (soft, hard))
"""
CALLERS = {
    "plain": Caller(),
    # Interpreters
    "-O": Caller(flags=("-O",)),
    "-OO": Caller(flags=("-OO",)),
    "-I": Caller(flags=("-I",)),
    "-b": Caller(flags=("-bb",)),
    "-X dev": Caller(flags=("-X", "dev")),
    "-X utf8=0": Caller(flags=("-X", "utf8=0")),
    "-X faulthandler": Caller(flags=("-X", "faulthandler")),
    "-X tracemalloc": Caller(flags=("-X", "tracemalloc")),
    "-W error": Caller(flags=("-W", "error")),
    "-c": Caller(how="-c"),
    "stdin": Caller(how="stdin"),
    "interactive": Caller(flags=("-i",)),
    "PYTHONHASHSEED": Caller(environment={"PYTHONHASHSEED": "0"}),
    "PYTHONIOENCODING": Caller(environment={"PYTHONIOENCODING": "ascii:strict"}),
    "PYTHONMALLOC": Caller(environment={"PYTHONMALLOC": "debug"}),
    "PYTHONWARNINGS": Caller(environment={"PYTHONWARNINGS": "error"}),
    "PYTHONINSPECT and PYTHONSTARTUP": Caller(environment={"PYTHONINSPECT": "1", "PYTHONSTARTUP": "/nonexistent"}),
    "LANG": Caller(environment={"LANG": "C", "LC_ALL": "POSIX"}, seen=("environment",)),
    "no PATH and no HOME": Caller(environment={"PATH": "", "HOME": ""}, seen=("environment",)),
    "large environment": Caller(environment={"LARGE": "x" * 100_000}),
    # Descriptors
    "stdin closed": before("import os\nos.close(0)"),
    "stdout and stderr closed": before("import os\nos.close(1)\nos.close(2)"),
    "all three closed": before("import os\nos.closerange(0, 3)"),
    "all others closed after the import": before("import os, sandtimer\nos.closerange(3, 1000)"),
    "numbers below 1000 in use": before("import os\nheld = [os.open('/dev/null', os.O_RDONLY) for _ in range(900)]"),
    "inheritable descriptors": before(
        "import os\nheld = [os.open('/etc/hostname', os.O_RDONLY) for _ in range(20)]\nfor each in held: os.set_inheritable(each, True)"
    ),
    "standard streams that are no files": before("import io, sys\nsys.stdin = sys.stdout = sys.stderr = io.StringIO()"),
    "no standard streams": before("import sys\nsys.stdin = sys.stdout = sys.stderr = None"),
    "non-blocking pipes": before("import os\nfor each in range(3): os.set_blocking(each, False)"),
    # Limits
    "RLIMIT_NOFILE": before(LIMIT.format("NOFILE", 256, 1024), "RLIMIT_NOFILE", "RLIMIT_OFILE"),
    "RLIMIT_CORE": before(LIMIT.format("CORE", 0, 0), "RLIMIT_CORE"),
    "RLIMIT_STACK": before(LIMIT.format("STACK", 1 << 20, 1 << 23), "RLIMIT_STACK"),
    "RLIMIT_STACK without end": before(LIMIT.format("STACK", -1, -1), "RLIMIT_STACK"),
    "RLIMIT_AS": before(LIMIT.format("AS", 4 << 30, 8 << 30), "RLIMIT_AS"),
    "RLIMIT_DATA": before(LIMIT.format("DATA", 2 << 30, 4 << 30), "RLIMIT_DATA"),
    "RLIMIT_CPU": before(LIMIT.format("CPU", 600, 600), "RLIMIT_CPU"),
    "RLIMIT_FSIZE": before(LIMIT.format("FSIZE", 1 << 30, 1 << 30), "RLIMIT_FSIZE"),
    "RLIMIT_MEMLOCK": before(LIMIT.format("MEMLOCK", 0, 0), "RLIMIT_MEMLOCK"),
    "nice": before("import os\nos.nice(5)", "nice"),
    "SCHED_BATCH": before("import os\nos.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))", "policy"),
    "one processor": before("import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"),
    # The process
    "umask": before("import os\nos.umask(0o077)"),
    "umask of all": before("import os\nos.umask(0o777)"),
    "directory that is gone": before("import os, tempfile\ngone = tempfile.mkdtemp()\nos.chdir(gone)\nos.rmdir(gone)"),
    "session of its own": before("import os\nos.setsid() if os.getpid() != os.getsid(0) else None"),
    "SIGCHLD ignored": before("import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)"),
    "signals ignored": before("import signal\nfor each in range(1, 16):\n    if each not in (9, 11): signal.signal(each, signal.SIG_IGN)"),
    "signals blocked": before("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals) - {9, 19})"),
    "SIGPIPE ends it": before("import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)"),
    "signals all the time": before(
        "import atexit, signal\nsignal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)\n"
        "atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)"
    ),
    "no core and no tracing": before("import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"),
    "no new privileges": before("import ctypes\nctypes.CDLL(None).prctl(38, 1, 0, 0, 0)"),
    "reaper of orphans": before("import ctypes\nctypes.CDLL(None).prctl(36, 1, 0, 0, 0)"),
    # The interpreter's state
    "trace function": before("import sys, threading\ntrace = lambda *_: trace\nsys.settrace(trace)\nthreading.settrace(trace)"),
    "profile function": before("import sys, threading\nsys.setprofile(lambda *_: None)\nthreading.setprofile(lambda *_: None)"),
    "audit hook": before("import sys\nsys.addaudithook(lambda *_: None)"),
    "recursion limit": before("import sys\nsys.setrecursionlimit(200)"),
    "recursion limit without end": before("import sys\nsys.setrecursionlimit(10 ** 6)"),
    "switch interval": before("import sys\nsys.setswitchinterval(1e-6)"),
    "no garbage collection": before("import gc\ngc.disable()\ngc.freeze()"),
    "decimal context": before("import decimal\ndecimal.getcontext().prec = 1\ndecimal.getcontext().traps[decimal.Inexact] = True"),
    "locale": before("import locale\nlocale.setlocale(locale.LC_ALL, 'C.UTF-8')"),
    "warnings are errors": before("import warnings\nwarnings.simplefilter('error')"),
    "import path of odd entries": before("import pathlib, sys\nsys.path += ['', '/nonexistent', '/etc/passwd', pathlib.Path('/usr')]"),
    "no arguments": before("import sys\nsys.argv = []"),
    "hooks at forks": before("import os\nos.register_at_fork(before=lambda: 1 / 1, after_in_child=lambda: os.write(2, b'forked'))"),
    "modules that are no modules": before("import sys\nsys.modules['numpy'] = None\nsys.modules['cloudpickle_fake'] = object()"),
    # Where it is called from
    "thread": Caller("import threading\nthread = threading.Thread(target=lambda: report(use()))\nthread.start()\nthread.join()\n"),
    "thread with a small stack": Caller(
        "import threading\nthreading.stack_size(256 << 10)\nthread = threading.Thread(target=lambda: report(use()))\nthread.start()\nthread.join()\n"
    ),
    "daemon thread": Caller(
        "import threading\nthread = threading.Thread(target=lambda: report(use()), daemon=True)\nthread.start()\nthread.join()\n"
    ),
    "with busy threads": before(
        "import threading\ndef spin():\n    while True: sum(range(1000))\n[threading.Thread(target=spin, daemon=True).start() for _ in range(2)]"
    ),
    "event loop": Caller("import asyncio\nasync def main():\n    report(use())\nasyncio.run(main())\n"),
    "deep recursion": Caller("def down(n):\n    return down(n - 1) if n else report(use())\ndown(800)\n"),
    "fork": Caller("import os\nchild = os.fork()\nif child == 0:\n    report(use())\n    os._exit(0)\nassert os.waitpid(child, 0)[1] == 0\n"),
    "fork after a use": Caller(
        "use()\nimport os\nchild = os.fork()\nif child == 0:\n    report(use())\n    os._exit(0)\nassert os.waitpid(child, 0)[1] == 0\n"
    ),
    "process of multiprocessing": Caller(
        "import multiprocessing\ndef work():\n    report(use())\nif __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('fork').Process(target=work, daemon=True)\n    process.start()\n    process.join()\n"
    ),
    "spawned process": Caller(
        "import multiprocessing\ndef work():\n    report(use())\nif __name__ == '__main__':\n"
        "    process = multiprocessing.get_context('spawn').Process(target=work)\n    process.start()\n    process.join()\n"
    ),
    "handler of a signal": Caller(
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: report(use()))\nos.kill(os.getpid(), signal.SIGUSR1)\n"
    ),
    "object's end": Caller("class Thing:\n    def __del__(self):\n        report(use())\nthing = Thing()\ndel thing\n"),
}  # fmt: skip


def run(caller: Caller, directory: Path) -> "dict[str, Any]":
    """What a program sees inside that such a caller calls."""
    report, script = directory / "report", directory / "script.py"
    text = USE + caller.code
    script.write_text(text)
    what = {"file": [str(script)], "-c": ["-c", text], "stdin": ["-"]}[caller.how]
    paths = [os.path.dirname(os.path.dirname(os.path.abspath(sandtimer.__file__ or "")))]
    environment = {**os.environ, "REPORT": str(report), **caller.environment}
    command = [sys.executable, *caller.flags, *what]
    if {"-I", "-E"} & set(caller.flags):
        script.write_text(f"import sys\nsys.path += {paths!r}\n{text}")
    given = text.encode() if caller.how == "stdin" else b""
    done = subprocess.run(command, input=given, capture_output=True, timeout=120, env=environment, cwd=directory)
    assert done.returncode == 0 and report.exists(), done.stderr.decode()
    return dict(json.loads(report.read_text()))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, Any]":
    return run(CALLERS["plain"], tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("name", CALLERS)
def test_program_does_not_notice_its_caller(name: str, plain: "dict[str, Any]", tmp_path: Path) -> None:
    caller = CALLERS[name]
    facts = run(caller, tmp_path)
    differs = {fact: (facts[fact], value) for fact, value in plain.items() if facts[fact] != value}
    assert set(differs) <= set(caller.seen), differs


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (LIMIT.format("NOFILE", 64, 64), "SandboxUnavailableError: .* this process may have 64 open at once .*raise it"),
        (LIMIT.format("FSIZE", 4096, 4096), "SandboxUnavailableError: .*File too large"),
        ("import sys\nsys.executable = ''\n", r"InvalidArgumentError: .*sys.executable=''\): give its path as python="),
        ("import sys\nsys.executable = None\n", r"InvalidArgumentError: .*sys.executable=None\): give its path as python="),
        ("import sys\nsys.executable = '/nonexistent/python'\n", "ProfileRefusedError: .*/nonexistent/python does not exist"),
    ],
)
def test_missing_requirement_is_named(code: str, error: str, tmp_path: Path) -> None:
    failing = "try:\n    use()\nexcept Exception as error:\n    report(f'\"{type(error).__name__}: {error}\"')\n"
    script, report = tmp_path / "script.py", tmp_path / "report"
    script.write_text(USE + code + failing)
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, timeout=60, env={**os.environ, "REPORT": str(report)})
    assert done.returncode == 0, done.stderr.decode()
    assert re.search(error, report.read_text(), re.DOTALL), report.read_text()
