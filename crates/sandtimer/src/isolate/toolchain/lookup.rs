//! Questions about the host's files, asked below a root that is `/` except in tests.
//!
//! Reads only, never writes. The walk along symbolic links is done here because std's `canonicalize` forgets
//! the links it went through, and every one of them must exist inside for the path to work there. What was
//! looked up once is not looked up again: a plan asks about a few hundred paths with few different parents.

use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

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
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The path without links.
    pub(crate) path: PathBuf,
    pub(crate) links: Vec<Link>,
    /// Of the file at the end.
    pub(crate) metadata: Metadata,
}

type Answer = Result<Rc<Resolved>, Errno>;

/// The host's file system, as one plan sees it.
#[derive(Debug)]
pub(crate) struct Host {
    /// Without a slash at its end: absolute paths are appended.
    root: OsString,
    /// By path as asked for. Every path that an answer holds has an answer of its own.
    known: RefCell<HashMap<OsString, Answer>>,
}

impl Host {
    pub(crate) fn new(root: &Path) -> Self {
        let root = if root == Path::new("/") { OsString::new() } else { root.as_os_str().to_os_string() };
        Self { root, known: RefCell::default() }
    }

    fn on_disk(&self, path: &Path) -> PathBuf {
        let mut whole = OsString::with_capacity(self.root.len() + path.as_os_str().len());
        whole.push(&self.root);
        whole.push(path);
        PathBuf::from(whole)
    }

    fn known(&self, path: &Path) -> Option<Answer> {
        self.known.borrow().get(path.as_os_str()).cloned()
    }

    /// Follows `path` (absolute) to its end.
    ///
    /// # Errors
    /// Those of lstat(2) on a component, and `ELOOP` after 40 links.
    pub(crate) fn resolve(&self, path: &Path) -> Answer {
        let unknown: Vec<&Path> = path.ancestors().take_while(|path| self.known(path).is_none()).collect();
        for path in unknown.into_iter().rev() {
            let answer = self.step(path);
            self.known.borrow_mut().entry(path.as_os_str().to_os_string()).or_insert(answer);
        }
        self.known(path).unwrap_or(Err(Errno::NOENT))
    }

    /// Follows the last component of `path`, whose parent is known.
    fn step(&self, path: &Path) -> Answer {
        let Some(parent) = path.parent() else { return self.look(Path::new("/"))?.ok_or(Errno::LOOP) };
        let parent = self.known(parent).unwrap_or(Err(Errno::NOENT))?;
        let (mut here, mut links) = (parent.path.clone(), parent.links.clone());
        let mut is_directory = parent.metadata.is_dir();
        let mut rest: Vec<OsString> = names_backwards(path).take(1).map(OsStr::to_os_string).collect();
        while let Some(name) = rest.pop() {
            if !is_directory {
                return Err(Errno::NOTDIR);
            }
            if name == ".." {
                here.pop();
                continue;
            }
            here.push(&name);
            if let Some(found) = self.look(&here)? {
                is_directory = found.metadata.is_dir();
                links.extend_from_slice(&found.links);
                here.clone_from(&found.path);
            } else {
                let to = self.on_disk(&here).read_link().map_err(errno)?;
                rest.extend(names_backwards(&to).map(OsStr::to_os_string));
                links.push(Link { at: here.clone(), to: to.clone() });
                here = if to.is_absolute() { PathBuf::from("/") } else { parent_of(here) };
            }
            if links.len() > LINKS {
                return Err(Errno::LOOP);
            }
        }
        let end = self.known(&here).unwrap_or(Err(Errno::NOENT))?;
        if links.is_empty() {
            return Ok(end);
        }
        Ok(Rc::new(Resolved { path: here, links, metadata: end.metadata.clone() }))
    }

    /// What is at `path`, whose parent is canonical; `None` if it is a link not followed before.
    fn look(&self, path: &Path) -> Result<Option<Rc<Resolved>>, Errno> {
        if let Some(known) = self.known(path) {
            return known.map(Some);
        }
        let found = match self.on_disk(path).symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => return Ok(None),
            Ok(metadata) => Ok(Rc::new(Resolved { path: path.to_path_buf(), links: Vec::new(), metadata })),
            Err(error) => Err(errno(error)),
        };
        self.known.borrow_mut().insert(path.as_os_str().to_os_string(), found.clone());
        found.map(Some)
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
        let before = self.resolve(path.parent()?).ok()?.links.len();
        self.resolve(path).ok()?.links.get(before).map(|link| link.to.clone())
    }

    /// Whether both paths lead to the same file, hard links included.
    pub(crate) fn same_file(&self, one: &Path, other: &Path) -> bool {
        let identity = |path| self.resolve(path).map(|found| (found.metadata.dev(), found.metadata.ino()));
        identity(one).is_ok_and(|one| identity(other) == Ok(one))
    }

    /// The names in a directory that begin with one of `beginnings`, sorted; none if it cannot be read.
    pub(crate) fn names(&self, directory: &Path, beginnings: &[&str]) -> Vec<OsString> {
        let Some(directory) = self.canonical(directory) else { return Vec::new() };
        let Ok(entries) = self.on_disk(&directory).read_dir() else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name());
        let begins = |name: &OsString, beginning: &str| name.as_bytes().starts_with(beginning.as_bytes());
        let mut names: Vec<OsString> =
            names.filter(|name| beginnings.iter().any(|beginning| begins(name, beginning))).collect();
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
        let mut bytes = Vec::with_capacity(4096);
        self.open(path)?.take(TEXT_BYTES).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn errno(error: io::Error) -> Errno {
    // Without a number only for a path with a NUL in it.
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}

fn parent_of(mut path: PathBuf) -> PathBuf {
    path.pop();
    path
}

fn names_backwards(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().rev().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}
