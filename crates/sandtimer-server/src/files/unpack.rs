//! Unpacks a tar archive into a directory of a workspace, in which a job may change anything at the
//! same time.
//!
//! ```text
//! body ─▶ file without a name ─▶ all members checked ─▶ all members made, each beneath the directory, over no link
//! ```
//! The archive may be changed between the two readings by a job of the same user, so both check
//! every member.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, Mode, OFlags, Timespec, Timestamps, fchmod, futimens, linkat, mkdirat, openat, renameat, statat,
    symlinkat, unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use super::actor::FileActor;
use super::entry::EntryKind;
use super::members::{self, Member, MemberContent, broken, is_inside, leads_out};
use super::paths::{self, FilePath, PathView, path_rejection, wrong_type};
use super::tree::{DIRECTORY_MODE, FileTree, PendingFile, aside_name, is_mount_point, write_all};
use crate::error::{ApiRejection, Code};

/// Directories that their owner may not use, whose modes are set last.
const MAX_CLOSED_DIRECTORIES: usize = 10_000;
const BUFFER_BYTES: usize = 256 << 10;
const OWNER_BITS: u32 = 0o700;

/// How an archive is unpacked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UnpackOptions {
    /// Makes the directory, and those on the way.
    pub parents: bool,
    /// Makes links that lead out of the directory; they are followed only within the workspace.
    pub keeps_links: bool,
    /// Leaves out devices and FIFOs, which are refused otherwise.
    pub skips_special: bool,
}

/// What an archive had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnpackedCounts {
    pub members: u64,
    /// Of these devices and FIFOs, which are not made.
    pub left_out: u64,
}

/// An archive that is to be unpacked.
#[derive(Debug)]
pub(super) struct Archive {
    pub file: OwnedFd,
    /// Holds the sandbox that the file is in.
    _actor: FileActor,
}

impl FileTree {
    /// Makes a file without a name for an archive that is to be unpacked into this directory; fails
    /// where that is none.
    pub(super) fn begin_unpack(
        &self,
        file_path: &FilePath,
        options: UnpackOptions,
    ) -> Result<Archive, ApiRejection> {
        match self.open_goal(file_path) {
            Err(missing) if missing.code == Code::FileNotFound && options.parents => {}
            opened => drop(opened?),
        }
        let failed = |error| path_rejection(file_path.path(), error);
        let file = match self.root().view {
            PathView::Below(_) => unnamed_file(self.root().directory).map_err(failed)?,
            // Its user may not write to the root directory.
            PathView::Whole => {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                let directory = paths::open(self.root(), Path::new("/tmp"), flags, Mode::empty())?;
                unnamed_file(directory.as_fd()).map_err(failed)?
            }
        };
        Ok(Archive { file, _actor: self.actor().clone() })
    }

