//! Paths in a root that is not this process's, as descriptors: links lead where they lead inside,
//! never out of it.
//!
//! The new root is built while the old one is still there. A link in a work tree, `made ->
//! /oldroot/home/…` or `made -> ../../…`, must not have the setup make a file in the caller's tree,
//! not even if another process puts it there while the setup runs. Each name is therefore opened in
//! the directory that was opened before, without following links, and the operations act on
//! descriptors.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

/// Links that are followed in one path, as the kernel does; path_resolution(7).
const MAX_LINKS: usize = 40;
/// The name of the root itself.
const ROOT_NAME: &str = ".";

/// Whether the last part of a path is followed where it is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastComponent {
    Follow,
    Keep,
}

/// A place in a root: an opened directory, and a name in it.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    root: PathBuf,
    pub directory: Rc<OwnedFd>,
    pub name: OsString,
    /// What has the name, opened with O_PATH; `None` if nothing has it.
    pub entry: Option<Rc<OwnedFd>>,
}

impl Location {
    /// Opens what has the name now, a link itself.
    ///
    /// # Errors
    /// As openat(2), unless nothing is there.
    pub fn open(&mut self) -> io::Result<()> {
        let opened = match self.name == ROOT_NAME {
            // A name leads to what is mounted there, `.` does not.
            true => openat(CWD, &self.root, PATH | OFlags::DIRECTORY, Mode::empty()),
            false => openat(&self.directory, &self.name, PATH, Mode::empty()),
        };
        self.entry = match opened {
            Ok(entry) => Some(Rc::new(entry)),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }

    /// A name in a directory that lies in the same root; not opened.
    pub fn entry_of(&self, directory: Rc<OwnedFd>, name: &str) -> Self {
        Location { root: self.root.clone(), directory, name: name.into(), entry: None }
    }

    /// What has the name.
    ///
    /// # Errors
    /// ENOENT if nothing has it.
    pub fn existing(&self) -> io::Result<&Rc<OwnedFd>> {
        self.entry.as_ref().ok_or_else(|| Errno::NOENT.into())
    }
}

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Finds what `path` names in `root`. Each directory on the way is passed to `enter`, which makes
/// it if it is missing, and returns it.
///
/// # Errors
/// For a loop of links, what openat(2) and readlink(2) return, and what `enter` returns.
pub(crate) fn locate(
    root: &Path,
    path: &Path,
    last: LastComponent,
    mut enter: impl FnMut(Location) -> io::Result<Rc<OwnedFd>>,
) -> io::Result<Location> {
    let opened = Rc::new(openat(CWD, root, PATH | OFlags::DIRECTORY, Mode::empty())?);
    let mut pending: VecDeque<OsString> = names(path).collect();
    let mut inside: Vec<(OsString, Rc<OwnedFd>)> = Vec::new();
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            // Above a root there is the root.
            inside.pop();
            continue;
        }
        let is_last = pending.is_empty();
        let directory = inside.last().map_or_else(|| opened.clone(), |(_, directory)| directory.clone());
        let mut location = Location { root: root.to_owned(), directory, name, entry: None };
        location.open()?;
        if !(is_last && last == LastComponent::Keep)
            && let Some(target) = link_target(&location)?
        {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP.into());
            }
            if target.is_absolute() {
                inside.clear();
            }
            let followed: Vec<OsString> = names(&target).collect();
            followed.into_iter().rev().for_each(|name| pending.push_front(name));
            continue;
        }
        if is_last {
            return Ok(location);
        }
        let name = location.name.clone();
        inside.push((name, enter(location)?));
    }
    let (name, entry) = inside.pop().unwrap_or_else(|| (ROOT_NAME.into(), opened.clone()));
    let directory = inside.pop().map_or(opened, |(_, directory)| directory);
    Ok(Location { root: root.to_owned(), directory, name, entry: Some(entry) })
}

fn link_target(location: &Location) -> io::Result<Option<PathBuf>> {
    let Some(entry) = &location.entry else { return Ok(None) };
    if FileType::from_raw_mode(fstat(entry)?.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    let target = readlinkat(entry, "", Vec::new())?;
    Ok(Some(OsString::from_vec(target.into_bytes()).into()))
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_points::{MountPointKind, ensure};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    fn make(mut location: Location) -> io::Result<Rc<OwnedFd>> {
        ensure(&mut location, MountPointKind::Directory(0o755))?;
        location.existing().cloned()
    }

    fn shown(location: &Location) -> PathBuf {
        let directory = std::fs::read_link(format!("/proc/self/fd/{}", location.directory.as_raw_fd()));
        directory.expect("a path").join(&location.name)
    }

    #[test]
    fn links_stay_in_the_root() {
        let root = tempfile::tempdir().expect("a directory");
        let root = root.path();
        std::fs::create_dir_all(root.join("etc/deep")).expect("directories");
        let links = [
            ("absolute", "/etc"),
            ("up", "../../../etc"),
            ("chain", "absolute/deep"),
            ("dangling", "/oldroot/x"),
        ];
        for (name, target) in links {
            symlink(target, root.join(name)).expect("a link");
        }
        let cases = [
            ("/absolute/file", "etc/file"),
            ("/up/deep/../new", "etc/new"),
            ("/chain/file", "etc/deep/file"),
            ("/dangling/file", "oldroot/x/file"),
            ("/dangling", "oldroot/x"),
            ("/../..//etc", "etc"),
            ("/etc/deep/..", "etc"),
            ("/", "."),
        ];
        for (path, expected) in cases {
            let found = locate(root, Path::new(path), LastComponent::Follow, make).expect("a location");
            assert_eq!(shown(&found), root.join(expected), "{path}");
        }
        let kept = locate(root, Path::new("/absolute"), LastComponent::Keep, make).expect("a location");
        assert_eq!(shown(&kept), root.join("absolute"));
        let kept = locate(root, Path::new("/up/link"), LastComponent::Keep, make).expect("a location");
        assert_eq!(shown(&kept), root.join("etc/link"));
    }

    #[test]
    fn link_planted_after_the_lookup_is_not_followed() {
        let root = tempfile::tempdir().expect("a directory");
        let (inside, outside) = (root.path().join("inside"), root.path().join("outside"));
        for directory in [inside.join("tree"), outside.clone()] {
            std::fs::create_dir_all(directory).expect("directories");
        }
        let mut location =
            locate(&inside, Path::new("/tree/made"), LastComponent::Follow, make).expect("a location");
        std::fs::rename(inside.join("tree"), inside.join("moved")).expect("renamed");
        symlink(&outside, inside.join("tree")).expect("a link");
        ensure(&mut location, MountPointKind::File).expect("made");
        assert!(inside.join("moved/made").exists() && !outside.join("made").exists());
        let mut location =
            locate(&inside, Path::new("/moved/other"), LastComponent::Follow, make).expect("a location");
        symlink(outside.join("other"), inside.join("moved/other")).expect("a link");
        let error = ensure(&mut location, MountPointKind::File).expect_err("a link is there");
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        assert!(!outside.join("other").exists());
    }

    #[test]
    fn loop_of_links_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        symlink("/b", root.path().join("a")).expect("a link");
        symlink("/a", root.path().join("b")).expect("a link");
        let error = locate(root.path(), Path::new("/a"), LastComponent::Follow, make).expect_err("a loop");
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }
}
