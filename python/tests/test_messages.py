"""Messages that stand alone: in lists and in batches."""

from __future__ import annotations

import threading
import time
from typing import Iterator

import pytest
import sandtimer


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=30.0) as made:
        yield made


def test_errors_in_a_list_say_what_happened(box: sandtimer.Sandbox) -> None:
    """They were `[DeadlineExceeded()]`."""
    judgement = box.judge("while True: pass", [("", "1"), ("", "2")], timeout=0.5)
    outcome = box.limits(timeout=0.5).run(time.sleep, 60)
    for shown in (repr(judgement.errors), repr([outcome.error])):
        assert shown.startswith('[DeadlineExceeded("Stopped by the run\'s wall limit of 500 ms (set by the call)'), shown
        # The second is a function of C, below which are only the frames that start the interpreter.
        assert "<string>" not in shown, shown


def test_argument_that_cannot_be_sent_is_named_by_its_place(box: sandtimer.Sandbox) -> None:
    lock = threading.Lock()
    with pytest.raises(sandtimer.UnserializableError, match=r"cases\[1\]: its arguments cannot be sent .*lock"):
        box.judge(lambda value: value, [((1,), 1), ((lock,), 1)])
    outcomes = list(box.map(len, [[1], lock, [2]]))
    assert [outcome.ending for outcome in outcomes] == ["returned", "raised", "returned"]
    assert "cannot be sent" in str(outcomes[1].error) and "lock" in str(outcomes[1].error)


def test_malformed_case_of_a_batch_is_named_by_its_place(box: sandtimer.Sandbox) -> None:
    with pytest.raises(sandtimer.InvalidArgumentTypeError, match=r"cases\[1\]: a case is \(stdin, expected\)"):
        box.judge_many(["print(1)", "print(2)"], [("", "1"), (3,)])
