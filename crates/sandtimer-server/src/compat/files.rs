//! Files of a sandbox, by the functions of `files`. A relative path begins where the session is, or
//! in /workspace.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sandtimer::time::instant;
use serde_json::{Value, json};

use super::answer::success;
use super::caller::{BodyFields, Caller, NO_SESSION};
use super::command::output_of;
use super::failure::ContainerFailure;
use super::file_frames::{FileFrames, mime_type};
use super::frames::respond;
use super::storage::{LocatedFile, WORKSPACE, WRITABLE_DIRECTORIES};
use crate::body::RequestFields;
use crate::contexts::ContextService;
use crate::error::{ApiRejection, Code};
use crate::files::{
    EntryKind, FileEntry, FilePath, FileSource, FileTree, ListingRequest, WriteOptions, act, act_on_two,
};

/// The largest file that is read at once.
const MAX_READ_BYTES: u64 = 32 << 20;
/// Entries of a listing, and of one read of the directory.
const MAX_LISTED: usize = 100_000;
const PAGE_ENTRIES: usize = 10_000;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/api/read", post(read))
        .route("/api/read/stream", post(read_stream))
        .route("/api/write", post(write))
        .route("/api/delete", post(delete))
        .route("/api/rename", post(rename))
        .route("/api/move", post(move_file))
        .route("/api/mkdir", post(make_directory))
        .route("/api/list-files", post(list))
        .route("/api/exists", post(exists))
}

/// Has a session write its directory, without a newline after it.
const DIRECTORY: &str = "\\builtin printf %s \"$PWD\"";

/// What a request is about.
struct FileTarget {
    /// As it was given.
    path: String,
    located: LocatedFile,
}

async fn target(
    service: &Arc<ContextService>,
    caller: &Caller,
    fields: &mut RequestFields,
    key: &'static str,
) -> Result<FileTarget, ContainerFailure> {
    let session = caller.session(fields)?;
    target_of(service, caller, fields, key, &session).await
}

/// The same for a session that is known.
async fn target_of(
    service: &Arc<ContextService>,
    caller: &Caller,
    fields: &mut RequestFields,
    key: &'static str,
    session: &str,
) -> Result<FileTarget, ContainerFailure> {
    let path = fields.string(key)?.filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| {
        ContainerFailure::invalid(key, "give a path, absolute or below the directory of the session")
    })?;
    let absolute = match path.starts_with('/') {
        true => path.clone(),
        false => format!("{}/{path}", directory_of(service, caller, session).await?),
    };
    let located = caller.sandbox.storage(service).await?.locate(&absolute);
    Ok(FileTarget { located: located.map_err(|rejection| path_failure(rejection, &path))?, path })
}

/// The same for one that is to be changed.
async fn target_to_change(
    service: &Arc<ContextService>,
    caller: &Caller,
    fields: &mut RequestFields,
    key: &'static str,
) -> Result<FileTarget, ContainerFailure> {
    let target = target(service, caller, fields, key).await?;
    check_writable(&target)?;
    Ok(target)
}

/// Checks that a path is where commands may write: without root this server's user owns /etc and
/// /root of a sandbox, which its commands see read-only.
fn check_writable(target: &FileTarget) -> Result<(), ContainerFailure> {
    target.located.files.check_writable()?;
    if target.located.is_below_writable() {
        return Ok(());
    }
    let message = format!(
        "path `{}` is read-only: the sandbox's user writes below {} alone",
        target.path,
        WRITABLE_DIRECTORIES.join(", ")
    );
    Err(path_failure(ApiRejection::new(Code::FilePermission, message), &target.path))
}

/// Where relative paths begin: in the directory of a session that is open.
async fn directory_of(
    service: &Arc<ContextService>,
    caller: &Caller,
    session: &str,
) -> Result<String, ContainerFailure> {
    let open = match session {
        NO_SESSION => None,
        session => caller.sandbox.open_session(service, session).await,
    };
    let Some(open) = open else { return Ok(WORKSPACE.to_owned()) };
    let directory = output_of(service, &open, DIRECTORY, &caller.connection).await?;
    directory.map_err(|note| {
        ContainerFailure::new(500, "FILESYSTEM_ERROR", format!("session '{session}': {note}"))
    })
}

/// Does something with one file, which may not be a directory.
async fn act_on_file<T: Send + 'static>(
    target: &FileTarget,
    work: impl FnOnce(&FileTree, &FilePath) -> Result<T, ApiRejection> + Send + 'static,
) -> Result<T, ContainerFailure> {
    let file_path = target.located.file_path.clone();
    let done = act(&target.located.files, move |tree| match tree.stat(&file_path) {
        Ok(entry) if entry.kind == EntryKind::Directory => Ok(None),
        _ => work(tree, &file_path).map(Some),
    });
    let done = done.await.map_err(|rejection| path_failure(rejection, &target.path))?;
    done.ok_or_else(|| {
        ContainerFailure::new(400, "IS_DIRECTORY", format!("{} is a directory", target.path))
            .with("path", target.path.as_str())
    })
}

