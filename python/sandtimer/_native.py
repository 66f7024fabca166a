"""The engine of this process: made when it is first needed, and again in a forked child."""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

from ._inside import inside
from ._locks import Guard
from .errors import SandboxUnavailableError, UnsupportedPlatform

_guard = Guard()
_engine: Optional[tuple[int, Any]] = None
# Engines of a parent process: their threads do not exist here, so they must never be dropped.
_inherited: list[Any] = []


def engine() -> Any:
    """This process's engine."""
    global _engine
    if not sys.platform.startswith("linux"):
        raise UnsupportedPlatform(f"local sandboxes need Linux, and this is {sys.platform}; use a server")
    if inside():
        raise SandboxUnavailableError(
            "this code runs inside a sandbox, where there is no privilege to make another; "
            "call the function itself here, or make the second sandbox outside"
        )
    from ._sandtimer import Engine

    with _guard.lock:
        if _engine is None or _engine[0] != os.getpid():
            if _engine is not None:
                _inherited.append(_engine[1])
            _engine = (os.getpid(), Engine())
        return _engine[1]


def leave(inherited: Any) -> None:
    """Keeps what belongs to a parent process from being dropped in this one."""
    _inherited.append(inherited)


def check_gpu() -> None:
    """Refuses where there is no GPU that calls could be given. Inside a sandbox no other is started, and none needed."""
    if not inside():
        from ._sandtimer import gpu_nodes

        gpu_nodes()


def check(limits: dict[str, Any]) -> Any:
    """The limits as calls take them. Rejects invalid limits, and names them."""
    from ._sandtimer import Limits

    return Limits(limits)
