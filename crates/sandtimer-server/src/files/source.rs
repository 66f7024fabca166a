//! Where files are that are used from outside: a workspace, or a sandbox as a whole.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::engine::{Sandbox, workspace_owner};

use super::actor::FileActor;
use super::paths::FilePath;
use super::tree::FileTree;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code, storage};
use crate::registry::OwnedResource;
use crate::workspaces::Workspace;

/// How often a transfer inspects whether its sandbox was deleted.
const CLOSED_INTERVAL: Duration = Duration::from_millis(100);

/// Files of an owner.
pub(crate) trait FileSource: Debug + Send + Sync {
    fn owner(&self) -> &OwnerId;

    /// Opens them. May block.
    ///
    /// # Errors
    /// They were removed, or cannot be used.
    fn open(&self) -> Result<FileTree, ApiRejection>;

    /// A path as requests give it.
    ///
    /// # Errors
    /// It leads out of them, or cannot be a path.
    fn parse_path(&self, text: &str) -> Result<FilePath, ApiRejection>;

    /// Whether they may be changed now.
    ///
    /// # Errors
    /// Their sandbox is paused.
    fn check_writable(&self) -> Result<(), ApiRejection> {
        Ok(())
    }

    /// Whether they are being removed: active work is to be cancelled.
    fn is_closed(&self) -> bool {
        false
    }
}

impl<T: FileSource + ?Sized> FileSource for Arc<T> {
    fn owner(&self) -> &OwnerId {
        (**self).owner()
    }

    fn open(&self) -> Result<FileTree, ApiRejection> {
        (**self).open()
    }

    fn parse_path(&self, text: &str) -> Result<FilePath, ApiRejection> {
        (**self).parse_path(text)
    }

    fn check_writable(&self) -> Result<(), ApiRejection> {
        (**self).check_writable()
    }

    fn is_closed(&self) -> bool {
        (**self).is_closed()
    }
}

impl FileSource for Workspace {
    fn owner(&self) -> &OwnerId {
        OwnedResource::owner(self)
    }

    fn open(&self) -> Result<FileTree, ApiRejection> {
        let directory = Workspace::open(self).map_err(|error| match error.kind() {
            // Removed, or being removed.
            std::io::ErrorKind::NotFound => {
                ApiRejection::new(Code::WorkspaceNotFound, "the workspace was removed")
            }
            _ => storage("the workspace cannot be opened", &error),
        })?;
        Ok(FileTree::new(directory, self.mount_paths(), FileActor::of(workspace_owner())))
    }

    fn parse_path(&self, text: &str) -> Result<FilePath, ApiRejection> {
        FilePath::parse(text)
    }
}

/// The files of a sandbox, from its root directory on.
#[derive(Debug)]
pub(crate) struct SandboxRoot {
    sandbox: Sandbox,
    owner: OwnerId,
}

impl SandboxRoot {
    pub fn new(sandbox: Sandbox) -> Self {
        let owner = OwnerId::recorded(&sandbox.owner());
        SandboxRoot { sandbox, owner }
    }
}

impl FileSource for SandboxRoot {
    fn owner(&self) -> &OwnerId {
        &self.owner
    }

    fn open(&self) -> Result<FileTree, ApiRejection> {
        let files = tokio::task::block_in_place(|| self.sandbox.files())?;
        let root = files.root().map_err(|error| storage("the sandbox cannot be opened", &error))?;
        Ok(FileTree::whole(root, FileActor { owner: files.owner(), held: Some(Arc::new(files)) }))
    }

    fn parse_path(&self, text: &str) -> Result<FilePath, ApiRejection> {
        FilePath::parse_absolute(text)
    }

    fn check_writable(&self) -> Result<(), ApiRejection> {
        Ok(self.sandbox.check_running()?)
    }

    fn is_closed(&self) -> bool {
        self.sandbox.is_deleted()
    }
}

/// Does work that takes as long as its client does, and gives it up once the files are removed.
pub(super) async fn while_open<T>(
    files: &dyn FileSource,
    work: impl Future<Output = Result<T, ApiRejection>>,
) -> Result<T, ApiRejection> {
    let closed = async {
        while !files.is_closed() {
            tokio::time::sleep(CLOSED_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        () = closed => Err(ApiRejection::new(Code::SandboxNotFound, "the sandbox was deleted")),
    }
}
