//! `/ws`: the requests of this interface over one WebSocket, each answered by the handler that
//! answers it over HTTP.
//!
//! ```text
//! client   request {id, method, path, headers?, body?} · cancel {id}
//! server   response {id, status, body, done: true} | stream {id, event?, data} … and then a response | error {id?, code, message, status}
//!
//! socket   open ─▶ the server ends: nothing new is taken ─▶ all is answered, or the server's patience has passed ─▶ closed
//! request  waits for its turn ─▶ handled ─▶ answered | cancelled, or its socket is closed: dropped
//! ```
//! A request is a task. Cancelling it, or closing the socket, drops that task and with it the
//! handler, as a connection that closes does over HTTP. All is the owner's whose request opened the
//! socket. A client that does not read delays its own answers: what waits to be sent waits in its
//! task. A client that sends nothing, not even a pong, is treated as gone. The bounds of all
//! messages are checked before a message is parsed. A request has its turn until its answer, or the
//! head of a stream, is there: of the turns no owner has more than half.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
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
use futures_util::{FutureExt, SinkExt, StreamExt};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tower_service::Service;

use super::caller::SANDBOX_HEADERS;
use super::failure::ContainerFailure;
use crate::auth::{OwnerId, PROTOCOL};
use crate::body::MAX_BODY_BYTES;
use crate::connection::Connection;
use crate::contexts::ContextService;
use crate::error::{ApiRejection, Code};
use crate::intake::{self, HeldReservations, Reservation};
use crate::listen::{ConnectionPermit, MAX_CONNECTIONS};
use crate::quota::Shares;
use crate::scan::Scanner;

/// Requests of one socket that are under way; more are refused. The package has a socket for each
/// sandbox.
const MAX_REQUESTS: usize = 64;
/// Tasks of one socket: requests, and what else waits to be sent. With more, nothing is read.
const MAX_TASKS: usize = 2 * MAX_REQUESTS;
/// Requests of all sockets that are handled, as many as there may be connections; more are refused.
static REQUEST_SHARES: Shares = Shares::of("requests over WebSockets at a time", MAX_CONNECTIONS);
/// After this many heartbeats without a message a client counts as gone.
const MAX_SILENT_HEARTBEATS: u32 = 5;
/// How long a client may take to close after the server has.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Characters of a client's own text that are quoted to it.
const MAX_QUOTED_CHARS: usize = 200;
/// Headers that describe the use of the connection and not the request.
const CONNECTION_HEADERS: [HeaderName; 4] =
    [header::CONNECTION, header::UPGRADE, header::TRANSFER_ENCODING, header::CONTENT_LENGTH];

type Sink = Mutex<SplitSink<WebSocket, Message>>;

/// What sockets are served with.
#[derive(Debug, Clone)]
struct SocketState {
    service: Arc<ContextService>,
    /// What answers the requests of a socket.
    handlers: Router,
}

pub(super) fn routes(service: &Arc<ContextService>, handlers: Router) -> Router<Arc<ContextService>> {
    Router::new()
        .route("/ws", get(open))
        .route("/api/ws", get(open))
        .with_state(SocketState { service: service.clone(), handlers })
}

async fn open(
    State(SocketState { service, handlers }): State<SocketState>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Extension(connection_permit): Extension<ConnectionPermit>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ContainerFailure> {
    let upgrade =
        upgrade.map_err(|rejection| ApiRejection::new(Code::UpgradeRequired, rejection.to_string()))?;
    let asker = SocketSession {
        service,
        handlers,
        owner,
        connection,
        connection_permit,
        sandbox: named_sandbox(&headers),
    };
    let upgrade =
        upgrade.protocols([PROTOCOL]).max_message_size(MAX_BODY_BYTES).max_frame_size(MAX_BODY_BYTES);
    asker.connection.meter.begin(&asker.service.runs.core.messages.requests, &asker.owner);
    Ok(upgrade.on_upgrade(move |socket| asker.serve(socket)))
}

fn named_sandbox(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    let named = |name: &str| {
        let value = headers.get(name)?.clone();
        HeaderName::from_bytes(name.as_bytes()).ok().map(|name| (name, value))
    };
    SANDBOX_HEADERS.into_iter().filter_map(named).collect()
}

/// A message of a client.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClientMessage {
    #[serde(rename = "type")]
    kind: String,
    id: Option<String>,
    method: Option<String>,
    path: Option<String>,
    headers: Option<HashMap<String, String>>,
    /// A part of the message, which is not copied.
    #[serde(skip)]
    body: Option<Bytes>,
}

