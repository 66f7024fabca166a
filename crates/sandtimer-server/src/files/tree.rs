//! What can be done with the files of a workspace or a sandbox: plain functions, each of which
//! leaves it as it was or does all of it.
//!
//! They run on a thread of `thread`, with the rights of the files' owner. Every path is opened
//! beneath the workspace; every file is inspected once it is open, so that nothing is a FIFO by the
//! time it is read. Set-id bits are never set.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, Stat, StatxAttributes, StatxFlags, fchmod, fstat, ftruncate, mkdirat,
    openat, readlinkat, renameat_with, statat, statx, unlinkat,
};
use rustix::io::{Errno, pread, retry_on_intr, write};
use sandtimer::engine::remove;

use super::actor::FileActor;
use super::entry::{EntryKind, FileEntry};
use super::listing::TreeSize;
use super::paths::{self, FilePath, PathView, Root, path_rejection, wrong_type};
use super::{actor, listing};
use crate::error::{ApiRejection, Code};

/// What files and directories are made with.
const FILE_MODE: u32 = 0o644;
pub(super) const DIRECTORY_MODE: u32 = 0o755;

/// The files of a workspace or a sandbox, for the thread that may use them.
#[derive(Debug)]
pub(crate) struct FileTree {
    root: OwnedFd,
    view: PathView,
    actor: FileActor,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriteOptions {
    /// Makes the directories on the way.
    pub parents: bool,
    /// Refuses to replace what is there.
    pub create_only: bool,
    /// The permission bits; those of the file that is replaced unless given, or 0644.
    pub mode: Option<u32>,
}

impl FileTree {
    /// The files below a directory, which jobs see at these paths.
    pub(super) fn new(root: OwnedFd, mount_paths: Vec<PathBuf>, actor: FileActor) -> Self {
        FileTree { root, view: PathView::Below(mount_paths), actor }
    }

    /// All files of a sandbox, below its root directory.
    pub(super) fn whole(root: OwnedFd, actor: FileActor) -> Self {
        FileTree { root, view: PathView::Whole, actor }
    }

    pub(super) fn root(&self) -> Root<'_> {
        Root { directory: self.root.as_fd(), view: &self.view }
    }

    pub(super) fn actor(&self) -> &FileActor {
        &self.actor
    }

    /// Lets its sandbox be deleted before it is dropped.
    pub(super) fn let_go(&mut self) {
        self.actor.held = None;
    }

    /// Opens a file to read it, and returns its length.
    pub fn open_to_read(&self, file_path: &FilePath) -> Result<(OwnedFd, u64), ApiRejection> {
        let opened = paths::open(self.root(), file_path.path(), OFlags::RDONLY, Mode::empty())?;
        let status = regular(&opened, file_path.path())?;
        Ok((opened, u64::try_from(status.st_size).unwrap_or(0)))
    }

