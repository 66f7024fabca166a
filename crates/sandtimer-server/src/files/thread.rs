//! The threads that use files of jobs: each may do what the files' owner may, and nothing else.
//!
//! A thread is started for each piece of work and ends with it, so that no other work is done with
//! its rights, and none of its own is ever done with the server's. What it opens may be read and
//! written elsewhere: that asks for no right.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, oneshot};

use super::directory::start;
use super::source::FileSource;
use super::tree::FileTree;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};

/// Pieces of work at a time; at most half of them of one owner, so that no owner waits for
/// another's work alone.
const MAX_WORK: usize = 64;
static WORK_SLOTS: Semaphore = Semaphore::const_new(MAX_WORK);
/// Each owner's half; an owner stays here, as he does in the token file.
static OWNER_SLOTS: Mutex<Vec<(OwnerId, Arc<Semaphore>)>> = Mutex::new(Vec::new());

/// The half of this owner.
fn half(owner: &OwnerId) -> Arc<Semaphore> {
    // Each change is one call on the list.
    let mut own = OWNER_SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, half)) = own.iter().find(|(other, _)| other == owner) {
        return half.clone();
    }
    let half = Arc::new(Semaphore::new(MAX_WORK / 2));
    own.push((owner.clone(), half.clone()));
    half
}

/// Does something with files.
pub(crate) async fn act<T: Send + 'static>(
    files: &(impl FileSource + ?Sized),
    work: impl FnOnce(&FileTree) -> Result<T, ApiRejection> + Send + 'static,
) -> Result<T, ApiRejection> {
    // No semaphore here is ever closed. The owner's half first: a request that waits for it holds
    // no slot of the others.
    let work_slots = (half(files.owner()).acquire_owned().await.ok(), WORK_SLOTS.acquire().await.ok());
    let tree = files.open()?;
    let (reply_sender, reply_receiver) = oneshot::channel();
    let started = start(tree, move |tree| {
        // The request may have been dropped.
        let _ = reply_sender.send(work(tree));
        drop(work_slots);
    });
    started.map_err(|error| ApiRejection::new(Code::System, format!("cannot start a thread: {error}")))?;
    reply_receiver
        .await
        .unwrap_or_else(|_| Err(ApiRejection::new(Code::Internal, "the files could not be used")))
}

/// As [`act`], with other files as well.
pub(crate) async fn act_on_two<T: Send + 'static>(
    files: &impl FileSource,
    other: &impl FileSource,
    work: impl FnOnce(&FileTree, &FileTree) -> Result<T, ApiRejection> + Send + 'static,
) -> Result<T, ApiRejection> {
    let other = other.open()?;
    act(files, move |tree| work(tree, &other)).await
}

/// As [`act`], for work that takes as long as its client does: it takes none of the places of
/// others, and its own are counted by the caller. Nothing waits for it, so it reads only: a sandbox
/// may be deleted before it ends.
pub(super) fn act_apart(
    files: &dyn FileSource,
    work: impl FnOnce(&FileTree) + Send + 'static,
) -> Result<(), ApiRejection> {
    let mut tree = files.open()?;
    tree.let_go();
    let started = start(tree, work);
    started.map_err(|error| ApiRejection::new(Code::System, format!("cannot start a thread: {error}")))
}
