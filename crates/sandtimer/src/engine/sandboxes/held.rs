//! A sandbox that is held by what uses it.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};

use super::super::pool::SandboxSlot;
use super::mount::{self, MountedRoot};
use super::{SandboxState, lock};
use crate::isolate::files::{FilesPlan, WORKSPACE};
use crate::isolate::networks::LentNetwork;
use crate::isolate::plan::RootView;
use crate::supervise::waiting::RunNotifier;

/// What holds a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Visitor {
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
pub(in super::super) struct RunVisitor(OnceLock<Arc<RunNotifier>>);

impl Visitors {
    pub(super) fn enter(&self) -> Arc<RunVisitor> {
        let visitor = Arc::new(RunVisitor::default());
        lock(&self.0).push(visitor.clone());
        visitor
    }

    fn leave(&self, visitor: &Arc<RunVisitor>) {
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
    pub(in super::super) fn note(&self, run: Arc<RunNotifier>) {
        // It is noted once, when the run is started.
        let _ = self.0.set(run);
    }
}

/// A sandbox that is held: it stays mounted.
#[derive(Debug)]
pub(in super::super) struct SandboxUse {
    pub(super) state: Arc<SandboxState>,
    /// Absent for work with files.
    pub(super) visitor: Option<Arc<RunVisitor>>,
    /// There until it is dropped.
    pub(super) mounted: Option<Arc<MountedRoot>>,
}

impl SandboxUse {
    /// The visitor that this is, unless it works with files.
    pub fn visitor(&self) -> Option<Arc<RunVisitor>> {
        self.visitor.clone()
    }

    /// The mount namespace of which the run gets a copy.
    pub fn namespace(&self) -> Option<BorrowedFd<'_>> {
        self.mounted.as_ref().map(|mounted| mounted.namespace.as_fd())
    }

    /// The lock that shows, as long as it is open, that something may write to the layer.
    pub fn lock(&self) -> Option<BorrowedFd<'_>> {
        self.mounted.as_ref().map(|mounted| mounted.lock.as_fd())
    }

    /// The network namespace of all that runs in it, unless that is the host's or there is none.
    pub fn network(&self) -> Option<Arc<LentNetwork>> {
        self.mounted.as_ref().and_then(|mounted| mounted.network.namespace.clone())
    }

    /// The row of the sandbox, in whose groups its runs are if it has limits as a whole.
    pub fn slot(&self) -> Option<&Arc<SandboxSlot>> {
        self.mounted.as_ref().map(|mounted| &mounted.slot)
    }

    /// Why the limits of the sandbox as a whole do not hold; `None` if they do, or there are none.
    pub(super) fn unlimited(&self) -> Option<&str> {
        self.mounted.as_ref().and_then(|mounted| mounted.unlimited.as_deref())
    }

    pub fn view(&self) -> Option<&RootView> {
        self.mounted.as_ref().map(|mounted| &mounted.view)
    }

    /// The files of a run that starts in this directory, or in the one that runs start in.
    pub fn files(&self, cwd: Option<&Path>, ptys: u32) -> FilesPlan {
        let cwd = cwd.map_or_else(|| PathBuf::from(WORKSPACE), |cwd| Path::new(WORKSPACE).join(cwd));
        let nothing = RootView::default();
        mount::run_files(self.view().unwrap_or(&nothing), &cwd, ptys)
    }

    /// Whether the processes in it are stopped, and will continue.
    pub(in super::super) fn is_paused(&self) -> bool {
        self.state.lifetime.is_paused() && !self.state.is_closed.load(Ordering::Relaxed)
    }
}

impl Drop for SandboxUse {
    fn drop(&mut self) {
        // First: the thread that waits for the last user unmounts it.
        self.mounted = None;
        let mut life = lock(&self.state.life);
        life.users -= 1;
        if life.users == 0 && !life.is_deleted {
            self.state.note_use();
        }
        if let Some(visitor) = &self.visitor {
            self.state.visitors.leave(visitor);
        }
        drop(life);
        self.state.released.notify_all();
    }
}
