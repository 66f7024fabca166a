//! The search for programs along `PATH`, and the installations that it shows.

use super::mounts::{FileKind, Mount};
use super::notes::{FilesError, NoteKind};
use super::planner::Planner;
use crate::isolate::toolchain::lookup::Link;
use crate::isolate::toolchain::{LookupContext, recognise, rustup, shims};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Installations shown for one run.
const INSTALLATIONS: usize = 16;
/// A venv of a venv, a script run by a script: the kernel follows five.
pub(super) const MAX_INTERPRETER_DEPTH: usize = 4;
/// Directories of `PATH` that an error names.
const MAX_NAMED_DIRECTORIES: usize = 20;

/// One directory that is searched for programs.
#[derive(Debug)]
pub(super) struct SearchPathEntry {
    /// As it is written in `PATH`.
    pub(super) typed: OsString,
    /// As an absolute path on the host.
    pub(super) directory: PathBuf,
}

/// The search for programs in one request.
pub(super) struct ProgramSearch<'p, 'a> {
    pub(super) planner: &'p mut Planner<'a>,
    /// The directory the run starts in, on the host.
    pub(super) directory: PathBuf,
    pub(super) entries: Vec<SearchPathEntry>,
    /// Those of `entries`.
    pub(super) directories: HashSet<PathBuf>,
    /// Prefixes of the installations shown so far.
    pub(super) installed: Vec<PathBuf>,
    /// Directories that the command, its interpreters and the links to them lie in.
    pub(super) program_directories: Vec<PathBuf>,
    pub(super) environment: Vec<(&'static str, OsString)>,
}

/// Whether execve(2) would take a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ExecutableCheck {
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

    /// Puts the real programs in front of rustup's proxies. The proxies still work by their full
    /// paths.
    pub(super) fn add_rustup(&mut self, rustup: &rustup::Rustup) {
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

    pub(super) fn push(&mut self, typed: OsString, directory: PathBuf) {
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

    pub(super) fn verdict(&self, path: &Path) -> ExecutableCheck {
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
}

/// Shows the installation that `directory` holds the programs of, and those on which it is based.
pub(super) fn install(search: &mut ProgramSearch<'_, '_>, directory: &Path, depth: usize) {
    let shown = |prefix: &Path| search.planner.tree.shows(prefix);
    let Some(installation) = recognise(&search.lookup_context(), directory, shown) else { return };
    let prefix = installation.prefix;
    if search.installed.contains(&prefix) || search.planner.guard.is_home(&prefix) {
        return;
    }
    let parts: Vec<PathBuf> = installation.parts.iter().map(|part| prefix.join(part)).collect();
    if !parts.iter().all(|part| search.planner.tree.shows(part)) {
        if search.installed.len() == INSTALLATIONS {
            let text = format!(
                "the installation {} is not shown: the run has {INSTALLATIONS} others; shorten PATH",
                prefix.display()
            );
            search.planner.note(NoteKind::Installation, text);
            return;
        }
        search.installed.push(prefix.clone());
        for part in parts {
            show_part(search, &prefix, part);
        }
    }
    let Some(base) = installation.base.filter(|_| depth < MAX_INTERPRETER_DEPTH) else { return };
    install(search, &base, depth + 1);
    if let Ok(found) = search.planner.host.resolve(&base)
        && search.planner.tree.shows(&found.path)
    {
        search.planner.tree.link_all(&found.links);
    }
}

/// Shows one part of an installation. A link may lead elsewhere inside the installation, not out of
/// it.
fn show_part(search: &mut ProgramSearch<'_, '_>, prefix: &Path, part: PathBuf) {
    let planner = &mut *search.planner;
    let Some(path) = planner.host.canonical(&part) else { return };
    if let Some(to) = planner.host.link(&part) {
        planner.tree.link_all(&[Link { at: part, to }]);
        if path == prefix || !path.starts_with(prefix) {
            return;
        }
    }
    if planner.tree.shows(&path) {
        return;
    }
    if let Some(rejection) = planner.guard.rejection(&path) {
        let text = format!("{} is not shown because it {rejection}", path.display());
        planner.note(NoteKind::Installation, text);
        return;
    }
    let kind = if planner.host.is_directory(&path) { FileKind::Directory } else { FileKind::File };
    planner.tree.bind(&path, kind, false);
}
