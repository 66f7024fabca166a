//! Questions about the host's files, asked below a root that is `/` except in tests.
//!
//! Reads only, never writes. The walk along symbolic links is done here because std's
//! `canonicalize` forgets the links it went through, and every one of them must exist inside for
//! the path to work there. What was looked up once is not looked up again: a plan asks about a few
//! hundred paths with few different parents.

#[cfg(test)]
mod tests;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// As many links as the kernel follows for one path.
const LINKS: usize = 40;
/// Version files, `pyvenv.cfg` and the like are far smaller.
const MAX_VERSION_FILE_BYTES: u64 = 64 << 10;

/// Read of a directory at a time.
const DIRECTORY_BYTES: usize = 8 << 10;
/// Room for as many paths as a plan usually asks about.
const USUAL_PATHS: usize = 448;

/// A symbolic link met on the way to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// Where it lies; its parent is canonical.
    pub(crate) at: PathBuf,
    /// Its target, verbatim.
    pub(crate) to: PathBuf,
}

/// What a path led to.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The path without links.
    pub(crate) path: PathBuf,
    pub(crate) links: Vec<Link>,
    /// Of the file at the end.
    pub(crate) metadata: Metadata,
}

type Resolution = Result<Rc<ResolvedPath>, Errno>;

/// The host's file system, as one plan reads it.
#[derive(Debug)]
pub(crate) struct HostFiles {
    /// Without a slash at its end: absolute paths are appended.
    root: OsString,
    /// By path as asked for. Every path that an answer holds has an answer of its own.
    known: RefCell<HashMap<OsString, Resolution>>,
}

impl HostFiles {
    pub(crate) fn new(root: &Path) -> Self {
        let root = if root == Path::new("/") { OsString::new() } else { root.as_os_str().to_os_string() };
        Self { root, known: RefCell::new(HashMap::with_capacity(USUAL_PATHS)) }
    }

