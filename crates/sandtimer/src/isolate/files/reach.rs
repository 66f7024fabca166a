//! Shows what a program needs to start: its installation, or itself, its interpreter and its
//! libraries.
//!
//! An unknown layout gets single files, never a directory. A file that another file names is shown
//! only if it is what it is named as: an interpreter must be executable, a library must be ELF.

use super::mounts::{FileKind, Mount};
use super::notes::{FilesError, NoteKind};
use super::program_search::{MAX_INTERPRETER_DEPTH, ProgramSearch, install};
use super::request::StartDirectory;
use crate::isolate::toolchain::elf::{self, Elf};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Libraries shown one by one for a program of unknown layout.
const LIBRARIES: usize = 128;
/// The kernel reads this much of a script's first line.
const SHEBANG_BYTES: usize = 256;

/// Shows the program at `path`, for `command`. Returns whether it takes a shell to run it.
///
/// # Errors
/// The program or one of its interpreters may not be shown, is absent or not executable.
pub(super) fn reach(
    search: &mut ProgramSearch<'_, '_>,
    path: &Path,
    command: &OsStr,
) -> Result<bool, FilesError> {
    let mut next = Some(path.to_path_buf());
    let mut needs_shell = false;
    for depth in 0..=MAX_INTERPRETER_DEPTH {
        let Some(program) = next.take() else { return Ok(needs_shell) };
        let file = show_program(search, &program, command)?;
        let Some(file) = file else { continue };
        if let Some(elf) = elf::read(&file) {
            show_libraries(search, elf, &program);
            continue;
        }
        match shebang(&file) {
            Some((interpreter, argument)) => {
                next = Some(interpreter_of(search, &interpreter, &argument, command)?);
            }
            None => needs_shell |= depth == 0 && !starts_with(&file, b"\x7fELF"),
        }
    }
    match next {
        None => Ok(needs_shell),
        Some(program) => Err(FilesError::NotExecutable {
            command: command.to_os_string(),
            detail: format!(
                "more than {MAX_INTERPRETER_DEPTH} interpreters, each run by the next, up to {}",
                program.display()
            ),
        }),
    }
}

/// Shows the file, the links that lead to it and the installations it is part of; opens it if it is
/// readable.
fn show_program(
    search: &mut ProgramSearch<'_, '_>,
    path: &Path,
    command: &OsStr,
) -> Result<Option<File>, FilesError> {
    let found = search.planner.host.resolve(path).map_err(|cause| FilesError::Missing {
        command: command.to_os_string(),
        detail: format!("{}: {cause}", path.display()),
    })?;
    // Every stop on the way may be an installation of its own: a venv's python is a link into
    // another one.
    let stops = found.links.iter().map(|link| link.at.as_path()).chain([path, found.path.as_path()]);
    for directory in stops.filter_map(Path::parent) {
        install(search, directory, 0);
        search.program_directories.push(directory.to_path_buf());
    }
    let planner = &mut *search.planner;
    let own = matches!(planner.request.start, StartDirectory::Workspace(source)
        if planner.host.canonical(source).is_some_and(|source| found.path.starts_with(source)));
    if !own && !planner.tree.shows(&found.path) {
        if let Some(rejection) = planner.guard.rejection(&found.path) {
            let detail = format!("{} is not shown inside because it {rejection}", found.path.display());
            return Err(FilesError::NotExecutable { command: command.to_os_string(), detail });
        }
        planner.tree.bind(&found.path, FileKind::File, false);
    }
    if !own {
        planner.tree.link_all(&found.links);
    }
    Ok(planner.host.open(&found.path))
}

