//! Jobs in the description of the API.

use sandtimer_jobs::job::{JobEnd, JobState, OPEN_STATES, RETRIED_STATES, ShownState};
use serde_json::{Value, json};

use super::operation::SuccessAnswer::{Content, Json};
use super::operation::{FOLLOW_ANSWERS, Operation};
use super::schema::{
    answer, anything, body, boolean, encoding_error_mode, enumeration, list, nullable, number, reference,
    string, wall_names, with,
};
use crate::error::Code;

pub(super) const STORE_CODES: &[Code] = &[Code::Storage, Code::StoreUnreachable, Code::StoreGone];
pub(super) const QUERY_CODES: &[Code] =
    &[Code::BadField, Code::UnknownField, Code::Storage, Code::StoreUnreachable, Code::StoreGone];

pub(super) fn operations() -> Vec<Operation> {
    let post = |path, summary, shape| Operation::new("post", path, summary, Json(shape)).errors(STORE_CODES);
    let get = |path, summary, shape| Operation::new("get", path, summary, Json(shape)).errors(QUERY_CODES);
    vec![
        post(
            "/v1/jobs",
            "Submit one job, or many as a list or as JSON lines (application/x-ndjson), all of them or none",
            "JobsSubmitted",
        )
        .answers(&[(201, "At least one of them is new."), (200, "All of them had been submitted before.")])
        .body("JobRequest")
        .errors(&[Code::BadSpec, Code::NetworkRefused, Code::JobConflict, Code::Quota]),
        get("/v1/jobs", "Your jobs, the latest submission first", "JobList")
            .query("queue", string(""), "Only of this queue.")
            .query("state", enumeration(&ShownState::NAMES), "Only in this state; `leased` is running and ending, `ended` is ok and failed.")
            .query("limit", number("1 to 1000."), "How many; 100 unless given.")
            .query("cursor", string("The `next` of a listing."), "Continues after that one.")
            .query("total", boolean("false unless given."), "Counts the jobs of all parts."),
        get("/v1/jobs/{id}", "Everything about a job", "Job")
            .query("wait_ms", number("Milliseconds."), "How long to wait for its end; 0 unless given.")
            .query("errors", encoding_error_mode(), "As of POST /v1/runs, for the output of its results."),
        get("/v1/jobs/{id}/log", "The output of a job, from a position, while it is running and after its end", "JobLog")
            .query("cursor", number("A byte's position."), "Where to begin; 0 unless given.")
            .query("max_bytes", number("Bytes, 16 to 8388608."), "How much at most; 262144 unless given.")
            .query("errors", encoding_error_mode(), "As of POST /v1/runs.")
            .query(
                "timestamps",
                boolean("false unless given."),
                "Whether `data` has before each line the time at which its beginning came, as RFC 3339 has it, and a space; `-` in its \
                 place where an earlier version stored the line. Positions do not count the times, and at most 262144 bytes are read.",
            ),
        Operation::new(
            "get",
            "/v1/jobs/{id}/events",
            "Server-sent events: state, log, ended. A reader that reconnects with Last-Event-ID continues at its position; after `ended` the answer is 204, unless the job was queued again",
            Content("text/event-stream"),
        )
        .answers(FOLLOW_ANSWERS)
        .query("errors", encoding_error_mode(), "As of POST /v1/runs.")
        .errors(QUERY_CODES),
        get("/v1/jobs/{id}/files", "The files that a job has left, and what of its `outputs` is not kept, with the reason", "JobFiles"),
        Operation::new(
            "get",
            "/v1/jobs/{id}/files/{path}",
            "A file that a job has left; `path` is its name, slashes included",
            Content("application/octet-stream"),
        )
        .errors(QUERY_CODES)
        .errors(&[Code::JobFileNotFound]),
        post("/v1/jobs/{id}/cancel", "Cancel a job: at once if no worker has begun it, otherwise with everything that it started", "JobCancelled")
            .body("JobCancel"),
        post(
            "/v1/jobs/{id}/retry",
            "Queue a job again that failed, is dead or was cancelled; its deadline counts from now",
            "JobRetried",
        )
        .body("Empty")
        .errors(&[Code::JobState]),
        post("/v1/jobs/{id}/redeliver", "Send the webhook of an ended job again, at once", "JobRedelivered")
            .body("Empty")
            .errors(&[Code::JobState]),
        post(
            "/v1/jobs/cancel",
            "End all your jobs that are not over: of one queue, in one state, or all; nothing is waited for",
            "JobsCancelled",
        )
        .body("JobsCancel"),
        post(
            "/v1/jobs/retry",
            "Queue all your jobs again that failed, are dead or were cancelled: of one queue, in one state, or all",
            "JobsRetried",
        )
        .body("JobsRetry"),
        post("/v1/jobs/requeue", "Queue all your dead jobs again, or those of one queue", "JobsRequeued").body("JobQueue"),
        post("/v1/jobs/purge", "Remove the records of ended jobs", "JobsPurged").body("JobPurge"),
        get("/v1/jobs/queues", "Your queues that have jobs or are paused: depth, and how long the oldest has waited", "JobQueues"),
        get("/v1/jobs/breakers", "The circuit breakers that your jobs share (`breaker.scope` is `store`), by key", "JobBreakers")
            .query("limit", number("1 to 1000."), "How many; 100 unless given.")
            .query("cursor", string("The `next` of a listing."), "Continues after that one."),
        get("/v1/jobs/workers", "The live workers of the store with the jobs that they have, of all owners; for operators", "JobWorkers")
            .errors(&[Code::OperatorOnly]),
        post("/v1/jobs/pause", "Pause a queue: workers get no more jobs from it; running jobs continue", "JobQueuePaused").body("JobQueue").errors(&[Code::Quota]),
        post("/v1/jobs/resume", "Resume a paused queue", "JobQueuePaused").body("JobQueue"),
    ]
}

