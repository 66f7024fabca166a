//! Where files are that are used from outside: a workspace, or a sandbox as a whole.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::engine::{Sandbox, workspace_owner};

use super::place::Place;
use super::thread::Actor;
use super::tree::Tree;
use crate::auth::Owner;
use crate::error::{Code, Refusal, storage};
use crate::owned::Owned;
use crate::workspaces::Workspace;

/// How often a transfer inspects whether its sandbox was deleted.
const CLOSED_INTERVAL: Duration = Duration::from_millis(100);

/// Files of an owner.
pub(crate) trait FileSource: Debug + Send + Sync {
    fn owner(&self) -> &Owner;

    /// Opens them. May block.
    ///
    /// # Errors
    /// They were removed, or cannot be used.
    fn open(&self) -> Result<Tree, Refusal>;

    /// A path as requests give it.
    ///
    /// # Errors
    /// It leads out of them, or cannot be a path.
    fn place(&self, text: &str) -> Result<Place, Refusal>;

    /// Whether they may be changed now.
    ///
    /// # Errors
    /// Their sandbox is paused.
    fn check_writable(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether they are being removed: what is under way is to be given up.
    fn is_closed(&self) -> bool {
        false
    }
}

impl<T: FileSource + ?Sized> FileSource for Arc<T> {
    fn owner(&self) -> &Owner {
        (**self).owner()
    }

    fn open(&self) -> Result<Tree, Refusal> {
        (**self).open()
    }

    fn place(&self, text: &str) -> Result<Place, Refusal> {
        (**self).place(text)
    }

    fn check_writable(&self) -> Result<(), Refusal> {
        (**self).check_writable()
    }

    fn is_closed(&self) -> bool {
        (**self).is_closed()
    }
}

impl FileSource for Workspace {
    fn owner(&self) -> &Owner {
        Owned::owner(self)
    }

    fn open(&self) -> Result<Tree, Refusal> {
        let directory = Workspace::open(self).map_err(|error| match error.kind() {
            // Removed, or being removed.
            std::io::ErrorKind::NotFound => {
                Refusal::new(Code::WorkspaceNotFound, "the workspace was removed")
            }
            _ => storage("the workspace cannot be opened", &error),
        })?;
        Ok(Tree::new(directory, self.seen_at(), Actor::of(workspace_owner())))
    }

    fn place(&self, text: &str) -> Result<Place, Refusal> {
        Place::parse(text)
    }
}

/// The files of a sandbox, from its root directory on.
#[derive(Debug)]
pub(crate) struct SandboxRoot {
    sandbox: Sandbox,
    owner: Owner,
}

impl SandboxRoot {
    pub fn new(sandbox: Sandbox) -> Self {
        let owner = Owner::recorded(&sandbox.owner());
        SandboxRoot { sandbox, owner }
    }
}

impl FileSource for SandboxRoot {
    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn open(&self) -> Result<Tree, Refusal> {
        let files = tokio::task::block_in_place(|| self.sandbox.files())?;
        let root = files.root().map_err(|error| storage("the sandbox cannot be opened", &error))?;
        Ok(Tree::whole(root, Actor { owner: files.owner(), held: Some(Arc::new(files)) }))
    }

    fn place(&self, text: &str) -> Result<Place, Refusal> {
        Place::parse_absolute(text)
    }

    fn check_writable(&self) -> Result<(), Refusal> {
        Ok(self.sandbox.check_running()?)
    }

    fn is_closed(&self) -> bool {
        self.sandbox.is_deleted()
    }
}

/// Does work that takes as long as its client does, and gives it up once the files are removed.
pub(super) async fn while_open<T>(
    files: &dyn FileSource,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let closed = async {
        while !files.is_closed() {
            tokio::time::sleep(CLOSED_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = closed => Err(Refusal::new(Code::SandboxNotFound, "the sandbox was deleted")),
    }
}