/// The same with its body verbatim.
#[derive(Debug, Deserialize)]
struct ClientMessageWithBody<'a> {
    #[serde(flatten)]
    message: ClientMessage,
    #[serde(borrow, default)]
    body: Option<&'a RawValue>,
}

fn invalid(why: impl Into<String>) -> ContainerFailure {
    ContainerFailure::new(400, "INVALID_REQUEST", why)
}

/// Whose socket it is.
struct SocketSession {
    service: Arc<ContextService>,
    handlers: Router,
    owner: OwnerId,
    connection: Arc<Connection>,
    connection_permit: ConnectionPermit,
    /// The headers about the sandbox that is meant if a request has none.
    sandbox: Vec<(HeaderName, HeaderValue)>,
}

impl SocketSession {
    async fn serve(self, socket: WebSocket) {
        let (sink, mut stream) = socket.split();
        let sink = Arc::new(Mutex::new(sink));
        let is_there = tokio::select! {
            is_there = self.listen(&mut stream, &sink) => is_there,
            () = self.connection.closed() => false,
        };
        if is_there {
            let part = async {
                send_message(&sink, Message::Close(None)).await;
                // What it still sends is read: a connection that is closed over it would take the
                // last answer along.
                while let Some(Ok(_)) = stream.next().await {}
            };
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, part).await;
        }
    }

    /// Answers until the client closes, or the server does. Returns whether the client is still
    /// there to receive the reason. Active requests are dropped with this.
    async fn listen(&self, stream: &mut SplitStream<WebSocket>, sink: &Arc<Sink>) -> bool {
        let mut tasks = JoinSet::new();
        let mut handles: HashMap<String, AbortHandle> = HashMap::new();
        let mut closing = self.service.runs.core.closing.subscribe();
        let mut ends = *closing.borrow();
        let mut heartbeat = interval(self.service.runs.core.messages.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_received = Instant::now();
        loop {
            let message = tokio::select! {
                message = stream.next(), if tasks.len() < MAX_TASKS => message,
                Some(_) = tasks.join_next() => continue,
                _ = closing.wait_for(|closing| *closing), if !ends => {
                    ends = true;
                    continue;
                }
                () = std::future::ready(()), if ends && tasks.is_empty() => return true,
                _ = heartbeat.tick() => {
                    if last_received.elapsed() > self.service.runs.core.messages.heartbeat * MAX_SILENT_HEARTBEATS {
                        return false;
                    }
                    tasks.spawn(send_from_task(sink.clone(), Message::Ping(Bytes::new())));
                    continue;
                }
            };
            last_received = Instant::now();
            let text = match message {
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Binary(_))) => Bytes::new(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                // It waits for this to be confirmed.
                Some(Ok(Message::Close(_))) => return true,
                Some(Err(_)) | None => return self.send_close_reason(sink).await,
            };
            let reserved = self.connection.meter.settle();
            handles.retain(|_, handle| !handle.is_finished());
            let read = intake::parse(text, read).await;
            let taken = match read.unwrap_or_else(|rejection| Err((None, ContainerFailure::from(rejection))))
            {
                Err(refused) => Err(refused),
                Ok(message) if message.kind == "cancel" => {
                    message.id.and_then(|id| handles.remove(&id)).inspect(AbortHandle::abort);
                    continue;
                }
                Ok(message) => self.take(message, ends, &handles),
            };
            match taken {
                Ok((id, request)) => {
                    let request = SocketRequest { id: id.clone(), request, reserved };
                    let (service, owner) = (self.service.clone(), self.owner.clone());
                    let task = answer(service, owner, self.handlers.clone(), request, sink.clone());
                    handles.insert(id, tasks.spawn(task));
                }
                Err((id, refused)) => {
                    drop(tasks.spawn(send_from_task(sink.clone(), error(id.as_deref(), &refused))))
                }
            }
        }
    }

    /// Sends why nothing more is read, if the client is not the cause. Returns whether the client
    /// is there to receive the end.
    async fn send_close_reason(&self, sink: &Sink) -> bool {
        let Some(rejection) = self.connection.meter.refused() else { return false };
        send_message(sink, error(None, &ContainerFailure::from(rejection))).await.is_some()
    }

    /// A request with its id, or why there is none.
    fn take(
        &self,
        message: ClientMessage,
        ends: bool,
        under_way: &HashMap<String, AbortHandle>,
    ) -> Result<(String, Request), (Option<String>, ContainerFailure)> {
        let Some(id) = message.id.clone() else { return Err((None, invalid("there is no `id`"))) };
        let request = match message.kind.as_str() {
            "request" if ends => Err(ContainerFailure::new(503, "CONTAINER_UNAVAILABLE", "the server ends")),
            "request" if under_way.contains_key(&id) => Err(invalid("a request with this id is under way")),
            "request" if under_way.len() >= MAX_REQUESTS => {
                let why = format!(
                    "{MAX_REQUESTS} requests of this socket are under way; wait for one to be answered"
                );
                Err(ContainerFailure::new(429, "INVALID_REQUEST", why))
            }
            "request" => self.request(message).map_err(invalid),
            other => Err(invalid(format!("`{}` is not a type; use `request` or `cancel`", quoted(other)))),
        };
        request.map(|request| (id.clone(), request)).map_err(|refused| (Some(id), refused))
    }

    /// The request as it would come over HTTP.
    fn request(&self, message: ClientMessage) -> Result<Request, String> {
        let method = message.method.ok_or("there is no `method`")?;
        let path = message.path.ok_or("there is no `path`")?;
        let uri: Uri = path.parse().map_err(|_| format!("`{}` is not a path", quoted(&path)))?;
        if !uri.path().starts_with("/api/") || uri.path() == "/api/ws" {
            return Err(format!("`{}` is none of /api", quoted(&path)));
        }
        let content = message.body.unwrap_or_default();
        let length = HeaderValue::from(content.len());
        let request = Request::builder().method(method.as_str()).uri(uri).body(Body::from(content));
        let mut request = request.map_err(|error| error.to_string())?;
        let given = request.headers_mut();
        given.extend(self.sandbox.iter().cloned());
        for (name, value) in message.headers.unwrap_or_default() {
            let bad = || format!("the header `{}` is none", quoted(&name));
            let (name, value): (HeaderName, HeaderValue) =
                (name.parse().map_err(|_| bad())?, value.parse().map_err(|_| bad())?);
            if !CONNECTION_HEADERS.contains(&name) {
                given.insert(name, value);
            }
        }
        given.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        given.insert(header::CONTENT_LENGTH, length);
        crate::listen::check_head(request.uri(), request.headers()).map_err(|rejection| rejection.message)?;
        let extensions = request.extensions_mut();
        extensions.insert(self.owner.clone());
        extensions.insert(self.connection.clone());
        extensions.insert(self.connection_permit.clone());
        Ok(request)
    }
}

