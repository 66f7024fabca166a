//! The watches of a tree: which directory each is of, and which directories need one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, statat};
use rustix::io::Errno;

use crate::auth::OwnerId;
use crate::files::listing::{MAX_LISTING_DEPTH, enter};
use crate::files::paths::open_plain;
use crate::quota::{Share, Shares};

/// The watched directories of all readers: the kernel has few for each user.
static DIRECTORIES: Shares = Shares::of("watched directories", 8_192);
/// Files of new directories that are reported by one walk, and names of one directory that are
/// read.
const MAX_FOUND: usize = 10_000;
const MAX_NAMES: usize = 1_000_000;
/// Directories whose move is half known.
const MAX_MOVING: usize = 64;

/// A directory that needs a watch, with all below it.
#[derive(Debug, Clone)]
pub(super) struct WantedWatch {
    /// Below the watched root.
    path: PathBuf,
    /// What it holds is reported as created.
    is_new: bool,
}

/// Why a directory is not watched.
pub(super) type UnwatchedDirectory = (PathBuf, &'static str);

/// The watches of one reader.
#[derive(Debug)]
pub(super) struct WatchedDirectories {
    is_recursive: bool,
    root: Option<i32>,
    directories: HashMap<i32, (PathBuf, Share)>,
    wanted: Vec<WantedWatch>,
    /// Directories that were moved away, by the cookie of the move.
    moving: VecDeque<(u32, PathBuf)>,
    /// Names that were reported as created before the kernel's event of them was read.
    found: HashSet<PathBuf>,
    /// No more directories can be watched, which was reported.
    is_full: bool,
}

impl WatchedDirectories {
    pub fn new(is_recursive: bool) -> Self {
        WatchedDirectories {
            is_recursive,
            root: None,
            directories: HashMap::new(),
            wanted: Vec::new(),
            moving: VecDeque::new(),
            found: HashSet::new(),
            is_full: false,
        }
    }

    pub fn count(&self) -> usize {
        self.directories.len()
    }

    pub fn is_root(&self, watch: i32) -> bool {
        self.root == Some(watch)
    }

    /// The path of a name in a watched directory.
    pub fn path_of(&self, watch: i32, name: &OsStr) -> Option<PathBuf> {
        self.directories.get(&watch).map(|(path, _)| path.join(name))
    }

    /// Whether a path was reported already, so that the kernel's event of it is not.
    pub fn was_found(&mut self, path: Option<&Path>) -> bool {
        path.is_some_and(|path| self.found.remove(path))
    }

    /// All events of before the last walk have been read.
    pub fn forget_found(&mut self) {
        self.found.clear();
    }

    pub fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The directories that need watches, and the watches that there are. They are wanted until
    /// [`WatchedDirectories::add`].
    pub fn wanted(&self) -> (Vec<WantedWatch>, HashSet<i32>) {
        (self.wanted.clone(), self.directories.keys().copied().collect())
    }

    /// Follows directories that come, move and go by an event; returns watches that are to be
    /// removed.
    pub fn follow(&mut self, watch: i32, flags: ReadFlags, cookie: u32, path: Option<PathBuf>) -> Vec<i32> {
        if flags.contains(ReadFlags::IGNORED) {
            self.directories.remove(&watch);
            self.is_full = false;
        }
        if !self.is_recursive {
            return Vec::new();
        }
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.wanted.push(WantedWatch { path: PathBuf::new(), is_new: false });
        }
        if flags.contains(ReadFlags::MOVE_SELF) && !self.is_root(watch) {
            return self.moved_away(watch);
        }
        let Some(path) = path else { return Vec::new() };
        if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.found.remove(&path);
        }
        if !flags.contains(ReadFlags::ISDIR) {
            return Vec::new();
        }
        if flags.contains(ReadFlags::MOVED_FROM) {
            self.moving.push_back((cookie, path));
            self.moving.drain(..self.moving.len().saturating_sub(MAX_MOVING));
        } else if flags.contains(ReadFlags::MOVED_TO) {
            if let Some(at) = self.moving.iter().position(|(other, _)| *other == cookie)
                && let Some((_, old)) = self.moving.remove(at)
            {
                self.rename(&old, &path);
            }
            self.wanted.push(WantedWatch { path, is_new: false });
        } else if flags.contains(ReadFlags::CREATE) {
            self.wanted.push(WantedWatch { path, is_new: true });
        }
        Vec::new()
    }

    fn rename(&mut self, old: &Path, new: &Path) {
        for (path, _) in self.directories.values_mut() {
            if let Ok(below) = path.strip_prefix(old) {
                *path = new.join(below);
            }
        }
    }

    /// The kernel reports both halves of a move before the directory's own event: where the second
    /// is missing, it left the tree.
    fn moved_away(&mut self, watch: i32) -> Vec<i32> {
        let Some((path, _)) = self.directories.get(&watch) else { return Vec::new() };
        let Some(at) = self.moving.iter().position(|(_, old)| old == path) else { return Vec::new() };
        let Some((_, path)) = self.moving.remove(at) else { return Vec::new() };
        let below = self.directories.iter().filter(|(_, (other, _))| other.starts_with(&path));
        let removed: Vec<i32> = below.map(|(watch, _)| *watch).collect();
        self.directories.retain(|watch, _| !removed.contains(watch));
        self.is_full = false;
        removed
    }

    /// Adds what a walk has watched; returns the directories that are not watched and were not
    /// reported.
    pub fn add(&mut self, walk: WatchWalk) -> Vec<UnwatchedDirectory> {
        self.wanted.clear();
        self.found.extend(walk.found.into_iter().map(|(path, _)| path));
        for (watch, path, share) in walk.watched {
            if path.as_os_str().is_empty() {
                self.root = Some(watch);
            }
            if let Some((known, _)) = self.directories.get_mut(&watch) {
                *known = path;
            } else if let Some(share) = share {
                self.directories.insert(watch, (path, share));
            }
        }
        let was_full = self.is_full;
        self.is_full |= walk.is_full;
        walk.unwatched.into_iter().filter(|(_, reason)| *reason != FULL_REASON || !was_full).collect()
    }
}

