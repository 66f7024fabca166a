"""Records of jobs, as the store returns them. Times are in milliseconds; moments are milliseconds
since 1970 by the clock of the store.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from .._outcome import Outcome, Record, build
from ..client._run import outcome_of
from ..errors import RemoteError


@dataclasses.dataclass(frozen=True)
class Submitted:
    """The result of a submission.

    Attributes:
        id: The id of the job.
        state: Its state.
        existed: Whether a job with the same idempotency key and the same spec existed already.

    Examples:
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
    """A job in a listing. Moments are milliseconds since 1970.

    Attributes:
        id: The id of the job.
        name: Its name; "" without one.
        queue: Its queue.
        priority: Its priority; higher ones are executed first.
        state: "scheduled", "queued", "leased" (a worker has it), "ended" (with a result, good or
            bad), "dead" (no worker could bring it to a result) or "cancelled".
        ok: Whether it succeeded; None while there is no result.
        error: Why it failed, in one line; None otherwise.
        submitted_ms: When it was submitted.
        due_ms: When it is or was due.
        deadline_ms: When it must have ended; None without a limit.
        leased_ms: When a worker last got it; None before that.
        ended_ms: When it ended; None before that.
        deliveries: How many times a worker got it.
        worker: The worker that has it; None if there is no such worker.
        cancel: Why it is to be cancelled; None if that was not requested.
        waiting_for: How many jobs of its `after` have not ended.

    Examples:
        >>> from sandtimer import jobs
        >>> submitted = jobs.submit({"command": ["true"], "queue": "later"})
        >>> [(job.id == submitted.id, job.state) for job in jobs.list(queue="later")]
        [(True, 'queued')]
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
        """Whether the job has ended, is dead or was cancelled."""
        return self.state in ("ended", "dead", "cancelled")


@dataclasses.dataclass(frozen=True)
class JobVerdict:
    """The limit that ended a job.

    Attributes:
        kind: The limit, such as "wall" or "turns".
        layer: The layer whose limit it was: "job", "loop", "call" or "run".
        source: Who set the limit: "call" is the spec of the job.
        scope: The path of the scope whose limit it was.
        phase: The state of the job: "queued", "running" or "backoff".
        limit_ms: The limit, if it is one of time.
        limit: The limit, if it is a count.
        elapsed_ms: How long the job had taken, in milliseconds.
        sentence: All of this in a sentence.

    Examples:
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
    """An output file of a job, which the store has.

    Attributes:
        name: Its name.
        bytes: Its size, in bytes.
        sha256: Its SHA-256 sum, in hexadecimal digits.

    Examples:
        >>> from sandtimer import jobs
        >>> record = jobs.run({"command": ["sh", "-c", "printf hello > out"], "outputs": ["out"]})
        >>> [(file.name, file.bytes) for file in record.result.files]
        [('out', 5)]
    """

    name: str
    bytes: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class JobFileRefused:
    """An output file that was not stored, or a pattern of `outputs` without a file.

    Attributes:
        name: The name or the pattern.
        reason: Why it was not stored.

    Examples:
        >>> from sandtimer import jobs
        >>> record = jobs.run({"command": ["true"], "outputs": ["report.txt"]})
        >>> [file.name for file in record.result.files_refused]
        ['report.txt']
    """

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class JobResult:
    """The result of a job, or of one of its deliveries.

    Attributes:
        status: "ok", "failed", "timeout", "budget" (turns or failures of a loop), "cancelled",
            "infra_error", "lost" or "drained" (the worker had to end).
        ok: Whether the job succeeded.
        error: Why it failed, in one line; None otherwise.
        verdict: The limit that ended it; None if no limit did.
        value: The last message of the driver of a loop, or the value of the last handler.
        degraded: Whether a fallback returned the value.
        turns: How many turns a loop had; None for other jobs.
        steps: The steps, each with its result.
        calls: The latest calls, each with its attempts.
        calls_dropped: How many earlier calls are not listed.
        breakers: The state of the circuit breakers.
        spent: How the time was spent.
        outcome: The outcome of the last run; None if there was no run.
        files: The output files that the store has.
        files_refused: The output files that were not stored.
        log_bytes_dropped: How many bytes of the log could not be stored, such as on a full disk.

    Examples:
        >>> from sandtimer import jobs
        >>> result = jobs.run({"command": ["sh", "-c", "exit 3"]}).result
        >>> result.status, result.ok, result.outcome.exit_code
        ('failed', False, 3)
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
    """The delivery of the notice of a job's end.

    Attributes:
        url: The address.
        attempts: How many attempts there were.
        delivered_ms: When it was delivered; None before that.
        error: Why the last attempt failed; None otherwise.
        due_ms: When the next attempt is due; None if there is none.

    Examples:
        >>> from sandtimer import jobs
        >>> jobs.run({"command": ["true"]}).webhook is None
        True
    """

    url: str
    attempts: int
    delivered_ms: Optional[int]
    error: Optional[str]
    due_ms: Optional[int]


@dataclasses.dataclass(frozen=True)
class JobRecord(Job):
    r"""Everything about a job. It has the attributes of `Job` too.

    Attributes:
        spec: The spec of the job.
        result: Its result; None before its end.
        earlier: The results of earlier deliveries, the latest last.
        duplicates: Results that arrived after their lease was lost.
        webhook: The delivery of the notice of its end; None without one.
        blocked_by: Why no worker can lease it now: objects with a `reason` ("queue_paused", "jobs",
            "not_before", "rate", "concurrency", "memory", "no_worker", "no_handler" or
            "unreadable_spec") and its details.
        now_ms: The moment of this record.

    Examples:
        >>> from sandtimer import jobs
        >>> record = jobs.run({"code": "print(6 * 7)", "language": "python"})
        >>> record.state, record.result.status, record.result.outcome.stdout
        ('ended', 'ok', '42\n')
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
    r"""An event of a job.

    Attributes:
        event: "state" (it has changed), "log" or "ended".
        job: The record of the job at that moment.
        text: The text of a "log" event. Characters that are split between two events are in the
            second one, and bytes that are not UTF-8 are replaced.
        data: The bytes of a "log" event.

    Examples:
        >>> from sandtimer import jobs
        >>> job = jobs.submit({"command": ["echo", "hello"], "queue": "events"})
        >>> with jobs.Worker(queues=["events"]):
        ...     "".join(event.text for event in jobs.watch(job.id))
        'hello\n'
    """

    event: str
    job: JobRecord
    text: str = ""
    data: bytes = b""


