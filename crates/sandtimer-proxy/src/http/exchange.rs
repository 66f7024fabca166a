//! One request and its response.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::buffered::Buffered;
use crate::context::ConnectionContext;
use crate::dial::Upstream;
use crate::event::ConnectionEnd;
use crate::http::answer::Rejection;
use crate::http::body::{BodyCopy, BodyError};
use crate::http::fields::Framing;
use crate::http::head;
use crate::http::request::{HttpRequest, RequestKind};
use crate::http::response::Response;
use crate::listener::ClientConnection;
use crate::traffic::Traffic;

/// Responses before the final one (100 Continue, 103 Early Hints).
const MAX_INTERIM: usize = 16;

/// How an exchange ended.
pub(crate) enum ExchangeEnd {
    Complete {
        keeps_open: bool,
        /// False if the server answered before it had the whole body.
        sent_all: bool,
    },
    /// The server switched to WebSocket.
    Upgraded,
    /// The connection of the client cannot be used further.
    Stopped(ConnectionEnd),
    /// The request's body is malformed, and the client has not got anything of a response.
    Rejected(Rejection),
    /// The same, and the server did not answer as it should.
    Unanswered { end: ConnectionEnd, status: u16, message: String },
}

/// Sends a request to its server, and the response to the client. The server's connection is used
/// for this one only.
pub(crate) async fn exchange(
    context: &ConnectionContext,
    client: &mut ClientConnection,
    upstream: &mut Upstream,
    request: &HttpRequest,
    traffic: &Traffic,
) -> ExchangeEnd {
    let has_answered = AtomicBool::new(false);
    let state = ExchangeState { traffic, has_answered: &has_answered };
    let end = tokio::select! {
        end = carry(context, client, upstream, request, &state) => end,
        () = traffic.until_idle(context.bounds.idle) => ExchangeEnd::Unanswered {
            end: ConnectionEnd::Idle,
            status: 504,
            message: format!("{} sent nothing for {:?}. Try again later.", request.target, context.bounds.idle),
        },
    };
    match end {
        // An answer within another one would be read as a part of it.
        ExchangeEnd::Rejected(_) if has_answered.load(Ordering::Relaxed) => {
            ExchangeEnd::Stopped(ConnectionEnd::Failed)
        }
        ExchangeEnd::Unanswered { end, .. } if has_answered.load(Ordering::Relaxed) => {
            ExchangeEnd::Stopped(end)
        }
        end => end,
    }
}

struct ExchangeState<'a> {
    traffic: &'a Traffic,
    /// True once a byte of a response may have been sent to the client.
    has_answered: &'a AtomicBool,
}

/// Sends the request while the response is read: a server may answer before it has the whole body.
async fn carry(
    context: &ConnectionContext,
    client: &mut ClientConnection,
    upstream: &mut Upstream,
    request: &HttpRequest,
    state: &ExchangeState<'_>,
) -> ExchangeEnd {
    let mut upload = pin!(upload(&mut client.reader, &mut upstream.writer, request, state.traffic));
    let mut download = pin!(download(context, &mut upstream.reader, &mut client.writer, request, state));
    let mut upload_result = None;
    loop {
        tokio::select! {
            result = &mut upload, if upload_result.is_none() => match result {
                Err(BodyError::Source(reason)) => {
                    return ExchangeEnd::Rejected(Rejection::bad_request(format!(
                        "The body of the request is not carried: {reason}."
                    )));
                }
                Err(BodyError::Stopped(end)) => return bytes_used(end),
                // The server may have answered and closed.
                result => upload_result = Some(result),
            },
            end = &mut download => {
                // What is left of a body is not a request.
                let all = upload_result == Some(Ok(()));
                return match end {
                    ExchangeEnd::Complete { keeps_open, .. } => {
                        ExchangeEnd::Complete { keeps_open: keeps_open && all, sent_all: all }
                    }
                    end => end,
                };
            }
        }
    }
}

fn bytes_used(end: ConnectionEnd) -> ExchangeEnd {
    let message =
        "The sandbox has used the bytes that its network may carry. To allow more, raise the limit of bytes.";
    ExchangeEnd::Unanswered { end, status: 403, message: message.to_owned() }
}

async fn upload<R, W>(
    source: &mut Buffered<R>,
    sink: &mut W,
    request: &HttpRequest,
    traffic: &Traffic,
) -> Result<(), BodyError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let RequestKind::Forward { head, framing, .. } = &request.kind else { return Ok(()) };
    traffic.count_sent(head.len()).map_err(BodyError::Stopped)?;
    sink.write_all(head).await.map_err(|_| BodyError::Sink)?;
    let count = |bytes| traffic.count_sent(bytes);
    BodyCopy { source, sink, count, writes_chunks: true }.run(*framing).await
}

async fn download<R, W>(
    context: &ConnectionContext,
    source: &mut Buffered<R>,
    sink: &mut W,
    request: &HttpRequest,
    state: &ExchangeState<'_>,
) -> ExchangeEnd
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let traffic = state.traffic;
    let response = match final_response(context, source, sink, request, state).await {
        Ok(response) => response,
        Err(end) => return end,
    };
    if let Err(end) = traffic.count_received(response.head.len()) {
        return bytes_used(end);
    }
    state.has_answered.store(true, Ordering::Relaxed);
    if sink.write_all(&response.head).await.is_err() {
        return ExchangeEnd::Stopped(ConnectionEnd::Failed);
    }
    if response.status == 101 {
        return ExchangeEnd::Upgraded;
    }
    let count = |bytes| traffic.count_received(bytes);
    let writes_chunks = response.client_framing == Framing::Chunked;
    match (BodyCopy { source, sink, count, writes_chunks }).run(response.framing).await {
        Ok(()) => ExchangeEnd::Complete { keeps_open: response.keeps_open, sent_all: true },
        Err(BodyError::Stopped(end)) => ExchangeEnd::Stopped(end),
        Err(BodyError::Source(_) | BodyError::Sink) => ExchangeEnd::Stopped(ConnectionEnd::Failed),
    }
}

/// Reads heads until the final one. Those before it are sent to the client, if its version has
/// them.
async fn final_response<R, W>(
    context: &ConnectionContext,
    source: &mut Buffered<R>,
    sink: &mut W,
    request: &HttpRequest,
    state: &ExchangeState<'_>,
) -> Result<Response, ExchangeEnd>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let unanswered = |reason: String| ExchangeEnd::Unanswered {
        end: ConnectionEnd::Failed,
        status: 502,
        message: format!("The response of {} is not carried: {reason}.", request.target),
    };
    let is_upgrade = matches!(request.kind, RequestKind::Forward { is_upgrade: true, .. });
    for _ in 0..MAX_INTERIM {
        let head = head::read(source, context.bounds.head_bytes).await;
        let head =
            head.map_err(|rejection| unanswered(rejection.message.trim_end_matches('.').to_owned()))?;
        let response = Response::parse(&head, request, is_upgrade).map_err(unanswered)?;
        if !response.is_interim() {
            return Ok(response);
        }
        state.traffic.count_received(response.head.len()).map_err(bytes_used)?;
        if request.version == 1 {
            state.has_answered.store(true, Ordering::Relaxed);
            sink.write_all(&response.head).await.map_err(|_| ExchangeEnd::Stopped(ConnectionEnd::Failed))?;
        }
    }
    Err(unanswered("it has too many interim responses".to_owned()))
}
