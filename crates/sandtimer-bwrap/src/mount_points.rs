//! Mount points that are made on the host because nothing was there, and their removal.
//!
//! A bind over a path that does not exist needs a file or directory to be mounted on. Below a directory of the host that one is
//! made there, and would stay. The setup reports each to the guard, which removes those that are still empty at the end.
//! Several commands may use one mount point at a time, and removing it would take the mount away from all. Each user therefore
//! shares a flock(2) on it, and a lock on one byte marks it as made here, so that the next user knows to do the same. The last one
//! to end removes it. What was there before is neither locked nor removed.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, open, statat, unlinkat};
use rustix::io::Errno;
use sandtimer_os::descriptors::{is_byte_locked, lock_byte};

use crate::message::{Message, kind};

/// The byte whose lock says that a mount point was made here.
const MADE_HERE: i64 = 1;
/// How often a mount point that is removed meanwhile is made again.
const MAX_TRIES: usize = 100;

/// What is needed at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Directory(u32),
    File,
}

/// Makes mount points, and reports those on the host to the guard.
#[derive(Debug)]
pub(crate) struct MountPoints<'a> {
    link: &'a OwnedFd,
    /// Devices of file systems that are made for the sandbox, and vanish with it.
    own: BTreeSet<u64>,
}

impl<'a> MountPoints<'a> {
    pub fn new(link: &'a OwnedFd) -> Self {
        MountPoints { link, own: BTreeSet::new() }
    }

    /// Notes that the file system at `path` is the sandbox's own.
    pub fn note_own(&mut self, path: &Path) {
        if let Ok(found) = std::fs::metadata(path) {
            self.own.insert(found.dev());
        }
    }

    /// Makes the directories above `path` and what is wanted there, as far as they are missing, to be mounted on.
    pub fn ensure(&self, path: &Path, wanted: Wanted) -> io::Result<()> {
        for _ in 0..MAX_TRIES {
            let made = ensure(path, wanted)?;
            if self.take(path, made)? {
                return Ok(());
            }
        }
        Err(Errno::BUSY.into())
    }

    /// The same for the directories above.
    pub fn ensure_parents(&self, path: &Path, mode: u32) -> io::Result<()> {
        let mut above: Vec<&Path> =
            path.ancestors().skip(1).filter(|above| above.as_os_str().len() > 1).collect();
        above.reverse();
        above.into_iter().try_for_each(|above| self.ensure(above, Wanted::Directory(mode)))
    }

    /// Locks and reports a mount point that was made here, now or by another command that still uses it. False if it was removed
    /// meanwhile.
    fn take(&self, path: &Path, made: bool) -> io::Result<bool> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(true) };
        if std::fs::metadata(parent).is_ok_and(|parent| self.own.contains(&parent.dev())) {
            return Ok(true);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        // What cannot be opened was not made here: a mount point is for all to read.
        let Ok(file) = open(path, flags, Mode::empty()) else { return Ok(true) };
        let file = File::from(file);
        let found = file.metadata()?;
        if !(found.is_dir() || found.is_file()) || (!made && !is_byte_locked(&file, MADE_HERE)) {
            return Ok(true);
        }
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            // It is being removed.
            Err(Errno::WOULDBLOCK) => return Ok(false),
            // A file system without locks: used by one command at a time.
            _ => lock_byte(&file, MADE_HERE).unwrap_or(()),
        }
        let now = std::fs::symlink_metadata(path);
        if !now.is_ok_and(|now| (now.dev(), now.ino()) == (found.dev(), found.ino())) {
            return Ok(false);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(parent, flags, Mode::empty())?;
        Message::of(kind::LOCK).send(self.link, Some(file.as_fd()))?;
        let values = [found.dev(), found.ino(), u64::from(found.is_dir())];
        let text = name.as_bytes().to_vec();
        Message { text, ..Message::with(kind::MOUNT_POINT, &values) }
            .send(self.link, Some(directory.as_fd()))?;
        Ok(true)
    }
}

/// Makes what is wanted unless it is there; whether it made it.
pub(crate) fn ensure(path: &Path, wanted: Wanted) -> io::Result<bool> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    let is_directory = matches!(wanted, Wanted::Directory(_));
    match std::fs::metadata(path) {
        Ok(found) if is_directory && !found.is_dir() => return Err(Errno::NOTDIR.into()),
        Ok(found) if is_directory || !found.is_dir() => return Ok(false),
        Ok(_) | Err(_) => {}
    }
    let made = match wanted {
        Wanted::Directory(mode) => std::fs::DirBuilder::new().mode(mode).create(path),
        Wanted::File => {
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o444).open(path).map(drop)
        }
    };
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // By another process; or, for a file, the target of a link is to be made.
        Err(_) if is_directory => Ok(false),
        Err(_) => std::fs::OpenOptions::new().append(true).create(true).mode(0o444).open(path).map(|_| false),
    }
}

