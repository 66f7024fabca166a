//! Mount points that are made on the host because nothing was there, and their removal.
//!
//! A bind over a path that does not exist needs a file or directory to be mounted on. Below a
//! directory of the host that one is made there, and would stay. The setup reports each to the
//! guard, which removes those that are still empty at the end. Several commands may use one mount
//! point at a time, and removing it would take the mount away from all. Each user therefore shares
//! a flock(2) on it, and a lock on one byte marks it as made here, so that the next user knows to
//! do the same. The last one to end removes it. What was there before is neither locked nor
//! removed; the directory that gets a mount point is locked until that has its mark.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::event::{Timespec, poll};
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, mkdirat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use sandtimer_os::descriptors::{is_byte_locked, lock_byte};

use crate::in_root::{LastComponent, Location, locate};
use crate::message::{Message, kind};

/// The byte whose lock marks a mount point as made here.
const MADE_HERE: i64 = 1;
/// How often, a millisecond apart, a mount point is tried that another command is just making or
/// removing.
const MAX_TRIES: usize = 1000;
/// After this many tries the lock on its directory is another program's, and not waited for.
const MAX_ORDERED_TRIES: usize = 500;

/// What is needed at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountPointKind {
    Directory(u32),
    File,
}

/// Makes mount points, and reports those on the host to the guard.
#[derive(Debug)]
pub(crate) struct MountPoints<'a> {
    guard: &'a OwnedFd,
    root: PathBuf,
    /// Devices of file systems that are made for the sandbox, and vanish with it.
    own: BTreeSet<u64>,
    /// Directories by device and inode, as the guard gets them.
    removable: RefCell<BTreeMap<(u64, u64), OwnedFd>>,
}

impl<'a> MountPoints<'a> {
    pub fn new(guard: &'a OwnedFd, root: &Path) -> Self {
        MountPoints { guard, root: root.to_owned(), own: BTreeSet::new(), removable: RefCell::default() }
    }

    /// Notes that the file system of an open file is the sandbox's own.
    pub fn note_own(&mut self, file: impl AsFd) {
        if let Ok(found) = fstat(file) {
            self.own.insert(found.st_dev);
        }
    }

    /// Finds a path in the root; makes the directories above it, as far as they are missing, as
    /// mount points.
    pub fn locate(&self, path: &Path, mode: u32) -> io::Result<Location> {
        locate(&self.root, path, LastComponent::Follow, |mut above| {
            self.ensure(&mut above, MountPointKind::Directory(mode))?;
            above.existing().cloned()
        })
    }

    /// Makes what is wanted at a location, unless it is there, to be mounted on.
    pub fn ensure(&self, location: &mut Location, wanted: MountPointKind) -> io::Result<()> {
        if fstat(&location.directory).is_ok_and(|found| self.own.contains(&found.st_dev)) {
            return ensure(location, wanted).map(drop);
        }
        for number in 0..MAX_TRIES {
            if number > 0 {
                let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
                location.open()?;
            }
            if self.attempt(location, wanted, number < MAX_ORDERED_TRIES)? {
                return Ok(());
            }
        }
        Err(Errno::BUSY.into())
    }

    /// False if another command is making or removing the mount point.
    fn attempt(&self, location: &mut Location, wanted: MountPointKind, is_ordered: bool) -> io::Result<bool> {
        // Between being made and marked by another command, it looks like one that was there
        // before. It is empty then.
        let may_be_unmarked = location.entry.as_ref().is_none_or(is_empty);
        let _lock = match lock_directory(&location.directory) {
            _ if !may_be_unmarked || !is_ordered => None,
            Err(Errno::WOULDBLOCK) => return Ok(false),
            // A directory that cannot be read, or a file system without locks: used by one command
            // at a time.
            lock => lock.ok(),
        };
        let made = ensure(location, wanted)?;
        self.take(location, made)
    }