fn states() -> Value {
    enumeration(&JobState::ALL.map(JobState::name))
}

pub(super) fn moment(meaning: &str) -> Value {
    number(&format!("{meaning}, in milliseconds since 1970."))
}

pub(super) fn schemas() -> Value {
    let mut schemas = json!({
        "JobRequest": request(),
        "JobState": states(),
        "JobStatus": enumeration(&["ok", "failed", "timeout", "budget", "cancelled", "infra_error", "lost", "drained"]),
        "JobsSubmitted": answer(json!({"jobs": list(answer(json!({
            "job_id": string(""),
            "state": reference("JobState"),
            "existed": boolean("It was submitted before, with the same idempotency key and spec."),
        })))})),
        "JobSummary": answer(line()),
        "JobList": answer(json!({
            "jobs": list(reference("JobSummary")),
            "next": nullable(string("The `cursor` of the next part; null at the end.")),
            "total": nullable(number("How many jobs there are in all parts; null unless `total` asked for it.")),
        })),
        "Job": job(),
        "JobResult": result(),
        "JobVerdict": verdict(),
        "JobLog": answer(json!({
            "job_id": string(""),
            "state": reference("JobState"),
            "cursor": number("The position of the first byte of `data`."),
            "next_cursor": number("The position to continue at."),
            "data": string("In `encoding`."),
            "encoding": reference("Encoding"),
            "ended": boolean("The job has ended, and there is nothing after `next_cursor`."),
        })),
        "JobFile": file(),
        "JobBlocker": blocker(),
        "JobWebhook": answer(json!({
            "url": string(""),
            "attempts": number("Since the job's end, or since it was to be redelivered."),
            "delivered_ms": nullable(moment("When it was taken")),
            "error": nullable(string("Why the last attempt failed, or none will be made any more.")),
            "due_ms": nullable(moment("When the next attempt is")),
        })),
        "JobFileRefused": file_refused(),
        "JobFiles": answer(json!({
            "job_id": string(""),
            "state": reference("JobState"),
            "files": list(reference("JobFile")),
            "refused": list(reference("JobFileRefused")),
        })),
        "JobCancel": body(json!({
            "reason": string("For its result."),
            "wait_ms": number("How long to wait for its end; 5000 unless given."),
        })),
        "JobCancelled": answer(json!({
            "job_id": string(""),
            "cancelled": with(enumeration(&["cancelled", "asked", "too_late"]), "No worker had it; its worker was asked to end it; it had already ended."),
            "state": reference("JobState"),
        })),
        "JobRedelivered": answer(json!({"job_id": string(""), "webhook": reference("JobWebhook")})),
        "JobRetried": answer(json!({"job_id": string(""), "state": reference("JobState")})),
        "JobsCancel": body(json!({
            "queue": string("All of this queue."),
            "state": with(enumeration(&OPEN_STATES), "All in this state; `leased` is running and ending."),
            "all": boolean("All that are not over; needed where neither `queue` nor `state` is given."),
            "reason": string("For their results."),
        })),
        "JobsCancelled": answer(json!({
            "cancelled": number("Those that no worker had."),
            "asked": number("Those whose workers were asked to end them."),
        })),
        "JobsRetry": body(json!({
            "queue": string("All of this queue."),
            "state": with(enumeration(&RETRIED_STATES), "All in this state."),
            "all": boolean("All that can be retried; needed where neither `queue` nor `state` is given."),
        })),
        "JobsRetried": answer(json!({"retried": number("How many.")})),
        "JobQueue": body(json!({"queue": string("Its name.")})),
        "JobsRequeued": answer(json!({"requeued": number("How many.")})),
        "JobPurge": body(json!({
            "queue": string("Only of this queue."),
            "state": with(enumeration(&["ok", "failed", "ended", "dead", "cancelled"]), "Only in this state; `ended` is ok and failed."),
        })),
        "JobsPurged": answer(json!({"purged": number("How many.")})),
        "JobQueuePaused": answer(json!({"queue": string(""), "paused": boolean("")})),
        "JobWorkers": answer(json!({"workers": list(answer(json!({
            "name": string("As `worker` of its jobs."),
            "slots": number("Jobs at a time."),
            "version": string("Of its program."),
            "queues": with(list(string("")), "From which it takes jobs, as the store names them; all of them if it is empty."),
            "memory_bytes": nullable(number("The memory for runs of jobs that name theirs; null without a bound.")),
            "handlers": with(list(string("")), "The names of its handlers. It is handed only jobs whose handlers it has."),
            "seen_ms": moment("When it last announced itself, which it does every 30 s"),
            "jobs": with(list(string("")), "The ids of the jobs that it has."),
        })))})),
        "JobQueues": answer(json!({"queues": list(answer(json!({
            "queue": string(""),
            "paused": boolean("It hands out nothing."),
            "scheduled": number("Jobs whose earliest start is ahead."),
            "queued": number("Jobs that wait."),
            "leased": number("Jobs that a worker has."),
            "dead": number("Jobs that no worker could bring to a result."),
            "oldest_ms": nullable(number("How long the job has waited that waits longest.")),
        })))})),
    });
    schemas["JobBreaker"] = breaker();
    schemas["JobBreakers"] = answer(json!({
        "breakers": list(reference("JobBreaker")),
        "next": nullable(string("The `cursor` of the next part; null at the end.")),
    }));
    schemas
}

