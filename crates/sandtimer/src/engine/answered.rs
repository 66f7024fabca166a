//! A job whose answer was taken, until a refiller has seen to its end.

use std::sync::Arc;

use sandtimer_os::clock::monotonic_nanoseconds;

use super::Inner;
use super::refill::Shared;
use crate::supervise::at_once::Brought;
use crate::supervise::burial::Burial;
use crate::supervise::run::Running;

#[derive(Debug)]
pub(super) enum Answered {
    /// Until somebody has time for its death.
    Alive(Arc<Running>, Brought),
    Killed(Burial),
    /// The enforcer sees to it.
    Gone,
}

impl Answered {
    pub fn new(running: &Arc<Running>, brought: &Brought) -> Self {
        Answered::Alive(running.clone(), brought.clone())
    }

    /// Kills it. False where the enforcer sees to the rest.
    pub fn kill(&mut self, inner: &Inner) -> bool {
        if let Answered::Alive(running, brought) = self {
            let begun = Burial::begin(brought, running, &inner.enforcer, &inner.collector);
            *self = begun.map_or(Answered::Gone, Answered::Killed);
        }
        matches!(self, Answered::Killed(_))
    }

    /// Sees to the end of one that was killed.
    pub fn finish(self, inner: &Inner) {
        if let Answered::Killed(burial) = self {
            burial.finish(&inner.enforcer, &inner.collector);
        }
    }

    /// Has the enforcer see to it.
    pub fn hand_over(mut self, inner: &Inner) {
        if self.kill(inner)
            && let Answered::Killed(burial) = self
        {
            burial.hand_over(&inner.enforcer);
        }
    }
}

impl Shared {
    /// Has a job whose answer was taken ended when there is a moment for it; killed at once where there is nobody to do so soon.
    pub fn bury(&self, mut answered: Answered) {
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
        if !state.awaits_lull || state.is_short() {
            self.lacking.notify_one();
        }
    }

    /// Somebody waits for the end of an answered job: the enforcer sees to all of them.
    pub fn hand_over_answered(&self) {
        let answered = std::mem::take(&mut self.lock().answered);
        answered.into_iter().for_each(|answered| answered.hand_over(&self.inner));
    }
}
