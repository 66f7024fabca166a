"""Parameters as callers give them: each is taken as it is meant, or refused at once, by its name and with the remedy.

InvalidArgumentTypeError (a TypeError) for a wrong type, InvalidArgumentError (a ValueError) for a wrong value, InvalidLimitError (a ValueError)
for an invalid limit.
"""

from __future__ import annotations

import importlib.machinery
import math
import operator
import os
import signal
import stat
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Optional, Sequence

from . import _native
from .errors import InvalidArgumentError, InvalidArgumentTypeError, InvalidLimitError, ProfileRefusedError

_DURATIONS = ("timeout", "cpu", "stall", "grace")
# Longer than any call: thirty years.
FOR_EVER = 1e9
# Processes or threads that a machine can be asked for at a time.
_MAX_COUNT = 4096


def _wrong(name: str, value: Any, remedy: str) -> InvalidArgumentTypeError:
    return InvalidArgumentTypeError(f"{name}={value!r:.200} is of type {type(value).__name__}: {remedy}")


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "use True or False")
    return value


def gpu(value: Any, start: str) -> bool:
    """Whether calls are to be given the GPU, which those of `start="spawn"` alone can be."""
    if not flag("gpu", value) or start == "spawn":
        return bool(value)
    reason = (
        "a fork cannot use CUDA that this process has initialised"
        if start == "fork"
        else "calls run in forks of a warm interpreter, which was sealed before the call"
    )
    raise InvalidArgumentError(f'gpu=True with start={start!r}: {reason}; use start="spawn", or leave gpu out')


def function(name: str, value: Any, remedy: str = "use a function, followed by its arguments") -> None:
    if not callable(value):
        raise _wrong(name, value, remedy)


def text(name: str, value: Any, remedy: str = "use a string") -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, remedy)
    return value


def encoded(name: str, value: Any) -> bytes:
    """Text or bytes, as bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        return text(name, value, "use a string or bytes").encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{name} cannot be encoded as UTF-8 ({error}): pass bytes") from error


def _seconds(name: str, value: Any) -> None:
    """Rejects numbers that are not seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and not 0 <= value < math.inf:
        none = "none" if name == "grace" else "no limit"
        raise InvalidLimitError(f"{name}={value!r}: use a number of seconds from 0 on, or None for {none}")


def limits(given: dict[str, Any]) -> Any:
    """The limits as calls take them. Refuses limits that are none, and a requirement that is none."""
    for name in _DURATIONS:
        _seconds(name, given.get(name))
    if (given.get("warn_before"), given.get("warn_signal")) != (None, None):
        given = {**given, "warn_signal": _notice(given.get("warn_before"), given.get("warn_signal"))}
    if given.get("require") is not None:
        text("require", given["require"], 'use a tier such as "T3", a kill class such as "K2", or None')
    return _native.check(given)


def _notice(before: Any, sent: Any) -> int:
    """The number of the signal that gives notice of a limit, `before` seconds before it."""
    if before is None or sent is None:
        raise InvalidLimitError(
            f"warn_before={before!r}, warn_signal={sent!r}: give both, the seconds before the limit and the signal, or neither"
        )
    if isinstance(before, bool) or not isinstance(before, (int, float)):
        raise InvalidLimitError(f"warn_before={before!r} is of type {type(before).__name__}: use a number of seconds, or None")
    _seconds("warn_before", before)
    remedy = 'use a signal that a process can handle, such as "SIGUSR1" or signal.SIGUSR1'
    if isinstance(sent, str):
        name = sent.upper() if sent.upper().startswith("SIG") else f"SIG{sent.upper()}"
        sent = signal.Signals.__members__.get(name, sent)
    if isinstance(sent, bool) or not isinstance(sent, int) or not 1 <= sent < 32 or sent in (signal.SIGKILL, signal.SIGSTOP):
        raise InvalidLimitError(f"warn_signal={sent!r}: {remedy}")
    return int(sent)


def total(value: Any) -> Optional[float]:
    """Seconds for several calls together; None where there is no limit."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        kind = type(value).__name__
        raise InvalidLimitError(f"total={value!r} is of type {kind}: use a number of seconds, or None for no limit")
    _seconds("total", value)
    return float(min(value, FOR_EVER)) if value else None


def count(name: str, value: Any, least: int, otherwise: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MAX_COUNT:
        raise InvalidArgumentError(f"{name}={value!r}: use a whole number from {least} to {_MAX_COUNT}{otherwise}")
    return value


def seed(value: Any) -> Optional[int]:
    """A seed that every generator of random numbers takes."""
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise _wrong("seed", value, "use a whole number, or None for a different seed in each call")
    number = operator.index(value)
    if not -(2**63) <= number < 2**64:
        raise InvalidArgumentError(f"seed={value!r}: use a whole number of at most 64 bits")
    return number


def iterable(name: str, value: Any) -> None:
    try:
        iter(value)
    except TypeError:
        raise _wrong(name, value, "use a list, or anything that can be iterated over") from None


def modules(value: Any) -> list[str]:
    """The names of modules to be preloaded."""
    wanted = 'use a list of module names, such as ["numpy"]'
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise _wrong("preload", value, wanted)
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentTypeError(f"preload holds {name!r:.200}, of type {type(name).__name__}: {wanted}")
        if not all(name.split(".")) or "\0" in name or not _is_utf8(name):
            raise InvalidArgumentError(f"preload holds {name!r:.200}, which is not the name of a module: {wanted}")
    return names


def classes(value: Any) -> list[type]:
    """The classes that a result may hold."""
    wanted = "use a list of the classes themselves, such as results=[Move]"
    if isinstance(value, (type, str)) or not isinstance(value, Iterable):
        raise _wrong("results", value, wanted)
    kinds = list(value)
    for kind in kinds:
        if not isinstance(kind, type):
            raise InvalidArgumentTypeError(f"results holds {kind!r:.200}, of type {type(kind).__name__}: {wanted}")
    return kinds


def interpreter(value: Any) -> str:
    """The interpreter's path or name."""
    remedy = "use an interpreter's path, its name on PATH, or None for this one"
    if value is None and not sys.executable:
        raise InvalidArgumentError(f"this process does not know its interpreter (sys.executable={sys.executable!r}): give its path as python=")
    path = sys.executable if value is None else value
    path = os.fspath(path) if hasattr(path, "__fspath__") else path
    if not isinstance(path, str):
        raise _wrong("python", value, remedy)
    if not path or "\0" in path or not _is_utf8(path):
        raise InvalidArgumentError(f"python={value!r} is not an interpreter: {remedy}")
    # An interpreter finds its libraries from the name it was started by, and starts in another directory.
    return os.path.join(os.getcwd(), path) if os.sep in path and not os.path.isabs(path) else path


