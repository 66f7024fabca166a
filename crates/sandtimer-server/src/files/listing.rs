//! Listings: in the order of names, in pages, bounded in what is held and how deep it goes.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;

use super::entry::{EntryKind, FileEntry};
use super::paths::{self, FilePath, Root, path_rejection};
use crate::error::ApiRejection;

/// Names of one directory that are read. What comes after them in the directory's own order is left
/// out.
const MAX_NAMES: usize = 1_000_000;
/// Names of one directory that are in memory: the next ones in order, for which all of it is read
/// again.
const MAX_NAMES_IN_MEMORY: usize = 1_000;
/// How deep a listing goes.
pub(super) const MAX_LISTING_DEPTH: usize = 64;
/// Files that are counted for a size.
const MAX_COUNTED_FILES: u64 = 1_000_000;

/// What is asked of a listing.
#[derive(Debug, Clone)]
pub(crate) struct ListingRequest {
    pub recursive: bool,
    pub most: usize,
    /// Only entries after this path.
    pub after: Option<FilePath>,
}

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub entries: Vec<FileEntry>,
    /// There are more entries after the last of these.
    pub more: bool,
    /// Directories were too large or too deep to be listed whole, or not readable.
    pub incomplete: bool,
    /// The first directory that was not readable.
    pub unreadable: Option<String>,
}

/// What a workspace holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TreeSize {
    pub bytes: u64,
    pub files: u64,
    /// All of it was counted.
    pub complete: bool,
}

pub(super) fn list(
    root: Root<'_>,
    file_path: &FilePath,
    asked: &ListingRequest,
) -> Result<Listing, ApiRejection> {
    let directory = paths::open(root, file_path.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut walk = ListingWalk { asked, listing: Listing::default() };
    walk.directory(&directory, file_path.prefix(), 1)
        .map_err(|error| path_rejection(file_path.path(), error))?;
    Ok(walk.listing)
}

struct ListingWalk<'a> {
    asked: &'a ListingRequest,
    listing: Listing,
}

impl ListingWalk<'_> {
    /// False once there is enough.
    fn directory(&mut self, directory: &OwnedFd, prefix: &Path, depth: usize) -> Result<bool, Errno> {
        let mut last = self.first_name_after(prefix);
        loop {
            let (names, all) = names(directory, last.as_ref())?;
            self.listing.incomplete |= !all;
            let is_full = names.len() == MAX_NAMES_IN_MEMORY;
            for name in &names {
                if !self.entry(directory, prefix, name, depth)? {
                    return Ok(false);
                }
            }
            last = names.into_iter().next_back();
            if !is_full {
                return Ok(true);
            }
        }
    }

    /// The name in this directory that leads to the path after which the page begins: all names
    /// before it were shown.
    fn first_name_after(&self, prefix: &Path) -> Option<ListedName> {
        let after = self.asked.after.as_ref()?.path().strip_prefix(prefix).ok()?;
        let name = after.components().next()?.as_os_str().to_str()?;
        // No name is shorter, so names that are shown the same are included.
        Some(ListedName { text: name.to_owned(), name: CString::default() })
    }

    /// One name of a directory, and all below it. False once there is enough.
    fn entry(
        &mut self,
        directory: &OwnedFd,
        prefix: &Path,
        listed: &ListedName,
        depth: usize,
    ) -> Result<bool, Errno> {
        let ListedName { text, name } = listed;
        let path = prefix.join(text);
        // Directories before the path after which the page begins may still lead to it.
        let after = self.asked.after.as_ref().map(FilePath::path);
        let passed = after.is_some_and(|after| path.as_path() <= after);
        // Of names that are shown the same only one can be continued after.
        self.listing.incomplete |= after == Some(path.as_path()) && text.as_bytes() != name.as_bytes();
        if passed && !(self.asked.recursive && after.is_some_and(|after| after.starts_with(&path))) {
            return Ok(true);
        }
        let Ok(status) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(true) };
        let kind = EntryKind::of(&status);
        if !passed {
            if self.listing.entries.len() == self.asked.most {
                self.listing.more = true;
                return Ok(false);
            }
            let link = || readlinkat(directory, name, Vec::new()).ok();
            let target = (kind == EntryKind::Symlink).then(link).flatten();
            let target = target.map(|target| target.to_string_lossy().into_owned());
            self.listing.entries.push(FileEntry::new(path.to_string_lossy().into_owned(), &status, target));
        }
        if kind == EntryKind::Directory && self.asked.recursive {
            return self.below(directory, name, &path, depth);
        }
        Ok(true)
    }

    fn below(
        &mut self,
        directory: &OwnedFd,
        name: &CString,
        path: &Path,
        depth: usize,
    ) -> Result<bool, Errno> {
        match (depth < MAX_LISTING_DEPTH).then(|| enter(directory.as_fd(), name)) {
            Some(Ok(child)) => self.directory(&child, path, depth + 1),
            Some(Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => Ok(true),
            // Too deep, or not to be entered.
            failed => {
                if let Some(Err(Errno::ACCESS)) = failed {
                    let path = || path.to_string_lossy().into_owned();
                    self.listing.unreadable.get_or_insert_with(path);
                }

                self.listing.incomplete = true;
                Ok(true)
            }
        }
    }
}

/// One directory below another. Its name is one component, so no link is followed and nothing is
/// left.
pub(super) fn enter(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let child = openat(directory, name, flags, Mode::empty())?;
    if paths::is_of_proc(&child) { Err(Errno::NOENT) } else { Ok(child) }
}

/// A name in a directory, ordered as it is shown.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ListedName {
    /// As it is shown.
    text: String,
    name: CString,
}

/// The first names in a directory, in order, after one of them; and whether all of it was read.
fn names(directory: &OwnedFd, after: Option<&ListedName>) -> Result<(BTreeSet<ListedName>, bool), Errno> {
    let mut names = BTreeSet::new();
    for (number, entry) in Dir::read_from(directory)?.enumerate() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if number >= MAX_NAMES {
            return Ok((names, false));
        }
        let name = ListedName { text: name.to_string_lossy().into_owned(), name: name.to_owned() };
        if after.is_some_and(|after| name <= *after) {
            continue;
        }
        names.insert(name);
        if names.len() > MAX_NAMES_IN_MEMORY {
            names.pop_last();
        }
    }
    Ok((names, true))
}

/// What all below `root` takes on the disk, link by link.
pub(super) fn size(root: Root<'_>) -> Result<TreeSize, ApiRejection> {
    let here = Path::new(".");
    let root = paths::open(root, here, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut size = TreeSize { bytes: 0, files: 0, complete: true };
    count(&root, 1, &mut size).map_err(|error| path_rejection(here, error))?;
    Ok(size)
}

fn count(directory: &OwnedFd, depth: usize, size: &mut TreeSize) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_owned();
        if name.as_c_str() == c"." || name.as_c_str() == c".." {
            continue;
        }
        if size.files == MAX_COUNTED_FILES {
            size.complete = false;
            return Ok(());
        }
        let Ok(status) = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        size.files += 1;
        size.bytes += u64::try_from(status.st_blocks).unwrap_or(0) * 512;
        if EntryKind::of(&status) == EntryKind::Directory {
            match (depth < MAX_LISTING_DEPTH).then(|| enter(directory.as_fd(), &name)) {
                Some(Ok(child)) => count(&child, depth + 1, size)?,
                Some(Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
                _ => size.complete = false,
            }
        }
    }
    Ok(())
}
