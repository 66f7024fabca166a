//! `/ws`: the requests of this interface over one WebSocket, each answered by the handler that answers it over HTTP.
//!
//! ```text
//! client   request {id, method, path, headers?, body?} · cancel {id}
//! server   response {id, status, body, done: true} | stream {id, event?, data} … and then a response | error {id?, code, message, status}
//! ```
//! A request is handled by a task of its own: read ─▶ handled ─▶ answered. Cancelling it, or closing the socket, drops that task and
//! with it the handler, as a connection that closes does over HTTP. All is the owner's whose request opened the socket. A
//! client that does not read holds up its own answers: the streams behind them wait as they do for a slow connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::Response;
use axum::routing::get;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tower_service::Service;

use super::failure::Failure;
use crate::Shared;
use crate::auth::Owner;
use crate::body::MOST_BYTES;
use crate::connection::Connection;
use crate::error::{Code, Refusal};
use crate::listen::Place;

/// Requests of one socket at a time.
const MOST_AT_ONCE: usize = 256;
/// Bytes of an answer that is no stream: a file of 32 MiB as base64 and what is around it.
const MOST_ANSWERED: usize = 64 << 20;
/// How long a client may take to hear of the end.
const GOOD_BYE: Duration = Duration::from_secs(2);
/// Of headers, what says how this connection is to be used and not what is asked.
const OF_CONNECTIONS: [HeaderName; 4] =
    [header::CONNECTION, header::UPGRADE, header::TRANSFER_ENCODING, header::CONTENT_LENGTH];

type Sink = Mutex<SplitSink<WebSocket, Message>>;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/ws", get(open)).route("/api/ws", get(open))
}

/// Who asks, and by what.
type Client = (Extension<Owner>, Extension<Arc<Connection>>, Extension<Place>);

async fn open(
    State(app): State<Shared>,
    (Extension(owner), Extension(connection), Extension(place)): Client,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade = upgrade.map_err(|rejection| Refusal::new(Code::UpgradeRequired, rejection.to_string()))?;
    let handlers = super::routes()
        .fallback(crate::facts::not_found)
        .method_not_allowed_fallback(crate::facts::method_not_allowed)
        .with_state(app.clone());
    let asker =
        Asker { app, handlers, owner, connection, place, sandbox: headers.get("x-sandbox-id").cloned() };
    let upgrade = upgrade.max_message_size(MOST_BYTES).max_frame_size(MOST_BYTES);
    Ok(upgrade.on_upgrade(move |socket| asker.serve(socket)))
}

/// What a client says.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Said {
    Request {
        id: String,
        method: String,
        path: String,
        #[serde(default)]
        headers: HashMap<String, String>,
        body: Option<Value>,
    },
    Cancel {
        id: String,
    },
}

/// Whose socket it is.
struct Asker {
    app: Shared,
    handlers: Router,
    owner: Owner,
    connection: Arc<Connection>,
    place: Place,
    /// The sandbox that is meant where a request names none.
    sandbox: Option<HeaderValue>,
}

impl Asker {
    async fn serve(self, socket: WebSocket) {
        let (sink, mut stream) = socket.split();
        let sink = Arc::new(Mutex::new(sink));
        let mut closing = self.app.closing.subscribe();
        let is_there = tokio::select! {
            () = self.listen(&mut stream, &sink) => false,
            () = self.connection.closed() => false,
            _ = closing.wait_for(|closing| *closing) => true,
        };
        if is_there {
            let _ = tokio::time::timeout(GOOD_BYE, say(&sink, Message::Close(None))).await;
        }
    }

    /// Answers until the client closes. Requests that are under way then are dropped with this.
    async fn listen(&self, stream: &mut SplitStream<WebSocket>, sink: &Arc<Sink>) {
        let mut under_way = JoinSet::new();
        let mut handles: HashMap<String, AbortHandle> = HashMap::new();
        let mut heartbeat = tokio::time::interval(self.app.heartbeat);
        loop {
            let message = tokio::select! {
                message = stream.next() => message,
                _ = heartbeat.tick() => {
                    if say(sink, Message::Ping(Bytes::new())).await.is_none() { return }
                    continue;
                }
            };
            while under_way.try_join_next().is_some() {}
            handles.retain(|_, handle| !handle.is_finished());
            let Some(Ok(message)) = message else { return };
            let text = match &message {
                Message::Text(text) => text.as_str(),
                Message::Close(_) => return,
                Message::Binary(_) => "",
                Message::Ping(_) | Message::Pong(_) => continue,
            };
            let failure = match read(text) {
                Ok(Said::Cancel { id }) => {
                    handles.remove(&id).inspect(AbortHandle::abort);
                    continue;
                }
                Ok(Said::Request { id, .. }) if handles.contains_key(&id) => {
                    error(Some(&id), "INVALID_REQUEST", "a request with this id is under way", 400)
                }
                Ok(Said::Request { id, .. }) if handles.len() >= MOST_AT_ONCE => {
                    let message = format!("{MOST_AT_ONCE} requests of this socket are under way");
                    error(Some(&id), "INVALID_REQUEST", &message, 429)
                }
                Ok(Said::Request { id, method, path, headers, body }) => {
                    match self.request(&method, &path, headers, body) {
                        Ok(request) => {
                            let answer = answer(self.handlers.clone(), request, id.clone(), sink.clone());
                            handles.insert(id, under_way.spawn(answer));
                            continue;
                        }
                        Err(why) => error(Some(&id), "INVALID_REQUEST", &why, 400),
                    }
                }
                Err((code, message)) => error(None, code, &message, 400),
            };
            if say(sink, failure).await.is_none() {
                return;
            }
        }
    }

