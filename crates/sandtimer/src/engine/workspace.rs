//! Directories that outlive the runs that work in them, and whose their files are.
//!
//! Each job has a uid of its own, so the files of a workspace belong to none of them: on disk they are [`OWNER`]'s, inside
//! they are the job's, by an idmapped mount (docs/design/files-and-ownership.md). Without root there is one uid for all.

use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use super::Engine;
use super::error::Error;
use crate::isolate::files::writable_directory;

/// Below all uids of engines, so that every one of their maps shows the files of others as nobody's.
const OWNER: u32 = 0x6fff_ffff;

/// The uid and gid that files in workspaces have on disk where the engine is root; `None` where they are its own user's.
pub fn workspace_owner() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(OWNER)
}

/// Makes a directory for [`Spec::workspace`](super::Spec::workspace) and
/// [`ContextSpec::workspace`](super::ContextSpec::workspace), which nobody else enters.
///
/// # Errors
/// As mkdir(2) and chown(2).
pub fn make_workspace(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)?;
    chown(path, workspace_owner(), workspace_owner()).inspect_err(|_| drop(std::fs::remove_dir(path)))
}

impl Engine {
    /// The canonical path of a directory of the caller's that may be a [`Spec::workspace`](super::Spec::workspace).
    ///
    /// # Errors
    /// It is none, or one that no run is shown: `/`, a home, what keys are kept in.
    pub fn check_workspace(&self, directory: &Path) -> Result<PathBuf, Error> {
        Ok(writable_directory(directory, &self.inner.homes)?)
    }
}
