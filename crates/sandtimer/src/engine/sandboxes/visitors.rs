//! What holds sandboxes, and how many hold one.

use std::sync::{Arc, Mutex, OnceLock};

use super::locks::lock;
use crate::supervise::waiting::RunNotifier;

/// What holds a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visitor {
    /// A run, until its resources are released; or a live context or session, until it is closed.
    Run,
    /// Work with its files from outside.
    Files,
}

/// The runs, live contexts and sessions that hold a sandbox. They have a lock of their own: `life`
/// is locked while the sandbox is mounted, and a reader of the count does not wait for that.
#[derive(Debug, Default)]
pub(super) struct Visitors(Mutex<Vec<Arc<RunVisitor>>>);

/// A run, once it is started; nothing for a live context or session.
#[derive(Debug, Default)]
pub struct RunVisitor(OnceLock<Arc<RunNotifier>>);

impl Visitors {
    pub(super) fn enter(&self) -> Arc<RunVisitor> {
        let visitor = Arc::new(RunVisitor::default());
        lock(&self.0).push(visitor.clone());
        visitor
    }

    pub(super) fn leave(&self, visitor: &Arc<RunVisitor>) {
        lock(&self.0).retain(|other| !Arc::ptr_eq(other, visitor));
    }

    /// All, also runs that have a final outcome and whose resources are not released yet.
    pub(super) fn count(&self) -> usize {
        lock(&self.0).len()
    }

    /// Those without a final outcome.
    pub(super) fn count_live(&self) -> usize {
        let has_settled = |visitor: &Arc<RunVisitor>| visitor.0.get().is_some_and(|run| run.has_settled());
        lock(&self.0).iter().filter(|visitor| !has_settled(visitor)).count()
    }
}

impl RunVisitor {
    /// Notes the run that this is.
    pub fn note(&self, run: Arc<RunNotifier>) {
        // It is noted once, when the run is started.
        let _ = self.0.set(run);
    }
}
