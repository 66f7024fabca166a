//! Output of a run by position, while it is active and after.

use sandtimer::engine::{RunOutput, Stream};
use sandtimer::model::Encoding;
use sandtimer::supervise::output::{Chunk, base64};
use serde_json::{Value, json};

use super::encoding_error_mode::EncodingErrorMode;
use super::live::{LiveRun, RunPhase, enter_large};
use super::record::nothing;
use crate::body::RequestFields;
use crate::error::ApiRejection;
use crate::intake::MAX_SHORT_BYTES;
use crate::quota::PermittedValue;
use crate::registry::OwnedResource;

/// Bytes of an answer: the default; the minimum, so that every character fits; the maximum.
const DEFAULT_OUTPUT_BYTES: u64 = 256 * 1024;
const MIN_OUTPUT_BYTES: u64 = 16;
const MAX_OUTPUT_BYTES: u64 = 8 << 20;

/// What of the output is asked for.
#[derive(Debug)]
pub(super) struct OutputRequest {
    stream: Stream,
    cursor: u64,
    most: usize,
    errors: EncodingErrorMode,
}

impl OutputRequest {
    pub fn parse(fields: &mut RequestFields) -> Result<Self, ApiRejection> {
        let stream = stream(fields)?;
        let cursor = fields.number("cursor")?.unwrap_or(0);
        let most = fields
            .number("max_bytes")?
            .unwrap_or(DEFAULT_OUTPUT_BYTES)
            .clamp(MIN_OUTPUT_BYTES, MAX_OUTPUT_BYTES);
        Ok(OutputRequest { stream, cursor, most: most as usize, errors: EncodingErrorMode::parse(fields)? })
    }
}

/// Takes the stream; stdout by default.
pub(super) fn stream(fields: &mut RequestFields) -> Result<Stream, ApiRejection> {
    let given = fields.enumeration("stream", &["stdout", "stderr"])?;
    Ok(if given == Some("stderr") { Stream::Stderr } else { Stream::Stdout })
}

pub(super) fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

/// Output from a position, and whether it is all there will ever be up to its end.
pub(super) async fn chunk(
    phase: &RunPhase,
    stream: Stream,
    cursor: u64,
    most: usize,
) -> Result<(Chunk, bool), ApiRejection> {
    match phase {
        RunPhase::Queued(_) => Ok((nothing(), false)),
        RunPhase::Running(run) => Ok((run.output(stream, cursor, most)?, false)),
        RunPhase::Ended(record) => {
            let chunk = record.output(stream, cursor, most).await?;
            let following = record.output(stream, chunk.next_cursor, 1).await?;
            let last = following.next_cursor == chunk.next_cursor;
            Ok((chunk, last))
        }
    }
}

/// A piece of the output as it is answered. A permit is waited for only where there is more of it
/// than is short.
pub(super) async fn read(
    run: &LiveRun,
    asked: &OutputRequest,
) -> Result<PermittedValue<Value>, ApiRejection> {
    let short = asked.most.min(MAX_SHORT_BYTES);
    let (phase, chunk, last) = read_bounded(run, asked, short).await?;
    if asked.most == short || chunk.bytes.len() < short {
        return Ok(PermittedValue::new(described(run, asked, &phase, chunk, last), None));
    }
    drop(chunk);
    let permit = enter_large(run.owner(), asked.most as u64).await;
    let (phase, chunk, last) = read_bounded(run, asked, asked.most).await?;
    Ok(PermittedValue::new(described(run, asked, &phase, chunk, last), permit))
}

/// Output from where it is asked for, where the run is, and whether it is all there will ever be up
/// to its end.
async fn read_bounded(
    run: &LiveRun,
    asked: &OutputRequest,
    most: usize,
) -> Result<(RunPhase, Chunk, bool), ApiRejection> {
    let phase = run.phase();
    let (chunk, last) = match run.left() {
        Some(left) => read_after_end(&left, asked, most)?,
        None => chunk(&phase, asked.stream, asked.cursor, most).await?,
    };
    Ok((phase, chunk, last))
}

fn described(run: &LiveRun, asked: &OutputRequest, phase: &RunPhase, chunk: Chunk, last: bool) -> Value {
    let piece = Piece::with(asked.errors, chunk, last);
    json!({
        "run_id": run.id(),
        "status": phase.name(),
        "stream": name(asked.stream),
        "cursor": piece.cursor,
        "next_cursor": piece.next_cursor,
        "data": piece.data,
        "encoding": piece.encoding,
        "dropped_before": piece.dropped_before,
        "ended": last,
    })
}

