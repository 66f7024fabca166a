//! Which of the host's files a run sees, and where: an allow-list, worked out before anything is
//! mounted.
//!
//! Reads metadata and a few small text files of the host; mounts, creates and opens nothing for the
//! run. The hard fact: what is absent from the plan does not exist for the run, so a mistake here
//! either breaks an honest program or shows a user's keys to untrusted code. No mount source is
//! ever a home directory, holds one, or holds credentials. What a project's own files name (a
//! version, an interpreter, a library) may have been written by an earlier run: it is shown only if
//! it is a program, an ELF library or a known installation.

mod credentials;
mod devices;
mod guard;
mod notes;
mod packages;
mod programs;
mod reach;
mod readable;
mod system;
mod tree;

#[cfg(test)]
mod tests;

use crate::isolate::machine::{Contents, MachineFiles};
use crate::isolate::toolchain::lookup::{HostFiles, ResolvedPath};
use credentials::SearchedDirectory;
pub use devices::{DeviceUser, Gpus};
use guard::{PathGuard, PathRejection};
pub use notes::{FilesError, Note, NoteKind};
use packages::ShownPart;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tree::MountTree;

/// The host name inside.
pub const HOST_NAME: &str = "sandbox";
/// The name of the job's user inside.
pub const USER_NAME: &str = "sandbox";
/// The job's home directory inside: private, writable and empty.
pub const HOME: &str = "/tmp";
/// Where a run starts that has no directory of the host's to start in.
pub const WORKSPACE: &str = "/workspace";
/// The name of a program's source in a sandbox that a zygote's child is in: it leads to a
/// descriptor of the child's, which is the second process there (`SOURCE` in zygote/programs.py).
pub const PROGRAM_FILE: &str = "/sandtimer/main.py";
const PROGRAM_DESCRIPTOR: &str = "/proc/2/fd/100";
/// The descriptor by which other programs have their file, if their limit of open files allows it,
/// and its name.
pub const FILE_DESCRIPTOR: u64 = 100;
const OWN_FILE: &str = "/proc/self/fd/100";

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
    /// Every home directory known; see [`home_directories`].
    pub homes: &'a [PathBuf],
    /// Further files and directories to show: the entries of Python's `sys.path`. Entries that may
    /// not be shown are left out with a note.
    pub extra_read_only: &'a [PathBuf],
    /// Shows where the links of packages lead, too: in those, in `world_readable`, and, where there
    /// are none of those, in what the command is installed with.
    pub follows_package_links: bool,
    /// Shows credentials too, where a directory holds them.
    pub show_credentials: bool,
    /// A directory that the engine made, shown writable as [`HOME`] instead of a private one.
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
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
            Self::Group => format!("root:x:0:\n{USER_NAME}:x:{gid}:\nnogroup:x:65534:\n"),
        }
    }
}

/// The program a run executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executable {
    /// The absolute path to execute inside.
    pub path: PathBuf,
    /// It is neither ELF nor a `#!` script: execvp(3) would hand it to `/bin/sh`, execve(2) refuses
    /// it.
    pub needs_shell: bool,
}

/// What a run sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesPlan {
    /// The steps that build the file system, in order.
    pub mounts: Vec<Mount>,
    /// Where the run starts, as a path inside.
    pub cwd: PathBuf,
    /// Present when the request names a command.
    pub executable: Option<Executable>,
    /// `PATH` inside: shims replaced by the directories that they lead to, invisible entries left
    /// out.
    pub path_variable: OsString,
    /// Variables that the shown installations need inside.
    pub environment: Vec<(&'static str, OsString)>,
    /// What of the host a caller might miss inside.
    pub notes: Vec<Note>,
    /// The GPUs it is shown, where it was to be.
    pub gpus: Option<Gpus>,
}

/// System directories that some services have as their home. They hold no user's keys.
const SYSTEM_HOMES: [&str; 12] = [
    "/bin",
    "/dev",
    "/lib",
    "/nonexistent",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/games",
    "/usr/lib",
    "/usr/sbin",
];

