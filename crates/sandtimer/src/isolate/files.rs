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
mod mounts;
mod notes;
mod packages;
mod planner;
mod program_search;
mod programs;
mod reach;
mod readable;
mod request;
mod system;
mod tree;

#[cfg(test)]
mod tests;

use crate::isolate::toolchain::lookup::{HostFiles, ResolvedPath};
pub use devices::{DeviceUser, Gpus};
use guard::{PathGuard, PathRejection};
pub use mounts::{AccountFile, FileKind, HOME, HOST_NAME, Mount, USER_NAME};
pub use notes::{FilesError, Note, NoteKind};
use packages::ShownPart;
use planner::{Planner, SearchedDirectory, VisitedPackages};
pub use programs::Executable;
pub use request::{FILE_DESCRIPTOR, FilesRequest, PROGRAM_FILE, StartDirectory, WORKSPACE};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tree::MountTree;

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
        packages: VisitedPackages::default(),
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

impl Planner<'_> {
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
