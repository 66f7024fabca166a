//! One message of the protocol in each line of a connection, within the bounds of all messages.
//!
//! A line is scanned while it arrives; what is too large is answered with an error that names the
//! limit, and skipped to its end. A long one is parsed on a thread that may block. Memory for a
//! long answer is reserved before it is written as JSON, and kept until the client has taken it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ErrorData, JsonRpcResponse, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, watch};

use super::render;
use crate::auth::OwnerId;
use crate::body::{JsonPrefix, MAX_BODY_BYTES, long_json_bytes};
use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::intake::{self, Messages, Reservation};
use crate::scan::Scanner;

type ReceivedMessage = RxJsonRpcMessage<RoleServer>;
type SentMessage = TxJsonRpcMessage<RoleServer>;

/// What comes of a line.
enum LineResult {
    Message(Box<ReceivedMessage>),
    /// Nothing to be handled: it is no JSON, or nothing that the protocol knows and wants an answer
    /// to.
    Ignored,
    Rejected(Box<ErrorData>),
    /// An error was sent; false where the client is gone.
    Answered(bool),
}

type PendingLine = Pin<Box<dyn Future<Output = LineResult> + Send>>;

/// A connection of lines.
pub(super) struct LineTransport<R, W> {
    read: BufReader<R>,
    write: Arc<LineWriter<W>>,
    connection: Arc<Connection>,
    line: Vec<u8>,
    scanner: Scanner,
    /// The rest of a line that was rejected is skipped.
    skips: bool,
    /// Survives that [`Transport::receive`] is dropped.
    pending: Option<PendingLine>,
    /// Messages that the client has not taken.
    sending: watch::Sender<usize>,
}

/// Messages that wait for the client to take them. With more, nothing is read.
const MAX_SENDING: usize = 64;

/// Counts a message until it is sent, or dropped.
struct SendingGuard(watch::Sender<usize>);

impl SendingGuard {
    fn begin(sending: &watch::Sender<usize>) -> Self {
        sending.send_modify(|count| *count += 1);
        SendingGuard(sending.clone())
    }
}

impl Drop for SendingGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl<R: AsyncRead + Unpin + Send, W: AsyncWrite + Unpin + Send + 'static> LineTransport<R, W> {
    pub fn new(read: R, write: W, connection: Arc<Connection>, messages: Messages, owner: OwnerId) -> Self {
        LineTransport {
            read: BufReader::new(read),
            write: Arc::new(LineWriter { stream: Mutex::new(write), messages, owner }),
            connection,
            line: Vec::new(),
            scanner: Scanner::new(),
            skips: false,
            pending: None,
            sending: watch::Sender::default(),
        }
    }

    /// As `read_line`, once the client has taken most of what was sent to it.
    async fn read_next_line(&mut self) -> bool {
        // The sender is in self: the wait cannot fail.
        let _ = self.sending.subscribe().wait_for(|count| *count < MAX_SENDING).await;
        self.read_line().await
    }

    /// Reads up to the end of a line, and has it handled; false at the end of the connection.
    /// Nothing is lost where it is dropped.
    async fn read_line(&mut self) -> bool {
        let Ok(available) = self.read.fill_buf().await else { return false };
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        let consumed = end.map_or(part.len(), |end| end + 1);
        if consumed == 0 {
            return false;
        }
        let mut rejected = None;
        if !self.skips {
            rejected = match self.scanner.feed(part) {
                Err(excess) => Some(excess.into_rejection("the message")),
                Ok(()) if self.line.len() + part.len() > MAX_BODY_BYTES => Some(
                    ApiRejection::new(
                        Code::BodyTooLarge,
                        format!("the message has more than {MAX_BODY_BYTES} bytes"),
                    )
                    .with("most_bytes", MAX_BODY_BYTES),
                ),
                Ok(()) => None,
            };
            if rejected.is_none() {
                self.line.extend_from_slice(part);
            }
        }
        self.read.consume(consumed);
        if let Some(rejection) = rejected {
            (self.line, self.skips) = (Vec::new(), true);
            self.pending = Some(answer(self.write.clone(), refused(&rejection)));
        }
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            let reserved = self.connection.meter.settle();
            if !std::mem::take(&mut self.skips) && !line.is_empty() {
                self.pending = Some(Box::pin(parse(line, reserved)));
            }
            self.scanner = Scanner::new();
        }
        true
    }
}

/// Parses a line. What was reserved for it is given back once it is a message.
async fn parse(line: Vec<u8>, reserved: Vec<Reservation>) -> LineResult {
    let parsed = intake::parse(line, |line| {
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            return LineResult::Ignored;
        }
        match serde_json::from_slice::<ReceivedMessage>(line) {
            Ok(message) => LineResult::Message(Box::new(message)),
            Err(error) if error.is_data() && !is_notification(line) => {
                LineResult::Rejected(Box::new(ErrorData::invalid_request("Invalid request", None)))
            }
            // There is nothing to answer to; an error could be answered with another without end.
            Err(_) => LineResult::Ignored,
        }
    });
    let parsed = parsed.await;
    drop(reserved);
    parsed.unwrap_or_else(|rejection| LineResult::Rejected(Box::new(refused(&rejection))))
}

