//! Output by lines: those that match, and the last ones.

use std::collections::VecDeque;

use regex::{Regex, RegexBuilder};
use sandtimer::engine::Stream;

use crate::body::{Fields, refused};
use crate::error::Refusal;
use crate::runs::LiveRun;

/// Bytes that are read at a time, and the most that is read for one answer.
const PIECE: usize = 256 * 1024;
const LONGEST: u64 = 64 << 20;
/// What is longer is taken for several lines.
const LONGEST_LINE: usize = 64 * 1024;
/// Bytes that an expression may take once it is compiled.
const MOST_EXPRESSION: usize = 1 << 20;

/// `filter`.
pub(super) fn filter(fields: &mut Fields) -> Result<Option<Regex>, Refusal> {
    let Some(given) = fields.text("filter")? else { return Ok(None) };
    let compiled = RegexBuilder::new(&given).size_limit(MOST_EXPRESSION).build();
    compiled.map(Some).map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        refused("filter", &given.into(), &format!("a regular expression: {why}"))
    })
}

/// Where a walk over lines stopped: behind the last whole line, and behind all that there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walked {
    pub cursor: u64,
    pub end: u64,
}

/// Goes through lines from a position on for as long as `wants` says true. A line that may still go on is left, unless
/// `all` asks for it.
pub(super) async fn walk(
    run: &LiveRun,
    stream: Stream,
    from: u64,
    all: bool,
    mut wants: impl FnMut(&str) -> bool,
) -> Result<Walked, Refusal> {
    let (mut pending, mut begins, mut end) = (Vec::new(), from, from);
    while end - from < LONGEST {
        let is_over = run.status() == "ended";
        let chunk = run.output(stream, end, PIECE).await?;
        end = chunk.next_cursor;
        if chunk.bytes.is_empty() {
            if (is_over || all) && !pending.is_empty() && wants(&String::from_utf8_lossy(&pending)) {
                begins = end;
            }
            break;
        }
        if chunk.dropped_before > 0 {
            pending.clear();
        }
        begins = end - (pending.len() + chunk.bytes.len()) as u64;
        pending.extend_from_slice(&chunk.bytes);
        let mut done = 0;
        while let Some((line, next)) = first(&pending[done..]) {
            if !wants(&String::from_utf8_lossy(line)) {
                return Ok(Walked { cursor: begins + done as u64, end });
            }
            done += next;
        }
        pending.drain(..done);
        begins += done as u64;
    }
    Ok(Walked { cursor: begins, end })
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

/// Lines that match, up to so many bytes of them, and where to go on.
pub(super) async fn matching(
    run: &LiveRun,
    stream: Stream,
    from: u64,
    most: usize,
    filter: &Regex,
) -> Result<(String, u64), Refusal> {
    let mut text = String::new();
    let walked = walk(run, stream, from, false, |line| {
        if !filter.is_match(line) {
            return true;
        }
        if !text.is_empty() && text.len() + line.len() >= most {
            return false;
        }
        text.extend(line.chars().take(most).chain(['\n']));
        true
    });
    let cursor = walked.await?.cursor;
    Ok((text, cursor))
}

/// The last lines, those that match where there is a filter, within so many bytes.
pub(super) async fn last(
    run: &LiveRun,
    stream: Stream,
    from: u64,
    (count, most): (usize, usize),
    filter: Option<&Regex>,
) -> Result<(String, u64), Refusal> {
    let (mut kept, mut bytes) = (VecDeque::new(), 0);
    let walked = walk(run, stream, from, true, |line| {
        if filter.is_none_or(|filter| filter.is_match(line)) {
            bytes += line.len() + 1;
            kept.push_back(format!("{line}\n"));
        }
        while kept.len() > count || (bytes > most && kept.len() > 1) {
            bytes -= kept.pop_front().map_or(0, |line: String| line.len());
        }
        true
    });
    let cursor = walked.await?.end;
    Ok((kept.into_iter().collect(), cursor))
}

/// Waits for a line that matches, or the end.
pub(super) async fn until_match(run: &LiveRun, stream: Stream, from: u64, filter: &Regex) {
    let mut cursor = from;
    loop {
        let is_over = run.status() == "ended";
        let mut found = false;
        let walked = walk(run, stream, cursor, is_over, |line| {
            found = filter.is_match(line);
            !found
        });
        // What cannot be read is said by whoever reads it next.
        let Ok(walked) = walked.await else { return };
        if found || is_over {
            return;
        }
        cursor = walked.cursor;
        run.grown(stream, walked.end).await;
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
        let fields = |text: &str| {
            let mut given = serde_json::Map::new();
            given.insert("filter".to_owned(), text.into());
            Fields::new(given)
        };
        let compiled = filter(&mut fields("epoch \\d+")).expect("compiles");
        assert!(compiled.is_some_and(|filter| filter.is_match("epoch 3")));
        let refusal = filter(&mut fields("(")).expect_err("not closed");
        assert!(
            refusal.message.contains("filter") && refusal.message.contains("unclosed"),
            "{}",
            refusal.message
        );
        assert!(filter(&mut fields("(\\w{1000}){1000}")).is_err());
    }
}
