"""What the engine cannot remark of a call, because the exception that the call raised is read here alone."""

from __future__ import annotations

from typing import Optional

from .._results import RemoteTraceback
from ..errors import RemoteError

# What exceptions of Python, and of commands that it calls, say where there is no network; some of what the engine finds in outputs.
_NETWORK_ERRORS = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Could not resolve host",
    "failed to lookup address information",
)
# Characters at the end of a traceback that are searched.
_MAX_SEARCHED = 16 << 10

NO_NETWORK = {
    "kind": "no_network",
    "message": "This run has a loopback network only, and its exception is that of a missing network; "
    "to give it the host's, set network=True in its sandbox.",
}


def of_exception(error: Optional[BaseException]) -> tuple[dict[str, str], ...]:
    """What to remark of a call without a network that raised this. The exception has it as a note, where Python knows those."""
    if isinstance(error, RemoteError):
        text = f"{error.remote_traceback}\n{error.message}"
    elif error is not None and isinstance(error.__cause__, RemoteTraceback):
        text = str(error.__cause__.args[0])
    else:
        return ()
    end = text[-_MAX_SEARCHED:]
    if not any(each in end for each in _NETWORK_ERRORS):
        return ()
    if hasattr(error, "add_note"):
        error.add_note(NO_NETWORK["message"])
    return (NO_NETWORK,)
