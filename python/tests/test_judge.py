"""Judging: programs and functions in real sandboxes, their answers compared here."""

from __future__ import annotations

import copy
import math
import os
import pickle
import secrets
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Iterator

import pytest
import sandtimer
from sandtimer.sandbox import _checkers, _host, _submitted

SQUARE = "print(int(input()) ** 2)"
SUM = "def solve(a, b=1):\n    return a + b\n"


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=20.0) as made:
        yield made


def test_a_program_is_judged_by_what_it_prints(box: sandtimer.Sandbox) -> None:
    judgement = box.judge(SQUARE, [("3", "9"), ("4", "15"), ("x", "0"), ("5", " 25 \n\n")])
    assert judgement.verdicts == ["accepted", "wrong_answer", "runtime_error", "accepted"]
    assert judgement.scores == [1.0, 0.0, 0.0, 1.0]
    assert judgement.score == 0.5
    assert not judgement.passed
    assert [outcome and outcome.stdout for outcome in judgement.outcomes] == ["9\n", "16\n", "", "25\n"]
    assert isinstance(judgement.errors[2], ValueError)
    assert "2 accepted" in repr(judgement)


def test_tracebacks_show_the_lines_of_the_program_and_no_others(box: sandtimer.Sandbox) -> None:
    judgement = box.judge("def f(x):\n    return 1 / x\n\nprint(f(int(input())))\n", [("0", "")], name="answer.py")
    error = judgement.errors[0]
    assert isinstance(error, ZeroDivisionError)
    lines = str(error.__cause__)
    assert 'File "answer.py", line 2' in lines
    assert "return 1 / x" in lines
    assert lines.count("File ") == 2


def test_program_finds_its_own_text_in_its_file(box: sandtimer.Sandbox) -> None:
    program = "print(open(__file__).read().count('count'))"
    assert box.judge(program, [("", "2")]).verdicts == ["accepted"], "the text of the program, and no wrapper's"


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_processes_of_a_judged_function_find_what_it_defines(box: sandtimer.Sandbox, start: str) -> None:
    program = f"""
import multiprocessing

def double(number): return 2 * number

def solve(numbers):
    with multiprocessing.get_context({start!r}).Pool(1) as pool:
        return pool.map(double, numbers)
"""
    assert box.judge(program, [(([1, 2],), [2, 4])], entry="solve").verdicts == ["accepted"]


def test_judged_function_finds_its_text_in_its_file(box: sandtimer.Sandbox) -> None:
    program = "def solve(word):\n    with open(__file__) as file: return file.read().count(word)\n"
    assert box.judge(program, [(("count",), 1), (("solve",), 1)], entry="solve").passed


def test_a_deep_recursion_is_reported_soon(box: sandtimer.Sandbox) -> None:
    program = "import sys\nsys.setrecursionlimit(300_000)\ndef f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError: raise ValueError(1)\n"
    judgement = box.judge(program, [("", "")])
    assert judgement.verdicts == ["runtime_error"]
    outcome = judgement.outcomes[0]
    assert outcome is not None and outcome.usage.wall_ms < 10_000
    lines = str(judgement.errors[0].__cause__)
    assert "frames are left out" in lines and lines.rstrip('\n"').endswith("ValueError: 1")


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("import sys; print(9); sys.exit()", "accepted"),
        ("import sys; print(9); sys.exit(0)", "accepted"),
        ("import sys; print(9); sys.exit(1)", "runtime_error"),
        ("print(9)\nif __name__ != '__main__': raise SystemExit(1)", "accepted"),
        ("print(9)\n# no newline at its end", "accepted"),
        ("print(9)\niter(())", "accepted"),
        ("import os; os.abort()", "runtime_error"),
        ("raise MemoryError", "out_of_memory"),
        ("while True: pass", "timeout"),
    ],
)
def test_ways_to_end(box: sandtimer.Sandbox, program: str, verdict: str) -> None:
    timeout = 0.3 if verdict == "timeout" else None
    assert box.judge(program, [("", "9")], timeout=timeout).verdicts == [verdict]


def test_memory_is_limited_for_each_case(box: sandtimer.Sandbox) -> None:
    judgement = box.limits(memory="64MB").judge("print(len(b'x' * (int(input()) << 20)))", [("1", "1048576"), ("256", "")])
    assert judgement.verdicts == ["accepted", "out_of_memory"]


