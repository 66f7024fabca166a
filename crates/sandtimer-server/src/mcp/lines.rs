//! Output by lines: those that match, and the last ones.

use std::collections::VecDeque;
use std::sync::Arc;

use regex::Regex;
use sandtimer::engine::Stream;
use tokio::time::Instant;

use super::excerpt::text_weight;
use super::plain::plain;
use crate::body::Fields;
use crate::error::{Code, Refusal};
use crate::runs::{Line, LineSink, LiveRun, expression, walk};

/// `filter`.
pub(super) fn filter(fields: &mut Fields) -> Result<Option<Arc<Regex>>, Refusal> {
    fields.text("filter")?.map(|given| expression("filter", &given)).transpose()
}

/// Lines that match, up to so many bytes of them, and where to go on: at most until a moment.
pub(super) async fn matching(
    run: &LiveRun,
    (stream, from): (Stream, u64),
    most: usize,
    filter: &Arc<Regex>,
    until: Instant,
) -> Result<(String, u64), Refusal> {
    let sink = Matching { filter: filter.clone(), text: String::new(), weight: 0, most };
    let (walked, sink) = walk(run, (stream, from), false, Some(until), sink).await?;
    Ok((sink.text, walked.cursor))
}

struct Matching {
    filter: Arc<Regex>,
    text: String,
    /// What it takes in JSON.
    weight: usize,
    most: usize,
}

/// A line with its end as it is shown, unless there is a filter and the line matches neither as it was written nor as it is shown.
fn shown(line: Line<'_>, filter: Option<&Arc<Regex>>) -> Option<String> {
    let written = line.text();
    let shown = plain(written.as_bytes());
    let matches = |filter: &Arc<Regex>| filter.is_match(&shown) || filter.is_match(&written);
    filter.is_none_or(matches).then(|| shown + "\n")
}

/// The beginning of a line that takes at most so many bytes in JSON.
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

impl LineSink for Matching {
    fn take(&mut self, line: Line<'_>) -> bool {
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

/// The last lines, those that match where there is a filter, within so many bytes.
///
/// # Errors
/// When the output cannot be looked through by `until`.
pub(super) async fn last(
    run: &LiveRun,
    (stream, from): (Stream, u64),
    (count, most): (usize, usize),
    filter: Option<&Arc<Regex>>,
    until: Instant,
) -> Result<(String, u64), Refusal> {
    let sink = Last { filter: filter.cloned(), count, most, kept: VecDeque::new(), weight: 0 };
    let (walked, sink) = walk(run, (stream, from), true, Some(until), sink).await?;
    if walked.is_cut {
        let message =
            "tail: a call is too short to look through all of the output; give a cursor nearer to its end";
        return Err(Refusal::new(Code::RequestTimeout, message).with("key", "tail"));
    }
    let text: String = sink.kept.into_iter().collect();
    Ok((end(&text, most).to_owned(), walked.end))
}

struct Last {
    filter: Option<Arc<Regex>>,
    count: usize,
    most: usize,
    kept: VecDeque<String>,
    /// What they take in JSON.
    weight: usize,
}

impl LineSink for Last {
    fn take(&mut self, line: Line<'_>) -> bool {
        if let Some(line) = shown(line, self.filter.as_ref()) {
            self.weight += text_weight(&line);
            self.kept.push_back(line);
        }
        while self.kept.len() > self.count || (self.weight > self.most && self.kept.len() > 1) {
            self.weight -= self.kept.pop_front().map_or(0, |line| text_weight(&line));
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
