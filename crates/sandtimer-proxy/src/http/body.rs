//! Bodies, from one side to the other, with exact framing.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use crate::buffered::Buffered;
use crate::event::ConnectionEnd;
use crate::http::fields::Framing;

/// The line before a chunk, with its extensions, which are not forwarded; also a field after the
/// last chunk.
const MAX_LINE_BYTES: usize = 4096;
/// Lines after the last chunk. Their fields are not forwarded.
const MAX_TRAILERS: usize = 64;

/// Why a body was not carried to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The side that sends it ended it early, or its chunks are malformed.
    Source(&'static str),
    /// The side that receives it has closed.
    Sink,
    Stopped(ConnectionEnd),
}

/// The two sides of a body.
pub(crate) struct BodyCopy<'a, R, W, C> {
    pub(crate) source: &'a mut Buffered<R>,
    pub(crate) sink: &'a mut W,
    /// Called before bytes are sent.
    pub(crate) count: C,
    /// The framing that the receiver gets: chunks are sent as chunks, or as their contents.
    pub(crate) writes_chunks: bool,
}

impl<R, W, C> BodyCopy<'_, R, W, C>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Fn(usize) -> Result<(), ConnectionEnd>,
{
    pub(crate) async fn run(&mut self, framing: Framing) -> Result<(), BodyError> {
        match framing {
            Framing::Empty => Ok(()),
            Framing::Length(length) => self.copy_length(length).await,
            Framing::Chunked => self.copy_chunks().await,
            Framing::UntilClose => self.copy_until_close().await,
        }
    }

    async fn copy_length(&mut self, length: u64) -> Result<(), BodyError> {
        let mut left = length;
        while left > 0 {
            self.fill_if_empty().await?;
            let available = self.source.data().len();
            let bytes = usize::try_from(left).map_or(available, |left| available.min(left));
            self.send(bytes).await?;
            left -= bytes as u64;
        }
        Ok(())
    }

    async fn copy_until_close(&mut self) -> Result<(), BodyError> {
        loop {
            let bytes = self.source.data().len();
            if bytes > 0 {
                self.send(bytes).await?;
            } else if self.fill().await? == 0 {
                return Ok(());
            }
        }
    }

    async fn copy_chunks(&mut self) -> Result<(), BodyError> {
        loop {
            let size = chunk_size(&self.line().await?)?;
            if self.writes_chunks && size > 0 {
                self.write(format!("{size:x}\r\n").as_bytes()).await?;
            }
            if size == 0 {
                break;
            }
            self.copy_length(size).await?;
            if !self.line().await?.is_empty() {
                return Err(BodyError::Source("a chunk is longer than its size"));
            }
            if self.writes_chunks {
                self.write(b"\r\n").await?;
            }
        }
        for _ in 0..MAX_TRAILERS {
            if self.line().await?.is_empty() {
                return if self.writes_chunks { self.write(b"0\r\n\r\n").await } else { Ok(()) };
            }
        }
        Err(BodyError::Source("too many fields after the last chunk"))
    }

    /// Reads a line without its end, which is CR LF.
    async fn line(&mut self) -> Result<Vec<u8>, BodyError> {
        loop {
            let data = self.source.data();
            if let Some(end) = data.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n') {
                let line = data[..end].strip_suffix(b"\r").map(<[u8]>::to_vec);
                self.source.consume(end + 1);
                return match line {
                    Some(line) if !line.contains(&b'\r') => Ok(line),
                    _ => Err(BodyError::Source("a line between chunks does not end with CR LF alone")),
                };
            }
            if data.len() >= MAX_LINE_BYTES {
                return Err(BodyError::Source("a line between chunks is too long"));
            }
            if self.fill().await? == 0 {
                return Err(BodyError::Source(ENDED_EARLY));
            }
        }
    }

    async fn fill(&mut self) -> Result<usize, BodyError> {
        self.source.fill().await.map_err(|_| BodyError::Source(ENDED_EARLY))
    }

    async fn fill_if_empty(&mut self) -> Result<(), BodyError> {
        if self.source.data().is_empty() && self.fill().await? == 0 {
            return Err(BodyError::Source(ENDED_EARLY));
        }
        Ok(())
    }

    /// Sends what was read, and consumes it.
    async fn send(&mut self, bytes: usize) -> Result<(), BodyError> {
        (self.count)(bytes).map_err(BodyError::Stopped)?;
        self.sink.write_all(&self.source.data()[..bytes]).await.map_err(|_| BodyError::Sink)?;
        self.source.consume(bytes);
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        (self.count)(bytes.len()).map_err(BodyError::Stopped)?;
        self.sink.write_all(bytes).await.map_err(|_| BodyError::Sink)
    }
}