def test_output_past_its_limit_is_not_a_wrong_answer(box: sandtimer.Sandbox) -> None:
    judgement = box.limits(output="1KB").judge("print('9 ' * 10000)", [("", "9 " * 10000)])
    assert judgement.verdicts == ["output_limit"]


def test_what_is_dropped_of_a_long_output_is_not_taken_for_right() -> None:
    expected = " ".join(f"{number:04}" for number in range(200))
    program = f"import sys\nexpected = {expected!r}\nsys.stdout.write(expected[:500] + MORE + expected[500:])"
    with sandtimer.Sandbox(timeout=20.0, output=len(expected) + 1) as box:
        judge = lambda more: box.judge(program.replace("MORE", repr(more)), [("", expected)]).verdicts  # noqa: E731
        assert judge("") == ["accepted"]
        assert judge("junk " * 1000) == ["output_limit"]


def test_dropped_output_is_judged_all_the_same() -> None:
    with sandtimer.Sandbox(timeout=20.0, stdout="drop") as box:
        assert box.judge(SQUARE, [("3", "9")]).passed


def test_what_does_not_compile_is_not_run(box: sandtimer.Sandbox) -> None:
    judgement = box.judge("print(1)\nif (:\n", [("", "1")] * 3)
    assert judgement.verdicts == ["compile_error"] * 3
    assert judgement.outcomes == [None] * 3
    assert isinstance(judgement.error, SyntaxError)
    assert judgement.error.lineno == 2
    assert box.judge("x = 1\0", [("", "")]).verdicts == ["compile_error"]
    assert box.judge("if 1:\nx", [("", "")]).verdicts == ["compile_error"]


def test_a_program_that_overcomes_the_compiler_does_not_reach_the_caller(box: sandtimer.Sandbox) -> None:
    for program in ("(" * 100_000 + ")" * 100_000, "-" * 1_000_000 + "1", "a." * 300_000 + "b"):
        assert box.judge(program, [("", "")]).verdicts[0] in ("compile_error", "runtime_error")


def test_raising_a_syntax_error_is_a_runtime_error(box: sandtimer.Sandbox) -> None:
    assert box.judge("raise SyntaxError('mine')", [("", "")]).verdicts == ["runtime_error"]


def test_a_function_is_judged_by_its_value(box: sandtimer.Sandbox) -> None:
    cases: list[Any] = [
        ((7, 3), (2, 1)),
        ([1, 0], None),
        {"arguments": (9, 4), "expected": (2, 1)},
        ((9, 4), [2, 1]),
    ]
    judgement = box.judge(divmod, cases)
    assert judgement.verdicts == ["accepted", "runtime_error", "accepted", "wrong_answer"]
    assert judgement.outcomes[0] is not None
    assert judgement.outcomes[0].value == (2, 1)
    assert box.judge(lambda x: x * 0.1, [((3,), 0.3)]).passed
    assert box.judge(os._exit, [((0,), None)]).verdicts == ["no_result"]
    assert box.judge(lambda: object(), [((), None)]).verdicts == ["no_result"]


def test_a_function_is_found_in_a_text(box: sandtimer.Sandbox) -> None:
    cases = [((2, 3), 5), ({"a": 4}, 5), {"arguments": [1], "keywords": {"b": 1}, "expected": 2}]
    assert box.judge(SUM + "if __name__ == '__main__':\n    1 / 0\n", cases, entry="solve").passed
    method = "class Solution:\n    def add(self, a, b=1):\n        return a + b\n"
    assert box.judge(method, cases, entry="Solution.add").passed
    judgement = box.judge(SUM, cases, entry="solution")
    assert judgement.verdicts == ["runtime_error"] * 3
    assert "defines no 'solution'" in str(judgement.errors[0])


def test_its_dataclasses_and_its_prints_do_no_harm(box: sandtimer.Sandbox) -> None:
    text = (
        "from __future__ import annotations\nimport dataclasses\nfrom typing import ClassVar\nprint('hello')\n"
        "@dataclasses.dataclass\nclass Point:\n    x: int\n    many: ClassVar[int] = 2\n"
        "def solve(x):\n    return dataclasses.asdict(Point(x))\n"
    )
    assert box.judge(text, [((3,), {"x": 3})], entry="solve").passed


