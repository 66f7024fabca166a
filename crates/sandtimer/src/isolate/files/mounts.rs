//! The steps that build the file system of a run.

use std::path::{Path, PathBuf};

use crate::isolate::machine::Contents;

/// The host name inside.
pub const HOST_NAME: &str = "sandbox";
/// The name of the job's user inside.
pub const USER_NAME: &str = "sandbox";
/// The job's home directory inside: private, writable and empty.
pub const HOME: &str = "/tmp";
/// The line of /etc/passwd for the overflow uid, which unmapped owners have.
const OTHER_USERS: &str = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";

/// Whether a bind mount shows a directory or a single file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A directory and what is below it.
    Directory,
    /// One file.
    File,
}

/// One step of building the run's file system. Applied in order: what lies below a target comes
/// right after it.
///
/// The engine makes the mount point itself wherever it lies in a [`Mount::Directory`], in a
/// [`Mount::Tmpfs`] or directly below `/`; elsewhere it exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// An empty root-owned directory of mode 0755 that leads to something shown.
    Directory {
        /// The path inside.
        target: PathBuf,
    },
    /// A part of the host, without its devices and set-id bits.
    Bind {
        /// Canonical path on the host.
        source: PathBuf,
        /// The path inside.
        target: PathBuf,
        /// Whether the run may write there, as far as the modes of the files allow it.
        writable: bool,
        /// The files' owner must become the job's user (idmapped mount), or the job cannot use
        /// them. False for the system's files, which keep the owners they have.
        identity_mapped: bool,
        /// What `source` is.
        kind: FileKind,
    },
    /// A symbolic link.
    Symlink {
        /// The path of the link inside.
        target: PathBuf,
        /// What the link contains.
        points_to: PathBuf,
    },
    /// An empty private directory of this mode on the run's own sized tmpfs. It may hide a
    /// directory of a bind mount.
    Tmpfs {
        /// The path inside.
        target: PathBuf,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// A root-owned file of mode 0644 with these contents.
    Synthetic {
        /// The path inside.
        target: PathBuf,
        /// What the file contains.
        contents: Contents,
    },
    /// As `Synthetic`, with the user and group that the job has inside.
    Accounts {
        /// The path inside.
        target: PathBuf,
        /// Which of the two files it is.
        file: AccountFile,
    },
    /// The host's device node of the same path, such as `/dev/null`.
    Device {
        /// The path of the node, on the host and inside.
        target: PathBuf,
    },
    /// A private instance of devpts, with room for this many.
    Terminals {
        /// The path inside.
        target: PathBuf,
        /// The maximum number of open pseudo-terminals.
        most: u32,
    },
    /// The proc file system of the run's own pid namespace, with these files in place of its own.
    Proc {
        /// The path inside.
        target: PathBuf,
        /// Names below `target`, and what they contain.
        files: Vec<(&'static str, Contents)>,
    },
}

impl Mount {
    /// Where the step takes effect, as a path inside.
    #[must_use]
    pub fn target(&self) -> &Path {
        match self {
            Self::Directory { target }
            | Self::Bind { target, .. }
            | Self::Symlink { target, .. }
            | Self::Tmpfs { target, .. }
            | Self::Synthetic { target, .. }
            | Self::Accounts { target, .. }
            | Self::Device { target }
            | Self::Terminals { target, .. }
            | Self::Proc { target, .. } => target,
        }
    }
}

/// A file that names the job's user. Its contents differ from run to run, and nothing else of a
/// plan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountFile {
    /// `/etc/passwd`.
    Passwd,
    /// `/etc/group`.
    Group,
}

impl AccountFile {
    /// The file for a job with this user and group.
    #[must_use]
    pub fn contents(self, uid: u32, gid: u32) -> String {
        match self {
            Self::Passwd => format!(
                "root:x:0:0:root:/root:/usr/sbin/nologin\n\
                 {USER_NAME}:x:{uid}:{gid}:{USER_NAME}:{HOME}:/bin/sh\n\
                 {OTHER_USERS}"
            ),
            Self::Group => format!("root:x:0:\n{USER_NAME}:x:{gid}:\nnogroup:x:65534:\n"),
        }
    }
}
