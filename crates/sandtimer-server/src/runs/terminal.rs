//! `GET /v1/runs/{id}/terminal`: the terminal of a run over a WebSocket.
//!
//! Binary messages are bytes, typed and shown; text messages are JSON (`resize`; `lagged`, `ended`,
//! `error`, `heartbeat`). What is shown is read by position as any run's output: several clients
//! may read it, a client that reconnects with the count of bytes it has had misses nothing, and a
//! client that reads slowly costs a piece of memory and is sent how much was dropped. A connection
//! that closes leaves the run as it is, unless it was to end it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::ExtensionRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use sandtimer::engine::Stream;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::drive::CLIENT_GONE;
use super::live::{LiveRun, RunPhase};
use super::output::chunk;
use super::request::terminal_size;
use super::service::RunService;
use super::stream::{ending, has_outcome};
use crate::auth::{OwnerId, PROTOCOL};
use crate::body::{Id, Parameters, RequestFields};
use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::listen::ConnectionPermit;
use crate::scan::Scanner;

/// Bytes of output of one message.
const PIECE_BYTES: usize = 64 * 1024;
/// Bytes of one message of a client.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// How long a client may take to answer the end of the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

type Sink = Mutex<SplitSink<WebSocket, Message>>;

/// The client of a request and its connection.
pub(super) struct TerminalClient {
    owner: OwnerId,
    connection: Arc<Connection>,
    connection_permit: ConnectionPermit,
}

impl<S: Send + Sync> FromRequestParts<S> for TerminalClient {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ExtensionRejection> {
        let Extension(owner) = Extension::from_request_parts(parts, state).await?;
        let Extension(connection) = Extension::from_request_parts(parts, state).await?;
        let Extension(connection_permit) = Extension::from_request_parts(parts, state).await?;
        Ok(TerminalClient { owner, connection, connection_permit })
    }
}