fn line() -> Value {
    json!({
        "job_id": string(""),
        "name": string(""),
        "queue": string(""),
        "priority": json!({"type": "integer", "minimum": -100, "maximum": 100}),
        "state": reference("JobState"),
        "ok": nullable(boolean("Whether it succeeded; null until it has ended.")),
        "error": nullable(string("Why it did not succeed.")),
        "submitted_ms": moment("When it was submitted, or retried"),
        "due_ms": moment("From when on it may be executed"),
        "deadline_ms": nullable(moment("The time by which it has ended")),
        "leased_ms": nullable(moment("When a worker last began it")),
        "ended_ms": nullable(moment("When it ended")),
        "deliveries": number("How often it was handed to a worker."),
        "worker": nullable(string("Who has it, or had it last.")),
        "cancel": nullable(string("The reason of a requested cancellation.")),
        "waiting_for": number("Jobs of its `after` that have not ended."),
    })
}

fn job() -> Value {
    let mut fields = line();
    fields["spec"] = with(json!({"type": "object"}), "As it was submitted.");
    fields["result"] = nullable(reference("JobResult"));
    fields["earlier"] = with(
        list(reference("JobResult")),
        "What came of earlier deliveries, the latest last; at most three.",
    );
    fields["duplicates"] =
        with(list(reference("JobResult")), "Results that came after their lease was lost.");
    fields["webhook"] = nullable(with(reference("JobWebhook"), "The state of its webhook, if it has one."));
    fields["blocked_by"] = with(
        list(reference("JobBlocker")),
        "Why no worker can lease it now; empty once it is leased or has ended.",
    );
    fields["now_ms"] = moment("The store's moment of this answer");
    answer(fields)
}

/// A reason why a job cannot be leased now.
fn blocker() -> Value {
    let of = |reason: &str, description: &str, fields: Value| {
        let mut all = json!({"reason": {"type": "string", "enum": [reason]}});
        all.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        with(answer(all), description)
    };
    json!({"oneOf": [
        of("queue_paused", "Its queue is paused.", json!({"queue": string("")})),
        of("jobs", "Jobs of its `after` have not ended.", json!({
            "ids": with(list(string("")), "The first 20 of them."),
            "count": number("How many they are."),
        })),
        of("not_before", "Its start is in the future.", json!({"at_ms": moment("When it may start")})),
        of("rate", "Its rate key is used up.", json!({
            "key": string(""),
            "at_ms": nullable(moment("When the next job with the key may start")),
        })),
        of("concurrency", "Its concurrency key is in use.", json!({"key": string("")})),
        of("memory", "No live worker of its queue has the memory for a run of it.", json!({
            "bytes": number("What a run of it may have."),
            "largest_bytes": number("What the largest of these workers has."),
        })),
        of("no_worker", "No live worker takes jobs from its queue.", json!({"queue": string("")})),
        of("no_handler", "No live worker of its queue has all the handlers that it names.", json!({
            "handlers": with(list(string("")), "Their names."),
        })),
        of("unreadable_spec", "The worker that had it last cannot read its spec, which a later version has written.", unreadable_spec()),
    ]})
}

