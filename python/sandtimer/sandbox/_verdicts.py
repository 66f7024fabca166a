"""How the answer to a case is compared with what is expected, and what the verdict is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Literal, NamedTuple, Optional, Union

from ..errors import SandboxUnavailableError
from . import _checkers
from ._cases import Case

if TYPE_CHECKING:
    from .._outcome import Outcome

Checker = Union[Callable[[Any, Any], Union[bool, float]], Literal["json"]]
# What compares a function's values as values that were read from JSON.
JSON = "json"

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


class CaseVerdict(NamedTuple):
    """The verdict on one case, its score, and the exception or the reason why there is no value."""

    verdict: str
    score: float
    error: Optional[BaseException]


class Comparison(NamedTuple):
    """What decides whether an answer is accepted."""

    #: Whether a program is judged by what it prints, not a function by its value.
    is_program: bool
    is_json: bool
    checker: Optional[Callable[[Any, Any], Union[bool, float]]]

    def judge(self, case: Case, outcome: Outcome) -> CaseVerdict:
        """Returns the verdict on the run of a case. An exception of a checker is a verdict, too."""
        if not outcome.ok:
            error = outcome.error
            if outcome.ending == "raised" and isinstance(error, MemoryError):
                return CaseVerdict("out_of_memory", 0.0, error)
            return CaseVerdict(_VERDICTS.get(outcome.ending, outcome.ending), 0.0, error)
        if self.checker is None and self.is_program and outcome.stdout_truncated:
            # What it printed in between is not known.
            return self._cut(outcome, 0.0)
        if self.checker is None and not self.is_program:
            try:
                score = float(_checkers.same_value(case.expected, outcome.value, self.is_json))
            except Exception as error:
                # The submission chose the value, and must not choose a verdict that is not held
                # against it. The frames would keep the value.
                return CaseVerdict("wrong_answer", 0.0, error.with_traceback(None))
        else:
            try:
                score = self._score(case, outcome)
            except Exception as error:
                return CaseVerdict("checker_error", 0.0, error)
        if score >= 1:
            return CaseVerdict("accepted", score, None)
        if self.is_program and outcome.stdout_truncated:
            return self._cut(outcome, score)
        return CaseVerdict("partial" if score > 0 else "wrong_answer", score, None)

    def _cut(self, outcome: Outcome, score: float) -> CaseVerdict:
        """Returns the verdict on a run whose output lacks a part: by its limit, or because there
        was no room for it here.
        """
        not_stored = next((remark for remark in outcome.remarks if remark["kind"] == "output_not_stored"), None)
        if not_stored is None:
            return CaseVerdict("output_limit", score, None)
        return CaseVerdict("infra_error", 0.0, SandboxUnavailableError(not_stored["message"]))

    def _score(self, case: Case, outcome: Outcome) -> float:
        if self.checker is not None:
            score = float(self.checker(case.given, outcome))
            if not math.isfinite(score):
                raise ValueError(f"the checker returned {score}; a score is a finite number")
            return score
        return float(_checkers.same_lines(case.expected, outcome.stdout))
