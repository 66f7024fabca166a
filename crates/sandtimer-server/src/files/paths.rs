//! Names of files as callers give them, and how they are opened: beneath the workspace, whatever a
//! job puts in the way.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2, readlinkat, statat};
use rustix::io::Errno;

use super::entry::EntryKind;
use crate::error::{ApiRejection, Code};

/// Where jobs see their workspace, and where relative paths of a sandbox begin.
const WORKSPACE_MOUNT: &str = "/workspace";
/// What the kernel takes of a path, and of one name.
const MAX_PATH_BYTES: usize = 4_095;
const MAX_NAME_BYTES: usize = 255;
/// Links that are followed for one path, as the kernel does.
const MAX_LINKS: usize = 40;
/// How often a path is tried if its directories are moved during the walk.
const MAX_TRIES: usize = 100;
const MAX_SHOWN_CHARS: usize = 120;

/// What each run of a sandbox has of its own, so that there is nothing of it outside of runs.
const PER_RUN_DIRECTORIES: [&str; 3] = ["/dev", "/proc", "/sys"];
/// The file system of processes; statfs(2).
const PROC_MAGIC: u64 = 0x9fa0;

/// A path of plain names: in a workspace relative, and empty for the workspace itself; in a sandbox
/// absolute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct FilePath(PathBuf);

impl FilePath {
    /// `a/b`, `./a/b` and `/workspace/a/b` are the same.
    pub fn parse(text: &str) -> Result<Self, ApiRejection> {
        Self::parse_at(WORKSPACE_MOUNT, text)
    }

    /// The same in a directory that jobs see elsewhere.
    pub fn parse_at(mount_path: &str, text: &str) -> Result<Self, ApiRejection> {
        check_path(text)?;
        let path = Path::new(text);
        match path.strip_prefix(mount_path) {
            Ok(below) => Ok(FilePath(plain(text, below)?)),
            Err(_) if path.is_absolute() => {
                Err(refused(text, Code::PathOutside, "is outside of the workspace, which is /workspace"))
            }
            Err(_) => Ok(FilePath(plain(text, path)?)),
        }
    }

    /// A path in a sandbox: an absolute one, or one below the directory that its runs start in.
    pub fn parse_absolute(text: &str) -> Result<Self, ApiRejection> {
        check_path(text)?;
        let path = Path::new(text);
        let below = path.strip_prefix("/").unwrap_or(path);
        let base = if path.is_absolute() { "/" } else { WORKSPACE_MOUNT };
        let path = Path::new(base).join(plain(text, below)?);
        if PER_RUN_DIRECTORIES.iter().any(|own| path.starts_with(own)) {
            let why = "is below /dev, /proc or /sys, which each run has of its own; use it in a run";
            return Err(refused(text, Code::PathOutside, why));
        }
        Ok(FilePath(path))
    }

    /// The directory of all others.
    pub fn root() -> Self {
        FilePath(PathBuf::new())
    }

    pub fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty() || self.0 == Path::new("/")
    }

    /// As the kernel takes it: `.` for the workspace itself.
    pub fn path(&self) -> &Path {
        if self.0.as_os_str().is_empty() { Path::new(".") } else { &self.0 }
    }

    /// What the paths of all that is below begin with: nothing for the workspace itself.
    pub fn prefix(&self) -> &Path {
        &self.0
    }

    /// As answers show it.
    pub fn text(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

fn refused(text: &str, code: Code, why: &str) -> ApiRejection {
    ApiRejection::new(code, format!("path `{}` {why}", shown(text))).with("key", "path")
}

fn check_path(text: &str) -> Result<(), ApiRejection> {
    if text.contains('\0') {
        return Err(refused(text, Code::NulByte, "has a NUL byte"));
    }
    if text.len() > MAX_PATH_BYTES {
        let why = format!("has {} bytes; at most {MAX_PATH_BYTES} are taken", text.len());
        return Err(refused(text, Code::TooLong, &why));
    }
    Ok(())
}

/// A relative path without `.`; `text` is all that was given.
fn plain(text: &str, path: &Path) -> Result<PathBuf, ApiRejection> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) if name.len() > MAX_NAME_BYTES => {
                let why = format!("has a name of {} bytes; at most {MAX_NAME_BYTES} are taken", name.len());
                return Err(refused(text, Code::TooLong, &why));
            }
            Component::Normal(name) => plain.push(name),
            _ => return Err(refused(text, Code::PathOutside, "has a `..`, which is not taken")),
        }
    }
    Ok(plain)
}

/// Which paths jobs have for the files below a directory.
#[derive(Debug)]
pub(super) enum PathView {
    /// It is the root directory of the jobs: all paths and links lead from it on.
    Whole,
    /// It is mounted at these absolute paths: links with such a target lead back into it.
    Below(Vec<PathBuf>),
}

