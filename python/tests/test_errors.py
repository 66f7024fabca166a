"""Exceptions: sent on by pickle and copy, whole, and the outcomes that they carry."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import time
from typing import Any, Callable, Iterator

import pytest
import sandtimer
from sandtimer import errors

from test_fork import run_alone

COPIES: list[Callable[[Any], Any]] = [lambda error: pickle.loads(pickle.dumps(error, 2)),
                                      lambda error: pickle.loads(pickle.dumps(error)),
                                      copy.deepcopy, copy.copy]  # fmt: skip
PUBLIC = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.SandtimerError)]


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=20.0) as made:
        yield made


def lose() -> None:
    class Lost(Exception):
        pass

    raise Lost("no move left")


FAILURES: dict[str, tuple[type[Exception], Callable[[sandtimer.Sandbox], Any]]] = {
    "timeout": (sandtimer.DeadlineExceeded, lambda box: box.limits(timeout=0.2).call(time.sleep, 60)),
    "stalled": (sandtimer.DeadlineExceeded, lambda box: box.limits(stall=0.2).call(time.sleep, 60)),
    "signaled": (sandtimer.Crashed, lambda box: box.call(exec, "import os; os.abort()")),
    "no_result": (sandtimer.NoResultError, lambda box: box.call(exec, "import os; os._exit(3)")),
    "remote": (sandtimer.RemoteError, lambda box: box.call(lose)),
    "exit": (sandtimer.RemoteError, lambda box: box.call(exec, "raise SystemExit(3)")),
    "refused": (sandtimer.ResultRefusedError, lambda box: box.call(eval, "__import__('argparse').Namespace()")),
    "large": (sandtimer.ResultTooLargeError, lambda box: box.limits(result_bytes=100).call(bytes, 1000)),
    "generator": (sandtimer.UnserializableError, lambda box: box.call(lambda: (x for x in "abc"))),
}


def is_same(error: BaseException, other: BaseException) -> bool:
    def parts(each: BaseException) -> Any:
        return type(each), str(each), each.args, {name: value for name, value in vars(each).items() if name != "outcome"}

    return parts(error) == parts(other)


@pytest.mark.parametrize("name", FAILURES)
def test_what_a_call_raises_can_be_sent_on(box: sandtimer.Sandbox, name: str) -> None:
    kind, fail = FAILURES[name]
    with pytest.raises(kind) as caught:
        fail(box)
    error: Any = caught.value
    assert str(error) and error.outcome is not None
    for again in (each(error) for each in COPIES):
        assert is_same(error, again)
        assert again.outcome.ending == error.outcome.ending and again.outcome.run_id == error.outcome.run_id
        assert again.outcome.verdict == error.outcome.verdict and again.outcome.tree.survivors == 0
        assert again.outcome.to_dict() == error.outcome.to_dict()


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_every_public_exception_can_be_sent_on(kind: Any) -> None:
    assert getattr(sandtimer, kind.__name__) is kind
    for arguments in ((), ("text",), ("type", "message"), ("type", "message", "Traceback …")):
        if kind is sandtimer.RemoteError and len(arguments) < 2:
            continue
        error = kind(*arguments)
        error.remark = "mine"
        assert all(is_same(error, each(error)) for each in COPIES)


def test_a_remote_error_keeps_its_parts(box: sandtimer.Sandbox) -> None:
    with pytest.raises(sandtimer.RemoteError) as caught:
        box.call(lose)
    for each in COPIES:
        again = each(caught.value)
        assert again.type_name.endswith("Lost") and again.message == "no move left" and "in lose" in again.remote_traceback


def test_one_of_a_missing_module_can_be_sent_on() -> None:
    from sandtimer._results import MissingModule

    error = MissingModule("hidden")
    for each in COPIES:
        assert is_same(error, each(error)) and each(error).name == "hidden"


def test_what_stands_in_for_an_exit_says_where_it_was(box: sandtimer.Sandbox) -> None:
    def leave() -> None:
        raise SystemExit("enough")

    def stop() -> None:
        raise StopIteration("enough")

    async def awaited() -> None:
        await box.acall(stop)

    for call, name in ((lambda: box.call(leave), "leave"), (lambda: asyncio.run(awaited()), "stop")):
        with pytest.raises(sandtimer.RemoteError, match="enough") as caught:
            call()
        assert f"in {name}" in caught.value.remote_traceback
        assert caught.value.outcome.ending == "raised" and caught.value.outcome.tree.survivors == 0


def test_a_submitted_call_that_stops_an_iteration_can_be_awaited(box: sandtimer.Sandbox) -> None:
    async def awaited() -> None:
        await asyncio.wait_for(asyncio.wrap_future(box.submit(next, iter([]))), 20.0)

    with pytest.raises(sandtimer.RemoteError, match="StopIteration"):
        asyncio.run(awaited())
    with pytest.raises(sandtimer.RemoteError, match="StopIteration") as caught:
        box.submit(next, iter([])).result()
    assert isinstance(caught.value.__cause__, StopIteration)


def test_they_come_through_a_pool_of_processes() -> None:
    said = run_alone("""
        import concurrent.futures, multiprocessing, time

        def work(kind):
            with sandtimer.Sandbox(timeout=0.3) as box:
                return box.call(time.sleep, 60) if kind == "slow" else box.call(exec, "import os; os.abort()")

        context = multiprocessing.get_context("fork")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            for kind in ("slow", "crash"):
                error = pool.submit(work, kind).exception()
                print(type(error).__name__, error.outcome.ending, error.outcome.tree.survivors, error.outcome.error is error)
    """)
    assert said == "DeadlineExceeded timeout 0 True\nCrashed signaled 0 True\n"


def test_an_outcome_that_is_not_known_in_a_fork_says_so() -> None:
    """It would wait for an engine that is in the parent only."""
    said = run_alone("""
        import os, time

        box = sandtimer.Sandbox(timeout=20.0)
        slow = box.submit(time.sleep, 1)
        call = None
        while call is None:
            call = slow._call
        unknown = sandtimer.Outcome(call.ended(), "returned", 1)
        del call
        known = box.run(abs, -2)
        known.tree
        pid = os.fork()
        if pid == 0:
            print(unknown.value, known.value, known.tree.survivors)
            try:
                unknown.stdout
            except sandtimer.SandboxUnavailableError as error:
                print("before forking" in str(error), flush=True)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        print(unknown.tree.survivors)
        box.close()
    """)
    assert said == "1 2 0\nTrue\n0\n"


def test_a_value_that_json_has_no_word_for_is_left_out(box: sandtimer.Sandbox) -> None:
    for value in (float("nan"), float("inf"), {1, 2}):
        record = box.run(lambda: value).to_dict()
        assert record["value"] is None
        json.loads(json.dumps(record, allow_nan=False))
    assert box.run(lambda: [1, "a"]).to_dict()["value"] == [1, "a"]