fn unreadable_spec() -> Value {
    json!({
        "worker": string("Its name."),
        "version": string("The version of its program."),
        "field": string("The path of the field that it does not know."),
        "problem": string("Why it rejected the field."),
    })
}

/// A breaker that jobs share.
fn breaker() -> Value {
    answer(json!({
        "key": string(""),
        "state": enumeration(&["closed", "open", "half_open"]),
        "held": nullable(with(enumeration(&["open", "closed"]), "The state in which an operator holds it.")),
        "retry_after_ms": nullable(number("Until it admits a probe, if it is open.")),
        "failures_in_a_row": number(""),
        "times_opened": number(""),
        "successes": number("Half open: successes so far."),
        "probe_ends_ms": nullable(with(json!({"type": "integer"}), "Half open: until the probe that is under way times out; below 0 since then.")),
        "probe_of": nullable(string("The job whose probe that is.")),
        "generation": number("How often its state has changed."),
        "window": with(list(boolean("")), "Whether each of the latest results was a failure, the latest last."),
        "said": with(list(string("")), "The messages of the latest failures, the latest last."),
    }))
}

fn result() -> Value {
    let mut result = answer(json!({
        "status": reference("JobStatus"),
        "ok": boolean(""),
        "error": nullable(string("")),
        "verdict": nullable(reference("JobVerdict")),
        "value": anything("The last message of a loop's driver."),
        "degraded": boolean("Something was done by a fallback."),
        "turns": nullable(number("Of a loop.")),
        "steps": list(answer(json!({
            "name": string(""),
            "ok": nullable(boolean("null where it was not begun.")),
            "degraded": boolean(""),
        }))),
        "calls": with(list(answer(json!({
            "name": string("The step or action."),
            "turn": nullable(number("")),
            "ok": boolean(""),
            "degraded": boolean(""),
            "said": nullable(string("Why it failed.")),
            "spent": list(anything("An attempt, a pause, or a rejection by a breaker.")),
        }))), "The latest calls."),
        "calls_dropped": number("Earlier ones that are not among them."),
        "log_bytes_dropped": number("Bytes of the log that the store could not take."),
        "breakers": list(anything("One of the job's breakers in the end.")),
        "spent": answer(json!({
            "earlier_ms": number("Earlier deliveries, with the pauses after them."),
            "queued_ms": number("In the queue, before all of its deliveries."),
            "attempts_ms": number(""),
            "backoff_ms": number(""),
            "driver_ms": number("The driver of a loop."),
            "attempts": number("How many were made."),
            "refused": number("Calls that a breaker refused."),
        })),
        "outcome": nullable(reference("Outcome")),
        "files": with(list(reference("JobFile")), "What of its files is kept."),
        "files_refused": with(list(reference("JobFileRefused")), "What of `outputs` is not."),
    }));
    result["properties"]["unreadable"] = with(
        answer(unreadable_spec()),
        "Why its worker returned the job without a start, if the worker could not read the spec.",
    );
    result
}

fn file() -> Value {
    answer(json!({
        "name": string("Its path below the job's directory."),
        "bytes": number(""),
        "sha256": string("Of its content, in hexadecimal digits."),
    }))
}

fn file_refused() -> Value {
    answer(json!({
        "name": string("A file's, or the pattern that names none."),
        "reason": string(""),
    }))
}

fn verdict() -> Value {
    answer(json!({
        "kind": string("The kind of the limit, such as `wall` or `turns`."),
        "layer": reference("Layer"),
        "source": reference("Source"),
        "scope": string("The scope's path, such as `job/7f3/loop/turn-5`."),
        "phase": enumeration(&["queued", "running", "backoff"]),
        "limit_ms": nullable(number("For limits of time.")),
        "limit": nullable(number("For counts.")),
        "elapsed_ms": number(""),
        "sentence": string("One or two sentences for a person or a model."),
    }))
}

