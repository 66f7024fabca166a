//! Removing directories that a job has filled: however deep, with few descriptors, and with an end
//! even where it continues making files.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::clock::monotonic_nanoseconds;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, openat, renameat, unlinkat};
use rustix::io::{Errno, Result};

/// Directories that are open at a time. What lies deeper is moved up first.
const MAX_OPEN_DIRECTORIES: usize = 64;
/// How long one removal may take, in nanoseconds.
const MAX_REMOVAL_NANOSECONDS: u64 = 600_000_000_000;

/// Removes what has this name in a directory; of a directory that is not empty all of it, where
/// that is asked for.
///
/// # Errors
/// As unlink(2), openat(2) and rename(2); EBUSY where it took ten minutes.
pub fn remove(directory: &OwnedFd, name: &Path, recursive: bool) -> Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        done => return done,
    }
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {}
        // Not a directory after all, and still not to be removed.
        Err(Errno::NOTDIR) => return Err(Errno::PERM),
        done => return done,
    }
    empty(&enter(directory.as_fd(), name)?)?;
    unlinkat(directory, name, AtFlags::REMOVEDIR)
}

/// Removes the directory at this path and all that is in it. The path to it must be the engine's
/// user's own.
///
/// In place of [`std::fs::remove_dir_all`], which needs a stack frame and a descriptor for each
/// level: a job chooses how deep its directories are.
///
/// # Errors
/// See [`remove`].
pub fn remove_tree(path: &Path) -> Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    remove(&openat(CWD, parent, flags, Mode::empty())?, Path::new(name), true)
}

/// Removes everything in an open directory.
///
/// # Errors
/// See [`remove`].
pub fn empty(top: &OwnedFd) -> Result<()> {
    let end = monotonic_nanoseconds().saturating_add(MAX_REMOVAL_NANOSECONDS);
    let mut moved = 0;
    // What was moved up is met in the next round.
    while !clear(top, top, 1, &mut moved, end)? {}
    Ok(())
}

/// One round. True where nothing was left.
fn clear(directory: &OwnedFd, top: &OwnedFd, depth: usize, moved: &mut u64, end: u64) -> Result<bool> {
    let mut nothing = true;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if monotonic_nanoseconds() > end {
            return Err(Errno::BUSY);
        }
        nothing = false;
        match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        }
        match unlinkat(directory, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        }
        // First: of a directory that its owner may not write nothing can be moved.
        let child = enter(directory.as_fd(), name)?;
        if depth >= MAX_OPEN_DIRECTORIES {
            *moved += 1;
            renameat(directory, name, top, format!(".sandtimer-{}-{moved}", monotonic_nanoseconds()))?;
            continue;
        }
        while !clear(&child, top, depth + 1, moved, end)? {}
        match unlinkat(directory, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(nothing)
}

/// Opens a directory so that what is in it can be removed, whatever mode its owner has given it.
fn enter<P: rustix::path::Arg + Copy>(directory: BorrowedFd<'_>, name: P) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(directory, name, flags, Mode::empty())?;
    open_shut(found.as_fd(), Path::new("."))
}

/// Opens a directory of which only the path is known (`itself`, relative to `found`), even if its
/// owner has no access.
///
/// # Errors
/// As chmod(2) and openat(2).
pub fn open_shut(found: BorrowedFd<'_>, itself: &Path) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let status = rustix::fs::fstat(found)?;
    if status.st_mode & 0o700 != 0o700 {
        // A descriptor that only names a place cannot be changed but by its name; its owner's is
        // this thread.
        chmod(format!("/proc/self/fd/{}", found.as_raw_fd()), Mode::from_raw_mode(0o700))?;
    }
    openat(found, itself, flags, Mode::empty())
}
