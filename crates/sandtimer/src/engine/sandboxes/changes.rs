//! What has changed in a sandbox against its template, and all files of a sandbox: read from its
//! layers, which untrusted code has written, and in which runs may change anything at the same
//! time.
//!
//! Of each directory the layers that it is merged from are known, the topmost first: a whiteout
//! hides what lower layers have under a name, and so does a directory that is marked as opaque
//! (overlayfs.rst). Nothing is followed; only directories, and regular files that are asked for,
//! are opened.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, Stat, fstat, getxattr, readlinkat};
use rustix::io::Errno;
use sandtimer_os::thread::{block_signals, read_marks_as};

use super::super::workspace::workspace_owner;
use super::layers::Base;
use super::walk::{self, MAX_ENTRIES, MAX_PATH_BYTES, WalkEntry, WalkError};
use super::{Error, Sandbox, SandboxError, lock, mount};
use crate::isolate::files::WORKSPACE;
use crate::isolate::sandbox::SANDBOX_HOME;

/// Bytes of a path that a message has.
const MAX_SHOWN_BYTES: usize = 200;
/// Directories that every sandbox has from the engine.
const OWN_DIRECTORIES: [&str; 6] = ["home", SANDBOX_HOME, "tmp", "var", "var/tmp", WORKSPACE];

/// What is read of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// What differs from its template. A fork has the template of its origin.
    Changes,
    /// All files, but those that the engine shows of the host.
    Whole,
}

/// What has become of a file, directory or link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The template has nothing at this path.
    Added,
    /// Its contents, mode, owner or kind differ from those in the template.
    Changed,
    /// With all that was in it.
    Deleted,
}

/// Something that was read.
#[derive(Debug)]
#[non_exhaustive]
pub struct ChangedFile<'a> {
    /// Below the root of the sandbox.
    pub path: &'a Path,
    /// How it differs from the template; [`Change::Added`] for each file of a [`Reading::Whole`].
    pub change: Change,
    /// Of the file now; of the template's, if it is deleted.
    pub status: &'a Stat,
    /// It is in a directory of the operator's, of which the sandbox's user may not read everything.
    pub is_operators: bool,
    root: &'a OwnedFd,
}

impl ChangedFile<'_> {
    /// What it is.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.status.st_mode)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// As openat2(2); it is not a regular file any more.
    pub fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        // First without opening it: to open a device or a FIFO may have effects.
        let found = walk::open_below(self.root.as_fd(), self.path, OFlags::PATH)?;
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::RegularFile {
            return Err(Errno::NXIO.into());
        }
        let file = walk::open_below(self.root.as_fd(), self.path, flags)?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file),
            _ => Err(Errno::NXIO.into()),
        }
    }

    /// Where a link leads.
    ///
    /// # Errors
    /// As readlinkat(2).
    pub fn target(&self) -> io::Result<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let found = walk::open_below(self.root.as_fd(), self.path, OFlags::PATH)?;
        Ok(OsString::from_vec(readlinkat(&found, "", Vec::new())?.into_bytes()).into())
    }
}

