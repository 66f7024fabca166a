//! The rights with which files of jobs are used: their owner's, and no others.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use sandtimer::engine::SandboxFiles;
use sandtimer_os::thread::{block_signals, use_files_as};

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
    pub fn become_owner(&self) -> bool {
        block_signals();
        self.owner.is_none_or(|owner| use_files_as(owner, owner).is_ok())
    }
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
