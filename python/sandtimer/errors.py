"""Every exception that Sandtimer raises.

Each is a `SandtimerError`; most also derive from the built-in exception that callers expect.
`ContextLostError` is a warning, and is raised only if the caller's filters ask for it.
"""

from __future__ import annotations


from typing import Any


class SandtimerError(Exception):
    """Base class of every exception of this package.

    Attributes:
        outcome: The `Outcome` of the run, if a run existed; else None.

    Examples:
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
    """A time limit ended the run: `timeout`, `cpu`, `stall`, or the `total` of several calls.

    The message is the sentence of the verdict.

    Examples:
        >>> import sandtimer, time
        >>> with sandtimer.Sandbox(timeout=0.1) as box:
        ...     try:
        ...         box.call(time.sleep, 60)
        ...     except TimeoutError as error:
        ...         print(type(error).__name__, error.outcome.verdict.limit_ms)
        DeadlineExceeded 100
    """


class SoftTimeLimitError(SandtimerError):
    """The soft limit of a handler of jobs has passed.

    Raised inside the handler, so that it can save its work: see `jobs.Handler`.

    Examples:
        >>> import time
        >>> from sandtimer import SoftTimeLimitError, jobs
        >>> def train(steps):
        ...     try:
        ...         time.sleep(60)
        ...     except SoftTimeLimitError:
        ...         return "saved"
        >>> handlers = {"train": jobs.Handler(train, soft=0.2)}
        >>> jobs.run({"handler": "train", "wall_ms": "20s"}, handlers=handlers).result.value
        'saved'
    """


class OutOfMemory(SandtimerError, MemoryError):
    """The run needed more memory than its limit allows.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=20.0, memory="200MB") as box:
        ...     try:
        ...         box.call(exec, "parts = [b'x' * (1 << 20) for _ in range(1000)]")
        ...     except MemoryError as error:
        ...         print(error.outcome.ending)
        out_of_memory
    """


class Crashed(SandtimerError):
    """The process of the run ended without a result and without an exception.

    The cause is a signal, `os._exit` or a fault of the interpreter.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=5.0) as box:
        ...     try:
        ...         box.call(exec, "import os; os.abort()")
        ...     except sandtimer.Crashed as error:
        ...         print(error.outcome.signal)
        SIGABRT
    """


class NoResultError(Crashed):
    """The process of the run exited by itself, but sent no result.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=5.0) as box:
        ...     try:
        ...         box.call(exec, "import os; os._exit(3)")
        ...     except sandtimer.NoResultError as error:
        ...         print(error.outcome.exit_code)
        3
    """


class RemoteError(SandtimerError):
    """The run raised an exception whose class is not rebuilt here.

    Built-in exceptions, and those of classes named in `results=`, are raised as themselves.
    `SystemExit` and similar exceptions, which must not end the caller, are raised as a
    `RemoteError`.

    Args:
        type_name: The qualified name of the class of the exception.
        message: The message of the exception.
        remote_traceback: The traceback in the sandbox, as text; "" if it is unknown.

    Examples:
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
    """A result contains an object that `trust="data"` does not rebuild.

    Name its class in `results=`, or use `trust="pickle"`.

    Examples:
        >>> import fractions, sandtimer
        >>> with sandtimer.Sandbox(timeout=5.0) as box:
        ...     try:
        ...         box.call(eval, "__import__('argparse').Namespace()")
        ...     except sandtimer.ResultRefusedError as error:
        ...         print("argparse.Namespace" in str(error))
        True
    """


class UnserializableError(SandtimerError, TypeError):
    """An argument or a result cannot be sent from one process to another.

    Examples:
        >>> import sandtimer, threading
        >>> with sandtimer.Sandbox(timeout=5.0) as box:
        ...     try:
        ...         box.call(len, [threading.Lock()])
        ...     except sandtimer.UnserializableError as error:
        ...         print("lock" in str(error))
        True
    """


class EstimateRefusedError(SandtimerError, ValueError):
    """The question cannot be estimated: an unknown type of task, an invalid size, or an unknown
    command.

    For an unknown type the message names the nearest ones.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.estimate("no_such_task")
        ... except sandtimer.EstimateRefusedError as error:
        ...     print("no_such_task" in str(error))
        True
    """


class InvalidArgumentError(SandtimerError, ValueError):
    """A parameter has a value that cannot be used.

    The message names the parameter, the value and the remedy.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.Sandbox(trust="everything")
        ... except sandtimer.InvalidArgumentError as error:
        ...     print(error)
        trust='everything': use "data" or "pickle"
    """


class InvalidArgumentTypeError(SandtimerError, TypeError):
    """A parameter has a type that cannot be used, or the function has no such parameter.

    The message names the parameter, the value and the remedy.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.Sandbox(time_limit=5)
        ... except sandtimer.InvalidArgumentTypeError as error:
        ...     print(error)
        time_limit=5: Sandbox has no such parameter; use timeout, in seconds
    """


class InvalidLimitError(SandtimerError, ValueError):
    """The value of a limit is not a number, size or duration that can be enforced.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.Sandbox(memory="a lot")
        ... except sandtimer.InvalidLimitError as error:
        ...     print("memory" in str(error))
        True
    """