/// A directory that paths are opened beneath.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root<'a> {
    pub directory: BorrowedFd<'a>,
    pub view: &'a PathView,
}

impl Root<'_> {
    /// The place in this directory that an absolute path of a job names; `None` for one outside of
    /// it.
    pub fn below(&self, path: &Path) -> Option<PathBuf> {
        match self.view {
            PathView::Whole => Some(path.to_owned()),
            PathView::Below(mount_paths) => mount_paths
                .iter()
                .find_map(|mount_path| path.strip_prefix(mount_path).ok())
                .map(Path::to_owned),
        }
    }
}

/// Opens a path beneath `root` without blocking, and without side effects of devices. Links with an
/// absolute target below the root, as jobs see it, are followed there.
pub(super) fn open(root: Root<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, ApiRejection> {
    if let PathView::Whole = root.view {
        return open_inside(root.directory, path, flags, mode).map_err(|error| path_rejection(path, error));
    }
    let beneath = ResolveFlags::BENEATH;
    let opened = match openat_retrying(root.directory, path, flags, mode, beneath) {
        // openat2(2) takes each absolute target for one that leads out.
        Err(Errno::XDEV) => without_links(root, path, flags.contains(OFlags::NOFOLLOW))
            .and_then(|plain| openat_retrying(root.directory, &plain, flags, mode, beneath)),
        opened => opened,
    };
    opened.map_err(|error| path_rejection(path, error))
}

/// Opens a path in a sandbox, whose links and mounts are followed as in its runs. Nothing of a
/// procfs is opened.
fn open_inside(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let opened = openat_retrying(root, path, flags, mode, ResolveFlags::IN_ROOT)?;
    if is_of_proc(&opened) { Err(Errno::NOENT) } else { Ok(opened) }
}

/// Whether a file is of the kernel's procfs, where access depends on more than the thread's user.
pub(super) fn is_of_proc(file: &OwnedFd) -> bool {
    fstatfs(file).is_ok_and(|system| system.f_type as u64 == PROC_MAGIC)
}

/// Opens a path beneath a directory; fails with `LOOP` where a link is on the way.
pub(super) fn open_plain(directory: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat_retrying(directory, path, flags | OFlags::NOFOLLOW, Mode::empty(), resolve)
}

fn openat_retrying(
    directory: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // A descriptor of a path takes no further flags.
    let flags = if flags.contains(OFlags::PATH) { flags - OFlags::NONBLOCK - OFlags::NOCTTY } else { flags };
    // A sandbox is made of several mounts, all of its own.
    let crossing =
        if resolve.contains(ResolveFlags::IN_ROOT) { ResolveFlags::empty() } else { ResolveFlags::NO_XDEV };
    let resolve = resolve | ResolveFlags::NO_MAGICLINKS | crossing;
    let mut error = Errno::AGAIN;
    for _ in 0..MAX_TRIES {
        match openat2(directory, path, flags, mode, resolve) {
            // A directory on the way was moved; openat2(2).
            Err(again @ (Errno::AGAIN | Errno::INTR)) => error = again,
            opened => return opened,
        }
    }
    Err(error)
}

/// The same path with every link replaced by its target; the last one is kept where it is not to be
/// followed. Jobs may change what is on the way at the same time, so the result is opened beneath
/// the root as every path is.
fn without_links(root: Root<'_>, path: &Path, keeps_last: bool) -> Result<PathBuf, Errno> {
    let reversed =
        |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut left, mut plain, mut links) = (reversed(path), PathBuf::new(), 0);
    while let Some(name) = left.pop() {
        if name == "." {
            continue;
        }
        if name == ".." {
            // No link is in it, so its last name is the directory's own.
            if !plain.pop() {
                return Err(Errno::XDEV);
            }
            continue;
        }
        let next = plain.join(&name);
        let target = if left.is_empty() && keeps_last { None } else { link_target(root, &next)? };
        let Some(target) = target else {
            plain = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        if target.is_absolute() {
            left.extend(reversed(&root.below(&target).ok_or(Errno::XDEV)?));
            plain = PathBuf::new();
        } else {
            left.extend(reversed(&target));
        }
    }
    Ok(if plain.as_os_str().is_empty() { PathBuf::from(".") } else { plain })
}

/// The target of a link; `None` where the path is none, or does not exist.
fn link_target(root: Root<'_>, path: &Path) -> Result<Option<PathBuf>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    match openat_retrying(root.directory, path, flags, Mode::empty(), ResolveFlags::BENEATH) {
        Ok(opened) if EntryKind::of(&fstat(&opened)?) == EntryKind::Symlink => {
            let target = readlinkat(&opened, "", Vec::new())?;
            Ok(Some(OsString::from_vec(target.into_bytes()).into()))
        }
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The directory that holds a path's last name, and that name; where it is a link, those of what it
/// names.
pub(super) fn holder(
    root: Root<'_>,
    file_path: &FilePath,
    follow: bool,
) -> Result<(OwnedFd, PathBuf), ApiRejection> {
    let mut path = file_path.path().to_owned();
    for _ in 0..MAX_LINKS {
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
            return Err(wrong_type(file_path.path(), "is a directory"));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let directory = open(root, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let name = PathBuf::from(name);
        let status = statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW);
        if !follow || !status.is_ok_and(|status| EntryKind::of(&status) == EntryKind::Symlink) {
            return Ok((directory, name));
        }
        let target =
            readlinkat(&directory, &name, Vec::new()).map_err(|error| path_rejection(&path, error))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        path = match target.is_absolute() {
            true => root.below(&target).ok_or_else(|| path_rejection(&path, Errno::XDEV))?,
            // The kernel resolves `..` beneath the workspace.
            false => parent.join(target),
        };
    }
    Err(path_rejection(file_path.path(), Errno::LOOP))
}

/// A file that has another type than is needed.
pub(super) fn wrong_type(path: &Path, what: &str) -> ApiRejection {
    ApiRejection::new(Code::WrongFileType, format!("`{}` {what}", shown(&path.to_string_lossy())))
}

/// The rejection for the kernel's error about a path.
pub(super) fn path_rejection(path: &Path, error: Errno) -> ApiRejection {
    let (code, why) = match error {
        Errno::NOENT => (Code::FileNotFound, "does not exist"),
        Errno::NOTDIR => (Code::WrongFileType, "is not a directory, or has a name on the way that is none"),
        Errno::ISDIR => (Code::WrongFileType, "is a directory"),
        Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => {
            (Code::WrongFileType, "is a FIFO, a socket or a device")
        }
        Errno::XDEV => (
            Code::PathOutside,
            "leads out of the workspace, or over a link with an absolute target outside of it",
        ),
        Errno::LOOP => (Code::PathOutside, "leads over too many links"),
        Errno::ACCESS | Errno::PERM => {
            (Code::FilePermission, "may not be used so: its owner or its mode forbids it")
        }
        Errno::ROFS => (Code::FilePermission, "is read-only"),
        Errno::EXIST => (Code::FileExists, "exists"),
        Errno::NOTEMPTY => (Code::DirectoryNotEmpty, "is a directory that is not empty"),
        Errno::NAMETOOLONG => (Code::TooLong, "is too long, or has a name that is"),
        Errno::INVAL => (Code::BadField, "cannot be used so: a directory cannot be moved into itself"),
        Errno::AGAIN | Errno::BUSY | Errno::TXTBSY | Errno::INTR => {
            (Code::FileBusy, "is being changed by others")
        }
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::MLINK => {
            (Code::Storage, "does not fit on the disk")
        }
        other => {
            return ApiRejection::new(Code::System, format!("`{}`: {other}", shown(&path.to_string_lossy())));
        }
    };
    ApiRejection::new(code, format!("`{}` {why}", shown(&path.to_string_lossy())))
}

pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_default).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_sandboxes_are_absolute_or_below_workspace() {
        for (given, meant) in [
            ("/etc/passwd", "/etc/passwd"),
            ("a/b", "/workspace/a/b"),
            ("./a", "/workspace/a"),
            ("/", "/"),
            ("//tmp//x/", "/tmp/x"),
            ("", "/workspace"),
            ("/device", "/device"),
        ] {
            let file_path = FilePath::parse_absolute(given).expect(given);
            assert_eq!((file_path.path(), file_path.is_root()), (Path::new(meant), meant == "/"), "{given}");
        }
        for wrong in ["..", "/..", "/tmp/../etc", "/proc/self/environ", "/dev/null", "//sys", "/proc"] {
            assert_eq!(FilePath::parse_absolute(wrong).expect_err(wrong).code, Code::PathOutside, "{wrong}");
        }
    }

    #[test]
    fn paths_are_relative_or_below_workspace_and_of_plain_names() {
        for same in ["a/b", "./a//b/", "/workspace/a/b"] {
            assert_eq!(FilePath::parse(same).expect(same).path(), Path::new("a/b"), "{same}");
        }
        for root in ["", ".", "/workspace", "/workspace/"] {
            assert!(FilePath::parse(root).expect(root).is_root(), "{root}");
        }
        for (wrong, code) in [
            ("..", Code::PathOutside),
            ("a/../b", Code::PathOutside),
            ("/workspace/../etc", Code::PathOutside),
            ("/etc/passwd", Code::PathOutside),
            ("/workspaces", Code::PathOutside),
            ("a\0b", Code::NulByte),
            (&"x".repeat(5_000), Code::TooLong),
            (&"x".repeat(256), Code::TooLong),
        ] {
            assert_eq!(FilePath::parse(wrong).expect_err(wrong).code, code, "{wrong}");
        }
    }
}
