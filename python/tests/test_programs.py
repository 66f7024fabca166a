"""Programs behave as `python3 FILE` does: each is run both ways, and its output, exit code and value of stderr compared."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Iterator, Optional

import pytest
import sandtimer

PROGRAMS = {
    "nothing": "",
    "last value": "40 + 2",
    "value that is not data": "lambda: 1",
    "partial line": "import sys\nsys.stdout.write('no end')",
    "input": "print(input() + input())",
    "input that is not UTF-8": "print(input())",
    "bytes out": "import sys\nsys.stdout.buffer.write(b'\\xff\\x00raw')",
    "bytes and text": "import sys\nprint('a', flush=True)\nsys.stdout.buffer.write(b'b\\n')\nsys.stdout.buffer.flush()\nprint('c')",
    "recursion": "n = 0\ndef f():\n    global n\n    n += 1\n    f()\ntry:\n    f()\nexcept RecursionError:\n    print(n)",
    "reconfigured": "import sys\nsys.stdout.reconfigure(line_buffering=True, errors='replace')\nprint('x')",
    "wrapped": "import io, sys\nout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-16')\nprint('x', file=out, flush=True)",
    "detached": "import sys\nraw = sys.stdout.detach()\nsys.stdout = None\nraw.write(b'raw')\nraw.flush()",
    "names of streams": "import sys\nprint(sys.stdout.name, sys.stderr.name, sys.stdout.mode, sys.stdout.encoding, sys.stdout.buffer.raw.name)",
    "seekable": "import sys\nprint(sys.stdout.seekable(), sys.stdout.isatty())",
    "exit code": "raise SystemExit(7)",
    "exit code that is large": "raise SystemExit(513)",
    "exit text": "import sys\nsys.exit('what went wrong')",
    "exit None": "import sys\nprint(1)\nsys.exit()",
    "os._exit": "import os, sys\nprint(1)\nsys.stdout.flush()\nos._exit(3)",
    "exception": "print(1)\n1 / 0",
    "syntax error": "print(1\n",
    "excepthook": "import sys\nsys.excepthook = lambda kind, *_: print('hook', kind.__name__)\n1 / 0",
    "atexit": "import atexit\natexit.register(print, 'at exit')\nprint('main')",
    "atexit after an exception": "import atexit\natexit.register(print, 'at exit')\n1 / 0",
    "atexit after an exit": "import atexit, sys\natexit.register(print, 'at exit')\nsys.exit(4)",
    "object that is finalised": "import weakref\nclass Thing: pass\nthing = Thing()\nweakref.finalize(thing, print, 'finalised')\nprint('main')",
    "object that is finalised, after imports": (
        "import concurrent.futures, logging, multiprocessing.util, tempfile, weakref\n"
        "kept = set()\nweakref.finalize(kept, print, 'finalised')\nprint('main')"
    ),
    "handler that has not written": (
        "import logging, logging.handlers, sys\n"
        "handler = logging.handlers.MemoryHandler(9, target=logging.StreamHandler(sys.stdout))\n"
        "logging.getLogger().addHandler(handler)\nlogging.warning('kept')\nprint('main')"
    ),
    "threads of a pool": (
        "import concurrent.futures, time\npool = concurrent.futures.ThreadPoolExecutor()\n"
        "pool.submit(lambda: (time.sleep(0.2), print('thread')))\nprint('main')"
    ),
    "thread that still runs": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('main')",
    "thread after an exception": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n1 / 0"
    ),
    "file that is not closed": "out = open(1, 'w', closefd=False)\nout.write('written')",
    "file that is not closed, after an exception": "out = open(1, 'w', closefd=False)\nout.write('written')\n1 / 0",
    "file that is not closed, after an exit": "out = open(1, 'w', closefd=False)\nout.write('written')\nraise SystemExit(2)",
    "object with an end": "class Thing:\n    def __del__(self):\n        print('end')\nthing = Thing()",
    "objects in a cycle": (
        "class Thing:\n    def __del__(self):\n        print('end')\none, other = Thing(), Thing()\none.other, other.one = other, one"
    ),
    "object with an end, after an exit": "class Thing:\n    def __del__(self):\n        print('end')\nthing = Thing()\nraise SystemExit(1)",
    "fork that reaches the end": (
        "import os\nchild = os.fork()\nif child:\n    os.waitpid(child, 0)\nprint('parent' if child else 'child')"
    ),
    "builtins": "print(type(__builtins__).__name__, getattr(__builtins__, 'len')([1]))",
    "fork that exits": "import os, sys\nchild = os.fork()\nif not child:\n    sys.exit(5)\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    "fork that raises": (
        "import os\nchild = os.fork()\nif not child:\n    1 / 0\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    ),
    "descriptors that are closed": "import os\nos.closerange(3, 256)\nprint('after')",
    "all descriptors closed": "import os\nos.closerange(3, 4096)\nprint('after')",
    "stdout closed": "import os\nprint(1, flush=True)\nos.close(1)",
    "name": "print(__name__, __doc__, __spec__)",
    "module of its own": "import sys\nprint(sys.modules['__main__'].__dict__ is globals())",
    "annotations": "x: int = 1\nprint(__annotations__)",
    "pickle of its own class": "import pickle\nclass A:\n    pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\nprint(A(1))",
    "asyncio": "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print('done')\nasyncio.run(main())",
    "subprocess": "import subprocess\nprint(subprocess.run(['echo', 'x'], capture_output=True, text=True).stdout)",
    "processes": (
        "import multiprocessing\ndef double(x):\n    return 2 * x\n"
        "if __name__ == '__main__':\n    with multiprocessing.get_context('fork').Pool(2) as pool:\n        print(pool.map(double, [1, 2]))"
    ),
    "generator that is not run to its end": "def g():\n    try:\n        yield 1\n    finally:\n        print('closed')\ng = g()\nprint(next(g))",
    "warning": "import warnings\nwarnings.simplefilter('always')\nprint('x')",
    "stdin to its end": "import sys\nprint(len(sys.stdin.read()), sys.stdin.read())",
    "lines of stdin": "import sys\nfor line in sys.stdin:\n    print(line.strip())",
    "bytes of stdin": "import sys\nprint(sys.stdin.buffer.read())",
    "surrogate": "print('\\udcff')",
    "surrogate that cannot be written": "try:\n    print('\\ud800')\nexcept UnicodeEncodeError as error:\n    print(error.reason)",
    "program that is replaced": "import os\nprint('before', flush=True)\nos.execvp('echo', ['echo', 'replaced'])",
    "exception of a thread": "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\nthread.start()\nthread.join()\nprint('after')",
    "hook for exceptions of threads": (
        "import threading\nthreading.excepthook = lambda args: print('hook', args.exc_type.__name__)\nthreading.Thread(target=lambda: 1 / 0).start()"
    ),
    "hook for exceptions of objects that end": (
        "import sys\nsys.unraisablehook = lambda args: print('hook', args.exc_type.__name__)\n"
        "class Thing:\n    def __del__(self):\n        1 / 0\nthing = Thing()\ndel thing"
    ),
    "exit of a thread": "import sys, threading\nthreading.Thread(target=sys.exit, args=(3,)).start()\nprint('main')",
    "daemon thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\nprint('main')",
    "functions at exit in their order": "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')",
    "thread that prints at exit": (
        "import atexit, threading\n"
        "def last():\n    thread = threading.Thread(target=print, args=('thread',), daemon=True)\n    thread.start()\n    thread.join()\n"
        "atexit.register(print, 'at exit')\nprint('main')"
    ),
    "block that is left by an exit": "try:\n    raise SystemExit(3)\nfinally:\n    print('finally')",
    "exception that is chained": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError(1) from error",
    "handler of a signal": (
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda number, frame: print('handler', frame is not None))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\nprint('after')"
    ),
    "timer": "import signal\nsignal.signal(signal.SIGALRM, lambda *_: print('alarm'))\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\nsignal.pause()",
    "stderr": "import sys\nprint('error', file=sys.stderr)\nsys.stderr.write('no end')",
    "warning that is shown": "import warnings\nwarnings.warn('careful')\nprint('x')",
    "log": "import logging\nlogging.warning('careful')\nlogging.info('not shown')",
    "command of a shell": "import os\nprint('before', flush=True)\nprint(os.system('echo shell; exit 3') >> 8)",
    "pool of processes": (
        "import concurrent.futures, multiprocessing\ndef double(x):\n    return 2 * x\nif __name__ == '__main__':\n"
        "    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context('fork')) as pool:\n"
        "        print(list(pool.map(double, [1, 2])))"
    ),
    "asynchronous generator that is not run to its end": (
        "import asyncio\nasync def g():\n    try:\n        yield 1\n    finally:\n        print('closed')\n"
        "async def main():\n    async for each in g():\n        print(each)\n        break\nasyncio.run(main())"
    ),
    "end of stdin": "print(input(), input())\ntry:\n    input()\nexcept EOFError:\n    print('no more')",
    "prompt": "name = input('name? ')\nprint(name)",
    "file of its own": (
        "import os, tempfile\nos.chdir(tempfile.mkdtemp())\nopen('own.txt', 'w').write('text')\nprint(open('own.txt').read(), os.listdir())"
    ),
    "module of a directory of its own": (
        "import sys, tempfile\nsys.path.insert(0, tempfile.mkdtemp())\nopen(sys.path[0] + '/own_module.py', 'w').write('x = 7')\n"
        "import own_module\nprint(own_module.x, own_module.__name__)"
    ),
    "interpreter's own names": "import sys\nprint(sys.argv[1:], sys.platform, __name__ in sys.modules, sys.path[-1] != '')",
}
STDIN = {"input that is not UTF-8": b"\xff\xfe abc\n"}


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=30.0) as made:
        yield made


def exit_code(outcome: sandtimer.Outcome) -> Optional[int]:
    return {"returned": 0, "raised": 1}.get(outcome.ending, outcome.exit_code)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_as_in_plain_python(name: str, box: sandtimer.Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[name])
    stdin = STDIN.get(name, b"one\ntwo\n")
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    command = [sys.executable, "-B", str(file)]
    plain = subprocess.run(command, input=stdin, capture_output=True, timeout=60, env=environment, cwd=tmp_path)
    outcome = box.exec(PROGRAMS[name], stdin=stdin)
    assert outcome.stdout == plain.stdout.decode("utf-8", "replace"), outcome.error
    assert exit_code(outcome) == plain.returncode
    if plain.returncode == 0:
        assert outcome.stderr == plain.stderr.decode("utf-8", "replace").replace(str(file), "/sandtimer/main.py")


@pytest.mark.parametrize("name", PROGRAMS)
def test_python_of_a_command_is_as_plain_python(name: str, box: sandtimer.Sandbox, tmp_path: Path) -> None:
    """Its stdout is written by a timer, so that it is seen soon."""
    command = [sys.executable, "-B", "-c", PROGRAMS[name]]
    stdin = STDIN.get(name, b"one\ntwo\n")
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    plain = subprocess.run(command, input=stdin, capture_output=True, timeout=60, env=environment, cwd=tmp_path)
    outcome = box.command(command, stdin=stdin)
    assert outcome.stdout == plain.stdout.decode("utf-8", "replace"), outcome
    assert outcome.exit_code == plain.returncode, outcome
    if plain.returncode == 0:
        assert outcome.stderr == plain.stderr.decode("utf-8", "replace"), outcome


def test_there_are_at_least_70() -> None:
    assert len(PROGRAMS) >= 70


def test_value_is_there_before_the_end(box: sandtimer.Sandbox) -> None:
    program = """
        import atexit
        items = [1]
        atexit.register(items.append, 2)
        items
    """
    assert box.exec(textwrap.dedent(program)).value == [1]


def test_fork_does_not_write_what_its_parent_prints(box: sandtimer.Sandbox) -> None:
    program = """
        import os, sys
        for _ in range(10):
            child = os.fork()
            print("parent" if child else "child")
            if not child:
                sys.exit()
            os.wait()
    """
    words = box.exec(textwrap.dedent(program)).stdout.split()
    assert (words.count("parent"), words.count("child")) == (10, 10), words


def test_fork_of_a_call_does_not_answer_for_it(box: sandtimer.Sandbox) -> None:
    def forks() -> str:
        import os

        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return "parent" if child else "child"

    assert box.call(forks) == "parent"


def test_judged_program_recurses_as_deep_as_in_plain_python(box: sandtimer.Sandbox) -> None:
    assert box.judge(PROGRAMS["recursion"], [("", "999")]).verdicts == ["accepted"]
    function = "def solve():\n" + textwrap.indent(PROGRAMS["recursion"].replace("global", "nonlocal"), "    ") + "\n    return n\n"
    # A script calls it with one frame of its own below.
    plain = subprocess.run([sys.executable, "-c", function + "solve()"], capture_output=True, text=True, check=True)
    assert int(plain.stdout) == 998
    assert box.judge(function, [((), 998)], entry="solve").verdicts == ["accepted"]
