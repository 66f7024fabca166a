"""Ways to cheat a judge: second tries, verdicts of the candidate's choice, files of the grader. Each has its control, which
succeeds once the layer that stops it is left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Iterator

import pytest
import sandtimer
from sandtimer.sandbox import _checkers, _host, _submitted

# Makes a queue for one processor out of its own children, then gives an answer that differs from run to run.
COIN = """
import os, time
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            began = time.monotonic()
            while time.monotonic() < began + 0.005: pass
            time.sleep(0.002)
        os._exit(0)
    children.append(child)
for child in children: os.waitpid(child, 0)
print(os.urandom(4).hex())
"""
OVERLOADED = _host.HostLoad(1.0, None, None, ("it was ready",))


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=30.0) as made:
        yield made


def test_own_load_earns_no_second_try(box: sandtimer.Sandbox) -> None:
    judgement = box.judge(COIN, [("", "heads")])
    assert judgement.verdicts == ["wrong_answer"]
    assert not judgement.overloaded[0]
    assert judgement.retry_overloaded() is judgement


def test_wrong_answer_is_final_on_an_overloaded_machine(
    box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgement = box.judge("import os\nprint(os.urandom(4).hex())", [("", "heads")])
    monkeypatch.setattr(_host, "load", lambda *_: OVERLOADED)
    assert judgement.retry_overloaded() is judgement
    # The control: a wrong answer that counts as a matter of time is run again, and is another one.
    monkeypatch.setattr(_submitted.CaseRun, "ended_by_wall", lambda _: True)
    again = judgement.retry_overloaded()
    assert again.outcomes[0] is not None
    assert judgement.outcomes[0] is not None
    assert again.outcomes[0].stdout != judgement.outcomes[0].stdout


@pytest.mark.parametrize(
    ("program", "limits", "verdict"),
    [
        ("while True: pass", {"cpu": 0.2}, "timeout"),
        ("import time\ntime.sleep(60)", {"stall": 0.3}, "timeout"),
        ("import os\nos.abort()", {}, "runtime_error"),
        ("x = bytearray(1 << 30)", {"memory": "128MB"}, "out_of_memory"),
    ],
)
def test_only_elapsed_time_is_retried(
    box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch, program: str, limits: Any, verdict: str
) -> None:
    judgement = box.limits(**limits).judge(program, [("", "")])
    assert judgement.verdicts == [verdict]
    monkeypatch.setattr(_host, "_is_crowded", lambda *_: True)
    assert not judgement.overloaded[0]
    assert judgement.retry_overloaded() is judgement


def sample(at: float, busy: float, pressure: float = 0.9) -> _host.Sample:
    """Of two processors that were busy for this share of the time since 0."""
    ticks = int(at * 200)
    return _host.Sample(at, 0, ticks, pressure, int(ticks * (1 - busy)))


def used(processor_ms: int, queued_ms: int) -> sandtimer.Usage:
    return sandtimer.Usage(
        wall_ms=2000, user_ms=processor_ms, system_ms=0, memory_peak_bytes=0, processes_peak=1, run_queue_ms=queued_ms
    )


def test_load_of_sibling_cases_is_no_evidence() -> None:
    busy = sample(0.0, 1.0), sample(2.0, 1.0)
    waiting = _host.Span(*busy, used(500, 1500))
    assert _host.load(waiting, [waiting], by_wall=True)
    assert not _host.load(waiting, [waiting], by_wall=False)
    # Another case of the same submission had the rest of both processors.
    hog = _host.Span(*busy, used(3400, 0))
    assert not _host.load(waiting, [waiting, hog], by_wall=True)
    earlier = _host.Span(sample(-9.0, 1.0), sample(-7.0, 1.0), used(3400, 0))
    assert _host.load(waiting, [waiting, earlier], by_wall=True)
    # A processor was free: the run chose to wait for the other one.
    half = _host.Span(sample(0.0, 0.5), sample(2.0, 0.5), used(500, 1500))
    assert not _host.load(half, [half], by_wall=True)


BIG = "10**4000"
HOSTILE = [
    ("__import__('decimal').Decimal('sNaN')", Decimal(1), InvalidOperation),
    ("[__import__('decimal').Decimal('sNaN')]", [Decimal(1)], InvalidOperation),
    ("{'a': __import__('decimal').Decimal('sNaN')}", {"a": Decimal(1)}, InvalidOperation),
    ("(1, __import__('decimal').Decimal('sNaN'))", (1, 1), InvalidOperation),
    (BIG, 1j, OverflowError),
    (f"[{BIG}]", [1j], OverflowError),
    (f"complex(1), {BIG}", (1, 1j), OverflowError),
]
STRANGE = [
    (f"__import__('fractions').Fraction({BIG}, 3)", 0.5),
    ("__import__('decimal').Decimal('NaN')", 0.5),
    ("__import__('decimal').Decimal('1e999999')", Fraction(1, 3)),
    ("(lambda x: (x.append(x), x)[1])([])", [[[]]]),
    ("__import__('functools').reduce(lambda x, _: [x], range(300), [])", [[1]]),
    ("float('nan')", 1j),
    ("{frozenset([1]): 2}", {1: 2}),
    ("'\\ud800'", "x"),
    ("b'x'", "x"),
    ("__import__('datetime').datetime(2020, 1, 1, tzinfo=__import__('datetime').timezone.utc)", 1.0),
]


def rebuilt(expression: str) -> Any:
    return eval(expression)


@pytest.mark.parametrize(("expression", "expected", "raised"), HOSTILE)
def test_value_that_cannot_be_compared_is_wrong(
    box: sandtimer.Sandbox, expression: str, expected: Any, raised: type
) -> None:
    # The control: comparing it raises, which was a verdict of the candidate's choice.
    with pytest.raises(raised):
        _checkers.same_value(expected, rebuilt(expression))
    judgement = box.judge(f"def solve():\n    return {expression}\n", [((), expected)], entry="solve")
    assert judgement.verdicts == ["wrong_answer"]
    assert isinstance(judgement.errors[0], raised)
    assert judgement.errors[0].__traceback__ is None


@pytest.mark.parametrize(("expression", "expected"), STRANGE)
def test_strange_value_is_wrong(box: sandtimer.Sandbox, expression: str, expected: Any) -> None:
    judgement = box.judge(f"def solve():\n    return {expression}\n", [((), expected)], entry="solve")
    assert judgement.verdicts[0] in ("wrong_answer", "no_result")


def test_checker_of_the_caller_still_fails_by_itself(box: sandtimer.Sandbox) -> None:
    def checker(case: Any, outcome: sandtimer.Outcome) -> bool:
        return bool(outcome.value == case[1])

    text = "def solve():\n    return __import__('decimal').Decimal('sNaN')\n"
    assert box.judge(text, [((), Decimal(1))], entry="solve", checker=checker).verdicts == ["checker_error"]


def test_tensors_of_other_shapes_are_not_multiplied_out() -> None:
    torch = pytest.importorskip("torch")
    same = _checkers.same_value
    assert same(torch.tensor([0.3, 1.0]), torch.tensor([0.1 + 0.2, 1.0], dtype=torch.float64))
    assert same(torch.tensor([1, 2]), torch.tensor([1, 2], dtype=torch.int32))
    assert not same(torch.tensor([1, 2]), torch.tensor([1, 3]))
    # `==` would make a tensor of 10^12 elements.
    assert not same(torch.zeros(1_000_000, 1), torch.zeros(1, 1_000_000))
    assert not same(1.0, torch.tensor([1.0]))


def test_unpickled_answers_are_refused() -> None:
    class_ = "import os\nclass Evil:\n    def __reduce__(self):\n        return os._exit, (7,)\n"
    with sandtimer.Sandbox(timeout=30.0, trust="pickle") as box:
        for judge in (box.judge, lambda program, *rest: box.judge_many([program], *rest)):
            with pytest.raises(ValueError, match='trust="data"'):
                judge(class_ + "def solve():\n    return Evil()\n", [((), 1)])


GRADE = """
import json, os, sys
import sandtimer
import helper