impl Sandbox {
    /// Reads its files, on a thread that has no more rights than their owner, and that of reading
    /// overlayfs's marks. Blocks.
    ///
    /// # Errors
    /// What `visit` returns; a directory that its owner may not read, a path that is too long, or
    /// more than a million names.
    pub fn read_files(
        &self,
        reading: Reading,
        visit: &mut (dyn FnMut(&ChangedFile<'_>) -> io::Result<()> + Send),
    ) -> Result<(), Error> {
        let (layers, has_user_attributes) = self.open_layers(reading)?;
        let read = move || {
            block_signals();
            if let Some(owner) = workspace_owner() {
                read_marks_as(owner, owner).map_err(storage)?;
            }
            let attribute =
                if has_user_attributes { "user.overlay.opaque" } else { "trusted.overlay.opaque" };
            let mut reader = ChangeReader { reading, layers, attribute, left: MAX_ENTRIES, visit };
            reader.walk()
        };
        std::thread::scope(|scope| -> Result<(), Error> {
            let started = std::thread::Builder::new().name("st-files".to_owned()).spawn_scoped(scope, read);
            let failed = |_| Err(storage(io::Error::other("the thread that read the files failed")));
            Ok(started.map_err(storage)?.join().unwrap_or_else(failed)?)
        })
    }

    /// Opens the roots of its layers as they are stacked now; and whether their marks are those of
    /// a user.
    fn open_layers(&self, reading: Reading) -> Result<(LayerRoots, bool), Error> {
        let storage = |source| SandboxError::Storage { doing: "cannot open the sandbox's layers", source };
        let state = &self.state;
        // No snapshot is made while it is held.
        let life = lock(&state.life);
        if life.is_deleted {
            return Err(SandboxError::NotFound(state.id.clone()).into());
        }
        let record = lock(&state.record).clone();
        if life.mounted.is_none() {
            let _lock = mount::take_lock(&state.home)?;
            state.home.finish_stacking(&state.layers, &record, &|_| {}).map_err(storage)?;
        }
        let stack = &record.stack;
        let kept = match reading {
            Reading::Changes => record.template_layers,
            Reading::Whole => 0,
        };
        let open = |path: &Path| walk::open_root(path).map_err(|error| storage(error.into()));
        let mut roots = vec![open(&state.home.upper())?];
        for id in stack.layers.iter().rev() {
            roots.push(open(&state.layers.upper(id))?);
        }
        match &stack.base {
            Base::Host => {}
            Base::Directory(path) => roots.push(open(path)?),
            Base::Layer(id) => roots.push(open(&state.layers.upper(id))?),
        }
        let new = match reading {
            Reading::Changes => 1 + stack.layers.len() - kept,
            Reading::Whole => roots.len(),
        };
        let unshared = match &stack.base {
            Base::Directory(_) => roots.len() - 1,
            _ => roots.len(),
        };
        Ok((LayerRoots { roots, new, unshared }, stack.has_user_attributes))
    }
}

/// The roots of layers, the topmost first.
#[derive(Debug)]
struct LayerRoots {
    roots: Vec<OwnedFd>,
    /// How many of them are read; those below are what they are compared with.
    new: usize,
    /// How many have the files of sandboxes: what is below is the operator's, of which the
    /// sandbox's user may not read everything.
    unshared: usize,
}

/// The uppermost entry under a name.
#[derive(Debug)]
struct TopEntry {
    layer: usize,
    status: Stat,
}

/// What layers have under a name of a directory that they are merged to.
#[derive(Debug, Default)]
struct MergedEntry {
    /// What is to be seen.
    top: Option<TopEntry>,
    /// The layers that a directory is merged from.
    layers: Vec<usize>,
    /// What is below these layers is not to be seen.
    is_cut: bool,
}

struct ChangeReader<'a> {
    reading: Reading,
    layers: LayerRoots,
    attribute: &'static str,
    left: u64,
    visit: &'a mut (dyn FnMut(&ChangedFile<'_>) -> io::Result<()> + Send),
}

/// A directory that is still to be read.
struct PendingChange {
    path: PathBuf,
    new: Vec<usize>,
    old: Vec<usize>,
    /// Nothing of the old one is to be seen but what the new one has.
    is_cut: bool,
}

