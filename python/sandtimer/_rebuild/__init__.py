"""What a result's pickle may be made of: the table of `_sandtimer.decode`, and one function of ours for each entry.

Every function here is called with a tuple of arguments that a hostile process chose: objects of plain types, of types
in this table, and of the caller's own classes. So each checks exact types before it does anything with them, and calls
nothing but the standard library's or a library's constructors with what it has checked.
"""

from __future__ import annotations

from .arrays import VALUES as _ARRAYS
from .arrow import VALUES as _ARROW
from .classes import EXCEPTIONS, plan
from .common import Unbuilt, Value
from .values import TYPES
from .values import VALUES as _VALUES

VALUES: dict[tuple[str, str], Value] = {**_VALUES, **_ARRAYS, **_ARROW}

__all__ = ["EXCEPTIONS", "TYPES", "VALUES", "Unbuilt", "plan"]
