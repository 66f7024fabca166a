//! Output by lines: those that match, and the last ones.

use std::collections::VecDeque;
use std::sync::Arc;

use regex::Regex;
use sandtimer::engine::Stream;
use tokio::time::Instant;

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
    let sink = Matching { filter: filter.clone(), text: String::new(), most };
    let (walked, sink) = walk(run, (stream, from), false, Some(until), sink).await?;
    Ok((sink.text, walked.cursor))
}

struct Matching {
    filter: Arc<Regex>,
    text: String,
    most: usize,
}

impl LineSink for Matching {
    fn take(&mut self, line: Line<'_>) -> bool {
        let line = line.text();
        if !self.filter.is_match(&line) {
            return true;
        }
        if !self.text.is_empty() && self.text.len() + line.len() >= self.most {
            return false;
        }
        self.text.extend(line.chars().take(self.most).chain(['\n']));
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
    let sink = Last { filter: filter.cloned(), count, most, kept: VecDeque::new(), bytes: 0 };
    let (walked, sink) = walk(run, (stream, from), true, Some(until), sink).await?;
    if walked.is_cut {
        let message =
            "tail: a call is too short to look through all of the output; give a cursor nearer to its end";
        return Err(Refusal::new(Code::RequestTimeout, message).with("key", "tail"));
    }
    Ok((sink.kept.into_iter().collect(), walked.end))
}

struct Last {
    filter: Option<Arc<Regex>>,
    count: usize,
    most: usize,
    kept: VecDeque<String>,
    bytes: usize,
}

impl LineSink for Last {
    fn take(&mut self, line: Line<'_>) -> bool {
        let line = line.text();
        if self.filter.as_ref().is_none_or(|filter| filter.is_match(&line)) {
            self.bytes += line.len() + 1;
            self.kept.push_back(format!("{line}\n"));
        }
        while self.kept.len() > self.count || (self.bytes > self.most && self.kept.len() > 1) {
            self.bytes -= self.kept.pop_front().map_or(0, |line| line.len());
        }
        true
    }
}
