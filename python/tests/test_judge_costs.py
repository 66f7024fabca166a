"""What judging costs its caller, and what it keeps: bounded, whatever a submission prints, returns or raises."""

from __future__ import annotations

import collections
import gc
import json
import pickle
import random
import sys
import time
import weakref
from typing import Any, Iterator, Optional

import pytest
import sandtimer
from sandtimer import _outcome, _values
from sandtimer.sandbox import _checkers, _kept

MAX_OUTPUT, MAX_VALUE = 64 << 10, 1 << 20


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=60.0) as made:
        yield made


def shared_lists(levels: int = 60) -> Any:
    """Some kilobytes, in which the innermost list appears 2 ** levels times."""
    made: Any = [0]
    for _ in range(levels):
        made = [made, made]
    return made


def process_memory() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def shortenings(outcome: Optional[sandtimer.Outcome]) -> list[str]:
    assert outcome is not None
    return [remark["message"] for remark in outcome.remarks if remark["kind"] == "shortened"]


def test_long_output_is_kept_in_part(box: sandtimer.Sandbox) -> None:
    seen = []
    program = "import sys\nprint('begin')\nprint('1\\n' * 5_000_000)\nprint('end')\nprint('x' * 1000, file=sys.stderr)"
    judgement = box.judge(program, [("", "")], checker=lambda case, outcome: seen.append(outcome) or True)
    outcome = judgement.outcomes[0]
    assert outcome is not None and judgement.passed
    assert len(outcome.stdout) + len(outcome.stderr) == MAX_OUTPUT
    assert outcome.stdout.startswith("begin\n1\n") and outcome.stdout.endswith("1\n\nend\n")
    assert outcome.stdout_truncated and not outcome.stderr_truncated
    assert shortenings(outcome) == [
        f"The judgement keeps {MAX_OUTPUT - 1001} of the 10000011 bytes of stdout, the first and the last; a checker is given all."
    ]
    # What the checker was given is whole, and stays so.
    assert len(seen[0].stdout) == 10_000_011 and not seen[0].stdout_truncated and seen[0].remarks == []
    assert outcome.run_id == seen[0].run_id and outcome.tree.survivors == 0 and outcome.usage == seen[0].usage


def test_both_streams_and_all_bytes_are_kept_in_part(box: sandtimer.Sandbox) -> None:
    program = "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe' * 100_000)\nsys.stderr.write('\\U0001F600' * 100_000)"
    outcome = box.judge(program, [("", "")]).outcomes[0]
    assert outcome is not None and len(shortenings(outcome)) == 2
    record = outcome.to_dict()
    assert (record["stdout_encoding"], record["stderr_encoding"]) == ("base64", "utf-8")
    assert len(record["stdout"]) // 4 * 3 <= MAX_OUTPUT // 2 + 3
    assert set(outcome.stderr) == {"\U0001F600"} and len(outcome.stderr.encode()) <= MAX_OUTPUT // 2
    assert outcome.stdout == "\ufffd" * len(outcome.stdout)


def test_little_output_is_kept_whole(box: sandtimer.Sandbox) -> None:
    judgement = box.judge(f"print('x' * {MAX_OUTPUT - 1})", [("", "")])
    outcome = judgement.outcomes[0]
    assert outcome is not None and len(outcome.stdout) == MAX_OUTPUT
    assert not outcome.stdout_truncated and outcome.remarks == []


def test_verdict_on_long_output_is_that_of_all_of_it(box: sandtimer.Sandbox) -> None:
    long = "".join(f"{number}\n" for number in range(200_000))
    program = "print('\\n'.join(str(number if number != WRONG else 7) for number in range(200_000)))"
    assert box.judge(program.replace("WRONG", "-1"), [("", long)]).passed
    assert box.judge(program.replace("WRONG", "100_000"), [("", long)]).verdicts == ["wrong_answer"]


