//! `/v1/files`: the files of workspaces and sandboxes, from outside of the runs that work in them.
//!
//! ```text
//! thread   where it is done: with the rights of the files' owner (actor), never the server's
//! directory  the same with a directory as a whole
//! source   a workspace, or a sandbox as a whole
//! paths    paths, and opening them beneath the workspace, or in the sandbox
//! tree     what can be done: plain functions for every surface; listing, entry are parts of it
//! content  bodies as streams, to and from files
//! watch    what changes in a directory, or in a tree of them, as events
//! pack     a directory as a tar archive
//! unpack   a tar archive into a directory
//! members  the members of an archive, checked one by one
//! ```
//! A workspace is addressed by its own id or by the context or session that works in it; a sandbox
//! by its id. docs/design/files-and-ownership.md describes which user owns the files and what an
//! attacker in the workspace can and cannot do.

mod actor;
pub(crate) mod content;
mod directory;
mod entry;
mod listing;
mod members;
pub(crate) mod pack;
mod paths;
mod source;
mod thread;
mod tree;
mod unpack;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::auth::OwnerId;
use crate::body::{self, Object, Parameters, RequestFields, refused};
use crate::contexts::ContextService;
use crate::error::{ApiRejection, Code};
use crate::events;
use crate::workspaces::Workspace;

pub(crate) use directory::{empty, unpack_tree};
pub(crate) use entry::{EntryKind, FileEntry};
pub(crate) use listing::ListingRequest;
pub(crate) use members::MAX_MEMBERS;
pub(crate) use pack::{ARCHIVES, MAX_ARCHIVE_BYTES};
pub(crate) use paths::FilePath;
use source::while_open;
pub(crate) use source::{FileSource, SandboxRoot};
pub(crate) use thread::{act, act_on_two};
pub(crate) use tree::{FileTree, WriteOptions};
use unpack::UnpackOptions;
pub(crate) use unpack::unnamed_file;

/// The default and the maximum number of entries of a page.
const DEFAULT_LISTED: u64 = 1_000;
const MAX_LISTED: u64 = 10_000;
pub(crate) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/v1/files", get(read).put(write).delete(delete))
        .route("/v1/files/list", get(list))
        .route("/v1/files/stat", get(stat))
        .route("/v1/files/append", post(append))
        .route("/v1/files/move", post(rename))
        .route("/v1/files/mkdir", post(make_directory))
        .route("/v1/files/watch", get(watch))
        .route("/v1/files/tar", get(pack).put(unpack))
}

/// As [`addressed`], of files that are to be changed.
fn addressed_to_change(
    service: &Arc<ContextService>,
    owner: &OwnerId,
    fields: &mut RequestFields,
) -> Result<Arc<dyn FileSource>, ApiRejection> {
    let files = addressed(service, owner, fields)?;
    files.check_writable()?;
    Ok(files)
}

/// Whose files: exactly one of `workspace`, `context`, `session` and `sandbox`.
fn addressed(
    service: &Arc<ContextService>,
    owner: &OwnerId,
    fields: &mut RequestFields,
) -> Result<Arc<dyn FileSource>, ApiRejection> {
    let given = (
        fields.string("workspace")?,
        fields.string("context")?,
        fields.string("session")?,
        fields.string("sandbox")?,
    );
    match given {
        (Some(id), None, None, None) => Ok(service.runs.workspaces.get(&id, owner)?),
        (None, Some(id), None, None) | (None, None, Some(id), None) => Ok(service.get(&id, owner)?.files()),
        (None, None, None, Some(id)) => {
            Ok(Arc::new(SandboxRoot::new(service.runs.sandboxes.get(&id, owner)?)))
        }
        _ => Err(ApiRejection::new(
            Code::BadField,
            "give the id of one workspace, context, session or sandbox",
        )
        .with("key", "workspace")),
    }
}

/// A path that has to be given.
fn placed(
    files: &dyn FileSource,
    fields: &mut RequestFields,
    name: &'static str,
) -> Result<FilePath, ApiRejection> {
    let missing = || {
        let message =
            format!("{name}: give a path, relative or below /workspace; in a sandbox any absolute one");
        ApiRejection::new(Code::BadField, message)
    };
    match fields.string(name)? {
        Some(text) if !text.is_empty() => files.parse_path(&text),
        _ => Err(missing().with("key", name)),
    }
}

/// A directory, /workspace unless it is given.
fn directory(files: &dyn FileSource, fields: &mut RequestFields) -> Result<FilePath, ApiRejection> {
    files.parse_path(&fields.string("path")?.unwrap_or_default())
}