/// A mount point that was made on the host.
#[derive(Debug)]
struct MountPoint {
    directory: OwnedFd,
    name: OsString,
    device: u64,
    inode: u64,
    is_directory: bool,
    lock: OwnedFd,
}

/// Those of one command.
#[derive(Debug, Default)]
pub(crate) struct Made {
    list: Vec<MountPoint>,
    lock: Option<OwnedFd>,
}

impl Made {
    /// Takes up what the setup reports.
    pub fn note(&mut self, message: Message, fd: Option<OwnedFd>) {
        match (message.kind, fd) {
            (kind::LOCK, fd) => self.lock = fd,
            (kind::MOUNT_POINT, Some(directory)) => {
                let [device, inode, is_directory, ..] = message.values;
                let name = OsString::from_vec(message.text);
                if let Some(lock) = self.lock.take() {
                    self.list.push(MountPoint {
                        directory,
                        name,
                        device,
                        inode,
                        is_directory: is_directory == 1,
                        lock,
                    });
                }
            }
            _ => {}
        }
    }

    /// Removes those that are still empty and that no other command uses, the last made first.
    pub fn remove(self) {
        for made in self.list.into_iter().rev() {
            // In use by another command, which removes it; or gone, or filled: left alone.
            let _ = made.remove();
        }
    }
}

impl MountPoint {
    fn remove(&self) -> rustix::io::Result<()> {
        match flock(&self.lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(()),
            // Locked, or a file system without locks.
            _ => {}
        }
        let found = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_same = (found.st_dev, found.st_ino) == (self.device, self.inode);
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_empty = found.st_size == 0 && found.st_nlink == 1;
        if is_same && self.is_directory && kind == FileType::Directory {
            return unlinkat(&self.directory, &self.name, AtFlags::REMOVEDIR);
        }
        if is_same && !self.is_directory && kind == FileType::RegularFile && is_empty {
            return unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandtimer_os::socket;

    struct Pair {
        setup: OwnedFd,
        guard: OwnedFd,
    }

    fn pair() -> Pair {
        let (setup, guard) = socket::pair().expect("a pair");
        Pair { setup, guard }
    }

    fn take_up(guard: &OwnedFd) -> Made {
        let mut made = Made::default();
        while let Ok(Some((message, fd))) = Message::receive(guard, false) {
            made.note(message, fd);
        }
        made
    }

    #[test]
    fn made_file_and_its_directories_are_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let pair = pair();
        let points = MountPoints::new(&pair.setup);
        let path = root.path().join("a/b/file");
        points.ensure_parents(&path, 0o755).expect("made");
        points.ensure(&path, Wanted::File).expect("made");
        assert!(path.exists());
        take_up(&pair.guard).remove();
        assert!(!root.path().join("a").exists());
    }

    #[test]
    fn what_was_there_or_is_filled_stays() {
        let root = tempfile::tempdir().expect("a directory");
        let (before, filled) = (root.path().join("before"), root.path().join("filled"));
        std::fs::write(&before, "").expect("a file");
        let pair = pair();
        let points = MountPoints::new(&pair.setup);
        for path in [&before, &filled] {
            points.ensure(path, Wanted::File).expect("there");
        }
        std::fs::remove_file(&filled).expect("removed");
        std::fs::write(&filled, "text").expect("another one");
        take_up(&pair.guard).remove();
        assert!(before.exists() && filled.exists());
    }

    #[test]
    fn last_user_removes() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("directory");
        let (one, other) = (pair(), pair());
        MountPoints::new(&one.setup).ensure(&path, Wanted::Directory(0o755)).expect("made");
        let first = take_up(&one.guard);
        MountPoints::new(&other.setup).ensure(&path, Wanted::Directory(0o755)).expect("there");
        let second = take_up(&other.guard);
        first.remove();
        assert!(path.exists(), "the other command has a mount on it");
        second.remove();
        assert!(!path.exists());
    }

    #[test]
    fn own_file_systems_are_not_reported() {
        let root = tempfile::tempdir().expect("a directory");
        let pair = pair();
        let mut points = MountPoints::new(&pair.setup);
        points.note_own(root.path());
        points.ensure(&root.path().join("file"), Wanted::File).expect("made");
        assert!(take_up(&pair.guard).list.is_empty());
    }
}
