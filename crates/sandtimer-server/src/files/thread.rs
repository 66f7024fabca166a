//! The threads that use files of jobs: each may do what the files' owner may, and nothing else.
//!
//! A thread is started for each piece of work and ends with it, so that no other work is done with
//! its rights, and none of its own is ever done with the server's. What it opens may be read and
//! written elsewhere: that asks for no right.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use sandtimer::engine::{SandboxFiles, workspace_owner};
use sandtimer_os::thread::{block_signals, use_files_as};
use tokio::sync::{Semaphore, oneshot};

use super::paths::FilePath;
use super::source::FileSource;
use super::tree::FileTree;
use super::unpack::{UnpackOptions, UnpackedCounts};
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code, storage};

/// Pieces of work at a time; at most half of them of one owner, so that no owner waits for
/// another's work alone.
const MAX_WORK: usize = 64;
static WORK_SLOTS: Semaphore = Semaphore::const_new(MAX_WORK);
/// Each owner's half; an owner stays here, as he does in the token file.
static OWNER_SLOTS: Mutex<Vec<(OwnerId, Arc<Semaphore>)>> = Mutex::new(Vec::new());

/// With whose rights files are used.
#[derive(Debug, Clone)]
pub(super) struct FileActor {
    /// A uid that is a gid as well; `None` if the server has no other than its own.
    pub owner: Option<u32>,
    /// The sandbox whose files they are: it is not deleted before this is dropped.
    pub held: Option<Arc<SandboxFiles>>,
}

impl FileActor {
    pub fn of(owner: Option<u32>) -> Self {
        FileActor { owner, held: None }
    }

    /// Returns false if the thread has other rights than the files' owner, which must not be served
    /// with them.
    fn become_owner(&self) -> bool {
        block_signals();
        self.owner.is_none_or(|owner| use_files_as(owner, owner).is_ok())
    }
}

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

/// As [`act`], on a directory, and waits for it.
pub(crate) fn empty(directory: OwnedFd) -> std::io::Result<()> {
    on_directory(directory, FileTree::empty)?.map_err(|rejection| std::io::Error::other(rejection.message))
}

/// Unpacks an archive into an empty directory, whose links may lead anywhere, and waits for it.
/// Devices and FIFOs are left out.
pub(crate) fn unpack_tree(directory: OwnedFd, archive: OwnedFd) -> Result<UnpackedCounts, ApiRejection> {
    let options = UnpackOptions { parents: false, keeps_links: true, skips_special: true };
    let unpacked =
        on_directory(directory, move |tree| tree.unpack_file(&FilePath::root(), &archive, options));
    unpacked.map_err(|error| storage("the archive cannot be unpacked", &error))?
}

fn on_directory<T: Send + 'static>(
    directory: OwnedFd,
    work: impl FnOnce(&FileTree) -> Result<T, ApiRejection> + Send + 'static,
) -> std::io::Result<Result<T, ApiRejection>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    start(FileTree::new(directory, Vec::new(), FileActor::of(workspace_owner())), move |tree| {
        drop(sender.send(work(tree)))
    })?;
    receiver.recv().map_err(std::io::Error::other)
}

/// Does something small as the files' owner, when there is a thread for it.
pub(super) fn later(actor: FileActor, directory: OwnedFd, work: impl FnOnce(OwnedFd) + Send + 'static) {
    let begin = move || {
        if actor.become_owner() {
            work(directory);
        }
    };
    // Without a thread it is left undone.
    let _ = std::thread::Builder::new().name("st-files".to_owned()).spawn(begin);
}

fn start(tree: FileTree, work: impl FnOnce(&FileTree) + Send + 'static) -> std::io::Result<()> {
    let begin = move || {
        // Otherwise the work is dropped, and the request that waits gets an error.
        if tree.actor().become_owner() {
            work(&tree);
        }
    };
    std::thread::Builder::new().name("st-files".to_owned()).spawn(begin).map(drop)
}
