//! Listings: in the order of names, in pages, bounded in what is held and how deep it goes.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;

use super::entry::{Entry, Kind};
use super::place::{self, Place, Root, refusal};
use super::tree::Size;
use crate::error::Refusal;

/// Names of one directory that are looked at. What comes after them in the directory's own order is not seen.
const MOST_NAMES: usize = 1_000_000;
/// Names of one directory that are in memory: the next ones in order, for which all of it is read again.
const AT_A_TIME: usize = 1_000;
/// How deep a listing goes.
pub(super) const MOST_DEPTH: usize = 64;
/// Files that are counted for a size.
const MOST_COUNTED: u64 = 1_000_000;

/// What is asked of a listing.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub recursive: bool,
    pub most: usize,
    /// Only what comes behind this path.
    pub after: Option<Place>,
}

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub entries: Vec<Entry>,
    /// There is more, behind the last of these.
    pub more: bool,
    /// Directories were too large or too deep to be seen whole, or closed.
    pub incomplete: bool,
}

pub(super) fn list(root: Root<'_>, place: &Place, asked: &Asked) -> Result<Listing, Refusal> {
    let directory = place::open(root, place.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut walk = Walk { asked, listing: Listing::default() };
    walk.directory(&directory, place.prefix(), 1).map_err(|error| refusal(place.path(), error))?;
    Ok(walk.listing)
}

struct Walk<'a> {
    asked: &'a Asked,
    listing: Listing,
}

impl Walk<'_> {
    /// False once there is enough.
    fn directory(&mut self, directory: &OwnedFd, prefix: &Path, depth: usize) -> Result<bool, Errno> {
        let mut last = self.begins_behind(prefix);
        loop {
            let (names, all) = names(directory, last.as_ref())?;
            self.listing.incomplete |= !all;
            let is_full = names.len() == AT_A_TIME;
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

    /// The name in this directory that leads to the place behind which the page begins: all before it were shown.
    fn begins_behind(&self, prefix: &Path) -> Option<Name> {
        let after = self.asked.after.as_ref()?.path().strip_prefix(prefix).ok()?;
        let name = after.components().next()?.as_os_str().to_str()?;
        // No name is shorter: those that read the same are looked at.
        Some((name.to_owned(), CString::default()))
    }

    /// One name of a directory, and all below it. False once there is enough.
    fn entry(
        &mut self,
        directory: &OwnedFd,
        prefix: &Path,
        (text, name): &Name,
        depth: usize,
    ) -> Result<bool, Errno> {
        let path = prefix.join(text);
        // Directories before the place behind which it begins may still lead to it.
        let after = self.asked.after.as_ref().map(Place::path);
        let passed = after.is_some_and(|after| path.as_path() <= after);
        // Of names that read the same only one can be gone on behind.
        self.listing.incomplete |= after == Some(path.as_path()) && text.as_bytes() != name.as_bytes();
        if passed && !(self.asked.recursive && after.is_some_and(|after| after.starts_with(&path))) {
            return Ok(true);
        }
        let Ok(status) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(true) };
        let kind = Kind::of(&status);
        if !passed {
            if self.listing.entries.len() == self.asked.most {
                self.listing.more = true;
                return Ok(false);
            }
            let link = || readlinkat(directory, name, Vec::new()).ok();
            let target = (kind == Kind::Symlink).then(link).flatten();
            let target = target.map(|target| target.to_string_lossy().into_owned());
            self.listing.entries.push(Entry::new(path.to_string_lossy().into_owned(), &status, target));
        }
        if kind == Kind::Directory && self.asked.recursive {
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
        match (depth < MOST_DEPTH).then(|| enter(directory.as_fd(), name)) {
            Some(Ok(child)) => self.directory(&child, path, depth + 1),
            Some(Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => Ok(true),
            // Too deep, or not to be entered.
            _ => {
                self.listing.incomplete = true;
                Ok(true)
            }
        }
    }
}

/// One directory below another. Its name is one component, so no link is followed and nothing is left.
pub(super) fn enter(directory: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let child = openat(directory, name, flags, Mode::empty())?;
    if place::is_of_proc(&child) { Err(Errno::NOENT) } else { Ok(child) }
}

/// A name as it is shown, by which it is ordered, and as it is.
type Name = (String, CString);

/// The first names in a directory, in order, behind one of them; and whether all of it was looked at.
fn names(directory: &OwnedFd, behind: Option<&Name>) -> Result<(BTreeSet<Name>, bool), Errno> {
    let mut names = BTreeSet::new();
    for (number, entry) in Dir::read_from(directory)?.enumerate() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if number >= MOST_NAMES {
            return Ok((names, false));
        }
        let name = (name.to_string_lossy().into_owned(), name.to_owned());
        if behind.is_some_and(|behind| name <= *behind) {
            continue;
        }
        names.insert(name);
        if names.len() > AT_A_TIME {
            names.pop_last();
        }
    }
    Ok((names, true))
}

/// What all below `root` takes on the disk, link by link.
pub(super) fn size(root: Root<'_>) -> Result<Size, Refusal> {
    let here = Path::new(".");
    let root = place::open(root, here, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut size = Size { bytes: 0, files: 0, complete: true };
    count(&root, 1, &mut size).map_err(|error| refusal(here, error))?;
    Ok(size)
}

fn count(directory: &OwnedFd, depth: usize, size: &mut Size) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_owned();
        if name.as_c_str() == c"." || name.as_c_str() == c".." {
            continue;
        }
        if size.files == MOST_COUNTED {
            size.complete = false;
            return Ok(());
        }
        let Ok(status) = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        size.files += 1;
        size.bytes += u64::try_from(status.st_blocks).unwrap_or(0) * 512;
        if Kind::of(&status) == Kind::Directory {
            match (depth < MOST_DEPTH).then(|| enter(directory.as_fd(), &name)) {
                Some(Ok(child)) => count(&child, depth + 1, size)?,
                Some(Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {}
                _ => size.complete = false,
            }
        }
    }
    Ok(())
}