def test_no_case_sees_what_another_left(box: sandtimer.Sandbox) -> None:
    text = "import os\nseen = []\ndef solve(x):\n    seen.append(x)\n    open('/tmp/seen', 'a').write('x')\n"
    text += "    return len(seen), os.path.getsize('/tmp/seen')\n"
    assert box.judge(text, [((x,), (1, 1)) for x in range(4)], entry="solve").passed


def test_what_is_expected_never_enters_the_sandbox(box: sandtimer.Sandbox) -> None:
    text = (
        "def solve(half, other):\n"
        "    token, found = (half + other).encode(), 0\n"
        "    own = bytearray(token)\n"
        "    del token\n"
        "    for line in open('/proc/self/maps'):\n"
        "        span, mode = line.split()[:2]\n"
        "        start, end = (int(word, 16) for word in span.split('-'))\n"
        "        if 'rw' not in mode:\n"
        "            continue\n"
        "        try:\n"
        "            memory = open('/proc/self/mem', 'rb', 0)\n"
        "            memory.seek(start)\n"
        "            data = memory.read(end - start)\n"
        "        except OSError:\n"
        "            continue\n"
        "        found += data.count(bytes(reversed(own)))\n"
        "    return found\n"
    )
    secret = secrets.token_hex(16)
    reverse = secret[::-1]
    judgement = box.judge(text, [((reverse[:16], reverse[16:]), secret)], entry="solve")
    outcome = judgement.outcomes[0]
    assert outcome is not None
    seen = outcome.value
    # The control has it among its arguments.
    control = text.replace("def solve(half, other):", "def solve(half, other, secret):")
    judgement = box.judge(control, [((reverse[:16], reverse[16:], secret), secret)], entry="solve")
    outcome = judgement.outcomes[0]
    assert outcome is not None
    # Both searches may see what they search for; the control sees what it was given besides.
    assert isinstance(seen, int)
    assert outcome.value > seen


def test_each_case_has_its_own_limit(box: sandtimer.Sandbox) -> None:
    program = "import time\ntime.sleep(float(input()))"
    judgement = box.judge(program, [("0", ""), ("60", ""), ("0", "")], timeout=2.0)
    assert judgement.verdicts == ["accepted", "timeout", "accepted"]
    outcome = judgement.outcomes[1]
    assert outcome is not None
    assert outcome.verdict is not None
    assert outcome.verdict.limit_ms == 2000
    assert outcome.tree.survivors == 0


def test_after_the_total_limit_the_rest_is_not_run(box: sandtimer.Sandbox) -> None:
    started = time.monotonic()
    judgement = box.judge("import time\ntime.sleep(60)", [("", "")] * 20, total=0.5)
    assert time.monotonic() - started < 60
    assert judgement.verdicts[0] == "timeout"
    assert judgement.verdicts[-1] == "not_run"
    assert judgement.outcomes[-1] is None
    assert set(judgement.verdicts) == {"timeout", "not_run"}


def test_it_stops_at_the_first_failure(box: sandtimer.Sandbox) -> None:
    cases = [("1", "1"), ("2", "4"), ("3", "0"), ("4", "16"), ("5", "25"), ("6", "0")] + [("1", "1")] * 20
    judgement = box.judge(SQUARE, cases, stop_early=True)
    assert judgement.verdicts == ["accepted", "accepted", "wrong_answer"] + ["not_run"] * 23
    assert judgement.outcomes[3:] == [None] * 23


def test_a_stop_does_not_wait_for_cases_behind_it(box: sandtimer.Sandbox) -> None:
    started = time.monotonic()
    judgement = box.judge(
        "import time\nline = input()\ntime.sleep(float(line))\nprint(line)", [("0", "1")] + [("300", "300")] * 9,
        timeout=300, stop_early=True,
    )  # fmt: skip
    assert judgement.verdicts == ["wrong_answer"] + ["not_run"] * 9
    assert time.monotonic() - started < 300


def test_an_interrupt_ends_what_is_under_way(box: sandtimer.Sandbox) -> None:
    # The first case's checker runs when others are under way.
    def checker(*_: Any) -> bool:
        main = threading.main_thread().ident or 0
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
        return True

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        box.judge("import time\ntime.sleep(float(input()))", [("0", "")] + [("300", "")] * 5, checker=checker, timeout=300)
    assert time.monotonic() - started < 300
    # The sandbox serves the next, with all its workers.
    assert box.judge(SQUARE, [("3", "9")] * 8, timeout=20.0).passed


