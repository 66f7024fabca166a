//! The facts of one run, and the cause of its end.

use std::time::Duration;

use crate::model::{Enforcer, LimitKind, RemainingState};

/// Why a run ended. Decided once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The command ended by itself.
    Exit,
    /// A limit of this kind.
    Limit(LimitKind),
    /// The caller; with the reason it gave.
    Cancel(String),
    /// Sandtimer could not continue.
    Infrastructure(String),
    /// The job answered, and its answer was taken.
    Answer { raised: bool },
}

/// Init's notice of the command's end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    /// As wait(2) gives it.
    pub status: i32,
    pub user_microseconds: u64,
    pub system_microseconds: u64,
    pub resident_peak_kib: u64,
    pub at: u64,
}

/// A step of the plan that failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailedStep {
    pub number: u64,
    pub errno: i32,
    pub required: bool,
}

/// The facts that the holder of the run's [`RunEnding`](super::ending::RunEnding) has found; only
/// it writes them, and the collector gets them when the run is dead. Times are monotonic
/// nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunFacts {
    pub started_at: Option<u64>,
    pub exit: Option<Exit>,
    pub cause: Option<Cause>,
    pub enforced_by: Option<Enforcer>,
    /// When the verdict was published.
    pub verdict_at: u64,
    /// When it should have been at the latest.
    pub due_at: u64,
    pub signals: Vec<(&'static str, u64)>,
    pub killed: u64,
    /// How many of them a call or program had left when it ended by itself.
    pub leftovers: u64,
    pub killed_at: Option<u64>,
    pub dead_at: Option<u64>,
    /// Its death was not confirmed within the bounds: `Some(true)` once it counts as unkillable.
    pub overdue: Option<bool>,
    pub failed_steps: Vec<FailedStep>,
    pub execute_errno: Option<i32>,
    pub paused: Duration,
    /// The last sample of init, where no cgroup counts.
    pub sampled_cpu_microseconds: u64,
    pub sampled_processes: u64,
    pub sampled_resident_bytes: u64,
    /// How many init could not end in its sweep, where it swept.
    pub swept: Option<u64>,
    /// How many threads its interpreter had after that sweep.
    pub threads_left: u64,
    /// What remains of the interpreter's state, where the job was one of a live sandbox.
    pub state: Option<RemainingState>,
    /// Its live jail continues to exist.
    pub stands: bool,
    /// Init has found no residue of the job in its jail, which continues to exist.
    pub vacant: bool,
    /// Something of the job continues in its live sandbox.
    pub is_continuing: bool,
}

impl RunFacts {
    /// Whether the interpreter of its live sandbox continues, and not a checkpoint of that.
    pub fn is_interpreter_kept(&self) -> bool {
        self.stands && self.state == Some(RemainingState::Kept)
    }
}
