//! The threads that use files of jobs: each may do what the files' owner may, and nothing else.
//!
//! A thread is started for each piece of work and ends with it, so that no other work is done with its rights, and none of
//! its own is ever done with the server's. What it opens may be read and written elsewhere: that asks for no right.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use sandtimer::engine::workspace_owner;
use sandtimer_os::thread::{block_signals, use_files_as};
use tokio::sync::{Semaphore, oneshot};

use super::tree::Tree;
use crate::auth::Owner;
use crate::error::{Code, Refusal, storage};
use crate::owned::Owned;
use crate::workspaces::Workspace;

/// Pieces of work at a time; of one owner's at most half, so that nobody waits for another's alone.
const MOST: usize = 64;
static PLACES: Semaphore = Semaphore::const_new(MOST);
/// Each owner's half; an owner stays here, as he does in the token file.
static OWN: Mutex<Vec<(Owner, Arc<Semaphore>)>> = Mutex::new(Vec::new());

/// The half of this owner.
fn half(owner: &Owner) -> Arc<Semaphore> {
    // Each change is one call on the list.
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, half)) = own.iter().find(|(other, _)| other == owner) {
        return half.clone();
    }
    let half = Arc::new(Semaphore::new(MOST / 2));
    own.push((owner.clone(), half.clone()));
    half
}

/// Does something with the files of a workspace.
pub(crate) async fn act<T: Send + 'static>(
    workspace: &Arc<Workspace>,
    work: impl FnOnce(&Tree) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // No semaphore here is ever closed. The own half first: who waits for it takes nobody's place.
    let place = (half(workspace.owner()).acquire_owned().await.ok(), PLACES.acquire().await.ok());
    let tree = opened(workspace)?;
    let (tell, told) = oneshot::channel();
    let started = start(tree, move |tree| {
        // Whoever asked may have left.
        let _ = tell.send(work(tree));
        drop(place);
    });
    started.map_err(|error| Refusal::new(Code::System, format!("cannot start a thread: {error}")))?;
    told.await.unwrap_or_else(|_| Err(Refusal::new(Code::Internal, "the files could not be used")))
}

/// As [`act`], with the files of a second workspace.
pub(crate) async fn act_on_two<T: Send + 'static>(
    workspace: &Arc<Workspace>,
    other: &Workspace,
    work: impl FnOnce(&Tree, &Tree) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let other = opened(other)?;
    act(workspace, move |tree| work(tree, &other)).await
}

/// As [`act`], for work that takes as long as its client does: it takes none of the places of others, and its own are counted by the
/// caller. Nothing waits for it.
pub(super) fn act_apart(
    workspace: &Workspace,
    work: impl FnOnce(&Tree) + Send + 'static,
) -> Result<(), Refusal> {
    let started = start(opened(workspace)?, work);
    started.map_err(|error| Refusal::new(Code::System, format!("cannot start a thread: {error}")))
}

fn opened(workspace: &Workspace) -> Result<Tree, Refusal> {
    let directory = workspace.open().map_err(|error| match error.kind() {
        // Removed, or being removed.
        std::io::ErrorKind::NotFound => Refusal::new(Code::WorkspaceNotFound, "the workspace was removed"),
        _ => storage("the workspace cannot be opened", &error),
    })?;
    Ok(Tree::new(directory, workspace.seen_at()))
}

/// As [`act`], on a directory, and waits for it.
pub(crate) fn empty(directory: OwnedFd) -> std::io::Result<()> {
    let (tell, told) = std::sync::mpsc::channel();
    let work = move |tree: &Tree| drop(tell.send(tree.empty()));
    start(Tree::new(directory, Vec::new()), work)?;
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

fn start(tree: Tree, work: impl FnOnce(&Tree) + Send + 'static) -> std::io::Result<()> {
    let begin = move || {
        // Else whoever waits hears that it was not done.
        if become_owner() {
            work(&tree);
        }
    };
    std::thread::Builder::new().name("st-files".to_owned()).spawn(begin).map(drop)
}
