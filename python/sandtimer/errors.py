"""Everything Sandtimer raises. Each exception is a SandtimerError; most are also the built-in one a caller expects.

`ContextLostError` is a warning, which is raised only where the caller's filters say so.
"""

from __future__ import annotations


from typing import Any


class SandtimerError(Exception):
    """Base of every exception of this package. `outcome` is there where a run existed.

    >>> import sandtimer
    >>> with sandtimer.Sandbox(timeout=0.1) as box:
    ...     try:
    ...         box.call(exec, "while True: pass")
    ...     except sandtimer.SandtimerError as error:
    ...         print(type(error).__name__, error.outcome.ending, error.outcome.tree.survivors)
    DeadlineExceeded timeout 0
    """

    outcome: Any = None

    def __str__(self) -> str:
        if not self.args and self.outcome is not None and self.outcome.verdict is not None:
            # Raised at its deadline: what ended it, and what became of it, is known a moment later.
            return str(self.outcome.verdict.sentence)
        return super().__str__()

    def __repr__(self) -> str:
        if self.args or self.outcome is None:
            return super().__repr__()
        try:
            return f"{type(self).__name__}({str(self)!r})"
        except Exception:
            # In a process that was forked before its end was known.
            return super().__repr__()


class DeadlineExceeded(SandtimerError, TimeoutError):
    """A limit of time ended the run: timeout, cpu, stall, or the `total` of many. Its text is the verdict's sentence."""


class SoftTimeLimitError(SandtimerError):
    """Raised in a handler of jobs whose soft limit has passed, so that it can save what it has: see `jobs.Handler`."""


class OutOfMemory(SandtimerError, MemoryError):
    """The run needed more memory than it was allowed."""


class Crashed(SandtimerError):
    """The run's process ended without returning or raising: a signal, `os._exit`, a fault of the interpreter."""


class NoResultError(Crashed):
    """The run's process ended in good order, but gave no result."""


class RemoteError(SandtimerError):
    """The run raised an exception of a class that is not rebuilt here.

    Built-in exceptions, and those of classes named in `results=`, are raised as themselves; but `SystemExit` and its like,
    which must not end the caller, come as this.

    >>> import sandtimer
    >>> with sandtimer.Sandbox(timeout=5.0) as box:
    ...     try:
    ...         box.call(exec, "raise type('Lost', (Exception,), {})('no move left')")
    ...     except sandtimer.RemoteError as error:
    ...         print(error.message, error.remote_traceback.count("Lost") > 0)
    no move left True
    """

    def __init__(self, type_name: str, message: str, remote_traceback: str = "") -> None:
        super().__init__(type_name, message, remote_traceback)
        self.type_name = type_name
        self.message = message
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        head = f"{self.type_name}: {self.message}" if self.message else self.type_name
        return f"{head}\n\n{self.remote_traceback}" if self.remote_traceback else head


class ResultRefusedError(SandtimerError):
    """A result holds something that `trust="data"` does not rebuild: name its class in `results=`, or use "pickle"."""


class UnserializableError(SandtimerError, TypeError):
    """An argument or a result cannot be carried from one process to another."""


class EstimateRefusedError(SandtimerError, ValueError):
    """What was asked cannot be estimated: an unknown type (the nearest are named), a size that is none, an unknown command."""


class InvalidArgumentError(SandtimerError, ValueError):
    """A parameter has a value that cannot be used; the text names the parameter, the value and what to use.

    >>> import sandtimer
    >>> try:
    ...     sandtimer.Sandbox(trust="everything")
    ... except sandtimer.InvalidArgumentError as error:
    ...     print(error)
    trust='everything': use "data" or "pickle"
    """


class InvalidArgumentTypeError(SandtimerError, TypeError):
    """A parameter is of a type that cannot be used; the text names the parameter, the value and what to use."""


class InvalidLimitError(SandtimerError, ValueError):
    """A limit is not a number, size or duration that can be kept."""


class UnsupportedPlatform(SandtimerError, OSError):
    """This platform has no engine; only a client of a server works here."""


class Cancelled(SandtimerError):
    """The run was cancelled before it ended by itself."""


class CircuitOpen(SandtimerError):
    """A circuit breaker is open: what it stands for failed too often, and is not tried for a while.

    `name` is the breaker's, `retry_after` the seconds until it is tried again (None while a person holds it open), `feedback`
    what a model is told: the line to act on, then when and why. The text is the feedback's second line.
    """

    name: str = ""
    retry_after: Any = None
    feedback: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 3:
            self.name, self.retry_after, self.feedback = arguments

    def __str__(self) -> str:
        return self.feedback.partition("\n")[2] or super().__str__()


