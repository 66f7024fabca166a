//! The pieces of a run's file system, put in an order in which they can be built.
//!
//! Knows nothing of what may be shown. The hard fact: a name can only be made where the run's own
//! file system is on top; below a directory of the host's, everything is what the host has there.

use super::mounts::{FileKind, HOME, Mount};
use crate::isolate::toolchain::lookup::Link;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What covers a hidden file.
const NULL_DEVICE: &str = "/dev/null";

/// Mounts by the [`key`] of their target.
#[derive(Debug, Default)]
pub(super) struct MountTree {
    mounts: BTreeMap<Vec<u8>, Mount>,
}

/// A path as bytes that are compared as they are: each name after a NUL, so what lies below a path
/// comes right after it, and the keys of its parents are prefixes of its own.
fn key(path: &Path) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    let mut key = Vec::with_capacity(path.len());
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
        key.push(0);
        key.extend_from_slice(name);
    }
    key
}

/// The key of the parent; `None` for that of `/`.
fn parent(key: &[u8]) -> Option<&[u8]> {
    key.iter().rposition(|byte| *byte == 0).map(|end| &key[..end])
}

/// The path of a key.
fn path(key: &[u8]) -> PathBuf {
    let bytes = key.iter().map(|byte| if *byte == 0 { b'/' } else { *byte });
    PathBuf::from(OsString::from_vec(bytes.collect()))
}

fn lies_below(key: &[u8], above: &[u8]) -> bool {
    key.strip_prefix(above).is_some_and(|rest| rest.starts_with(&[0]))
}

impl MountTree {
    /// Adds a mount. A mount that is already at its target stays, unless a writable view replaces a
    /// read-only one.
    pub(super) fn add(&mut self, mount: Mount) {
        let key = key(mount.target());
        let widens = |old: &Mount| matches!(old, Mount::Bind { writable: false, .. }) && is_writable(&mount);
        if self.mounts.get(&key).is_none_or(widens) {
            self.mounts.insert(key, mount);
        }
    }

    /// Shows a path of the host that is not the system's (canonical) where it lies.
    pub(super) fn bind(&mut self, path: &Path, kind: FileKind, writable: bool) {
        let (source, target) = (path.to_path_buf(), path.to_path_buf());
        self.add(Mount::Bind { source, target, writable, identity_mapped: true, kind });
    }

    /// Covers a path that a bind mount would show.
    pub(super) fn hide(&mut self, target: PathBuf, kind: FileKind) {
        self.add(match kind {
            FileKind::Directory => Mount::Tmpfs { target, mode: 0o755 },
            FileKind::File => {
                let source = PathBuf::from(NULL_DEVICE);
                Mount::Bind { source, target, writable: false, identity_mapped: false, kind }
            }
        });
    }

    /// Makes the links a path led through exist inside, where the run's own file system is on top.
    pub(super) fn link_all(&mut self, links: &[Link]) {
        for link in links {
            if !self.shows(&link.at) {
                self.add(Mount::Symlink { target: link.at.clone(), points_to: link.to.clone() });
            }
        }
    }

    /// Whether the host's `path` (canonical) is shown inside at that same path.
    pub(super) fn shows(&self, path: &Path) -> bool {
        match self.holder(path) {
            Some(Mount::Bind { source, target, kind: FileKind::Directory, .. }) => source == target,
            Some(Mount::Bind { source, target, kind: FileKind::File, .. }) => {
                source == target && target == path
            }
            _ => false,
        }
    }

    /// Whether `path` is exactly a private directory of the run.
    pub(super) fn is_private(&self, path: &Path) -> bool {
        matches!(self.mounts.get(&key(path)), Some(Mount::Tmpfs { .. }))
    }

    /// Whether anything is put directly into the directory `path`.
    pub(super) fn has_entry_in(&self, path: &Path) -> bool {
        let directory = key(path);
        self.mounts.keys().any(|key| parent(key) == Some(&directory))
    }

    /// The innermost mount at or above `path`.
    fn holder(&self, path: &Path) -> Option<&Mount> {
        let key = key(path);
        std::iter::successors(Some(key.as_slice()), |key| parent(key)).find_map(|key| self.mounts.get(key))
    }

    /// The steps in order: without those that another makes pointless, with the directories that
    /// lead to them.
    pub(super) fn finish(self) -> Vec<Mount> {
        let mut steps: Vec<Mount> = Vec::with_capacity(self.mounts.len() * 2);
        // The steps that lead to the one at hand, by key and index: those before it that it lies
        // below.
        let mut leading: Vec<(Vec<u8>, usize)> = Vec::new();
        for (key, mount) in self.mounts {
            while leading.last().is_some_and(|(above, _)| !lies_below(&key, above)) {
                leading.pop();
            }
            let holder = leading.last().map(|(_, step)| &steps[*step]);
            let makes_names = match holder {
                None | Some(Mount::Directory { .. } | Mount::Tmpfs { .. }) => true,
                Some(Mount::Bind { writable: false, .. }) if is_writable(&mount) => false,
                Some(Mount::Bind { .. }) if hides(&mount) => false,
                // The engine makes the mount point.
                Some(Mount::Bind { target, .. }) if is_shared_temporary(target) && can_be_below(&mount) => {
                    false
                }
                // Shown there already, or no name can be made there.
                Some(_) => continue,
            };
            if makes_names {
                let from = leading.last().map_or(0, |(above, _)| above.len());
                for end in (from + 1..key.len()).filter(|end| key[*end] == 0) {
                    leading.push((key[..end].to_vec(), steps.len()));
                    steps.push(Mount::Directory { target: path(&key[..end]) });
                }
            }
            leading.push((key, steps.len()));
            steps.push(mount);
        }
        steps
    }
}

/// Whether a bind mount at this path is a temporary directory that several runs share.
fn is_shared_temporary(target: &Path) -> bool {
    target == Path::new(HOME)
}

fn can_be_below(mount: &Mount) -> bool {
    matches!(mount, Mount::Bind { .. } | Mount::Tmpfs { .. })
}

fn hides(mount: &Mount) -> bool {
    match mount {
        Mount::Tmpfs { .. } => true,
        Mount::Bind { source, .. } => source == Path::new(NULL_DEVICE),
        _ => false,
    }
}

fn is_writable(mount: &Mount) -> bool {
    matches!(mount, Mount::Bind { writable: true, .. })
}
