//! Where durations are kept from one process to the next.

use serde::{Deserialize, Serialize};

use super::question::Question;

/// A run that has ended, as estimates count it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedRun {
    /// What was run, under the conditions in which it ran.
    pub question: Question,
    /// The seconds until it ended, or until it was stopped.
    pub seconds: f64,
    /// Whether a limit, a cancel or a crash ended it.
    pub stopped: bool,
    /// When it ended, in milliseconds since 1970.
    pub ended_at_ms: u64,
}

/// Why durations cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HistoryError(pub Box<dyn std::error::Error + Send + Sync>);

/// A store of durations, which outlives a process.
pub trait History: std::fmt::Debug + Send + Sync {
    /// Adds a run.
    ///
    /// # Errors
    /// If it cannot be written.
    fn append(&self, run: &FinishedRun) -> Result<(), HistoryError>;

    /// Returns the newest runs, at most `most`, the oldest of them first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn newest(&self, most: usize) -> Result<Vec<FinishedRun>, HistoryError>;
}
