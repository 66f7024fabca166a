//! A directory as a tar archive that is written while it is read. Files, directories and links are
//! in it; what is neither is left out.
//!
//! A thread with the rights of the files' owner walks the directory, and waits for the client
//! between pieces; it takes none of the threads that other requests wait for. What is too large or
//! cannot be read is found before the first byte is sent; what changes so that the archive would be
//! wrong breaks it off.

use std::ffi::CStr;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http_body_util::StreamBody;
use hyper::body::Frame;
use rustix::fs::{Access, AtFlags, Dir, Mode, OFlags, Stat, accessat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};
use tokio::sync::{mpsc, oneshot};

use super::entry::EntryKind;
use super::listing::{MAX_LISTING_DEPTH, enter};
use super::members::MAX_MEMBERS;
use super::paths::{self, FilePath, path_rejection, shown};
use super::source::FileSource;
use super::thread::act_apart;
use super::tree::FileTree;
use crate::error::{ApiRejection, Code};
use crate::quota::Shares;

/// Bytes of an archive, sent or received.
pub(crate) const MAX_ARCHIVE_BYTES: u64 = 4 << 30;
/// Archives that are sent or received at a time.
pub(crate) static ARCHIVES: Shares = Shares::of("archives under way", 16);
/// Bytes of a piece, and pieces that wait for the client.
const PIECE_BYTES: usize = 64 << 10;
const MAX_PIECES: usize = 4;
const BLOCK_BYTES: u64 = 512;
/// What a header can have of a name.
const MAX_SHORT_NAME_BYTES: usize = 99;

/// Answers a directory as an archive.
///
/// # Errors
/// When it has more than [`MAX_MEMBERS`] members or [`MAX_ARCHIVE_BYTES`], is more than
/// [`MAX_LISTING_DEPTH`] deep, or has something that its owner may not read.
pub(super) async fn respond(files: &dyn FileSource, file_path: FilePath) -> Result<Response, ApiRejection> {
    let share = ARCHIVES.take(files.owner())?;
    let (pieces, receiver) = channel();
    let (begin, begun) = oneshot::channel();
    act_apart(files, move |tree| {
        let _share = share;
        // The client may have left.
        match measured(tree, &file_path) {
            Ok(directory) => {
                if begin.send(Ok(())).is_ok() {
                    write(directory, pieces);
                }
            }
            Err(rejection) => drop(begin.send(Err(rejection))),
        }
    })?;
    begun.await.unwrap_or_else(|_| Err(ApiRejection::new(Code::Internal, "the files could not be used")))?;
    Ok(archive_response(receiver))
}

/// Pieces of an archive on their way to a client.
pub(crate) type Pieces = mpsc::Receiver<io::Result<Bytes>>;

/// A channel for the pieces of an archive.
pub(crate) fn channel() -> (mpsc::Sender<io::Result<Bytes>>, Pieces) {
    mpsc::channel(MAX_PIECES)
}

/// The answer that has the pieces of an archive.
pub(crate) fn archive_response(receiver: Pieces) -> Response {
    let pieces = unfold(Some(receiver), |receiver: Option<Pieces>| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Ok(end)) if end.is_empty() => None,
            Some(Ok(piece)) => Some((Ok(Frame::data(piece)), Some(receiver))),
            Some(Err(error)) => Some((Err(error), None)),
            // Its thread has ended in the middle.
            None => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
        }
    });
    let mut response = Body::new(StreamBody::new(pieces)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Opens a directory, once its archive is known to fit.
fn measured(tree: &FileTree, file_path: &FilePath) -> Result<OwnedFd, ApiRejection> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let open = || paths::open(tree.root(), file_path.path(), flags, Mode::empty());
    let mut measure = ArchiveSize { members: 0, bytes: 2 * BLOCK_BYTES };
    measure.directory(open()?, file_path.path(), 1)?;
    open()
}

/// What an archive will have.
struct ArchiveSize {
    members: u64,
    bytes: u64,
}

