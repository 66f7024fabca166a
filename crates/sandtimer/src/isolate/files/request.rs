//! What a plan of files depends on, besides the files of the host.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::devices::DeviceUser;
use crate::isolate::machine::MachineFiles;

/// Where a run starts that has no directory of the host's to start in.
pub const WORKSPACE: &str = "/workspace";
/// The name of a program's source in a sandbox that a zygote's child is in: it leads to a
/// descriptor of the child's, which is the second process there (`SOURCE` in zygote/programs.py).
pub const PROGRAM_FILE: &str = "/sandtimer/main.py";
pub(super) const PROGRAM_DESCRIPTOR: &str = "/proc/2/fd/100";
/// The descriptor by which other programs have their file, if their limit of open files allows it,
/// and its name.
pub const FILE_DESCRIPTOR: u64 = 100;
pub(super) const OWN_FILE: &str = "/proc/self/fd/100";

/// Everything that the plan depends on, besides the host's files.
#[derive(Debug, Clone, Copy)]
pub struct FilesRequest<'a> {
    /// Put in front of every host path that is looked up: `/`, or a temporary directory in tests.
    pub root: &'a Path,
    /// The command as typed; `None` when no program is chosen yet.
    pub command: Option<&'a OsStr>,
    /// The `PATH` the command is searched along.
    pub path_variable: &'a OsStr,
    /// The caller's environment: `PYENV_VERSION`, `RUSTUP_TOOLCHAIN`, `CARGO_HOME` and the like are
    /// honoured.
    pub variables: &'a [(OsString, OsString)],
    /// The caller's current directory. Relative paths are taken against it.
    pub host_cwd: &'a Path,
    /// What the run works in.
    pub start: StartDirectory<'a>,
    /// The directory to start in, if another than `start` gives. It must be visible inside.
    pub cwd: Option<&'a Path>,
    /// Directories shown writable at their own paths.
    pub workspaces: &'a [PathBuf],
    /// Every home directory known; see [`home_directories`](super::home_directories).
    pub homes: &'a [PathBuf],
    /// Further files and directories to show: the entries of Python's `sys.path`. Entries that may
    /// not be shown are left out with a note.
    pub extra_read_only: &'a [PathBuf],
    /// Shows where the links of packages lead, too: in those, in `world_readable`, and, where there
    /// are none of those, in what the command is installed with.
    pub follows_package_links: bool,
    /// Shows credentials too, where a directory holds them.
    pub show_credentials: bool,
    /// A directory that the engine made, shown writable as [`HOME`](super::HOME) instead of a
    /// private one.
    pub temporary: Option<&'a Path>,
    /// Further directories to show, without what only the owner of a file may read.
    pub world_readable: &'a [PathBuf],
    /// Files of the engine's own, below `/sandtimer`.
    pub own: &'a [(PathBuf, &'static [u8])],
    /// What is shown of the machine.
    pub machine: &'a MachineFiles,
    /// Whether the run shares the host's network, and so needs its resolver's settings.
    pub network: bool,
    /// How many pseudo-terminals the run may open; without any it has no terminal device either.
    pub ptys: u32,
    /// Shows the host's GPUs, as far as the run can open them with these rights.
    pub gpus: Option<DeviceUser>,
}

/// What a run works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDirectory<'a> {
    /// The caller's current directory, shown read-only at its own path if that is allowed.
    CurrentDirectory,
    /// An empty private `/workspace`.
    EmptyWorkspace,
    /// This directory, made by the engine, shown writable as `/workspace`.
    Workspace(&'a Path),
    /// This directory of the caller's, shown writable at its own path, to which `/workspace` is a
    /// link. Credentials in it are covered.
    CallersDirectory(&'a Path),
}
