//! Output by lines: matching lines, and the last ones.

use std::collections::VecDeque;
use std::sync::Arc;

use regex::Regex;
use tokio::time::Instant;

use super::excerpt::text_weight;
use super::plain::{Fold, FoldedPart, plain};
use crate::body::RequestFields;
use crate::error::{ApiRejection, Code};
use crate::runs::{LineSink, LiveRun, OutputLine, StreamPosition, expression, walk};

/// `filter`.
pub(super) fn filter(fields: &mut RequestFields) -> Result<Option<Arc<Regex>>, ApiRejection> {
    fields.string("filter")?.map(|given| expression("filter", &given)).transpose()
}

/// Returns matching lines, up to `most` bytes of them, and where to continue; searches at most
/// until a moment.
pub(super) async fn matching(
    run: &LiveRun,
    position: StreamPosition,
    most: usize,
    filter: &Arc<Regex>,
    until: Instant,
) -> Result<(String, u64), ApiRejection> {
    let sink = MatchingLines { filter: filter.clone(), text: String::new(), weight: 0, most };
    let (walked, sink) = walk(run, position, false, Some(until), sink).await?;
    Ok((sink.text, walked.cursor))
}

struct MatchingLines {
    filter: Arc<Regex>,
    text: String,
    /// What it takes in JSON.
    weight: usize,
    most: usize,
}

/// A line with its end as it is shown, unless there is a filter and the line matches neither as it
/// was written nor as it is shown.
fn shown(line: OutputLine<'_>, filter: Option<&Arc<Regex>>) -> Option<String> {
    let written = line.text();
    let shown = plain(written.as_bytes());
    let matches = |filter: &Arc<Regex>| filter.is_match(&shown) || filter.is_match(&written);
    filter.is_none_or(matches).then(|| shown + "\n")
}

/// The beginning of a line that takes at most `most` bytes in JSON.
fn beginning(line: &str, most: usize) -> &str {
    let mut left = most;
    let ends = line.char_indices().find(|(_, character)| {
        let weight = text_weight(character.encode_utf8(&mut [0; 4]));
        let fits = weight <= left;
        left = left.saturating_sub(weight);
        !fits
    });
    ends.map_or(line, |(at, _)| &line[..at])
}

/// The same of its end.
fn end(line: &str, most: usize) -> &str {
    let mut left = most;
    let begins = line.char_indices().rev().find(|(_, character)| {
        let weight = text_weight(character.encode_utf8(&mut [0; 4]));
        let fits = weight <= left;
        left = left.saturating_sub(weight);
        !fits
    });
    begins.map_or(line, |(at, character)| &line[at + character.len_utf8()..])
}

impl LineSink for MatchingLines {
    fn take(&mut self, line: OutputLine<'_>) -> bool {
        let Some(line) = shown(line, Some(&self.filter)) else { return true };
        let weight = text_weight(&line);
        if !self.text.is_empty() && self.weight + weight > self.most {
            return false;
        }
        self.text.push_str(beginning(&line, self.most));
        self.weight += weight;
        true
    }
}

/// The last lines, or with a filter the last matching ones, within `most` bytes.
///
/// # Errors
/// When the output cannot be looked through by `until`.
pub(super) async fn last(
    run: &LiveRun,
    position: StreamPosition,
    count: usize,
    most: usize,
    filter: Option<&Arc<Regex>>,
    until: Instant,
) -> Result<(String, u64), ApiRejection> {
    let kept = LastLines { count, most, lines: VecDeque::new(), weight: 0 };
    let sink = LastLinesSink { filter: filter.cloned(), fold: Fold::from(position.cursor), kept };
    let (walked, sink) = walk(run, position, true, Some(until), sink).await?;
    if walked.is_cut {
        let message =
            "tail: a call is too short to look through all of the output; give a cursor nearer to its end";
        return Err(ApiRejection::new(Code::RequestTimeout, message).with("key", "tail"));
    }
    let text: String = sink.finish(walked.end).into_iter().collect();
    Ok((end(&text, most).to_owned(), walked.end))
}

struct LastLinesSink {
    filter: Option<Arc<Regex>>,
    /// Without a filter, lines that overwrite others are folded with them.
    fold: Fold,
    kept: LastLines,
}

/// The last lines so far.
struct LastLines {
    count: usize,
    most: usize,
    lines: VecDeque<String>,
    /// What they take in JSON.
    weight: usize,
}

impl LastLines {
    /// Adds a line with its end, or a part of one.
    fn add(&mut self, part: &str) {
        self.weight += text_weight(part);
        match self.lines.back_mut().filter(|last| !last.ends_with('\n')) {
            Some(last) => last.push_str(part),
            None => self.lines.push_back(part.to_owned()),
        }
        while self.lines.len() > self.count || (self.weight > self.most && self.lines.len() > 1) {
            self.weight -= self.lines.pop_front().map_or(0, |line| text_weight(&line));
        }
        if self.weight > 2 * self.most
            && let Some(only) = self.lines.back_mut()
        {
            *only = end(only, self.most).to_owned();
            self.weight = text_weight(only);
        }
    }
}

impl LastLinesSink {
    fn finish(mut self, at: u64) -> VecDeque<String> {
        let kept = &mut self.kept;
        self.fold.finish(at, |_| 0, &mut |part| kept.add(&String::from_utf8_lossy(part.bytes)));
        if self.kept.lines.back().is_some_and(|last| !last.ends_with('\n')) {
            self.kept.add("\n");
        }
        self.kept.lines
    }
}

impl LineSink for LastLinesSink {
    fn take(&mut self, line: OutputLine<'_>) -> bool {
        let LastLinesSink { filter, fold, kept } = self;
        if filter.is_some() {
            if let Some(line) = shown(line, filter.as_ref()) {
                kept.add(&line);
            }
            return true;
        }
        let mut add = |part: FoldedPart<'_>| kept.add(&String::from_utf8_lossy(part.bytes));
        let end = line.cursor + line.bytes().len() as u64;
        fold.feed(line.bytes(), end, &mut add);
        if line.next_cursor > end {
            fold.feed(b"\n", line.next_cursor, &mut add);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_what_they_take_in_json() {
        assert_eq!((beginning("a\"b\n", 3), beginning("ab", 9)), ("a\"", "ab"));
        assert_eq!((end("a\"b\n", 3), end("äöü", 4), end("ab", 9)), ("b\n", "öü", "ab"));
    }
}
