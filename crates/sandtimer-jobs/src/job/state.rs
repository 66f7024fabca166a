//! The states of a job.

use serde::{Deserialize, Serialize};

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its earliest start is ahead.
    Scheduled,
    Queued,
    /// A worker has it.
    Leased,
    /// There is a result.
    Ended,
    /// It was handed out too often without a result: a dead letter.
    Dead,
    Cancelled,
}

impl JobState {
    pub const ALL: [JobState; 6] = [
        JobState::Scheduled,
        JobState::Queued,
        JobState::Leased,
        JobState::Ended,
        JobState::Dead,
        JobState::Cancelled,
    ];

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

    pub fn from_name(name: &str) -> Option<Self> {
        JobState::ALL.into_iter().find(|state| state.name() == name)
    }

    pub fn is_over(self) -> bool {
        matches!(self, JobState::Ended | JobState::Dead | JobState::Cancelled)
    }
}

/// A state as listings print it, and as it may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownState {
    pub state: JobState,
    /// Of those that have ended, whether well.
    pub ok: Option<bool>,
    /// For leased jobs, whether a caller has cancelled them.
    pub cancel: Option<bool>,
}

impl ShownState {
    /// `leased` is `running` and `ending`, `ended` is `ok` and `failed`.
    pub const NAMES: [&'static str; 10] =
        ["scheduled", "queued", "running", "ending", "leased", "ok", "failed", "ended", "dead", "cancelled"];

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
