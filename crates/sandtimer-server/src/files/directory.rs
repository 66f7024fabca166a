//! What is done with a directory as a whole, on a thread with the rights of its files' owner.

use std::os::fd::OwnedFd;

use sandtimer::engine::workspace_owner;

use super::actor::FileActor;
use super::paths::FilePath;
use super::tree::FileTree;
use super::unpack::{UnpackOptions, UnpackedCounts};
use crate::error::{ApiRejection, storage};

/// Empties a directory, and waits for it.
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

/// Starts a thread that works with files as their owner.
pub(super) fn start(tree: FileTree, work: impl FnOnce(&FileTree) + Send + 'static) -> std::io::Result<()> {
    let begin = move || {
        // Otherwise the work is dropped, and the request that waits gets an error.
        if tree.actor().become_owner() {
            work(&tree);
        }
    };
    std::thread::Builder::new().name("st-files".to_owned()).spawn(begin).map(drop)
}
