//! The directories in which a worker's jobs have theirs: made, locked and removed.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, openat};
use rustix::io::Errno;
use sandtimer::engine::{make_workspace, new_run_id, remove_workspace};

/// Where a worker's jobs have their directories. A lock shows that the worker lives: what dead
/// workers left is removed.
#[derive(Debug)]
pub(super) struct ScratchDirectory {
    path: PathBuf,
    _lock: OwnedFd,
    /// Directories of jobs that are over.
    left: Mutex<Vec<PathBuf>>,
}

impl ScratchDirectory {
    /// One of this worker's own below `parent`.
    pub fn open(parent: &Path) -> io::Result<Self> {
        private_directory(parent)?;
        // The launcher follows no link, and has another current directory.
        let parent = parent.canonicalize()?;
        loop {
            let path = parent.join(new_run_id());
            private_directory(&path)?;
            // Where another worker's sweep was faster it is not there any more.
            match locked(&path) {
                Ok(Some(lock)) if path.exists() => {
                    return Ok(ScratchDirectory { path, _lock: lock, left: Mutex::default() });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the directory of one job.
    pub fn make(&self, name: &str) -> io::Result<JobDirectory<'_>> {
        let path = self.path.join(name);
        make_workspace(&path)?;
        Ok(JobDirectory { path, scratch: self })
    }

    /// Removes what dead workers left.
    pub fn sweep(&self, report: fn(&str)) {
        let others = self.path.parent().and_then(|parent| std::fs::read_dir(parent).ok());
        for path in others.into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path != self.path
                && let Ok(Some(_lock)) = locked(&path)
            {
                for job in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                    removed(&job.path(), report);
                }
                // A directory that is not empty is found again.
                let _ = std::fs::remove_dir(&path);
            }
        }
    }

    /// Removes the directories of jobs that are over.
    pub fn tidy(&self, report: fn(&str)) {
        let left = std::mem::take(&mut *self.left());
        left.iter().for_each(|path| removed(path, report));
    }

    fn left(&self) -> std::sync::MutexGuard<'_, Vec<PathBuf>> {
        // A list; each change is one call.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // A directory that is not empty is removed by the next worker.
        let _ = std::fs::remove_dir(&self.path);
    }
}

fn removed(path: &Path, report: fn(&str)) {
    if let Err(error) = remove_workspace(path) {
        report(&format!("the directory of an ended job, {}, cannot be removed: {error}", path.display()));
    }
}

fn private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A lock on a directory, unless another process has it.
fn locked(path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty())?;
    match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(opened)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The directory of one job.
#[derive(Debug)]
pub(super) struct JobDirectory<'a> {
    path: PathBuf,
    scratch: &'a ScratchDirectory,
}

impl Drop for JobDirectory<'_> {
    fn drop(&mut self) {
        self.scratch.left().push(std::mem::take(&mut self.path));
    }
}

impl JobDirectory<'_> {
    pub fn path(&self) -> &Path {
        &self.path
    }
}
