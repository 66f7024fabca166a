//! Bodies as streams: a file is sent as fast as its reader takes it, and is received next to the
//! one it replaces; of neither more than a piece is in memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use rustix::io::{pread, retry_on_intr};

use super::tree::write_all;
use crate::body::RequestFields;
use crate::error::{ApiRejection, Code, storage};

/// The longest file that is taken.
pub(super) const MAX_UPLOAD_BYTES: u64 = 4 << 30;
/// Bytes that are read or written at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Of a refused body, what is read all the same, and how long that may take.
const MAX_DRAINED_BYTES: usize = 1 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Which part of a file; all of it where nothing is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ByteRange {
    first: Option<u64>,
    length: Option<u64>,
    /// The last bytes: `bytes=-5`.
    from_end: bool,
}

impl ByteRange {
    /// From `offset` and `length`, or else from the Range header. A header that cannot be parsed is
    /// ignored; RFC 9110, 14.2.
    pub fn parse(fields: &mut RequestFields, headers: &HeaderMap) -> Result<Self, ApiRejection> {
        let (first, length) = (fields.number("offset")?, fields.number("length")?);
        if first.is_some() || length.is_some() {
            return Ok(ByteRange { first, length, from_end: false });
        }
        let given = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
        Ok(given.and_then(Self::of_header).unwrap_or_default())
    }

    fn of_header(text: &str) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        if first.is_empty() {
            return Some(ByteRange { first: None, length: Some(last.parse().ok()?), from_end: true });
        }
        let first: u64 = first.parse().ok()?;
        let length = match last {
            "" => None,
            last => Some(last.parse::<u64>().ok()?.checked_sub(first)?.saturating_add(1)),
        };
        Some(ByteRange { first: Some(first), length, from_end: false })
    }

    /// Where it begins and how long it is, in a file of this size; `None` after its end.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        let length = self.length.unwrap_or(u64::MAX);
        let first = match (self.first, self.from_end) {
            (_, true) => size.saturating_sub(length),
            (first, false) => first.unwrap_or(0),
        };
        let is_after_end = first > size || (first == size && size > 0) || (self.from_end && length == 0);
        (!is_after_end).then(|| (first, length.min(size - first)))
    }
}

/// Answers with a file, or a part of it, at the length that it had when it was opened. If it is
/// truncated during the transfer, the answer breaks off.
pub(super) fn respond(file: OwnedFd, size: u64, range: ByteRange) -> Result<Response, ApiRejection> {
    let Some((first, length)) = range.within(size) else {
        let message = format!("the file has {size} bytes, and none where the range begins");
        return Err(ApiRejection::new(Code::RangeOutside, message).with("size", size));
    };
    let pieces = unfold((Arc::new(file), first, length), |(file, at, left)| async move {
        if left == 0 {
            return None;
        }
        let reading = file.clone();
        let most = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let read = tokio::task::spawn_blocking(move || piece(&reading, at, most)).await;
        match read.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(bytes) if bytes.is_empty() => None,
            Ok(bytes) => {
                let length = bytes.len() as u64;
                Some((Ok(Frame::data(Bytes::from(bytes))), (file, at + length, left - length)))
            }
            Err(error) => Some((Err(error), (file, at, 0))),
        }
    });
    let mut response = Body::new(StreamBody::new(pieces)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, length.into());
    if range != ByteRange::default() && size > 0 {
        let last = (first + length).saturating_sub(1);
        if let Ok(value) = HeaderValue::try_from(format!("bytes {first}-{last}/{size}")) {
            headers.insert(header::CONTENT_RANGE, value);
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn piece(file: &OwnedFd, at: u64, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let length = retry_on_intr(|| pread(file, &mut bytes, at))?;
    bytes.truncate(length);
    Ok(bytes)
}

/// The declared length of a body.
pub(crate) fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

/// Refuses a body whose declared length is too long.
pub(crate) fn check_length(declared: Option<u64>, most: u64) -> Result<(), ApiRejection> {
    if declared.is_some_and(|declared| declared > most) { Err(too_long(most)) } else { Ok(()) }
}

/// Reads the rest of a body that was refused, if it is short: a sender whose body is not read may
/// not read the answer.
pub(crate) async fn read_away(body: &mut Body, declared: Option<u64>) {
    if declared.is_some_and(|declared| declared > MAX_DRAINED_BYTES as u64) {
        return;
    }
    let mut left = MAX_DRAINED_BYTES;
    let reading = async {
        while left > 0
            && let Some(Ok(frame)) = body.frame().await
        {
            left = left.saturating_sub(frame.data_ref().map_or(1, Bytes::len));
        }
    };
    // What is not read by then is not worth it.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, reading).await;
}

fn too_long(most: u64) -> ApiRejection {
    ApiRejection::new(Code::FileTooLarge, format!("the file has more than {most} bytes"))
        .with("most_bytes", most)
}

/// Writes a body to a file; how long it was. Each part of it has to arrive within `patience`.
pub(crate) async fn receive(
    body: &mut Body,
    file: &OwnedFd,
    most: u64,
    patience: Duration,
) -> Result<u64, ApiRejection> {
    let file = file.try_clone().map_err(|error| storage("the file cannot be written", &error))?;
    let file = Arc::new(file);
    let (mut size, mut buffer) = (0u64, Vec::new());
    loop {
        let frame = tokio::time::timeout(patience, body.frame()).await;
        let frame = frame.map_err(|_| {
            ApiRejection::new(Code::RequestTimeout, format!("nothing of the body arrived for {patience:?}"))
        })?;
        let last = frame.is_none();
        if let Some(frame) = frame {
            let frame = frame
                .map_err(|_| ApiRejection::new(Code::BodyBroken, "the body ended before it was whole"))?;
            let data = frame.into_data().unwrap_or_default();
            size += data.len() as u64;
            if size > most {
                return Err(too_long(most));
            }
            buffer.extend_from_slice(&data);
        }
        if buffer.len() >= PIECE_BYTES || (last && !buffer.is_empty()) {
            let (file, bytes) = (file.clone(), std::mem::take(&mut buffer));
            let written = tokio::task::spawn_blocking(move || write_all(file.as_fd(), &bytes)).await;
            let written =
                written.map_err(|_| ApiRejection::new(Code::Internal, "the file could not be written"))?;
            written.map_err(|error| storage("the file cannot be written", &error.into()))?;
        }
        if last {
            return Ok(size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_as_http_has_them() {
        let range = |text| ByteRange::of_header(text).expect(text).within(10);
        assert_eq!(range("bytes=0-3"), Some((0, 4)));
        assert_eq!(range("bytes=7-"), Some((7, 3)));
        assert_eq!(range("bytes=7-99"), Some((7, 3)));
        assert_eq!(range("bytes=-4"), Some((6, 4)));
        assert_eq!(range("bytes=-40"), Some((0, 10)));
        assert_eq!(range("bytes=10-"), None);
        assert_eq!(ByteRange::default().within(0), Some((0, 0)));
        for unreadable in ["bytes=5-3", "bytes=a-b", "lines=1-2", "bytes=1-2,4-5"] {
            assert_eq!(ByteRange::of_header(unreadable), None, "{unreadable}");
        }
    }
}
