"""Calls on the machines of a Ray cluster (`pip install sandtimer[ray]`); the package must be installed on each of them."""

try:
    # Not `ray`: a directory of that name would do.
    import ray.exceptions as _
except ImportError as _error:
    raise ImportError("sandtimer.ray needs Ray: pip install sandtimer[ray]") from _error

from ._executor import initialize, sandbox
from ._pool import Pool

__all__ = ["Pool", "initialize", "sandbox"]
