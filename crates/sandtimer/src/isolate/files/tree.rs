//! The pieces of a run's file system, put in an order in which they can be built.
//!
//! Knows nothing of what may be shown. The hard fact: a name can only be made where the run's own file system
//! is on top; below a directory of the host's, everything is what the host has there.

use super::{Kind, Mount};
use crate::isolate::toolchain::lookup::Link;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What covers a file that must not be seen.
const NOTHING: &str = "/dev/null";

/// Mounts by target. Paths order by component, so a parent precedes what lies below it.
#[derive(Debug, Default)]
pub(super) struct Tree {
    mounts: BTreeMap<PathBuf, Mount>,
}

impl Tree {
    /// Adds a mount. What stands at its target already stays, unless a writable view replaces a read-only one.
    pub(super) fn add(&mut self, mount: Mount) {
        let widens = |old: &Mount| matches!(old, Mount::Bind { writable: false, .. }) && is_writable(&mount);
        if self.mounts.get(mount.target()).is_none_or(widens) {
            self.mounts.insert(mount.target().to_path_buf(), mount);
        }
    }

    /// Shows a path of the host that is not the system's (canonical) where it lies.
    pub(super) fn bind(&mut self, path: &Path, kind: Kind, writable: bool) {
        let (source, target) = (path.to_path_buf(), path.to_path_buf());
        self.add(Mount::Bind { source, target, writable, identity_mapped: true, kind });
    }

    /// Covers a path that a bind mount would show.
    pub(super) fn hide(&mut self, target: PathBuf, kind: Kind) {
        self.add(match kind {
            Kind::Directory => Mount::Tmpfs { target, mode: 0o755 },
            Kind::File => {
                let source = PathBuf::from(NOTHING);
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

    /// Whether the host's `path` (canonical) is to be seen inside at that same path.
    pub(super) fn shows(&self, path: &Path) -> bool {
        match self.holder(path) {
            Some(Mount::Bind { source, target, kind: Kind::Directory, .. }) => source == target,
            Some(Mount::Bind { source, target, kind: Kind::File, .. }) => source == target && target == path,
            _ => false,
        }
    }

    /// Whether `path` is exactly a private directory of the run.
    pub(super) fn is_private(&self, path: &Path) -> bool {
        matches!(self.mounts.get(path), Some(Mount::Tmpfs { .. }))
    }

    /// Whether anything is put directly into the directory `path`.
    pub(super) fn has_entry_in(&self, path: &Path) -> bool {
        self.mounts.keys().any(|target| target.parent() == Some(path))
    }

    /// The innermost mount at or above `path`.
    fn holder(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|ancestor| self.mounts.get(ancestor))
    }

    /// The steps in order: without those that another makes pointless, with the directories that lead to them.
    pub(super) fn finish(self) -> Vec<Mount> {
        let mut steps: BTreeMap<PathBuf, Mount> = BTreeMap::new();
        for (target, mount) in self.mounts {
            let holder = target.ancestors().skip(1).find_map(|ancestor| steps.get(ancestor));
            match holder {
                None | Some(Mount::Directory { .. } | Mount::Tmpfs { .. }) => {}
                Some(Mount::Bind { writable: false, .. }) if is_writable(&mount) || hides(&mount) => {
                    steps.insert(target, mount);
                    continue;
                }
                // Seen there already, or no name can be made there.
                Some(_) => continue,
            }
            for parent in target.ancestors().skip(1).filter(|parent| parent.parent().is_some()) {
                if steps.contains_key(parent) {
                    break;
                }
                steps.insert(parent.to_path_buf(), Mount::Directory { target: parent.to_path_buf() });
            }
            steps.insert(target, mount);
        }
        steps.into_values().collect()
    }
}

fn hides(mount: &Mount) -> bool {
    match mount {
        Mount::Tmpfs { .. } => true,
        Mount::Bind { source, .. } => source == Path::new(NOTHING),
        _ => false,
    }
}

fn is_writable(mount: &Mount) -> bool {
    matches!(mount, Mount::Bind { writable: true, .. })
}