const ENDED_EARLY: &str = "the connection ended in the body";

/// Parses the size of a chunk: hexadecimal digits, and nothing after them but extensions.
fn chunk_size(line: &[u8]) -> Result<u64, BodyError> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let plain = matches!(digits.len(), 1..=16) && digits.iter().all(u8::is_ascii_hexdigit);
    let visible = line.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let digits = std::str::from_utf8(digits).ok().filter(|_| plain && visible);
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(BodyError::Source("a chunk has no valid size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies `body`, and returns what was sent and what was left.
    async fn copy(
        body: &[u8],
        framing: Framing,
        writes_chunks: bool,
    ) -> Result<(Vec<u8>, Vec<u8>), BodyError> {
        let mut source = Buffered::new(body);
        let mut sink = Vec::new();
        let count = |_| Ok(());
        BodyCopy { source: &mut source, sink: &mut sink, count, writes_chunks }.run(framing).await?;
        Ok((sink, source.data().to_vec()))
    }

    #[tokio::test]
    async fn length_leaves_the_next_request() {
        let (sent, left) = copy(b"abcGET", Framing::Length(3), false).await.unwrap();
        assert_eq!((&sent[..], &left[..]), (&b"abc"[..], &b"GET"[..]));
        assert_eq!(copy(b"ab", Framing::Length(3), false).await, Err(BodyError::Source(ENDED_EARLY)));
    }

    #[tokio::test]
    async fn chunks_are_written_again() {
        let body = b"3;a=b\r\nabc\r\n00A \r\n0123456789\r\n0\r\nX: y\r\n\r\nGET";
        let (sent, left) = copy(body, Framing::Chunked, true).await.unwrap();
        assert_eq!(String::from_utf8(sent).unwrap(), "3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n");
        assert_eq!(left, b"GET");
        let (sent, _) = copy(body, Framing::Chunked, false).await.unwrap();
        assert_eq!(sent, b"abc0123456789");
    }

    #[tokio::test]
    async fn chunks_that_parsers_disagree_about_are_refused() {
        for body in [
            &b"3\nabc\r\n0\r\n\r\n"[..],
            b"3\r\nabcd\r\n0\r\n\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"3\r\nabc0\r\n\r\n",
            b"-3\r\nabc\r\n0\r\n\r\n",
            b"0x3\r\nabc\r\n0\r\n\r\n",
            b" 3\r\nabc\r\n0\r\n\r\n",
            b"3 3\r\nabc\r\n0\r\n\r\n",
            b"\r\nabc\r\n0\r\n\r\n",
            b"3\rx\r\nabc\r\n0\r\n\r\n",
            b"3;\x01\r\nabc\r\n0\r\n\r\n",
            b"00000000000000003\r\nabc\r\n0\r\n\r\n",
            b"g\r\n",
            b"3\r\nabc\r\n0\r\nX: y\n\r\n",
            b"3\r\nabc\r\n0\r\n",
            b"3\r\nab",
        ] {
            let result = copy(body, Framing::Chunked, true).await;
            assert!(matches!(result, Err(BodyError::Source(_))), "{}: {result:?}", body.escape_ascii());
        }
        let long = vec![b'1'; MAX_LINE_BYTES + 1];
        assert_eq!(
            copy(&long, Framing::Chunked, true).await,
            Err(BodyError::Source("a line between chunks is too long"))
        );
    }
}
