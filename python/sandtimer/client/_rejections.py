"""The exceptions for servers that reject a request or do not answer."""

from __future__ import annotations

import json
from typing import Any

from ..errors import ServerError, ServerLimitRefusedError, ServerNotFoundError, ServerUnauthorizedError, ServerUnreachableError

UNREACHABLE_HINT = "start a server with `sandtimer serve`, or give the address of one: Client(url), SANDTIMER_SERVER"


def unreachable(address: str, reason: str) -> ServerError:
    """Returns the exception for a server that does not answer."""
    message = f"{address} does not answer: {reason}; {UNREACHABLE_HINT}"
    return server_error(ServerUnreachableError, "unreachable", message, UNREACHABLE_HINT, True)


def rejection(status: int, text: bytes) -> ServerError:
    """Returns the exception for an answer that reports an error."""
    try:
        facts = json.loads(text)
        code, message = str(facts["code"]), str(facts["message"])
    except (ValueError, KeyError, TypeError):
        shown = text[:200].decode("utf-8", "replace")
        message = f"the answer (HTTP {status}) is not one of a Sandtimer server: {shown}"
        hint = "check the address; a proxy in between may have answered"
        if status in (502, 503, 504):
            # Proxies answer with these if the server does not.
            return server_error(ServerUnreachableError, "unreachable", message, hint, True)
        return server_error(ServerError, "bad_answer", message, hint)
    kind = ServerError
    if code == "unauthorized":
        kind = ServerUnauthorizedError
    elif code == "bad_limit":
        kind = ServerLimitRefusedError
    elif code.endswith("not_found") and status == 404:
        kind = ServerNotFoundError
    return server_error(kind, code, message, str(facts.get("hint", "")), facts.get("retryable") is True, facts.get("details"))


def server_error(
    kind: type[ServerError], code: str, message: str, hint: str = "", retryable: bool = False, details: Any = None
) -> ServerError:
    """Returns an exception with its facts for programs."""
    error = kind(message)
    error.code, error.hint, error.retryable = code, hint, retryable
    error.details = details if isinstance(details, dict) else {}
    return error