fn path_failure(rejection: ApiRejection, path: &str) -> ContainerFailure {
    ContainerFailure::from(rejection).with("path", path)
}

/// A file's bytes as text where they are, or are to be, text; else as base64. Then the encoding,
/// and whether they are no text.
fn encoded(bytes: Vec<u8>, encoding: Option<&str>) -> (String, &'static str, bool) {
    let is_binary = is_binary(&bytes);
    let is_utf8 = match encoding {
        None => !is_binary,
        Some(encoding) => encoding != "base64",
    };
    if is_utf8 {
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        return (text, "utf-8", is_binary);
    }
    (STANDARD.encode(bytes), "base64", is_binary)
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes.contains(&0) || std::str::from_utf8(bytes).is_err()
}

/// `encoding`: `utf-8`, `utf8` or `base64`.
fn encoding(fields: &mut RequestFields) -> Result<Option<String>, ContainerFailure> {
    let given = fields.string("encoding")?;
    match given.as_deref() {
        None | Some("utf-8" | "utf8" | "base64") => Ok(given),
        Some(_) => Err(ContainerFailure::invalid("encoding", "it is none of utf-8, utf8, base64")),
    }
}

async fn read(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let encoding = encoding(&mut fields)?;
    let target = target(&service, &caller, &mut fields, "path").await?;
    let bytes = act_on_file(&target, |tree, file_path| tree.read(file_path, MAX_READ_BYTES)).await?;
    let size = bytes.len();
    let (content, encoding, is_binary) = encoded(bytes, encoding.as_deref());
    Ok(success(json!({
        "path": target.path,
        "content": content,
        "encoding": encoding,
        "isBinary": is_binary,
        "mimeType": mime_type(&target.path, is_binary),
        "size": size,
    })))
}

async fn write(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let encoding = encoding(&mut fields)?;
    let content = fields
        .string("content")?
        .ok_or_else(|| ContainerFailure::invalid("content", "give it as a string"))?;
    let bytes = match encoding.as_deref() {
        Some("base64") => {
            STANDARD.decode(content).map_err(|_| ContainerFailure::invalid("content", "it is not base64"))?
        }
        _ => content.into_bytes(),
    };
    let target = target_to_change(&service, &caller, &mut fields, "path").await?;
    let options = WriteOptions { parents: true, ..WriteOptions::default() };
    act_on_file(&target, move |tree, file_path| tree.write(file_path, &bytes, options)).await?;
    Ok(success(json!({"path": target.path})))
}

async fn delete(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let target = target_to_change(&service, &caller, &mut fields, "path").await?;
    let deleted = act_on_file(&target, |tree, file_path| tree.delete(file_path, false)).await;
    deleted.map_err(|failure| match failure.code() {
        "IS_DIRECTORY" => ContainerFailure::new(
            400,
            "IS_DIRECTORY",
            format!("Cannot delete directory with deleteFile(): {} (use exec('rm -r …'))", target.path),
        )
        .with("path", target.path.as_str()),
        _ => failure,
    })?;
    Ok(success(json!({"path": target.path})))
}

async fn rename(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    put(&service, &caller, &mut fields, ["oldPath", "newPath"]).await
}

async fn move_file(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    put(&service, &caller, &mut fields, ["sourcePath", "destinationPath"]).await
}

