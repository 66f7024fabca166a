"""One program and its cases: how they are compiled and run in sandboxes, and settled here."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, NamedTuple, Optional, Sequence, Union

from .. import _arguments, _native
from .._outcome import never_begun
from ..errors import DeadlineExceeded, RemoteError, SandboxUnavailableError, SandtimerError, UnserializableError
from . import _host, _job, _kept
from ._cases import Case, read_cases
from ._futures import CallFuture
from ._hidden import hidden_modules
from ._shipped import FROM_CODE, FROM_SOURCE, Shipped, launcher
from ._verdicts import JSON, Checker, Comparison

if TYPE_CHECKING:
    from .._outcome import Outcome
    from ._calls import Calls

Program = Union[str, Callable[..., Any]]

# Compiling is not the submission's own running, and always has a limit.
_COMPILE_SECONDS = 10.0


class JudgingOptions(NamedTuple):
    """How programs are run and judged: the parameters of `Sandbox.judge` with these names."""

    checker: Optional[Checker]
    entry: Optional[str]
    timeout: Union[int, float, None]
    total: Union[int, float, None]
    stop_early: bool
    name: str


class CaseRun(NamedTuple):
    """The run of one case, and samples of the machine before and after it."""

    outcome: Outcome
    before: _host.Sample
    after: _host.Sample

    def span(self) -> _host.Span:
        return _host.Span(self.before, self.after, self.outcome.usage)

    def has_begun(self) -> bool:
        return bool(self.outcome.run_id)

    def ended_by_wall(self) -> bool:
        """Whether elapsed time ended it: the only verdict that a busy machine can cause."""
        verdict = self.outcome.verdict
        return self.outcome.ending == "timeout" and verdict is not None and verdict.kind == "wall"


class Submission:
    """One program and its cases on their way to a judgement."""

    def __init__(self, box: Calls, program: Program, cases: Sequence[Any], options: JudgingOptions) -> None:
        self.box, self.program, self.entry, self.name = box, program, options.entry, options.name
        self.is_program = isinstance(program, str) and options.entry is None
        self.is_code = isinstance(program, str)
        checker = options.checker
        self.comparison = Comparison(self.is_program, checker == JSON, None if isinstance(checker, str) else checker)
        self.cases = read_cases(cases, self.is_program, self.comparison.checker is None)
        self.total, self.stop_early = _arguments.total(options.total), options.stop_early
        self.view = box if options.timeout is None else box._with_limits({"timeout": options.timeout})
        self.scope: Any = None
        self.ends: Optional[float] = None
        self.scoping, self.compiling = threading.Lock(), threading.Lock()
        self.payload: Optional[bytes] = None
        self.error: Optional[BaseException] = None
        self.stopped = len(cases)
        self.runs: list[Optional[CaseRun]] = [None] * len(cases)
        self.verdicts = ["not_run"] * len(cases)
        self.scores = [0.0] * len(cases)
        self.errors: list[Optional[BaseException]] = [None] * len(cases)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: the evidence of its runs, and no means to run anything."""
        return {"runs": self.runs, "box": None}

    # In the sandbox's threads

    def run(self, index: int, future: CallFuture) -> Optional[CaseRun]:
        """Runs a case, or finds that it is not to be run any more."""
        if index > self.stopped or future.cancelled() or self._late():
            return None
        try:
            if self.is_code and not (self._compile(future) and not self._late()):
                return None
            before = _host.sample()
            outcome = self._perform(self.view, self._job(self.cases[index]), future)
        except DeadlineExceeded:
            # The total deadline has passed: it was not begun.
            return None
        except UnserializableError as error:
            raise self._unserializable(index, error) from error.__cause__
        except (SandboxUnavailableError, OSError) as error:
            if isinstance(error, SandtimerError) and not isinstance(error, SandboxUnavailableError):
                raise
            # Once it is closed there is no way to continue. Else the machine lacked something, and
            # may have it again.
            self.box._pool.check_open()
            outcome = never_begun("infra_error", SandboxUnavailableError(str(error)))
            return CaseRun(outcome, _host.sample(), _host.sample())
        outcome.ending  # noqa: B018 - the end is awaited here, and not where the verdicts are given
        return CaseRun(outcome, before, _host.sample())

    def _unserializable(self, index: int, error: UnserializableError) -> UnserializableError:
        """Returns the exception for a case whose arguments, or whose program, cannot be sent."""
        if error.__cause__ is None:
            return UnserializableError(f"cases[{index}]: {error}")
        try:
            if not self.is_code:
                _job.pickled(self.program, (), {})  # type: ignore[arg-type]
            subject = f"cases[{index}]: its arguments"
        except UnserializableError:
            subject = f"the program {getattr(self.program, '__qualname__', type(self.program).__name__)}"
        why = f"{type(error.__cause__).__name__}: {error.__cause__}"
        return UnserializableError(f"{subject} cannot be sent to a sandbox: {why}; use what can be pickled, such as plain data")

    def _late(self) -> bool:
        return self.ends is not None and time.monotonic() >= self.ends

    def _perform(self, view: Calls, job: _job.Job, future: CallFuture) -> Outcome:
        """Runs a job within the total limit, which counts from the first."""

        def begun(call: Any) -> None:
            future._call = call
            if future.cancelled():
                call.cancel("its judgement was cancelled")

        if self.total is not None:
            with self.scoping:
                if self.scope is None:
                    self.ends = time.monotonic() + self.total
                    self.scope = _native.engine().scope("judge", self.total)
            job.scope = self.scope
        try:
            return view._perform(job, begun)
        finally:
            # A reference to a call keeps its sandbox.
            future._call = None

    def _compile(self, future: CallFuture) -> bool:
        with self.compiling:
            if self.payload is None and self.error is None:
                view = self.box._with_limits({"timeout": _COMPILE_SECONDS, "cpu": None, "stall": None})
                compiler = Shipped(FROM_SOURCE, {"source": launcher(), "space": {}})
                launching = None if self.entry is None else launcher()
                text = _job.strip_bom(str(self.program))
                job = _job.of_code(compiler, (text, self.name, launching), self.box._options, frozenset())
                outcome = self._perform(view, job, future)
                if outcome.ending == "infra_error":
                    raise outcome.error or SandboxUnavailableError("the sandbox failed")
                if future.cancelled() or (outcome.ending == "timeout" and self._late()):
                    return False
                self._compiled(outcome)
            return self.error is None

    def _compiled(self, outcome: Outcome) -> None:
        reply = outcome.value
        if outcome.ok and isinstance(reply, bytes):
            self.payload = reply
        elif not outcome.ok or not isinstance(reply, tuple):
            self.error = outcome.error or RemoteError("SyntaxError", "it could not be compiled")
        else:
            kind, message, line, column, text = reply
            if kind in ("SyntaxError", "IndentationError", "TabError"):
                known = {"IndentationError": IndentationError, "TabError": TabError}.get(kind, SyntaxError)
                self.error = known(message, (self.name, line, column, text))
            else:
                self.error = SyntaxError(f"{kind}: {message}")

    def _job(self, case: Case) -> _job.Job:
        # What a program prints is its answer, whatever the sandbox does with output otherwise.
        options = {**self.box._options, "stdout": "capture"} if self.is_program else self.box._options
        if not isinstance(self.program, str):
            return self.box._make(self.program, case.arguments, case.keywords)
        payload = self.payload or b""
        if self.entry is None:
            return _job.of_compiled(payload, case.stdin, self.name, options)
        shipped = Shipped(FROM_CODE, {"payload": payload})
        hidden = hidden_modules(self.box)
        return _job.of_code(shipped, (self.entry, case.arguments, case.keywords), options, hidden)

    # In the caller's thread

    def settle(self, index: int, run: Optional[CaseRun]) -> None:
        if index > self.stopped:
            return
        if run is None:
            self.verdicts[index] = "not_run" if self.error is None else "compile_error"
        else:
            self.verdicts[index], self.scores[index], error = self.comparison.judge(self.cases[index], run.outcome)
            kept = _kept.shorten_outcome(run.outcome)
            if kept is not run.outcome:
                if error is run.outcome.error:
                    error = kept.error
                elif error is not None:
                    error = _kept.release_frames(error)
            self.runs[index] = run._replace(outcome=kept)
            self.errors[index] = _kept.shorten_exception(error)
        if self.stop_early and self.verdicts[index] != "accepted" and run is not None:
            self.stopped = index

    def again(self, indices: Iterable[int]) -> Submission:
        """The same with the runs of these cases forgotten."""
        other = object.__new__(Submission)
        other.__dict__.update(self.__dict__)
        other.scoping, other.compiling = threading.Lock(), threading.Lock()
        other.scope, other.ends, other.stopped = None, None, len(self.cases)
        other.runs, other.verdicts = list(self.runs), list(self.verdicts)
        other.scores, other.errors = list(self.scores), list(self.errors)
        for index in indices:
            other.runs[index], other.verdicts[index] = None, "not_run"
            other.scores[index], other.errors[index] = 0.0, None
        return other