impl ArchiveSize {
    fn directory(&mut self, directory: OwnedFd, path: &Path, depth: usize) -> Result<(), ApiRejection> {
        let failed = |error| path_rejection(path, error);
        let mut entries = Dir::new(directory).map_err(failed)?;
        while let Some(entry) = entries.read() {
            let entry = entry.map_err(failed)?;
            let (name, directory) = (entry.file_name(), entries.fd().map_err(failed)?);
            let Some(status) = packed(directory, name).map_err(failed)? else { continue };
            let path = path.join(as_path(name));
            self.count(&path, &status)?;
            match EntryKind::of(&status) {
                EntryKind::File => match accessat(directory, name, Access::READ_OK, AtFlags::EACCESS) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(path_rejection(&path, error)),
                },
                EntryKind::Directory => {
                    let child = match enter(directory, name) {
                        // It is another thing by now.
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                        child => child.map_err(|error| path_rejection(&path, error))?,
                    };
                    if depth == MAX_LISTING_DEPTH {
                        let message = format!(
                            "`{}` is more than {MAX_LISTING_DEPTH} directories deep; take a part of them",
                            shown(&path.to_string_lossy())
                        );
                        return Err(ApiRejection::new(Code::FileTooLarge, message));
                    }
                    self.directory(child, &path, depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, path: &Path, status: &Stat) -> Result<(), ApiRejection> {
        let is_long = path.as_os_str().len() > MAX_SHORT_NAME_BYTES;
        let long = if is_long { BLOCK_BYTES + rounded(path.as_os_str().len() as u64 + 1) } else { 0 };
        self.members += 1;
        self.bytes = self.bytes.saturating_add(BLOCK_BYTES + long + rounded(content_bytes(status)));
        if self.members > MAX_MEMBERS || self.bytes > MAX_ARCHIVE_BYTES {
            let message = format!(
                "the directory has more than an archive may have, {MAX_MEMBERS} members and {MAX_ARCHIVE_BYTES} bytes; \
                 take a part of it"
            );
            let rejection = ApiRejection::new(Code::FileTooLarge, message);
            return Err(rejection.with("max_members", MAX_MEMBERS).with("most_bytes", MAX_ARCHIVE_BYTES));
        }
        Ok(())
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// Bytes after the header.
pub(crate) fn content_bytes(status: &Stat) -> u64 {
    match EntryKind::of(status) {
        EntryKind::File => u64::try_from(status.st_size).unwrap_or(0),
        _ => 0,
    }
}

fn as_path(name: &CStr) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

/// What is known of a name that belongs into an archive; `None` for every other.
fn packed(directory: BorrowedFd<'_>, name: &CStr) -> Result<Option<Stat>, Errno> {
    if name == c"." || name == c".." {
        return Ok(None);
    }
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => {
            let is_packed =
                matches!(EntryKind::of(&status), EntryKind::File | EntryKind::Directory | EntryKind::Symlink);
            Ok(is_packed.then_some(status))
        }
        // It has been removed since.
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a directory to a client.
fn write(directory: OwnedFd, pieces: mpsc::Sender<io::Result<Bytes>>) {
    write_archive(pieces, |archive| {
        let mut packing = ArchivePacker { archive, members: 0, left: MAX_ARCHIVE_BYTES };
        packing.directory(directory, Path::new(""), 1)
    });
}

/// An archive that a client gets while it is written.
pub(crate) type SentArchive = Builder<BufWriter<PieceWriter>>;

/// Writes an archive to a client; it is whole if `fill` succeeds.
pub(crate) fn write_archive(
    pieces: mpsc::Sender<io::Result<Bytes>>,
    fill: impl FnOnce(&mut SentArchive) -> io::Result<()>,
) {
    let writer = PieceWriter { pieces, has_ended: false };
    let mut archive = Builder::new(BufWriter::with_capacity(PIECE_BYTES, writer));
    let written = fill(&mut archive);
    let finished = written.and_then(|()| archive.finish()).and_then(|()| archive.get_mut().flush());
    archive.get_mut().get_mut().end(finished);
}

/// Hands pieces to a client, and waits for it.
#[derive(Debug)]
pub(crate) struct PieceWriter {
    /// An empty piece is the end.
    pieces: mpsc::Sender<io::Result<Bytes>>,
    has_ended: bool,
}

impl PieceWriter {
    /// Ends the answer: without an error it is whole. An archive that is dropped before would write
    /// its own end.
    fn end(&mut self, finished: io::Result<()>) {
        self.has_ended = true;
        // The client may have left.
        let _ = self.pieces.blocking_send(finished.map(|()| Bytes::new()));
    }
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let piece = Ok(Bytes::copy_from_slice(bytes));
        if self.has_ended || self.pieces.blocking_send(piece).is_err() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ArchivePacker<'a> {
    archive: &'a mut SentArchive,
    members: u64,
    /// Bytes of files that still fit.
    left: u64,
}

impl ArchivePacker<'_> {
    fn directory(&mut self, directory: OwnedFd, prefix: &Path, depth: usize) -> io::Result<()> {
        let mut entries = Dir::new(directory)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let (name, directory) = (entry.file_name(), entries.fd()?);
            let Some(status) = packed(directory, name)? else { continue };
            self.members += 1;
            if self.members > MAX_MEMBERS || depth > MAX_LISTING_DEPTH {
                return Err(io::Error::other("the directory has grown past what an archive may have"));
            }
            let path = prefix.join(as_path(name));
            match EntryKind::of(&status) {
                EntryKind::File => self.file(directory, name, &path)?,
                EntryKind::Directory => {
                    let child = match enter(directory, name) {
                        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                        child => child?,
                    };
                    let mut header = header_of(EntryType::Directory, &status);
                    self.archive.append_data(&mut header, path.join(""), io::empty())?;
                    self.directory(child, &path, depth + 1)?;
                }
                _ => {
                    let Ok(target) = readlinkat(directory, name, Vec::new()) else { continue };
                    let mut header = header_of(EntryType::Symlink, &status);
                    self.archive.append_link(&mut header, &path, as_path(&target))?;
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, directory: BorrowedFd<'_>, name: &CStr, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat(directory, name, flags, Mode::empty()) {
            // It is another thing by now.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(()),
            file => file?,
        };
        let status = fstat(&file)?;
        if EntryKind::of(&status) != EntryKind::File {
            return Ok(());
        }
        let size = content_bytes(&status);
        self.left = self.left.checked_sub(size).ok_or_else(|| io::Error::other("the files have grown"))?;
        append_file(self.archive, path, header_of(EntryType::Regular, &status), file, size)
    }
}

/// Adds a regular file of this size.
pub(crate) fn append_file(
    archive: &mut SentArchive,
    path: &Path,
    mut header: Header,
    file: OwnedFd,
    size: u64,
) -> io::Result<()> {
    header.set_size(size);
    archive.append_data(&mut header, path, WholeFile { file, at: 0, size })
}

pub(crate) fn header_of(kind: EntryType, status: &Stat) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(status.st_mode & 0o777);
    header.set_mtime(u64::try_from(status.st_mtime).unwrap_or(0));
    header.set_size(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// A file as long as it was when it was opened; an error where it has become shorter.
struct WholeFile {
    file: OwnedFd,
    at: u64,
    size: u64,
}

impl Read for WholeFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.size - self.at).unwrap_or(buffer.len()).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let file = self.file.as_fd();
        let length = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut buffer[..most], self.at))?;
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file was made shorter"));
        }
        self.at += length as u64;
        Ok(length)
    }
}
