//! The part that extracts progress from a run's output and reports as they arrive.
//!
//! The collector's thread calls it for every piece, so it must not wait, and its cost delays every
//! run. Its results are claims of the job: they may be shown to clients, and may keep a run from
//! being stalled if the caller chose that.

use crate::model::Progress;

/// Follows one run's captured output.
pub(crate) trait Follower: std::fmt::Debug + Send + Sync {
    /// The run, which began at `started`, has written this. Times are monotonic nanoseconds.
    fn output(&self, stream: usize, bytes: &[u8], started: u64, now: u64);

    /// It has reported this line.
    fn report(&self, line: &[u8], started: u64, now: u64);

    /// How far it is, and how likely it is done by `deadline`.
    fn progress(&self, deadline: Option<u64>, now: u64) -> Option<Progress>;

    /// When it last got further; 0 for never.
    fn advanced_at(&self) -> u64;

    /// In which order it has written to its streams since this was last asked, as far as that is
    /// known.
    fn take_write_sequence(&self) -> Vec<OutputPiece>;
}

/// A piece of output: where it ends in its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputPiece {
    /// 0 for stdout, 1 for stderr.
    pub stream: usize,
    /// The position in the stream after the piece, in bytes.
    pub end: u64,
}