impl ChangeReader<'_> {
    fn walk(&mut self) -> Result<(), SandboxError> {
        let (new, all) = (self.layers.new, self.layers.roots.len());
        let root = PendingChange {
            path: PathBuf::new(),
            new: (0..new).collect(),
            old: (new..all).collect(),
            is_cut: false,
        };
        let mut pending = vec![root];
        while let Some(directory) = pending.pop() {
            let below = self.directory(&directory)?;
            // Each directory is followed by what is in it.
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    fn directory(&mut self, directory: &PendingChange) -> Result<Vec<PendingChange>, SandboxError> {
        let new = self.merged(&directory.path, &directory.new)?;
        let old = self.merged(&directory.path, &directory.old)?;
        let mut below = Vec::new();
        let mut names: Vec<&OsString> = new.keys().collect();
        if directory.is_cut {
            names.extend(old.keys().filter(|name| !new.contains_key(*name)));
            names.sort();
        }
        let nothing = MergedEntry::default();
        for name in names {
            let path = directory.path.join(name);
            let (now, before) = (new.get(name).unwrap_or(&nothing), old.get(name).unwrap_or(&nothing));
            match (&now.top, &before.top) {
                (None, None) => {}
                (None, Some(gone)) => self.found(&path, Change::Deleted, gone)?,
                (Some(top), before_top) => {
                    let change = match before_top {
                        None if self.reading == Reading::Changes && is_own(&path) => None,
                        None => Some(Change::Added),
                        Some(before) => differs(&top.status, &before.status).then_some(Change::Changed),
                    };
                    if let Some(change) = change {
                        self.found(&path, change, top)?;
                    }
                    if !now.layers.is_empty() {
                        below.push(PendingChange {
                            path,
                            new: now.layers.clone(),
                            old: before.layers.clone(),
                            // Overlayfs marks no directory that is made in an opaque one.
                            is_cut: now.is_cut || directory.is_cut,
                        });
                    }
                }
            }
        }
        Ok(below)
    }

    fn found(&mut self, path: &Path, change: Change, entry: &TopEntry) -> Result<(), SandboxError> {
        let TopEntry { layer, status } = entry;
        let root = &self.layers.roots[*layer];
        let is_operators = *layer >= self.layers.unshared;
        (self.visit)(&ChangedFile { path, change, status, is_operators, root }).map_err(storage)
    }

    /// What a directory has that is merged from these layers. A name that is hidden has nothing.
    fn merged(
        &mut self,
        path: &Path,
        layers: &[usize],
    ) -> Result<BTreeMap<OsString, MergedEntry>, SandboxError> {
        let mut merged: BTreeMap<OsString, MergedEntry> = BTreeMap::new();
        for layer in layers {
            let is_unshared = *layer < self.layers.unshared;
            let entries = match walk::entries(self.layers.roots[*layer].as_fd(), path, &mut self.left) {
                // What the operator keeps from others is kept from the sandbox, too.
                Err(WalkError::System(Errno::ACCESS)) if !is_unshared => continue,
                // It is removed, or something else, by now.
                Err(WalkError::System(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => continue,
                entries => entries.map_err(|error| failure(path, error))?,
            };
            for entry in entries {
                let found = merged.entry(entry.name.clone()).or_default();
                if !found.is_cut {
                    self.add(found, *layer, path, &entry);
                }
            }
        }
        Ok(merged)
    }

    fn add(&self, found: &mut MergedEntry, layer: usize, path: &Path, entry: &WalkEntry) {
        let is_directory = entry.kind() == FileType::Directory;
        if entry.is_whiteout() || (found.top.is_some() && !is_directory) {
            found.is_cut = true;
            return;
        }
        if found.top.is_none() {
            found.top = Some(TopEntry { layer, status: entry.status });
        }
        match is_directory {
            true => {
                found.layers.push(layer);
                found.is_cut = self.is_opaque(layer, &path.join(&entry.name));
            }
            false => found.is_cut = true,
        }
    }

    fn is_opaque(&self, layer: usize, path: &Path) -> bool {
        // An operator's directory has no marks of ours.
        if layer >= self.layers.unshared {
            return false;
        }
        let Ok(found) =
            walk::open_below(self.layers.roots[layer].as_fd(), path, OFlags::PATH | OFlags::DIRECTORY)
        else {
            return false;
        };
        let mut value = [0; 8];
        let name = format!("/proc/self/fd/{}", found.as_raw_fd());
        getxattr(name, self.attribute, &mut value).is_ok_and(|length| value[..length] == *b"y")
    }
}

/// Whether a name is the engine's, which every sandbox has.
fn is_own(path: &Path) -> bool {
    OWN_DIRECTORIES.iter().any(|own| path == Path::new(own.trim_start_matches('/')))
}

/// Whether a file that was copied to a layer has changed since. What a directory has does not
/// count.
fn differs(now: &Stat, before: &Stat) -> bool {
    if now.st_mode != before.st_mode {
        return true;
    }
    let content = |status: &Stat| (status.st_size, status.st_mtime, status.st_mtime_nsec);
    FileType::from_raw_mode(now.st_mode) != FileType::Directory && content(now) != content(before)
}

fn storage(source: io::Error) -> SandboxError {
    SandboxError::Storage { doing: "cannot read the sandbox's files", source }
}

/// Why a directory of the sandbox was not read.
fn failure(path: &Path, error: WalkError) -> SandboxError {
    match error {
        WalkError::TooManyEntries => SandboxError::TooManyFiles { most: MAX_ENTRIES },
        WalkError::System(Errno::NAMETOOLONG) => {
            SandboxError::PathTooLong { path: shown(path), most: MAX_PATH_BYTES }
        }
        WalkError::System(error) => {
            let error = io::Error::from(error);
            storage(io::Error::new(error.kind(), format!("{}: {error}", shown(path))))
        }
    }
}

/// A path as messages have it: its beginning, with what is not printable escaped.
fn shown(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let beginning = &bytes[..bytes.len().min(MAX_SHOWN_BYTES)];
    let rest = if beginning.len() < bytes.len() { "…" } else { "" };
    format!("/{}{rest}", String::from_utf8_lossy(beginning).escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_stops_at_its_budget() {
        let scratch = tempfile::tempdir().expect("a directory");
        for name in ["a", "b", "c", "d", "e"] {
            std::fs::write(scratch.path().join(name), "x").expect("written");
        }
        for (left, expected) in [(4, None), (5, Some(5))] {
            let mut count = 0;
            let mut visit = |_: &ChangedFile<'_>| -> io::Result<()> {
                count += 1;
                Ok(())
            };
            let roots = vec![walk::open_root(scratch.path()).expect("open")];
            let layers = LayerRoots { roots, new: 1, unshared: 1 };
            let attribute = "trusted.overlay.opaque";
            let read =
                ChangeReader { reading: Reading::Whole, layers, attribute, left, visit: &mut visit }.walk();
            match (read, expected) {
                (Ok(()), Some(expected)) => assert_eq!(count, expected),
                (Err(error @ SandboxError::TooManyFiles { .. }), None) => {
                    assert!(!error.is_retryable() && count == 0, "{error}");
                }
                other => panic!("{left}: {other:?}"),
            }
        }
    }

    #[test]
    fn paths_in_messages_are_short_and_escaped() {
        assert_eq!(shown(Path::new("a/b c")), "/a/b c");
        assert_eq!(shown(Path::new("a\nb\u{1b}[1m")), "/a\\nb\\u{1b}[1m");
        assert_eq!(shown(Path::new(&"é".repeat(500))).chars().count(), 102);
    }
}