def environment(value: Any) -> dict[str, str]:
    """Variables that are added to an environment."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong("environment", value, 'use a dictionary such as {"NAME": "value"}, or None')
    for name, content in value.items():
        if not isinstance(name, str) or not isinstance(content, str):
            raise InvalidArgumentTypeError(f"environment holds {name!r:.200}: {content!r:.200}, which are not both strings")
        if not name or "=" in name or "\0" in name + content or not _is_utf8(name + content):
            raise InvalidArgumentError(f"environment holds {name!r:.200}: {content!r:.200}, which an environment cannot contain")
    return dict(value)


def directory(value: Any) -> Optional[str]:
    """A directory inside."""
    remedy = 'use a path inside the sandbox, such as "/workspace/data", or None'
    path = os.fspath(value) if hasattr(value, "__fspath__") else value
    if path is not None and not isinstance(path, str):
        raise _wrong("directory", value, remedy)
    if path is not None and (not path or "\0" in path or not _is_utf8(path)):
        raise InvalidArgumentError(f"directory={value!r} is not a directory: {remedy}")
    return path


def paths() -> list[str]:
    """The caller's `sys.path`, absolute. A current directory that is gone is left out, as imports here do."""
    found = []
    for entry in sys.path:
        path = entry if isinstance(entry, str) or not hasattr(entry, "__fspath__") else os.fspath(entry)
        if not isinstance(path, str):
            kind = type(entry).__name__
            raise InvalidArgumentTypeError(f"sys.path holds {entry!r}, of type {kind}, which imports do not search: remove it, or make it a string")
        if "\0" in path or not _is_utf8(path):
            raise InvalidArgumentError(f"sys.path holds {entry!r}, which is not a path in UTF-8: rename the directory, or remove it")
        try:
            found.append(os.path.abspath(path))
        except FileNotFoundError:
            continue
    return found


def shown_directories(value: Any) -> list[str]:
    """Directories that code is shown, absolute. Rejects those that only their owner may read."""
    wanted = 'use a list of directories, such as ["/srv/project/lib"]'
    if isinstance(value, (str, bytes)) or hasattr(value, "__fspath__") or not isinstance(value, Iterable):
        raise _wrong("paths", value, wanted)
    found = []
    for each in value:
        path = os.fspath(each) if hasattr(each, "__fspath__") else each
        if not isinstance(path, str):
            raise InvalidArgumentTypeError(f"paths holds {each!r:.200}, of type {type(each).__name__}: {wanted}")
        if not path or "\0" in path or not _is_utf8(path):
            raise InvalidArgumentError(f"paths holds {each!r:.200}, which is not a directory: {wanted}")
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            raise InvalidArgumentError(f"paths holds {each!r:.200}: {error.strerror}; {wanted}") from error
        if not stat.S_ISDIR(mode):
            raise InvalidArgumentError(f"paths holds {each!r:.200}, which is not a directory: {wanted}")
        if not mode & 0o055:
            raise InvalidArgumentError(
                f"paths holds {each!r:.200}, which only its owner may read (mode {mode & 0o777:04o}); "
                "let others read it, or copy what code needs to a directory of its own"
            )
        found.append(os.path.abspath(path))
    return list(dict.fromkeys(found))


def check_preload(profile: Mapping[str, Any], all_paths: Sequence[str]) -> None:
    """Refuses modules of `preload` that lie where code that arrives as text may not look."""
    for name in profile["preload"]:
        top = name.partition(".")[0]
        if top in sys.builtin_module_names:
            continue
        find = importlib.machinery.PathFinder.find_spec
        shown = find(top, [*profile["paths"], *profile["shown"]])
        found = None if shown is not None else find(top, all_paths)
        if found is not None:
            locations = [found.origin] if found.submodule_search_locations is None else found.submodule_search_locations
            directory = os.path.dirname(next((location for location in locations if location), ""))
            raise ProfileRefusedError(
                f"preload={name!r} lies in {directory}, which is hidden from code that arrives as text; "
                f"add paths=[{directory!r}], or use a sandbox without this module"
            )


def _is_utf8(path: str) -> bool:
    if path.isascii():
        return True
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
