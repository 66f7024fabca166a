//! The threads that use files of jobs: each may do what the files' owner may, and nothing else.
//!
//! A thread is started for each piece of work and ends with it, so that no other work is done with its rights, and none of
//! its own is ever done with the server's. What it opens may be read and written elsewhere: that asks for no right.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use sandtimer::engine::workspace_owner;
use sandtimer_os::thread::{block_signals, use_files_as};
use tokio::sync::{Semaphore, oneshot};

use super::tree::Tree;
use crate::error::{Code, Refusal, storage};
use crate::workspaces::Workspace;

/// Pieces of work at a time.
static PLACES: Semaphore = Semaphore::const_new(64);

/// Does something with the files of a workspace.
pub(crate) async fn act<T: Send + 'static>(
    workspace: &Arc<Workspace>,
    work: impl FnOnce(&Tree) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // The semaphore is never closed.
    let place = PLACES.acquire().await.ok();
    let opened = workspace.open().map_err(|error| match error.kind() {
        // Removed, or being removed.
        std::io::ErrorKind::NotFound => Refusal::new(Code::WorkspaceNotFound, "the workspace was removed"),
        _ => storage("the workspace cannot be opened", &error),
    })?;
    let (tell, told) = oneshot::channel();
    let started = start(opened, move |tree| {
        // Whoever asked may have left.
        let _ = tell.send(work(tree));
        drop(place);
    });
    started.map_err(|error| Refusal::new(Code::System, format!("cannot start a thread: {error}")))?;
    told.await.unwrap_or_else(|_| Err(Refusal::new(Code::Internal, "the files could not be used")))
}

/// As [`act`], on a directory, and waits for it.
pub(crate) fn empty(directory: OwnedFd) -> std::io::Result<()> {
    let (tell, told) = std::sync::mpsc::channel();
    let work = move |tree: &Tree| drop(tell.send(tree.empty()));
    start(directory, work)?;
    told.recv().map_err(std::io::Error::other)?.map_err(|refusal| std::io::Error::other(refusal.message))
}

/// Does something small as the files' owner, when there is a thread for it.
pub(super) fn later(directory: OwnedFd, work: impl FnOnce(OwnedFd) + Send + 'static) {
    let begin = move || {
        if become_owner() {
            work(directory);
        }
    };
    // Without a thread it is left undone.
    let _ = std::thread::Builder::new().name("st-files".to_owned()).spawn(begin);
}

/// False where the thread has other rights than the files' owner, who must not be served with them.
fn become_owner() -> bool {
    block_signals();
    workspace_owner().is_none_or(|owner| use_files_as(owner, owner).is_ok())
}

fn start(directory: OwnedFd, work: impl FnOnce(&Tree) + Send + 'static) -> std::io::Result<()> {
    let begin = move || {
        // Else whoever waits hears that it was not done.
        if become_owner() {
            work(&Tree::new(directory));
        }
    };
    std::thread::Builder::new().name("st-files".to_owned()).spawn(begin).map(drop)
}
