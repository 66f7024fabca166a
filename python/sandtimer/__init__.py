"""Run Python code that nobody has vouched for, under hard limits, and get its result back safely."""

from ._client import Client
from ._client_context import ClientContext
from ._client_files import ClientFiles, ClientWorkspace
from ._client_run import ClientRun, OutputChunk, RunEvent
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
    BranchRefused,
    Cancelled,
    CircuitOpen,
    ContextLost,
    Crashed,
    DeadlineExceeded,
    EstimateRefused,
    InvalidArgument,
    InvalidArgumentType,
    InvalidLimit,
    IsolationRefused,
    JobConflict,
    JobError,
    JobFileUnknown,
    JobGoesOn,
    JobSpecRefused,
    JobStateRefused,
    JobStoreBusy,
    JobStoreFull,
    JobStoreNewer,
    JobStoreUnavailable,
    JobStoreUnreachable,
    JobUnknown,
    LimitExceeded,
    LoopStopped,
    NoResult,
    OutOfMemory,
    ProfileRefused,
    RemoteError,
    ResultRefused,
    ResultTooLarge,
    SandboxUnavailable,
    SandtimerError,
    ServerError,
    ServerLimitRefused,
    ServerNotFound,
    ServerUnauthorized,
    ServerUnreachable,
    Unserializable,
    UnsupportedPlatform,
)

# Behind what it is made of.
from . import jobs  # noqa: E402

__all__ = [
    "BranchRefused",
    "CallFuture",
    "Cancelled",
    "CircuitBreaker",
    "CircuitOpen",
    "Client",
    "ClientContext",
    "ClientFiles",
    "ClientRun",
    "ClientWorkspace",
    "Context",
    "ContextInfo",
    "ContextLost",
    "Crashed",
    "DeadlineExceeded",
    "Estimate",
    "EstimateRefused",
    "HostLoad",
    "InvalidArgument",
    "InvalidArgumentType",
    "InvalidLimit",
    "Isolation",
    "IsolationRefused",
    "JobConflict",
    "JobError",
    "JobFileUnknown",
    "JobGoesOn",
    "JobSpecRefused",
    "JobStateRefused",
    "JobStoreBusy",
    "JobStoreFull",
    "JobStoreNewer",
    "JobStoreUnavailable",
    "JobStoreUnreachable",
    "JobUnknown",
    "Judgement",
    "Judgements",
    "LimitExceeded",
    "LoopGuard",
    "LoopStopped",
    "NoResult",
    "OutOfMemory",
    "Outcome",
    "OutputChunk",
    "ProfileRefused",
    "RemoteError",
    "ResultRefused",
    "ResultTooLarge",
    "Retried",
    "Retry",
    "RunEvent",
    "Sandbox",
    "SandboxUnavailable",
    "SandtimerError",
    "ServerError",
    "ServerLimitRefused",
    "ServerNotFound",
    "ServerUnauthorized",
    "ServerUnreachable",
    "TimeoutManager",
    "Tree",
    "Unserializable",
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
