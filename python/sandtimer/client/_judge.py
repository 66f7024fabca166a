"""Judging programs on a server: its verdicts, or those of a checker of the caller's over the outcomes that it sends."""

from __future__ import annotations

import dataclasses
import math
import urllib.parse
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Union

from .. import _arguments
from .._outcome import Outcome
from ..errors import InvalidArgumentError, RemoteError, SandboxUnavailableError, ServerNotFoundError
from ..sandbox import _kept
from ..sandbox._cases import Case, read_cases
from ._io import Io
from ._request import JudgeOptions, fields, input_fields, milliseconds
from ._run import outcome_of
from ._wire import Server

if TYPE_CHECKING:
    from .._choices import Seconds

Checker = Callable[[Any, Outcome], Union[bool, float]]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ClientJudgement:
    """The result of one program on all cases, in the order of the cases, as a server found it.

    Attributes:
        outcomes: The outcomes; None for cases that were not run. Each stores at most 64 KiB of
            output, and its `remarks` name what is left out.
        verdicts: "accepted", "wrong_answer", "partial" (a score between 0 and 1), "timeout",
            "out_of_memory", "runtime_error", "compile_error", "not_run", "checker_error",
            "infra_error", or another limit such as "process_limit".
        scores: 1 for an accepted case, the number of a checker, 0 for all others.
        errors: The exception of each case that ended by a limit or a crash, or that could not be
            judged; None for the others.
        error: Why the program could not be compiled, as a `RemoteError`; else None.

    Examples:
        >>> import sandtimer
        >>> client = sandtimer.Client()
        >>> judgement = client.judge("print(int(input()) ** 2)", [("3", "9"), ("x", "0"), ("4", "15")], timeout=20.0)
        >>> judgement.verdicts, judgement.passed
        (['accepted', 'runtime_error', 'wrong_answer'], False)
    """

    outcomes: list[Optional[Outcome]]
    verdicts: list[str]
    scores: list[float]
    errors: list[Optional[BaseException]]
    error: Optional[BaseException]

    @property
    def score(self) -> float:
        """The mean of the scores of the cases."""
        return math.fsum(self.scores) / len(self.scores) if self.scores else 0.0

    @property
    def passed(self) -> bool:
        """Whether every case was accepted."""
        return bool(self.verdicts) and all(verdict == "accepted" for verdict in self.verdicts)

    def __repr__(self) -> str:
        counts = {verdict: self.verdicts.count(verdict) for verdict in dict.fromkeys(self.verdicts)}
        listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        return f"<ClientJudgement {self.score:.3g}: {listed or 'no cases'}>"


async def judge(
    server: Server,
    io: Io,
    program: str,
    cases: Iterable[Any],
    language: str,
    checker: Optional[Checker],
    total: Seconds,
    stop_early: bool,
    options: JudgeOptions,
) -> ClientJudgement:
    limits = fields(options, JudgeOptions)
    _arguments.iterable("cases", cases)
    if checker is not None:
        _arguments.function("checker", checker, "use a function of a case and its outcome")
    listed = read_cases(list(cases), True, checker is None)
    body = {
        "code": _source(program),
        "language": _arguments.text("language", language),
        "cases": [_fields(case, checker is None) for case in listed],
        "checker": "lines" if checker is None else "none",
        # Where the caller compares, the server does not know when to stop.
        "stop_early": _arguments.flag("stop_early", stop_early) and checker is None,
        **limits,
    }
    if total is not None:
        body["total_ms"] = milliseconds("total", total)
    if not listed:
        return ClientJudgement([], [], [], [], None)
    judged = await server.ask(io, "POST", "/v1/judge", body)
    ends = []
    is_stopped = False
    for case, found in zip(listed, judged["cases"]):
        end = _NOT_RUN if is_stopped else _end(found)
        if checker is not None and end.verdict == "not_compared" and end.outcome is not None:
            end = await _checked(checker, case, server, io, found, end.outcome)
        is_stopped = is_stopped or (stop_early and end.verdict != "accepted")
        ends.append(end)
    error = None if judged["error"] is None else RemoteError("SyntaxError", judged["error"])
    return ClientJudgement(
        [end.outcome for end in ends],
        [end.verdict for end in ends],
        [end.score for end in ends],
        [end.error for end in ends],
        error,
    )


@dataclasses.dataclass(frozen=True)
class _End:
    """How one case ended."""

    verdict: str
    score: float = 0.0
    outcome: Optional[Outcome] = None
    error: Optional[BaseException] = None


_NOT_RUN = _End("not_run")


def _fields(case: Case, is_compared: bool) -> dict[str, str]:
    given = input_fields("stdin", "stdin_encoding", case.stdin)
    if is_compared:
        expected = case.expected
        given["expected"] = expected.decode("utf-8", "replace") if isinstance(expected, bytes) else str(expected)
    return given


def _end(found: dict[str, Any]) -> _End:
    if found["outcome"] is None:
        error = None if found["error"] is None else SandboxUnavailableError(found["error"])
        return _End(found["verdict"], error=error)
    outcome = outcome_of(found["outcome"])
    return _End(found["verdict"], found["score"], outcome, outcome.error)


async def _checked(checker: Checker, case: Case, server: Server, io: Io, found: dict[str, Any], sent: Outcome) -> _End:
    """What the checker makes of a run. The server sends the head and the tail of a long output; the rest is read now."""
    outcome = sent
    if any(remark["kind"] == "shortened" for remark in sent.remarks):
        try:
            run = await server.ask(io, "GET", f"/v1/runs/{urllib.parse.quote(found['run_id'], safe='')}")
        except ServerNotFoundError as error:
            why = f"its output is longer than the answer has, and its record was removed before it was read: {error}; raise --keep-runs"
            return _End("infra_error", 0.0, sent, SandboxUnavailableError(why))
        outcome = outcome_of(run["outcome"])
    kept = _kept.shorten_outcome(outcome)
    try:
        score = float(checker(case.given, outcome))
        if not math.isfinite(score):
            raise ValueError(f"the checker returned {score}; a score is a finite number")
    except Exception as error:
        return _End("checker_error", 0.0, kept, _kept.shorten_exception(_kept.release_frames(error)))
    if score >= 1:
        return _End("accepted", score, kept)
    if outcome.stdout_truncated:
        return _cut(outcome, score, kept)
    return _End("partial" if score > 0 else "wrong_answer", score, kept)


def _cut(outcome: Outcome, score: float, kept: Outcome) -> _End:
    """A run of whose output a part is missing: by its limit, or because the server had no room for it."""
    not_stored = next((remark for remark in outcome.remarks if remark["kind"] == "output_not_stored"), None)
    if not_stored is None:
        return _End("output_limit", score, kept)
    return _End("infra_error", 0.0, kept, SandboxUnavailableError(not_stored["message"]))


def _source(program: str) -> str:
    if not _arguments.text("program", program):
        raise InvalidArgumentError("program='': use the source of a program")
    return program
