"""What became of a call."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from concurrent.futures import Future, TimeoutError
from typing import Any, Optional, TypeVar

from . import _values
from ._results import RemoteTraceback
from .errors import (
    Cancelled,
    Crashed,
    DeadlineExceeded,
    LimitExceededError,
    NoResultError,
    OutOfMemory,
    SandboxUnavailableError,
    SandtimerError,
)

_K = TypeVar("_K")


class Record:
    """The end of a call whose run is elsewhere, or over, or was never begun: its outcome as it was written down."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.id = str(record["run_id"])
        self._record = json.dumps(record)

    def outcome(self, settled: bool) -> str:
        return self._record


def _without_run(ending: str, code: str, message: str, tree: dict[str, Any], **facts: Any) -> Record:
    zeros = ("wall_ms", "user_ms", "system_ms", "memory_peak_bytes", "processes_peak", "queued_ms", "spawn_ms")
    record = {
        "run_id": "", "ending": ending, "ok": False, "exit_code": None, "signal": None,
        "stdout": "", "stderr": "", "stdout_truncated": False, "stderr_truncated": False, "encoding": "utf-8",
        "stdout_encoding": "utf-8", "stderr_encoding": "utf-8",
        "value": None, "error": {"code": code, "message": message}, "results": [], "execution_count": None,
        "verdict": None, "tree": tree, "state": "none",
        "usage": {**dict.fromkeys(zeros, 0), "run_queue_ms": None},
        "isolation": {"tier": "T0", "kill": "K0", "deadline_layers": [], "degraded": []}, "path": "parked",
        "reported_by": "kernel", "notices": [], "remarks": [],
    }  # fmt: skip
    return Record({**record, **facts})


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Why Sandtimer ended a run. Times are in milliseconds, sizes in bytes.

    Attributes:
        kind: The limit: "wall", "cpu", "stall", "memory" or another; None if it was not a limit.
        layer: The layer whose limit it was, such as "run", "call", "job" or "loop".
        scope: The path of the scope whose limit it was.
        limit_ms: The limit, if it is one of time.
        source: Who set the limit, such as "call" or "config".
        elapsed_ms: How long the run had taken.
        late_ms: How long after the limit the run was ended.
        enforced_by: Which enforcer ended it.
        signals: The signals that were sent, each with its time.
        last_output_age_ms: How long before the end the last output was; None without output.
        progress: How far the run was, if it is known.
        waiting_for: What the run waited for, if it is known.
        spent: How the time was spent.
        sentence: All of this in a sentence.
        limit: The limit, if it is not one of time.
        extended_ms: By how much the limit was extended.
        origin: The variable, flag, line of a file or table of a spec that set the limit, if it is
            known.
        child: The child process that the run waited for, if it is known.
        wait_channel: The function of the kernel in which it waited, if it is known.
        last_cpu_age_ms: How long before the end the run last used the processor.
        last_io_age_ms: How long before the end the run last read or wrote.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=0.1) as box:
        ...     verdict = box.run(exec, "while True: pass").verdict
        >>> verdict.kind, verdict.limit_ms, verdict.source
        ('wall', 100, 'call')
    """

    kind: Optional[str]
    layer: str
    scope: str
    limit_ms: Optional[int]
    source: str
    elapsed_ms: int
    late_ms: float
    enforced_by: str
    signals: list[dict[str, Any]]
    last_output_age_ms: Optional[int]
    progress: Optional[dict[str, Any]]
    waiting_for: Optional[str]
    spent: dict[str, Any]
    sentence: str
    limit: Optional[int] = None
    extended_ms: Optional[int] = None
    origin: Optional[str] = None
    child: Optional[dict[str, Any]] = None
    wait_channel: Optional[str] = None
    last_cpu_age_ms: Optional[int] = None
    last_io_age_ms: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Tree:
    """What happened to the processes of a run.

    Attributes:
        killed: How many processes were killed.
        survivors: 0 once their death is proven; None while the proof is pending.
        proof: How it was proven, such as "cgroup empty".
        dead_after_ms: Milliseconds from the end of the run to the death of the last process.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=5.0) as box:
        ...     box.run(exec, "import os; os.fork()").tree.survivors
        0
    """

    killed: int
    survivors: Optional[int]
    proof: str
    dead_after_ms: Optional[int]


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a run used.

    Attributes:
        wall_ms: Elapsed time, in milliseconds.
        user_ms: Processor time in user mode, in milliseconds.
        system_ms: Processor time in the kernel, in milliseconds.
        memory_peak_bytes: The most memory at one time, in bytes.
        processes_peak: The most processes at one time.
        run_queue_ms: How long the run was runnable and had no processor, in milliseconds; None if
            that is unknown.
        queued_ms: The time between submission and the start of its isolation, in milliseconds.
        spawn_ms: The time to build the isolation, in milliseconds.

    Examples:
        >>> import sandtimer, time
        >>> with sandtimer.Sandbox() as box:
        ...     box.run(time.sleep, 0.1).usage.wall_ms >= 100
        True
    """

    wall_ms: int
    user_ms: int
    system_ms: int
    memory_peak_bytes: int
    processes_peak: int
    run_queue_ms: Optional[int]
    queued_ms: int = 0
    spawn_ms: int = 0


