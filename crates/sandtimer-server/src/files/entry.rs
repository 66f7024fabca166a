//! The description of a file.

use rustix::fs::{FileType, Stat};
use serde_json::{Value, json};

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

impl EntryKind {
    pub const NAMES: [&str; 6] = ["file", "directory", "symlink", "fifo", "socket", "device"];

    pub fn of(status: &Stat) -> Self {
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink,
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => EntryKind::Socket,
            _ => EntryKind::Device,
        }
    }

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// A file, as it was when it was inspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileEntry {
    /// Relative to the workspace. A name that is not UTF-8 has U+FFFD in it, and cannot be
    /// addressed.
    pub path: String,
    pub kind: EntryKind,
    pub size: u64,
    pub modified_at_ms: u64,
    /// The permission bits.
    pub mode: u32,
    /// The target of a link.
    pub target: Option<String>,
}

impl FileEntry {
    pub fn new(path: String, status: &Stat, target: Option<String>) -> Self {
        let modified = i128::from(status.st_mtime) * 1_000 + i128::from(status.st_mtime_nsec) / 1_000_000;
        FileEntry {
            path,
            kind: EntryKind::of(status),
            size: u64::try_from(status.st_size).unwrap_or(0),
            modified_at_ms: u64::try_from(modified).unwrap_or(0),
            mode: status.st_mode & 0o7777,
            target,
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "path": self.path,
            "type": self.kind.name(),
            "size": self.size,
            "modified_at_ms": self.modified_at_ms,
            "mode": format!("{:04o}", self.mode),
            "target": self.target,
        })
    }
}
