//! `diff` and `export` of a sandbox: what has changed in it against its template, as a list or as a
//! tar archive, or all of its files.
//!
//! The engine reads the files, with the rights of their owner; a name that untrusted code has
//! chosen is only ever a name here.

use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::get;
use rustix::fs::FileType;
use rustix::io::Errno;
use sandtimer::engine::{Change, ChangedFile, Reading, Sandbox, SandboxError, workspace_owner};
use serde_json::{Value, json};
use tar::{EntryType, Header};
use tokio::sync::oneshot;

use crate::auth::OwnerId;
use crate::body::{self, Id, Parameters, refused};
use crate::contexts::ContextService;
use crate::error::{ApiRejection, Code};
use crate::files::pack::{
    SentArchive, append_file, archive_response, channel, content_bytes, header_of, write_archive,
};
use crate::files::{ARCHIVES, MAX_ARCHIVE_BYTES, MAX_MEMBERS};

/// The default and the maximum number of changes in an answer.
const DEFAULT_LISTED: u64 = 1_000;
const MAX_LISTED: u64 = 100_000;
/// The id of a sandbox's user, inside.
const USER_ID: u64 = 1_000;
/// Permission bits, and the sticky bit of directories such as /tmp.
const MODE_BITS: u32 = 0o1777;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new().route("/v1/sandboxes/{id}/diff", get(diff)).route("/v1/sandboxes/{id}/export", get(export))
}

async fn diff(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let limit = fields.number("limit")?.unwrap_or(DEFAULT_LISTED);
    if !(1..=MAX_LISTED).contains(&limit) {
        return Err(refused("limit", &limit.into(), &format!("a number from 1 to {MAX_LISTED}")));
    }
    fields.finish()?;
    let sandbox = contexts.runs.sandboxes.get(&id, &owner)?;
    let share = ARCHIVES.take(&owner)?;
    let listing = move || {
        // The client may leave before this ends.
        let _share = share;
        list(&sandbox, limit as usize)
    };
    let listed = tokio::task::spawn_blocking(listing).await;
    let listed = listed.map_err(|_| ApiRejection::new(Code::Internal, "the sandbox could not be read"))??;
    Ok(body::json(&listed))
}

