//! The result of a job. Plain data, written to stores and printed as it is.

use sandtimer::model::{Layer, LimitKind, Outcome, Source, counted, time};
use sandtimer_agents::resilience::{BreakerSnapshot, SpentOn};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::queueing::UnreadableSpec;
use super::sentences;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// All of it succeeded.
    Ok,
    /// A program failed, after its retries and fallbacks; there is a `verdict` if a limit of bytes
    /// or numbers ended it.
    Failed,
    /// A limit of time ended it: the job's, a loop's or a call's, or that of its last run.
    Timeout,
    /// The limit of a loop's turns, failures or repetitions ended it.
    Budget,
    /// It was cancelled.
    Cancelled,
    /// Sandtimer could not do its part.
    InfraError,
    /// The worker's lease was lost before there was a result.
    Lost,
    /// The worker returned the job before there was a result.
    Drained,
}

/// What a job did when a limit ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    /// It waited for a worker.
    Queued,
    /// A worker executed it.
    Running,
    /// It paused between two attempts.
    Backoff,
}

/// The limit that ended a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobVerdict {
    /// The kind of limit.
    pub kind: LimitKind,
    /// The level of the scope whose limit it is.
    pub layer: Layer,
    /// Where the limit came from; `call` is the job's spec.
    #[serde(default = "from_the_spec")]
    pub source: Source,
    /// The path of the scope, such as `job/7f3/loop/turn-5`.
    pub scope: String,
    /// What the job was doing.
    pub phase: JobPhase,
    /// The limit in milliseconds, if it is one of time.
    pub limit_ms: Option<u64>,
    /// The limit, if it is a number of bytes, turns or failures.
    pub limit: Option<u64>,
    /// Milliseconds since the clock of that scope began.
    pub elapsed_ms: u64,
    /// The whole verdict in a sentence.
    pub sentence: String,
}

fn from_the_spec() -> Source {
    Source::Call
}

impl JobVerdict {
    /// Makes the verdict of a job that ended because a limit ended its run; `None` if none did.
    pub fn of_run(outcome: &Outcome) -> Option<Self> {
        let verdict = outcome.verdict.as_ref().filter(|_| !outcome.ok)?;
        Some(JobVerdict {
            kind: verdict.kind?,
            layer: verdict.layer,
            source: verdict.source,
            scope: verdict.scope.clone(),
            phase: JobPhase::Running,
            limit_ms: verdict.limit_ms,
            limit: verdict.limit,
            elapsed_ms: verdict.elapsed_ms,
            sentence: verdict.sentence.clone(),
        })
    }
}

/// The record of one call: whether it succeeded, and where its time went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The name of the step or action; of a job without steps the job's name.
    pub name: String,
    /// The turn of the loop, counted from 1; `None` outside of a loop.
    pub turn: Option<u32>,
    /// Whether one of its ways succeeded.
    pub ok: bool,
    /// A fallback succeeded.
    pub degraded: bool,
    /// Why it failed, or what stopped it; `None` if it succeeded.
    pub said: Option<String>,
    /// Where its time went, in order.
    pub spent: Vec<SpentOn>,
}

/// The record of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The name of the step.
    pub name: String,
    /// Whether it succeeded; `None` if it has not started.
    pub ok: Option<bool>,
    /// A fallback succeeded.
    pub degraded: bool,
}

/// Where a job's time went, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpent {
    /// In earlier deliveries, with the pauses after them.
    #[serde(default)]
    pub earlier_ms: u64,
    /// In the queue, before all of its deliveries.
    pub queued_ms: u64,
    /// In attempts, those of a driver excepted.
    pub attempts_ms: u64,
    /// In pauses between attempts.
    pub backoff_ms: u64,
    /// In attempts of a loop's driver.
    pub driver_ms: u64,
    /// The number of attempts, those of a driver excepted.
    pub attempts: u64,
    /// The number of ways that a breaker refused.
    pub refused: u64,
}

impl JobSpent {
    /// The sentence that follows that of a limit of time.
    pub(crate) fn sentence(self) -> String {
        let JobSpent { earlier_ms, queued_ms, attempts_ms, backoff_ms, driver_ms, attempts, .. } = self;
        let driver =
            if driver_ms > 0 { format!(", {} to the driver", time(driver_ms)) } else { String::new() };
        let earlier = if earlier_ms > 0 {
            format!("{} to earlier deliveries, ", time(earlier_ms))
        } else {
            String::new()
        };
        let attempts = counted(attempts, "attempt");
        format!(
            " Of its time {} went to {attempts}, {} to pauses between them{driver}, {earlier}{} to waiting for a worker.",
            time(attempts_ms),
            time(backoff_ms),
            time(queued_ms)
        )
    }

