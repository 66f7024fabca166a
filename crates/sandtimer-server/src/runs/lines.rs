//! Output by lines, whatever pieces it is read in, and waiting for a line that matches.
//!
//! What is held of a run's output is one piece and one line, however much it writes. An expression
//! is short and compiled with a bound; how long a line takes grows with both. Lines are searched on
//! a thread that may block, for a few owners at a time, and no further line once the caller has
//! left or its time has passed.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use sandtimer::engine::Stream;
use tokio::time::Instant;

use super::live::LiveRun;
use crate::auth::OwnerId;
use crate::body::refused;
use crate::connection::awaited;
use crate::error::{ApiRejection, Code};
use crate::quota::{ConcurrencyLimit, Permit};
use crate::registry::OwnedResource;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of one walk.
const MAX_WALK_BYTES: u64 = 64 << 20;
/// What is longer is taken for several lines.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Bytes of an expression. Parsed, each may be some thousand.
const MAX_PATTERN_BYTES: usize = 1024;
/// Groups of an expression within one another.
const MAX_PATTERN_DEPTH: u32 = 50;
/// Bytes that an expression may take once it is compiled, and while it is used.
const MAX_COMPILED_BYTES: usize = 256 << 10;
/// A line that has no end yet and has not grown for this long is searched as it is: prompts never
/// end theirs.
const UNFINISHED_LINE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long present output is searched, however short the wait is.
const MIN_SEARCH_TIME: Duration = Duration::from_secs(2);

/// The number of walks of one owner, and of all, whose lines are searched at a time.
static SCANS: ConcurrencyLimit = ConcurrencyLimit::new(1, 4);

/// The expression that the field has.
///
/// # Errors
/// When it is too long, is none, or is too large once it is compiled.
pub(crate) fn expression(name: &str, given: &str) -> Result<Arc<Regex>, ApiRejection> {
    if given.len() > MAX_PATTERN_BYTES {
        let message = format!(
            "{name}: a regular expression has at most {MAX_PATTERN_BYTES} bytes, this one has {}",
            given.len()
        );
        return Err(ApiRejection::new(Code::BadField, message)
            .with("key", name)
            .with("limit", MAX_PATTERN_BYTES));
    }
    let mut builder = RegexBuilder::new(given);
    builder.size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES).nest_limit(MAX_PATTERN_DEPTH);
    let compiled = tokio::task::block_in_place(|| builder.build());
    compiled.map(Arc::new).map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        refused(name, &given.into(), &format!("a regular expression: {why}"))
    })
}

/// A line without its newline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputLine<'a> {
    bytes: &'a [u8],
    /// Where it begins in the stream, and the next one does.
    pub cursor: u64,
    pub next_cursor: u64,
}

impl<'a> OutputLine<'a> {
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// What is no text in it is replaced.
    pub fn text(self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes)
    }
}

/// A position in one of a run's streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamPosition {
    pub stream: Stream,
    pub cursor: u64,
}

/// Where a walk over lines stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkedLines {
    /// The position after the last whole line.
    pub cursor: u64,
    /// The position after all that was read.
    pub end: u64,
    /// Bytes on the way that were past the output limit.
    dropped: u64,
    /// There was nothing more, and there will be nothing more.
    is_last: bool,
    /// Its time ended before it had searched all there was.
    pub is_cut: bool,
}

/// The receiver of lines.
pub(crate) trait LineSink: Send + 'static {
    /// Takes a line; false where it is not wanted, and the walk stops before it.
    fn take(&mut self, line: OutputLine<'_>) -> bool;
}

