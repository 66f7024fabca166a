//! A job whose answer was taken, until a refiller has seen to its end.

use std::sync::Arc;

use super::Inner;
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
