//! Finds the command along `PATH` as execvp(3) would, and works out what `PATH` is inside.
//!
//! Shows nothing itself; `reach` does. Children of the command look programs up too (`bash -c
//! 'python3 …'`), so every entry of `PATH` that is an installation is shown, not only the command's
//! own.

use super::reach::{install, reach};
use super::{Executable, FilesError, Mount, NoteKind, Planner, StartDirectory, WORKSPACE};
use crate::isolate::toolchain::{LookupContext, rustup, shims};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Directories of `PATH` that an error names.
const MAX_NAMED_DIRECTORIES: usize = 20;

/// What an empty `PATH` means inside.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where people keep the virtual environment of a project.
const ENVIRONMENTS: [&str; 3] = [".venv", "venv", "env"];

/// The part of the plan about programs.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) executable: Option<Executable>,
    pub(super) path_variable: OsString,
    pub(super) environment: Vec<(&'static str, OsString)>,
}

/// One directory that is searched for programs.
#[derive(Debug)]
struct SearchPathEntry {
    /// As it is written in `PATH`.
    typed: OsString,
    /// As an absolute path on the host.
    directory: PathBuf,
}

/// The search for programs in one request.
pub(super) struct ProgramSearch<'p, 'a> {
    pub(super) planner: &'p mut Planner<'a>,
    /// The directory the run starts in, on the host.
    directory: PathBuf,
    entries: Vec<SearchPathEntry>,
    /// Those of `entries`.
    directories: HashSet<PathBuf>,
    /// Prefixes of the installations shown so far.
    pub(super) installed: Vec<PathBuf>,
    /// Directories that the command, its interpreters and the links to them lie in.
    pub(super) program_directories: Vec<PathBuf>,
    environment: Vec<(&'static str, OsString)>,
}

/// Shows the command and the installations on `PATH`.
///
/// # Errors
/// [`FilesError::NotFound`] and [`FilesError::NotExecutable`], for the command only.
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

/// Whether execve(2) would take a file.
#[derive(Debug, PartialEq, Eq)]
enum ExecutableCheck {
    Executable,
    Absent,
    Refused(String),
}

impl ProgramSearch<'_, '_> {
    pub(super) fn lookup_context(&self) -> LookupContext<'_> {
        LookupContext {
            host: self.planner.host,
            variables: self.planner.request.variables,
            directory: &self.directory,
        }
    }

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

    /// Puts the real programs in front of rustup's proxies. The proxies still work by their full
    /// paths.
    fn add_rustup(&mut self, rustup: &rustup::Rustup) {
        if self.environment.is_empty() {
            self.environment.push(("RUSTUP_HOME", rustup.home.clone().into_os_string()));
            self.environment.push(("RUSTUP_TOOLCHAIN", OsString::from(&rustup.toolchain)));
        }
        if let Some(home) = self.planner.host.canonical(&rustup.home) {
            let contents = rustup::settings(&rustup.toolchain).into_bytes();
            self.planner
                .tree
                .add(Mount::Synthetic { target: home.join("settings.toml"), contents: contents.into() });
            self.planner.tree.add(Mount::Directory { target: home.join("update-hashes") });
        }
        let bin = rustup.directory.join("bin");
        self.push(bin.clone().into_os_string(), bin);
    }

