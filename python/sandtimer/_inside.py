"""Whether this interpreter is itself inside a sandbox."""

from __future__ import annotations

import sys

# Set by the program of zygotes before it imports anything; whatever a child forks inherits it.
MARK = "_sandtimer_inside"


def inside() -> bool:
    """True in a call's process. There is no privilege there to make another sandbox."""
    return MARK in sys.modules
