"""When a loop has gone on for long enough: `LoopGuard`, over the engine's, which loops of jobs have too."""

from __future__ import annotations

import json
from typing import Any, Iterator, Optional

from . import _arguments
from ._resilience import _count
from ._sandtimer import LoopGuard as Native
from ._vocabulary import named_parameters
from .errors import InvalidArgumentError, InvalidArgumentTypeError, LoopLimitError

#: What the engine counts, by the parameter that limits it.
_RULES = {"turns": "iterations", "failed turns": "failures", "turns in a row with the same action and input": "repeats"}


@named_parameters
class LoopGuard:
    """Counts the turns of an agent's loop and stops it where it goes round in circles.

    At most `iterations` turns; none more after `failures` of them have failed, in all, or once the same action was taken with the
    same input `repeats` times in a row. None for one of them switches that rule off. Iterating gives the numbers of the turns, from
    1 on, until one of the rules stops it: `stopped` says which. `begin` raises that instead. Of each turn `ended` is told what it
    did; one that nothing is told of counts as a turn alone.

    It looks at nothing but what it is told, and it ends nothing that goes on: for that, run turns in a sandbox with a `timeout`.

    >>> import sandtimer
    >>> guard = sandtimer.LoopGuard(iterations=24, repeats=3)
    >>> for turn in guard:
    ...     guard.ended("calculate", {"text": "7 * 6"}, ok=True)
    >>> guard.turns, guard.stopped.rule
    (3, 'repeats')
    >>> print(guard.stopped)
    the loop was stopped after 3 turns: it has had 3 turns in a row with the same action and input, and may have no more (repeats=3)
    """

    def __init__(
        self, iterations: Optional[int] = None, *, failures: Optional[int] = None, repeats: Optional[int] = None
    ) -> None:
        for name, value in (("iterations", iterations), ("failures", failures), ("repeats", repeats)):
            if value is not None:
                _count(name, value)
        self._native = Native(iterations, failures, repeats)
        self._stopped: Optional[LoopLimitError] = None

    @property
    def turns(self) -> int:
        """How many turns have begun."""
        return self._native.turns

    @property
    def failed(self) -> int:
        """How many of them have failed."""
        return self._native.failed

    @property
    def stopped(self) -> Optional[LoopLimitError]:
        """Why the loop may have no more turns; None while it may."""
        return self._stopped

    def begin(self) -> int:
        """Begins a turn: its number, from 1 on. `LoopLimitError` where there may be no more."""
        stop = self._native.begin()
        if stop is None:
            return self.turns
        limit, what = stop
        rule = _RULES[what]
        said = f"the loop was stopped after {self.turns} turns: it has had {limit} {what}, and may have no more ({rule}={limit})"
        self._stopped = LoopLimitError(said, rule, limit, self.turns, self.failed)
        raise self._stopped

    def ended(self, action: str, input: Any = None, *, ok: bool = True) -> None:
        """What the turn did. `input` is what JSON has; two are the same where they are equal as JSON."""
        _arguments.text("action", action)
        _arguments.flag("ok", ok)
        try:
            text = json.dumps(input, allow_nan=False, sort_keys=True)
        except RecursionError:
            raise InvalidArgumentError("input is nested too deeply to be compared: use less of it") from None
        except (TypeError, ValueError) as error:
            kind = InvalidArgumentTypeError if isinstance(error, TypeError) else InvalidArgumentError
            raise kind(f"input={input!r:.200} cannot be compared ({error}): use what JSON has") from None
        self._native.ended(action, text, ok)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        try:
            return self.begin()
        except LoopLimitError:
            raise StopIteration from None

    def __repr__(self) -> str:
        return f"<LoopGuard {self.turns} turns, {self.failed} failed{', stopped' if self._stopped else ''}>"
