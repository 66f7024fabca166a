//! A job whose answer was taken, until a pre-warmer thread has ended it.

use std::sync::Arc;

use sandtimer_os::clock::monotonic_nanoseconds;

use super::Inner;
use super::pre_warmer::ChildPool;
use crate::supervise::at_once::RunHandoff;
use crate::supervise::deferred_reap::DeferredReap;
use crate::supervise::run::SharedRun;

#[derive(Debug)]
pub(super) enum AnsweredJob {
    /// Running until a pre-warmer thread or the enforcer ends it.
    Alive(Arc<SharedRun>, RunHandoff),
    Killed(DeferredReap),
    /// The enforcer handles it.
    Delegated,
}

impl AnsweredJob {
    pub fn new(running: &Arc<SharedRun>, handoff: &RunHandoff) -> Self {
        AnsweredJob::Alive(running.clone(), handoff.clone())
    }

    /// Kills it. False where the enforcer handles the rest.
    pub fn kill(&mut self, inner: &Inner) -> bool {
        if let AnsweredJob::Alive(running, handoff) = self {
            let begun = DeferredReap::begin(handoff, running, &inner.enforcer, &inner.collector);
            *self = begun.map_or(AnsweredJob::Delegated, AnsweredJob::Killed);
        }
        matches!(self, AnsweredJob::Killed(_))
    }

    /// Completes the end of a job that was killed.
    pub fn finish(self, inner: &Inner) {
        if let AnsweredJob::Killed(deferred_reap) = self {
            deferred_reap.finish(&inner.enforcer, &inner.collector);
        }
    }

    /// Hands the job over to the enforcer.
    pub fn hand_over(mut self, inner: &Inner) {
        if self.kill(inner)
            && let AnsweredJob::Killed(deferred_reap) = self
        {
            deferred_reap.hand_over(&inner.enforcer);
        }
    }
}

impl ChildPool {
    /// Defers the end of a job whose answer was taken until the pool is idle; kills it at once
    /// while the pool lacks children or makes one.
    pub fn defer_reap(&self, mut answered: AnsweredJob) {
        let mut state = self.lock();
        if state.making > 0 || state.is_short() {
            drop(state);
            if !answered.kill(&self.inner) {
                return;
            }
            state = self.lock();
        }
        if state.closed || state.failures > 0 {
            drop(state);
            answered.hand_over(&self.inner);
            return;
        }
        if state.answered.is_empty() {
            state.answered_since = monotonic_nanoseconds();
        }
        state.answered.push(answered);
        if !state.awaits_idle_window || state.is_short() {
            self.lacking.notify_one();
        }
    }

    /// Hands all answered jobs over to the enforcer, because a caller waits for the end of one.
    pub fn hand_over_answered(&self) {
        let answered = std::mem::take(&mut self.lock().answered);
        answered.into_iter().for_each(|answered| answered.hand_over(&self.inner));
    }
}
