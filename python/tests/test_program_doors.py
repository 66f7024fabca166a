"""The programs of `test_programs.py` and their output, through each way into Sandtimer that executes a program."""

from __future__ import annotations

import base64
import functools
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest
import sandtimer
from doors import Doors, Ended, named
from serving import BINARY, Serving
from test_programs import PROGRAMS, STDIN

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def doors(server: str) -> Iterator[Doors]:
    with sandtimer.Sandbox(timeout=60.0) as box:
        yield Doors(server, box)


@functools.cache
def plain(name: str) -> tuple[str, int, str]:
    """What `python3 FILE` makes of it."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "program.py")
        file.write_text(PROGRAMS[name])
        command = [sys.executable, "-B", str(file)]
        done = subprocess.run(command, input=stdin(name), capture_output=True, timeout=60, env=ENVIRONMENT, cwd=directory)
    return done.stdout.decode("utf-8", "replace"), done.returncode, done.stderr.decode("utf-8", "replace")


def stdin(name: str) -> bytes:
    return STDIN.get(name, b"one\ntwo\n")


def seen(ended: Ended) -> tuple[str, Any]:
    code = ended.exit_code
    return ended.stdout, {"returned": 0, "raised": 1}.get(ended.ending, ended.ending) if code is None else code


@named("http_code", "http_command")
def test_programs_of_a_server_are_as_in_plain_python(doors: Doors, door: str) -> None:
    """The first is executed before an interpreter stands ready, the last in one."""
    for name, code in PROGRAMS.items():
        given = {"stdin": base64.b64encode(stdin(name)).decode(), "stdin_encoding": "base64", "errors": "replace"}
        ended = getattr(doors, door)(code, **given)
        assert seen(ended) == plain(name)[:2], (name, ended.whole)


def test_judged_programs_are_as_in_plain_python(doors: Doors) -> None:
    for name, code in PROGRAMS.items():
        judgement = doors.box.judge(code, [(stdin(name), "")], checker=lambda *_: True)
        [outcome] = judgement.outcomes
        if outcome is None:
            assert judgement.verdicts == ["compile_error"] and name == "syntax error"
        else:
            assert seen(Ended(outcome.stdout, outcome.exit_code, outcome.ending, outcome)) == plain(name)[:2], (name, outcome)


@pytest.mark.parametrize("way", ["file", "text"])
def test_programs_of_the_command_line_are_as_in_plain_python(tmp_path: Path, way: str) -> None:
    for name, code in PROGRAMS.items():
        (tmp_path / "program.py").write_text(code)
        words = ["program.py"] if way == "file" else ["-c", code]
        command = [BINARY, "python", "--wall", "40s", *words]
        done = subprocess.run(command, input=stdin(name), capture_output=True, timeout=60, cwd=tmp_path)
        assert (done.stdout.decode("utf-8", "replace"), done.returncode) == plain(name)[:2], (name, done.stderr)


def test_programs_of_an_agents_shell_are_as_in_plain_python(doors: Doors) -> None:
    quiet = [name for name in PROGRAMS if plain(name)[2] == "" and name not in STDIN]
    assert len(quiet) > 40
    # One command for all, as connecting a client for each takes long; as base64, since some is not text.
    executes = "printf 'one\\ntwo\\n' | python3 p.py | base64 -w 0; echo \" ${PIPESTATUS[1]}\""
    pieces = [f"cat > p.py <<'END OF IT'\n{PROGRAMS[name]}\nEND OF IT\n{executes}" for name in quiet]
    shown = doors.mcp_shell("cd /tmp\n" + "\n".join(pieces)).stdout
    lines = [line.split(" ") for line in shown.splitlines()]
    assert len(lines) == len(quiet), shown
    for name, (encoded, code) in zip(quiet, lines):
        assert (base64.b64decode(encoded).decode("utf-8", "replace"), int(code)) == plain(name)[:2], name


# Seven times as much and more, when each line was written by itself.
MANY_LINES = "for i in range(1_000_000): print(7)"
TIMES_PLAIN = 3.5


def processor_time_of_plain_python() -> float:
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", MANY_LINES], stdout=subprocess.PIPE, timeout=60, env={"PATH": os.environ["PATH"]})
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime)


@named("exec", "judge", "call", "command", "cli_python", "http_code", "mcp_bash")
def test_many_lines_take_little_more_than_in_plain_python(doors: Doors, door: str) -> None:
    """In processor time, which a busy machine changes least."""
    before = processor_time_of_plain_python()
    ended = getattr(doors, door)(MANY_LINES)
    after = processor_time_of_plain_python()
    assert ended.ending in ("returned", "exited"), ended.whole
    usage = ended.whole["usage"] if isinstance(ended.whole, dict) else vars_of(ended.whole.usage)
    assert usage["user_ms"] + usage["system_ms"] < TIMES_PLAIN * max(before, after), (usage, before, after)


def vars_of(usage: Any) -> dict[str, float]:
    return {"user_ms": usage.user_ms, "system_ms": usage.system_ms}


# A program that is started again by the modules of the standard library, and one that reads its own file.
STARTS_AGAIN = """
import inspect, multiprocessing
def double(x): return 2 * x
if __name__ == '__main__':
    for way in ('spawn', 'forkserver', 'fork'):
        with multiprocessing.get_context(way).Pool(2) as pool:
            print(way, pool.map_async(double, [1, 2, 3]).get(30))
    print(inspect.getsource(double).strip())
