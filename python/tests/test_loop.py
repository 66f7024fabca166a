"""The guard of loops, as an agent's loop uses it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import sandtimer


def test_a_loop_has_so_many_turns() -> None:
    guard = sandtimer.LoopGuard(iterations=3)
    assert guard.stopped is None and list(guard) == [1, 2, 3]
    assert guard.stopped is not None and (guard.stopped.rule, guard.stopped.limit) == ("iterations", 3)
    with pytest.raises(sandtimer.LoopLimitError, match=r"after 3 turns: it has had 3 turns, and may have no more \(iterations=3\)") as caught:
        guard.begin()
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.rule, again.limit, again.turns, again.failed) == (str(caught.value), "iterations", 3, 3, 0)
    assert guard.turns == 3


def test_failures_count_in_all_and_not_in_a_row() -> None:
    guard = sandtimer.LoopGuard(failures=2)
    for turn in guard:
        guard.ended("calculate", turn, ok=turn % 3 != 1)
    assert (guard.turns, guard.failed) == (4, 2)
    assert guard.stopped is not None and guard.stopped.rule == "failures"


def test_the_same_action_with_the_same_input_is_a_circle() -> None:
    guard = sandtimer.LoopGuard(repeats=3)
    inputs: list[Any] = [{"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 2}, None, None, None, None]
    for turn in guard:
        guard.ended("look", inputs[turn - 1])
    assert guard.turns == 6, "an order of keys is none of JSON's"
    guard = sandtimer.LoopGuard(repeats=2)
    for turn in guard:
        guard.ended(("look", "listen", "look", "look")[turn - 1], "x")
    assert guard.turns == 4


def test_without_rules_and_without_word_it_only_counts() -> None:
    guard = sandtimer.LoopGuard(None, failures=None, repeats=None)
    assert [guard.begin() for _ in range(100)][-1] == guard.turns == 100
    told = sandtimer.LoopGuard(repeats=1)
    assert told.begin() == 1 and told.begin() == 2
    told.ended("look")
    assert list(told) == []


@pytest.mark.parametrize(
    "arguments, error, said",
    [
        ({"iterations": 0}, ValueError, "iterations=0: use a whole number from 1"),
        ({"failures": True}, TypeError, "failures=True is of type bool"),
        ({"repeats": 2.0}, TypeError, "repeats=2.0 is of type float"),
    ],
)
def test_what_is_no_rule_is_refused_by_name(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        sandtimer.LoopGuard(**arguments)


def test_what_cannot_be_compared_is_refused() -> None:
    guard = sandtimer.LoopGuard(iterations=1)
    guard.begin()
    for action, given, error in [(1, None, TypeError), ("look", object(), TypeError), ("look", float("nan"), ValueError)]:
        with pytest.raises(error, match="action=1|use what JSON has"):
            guard.ended(action, given)  # type: ignore[arg-type]
    assert guard.failed == 0


def test_inputs_are_compared_as_they_are() -> None:
    guard = sandtimer.LoopGuard(repeats=2)
    for turn in guard:
        guard.ended("look", 10**30 + min(turn, 4))
    assert guard.turns == 5, "large numbers differ as well"
    guard = sandtimer.LoopGuard(iterations=9)
    guard.begin()
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="nested too deeply"):
        guard.ended("look", nested)
    guard.ended("look", "\ud800")
