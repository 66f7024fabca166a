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
    Ok,
    /// A program failed, after its retries and fallbacks; `verdict` is set if a limit of bytes or
    /// numbers ended it.
    Failed,
    /// A limit of time ended it: the job's, a loop's or a call's, or that of its last run.
    Timeout,
    /// A count of a loop's turns or failures was used up.
    Budget,
    Cancelled,
    /// Sandtimer could not do its part.
    InfraError,
    /// The worker's lease was lost before there was a result.
    Lost,
    /// The worker had to end before there was a result, and gave the job back.
    Drained,
}

/// Where in its life a limit caught the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    Queued,
    Running,
    Backoff,
}

/// The limit that ended a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobVerdict {
    pub kind: LimitKind,
    pub layer: Layer,
    /// Where the limit came from; `call` is the job's spec.
    #[serde(default = "from_the_spec")]
    pub source: Source,
    /// The path of the scope, such as `job/7f3/loop/turn-5`.
    pub scope: String,
    pub phase: JobPhase,
    /// For limits of time.
    pub limit_ms: Option<u64>,
    /// For counts.
    pub limit: Option<u64>,
    pub elapsed_ms: u64,
    pub sentence: String,
}

fn from_the_spec() -> Source {
    Source::Call
}

impl JobVerdict {
    /// Of the limit that ended a run, and with it the job.
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

/// One call: what was tried, and where its time went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The step or action.
    pub name: String,
    pub turn: Option<u32>,
    pub ok: bool,
    /// By a fallback.
    pub degraded: bool,
    pub said: Option<String>,
    pub spent: Vec<SpentOn>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    pub name: String,
    /// `None` where it was not begun.
    pub ok: Option<bool>,
    pub degraded: bool,
}

/// Where a job's time went, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpent {
    /// From submission, or its earliest start, to the lease.
    pub queued_ms: u64,
    pub attempts_ms: u64,
    pub backoff_ms: u64,
    /// The driver of a loop.
    pub driver_ms: u64,
    /// How many attempts were made.
    pub attempts: u64,
    /// Calls that a breaker refused.
    pub refused: u64,
}

impl JobSpent {
    /// The sentence that follows that of a limit of time.
    pub(crate) fn sentence(self) -> String {
        let JobSpent { queued_ms, attempts_ms, backoff_ms, driver_ms, attempts, .. } = self;
        let driver =
            if driver_ms > 0 { format!(", {} to the driver", time(driver_ms)) } else { String::new() };
        let attempts = counted(attempts, "attempt");
        format!(
            " Of its time {} went to {attempts}, {} to pauses between them{driver}, {} to waiting for a worker.",
            time(attempts_ms),
            time(backoff_ms),
            time(queued_ms)
        )
    }

    /// Adds what a part of the job took.
    pub(crate) fn add(&mut self, part: JobSpent) {
        self.queued_ms += part.queued_ms;
        self.attempts_ms += part.attempts_ms;
        self.backoff_ms += part.backoff_ms;
        self.driver_ms += part.driver_ms;
        self.attempts += part.attempts;
        self.refused += part.refused;
    }
}

/// A file that a job has left, kept by its store until another delivery of the job, or its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    /// Below the job's directory.
    pub name: String,
    pub bytes: u64,
    /// Of its content, in hexadecimal digits.
    pub sha256: String,
}

/// What was asked for and is not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFileRefused {
    /// A file's, or the pattern that names none.
    pub name: String,
    pub reason: String,
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobResult {
    pub status: JobStatus,
    pub ok: bool,
    pub error: Option<String>,
    pub verdict: Option<JobVerdict>,
    /// The final value of a loop's driver, or what the last handler returned.
    pub value: Option<Value>,
    /// Something was done by a fallback.
    pub degraded: bool,
    pub turns: Option<u32>,
    pub steps: Vec<StepRecord>,
    /// The latest calls.
    pub calls: Vec<CallRecord>,
    /// Earlier ones that are not among them.
    pub calls_dropped: u64,
    /// Bytes of the log that the store could not take.
    #[serde(default)]
    pub log_bytes_dropped: u64,
    /// The job's breakers in the end.
    pub breakers: Vec<BreakerSnapshot>,
    pub spent: JobSpent,
    /// Of the last run.
    pub outcome: Option<Outcome>,
    /// What of its files is kept.
    #[serde(default)]
    pub files: Vec<JobFile>,
    /// What of `outputs` is not, each with the reason.
    #[serde(default)]
    pub files_refused: Vec<JobFileRefused>,
    /// Why its worker returned the job without a start, if the worker could not read the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<UnreadableSpec>,
}

impl JobResult {
    /// One without anything but its status.
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

    /// Of a job whose deadline passed before it was begun, or begun again.
    pub fn overdue(id: &str, limit_ms: u64, elapsed_ms: u64, deliveries: u32) -> Self {
        Self::queued(id, limit_ms, elapsed_ms, sentences::overdue(limit_ms, deliveries))
    }

    /// Of a job that was not begun because it would not have been done: the quickest of its like
    /// took `shortest_ms`.
    pub fn too_late(id: &str, limit_ms: u64, elapsed_ms: u64, shortest_ms: u64) -> Self {
        let left_ms = limit_ms.saturating_sub(elapsed_ms);
        Self::queued(id, limit_ms, elapsed_ms, sentences::too_late(limit_ms, left_ms, shortest_ms))
    }

    fn queued(id: &str, limit_ms: u64, elapsed_ms: u64, sentence: String) -> Self {
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
        let spent = JobSpent { queued_ms: elapsed_ms, ..JobSpent::default() };
        JobResult { verdict: Some(verdict), spent, ..JobResult::bare(JobStatus::Timeout, Some(sentence)) }
    }
}