class UnsupportedPlatform(SandtimerError, OSError):
    """This platform has no engine; only the client of a server works here.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.Sandbox().close()
        ... except sandtimer.UnsupportedPlatform:
        ...     print("use sandtimer.Client with a server on Linux")
    """


class Cancelled(SandtimerError):
    """The run was cancelled before it ended by itself.

    Examples:
        >>> import sandtimer
        >>> def hint(outcome):
        ...     return "submit again" if isinstance(outcome.error, sandtimer.Cancelled) else ""
        >>> with sandtimer.Sandbox() as box:
        ...     hint(box.run(abs, -1))
        ''
    """


class CircuitOpen(SandtimerError):
    """A circuit breaker is open: its calls failed too often, and are rejected for a time.

    The message is the second line of `feedback`.

    Attributes:
        name: The name of the breaker.
        retry_after: Seconds until the next call is admitted; None while the breaker is held open.
        feedback: Text for a model: an instruction, then when a call is admitted again and why.

    Examples:
        >>> import sandtimer
        >>> breaker = sandtimer.CircuitBreaker("search:query")
        >>> breaker.hold("open")
        >>> try:
        ...     breaker.call(len, "a")
        ... except sandtimer.CircuitOpen as error:
        ...     print(error.name, error.retry_after)
        search:query None
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
    """A loop may have no more turns, by a rule of its `LoopGuard`.

    Attributes:
        rule: The parameter of the guard that stopped the loop: "iterations", "failures" or
            "repeats".
        limit: The value of this parameter.
        turns: How many turns have begun.
        failed: How many of them failed.

    Examples:
        >>> import sandtimer
        >>> guard = sandtimer.LoopGuard(1)
        >>> guard.begin()
        1
        >>> try:
        ...     guard.begin()
        ... except sandtimer.LoopLimitError as error:
        ...     print(error.rule, error.limit)
        iterations 1
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
    r"""A limit other than time and memory ended the run: processes, output or disk.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=10.0, processes=3) as box:
        ...     outcome = box.exec("import os\nfor _ in range(9):\n    os.fork()")
        >>> isinstance(outcome.error, (sandtimer.LimitExceededError, OSError))
        True
    """


class ResultTooLargeError(SandtimerError, ValueError):
    """A result has more bytes than `result_bytes` allows.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=5.0, result_bytes=100) as box:
        ...     try:
        ...         box.call(bytes, 1000)
        ...     except sandtimer.ResultTooLargeError:
        ...         print("more than 100 bytes")
        more than 100 bytes
    """


class ProfileRefusedError(SandtimerError, ValueError):
    """The interpreter, or a module of `preload`, cannot be used for sandboxes.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(preload=["no_such_module"]) as box:
        ...     try:
        ...         box.warm(1)
        ...     except sandtimer.ProfileRefusedError as error:
        ...         print("no_such_module" in str(error))
        True
    """


class IsolationRefusedError(SandtimerError):
    """The host cannot provide the isolation that `require` names.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(require="T0") as box:
        ...     try:
        ...         print(box.call(abs, -1))
        ...     except sandtimer.IsolationRefusedError as error:
        ...         print("run this on another host:", error)
        1
    """


class SandboxUnavailableError(SandtimerError, RuntimeError):
    """The sandbox cannot be used: the system rejected one of its operations, or the sandbox is closed.

    Examples:
        >>> import sandtimer
        >>> box = sandtimer.Sandbox()
        >>> box.close()
        >>> try:
        ...     box.call(abs, -1)
        ... except sandtimer.SandboxUnavailableError as error:
        ...     print(error)
        the sandbox is closed; make a new one
    """


class BranchRefusedError(SandtimerError):
    """A context cannot be branched, because a branch would differ from it.

    It has threads, child processes, open files or other state that is not copied.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox() as box, box.context() as ctx:
        ...     outcome = ctx.run("file = open('notes', 'w')")
        ...     try:
        ...         branches = ctx.branch(2)
        ...     except sandtimer.BranchRefusedError as error:
        ...         print("open" in str(error))
        True
    """


class ContextLostError(SandtimerError, RuntimeWarning):
    """Warning: a context lost its interpreter while no run was active.

    The state since the last checkpoint, or all of it, is lost.

    Examples:
        >>> import sandtimer, warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("error", sandtimer.ContextLostError)
        ...     with sandtimer.Sandbox() as box, box.context() as ctx:
        ...         ctx.run("6 * 7").value
        42
    """


class JobError(SandtimerError):
    """The store of jobs rejected the request, or cannot be used.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.jobs.show("job-0")
        ... except sandtimer.JobError as error:
        ...     print(type(error).__name__)
        JobNotFoundError
    """

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class JobSpecRefusedError(JobError, ValueError):
    """The spec of a job is malformed.

    Attributes:
        path: The path of the field, such as `steps[0].attempts`.

    Examples:
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
    """An idempotency key belongs to a job with another spec.

    Attributes:
        key: The idempotency key.
        existing: The id of the job that has this key.
        job: The `JobRecord` of that job.

    Examples:
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
    """The store has no job with this id.

    Attributes:
        id: The id.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.jobs.show("job-0")
        ... except sandtimer.JobNotFoundError as error:
        ...     print(error.id)
        job-0
    """

    id: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 2:
            self.id = arguments[1]


