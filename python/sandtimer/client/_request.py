"""What callers of the client give, as the server takes it: names, units and types of a `Sandbox`, checked as those are."""

from __future__ import annotations

import base64
import math
from typing import Any, Callable, Mapping, Optional, Sequence, TypedDict, Union

from .. import _arguments, _vocabulary
from .._choices import OnOutputLimit, StallBy
from ..errors import InvalidArgumentTypeError, InvalidLimitError

Seconds = Union[int, float, None]
Size = Union[int, str, None]


class CellLimits(TypedDict, total=False):
    """Of one execution. Seconds; sizes in bytes or texts such as "512MB"; None and 0 are unlimited; absent is the server's."""

    timeout: Seconds
    cpu: Seconds
    stall: Seconds
    grace: Seconds
    output: Size


class CellOptions(CellLimits, total=False):
    """One execution in a context. `warn`: seconds before the timeout at which a `warning` event comes, and `warn_signal` is sent."""

    result_bytes: Size
    stdin: Union[str, bytes, None]
    warn: float
    warn_signal: str
    on_output_limit: OnOutputLimit


class WholeLimits(CellLimits, total=False):
    """Of a run or a context with all that it starts."""

    memory: Size
    processes: Optional[int]
    disk: Size
    open_files: Optional[int]


class RunOptions(WholeLimits, total=False):
    """One run. `workspace`: a `ClientWorkspace`, or its id, that it works in instead of one of its own. `directory`: where in it
    it starts. `network`: whether it has the host's network.
    """

    environment: Optional[Mapping[str, str]]
    stdin: Union[str, bytes, None]
    warn: float
    on_output_limit: OnOutputLimit
    warn_signal: str
    stall_by: StallBy
    progress_channel: bool
    directory: Optional[str]
    network: bool
    workspace: Any


class JudgeOptions(TypedDict, total=False):
    """Limits of each case of a program that is judged."""

    timeout: Seconds
    cpu: Seconds
    stall: Seconds
    output: Size
    memory: Size
    processes: Optional[int]
    disk: Size
    open_files: Optional[int]


class BranchOptions(WholeLimits, total=False):
    """Branches of a context. What is absent is as it is in the context."""

    result_bytes: Size
    idle: Seconds


class ContextOptions(WholeLimits, total=False):
    """A context or session: limits of the whole, and of each run that has none of its own. `idle`: seconds unused. `network`:
    whether it has the host's network. `sandbox`: a `ClientSandbox`, or its id, whose files it has instead of a workspace.
    """

    result_bytes: Size
    environment: Optional[Mapping[str, str]]
    directory: Optional[str]
    network: bool
    idle: Seconds
    workspace: Any
    sandbox: Any


def milliseconds(name: str, value: Any) -> Optional[int]:
    """0 and None mean unlimited on the wire, so the least limit is one millisecond."""
    if value is None:
        return 0
    try:
        seconds = None if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError):
        seconds = None
    if seconds is None or not 0 <= seconds < math.inf:
        raise InvalidLimitError(f"{name}={value!r:.200}: use a number of seconds from 0 on, or None for no limit")
    return math.ceil(seconds * 1000)


def size(name: str, value: Any) -> Any:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidLimitError(f'{name}={value!r:.200}: use a number of bytes, a string such as "512MB", or None for no limit')
    return value


def count(name: str, value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidLimitError(f"{name}={value!r:.200}: use a whole number, or None for no limit")
    return value


def _string(name: str, value: Any) -> str:
    return _arguments.text(name, value)


def input_fields(name: str, encoding: str, value: Any) -> dict[str, str]:
    """Text or bytes, as JSON can hold them."""
    data = _arguments.encoded(name, value)
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), encoding: "base64"}


def _environment(_: str, value: Any) -> dict[str, str]:
    return _arguments.environment(value)


def _workspace(name: str, value: Any) -> str:
    return _arguments.text(name, getattr(value, "id", value), "use a workspace of the client's, or its id")


def _sandbox(name: str, value: Any) -> str:
    return _arguments.text(name, getattr(value, "id", value), "use a sandbox of the client's, or its id")


_FIELDS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "timeout": ("wall_ms", milliseconds),
    "cpu": ("cpu_ms", milliseconds),
    "stall": ("stall_ms", milliseconds),
    "grace": ("grace_ms", milliseconds),
    "idle": ("idle_ms", milliseconds),
    "warn": ("warn_ms", milliseconds),
    "warn_signal": ("warn_signal", _string),
    "memory": ("memory_bytes", size),
    "output": ("output_bytes", size),
    "disk": ("disk_bytes", size),
    "result_bytes": ("result_bytes", size),
    "processes": ("processes", count),
    "open_files": ("open_files", count),
    "environment": ("env", _environment),
    "directory": ("cwd", _string),
    "network": ("network", _arguments.flag),
    "workspace": ("workspace", _workspace),
    "sandbox": ("sandbox", _sandbox),
    "on_output_limit": ("on_output_limit", _string),
    "stall_by": ("stall_by", _string),
    "progress_channel": ("progress_channel", _arguments.flag),
}


#: What the methods with these options are given besides.
_POSITIONAL: dict[Any, tuple[str, ...]] = {
    RunOptions: ("command", "code", "language"),
    CellOptions: ("code",),
    ContextOptions: ("language",),
    BranchOptions: ("n",),
    JudgeOptions: ("program", "cases", "language", "checker", "total", "stop_early"),
}


def fields(options: Mapping[str, Any], allowed: Any) -> dict[str, Any]:
    """The fields of a request from the options of a method."""
    known = sorted(allowed.__annotations__)
    asked: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise _vocabulary.rejection("the call", name, value, (*known, *_POSITIONAL[allowed]))
        if name == "stdin":
            asked.update({} if value is None else input_fields("stdin", "stdin_encoding", value))
            continue
        wire, convert = _FIELDS[name]
        # For options that are not limits None is the same as absence.
        if value is not None or (name != "warn" and convert in (milliseconds, size, count)):
            asked[wire] = convert(name, value)
    return asked


def program(command: Union[str, Sequence[str], None], code: Optional[str], language: str) -> dict[str, Any]:
    """What is to be run: a command, or code in a language."""
    if (command is None) == (code is None):
        raise InvalidArgumentTypeError("give either a command, such as ['echo', 'hello'] or 'ls | wc -l', or code=")
    if code is not None:
        return {"code": _arguments.text("code", code), "language": _arguments.text("language", language)}
    return {"command": command if isinstance(command, str) else list(command or ())}
