//! Finds the command along `PATH` as execvp(3) would, and works out what `PATH` is inside.
//!
//! Shows nothing itself; `reach` and `program_search` do. Children of the command look programs up
//! too (`bash -c 'python3 …'`), so every entry of `PATH` that is an installation is shown, not only
//! the command's own.

use super::notes::{FilesError, NoteKind};
use super::planner::Planner;
use super::program_search::{ExecutableCheck, ProgramSearch, SearchPathEntry, install};
use super::reach::reach;
use super::request::{StartDirectory, WORKSPACE};
use crate::isolate::toolchain::{rustup, shims};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What an empty `PATH` means inside.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where people keep the virtual environment of a project.
const ENVIRONMENTS: [&str; 3] = [".venv", "venv", "env"];

/// The program a run executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executable {
    /// The absolute path to execute inside.
    pub path: PathBuf,
    /// It is neither ELF nor a `#!` script: execvp(3) would hand it to `/bin/sh`, execve(2) refuses
    /// it.
    pub needs_shell: bool,
}

/// The part of the plan about programs.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) executable: Option<Executable>,
    pub(super) path_variable: OsString,
    pub(super) environment: Vec<(&'static str, OsString)>,
}

/// Shows the command and the installations on `PATH`.
///
/// # Errors
/// [`FilesError::Missing`] and [`FilesError::NotExecutable`], for the command only.
pub(super) fn add(planner: &mut Planner<'_>) -> Result<Programs, FilesError> {
    let directory = directory(planner);
    let command = planner.request.command;
    let (entries, installed, environment) = (Vec::new(), Vec::new(), Vec::new());
    let directories = HashSet::new();
    let program_directories = Vec::new();
    let mut search = ProgramSearch {
        planner,
        directory,
        entries,
        directories,
        installed,
        program_directories,
        environment,
    };
    search.read_path();
    search.add_environments();
    let executable = command.map(|command| search.executable(command)).transpose()?;
    search.add_linked_packages();
    let path_variable = search.path_inside();
    Ok(Programs { executable, path_variable, environment: search.environment })
}

/// Where the run starts, as the host names it.
fn directory(planner: &Planner<'_>) -> PathBuf {
    let request = planner.request;
    let asked = request.cwd.unwrap_or(Path::new(""));
    let directory = match request.start {
        StartDirectory::Workspace(source) | StartDirectory::CallersDirectory(source) => {
            match asked.strip_prefix(WORKSPACE) {
                Ok(below) => source.join(below),
                Err(_) => source.join(asked),
            }
        }
        StartDirectory::CurrentDirectory | StartDirectory::EmptyWorkspace => request.host_cwd.join(asked),
    };
    planner.host.canonical(&directory).unwrap_or(directory)
}

impl ProgramSearch<'_, '_> {
    /// Goes through `PATH`: replaces shims by the installations they lead to, and shows
    /// installations.
    fn read_path(&mut self) {
        let typed = self.planner.request.path_variable;
        let typed = if typed.is_empty() { OsStr::new(DEFAULT_PATH) } else { typed };
        let mut read: HashSet<PathBuf> = HashSet::new();
        for entry in std::env::split_paths(typed) {
            let directory = self.directory.join(&entry);
            if !read.insert(directory.clone()) {
                continue;
            }
            if let Some(selection) = shims::selection(&self.lookup_context(), &directory) {
                for missing in selection.missing {
                    let text = format!("{missing} is not installed, so its programs are not on PATH");
                    self.planner.note(NoteKind::Installation, text);
                }
                for bin in selection.bins {
                    self.push(bin.clone().into_os_string(), bin);
                }
                continue;
            }
            match rustup::active(&self.lookup_context(), &directory) {
                Some(Ok(rustup)) => self.add_rustup(&rustup),
                Some(Err(missing)) => {
                    let text = format!("{missing} is not installed, so its programs are not on PATH");
                    self.planner.note(NoteKind::Installation, text);
                }
                None => {}
            }
            let typed =
                if entry.as_os_str().is_empty() { OsString::from(".") } else { entry.into_os_string() };
            self.push(typed, directory);
        }
    }