    /// Adds what a part of the job took.
    pub(crate) fn add(&mut self, part: JobSpent) {
        self.earlier_ms += part.earlier_ms;
        self.queued_ms += part.queued_ms;
        self.attempts_ms += part.attempts_ms;
        self.backoff_ms += part.backoff_ms;
        self.driver_ms += part.driver_ms;
        self.attempts += part.attempts;
        self.refused += part.refused;
    }
}

/// A file that a job has left, which its store keeps until another delivery of the job, or until
/// the job is removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    /// The path below the job's directory.
    pub name: String,
    /// The size of its content.
    pub bytes: u64,
    /// The SHA-256 digest of its content, in lower-case hexadecimal digits.
    pub sha256: String,
}

/// A file or pattern of `outputs` that is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFileRefused {
    /// The path of the file, or the pattern that matches no file.
    pub name: String,
    /// Why it is not stored.
    pub reason: String,
}

/// The result of a job, or of one delivery of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    /// How the job ended.
    pub status: JobStatus,
    /// Whether it succeeded: [`status`](Self::status) is [`JobStatus::Ok`].
    pub ok: bool,
    /// Why it did not succeed, in a sentence.
    pub error: Option<String>,
    /// The limit that ended it, if one did.
    pub verdict: Option<JobVerdict>,
    /// The value with which a loop's driver ended, or that the last handler returned.
    pub value: Option<Value>,
    /// Whether one of its calls succeeded by a fallback.
    pub degraded: bool,
    /// The number of turns that have begun; `None` without a loop.
    pub turns: Option<u32>,
    /// The steps, in the order of execution; empty without steps.
    pub steps: Vec<StepRecord>,
    /// The latest calls, at most 100.
    pub calls: Vec<CallRecord>,
    /// The number of earlier calls that are not among them.
    pub calls_dropped: u64,
    /// The number of bytes of the log that could not be stored.
    #[serde(default)]
    pub log_bytes_dropped: u64,
    /// The state of the job's breakers at its end.
    pub breakers: Vec<BreakerSnapshot>,
    /// Where its time went.
    pub spent: JobSpent,
    /// The Outcome of the last run, if there was one.
    pub outcome: Option<Outcome>,
    /// The files that are stored.
    #[serde(default)]
    pub files: Vec<JobFile>,
    /// What of `outputs` is not stored, each with the reason.
    #[serde(default)]
    pub files_refused: Vec<JobFileRefused>,
    /// Why its worker returned the job without a start, if the worker could not read the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<UnreadableSpec>,
}

impl JobResult {
    /// Makes a result that has nothing but a status and an error.
    pub fn bare(status: JobStatus, error: Option<String>) -> Self {
        JobResult {
            status,
            ok: status == JobStatus::Ok,
            error,
            verdict: None,
            value: None,
            degraded: false,
            turns: None,
            steps: Vec::new(),
            calls: Vec::new(),
            calls_dropped: 0,
            log_bytes_dropped: 0,
            breakers: Vec::new(),
            spent: JobSpent::default(),
            outcome: None,
            files: Vec::new(),
            files_refused: Vec::new(),
            unreadable: None,
        }
    }

    /// Makes the result of a job whose deadline passed before it started, or started again.
    pub fn overdue(id: &str, limit_ms: u64, elapsed_ms: u64, earlier_ms: u64, deliveries: u32) -> Self {
        Self::queued(id, limit_ms, elapsed_ms, earlier_ms, sentences::overdue(limit_ms, deliveries))
    }

    /// Makes the result of a job that was not started because it could not have ended in time: the
    /// quickest job of its kind took `shortest_ms`.
    pub fn too_late(id: &str, limit_ms: u64, elapsed_ms: u64, earlier_ms: u64, shortest_ms: u64) -> Self {
        let left_ms = limit_ms.saturating_sub(elapsed_ms);
        Self::queued(
            id,
            limit_ms,
            elapsed_ms,
            earlier_ms,
            sentences::too_late(limit_ms, left_ms, shortest_ms),
        )
    }

    fn queued(id: &str, limit_ms: u64, elapsed_ms: u64, earlier_ms: u64, sentence: String) -> Self {
        let verdict = JobVerdict {
            kind: LimitKind::Wall,
            layer: Layer::Job,
            source: Source::Call,
            scope: format!("job/{id}"),
            phase: JobPhase::Queued,
            limit_ms: Some(limit_ms),
            limit: None,
            elapsed_ms,
            sentence: sentence.clone(),
        };
        // Its last pause may not be over.
        let earlier_ms = earlier_ms.min(elapsed_ms);
        let queued_ms = elapsed_ms - earlier_ms;
        let spent = JobSpent { earlier_ms, queued_ms, ..JobSpent::default() };
        JobResult { verdict: Some(verdict), spent, ..JobResult::bare(JobStatus::Timeout, Some(sentence)) }
    }
}