    fn push(&mut self, typed: OsString, directory: PathBuf) {
        if !self.directories.insert(directory.clone()) {
            return;
        }
        install(self, &directory, 0);
        if let Ok(found) = self.planner.host.resolve(&directory)
            && self.planner.tree.shows(&found.path)
        {
            self.planner.tree.link_all(&found.links);
        }
        self.entries.push(SearchPathEntry { typed, directory });
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

    /// Searches for `name` along `PATH` on behalf of `command`.
    pub(super) fn by_name(&self, name: &OsStr, command: &OsStr) -> Result<PathBuf, FilesError> {
        let mut refused = None;
        for entry in self.entries.iter().filter(|_| !name.is_empty()) {
            let path = entry.directory.join(name);
            match self.verdict(&path) {
                ExecutableCheck::Executable => return Ok(path),
                ExecutableCheck::Absent => {}
                ExecutableCheck::Refused(detail) => {
                    refused = refused.or(Some(format!("{} {detail}", path.display())))
                }
            }
        }
        let command = command.to_os_string();
        if let Some(detail) = refused {
            return Err(FilesError::NotExecutable { command, detail });
        }
        let searched = self.entries.iter().take(MAX_NAMED_DIRECTORIES);
        let searched: Vec<String> = searched.map(|entry| entry.directory.display().to_string()).collect();
        let more = self.entries.len() - searched.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more directories of PATH") };
        let detail = format!("no `{}` in {}{more}", name.display(), searched.join(", "));
        Err(FilesError::Missing { command, detail })
    }

    fn verdict(&self, path: &Path) -> ExecutableCheck {
        let metadata = match self.planner.host.resolve(path) {
            Ok(found) => found.metadata.clone(),
            Err(Errno::NOENT | Errno::NOTDIR) => return ExecutableCheck::Absent,
            Err(error) => return ExecutableCheck::Refused(format!("cannot be reached ({error})")),
        };
        if metadata.is_dir() {
            ExecutableCheck::Refused("is a directory".into())
        } else if !metadata.is_file() {
            ExecutableCheck::Refused("is not a regular file".into())
        } else if metadata.permissions().mode() & 0o111 == 0 {
            ExecutableCheck::Refused("has no execute permission".into())
        } else {
            ExecutableCheck::Executable
        }
    }

    /// Fails unless execve(2) would take `path`, which `command` needs.
    pub(super) fn require_executable(&self, path: &Path, command: &OsStr) -> Result<(), FilesError> {
        let command = command.to_os_string();
        match self.verdict(path) {
            ExecutableCheck::Executable => Ok(()),
            ExecutableCheck::Absent => {
                let detail = format!("its interpreter {} does not exist", path.display());
                Err(FilesError::Missing { command, detail })
            }
            ExecutableCheck::Refused(detail) => {
                let detail = format!("its interpreter {} {detail}", path.display());
                Err(FilesError::NotExecutable { command, detail })
            }
        }
    }

    /// The real program behind a shim or a rustup proxy named by its path, be it through links; any
    /// other program is itself.
    pub(super) fn resolve_proxy(&mut self, path: &Path, command: &OsStr) -> Result<PathBuf, FilesError> {
        let links = self.planner.host.resolve(path).map(|found| found.links.clone()).unwrap_or_default();
        let stops = std::iter::once(path.to_path_buf()).chain(links.into_iter().map(|link| link.at));
        let mut end = path.to_path_buf();
        for stop in stops {
            if let Some(program) = self.proxied_program(&stop, command)? {
                return Ok(program);
            }
            end = stop;
        }
        // The last link may lead to a shim.
        let canonical = self.planner.host.canonical(&end).unwrap_or(end);
        Ok(self.proxied_program(&canonical, command)?.unwrap_or_else(|| path.to_path_buf()))
    }

    fn proxied_program(&mut self, path: &Path, command: &OsStr) -> Result<Option<PathBuf>, FilesError> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        if let Some(selection) = shims::selection(&self.lookup_context(), directory) {
            let mut chosen = selection.bins.iter().map(|bin| bin.join(name));
            if let Some(program) = chosen.find(|program| self.verdict(program) == ExecutableCheck::Executable)
            {
                return Ok(Some(program));
            }
            if selection.bins.is_empty() && selection.missing.is_empty() {
                return self.by_name(name, command).map(Some);
            }
            let mut searched: Vec<String> =
                selection.bins.iter().map(|bin| bin.display().to_string()).collect();
            searched.extend(selection.missing.into_iter().map(|missing| format!("{missing}, not installed")));
            let detail = format!("{} stands for no program in {}", path.display(), searched.join(", "));
            return Err(FilesError::Missing { command: command.to_os_string(), detail });
        }
        if let Some(Ok(rustup)) = rustup::active(&self.lookup_context(), directory)
            && name != "rustup"
            && self.planner.host.same_file(path, &directory.join("rustup"))
        {
            self.add_rustup(&rustup);
            let program = rustup.directory.join("bin").join(name);
            return Ok((self.verdict(&program) == ExecutableCheck::Executable).then_some(program));
        }
        Ok(None)
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
