//! A plan of files in the making.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::guard::PathGuard;
use super::notes::{Note, NoteKind};
use super::request::FilesRequest;
use super::tree::MountTree;
use crate::isolate::toolchain::lookup::HostFiles;

/// A plan in the making.
pub(super) struct Planner<'a> {
    pub request: &'a FilesRequest<'a>,
    pub host: &'a HostFiles,
    pub guard: PathGuard,
    pub tree: MountTree,
    pub notes: Vec<Note>,
    /// Shown directories of the caller, in which credentials are searched.
    pub searched: Vec<SearchedDirectory>,
    pub packages: VisitedPackages,
}

impl Planner<'_> {
    pub fn note(&mut self, kind: NoteKind, text: String) {
        let note = Note { kind, text };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// A directory of the caller's that is shown.
#[derive(Debug, Clone)]
pub(super) struct SearchedDirectory {
    /// Canonical path on the host.
    pub host: PathBuf,
    /// Its path inside.
    pub shown: PathBuf,
    pub writable: bool,
}

impl SearchedDirectory {
    pub fn at_own_path(path: &Path, writable: bool) -> Self {
        SearchedDirectory { host: path.to_owned(), shown: path.to_owned(), writable }
    }

    pub fn child(&self, name: &OsStr) -> Self {
        SearchedDirectory {
            host: self.host.join(name),
            shown: self.shown.join(name),
            writable: self.writable,
        }
    }
}

/// Directories of packages whose links were followed for a plan, and how much of its bounds is
/// used.
#[derive(Debug, Default)]
pub(super) struct VisitedPackages {
    pub directories: BTreeSet<PathBuf>,
    pub entries: usize,
    pub targets: usize,
}
