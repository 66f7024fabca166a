//! HTTP/1: `CONNECT`, and requests with absolute URLs, one after the other on a connection.

mod answer;
mod body;
mod exchange;
mod fields;
mod head;
mod request;
mod response;
#[cfg(test)]
mod tests;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::context::{ConnectionContext, send};
use crate::dial::{DialError, dial};
use crate::event::{ConnectionEnd, Protocol};
use crate::http::answer::{FinalResponse, Rejection};
use crate::http::exchange::{ExchangeEnd, exchange};
use crate::http::request::{HttpRequest, RequestKind};
use crate::listener::ClientConnection;
use crate::tunnel;

/// What is read of a client that has its answer and is still sending.
const MAX_LINGER_BYTES: u64 = 256 * 1024;

/// Serves a connection's requests until the client or a bound ends it. Each request is checked by
/// itself.
pub(crate) async fn serve(context: &ConnectionContext, mut client: ClientConnection) {
    loop {
        let request = match next_request(context, &mut client).await {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(rejection) => return reject(context, client, rejection).await,
        };
        let next = match request.kind {
            RequestKind::Connect => tunnel_to(context, &mut client, &request).await,
            RequestKind::Forward { .. } => forward(context, &mut client, &request).await,
        };
        match next {
            Ok(Next::Request) => {}
            Ok(Next::End) => return,
            Ok(Next::Linger) => return linger(context, client).await,
            Err(answer) => return close_with(context, client, answer).await,
        }
    }
}

/// Answers a client that does not speak HTTP, or not yet.
pub(crate) async fn reject_connection(context: &ConnectionContext, client: ClientConnection, message: &str) {
    reject(context, client, Rejection::bad_request(message)).await;
}

enum Next {
    Request,
    End,
    /// The client has its answer, and may still be sending.
    Linger,
}

/// Reads a head and parses it. `None` if the client has ended the connection, or is idle.
async fn next_request(
    context: &ConnectionContext,
    client: &mut ClientConnection,
) -> Result<Option<HttpRequest>, Rejection> {
    if client.reader.data().is_empty() {
        match timeout(context.bounds.idle, client.reader.fill()).await {
            Ok(Ok(1..)) => {}
            _ => return Ok(None),
        }
    }
    let read = head::read(&mut client.reader, context.bounds.head_bytes);
    let head = timeout(context.bounds.head, read).await.unwrap_or_else(|_| {
        Err(Rejection::new(408, "The head of the request was not complete in time. Send it in one piece."))
    })?;
    HttpRequest::parse(&head).map(Some)
}

async fn tunnel_to(
    context: &ConnectionContext,
    client: &mut ClientConnection,
    request: &HttpRequest,
) -> Result<Next, FinalResponse> {
    let (mut upstream, mut traffic) = dial(context, Protocol::HttpConnect, &request.target)
        .await
        .map_err(|error| answer_for(error, request))?;
    if send(context, client, b"HTTP/1.1 200 Connection established\r\n\r\n").await {
        tunnel::carry(context, Protocol::HttpConnect, client, &mut upstream, &mut traffic).await;
    }
    Ok(Next::End)
}

async fn forward(
    context: &ConnectionContext,
    client: &mut ClientConnection,
    request: &HttpRequest,
) -> Result<Next, FinalResponse> {
    let (mut upstream, mut traffic) =
        dial(context, Protocol::Http, &request.target).await.map_err(|error| answer_for(error, request))?;
    let end = exchange(context, client, &mut upstream, request, &traffic).await;
    traffic.end = ConnectionEnd::Finished;
    match end {
        ExchangeEnd::Complete { keeps_open: true, .. } => Ok(Next::Request),
        ExchangeEnd::Complete { sent_all: true, .. } => Ok(Next::End),
        ExchangeEnd::Complete { sent_all: false, .. } => Ok(Next::Linger),
        ExchangeEnd::Upgraded => {
            tunnel::carry(context, Protocol::Http, client, &mut upstream, &mut traffic).await;
            Ok(Next::End)
        }
        ExchangeEnd::Stopped(end) => {
            traffic.end = end;
            Ok(Next::End)
        }
        ExchangeEnd::Rejected(rejection) => {
            traffic.end = ConnectionEnd::Failed;
            context.reject(rejection.message.clone());
            Err(FinalResponse::rejection(&rejection, request.is_head()))
        }
        ExchangeEnd::Unanswered { end, status, message } => {
            traffic.end = end;
            Err(FinalResponse::gateway(status, message, request.is_head()))
        }
    }
}

fn answer_for(error: DialError, request: &HttpRequest) -> FinalResponse {
    match error {
        DialError::Denied(denial) => FinalResponse::denial(&denial, request.is_head()),
        DialError::Unreachable { failure, sentence } => {
            FinalResponse::unreachable(failure, sentence, request.is_head())
        }
    }
}

async fn reject(context: &ConnectionContext, client: ClientConnection, rejection: Rejection) {
    context.reject(rejection.message.clone());
    close_with(context, client, FinalResponse::rejection(&rejection, false)).await;
}

async fn close_with(context: &ConnectionContext, mut client: ClientConnection, answer: FinalResponse) {
    if send(context, &mut client, &answer.bytes()).await {
        linger(context, client).await;
    }
}

/// Ends the connection, and reads what the client still sends: a reset would discard the answer
/// before the client has read it.
async fn linger(context: &ConnectionContext, mut client: ClientConnection) {
    let read = async {
        if client.writer.shutdown().await.is_ok() {
            let mut rest = client.reader.into_inner().take(MAX_LINGER_BYTES);
            let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
        }
    };
    let _ = timeout(context.bounds.head, read).await;
}