/// Reads a message; with whose answer it waits for where it is none.
fn read(text: Bytes) -> Result<ClientMessage, (Option<String>, ContainerFailure)> {
    if let Err(excess) = Scanner::new().feed(&text) {
        return Err((id_of(&text), ContainerFailure::from(excess.into_rejection("the message"))));
    }
    match serde_json::from_slice::<ClientMessageWithBody<'_>>(&text) {
        Ok(ClientMessageWithBody { message, body }) => {
            let body = body.map(|body| text.slice_ref(body.get().as_bytes()));
            Ok(ClientMessage { body, ..message })
        }
        Err(error) if error.is_data() => Err((id_of(&text), invalid(error.to_string()))),
        Err(error) => Err((None, ContainerFailure::new(400, "PARSE_ERROR", format!("no JSON: {error}")))),
    }
}

/// Whose answer a message waits for that is no request. Nothing else of it is kept.
fn id_of(text: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct MessageIdHead {
        id: Option<String>,
    }
    serde_json::from_slice::<MessageIdHead>(text).ok()?.id
}

fn quoted(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

/// A request as a message of the socket has it.
struct SocketRequest {
    id: String,
    request: Request,
    /// What the message has reserved.
    reserved: Vec<Reservation>,
}

/// Has a request handled, and sends the result. What its message has reserved is held until it is
/// answered.
async fn answer(
    service: Arc<ContextService>,
    owner: OwnerId,
    mut handlers: Router,
    request: SocketRequest,
    sink: Arc<Sink>,
) {
    let SocketRequest { id, mut request, reserved } = request;
    let held = HeldReservations::default();
    reserved.into_iter().for_each(|reserved| held.keep(reserved));
    request.extensions_mut().insert(held.clone());
    let only_reads = request.method().is_safe();
    let unanswered = |rejection: ApiRejection| {
        let rejection = if only_reads { rejection } else { rejection.after_execution(None) };
        error(Some(&id), &ContainerFailure::from(rejection))
    };
    // Until the answer is sent.
    let mut of_answer = None;
    let end = match REQUEST_SHARES.take(&owner) {
        Err(rejection) => error(Some(&id), &ContainerFailure::from(rejection)),
        Ok(turn) => match AssertUnwindSafe(handlers.call(request)).catch_unwind().await {
            Ok(Ok(mut response)) => {
                drop(held);
                if is_stream(&response) {
                    // The stream may last for as long as the client likes.
                    drop(turn);
                    match intake::hold(&service.runs.core.messages.answers, &owner, response) {
                        Ok(response) => match stream(response, &id, &sink).await {
                            Some(end) => end,
                            None => return,
                        },
                        Err(rejection) => unanswered(rejection),
                    }
                } else {
                    match intake::take_reserved(&service.runs.core.messages.answers, &owner, &mut response) {
                        Ok(reserved) => {
                            of_answer = reserved;
                            whole(response, &id).await
                        }
                        Err(rejection) => unanswered(rejection),
                    }
                }
            }
            Ok(Err(never)) => match never {},
            Err(_) => error(Some(&id), &ContainerFailure::internal("the request's handler has failed")),
        },
    };
    send_message(&sink, end).await;
    drop(of_answer);
}

fn content_type(response: &Response) -> &str {
    response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

fn is_stream(response: &Response) -> bool {
    content_type(response).starts_with("text/event-stream")
}

/// The last message of a stream; what comes before it is sent. `None` where the client is gone.
async fn stream(response: Response, id: &str, sink: &Sink) -> Option<Message> {
    let status = response.status().as_u16();
    Some(match forward(response.into_body(), id, sink).await? {
        Ok(()) => json_message(&json!({"type": "response", "id": id, "status": status, "done": true})),
        Err(why) => error(Some(id), &ContainerFailure::new(500, "STREAM_ERROR", why)),
    })
}

/// The message of an answer that is no stream.
async fn whole(response: Response, id: &str) -> Message {
    let (status, is_json) =
        (response.status().as_u16(), content_type(&response).starts_with("application/json"));
    let Ok(whole) = response.into_body().collect().await else {
        return error(Some(id), &ContainerFailure::internal("the answer cannot be read"));
    };
    let bytes = whole.to_bytes();
    let text = String::from_utf8_lossy(&bytes);
    let body = if is_json { text } else { json!(text).to_string().into() };
    let id = json!(id);
    Message::Text(
        format!(r#"{{"type":"response","id":{id},"status":{status},"body":{body},"done":true}}"#).into(),
    )
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
        // The bytes that were searched before have no end of an event, but they may end with the
        // first half of one.
        let mut from = buffer.len().saturating_sub(1);
        buffer.extend_from_slice(&bytes);
        let mut done = 0;
        while let Some(end) = buffer[from..].windows(2).position(|pair| pair == b"\n\n").map(|at| from + at) {
            if let Some(event) = ParsedEvent::read(&buffer[done..end]) {
                send_message(sink, event.message(id)).await?;
            }
            (done, from) = (end + 2, end + 2);
        }
        buffer.drain(..done);
    }
    Some(Ok(()))
}

/// One event of a stream, as the WHATWG has them; without comments.
struct ParsedEvent {
    name: Option<String>,
    data: String,
}

impl ParsedEvent {
    fn read(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let values = |field: &'static str| {
            let of = move |line: &str| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned);
            text.lines()
                .filter_map(of)
                .map(|value| value.strip_prefix(' ').map_or(value.clone(), str::to_owned))
        };
        let data: Vec<String> = values("data").collect();
        let name = values("event").next_back();
        (!data.is_empty()).then(|| ParsedEvent { name, data: data.join("\n") })
    }

    fn message(&self, id: &str) -> Message {
        let mut message = json!({"type": "stream", "id": id, "data": self.data});
        if let Some(name) = &self.name {
            message["event"] = name.as_str().into();
        }
        json_message(&message)
    }
}

