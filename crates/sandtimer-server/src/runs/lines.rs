//! Output by lines, whatever pieces it is read in, and waiting for a line that matches.
//!
//! What is held of a run's output is one piece and one line, however much it writes. Expressions are compiled with a bound
//! and take time in proportion to what they look at.

use std::borrow::Cow;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use sandtimer::engine::Stream;

use super::LiveRun;
use crate::body::refused;
use crate::error::Refusal;

/// Bytes that are read at a time.
const PIECE: usize = 256 * 1024;
/// Bytes of one walk.
const LONGEST: u64 = 64 << 20;
/// What is longer is taken for several lines.
const LONGEST_LINE: usize = 64 * 1024;
/// Bytes that an expression may take once it is compiled.
const MOST_EXPRESSION: usize = 1 << 20;
/// A line that has no end yet and has not grown for so long is looked at as it is: prompts never end theirs.
const UNFINISHED: Duration = Duration::from_millis(100);

/// The expression that the field has.
pub(crate) fn expression(name: &str, given: &str) -> Result<Regex, Refusal> {
    let compiled = RegexBuilder::new(given).size_limit(MOST_EXPRESSION).build();
    compiled.map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        refused(name, &given.into(), &format!("a regular expression: {why}"))
    })
}

/// A line without its newline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    bytes: &'a [u8],
    /// Where it begins in the stream, and the next one does.
    pub cursor: u64,
    pub next_cursor: u64,
}

impl<'a> Line<'a> {
    /// What is no text in it is replaced.
    pub fn text(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes)
    }
}

/// Where a walk over lines stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Behind the last whole line.
    pub cursor: u64,
    /// Behind all that was read.
    pub end: u64,
    /// Bytes on the way that were past the output limit.
    dropped: u64,
    /// There was nothing more, and there will be nothing more.
    is_last: bool,
}