    /// Locks and reports a mount point that was made here, now or by another command that still
    /// uses it. False if it has been removed.
    fn take(&self, location: &Location, made: bool) -> io::Result<bool> {
        let entry = fstat(location.existing()?)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        // What cannot be opened was not made here: a mount point is for all to read.
        let Ok(file) = openat(&location.directory, &location.name, flags, Mode::empty()) else {
            return Ok(true);
        };
        let file = File::from(file);
        let found = fstat(&file)?;
        if !is_same(&found, &entry) {
            return Ok(false);
        }
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_directory = kind == FileType::Directory;
        if !(is_directory || kind == FileType::RegularFile) || (!made && !is_byte_locked(&file, MADE_HERE)) {
            return Ok(true);
        }
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            // It is being removed.
            Err(Errno::WOULDBLOCK) => return Ok(false),
            // A file system without locks: used by one command at a time.
            _ => lock_byte(&file, MADE_HERE).unwrap_or(()),
        }
        let now = statat(&location.directory, &location.name, AtFlags::SYMLINK_NOFOLLOW);
        if !now.is_ok_and(|now| is_same(&now, &found)) {
            return Ok(false);
        }
        Message::of(kind::LOCK).send(self.guard, Some(file.as_fd()))?;
        let values = [found.st_dev, found.st_ino, u64::from(is_directory)];
        let text = location.name.as_bytes().to_vec();
        let message = Message { text, ..Message::with(kind::MOUNT_POINT, &values) };
        self.send(message, &location.directory)?;
        Ok(true)
    }

    /// Sends a message with a directory by which the guard can remove what is in it: a mount of it
    /// that no later operation changes, such as `--remount-ro`.
    fn send(&self, message: Message, directory: &Rc<OwnedFd>) -> io::Result<()> {
        let found = fstat(directory)?;
        let mut known = self.removable.borrow_mut();
        let key = (found.st_dev, found.st_ino);
        if let std::collections::btree_map::Entry::Vacant(vacant) = known.entry(key) {
            let single = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            let tree = open_tree(directory, "", single)
                // What is mounted below it may not be uncovered.
                .or_else(|_| open_tree(directory, "", single | OpenTreeFlags::AT_RECURSIVE));
            vacant.insert(tree.map_or_else(|_| directory.try_clone(), Ok)?);
        }
        message.send(self.guard, known.get(&key).map(AsFd::as_fd))
    }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether it is an empty file or directory.
fn is_empty(entry: &Rc<OwnedFd>) -> bool {
    let Ok(found) = fstat(entry) else { return false };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => found.st_size == 0,
        FileType::Directory => {
            openat(entry, ".", flags, Mode::empty()).and_then(Dir::new).is_ok_and(|mut names| {
                names.all(|name| {
                    name.is_ok_and(|name| [&b"."[..], b".."].contains(&name.file_name().to_bytes()))
                })
            })
        }
        _ => false,
    }
}

/// Locks a directory for this process alone. A directory that is a mount point itself is shared by
/// its users, this process among them: it is opened and not locked.
fn lock_directory(directory: &Rc<OwnedFd>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(directory, ".", flags, Mode::empty())?;
    if is_byte_locked(&opened, MADE_HERE) {
        return Ok(opened);
    }
    flock(&opened, FlockOperation::NonBlockingLockExclusive)?;
    Ok(opened)
}

