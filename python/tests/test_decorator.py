"""Decorated functions: real calls in real sandboxes, and inline ones inside them."""

from __future__ import annotations

import asyncio
import doctest
import functools
import inspect
import os
import pickle
import sys
from typing import Any

import pytest
import sandtimer
import subjects
from sandtimer.sandbox import _decorator, _shared

HERE = os.getpid()


def test_the_examples_of_the_documentation_run() -> None:
    tests = doctest.DocTestFinder().find(_decorator.sandboxed, "sandboxed", globs={})
    failed, tried = doctest.DocTestRunner().run(tests[0])
    assert tried >= 4 and failed == 0


def test_a_function_of_a_module_runs_elsewhere() -> None:
    assert subjects.where() != HERE
    assert subjects.where.__wrapped__() == HERE
    assert subjects.where.__doc__ == "Which process this is."
    assert (subjects.where.__name__, subjects.where.__module__) == ("where", "subjects")


def test_a_nested_function_and_a_lambda_run_elsewhere() -> None:
    offset = 5

    @sandtimer.sandboxed(timeout=20.0)
    def shifted(x: int, *, by: int = 1) -> list[int]:
        return [x + offset + by, os.getpid()]

    assert shifted(1, by=2)[0] == 8
    assert shifted(1)[1] != HERE
    assert sandtimer.sandboxed(timeout=20.0)(lambda: os.getpid())() != HERE
    assert str(inspect.signature(shifted)) == "(x: 'int', *, by: 'int' = 1) -> 'list[int]'"


def test_it_takes_no_parentheses_where_there_are_no_parameters() -> None:
    @sandtimer.sandboxed
    def where() -> int:
        return os.getpid()

    assert where() != HERE


def test_it_raises_what_the_function_raised_and_what_a_limit_raises() -> None:
    @sandtimer.sandboxed(timeout=0.2)
    def spin() -> None:
        while True:
            pass

    with pytest.raises(ZeroDivisionError) as caught:
        subjects.divide(1, 0)
    assert "subjects.py" in str(caught.value.__cause__)
    with pytest.raises(sandtimer.DeadlineExceeded):
        spin()
    assert spin.outcome().ending == "timeout"


def test_outcome_gives_an_outcome_and_does_not_raise() -> None:
    outcome = subjects.divide.outcome(7, 2)
    assert isinstance(outcome, sandtimer.Outcome)
    assert (outcome.ending, outcome.value, outcome.tree.survivors) == ("returned", 3.5, 0)
    bad = subjects.divide.outcome(7, 0)
    assert (bad.ending, type(bad.error)) == ("raised", ZeroDivisionError)
    assert subjects.Base(3).add.outcome(4).value[:2] == ["base", 7]
    assert subjects.Base.class_below.outcome(1).value[:2] == ["Base", 1]


def test_recursion_stays_in_the_one_process() -> None:
    # Nested sandboxes would be refused, so each of these calls can only have been inline.
    assert subjects.fibonacci(12) == 144
    assert subjects.calls == []
    assert subjects.is_even(31) is False
    assert subjects.Base(1).countdown(40) == 40

    @sandtimer.sandboxed(timeout=20.0)
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    assert factorial(10) == 3628800


def test_an_outcome_inside_is_of_an_inline_call() -> None:
    seen = subjects.inner_outcomes()
    assert seen == ["returned", True, 3.5, "raised", False, "division by zero", "", "inline"]


def test_what_a_method_changes_stays_inside() -> None:
    thing = subjects.Base(3)
    kind, value, process = thing.add(4)
    assert (kind, value, thing.value) == ("base", 7, 3)
    assert process != HERE
    assert subjects.Base.add(thing, 5)[:2] == ["base", 8]


def test_an_overridden_method_reaches_the_one_above() -> None:
    assert subjects.Derived(1).add(2)[:3] == ["derived", "base", 3]
    assert subjects.Base.add(subjects.Derived(1), 2)[:2] == ["base", 3]


@pytest.mark.parametrize("thing", [subjects.Base, subjects.Base(1)])
def test_static_and_class_methods_in_either_order(thing: Any) -> None:
    for name in ("static_above", "static_below"):
        value, process = getattr(thing, name)(7)
        assert (value, process != HERE) == (7, True), name
    for name in ("class_above", "class_below"):
        kind, value, process = getattr(thing, name)(7)
        assert (kind, value, process != HERE) == ("Base", 7, True), name
    assert subjects.Derived.class_above(1)[0] == subjects.Derived.class_below(1)[0] == "Derived"


def test_classes_inside_functions() -> None:
    class Local:
        factor = 3

        def __init__(self, value: int) -> None:
            self.value = value

        @sandtimer.sandboxed(timeout=20.0)
        def times(self, n: int) -> list[int]:
            if n == 0:
                return [0, os.getpid()]
            return [self.value * self.factor + self.times(n - 1)[0], os.getpid()]

        @classmethod
        @sandtimer.sandboxed(timeout=20.0)
        def of_class(cls) -> int:
            return cls.factor

        @sandtimer.sandboxed(timeout=20.0)
        @staticmethod
        def of_none(x: int) -> int:
            return -x

    value, process = Local(5).times(4)
    assert (value, process != HERE) == (60, True)
    assert (Local.of_class(), Local.of_none(3), Local(1).of_none(4)) == (3, -3, -4)


