"""What code inside a sandbox says of its progress, by whichever channel it was given."""

from __future__ import annotations

import json
import math
import os
import select
import sys
from typing import Optional, Union

from ._inside import MARK
from .errors import InvalidArgumentError

# Names the descriptor of a command that was given a channel.
VARIABLE = "SANDTIMER_PROGRESS_FD"


def progress(done: Union[int, float], total: Union[int, float, None] = None, unit: Optional[str] = None) -> bool:
    """Says, inside a call, a context or a run with a progress channel, how far this work is: 8 of 15.

    It beats what the output says, and is shown by `CallFuture.progress`, by listings of runs, and in the verdict of a limit
    that ends it. True if somebody hears it; outside of a sandbox nobody does, and nothing happens.
    Raises ValueError for what is no progress: a negative or endless number, a total that is 0 or below `done`.

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
            # One that nobody listens to at the moment is full, and is not waited for.
            if not select.select([], [channel], [], 0)[1]:
                return False
            os.write(channel, b"P" + line)
            return True
        os.write(int(os.environ[VARIABLE]), line + b"\n")
        return True
    except (KeyError, ValueError, OSError):
        return False