/// Output of a run that has ended and of what it left running; whether it is all there is by now.
fn read_after_end(
    output: &RunOutput,
    asked: &OutputRequest,
    most: usize,
) -> Result<(Chunk, bool), ApiRejection> {
    let chunk = output.read(asked.stream, asked.cursor, most)?;
    let following = output.read(asked.stream, chunk.next_cursor, 1)?;
    let last = following.next_cursor == chunk.next_cursor;
    Ok((chunk, last))
}

/// A chunk as it is sent: text where it is text.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    pub data: String,
    pub encoding: Encoding,
    /// Where the data begins in the stream, and where to continue.
    pub cursor: u64,
    pub next_cursor: u64,
    pub dropped_before: u64,
}

impl Piece {
    /// A chunk with what is not text in it as it is wanted.
    pub fn with(errors: EncodingErrorMode, chunk: Chunk, last: bool) -> Self {
        match errors {
            EncodingErrorMode::Strict => Piece::of(chunk, last),
            EncodingErrorMode::Replace => Piece::text(chunk, last),
        }
    }

    /// A character that is cut by the end of the chunk is left for the next one, unless there is
    /// none.
    pub fn of(chunk: Chunk, last: bool) -> Self {
        let Chunk { mut bytes, mut next_cursor, dropped_before } = chunk;
        let cursor = next_cursor - bytes.len() as u64;
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
            && !last
        {
            next_cursor -= (bytes.len() - error.valid_up_to()) as u64;
            bytes.truncate(error.valid_up_to());
        }
        let (data, encoding) = match String::from_utf8(bytes) {
            Ok(text) => (text, Encoding::Utf8),
            Err(error) => (base64(error.as_bytes()), Encoding::Base64),
        };
        Piece { data, encoding, cursor, next_cursor, dropped_before }
    }

    /// As text: what is none is replaced.
    pub fn text(chunk: Chunk, last: bool) -> Self {
        let Chunk { mut bytes, mut next_cursor, dropped_before } = chunk;
        let cursor = next_cursor - bytes.len() as u64;
        if !last {
            let cut = cut_at_end(&bytes);
            next_cursor -= cut as u64;
            bytes.truncate(bytes.len() - cut);
        }
        let data = String::from_utf8_lossy(&bytes).into_owned();
        Piece { data, encoding: Encoding::Utf8, cursor, next_cursor, dropped_before }
    }
}

/// How many bytes at the end are the beginning of a character.
pub(crate) fn cut_at_end(bytes: &[u8]) -> usize {
    let is_begun = |length: &usize| {
        let tail = &bytes[bytes.len() - length..];
        std::str::from_utf8(tail).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=bytes.len().min(3)).rev().find(is_begun).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: &[u8], last: bool) -> (String, Encoding, u64) {
        let chunk = Chunk { bytes: bytes.to_vec(), next_cursor: 100, dropped_before: 0 };
        let piece = Piece::of(chunk, last);
        assert_eq!(piece.cursor, 100 - bytes.len() as u64);
        (piece.data, piece.encoding, piece.next_cursor)
    }

    #[test]
    fn invalid_utf8_is_replaced_and_cut_characters_are_completed() {
        let text = |bytes: &[u8], last| {
            let chunk = Chunk { bytes: bytes.to_vec(), next_cursor: 100, dropped_before: 0 };
            let piece = Piece::text(chunk, last);
            (piece.data, piece.next_cursor)
        };
        let face = "😀".as_bytes();
        assert_eq!(text(&[b"a\xff", &face[..3]].concat(), false), ("a\u{fffd}".to_owned(), 97));
        assert_eq!(text(&[b"a", face].concat(), false), ("a😀".to_owned(), 100));
        assert_eq!(text(b"a\xff", false), ("a\u{fffd}".to_owned(), 100));
        assert_eq!(text(&face[..2], true), ("\u{fffd}".to_owned(), 100));
    }

    #[test]
    fn a_cut_character_is_left_for_the_next_piece() {
        let face = "😀".as_bytes();
        assert_eq!(piece(&[b"ab", &face[..3]].concat(), false), ("ab".to_owned(), Encoding::Utf8, 97));
        assert_eq!(piece(&face[..1], false), (String::new(), Encoding::Utf8, 99));
        // There is no next one, or it is no character at all.
        assert_eq!(piece(&face[..1], true), ("8A==".to_owned(), Encoding::Base64, 100));
        assert_eq!(piece(b"a\xffb", false), ("Yf9i".to_owned(), Encoding::Base64, 100));
    }
}
