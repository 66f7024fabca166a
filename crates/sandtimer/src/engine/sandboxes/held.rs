//! A sandbox that is held by what uses it.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::pool::SandboxSlot;
use super::mount::{self, MountedRoot};
use super::{SandboxState, lock};
use crate::isolate::files::{FilesPlan, WORKSPACE};
use crate::isolate::networks::LentNetwork;
use crate::isolate::sandbox::RootView;

/// What holds a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Visitor {
    /// A run, until its outcome is out; or a live context or session, until it is closed.
    Run,
    /// Work with its files from outside.
    Files,
}

/// A sandbox that is held: it stays mounted.
#[derive(Debug)]
pub(in super::super) struct SandboxUse {
    pub(super) state: Arc<SandboxState>,
    pub(super) visitor: Visitor,
    /// There until it is dropped.
    pub(super) mounted: Option<Arc<MountedRoot>>,
}

impl SandboxUse {
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
        if self.visitor == Visitor::Run {
            self.state.runs.fetch_sub(1, Ordering::Relaxed);
        }
        drop(life);
        self.state.released.notify_all();
    }
}