@dataclasses.dataclass(frozen=True)
class JobLog:
    r"""A part of the output of a job.

    Attributes:
        data: The bytes.
        next_cursor: The position of the next part.

    Examples:
        >>> from sandtimer import jobs
        >>> log = jobs.read_log(jobs.run({"command": ["echo", "hello"]}).id)
        >>> log.text, log.next_cursor
        ('hello\n', 6)
    """

    data: bytes
    next_cursor: int

    @property
    def text(self) -> str:
        """The part as text; bytes that are not UTF-8 are replaced."""
        return self.data.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class JobWorker:
    """A live worker of a store.

    Attributes:
        name: Its name, as in `worker` of its jobs.
        slots: How many jobs it executes at a time.
        version: The version of its program.
        queues: The queues that it takes jobs from; empty for all.
        memory_bytes: The memory for runs of jobs that name theirs; None without a bound.
        handlers: The names of its handlers. It is handed only jobs whose handlers it has.
        seen_ms: When it last announced itself, which it does every 30 s.
        jobs: The ids of its jobs.

    Examples:
        >>> from sandtimer import jobs
        >>> [worker.name for worker in jobs.workers() if worker.slots > 1000]
        []
    """

    name: str
    slots: int
    version: str
    queues: list[str]
    memory_bytes: Optional[int]
    handlers: list[str]
    seen_ms: int
    jobs: list[str]


@dataclasses.dataclass(frozen=True)
class JobBreaker:
    """A circuit breaker that jobs share. Durations are milliseconds.

    Attributes:
        key: Its key, such as `mail:send`.
        state: "closed", "open" or "half_open".
        held: The state in which an operator holds it, "open" or "closed"; None otherwise.
        retry_after_ms: How long until it admits a probe; None if it is not open.
        failures_in_a_row: How many of the latest calls failed, one after the other.
        times_opened: How often it has opened.
        successes: How many probes have succeeded since it is half open.
        probe_ends_ms: How long until the running probe times out, below 0 afterwards; None without a probe.
        probe_of: The id of the job that runs the probe; None without one.
        generation: How often its state has changed.
        window: Whether each of the latest calls failed, the latest last.
        said: The messages of the latest failures, the latest last.

    Examples:
        >>> from sandtimer import jobs
        >>> breaker = {"failures": 1, "scope": "store"}
        >>> record = jobs.run({"command": ["false"], "key": "web:fetch", "breaker": breaker})
        >>> next(breaker.times_opened for breaker in jobs.breakers() if breaker.key == "web:fetch")
        1
    """

    key: str
    state: str
    held: Optional[str]
    retry_after_ms: Optional[int]
    failures_in_a_row: int
    times_opened: int
    successes: int
    probe_ends_ms: Optional[int]
    probe_of: Optional[str]
    generation: int
    window: list[bool]
    said: list[str]


@dataclasses.dataclass(frozen=True)
class JobSchedule:
    """A schedule: a job that recurs. Moments are milliseconds since 1970.

    Attributes:
        name: Its name.
        queue: The queue of its jobs.
        next_ms: When it is due next; None if it is paused.
        last_ms: The last moment for which a job was submitted.
        last_job: The id of that job.
        last_state: The state of that job, while the store has it.
        submitted: How many jobs it has submitted.
        skipped: How many moments passed without a job, because the job before had not finished or
            there was no worker.
        error: Why the job of the last moment could not be submitted; None otherwise.
        created_ms: When it was stored first.
        spec: Its spec, without the secret of a webhook.

    Examples:
        >>> from sandtimer import jobs
        >>> schedule = jobs.schedule({"name": "hourly", "every_ms": "1h", "job": {"command": ["true"]}})
        >>> schedule.name, schedule.submitted, jobs.unschedule("hourly")
        ('hourly', 0, True)
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
    """A queue, with the number of its jobs in each state.

    Attributes:
        queue: Its name.
        paused: Whether it is paused.
        scheduled: How many jobs are scheduled for later.
        queued: How many jobs wait for a worker.
        leased: How many jobs a worker has.
        dead: How many jobs are dead.
        oldest_ms: How long the longest waiting job has waited, in milliseconds; None if no job
            waits.

    Examples:
        >>> from sandtimer import jobs
        >>> job = jobs.submit({"command": ["true"], "queue": "later"})
        >>> [(queue.queue, queue.queued) for queue in jobs.queues()]
        [('later', 1)]
    """

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