/// Goes through lines from a position on for as long as `sink` takes them, at most until `until`. A
/// line that may still grow is left, unless `all` is set. If the future is dropped, the walk stops
/// after the current line. Without a turn before `until` it has read nothing and is cut.
pub(crate) async fn walk<S: LineSink>(
    run: &LiveRun,
    position: StreamPosition,
    all: bool,
    until: Option<Instant>,
    sink: S,
) -> Result<(WalkedLines, S), ApiRejection> {
    let StreamPosition { stream, cursor: from } = position;
    let mut walked = WalkedLines { cursor: from, end: from, dropped: 0, is_last: false, is_cut: false };
    let mut scan = LineScan { pending: Vec::new(), cursor: from, sink, stop: ScanStop::No };
    let (is_awaited, _awaited) = awaited();
    let is_awaited = Arc::new(is_awaited);
    while walked.end - from < MAX_WALK_BYTES && scan.stop == ScanStop::No {
        let has_ended = run.status() == "ended";
        let chunk = run.output(stream, walked.end, PIECE_BYTES).await?;
        walked.end = chunk.next_cursor;
        walked.dropped += chunk.dropped_before;
        if chunk.dropped_before > 0 {
            scan.pending.clear();
        }
        let is_rest = chunk.bytes.is_empty();
        scan.cursor = walked.end - (scan.pending.len() + chunk.bytes.len()) as u64;
        scan.pending.extend_from_slice(&chunk.bytes);
        if !is_rest || ((has_ended || all) && !scan.pending.is_empty()) {
            let Some(turn) = enter_scan(run.owner(), until).await else {
                scan.stop = ScanStop::Time;
                walked.cursor = scan.cursor;
                break;
            };
            let is_awaited = is_awaited.clone();
            let may_continue = move || is_awaited() && until.is_none_or(|until| Instant::now() < until);
            let scanning = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                scan.scan(is_rest, &may_continue);
                scan
            });
            let failed = |_| ApiRejection::new(Code::Internal, "the output could not be looked through");
            scan = scanning.await.map_err(failed)?;
        }
        walked.cursor = scan.cursor;
        if is_rest {
            walked.is_last = has_ended;
            break;
        }
    }
    walked.is_cut = scan.stop == ScanStop::Time;
    Ok((walked, scan.sink))
}

/// A permit to search lines; `None` if none is free before `until`.
async fn enter_scan(owner: &OwnerId, until: Option<Instant>) -> Option<Permit> {
    let entering = SCANS.enter(owner);
    match until {
        None => Some(entering.await),
        Some(until) => tokio::time::timeout_at(until, entering).await.ok(),
    }
}

/// Why no more lines are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanStop {
    No,
    Unwanted,
    Time,
}

/// A walk while it searches lines.
#[derive(Debug)]
struct LineScan<S> {
    /// What has been read and not searched.
    pending: Vec<u8>,
    /// Where that begins.
    cursor: u64,
    sink: S,
    stop: ScanStop,
}

impl<S: LineSink> LineScan<S> {
    /// Searches whole lines from the beginning, and the rest too if nothing comes after it.
    fn scan(&mut self, is_rest: bool, may_continue: &dyn Fn() -> bool) {
        let mut done = 0;
        while let Some((bytes, length)) = first(&self.pending[done..], is_rest) {
            let next_cursor = self.cursor + length as u64;
            if !self.sink.take(OutputLine { bytes, cursor: self.cursor, next_cursor }) {
                self.stop = ScanStop::Unwanted;
                break;
            }
            self.cursor = next_cursor;
            done += length;
            // After a line: each walk that has its turn comes further by one at least.
            if !may_continue() {
                self.stop = ScanStop::Time;
                break;
            }
        }
        self.pending.drain(..done);
    }
}

/// The first whole line, or the rest, and where the next one begins.
fn first(bytes: &[u8], is_rest: bool) -> Option<(&[u8], usize)> {
    let near = &bytes[..bytes.len().min(MAX_LINE_BYTES)];
    match near.iter().position(|byte| *byte == b'\n') {
        Some(at) => Some((&bytes[..at], at + 1)),
        None if bytes.len() > MAX_LINE_BYTES => Some((near, MAX_LINE_BYTES)),
        None if is_rest && !bytes.is_empty() => Some((bytes, bytes.len())),
        None => None,
    }
}

/// How far a search for a line that matches has come. It may be dropped and taken up again at any
/// time.
#[derive(Debug)]
pub(crate) struct LineSearch {
    pub stream: Stream,
    pub expression: Arc<Regex>,
    /// The line that was found.
    pub line: Option<String>,
    /// Where that line begins, or the output that was not searched yet.
    pub cursor: u64,
    /// Where to continue.
    pub next_cursor: u64,
    /// Bytes on the way that were past the output limit.
    pub dropped: u64,
}

impl LineSearch {
    pub fn new(stream: Stream, cursor: u64, expression: Arc<Regex>) -> Self {
        LineSearch { stream, expression, line: None, cursor, next_cursor: cursor, dropped: 0 }
    }