const FULL_REASON: &str = "full";
const CLOSED_REASON: &str = "closed";
const DEPTH_REASON: &str = "deep";

/// What watching some directories, and all below them, came to.
#[derive(Debug, Default)]
pub(super) struct WatchWalk {
    /// Each watch, the path of its directory, and a share where it is new.
    watched: Vec<(i32, PathBuf, Option<Share>)>,
    /// What new directories hold, and whether it is a directory.
    pub found: Vec<(PathBuf, bool)>,
    /// Not all that new directories hold was reported.
    pub is_cut: bool,
    unwatched: Vec<UnwatchedDirectory>,
    is_full: bool,
}

/// What a walk has in each directory.
#[derive(Clone, Copy)]
struct WatchWalkContext<'a> {
    kernel: &'a OwnedFd,
    known: &'a HashSet<i32>,
    owner: &'a OwnerId,
    is_recursive: bool,
}

impl WatchWalk {
    /// Watches a directory, and with `is_recursive` all below; fails if the directory itself cannot
    /// be watched.
    pub fn begin(
        kernel: &OwnedFd,
        directory: &OwnedFd,
        is_recursive: bool,
        owner: &OwnerId,
    ) -> Result<Self, Errno> {
        let known = HashSet::new();
        let walking = WatchWalkContext { kernel, known: &known, owner, is_recursive };
        let mut walk = WatchWalk::default();
        let root = open_plain(directory.as_fd(), Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY)?;
        walk.visit(walking, root, &WantedWatch { path: PathBuf::new(), is_new: false }, 1)?;
        // Without a watch of the root there is nothing to report.
        if walk.watched.is_empty() { Err(Errno::NOSPC) } else { Ok(walk) }
    }

