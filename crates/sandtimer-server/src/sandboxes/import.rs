//! `POST /v1/templates`: a template from a tar archive, which may be hostile.
//!
//! ```text
//! body ─▶ file without a name ─▶ uncompressed ─▶ all members checked ─▶ all members made, beneath an empty directory ─▶ a template
//! ```
//! Members are checked and made by the code that unpacks archives into workspaces
//! (`files/unpack.rs`): with the rights of the files' owner, over no link. Attributes, owners and
//! set-id bits of an archive are not made; so none of overlayfs's marks is.

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use flate2::read::MultiGzDecoder;
use rustix::fs::{CWD, Mode, OFlags, openat};
use ruzstd::decoding::StreamingDecoder;
use serde_json::{Value, json};

use super::service::TEMPLATES;
use super::templates::template_view;
use crate::auth::OwnerId;
use crate::body::{self, Parameters, RequestFields};
use crate::contexts::ContextService;
use crate::error::{ApiRejection, Code, storage};
use crate::files::{ARCHIVES, MAX_ARCHIVE_BYTES, content, unnamed_file, unpack_tree};

const BUFFER_BYTES: usize = 256 << 10;
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new().route("/v1/templates", post(import))
}

async fn import(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    parameters: Result<Parameters, ApiRejection>,
    request: Request<Body>,
) -> Result<Response, ApiRejection> {
    let (parts, mut body) = request.into_parts();
    let declared = content::declared(&parts.headers);
    let imported = match parameters {
        Ok(Parameters(fields)) => receive(&contexts, owner, fields, declared, &mut body).await,
        Err(rejection) => Err(rejection),
    };
    if imported.is_err() {
        content::read_away(&mut body, declared).await;
    }
    Ok((StatusCode::CREATED, body::json(&imported?)).into_response())
}

async fn receive(
    contexts: &Arc<ContextService>,
    owner: OwnerId,
    mut fields: RequestFields,
    declared: Option<u64>,
    body: &mut Body,
) -> Result<Value, ApiRejection> {
    let name = fields.string("name")?.ok_or_else(|| {
        ApiRejection::new(Code::BadField, "name: give the template a name").with("key", "name")
    })?;
    fields.finish()?;
    content::check_length(declared, MAX_ARCHIVE_BYTES)?;
    let service = contexts.clone();
    service.runs.sandboxes.check_template_name(&name)?;
    let archive_share = ARCHIVES.take(&owner)?;
    let share = TEMPLATES.take(&owner)?;
    let failed = |_| ApiRejection::new(Code::Internal, "the template could not be made");
    let (starting, owner_name) = (contexts.clone(), owner.as_str().to_owned());
    let begun = tokio::task::spawn_blocking(move || {
        let import = starting.runs.sandboxes.sandboxes.begin_import(&name, &owner_name)?;
        let archive = unnamed(import.directory())?;
        Ok::<_, ApiRejection>((import, Arc::new(archive)))
    });
    let (import, archive) = begun.await.map_err(failed)??;
    content::receive(body, &archive, MAX_ARCHIVE_BYTES, contexts.runs.core.messages.patience).await?;
    let made = tokio::task::spawn_blocking(move || {
        // The client may leave before this ends.
        let _archive_share = archive_share;
        let archive = uncompressed(&archive, import.directory())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = openat(CWD, import.root(), flags, Mode::empty());
        let root = root.map_err(|error| storage("the template's layer cannot be opened", &error.into()))?;
        let unpacked = unpack_tree(root, archive)?;
        let template = service.runs.sandboxes.sandboxes.finish_import(import)?;
        service.runs.sandboxes.hold(&template.id, share);
        Ok::<_, ApiRejection>((template, unpacked))
    });
    let (template, unpacked) = made.await.map_err(failed)??;
    let mut view = template_view(&template);
    view["members"] = json!(unpacked.members);
    view["left_out"] = json!(unpacked.left_out);
    Ok(view)
}

fn unnamed(directory: &std::path::Path) -> Result<OwnedFd, ApiRejection> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(CWD, directory, flags, Mode::empty()).and_then(|directory| {
        use std::os::fd::AsFd;
        unnamed_file(directory.as_fd())
    });
    made.map_err(|error| storage("the archive cannot be stored", &error.into()))
}

/// The archive itself, or what it is when it is not compressed.
fn uncompressed(archive: &OwnedFd, directory: &std::path::Path) -> Result<OwnedFd, ApiRejection> {
    let unreadable = |error: io::Error| storage("the archive cannot be read", &error);
    let mut file = File::from(archive.try_clone().map_err(unreadable)?);
    let mut beginning = Vec::new();
    file.rewind().map_err(unreadable)?;
    (&file).take(4).read_to_end(&mut beginning).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    let mut file = io::BufReader::with_capacity(BUFFER_BYTES, file);
    if beginning.starts_with(GZIP) {
        let mut to = UncompressedFile::new(unnamed(directory)?);
        to.append(MultiGzDecoder::new(file))?;
        return Ok(to.file.into());
    }
    if beginning.starts_with(ZSTD) {
        let mut to = UncompressedFile::new(unnamed(directory)?);
        // One frame after the other.
        while !file.fill_buf().map_err(unreadable)?.is_empty() {
            let frame = StreamingDecoder::new(&mut file).map_err(|error| broken(&error))?;
            to.append(frame)?;
        }
        return Ok(to.file.into());
    }
    archive.try_clone().map_err(unreadable)
}

fn broken(error: &dyn std::fmt::Display) -> ApiRejection {
    ApiRejection::new(Code::BadArchive, format!("the archive cannot be uncompressed: {error}"))
}

/// A file for what is uncompressed, up to the bound of an archive.
struct UncompressedFile {
    file: File,
    left: u64,
}

impl UncompressedFile {
    fn new(file: OwnedFd) -> Self {
        UncompressedFile { file: file.into(), left: MAX_ARCHIVE_BYTES }
    }

    fn append(&mut self, mut source: impl Read) -> Result<(), ApiRejection> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = source.read(&mut buffer).map_err(|error| broken(&error))?;
            if length == 0 {
                return Ok(());
            }
            self.left = self.left.checked_sub(length as u64).ok_or_else(|| {
                let message =
                    format!("the archive has more than {MAX_ARCHIVE_BYTES} bytes when it is uncompressed");
                ApiRejection::new(Code::FileTooLarge, message).with("most_bytes", MAX_ARCHIVE_BYTES)
            })?;
            let written = self.file.write_all(&buffer[..length]);
            written.map_err(|error| storage("the archive cannot be stored", &error))?;
        }
    }
}
