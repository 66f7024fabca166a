//! What the owner of a run waits for: its start, warnings before its end, its verdict, its outcome.
//!
//! The enforcer and the collector notify, any number of threads and tasks wait. The enforcer waits
//! for no lock that they hold and calls no waker, which is the caller's code: an event that it
//! cannot deliver at once is an [`OwnerEvent`] for the collector.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::listeners::{Listeners, Wakers};
use crate::model::{Ending, Outcome, Warning};

/// Where the owner of a run waits.
#[derive(Debug, Default)]
pub(crate) struct RunNotifier {
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
    /// Not received yet.
    warnings: VecDeque<Warning>,
    wakers: Wakers,
}

/// An event of which the enforcer notifies the owner of a run.
#[derive(Debug)]
pub(crate) enum OwnerEvent {
    Started,
    Warning(Warning),
    /// The run has ended for its owner, even while the dead are still counted.
    Verdict {
        at: u64,
        /// How it ended, where the verdict alone says so.
        ending: Option<Ending>,
    },
}

impl WaitState {
    fn apply(&mut self, event: OwnerEvent) {
        match event {
            OwnerEvent::Started => self.started = true,
            OwnerEvent::Warning(warning) => {
                self.warnings.truncate(MAX_WARNINGS - 1);
                self.warnings.push_back(warning);
            }
            OwnerEvent::Verdict { at, ending } => (self.verdict_at, self.ending) = (Some(at), ending),
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

/// How many warnings are kept until they are received; beyond that the newest replaces the one
/// before.
const MAX_WARNINGS: usize = 16;

impl RunNotifier {
    fn lock(&self) -> MutexGuard<'_, WaitState> {
        // A panic while it was held cannot leave the plain fields inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut WaitState)) {
        let wakers = {
            let mut state = self.lock();
            change(&mut state);
            state.wakers.take()
        };
        self.changed.notify_all();
        for waker in wakers {
            // The caller's code: a panic there must not end the thread that serves all runs.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
        }
    }

    /// Applies an event without waiting. Whether there are tasks to be woken, by
    /// [`RunNotifier::note`]; the event itself where another thread has the lock at the moment.
    pub fn try_note(&self, event: OwnerEvent) -> Result<bool, OwnerEvent> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(event),
        };
        state.apply(event);
        let has_tasks = !state.wakers.is_empty();
        drop(state);
        self.changed.notify_all();
        Ok(has_tasks)
    }

    /// Applies events and wakes what waits.
    pub fn note(&self, events: Vec<OwnerEvent>) {
        self.change(|state| events.into_iter().for_each(|event| state.apply(event)));
    }

    pub fn poll_warning(&self, key: &mut Option<u64>, waker: &Waker) -> Poll<Option<Warning>> {
        let mut state = self.lock();
        let next = state.warning();
        if next.is_pending() {
            state.wakers.listen(key, waker);
        }
        next
    }

    /// Forgets the waker of a task that does not wait any more.
    pub fn forget(&self, key: Option<u64>) {
        if key.is_some() {
            self.lock().wakers.forget(key);
        }
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
        self.output.notify();
    }

    pub fn poll_started(&self, key: &mut Option<u64>, waker: &Waker) -> Poll<()> {
        let mut state = self.lock();
        if state.started {
            return Poll::Ready(());
        }
        state.wakers.listen(key, waker);
        Poll::Pending
    }

    pub fn poll_outcome(&self, settled: bool, key: &mut Option<u64>, waker: &Waker) -> Option<Arc<Outcome>> {
        let mut state = self.lock();
        match &state.outcome {
            Some(outcome) if state.settled || !settled => Some(outcome.clone()),
            _ => {
                state.wakers.listen(key, waker);
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
    pub fn has_finished(&self) -> bool {
        self.lock().outcome.is_some()
    }

    /// Whether its final outcome is there, with the proof.
    pub fn has_settled(&self) -> bool {
        let state = self.lock();
        state.outcome.is_some() && state.settled
    }

    /// Acts on the run's sandbox while that is the run's: once there is an outcome, another run may
    /// have it. `None` where there is one.
    pub fn unless_finished<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let state = self.lock();
        state.outcome.is_none().then(act)
    }

    /// Waits for the verdict (or an outcome without one); the time it was published.
    pub fn wait_verdict(&self) -> Option<u64> {
        let mut state = self.lock();
        while state.verdict_at.is_none() && state.outcome.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.verdict_at
    }

    /// As [`RunNotifier::wait_verdict`] and [`RunNotifier::wait_outcome`], for at most `most`:
    /// false if it was not there by then.
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

    /// Waits until the command was started, or the run has ended.
    pub fn wait_started(&self) {
        let mut state = self.lock();
        while !state.started {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn event_is_returned_while_another_thread_has_the_lock() {
        let waiting = RunNotifier::default();
        let held = waiting.lock();
        let event = waiting.try_note(OwnerEvent::Verdict { at: 7, ending: None });
        drop(held);
        let event = event.expect_err("the enforcer would have waited");
        assert_eq!(waiting.lock().verdict_at, None);
        waiting.note(vec![event]);
        assert_eq!(waiting.wait_verdict(), Some(7));
    }

    #[test]
    fn event_is_applied_at_once_and_tasks_are_woken_later() {
        let (waiting, count) = (RunNotifier::default(), Arc::new(WakeCounter::default()));
        let waker = Waker::from(count.clone());
        assert!(!waiting.try_note(OwnerEvent::Started).expect("no lock is held"));
        assert!(waiting.poll_outcome(false, &mut None, &waker).is_none());
        assert!(waiting.try_note(OwnerEvent::Verdict { at: 7, ending: None }).expect("as above"));
        assert_eq!((waiting.wait_verdict(), count.0.load(Ordering::SeqCst)), (Some(7), 0));
        waiting.note(Vec::new());
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn waker_of_dropped_future_is_forgotten() {
        let (waiting, count) = (RunNotifier::default(), Arc::new(WakeCounter::default()));
        for _ in 0..1_000 {
            let (waker, mut key) = (Waker::from(Arc::new(WakeCounter::default())), None);
            assert!(waiting.poll_started(&mut key, &waker).is_pending());
            waiting.forget(key);
        }
        let mut key = None;
        for _ in 0..3 {
            assert!(waiting.poll_started(&mut key, &Waker::from(count.clone())).is_pending());
        }
        assert_eq!(waiting.lock().wakers.len(), 1);
        waiting.note(vec![OwnerEvent::Started]);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn panic_of_a_waker_does_not_reach_the_collector() {
        struct Broken;
        impl Wake for Broken {
            fn wake(self: Arc<Self>) {
                panic!("a waker's panic, as the test wants");
            }
        }
        let (waiting, count) = (RunNotifier::default(), Arc::new(WakeCounter::default()));
        assert!(waiting.poll_started(&mut None, &Waker::from(Arc::new(Broken))).is_pending());
        assert!(waiting.poll_started(&mut None, &Waker::from(count.clone())).is_pending());
        waiting.note(vec![OwnerEvent::Started]);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