    /// Watches directories that have come below a watched one.
    pub fn more(
        kernel: &OwnedFd,
        root: &OwnedFd,
        wanted: Vec<WantedWatch>,
        known: HashSet<i32>,
        owner: &OwnerId,
    ) -> Self {
        let walking = WatchWalkContext { kernel, known: &known, owner, is_recursive: true };
        let mut walk = WatchWalk::default();
        for wanted in wanted {
            let depth = wanted.path.components().count() + 1;
            match open_plain(root.as_fd(), &wanted.path, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(directory) => walk.below(walking, directory, &wanted, depth),
                error => walk.missed(error.err(), wanted.path),
            }
        }
        walk
    }

    pub fn count(&self) -> usize {
        self.watched.len()
    }

    /// A directory that cannot be opened: nothing of one that is gone.
    fn missed(&mut self, error: Option<Errno>, path: PathBuf) {
        if !matches!(error, None | Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) {
            self.unwatched.push((path, CLOSED_REASON));
        }
    }

    fn below(
        &mut self,
        walking: WatchWalkContext<'_>,
        directory: OwnedFd,
        wanted: &WantedWatch,
        depth: usize,
    ) {
        if let Err(error) = self.visit(walking, directory, wanted, depth) {
            self.missed(Some(error), wanted.path.clone());
        }
    }

    /// Watches a directory and looks for those below it.
    fn visit(
        &mut self,
        walking: WatchWalkContext<'_>,
        directory: OwnedFd,
        wanted: &WantedWatch,
        depth: usize,
    ) -> Result<(), Errno> {
        if self.is_full {
            return Ok(());
        }
        if depth > MAX_LISTING_DEPTH {
            self.unwatched.push((wanted.path.clone(), DEPTH_REASON));
            return Ok(());
        }
        match watch(walking, &directory) {
            Ok((watch, share)) => self.watched.push((watch, wanted.path.clone(), share)),
            Err(Errno::NOSPC) => {
                self.is_full = true;
                self.unwatched.push((wanted.path.clone(), FULL_REASON));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        if !walking.is_recursive {
            return Ok(());
        }
        let mut entries = Dir::new(directory)?;
        let mut names = 0;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let (name, directory) = (entry.file_name(), entries.fd()?);
            names += 1;
            if name == c"." || name == c".." || names > MAX_NAMES {
                continue;
            }
            let is_directory = is_directory(directory, name, entry.file_type());
            if !is_directory && !wanted.is_new {
                continue;
            }
            let path = wanted.path.join(OsStr::from_bytes(name.to_bytes()));
            if wanted.is_new {
                match self.found.len() < MAX_FOUND {
                    true => self.found.push((path.clone(), is_directory)),
                    false => self.is_cut = true,
                }
            }
            if is_directory {
                match enter(directory, name) {
                    Ok(child) => {
                        self.below(walking, child, &WantedWatch { path, is_new: wanted.is_new }, depth + 1)
                    }
                    Err(error) => self.missed(Some(error), path),
                }
            }
        }
        Ok(())
    }
}

fn is_directory(directory: BorrowedFd<'_>, name: &CStr, known: FileType) -> bool {
    if known != FileType::Unknown {
        return known == FileType::Directory;
    }
    let status = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Directory)
}

/// A watch on an open directory, with a share unless it was there; fails with `NOSPC` where there
/// can be no more.
fn watch(walking: WatchWalkContext<'_>, directory: &OwnedFd) -> Result<(i32, Option<Share>), Errno> {
    let flags = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE
        | WatchFlags::MOVE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF;
    // It takes only a name; this one is of the directory that was opened, whatever has that name by
    // now.
    let name = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let watch = inotify::add_watch(walking.kernel, name, flags)?;
    if walking.known.contains(&watch) {
        return Ok((watch, None));
    }
    match DIRECTORIES.take(walking.owner) {
        Ok(share) => Ok((watch, Some(share))),
        Err(_) => {
            inotify::remove_watch(walking.kernel, watch)?;
            Err(Errno::NOSPC)
        }
    }
}
