"""The budget of an agent as what bounds the runs of a sandbox, and what they count for."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Iterator, NamedTuple, Optional

from ._timeouts import TimeoutManager


class RunBudget(NamedTuple):
    """The budget that runs belong to, and the task that they are part of, if any."""

    manager: TimeoutManager
    task: Optional[str]

    def scope(self) -> Any:
        """Returns the scope of a run that begins now."""
        return self.manager._run_scope(self.task)


_NO_BUDGET = contextlib.nullcontext()


def noted_run(budget: Optional[RunBudget]) -> contextlib.AbstractContextManager[None]:
    """Returns a context for a run, which is recorded in the budget at its end, if there is one,
    however it ends.
    """
    return _NO_BUDGET if budget is None else _noted_run(budget.manager)


@contextlib.contextmanager
def _noted_run(manager: TimeoutManager) -> Iterator[None]:
    since = time.monotonic()
    try:
        yield
    finally:
        manager._note_run(since)
