//! Output cut to what a model can take: its beginning and its end, and where the rest is.

use sandtimer::engine::Stream;

use crate::error::Refusal;
use crate::owned::Owned;
use crate::runs::{LiveRun, cut_at_end};

/// Bytes of an excerpt unless a call says how many; at least; at most.
pub(super) const USUAL: usize = 20_000;
pub(super) const LEAST: usize = 100;
pub(super) const MOST: usize = 200_000;
/// Bytes that are read at a time, and the most that is read for one excerpt.
const PIECE: usize = 256 * 1024;
const LONGEST: u64 = 64 << 20;

/// A part of one stream of a run.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Where it begins, and where to go on behind it.
    pub from: u64,
    pub cursor: u64,
    /// Bytes between head and tail.
    skipped: u64,
    /// Bytes that are kept nowhere: past the output limit.
    pub dropped: u64,
}

impl Excerpt {
    /// What there is from a position on, at most `most` bytes of it.
    pub async fn read(run: &LiveRun, stream: Stream, from: u64, most: usize) -> Result<Self, Refusal> {
        let mut excerpt = Excerpt { from, cursor: from, ..Excerpt::default() };
        while excerpt.cursor - from < LONGEST {
            let is_over = run.status() == "ended";
            let chunk = run.output(stream, excerpt.cursor, PIECE).await?;
            excerpt.dropped += chunk.dropped_before;
            excerpt.cursor = chunk.next_cursor;
            excerpt.take(&chunk.bytes, most);
            if chunk.bytes.is_empty() {
                excerpt.leave_cut_character(is_over);
                break;
            }
        }
        excerpt.trim(most);
        Ok(excerpt)
    }

    fn take(&mut self, bytes: &[u8], most: usize) {
        let room = (most / 2).saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * most {
            self.trim(most);
        }
    }

    fn trim(&mut self, most: usize) {
        let cut = self.tail.len().saturating_sub(most - most / 2);
        self.tail.drain(..cut);
        self.skipped += cut as u64;
    }

    /// The rest of a character may come.
    fn leave_cut_character(&mut self, is_over: bool) {
        let last = if self.tail.is_empty() { &mut self.head } else { &mut self.tail };
        let cut = if is_over { 0 } else { cut_at_end(last) };
        last.truncate(last.len() - cut);
        self.cursor -= cut as u64;
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
        let head = &self.head[..self.head.len() - cut_at_end(&self.head)];
        let behind = self.from + head.len() as u64;
        let begun = self.tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(&self.tail[begun..]));
        format!(
            "{head}\n[… {} bytes are left out here; read_output with run_id \"{}\" and cursor {behind} shows them …]\n{tail}",
            self.skipped,
            run.id()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pieces: &[&[u8]], most: usize) -> Excerpt {
        let mut excerpt = Excerpt::default();
        for piece in pieces {
            excerpt.take(piece, most);
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
    }
}
