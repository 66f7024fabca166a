//! Follows a run's captured output and its reports: for its progress, and for the order of what it
//! has written to both streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::model::Progress;
use crate::progress::{ProgressReport, Tracker};
use crate::supervise::follower::{Follower, OutputPiece};
use crate::time::Moment;

/// Pieces whose order is remembered until it is read; of earlier ones it is lost. Most runs have no
/// reader of it.
const MAX_PIECES: usize = 256;
const MAX_PIECES_FOR_READER: usize = 16_384;

/// The progress of one run; nothing until it writes something.
#[derive(Debug, Default)]
pub(super) struct ProgressFollower {
    tracker: Mutex<Option<Box<Tracker>>>,
    advanced_at: AtomicU64,
    sequence: Mutex<WriteSequence>,
}

/// In which order the streams were written.
#[derive(Debug, Default)]
struct WriteSequence {
    ends: [u64; 2],
    pieces: VecDeque<OutputPiece>,
    has_reader: bool,
}

impl WriteSequence {
    fn note(&mut self, stream: usize, bytes: usize) {
        self.ends[stream] += bytes as u64;
        let end = self.ends[stream];
        match self.pieces.back_mut() {
            Some(last) if last.stream == stream => last.end = end,
            _ => self.pieces.push_back(OutputPiece { stream, end }),
        }
        if self.pieces.len() > if self.has_reader { MAX_PIECES_FOR_READER } else { MAX_PIECES } {
            self.pieces.pop_front();
        }
    }
}

impl ProgressFollower {
    fn track(&self, started: u64, now: u64, update: impl FnOnce(&mut Tracker)) {
        let mut tracker = self.tracker.lock().unwrap_or_else(PoisonError::into_inner);
        let tracker =
            tracker.get_or_insert_with(|| Box::new(Tracker::new(Moment::from_nanos(started.min(now)))));
        let before = tracker.advances();
        update(tracker);
        if tracker.advances() > before {
            self.advanced_at.store(now, Ordering::Relaxed);
        }
    }
}

impl Follower for ProgressFollower {
    fn output(&self, stream: usize, bytes: &[u8], started: u64, now: u64) {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner).note(stream, bytes.len());
        self.track(started, now, |tracker| tracker.feed(stream, bytes, Moment::from_nanos(now)));
    }

    fn report(&self, line: &[u8], started: u64, now: u64) {
        if let Some(report) = ProgressReport::parse(line) {
            self.track(started, now, |tracker| tracker.report(report, Moment::from_nanos(now)));
        }
    }

    fn progress(&self, deadline: Option<u64>, now: u64) -> Option<Progress> {
        let tracker = self.tracker.lock().unwrap_or_else(PoisonError::into_inner);
        tracker.as_ref()?.progress_until(deadline.map(Moment::from_nanos), Moment::from_nanos(now))
    }

    fn advanced_at(&self) -> u64 {
        self.advanced_at.load(Ordering::Relaxed)
    }

    fn take_write_sequence(&self) -> Vec<OutputPiece> {
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        sequence.has_reader = true;
        sequence.pieces.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_sequence_of_both_streams_is_taken_once() {
        let following = ProgressFollower::default();
        for (stream, bytes) in [(0, "ab"), (0, "c"), (1, "error"), (0, "d")] {
            following.output(stream, bytes.as_bytes(), 1, 2);
        }
        let written = |stream, end| OutputPiece { stream, end };
        assert_eq!(following.take_write_sequence(), [written(0, 3), written(1, 5), written(0, 4)]);
        following.output(0, b"e", 1, 3);
        assert_eq!(following.take_write_sequence(), [written(0, 5)]);
        for piece in 0..2 * MAX_PIECES {
            following.output(piece % 2, b"x", 1, 4);
        }
        assert_eq!(following.take_write_sequence().len(), 2 * MAX_PIECES, "it has a reader");
        for piece in 0..2 * MAX_PIECES_FOR_READER {
            following.output(piece % 2, b"x", 1, 5);
        }
        assert_eq!(following.take_write_sequence().len(), MAX_PIECES_FOR_READER);
        let unread = ProgressFollower::default();
        for piece in 0..2 * MAX_PIECES {
            unread.output(piece % 2, b"x", 1, 6);
        }
        assert_eq!(unread.take_write_sequence().len(), MAX_PIECES);
    }
}
