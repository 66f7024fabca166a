//! One at a time, in the order of asking.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: Mutex<(VecDeque<u64>, u64)>,
    changed: Condvar,
}

/// Ends with the turn.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Turns, u64);

impl Turns {
    /// Waits for the turn.
    pub fn take(&self) -> Turn<'_> {
        let mut state = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let own = state.1;
        state.1 += 1;
        state.0.push_back(own);
        while state.0.front() != Some(&own) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self, own)
    }

    /// The turn, if it is nobody's.
    pub fn take_free(&self) -> Option<Turn<'_>> {
        let mut state = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.0.is_empty() {
            return None;
        }
        let own = state.1;
        state.1 += 1;
        state.0.push_back(own);
        Some(Turn(self, own))
    }

    /// How many wait, beside the one whose turn it is.
    pub fn waiting(&self) -> usize {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).0.len().saturating_sub(1)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.retain(|other| *other != self.1);
        drop(state);
        self.0.changed.notify_all();
    }
}
