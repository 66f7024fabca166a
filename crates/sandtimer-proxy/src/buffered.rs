//! A reader that keeps what was read until it is consumed.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

const READ_BYTES: usize = 16 * 1024;

pub(crate) struct Buffered<R> {
    inner: R,
    buffer: Vec<u8>,
    start: usize,
}

impl<R: AsyncRead + Unpin> Buffered<R> {
    pub(crate) fn new(inner: R) -> Buffered<R> {
        Buffered { inner, buffer: Vec::new(), start: 0 }
    }

    pub(crate) fn into_inner(self) -> R {
        self.inner
    }

    /// Returns what was read and not yet consumed.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.buffer.len());
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }

    /// Reads once, at most [`READ_BYTES`], after what is there. 0 is the end. Nothing is lost if
    /// the future is dropped.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(READ_BYTES);
        (&mut self.inner).take(READ_BYTES as u64).read_buf(&mut self.buffer).await
    }

    /// Reads until there are `bytes`. Fails with `UnexpectedEof` if the stream ends before.
    pub(crate) async fn fill_to(&mut self, bytes: usize) -> io::Result<&[u8]> {
        while self.data().len() < bytes {
            if self.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(&self.data()[..bytes])
    }
}
