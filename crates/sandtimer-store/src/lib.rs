//! What outlives a process: the records of runs, in files of one directory, and jobs, in an SQLite database.
//!
//! It starts nothing, waits for nothing but the disk, and knows neither HTTP nor who may see a record.
#![forbid(unsafe_code)]

#[cfg(test)]
mod conformance;
mod journal;
mod record;
mod runs;
mod sqlite;

pub use journal::Journal;
pub use record::{Begun, Ended, StoredRun};
pub use runs::{Opened, RunStore, StoreError, bare_outcome};
pub use sqlite::SqliteJobs;
