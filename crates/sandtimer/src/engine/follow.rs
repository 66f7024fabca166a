//! Follows a run's captured output and its reports for its progress.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::model::Progress;
use crate::supervise::follower::Follower;
use crate::task::progress::{Report, Tracker};
use crate::time::Moment;

/// The progress of one run; nothing until it writes something.
#[derive(Debug, Default)]
pub(super) struct Following {
    tracker: Mutex<Option<Box<Tracker>>>,
    advanced_at: AtomicU64,
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
}
