"""Run untrusted Python code under hard limits, and get its result back safely."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Imported when they are first used: an installation that only has this package's pytest plug-in or kernel provisioner
# registered pays nothing for them.
if TYPE_CHECKING:
    from . import errors as errors
    from . import jobs as jobs
    from ._client import Client
    from ._client_context import ClientContext
    from ._client_files import ClientFiles, ClientWorkspace
    from ._client_run import ClientRun, OutputChunk, RunEvent
    from ._client_sandbox import ClientSandbox
    from ._context import Context, ContextInfo
    from ._decorator import sandboxed
    from ._estimate import Estimate, estimate
    from ._futures import CallFuture
    from ._host import HostLoad
    from ._judge import Judgement, Judgements
    from ._loop import LoopGuard
    from ._outcome import Isolation, Outcome, Tree, Usage, Verdict
    from ._report import progress
    from ._resilience import CircuitBreaker, Retried, Retry, retry
    from ._sandbox import Sandbox
    from ._sandtimer import __version__
    from ._timeouts import TimeoutManager
    from .errors import (
        BranchRefusedError,
        Cancelled,
        CircuitOpen,
        ContextLostError,
        Crashed,
        DeadlineExceeded,
        EstimateRefusedError,
        InvalidArgumentError,
        InvalidArgumentTypeError,
        InvalidLimitError,
        IsolationRefusedError,
        JobConflictError,
        JobError,
        JobFileUnknownError,
        JobNotFoundError,
        JobSpecRefusedError,
        JobStateRefusedError,
        JobStillRunningError,
        JobStoreBusyError,
        JobStoreFullError,
        JobStoreNewerError,
        JobStoreUnavailableError,
        JobStoreUnreachableError,
        LimitExceededError,
        LoopLimitError,
        NoResultError,
        OutOfMemory,
        ProfileRefusedError,
        RemoteError,
        ResultRefusedError,
        ResultTooLargeError,
        SandboxUnavailableError,
        SandtimerError,
        ServerError,
        ServerLimitRefusedError,
        ServerNotFoundError,
        ServerUnauthorizedError,
        ServerUnreachableError,
        SoftTimeLimitError,
        UnserializableError,
        UnsupportedPlatform,
    )

_MODULES = {
    "_client": "Client",
    "_client_context": "ClientContext",
    "_client_files": "ClientFiles ClientWorkspace",
    "_client_run": "ClientRun OutputChunk RunEvent",
    "_client_sandbox": "ClientSandbox",
    "_context": "Context ContextInfo",
    "_decorator": "sandboxed",
    "_estimate": "Estimate estimate",
    "_futures": "CallFuture",
    "_host": "HostLoad",
    "_judge": "Judgement Judgements",
    "_loop": "LoopGuard",
    "_outcome": "Isolation Outcome Tree Usage Verdict",
    "_report": "progress",
    "_resilience": "CircuitBreaker Retried Retry retry",
    "_sandbox": "Sandbox",
    "_sandtimer": "__version__",
    "_timeouts": "TimeoutManager",
    "errors": (
        "BranchRefusedError Cancelled CircuitOpen ContextLostError Crashed DeadlineExceeded "
        "EstimateRefusedError InvalidArgumentError InvalidArgumentTypeError InvalidLimitError "
        "IsolationRefusedError JobConflictError JobError JobFileUnknownError JobNotFoundError "
        "JobSpecRefusedError JobStateRefusedError JobStillRunningError JobStoreBusyError JobStoreFullError "
        "JobStoreNewerError JobStoreUnavailableError JobStoreUnreachableError LimitExceededError "
        "LoopLimitError NoResultError OutOfMemory ProfileRefusedError RemoteError ResultRefusedError "
        "ResultTooLargeError SandboxUnavailableError SandtimerError ServerError ServerLimitRefusedError "
        "ServerNotFoundError ServerUnauthorizedError ServerUnreachableError SoftTimeLimitError "
        "UnserializableError UnsupportedPlatform"
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


# Type checkers would take it for a declaration of every name, misspelt ones too.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("errors", "jobs"):
            return importlib.import_module(f".{name}", __name__)
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{module}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "BranchRefusedError",
    "CallFuture",
    "Cancelled",
    "CircuitBreaker",
    "CircuitOpen",
    "Client",
    "ClientContext",
    "ClientFiles",
    "ClientRun",
    "ClientSandbox",
    "ClientWorkspace",
    "Context",
    "ContextInfo",
    "ContextLostError",
    "Crashed",
    "DeadlineExceeded",
    "Estimate",
    "EstimateRefusedError",
    "HostLoad",
    "InvalidArgumentError",
    "InvalidArgumentTypeError",
    "InvalidLimitError",
    "Isolation",
    "IsolationRefusedError",
    "JobConflictError",
    "JobError",
    "JobFileUnknownError",
    "JobNotFoundError",
    "JobSpecRefusedError",
    "JobStateRefusedError",
    "JobStillRunningError",
    "JobStoreBusyError",
    "JobStoreFullError",
    "JobStoreNewerError",
    "JobStoreUnavailableError",
    "JobStoreUnreachableError",
    "Judgement",
    "Judgements",
    "LimitExceededError",
    "LoopGuard",
    "LoopLimitError",
    "NoResultError",
    "OutOfMemory",
    "Outcome",
    "OutputChunk",
    "ProfileRefusedError",
    "RemoteError",
    "ResultRefusedError",
    "ResultTooLargeError",
    "Retried",
    "Retry",
    "RunEvent",
    "Sandbox",
    "SandboxUnavailableError",
    "SandtimerError",
    "ServerError",
    "ServerLimitRefusedError",
    "ServerNotFoundError",
    "ServerUnauthorizedError",
    "ServerUnreachableError",
    "SoftTimeLimitError",
    "TimeoutManager",
    "Tree",
    "UnserializableError",
    "UnsupportedPlatform",
    "Usage",
    "Verdict",
    "__version__",
    "estimate",
    "jobs",
    "progress",
    "retry",
    "sandboxed",
]
