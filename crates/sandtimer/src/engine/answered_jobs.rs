//! A job whose answer was taken, until a pre-warmer thread has ended it.

use std::sync::Arc;

use super::Inner;
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
