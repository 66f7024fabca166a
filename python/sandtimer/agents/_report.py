"""Reports of progress from code inside a sandbox, by the channel that it was given."""

from __future__ import annotations

import json
import math
import os
import select
import sys
from typing import Optional, Union

from .._inside import MARK
from ..errors import InvalidArgumentError

# Names the descriptor of a command that was given a channel.
VARIABLE = "SANDTIMER_PROGRESS_FD"


def progress(done: Union[int, float], total: Union[int, float, None] = None, unit: Optional[str] = None) -> bool:
    """Reports how far the work of a call, a context or a run with a progress channel is, such as 8 of
    15.

    The report takes precedence over what the output shows. `CallFuture.progress`, listings of runs
    and the verdict of a limit have it. Outside of a sandbox it has no effect.

    Args:
        done: How much is done, from 0 on.
        total: How much there is, above 0; None if that is unknown.
        unit: What is counted, such as "epoch".

    Returns:
        Whether the report was delivered.

    Raises:
        InvalidArgumentError: A number is negative or infinite, or `total` is 0 or below `done`.

    Examples:
        >>> import sandtimer
        >>> sandtimer.progress(8, 15, "epoch")
        False
    """
    numbers = [done] if total is None else [done, total]
    if not all(isinstance(number, (int, float)) and 0 <= number < math.inf for number in numbers):
        raise InvalidArgumentError(f"progress({done!r}, {total!r}): use numbers from 0 on")
    if total is not None and not (total > 0 and done <= total):
        raise InvalidArgumentError(f"progress({done!r}, {total!r}): use a total above 0 and not below what is done")
    line = json.dumps({"done": done, "total": total, "unit": unit}).encode()
    channel = getattr(sys.modules.get(MARK), "channel", None)
    try:
        if channel is not None:
            # A channel without a reader is full at some time, and is not waited for.
            if not select.select([], [channel], [], 0)[1]:
                return False
            os.write(channel, b"P" + line)
            return True
        os.write(int(os.environ[VARIABLE]), line + b"\n")
        return True
    except (KeyError, ValueError, OSError):
        return False
