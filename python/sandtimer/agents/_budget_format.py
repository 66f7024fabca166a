"""Times and checks of a budget as Python programs and people read them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Optional


class TaskStatus(NamedTuple):
    """The state of a task, as the budget returns it. Times are in seconds."""

    name: str
    elapsed: float
    estimated: Optional[float]
    longest: Optional[float]
    percent: Optional[float]
    is_overdue: bool

    @property
    def progress(self) -> Optional[str]:
        """The elapsed time and the estimate, for logs; None without an estimate."""
        if self.estimated is None or self.percent is None:
            return None
        elapsed = _formatted_elapsed(self.elapsed, self.estimated)
        return f"{elapsed} / {formatted(self.estimated)} ({self.percent:.0f}% complete)"

    def as_dictionary(self) -> dict[str, Any]:
        """Returns what `get_task_status` returns."""
        return {
            "task_name": self.name,
            "elapsed_seconds": self.elapsed,
            "estimated_duration": self.estimated,
            "max_duration": self.longest,
            "progress_percent": self.percent,
            "is_overdue": self.is_overdue,
            "formatted_elapsed": _formatted_elapsed(self.elapsed, self.estimated),
            "formatted_estimated": None if self.estimated is None else formatted(self.estimated),
        }


def formatted(seconds: float) -> str:
    """Returns a duration such as `1h 30m`."""
    from .._sandtimer import duration_text

    return duration_text(seconds)


def _formatted_elapsed(seconds: float, estimated: Optional[float]) -> str:
    """Returns an elapsed time in the unit of its estimate: `0m 0s` of `30m 0s`."""
    in_minutes = estimated is not None and estimated >= 60 and seconds < 60
    return f"0m {int(seconds)}s" if in_minutes else formatted(seconds)


def check_in_seconds(check: str) -> dict[str, Any]:
    """Reads a check of the budget, and makes its times seconds."""
    facts: dict[str, Any] = json.loads(check)
    for limit in facts["limits"]:
        limit.setdefault("task", None)
        if limit.pop("unit") == "ms":
            for name in ("used", "limit", "remaining", "estimated"):
                if limit.get(name) is not None:
                    limit[name] /= 1000
    facts["binding"] = next((limit for limit in facts["limits"] if limit["binding"]), None)
    facts["elapsed_seconds"] = facts.pop("elapsed_ms") / 1000
    remaining = facts.pop("remaining_ms")
    facts["remaining_seconds"] = None if remaining is None else remaining / 1000
    if facts["wrap_up"] is not None:
        facts["wrap_up"]["seconds_left"] = facts["wrap_up"].pop("left_ms") / 1000
    return facts