def test_long_inputs_and_outputs(box: sandtimer.Sandbox) -> None:
    text = "0123456789" * 300_000
    assert box.judge("print(input())", [(text, text)]).passed
    assert box.judge("print('not read')", [(text, "not read")]).passed
    assert box.judge("def solve(text):\n    return text * 2", [((text,), text * 2)], entry="solve").passed


def test_a_checker_is_shown_the_case_and_the_outcome(box: sandtimer.Sandbox) -> None:
    def checker(case: Any, outcome: sandtimer.Outcome) -> float:
        return 1 / 4 * len(outcome.stdout.split()) if case[1] == "words" else bool(outcome.stdout)

    judgement = box.judge("print(input())", [("a b", "words"), ("a b c d", "words"), ("x", None)], checker=checker)
    assert judgement.verdicts == ["partial", "accepted", "accepted"]
    assert judgement.scores == [0.5, 1.0, 1.0]
    judgement = box.judge("print('x')", [("", "")], checker=lambda case, outcome: int(outcome.stdout))
    assert judgement.verdicts == ["checker_error"]
    assert isinstance(judgement.errors[0], ValueError)
    assert box.judge("print()", [("", "")], checker=lambda *_: float("nan")).verdicts == ["checker_error"]
    given = {"stdin": "1", "expected": "2"}
    assert box.judge("print(2)", [given], checker=lambda case, _: case is given).passed


def test_several_programs_make_a_matrix(box: sandtimer.Sandbox) -> None:
    programs = ["print(1)", "print(2)", "x = (", "while True: pass"]
    judgements = box.judge_many(programs, [("", "1"), ("", "2")], timeout=2.0)
    assert judgements.verdicts == [
        ["accepted", "wrong_answer"],
        ["wrong_answer", "accepted"],
        ["compile_error", "compile_error"],
        ["timeout", "timeout"],
    ]
    assert judgements.scores == [0.5, 0.5, 0.0, 0.0]
    assert judgements.passed == [False] * 4
    assert [[outcome and outcome.ending for outcome in row] for row in judgements.matrix] == [
        ["returned", "returned"],
        ["returned", "returned"],
        [None, None],
        ["timeout", "timeout"],
    ]
    assert len(judgements) == 4
    assert judgements[0].score == 0.5


def test_no_cases_and_no_programs(box: sandtimer.Sandbox) -> None:
    judgement = box.judge("print(1)", [])
    assert (judgement.verdicts, judgement.score, judgement.passed) == ([], 0.0, False)
    assert list(box.judge_many([], [("", "")])) == []


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((3, []), {}, TypeError),
        (("print(1)", [("only",)]), {}, TypeError),
        (("print(1)", [(3, "3")]), {}, TypeError),
        (("print(1)", [{"stdin": "", "wanted": ""}]), {}, TypeError),
        ((abs, [(3, 3)]), {}, TypeError),
        ((abs, [{"argument": 3}]), {}, TypeError),
        ((abs, []), {"entry": "abs"}, TypeError),
        (("x", []), {"entry": "1; import os"}, ValueError),
        (("print(None)", [{"stdin": ""}]), {}, TypeError),
        (("x", [{"arguments": (1,)}]), {"entry": "solve"}, TypeError),
        (("x", []), {"timeout": -1}, sandtimer.InvalidLimitError),
        (("x", []), {"timeout": True}, sandtimer.InvalidLimitError),
        (("x", []), {"total": float("nan")}, sandtimer.InvalidLimitError),
        (("x", []), {"total": "2s"}, sandtimer.InvalidLimitError),
        (("x", []), {"total": True}, sandtimer.InvalidLimitError),
        (("x", []), {"total": -1}, sandtimer.InvalidLimitError),
    ],
)
def test_wrong_use_is_said_at_once(box: sandtimer.Sandbox, arguments: Any, options: Any, error: Any) -> None:
    with pytest.raises(error):
        box.judge(*arguments, **options)


def test_arguments_that_cannot_be_sent_are_said(box: sandtimer.Sandbox) -> None:
    lock = threading.Lock()
    cases: list[Any] = [((1,), "1"), ((lock,), "")]
    for program, entry in ((repr, None), ("def solve(x): return repr(x)", "solve")):
        with pytest.raises(sandtimer.UnserializableError, match=r"^cases\[1\]: its arguments .* cannot pickle .*; use what") as caught:
            box.judge(program, cases, entry=entry)
        assert isinstance(caught.value.__cause__, TypeError) and "fork" not in str(caught.value)
    with pytest.raises(sandtimer.UnserializableError, match="^the program .*<lambda> cannot be sent to a sandbox"):
        box.judge(lambda x: (lock, x), [((1,), "1")])
    assert box.judge(repr, [((1,), "1")]).passed


