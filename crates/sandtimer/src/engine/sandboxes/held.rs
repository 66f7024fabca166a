//! A sandbox that is held by what uses it.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::pool::SandboxSlot;
use super::locks::lock;
use super::mounted::MountedRoot;
use super::sandbox::SandboxState;
use super::visitors::RunVisitor;
use crate::isolate::files::{FilesPlan, Mount, WORKSPACE};
use crate::isolate::networks::LentNetwork;
use crate::isolate::plan::RootView;

/// A sandbox that is held: it stays mounted.
#[derive(Debug)]
pub struct SandboxUse {
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
        run_files(self.view().unwrap_or(&nothing), &cwd, ptys)
    }

    /// Whether the processes in it are stopped, and will continue.
    pub fn is_paused(&self) -> bool {
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

/// What a run in a sandbox is planned with: it mounts little of its own.
fn run_files(view: &RootView, cwd: &Path, ptys: u32) -> FilesPlan {
    let mut mounts = Vec::new();
    if ptys > 0 {
        mounts.push(Mount::Terminals { target: "/dev/pts".into(), most: ptys });
    }
    mounts.push(Mount::Proc { target: "/proc".into(), files: view.proc.clone() });
    FilesPlan {
        mounts,
        cwd: cwd.to_owned(),
        executable: None,
        path_variable: view.path_variable.clone(),
        environment: Vec::new(),
        notes: Vec::new(),
        gpus: None,
    }
}