/// The interpreter of a script, looked up as env(1) would where the script asks for that.
fn interpreter_of(
    search: &mut ProgramSearch<'_, '_>,
    interpreter: &Path,
    argument: &OsStr,
    command: &OsStr,
) -> Result<PathBuf, FilesError> {
    search.require_executable(interpreter, command)?;
    if interpreter.file_name().is_some_and(|name| name == "env") {
        show_program(search, interpreter, command)?;
        let fields = argument.as_bytes().split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let name = fields.into_iter().find(|field| !field.starts_with(b"-") && !field.contains(&b'='));
        if let Some(name) = name.filter(|name| !name.contains(&b'/')) {
            return search.by_name(OsStr::from_bytes(name), command);
        }
        let Some(path) = name.map(|name| PathBuf::from(OsStr::from_bytes(name))) else {
            return Ok(interpreter.to_path_buf());
        };
        search.require_executable(&path, command)?;
        return search.resolve_proxy(&path, command);
    }
    let program = search.resolve_proxy(interpreter, command)?;
    // The kernel executes the path in the script, so something must be there.
    if program != interpreter
        && let (Some(parent), Some(name)) = (interpreter.parent(), interpreter.file_name())
        && let Some(parent) = search.planner.host.canonical(parent)
    {
        let points_to = program.clone();
        search.planner.tree.add(Mount::Symlink { target: parent.join(name), points_to });
    }
    Ok(program)
}

/// The interpreter and its argument in a script's first line.
fn shebang(file: &File) -> Option<(PathBuf, OsString)> {
    let mut buffer = vec![0; SHEBANG_BYTES];
    let length = file.read_at(&mut buffer, 0).ok()?;
    let line = buffer[..length].strip_prefix(b"#!")?.split(|byte| matches!(byte, b'\n' | 0)).next()?;
    let line = line.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let interpreter = PathBuf::from(OsString::from_vec(line[..end].to_vec()));
    let argument = OsString::from_vec(line[end..].trim_ascii().to_vec());
    interpreter.is_absolute().then_some((interpreter, argument))
}

fn starts_with(file: &File, magic: &[u8]) -> bool {
    let mut buffer = vec![0; magic.len()];
    file.read_exact_at(&mut buffer, 0).is_ok() && buffer == magic
}

/// Shows the libraries that an ELF file finds by its own search path; the system's are there
/// anyway.
fn show_libraries(search: &mut ProgramSearch<'_, '_>, program: Elf, path: &Path) {
    let mut queue = VecDeque::from([(program, path.to_path_buf())]);
    let mut directories: Vec<PathBuf> = Vec::new();
    let mut left = LIBRARIES;
    while let Some((elf, path)) = queue.pop_front() {
        let origin =
            search.planner.host.canonical(&path).and_then(|path| path.parent().map(Path::to_path_buf));
        for entry in elf.search.iter().flat_map(std::env::split_paths) {
            directories.extend(origin.as_deref().and_then(|origin| expand(&entry, origin)));
        }
        let names = elf.needed.iter().filter(|name| !name.as_bytes().contains(&b'/'));
        let found = names.filter_map(|name| {
            let mut candidates = directories.iter().map(|directory| directory.join(name));
            candidates.find(|candidate| search.planner.host.is_file(candidate))
        });
        let wanted: Vec<PathBuf> = found.chain(elf.interpreter.as_ref().map(PathBuf::from)).collect();
        for library in wanted {
            if left == 0 {
                let text = format!(
                    "{} needs more than {LIBRARIES} libraries; the rest is not shown",
                    path.display()
                );
                search.planner.note(NoteKind::Installation, text);
                return;
            }
            if let Some(elf) = show_library(search, &library) {
                left -= 1;
                queue.push_back((elf, library));
            }
        }
    }
}

/// Shows one library that is not shown yet.
fn show_library(search: &mut ProgramSearch<'_, '_>, library: &Path) -> Option<Elf> {
    let planner = &mut *search.planner;
    let found = planner.host.resolve(library).ok()?;
    if planner.tree.shows(&found.path) {
        planner.tree.link_all(&found.links);
        return None;
    }
    let elf = elf::read(&planner.host.open(&found.path)?)?;
    if planner.guard.rejection(&found.path).is_some() {
        return None;
    }
    planner.tree.bind(&found.path, FileKind::File, false);
    planner.tree.link_all(&found.links);
    Some(elf)
}

/// An entry of an ELF search path with `$ORIGIN` filled in; only those that start with it are a
/// program's own.
fn expand(entry: &Path, origin: &Path) -> Option<PathBuf> {
    let below = entry.strip_prefix("$ORIGIN").or_else(|_| entry.strip_prefix("${ORIGIN}"));
    match below {
        Ok(below) => Some(origin.join(below)),
        Err(_) => entry.is_absolute().then(|| entry.to_path_buf()),
    }
}
