//! Follows a run's captured output and its reports: for its progress, and for the order of what it has written to both streams.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::model::Progress;
use crate::progress::{Report, Tracker};
use crate::supervise::follower::{Follower, Written};
use crate::time::Moment;

/// Pieces whose order is remembered until it is read; of earlier ones it is lost. Most runs have no reader of it.
const MAX_PIECES: usize = 256;
const MAX_PIECES_FOR_READER: usize = 16_384;

/// The progress of one run; nothing until it writes something.
#[derive(Debug, Default)]
pub(super) struct Following {
    tracker: Mutex<Option<Box<Tracker>>>,
    advanced_at: AtomicU64,
    order: Mutex<Order>,
}

/// In which order the streams were written.
#[derive(Debug, Default)]
struct Order {
    ends: [u64; 2],
    pieces: VecDeque<Written>,
    has_reader: bool,
}

impl Order {
    fn note(&mut self, stream: usize, bytes: usize) {
        self.ends[stream] += bytes as u64;
        let end = self.ends[stream];
        match self.pieces.back_mut() {
            Some(last) if last.stream == stream => last.end = end,
            _ => self.pieces.push_back(Written { stream, end }),
        }
        if self.pieces.len() > if self.has_reader { MAX_PIECES_FOR_READER } else { MAX_PIECES } {
            self.pieces.pop_front();
        }
    }
}

impl Following {
    fn track(&self, started: u64, now: u64, hear: impl FnOnce(&mut Tracker)) {
        let mut tracker = self.tracker.lock().unwrap_or_else(PoisonError::into_inner);
        let tracker =
            tracker.get_or_insert_with(|| Box::new(Tracker::new(Moment::from_nanos(started.min(now)))));
        let before = tracker.advances();
        hear(tracker);
        if tracker.advances() > before {
            self.advanced_at.store(now, Ordering::Relaxed);
        }
    }
}

impl Follower for Following {
    fn output(&self, stream: usize, bytes: &[u8], started: u64, now: u64) {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).note(stream, bytes.len());
        self.track(started, now, |tracker| tracker.feed(stream, bytes, Moment::from_nanos(now)));
    }

    fn report(&self, line: &[u8], started: u64, now: u64) {
        if let Some(report) = Report::parse(line) {
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

    fn take_order(&self) -> Vec<Written> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.has_reader = true;
        order.pieces.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_both_streams_is_taken_once() {
        let following = Following::default();
        for (stream, bytes) in [(0, "ab"), (0, "c"), (1, "error"), (0, "d")] {
            following.output(stream, bytes.as_bytes(), 1, 2);
        }
        let written = |stream, end| Written { stream, end };
        assert_eq!(following.take_order(), [written(0, 3), written(1, 5), written(0, 4)]);
        following.output(0, b"e", 1, 3);
        assert_eq!(following.take_order(), [written(0, 5)]);
        for piece in 0..2 * MAX_PIECES {
            following.output(piece % 2, b"x", 1, 4);
        }
        assert_eq!(following.take_order().len(), 2 * MAX_PIECES, "it has a reader");
        for piece in 0..2 * MAX_PIECES_FOR_READER {
            following.output(piece % 2, b"x", 1, 5);
        }
        assert_eq!(following.take_order().len(), MAX_PIECES_FOR_READER);
        let unread = Following::default();
        for piece in 0..2 * MAX_PIECES {
            unread.output(piece % 2, b"x", 1, 6);
        }
        assert_eq!(unread.take_order().len(), MAX_PIECES);
    }
}