/// The permission bits of a file, as `0644`.
fn mode(fields: &mut RequestFields) -> Result<Option<u32>, ApiRejection> {
    let Some(text) = fields.string("mode")? else { return Ok(None) };
    let bits = u32::from_str_radix(&text, 8).ok().filter(|bits| *bits <= 0o777 && !text.starts_with('+'));
    bits.map(Some).ok_or_else(|| refused("mode", &Value::String(text), "permission bits, 0000 to 0777"))
}

async fn read(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    headers: HeaderMap,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let files = addressed(&service, &owner, &mut fields)?;
    let path = placed(&files, &mut fields, "path")?;
    let range = content::ByteRange::parse(&mut fields, &headers)?;
    fields.finish()?;
    let (file, size) = act(&files, move |tree| tree.open_to_read(&path)).await?;
    content::respond(file, size, range)
}

/// An answer of all of a file.
pub(crate) async fn download(
    workspace: &Arc<Workspace>,
    file_path: FilePath,
) -> Result<Response, ApiRejection> {
    let (file, size) = act(workspace, move |tree| tree.open_to_read(&file_path)).await?;
    content::respond(file, size, content::ByteRange::default())
}

async fn write(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    parameters: Result<Parameters, ApiRejection>,
    request: Request<Body>,
) -> Result<Response, ApiRejection> {
    let (parts, mut body) = request.into_parts();
    let declared = content::declared(&parts.headers);
    let written = match parameters {
        Ok(Parameters(fields)) => replace(&service, &owner, fields, declared, &mut body).await,
        Err(rejection) => Err(rejection),
    };
    if written.is_err() {
        content::read_away(&mut body, declared).await;
    }
    Ok(body::json(&written?))
}

/// Puts a body in a file's place.
async fn replace(
    service: &Arc<ContextService>,
    owner: &OwnerId,
    mut fields: RequestFields,
    declared: Option<u64>,
    body: &mut Body,
) -> Result<Value, ApiRejection> {
    let files = addressed_to_change(service, owner, &mut fields)?;
    let path = placed(&files, &mut fields, "path")?;
    let options = WriteOptions {
        parents: fields.boolean("parents")?.unwrap_or(false),
        create_only: fields.boolean("create_only")?.unwrap_or(false),
        mode: mode(&mut fields)?,
    };
    fields.finish()?;
    content::check_length(declared, content::MAX_UPLOAD_BYTES)?;
    let file_path = path.clone();
    let pending = act(&files, move |tree| tree.begin_write(&file_path, options)).await?;
    let receiving =
        content::receive(body, &pending.file, content::MAX_UPLOAD_BYTES, service.runs.core.messages.patience);
    let size = while_open(&files, receiving).await?;
    // It may have been paused since.
    files.check_writable()?;
    let created = act(&files, move |_| pending.finish()).await?;
    Ok(json!({"path": path.text(), "size": size, "created": created}))
}

async fn append(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    parameters: Result<Parameters, ApiRejection>,
    request: Request<Body>,
) -> Result<Response, ApiRejection> {
    // Read before anything is refused: it is not long, and its sender reads the answer only after
    // it has sent all of it.
    let bytes = body::bytes(request, &service.runs.core.messages, None).await?;
    let Parameters(mut fields) = parameters?;
    let files = addressed_to_change(&service, &owner, &mut fields)?;
    let path = placed(&files, &mut fields, "path")?;
    let create = fields.boolean("create")?.unwrap_or(true);
    fields.finish()?;
    let file_path = path.clone();
    let size = act(&files, move |tree| tree.append(&file_path, &bytes, create)).await?;
    Ok(body::json(&json!({"path": path.text(), "size": size})))
}