    /// Where a canonical path lies on disk.
    pub(crate) fn on_disk<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        if self.root.is_empty() {
            return Cow::Borrowed(path);
        }
        let mut whole = self.root.clone();
        whole.push(path);
        Cow::Owned(PathBuf::from(whole))
    }

    fn known(&self, path: &Path) -> Option<Resolution> {
        self.known.borrow().get(path.as_os_str()).cloned()
    }

    /// Follows `path` (absolute) to its end.
    ///
    /// # Errors
    /// Those of lstat(2) on a component, and `ELOOP` after 40 links.
    pub(crate) fn resolve(&self, path: &Path) -> Resolution {
        if let Some(known) = self.known(path) {
            return known;
        }
        let mut names = path.components();
        let Some(name @ (Component::Normal(_) | Component::ParentDir)) = names.next_back() else {
            return self.inspect(Path::new("/"))?.ok_or(Errno::LOOP);
        };
        let parent = self.known(names.as_path()).unwrap_or_else(|| self.resolve_from_above(names.as_path()));
        let answer = parent.and_then(|parent| self.follow(&parent, name.as_os_str()));
        // A canonical path was cached when it was resolved.
        if !answer.as_ref().is_ok_and(|found| found.path.as_os_str() == path.as_os_str()) {
            self.known.borrow_mut().insert(path.as_os_str().to_os_string(), answer.clone());
        }
        answer
    }

    /// As [`Self::resolve`], parents first: a path may have more names than the stack has room for.
    fn resolve_from_above(&self, path: &Path) -> Resolution {
        let unknown: Vec<&Path> = path.ancestors().take_while(|path| self.known(path).is_none()).collect();
        unknown.into_iter().rev().map(|path| self.resolve(path)).last().unwrap_or(Err(Errno::NOENT))
    }

    /// Follows one name from the resolved directory it lies in.
    fn follow(&self, directory: &Rc<ResolvedPath>, name: &OsStr) -> Resolution {
        let (mut end, mut links) = (directory.clone(), directory.links.clone());
        let mut rest: Vec<OsString> = Vec::new();
        let mut next = Some(Cow::Borrowed(name));
        while let Some(name) = next {
            if !end.metadata.is_dir() {
                return Err(Errno::NOTDIR);
            }
            let here = if *name == *".." { parent_of(&end.path) } else { child(&end.path, &name) };
            if let Some(found) = self.inspect(&here)? {
                links.extend_from_slice(&found.links);
                end = found;
            } else {
                let to = self.on_disk(&here).read_link().map_err(errno)?;
                rest.extend(names_backwards(&to).map(OsStr::to_os_string));
                if to.is_absolute() {
                    end = self.resolve(Path::new("/"))?;
                }
                links.push(Link { at: here, to });
            }
            if links.len() > LINKS {
                return Err(Errno::LOOP);
            }
            next = rest.pop().map(Cow::Owned);
        }
        if links.is_empty() {
            return Ok(end);
        }
        Ok(Rc::new(ResolvedPath { path: end.path.clone(), links, metadata: end.metadata.clone() }))
    }

    /// What is at `path`, whose parent is canonical; `None` if it is a link not followed before.
    fn inspect(&self, path: &Path) -> Result<Option<Rc<ResolvedPath>>, Errno> {
        if let Some(known) = self.known(path) {
            return known.map(Some);
        }
        let metadata = self.on_disk(path).symlink_metadata().map_err(errno)?;
        if metadata.is_symlink() {
            return Ok(None);
        }
        let found = Rc::new(ResolvedPath { path: path.to_path_buf(), links: Vec::new(), metadata });
        self.known.borrow_mut().insert(path.as_os_str().to_os_string(), Ok(found.clone()));
        Ok(Some(found))
    }

    pub(crate) fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.resolve(path).ok().map(|resolved| resolved.path.clone())
    }

    pub(crate) fn is_directory(&self, path: &Path) -> bool {
        self.resolve(path).is_ok_and(|found| found.metadata.is_dir())
    }

    pub(crate) fn is_file(&self, path: &Path) -> bool {
        self.resolve(path).is_ok_and(|found| found.metadata.is_file())
    }

    /// What the link at `path` holds; `None` if `path` is no link, or one that leads nowhere.
    pub(crate) fn link(&self, path: &Path) -> Option<PathBuf> {
        let found = self.resolve(path).ok().filter(|found| !found.links.is_empty())?;
        let before = self.resolve(path.parent()?).ok()?.links.len();
        found.links.get(before).map(|link| link.to.clone())
    }

    /// Whether both paths lead to the same file, hard links included.
    pub(crate) fn same_file(&self, one: &Path, other: &Path) -> bool {
        let identity = |path| self.resolve(path).map(|found| (found.metadata.dev(), found.metadata.ino()));
        identity(one).is_ok_and(|one| identity(other) == Ok(one))
    }

    /// The names in a directory that begin with one of `beginnings`, sorted; none if it cannot be
    /// read.
    pub(crate) fn names(&self, directory: &Path, beginnings: &[&str]) -> Vec<OsString> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Some(directory) = self.canonical(directory) else { return Vec::new() };
        let Ok(directory) = rustix::fs::open(&*self.on_disk(&directory), flags, Mode::empty()) else {
            return Vec::new();
        };
        // Of /etc a few names in a hundred are wanted: std would copy each of them twice.
        let mut buffer = Vec::with_capacity(DIRECTORY_BYTES);
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name().to_bytes();
            let wanted = beginnings.iter().any(|beginning| name.starts_with(beginning.as_bytes()));
            if wanted && name != b"." && name != b".." {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        names.sort();
        names
    }

    /// Opens a regular file. A job may have put a FIFO in its place: that must not block.
    pub(crate) fn open(&self, path: &Path) -> Option<File> {
        let path = self.canonical(path)?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits().cast_signed());
        let file = options.open(self.on_disk(&path)).ok()?;
        file.metadata().ok()?.is_file().then_some(file)
    }

    /// The first 64 KiB of a regular file; `None` if there is no such file.
    pub(crate) fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(4096);
        self.open(path)?.take(MAX_VERSION_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// As [`Host::bytes`], as text.
    pub(crate) fn text(&self, path: &Path) -> Option<String> {
        self.bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn errno(error: io::Error) -> Errno {
    // Without a number only for a path with a NUL in it.
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}

fn parent_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).to_path_buf()
}

/// A name in a canonical directory; `Path::join` would look for more than one name and allocate
/// twice.
fn child(directory: &Path, name: &OsStr) -> PathBuf {
    let mut path = OsString::with_capacity(directory.as_os_str().len() + 1 + name.len());
    path.push(directory);
    if directory.as_os_str() != "/" {
        path.push("/");
    }
    path.push(name);
    PathBuf::from(path)
}

fn names_backwards(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().rev().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}