def test_async_functions_are_awaited() -> None:
    thing = subjects.Base(7)
    is_async = inspect.iscoroutinefunction if sys.version_info >= (3, 10) else asyncio.iscoroutinefunction
    for function in (subjects.double, thing.later, subjects.Base.later):
        assert is_async(function)
    assert not inspect.iscoroutinefunction(subjects.where)

    async def main() -> Any:
        async def local(x: int) -> int:
            await asyncio.sleep(0)
            return -x

        plain, method, nested, outcome = await asyncio.gather(
            subjects.double(4), thing.later(2), sandtimer.sandboxed(timeout=20.0)(local)(3), subjects.double.outcome("a")
        )
        return plain, method, nested, outcome.ending

    (value, process), (product, other), nested, ending = asyncio.run(main())
    assert (value, product, nested, ending) == (8, 14, -3, "raised")
    assert HERE not in (process, other)


def test_cancelling_the_task_ends_the_call() -> None:
    @sandtimer.sandboxed(timeout=60.0)
    async def forever() -> None:
        while True:
            pass

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(forever(), 0.3)

    asyncio.run(main())


def test_generators_are_refused_with_the_reason() -> None:
    def numbers() -> Any:
        yield 1

    async def later_numbers() -> Any:
        yield 1

    for generator in (numbers, later_numbers):
        with pytest.raises(sandtimer.UnserializableError, match="generator.*return a list"):
            sandtimer.sandboxed(timeout=1.0)(generator)


@pytest.mark.parametrize(
    ("function", "reason"),
    [(int, "decorate functions"), (7, "decorate functions"), (property(len), "below @property"), (subjects.where, "already")],
)
def test_what_cannot_be_decorated_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        sandtimer.sandboxed(timeout=1.0)(function)
    if isinstance(function, property):
        with pytest.raises(TypeError, match=reason):
            sandtimer.sandboxed(function)  # type: ignore[call-overload]


def test_bad_parameters_are_refused_where_they_stand() -> None:
    with pytest.raises(sandtimer.InvalidLimitError, match="timeout"):
        sandtimer.sandboxed(timeout=-1)
    with pytest.raises(TypeError, match="no_such_parameter"):
        sandtimer.sandboxed(timeout=1.0, no_such_parameter=1)


def test_limits_and_trust_are_those_of_the_decorator() -> None:
    @sandtimer.sandboxed(timeout=20.0, results=[subjects.Reports])
    def report() -> subjects.Reports:
        return subjects.Reports(3)

    @sandtimer.sandboxed(timeout=20.0)
    def refused() -> subjects.Reports:
        return subjects.Reports(3)

    assert report().score == 3
    with pytest.raises(sandtimer.ResultRefusedError, match="results="):
        refused()


def test_a_builtin_and_a_partial_can_be_decorated() -> None:
    assert sandtimer.sandboxed(timeout=20.0)(divmod)(7, 2) == (3, 1)
    assert sandtimer.sandboxed(timeout=20.0)(functools.partial(pow, 2))(5) == 32


def test_a_decorated_function_can_be_an_argument_and_be_pickled() -> None:
    with sandtimer.Sandbox(timeout=20.0) as box:
        assert box.call(lambda function: function(7, 2), subjects.divide) == 3.5
        assert box.call(lambda method: method(2)[:2], subjects.Base(1).add) == ["base", 3]
    assert pickle.loads(pickle.dumps(subjects.divide)) is subjects.divide


def test_a_sandbox_in_a_sandbox_is_refused_with_the_reason() -> None:
    def nest() -> Any:
        import sandtimer

        with sandtimer.Sandbox(timeout=1.0) as box:
            try:
                box.call(abs, -1)
            except sandtimer.SandboxUnavailableError as error:
                return str(error)

    def nest_in_a_fork() -> Any:
        import multiprocessing

        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=lambda: theirs.send(nest()))
        process.start()
        said = ours.recv() if ours.poll(10) else "nothing was said"
        process.join()
        return said

    with sandtimer.Sandbox(timeout=20.0) as box:
        assert "inside a sandbox, where there is no privilege" in box.call(nest)
        assert "inside a sandbox, where there is no privilege" in box.call(nest_in_a_fork)


def test_functions_share_processes_and_unused_ones_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    before = len(_shared._kept)
    for timeout in (18.0, 19.0):
        assert sandtimer.sandboxed(timeout=timeout, memory="1GB")(os.getpid)() != HERE
    assert len(_shared._kept) <= max(before, 1)
    module = "written_later"
    (tmp_path / f"{module}.py").write_text("def answer():\n    return 42\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    answer = sandtimer.sandboxed(timeout=20.0)(__import__(module).answer)
    assert answer() == 42
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        monkeypatch.syspath_prepend(str(tmp_path / str(number)))
        with _shared.sandbox({}):
            pass
    assert len(_shared._kept) <= _shared._MAX_IDLE
    assert answer() == 42
