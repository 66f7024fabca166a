//! One at a time, in the order of asking.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: Mutex<(VecDeque<u64>, u64)>,
    changed: Condvar,
}

/// A place in the order of a context's runs; dropping it gives it up.
#[derive(Debug)]
pub struct Turn(Arc<Turns>, u64);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<u64>, u64)> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place behind all others.
    pub fn enter(self: &Arc<Self>) -> Turn {
        let mut state = self.lock();
        let own = state.1;
        state.1 += 1;
        state.0.push_back(own);
        self.changed.notify_all();
        Turn(self.clone(), own)
    }

    /// The turn, if it is nobody's.
    pub fn enter_free(self: &Arc<Self>) -> Option<Turn> {
        let turn = self.enter();
        let is_free = self.lock().0.front() == Some(&turn.1);
        is_free.then_some(turn)
    }

    /// Whether it stays nobody's for so long.
    pub fn is_free_for(&self, time: Duration) -> bool {
        let free = |state: &mut (VecDeque<u64>, u64)| state.0.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), time, free);
        waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// How many wait, beside the one whose turn it is.
    pub fn waiting(&self) -> usize {
        self.lock().0.len().saturating_sub(1)
    }
}

impl Turn {
    /// Whether all others that came before are gone.
    pub(super) fn has_come(&self) -> bool {
        self.0.lock().0.front() == Some(&self.1)
    }

    /// Waits until all others that came before are gone.
    pub(super) fn wait(&self) {
        let mut state = self.0.lock();
        while state.0.front() != Some(&self.1) {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().0.retain(|other| *other != self.1);
        self.0.changed.notify_all();
    }
}