@dataclasses.dataclass(frozen=True)
class Isolation:
    """The isolation layers that were active.

    Attributes:
        tier: The tier, "T0" to "T3".
        kill: The kill class, "K0" to "K3".
        deadline_layers: The enforcers of the deadline.
        degraded: The layers that were wanted and not active, each with its name and the reason.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox() as box:
        ...     box.run(abs, -1).isolation.tier in ("T0", "T1", "T2", "T3")
        True
    """

    tier: str
    kill: str
    deadline_layers: list[str]
    degraded: list[dict[str, str]]


class Outcome:
    """The result of a call, and all facts about its run. Reading it never raises for what the call
    did.

    A call that answered has its outcome at once, while the sandbox is still being removed: `value`,
    `error`, `ending` and `ok` are known; all other attributes wait for the end of the run, some
    milliseconds, and `tree` for the proof that all processes are dead.

    Attributes:
        value: The value of the call; None if there is none.

    Examples:
        >>> import sandtimer
        >>> with sandtimer.Sandbox(timeout=2.0) as box:
        ...     outcome = box.run(sum, [1, 2, 3])
        ...     print(outcome.ending, outcome.value, outcome.tree.survivors)
        returned 6 0
    """

    __slots__ = ("_ended", "_ending", "_error", "_own_remarks", "_process", "_record", "_settled", "value")

    def __init__(
        self, ended: Any, ending: Optional[str] = None, value: Any = None, error: Optional[BaseException] = None
    ) -> None:
        self._ended = ended
        self._ending = ending
        self._record: Optional[dict[str, Any]] = None
        self._settled = False
        self._process = os.getpid()
        # Besides those of the engine.
        self._own_remarks: tuple[dict[str, Any], ...] = ()
        self.value = value
        self._error = error
        if isinstance(error, SandtimerError):
            error.outcome = self

    def _wait(self, settled: bool = False) -> dict[str, Any]:
        if self._record is None or (settled and not self._settled):
            self._record = record = _with_origin(json.loads(self._outcome(settled)))
            known = {each["kind"] for each in record.get("remarks", ())}
            record["remarks"] = [*record.get("remarks", ()), *(each for each in self._own_remarks if each["kind"] not in known)]
            self._settled = settled
        return self._record

    def _outcome(self, settled: bool) -> str:
        if self._process == os.getpid():
            return str(self._ended.outcome(settled))
        # The engine that will know it is the parent's. What was known when this process was forked is known here too.
        known: Future[str] = Future()
        asking = threading.Thread(target=lambda: known.set_result(self._ended.outcome(settled)), daemon=True)
        asking.start()
        try:
            return known.result(timeout=1.0)
        except TimeoutError:
            raise SandboxUnavailableError(
                "the outcome of the call was not known when this process was forked; read `outcome.tree` before forking"
            ) from None

    @property
    def run_id(self) -> str:
        """The id of the run, in messages and records."""
        return str(self._ended.id)

    @property
    def ending(self) -> str:
        """How the run ended: "returned", "raised", "exited", "timeout", "stalled", "out_of_memory",
        "signaled", "no_result", "cancelled", "infra_error" or another limit such as
        "process_limit".
        """
        if self._ending is None:
            self._ending = str(self._wait()["ending"])
        return self._ending

    @property
    def error(self) -> Optional[BaseException]:
        """The exception of the call, or the one that explains why there is no value; None on success.
        """
        if self._error is None and self.ending not in ("returned", "exited"):
            self._error = error = self._why()
            error.outcome = self
        return self._error

    def _why(self) -> SandtimerError:
        ending = self.ending
        if ending in ("timeout", "stalled"):
            return DeadlineExceeded()
        if ending == "out_of_memory":
            return OutOfMemory()
        if ending == "cancelled":
            return Cancelled()
        if ending == "no_result":
            return NoResultError(f"the process ended with exit code {self.exit_code} and gave no result")
        if ending == "signaled":
            return Crashed(f"the process was ended by {self.signal}")
        if ending == "infra_error":
            return SandboxUnavailableError(str((self._wait().get("error") or {}).get("message", "the sandbox failed")))
        return LimitExceededError()

    @property
    def ok(self) -> bool:
        """Whether there is a value; for a program, whether its exit code is 0."""
        if self.ending == "exited":
            return bool(self._wait()["ok"])
        return self.ending == "returned" and self.error is None

    @property
    def exit_code(self) -> Optional[int]:
        """The exit code of a process that ended by itself without an answer; else None."""
        return self._wait()["exit_code"]  # type: ignore[no-any-return]

    @property
    def signal(self) -> Optional[str]:
        """The name of the signal that ended the process, such as "SIGSEGV"; else None."""
        return self._wait()["signal"]  # type: ignore[no-any-return]

    @property
    def stdout(self) -> str:
        """What the call printed, up to `output`: the head and the tail. Bytes that are not UTF-8 are
        replaced.
        """
        return self._output("stdout")

    @property
    def stderr(self) -> str:
        """What the call wrote to its standard error, up to `output`."""
        return self._output("stderr")

    def _output(self, name: str) -> str:
        record = self._wait()
        if record.get(f"{name}_encoding", record["encoding"]) == "base64":
            import base64

            return base64.b64decode(record[name]).decode("utf-8", "replace")
        return str(record[name])

    @property
    def stdout_truncated(self) -> bool:
        """Whether a part of `stdout` is missing: because of `output`, or of what a judgement stores
        (see `remarks`).
        """
        return bool(self._wait()["stdout_truncated"])

    @property
    def stderr_truncated(self) -> bool:
        """Whether a part of `stderr` is missing."""
        return bool(self._wait()["stderr_truncated"])

    @property
    def verdict(self) -> Optional[Verdict]:
        """Why Sandtimer ended the run; None if it ended by itself."""
        record = self._wait()["verdict"]
        return None if record is None else build(Verdict, record)

    @property
    def tree(self) -> Tree:
        """What happened to all processes of the run. Waits for the proof that none is alive."""
        return build(Tree, self._wait(settled=True)["tree"])

    @property
    def usage(self) -> Usage:
        """What the run used: times in milliseconds, sizes in bytes."""
        return build(Usage, self._wait()["usage"])

    @property
    def isolation(self) -> Isolation:
        """The isolation layers that were active."""
        return build(Isolation, self._wait()["isolation"])

    @property
    def path(self) -> str:
        """How the process was made: "parked", "cold", "exec", "fork" or "spawn"."""
        return str(self._wait()["path"])

    @property
    def reported_by(self) -> str:
        """The source of exit code, value and exception: "kernel", or "interpreter", the process that
        executed the code, in which code can report anything.
        """
        return str(self._wait().get("reported_by", "kernel"))

    @property
    def state(self) -> str:
        """The state of the variables of a context: "kept", "rolled_back" (to before the run) or
        "reset" (lost); "none" for a call.
        """
        return str(self._wait()["state"])

    @property
    def results(self) -> list[dict[str, Any]]:
        """What a run in a context displayed, and last the value of its last expression, by MIME type.
        """
        return list(self._wait()["results"])

    @property
    def execution_count(self) -> Optional[int]:
        """The number of the run in the interpreter of its context; None for a call."""
        return self._wait()["execution_count"]  # type: ignore[no-any-return]

    @property
    def notices(self) -> list[dict[str, Any]]:
        """The notices that the run received of limits that were near: `kind`, `at_ms`, `left_ms`,
        `signal`, `processes`.
        """
        return list(self._wait().get("notices", ()))

    @property
    def remarks(self) -> list[dict[str, Any]]:
        """Facts about the run that a caller may not expect.

        Each has a `kind` ("killed_leftovers", "no_network", "network_denied", "shortened_grace",
        "output_not_stored", "shortened") and a `message`: what happened, and what leads to another
        result. `str()` of the outcome includes the messages.
        """
        return list(self._wait().get("remarks", ()))

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome in the form of every wire format, with the proof that all processes are
        dead.

        The value is included if JSON can represent it, in at most 256 MiB.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box:
            ...     record = box.run(abs, -1).to_dict()
            >>> record["ending"], record["value"], record["tree"]["survivors"]
            ('returned', 1, 0)
        """
        record = dict(self._wait(settled=True))
        record["ending"], record["ok"] = self.ending, self.ok
        try:
            _values.encode_json(self.value)
            record["value"] = self.value
        except (TypeError, ValueError, RecursionError):
            record["value"] = None
        if self.error is not None:
            record["error"] = {"code": type(self.error).__name__, "message": str(self.error)}
        return record

    def __getstate__(self) -> dict[str, Any]:
        error = self.error
        # No pickle of an exception has its cause.
        cause = getattr(error, "__cause__", None)
        remote = str(cause.args[0]) if isinstance(cause, RemoteTraceback) else None
        return {
            "record": self._wait(settled=True),
            "ending": self.ending,
            "value": self.value,
            "error": error,
            "traceback": remote,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._record, self._settled, self._process = state["record"], True, os.getpid()
        self._ended, self._ending, self._own_remarks = Record(state["record"]), state["ending"], ()
        self.value, self._error = state["value"], state["error"]
        if self._error is not None and state["traceback"] is not None:
            self._error.__cause__ = RemoteTraceback(state["traceback"])

    def __repr__(self) -> str:
        if self.ending == "returned" and self.error is None:
            return f"<Outcome returned {_values.short_repr(self.value)}>"
        if self.ending == "exited" and self.error is None:
            return f"<Outcome exited with {self.exit_code}>"
        error = self.error
        # What Sandtimer itself has to say takes its words from the verdict.
        is_verdict = isinstance(error, SandtimerError) and not error.args
        return f"<Outcome {self.ending}: {repr(error) if is_verdict else _values.short_repr(error):.200}>"

    def __str__(self) -> str:
        # Waits for the end of the run, unlike repr().
        return " ".join([repr(self), *(each["message"] for each in self.remarks)])


# Scopes of this package's own, which their names say little of: the parameter that each is made for.
_TOTALS = ("judge", "map")


def _with_origin(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose verdict names the parameter that set the limit, where the engine knows its scope alone."""
    verdict = record.get("verdict")
    if verdict and verdict["source"] == "ancestor" and verdict["scope"] in _TOTALS and not verdict.get("origin"):
        verdict["origin"] = f"total= of {verdict['scope']}"
        verdict["sentence"] = verdict["sentence"].replace(f"set by the outer scope `{verdict['scope']}`", f"set by {verdict['origin']}")
    return record


