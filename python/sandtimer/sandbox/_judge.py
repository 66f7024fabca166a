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
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Optional, Sequence, Union, overload

from .. import _arguments
from ..errors import InvalidArgumentError, InvalidArgumentTypeError, SandboxUnavailableError
from . import _host
from ._case_queue import CaseQueue, SubmittedCases
from ._submitted import JudgingOptions as JudgingOptions, Program as Program, Submission
from ._verdicts import JSON, Checker as Checker

if TYPE_CHECKING:
    from .._outcome import Outcome
    from ._calls import Calls


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
    _submission: Submission

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


def _judgement(submission: Submission) -> Judgement:
    return Judgement(
        [None if run is None else run.outcome for run in submission.runs],
        submission.verdicts,
        submission.scores,
        submission.errors,
        submission.error,
        submission,
    )


def _retried(judgements: Sequence[Judgement]) -> list[Judgement]:
    """These judgements with what the machine is to blame for run again, all of it together; the
    same ones where there is nothing.
    """
    todo: dict[int, SubmittedCases] = {}
    window = 0
    for number, judgement in enumerate(judgements):
        unfair = judgement._unfair()
        if not unfair:
            continue
        if judgement._submission.box is None:
            raise SandboxUnavailableError("a judgement that was copied or sent on has no sandbox to run anything in; judge again")
        indices = sorted({*unfair, *(index for index, verdict in enumerate(judgement.verdicts) if verdict == "not_run")})
        todo[number] = SubmittedCases(judgement._submission.again(indices), indices)
        window = _window(judgement._submission.box)
    CaseQueue(window, raises_on_failure=False).work_off(todo.values())
    return [_judgement(todo[number].submission) if number in todo else judgement for number, judgement in enumerate(judgements)]


def _window(box: Calls) -> int:
    """How many cases of a sandbox's are under way: run, or next to be."""
    return 2 * box._pool.workers


def judge_all(box: Calls, programs: Iterable[Program], cases: Iterable[Any], options: JudgingOptions) -> Judgements:
    """Judges programs by the same cases, for `Sandbox.judge_many`."""
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
    _check_options(options)
    listed, listed_programs = list(cases), list(programs)
    for index, program in enumerate(listed_programs):
        _check_program(box, program, options, f"programs[{index}]" if len(listed_programs) > 1 else "the program")
    submissions = [Submission(box, program, listed, options) for program in listed_programs]
    everything = range(len(listed))
    CaseQueue(_window(box)).work_off(SubmittedCases(submission, everything) for submission in submissions)
    return Judgements([_judgement(submission) for submission in submissions])


def _check_options(options: JudgingOptions) -> None:
    checker, entry = options.checker, options.entry
    if isinstance(checker, str) and checker != JSON:
        raise InvalidArgumentError(f'checker={checker!r:.200}: use "json", or a function of a case and its outcome')
    if checker is not None and not isinstance(checker, str):
        _arguments.function("checker", checker, 'use "json", or a function of a case and its outcome')
    if entry is not None:
        _arguments.text("entry", entry, 'use the name of a function in the program, such as "solve"')
    _arguments.text("name", options.name)
    _arguments.flag("stop_early", options.stop_early)


def _check_program(box: Calls, program: Program, options: JudgingOptions, subject: str) -> None:
    entry = options.entry
    if isinstance(program, str):
        if entry is not None and not all(part.isidentifier() for part in entry.split(".")):
            raise InvalidArgumentError(f'entry={entry!r} is not a name such as "solve" or "Solution.solve"')
        if options.checker == JSON and entry is None:
            raise InvalidArgumentError('checker="json" compares what functions return; programs are judged by what they print')
        return
    if not callable(program):
        raise InvalidArgumentTypeError(f"{subject} is of type {type(program).__name__}: use a string or a function")
    if entry is not None:
        raise InvalidArgumentTypeError(f"entry= names a function in a program's text; {subject} is a function already")
    if box._start == "fork":
        raise InvalidArgumentError('start="fork" shows a call the memory of its caller, and the expected answers with it; use "zygote"')