here = os.path.dirname(os.path.abspath(__file__))
TEXT = '''
import glob, json, os, sys
def attempt(act):
    try:
        return act()
    except Exception as error:
        return type(error).__name__
def look(here):
    read = lambda name: attempt(lambda: open(os.path.join(here, name)).read())
    return {
        "answers": read("answers.json"), "env": read(".env"), "private": read("private/key"),
        "list": attempt(lambda: sorted(os.listdir(here))),
        "import": attempt(lambda: __import__("helper").ANSWER),
        "path": here in sys.path,
        "found": glob.glob("/tmp/**/answers.json", recursive=True),
    }
def solve(here):
    return look(here)
'''
PROGRAM = TEXT + "print(json.dumps(look(%r)))" % here

def checker(case, outcome):
    seen.append(outcome.value if outcome.value is not None else json.loads(outcome.stdout))
    return True

def looks(box, name):
    global seen
    seen = []
    judgement = box.judge(TEXT, [((here,), None)], entry="solve", checker=checker)
    assert judgement.passed, (judgement.verdicts, judgement.errors)
    assert box.judge(PROGRAM, [("", None)], checker=checker).passed
    assert box.judge_many([PROGRAM], [("", None)], checker=checker).passed == [True]
    seen.append(json.loads(box.exec(PROGRAM).stdout))
    command = box.command([sys.executable, "-c", PROGRAM])
    assert command.ok, command.stderr
    seen.append(json.loads(command.stdout))
    with box.context() as ctx:
        cell = ctx.run(PROGRAM)
        assert cell.ok, cell.error
        seen.append(json.loads(cell.stdout))
    print(json.dumps({"name": name, "seen": seen, "function": box.call(helper.answer)}))

