//! Output cut to what a model can take: its beginning and its end, folded, and where the rest is.

use sandtimer::engine::Stream;

use super::plain::{Fold, FoldedPart};
use crate::error::ApiRejection;
use crate::registry::OwnedResource;
use crate::runs::{LiveRun, cut_at_end};

/// Bytes of an excerpt: the default, the minimum and the maximum.
pub(super) const DEFAULT_EXCERPT_BYTES: usize = 18_000;
pub(super) const MIN_EXCERPT_BYTES: usize = 100;
pub(super) const MAX_EXCERPT_BYTES: usize = 200_000;
/// Bytes that are read at a time, and the most that is read for one excerpt.
const PIECE_BYTES: usize = 256 * 1024;
const MAX_READ_BYTES: u64 = 64 << 20;

/// A part of one stream of a run. Its bounds are of its JSON, so that an answer's structured
/// content can have it whole.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    head: Vec<u8>,
    head_weight: usize,
    tail: Vec<u8>,
    /// The position at which to continue after it.
    pub cursor: u64,
    /// Where what is left out between head and tail begins in the stream.
    gap: u64,
    /// Bytes between head and tail.
    skipped: u64,
    /// Bytes that are kept nowhere: past the output limit.
    pub dropped: u64,
}

impl Excerpt {
    /// What there is from a position on, at most `most` bytes of it, folded as [`Fold`] does.
    pub async fn read(run: &LiveRun, stream: Stream, from: u64, most: usize) -> Result<Self, ApiRejection> {
        let mut excerpt = Excerpt { cursor: from, gap: from, ..Excerpt::default() };
        let mut fold = Fold::from(from);
        let mut has_ended = false;
        while excerpt.cursor - from < MAX_READ_BYTES {
            has_ended = run.status() == "ended";
            let chunk = run.output(stream, excerpt.cursor, PIECE_BYTES).await?;
            excerpt.dropped += chunk.dropped_before;
            excerpt.cursor = chunk.next_cursor;
            if chunk.bytes.is_empty() {
                break;
            }
            fold.feed(&chunk.bytes, chunk.next_cursor, &mut |part| excerpt.take(part, most));
        }
        // The rest of a character may come.
        let cut = |line: &[u8]| if has_ended { 0 } else { cut_at_end(line) };
        let end = excerpt.cursor;
        excerpt.cursor -= fold.finish(end, cut, &mut |part| excerpt.take(part, most));
        excerpt.trim(most);
        Ok(excerpt)
    }

    fn take(&mut self, part: FoldedPart<'_>, most: usize) {
        let mut first = 0;
        if self.tail.is_empty() {
            while let Some(byte) = part.bytes.get(first)
                && self.head_weight + weight(*byte) <= most / 2
            {
                self.head_weight += weight(*byte);
                first += 1;
            }
            self.gap = match first {
                _ if first == part.bytes.len() => part.end,
                _ if part.is_exact => part.start + first as u64,
                _ => part.start,
            };
        }
        let (head, rest) = part.bytes.split_at(first);
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * most {
            self.trim(most);
        }
    }

    fn trim(&mut self, most: usize) {
        let mut left = most - most / 2;
        let fits = |byte: &&u8| {
            let fits = weight(**byte) <= left;
            left = left.saturating_sub(weight(**byte));
            fits
        };
        let kept = self.tail.iter().rev().take_while(fits).count();
        let cut = self.tail.len() - kept;
        self.tail.drain(..cut);
        self.skipped += cut as u64;
    }

    pub fn is_whole(&self) -> bool {
        self.skipped == 0 && self.dropped == 0
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty()
    }

    /// As a model reads it. What is no text is replaced.
    pub fn text(&self, run: &LiveRun) -> String {
        if self.skipped == 0 {
            let all = [&self.head[..], &self.tail[..]].concat();
            return String::from_utf8_lossy(&all).into_owned();
        }
        let cut = cut_at_end(&self.head);
        let (head, gap) = (&self.head[..self.head.len() - cut], self.gap - cut as u64);
        let begun = self.tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(&self.tail[begun..]));
        format!(
            "{head}\n[… {} bytes are left out here; read_output with run_id \"{}\" and cursor {gap} shows them …]\n{tail}",
            self.skipped,
            run.id()
        )
    }
}

/// What a byte of a text takes in JSON.
fn weight(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\t' => 2,
        _ => 1,
    }
}

/// The same of a text without codes for terminals.
pub(super) fn text_weight(text: &str) -> usize {
    text.bytes().map(weight).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pieces: &[&[u8]], most: usize) -> Excerpt {
        let (mut excerpt, mut end) = (Excerpt::default(), 0);
        for bytes in pieces {
            let start = end;
            end += bytes.len() as u64;
            excerpt.take(FoldedPart { bytes, start, end, is_exact: true }, most);
        }
        excerpt.trim(most);
        excerpt
    }

    #[test]
    fn what_fits_is_whole_and_of_the_rest_both_ends_are_kept() {
        let whole = taken(&[b"abc", b"defg", b"hij"], 10);
        assert_eq!((whole.skipped, [whole.head, whole.tail].concat()), (0, b"abcdefghij".to_vec()));
        let cut = taken(&[b"0123456789", b"x".repeat(100).as_slice(), b"ABCDEFGHIJ"], 10);
        assert_eq!((&cut.head[..], &cut.tail[..], cut.skipped), (&b"01234"[..], &b"FGHIJ"[..], 110));
        assert_eq!(cut.gap, 5);
    }

    #[test]
    fn what_json_escapes_counts_as_it_is_written() {
        let cut = taken(&[b"a\nb\nc\nd\ne\n"], 10);
        assert_eq!((&cut.head[..], &cut.tail[..], cut.skipped), (&b"a\nb"[..], &b"\ne\n"[..], 4));
        let shown = serde_json::to_string(&String::from_utf8_lossy(&cut.head)).expect("JSON");
        assert!(shown.len() - 2 <= 5, "{shown}");
    }
}
