//! Output by lines: those that match, and the last ones.

use std::collections::VecDeque;

use regex::Regex;
use sandtimer::engine::Stream;

use crate::body::Fields;
use crate::error::Refusal;
use crate::runs::{LiveRun, expression, walk};

/// `filter`.
pub(super) fn filter(fields: &mut Fields) -> Result<Option<Regex>, Refusal> {
    fields.text("filter")?.map(|given| expression("filter", &given)).transpose()
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
        let line = line.text();
        if !filter.is_match(&line) {
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
        let line = line.text();
        if filter.is_none_or(|filter| filter.is_match(&line)) {
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
