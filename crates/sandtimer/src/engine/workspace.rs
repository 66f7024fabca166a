//! Directories that outlive the runs that work in them, and whose their files are.
//!
//! Each job has a uid of its own, so the files of a workspace belong to none of them: on disk they
//! are [`WORKSPACES`]'s, inside they are the job's, by an idmapped mount
//! (docs/design/files-and-ownership.md). Without root there is one uid for all.

use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use super::error::Error;
use super::inner::Engine;
use crate::isolate::files::{FileKind, HOME, Mount, writable_directory};
use crate::isolate::lease::{WORKSPACES, has_uids};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
pub use sandtimer_os::remove;
use sandtimer_os::thread::{block_signals, use_files_as};

/// The uid and gid that files in workspaces have on disk where the engine is root; `None` where
/// they are its own user's.
pub fn workspace_owner() -> Option<u32> {
    has_uids().then_some(WORKSPACES)
}

/// Makes a directory for [`Spec::workspace`](super::Spec::workspace) and
/// [`ContextSpec::workspace`](super::ContextSpec::workspace), which no other uid can enter.
///
/// # Errors
/// As mkdir(2) and chown(2).
pub fn make_workspace(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(path)?;
    chown(path, workspace_owner(), workspace_owner()).inspect_err(|_| drop(std::fs::remove_dir(path)))
}

/// Makes a directory for [`Spec::temporary`](super::Spec::temporary) and
/// [`ContextSpec::temporary`](super::ContextSpec::temporary), of the mode that programs expect of
/// /tmp. The directory above it must be one that other users cannot enter.
///
/// # Errors
/// As mkdir(2), chown(2) and chmod(2).
pub fn make_temporary_directory(path: &Path) -> io::Result<()> {
    make_workspace(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o1777))
        .inspect_err(|_| drop(std::fs::remove_dir(path)))
}

/// Makes the mount points of mounts below /tmp, in the directory that is shown there: a project
/// that lies below the host's /tmp keeps its path.
pub(super) fn make_mount_points(temporary: &Path, mounts: &[Mount]) -> io::Result<()> {
    let below = |mount: &Mount| -> Option<(PathBuf, bool)> {
        let is_file = matches!(mount, Mount::Bind { kind: FileKind::File, .. });
        let path = mount.target().strip_prefix(HOME).ok().filter(|path| !path.as_os_str().is_empty())?;
        matches!(mount, Mount::Bind { .. } | Mount::Tmpfs { .. }).then(|| (path.to_owned(), is_file))
    };
    // What lies below another mount is there.
    let mut points: Vec<(PathBuf, bool)> = Vec::new();
    for (path, is_file) in mounts.iter().filter_map(below) {
        if !points.iter().any(|(above, _)| path.starts_with(above)) {
            points.push((path, is_file));
        }
    }
    if points.is_empty() {
        return Ok(());
    }
    let root = open_workspace(temporary)?;
    as_files_owner(|| points.iter().try_for_each(|(path, is_file)| make_mount_point(&root, path, *is_file)))
}

/// Makes an empty directory or file, and the directories on the way; follows no link that a run has
/// put there.
fn make_mount_point(root: &OwnedFd, path: &Path, is_file: bool) -> io::Result<()> {
    let open = |path: &Path, flags: OFlags| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    };
    let mut made = PathBuf::new();
    let mut directory = open(Path::new("."), OFlags::PATH | OFlags::DIRECTORY)?;
    let last = path.components().count() - 1;
    for (index, name) in path.components().enumerate() {
        made.push(name);
        let name = name.as_os_str();
        let result = match is_file && index == last {
            true => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                openat(&directory, name, flags, Mode::from_raw_mode(0o644)).map(drop)
            }
            false => mkdirat(&directory, name, Mode::from_raw_mode(0o755)),
        };
        match result {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        if index < last {
            directory = open(&made, OFlags::PATH | OFlags::DIRECTORY)?;
        }
    }
    Ok(())
}

impl Engine {
    /// The canonical path of a directory of the caller's that may be a
    /// [`Spec::workspace`](super::Spec::workspace).
    ///
    /// # Errors
    /// It is none, or one that no run is shown: `/`, a home, what keys are kept in.
    pub fn check_workspace(&self, directory: &Path) -> Result<PathBuf, Error> {
        Ok(writable_directory(directory, self.inner.homes())?)
    }

    /// Covers the credentials in this directory of the caller's, a canonical path, in every run and
    /// context that has it as its workspace. In workspaces that [`make_workspace`] made, everything
    /// belongs to the runs.
    pub fn cover_credentials(&self, workspace: PathBuf) {
        self.inner.callers_directories.lock().unwrap_or_else(PoisonError::into_inner).insert(workspace);
    }
}

/// Opens a workspace's directory, for callers that use it by descriptor. Only the engine's user can
/// use the path.
pub fn open_workspace(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Does something with the files of workspaces, on a thread of its own that may do what their owner
/// may and nothing else.
pub fn as_files_owner<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let with_their_rights = || {
            block_signals();
            if let Some(owner) = workspace_owner() {
                use_files_as(owner, owner)?;
            }
            work()
        };
        let thread =
            std::thread::Builder::new().name("st-files".to_owned()).spawn_scoped(scope, with_their_rights)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that used the files failed")))
    })
}

/// Removes a workspace and all that is in it.
pub fn remove_workspace(path: &Path) -> io::Result<()> {
    // One whose maker died before it could give it away is not the files' owner's, and has none.
    if std::fs::remove_dir(path).is_ok() {
        return Ok(());
    }
    let root = open_workspace(path)?;
    as_files_owner(|| {
        use std::os::fd::AsFd;
        Ok(remove::empty(&remove::open_shut(root.as_fd(), Path::new("."))?)?)
    })?;
    std::fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_that_its_maker_could_not_give_away_is_removed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("one");
        // As root it is root's still, and of mode 0700.
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("made");
        remove_workspace(&path).expect("removed");
        assert!(!path.exists());
        make_workspace(&path).expect("made");
        std::fs::write(path.join("file"), "x").expect("written");
        remove_workspace(&path).expect("removed with what is in it");
        assert!(!path.exists());
    }

    #[test]
    fn deep_directories_are_removed_on_a_small_stack() {
        const DEPTH: usize = 5_000;
        let scratch = tempfile::tempdir().expect("a directory");
        let top = scratch.path().join("top");
        std::fs::create_dir(&top).expect("made");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut here = openat(CWD, &top, flags, Mode::empty()).expect("open");
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(&here, "d", Mode::from_raw_mode(0o700)).expect("made");
            here = openat(&here, "d", flags, Mode::empty()).expect("open");
        }
        // As small as those of the engine's threads.
        let remover = std::thread::Builder::new().stack_size(256 << 10);
        let removed =
            remover.spawn(move || remove::remove_tree(&top)).expect("a thread").join().expect("no panic");
        removed.expect("removed");
        assert_eq!(std::fs::read_dir(scratch.path()).expect("there").count(), 0);
    }
}