/// Whether it wants no answer.
fn is_notification(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct MessageHead {
        id: Option<IgnoredAny>,
        method: Option<IgnoredAny>,
    }
    serde_json::from_slice::<MessageHead>(line).is_ok_and(|head| head.id.is_none() && head.method.is_some())
}

fn refused(rejection: &ApiRejection) -> ErrorData {
    ErrorData::invalid_request(rejection.message.clone(), Some(rejection.json()))
}

fn answer<W: AsyncWrite + Unpin + Send + 'static>(
    write: Arc<LineWriter<W>>,
    error: ErrorData,
) -> PendingLine {
    Box::pin(async move { LineResult::Answered(write.send(SentMessage::error(error, None)).await.is_ok()) })
}

/// The client's end of a connection.
struct LineWriter<W> {
    stream: Mutex<W>,
    messages: Messages,
    owner: OwnerId,
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    async fn send(&self, message: SentMessage) -> io::Result<()> {
        let (mut line, _reserved) = line_of(message, &self.messages, &self.owner).await;
        line.push(b'\n');
        let mut stream = self.stream.lock().await;
        stream.write_all(&line).await?;
        stream.flush().await
    }
}

/// A message as it is sent, with the memory that is reserved for it where it is long. An answer for
/// which there is none within the patience is replaced by an error.
async fn line_of(
    message: SentMessage,
    messages: &Messages,
    owner: &OwnerId,
) -> (Vec<u8>, Option<Reservation>) {
    let text = JsonPrefix::of(&message);
    let Err(bytes) = text.whole() else { return (text.beginning, None) };
    drop(text);
    match messages.answers.reserve(owner, bytes, messages.patience).await {
        Ok(reserved) => (long_json_bytes(&message, bytes), Some(reserved)),
        Err(rejection) => (JsonPrefix::of(&unanswered(message, rejection)).beginning, None),
    }
}

/// What is sent in place of a message that was refused memory.
fn unanswered(message: SentMessage, rejection: ApiRejection) -> SentMessage {
    let (id, run_id) = match message {
        SentMessage::Response(JsonRpcResponse { id, result, .. }) => {
            let structured = match result {
                ServerResult::CallToolResult(result) => result.structured_content,
                _ => None,
            };
            let run_id = structured.and_then(|answer| answer["run_id"].as_str().map(str::to_owned));
            (Some(id), run_id)
        }
        SentMessage::Error(error) => (error.id, None),
        SentMessage::Request(_) | SentMessage::Notification(_) => (None, None),
    };
    let render::ToolAnswer { text, structured, .. } =
        render::rejection_answer(&rejection.after_execution(run_id.as_deref()));
    SentMessage::error(ErrorData::invalid_request(text, Some(structured)), id)
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(&mut self, message: SentMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (write, sending) = (self.write.clone(), SendingGuard::begin(&self.sending));
        async move {
            let _sending = sending;
            write.send(message).await
        }
    }

    async fn receive(&mut self) -> Option<ReceivedMessage> {
        loop {
            if let Some(pending) = &mut self.pending {
                let line = pending.await;
                self.pending = None;
                match line {
                    LineResult::Message(message) => return Some(*message),
                    LineResult::Ignored | LineResult::Answered(true) => {}
                    LineResult::Rejected(error) => self.pending = Some(answer(self.write.clone(), *error)),
                    LineResult::Answered(false) => return None,
                }
            } else if !self.read_next_line().await {
                // A connection that was ended because too much was under way gets the reason.
                let rejection = self.connection.meter.refused()?;
                self.pending = Some(answer(self.write.clone(), refused(&rejection)));
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.write.stream.lock().await.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rmcp::model::{CallToolResult, ContentBlock, RequestId};
    use serde_json::{Value, json};

    use super::*;

    fn answer_of(bytes: usize) -> SentMessage {
        let mut result = CallToolResult::success(vec![ContentBlock::text("x".repeat(bytes))]);
        result.structured_content = Some(json!({"run_id": "r"}));
        SentMessage::response(ServerResult::CallToolResult(result), RequestId::Number(7))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn long_answers_without_memory_become_errors() {
        let owner = OwnerId::recorded("a");
        let patience = Duration::from_millis(10);
        let messages = Messages::new(std::slice::from_ref(&owner), patience, patience);
        let line = async |bytes| line_of(answer_of(bytes), &messages, &owner).await;
        let (long, reserved) = line(1 << 20).await;
        assert!(long.len() > 1 << 20 && reserved.is_some());
        let others =
            messages.answers.try_reserve(&owner, (511 << 20) - (64 << 10)).expect("all but one answer's");
        let (refused, nothing) = line(1 << 20).await;
        let refused: Value = serde_json::from_slice(&refused).expect("JSON");
        let data = &refused["error"]["data"];
        assert_eq!(
            (&refused["id"], &data["code"], &data["retryable"], &data["details"]["run_id"]),
            (&json!(7), &json!("answer_unavailable"), &json!(false), &json!("r")),
            "{refused}"
        );
        assert!(nothing.is_none());
        // What is short needs none.
        assert!(line(100).await.0.len() < 400);
        drop((reserved, others));
        assert!(line(1 << 20).await.1.is_some());
    }
}