    /// The request as it would come over HTTP.
    fn request(
        &self,
        method: &str,
        path: &str,
        headers: HashMap<String, String>,
        body: Option<Value>,
    ) -> Result<Request, String> {
        let uri: Uri = path.parse().map_err(|_| format!("`{path}` is no path"))?;
        if !uri.path().starts_with("/api/") || uri.path() == "/api/ws" {
            return Err(format!("`{path}` is none of /api"));
        }
        let content = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let mut request =
            Request::builder().method(method).uri(uri).body(content).map_err(|error| error.to_string())?;
        let given = request.headers_mut();
        given.extend(self.sandbox.clone().map(|value| (HeaderName::from_static("x-sandbox-id"), value)));
        for (name, value) in headers {
            let name: HeaderName = name.parse().map_err(|_| format!("`{name}` is no name of a header"))?;
            let value =
                value.parse().map_err(|_| format!("the header `{name}` has a value that it cannot have"))?;
            if !OF_CONNECTIONS.contains(&name) {
                given.insert(name, value);
            }
        }
        given.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        crate::listen::check_head(request.uri(), request.headers()).map_err(|refusal| refusal.message)?;
        let extensions = request.extensions_mut();
        extensions.insert(self.owner.clone());
        extensions.insert(self.connection.clone());
        extensions.insert(self.place.clone());
        Ok(request)
    }
}

fn read(text: &str) -> Result<Said, (&'static str, String)> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| ("PARSE_ERROR", format!("no JSON: {error}")))?;
    serde_json::from_value(value).map_err(|error| ("INVALID_REQUEST", error.to_string()))
}

/// Has a request handled, and says what came of it.
async fn answer(mut handlers: Router, request: Request, id: String, sink: Arc<Sink>) {
    let response = match handlers.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status().as_u16();
    let kind =
        response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let end = if kind.starts_with("text/event-stream") {
        match forward(response.into_body(), &id, &sink).await {
            Some(Ok(())) => {
                text_message(&json!({"type": "response", "id": id, "status": status, "done": true}))
            }
            Some(Err(why)) => error(Some(&id), "STREAM_ERROR", &why, 500),
            None => return,
        }
    } else {
        match Limited::new(response.into_body(), MOST_ANSWERED).collect().await {
            Ok(whole) => {
                let bytes = whole.to_bytes();
                let text = || String::from_utf8_lossy(&bytes).into_owned().into();
                let body: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
                text_message(
                    &json!({"type": "response", "id": id, "status": status, "body": body, "done": true}),
                )
            }
            Err(why) => error(Some(&id), "INTERNAL_ERROR", &format!("the answer cannot be sent: {why}"), 500),
        }
    };
    say(&sink, end).await;
}

/// Sends the events of a stream, one message each; `None` where the client is gone.
async fn forward(mut body: Body, id: &str, sink: &Sink) -> Option<Result<(), String>> {
    let mut buffer = Vec::new();
    while let Some(frame) = body.frame().await {
        let bytes = match frame.map(|frame| frame.into_data()) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => continue,
            Err(error) => return Some(Err(error.to_string())),
        };
        // What was looked through before has no end of an event, but it may have the first half of one.
        let mut from = buffer.len().saturating_sub(1);
        buffer.extend_from_slice(&bytes);
        let mut done = 0;
        while let Some(end) = buffer[from..].windows(2).position(|pair| pair == b"\n\n").map(|at| from + at) {
            if let Some(event) = Event::read(&buffer[done..end]) {
                say(sink, event.message(id)).await?;
            }
            (done, from) = (end + 2, end + 2);
        }
        buffer.drain(..done);
    }
    Some(Ok(()))
}

/// One event of a stream, as the WHATWG has them; without comments.
struct Event {
    name: Option<String>,
    data: String,
}

impl Event {
    fn read(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let values = |field: &'static str| {
            text.lines()
                .filter_map(move |line| line.strip_prefix(field)?.strip_prefix(':'))
                .map(str::trim_start)
        };
        let data: Vec<&str> = values("data").collect();
        let name = values("event").last().map(str::to_owned);
        (!data.is_empty()).then(|| Event { name, data: data.join("\n") })
    }

    fn message(&self, id: &str) -> Message {
        let mut message = json!({"type": "stream", "id": id, "data": self.data});
        if let Some(name) = &self.name {
            message["event"] = name.as_str().into();
        }
        text_message(&message)
    }
}

fn error(id: Option<&str>, code: &str, message: &str, status: u16) -> Message {
    let mut said = json!({"type": "error", "code": code, "message": message, "status": status});
    if let Some(id) = id {
        said["id"] = id.into();
    }
    text_message(&said)
}

fn text_message(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

/// `None` where the client is gone.
async fn say(sink: &Sink, message: Message) -> Option<()> {
    sink.lock().await.send(message).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_data_and_comments_none() {
        let read = |text: &str| Event::read(text.as_bytes()).map(|event| (event.name, event.data));
        assert_eq!(read(": still there"), None);
        assert_eq!(read("data: {\"a\": 1}"), Some((None, "{\"a\": 1}".to_owned())));
        assert_eq!(
            read("id: 1\nevent: x\ndata: a\ndata: b"),
            Some((Some("x".to_owned()), "a\nb".to_owned()))
        );
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        assert_eq!(read("{").expect_err("no JSON").0, "PARSE_ERROR");
        assert_eq!(read("[1]").expect_err("no request").0, "INVALID_REQUEST");
        assert_eq!(read(r#"{"type":"request","id":"1"}"#).expect_err("no path").0, "INVALID_REQUEST");
        assert!(matches!(read(r#"{"type":"cancel","id":"1"}"#), Ok(Said::Cancel { id }) if id == "1"));
    }
}
