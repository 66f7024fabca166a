"""How long a task is likely to take, from the durations that the user's servers have stored."""

from __future__ import annotations

import json
import numbers
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from .._choices import Complexity
from .._vocabulary import named
from ..errors import EstimateRefusedError, UnsupportedPlatform

# An exabyte, and thirty years: what is more is a mistake.
_MAX_MEGABYTES = 1e12
_MAX_SECONDS = 1e9


@dataclass(frozen=True)
class Estimate:
    """How long a task is likely to take, in seconds, and the basis of that. `str()` returns `text`.

    Attributes:
        best: One run of twenty is shorter.
        typical: Half of the runs are shorter.
        worst: One run of twenty is longer.
        runs: How many runs it is based on.
        basis: What these runs have in common with the question: "exact", "any_load", "template",
            "class" or "type"; "prior" is a table, "unknown" nothing.
        censored_rate: The share of these runs that was stopped before its end.
        coverage: The share of recent runs with such a history that took no longer than their worst
            case; None if it is unknown.
        fits_budget: Whether the worst case fits into the budget; None without a budget.
        chance_within_budget: The probability that the task ends within the budget; None without a
            budget.
        suggested_limit: A timeout that ends hardly any healthy run.
        limit_rests_on_runs: Whether that timeout is based on runs, and not only on a table.
        text: The block that people and agents read.

    Examples:
        >>> import sandtimer
        >>> estimate = sandtimer.estimate("train_complex_model", 2300, state_dir="/nowhere")
        >>> estimate.best < estimate.typical < estimate.worst, estimate.runs
        (True, 0)
    """

    best: float
    typical: float
    worst: float
    runs: int
    basis: str
    censored_rate: float
    coverage: Optional[float]
    fits_budget: Optional[bool]
    chance_within_budget: Optional[float]
    suggested_limit: float
    limit_rests_on_runs: bool
    text: str

    def __str__(self) -> str:
        return self.text


@named
def estimate(
    task_type: Optional[str] = None,
    data_size_mb: Optional[float] = None,
    *,
    complexity: Optional[Complexity] = None,
    context: Optional[str] = None,
    command: Union[str, Sequence[str], None] = None,
    budget: Optional[float] = None,
    state_dir: Union[str, os.PathLike[str], None] = None,
) -> Estimate:
    """Estimates how long a task or a command takes.

    The basis is the runs that the user's servers have stored in the state directory (for 30 days by
    default), those that have the most in common with the question; without such runs it is a table,
    and `basis` reports which it is.

    Args:
        task_type: The type of the task, such as "train_complex_model".
        data_size_mb: The size of its data, in megabytes.
        complexity: "simple", "moderate" or "complex".
        context: More about the task, in words.
        command: A command: a line for a shell, or a list.
        budget: Seconds that are available; None and 0 for unlimited.
        state_dir: The state directory; None for the default one.

    Raises:
        EstimateRefusedError: An unknown type, of which the message names the nearest ones; an
            invalid number; an unknown command.
        UnsupportedPlatform: This is not Linux.

    Examples:
        >>> import sandtimer
        >>> estimate = sandtimer.estimate("train_complex_model", data_size_mb=2300, budget=7200, state_dir="/nowhere")
        >>> estimate.typical, estimate.worst, estimate.fits_budget, estimate.basis
        (1800.0, 5400.0, True, 'prior')
    """
    if not sys.platform.startswith("linux"):
        raise UnsupportedPlatform(f"estimates are made on Linux, and this is {sys.platform}; ask a server")
    from .._sandtimer import estimate as answer

    if isinstance(command, str):
        command = ["sh", "-c", command]
    asked = {
        "task_type": task_type,
        "command": None if command is None else list(command),
        "data_size_mb": _number("data_size_mb", data_size_mb, "megabytes", _MAX_MEGABYTES),
        "complexity": complexity,
        "context": context,
        # As everywhere, 0 means unlimited.
        "budget": _number("budget", budget, "seconds", _MAX_SECONDS) or None,
        "state_dir": None if state_dir is None else os.fspath(state_dir),
    }
    answered, remarks = answer(asked)
    for remark in remarks:
        warnings.warn(remark, RuntimeWarning, stacklevel=2)
    found = json.loads(answered)
    return Estimate(
        best=found["best_ms"] / 1000,
        typical=found["typical_ms"] / 1000,
        worst=found["worst_ms"] / 1000,
        runs=found["runs"],
        basis=found["basis"],
        censored_rate=found["censored_rate"],
        coverage=found["coverage"],
        fits_budget=found["fits_budget"],
        chance_within_budget=found["chance_within_budget"],
        suggested_limit=found["suggested_limit_ms"] / 1000,
        limit_rests_on_runs=found["limit_rests_on_runs"],
        text=found["text"],
    )


def _number(name: str, value: Any, unit: str, most: float) -> Optional[float]:
    if value is None:
        return None
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= most:
        try:
            shown = f"{value!r:.100}"
        except ValueError:
            # More digits than Python writes.
            shown = "a number too large to show"
        raise EstimateRefusedError(f"{name}={shown}: use a number of {unit} from 0 to {most:g}, or None")
    return float(value)