def test_large_value_is_not_kept(box: sandtimer.Sandbox) -> None:
    text = "def solve(size, kind):\n    return kind * size\n"
    cases = [((MAX_VALUE // 2, "x"), "x" * (MAX_VALUE // 2)), ((2 * MAX_VALUE, "x"), "x" * (2 * MAX_VALUE)), ((10**6, [0]), [0] * 10**6)]
    judgement = box.judge(text, cases, entry="solve")
    assert judgement.verdicts == ["accepted"] * 3
    small, large, many = judgement.outcomes
    assert small is not None and small.value == "x" * (MAX_VALUE // 2) and shortenings(small) == []
    for outcome in (large, many):
        assert outcome is not None and outcome.ok and outcome.value is None
        assert "does not keep the value" in shortenings(outcome)[0]


def test_large_exception_is_not_kept(box: sandtimer.Sandbox) -> None:
    text = "def solve(size):\n    raise ValueError('m' * size, [0] * 10)\n"
    small, large = box.judge(text, [((10,), 0), ((2_000_000,), 0)], entry="solve").errors
    assert isinstance(small, ValueError) and small.args == ("m" * 10, [0] * 10)
    assert isinstance(large, sandtimer.RemoteError) and large.type_name == "ValueError"
    assert large.message.startswith("mmm") and large.remote_traceback
    assert sys.getsizeof(large.message) + sys.getsizeof(large.remote_traceback) < 1 << 18


def test_many_judgements_take_little_memory(box: sandtimer.Sandbox) -> None:
    box.judge("print('1\\n' * 5_000_000)", [("", "2")])
    before = process_memory()
    judgements = [box.judge("print('1\\n' * 5_000_000)", [("", "1")]) for _ in range(12)]
    assert {verdict for judgement in judgements for verdict in judgement.verdicts} == {"wrong_answer"}
    # 120 MB as text, and as much in the engine, if all were kept.
    assert process_memory() - before < 100 << 20


def test_failing_checker_does_not_keep_the_outcome(box: sandtimer.Sandbox) -> None:
    class Large(list):  # type: ignore[type-arg]
        """A list that can be referred to weakly."""

    seen = []

    def checker(case: Any, outcome: sandtimer.Outcome) -> bool:
        lines = Large(outcome.stdout)
        seen.append(weakref.ref(lines))
        raise ValueError("not what was asked for")

    judgement = box.judge("print('1' * 100_000)", [("", "")], checker=checker)
    gc.collect()
    assert judgement.verdicts == ["checker_error"] and seen[0]() is None
    trace = judgement.errors[0].__traceback__  # type: ignore[union-attr]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None and trace.tb_frame.f_code.co_name == "checker"


def test_shortened_outcome_can_be_sent_on(box: sandtimer.Sandbox) -> None:
    judgement = box.judge("import time\nprint('1' * 1_000_000, flush=True)\ntime.sleep(60)", [("", "")], timeout=2.0)
    assert judgement.verdicts == ["timeout"]
    again = pickle.loads(pickle.dumps(judgement))
    for each in (judgement, again):
        assert len(each.outcomes[0].stdout) == MAX_OUTPUT and len(shortenings(each.outcomes[0])) == 1
        assert "wall limit" in str(each.errors[0]) and each.outcomes[0].tree.survivors == 0


def test_pending_end_is_settled_later() -> None:
    class Ended:
        id = "run-1"

        def outcome(self, settled: bool) -> str:
            record = dict(json.loads(_outcome._without_run("exited", "", "", tree, stdout="x" * 100_000).outcome(True)))
            return json.dumps({**record, "tree": {**tree, "survivors": 0, "proof": "cgroup empty"} if settled else tree})

    tree = {"killed": 1, "survivors": None, "proof": "pending", "dead_after_ms": None}
    outcome = _kept.shorten_outcome(sandtimer.Outcome(Ended()))
    assert len(outcome.stdout) == MAX_OUTPUT and outcome._ended._ended is not None
    assert outcome.tree.survivors == 0 and outcome.tree.proof == "cgroup empty"
    assert len(outcome.stdout) == MAX_OUTPUT and outcome._ended._ended is None


def test_text_of_shared_structure_is_short(box: sandtimer.Sandbox) -> None:
    begun = time.process_time()
    outcome = box.run(shared_lists)
    assert len(repr(outcome)) < 250 and repr(outcome).startswith("<Outcome returned [[[[")
    raised = sandtimer.Outcome(outcome._ended, "raised", error=ValueError(shared_lists()))
    assert repr(raised).startswith("<Outcome raised: ValueError([[[[") and len(repr(raised)) < 250
    assert outcome.to_dict()["value"] is None
    json.dumps(outcome.to_dict())
    assert time.process_time() - begun < 10


def test_texts_of_values_are_as_repr_writes_them() -> None:
    Point = collections.namedtuple("Point", "x y")
    around: list[Any] = [1]
    around.append(around)
    for value in (
        1, -1.5, None, True, "a'b\n", b"\xff", [], [1, [2]], (), (1,), (1, 2), {"a": [1]}, {}, 1j, ValueError("x", 1), range(3),
        Point(1, [2]), frozenset({1}), {1}, collections.deque([1]), 10**500,
    ):  # fmt: skip
        assert _values.short_repr(value, 1000) == repr(value)
    for value in (around, "x" * 10**6, [0] * 10**6, {each: each for each in range(10**5)}, shared_lists(500)):
        assert len(_values.short_repr(value)) == 200

    class Own:
        def __repr__(self) -> str:
            raise AssertionError("its code is not called")

    assert _values.short_repr([Own()]).startswith("[<") and "Own" in _values.short_repr([Own()])


def test_sizes_of_values_are_measured_to_the_limit_only() -> None:
    assert not _values.exceeds_size([1, "a", {"b": (2.5, None)}], MAX_VALUE)
    assert not _values.exceeds_size(shared_lists(500), MAX_VALUE)
    for value in ("x" * MAX_VALUE, [[each] for each in range(20_000)], {"a": bytearray(MAX_VALUE)}, memoryview(bytes(MAX_VALUE))):
        assert _values.exceeds_size(value, MAX_VALUE)
        assert not _values.exceeds_size(value, 100 * MAX_VALUE)
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(MAX_VALUE, "u1")
    assert _values.exceeds_size([array[1:-1], 1], MAX_VALUE // 2) and not _values.exceeds_size(array[:100], MAX_VALUE // 2)
    assert _values.exceeds_size(numpy.array(["x" * MAX_VALUE], object), MAX_VALUE)


def test_json_of_values_is_as_long_as_it_may_be() -> None:
    value = [1, {"a": (None, True, 0.5), "b": "x"}]
    assert json.loads(_values.encode_json(value)) == [1, {"a": [None, True, 0.5], "b": "x"}]
    for wrong in ({1, 2}, float("nan"), shared_lists(), [shared_lists(), object()]):
        with pytest.raises((TypeError, ValueError)):
            _values.encode_json(wrong)
    around: list[Any] = []
    around.append(around)
    with pytest.raises(ValueError):
        _values.encode_json(around)


def words_of_lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.split("\n") if line.split()]


def test_streamed_comparison_is_that_of_lists_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checkers, "_PIECE", 7)
    draw = random.Random(25)
    alphabet = ["a", "bc", "\u00e9\U0001F600", " ", "  ", "\t", "\r", "\n", "\n\n", "\x1c", "\xa0", "\x85"]
    for _ in range(20_000):
        expected = "".join(draw.choices(alphabet, k=draw.randrange(14)))
        got = expected if draw.random() < 0.3 else "".join(draw.choices(alphabet, k=draw.randrange(14)))
        if draw.random() < 0.5:
            got = got.replace(draw.choice(alphabet), draw.choice(alphabet), 1)
        assert _checkers.same_lines(expected, got) == (words_of_lines(expected) == words_of_lines(got)), (expected, got)


def test_comparison_stops_at_the_first_difference() -> None:
    pieces: list[int] = []

    class Counting(str):
        """Counts the characters that are taken out of it."""

        def __getitem__(self, key: Any) -> str:
            pieces.append(1)
            return str.__getitem__(self, key)

    long = Counting("1\n" * 5_000_000)
    begun = time.process_time()
    for expected in ("1", "2", "1 1", ""):
        assert not _checkers.same_lines(expected, long)
    assert time.process_time() - begun < 0.5 and len(pieces) < 100


def test_equal_output_with_other_spaces_is_compared_soon() -> None:
    begun = time.process_time()
    assert _checkers.same_lines("1\n" * 1_000_000, "1 \n" * 1_000_000)
    assert _checkers.same_lines("1 " * 1_000_000, "1  " * 1_000_000)
    assert time.process_time() - begun < 8