/// What has changed, by path.
fn list(sandbox: &Sandbox, limit: usize) -> Result<Value, ApiRejection> {
    let (mut changes, mut is_cut) = (Vec::new(), false);
    let read = sandbox.read_files(Reading::Changes, &mut |file| {
        if changes.len() == limit {
            is_cut = true;
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        changes.push((file.path.to_owned(), change_view(file)));
        Ok(())
    });
    if !is_cut {
        read.map_err(export_rejection)?;
    }
    changes.sort_by(|one, other| one.0.cmp(&other.0));
    let changes: Vec<Value> = changes.into_iter().map(|(_, change)| change).collect();
    Ok(json!({"changes": changes, "truncated": is_cut}))
}

fn change_view(file: &ChangedFile<'_>) -> Value {
    let kind = match file.kind() {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "link",
        _ => "other",
    };
    let change = match file.change {
        Change::Added => "added",
        Change::Changed => "changed",
        Change::Deleted => "deleted",
    };
    let size = (kind == "file" && change != "deleted").then(|| content_bytes(file.status));
    json!({"path": format!("/{}", file.path.to_string_lossy()), "change": change, "kind": kind, "size_bytes": size})
}

async fn export(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let reading = match fields.enumeration("what", &["all", "changes"])? {
        Some("changes") => Reading::Changes,
        _ => Reading::Whole,
    };
    fields.finish()?;
    let sandbox = contexts.runs.sandboxes.get(&id, &owner)?;
    let share = ARCHIVES.take(&owner)?;
    let (pieces, receiver) = channel();
    let (begin, begun) = oneshot::channel();
    let work = move || {
        let _share = share;
        // What cannot be exported is found before the first byte. The client may have left.
        match measure(&sandbox, reading) {
            Ok(()) => {
                if begin.send(Ok(())).is_ok() {
                    write_archive(pieces, |archive| {
                        let mut left = MAX_ARCHIVE_BYTES;
                        let written =
                            sandbox.read_files(reading, &mut |file| append(archive, file, &mut left));
                        written.map_err(io::Error::other)
                    });
                }
            }
            Err(rejection) => drop(begin.send(Err(rejection))),
        }
    };
    let started = std::thread::Builder::new().name("st-export".to_owned()).spawn(work);
    started.map_err(|error| ApiRejection::new(Code::System, format!("cannot start a thread: {error}")))?;
    begun
        .await
        .unwrap_or_else(|_| Err(ApiRejection::new(Code::Internal, "the sandbox could not be read")))?;
    Ok(archive_response(receiver))
}

/// Checks that all files can be read and fit in an archive.
fn measure(sandbox: &Sandbox, reading: Reading) -> Result<(), ApiRejection> {
    let (mut members, mut bytes, mut problem) = (0, 0_u64, None);
    let read = sandbox.read_files(reading, &mut |file| {
        if file.change == Change::Deleted {
            return Ok(());
        }
        members += 1;
        bytes = bytes.saturating_add(1_024 + content_bytes(file.status));
        if members > MAX_MEMBERS || bytes > MAX_ARCHIVE_BYTES {
            let message = format!(
                "the sandbox has more than an archive may have, {MAX_MEMBERS} members and {MAX_ARCHIVE_BYTES} bytes; \
                 make an archive of a part of it by a run"
            );
            problem = Some(ApiRejection::new(Code::FileTooLarge, message));
        } else if file.kind() == FileType::RegularFile
            && let Err(error) = file.open()
            && error.kind() == io::ErrorKind::PermissionDenied
            && !file.is_operators
        {
            let path = body_path(file.path);
            let message = format!("`{path}` may not be read by its owner; change its mode (`chmod u+r`) by a run");
            problem = Some(ApiRejection::new(Code::FilePermission, message).with("path", path));
        }
        if problem.is_some() { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
    });
    match problem {
        Some(problem) => Err(problem),
        None => read.map_err(export_rejection),
    }
}

/// What was not read is a directory that its owner has shut, or the disk's failure.
fn export_rejection(error: sandtimer::Error) -> ApiRejection {
    match &error {
        sandtimer::Error::Sandbox(SandboxError::Storage { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            ApiRejection::new(
                Code::FilePermission,
                format!("a directory of the sandbox may not be read by its owner: {source}"),
            )
        }
        _ => error.into(),
    }
}

fn body_path(path: &Path) -> String {
    format!("/{}", path.to_string_lossy()).chars().take(200).collect()
}

fn append(archive: &mut SentArchive, file: &ChangedFile<'_>, left: &mut u64) -> io::Result<()> {
    if file.change == Change::Deleted {
        return Ok(());
    }
    match file.kind() {
        FileType::Directory => {
            let mut header = header(EntryType::Directory, file);
            archive.append_data(&mut header, file.path.join(""), io::empty())
        }
        FileType::Symlink => {
            let Some(target) = there(file, file.target())? else { return Ok(()) };
            let mut header = header(EntryType::Symlink, file);
            archive.append_link(&mut header, file.path, target)
        }
        FileType::RegularFile => {
            let Some(opened) = there(file, file.open())? else { return Ok(()) };
            let size = content_bytes(&rustix::fs::fstat(&opened)?);
            *left = left.checked_sub(size).ok_or_else(|| io::Error::other("the files have grown"))?;
            append_file(archive, file.path, header(EntryType::Regular, file), opened, size)
        }
        // FIFOs, sockets and devices have no content to keep.
        _ => Ok(()),
    }
}

/// Nothing for what has been removed since, or is another thing by now, or what the operator keeps
/// from others.
fn there<T>(file: &ChangedFile<'_>, opened: io::Result<T>) -> io::Result<Option<T>> {
    let error = match opened {
        Ok(opened) => return Ok(Some(opened)),
        Err(error) => error,
    };
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO | Errno::INVAL) => Ok(None),
        Some(Errno::ACCESS) if file.is_operators => Ok(None),
        _ => Err(error),
    }
}

/// With the owner that the file has inside: the sandbox's user, or root for all others.
fn header(kind: EntryType, file: &ChangedFile<'_>) -> Header {
    let mut header = header_of(kind, file.status);
    header.set_mode(file.status.st_mode & MODE_BITS);
    let owner = workspace_owner().unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let id = if file.status.st_uid == owner { USER_ID } else { 0 };
    header.set_uid(id);
    header.set_gid(id);
    header
}
