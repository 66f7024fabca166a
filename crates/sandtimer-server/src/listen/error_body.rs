//! The stream below the HTTP library, as [`ErrorBodyStream`]: it counts what is received, gives the
//! library's own answers a body, and ends a connection whose client takes nothing.
//!
//! The library answers bytes that it cannot read as a request with a bare status. Those are
//! recognised by their missing Content-Type, which every answer of ours has, and get the JSON of an
//! error. Everything else is sent as it is. A write that the client takes nothing of within the
//! write timeout fails, and the connection with it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::connection::Connection;
use crate::error::{ApiRejection, Code};

/// A connection on which bare error answers get a body.
pub(super) struct ErrorBodyStream<S> {
    stream: S,
    connection: Arc<Connection>,
    /// What is written before anything else.
    pending_answer: Vec<u8>,
    /// How long the client may take nothing.
    write_timeout: Duration,
    /// When that ends, while the client takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> ErrorBodyStream<S> {
    pub fn new(stream: S, connection: Arc<Connection>, write_timeout: Duration) -> Self {
        ErrorBodyStream { stream, connection, pending_answer: Vec::new(), write_timeout, stalled: None }
    }

    /// Returns the result of a write, or an error if the client has taken nothing for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let write_timeout = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(write_timeout)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn write_pending(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending_answer.is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.pending_answer);
            let written = ready!(self.watch(context, written))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending_answer.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    /// Whether this is a bare answer, to which the error body is added.
    fn takes(&mut self, bytes: &[u8]) -> bool {
        let Some(rejection) = bare(bytes) else { return false };
        let body = format!("{}\n", rejection.json());
        let status = String::from_utf8_lossy(bytes.split(|byte| *byte == b'\r').next().unwrap_or_default());
        let head = format!(
            "{status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        self.pending_answer = (head + &body).into_bytes();
        true
    }
}

/// What a bare answer means.
fn bare(bytes: &[u8]) -> Option<ApiRejection> {
    let (code, message) = match bytes.strip_prefix(b"HTTP/1.1 ")?.get(..4)? {
        b"400 " => {
            (Code::BadHttp, "the request cannot be read: its first line or a header line is none of HTTP/1.1")
        }
        b"414 " => (Code::UriTooLong, "path and query are too long to be read"),
        b"431 " => (Code::HeadTooLarge, "the head of the request is too large to be read"),
        _ => return None,
    };
    let head = bytes.split(|byte| *byte == b'\n');
    let mut names = head.filter_map(|line| line.split(|byte| *byte == b':').next());
    let has_kind = names.any(|name| name.eq_ignore_ascii_case(b"content-type"));
    (!has_kind).then(|| ApiRejection::new(code, message))
}

impl<S: AsyncRead + Unpin> AsyncRead for ErrorBodyStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.connection.meter.add(buffer.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ErrorBodyStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.write_pending(context))?;
        if self.takes(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.write_pending(context))?;
        if let Some(first) = parts.first()
            && self.takes(first)
        {
            return Poll::Ready(Ok(first.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_pending(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_pending(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn only_answers_without_a_kind_of_content_are_bare() {
        let code = |answer: &str| bare(answer.as_bytes()).map(|rejection| rejection.code.name());
        let empty = "content-length: 0\r\n\r\n";
        assert_eq!(code(&format!("HTTP/1.1 400 Bad Request\r\n{empty}")), Some("bad_http"));
        assert_eq!(code(&format!("HTTP/1.1 431 Too Large\r\n{empty}")), Some("head_too_large"));
        assert_eq!(code(&format!("HTTP/1.1 414 Too Long\r\n{empty}")), Some("uri_too_long"));
        assert_eq!(code(&format!("HTTP/1.1 200 OK\r\n{empty}")), None);
        assert_eq!(code("HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\r\n{}"), None);
        assert_eq!(code("HTTP/1.1 40"), None);
    }
}
