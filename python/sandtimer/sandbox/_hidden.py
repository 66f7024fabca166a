"""Modules of this process that code which arrives as text is not shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Sequence

if TYPE_CHECKING:
    from ._calls import Calls

_hidden: dict[tuple[int, tuple[str, ...]], frozenset[str]] = {}


def hidden_modules(box: Calls) -> frozenset[str]:
    """Modules of this process that a judged text cannot import: those below directories that it is not shown."""
    profile = box._code_pool.profile
    if profile["paths"] == box._pool.profile["paths"]:
        return frozenset()
    shown = (*profile["paths"], *profile["shown"])
    key = len(sys.modules), shown
    if key not in _hidden:
        _hidden.clear()
        _hidden[key] = frozenset(name for name, module in list(sys.modules.items()) if _is_hidden(module, shown))
    return _hidden[key]


def _is_hidden(module: Any, shown: Sequence[str]) -> bool:
    # Whatever a program has put among its modules: asking it may run code of its own.
    names = getattr(module, "__dict__", {})
    file = names.get("__file__") if isinstance(names, dict) else None
    return isinstance(file, str) and names.get("__name__") != "__main__" and not file.startswith(tuple(f"{each}/" for each in shown))