async fn delete(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let files = addressed_to_change(&service, &owner, &mut fields)?;
    let path = placed(&files, &mut fields, "path")?;
    let recursive = fields.boolean("recursive")?.unwrap_or(false);
    fields.finish()?;
    act(&files, move |tree| tree.delete(&path, recursive)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn list(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let files = addressed(&service, &owner, &mut fields)?;
    let path = directory(&files, &mut fields)?;
    let most = fields.number("limit")?.unwrap_or(DEFAULT_LISTED);
    if most == 0 || most > MAX_LISTED {
        return Err(refused("limit", &most.into(), &format!("a number from 1 to {MAX_LISTED}")));
    }
    let asked = ListingRequest {
        recursive: fields.boolean("recursive")?.unwrap_or(false),
        most: usize::try_from(most).unwrap_or(0),
        after: fields.string("after")?.map(|after| files.parse_path(&after)).transpose()?,
    };
    fields.finish()?;
    let listing = act(&files, move |tree| tree.list(&path, &asked)).await?;
    Ok(body::json(&json!({
        "entries": listing.entries.iter().map(|entry| entry.json()).collect::<Vec<_>>(),
        "next_after": listing.entries.last().filter(|_| listing.more).map(|entry| &entry.path),
        "incomplete": listing.incomplete,
    })))
}

async fn stat(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let files = addressed(&service, &owner, &mut fields)?;
    let path = placed(&files, &mut fields, "path")?;
    fields.finish()?;
    Ok(body::json(&act(&files, move |tree| tree.stat(&path)).await?.json()))
}

async fn rename(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let files = addressed_to_change(&service, &owner, &mut fields)?;
    let (from, to) = (placed(&files, &mut fields, "from")?, placed(&files, &mut fields, "to")?);
    let overwrite = fields.boolean("overwrite")?.unwrap_or(false);
    fields.finish()?;
    let moved = act(&files, move |tree| {
        tree.rename(&from, &to, overwrite)?;
        tree.stat(&to)
    });
    Ok(body::json(&moved.await?.json()))
}

async fn make_directory(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let files = addressed_to_change(&service, &owner, &mut fields)?;
    let path = placed(&files, &mut fields, "path")?;
    let parents = fields.boolean("parents")?.unwrap_or(false);
    fields.finish()?;
    let made = act(&files, move |tree| {
        tree.make_directory(&path, parents)?;
        tree.stat(&path)
    });
    Ok(body::json(&made.await?.json()))
}

async fn watch(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let files = addressed(&service, &owner, &mut fields)?;
    let path = directory(&files, &mut fields)?;
    let is_recursive = fields.boolean("recursive")?.unwrap_or(false);
    fields.finish()?;
    let changes =
        watch::DirectoryChanges::of(&files, path, is_recursive, service.runs.core.closing.subscribe())
            .await?;
    Ok(events::respond(changes, service.runs.core.messages.heartbeat))
}

async fn pack(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let files = addressed(&service, &owner, &mut fields)?;
    let path = directory(&files, &mut fields)?;
    fields.finish()?;
    pack::respond(&files, path).await
}

async fn unpack(
    State(service): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    parameters: Result<Parameters, ApiRejection>,
    request: Request<Body>,
) -> Result<Response, ApiRejection> {
    let (parts, mut body) = request.into_parts();
    let declared = content::declared(&parts.headers);
    let unpacked = match parameters {
        Ok(Parameters(fields)) => receive_archive(&service, &owner, fields, declared, &mut body).await,
        Err(rejection) => Err(rejection),
    };
    if unpacked.is_err() {
        content::read_away(&mut body, declared).await;
    }
    Ok(body::json(&unpacked?))
}

/// Unpacks a body into a directory, once all of it has arrived.
async fn receive_archive(
    service: &Arc<ContextService>,
    owner: &OwnerId,
    mut fields: RequestFields,
    declared: Option<u64>,
    body: &mut Body,
) -> Result<Value, ApiRejection> {
    let files = addressed_to_change(service, owner, &mut fields)?;
    let path = directory(&files, &mut fields)?;
    let options = UnpackOptions {
        parents: fields.boolean("parents")?.unwrap_or(false),
        keeps_links: fields.enumeration("links", &["inside", "keep"])? == Some("keep"),
        skips_special: false,
    };
    fields.finish()?;
    content::check_length(declared, MAX_ARCHIVE_BYTES)?;
    let share = ARCHIVES.take(files.owner())?;
    let goal = path.clone();
    let archive = act(&files, move |tree| tree.begin_unpack(&goal, options)).await?;
    let receiving =
        content::receive(body, &archive.file, MAX_ARCHIVE_BYTES, service.runs.core.messages.patience);
    let bytes = while_open(&files, receiving).await?;
    let goal = path.clone();
    let unpack = move |tree: &FileTree| {
        // As long as it is unpacked, whether or not its client waits.
        let _share = share;
        tree.unpack(&goal, &archive, options)
    };
    // It may have been paused since.
    files.check_writable()?;
    let unpacked = act(&files, unpack).await?;
    Ok(json!({"path": path.text(), "members": unpacked.members, "bytes": bytes}))
}