    fn open_goal(&self, file_path: &FilePath) -> Result<OwnedFd, ApiRejection> {
        paths::open(self.root(), file_path.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
    }

    /// Unpacks an archive. What it has replaces what is there, but no directory.
    ///
    /// # Errors
    /// Before anything is changed where a member cannot be unpacked by its name or type. Later
    /// errors, such as of a full disk, contain how many members were unpacked (`unpacked`).
    pub(super) fn unpack(
        &self,
        file_path: &FilePath,
        archive: &Archive,
        options: UnpackOptions,
    ) -> Result<UnpackedCounts, ApiRejection> {
        self.unpack_file(file_path, &archive.file, options)
    }

    /// As [`FileTree::unpack`], an archive that holds no sandbox.
    pub(super) fn unpack_file(
        &self,
        file_path: &FilePath,
        archive: &OwnedFd,
        options: UnpackOptions,
    ) -> Result<UnpackedCounts, ApiRejection> {
        let check = |member: &Member| match &member.content {
            MemberContent::Symlink(target) if !options.keeps_links => {
                let below = |target: &Path| {
                    let below = self.root().below(target)?;
                    if file_path.is_root() && !below.is_absolute() {
                        Some(below)
                    } else {
                        below.strip_prefix(file_path.path()).ok().map(Path::to_owned)
                    }
                };
                if is_inside(&member.path, target, below) { Ok(()) } else { Err(leads_out(member, target)) }
            }
            MemberContent::Special if !options.skips_special => Err(members::special(member)),
            _ => Ok(()),
        };
        members::read(archive, &mut |member, _| check(member))?;
        if options.parents {
            self.make_directory(file_path, true)?;
        }
        let mut unpacking = ArchiveUnpacker {
            goal: self.open_goal(file_path)?,
            actor: self.actor(),
            parent: None,
            closed: Vec::new(),
        };
        let (mut unpacked, mut left_out) = (0u64, 0u64);
        let done = members::read(archive, &mut |member, content| {
            check(member)?;
            unpacking.make(member, content)?;
            unpacked += 1;
            left_out += u64::from(matches!(member.content, MemberContent::Special));
            Ok(())
        });
        let done = done.and_then(|members| {
            unpacking.close_directories()?;
            Ok(UnpackedCounts { members, left_out })
        });
        done.map_err(|failed| {
            let message =
                format!("{}; {unpacked} members of the archive were unpacked before", failed.message);
            ApiRejection { message, ..failed }.with("unpacked", unpacked)
        })
    }
}

/// A file that nothing else can open.
pub(crate) fn unnamed_file(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
    match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        // Not every file system has them.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let name = aside_name();
            let file =
                openat(directory, &name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
            unlinkat(directory, &name, AtFlags::empty())?;
            Ok(file)
        }
        opened => opened,
    }
}

/// An archive that is being unpacked.
struct ArchiveUnpacker<'a> {
    goal: OwnedFd,
    actor: &'a FileActor,
    /// The directory of the last member.
    parent: Option<(PathBuf, Rc<OwnedFd>)>,
    /// Directories whose modes would keep out what comes later.
    closed: Vec<(PathBuf, u32)>,
}