    /// Waits for a line that matches, or for the end, at most until `until`. What was written
    /// before is searched for [`MIN_SEARCH_TIME`] even then.
    pub async fn go(&mut self, run: &LiveRun, until: Option<Instant>) -> Result<(), ApiRejection> {
        let search_until = until.map(|until| until.max(Instant::now() + MIN_SEARCH_TIME));
        let over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let mut over = std::pin::pin!(over);
        loop {
            let mut walked = self.search_pass(run, false, search_until).await?;
            if self.line.is_some() || walked.is_last || walked.is_cut {
                return Ok(());
            }
            if walked.end > walked.cursor {
                let grown = tokio::time::timeout(UNFINISHED_LINE_TIMEOUT, run.grown(self.stream, walked.end));
                tokio::select! {
                    biased;
                    () = &mut over => return Ok(()),
                    grown = grown => if grown.is_ok() { continue },
                }
                walked = self.search_pass(run, true, search_until).await?;
                if self.line.is_some() || walked.is_cut {
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

    /// Searches the present output. A line without an end is searched if `all` is set, and again
    /// once it has one.
    async fn search_pass(
        &mut self,
        run: &LiveRun,
        all: bool,
        until: Option<Instant>,
    ) -> Result<WalkedLines, ApiRejection> {
        let sink = FirstMatch { expression: self.expression.clone(), found: None };
        let position = StreamPosition { stream: self.stream, cursor: self.next_cursor };
        let (walked, sink) = walk(run, position, all, until, sink).await?;
        if let Some((line, cursor, next_cursor)) = sink.found {
            (self.line, self.cursor, self.next_cursor) = (Some(line), cursor, next_cursor);
            self.dropped += walked.dropped;
        } else if !all {
            (self.cursor, self.next_cursor) = (walked.cursor, walked.cursor);
            self.dropped += walked.dropped;
        }
        Ok(walked)
    }
}

/// The first line that matches, with where it begins and the next one does.
struct FirstMatch {
    expression: Arc<Regex>,
    found: Option<(String, u64, u64)>,
}

impl LineSink for FirstMatch {
    fn take(&mut self, line: OutputLine<'_>) -> bool {
        let text = line.text();
        let is_match = self.expression.is_match(&text);
        if is_match {
            self.found = Some((text.into_owned(), line.cursor, line.next_cursor));
        }
        !is_match
    }
}

/// When a search ends that was requested at `asked_at` and may take `most`: from now on it has
/// [`MIN_SEARCH_TIME`] at least.
pub(crate) fn search_end(asked_at: Instant, most: Duration) -> Instant {
    (asked_at + most).max(Instant::now() + MIN_SEARCH_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_its_newline_or_where_it_is_too_long() {
        assert_eq!(first(b"ab\ncd", false), Some((&b"ab"[..], 3)));
        assert_eq!(first(b"\n", false), Some((&b""[..], 1)));
        assert_eq!((first(b"abc", false), first(b"abc", true)), (None, Some((&b"abc"[..], 3))));
        assert_eq!(first(b"", true), None);
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(
            first(&long, true).map(|(line, next)| (line.len(), next)),
            Some((MAX_LINE_BYTES, MAX_LINE_BYTES))
        );
    }

    #[test]
    fn an_expression_that_cannot_be_is_refused_with_its_reason() {
        assert!(expression("filter", "epoch \\d+").is_ok_and(|filter| filter.is_match("epoch 3")));
        let rejection = expression("filter", "(").expect_err("not closed");
        assert!(
            rejection.message.contains("filter") && rejection.message.contains("unclosed"),
            "{}",
            rejection.message
        );
        assert!(expression("filter", "(\\w{1000}){1000}").is_err());
        let refused = |given: &str| expression("filter", given).expect_err("too large").message;
        let longest = "a".repeat(MAX_PATTERN_BYTES);
        assert!(expression("filter", &longest).is_ok());
        assert!(refused(&(longest + "a")).contains("at most 1024 bytes, this one has 1025"));
        assert!(refused(&format!("{}{}", "(".repeat(60), ")".repeat(60))).contains("nest"));
    }

    #[test]
    fn scan_stops_after_the_line_at_its_timeout() {
        struct LineCount(usize);
        impl LineSink for LineCount {
            fn take(&mut self, _: OutputLine<'_>) -> bool {
                self.0 += 1;
                true
            }
        }
        let mut scan =
            LineScan { pending: b"a\nb\nc\n".to_vec(), cursor: 7, sink: LineCount(0), stop: ScanStop::No };
        scan.scan(false, &|| false);
        assert_eq!((scan.sink.0, scan.cursor, scan.stop), (1, 9, ScanStop::Time));
        scan.stop = ScanStop::No;
        scan.scan(false, &|| true);
        assert_eq!((scan.sink.0, scan.cursor, scan.stop), (3, 13, ScanStop::No));
    }
}
