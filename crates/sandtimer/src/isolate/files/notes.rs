//! What a plan of files leaves out, and why no plan can be made.

use std::ffi::OsString;
use std::path::PathBuf;

/// What a [`Note`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteKind {
    /// The current directory is not mounted.
    CurrentDirectory,
    /// A `PATH` entry does not exist inside.
    PathEntry,
    /// A program installation is not shown, or not wholly.
    Installation,
    /// An entry of [`extra_read_only`](super::FilesRequest::extra_read_only) or
    /// [`world_readable`](super::FilesRequest::world_readable) is not shown.
    Extra,
    /// Credentials that may be shown.
    Credentials,
}

/// Something a caller might miss inside, and why it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What the text is about.
    pub kind: NoteKind,
    /// A sentence for the caller.
    pub text: String,
}

/// Why no plan could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// As env(1): exit code 127.
    #[error("command `{}` is not found: {detail}", command.display())]
    Missing {
        /// The command as it was given.
        command: OsString,
        /// Where it was searched for, or why it is not visible inside.
        detail: String,
    },
    /// As env(1): exit code 126.
    #[error("command `{}` cannot be executed: {detail}", command.display())]
    NotExecutable {
        /// The command as it was given.
        command: OsString,
        /// The reason, such as a missing permission.
        detail: String,
    },
    /// A workspace cannot be shown.
    #[error("workspace `{}` {problem}; {remedy}", path.display())]
    Workspace {
        /// The directory as it was given.
        path: PathBuf,
        /// What makes it unusable, as the end of a sentence.
        problem: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The run cannot start in this directory.
    #[error("starting directory `{}` {problem}; {remedy}", path.display())]
    StartingDirectory {
        /// The directory as it was given.
        path: PathBuf,
        /// What makes it unusable, as the end of a sentence.
        problem: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// GPUs were asked for, and none can be opened.
    #[error(
        "this host has no GPU to give to a run: {found}; load its driver, pass its devices into the container, or do without"
    )]
    NoGpu {
        /// What the host has instead.
        found: String,
    },
}

impl FilesError {
    /// The exit code of `sandtimer run` for this error: 126 or 127 as env(1), else 125.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Missing { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Workspace { .. } | Self::StartingDirectory { .. } | Self::NoGpu { .. } => 125,
        }
    }
}
