//! The states of a job.

use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for its earliest start, or for other jobs.
    Scheduled,
    /// It waits for a worker.
    Queued,
    /// A worker has it.
    Leased,
    /// There is a result.
    Ended,
    /// It was handed out too often without a result: a dead letter.
    Dead,
    /// It was cancelled, by a caller or because a job that it waited for did not succeed.
    Cancelled,
}

impl JobState {
    /// All states, those of jobs that have not ended first.
    pub const ALL: [JobState; 6] = [
        JobState::Scheduled,
        JobState::Queued,
        JobState::Leased,
        JobState::Ended,
        JobState::Dead,
        JobState::Cancelled,
    ];

    /// Returns the name on wires, such as `queued`.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Scheduled => "scheduled",
            JobState::Queued => "queued",
            JobState::Leased => "leased",
            JobState::Ended => "ended",
            JobState::Dead => "dead",
            JobState::Cancelled => "cancelled",
        }
    }

    /// Returns the state of this name; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        JobState::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the job has ended, in whatever way.
    pub fn is_over(self) -> bool {
        matches!(self, JobState::Ended | JobState::Dead | JobState::Cancelled)
    }
}

/// A state as listings print it, and as a filter names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownState {
    /// The state.
    pub state: JobState,
    /// Of [`JobState::Ended`], whether the job succeeded; `None` is both.
    pub ok: Option<bool>,
    /// Of [`JobState::Leased`], whether the job is being cancelled; `None` is both.
    pub cancel: Option<bool>,
}

impl ShownState {
    /// All names; `leased` is `running` and `ending`, `ended` is `ok` and `failed`.
    pub const NAMES: [&'static str; 10] =
        ["scheduled", "queued", "running", "ending", "leased", "ok", "failed", "ended", "dead", "cancelled"];

    /// Returns the state of one of [`ShownState::NAMES`]; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        let of = |state, ok, cancel| Some(ShownState { state, ok, cancel });
        match name {
            "running" => of(JobState::Leased, None, Some(false)),
            "ending" => of(JobState::Leased, None, Some(true)),
            "ok" => of(JobState::Ended, Some(true), None),
            "failed" => of(JobState::Ended, Some(false), None),
            _ => JobState::from_name(name).and_then(|state| of(state, None, None)),
        }
    }
}
