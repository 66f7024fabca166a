//! Names of files as callers give them, and how they are opened: beneath the workspace, whatever a job puts in the way.

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat, statat};
use rustix::io::Errno;

use super::entry::Kind;
use crate::error::{Code, Refusal};

/// Where jobs see their workspace.
const SEEN_AT: &str = "/workspace";
/// What the kernel takes of a path, and of one name.
const MOST_PATH: usize = 4_095;
const MOST_NAME: usize = 255;
/// Links that are followed for one path, as the kernel does.
const MOST_LINKS: usize = 40;
/// How often a path is tried whose directories are moved meanwhile.
const TRIES: usize = 100;
const SHOWN: usize = 120;

/// A path in a workspace: relative, of plain names; empty for the workspace itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place(PathBuf);

impl Place {
    /// `a/b`, `./a/b` and `/workspace/a/b` are the same.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        Self::parse_at(SEEN_AT, text)
    }

    /// The same in a directory that jobs see elsewhere.
    pub fn parse_at(seen_at: &str, text: &str) -> Result<Self, Refusal> {
        let refused = |code, why: &str| {
            Err(Refusal::new(code, format!("path `{}` {why}", shown(text))).with("key", "path"))
        };
        if text.contains('\0') {
            return refused(Code::NulByte, "has a NUL byte");
        }
        if text.len() > MOST_PATH {
            return refused(
                Code::TooLong,
                &format!("has {} bytes; at most {MOST_PATH} are taken", text.len()),
            );
        }
        let path = Path::new(text);
        let below = match path.strip_prefix(seen_at) {
            Ok(below) => below,
            Err(_) if path.is_absolute() => {
                return refused(Code::PathOutside, "is outside of the workspace, which is /workspace");
            }
            Err(_) => path,
        };
        let mut place = PathBuf::new();
        for component in below.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) if name.len() > MOST_NAME => {
                    return refused(
                        Code::TooLong,
                        &format!("has a name of {} bytes; at most {MOST_NAME} are taken", name.len()),
                    );
                }
                Component::Normal(name) => place.push(name),
                _ => return refused(Code::PathOutside, "has a `..`, which is not taken"),
            }
        }
        Ok(Place(place))
    }

    pub fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// As the kernel takes it: `.` for the workspace itself.
    pub fn path(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { &self.0 }
    }

    /// As answers show it.
    pub fn text(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

/// A directory that paths are opened beneath.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root<'a> {
    pub directory: BorrowedFd<'a>,
    /// The absolute paths by which jobs see it: links with such a target lead back into it.
    pub seen_at: &'a [PathBuf],
}

impl Root<'_> {
    /// The part of an absolute path below this directory, as jobs see it; `None` for every other path.
    pub fn below(&self, path: &Path) -> Option<PathBuf> {
        self.seen_at.iter().find_map(|seen_at| path.strip_prefix(seen_at).ok()).map(Path::to_owned)
    }
}

/// Opens a path beneath `root` without blocking, and without side effects of devices. Links with an absolute target below the root,
/// as jobs see it, are followed there.
pub(super) fn open(root: Root<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Refusal> {
    let beneath = ResolveFlags::BENEATH;
    let opened = match openat_retrying(root.directory, path, flags, (mode, beneath)) {
        // openat2(2) takes each absolute target for one that leads out.
        Err(Errno::XDEV) => without_links(root, path, flags.contains(OFlags::NOFOLLOW))
            .and_then(|plain| openat_retrying(root.directory, &plain, flags, (mode, beneath))),
        opened => opened,
    };
    opened.map_err(|error| refusal(path, error))
}

/// Opens a path beneath a directory; fails with `LOOP` where a link is on the way.
pub(super) fn open_plain(directory: BorrowedFd<'_>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat_retrying(directory, path, flags | OFlags::NOFOLLOW, (Mode::empty(), resolve))
}

fn openat_retrying(
    directory: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    (mode, resolve): (Mode, ResolveFlags),
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    // A descriptor of a path takes no further flags.
    let flags = if flags.contains(OFlags::PATH) { flags - OFlags::NONBLOCK - OFlags::NOCTTY } else { flags };
    let resolve = resolve | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let mut error = Errno::AGAIN;
    for _ in 0..TRIES {
        match openat2(directory, path, flags, mode, resolve) {
            // A directory on the way was moved; openat2(2).
            Err(again @ (Errno::AGAIN | Errno::INTR)) => error = again,
            opened => return opened,
        }
    }
    Err(error)
}

/// The same path with every link replaced by its target; the last one is kept where it is not to be followed. Jobs may change what
/// is on the way at the same time, so the result is opened beneath the root as every path is.
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
        if links > MOST_LINKS {
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
    match openat_retrying(root.directory, path, flags, (Mode::empty(), ResolveFlags::BENEATH)) {
        Ok(opened) if Kind::of(&fstat(&opened)?) == Kind::Symlink => {
            let target = readlinkat(&opened, "", Vec::new())?;
            Ok(Some(OsString::from_vec(target.into_bytes()).into()))
        }
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The directory that holds a path's last name, and that name; where it is a link, those of what it names.
pub(super) fn holder(root: Root<'_>, place: &Place, follow: bool) -> Result<(OwnedFd, PathBuf), Refusal> {
    let mut path = place.path().to_owned();
    for _ in 0..MOST_LINKS {
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
            return Err(wrong_type(place.path(), "is a directory"));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let directory = open(root, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let name = PathBuf::from(name);
        let status = statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW);
        if !follow || !status.is_ok_and(|status| Kind::of(&status) == Kind::Symlink) {
            return Ok((directory, name));
        }
        let target = readlinkat(&directory, &name, Vec::new()).map_err(|error| refusal(&path, error))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        path = match target.is_absolute() {
            true => root.below(&target).ok_or_else(|| refusal(&path, Errno::XDEV))?,
            // The kernel resolves `..` beneath the workspace.
            false => parent.join(target),
        };
    }
    Err(refusal(place.path(), Errno::LOOP))
}

/// A file that has another type than is needed.
pub(super) fn wrong_type(path: &Path, what: &str) -> Refusal {
    Refusal::new(Code::WrongFileType, format!("`{}` {what}", shown(&path.to_string_lossy())))
}

/// What the kernel said about a path.
pub(super) fn refusal(path: &Path, error: Errno) -> Refusal {
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
            (Code::FilePermission, "may not be used so: its mode forbids it to its owner")
        }
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
        other => return Refusal::new(Code::System, format!("`{}`: {other}", shown(&path.to_string_lossy()))),
    };
    Refusal::new(code, format!("`{}` {why}", shown(&path.to_string_lossy())))
}

pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_default).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_or_below_workspace_and_of_plain_names() {
        for same in ["a/b", "./a//b/", "/workspace/a/b"] {
            assert_eq!(Place::parse(same).expect(same).path(), Path::new("a/b"), "{same}");
        }
        for root in ["", ".", "/workspace", "/workspace/"] {
            assert!(Place::parse(root).expect(root).is_root(), "{root}");
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
            assert_eq!(Place::parse(wrong).expect_err(wrong).code, code, "{wrong}");
        }
    }
}
