"""Run untrusted Python code under hard limits, and get its result back safely."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Imported when they are first used: an installation that only has this package's pytest plug-in or kernel provisioner
# registered pays nothing for them.
if TYPE_CHECKING:
    from . import errors as errors, jobs as jobs
    from ._outcome import Isolation, Outcome, Tree, Usage, Verdict
    from ._sandtimer import __version__
    from .agents._estimate import Estimate, estimate
    from .agents._loop import LoopGuard
    from .agents._report import progress
    from .agents._resilience import CircuitBreaker, Retried, Retry, retry
    from .agents._timeouts import TimeoutManager
    from .client._client import Client
    from .client._context import ClientContext
    from .client._files import ClientFiles, ClientWorkspace
    from .client._judge import ClientJudgement
    from .client._run import ClientRun, OutputChunk, RunEvent
    from .client._sandbox import ClientSandbox
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
        JobScheduleNotFoundError,
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
    from .sandbox._context import Context, ContextInfo
    from .sandbox._decorator import sandboxed
    from .sandbox._futures import CallFuture
    from .sandbox._host import HostLoad
    from .sandbox._judge import Judgement, Judgements
    from .sandbox._sandbox import Sandbox

_MODULES = {
    "client._client": "Client",
    "client._context": "ClientContext",
    "client._files": "ClientFiles ClientWorkspace",
    "client._judge": "ClientJudgement",
    "client._run": "ClientRun OutputChunk RunEvent",
    "client._sandbox": "ClientSandbox",
    "sandbox._context": "Context ContextInfo",
    "sandbox._decorator": "sandboxed",
    "agents._estimate": "Estimate estimate",
    "sandbox._futures": "CallFuture",
    "sandbox._host": "HostLoad",
    "sandbox._judge": "Judgement Judgements",
    "agents._loop": "LoopGuard",
    "_outcome": "Isolation Outcome Tree Usage Verdict",
    "agents._report": "progress",
    "agents._resilience": "CircuitBreaker Retried Retry retry",
    "sandbox._sandbox": "Sandbox",
    "_sandtimer": "__version__",
    "agents._timeouts": "TimeoutManager",
    "errors": (
        "BranchRefusedError Cancelled CircuitOpen ContextLostError Crashed DeadlineExceeded "
        "EstimateRefusedError InvalidArgumentError InvalidArgumentTypeError InvalidLimitError "
        "IsolationRefusedError JobConflictError JobError JobFileUnknownError JobNotFoundError "
        "JobScheduleNotFoundError JobSpecRefusedError JobStateRefusedError JobStillRunningError "
        "JobStoreBusyError JobStoreFullError JobStoreNewerError JobStoreUnavailableError "
        "JobStoreUnreachableError LimitExceededError LoopLimitError NoResultError OutOfMemory "
        "ProfileRefusedError RemoteError ResultRefusedError ResultTooLargeError SandboxUnavailableError "
        "SandtimerError ServerError ServerLimitRefusedError ServerNotFoundError ServerUnauthorizedError "
        "ServerUnreachableError SoftTimeLimitError UnserializableError UnsupportedPlatform"
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
    "ClientJudgement",
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
    "JobScheduleNotFoundError",
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