/// Makes what is wanted unless it is there, and opens it; whether it made it. Follows no link.
pub(crate) fn ensure(location: &mut Location, wanted: MountPointKind) -> io::Result<bool> {
    let (directory, name) = (&location.directory, &location.name);
    let made = match (&location.entry, wanted) {
        (Some(_), _) => Err(Errno::EXIST),
        (None, MountPointKind::Directory(mode)) => mkdirat(directory, name, Mode::from_raw_mode(mode)),
        (None, MountPointKind::File) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(directory, name, flags, Mode::from_raw_mode(0o444)).map(drop)
        }
    };
    let made = match made {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    if location.entry.is_none() {
        location.open()?;
    }
    let kind = FileType::from_raw_mode(fstat(location.existing()?)?.st_mode);
    match (kind, wanted) {
        (FileType::Symlink, _) => Err(Errno::LOOP.into()),
        (FileType::Directory, MountPointKind::File) => Err(Errno::ISDIR.into()),
        (FileType::Directory, _) | (_, MountPointKind::File) => Ok(made),
        _ => Err(Errno::NOTDIR.into()),
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
pub(crate) struct MountPointList {
    list: Vec<MountPoint>,
    lock: Option<OwnedFd>,
}

impl MountPointList {
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
        // Any other error is that of a file system without locks.
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Ok(());
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

    fn take_up(guard: &OwnedFd) -> MountPointList {
        let mut made = MountPointList::default();
        while let Ok(Some((message, fd))) = Message::receive(guard, false) {
            made.note(message, fd);
        }
        made
    }

    fn make(points: &MountPoints<'_>, path: &str, wanted: MountPointKind) -> io::Result<()> {
        let mut location = points.locate(Path::new(path), 0o755)?;
        points.ensure(&mut location, wanted)
    }

    #[test]
    fn made_file_and_its_directories_are_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let pair = pair();
        let points = MountPoints::new(&pair.setup, root.path());
        make(&points, "a/b/file", MountPointKind::File).expect("made");
        assert!(root.path().join("a/b/file").exists());
        take_up(&pair.guard).remove();
        assert!(!root.path().join("a").exists());
    }

    #[test]
    fn what_was_there_or_is_filled_stays() {
        let root = tempfile::tempdir().expect("a directory");
        let (before, filled) = (root.path().join("before"), root.path().join("filled"));
        std::fs::write(&before, "").expect("a file");
        let pair = pair();
        let points = MountPoints::new(&pair.setup, root.path());
        for name in ["before", "filled"] {
            make(&points, name, MountPointKind::File).expect("there");
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
        let points = |pair: &Pair| {
            let points = MountPoints::new(&pair.setup, root.path());
            make(&points, "directory", MountPointKind::Directory(0o755)).expect("made");
        };
        points(&one);
        let first = take_up(&one.guard);
        points(&other);
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
        let mut points = MountPoints::new(&pair.setup, root.path());
        points.note_own(File::open(root.path()).expect("opened"));
        make(&points, "file", MountPointKind::File).expect("made");
        assert!(take_up(&pair.guard).list.is_empty());
    }

    /// Makes the mount point `made` in a thread while this one does what another command would.
    fn make_during(root: &Path, other: impl FnOnce()) -> (io::Result<()>, usize) {
        let pair = pair();
        let result = std::thread::scope(|scope| {
            let making =
                scope.spawn(|| make(&MountPoints::new(&pair.setup, root), "made", MountPointKind::File));
            // The thread must have had the time to fail; if it starts later, the test passes as
            // well.
            let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 50_000_000 }));
            other();
            making.join().expect("a result")
        });
        (result, take_up(&pair.guard).list.len())
    }

    #[test]
    fn file_without_its_mark_is_waited_for() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = File::open(root.path()).expect("opened");
        flock(&directory, FlockOperation::LockExclusive).expect("locked");
        let path = root.path().join("made");
        std::fs::write(&path, "").expect("made");
        let file = File::open(&path).expect("opened");
        let (result, reported) = make_during(root.path(), || {
            flock(&file, FlockOperation::LockShared).expect("locked");
            lock_byte(&file, MADE_HERE).expect("marked");
            drop(directory);
        });
        result.expect("there");
        assert_eq!(reported, 1, "the file of the other command is shared");
    }

    #[test]
    fn file_that_is_being_removed_is_made_again() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("made");
        std::fs::write(&path, "").expect("made");
        let file = File::open(&path).expect("opened");
        lock_byte(&file, MADE_HERE).expect("marked");
        flock(&file, FlockOperation::LockExclusive).expect("locked");
        let (result, reported) = make_during(root.path(), || {
            std::fs::remove_file(&path).expect("removed");
            drop(file);
        });
        result.expect("made again");
        assert!(path.exists());
        assert_eq!(reported, 1);
    }
}
