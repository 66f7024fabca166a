"""Judging programs and functions by their answers to cases.

One process for each case. What a case costs (benches/judge.py; medians, two cores shared with others; a program of 12 lines /
of 120 lines / importing numpy / with numpy in `preload=`):

    its source to each case    4.4 / 8.4 / 84 / 6.9 ms
    its code to each case      4.7 / 4.6 / 88 / 7.6 ms
    one process for all        0.2 / 0.4 / 4.1 / 0.2 ms

One process is the cheapest and is not used: a case could leave state for the next, answer for it, or take its time, and
whatever kept the cases' limits in there would be the submission's to switch off. Hard limits for each case, and an outcome
with its proof, need a process for each. So a submission's text is compiled once, and its code goes to each case; what it
imports is imported once when it is named in `preload=`. The text is compiled inside a sandbox too: a compiler can be
crashed, or kept busy, by its input. That costs one process more for each submission.

Expected answers stay in the caller, where the comparison is made. A submission cannot see them in any process it runs in.

States of a case: not run | under way | run, with an outcome | judged. A verdict is final when every case before it that could
stop the submission is judged; cases under way after a stop are cancelled and count as not run, so that the judgement does
not depend on which of them happened to be quick.
"""

from __future__ import annotations

import dataclasses
import math
import pkgutil
import threading
import time
from collections import deque
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Literal, NamedTuple, Optional, Sequence, Union, overload

from .. import _arguments, _native
from .._outcome import never_begun
from ..errors import (
    DeadlineExceeded,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    RemoteError,
    SandboxUnavailableError,
    SandtimerError,
    UnserializableError,
)
from . import _checkers, _host, _job, _kept
from ._cases import Case, read_cases
from ._futures import CallFuture
from ._hidden import hidden_modules

if TYPE_CHECKING:
    from .._outcome import Outcome
    from ._sandbox import Sandbox

Program = Union[str, Callable[..., Any]]
Checker = Union[Callable[[Any, Any], Union[bool, float]], Literal["json"]]
# What compares a function's values as values that were read from JSON.
_JSON = "json"

# Compiling is not the submission's own running, and always has a limit.
_COMPILE_SECONDS = 10.0

_VERDICTS = {
    "timeout": "timeout",
    "stalled": "timeout",
    "out_of_memory": "out_of_memory",
    "no_result": "no_result",
    "raised": "runtime_error",
    "signaled": "runtime_error",
    "exited": "runtime_error",
    # Its value was refused, or was too large.
    "returned": "no_result",
    "cancelled": "not_run",
}


class _Run(NamedTuple):
    outcome: Outcome
    before: _host.Sample
    after: _host.Sample

    def span(self) -> _host.Span:
        return _host.Span(self.before, self.after, self.outcome.usage)

    def has_begun(self) -> bool:
        return bool(self.outcome.run_id)

    def ended_by_wall(self) -> bool:
        """Whether a limit of elapsed time ended it: the only verdict that a busy machine can cause."""
        verdict = self.outcome.verdict
        return self.outcome.ending == "timeout" and verdict is not None and verdict.kind == "wall"


class _Shipped:
    """A callable in the sandbox that needs nothing to be installed there: the source or the code that defines it."""

    def __init__(self, expression: str, names: dict[str, Any]) -> None:
        self.expression, self.names = expression, names

    def __call__(self, *_: Any) -> Any:
        raise RuntimeError("this is run in a sandbox only")

    def __reduce__(self) -> Any:
        return eval, (self.expression, self.names)


_LAUNCHER = ""


def _launcher() -> str:
    global _LAUNCHER
    if not _LAUNCHER:
        _LAUNCHER = (pkgutil.get_data("sandtimer.sandbox", "_submission.py") or b"").decode()
    return _LAUNCHER


_FROM_SOURCE = "(exec(source, space), space['compile_submission'])[1]"
_FROM_CODE = (
    "(lambda parts, space: (exec(parts[0], space), space['entering'](*parts[1:]))[1])"
    "(__import__('marshal').loads(payload), {})"
)


