//! Paths in a root that is not this process's: links lead where they lead inside, never out of it.
//!
//! The new root is built while the old one is still there. A link in a work tree, `made -> /oldroot/home/…` or `made -> ../../…`, must
//! not have the setup make a file in the caller's tree.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

/// Links that are followed in one path, as the kernel does; path_resolution(7).
const MAX_LINKS: usize = 40;

/// Whether the last part of a path is followed where it is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// What `path` names in `root`: a path below it that leads through no link, of which the end may not exist yet.
///
/// # Errors
/// For a loop of links, and what readlink(2) returns.
pub(crate) fn resolve(root: &Path, path: &Path, last: Last) -> io::Result<PathBuf> {
    let mut pending: VecDeque<OsString> = names(path).collect();
    let mut inside: Vec<OsString> = Vec::new();
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            // Above a root there is the root.
            inside.pop();
            continue;
        }
        let here = inside.iter().fold(root.to_owned(), |path, name| path.join(name)).join(&name);
        let is_kept = last == Last::Keep && pending.is_empty();
        match std::fs::read_link(&here) {
            Ok(target) if !is_kept => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if target.is_absolute() {
                    inside.clear();
                }
                let followed: Vec<OsString> = names(&target).collect();
                followed.into_iter().rev().for_each(|name| pending.push_front(name));
            }
            Err(error) if !is_no_link(&error) => return Err(error),
            _ => inside.push(name),
        }
    }
    Ok(inside.into_iter().fold(root.to_owned(), |path, name| path.join(name)))
}

/// It is something else, or is not there.
fn is_no_link(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INVAL | Errno::NOENT | Errno::NOTDIR))
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
    use std::os::unix::fs::symlink;

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
            ("/", ""),
        ];
        for (path, expected) in cases {
            let found = resolve(root, Path::new(path), Last::Follow).expect("a path");
            assert_eq!(found, root.join(expected), "{path}");
        }
        let kept = resolve(root, Path::new("/absolute"), Last::Keep).expect("a path");
        assert_eq!(kept, root.join("absolute"));
        let kept = resolve(root, Path::new("/up/link"), Last::Keep).expect("a path");
        assert_eq!(kept, root.join("etc/link"));
    }

    #[test]
    fn loop_of_links_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        symlink("/b", root.path().join("a")).expect("a link");
        symlink("/a", root.path().join("b")).expect("a link");
        let error = resolve(root.path(), Path::new("/a"), Last::Follow).expect_err("a loop");
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }
}