/// The home directories of a machine: those in `passwd` (the text of /etc/passwd) and the caller's
/// own.
#[must_use]
pub fn home_directories(passwd: &[u8], home_variable: Option<&OsStr>) -> Vec<PathBuf> {
    let fields =
        passwd.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b':').nth(5));
    let listed = fields.map(|field| PathBuf::from(OsString::from_vec(field.to_vec())));
    let named = listed.chain(home_variable.map(PathBuf::from));
    let mut homes: Vec<PathBuf> = named.map(|home| home.components().collect()).collect();
    let is_system =
        |home: &Path| SYSTEM_HOMES.iter().any(|tree| guard::below(home, Path::new(tree)).is_some());
    homes.retain(|home| home.is_absolute() && home.as_os_str() != "/" && !is_system(home));
    homes.sort();
    homes.dedup();
    homes
}

/// Plans what a run sees.
///
/// # Errors
/// The command is not found or not executable, a workspace may not be shown writable, the starting
/// directory would not exist inside, or there is no GPU to show.
pub fn plan_files(request: &FilesRequest<'_>) -> Result<FilesPlan, FilesError> {
    let host = HostFiles::new(request.root);
    let guard = PathGuard::new(&host, request.homes).showing_credentials(request.show_credentials);
    let mut planner = Planner {
        request,
        host: &host,
        guard,
        tree: MountTree::default(),
        notes: Vec::new(),
        searched: Vec::new(),
        packages: packages::VisitedPackages::default(),
    };
    planner.add_temporary();
    system::add(&mut planner.tree, &host, request);
    let gpus = request.gpus.map(|user| devices::add(&mut planner.tree, &host, user)).transpose()?;
    if !request.show_credentials {
        planner.hide_private();
    }
    for workspace in request.workspaces {
        planner.add_workspace(workspace)?;
    }
    let start = planner.add_start();
    planner.add_extras();
    planner.add_world_readable();
    let cwd = planner.starting_directory(start)?;
    let programs = programs::add(&mut planner)?;
    if !request.show_credentials {
        planner.hide_credentials();
    }
    Ok(FilesPlan {
        mounts: planner.tree.finish(),
        cwd,
        executable: programs.executable,
        path_variable: programs.path_variable,
        environment: programs.environment,
        notes: planner.notes,
        gpus,
    })
}

/// The GPUs that a run would be shown.
///
/// # Errors
/// There are none that it could open.
pub fn find_gpus(user: DeviceUser) -> Result<Gpus, FilesError> {
    devices::find(&HostFiles::new(Path::new("/")), user)
}

/// The canonical path of a directory that may be shown writable.
///
/// # Errors
/// If it is not a directory, or is shown to no run: `/`, a home, a directory that holds keys.
pub fn writable_directory(typed: &Path, homes: &[PathBuf]) -> Result<PathBuf, FilesError> {
    let host = HostFiles::new(Path::new("/"));
    let guard = PathGuard::new(&host, homes);
    Ok(workspace(&host, &guard, typed, typed)?.path.clone())
}

/// What is found where a workspace is to be.
fn workspace(
    host: &HostFiles,
    guard: &PathGuard,
    path: &Path,
    typed: &Path,
) -> Result<Rc<ResolvedPath>, FilesError> {
    let error =
        |problem: String, remedy| FilesError::Workspace { path: typed.to_path_buf(), problem, remedy };
    let found = host
        .resolve(path)
        .map_err(|cause| error(format!("cannot be used ({cause})"), "give a directory that exists"))?;
    if !found.metadata.is_dir() {
        return Err(error("is not a directory".into(), "give the directory it lies in"));
    }
    let rejection = guard.rejection(&found.path);
    match rejection.or_else(|| guard::refuse_writing(&found.path)) {
        Some(rejection) => Err(error(rejection.to_string(), rejection.remedy())),
        None => Ok(found),
    }
}

/// A plan in the making.
struct Planner<'a> {
    request: &'a FilesRequest<'a>,
    host: &'a HostFiles,
    guard: PathGuard,
    tree: MountTree,
    notes: Vec<Note>,
    /// Shown directories of the caller, in which credentials are searched.
    searched: Vec<SearchedDirectory>,
    packages: packages::VisitedPackages,
}

