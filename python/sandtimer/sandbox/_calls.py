"""The calls of a sandbox: how each is sent, executed and rebuilt.

`Sandbox` adds the parameters and what users call. Views of a sandbox share its pools of warm processes.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, TypeVar

from .. import _arguments, _native, _results
from .._choices import Start, Trust
from .._outcome import Outcome
from ..agents._run_budget import RunBudget, noted_run
from . import _fork, _job, _remarks
from ._answers import Answer, answer_of
from ._futures import CallFuture, ordered_outcomes
from ._pool import Pool

C = TypeVar("C", bound="Calls")


class Calls:
    """What a sandbox and its views have in common, and the path of a call through them."""

    _pool: Pool
    #: For code that arrives as text.
    _code_pool: Pool
    #: As the caller gave them.
    _limits: dict[str, Any]
    #: As the engine takes them.
    _checked: Any
    _start: Start
    _force: bool
    _trust: Trust
    #: The classes that are rebuilt besides plain data, by module and name.
    _results: dict[tuple[str, str], type]
    #: What each job has.
    _options: dict[str, Any]
    #: Modules that cannot be imported inside.
    _by_value: set[str]
    #: What bounds the runs besides the limits.
    _budget: Optional[RunBudget]

    def _with_limits(self: C, limits: Mapping[str, Any]) -> C:
        """Returns a view with these limits; those that are not given stay."""
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__)
        view._limits = {**self._limits, **limits}
        view._checked = _arguments.limits(view._limits)
        return view

    def _bound(self) -> Any:
        """The scope of a run that begins now; None without a budget."""
        return None if self._budget is None else self._budget.scope()

    def _make(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _job.Job:
        _arguments.function("fn", fn)
        if self._start == "fork":
            return _job.of_fork(functools.partial(fn, *args, **kwargs), self._options)
        return _job.of_call(fn, args, kwargs, self._options, self._by_value, self._pool.learned)

    def _perform(self, job: _job.Job, begun: Callable[[Any], None]) -> Outcome:
        """Runs a job; `begun` is given the call. A module that cannot be imported inside goes along
        with its code.
        """
        try:
            if job.scope is None:
                job.scope = self._bound()
            with noted_run(self._budget):
                call = self._begin(job)
                begun(call)
                outcome = self._finish(call)
        finally:
            job.close()
        if outcome.error is not None and job.has_code and (other := self._other_python()) is not None:
            unread = _results.explain_unread_code(outcome.error, outcome.ending, *other)
            if unread is not None:
                outcome._error, unread.outcome = unread, outcome
        if outcome.error is None or job.again is None or not self._lacks(outcome.error, job.module, self._find_missing):
            return outcome
        again = job.again()
        again.scope, again.again = job.scope, None
        return self._after(outcome)._perform(again, begun)

    def _after(self, outcome: Outcome) -> Calls:
        """Returns a view with what a run has left of the wall-clock limit, for its second run."""
        wall = self._limits["timeout"]
        return self if not wall else self._with_limits({"timeout": max(float(wall) - outcome.usage.wall_ms / 1000, 0.001)})

    def _lacks(self, error: Optional[BaseException], module: Optional[str], find_missing: Callable[[str], Outcome]) -> bool:
        """Whether a call of this module's failed because it is missing inside. From now on it is
        sent along.
        """
        # The name of the missing module is not trusted: only the function's own module or package
        # is sent along, and only if a clean process does not find it either.
        if not isinstance(error, _results.MissingModule) or not f"{module}.".startswith(f"{error.name}."):
            return False
        if error.name not in sys.modules:
            return False
        if error.name in self._by_value:
            # Since this one was sent.
            return True
        found = find_missing(error.name)
        if not isinstance(found.error, ModuleNotFoundError) and (found.error is not None or found.value is not None):
            return False
        self._by_value.add(error.name)
        return True

    def _find_missing(self, module: str) -> Outcome:
        """What a clean process finds for a module: nothing, or something that is not data."""
        return self._perform(_job.of_call(importlib.util.find_spec, (module,), {}, self._options), lambda _: None)

    def _begin(self, job: _job.Job) -> Any:
        pool = self._make_code_pool() if job.is_code else self._pool
        if self._start == "zygote":
            return pool.call(job, self._checked)
        self._pool.check_open()
        engine = _native.engine()
        if self._start == "spawn" or job.call is None:
            return engine.spawn(pool.profile, job, self._checked)
        reason = None if self._force else _fork.reason_against()
        if reason is not None:
            raise _fork.refuse(reason)
        return _fork.begin(engine, self._pool.profile, job, self._checked, job.call)

    def _make_code_pool(self) -> Pool:
        """The pool for code that arrives as text. Raises `ProfileRefusedError` where it cannot have
        a module of `preload`.
        """
        paths = self._pool.profile["paths"]
        if self._code_pool.profile["paths"] != paths and not self._code_pool.is_used:
            _arguments.check_preload(self._code_pool.profile, paths)
            self._code_pool.is_used = True
        return self._code_pool

    def _finish(self, call: Any) -> Outcome:
        try:
            answer = answer_of(call)
            return self._rebuild(call.ended(), answer)
        finally:
            # After the rebuilding, which has the processor for itself, and not with the last
            # reference: an error has those.
            call.release()

    def _rebuild(self, ended: Any, answer: Answer) -> Outcome:
        """The outcome of a call with this end and this answer, as `trust` allows."""
        kind, error, value = answer.kind, answer.error, None
        if not kind:
            return Outcome(ended, answer.ending, error=error)
        if error is None:
            try:
                trust = self._trust if kind == "value" else "data"
                value = _results.value(answer.data, answer.buffers, trust, self._results, answer.bounds)
                if kind == "raised":
                    value, error = None, _results.exception(value, self._trust, self._results)
                elif kind == "refused":
                    value, error = None, _results.rejection(value, self._other_python)
            except Exception as refused:
                # Its frames would keep the call, and what it answered, for as long as the outcome
                # lives.
                error = refused.with_traceback(None)
        if kind != "raised":
            return Outcome(ended, "returned", value, error)
        outcome = Outcome(ended, "raised", value, error)
        if not self._pool.profile["network"]:
            outcome._own_remarks = _remarks.of_exception(error)
        return outcome

    def _other_python(self) -> Optional[tuple[str, str]]:
        """The interpreter that `python=` names, and its version, "" where that is not known; None
        for this one.
        """
        profile, native = self._pool.profile, self._pool.native
        if profile["paths"] is not None:
            return None
        return profile["interpreter"], "" if native is None else str(native.stats().get("version", ""))

    def _submit(
        self,
        finish: Callable[[Outcome], Any],
        fn: Callable[..., Any],
        args: Any,
        kwargs: Mapping[str, Any],
        scope: Any = None,
    ) -> CallFuture:
        job = self._make(fn, args, dict(kwargs))
        job.scope = scope
        return self._queue(lambda begun: finish(self._perform(job, begun)), job.close)

    def _queue(self, work: Callable[[Callable[[Any], None]], Any], on_failure: Callable[[], None]) -> CallFuture:
        """Has a worker do some work, which gives what it begins to its parameter. `on_failure`
        follows in any case.
        """
        future = CallFuture()

        def begun(call: Any) -> None:
            future._call = call
            if future.cancelled():
                call.cancel("its future was cancelled")

        def task() -> None:
            try:
                if future.cancelled():
                    future.set_running_or_notify_cancel()
                    return
                result = work(begun)
            except BaseException as error:
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            else:
                if future.set_running_or_notify_cancel():
                    future.set_result(result)
            finally:
                # It holds descriptors.
                future._call = None
                on_failure()

        try:
            self._pool.work(task)
        except BaseException:
            on_failure()
            raise
        return future

    def _mapped(
        self, fn: Callable[..., Any], items: Iterable[Any], total: Optional[float], progress: bool
    ) -> Iterator[Outcome]:
        scope = _native.engine().scope("map", total, self._bound())
        submit = functools.partial(self._submit, outcome_itself, fn, kwargs={}, scope=scope)
        yield from ordered_outcomes(submit, items, lambda: 2 * self._pool.workers, progress, self._pool.check_open)


def outcome_itself(outcome: Outcome) -> Outcome:
    return outcome
