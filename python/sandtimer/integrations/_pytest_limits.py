"""The limits of sealed tests: from marks, and from the ini file."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union

import pytest

from ._settings import DURATION_REMEDY, seconds

_REMEDIES = {
    "wall": DURATION_REMEDY,
    "memory": 'use a whole number of bytes or a size such as "512MB", or None for no limit',
    "network": "use True or False",
    "processes": "use a whole number from 1 on, or None for no limit",
    "cpu": DURATION_REMEDY,
    "stall": DURATION_REMEDY,
}
FIELDS = tuple(_REMEDIES)


@dataclasses.dataclass(frozen=True)
class TestLimits:
    """The limits of one sealed test. Durations in seconds; None: no limit."""

    __test__ = False

    wall: Optional[float] = None
    memory: Union[int, str, None] = None
    network: bool = False
    processes: Optional[int] = None
    cpu: Optional[float] = None
    stall: Optional[float] = None


def from_ini(config: pytest.Config) -> TestLimits:
    """The defaults of the ini file. Raises `UsageError` for what is not a limit."""
    given = {}
    for name in FIELDS:
        text = config.getini(f"sandtimer_{name}")
        if isinstance(text, str) and text.strip():
            given[name] = _read(name, _typed(name, text.strip()), f"sandtimer_{name} of the ini file")
    return TestLimits(**given)


def _typed(name: str, text: str) -> Any:
    """The value of a setting of the ini file, as a mark would have it."""
    if name == "network":
        return {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}.get(text.lower(), text)
    if text.lower() in ("none", "unlimited", "0"):
        return None
    return int(text) if name == "processes" and text.isdecimal() else text


def of_item(item: pytest.Item, defaults: TestLimits) -> TestLimits:
    """The limits of a test: of each field the nearest mark's, else the default.

    Raises `UsageError` for what is not a limit.
    """
    given: dict[str, Any] = {}
    for mark in item.iter_markers("sandtimer"):
        origin = f"@pytest.mark.sandtimer of {item.nodeid}"
        if mark.args:
            value = f"{mark.args[0]!r:.100}"
            raise pytest.UsageError(f"{origin}: {value} is not named; write wall={value} or another of {', '.join(FIELDS)}")
        for name, value in mark.kwargs.items():
            if name not in _REMEDIES:
                raise pytest.UsageError(f"{origin}: there is no field {name!r}={value!r:.100}; use {', '.join(FIELDS)}")
            if name not in given:
                given[name] = _read(name, value, origin)
    return dataclasses.replace(defaults, **given)


def _read(name: str, value: Any, origin: str) -> Any:
    wrong = pytest.UsageError(f"{origin}: {name}={value!r:.100} is of type {type(value).__name__}: {_REMEDIES[name]}")
    if name in ("wall", "cpu", "stall"):
        try:
            return seconds(value)
        except ValueError:
            raise wrong from None
    if name == "network":
        if not isinstance(value, bool):
            raise wrong
        return value
    if value is None:
        return None
    kinds: tuple[type, ...] = (int,) if name == "processes" else (int, str)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise wrong
    from .. import _native
    from ..errors import SandtimerError

    try:
        _native.check({name: value})
    except SandtimerError as error:
        raise pytest.UsageError(f"{origin}: {error}") from None
    return value
