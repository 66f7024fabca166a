//! A run that has ended, as the server holds it: on the disk, or in memory where the disk did not
//! take it.

use std::io;
use std::sync::Arc;

use sandtimer::Run;
use sandtimer::engine::Stream;
use sandtimer::model::{Ending, Outcome, RemainingState, Usage};
use sandtimer::supervise::output::Chunk;
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_records::{StoredRun, bare_outcome};
use serde_json::json;

use crate::body::json_bytes;
use crate::error::{ApiRejection, Code, storage};

#[derive(Debug, Clone)]
pub(crate) enum Record {
    Disk(StoredRun),
    Memory {
        run: Arc<Run>,
        outcome: Arc<Outcome>,
        ended_at_ms: u64,
    },
    /// It never began, and has no record.
    Unbegun {
        outcome: Arc<Outcome>,
        ended_at_ms: u64,
    },
}

impl Record {
    /// Of a run that was cancelled while it waited for its turn.
    pub fn unbegun(run_id: &str, reason: &str, queued_ms: u64) -> Self {
        let message = format!("Cancelled before it began: {reason}.");
        let error = json!({"code": "cancelled", "message": message});
        let bare = bare_outcome(run_id, Ending::Cancelled, error, "it did not begin");
        let usage = Usage { queued_ms, ..bare.usage.clone() };
        let outcome = Arc::new(Outcome { state: RemainingState::Kept, usage, ..bare });
        Record::Unbegun { outcome, ended_at_ms: calendar_milliseconds() }
    }

    pub fn ended_at_ms(&self) -> u64 {
        match self {
            Record::Disk(stored) => stored.ended().ended_at_ms,
            Record::Memory { ended_at_ms, .. } | Record::Unbegun { ended_at_ms, .. } => *ended_at_ms,
        }
    }

    /// Bytes that the Outcome takes, and has to be read for.
    pub fn bytes(&self) -> u64 {
        match self {
            Record::Disk(stored) => stored.bytes_on_disk(),
            Record::Memory { outcome, .. } | Record::Unbegun { outcome, .. } => {
                (outcome.stdout.len() + outcome.stderr.len()) as u64 + value_bytes(outcome)
            }
        }
    }

    /// Bytes that the Outcome without its output takes, and has to be read for.
    pub fn head_bytes(&self) -> u64 {
        match self {
            Record::Disk(stored) => stored.head_bytes_on_disk(),
            Record::Memory { outcome, .. } | Record::Unbegun { outcome, .. } => value_bytes(outcome),
        }
    }

    /// The Outcome without its output.
    pub async fn outcome_without_output(&self) -> Result<Outcome, ApiRejection> {
        match self {
            Record::Memory { outcome, .. } | Record::Unbegun { outcome, .. } => {
                Ok(Outcome { stdout: String::new(), stderr: String::new(), ..(**outcome).clone() })
            }
            Record::Disk(stored) if stored.head_bytes_on_disk() == 0 => {
                // It is in memory.
                stored
                    .outcome_without_output()
                    .map_err(|error| storage("the run's record cannot be read", &error))
            }
            Record::Disk(stored) => {
                let stored = stored.clone();
                on_disk(move || stored.outcome_without_output()).await
            }
        }
    }

    /// The Outcome, whose output, value, error and results may be left out.
    pub fn facts(&self) -> &Outcome {
        match self {
            Record::Disk(stored) => &stored.ended().outcome,
            Record::Memory { outcome, .. } | Record::Unbegun { outcome, .. } => outcome,
        }
    }

    /// The whole Outcome.
    pub async fn outcome(&self) -> Result<Arc<Outcome>, ApiRejection> {
        match self {
            Record::Memory { outcome, .. } | Record::Unbegun { outcome, .. } => Ok(outcome.clone()),
            Record::Disk(stored) => {
                if let Some(outcome) = stored.outcome_in_memory() {
                    return Ok(Arc::new(outcome.clone()));
                }
                let stored = stored.clone();
                let outcome = on_disk(move || stored.outcome()).await?;
                Ok(Arc::new(outcome))
            }
        }
    }

    /// Output from a position.
    pub async fn output(&self, stream: Stream, cursor: u64, most: usize) -> Result<Chunk, ApiRejection> {
        match self {
            Record::Memory { run, .. } => Ok(run.output(stream, cursor, most)?),
            Record::Unbegun { .. } => Ok(nothing()),
            Record::Disk(stored) => {
                let stored = stored.clone();
                on_disk(move || stored.output(stream, cursor, most)).await
            }
        }
    }
}

/// Bytes of the value, the error and the results of an Outcome as JSON.
fn value_bytes(outcome: &Outcome) -> u64 {
    json_bytes(&(&outcome.value, &outcome.error, &outcome.results)) as u64
}

/// Reads on a thread that may wait for the disk.
async fn on_disk<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ApiRejection> {
    match tokio::task::spawn_blocking(read).await {
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            Err(ApiRejection::new(Code::RunNotFound, "the run was removed during this time"))
        }
        Ok(read) => read.map_err(|error| storage("the run's record cannot be read", &error)),
        Err(_) => Err(ApiRejection::new(Code::Internal, "the run's record cannot be read")),
    }
}

/// The output of what has not begun.
pub(super) fn nothing() -> Chunk {
    Chunk { bytes: Vec::new(), next_cursor: 0, dropped_before: 0 }
}
