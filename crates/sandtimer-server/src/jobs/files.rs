//! What a job has left: a list, and each file as a stream that is read from the store as fast as
//! its reader takes it.

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http_body_util::StreamBody;
use hyper::body::Frame;
use sandtimer_jobs::job::{FILE_PIECE, FileOf, JobFile, JobStore};
use serde_json::json;
use std::sync::Arc;

use super::keeping::JobService;
use super::view::store_owner;
use crate::auth::OwnerId;
use crate::body::{self, Id, Parameters};
use crate::error::{ApiRejection, Code};

pub(super) async fn list(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let record = service.find(&store_owner(&owner), &id).await?;
    let (files, refused) =
        record.result.map(|result| (result.files, result.files_refused)).unwrap_or_default();
    Ok(body::json(&json!({"job_id": id, "state": record.line.state, "files": files, "refused": refused})))
}

pub(super) async fn read(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Path((id, name)): Path<(String, String)>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let record = service.find(&store_owner(&owner), &id).await?;
    let files = record.result.map(|result| result.files).unwrap_or_default();
    let file = files.into_iter().find(|file| file.name == name).ok_or_else(|| {
        let shown: String = name.chars().take(120).collect();
        ApiRejection::new(Code::JobFileNotFound, format!("the job has left no file `{shown}`"))
    })?;
    Ok(stream(service, id, file))
}

/// Where a file ends before its length, because its job was queued again or purged, the answer
/// breaks off.
fn stream(service: Arc<JobService>, id: String, file: JobFile) -> Response {
    let (length, tag) = (file.bytes, format!("\"{}\"", file.sha256));
    let pieces = unfold((service, id, file, 0), |(service, id, file, start)| async move {
        if start >= file.bytes {
            return None;
        }
        let (of, name) = (id.clone(), file.name.clone());
        let read = move |store: &dyn JobStore| store.read_file(&of, FileOf::Output(&name), start, FILE_PIECE);
        let read = service.ask(move |store| Ok(read(store)?)).await;
        match read {
            Ok(bytes) if bytes.is_empty() => {
                let gone = std::io::Error::other("the file is gone: its job was queued again, or purged");
                Some((Err(gone), (service, id, file, u64::MAX)))
            }
            Ok(bytes) => {
                let next = start + bytes.len() as u64;
                Some((Ok(Frame::data(Bytes::from(bytes))), (service, id, file, next)))
            }
            Err(rejection) => {
                Some((Err(std::io::Error::other(rejection.message)), (service, id, file, u64::MAX)))
            }
        }
    });
    let mut response = Body::new(StreamBody::new(pieces)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_LENGTH, length.into());
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}
