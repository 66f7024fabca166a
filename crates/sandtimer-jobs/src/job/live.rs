//! Workers as a store lists them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a worker counts as live after it last announced itself: 90 s.
pub const LIVE_TIME: Duration = Duration::from_secs(90);

/// The facts that a worker announces to its store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerFacts {
    /// The name by which its jobs show it.
    pub name: String,
    /// The number of jobs at a time.
    pub slots: usize,
    /// The version of its program.
    pub version: String,
    /// The queues from which it takes jobs; all of them if it is empty.
    pub queues: Vec<String>,
    /// The memory, in bytes, for the runs of jobs that limit theirs; `None` is unlimited.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The names of its handlers.
    #[serde(default)]
    pub handlers: Vec<String>,
}

/// A worker that has announced itself within [`LIVE_TIME`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveWorker {
    /// What it announced.
    #[serde(flatten)]
    pub facts: WorkerFacts,
    /// When it last announced itself, in milliseconds since 1970.
    pub seen_ms: u64,
    /// The ids of the jobs that it has.
    pub jobs: Vec<String>,
}