/// The fields at the top of a spec; `docs/reference/jobs.md` has those in `steps`, `loop` and
/// `fallback`.
fn request() -> Value {
    let texts = |meaning: &str| with(list(string("")), meaning);
    let mut fields = json!({
        "name": string("For people; `job` unless given."),
        "queue": string("`default` unless given. Each token has queues of its own."),
        "priority": {"type": "integer", "minimum": -100, "maximum": 100, "description": "A head start of 60 s for each point."},
        "command": texts("A program and its arguments. A job has this, `code`, `steps` or `loop`."),
        "code": string("A program in `language`."),
        "language": enumeration(&["python", "bash", "javascript", "typescript"]),
        "steps": with(list(json!({"type": "object"})), "Each with a `name`, what it `needs`, and a command or code."),
        "parallel": {"type": "integer", "minimum": 1, "maximum": 64, "description": "How many steps are executed at the same time; 1 unless given."},
        "loop": {"type": "object", "description": "A `driver` that is asked each turn which of the `actions` to take."},
        "wall_ms": with(reference("Limit"), "Of the whole job, from its submission."),
        "deadline_ms": moment("The same as a moment"),
        "not_before_ms": moment("Its earliest start"),
        "delay_ms": {
            "oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
            "description": "Its earliest start, counted from its submission: milliseconds, or a string such as `5m`.",
        },
        "idempotency_key": string("The same key and spec is the same job; another spec is refused, and the job named."),
        "retention_ms": with(reference("Limit"), "How long it is kept after its end; 7 days unless given."),
        "deliveries": number("How often it is handed to a worker before it is dead; 3 unless given."),
        "attempts": number("Of the command; 1 unless given."),
        "backoff_ms": {"type": "array", "description": "The pauses between attempts; jittered unless given."},
        "useful_ms": anything("An attempt with less time left than this is not begun."),
        "key": string("`name:action`, for its breaker."),
        "expected": with(list(json!({"type": "integer"})), "Exit codes that are not a failure."),
        "not_retried": anything("A list of exit codes and of names of exceptions that a handler raises, after which no further attempt is made."),
        "fallback": with(list(json!({"type": "object"})), "Other ways, which are tried in turn when the command has failed."),
        "breaker": {"type": "object", "description": "`failures`, `open_ms`, `successes`, and `scope`: `job` or `store`."},
        "limits": {"type": "object", "description": "Of each run, by their names, such as `memory_bytes`."},
        "env": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Variables of each run."},
        "inputs": {"type": "object", "additionalProperties": {"anyOf": [string(""), body(json!({"base64": string("")}))]}, "description": "Files below the job's directory: paths, each with a string or {base64}; 8 MiB in all."},
        "outputs": texts("Paths and patterns of files that are kept, such as `out/**`."),
        "webhook": body(json!({
            "url": string("The address that receives its end, with a POST of JSON."),
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "secret": string("Signs requests: `webhook-signature` as Standard Webhooks defines it, and `Sandtimer-Signature: sha256=` and the HMAC-SHA256 of the body in hexadecimal digits. Not shown afterwards."),
            "events": with(list(enumeration(&JobEnd::ALL.map(JobEnd::name))), "The ends that are sent; all unless given."),
        })),
        "network": boolean("Gives runs the host's network; where there are tokens, only to those whose line has the word `network`."),
        "time_scale": {"type": "number", "description": "What every duration of the spec is multiplied by."},
    });
    if let (Some(fields), Value::Object(more)) = (fields.as_object_mut(), of_other_jobs()) {
        fields.extend(more);
    }
    wall_names(&mut fields);
    body(fields)
}

/// The fields of a spec that relate a job to other jobs.
fn of_other_jobs() -> Value {
    json!({
        "release_on_failure": boolean("With an idempotency key: a job that did not succeed releases the key, so that the same submission is a new job."),
        "concurrency": body(json!({"key": string(""), "most": number("1 unless given.")})),
        "rate": with(
            body(json!({"key": string(""), "most": number("1 to 10000."), "per_ms": anything("1s to 24h; 1s unless given.")})),
            "At most `most` jobs with this key start in any `per_ms`.",
        ),
        "after": with(list(string("")), "Jobs that have to end before: ids, or names of jobs that are submitted in the same request."),
        "map": with(
            body(json!({
                "over": anything("A list with an item for each job."),
                "most": number("How many of the jobs run at the same time."),
                "then": with(reference("JobRequest"), "A job that waits for all of them."),
            })),
            "Fan-out: one job for each item of a list. A job has its item in SANDTIMER_ITEM, a handler as its input.",
        ),
        "after_results": string("A path below the job's directory: a file of JSON with the results of the jobs in `after`."),
        "after_failure": with(enumeration(&["cancel", "run"]), "What happens when one of those does not succeed; `cancel` unless given."),
    })
}
