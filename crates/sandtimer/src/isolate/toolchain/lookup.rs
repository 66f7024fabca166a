//! Questions about the host's files, asked below a root that is `/` except in tests.
//!
//! Reads only, never writes. The walk along symbolic links is done here because std's `canonicalize` forgets
//! the links it went through, and every one of them must exist inside for the path to work there.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows for one path.
const LINKS: usize = 40;
/// Version files, `pyvenv.cfg` and the like are far smaller.
const TEXT_BYTES: u64 = 64 << 10;

/// A symbolic link met on the way to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where it lies; its parent is canonical.
    pub(crate) at: PathBuf,
    /// What it holds, word for word.
    pub(crate) to: PathBuf,
}

/// What a path led to.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    /// The path without links.
    pub(crate) path: PathBuf,
    pub(crate) links: Vec<Link>,
}

/// The host's file system, as one plan sees it: what was looked up once is not looked up again.
#[derive(Debug)]
pub(crate) struct Host {
    root: PathBuf,
    seen: RefCell<HashMap<PathBuf, Result<Metadata, io::ErrorKind>>>,
    resolved: RefCell<HashMap<PathBuf, Result<Resolved, io::ErrorKind>>>,
}

impl Host {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), seen: RefCell::default(), resolved: RefCell::default() }
    }

    /// lstat(2), remembered.
    fn symlink_metadata(&self, path: &Path) -> io::Result<Metadata> {
        if let Some(known) = self.seen.borrow().get(path) {
            return known.clone().map_err(io::Error::from);
        }
        let metadata = self.on_disk(path).symlink_metadata().map_err(|error| error.kind());
        self.seen.borrow_mut().insert(path.to_path_buf(), metadata.clone());
        metadata.map_err(io::Error::from)
    }

    fn on_disk(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Follows `path` (absolute) to its end.
    ///
    /// # Errors
    /// Those of lstat(2) on a component, and `ELOOP`'s kind after 40 links.
    pub(crate) fn resolve(&self, path: &Path) -> io::Result<Resolved> {
        if let Some(known) = self.resolved.borrow().get(path) {
            return known.clone().map_err(io::Error::from);
        }
        let resolved = self.walk(path);
        let kept = resolved.as_ref().map(Clone::clone).map_err(io::Error::kind);
        self.resolved.borrow_mut().insert(path.to_path_buf(), kept);
        resolved
    }

    fn walk(&self, path: &Path) -> io::Result<Resolved> {
        let mut rest: VecDeque<OsString> = VecDeque::new();
        push_front(&mut rest, path);
        let mut resolved = Resolved { path: PathBuf::from("/"), links: Vec::new() };
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                resolved.path.pop();
                continue;
            }
            let here = resolved.path.join(&name);
            let metadata = self.symlink_metadata(&here)?;
            if !metadata.is_symlink() {
                if !rest.is_empty() && !metadata.is_dir() {
                    return Err(io::Error::from(io::ErrorKind::NotADirectory));
                }
                resolved.path = here;
                continue;
            }
            if resolved.links.len() == LINKS {
                return Err(io::Error::other("too many levels of symbolic links"));
            }
            let to = self.on_disk(&here).read_link()?;
            push_front(&mut rest, &to);
            if to.is_absolute() {
                resolved.path = PathBuf::from("/");
            }
            resolved.links.push(Link { at: here, to });
        }
        Ok(resolved)
    }

    pub(crate) fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.resolve(path).ok().map(|resolved| resolved.path)
    }

    pub(crate) fn metadata(&self, path: &Path) -> Option<Metadata> {
        self.symlink_metadata(&self.canonical(path)?).ok()
    }

    pub(crate) fn is_directory(&self, path: &Path) -> bool {
        self.metadata(path).is_some_and(|metadata| metadata.is_dir())
    }

    pub(crate) fn is_file(&self, path: &Path) -> bool {
        self.metadata(path).is_some_and(|metadata| metadata.is_file())
    }

    /// What the link at `path` holds; `None` if `path` is no link.
    pub(crate) fn link(&self, path: &Path) -> Option<PathBuf> {
        self.on_disk(path).read_link().ok()
    }

    /// Whether both paths lead to the same file, hard links included.
    pub(crate) fn same_file(&self, one: &Path, other: &Path) -> bool {
        let identity = |path| self.metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
        identity(one).is_some() && identity(one) == identity(other)
    }

    /// The names in a directory, sorted; none if it cannot be read.
    pub(crate) fn names(&self, directory: &Path) -> Vec<OsString> {
        let Some(directory) = self.canonical(directory) else { return Vec::new() };
        let Ok(entries) = self.on_disk(&directory).read_dir() else { return Vec::new() };
        let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    /// Opens a regular file. A job may have put a FIFO in its place: that must not block.
    pub(crate) fn open(&self, path: &Path) -> Option<File> {
        let path = self.on_disk(&self.canonical(path)?);
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path).ok()?;
        file.metadata().ok()?.is_file().then_some(file)
    }

    /// The first 64 KiB of a regular file as text; `None` if there is no such file.
    pub(crate) fn text(&self, path: &Path) -> Option<String> {
        let mut bytes = Vec::new();
        self.open(path)?.take(TEXT_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn push_front(rest: &mut VecDeque<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => rest.push_front(name.to_os_string()),
            Component::ParentDir => rest.push_front(OsString::from("..")),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
}
