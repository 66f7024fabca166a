//! What the owner of a run waits for: its start, words before its end, its verdict, its outcome.
//!
//! The enforcer and the collector tell, any number of threads and tasks wait; nobody who tells waits for one who hears.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::listeners::Listeners;
use crate::model::{Ending, Outcome, Warning};

/// Where the owner of a run waits.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    state: Mutex<WaitState>,
    changed: Condvar,
    /// Of new output, and of the outcome.
    pub output: Listeners,
}

#[derive(Debug, Default)]
struct WaitState {
    started: bool,
    verdict_at: Option<u64>,
    /// How it ended, where the verdict alone says so.
    ending: Option<Ending>,
    outcome: Option<Arc<Outcome>>,
    settled: bool,
    /// Not yet heard.
    warnings: VecDeque<Warning>,
    wakers: Vec<Waker>,
}

impl WaitState {
    fn call_back(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// The next warning; `Ready(None)` when none will come.
    fn warning(&mut self) -> Poll<Option<Warning>> {
        match self.warnings.pop_front() {
            None if self.verdict_at.is_none() && self.outcome.is_none() => Poll::Pending,
            next => Poll::Ready(next),
        }
    }
}

/// How many warnings wait to be heard; the newest take the place of the one before.
const MOST_WARNINGS: usize = 16;

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, WaitState> {
        // A panic while it was held cannot leave the plain fields inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut WaitState)) {
        let wakers = {
            let mut state = self.lock();
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        self.changed.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }

    pub fn started(&self) {
        self.change(|state| state.started = true);
    }

    /// Word for the owner, if he listens.
    pub fn warn(&self, warning: Warning) {
        self.change(|state| {
            state.warnings.truncate(MOST_WARNINGS - 1);
            state.warnings.push_back(warning);
        });
    }

    pub fn poll_warning(&self, waker: &Waker) -> Poll<Option<Warning>> {
        let mut state = self.lock();
        let next = state.warning();
        if next.is_pending() {
            state.call_back(waker);
        }
        next
    }

    pub fn wait_warning(&self) -> Option<Warning> {
        let mut state = self.lock();
        loop {
            match state.warning() {
                Poll::Ready(next) => return next,
                Poll::Pending => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The verdict is there: the run is over for its owner, even while the dead are still counted.
    pub fn verdict(&self, at: u64, ending: Option<Ending>) {
        self.change(|state| (state.verdict_at, state.ending) = (Some(at), ending));
    }

    /// How it ended, where the verdict alone says so.
    pub fn ending(&self) -> Option<Ending> {
        self.lock().ending
    }

    /// The outcome, final (`settled`) or with its proof pending.
    pub fn outcome(&self, outcome: Outcome, settled: bool) {
        self.change(|state| {
            state.outcome = Some(Arc::new(outcome));
            state.settled = settled;
            state.started = true;
        });
        self.output.ring();
    }

    pub fn poll_started(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.lock();
        if state.started {
            return Poll::Ready(());
        }
        state.call_back(waker);
        Poll::Pending
    }

    pub fn poll_outcome(&self, settled: bool, waker: &Waker) -> Option<Arc<Outcome>> {
        let mut state = self.lock();
        match &state.outcome {
            Some(outcome) if state.settled || !settled => Some(outcome.clone()),
            _ => {
                state.call_back(waker);
                None
            }
        }
    }

    pub fn wait_outcome(&self, settled: bool) -> Arc<Outcome> {
        let mut state = self.lock();
        loop {
            match &state.outcome {
                Some(outcome) if state.settled || !settled => return outcome.clone(),
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Whether an outcome is there.
    pub fn is_over(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// Waits for the verdict (or an outcome without one); the time it was published.
    pub fn wait_verdict(&self) -> Option<u64> {
        let mut state = self.lock();
        while state.verdict_at.is_none() && state.outcome.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.verdict_at
    }

    /// As [`Waiting::wait_verdict`] and [`Waiting::wait_outcome`], for so long at most: false when it was not there by then.
    pub fn wait_for(&self, most: Duration, outcome: bool, settled: bool) -> bool {
        let waiting = |state: &mut WaitState| match outcome {
            true => state.outcome.is_none() || (settled && !state.settled),
            false => state.verdict_at.is_none() && state.outcome.is_none(),
        };
        let waited = self.changed.wait_timeout_while(self.lock(), most, waiting);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        !waited.timed_out()
    }

    /// Waits until the command was started, or the run is over.
    pub fn wait_started(&self) {
        let mut state = self.lock();
        while !state.started {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
