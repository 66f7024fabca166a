"""What a store says of jobs. Times in milliseconds; moments are those of the store's clock, milliseconds since 1970."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from .._client_run import outcome_of
from .._outcome import Outcome, Record, build
from ..errors import RemoteError


@dataclasses.dataclass(frozen=True)
class Submitted:
    """What became of a submission; `existed`: it was there already, with the same idempotency key and the same spec.

    >>> from sandtimer import jobs
    >>> spec = {"command": ["true"], "idempotency_key": "nightly", "queue": "later"}
    >>> first, second = jobs.submit(spec), jobs.submit(spec)
    >>> first.existed, second.existed, first.id == second.id
    (False, True, True)
    """

    id: str
    state: str
    existed: bool


@dataclasses.dataclass(frozen=True)
class Job:
    """A job in a listing. `state` is "scheduled", "queued", "leased" (a worker has it), "ended" (with a result, good or bad),
    "dead" (no worker could bring it to a result) or "cancelled"; `cancel` is why it is to be ended, where somebody asked;
    `waiting_for` is how many jobs of its `after` have not ended.
    """

    id: str
    name: str
    queue: str
    priority: int
    state: str
    ok: Optional[bool]
    error: Optional[str]
    submitted_ms: int
    due_ms: int
    deadline_ms: Optional[int]
    leased_ms: Optional[int]
    ended_ms: Optional[int]
    deliveries: int
    worker: Optional[str]
    cancel: Optional[str]
    waiting_for: int

    @property
    def is_over(self) -> bool:
        """Whether nothing more becomes of it by itself."""
        return self.state in ("ended", "dead", "cancelled")


@dataclasses.dataclass(frozen=True)
class JobVerdict:
    """The limit that ended a job: `layer` is whose it was ("job", "loop", "call", "run"), `source` where it
    came from ("call": the job's spec), `scope` its path, `phase` what the job was at
    ("queued", "running", "backoff"), `limit_ms` for limits of time, `limit` for counts; `sentence` says it in words.

    >>> from sandtimer import jobs
    >>> verdict = jobs.run({"command": ["sleep", "60"], "wall_ms": 300}).result.verdict
    >>> verdict.layer, verdict.kind, verdict.limit_ms, verdict.phase
    ('job', 'wall', 300, 'running')
    """

    kind: str
    layer: str
    source: str
    scope: str
    phase: str
    limit_ms: Optional[int]
    limit: Optional[int]
    elapsed_ms: int
    sentence: str


@dataclasses.dataclass(frozen=True)
class JobFile:
    """A file that a job has left and its store keeps; `sha256` in hexadecimal digits."""

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class JobFileRefused:
    """A file, or a pattern that names none, of a spec's `outputs` that is not kept, and the reason."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class JobResult:
    """What became of a job, or of one of its deliveries.

    status: "ok", "failed", "timeout", "budget" (a loop's turns or failures), "cancelled", "infra_error", "lost", "drained" (its worker was told to end). value: what
    a loop's driver said in the end, or what the last handler returned. degraded: by a fallback. spent: where its time went.
    calls: the latest, each with what was tried; outcome: of the last run. files: what is kept of those it left.
    log_bytes_dropped: bytes of the log that the store could not take, as where its disk was full.
    """

    status: str
    ok: bool
    error: Optional[str]
    verdict: Optional[JobVerdict]
    value: Any
    degraded: bool
    turns: Optional[int]
    steps: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    calls_dropped: int
    breakers: list[dict[str, Any]]
    spent: dict[str, Any]
    outcome: Optional[Outcome]
    files: list[JobFile]
    files_refused: list[JobFileRefused]
    log_bytes_dropped: int = 0


@dataclasses.dataclass(frozen=True)
class JobWebhook:
    """What became of telling of a job's end; `error` is why the last attempt failed, `due_ms` when the next one is."""

    url: str
    attempts: int
    delivered_ms: Optional[int]
    error: Optional[str]
    due_ms: Optional[int]


@dataclasses.dataclass(frozen=True)
class JobRecord(Job):
    """Everything about a job: its spec, its result once it is over, what came of earlier deliveries (the latest last), and
    results that came after their lease was lost. `now_ms` is the moment of this answer. `blocked_by` is why no worker can lease
    it now: objects with a `reason` (queue_paused, jobs, not_before, rate, concurrency or no_worker) and its details.

    >>> from sandtimer import jobs
    >>> record = jobs.run({"code": "print(6 * 7)", "language": "python"})
    >>> record.state, record.result.status, record.result.outcome.stdout
    ('ended', 'ok', '42\\n')
    """

    spec: dict[str, Any]
    result: Optional[JobResult]
    earlier: list[JobResult]
    duplicates: list[JobResult]
    webhook: Optional[JobWebhook]
    blocked_by: list[dict[str, Any]]
    now_ms: int


@dataclasses.dataclass(frozen=True)
class JobEvent:
    """Something that happened to a job: `event` is "state" (it is in another one), "log" or "ended"; `job` is as it was then.

    text, data: what it wrote, of a "log"; characters that are cut between two come whole with the second, and what is no UTF-8
    is replaced in the text.
    """

    event: str
    job: JobRecord
    text: str = ""
    data: bytes = b""


@dataclasses.dataclass(frozen=True)
class JobLog:
    """A piece of what a job wrote; the next is at `next_cursor`, where there is one."""

    data: bytes
    next_cursor: int

    @property
    def text(self) -> str:
        """As text; what is no UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class JobSchedule:
    """A schedule: a job that recurs. Moments are milliseconds since 1970.

    next_ms: when it is due next; None if it is paused. last_ms, last_job, last_state: the last moment for which a job was
    submitted, the job's id, and its state as long as the store has it. submitted: how many jobs it has submitted. skipped: how
    many moments passed without a job, because the job before had not finished or no worker was there. error: why the job of the
    last moment could not be submitted. spec: as it was stored, without the secret of a webhook.
    """

    name: str
    queue: str
    next_ms: Optional[int]
    last_ms: Optional[int]
    last_job: Optional[str]
    last_state: Optional[str]
    submitted: int
    skipped: int
    error: Optional[str]
    created_ms: int
    spec: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class JobQueue:
    """A queue: how many of its jobs are in which state, and how long the one has waited that waits longest."""

    queue: str
    paused: bool
    scheduled: int
    queued: int
    leased: int
    dead: int
    oldest_ms: Optional[int]


def job_of(line: dict[str, Any]) -> Job:
    return build(Job, line)


def record_of(record: dict[str, Any]) -> JobRecord:
    results = {name: [_result(each) for each in record[name]] for name in ("earlier", "duplicates")}
    result = None if record["result"] is None else _result(record["result"])
    webhook = None if record["webhook"] is None else build(JobWebhook, record["webhook"])
    return build(JobRecord, {**record, **results, "result": result, "webhook": webhook})


def _result(result: dict[str, Any]) -> JobResult:
    verdict, outcome = result["verdict"], result["outcome"]
    verdict = None if verdict is None else build(JobVerdict, verdict)
    files = [build(JobFile, each) for each in result["files"]]
    refused = [build(JobFileRefused, each) for each in result["files_refused"]]
    built = {"verdict": verdict, "outcome": None if outcome is None else _outcome(outcome), "files": files, "files_refused": refused}
    return build(JobResult, {**result, **built})


def _outcome(record: dict[str, Any]) -> Outcome:
    if record["ending"] not in ("raised", "returned") or record["ok"]:
        return outcome_of(record)
    # A handler's: the store keeps its exception as a line, "ValueError: …".
    kind, _, message = str((record["error"] or {}).get("message", "")).partition(": ")
    return Outcome(Record(record), record["ending"], error=RemoteError(kind, message))