class LoopLimitError(SandtimerError):
    """A loop has gone on for long enough, by its `LoopGuard`.

    `rule` is the parameter of the guard that stops it (`iterations`, `failures` or `repeats`), `limit` its value, `turns` how many
    there were, and `failed` how many of them failed.
    """

    rule: str = ""
    limit: int = 0
    turns: int = 0
    failed: int = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 5:
            _, self.rule, self.limit, self.turns, self.failed = arguments

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class LimitExceededError(SandtimerError):
    """A limit that is neither of time nor of memory ended the run: of processes, output or disk."""


class ResultTooLargeError(SandtimerError, ValueError):
    """A result has more bytes than `result_bytes` allows."""


class ProfileRefusedError(SandtimerError, ValueError):
    """The interpreter, or a module to be preloaded, cannot be used for sandboxes."""


class IsolationRefusedError(SandtimerError):
    """The host cannot give the isolation that was required."""


class SandboxUnavailableError(SandtimerError, RuntimeError):
    """Sandtimer could not do its part: the system refused it something, or the sandbox is closed."""


class BranchRefusedError(SandtimerError):
    """A branch of the context would not be what the context is: it has threads, children, open files, and the like."""


class ContextLostError(SandtimerError, RuntimeWarning):
    """A context lost its interpreter while nothing ran in it, and with it what came since it was copied, or everything."""


class JobError(SandtimerError):
    """The store of jobs did not do what was asked."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class JobSpecRefusedError(JobError, ValueError):
    """A job's spec is malformed: `path` leads to the field; the text says what is allowed.

    >>> import sandtimer
    >>> try:
    ...     sandtimer.jobs.submit({"steps": [{"name": "build", "command": ["make"], "attempts": 0}]})
    ... except sandtimer.JobSpecRefusedError as error:
    ...     print(error.path)
    steps[0].attempts
    """

    path: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 2:
            self.path = arguments[1]


class JobConflictError(JobError):
    """An idempotency `key` belongs to another spec: `existing` is the id of the job that has it, `job` all about that.

    >>> import sandtimer
    >>> spec = {"idempotency_key": "report of May", "command": ["true"], "queue": "later"}
    >>> first = sandtimer.jobs.submit(spec)
    >>> try:
    ...     sandtimer.jobs.submit({**spec, "command": ["false"]})
    ... except sandtimer.JobConflictError as error:
    ...     print(error.key, error.job.id == first.id, error.job.spec["command"])
    report of May True ['true']
    """

    key: str = ""
    existing: str = ""
    job: Any = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 3:
            self.key, self.existing = arguments[1:]


class JobNotFoundError(JobError, LookupError):
    """There is no job with this `id`."""

    id: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 2:
            self.id = arguments[1]


class JobFileUnknownError(JobError, LookupError):
    """The job with this `id` has left no file of this `name`."""

    id: str = ""
    name: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 3:
            self.id, self.name = arguments[1:]


class JobStateRefusedError(JobError):
    """The job with this `id` is in a `state` in which that cannot be done: it goes on, or it succeeded."""

    id: str = ""
    state: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 3:
            self.id, self.state = arguments[1:]


class JobStoreFullError(JobError, OSError):
    """The disk is full; nothing was changed."""


class JobStoreBusyError(JobError, OSError):
    """Another process kept the store busy for too long; the same may succeed later."""


class JobStoreNewerError(JobError):
    """The store was written by a newer Sandtimer."""


class JobStoreUnavailableError(JobError, OSError):
    """The store cannot be used: its directory cannot be written, it is damaged, or its server refuses or does not answer."""


class JobStoreUnreachableError(JobStoreUnavailableError):
    """The store's server does not answer. It may later."""


class JobStillRunningError(JobError, TimeoutError):
    """The wait was over before the job was. It goes on."""


class ServerError(SandtimerError):
    """A server refused what `Client` asked for, or did not answer.

    code: one of the server's (spec/errors.md), or "unreachable" or "bad_answer"; hint: what would work; retryable: the same
    request may succeed later; details: facts for programs.

    >>> import sandtimer
    >>> try:
    ...     sandtimer.Client().run(["no-such-program"])
    ... except sandtimer.ServerError as error:
    ...     print(error.code, error.retryable)
    command_not_found False
    """

    code: str = ""
    hint: str = ""
    retryable: bool = False
    details: dict[str, Any] = {}


class ServerUnreachableError(ServerError, ConnectionError):
    """There was no answer: nobody listens there, or the connection broke."""


class ServerUnauthorizedError(ServerError, PermissionError):
    """The server does not know the token."""


class ServerNotFoundError(ServerError, LookupError):
    """The server has no such run, context, workspace or file, or it is another token's."""


class ServerLimitRefusedError(ServerError, InvalidLimitError):
    """What the server got for a limit cannot be one."""