def build(kind: type[_K], record: dict[str, Any]) -> _K:
    """One of this class, from what it knows of a record."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in record.items() if name in names})


def never_begun(ending: str, error: SandtimerError) -> Outcome:
    """The outcome of a call that was not begun, and why."""
    tree = {"killed": 0, "survivors": 0, "proof": "cgroup empty", "dead_after_ms": None}
    return Outcome(_without_run(ending, "not_begun", str(error), tree), ending, error=error)


def not_executed(exit_code: int, reason: str) -> Outcome:
    """The outcome of a command that there was nothing to execute for, as a shell would have it."""
    tree = {"killed": 0, "survivors": 0, "proof": "cgroup empty", "dead_after_ms": None}
    facts = {"exit_code": exit_code, "stderr": f"{reason}\n", "error": None, "path": "exec"}
    return Outcome(_without_run("exited", "not_executed", reason, tree, **facts), "exited")


_UNKNOWN = {"killed": 0, "survivors": None, "proof": "pending", "dead_after_ms": None}


def lost(error: SandtimerError) -> Outcome:
    """The outcome of a call that went out of sight with the machine or the engine that made it."""
    return Outcome(_without_run("infra_error", "lost", str(error), _UNKNOWN), "infra_error", error=error)


def gone(message: str) -> str:
    """The record of a call that returned, when its own is gone."""
    return _without_run("returned", "lost", message, _UNKNOWN).outcome(True)
