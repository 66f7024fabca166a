//! Bounds of the heads of requests.

use axum::http::{HeaderMap, Uri};

use crate::error::{ApiRejection, Code};

/// Header lines of a request, bytes of its head, and of its path and query.
pub(super) const MAX_HEADERS: usize = 64;
pub(super) const HEAD_BYTES: usize = 64 * 1024;
const URI_BYTES: usize = 16 * 1024;
/// The bytes of a head between the parts of each line and at its end.
const LINE_OVERHEAD_BYTES: usize = 4;

/// Refuses a head that is too large.
pub(crate) fn check_head(uri: &Uri, headers: &HeaderMap) -> Result<(), ApiRejection> {
    let uri_bytes = uri.path_and_query().map_or(0, |target| target.as_str().len());
    if uri_bytes > URI_BYTES {
        let message = format!("path and query have {uri_bytes} bytes of at most {URI_BYTES}");
        return Err(ApiRejection::new(Code::UriTooLong, message));
    }
    if headers.len() > MAX_HEADERS {
        let message = format!("the request has {} header lines of at most {MAX_HEADERS}", headers.len());
        return Err(ApiRejection::new(Code::HeadTooLarge, message));
    }
    let lines = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + LINE_OVERHEAD_BYTES);
    let bytes = uri_bytes + lines.sum::<usize>();
    if bytes > HEAD_BYTES {
        let message = format!("the head of the request has {bytes} bytes of at most {HEAD_BYTES}");
        return Err(ApiRejection::new(Code::HeadTooLarge, message));
    }
    Ok(())
}