pub(super) async fn attach(
    State(service): State<Arc<RunService>>,
    client: TerminalClient,
    Id(id): Id,
    Parameters(mut fields): Parameters,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiRejection> {
    let TerminalClient { owner, connection, connection_permit } = client;
    let cursor = fields.number("cursor")?.unwrap_or(0);
    let ends_run = fields.enumeration("on_close", &["keep", "end"])? == Some("end");
    fields.finish()?;
    let run = service.get(&id, &owner)?;
    // Of one that has ended everything is still shown.
    let has_terminal = match run.phase() {
        RunPhase::Queued(_) => false,
        RunPhase::Running(run) => run.has_terminal(),
        RunPhase::Ended(_) => true,
    };
    if !has_terminal {
        return Err(ApiRejection::new(Code::NoTerminal, format!("the run `{id}` has no terminal")));
    }
    let upgrade =
        upgrade.map_err(|rejection| ApiRejection::new(Code::UpgradeRequired, rejection.to_string()))?;
    let attached =
        AttachedClient { service, run, connection, _connection_permit: connection_permit, ends_run };
    attached.connection.meter.begin(&attached.service.core.messages.requests, &owner);
    let upgrade =
        upgrade.protocols([PROTOCOL]).max_message_size(MAX_MESSAGE_BYTES).max_frame_size(MAX_MESSAGE_BYTES);
    Ok(upgrade.on_upgrade(move |socket| attached.serve(socket, cursor)))
}

/// One client at a run's terminal.
struct AttachedClient {
    service: Arc<RunService>,
    run: Arc<LiveRun>,
    connection: Arc<Connection>,
    _connection_permit: ConnectionPermit,
    ends_run: bool,
}

impl AttachedClient {
    async fn serve(self, socket: WebSocket, cursor: u64) {
        let (sink, mut stream) = socket.split();
        let sink = Mutex::new(sink);
        let mut closing = self.service.core.closing.subscribe();
        let why = tokio::select! {
            why = self.show(&sink, cursor) => why,
            () = self.listen(&mut stream, &sink) => None,
            () = self.connection.closed() => None,
            _ = closing.wait_for(|closing| *closing) => Some((close_code::AWAY, "the server ends")),
        };
        if self.ends_run {
            self.run.cancel(CLIENT_GONE);
        }
        let Some((code, reason)) = why else { return };
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        let part = async {
            if sink.lock().await.send(Message::Close(Some(frame))).await.is_ok() {
                // What it still sends is read: a connection that is closed over it would take the
                // last output along.
                while let Some(Ok(_)) = stream.next().await {}
            }
        };
        // A client that does not answer is left.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, part).await;
    }

    /// Sends what is shown until the end; with what to close the connection, if the client is still
    /// there.
    async fn show(&self, sink: &Sink, cursor: u64) -> Option<(u16, &'static str)> {
        let mut shown = ShownOutput { run: self.run.clone(), cursor, ended: false };
        loop {
            let message = match tokio::time::timeout(self.service.core.messages.heartbeat, shown.next()).await
            {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => return Some((close_code::NORMAL, "the run has ended")),
                // The record was removed since then, or cannot be read.
                Ok(Err(_)) => return Some((close_code::ERROR, "the output cannot be read")),
                // As a text message: browsers do not show pings to programs.
                Err(_) => text(&json!({"heartbeat": true})),
            };
            sink.lock().await.send(message).await.ok()?;
        }
    }

    /// Handles the client's messages until it closes. A client that types faster than the run reads
    /// is read more slowly.
    async fn listen(&self, stream: &mut SplitStream<WebSocket>, sink: &Sink) {
        while let Some(Ok(message)) = stream.next().await {
            let _reserved = self.connection.meter.settle();
            let done = match message {
                Message::Binary(bytes) => self.run.input.write(&bytes, Duration::MAX).await.map(drop),
                Message::Text(text) => self.control(&text),
                Message::Ping(_) | Message::Pong(_) | Message::Close(_) => Ok(()),
            };
            if let Err(rejection) = done {
                let sent = sink.lock().await.send(text(&json!({"error": rejection.json()}))).await;
                if sent.is_err() {
                    return;
                }
            }
        }
    }

    fn control(&self, message: &str) -> Result<(), ApiRejection> {
        Scanner::new().feed(message.as_bytes()).map_err(|excess| excess.into_rejection("the message"))?;
        let Ok(Value::Object(object)) = serde_json::from_str(message) else {
            let why = "a text message is a JSON object; bytes are typed by binary messages";
            return Err(ApiRejection::new(Code::BadJson, why));
        };
        let mut fields = RequestFields::new(object);
        let size = fields.value("resize").map(|size| terminal_size("resize", size)).transpose()?;
        fields.finish()?;
        let (columns, line_count) =
            size.ok_or_else(|| ApiRejection::new(Code::BadField, "resize is missing").with("key", "resize"))?;
        Ok(self.run.running()?.resize(columns, line_count)?)
    }
}

/// What is shown to one client.
struct ShownOutput {
    run: Arc<LiveRun>,
    cursor: u64,
    ended: bool,
}

impl ShownOutput {
    /// The next message; `None` after the last. The future may be dropped: it changes the state
    /// only at its end.
    async fn next(&mut self) -> Result<Option<Message>, ApiRejection> {
        if self.ended {
            return Ok(None);
        }
        loop {
            // Subscribed before the read: later changes wake this.
            let mut ended = self.run.watch_phase();
            let phase = ended.borrow_and_update().clone();
            let (chunk, _) = chunk(&phase, Stream::Stdout, self.cursor, PIECE_BYTES).await?;
            if chunk.dropped_before > 0 {
                self.cursor = chunk.next_cursor - chunk.bytes.len() as u64;
                let lagged = json!({"dropped": chunk.dropped_before, "next_cursor": self.cursor});
                return Ok(Some(text(&json!({"lagged": lagged}))));
            }
            if !chunk.bytes.is_empty() {
                self.cursor = chunk.next_cursor;
                return Ok(Some(Message::Binary(chunk.bytes.into())));
            }
            match &phase {
                RunPhase::Ended(record) => {
                    self.ended = true;
                    return Ok(Some(text(&json!({"ended": ending(&self.run, record).await?}))));
                }
                RunPhase::Queued(_) => drop(ended.changed().await),
                RunPhase::Running(run) => tokio::select! {
                    // Of a run that has ended nothing grows: then its record is what is waited for.
                    () = run.grown([self.cursor, u64::MAX]), if !has_outcome(run) => {}
                    _ = ended.changed() => {}
                },
            }
        }
    }
}

fn text(message: &Value) -> Message {
    Message::Text(message.to_string().into())
}
