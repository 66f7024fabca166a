"""How long something is likely to take, from the durations that the servers of this user have kept."""

from __future__ import annotations

import json
import numbers
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from ._choices import Complexity
from ._vocabulary import named
from .errors import EstimateRefusedError, UnsupportedPlatform

# An exabyte, and thirty years: what is more is a mistake.
_MOST_MEGABYTES = 1e12
_MOST_SECONDS = 1e9


@dataclass(frozen=True)
class Estimate:
    """How long something is likely to take, in seconds, and what that rests on. `str()` is the same as text."""

    best: float
    """One run of twenty is shorter."""
    typical: float
    """Half of the runs are shorter."""
    worst: float
    """One run of twenty is longer."""
    runs: int
    """How many runs it rests on."""
    basis: str
    """What these have in common with what was asked: exact, any_load, template, class, type; prior: a table; or unknown."""
    censored_rate: float
    """The part of these runs that was stopped before its end."""
    coverage: Optional[float]
    """The part of recent runs with a history like this that took no longer than their worst case."""
    fits_budget: Optional[bool]
    """The worst case is over within the budget."""
    chance_within_budget: Optional[float]
    """The probability that it has ended by then."""
    suggested_limit: float
    """A timeout that ends next to no healthy run."""
    limit_rests_on_runs: bool
    """Runs show that it does, and not only a table."""
    text: str
    """The block that people and agents read."""

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
    """Say how long a type of task, or a command, is likely to take.

    It rests on the runs that this user's servers have kept in `state_dir` (SANDTIMER_STATE_DIR, else where they keep them by
    default), those that have the most in common with what is asked; without such runs on a table, which `basis` says. `command` is a line for a shell, or a list; `budget` is how many
    seconds there are for it. What cannot be estimated raises `EstimateRefusedError`, an unknown type with the nearest names.

    >>> import sandtimer
    >>> estimate = sandtimer.estimate("train_complex_model", data_size_mb=2300, budget=7200, state_dir="/nowhere")
    >>> estimate.typical, estimate.worst, estimate.fits_budget, estimate.basis
    (1800.0, 5400.0, True, 'prior')
    """
    if not sys.platform.startswith("linux"):
        raise UnsupportedPlatform(f"estimates are made on Linux, and this is {sys.platform}; ask a server")
    from ._sandtimer import estimate as answer

    if isinstance(command, str):
        command = ["sh", "-c", command]
    asked = {
        "task_type": task_type,
        "command": None if command is None else list(command),
        "data_size_mb": _number("data_size_mb", data_size_mb, "megabytes", _MOST_MEGABYTES),
        "complexity": complexity,
        "context": context,
        # As everywhere, 0 is no limit.
        "budget": _number("budget", budget, "seconds", _MOST_SECONDS) or None,
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
