"""What cells print goes through memory of their interpreter: as fast as a buffer, seen at once, and kept when a limit ends the cell."""

from __future__ import annotations

import time
from typing import Iterator

import pytest
import sandtimer


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=60.0) as made:
        yield made


@pytest.fixture()
def ctx(box: sandtimer.Sandbox) -> Iterator[sandtimer.Context]:
    with box.context() as opened:
        yield opened


WRITES = """
def writes():
    with open("/proc/self/io") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("syscw"))

before = writes()
for number in range(20_000):
    print(number)
writes() - before
"""


def test_line_is_no_system_call(ctx: sandtimer.Context) -> None:
    for _ in range(2):
        outcome = ctx.run(WRITES)
        assert outcome.stdout == "".join(f"{number}\n" for number in range(20_000))
        assert outcome.value < 2_000


def test_branch_prints_as_its_origin(ctx: sandtimer.Context) -> None:
    assert ctx.run("print(1)\nx = 2\nprint(x)").stdout == "1\n2\n"
    branches = ctx.branch(2)
    for each in (*branches, ctx):
        outcome = each.run(WRITES)
        assert outcome.value < 2_000 and outcome.stdout.endswith("\n19999\n")
        assert each.run("print(x)\nprint(x + 1)").stdout == "2\n3\n"
    for each in branches:
        each.close()


PRINTS = "print('first')\nprint('second')\nprint('third', end='')\n"


@pytest.mark.parametrize(("end", "ending"), [("sum(range(10**12))", "timeout"), ("import os; os._exit(3)", "no_result"), ("import os; os.kill(os.getpid(), 9)", "signaled")])
def test_output_before_an_end_is_kept(ctx: sandtimer.Context, end: str, ending: str) -> None:
    ctx.run("y = 1\nprint(y)")
    for _ in range(2):
        outcome = ctx.run(PRINTS + end, timeout=1.0)
        assert (outcome.ending, outcome.stdout) == (ending, "first\nsecond\nthird"), outcome
        # The interpreter that takes its place begins with nothing.
        assert ctx.run("print(y)\nprint(y)").stdout == "1\n1\n"


def first_gap(text: str) -> int | None:
    """The offset after the first line that does not continue the count; an interrupt between
    writing and counting repeats a line. The last line may be cut."""
    offset, last = 0, -1
    for line in text.splitlines(keepends=True):
        offset += len(line)
        if not line.endswith("\n"):
            return None
        if line not in (f"{last}\n", f"{last + 1}\n"):
            return offset
        last = int(line)
    return None


def counts_up(text: str) -> bool:
    return first_gap(text) is None


def without_doubled_write(text: str) -> str:
    """The text without a write of up to 4,096 bytes that the kill interrupted, and that is there twice."""
    odd = first_gap(text)
    assert odd is not None
    for begin in range(max(odd - 32, 0), odd + 1):
        for length in range(1, 4_097):
            if text[begin - length : begin] == text[begin : begin + length] and begin >= length:
                shorter = text[:begin] + text[begin + length :]
                if counts_up(shorter):
                    return shorter
    return text


def test_endless_output_is_kept_up_to_the_limit() -> None:
    code = """
import sys
number = 0
while True:
    try:
        while True:
            sys.stdout.write(f"{number}\\n")
            number += 1
    except BaseException:
        pass
"""
    with sandtimer.Sandbox(output="500MB") as box, box.context() as ctx:
        outcome = ctx.run(code, timeout=0.5)
    assert outcome.ending == "timeout" and outcome.stdout.count("\n") > 1_000
    assert counts_up(outcome.stdout) or counts_up(without_doubled_write(outcome.stdout))


def test_output_is_seen_while_the_cell_runs(ctx: sandtimer.Context) -> None:
    seen: list[tuple[float, str]] = []
    code = "import time\nprint('a')\nprint('b')\ntime.sleep(3)\nprint('c')"
    ctx.run(code, on_stdout=lambda text: seen.append((time.monotonic(), text)))
    assert "".join(text for _, text in seen) == "a\nb\nc\n"
    before_sleep = [at for at, text in seen if "b" in text]
    assert seen[-1][0] - before_sleep[0] > 1.5


def test_order_with_other_programs_is_kept(ctx: sandtimer.Context) -> None:
    code = "import os, subprocess\nprint('a')\nprint('b')\nsubprocess.run(['echo', 'c'])\nprint('d')\nprint('e')\nos.system('echo f')\nprint('g')"
    assert ctx.run(code).stdout == "a\nb\nc\nd\ne\nf\ng\n"
    forks = "print('a')\nprint('b')\npid = os.fork()\nif pid == 0:\n    print('child')\n    sys.stdout.flush()\n    os._exit(0)\nos.waitpid(pid, 0)\nprint('c')"
    assert ctx.run("import sys\n" + forks).stdout == "a\nb\nchild\nc\n"
    # The interpreter still writes to the memory, and not the fork.
    assert ctx.run(WRITES).value < 2_000


def test_odd_texts_are_written(ctx: sandtimer.Context) -> None:
    ctx.run("import sys, io, contextlib")
    assert ctx.run("print('\\ud800ä')\nprint('x')").stdout == "\\ud800ä\nx\n"
    assert ctx.run("print('x' * 200_000)\nprint('y')").stdout == "x" * 200_000 + "\ny\n"
    assert ctx.run("sys.stdout.buffer.write(b'raw\\n')\nprint('text')").stdout == "raw\ntext\n"
    code = "inner = io.StringIO()\nwith contextlib.redirect_stdout(inner):\n    print('in')\nprint(inner.getvalue(), end='')"
    assert ctx.run(code).stdout == "in\n"


def test_threads_print_between_cells(ctx: sandtimer.Context) -> None:
    ctx.run("import threading\ngo, done = threading.Event(), threading.Event()\ndef work():\n    go.wait()\n    print('late')\n    print('later')\n    done.set()\nthreading.Thread(target=work).start()\nprint('now')")
    outcome = ctx.run("go.set()\ndone.wait()\nprint('end')")
    assert outcome.stdout == "late\nlater\nend\n"


@pytest.mark.parametrize("loses", ["os.close(1)", "r, w = os.pipe(); os.close(r); os.dup2(w, 1)"])
def test_lost_output_is_not_of_the_next_cell(ctx: sandtimer.Context, loses: str) -> None:
    ctx.run(f"import os; {loses}; print('lost')")
    assert ctx.run("print('kept')").stdout == "kept\n"


def test_wrapped_functions_are_pickled_by_their_names(ctx: sandtimer.Context) -> None:
    code = "import os, pickle\n[pickle.loads(pickle.dumps(f)) is f for f in (os.system, os.dup2, os.execv, os.posix_spawn)] + [os.execve in os.supports_fd]"
    assert ctx.run(code).value == [True] * 5
