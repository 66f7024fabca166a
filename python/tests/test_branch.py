"""Branches of local contexts: what they know, and that nothing is shared."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import sandtimer


@pytest.fixture
def box() -> sandtimer.Sandbox:
    with sandtimer.Sandbox(timeout=20.0, memory="512MB") as box:
        yield box


def test_eight_branches_of_fifty_megabytes_are_worlds_of_their_own(box: sandtimer.Sandbox) -> None:
    with box.context() as ctx:
        made = ctx.run("import os, random\nheld = [bytearray(os.urandom(4096)) for _ in range(12800)]\nx = {'a': []}\nrandom.seed(1);")
        assert made.ok, made
        branches = ctx.branch(8)

        def use(numbered: tuple[int, sandtimer.Context]) -> object:
            number, branch = numbered
            assert branch.run(f"x['a'].append({number}); held[7][:] = bytes([{number}]) * 4096;").ok
            return branch.run("[x['a'], held[7][0], len(held), random.random()]").value

        with ThreadPoolExecutor(8) as pool:
            seen = list(pool.map(use, enumerate(branches)))
        first = ctx.run("random.random()").value
        assert seen == [[[number], number, 12800, first] for number in range(8)]
        assert ctx.run("x['a']").value == []
    assert branches[3].run("x['a']").value == [3], "the end of the origin is not theirs"
    for branch in branches:
        branch.close()


def test_a_branch_is_ended_alone(box: sandtimer.Sandbox) -> None:
    with box.context() as ctx:
        ctx.run("x = 7")
        deaf, small, other = ctx.branch(1)[0], ctx.branch(1, memory="200MB")[0], ctx.branch()[0]
        outcome = deaf.run("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nx = 0\nwhile True: pass", timeout=0.4)
        assert (outcome.ending, outcome.state, outcome.tree.survivors) == ("timeout", "rolled_back", 0)
        outcome = small.run("x = bytearray(300 << 20)")
        assert (outcome.ending, outcome.state) == ("out_of_memory", "rolled_back")
        assert "200 MiB" in str(outcome.verdict.sentence)
        assert [context.run("x").value for context in (deaf, small, other, ctx)] == [7, 7, 7, 7]
        # The others have the origin's 512 MiB.
        assert other.run("y = bytearray(300 << 20); len(y)").value == 300 << 20
        assert other.undo() and other.branch(2)[1].run("x").value == 7
        other.close()
        with pytest.raises(sandtimer.SandboxUnavailableError):
            other.branch()


def test_files_are_copies(box: sandtimer.Sandbox) -> None:
    with box.context() as ctx:
        ctx.run("open('notes', 'w').write('one')")
        (branch,) = ctx.branch()
        assert branch.run("open('notes', 'a').write(' two'); open('notes').read()").value == "one two"
        assert ctx.run("open('notes').read()").value == "one"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "other threads"),
        ("import subprocess; child = subprocess.Popen(['sleep', '60'])", "processes"),
        ("file = open('/tmp/held', 'w')", "/tmp/held"),
    ],
)
def test_what_would_not_be_the_same_is_refused(box: sandtimer.Sandbox, code: str, reason: str) -> None:
    with box.context() as ctx:
        ctx.run(code)
        with pytest.raises(sandtimer.BranchRefusedError, match=reason):
            ctx.branch()
        assert ctx.run("1 + 1").value == 2


@pytest.mark.parametrize("n", [0, -1, 65, True, 1.0, "2", None])
def test_wrong_numbers_are_named(box: sandtimer.Sandbox, n: object) -> None:
    with box.context() as ctx, pytest.raises(ValueError, match="n="):
        ctx.branch(n)  # type: ignore[arg-type]


def test_wrong_limits_are_named(box: sandtimer.Sandbox) -> None:
    with box.context() as ctx, pytest.raises(sandtimer.InvalidLimitError, match="memory"):
        ctx.branch(memory=-1)


def test_it_waits_for_its_turn(box: sandtimer.Sandbox) -> None:
    with box.context() as ctx:
        begun = threading.Event()
        code = "import time\nprint('begun', flush=True)\ntime.sleep(0.5)\nx = 5"
        running = threading.Thread(target=lambda: ctx.run(code, on_stdout=lambda _: begun.set()))
        running.start()
        assert begun.wait(20)
        assert ctx.branch()[0].run("x").value == 5
        running.join(20)


def test_libraries_that_a_run_has_loaded_come_along(box: sandtimer.Sandbox) -> None:
    with box.context() as ctx:
        ctx.run("import numpy, sqlite3, decimal\na = numpy.arange(1_000_000.0)\nrng = numpy.random.default_rng(3)")
        code = "[float(a.sum()), (numpy.eye(50) @ numpy.ones((50, 3))).sum().item(), float(rng.random()), sqlite3.sqlite_version]"
        branches = ctx.branch(2)
        expected = ctx.run(code).value
        assert expected[0] == 499999500000.0
        assert [branch.run(code).value for branch in branches] == [expected, expected]
        assert branches[0].run("a[:] = 0; import numpy.linalg; float(numpy.linalg.det(numpy.eye(3)))").value == 1.0
        assert ctx.run("float(a.max())").value == 999999.0
        assert branches[0].branch()[0].run("float(a.max())").value == 0.0