class _Submission:
    """One program and its cases on their way to a judgement."""

    def __init__(
        self,
        box: Sandbox,
        program: Program,
        cases: Sequence[Any],
        checker: Optional[Checker],
        entry: Optional[str],
        timeout: Union[int, float, None],
        total: Union[int, float, None],
        stop_early: bool,
        name: str,
    ) -> None:
        self.box, self.program, self.entry, self.name = box, program, entry, name
        self.is_program = isinstance(program, str) and entry is None
        self.is_code = isinstance(program, str)
        self.is_json = checker == _JSON
        self.checker = None if isinstance(checker, str) else checker
        self.cases = read_cases(cases, self.is_program, self.checker is None)
        self.total, self.stop_early = _arguments.total(total), stop_early
        self.view = box if timeout is None else box.limits(timeout=timeout)
        self.scope: Any = None
        self.ends: Optional[float] = None
        self.scoping, self.compiling = threading.Lock(), threading.Lock()
        self.payload: Optional[bytes] = None
        self.error: Optional[BaseException] = None
        self.stopped = len(cases)
        self.runs: list[Optional[_Run]] = [None] * len(cases)
        self.verdicts = ["not_run"] * len(cases)
        self.scores = [0.0] * len(cases)
        self.errors: list[Optional[BaseException]] = [None] * len(cases)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: the evidence of its runs, and no means to run anything."""
        return {"runs": self.runs, "box": None}

    # In the sandbox's threads

    def run(self, index: int, future: CallFuture) -> Optional[_Run]:
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
            # Once it is closed there is no way to continue. Else the machine lacked something, and may have it again.
            self.box._pool.check_open()
            outcome = never_begun("infra_error", SandboxUnavailableError(str(error)))
            return _Run(outcome, _host.sample(), _host.sample())
        outcome.ending  # noqa: B018 - the end is awaited here, and not where the verdicts are given
        return _Run(outcome, before, _host.sample())

    def _unserializable(self, index: int, error: UnserializableError) -> UnserializableError:
        """What to say of a case whose arguments, or whose program, cannot be sent."""
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

    def _perform(self, view: Sandbox, job: _job.Job, future: CallFuture) -> Outcome:
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
                view = self.box.limits(timeout=_COMPILE_SECONDS, cpu=None, stall=None)
                compiler = _Shipped(_FROM_SOURCE, {"source": _launcher(), "space": {}})
                launcher = None if self.entry is None else _launcher()
                text = _job.strip_bom(str(self.program))
                job = _job.of_code(compiler, (text, self.name, launcher), self.box._options, frozenset())
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
        shipped = _Shipped(_FROM_CODE, {"payload": payload})
        hidden = hidden_modules(self.box)
        return _job.of_code(shipped, (self.entry, case.arguments, case.keywords), options, hidden)

    # In the caller's thread

    def settle(self, index: int, run: Optional[_Run]) -> None:
        if index > self.stopped:
            return
        if run is None:
            self.verdicts[index] = "not_run" if self.error is None else "compile_error"
        else:
            verdict, self.scores[index], error = self._judge(self.cases[index], run.outcome)
            self.verdicts[index] = verdict
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

    def _judge(self, case: Case, outcome: Outcome) -> tuple[str, float, Optional[BaseException]]:
        if not outcome.ok:
            error = outcome.error
            if outcome.ending == "raised" and isinstance(error, MemoryError):
                return "out_of_memory", 0.0, error
            return _VERDICTS.get(outcome.ending, outcome.ending), 0.0, error
        if self.checker is None and self.is_program and outcome.stdout_truncated:
            # What it printed in between is not known.
            return self._cut(outcome, 0.0)
        if self.checker is None and not self.is_program:
            try:
                score = float(_checkers.same_value(case.expected, outcome.value, self.is_json))
            except Exception as error:
                # The submission chose the value, and must not choose a verdict that is not held against it. The frames
                # would keep the value.
                return "wrong_answer", 0.0, error.with_traceback(None)
        else:
            try:
                score = self._score(case, outcome)
            except Exception as error:
                return "checker_error", 0.0, error
        if score >= 1:
            return "accepted", score, None
        if self.is_program and outcome.stdout_truncated:
            return self._cut(outcome, score)
        return ("partial" if score > 0 else "wrong_answer"), score, None

    def _cut(self, outcome: Outcome, score: float) -> tuple[str, float, Optional[BaseException]]:
        """The verdict on a run of whose output a part is missing: by its limit, or because there was no room for it here."""
        not_stored = next((remark for remark in outcome.remarks if remark["kind"] == "output_not_stored"), None)
        if not_stored is None:
            return "output_limit", score, None
        return "infra_error", 0.0, SandboxUnavailableError(not_stored["message"])

    def _score(self, case: Case, outcome: Outcome) -> float:
        if self.checker is not None:
            score = float(self.checker(case.given, outcome))
            if not math.isfinite(score):
                raise ValueError(f"the checker returned {score}; a score is a finite number")
            return score
        return float(_checkers.same_lines(case.expected, outcome.stdout))

    def again(self, indices: Iterable[int]) -> _Submission:
        """The same with the runs of these cases forgotten."""
        other = object.__new__(_Submission)
        other.__dict__.update(self.__dict__)
        other.scoping, other.compiling = threading.Lock(), threading.Lock()
        other.scope, other.ends, other.stopped = None, None, len(self.cases)
        other.runs, other.verdicts = list(self.runs), list(self.verdicts)
        other.scores, other.errors = list(self.scores), list(self.errors)
        for index in indices:
            other.runs[index], other.verdicts[index] = None, "not_run"
            other.scores[index], other.errors[index] = 0.0, None
        return other


def _check_program(box: Sandbox, program: Program, entry: Optional[str], subject: str) -> None:
    if isinstance(program, str):
        if entry is not None and not all(part.isidentifier() for part in entry.split(".")):
            raise InvalidArgumentError(f'entry={entry!r} is not a name such as "solve" or "Solution.solve"')
        return
    if not callable(program):
        raise InvalidArgumentTypeError(f"{subject} is of type {type(program).__name__}: use a string or a function")
    if entry is not None:
        raise InvalidArgumentTypeError(f"entry= names a function in a program's text; {subject} is a function already")
    if box._start == "fork":
        raise InvalidArgumentError('start="fork" shows a call the memory of its caller, and the expected answers with it; use "zygote"')


def _start(submission: _Submission, index: int) -> CallFuture:
    future = CallFuture()

    def task() -> None:
        try:
            run = submission.run(index, future)
        except BaseException as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(run)

    submission.box._pool.work(task)
    return future


def _work_off(todo: Iterable[tuple[_Submission, Sequence[int]]], window: int, raises_on_failure: bool = True) -> None:
    """Runs and judges cases, in order, with up to `window` of them under way.

    raises_on_failure: raises what kept the first cases from beginning, if that were all, or as many as may be under way: nothing is lost then.
    """
    pending: deque[tuple[_Submission, int, CallFuture]] = deque()
    not_begun: Optional[BaseException] = None
    count, is_vain = 0, raises_on_failure

    def collect() -> None:
        nonlocal not_begun, count, is_vain
        submission, index, future = pending[0]
        try:
            run = future.result()
        except CancelledError:
            run = None
        pending.popleft()
        if run is not None and run.has_begun():
            is_vain = False
        elif run is not None:
            not_begun, count = not_begun or run.outcome.error, count + 1
            if is_vain and count >= window and not_begun is not None:
                raise not_begun
        stopped = submission.stopped
        submission.settle(index, run)
        if submission.stopped != stopped:
            for other, _, later in pending:
                if other is submission:
                    later.cancel()

    try:
        for submission, indices in todo:
            for index in indices:
                while len(pending) >= window:
                    collect()
                if index <= submission.stopped:
                    pending.append((submission, index, _start(submission, index)))
        while pending:
            collect()
        if is_vain and not_begun is not None:
            raise not_begun
    except BaseException:
        for _, _, future in pending:
            future.cancel()
        raise


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Judgement:
    """The result of one program on all cases, in the order of the cases.

    Attributes:
        outcomes: The outcomes; None for cases that were not run. Each stores at most 64 KiB of
            output and 1 MiB of value, and its `remarks` name what is left out; checkers see all of
            it.
        verdicts: "accepted", "wrong_answer", "partial" (a score between 0 and 1), "timeout",
            "out_of_memory", "runtime_error", "no_result", "compile_error", "not_run",
            "checker_error", or another limit such as "process_limit".
        scores: 1 for an accepted case, the number of a checker, 0 for all others.
        errors: The exception of each case, or why there is no value.
        error: Why the program could not be compiled; else None.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=2.0) as box:
        ...     judgement = box.judge("print(int(input()) ** 2)", [("3", "9"), ("x", "0"), ("4", "15")])
        >>> judgement.verdicts, judgement.passed
        (['accepted', 'runtime_error', 'wrong_answer'], False)
    """

    outcomes: list[Optional[Outcome]]
    verdicts: list[str]
    scores: list[float]
    errors: list[Optional[BaseException]]
    error: Optional[BaseException]
    _submission: _Submission

    @property
    def score(self) -> float:
        """The mean of the scores of the cases."""
        return math.fsum(self.scores) / len(self.scores) if self.scores else 0.0

    @property
    def passed(self) -> bool:
        """Whether every case was accepted."""
        return bool(self.verdicts) and all(verdict == "accepted" for verdict in self.verdicts)

    @property
    def overloaded(self) -> list[Optional[_host.HostLoad]]:
        """How busy the machine was around each run; true if the verdict should not count.

        Only a timeout by elapsed time can be true: no other verdict depends on how busy the machine
        was.
        """
        runs = self._submission.runs
        spans = [run.span() for run in runs if run is not None]
        return [None if run is None else _host.load(run.span(), spans, run.ended_by_wall()) for run in runs]

    def retry_overloaded(self) -> Judgement:
        """Runs the cases again that timed out on an overloaded machine, or that failed because of the
        sandbox.

        Wrong answers, processor limits and crashes are final. Cases that were not run because of
        those cases are run too.

        Returns:
            The new judgement; this one if there is no such case.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     box.judge("print(9)", [("", "9")]).retry_overloaded().passed
            True
        """
        return _retried([self])[0]

    def _unfair(self) -> list[int]:
        """The cases whose verdicts should not be held against the program."""
        return [
            index
            for index, (run, load) in enumerate(zip(self._submission.runs, self.overloaded))
            if self.verdicts[index] == "infra_error" or (load and run is not None and run.ended_by_wall())
        ]

    def __repr__(self) -> str:
        counts = {verdict: self.verdicts.count(verdict) for verdict in dict.fromkeys(self.verdicts)}
        listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        return f"<Judgement {self.score:.3g}: {listed or 'no cases'}>"


class Judgements(Sequence[Judgement]):
    """The judgements of several programs by the same cases: a sequence with one for each program.

    Args:
        judgements: The judgements.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=5.0) as box:
        ...     judgements = box.judge_many(["print(9)", "print(8)"], [("", "9")])
        >>> judgements.passed, judgements.scores
        ([True, False], [1.0, 0.0])
    """

    def __init__(self, judgements: Sequence[Judgement]) -> None:
        self._judgements = list(judgements)

    @overload
    def __getitem__(self, index: int) -> Judgement: ...
    @overload
    def __getitem__(self, index: slice) -> list[Judgement]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Judgement, list[Judgement]]:
        return self._judgements[index]

    def __len__(self) -> int:
        return len(self._judgements)

    def __iter__(self) -> Iterator[Judgement]:
        return iter(self._judgements)

    @property
    def matrix(self) -> list[list[Optional[Outcome]]]:
        """The outcomes: a list for each program, with an item for each case."""
        return [judgement.outcomes for judgement in self._judgements]

    @property
    def verdicts(self) -> list[list[str]]:
        """The verdicts: a list for each program, with an item for each case."""
        return [judgement.verdicts for judgement in self._judgements]

    @property
    def scores(self) -> list[float]:
        """The mean score of each program."""
        return [judgement.score for judgement in self._judgements]

    @property
    def passed(self) -> list[bool]:
        """Whether every case was accepted, for each program."""
        return [judgement.passed for judgement in self._judgements]

    def retry_overloaded(self) -> Judgements:
        """Runs the cases of all programs again that `Judgement.retry_overloaded` would.

        Returns:
            The new judgements.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     judgements = box.judge_many(["print(9)", "print(8)"], [("", "9")])
            ...     judgements.retry_overloaded().passed
            [True, False]
        """
        return Judgements(_retried(self._judgements))

    def __repr__(self) -> str:
        return f"<Judgements {[round(score, 3) for score in self.scores]}>"


def _judgement(submission: _Submission) -> Judgement:
    return Judgement(
        [None if run is None else run.outcome for run in submission.runs],
        submission.verdicts,
        submission.scores,
        submission.errors,
        submission.error,
        submission,
    )


def _retried(judgements: Sequence[Judgement]) -> list[Judgement]:
    """These judgements with what the machine is to blame for run again, all of it together; the same ones where there is nothing."""
    todo: dict[int, tuple[_Submission, list[int]]] = {}
    window = 0
    for number, judgement in enumerate(judgements):
        unfair = judgement._unfair()
        if not unfair:
            continue
        if judgement._submission.box is None:
            raise SandboxUnavailableError("a judgement that was copied or sent on has no sandbox to run anything in; judge again")
        indices = sorted({*unfair, *(index for index, verdict in enumerate(judgement.verdicts) if verdict == "not_run")})
        todo[number] = judgement._submission.again(indices), indices
        window = _window(judgement._submission.box)
    _work_off(todo.values(), window, raises_on_failure=False)
    return [_judgement(todo[number][0]) if number in todo else judgement for number, judgement in enumerate(judgements)]


def _window(box: Sandbox) -> int:
    """How many cases of a sandbox's are under way: run, or next to be."""
    return 2 * box._pool.workers


