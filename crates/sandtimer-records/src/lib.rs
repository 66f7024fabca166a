//! What of runs outlives a process: their records, in files of one directory, and their durations,
//! in an SQLite database.
//!
//! It starts nothing, waits only for the disk, and knows neither HTTP nor which clients may read a
//! record.
//!
//! # The main types
//!
//! - [`RunStore`] is the directory of run records, which one server writes at a time; a
//!   [`StoredRun`] is a record in it.
//! - [`DurationStore`] is the file of durations, which several processes share.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod directory;
mod durations;
mod journal;
mod record;
mod runs;
mod spares;
mod write_ahead;

pub use directory::{MCP_DIRECTORY, default_state_directory, named_state_directory, own_name};
pub use durations::{DurationStore, KnownDurations, OpenedDurations};
pub use journal::Journal;
pub use record::{RunEnd, RunStart, StoredRun};
pub use runs::{OpenedRunStore, RunStore, StoreError, bare_outcome};
pub use write_ahead::write_ahead;