async fn put(
    service: &Arc<ContextService>,
    caller: &Caller,
    fields: &mut RequestFields,
    [from, to]: [&'static str; 2],
) -> Result<Response, ContainerFailure> {
    let session = caller.session(fields)?;
    let source = target_of(service, caller, fields, from, &session).await?;
    let goal = target_of(service, caller, fields, to, &session).await?;
    check_writable(&source)?;
    check_writable(&goal)?;
    let (from, to) = (source.located.file_path.clone(), goal.located.file_path);
    let moved = act_on_two(&source.located.files, &goal.located.files, move |tree, other| {
        tree.rename_to(&from, other, &to, true)
    });
    moved.await.map_err(|rejection| path_failure(rejection, &source.path))?;
    Ok(success(json!({"path": source.path, "newPath": goal.path})))
}

async fn make_directory(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let recursive = fields.boolean("recursive")?.unwrap_or(false);
    let target = target_to_change(&service, &caller, &mut fields, "path").await?;
    let file_path = target.located.file_path.clone();
    let made = act(&target.located.files, move |tree| tree.make_directory(&file_path, recursive)).await;
    made.map_err(|rejection| path_failure(rejection, &target.path))?;
    Ok(success(json!({"path": target.path, "recursive": recursive})))
}

async fn exists(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let target = target(&service, &caller, &mut fields, "path").await?;
    let file_path = target.located.file_path.clone();
    let exists = act(&target.located.files, move |tree| tree.exists(&file_path)).await;
    let exists = exists.map_err(|rejection| path_failure(rejection, &target.path))?;
    Ok(success(json!({"path": target.path, "exists": exists})))
}

async fn list(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let options = fields.value("options").unwrap_or_default();
    let asked = |key: &str| options[key].as_bool().unwrap_or(false);
    let (recursive, hidden) = (asked("recursive"), asked("includeHidden"));
    let target = target(&service, &caller, &mut fields, "path").await?;
    let (file_path, files) = (target.located.file_path.clone(), target.located.files.clone());
    let found = act(&target.located.files, move |tree| whole(tree, &*files, &file_path, recursive)).await;
    let entries = found.map_err(|rejection| match rejection.code {
        Code::WrongFileType => {
            ContainerFailure::new(400, "NOT_DIRECTORY", rejection.message).with("path", target.path.as_str())
        }
        _ => path_failure(rejection, &target.path),
    })?;
    let base = target.located.file_path.text();
    let files: Vec<Value> = entries
        .iter()
        .map(|entry| (entry, relative(&base, &entry.path)))
        .filter(|(_, relative)| hidden || !relative.split('/').any(|name| name.starts_with('.')))
        .map(|(entry, relative)| info(entry, target.located.mount_path, relative))
        .collect();
    Ok(success(json!({"path": target.path, "count": files.len(), "files": files})))
}

/// All pages of a listing, up to a bound.
fn whole(
    tree: &FileTree,
    files: &dyn FileSource,
    file_path: &FilePath,
    recursive: bool,
) -> Result<Vec<FileEntry>, ApiRejection> {
    let mut asked = ListingRequest { recursive, most: PAGE_ENTRIES, after: None };
    let mut entries = Vec::new();
    loop {
        let page = tree.list(file_path, &asked)?;
        // Not of the last page: with the replacements of bytes that are not UTF-8, a name may be
        // longer than is accepted.
        let last = page.entries.last().filter(|_| page.more);
        asked.after = last.map(|entry| files.parse_path(&entry.path)).transpose()?;
        entries.extend(page.entries);
        if let Some(path) = page.unreadable {
            let message = format!(
                "the directory `{path}` cannot be read by the sandbox's user; list the others without `recursive`, or change its mode"
            );
            return Err(ApiRejection::new(Code::FilePermission, message));
        }
        if entries.len() > MAX_LISTED || page.incomplete {
            let message =
                format!("there are more than {MAX_LISTED} files, or they lie too deep; list a part of them");
            return Err(ApiRejection::new(Code::FileTooLarge, message));
        }
        if !page.more {
            return Ok(entries);
        }
    }
}

fn relative<'a>(base: &str, path: &'a str) -> &'a str {
    path.strip_prefix(base).map_or(path, |path| path.trim_start_matches('/'))
}

fn info(entry: &FileEntry, mount_path: &str, relative: &str) -> Value {
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        _ => "other",
    };
    let bit = |bit: u32, letter: char| if entry.mode & bit != 0 { letter } else { '-' };
    let mode: String = (0..9).map(|index| bit(0o400 >> index, ['r', 'w', 'x'][index as usize % 3])).collect();
    json!({
        "name": relative.rsplit('/').next().unwrap_or(relative),
        "absolutePath": format!("{mount_path}/{}", entry.path.trim_start_matches('/')),
        "relativePath": relative,
        "type": kind,
        "size": entry.size,
        "modifiedAt": instant(entry.modified_at_ms),
        "mode": mode,
        "permissions": {
            "readable": entry.mode & 0o400 != 0,
            "writable": entry.mode & 0o200 != 0,
            "executable": entry.mode & 0o100 != 0,
        },
    })
}

/// What goes wrong before the first byte is an event here, as that interface has it.
async fn read_stream(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let target = target(&service, &caller, &mut fields, "path").await?;
    let opened = act_on_file(&target, |tree, file_path| {
        let (file, size) = tree.open_to_read(file_path)?;
        // Only contents that were checked are sent as text; a larger file may be binary.
        let text = if size <= MAX_READ_BYTES {
            String::from_utf8(tree.read(file_path, MAX_READ_BYTES)?).ok()
        } else {
            None
        };
        Ok((file, size, text.filter(|text| !text.contains('\0'))))
    });
    let frames = match opened.await {
        Ok((file, size, text)) => FileFrames::of(&target.path, file, size, text),
        Err(failure) => FileFrames::error(failure.message()),
    };
    Ok(respond(frames, service.runs.core.messages.heartbeat))
}