def judge_all(
    box: Sandbox,
    programs: Iterable[Program],
    cases: Iterable[Any],
    checker: Optional[Checker],
    entry: Optional[str],
    timeout: Union[int, float, None],
    total: Union[int, float, None],
    stop_early: bool,
    name: str,
) -> Judgements:
    box._pool.check_open()
    if box._trust != "data":
        raise InvalidArgumentError(
            f"trust={box._trust!r} runs code that a judged program returns, in this process, where the expected answers are; "
            'judge with a sandbox of trust="data", and name classes that answers hold in results='
        )
    if isinstance(programs, str):
        raise InvalidArgumentTypeError("programs is a string: use a list of programs, or judge for one alone")
    _arguments.iterable("programs", programs)
    _arguments.iterable("cases", cases)
    if isinstance(checker, str) and checker != _JSON:
        raise InvalidArgumentError(f'checker={checker!r:.200}: use "json", or a function of a case and its outcome')
    if checker is not None and not isinstance(checker, str):
        _arguments.function("checker", checker, 'use "json", or a function of a case and its outcome')
    if entry is not None:
        _arguments.text("entry", entry, 'use the name of a function in the program, such as "solve"')
    _arguments.text("name", name)
    _arguments.flag("stop_early", stop_early)
    listed, listed_programs = list(cases), list(programs)
    for index, program in enumerate(listed_programs):
        _check_program(box, program, entry, f"programs[{index}]" if len(listed_programs) > 1 else "the program")
        if checker == _JSON and isinstance(program, str) and entry is None:
            raise InvalidArgumentError('checker="json" compares what functions return; programs are judged by what they print')
    submissions = [
        _Submission(box, program, listed, checker, entry, timeout, total, stop_early, name) for program in listed_programs
    ]
    everything = range(len(listed))
    _work_off(((submission, everything) for submission in submissions), _window(box))
    return Judgements([_judgement(submission) for submission in submissions])