impl Planner<'_> {
    fn note(&mut self, kind: NoteKind, text: String) {
        let note = Note { kind, text };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Hides the private parts of homes that lie in a shown directory, such as /opt, which is shown
    /// as a whole.
    fn hide_private(&mut self) {
        for home in self.guard.homes().filter(|home| self.tree.shows(home)).collect::<Vec<_>>() {
            for hidden in guard::private(home) {
                if let Ok(found) = self.host.resolve(&hidden)
                    && found.path == hidden
                {
                    let kind = if found.metadata.is_dir() { FileKind::Directory } else { FileKind::File };
                    self.tree.hide(hidden, kind);
                }
            }
        }
    }

    fn add_workspace(&mut self, typed: &Path) -> Result<(), FilesError> {
        let path = self.request.host_cwd.join(typed);
        let found = workspace(self.host, &self.guard, &path, typed)?;
        self.tree.bind(&found.path, FileKind::Directory, true);
        self.searched.push(SearchedDirectory::at_own_path(&found.path, true));
        self.tree.link_all(&found.links);
        Ok(())
    }

    /// Shows the directory that the run works in; returns where it starts by default.
    fn add_start(&mut self) -> PathBuf {
        let workspace = PathBuf::from(WORKSPACE);
        match self.request.start {
            StartDirectory::CurrentDirectory => self.add_current_directory(),
            StartDirectory::EmptyWorkspace => {
                self.tree.add(Mount::Tmpfs { target: workspace.clone(), mode: 0o1777 });
                workspace
            }
            StartDirectory::Workspace(source) => {
                let source = self.host.canonical(source).unwrap_or_else(|| source.to_path_buf());
                let (target, kind) = (workspace.clone(), FileKind::Directory);
                self.tree.add(Mount::Bind { source, target, writable: true, identity_mapped: true, kind });
                workspace
            }
            StartDirectory::CallersDirectory(source) => {
                let source = self.host.canonical(source).unwrap_or_else(|| source.to_path_buf());
                self.tree.bind(&source, FileKind::Directory, true);
                self.searched.push(SearchedDirectory::at_own_path(&source, true));
                // A source that lies there itself has no link above it.
                if !source.starts_with(&workspace) {
                    self.tree.add(Mount::Symlink { target: workspace, points_to: source.clone() });
                }
                source
            }
        }
    }

    /// Shows the directory that takes the place of a private /tmp. Added before that one, because
    /// the first mount at a target stays.
    fn add_temporary(&mut self) {
        let Some(source) = self.request.temporary else { return };
        let source = self.host.canonical(source).unwrap_or_else(|| source.to_path_buf());
        let (target, kind) = (PathBuf::from(HOME), FileKind::Directory);
        self.tree.add(Mount::Bind { source, target, writable: true, identity_mapped: true, kind });
    }

    fn add_current_directory(&mut self) -> PathBuf {
        let typed = self.request.host_cwd;
        let Ok(found) = self.host.resolve(typed) else {
            return self.unmounted_start(typed, &PathRejection::Unreachable);
        };
        if !self.tree.shows(&found.path) {
            if let Some(rejection) = self.guard.rejection(&found.path) {
                return self.unmounted_start(&found.path, &rejection);
            }
            self.tree.bind(&found.path, FileKind::Directory, false);
            self.searched.push(SearchedDirectory::at_own_path(&found.path, false));
        }
        self.tree.link_all(&found.links);
        found.path.clone()
    }

    /// Where the run starts when its current directory (canonical) is not mounted.
    fn unmounted_start(&mut self, current: &Path, rejection: &PathRejection) -> PathBuf {
        // A starting directory of the caller's choice takes the place of both.
        if self.request.cwd.is_some() {
            return current.to_path_buf();
        }
        let (start, what) = match rejection {
            PathRejection::Temporary => (current.to_path_buf(), "that one".to_owned()),
            _ => (PathBuf::from(WORKSPACE), format!("an empty {WORKSPACE}")),
        };
        self.tree.add(Mount::Tmpfs { target: start.clone(), mode: 0o1777 });
        let current = current.display();
        let text = format!(
            "the current directory {current} is not mounted because it {rejection}; the run starts in {what}"
        );
        self.note(NoteKind::CurrentDirectory, text);
        start
    }

    fn add_extras(&mut self) {
        for typed in self.request.extra_read_only {
            let Ok(found) = self.host.resolve(&self.request.host_cwd.join(typed)) else { continue };
            if !self.tree.shows(&found.path) {
                if let Some(rejection) = self.guard.rejection(&found.path) {
                    let text = format!("{} is not shown because it {rejection}", typed.display());
                    self.note(NoteKind::Extra, text);
                    continue;
                }
                let kind = if found.metadata.is_dir() { FileKind::Directory } else { FileKind::File };
                self.tree.bind(&found.path, kind, false);
                if kind == FileKind::Directory && !credentials::is_of_packages(&found.path) {
                    self.searched.push(SearchedDirectory::at_own_path(&found.path, false));
                }
            }
            self.tree.link_all(&found.links);
            if self.request.follows_package_links && found.metadata.is_dir() {
                self.add_linked_packages(&found.path, ShownPart::Whole);
            }
        }
    }

    /// Shows directories under the ids they have on disk, so that their files' permissions hold for
    /// the job where it has an id of its own, and covers what these permissions deny where it has
    /// its caller's.
    fn add_world_readable(&mut self) {
        for typed in self.request.world_readable {
            let Ok(found) = self.host.resolve(&self.request.host_cwd.join(typed)) else { continue };
            if !self.tree.shows(&found.path)
                && let Err(reason) = self.show_world_readable(&found.path)
            {
                let text = format!("{} is not shown because it {reason}", typed.display());
                self.note(NoteKind::Extra, text);
                continue;
            }
            self.tree.link_all(&found.links);
            if self.request.follows_package_links && found.metadata.is_dir() {
                self.add_linked_packages(&found.path, ShownPart::WorldReadable);
            }
        }
    }

    /// Shows a file or a directory (canonical) without what only its owner may read. Fails with the
    /// end of a sentence about it.
    fn show_world_readable(&mut self, path: &Path) -> Result<(), String> {
        if let Some(rejection) = self.guard.rejection(path) {
            return Err(rejection.to_string());
        }
        let found = self.host.resolve(path).map_err(|cause| format!("cannot be used ({cause})"))?;
        let (kind, readable_by_others) =
            if found.metadata.is_dir() { (FileKind::Directory, 0o055) } else { (FileKind::File, 0o044) };
        let mode = found.metadata.permissions().mode();
        if mode & readable_by_others == 0 {
            return Err(format!(
                "can be read by its owner only (mode {:04o}); let others read it",
                mode & 0o777
            ));
        }
        let parts = match kind {
            FileKind::Directory => readable::private_parts(self.host, path)?,
            FileKind::File => Vec::new(),
        };
        let (source, target) = (path.to_path_buf(), path.to_path_buf());
        self.tree.add(Mount::Bind { source, target, writable: false, identity_mapped: false, kind });
        for (path, kind) in parts {
            self.tree.hide(path, kind);
        }
        Ok(())
    }

    /// The directory to start in, checked to exist inside.
    fn starting_directory(&mut self, start: PathBuf) -> Result<PathBuf, FilesError> {
        let Some(typed) = self.request.cwd else { return Ok(start) };
        const REMEDY: &str = "start in the current directory, in a workspace or below one of them";
        let error = |problem: String| FilesError::StartingDirectory {
            path: typed.to_path_buf(),
            problem,
            remedy: REMEDY,
        };
        if self.tree.is_private(typed) {
            return Ok(typed.to_path_buf());
        }
        let (is_callers, source) = match self.request.start {
            StartDirectory::Workspace(source) => (false, Some(source)),
            StartDirectory::CallersDirectory(source) => (true, Some(source)),
            _ => (false, None),
        };
        if let (Some(source), Ok(below)) = (source, typed.strip_prefix(WORKSPACE)) {
            let inside = self.host.canonical(&source.join(below));
            let base = self.host.canonical(source);
            if let Some((inside, base)) = inside.zip(base)
                && inside.starts_with(base)
            {
                let found =
                    self.host.resolve(&inside).map_err(|cause| error(format!("cannot be used ({cause})")))?;
                let is_directory = found.metadata.is_dir();
                return if is_directory {
                    Ok(if is_callers { inside } else { typed.to_path_buf() })
                } else {
                    Err(error("is not a directory".into()))
                };
            }
        }
        let found = self.host.resolve(&self.request.host_cwd.join(typed));
        let found = found.map_err(|cause| error(format!("cannot be used ({cause})")))?;
        if !found.metadata.is_dir() {
            return Err(error("is not a directory".into()));
        }
        if !self.tree.shows(&found.path) {
            return Err(error("does not exist inside the run".into()));
        }
        self.tree.link_all(&found.links);
        Ok(found.path.clone())
    }
}
