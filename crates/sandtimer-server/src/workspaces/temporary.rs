//! Directories that are the /tmp, and the home directory, of all runs of a sandbox of another
//! interface, or of an agent's connection; and workspaces that are removed with their last user.
//!
//! ```text
//! workspaces/temporary/ID   of the workspace with this id, which it goes with
//! workspaces/own/ID         of a connection, or of a program: removed once it and all that it started have ended
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandtimer::engine::{make_temporary_directory, make_workspace};
use sandtimer_os::remove::remove_tree;

use super::live::{Workspace, Workspaces, remove_all};
use crate::auth::OwnerId;
use crate::error::{ApiRejection, storage};

/// A directory that runs, contexts and sessions have as their /tmp.
#[derive(Debug)]
pub(crate) struct TemporaryDirectory {
    files: Arc<Workspace>,
    /// Where it is removed when nothing uses it any more; `None` for one that stays as long as its
    /// workspace.
    trash: Option<PathBuf>,
}

impl TemporaryDirectory {
    pub fn path(&self) -> &Path {
        self.files.directory()
    }

    /// The same for access to its files.
    pub fn files(&self) -> &Arc<Workspace> {
        &self.files
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if let Some(trash) = self.trash.take() {
            discard_apart(self.path().to_owned(), trash);
        }
    }
}

/// A workspace of a program, which is removed when nothing uses it any more.
#[derive(Debug)]
pub(crate) struct ScratchWorkspace {
    files: Arc<Workspace>,
    trash: PathBuf,
}

impl ScratchWorkspace {
    pub fn files(&self) -> &Arc<Workspace> {
        &self.files
    }
}

impl Drop for ScratchWorkspace {
    fn drop(&mut self) {
        discard_apart(self.files.directory().to_owned(), std::mem::take(&mut self.trash));
    }
}

/// Removes a directory on a thread of its own: those of the runtime must not block. What cannot be
/// removed now is removed at the next start.
fn discard_apart(directory: PathBuf, trash: PathBuf) {
    let remove = move || drop(discard(&directory, &trash));
    let _ = std::thread::Builder::new().name("st-files".to_owned()).spawn(remove);
}

impl Workspaces {
    /// The one that belongs to a kept workspace, made where it is missing. Blocks.
    pub fn temporary_of(
        &self,
        owner: &OwnerId,
        workspace: &Workspace,
    ) -> Result<Arc<TemporaryDirectory>, ApiRejection> {
        let directory = self.temporary_directory().join(workspace.id_str());
        if !directory.is_dir() {
            make_temporary_directory(&directory).map_err(|error| not_made(&error))?;
        }
        Ok(Arc::new(TemporaryDirectory {
            files: Workspace::temporary(owner.clone(), directory),
            trash: None,
        }))
    }

    /// Makes one that goes with its last user. Blocks.
    pub fn create_temporary(&self, owner: &OwnerId) -> Result<Arc<TemporaryDirectory>, ApiRejection> {
        let directory = self.own_directory().join(crate::id::new_id());
        make_temporary_directory(&directory).map_err(|error| not_made(&error))?;
        let trash = Some(self.trash_directory().to_owned());
        Ok(Arc::new(TemporaryDirectory { files: Workspace::temporary(owner.clone(), directory), trash }))
    }

    /// Makes a workspace that goes with its last user. Blocks.
    pub fn create_scratch(&self, owner: &OwnerId) -> Result<Arc<ScratchWorkspace>, ApiRejection> {
        let directory = self.own_directory().join(crate::id::new_id());
        make_workspace(&directory)
            .map_err(|error| storage("the program's workspace cannot be made", &error))?;
        let files = Workspace::own(owner.clone(), directory);
        Ok(Arc::new(ScratchWorkspace { files, trash: self.trash_directory().to_owned() }))
    }

    /// Moves those away whose workspace is not there any more.
    pub(super) fn discard_orphans(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.temporary_directory())? {
            let path = entry?.path();
            let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !self.is_kept(&id) {
                fs::rename(&path, trashed(&path, self.trash_directory()))?;
            }
        }
        Ok(())
    }

    /// Removes that of a workspace that is being removed, where it has one. Blocks.
    pub(super) fn remove_temporary_of(&self, workspace: &Workspace) -> io::Result<()> {
        let directory = self.temporary_directory().join(workspace.id_str());
        match discard(&directory, self.trash_directory()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn not_made(error: &io::Error) -> ApiRejection {
    storage("the temporary directory cannot be made", error)
}

/// Its place in the trash, where its workspace may be under its own name.
fn trashed(directory: &Path, trash: &Path) -> PathBuf {
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    trash.join(name)
}

fn discard(directory: &Path, trash: &Path) -> io::Result<()> {
    let at = trashed(directory, trash);
    fs::rename(directory, &at)?;
    // Where no file system of the run could be id-mapped, its files belong to the owner of the
    // project that it worked in.
    remove_all(&at).or_else(|_| Ok(remove_tree(&at)?))
}
