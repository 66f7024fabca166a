"""Programs that a server judges, by the client."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest
import sandtimer
from serving import Serving

SQUARE = "line = input()\nif line == 'hang':\n    while True: pass\nprint(int(line) ** 2)"


@pytest.fixture
def client(server: str) -> sandtimer.Client:
    return sandtimer.Client(server)


def test_verdicts_are_those_of_a_sandbox(client: sandtimer.Client) -> None:
    cases: list[Any] = [("3", "9"), (b"4", b" 16 \n\n"), ("5", 24), ("x", "0"), ("hang", "0"), {"stdin": "6", "expected": "36"}]
    judged = client.judge(SQUARE, cases, timeout=2.0)
    with sandtimer.Sandbox(timeout=2.0) as box:
        local = box.judge(SQUARE, cases)
    assert judged.verdicts == local.verdicts == ["accepted", "accepted", "wrong_answer", "runtime_error", "timeout", "accepted"]
    assert (judged.scores, judged.score, judged.passed) == (local.scores, 0.5, False)
    slow = judged.outcomes[4]
    assert slow is not None and slow.tree.survivors == 0 and isinstance(judged.errors[4], sandtimer.DeadlineExceeded)
    assert repr(judged) == "<ClientJudgement 0.5: 3 accepted, 1 wrong_answer, 1 runtime_error, 1 timeout>"


def test_checker_is_given_the_case_and_all_output(client: sandtimer.Client) -> None:
    seen = []

    def checker(case: Any, outcome: sandtimer.Outcome) -> float:
        seen.append((case, len(outcome.stdout)))
        return {"1": 1.0, "2": 0.5, "3": 0.0}[case[0]]

    program = "print(input() * 100_000)"
    judged = client.judge(program, [("1", None), ("2", None), ("3", None), ("4", None)], checker=checker, timeout=20.0)
    assert judged.verdicts == ["accepted", "partial", "wrong_answer", "checker_error"]
    assert judged.scores == [1.0, 0.5, 0.0, 0.0] and isinstance(judged.errors[3], KeyError)
    assert seen == [((number, None), 100_001) for number in "1234"]
    kept = judged.outcomes[0]
    assert kept is not None and len(kept.stdout) == 64 << 10 and kept.remarks[-1]["kind"] == "shortened"
    stopped = client.judge(program, [("2", None), ("1", None)], checker=checker, stop_early=True, timeout=20.0)
    assert (stopped.verdicts, stopped.outcomes[1]) == (["partial", "not_run"], None)


def test_case_whose_record_is_gone_is_no_verdict_on_it(tmp_path: pathlib.Path) -> None:
    serving = Serving(tmp_path, flags=["--keep-runs", "16"])
    try:
        judged = sandtimer.Client(serving.url).judge("print('x' * 200_000)", [("", None)] * 40, checker=lambda *_: True, timeout=20.0)
    finally:
        serving.stop()
    counts = {verdict: judged.verdicts.count(verdict) for verdict in set(judged.verdicts)}
    assert counts.keys() == {"accepted", "infra_error"}, counts
    lost = judged.errors[judged.verdicts.index("infra_error")]
    assert isinstance(lost, sandtimer.SandboxUnavailableError) and "--keep-runs" in str(lost)


def test_other_languages_and_programs_that_do_not_compile(client: sandtimer.Client) -> None:
    assert client.judge("read x; echo $((x * x))", [("3", "9")], language="bash", timeout=20.0).passed
    for program, language, said in (("const x: = 1", "typescript", "main.ts:1"), ("print((", "python", "SyntaxError")):
        judged = client.judge(program, [("", "")], language=language, timeout=20.0)
        assert judged.verdicts == ["compile_error"] and said in str(judged.error)


def test_judging_is_awaited(client: sandtimer.Client) -> None:
    async def main() -> list[bool]:
        programs = ["print(9)", "print(8)"]
        judged = await asyncio.gather(*(client.ajudge(program, [("", "9")], timeout=20.0) for program in programs))
        return [each.passed for each in judged]

    assert asyncio.run(main()) == [True, False]


def test_bad_input_names_what_it_is(client: sandtimer.Client) -> None:
    with pytest.raises(sandtimer.InvalidArgumentTypeError, match=r"cases\[1\]: a case has no expected"):
        client.judge("x", [("", ""), {"stdin": ""}])
    with pytest.raises(sandtimer.InvalidArgumentTypeError, match="grace"):
        client.judge("x", [("", "")], grace=1.0)  # type: ignore[call-arg]
    with pytest.raises(sandtimer.InvalidArgumentError, match="program=''"):
        client.judge("", [("", "")])
    with pytest.raises(sandtimer.InvalidArgumentTypeError, match="entry"):
        client.judge("def f(x): return x", [((1,), 1)], entry="f")  # type: ignore[call-arg]
    with pytest.raises(sandtimer.ServerError, match="language: `cobol` is not one of"):
        client.judge("x", [("", "")], language="cobol")
    with pytest.raises(sandtimer.ServerError, match="cases: there are 1001; give 1 to 1000"):
        client.judge("x", [("", "")] * 1001)
    before = client.runs()
    assert client.judge("x", []).verdicts == [] and client.runs() == before