    /// All of a file, which may have at most `most` bytes.
    pub fn read(&self, file_path: &FilePath, most: u64) -> Result<Vec<u8>, ApiRejection> {
        let (file, size) = self.open_to_read(file_path)?;
        if size > most {
            let message =
                format!("`{}` has {size} bytes; at most {most} are read so", paths::shown(&file_path.text()));
            return Err(ApiRejection::new(Code::FileTooLarge, message));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut filled = 0;
        while filled < bytes.len() {
            match retry_on_intr(|| pread(&file, &mut bytes[filled..], filled as u64)) {
                Ok(0) => break,
                Ok(length) => filled += length,
                Err(error) => return Err(path_rejection(file_path.path(), error)),
            }
        }
        // The file was truncated during the read.
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Replaces a file, or makes it, at once. True where it is new.
    pub fn write(
        &self,
        file_path: &FilePath,
        bytes: &[u8],
        options: WriteOptions,
    ) -> Result<bool, ApiRejection> {
        let mut file = self.begin_write(file_path, options)?;
        if let Err(error) = write_all(file.file.as_fd(), bytes) {
            file.discard();
            return Err(path_rejection(file_path.path(), error));
        }
        file.finish()
    }

    /// A file that is to take this one's place, once it is written.
    pub fn begin_write(
        &self,
        file_path: &FilePath,
        options: WriteOptions,
    ) -> Result<PendingFile, ApiRejection> {
        if options.parents {
            self.make_parents(file_path)?;
        }
        let (directory, name) = paths::holder(self.root(), file_path, true)?;
        self.check_changeable(&directory, &name, file_path)?;
        let replaced = replaceable(&directory, &name, file_path, options.create_only)?;
        let mode = options.mode.or(replaced.map(|status| status.st_mode)).unwrap_or(FILE_MODE);
        let mut pending =
            PendingFile::begin(directory, name, file_path.path().to_owned(), mode, &self.actor)?;
        pending.create_only = options.create_only;
        Ok(pending)
    }

    /// Adds to the end of a file; makes it if `create` is set.
    pub fn append(&self, file_path: &FilePath, bytes: &[u8], create: bool) -> Result<u64, ApiRejection> {
        let flags = OFlags::WRONLY | OFlags::APPEND | if create { OFlags::CREATE } else { OFlags::empty() };
        // A mode is only taken with a file that may be made.
        let mode = if create { Mode::from_raw_mode(FILE_MODE) } else { Mode::empty() };
        let file = paths::open(self.root(), file_path.path(), flags, mode)?;
        let size = |status: Stat| u64::try_from(status.st_size).unwrap_or(0);
        let before = size(regular(&file, file_path.path())?);
        let mut left = bytes;
        let Err(error) = write_on(file.as_fd(), &mut left) else { return Ok(before + bytes.len() as u64) };
        let part = (bytes.len() - left.len()) as u64;
        // If another writer has appended after this part, the part has to stay.
        let is_last = fstat(&file).is_ok_and(|status| size(status) == before + part);
        let kept = if is_last && ftruncate(&file, before).is_ok() { 0 } else { part };
        let rejection = path_rejection(file_path.path(), error).with("appended_bytes", kept);
        let message = match kept {
            0 => format!("{}; nothing was appended", rejection.message),
            kept => format!("{}; its first {kept} bytes were appended", rejection.message),
        };
        Err(ApiRejection { message, ..rejection })
    }

    /// What is at a path. A link is not followed.
    pub fn stat(&self, file_path: &FilePath) -> Result<FileEntry, ApiRejection> {
        let opened =
            paths::open(self.root(), file_path.path(), OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
        let status = fstat(&opened).map_err(|error| path_rejection(file_path.path(), error))?;
        let target =
            (EntryKind::of(&status) == EntryKind::Symlink).then(|| readlinkat(&opened, "", Vec::new()).ok());
        let target = target.flatten().map(|target| target.to_string_lossy().into_owned());
        Ok(FileEntry::new(file_path.text(), &status, target))
    }

    pub fn exists(&self, file_path: &FilePath) -> Result<bool, ApiRejection> {
        match self.stat(file_path) {
            Ok(_) => Ok(true),
            Err(rejection) if rejection.code == Code::FileNotFound => Ok(false),
            Err(rejection) => Err(rejection),
        }
    }

    /// What is in a directory, in the order of names.
    pub fn list(
        &self,
        file_path: &FilePath,
        asked: &listing::ListingRequest,
    ) -> Result<listing::Listing, ApiRejection> {
        listing::list(self.root(), file_path, asked)
    }

    /// What all of it holds.
    pub fn size(&self) -> Result<TreeSize, ApiRejection> {
        listing::size(self.root())
    }

    /// Moves a file or a directory. If `overwrite` is set it replaces what is there.
    pub fn rename(&self, from: &FilePath, to: &FilePath, overwrite: bool) -> Result<(), ApiRejection> {
        self.rename_to(from, self, to, overwrite)
    }

    /// The same into another directory, on the same file system.
    pub fn rename_to(
        &self,
        from: &FilePath,
        other: &FileTree,
        to: &FilePath,
        overwrite: bool,
    ) -> Result<(), ApiRejection> {
        let (source, name) = paths::holder(self.root(), from, false)?;
        let (target, new_name) = paths::holder(other.root(), to, false)?;
        statat(&source, &name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| path_rejection(from.path(), error))?;
        self.check_changeable(&source, &name, from)?;
        other.check_changeable(&target, &new_name, to)?;
        let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        renameat_with(&source, &name, &target, &new_name, flags)
            .map_err(|error| path_rejection(to.path(), error))
    }

    /// Removes a file, a link or an empty directory; if `recursive` is set, also a directory with
    /// its contents.
    pub fn delete(&self, file_path: &FilePath, recursive: bool) -> Result<(), ApiRejection> {
        let (directory, name) = paths::holder(self.root(), file_path, false)?;
        self.check_changeable(&directory, &name, file_path)?;
        remove::remove(&directory, &name, recursive).map_err(|error| path_rejection(file_path.path(), error))
    }

    /// Fails for names that make up the root of a sandbox, which are not removed, moved or
    /// replaced.
    ///
    /// The root is mounted in another mount namespace than this process's, where the kernel does
    /// not protect mount points from this process: what is mounted on a name is unmounted with it.
    fn check_changeable(
        &self,
        directory: &OwnedFd,
        name: &Path,
        file_path: &FilePath,
    ) -> Result<(), ApiRejection> {
        let PathView::Whole = self.view else { return Ok(()) };
        if is_mount_point(directory, name) {
            return Err(mount_point(file_path.path()));
        }
        // If the sandbox's user has a uid of its own, modes forbid it already. The engine's own
        // user owns these directories, and in runs only Landlock protects them.
        if self.actor.owner.is_none() && self.is_part_of_root(directory) {
            return Err(path_rejection(file_path.path(), Errno::ACCESS));
        }
        Ok(())
    }

    /// Whether a directory is the root directory or `/dev`, where runs cannot write.
    fn is_part_of_root(&self, directory: &OwnedFd) -> bool {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let devices = paths::open(self.root(), Path::new("/dev"), flags, Mode::empty());
        let identity = |file: &OwnedFd| fstat(file).ok().map(|status| (status.st_dev, status.st_ino));
        let found = identity(directory);
        found.is_none()
            || found == identity(&self.root)
            || devices.is_ok_and(|devices| found == identity(&devices))
    }

    /// Removes everything.
    pub(super) fn empty(&self) -> Result<(), ApiRejection> {
        let root =
            paths::open(self.root(), Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        // Its owner may have shut itself out.
        let root = match root {
            Err(failed) if failed.code == Code::FilePermission => {
                remove::open_shut(self.root.as_fd(), Path::new("."))
            }
            Err(failed) => return Err(failed),
            Ok(root) => Ok(root),
        };
        root.and_then(|root| remove::empty(&root)).map_err(|error| path_rejection(Path::new("."), error))
    }

    /// Makes a directory; if `parents` is set also those above it, and then it may exist already.
    pub fn make_directory(&self, file_path: &FilePath, parents: bool) -> Result<(), ApiRejection> {
        if parents {
            self.make_parents(file_path)?;
        }
        if file_path.is_root() {
            return if parents { Ok(()) } else { Err(path_rejection(file_path.path(), Errno::EXIST)) };
        }
        let (directory, name) = paths::holder(self.root(), file_path, parents)?;
        match mkdirat(&directory, &name, Mode::from_raw_mode(DIRECTORY_MODE)) {
            Err(Errno::EXIST) if parents => {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                paths::open(self.root(), file_path.path(), flags, Mode::empty()).map(drop)
            }
            made => made.map_err(|error| path_rejection(file_path.path(), error)),
        }
    }

    fn make_parents(&self, file_path: &FilePath) -> Result<(), ApiRejection> {
        let Some(parent) = file_path.path().parent() else { return Ok(()) };
        let mut path = PathBuf::new();
        let mut directory =
            paths::open(self.root(), Path::new("."), OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        for name in parent.components() {
            path.push(name);
            if name == Component::RootDir {
                continue;
            }
            match mkdirat(&directory, name.as_os_str(), Mode::from_raw_mode(DIRECTORY_MODE)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(path_rejection(&path, error)),
            }
            directory = paths::open(self.root(), &path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        }
        Ok(())
    }
}

/// A file that is being written next to the one that it will replace.
#[derive(Debug)]
pub(crate) struct PendingFile {
    directory: OwnedFd,
    aside: PathBuf,
    name: PathBuf,
    path: PathBuf,
    pub file: OwnedFd,
    mode: u32,
    create_only: bool,
    actor: FileActor,
    /// The temporary file no longer exists.
    done: bool,
}

/// A name for something that is made next to what it replaces.
pub(super) fn aside_name() -> PathBuf {
    PathBuf::from(format!(".sandtimer-{}", crate::id::new_id()))
}

impl PendingFile {
    /// Makes a file next to the place of `name`, which it replaces in the end; errors name `path`.
    pub(super) fn begin(
        directory: OwnedFd,
        name: PathBuf,
        path: PathBuf,
        mode: u32,
        actor: &FileActor,
    ) -> Result<Self, ApiRejection> {
        let aside = aside_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(&directory, &aside, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
        let file = file.map_err(|error| path_rejection(&path, error))?;
        Ok(PendingFile {
            directory,
            aside,
            name,
            path,
            file,
            mode: mode & 0o777,
            create_only: false,
            actor: actor.clone(),
            done: false,
        })
    }

    /// What its errors name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it in its place. True where nothing was there.
    pub fn finish(mut self) -> Result<bool, ApiRejection> {
        let put = || {
            fchmod(&self.file, Mode::from_raw_mode(self.mode))?;
            let at = |flags| renameat_with(&self.directory, &self.aside, &self.directory, &self.name, flags);
            match at(RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) if !self.create_only => at(RenameFlags::empty()).map(|()| false),
                put => put.map(|()| true),
            }
        };
        // The members of an archive are not checked before.
        let put = match is_mount_point(&self.directory, &self.name) {
            true => Err(mount_point(&self.path)),
            false => put().map_err(|error| path_rejection(&self.path, error)),
        };
        match put {
            Ok(_) => self.done = true,
            Err(_) => self.discard(),
        }
        put
    }

    /// Leaves everything as it was.
    pub fn discard(&mut self) {
        self.done = true;
        remove_aside(&self.directory, &self.aside);
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.done
            && let Ok(directory) = self.directory.try_clone()
        {
            let aside = std::mem::take(&mut self.aside);
            // The thread that dropped it has other rights.
            actor::later(self.actor.clone(), directory, move |directory| remove_aside(&directory, &aside));
        }
    }
}

fn remove_aside(directory: &OwnedFd, aside: &Path) {
    // A failure means that the file was removed before.
    let _ = unlinkat(directory, aside, AtFlags::empty());
}

/// Whether something is mounted on a name of a directory. A link is not followed.
pub(super) fn is_mount_point(directory: impl AsFd, name: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(directory, name, flags, StatxFlags::empty())
        .is_ok_and(|status| status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn mount_point(path: &Path) -> ApiRejection {
    let path = paths::shown(&path.to_string_lossy());
    let message = format!("path `{path}` is a mount point, which cannot be removed, moved or replaced");
    ApiRejection::new(Code::PathOutside, message).with("key", "path")
}

/// What is to be replaced, if it may be.
fn replaceable(
    directory: &OwnedFd,
    name: &Path,
    file_path: &FilePath,
    create_only: bool,
) -> Result<Option<Stat>, ApiRejection> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) if create_only => Err(path_rejection(file_path.path(), Errno::EXIST)),
        Ok(status) => match EntryKind::of(&status) {
            EntryKind::File => Ok(Some(status)),
            other => Err(wrong_type(file_path.path(), &format!("is a {}, not a file", other.name()))),
        },
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(path_rejection(file_path.path(), error)),
    }
}

/// What is known of an open file, which has to be a regular one.
fn regular(file: &OwnedFd, path: &Path) -> Result<Stat, ApiRejection> {
    let status = fstat(file).map_err(|error| path_rejection(path, error))?;
    match EntryKind::of(&status) {
        EntryKind::File => Ok(status),
        other => Err(wrong_type(path, &format!("is a {}, not a file", other.name()))),
    }
}

pub(super) fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    write_on(file, &mut bytes)
}

/// As [`write_all`]; what is not written is left.
fn write_on(file: BorrowedFd<'_>, left: &mut &[u8]) -> rustix::io::Result<()> {
    while !left.is_empty() {
        let written = retry_on_intr(|| write(file, left))?;
        *left = &left[written..];
    }
    Ok(())
}
