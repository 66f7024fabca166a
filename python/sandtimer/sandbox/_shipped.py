"""The callables that compile a submission in a sandbox, and call its function there."""

from __future__ import annotations

import pkgutil
from typing import Any


class Shipped:
    """A callable in the sandbox that needs nothing to be installed there: the source or the code
    that defines it.
    """

    def __init__(self, expression: str, names: dict[str, Any]) -> None:
        self.expression, self.names = expression, names

    def __call__(self, *_: Any) -> Any:
        raise RuntimeError("this is run in a sandbox only")

    def __reduce__(self) -> Any:
        return eval, (self.expression, self.names)


_LAUNCHER = ""


def launcher() -> str:
    """Returns the source of `_submission`, which calls the function of a submission."""
    global _LAUNCHER
    if not _LAUNCHER:
        _LAUNCHER = (pkgutil.get_data("sandtimer.sandbox", "_submission.py") or b"").decode()
    return _LAUNCHER


FROM_SOURCE = "(exec(source, space), space['compile_submission'])[1]"
FROM_CODE = (
    "(lambda parts, space: (exec(parts[0], space), space['entering'](*parts[1:]))[1])"
    "(__import__('marshal').loads(payload), {})"
)
