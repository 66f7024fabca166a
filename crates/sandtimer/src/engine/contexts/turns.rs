//! One at a time, in the order of asking.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a caller that waits for its turn checks whether it is still wanted.
const WITHDRAWAL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Turns {
    queue: Mutex<(VecDeque<u64>, u64)>,
    changed: Condvar,
}

/// A place in the order of a context's runs; dropping it gives it up.
#[derive(Debug)]
pub struct ContextTurn(Arc<Turns>, u64);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<u64>, u64)> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the last place.
    pub fn enter(self: &Arc<Self>) -> ContextTurn {
        let mut state = self.lock();
        let own = state.1;
        state.1 += 1;
        state.0.push_back(own);
        self.changed.notify_all();
        ContextTurn(self.clone(), own)
    }

    /// The turn, if no thread has it.
    pub fn enter_free(self: &Arc<Self>) -> Option<ContextTurn> {
        let turn = self.enter();
        let is_free = self.lock().0.front() == Some(&turn.1);
        is_free.then_some(turn)
    }

    /// Whether no thread takes the turn for this long.
    pub fn is_free_for(&self, time: Duration) -> bool {
        let free = |state: &mut (VecDeque<u64>, u64)| state.0.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), time, free);
        waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// How many threads wait, without the one that has the turn.
    pub fn waiting(&self) -> usize {
        self.lock().0.len().saturating_sub(1)
    }
}

impl ContextTurn {
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

    /// As [`ContextTurn::wait`], until the caller is not wanted any more: false then. A caller that
    /// has left keeps its thread for at most [`WITHDRAWAL_CHECK_INTERVAL`].
    pub(super) fn wait_while(&self, is_wanted: &dyn Fn() -> bool) -> bool {
        let mut state = self.0.lock();
        while state.0.front() != Some(&self.1) {
            if !is_wanted() {
                return false;
            }
            let waited = self.0.changed.wait_timeout(state, WITHDRAWAL_CHECK_INTERVAL);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for ContextTurn {
    fn drop(&mut self) {
        self.0.lock().0.retain(|other| *other != self.1);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn withdrawn_caller_stops_waiting() {
        let turns: Arc<Turns> = Arc::default();
        let first = turns.enter();
        let (second, third) = (turns.enter(), turns.enter());
        // Wanted when it begins to wait, and not any more at the next check.
        let calls = AtomicUsize::new(0);
        assert!(!second.wait_while(&|| calls.fetch_add(1, Ordering::Relaxed) == 0));
        assert_eq!(calls.into_inner(), 2);
        drop((first, second));
        assert!(third.wait_while(&|| false), "a turn that has come needs no wait");
    }
}
