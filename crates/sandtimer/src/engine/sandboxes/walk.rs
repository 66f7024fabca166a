//! Reads directories of layers: files that untrusted code has made. Nothing is followed, and
//! nothing but directories is opened.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat};
use rustix::io::{Errno, Result};

/// Bytes of a path below the root of a layer.
pub(super) const MAX_PATH_BYTES: usize = 4_000;
/// Names that one reading passes.
pub(super) const MAX_ENTRIES: u64 = 1_000_000;

/// Why a directory was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkError {
    /// It has more names than were left to be read.
    TooManyEntries,
    System(Errno),
}

impl From<Errno> for WalkError {
    fn from(error: Errno) -> Self {
        WalkError::System(error)
    }
}

/// Opens the root of a tree. The path to it is the engine's user's own.
pub(super) fn open_root(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
}

/// Opens what is at a path of plain names below a root, over no link and no other file system.
pub(super) fn open_below(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if path.as_os_str().len() > MAX_PATH_BYTES {
        return Err(Errno::NAMETOOLONG);
    }
    openat2(root, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Something in a directory.
#[derive(Debug)]
pub(super) struct WalkEntry {
    pub name: std::ffi::OsString,
    pub status: Stat,
}

impl WalkEntry {
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.status.st_mode)
    }

    /// Whether it hides what a lower layer has under its name; overlayfs.rst.
    pub fn is_whiteout(&self) -> bool {
        self.kind() == FileType::CharacterDevice && self.status.st_rdev == 0
    }
}

/// Returns what is in a directory below a root, by name. Each name takes one of `left`; fails as
/// soon as there are more.
pub(super) fn entries(
    root: BorrowedFd<'_>,
    path: &Path,
    left: &mut u64,
) -> std::result::Result<Vec<WalkEntry>, WalkError> {
    let directory = open_below(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?;
    let mut found = Vec::new();
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        *left = left.checked_sub(1).ok_or(WalkError::TooManyEntries)?;
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => {
                let name = std::ffi::OsStr::from_bytes(name.to_bytes()).to_owned();
                found.push(WalkEntry { name, status });
            }
            // It has been removed since.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Returns the bytes on disk of all files below a directory, but those in directories that their
/// owner cannot read. Fails after [`MAX_ENTRIES`] names.
pub(super) fn size(path: &Path) -> std::result::Result<u64, WalkError> {
    size_within(path, MAX_ENTRIES)
}

fn size_within(path: &Path, mut left: u64) -> std::result::Result<u64, WalkError> {
    let root = open_root(path)?;
    let mut pending = vec![PathBuf::new()];
    let mut bytes = 0_u64;
    while let Some(path) = pending.pop() {
        let found = match entries(root.as_fd(), &path, &mut left) {
            Err(WalkError::System(Errno::ACCESS)) => continue,
            found => found?,
        };
        for entry in found {
            bytes =
                bytes.saturating_add(u64::try_from(entry.status.st_blocks).unwrap_or(0).saturating_mul(512));
            if entry.kind() == FileType::Directory {
                pending.push(path.join(&entry.name));
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_fifos_are_neither_followed_nor_opened() {
        let scratch = tempfile::tempdir().expect("a directory");
        let root = scratch.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).expect("made");
        std::fs::write(root.join("a/b/file"), vec![1; 20_000]).expect("written");
        std::os::unix::fs::symlink("/", root.join("a/up")).expect("a link");
        rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
        assert!((20_000..200_000).contains(&size(&root).expect("counted")));
        let root = open_root(&root).expect("open");
        for (path, expected) in [("a/up", Errno::NOTDIR), ("a/up/etc", Errno::LOOP), ("../root", Errno::XDEV)]
        {
            let opened = open_below(root.as_fd(), Path::new(path), OFlags::RDONLY | OFlags::DIRECTORY);
            assert_eq!(opened.expect_err(path), expected, "{path}");
        }
        let names: Vec<_> = entries(root.as_fd(), Path::new("a"), &mut 2)
            .expect("read")
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["b", "up"]);
    }

    #[test]
    fn entries_and_size_stop_at_their_bound() {
        let scratch = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(scratch.path().join("d")).expect("made");
        for name in ["a", "b", "c", "d/e", "d/f"] {
            std::fs::write(scratch.path().join(name), "x").expect("written");
        }
        let root = open_root(scratch.path()).expect("open");
        let mut left = 3;
        let too_many = entries(root.as_fd(), Path::new(""), &mut left).map(|found| found.len());
        assert_eq!((too_many, left), (Err(WalkError::TooManyEntries), 0));
        let mut left = 6;
        let found = entries(root.as_fd(), Path::new(""), &mut left).map(|found| found.len());
        assert_eq!((found, left), (Ok(4), 2));
        // The bound is one for all directories.
        assert_eq!(size_within(scratch.path(), 5), Err(WalkError::TooManyEntries));
        assert!(size_within(scratch.path(), 6).is_ok());
    }
}