fn error(id: Option<&str>, failure: &ContainerFailure) -> Message {
    let (code, message, status) = (failure.code(), failure.message(), failure.status());
    let mut error_message = json!({"type": "error", "code": code, "message": message, "status": status});
    if let Some(id) = id {
        error_message["id"] = id.into();
    }
    json_message(&error_message)
}

fn json_message(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

/// `None` where the client is gone.
async fn send_message(sink: &Sink, message: Message) -> Option<()> {
    sink.lock().await.send(message).await.ok()
}

/// The same as a task.
async fn send_from_task(sink: Arc<Sink>, message: Message) {
    send_message(&sink, message).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_data_and_comments_none() {
        let read = |text: &str| ParsedEvent::read(text.as_bytes()).map(|event| (event.name, event.data));
        assert_eq!(read(": still there"), None);
        assert_eq!(read("data: {\"a\": 1}"), Some((None, "{\"a\": 1}".to_owned())));
        assert_eq!(
            read("id: 1\nevent: x\ndata:  a\ndata:b"),
            Some((Some("x".to_owned()), " a\nb".to_owned()))
        );
    }

    #[test]
    fn what_is_no_request_has_its_id_all_the_same() {
        let text = r#"{"type": "request", "id": "1", "headers": [1]}"#;
        assert_eq!(read(Bytes::from(text)).expect_err("headers are no list").0.as_deref(), Some("1"));
        assert_eq!((id_of(b"[1]"), id_of(b"{")), (None, None));
    }

    #[test]
    fn a_message_has_its_body_as_it_was_sent() {
        let message =
            read(Bytes::from(r#"{"type": "request", "id": "1", "body": {"a" : 1}}"#)).expect("a request");
        assert_eq!((message.kind.as_str(), message.body.as_deref()), ("request", Some(&br#"{"a" : 1}"#[..])));
        assert_eq!(read(Bytes::from(r#"{"type": "cancel"}"#)).expect("no body").body, None);
        let bomb = format!(r#"{{"id": "7", "x": [{}0]}}"#, r#"{"":0},"#.repeat(100_000));
        let (id, refused) = read(Bytes::from(bomb)).expect_err("too many values");
        assert_eq!((id.as_deref(), refused.code(), refused.status()), (Some("7"), "VALIDATION_FAILED", 400));
    }
}