"""


@named("exec", "judge")
def test_program_that_starts_itself_again_finds_its_file(doors: Doors, door: str) -> None:
    ended = getattr(doors, door)(STARTS_AGAIN)
    expected = "".join(f"{way} [2, 4, 6]\n" for way in ("spawn", "forkserver", "fork"))
    assert ended.stdout == expected + "def double(x): return 2 * x\n", ended.whole


STARTS_ITS_FILE = """
import subprocess, sys
if sys.argv[1:] != ['again']:
    subprocess.run([sys.executable, sys.argv[0], 'again'], check=True)
    assert sys.argv[0] == __file__
print(*sys.argv[1:], 'done')
"""


@named("exec", "judge", "http_code", "http_job")
def test_first_argument_of_a_program_is_its_file(doors: Doors, door: str) -> None:
    ended = getattr(doors, door)(STARTS_ITS_FILE)
    assert ended.stdout == "again done\ndone\n", ended.whole


NAMES_ITS_FILE = "import os\ndef f(): pass\nprint(f.__code__.co_filename == __file__, os.path.exists(__file__))"


@named("exec", "judge", "http_code", "http_job")
def test_functions_name_the_file_of_their_program(doors: Doors, door: str) -> None:
    """Compilers such as numba keep what they have compiled by it."""
    ended = getattr(doors, door)(NAMES_ITS_FILE)
    assert ended.stdout == "True True\n", ended.whole


def test_judged_function_names_its_file(doors: Doors) -> None:
    text = "import os\ndef solve():\n    name = solve.__code__.co_filename\n    return name == __file__ and os.path.exists(name)"
    assert doors.box.judge(text, [((), True)], entry="solve").verdicts == ["accepted"]


def test_file_of_the_command_line_is_started_again(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STARTS_AGAIN)
    command = [BINARY, "python", "--wall", "60s", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, cwd=tmp_path)
    assert done.stdout.endswith("fork [2, 4, 6]\ndef double(x): return 2 * x\n") and done.returncode == 0, done.stderr


@named("http_code", "http_job")
def test_first_program_of_a_server_finds_its_file(tmp_path: Path, door: str) -> None:
    serving = Serving(tmp_path)
    try:
        with sandtimer.Sandbox(timeout=60.0) as box:
            ended = getattr(Doors(serving.url, box), door)(STARTS_AGAIN)
    finally:
        serving.stop()
    assert ended.stdout.endswith("fork [2, 4, 6]\ndef double(x): return 2 * x\n"), ended.whole


def test_program_with_a_variable_finds_its_file(doors: Doors) -> None:
    ended = doors.http_code(STARTS_AGAIN, env={"PYTHONHASHSEED": "1"})
    assert ended.stdout.endswith("fork [2, 4, 6]\ndef double(x): return 2 * x\n"), ended.whole


RAISES = "def fail():\n    raise ValueError(1)\nfail()\n"
SHOWS_AGAIN = "import sys\ndef fail(): raise ValueError(1)\ntry: fail()\nexcept ValueError: sys.excepthook(*sys.exc_info())\n"


@named("http_code", "http_job")
@pytest.mark.parametrize("environment", [{}, {"PYTHONHASHSEED": "1"}], ids=["", "with a variable"])
def test_traceback_on_stderr_has_the_frames_of_the_program_alone(doors: Doors, door: str, environment: dict[str, str]) -> None:
    """A program with variables of its own is not executed in an interpreter that stands ready."""
    for code, lines in ((RAISES, (3, 2)), (SHOWS_AGAIN, (3, 2))):
        stderr = getattr(doors, door)(code, env=environment).whole["stderr"]
        frames = [line for line in stderr.splitlines() if line.startswith("  File ")]
        names = ("<module>", "fail")
        assert frames == [f'  File "/sandtimer/main.py", line {line}, in {name}' for line, name in zip(lines, names)], stderr
    assert "in execute" not in getattr(doors, door)("print(1", env=environment).whole["stderr"]
