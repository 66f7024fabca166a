"""Run Python code that nobody has vouched for, under hard limits, and get its result back safely."""

from ._sandtimer import __version__
from .errors import (
    Cancelled,
    Crashed,
    DeadlineExceeded,
    InvalidLimit,
    NoResult,
    OutOfMemory,
    RemoteError,
    ResultRefused,
    SandtimerError,
    Unserializable,
    UnsupportedPlatform,
)

__all__ = [
    "Cancelled",
    "Crashed",
    "DeadlineExceeded",
    "InvalidLimit",
    "NoResult",
    "OutOfMemory",
    "RemoteError",
    "ResultRefused",
    "SandtimerError",
    "Unserializable",
    "UnsupportedPlatform",
    "__version__",
]