def test_malformed_case_or_program_is_named(box: sandtimer.Sandbox) -> None:
    for program, case, options in (
        ("x", ("only",), {}), ("x", (3, "3"), {}), ("x", {"stdin": "", "wanted": "", 3: 4}, {}), ("x", {"stdin": ""}, {}),
        ("x", ("\ud800", ""), {}), (abs, (3, 3), {}), (abs, {"arguments": 3, "expected": 3}, {}), ("x", {"expected": 1}, {"entry": 3}),
    ):  # fmt: skip
        good = ("", "") if isinstance(program, str) else ((1,), 1)
        with pytest.raises((TypeError, ValueError), match=r"^cases\[2\]: |^entry=3"):
            box.judge_many([program], [good, good, case, good], **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^programs\[1\] is of type int: use a string or a function"):
        box.judge_many(["print(1)", 7], [("", "1")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="^the program is of type int"):
        box.judge(7, [("", "1")])  # type: ignore[arg-type]


def test_errors_of_limits_say_what_ended_the_run(box: sandtimer.Sandbox) -> None:
    judgement = box.judge("while True: pass", [("", "")], timeout=0.2)
    assert "Stopped by the run's wall limit of 200 ms (set by the call)" in repr(judgement.errors)
    assert "Stopped by the run's wall limit" in repr(judgement.outcomes[0])
    judgement = box.judge("import time\ntime.sleep(60)", [("", "")], total=0.5)
    outcome = judgement.outcomes[0]
    assert outcome is not None and outcome.verdict is not None and outcome.verdict.origin == "total= of judge"
    assert "wall limit of 500 ms (set by total= of judge)" in outcome.verdict.sentence == str(judgement.errors[0])
    assert outcome.to_dict()["verdict"]["sentence"] == outcome.verdict.sentence
    first = next(iter(box.map(time.sleep, [60], total=0.5)))
    assert first.verdict is not None and "(set by total= of map)" in first.verdict.sentence
    assert repr(sandtimer.DeadlineExceeded()) == "DeadlineExceeded()"


def usage(**given: Any) -> sandtimer.Usage:
    numbers = {"wall_ms": 1000, "user_ms": 400, "system_ms": 0, "memory_peak_bytes": 0, "processes_peak": 1}
    return sandtimer.Usage(**{**numbers, "run_queue_ms": 0, **given})


def evidence(before: _host.Sample, after: _host.Sample, used: sandtimer.Usage) -> _host.HostLoad:
    span = _host.Span(before, after, used)
    return _host.load(span, [span], by_wall=True)


def test_evidence_of_an_overloaded_machine() -> None:
    # Two busy processors, of which the run had a fifth.
    calm = _host.Sample(0.0, 100, 1000, 0.9)
    later = _host.Sample(1.0, 101, 1200, 0.9)
    assert not evidence(calm, later, usage())
    queued = evidence(calm, later, usage(run_queue_ms=500))
    assert queued
    assert queued.run_queue == 0.5
    assert "50%" in queued.reasons[0]
    # One that keeps its own processor busy with its own threads is held up by itself.
    assert not evidence(calm, later, usage(run_queue_ms=500, user_ms=1900))
    # A processor was free for it.
    assert not evidence(calm, later._replace(idle=100), usage(run_queue_ms=500))
    stolen = evidence(calm, later._replace(stolen=150), usage())
    assert stolen
    assert stolen.steal == 0.25
    # Pressure is anybody's: it speaks only where the run's own queue is not known.
    assert evidence(calm, later, usage(run_queue_ms=None)).cpu_pressure == 0.9
    assert evidence(calm, later, usage(run_queue_ms=None))
    assert not evidence(calm, later._replace(pressure=0.2), usage(run_queue_ms=None))
    unknown = _host.Sample(0.0, None, 0, None)
    assert not evidence(unknown, unknown, usage(run_queue_ms=None))


def test_this_machine_can_be_asked() -> None:
    sample = _host.sample()
    assert sample.ticks > 0
    assert sample.stolen is not None
    assert sample.pressure is None or 0 <= sample.pressure <= 1


def test_a_crowded_machine_is_noticed(box: sandtimer.Sandbox) -> None:
    # Others have four processes for each processor; this one gets a part of one, as its own queue shows. A session each:
    # the scheduler shares processors out among sessions first (sched(7), autogroup), and an interpreter has one of its own.
    processors = len(os.sched_getaffinity(0))
    command = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(command, start_new_session=True) for _ in range(4 * processors)]
    try:
        judgement = box.judge("while True: pass", [("", "")], timeout=2.0)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert judgement.verdicts == ["timeout"]
    load = judgement.overloaded[0]
    assert load is not None
    if load.run_queue is None:
        pytest.skip("this machine does not tell how long a run waits for a processor")
    assert load
    assert judgement.retry_overloaded() is not judgement


def test_overloaded_cases_can_be_run_again(box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [("0", ""), ("60", ""), ("0", "wrong"), ("0", "")]
    judgement = box.judge("import time\ntime.sleep(float(input()))", cases, timeout=2.0)
    assert judgement.verdicts == ["accepted", "timeout", "wrong_answer", "accepted"]
    monkeypatch.setattr(_host, "load", lambda *_: _host.HostLoad(None, None, None))
    assert judgement.retry_overloaded() is judgement
    assert [bool(load) for load in judgement.overloaded] == [False] * 4
    monkeypatch.setattr(_host, "load", lambda *_: _host.HostLoad(1.0, None, None, ("it was ready",)))
    again = judgement.retry_overloaded()
    assert again.verdicts == judgement.verdicts
    # What timed out was run again, and nothing else.
    kept = [new is old for new, old in zip(again.outcomes, judgement.outcomes)]
    assert kept == [True, False, True, True]
    assert judgement.verdicts[1] == "timeout"


NO_ROOM = """
import resource, sandtimer
program = "print('ok')\\nprint('junk ' * 100_000)"
with sandtimer.Sandbox(timeout=20.0, output=sys.argv[1]) as box:
    # As a disk on which there is room for so much.
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    judgement = box.judge(program, [("", "ok")], checker=eval(sys.argv[2]))
    print(judgement.verdicts, judgement.errors, [remark["kind"] for remark in box.exec(program).remarks])
"""


@pytest.mark.parametrize("checker", ["None", "lambda case, outcome: 0.5"])
def test_output_without_room_on_the_disk_is_not_held_against_the_program(checker: str) -> None:
    for output, verdict in (("1MB", "infra_error"), ("100KB", "output_limit")):
        command = [sys.executable, "-c", f"import sys{NO_ROOM}", output, checker]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.stdout.startswith(f"['{verdict}']"), (done.stdout, done.stderr)
        assert ("disk of captured output" in done.stdout and "['output_not_stored']" in done.stdout) == (verdict == "infra_error")


def test_what_is_run_again_is_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with sandtimer.Sandbox(timeout=5.0, workers=2) as box:
        # Two cases of one program, then one case of each of two programs.
        for programs, cases in ((["print(1)"], [("", "1"), ("", "1")]), (["print(1)", "print(1)"], [("", "1")])):
            judgements = box.judge_many(programs, cases)
            for row in judgements:
                row.verdicts[:] = ["infra_error"] * len(cases)
            both, run = threading.Barrier(2), _submitted.Submission.run

            def run_beside_another(*arguments: Any, both: Any = both, run: Any = run) -> Any:
                both.wait(timeout=20.0)
                return run(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(_submitted.Submission, "run", run_beside_another)
                assert judgements.retry_overloaded().passed == [True] * len(programs)


def test_a_stop_on_an_overloaded_machine_is_taken_up_again(
    box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import time\nnumber = int(input())\nif number == 3: time.sleep(60)\nprint(number ** 2)"
    judgement = box.judge(program, [("2", "4"), ("3", "9"), ("4", "16")], stop_early=True, timeout=2.0)
    assert judgement.verdicts == ["accepted", "timeout", "not_run"]
    monkeypatch.setattr(_host, "load", lambda *_: _host.HostLoad(1.0, None, None, ("it was ready",)))
    judgement._submission.program, judgement._submission.payload = SQUARE, None
    assert judgement.retry_overloaded().passed


def test_values_are_compared() -> None:
    same = _checkers.same_value
    assert same(0.3, 0.1 + 0.2)
    assert same([1, {"a": (2.0, None)}], [1, {"a": (2, None)}])
    assert same(float("nan"), float("nan"))
    assert same(float("inf"), float("inf"))
    assert not same(float("inf"), 1e308)
    assert not same(1.0, 1.1)
    assert not same(1.0, "1.0")
    assert not same(1.0, 10**400)
    assert not same(10**20, 10**20 + 1)
    assert not same([1], (1,))
    assert not same({1: 2}, {1: 2, 3: 4})
    assert same(1 + 1e-12j, 1)
    assert same({1, 2}, {2, 1})
    around: list[Any] = []
    around.append(around)
    assert not same([[1]], around)


def test_values_are_compared_as_json_has_them(box: sandtimer.Sandbox) -> None:
    same = lambda expected, got: _checkers.same_value(expected, got, True)  # noqa: E731
    assert same([1, [2.0]], (1, (2 + 1e-12,))) and same((1,), [1]) and same({"1": [None]}, {1: (None,)})
    assert same({"true": 1, "null": 2, "1.5": 3}, {True: 1, None: 2, 1.5: 3}) and same({1: 2}, {"1": 2})
    for expected, got in (([1], {1}), ([1, 2], (1,)), ({"1": 2}, {1: 2, "2": 2}), ({"1": 2, "2": 3}, {1: 2, "1": 2}), ([1], "1")):
        assert not same(expected, got), (expected, got)
    text = "def solve(n):\n    return (n, {n: (n,)})\n"
    cases = [((1,), [1, {"1": [1]}]), ((2,), [1, {"1": [1]}])]
    assert box.judge(text, cases, entry="solve", checker="json").verdicts == ["accepted", "wrong_answer"]
    assert box.judge(text, cases, entry="solve").verdicts == ["wrong_answer"] * 2
    for options, message in (({"entry": "solve", "checker": "jason"}, '"json"'), ({"checker": "json"}, "programs")):
        with pytest.raises(sandtimer.InvalidArgumentError, match=message):
            box.judge(text, [], **options)
    with pytest.raises(sandtimer.InvalidArgumentTypeError, match=r"cases\[0\]: a case has no expected"):
        box.judge(text, [{"arguments": (1,)}], entry="solve", checker="json")


def test_arrays_are_compared() -> None:
    numpy = pytest.importorskip("numpy")
    same = _checkers.same_value
    assert same(numpy.array([0.3]), numpy.array([0.1 + 0.2]))
    assert not same(numpy.array([1.0]), numpy.array([[1.0]]))
    assert not same(numpy.array([1.0]), [1.0])
    assert same(numpy.float32(0.25), 0.25)
    assert same(numpy.int64(3), 3)
    assert same(numpy.array(["a"]), numpy.array(["a"]))
    assert not same(numpy.array([1, 2]), numpy.array([1, 3]))
    assert not same(numpy.array([1.0]), numpy.array(["a"]))


def test_lines_are_compared() -> None:
    assert _checkers.same_lines("1 2\n3\n", "1  2 \r\n\n3")
    assert not _checkers.same_lines("1 2\n3\n", "1\n2 3")
    assert _checkers.same_lines(b"a", "a\n")


def test_a_judgement_can_be_sent_on(box: sandtimer.Sandbox) -> None:
    judgement = box.judge("print(1)", [("", "1"), ("", "2")], checker=lambda case, outcome: outcome.stdout.strip() == case[1])
    for again in (pickle.loads(pickle.dumps(judgement)), copy.deepcopy(judgement)):
        assert (again.verdicts, again.score, again.passed) == (["accepted", "wrong_answer"], 0.5, False)
        assert [each.stdout for each in again.outcomes] == ["1\n", "1\n"]
        assert again.overloaded == judgement.overloaded
        again.verdicts[1] = "infra_error"
        with pytest.raises(sandtimer.SandboxUnavailableError, match="judge again"):
            again.retry_overloaded()
    rows = pickle.loads(pickle.dumps(box.judge_many(["print(1)"], [("", "1")])))
    assert rows.passed == [True]


def test_a_case_without_an_expected_value_is_refused_by_name(box: sandtimer.Sandbox) -> None:
    for program, case, options in (
        ("print(None)", {"stdin": ""}, {}),
        ("def solve(n): pass", {"arguments": (1,)}, {"entry": "solve"}),
    ):
        with pytest.raises(sandtimer.InvalidArgumentTypeError, match="a case has no expected"):
            box.judge(program, [case], **options)
        assert box.judge(program, [{**case, "expected": None}], **options).passed
        assert box.judge(program, [case], checker=lambda *_: True, **options).passed


def test_the_expected_value_decides_how_exact_a_comparison_is() -> None:
    same = _checkers.same_value
    million = 10**12
    assert same(3, 3.0) and same(0, -0.0) and same(3, 3 + 0j) and same([1, (2,)], [1.0, (2.0,)])
    assert same(float(million), million + 1) and same(3.0, 3.0000001) and same(3 + 0j, 3.0000001)
    for expected, got in (
        (million, million + 0.5), (million, 1000000500000.0), (million, complex(million + 1)), (True, 1.0000000001),
        ([10**15], [10**15 * (1 + 9e-7)]), ({"a": 7}, {"a": 7.0000001}), (10**400, math.inf), (2**53 + 1, float(2**53)),
    ):  # fmt: skip
        assert not same(expected, got), (expected, got)


def test_whole_numbers_of_arrays_are_compared_exactly() -> None:
    numpy = pytest.importorskip("numpy")
    same = _checkers.same_value
    whole = numpy.array([2**53 + 1, 7])
    assert same(whole, whole.copy()) and same(numpy.array([3, 4]), numpy.array([3.0, 4.0]))
    assert same(numpy.array([3, 4]), numpy.array([3, 4], "u1")) and same(numpy.array([[True]]), numpy.array([[1.0]]))
    assert same(numpy.array([3.0]), numpy.array([3.0000001])) and same(numpy.float32(0.1), 0.1)
    for expected, got in (
        (whole, whole.astype(float)), (numpy.array([16777217]), numpy.array([16777216.0], "f4")),
        (numpy.array([10**12]), numpy.array([10**12 + 0.5])), (numpy.array([100_000]), numpy.array([numpy.inf], "f2")),
        (numpy.array([2**53 + 1]), numpy.array([2**53], "u8")), (numpy.array([1]), numpy.array([numpy.nan])),
    ):  # fmt: skip
        assert not same(expected, got), (expected, got)


def test_whole_numbers_of_tensors_are_compared_exactly() -> None:
    torch = pytest.importorskip("torch")
    same = _checkers.same_value
    assert same(torch.tensor([3, 4]), torch.tensor([3.0, 4.0])) and same(torch.tensor([3]), torch.tensor([3], dtype=torch.uint8))
    assert same(torch.tensor([3.0]), torch.tensor([3.0000001], dtype=torch.float64))
    for expected, got in (
        (torch.tensor([100_000]), torch.tensor([math.inf], dtype=torch.float16)),
        (torch.tensor([257]), torch.tensor([256], dtype=torch.bfloat16)),
        (torch.tensor([1000.5], dtype=torch.float16), torch.tensor([1001])),
    ):
        assert not same(expected, got), (expected, got)


def test_texts_have_the_same_words_on_the_same_lines() -> None:
    long = "".join(f"{each} word\n" for each in range(20_000))
    words = "word " * 100_000
    alike: list[tuple[Any, str]] = [
        ("", "\n \n"), ("a b\nc", "\n a\t b \n\n\nc\n"), ("a\r\nb", "a\nb\n"), (long, long), (long, long.replace("\n", " \n\n")),
        (long + "end", long + "  end \n"), (words, "word  " * 100_000), (b"a", "a"), (7, " 7"),
    ]  # fmt: skip
    for expected, got in alike:
        assert _checkers.same_lines(expected, got)
    unlike = [
        ("a", ""), ("", "a"), ("a b", "a\nb"), ("a\nb", "a b"), ("ab", "a b"), ("a", "a\na"), (long, long + "x"),
        (long, long[:-1] + "x"), (long + "x", long), (words, words + "word"), (words, words[:-2] + "e "),
    ]  # fmt: skip
    for expected, got in unlike:
        assert not _checkers.same_lines(expected, got)


def test_comparing_a_long_output_takes_little_memory_and_time() -> None:
    import tracemalloc

    size = 10 << 20
    outputs = ["a\n" * (size // 2), "\n" * size, "ab " * (size // 3), "x" * size, " " * size]
    tracemalloc.start()
    try:
        for expected in ("1", "ab"):
            for output in outputs:
                begun = time.process_time()
                assert not _checkers.same_lines(expected, output)
                assert time.process_time() - begun < 5
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The outputs, and two copies of a line: lists of lines and words would be some 90 times as large as one of them.
    assert peak < 3 * size, f"{peak >> 20} MiB"
