"""Settings of these modules: durations as text, and the versions of Python that they need."""

from __future__ import annotations

import math
import re
import sys
from typing import Any, Optional

DURATION_REMEDY = 'use seconds such as 2.5, a duration such as "500ms" or "1h30m", or None for no limit'
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def seconds(value: Any) -> Optional[float]:
    """The seconds of a duration, None for no limit. Raises `ValueError` for anything else."""
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip().lower()
        if text in ("none", "unlimited"):
            return None
        if _NUMBER.fullmatch(text):
            return float(text) or None
        if not _DURATION.fullmatch(text):
            raise ValueError(value)
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)) or None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(value)
    return float(value) or None


def need_python(door: str, project: str, least: tuple[int, int]) -> None:
    """Raises `UnsupportedPlatform` if this Python is older than the project of a door needs."""
    if sys.version_info < least:
        from ..errors import UnsupportedPlatform

        raise UnsupportedPlatform(
            f"{door} needs Python {least[0]}.{least[1]} or newer, as {project} does, and this is "
            f"{sys.version_info[0]}.{sys.version_info[1]}; the rest of sandtimer works here"
        )
