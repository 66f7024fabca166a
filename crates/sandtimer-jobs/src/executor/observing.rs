//! An event for each scope of a job, for the observer of a worker: emitted when the guard is
//! dropped, so that no way out of the scope is missed.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sandtimer::model::Layer;
use sandtimer::scope::ScopeId;
use sandtimer::time::Moment;

use super::clock::now;

/// A scope of a job that has ended.
#[derive(Debug)]
pub struct EndedScope<'a> {
    /// The job's id.
    pub job: &'a str,
    pub id: ScopeId,
    /// The scope around it, which ends later; `None` for the job's own.
    pub parent: Option<ScopeId>,
    pub layer: Layer,
    /// Such as `job/7f3/loop/turn-2`.
    pub path: &'a str,
    /// Since its clock began: the job's with its submission.
    pub took: Duration,
    /// What was done in it did not succeed.
    pub failed: bool,
}

/// Receives every scope of the jobs that a worker executes, at the moment when it has ended.
pub trait Observer: Send + Sync + Debug {
    fn ended(&self, scope: &EndedScope<'_>);
}

/// Notifies the observer that a scope has ended, when this is dropped.
#[derive(Debug)]
pub(super) struct ScopeEndNotifier {
    pub observer: Option<Arc<dyn Observer>>,
    pub id: ScopeId,
    pub parent: Option<ScopeId>,
    pub layer: Layer,
    pub path: String,
    pub begun: Moment,
    pub failed: AtomicBool,
}

impl ScopeEndNotifier {
    pub fn fails(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

impl Drop for ScopeEndNotifier {
    fn drop(&mut self) {
        let Some(observer) = &self.observer else { return };
        observer.ended(&EndedScope {
            job: self.path.split('/').nth(1).unwrap_or_default(),
            id: self.id,
            parent: self.parent,
            layer: self.layer,
            path: &self.path,
            took: now().since(self.begun),
            failed: self.failed.load(Ordering::Relaxed),
        });
    }
}