class JobFileUnknownError(JobError, LookupError):
    """The job has no output file of this name.

    Attributes:
        id: The id of the job.
        name: The name of the file.

    Examples:
        >>> import sandtimer
        >>> record = sandtimer.jobs.run({"command": ["true"]})
        >>> try:
        ...     sandtimer.jobs.read_file(record.id, "report.txt")
        ... except sandtimer.JobFileUnknownError as error:
        ...     print(error.name)
        report.txt
    """

    id: str = ""
    name: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 3:
            self.id, self.name = arguments[1:]


class JobScheduleNotFoundError(JobError, LookupError):
    """The store has no schedule of this name.

    Attributes:
        name: The name.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.jobs.pause_schedule("weekly")
        ... except sandtimer.JobScheduleNotFoundError as error:
        ...     print(error.name)
        weekly
    """

    name: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 2:
            self.name = arguments[1]


class JobStateRefusedError(JobError):
    """The state of the job does not allow the operation: the job is running, or has succeeded.

    Attributes:
        id: The id of the job.
        state: Its state.

    Examples:
        >>> import sandtimer
        >>> record = sandtimer.jobs.run({"command": ["true"]})
        >>> try:
        ...     sandtimer.jobs.retry(record.id)
        ... except sandtimer.JobStateRefusedError as error:
        ...     print(error.state)
        ended
    """

    id: str = ""
    state: str = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if len(arguments) == 3:
            self.id, self.state = arguments[1:]


class JobStoreFullError(JobError, OSError):
    """The disk is full; the store is unchanged.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     job = sandtimer.jobs.submit({"command": ["true"], "queue": "later"})
        ... except sandtimer.JobStoreFullError as error:
        ...     print("free space on the disk of the store:", error)
    """


class JobStoreBusyError(JobError, OSError):
    """Another process held the lock of the store for too long; the same request may succeed later.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     job = sandtimer.jobs.submit({"command": ["true"], "queue": "later"})
        ... except sandtimer.JobStoreBusyError as error:
        ...     print("submit it again:", error)
    """


class JobStoreNewerError(JobError):
    """A newer version of Sandtimer wrote the store.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     listed = sandtimer.jobs.list()
        ... except sandtimer.JobStoreNewerError as error:
        ...     print("upgrade sandtimer:", error)
    """


class JobStoreUnavailableError(JobError, OSError):
    """The store cannot be used.

    Its directory is not writable, its data is damaged, or its server rejects requests or does not
    answer.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.jobs.Jobs("/proc/no-store").list()
        ... except sandtimer.JobStoreUnavailableError as error:
        ...     print("/proc/no-store" in str(error))
        True
    """


class JobStoreUnreachableError(JobStoreUnavailableError):
    """The server of the store does not answer; it may answer later.

    Examples:
        >>> import sandtimer
        >>> issubclass(sandtimer.JobStoreUnreachableError, sandtimer.JobStoreUnavailableError)
        True
    """


class JobStillRunningError(JobError, TimeoutError):
    """The timeout of a wait passed before the job ended. The job continues.

    Examples:
        >>> import sandtimer
        >>> job = sandtimer.jobs.submit({"command": ["true"], "queue": "later"})
        >>> try:
        ...     sandtimer.jobs.wait(job.id, timeout=0.1)
        ... except sandtimer.JobStillRunningError:
        ...     print("no worker has executed it yet")
        no worker has executed it yet
    """


class ServerError(SandtimerError):
    """A server rejected a request of a `Client`, or did not answer.

    Attributes:
        code: A code of the server (see the reference of errors), "unreachable" or "bad_answer".
        hint: What would work.
        retryable: Whether the same request may succeed later.
        details: Facts for programs.

    Examples:
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
    """The server did not answer: no server listens at the address, or the connection broke.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.Client("http://127.0.0.1:9").health()
        ... except sandtimer.ServerUnreachableError as error:
        ...     print(error.code, error.retryable)
        unreachable True
    """


class ServerUnauthorizedError(ServerError, PermissionError):
    """The server does not accept the token.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     runs = sandtimer.Client().runs()
        ... except sandtimer.ServerUnauthorizedError as error:
        ...     print("set SANDTIMER_TOKEN:", error)
    """


class ServerNotFoundError(ServerError, LookupError):
    """The server has no such run, context, sandbox, workspace or file, or another token owns it.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.Client().attach("run-0").info()
        ... except sandtimer.ServerNotFoundError as error:
        ...     print(error.code)
        run_not_found
    """


class ServerLimitRefusedError(ServerError, InvalidLimitError):
    """The server rejected the value of a limit.

    Examples:
        >>> import sandtimer
        >>> try:
        ...     sandtimer.Client().run(["true"], memory="a lot")
        ... except sandtimer.InvalidLimitError as error:
        ...     print(type(error).__name__)
        ServerLimitRefusedError
    """