    /// Shows the interpreters on which the project's virtual environments are based: a shell runs
    /// them by their paths.
    fn add_environments(&mut self) {
        let StartDirectory::CallersDirectory(source) = self.planner.request.start else { return };
        for name in ENVIRONMENTS {
            install(self, &source.join(name).join("bin"), 0);
        }
    }

    /// Shows the packages that the command, if it is an interpreter, finds by links; not if its
    /// search path is given.
    fn add_linked_packages(&mut self) {
        let request = self.planner.request;
        if !request.follows_package_links || !request.extra_read_only.is_empty() {
            return;
        }
        let directories = std::mem::take(&mut self.program_directories);
        let mut prefixes: Vec<PathBuf> = Vec::new();
        for bin in directories.iter().filter_map(|directory| self.planner.host.canonical(directory)) {
            let prefix = bin.parent().filter(|_| bin.file_name().is_some_and(|name| name == "bin"));
            if let Some(prefix) = prefix.filter(|prefix| !prefixes.iter().any(|known| known == prefix)) {
                prefixes.push(prefix.to_path_buf());
            }
        }
        prefixes.iter().for_each(|prefix| self.planner.add_packages_of(prefix));
    }

    fn executable(&mut self, command: &OsStr) -> Result<Executable, FilesError> {
        let found = if command.as_bytes().contains(&b'/') {
            self.by_path(command)?
        } else {
            self.by_name(command, command)?
        };
        let found = self.resolve_proxy(&found, command)?;
        let needs_shell = reach(self, &found, command)?;
        Ok(Executable { path: self.path_for_execution(&found), needs_shell })
    }

    fn by_path(&self, command: &OsStr) -> Result<PathBuf, FilesError> {
        let typed = Path::new(command);
        let path = match (self.planner.request.start, typed.strip_prefix(WORKSPACE)) {
            (StartDirectory::Workspace(source) | StartDirectory::CallersDirectory(source), Ok(below)) => {
                source.join(below)
            }
            _ => self.directory.join(typed),
        };
        let command = command.to_os_string();
        match self.verdict(&path) {
            ExecutableCheck::Executable => Ok(path),
            ExecutableCheck::Absent => {
                Err(FilesError::Missing { command, detail: format!("{} does not exist", path.display()) })
            }
            ExecutableCheck::Refused(detail) => {
                Err(FilesError::NotExecutable { command, detail: format!("{} {detail}", path.display()) })
            }
        }
    }

    /// The path inside of a program found on the host.
    fn path_for_execution(&self, found: &Path) -> PathBuf {
        let host = self.planner.host;
        let mut path: PathBuf = found.components().collect();
        // Above a directory that is not shown, `..` leads elsewhere than on the host.
        if path.components().any(|component| component.as_os_str() == "..")
            && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && let Some(parent) = host.canonical(parent)
        {
            path = parent.join(name);
        }
        let StartDirectory::Workspace(source) = self.planner.request.start else { return path };
        let source = host.canonical(source);
        let below = source.as_deref().and_then(|source| path.strip_prefix(source).ok());
        below.map(|below| Path::new(WORKSPACE).join(below)).unwrap_or(path)
    }

    /// `PATH` without the entries that do not exist inside, each of them noted.
    fn path_inside(&mut self) -> OsString {
        let mut kept = Vec::new();
        for SearchPathEntry { typed, directory } in std::mem::take(&mut self.entries) {
            // A directory that does not exist yet may come to exist: `node_modules/.bin` in a
            // workspace.
            let Some(canonical) = self.planner.host.canonical(&directory) else {
                kept.push(typed);
                continue;
            };
            let tree = &self.planner.tree;
            if tree.shows(&canonical) || tree.has_entry_in(&canonical) || Path::new(&typed).is_relative() {
                kept.push(typed);
            } else if !shims::is_manager_part(&self.lookup_context(), &directory) {
                let text = format!(
                    "the PATH entry {} is not shown: it is neither a system directory nor a recognised installation",
                    directory.display()
                );
                self.planner.note(NoteKind::PathEntry, text);
            }
        }
        // Entries come from splitting a PATH, so joining them cannot fail.
        let joined = std::env::join_paths(kept).unwrap_or_default();
        if joined.is_empty() { OsString::from(DEFAULT_PATH) } else { joined }
    }
}