/// Goes through lines from a position on for as long as `wants` says true. A line that may still go on is left, unless
/// `all` asks for it.
pub(crate) async fn walk(
    run: &LiveRun,
    stream: Stream,
    from: u64,
    all: bool,
    mut wants: impl FnMut(Line<'_>) -> bool,
) -> Result<Walked, Refusal> {
    let mut walked = Walked { cursor: from, end: from, dropped: 0, is_last: false };
    let mut pending = Vec::new();
    while walked.end - from < LONGEST {
        let is_over = run.status() == "ended";
        let chunk = run.output(stream, walked.end, PIECE).await?;
        walked.end = chunk.next_cursor;
        walked.dropped += chunk.dropped_before;
        if chunk.bytes.is_empty() {
            let rest = Line { bytes: &pending, cursor: walked.cursor, next_cursor: walked.end };
            if (is_over || all) && !pending.is_empty() && wants(rest) {
                walked.cursor = walked.end;
            }
            walked.is_last = is_over;
            break;
        }
        if chunk.dropped_before > 0 {
            pending.clear();
        }
        walked.cursor = walked.end - (pending.len() + chunk.bytes.len()) as u64;
        pending.extend_from_slice(&chunk.bytes);
        // The caller chose the expression, and with it how long the looking takes.
        let wanted = tokio::task::block_in_place(|| lines(&mut pending, &mut walked.cursor, &mut wants));
        if !wanted {
            return Ok(walked);
        }
        tokio::task::yield_now().await;
    }
    Ok(walked)
}

/// Takes whole lines from the beginning; false where one was not wanted, which the cursor is at then.
fn lines(pending: &mut Vec<u8>, cursor: &mut u64, wants: &mut impl FnMut(Line<'_>) -> bool) -> bool {
    let mut done = 0;
    while let Some((bytes, length)) = first(&pending[done..]) {
        let next_cursor = *cursor + length as u64;
        if !wants(Line { bytes, cursor: *cursor, next_cursor }) {
            return false;
        }
        *cursor = next_cursor;
        done += length;
    }
    pending.drain(..done);
    true
}

/// The first whole line, and where the next one begins.
fn first(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let near = &bytes[..bytes.len().min(LONGEST_LINE)];
    match near.iter().position(|byte| *byte == b'\n') {
        Some(at) => Some((&bytes[..at], at + 1)),
        None if bytes.len() > LONGEST_LINE => Some((near, LONGEST_LINE)),
        None => None,
    }
}

/// How far a search for a line that matches has come. It may be dropped and taken up again at any time.
#[derive(Debug)]
pub(crate) struct Search {
    pub stream: Stream,
    pub expression: Regex,
    /// The line that was found.
    pub line: Option<String>,
    /// Where that line begins, or what was not looked at yet does.
    pub cursor: u64,
    /// Where to go on.
    pub next_cursor: u64,
    /// Bytes on the way that were past the output limit.
    pub dropped: u64,
}

impl Search {
    pub fn new(stream: Stream, cursor: u64, expression: Regex) -> Self {
        Search { stream, expression, line: None, cursor, next_cursor: cursor, dropped: 0 }
    }

    /// Waits for a line that matches, or for the end, until it is `over`. What was written before is looked through even then.
    pub async fn go(&mut self, run: &LiveRun, over: impl Future<Output = ()>) -> Result<(), Refusal> {
        let mut over = std::pin::pin!(over);
        loop {
            let mut walked = self.look(run, false).await?;
            if self.line.is_some() || walked.is_last {
                return Ok(());
            }
            if walked.end > walked.cursor {
                let grown = tokio::time::timeout(UNFINISHED, run.grown(self.stream, walked.end));
                tokio::select! {
                    biased;
                    () = &mut over => return Ok(()),
                    grown = grown => if grown.is_ok() { continue },
                }
                walked = self.look(run, true).await?;
                if self.line.is_some() {
                    return Ok(());
                }
            }
            tokio::select! {
                biased;
                () = &mut over => return Ok(()),
                () = run.grown(self.stream, walked.end) => {}
            }
        }
    }

    /// Looks through what there is. A line without an end is looked at where `all` asks for it, and again once it has one.
    async fn look(&mut self, run: &LiveRun, all: bool) -> Result<Walked, Refusal> {
        let mut found = None;
        let walked = walk(run, self.stream, self.next_cursor, all, |line| {
            let text = line.text();
            if !self.expression.is_match(&text) {
                return true;
            }
            found = Some((text.into_owned(), line.cursor, line.next_cursor));
            false
        });
        let walked = walked.await?;
        if let Some((line, cursor, next_cursor)) = found {
            (self.line, self.cursor, self.next_cursor) = (Some(line), cursor, next_cursor);
            self.dropped += walked.dropped;
        } else if !all {
            (self.cursor, self.next_cursor) = (walked.cursor, walked.cursor);
            self.dropped += walked.dropped;
        }
        Ok(walked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_its_newline_or_where_it_is_too_long() {
        assert_eq!(first(b"ab\ncd"), Some((&b"ab"[..], 3)));
        assert_eq!(first(b"\n"), Some((&b""[..], 1)));
        assert_eq!(first(b"abc"), None);
        let long = vec![b'x'; LONGEST_LINE + 1];
        assert_eq!(first(&long).map(|(line, next)| (line.len(), next)), Some((LONGEST_LINE, LONGEST_LINE)));
    }

    #[test]
    fn an_expression_that_cannot_be_is_refused_with_its_reason() {
        assert!(expression("filter", "epoch \\d+").is_ok_and(|filter| filter.is_match("epoch 3")));
        let refusal = expression("filter", "(").expect_err("not closed");
        assert!(
            refusal.message.contains("filter") && refusal.message.contains("unclosed"),
            "{}",
            refusal.message
        );
        assert!(expression("filter", "(\\w{1000}){1000}").is_err());
    }
}
