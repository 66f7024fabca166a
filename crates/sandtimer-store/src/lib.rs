//! What outlives a process: the records of runs, in files of one directory.
//!
//! It starts nothing, waits for nothing but the disk, and knows neither HTTP nor who may see a record.
#![forbid(unsafe_code)]

mod journal;
mod record;
mod runs;

pub use journal::Journal;
pub use record::{Begun, Ended, StoredRun};
pub use runs::{Opened, RunStore, StoreError, bare_outcome};
