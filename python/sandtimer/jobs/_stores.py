"""The native stores of this process: one for each server or state directory.

Each is opened at its first use, opened again in a forked child, and closed while the interpreter can
still wait for its threads.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, Dict, Optional, Tuple, Union

from .. import _native
from .._locks import Guard
from ..errors import UnsupportedPlatform

_guard = Guard()
#: By process and location.
_opened: Dict[Tuple[int, Optional[str]], Any] = {}
#: Held while one is opened, which may take as long as a server does.
_opening: Dict[Tuple[int, Optional[str]], Guard] = {}


def location_of(store: Union[str, "os.PathLike[str]", None], directory: Union[str, "os.PathLike[str]", None]) -> Optional[str]:
    """Returns a server's URL or an absolute path; None for the default directory. Arguments precede
    the environment.
    """
    if store is None and directory is None:
        store, directory = os.environ.get("SANDTIMER_STORE") or None, os.environ.get("SANDTIMER_STATE_DIR") or None
    if isinstance(store, str) and "://" in store:
        return store
    path = directory if store is None else store
    return None if path is None else os.path.abspath(os.fspath(path))


def open_store(named: Optional[str]) -> Any:
    """Returns the native store of this process at a location, and opens it first if need be."""
    if not sys.platform.startswith("linux"):
        raise UnsupportedPlatform(f"a store of jobs needs Linux, and this is {sys.platform}")
    from .._sandtimer import JobStore

    key = (os.getpid(), named)
    with _guard.lock:
        for other in [other for other in _opened if other[0] != key[0]]:
            # Its file must not be closed here, and its threads are not here: they are the parent's.
            _native.leave(_opened.pop(other))
        if key in _opened:
            return _opened[key]
        opening = _opening.setdefault(key, Guard())
    with opening.lock:
        with _guard.lock:
            if key in _opened:
                return _opened[key]
        is_server = named is not None and not os.path.isabs(named)
        made = JobStore(None, named) if is_server else JobStore(named, None)
        with _guard.lock:
            return _opened.setdefault(key, made)


def _close() -> None:
    """Closes the stores while the interpreter can still wait for threads that need it."""
    from .._sandtimer import end_remarks

    end_remarks()
    process = os.getpid()
    for key in [key for key in _opened if key[0] == process]:
        del _opened[key]


if sys.platform.startswith("linux"):
    atexit.register(_close)