impl ArchiveUnpacker<'_> {
    fn make(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), ApiRejection> {
        let failed = |error| creation_rejection(&member.path, error);
        // Paths of members have a name at least.
        let name = PathBuf::from(member.path.file_name().unwrap_or_default());
        let parent = self.parent_of(&member.path).map_err(failed)?;
        let parent = parent.as_fd();
        match &member.content {
            MemberContent::Special => {}
            MemberContent::Directory => {
                let directory = make_directory(parent, &name, &member.path)?;
                if member.mode & OWNER_BITS == OWNER_BITS {
                    fchmod(&directory, Mode::from_raw_mode(member.mode)).map_err(failed)?;
                } else if self.closed.len() < MAX_CLOSED_DIRECTORIES {
                    self.closed.push((member.path.clone(), member.mode));
                } else {
                    let message = format!(
                        "the archive has more than {MAX_CLOSED_DIRECTORIES} directories that their owner may not use"
                    );
                    return Err(ApiRejection::new(Code::FileTooLarge, message));
                }
            }
            MemberContent::File { size } => {
                let directory = fcntl_dupfd_cloexec(parent, 0).map_err(failed)?;
                let path = member.path.clone();
                let pending = PendingFile::begin(directory, name, path, member.mode, self.actor)?;
                write_content(&pending, content, *size)?;
                let modified = i64::try_from(member.modified_at).unwrap_or(i64::MAX);
                let time = Timespec { tv_sec: modified, tv_nsec: 0 };
                // A time that the file system does not have is left out.
                let _ = futimens(&pending.file, &Timestamps { last_access: time, last_modification: time });
                pending.finish()?;
            }
            MemberContent::Symlink(target) => {
                replace(parent, &name, |at| symlinkat(target, parent, at)).map_err(failed)?;
            }
            MemberContent::HardLink(target) => {
                let source = paths::open_plain(
                    self.goal.as_fd(),
                    parent_path(target),
                    OFlags::PATH | OFlags::DIRECTORY,
                );
                let source = source.map_err(|error| creation_rejection(target, error))?;
                let source_name = Path::new(target.file_name().unwrap_or_default());
                let status = statat(&source, source_name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|error| creation_rejection(target, error))?;
                if EntryKind::of(&status) != EntryKind::File {
                    return Err(wrong_type(target, "is not a file, and the archive has a hard link to it"));
                }
                replace(parent, &name, |at| linkat(&source, source_name, parent, at, AtFlags::empty()))
                    .map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The directory of a path, made where it is missing.
    fn parent_of(&mut self, path: &Path) -> Result<Rc<OwnedFd>, Errno> {
        let path = parent_path(path);
        if let Some((known, directory)) = &self.parent
            && known == path
        {
            return Ok(directory.clone());
        }
        let directory = Rc::new(self.directory(path)?);
        self.parent = Some((path.to_owned(), directory.clone()));
        Ok(directory)
    }

    fn directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match paths::open_plain(self.goal.as_fd(), path, flags) {
            Err(Errno::NOENT) => {}
            opened => return opened,
        }
        let mut directory = paths::open_plain(self.goal.as_fd(), Path::new("."), flags)?;
        for name in path.components() {
            let name = Path::new(name.as_os_str());
            match mkdirat(&directory, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            directory = paths::open_plain(directory.as_fd(), name, flags)?;
        }
        Ok(directory)
    }

    /// Sets the modes that were left, the innermost first.
    fn close_directories(&mut self) -> Result<(), ApiRejection> {
        for (path, mode) in self.closed.drain(..).rev() {
            let close = || {
                let directory =
                    paths::open_plain(self.goal.as_fd(), &path, OFlags::RDONLY | OFlags::DIRECTORY)?;
                fchmod(&directory, Mode::from_raw_mode(mode))
            };
            close().map_err(|error| creation_rejection(&path, error))?;
        }
        Ok(())
    }
}

fn parent_path(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn creation_rejection(path: &Path, error: Errno) -> ApiRejection {
    match error {
        Errno::LOOP => wrong_type(path, "leads over a link, which members of an archive may not"),
        error => path_rejection(path, error),
    }
}

/// A directory of the archive, which may be there.
fn make_directory(parent: BorrowedFd<'_>, name: &Path, path: &Path) -> Result<OwnedFd, ApiRejection> {
    match mkdirat(parent, name, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(creation_rejection(path, error)),
    }
    // By its descriptor: a name may be another directory's by now.
    let opened = paths::open_plain(parent, name, OFlags::RDONLY | OFlags::DIRECTORY);
    opened.map_err(|error| match error {
        Errno::NOTDIR | Errno::LOOP => wrong_type(path, "is there, and is not a directory"),
        error => creation_rejection(path, error),
    })
}

/// Makes something under a name, in the place of a file or link that has it.
fn replace(
    parent: BorrowedFd<'_>,
    name: &Path,
    make: impl Fn(&Path) -> Result<(), Errno>,
) -> Result<(), Errno> {
    match make(name) {
        Err(Errno::EXIST) => {}
        made => return made,
    }
    if is_mount_point(parent, name) {
        return Err(Errno::BUSY);
    }
    let aside = aside_name();
    make(&aside)?;
    let renamed = renameat(parent, &aside, parent, name);
    // Between two names of one file a rename changes nothing.
    let _ = unlinkat(parent, &aside, AtFlags::empty());
    renamed
}

fn write_content(pending: &PendingFile, content: &mut dyn Read, size: u64) -> Result<(), ApiRejection> {
    let mut buffer = vec![0; BUFFER_BYTES.min(usize::try_from(size).unwrap_or(BUFFER_BYTES))];
    let mut left = size;
    while left > 0 {
        let length = content.read(&mut buffer).map_err(|error| broken(&error.to_string()))?;
        if length == 0 {
            return Err(broken("it ends in the middle of a member"));
        }
        write_all(pending.file.as_fd(), &buffer[..length])
            .map_err(|error| path_rejection(pending.path(), error))?;
        left = left.saturating_sub(length as u64);
    }
    Ok(())
}
