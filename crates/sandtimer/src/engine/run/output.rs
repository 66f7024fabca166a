//! Captured output of a run.

use std::sync::PoisonError;

use crate::engine::error::Error;
use crate::supervise::output::{Chunk, SharedSpool};

/// An output stream of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, descriptor 1.
    Stdout,
    /// Standard error, descriptor 2.
    Stderr,
}

/// The captured output of a run, for callers that need nothing else of it.
#[derive(Debug)]
pub struct RunOutput {
    pub(super) spools: [Option<SharedSpool>; 2],
}

impl RunOutput {
    /// As [`Run::output`](super::Run::output).
    ///
    /// # Errors
    /// When spilled output cannot be read back.
    pub fn read(&self, stream: Stream, cursor: u64, most: usize) -> Result<Chunk, Error> {
        read_output(&self.spools, stream, cursor, most)
    }
}

pub(super) fn read_output(
    spools: &[Option<SharedSpool>; 2],
    stream: Stream,
    cursor: u64,
    most: usize,
) -> Result<Chunk, Error> {
    let empty = Chunk { bytes: Vec::new(), next_cursor: cursor, dropped_before: 0 };
    let Some(spool) = &spools[stream as usize] else { return Ok(empty) };
    let spool = spool.lock().unwrap_or_else(PoisonError::into_inner);
    spool.read(cursor, most).map_err(Error::system("cannot read the run's output"))
}
