//! What outlives a process: the records of runs, in files of one directory; their durations, and jobs, in SQLite databases, or
//! jobs in a log on a NATS server.
//!
//! It starts nothing, waits for nothing but the disk and that server, and knows neither HTTP nor who may see a record.
#![forbid(unsafe_code)]

mod base64_text;
#[cfg(test)]
mod conformance;
mod directory;
mod durations;
mod journal;
#[cfg(feature = "nats")]
mod nats;
mod record;
mod runs;
mod spares;
mod sqlite;

pub use directory::{MCP_DIRECTORY, default_state_directory, named_state_directory, own_name};
pub use durations::{DurationStore, KnownDurations, OpenedDurations};
pub use journal::Journal;
#[cfg(feature = "nats")]
pub use nats::{NatsAddress, NatsJobs};
pub use record::{RunStart, RunEnd, StoredRun};
pub use runs::{OpenedRunStore, RunStore, StoreError, bare_outcome};
pub use sqlite::SqliteJobs;