for start in ("zygote", "spawn"):
    with sandtimer.Sandbox(timeout=60.0, start=start) as box:
        looks(box, start)
    with sandtimer.Sandbox(timeout=60.0, start=start, paths=[here]) as box:
        looks(box, start + " with paths")
"""


def test_files_of_the_grader_are_absent(tmp_path: Path) -> None:
    directory = tmp_path / "grader"
    (directory / "private").mkdir(parents=True)
    for name in (tmp_path, directory):
        name.chmod(0o755)
    (directory / "private").chmod(0o700)
    files = {
        "grade.py": GRADE,
        "helper.py": "ANSWER = 'the answer'\ndef answer():\n    return ANSWER\n",
        "answers.json": "[42]",
        ".env": "TOKEN=secret",
        "private/key": "secret",
    }
    for name, text in files.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o644)
    (directory / ".env").chmod(0o600)
    done = subprocess.run(
        [sys.executable, str(directory / "grade.py")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == ["zygote", "zygote with paths", "spawn", "spawn with paths"]
    for line in lines:
        assert line["function"] == "the answer"
        assert len(line["seen"]) == 6
        for seen in line["seen"]:
            # By no way, in either case.
            assert seen["env"] != "TOKEN=secret"
            assert seen["private"] != "secret"
            if line["name"].endswith("paths"):
                # The control.
                assert seen["answers"] == "[42]"
                assert {"answers.json", "helper.py"} <= set(seen["list"])
                assert str(directory / "answers.json") in seen["found"]
            else:
                assert (seen["answers"], seen["list"]) == ("FileNotFoundError", "FileNotFoundError")
                assert (seen["import"], seen["path"], seen["found"]) == ("ModuleNotFoundError", False, [])
        # Not of a command, which has an interpreter of its own.
        if line["name"].endswith("paths"):
            assert line["seen"][0]["import"] == "the answer"


def test_directory_of_its_owner_alone_is_not_shown(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(ValueError, match="only its owner may read"):
        sandtimer.Sandbox(paths=[tmp_path])
    for wrong in ("a text", [3], ["/nowhere"], ["/etc/passwd"], [""], 7):
        with pytest.raises((ValueError, TypeError), match="paths"):
            sandtimer.Sandbox(paths=wrong)


def test_preload_and_arguments_of_hidden_modules_are_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "hidden_module.py").write_text("class Point:\n    pass\n")
    code = textwrap.dedent("""
        import sys
        import sandtimer
        sys.path.insert(0, sys.argv[1])
        import hidden_module
        with sandtimer.Sandbox(timeout=60.0, preload=["hidden_module"]) as box:
            assert box.call(eval, "'hidden_module' in __import__('sys').modules")
            for use in (lambda: box.exec("1"), lambda: box.judge("1", []) and box.judge("1", [("", "")]), box.context):
                try:
                    use()
                except sandtimer.ProfileRefusedError as refused:
                    print("paths=" in str(refused) and sys.argv[1] in str(refused))
        text = "def solve(x):\\n    return type(x).__name__\\n"
        cases = [((hidden_module.Point(),), "Point")]
        with sandtimer.Sandbox(timeout=60.0) as box:
            try:
                box.judge(text, cases, entry="solve")
            except sandtimer.UnserializableError as refused:
                print("hidden_module" in str(refused))
            print(box.judge(text, [(("hidden_module",), "str")], entry="solve").passed)
        with sandtimer.Sandbox(timeout=60.0, paths=[sys.argv[1]], preload=["hidden_module"]) as box:
            print(box.judge(text, cases, entry="solve").passed, box.exec("hidden_module = __import__('hidden_module')").ok)
    """)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["True"] * 7), done.stderr


def test_installed_packages_stay(box: sandtimer.Sandbox) -> None:
    assert box.judge("import pytest, json\nprint('found')", [("", "found")]).passed
    assert os.path.dirname(__file__) in sys.path
    assert box.exec("import test_judge_attacks").ending == "raised"
