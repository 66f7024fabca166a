"""`LoopGuard`: the limit of turns of an agent's loop, on that of the engine, which loops of jobs use
too.
"""

from __future__ import annotations

import json
from typing import Any, Iterator, Optional

from .. import _arguments
from .._sandtimer import LoopGuard as Native
from .._vocabulary import named_parameters
from ..errors import InvalidArgumentError, InvalidArgumentTypeError, LoopLimitError
from ._resilience import _count

#: What the engine counts, by the parameter that limits it.
_RULES = {"turns": "iterations", "failed turns": "failures", "turns in a row with the same action and input": "repeats"}


@named_parameters
class LoopGuard:
    """Counts the turns of an agent's loop, and stops the loop if it repeats itself.

    Iterating over a guard yields the numbers of the turns, from 1 on, until a rule stops it;
    `stopped` has the reason. `begin` raises the reason instead. After each turn, call `ended` with
    what the turn did; a turn without this call is only counted. A guard ends nothing that is
    running: for that, run the turns in a sandbox with a `timeout`.

    Args:
        iterations: The most turns; None for any number.
        failures: How many turns may fail, in all; None for any number.
        repeats: How many turns in a row may have the same action and input; None for any number.

    Raises:
        InvalidArgumentError: A number is below 1.

    Examples:
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
        """How many turns have failed."""
        return self._native.failed

    @property
    def stopped(self) -> Optional[LoopLimitError]:
        """Why the loop may have no more turns; None while it may."""
        return self._stopped

    def begin(self) -> int:
        """Begins a turn.

        Returns:
            The number of the turn, from 1 on.

        Raises:
            LoopLimitError: The loop may have no more turns.

        Examples:
            >>> import sandtimer
            >>> sandtimer.LoopGuard(24).begin()
            1
        """
        stop = self._native.begin()
        if stop is None:
            return self.turns
        limit, what = stop
        rule = _RULES[what]
        message = f"the loop was stopped after {self.turns} turns: it has had {limit} {what}, and may have no more ({rule}={limit})"
        self._stopped = LoopLimitError(message, rule, limit, self.turns, self.failed)
        raise self._stopped

    def ended(self, action: str, input: Any = None, *, ok: bool = True) -> None:
        """Records what a turn did.

        Args:
            action: The action.
            input: Its input, as JSON data. Two inputs are the same if they are equal as JSON.
            ok: Whether it succeeded.

        Raises:
            InvalidArgumentTypeError: JSON cannot represent the input.

        Examples:
            >>> import sandtimer
            >>> guard = sandtimer.LoopGuard(24, failures=3)
            >>> number = guard.begin()
            >>> guard.ended("search", {"text": "weather"}, ok=False)
            >>> guard.failed
            1
        """
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
