//! Where durations are kept from one process to the next.

use serde::{Deserialize, Serialize};

use super::question::Question;

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedRun {
    /// What it was a run of, under the conditions it ran in.
    pub question: Question,
    /// How long it took, or took until it was stopped.
    pub seconds: f64,
    /// It did not come to its end by itself: a limit, a cancel or a crash ended it.
    pub stopped: bool,
    /// Milliseconds since 1970.
    pub ended_at_ms: u64,
}

/// Why durations cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HistoryError(pub Box<dyn std::error::Error + Send + Sync>);

/// Keeps durations.
pub trait History: std::fmt::Debug + Send + Sync {
    /// Adds a run.
    ///
    /// # Errors
    /// When it cannot be written.
    fn append(&self, run: &FinishedRun) -> Result<(), HistoryError>;

    /// The newest runs, at most `most`, the oldest of them first.
    ///
    /// # Errors
    /// When they cannot be read.
    fn newest(&self, most: usize) -> Result<Vec<FinishedRun>, HistoryError>;
}
