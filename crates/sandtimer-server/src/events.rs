//! Server-sent events. A source is asked for the next event only when the reader has taken the one
//! before, so a slow reader costs one event of memory; its place is in the id of each event, so one
//! that comes back continues there.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::Value;

use crate::error::{ApiRejection, Code};

/// Headers that have proxies pass on each piece of a stream as it comes: a proxy that compresses
/// holds pieces back, and so does nginx by default.
fn live_headers() -> [(HeaderName, HeaderValue); 2] {
    [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ]
}

/// One event.
#[derive(Debug)]
pub(crate) struct StreamEvent {
    pub id: String,
    pub name: &'static str,
    pub data: Value,
}

/// Where events come from, one after the other.
pub(crate) trait EventSource: Send + 'static {
    /// The next event; `None` when none will come. The future may be dropped and asked for again:
    /// it changes its source only as it returns.
    fn next(&mut self) -> impl Future<Output = Option<StreamEvent>> + Send;
}

/// An answer that continues until its source ends, with a comment after each `heartbeat` of
/// silence.
pub(crate) fn respond(source: impl EventSource, heartbeat: Duration) -> Response {
    respond_as(source, heartbeat, written)
}

/// The same with events that are written in another way.
pub(crate) fn respond_as(
    source: impl EventSource,
    heartbeat: Duration,
    written: fn(&StreamEvent) -> String,
) -> Response {
    let stream = unfold(source, move |mut source| async move {
        let text = match tokio::time::timeout(heartbeat, source.next()).await {
            Ok(event) => written(&event?),
            Err(_) => ": heartbeat\n\n".to_owned(),
        };
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(text))), source))
    });
    let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))];
    (kind, live_headers(), Body::new(StreamBody::new(stream))).into_response()
}

/// Has proxies pass on a stream of events that was made elsewhere as it comes.
pub(crate) fn keep_live(answer: &mut Response) {
    let kind = answer.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        for (name, value) in live_headers() {
            answer.headers_mut().insert(name, value);
        }
    }
}

/// The answer to a reader that has had the last event: it need not come back.
pub(crate) fn nothing_more() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// The id of the last event a reader had.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, ApiRejection> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let text = id.to_str().ok().filter(|id| id.len() < 200);
    text.map(Some)
        .ok_or_else(|| ApiRejection::new(Code::BadField, "Last-Event-ID is not an id of this stream"))
}

/// JSON has no line breaks of its own, so one line of data holds it.
fn written(event: &StreamEvent) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(text, "id: {}\nevent: {}\ndata: {}\n\n", event.id, event.name, event.data);
    text
}
