//! `sandtimer jobs log`: what jobs have written so far.

use std::process::ExitCode;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sandtimer_jobs::job::{JobLog, JobStore, LineTimes, StoreError};
use serde_json::json;

use super::choosing;
use super::following::LOG_PIECE_BYTES;
use super::store::open;
use crate::args::EncodingErrors;
use crate::args::jobs::LogArguments;
use crate::commands::CommandFailure;
use crate::render::{self, To};

/// A longer line is printed as several objects.
const MAX_LINE_BYTES: usize = 1 << 20;

/// `sandtimer jobs log`.
pub(super) fn print(given: &LogArguments) -> Result<ExitCode, CommandFailure> {
    let store = open(&given.store)?;
    let ids = choosing::resolve_all(&*store, &given.jobs.ids)?;
    let mut is_mid_line = false;
    for (index, id) in ids.iter().enumerate() {
        let printed = if given.store.json {
            let errors = given.output.errors;
            let mut lines = LineSink { id, errors, pending: Vec::new(), at_ms: None };
            read(&*store, id, &mut |log| lines.take(log)).map(|is_read| is_read && lines.finish())
        } else {
            if ids.len() > 1 {
                print_head(id, index > 0, is_mid_line);
            }
            let times = given.timestamps.then(|| LineTimes::after(None));
            let mut text = PlainSink { times, is_mid_line: false };
            let printed = read(&*store, id, &mut |log| text.take(log));
            is_mid_line = text.is_mid_line;
            printed
        };
        if !printed? {
            // The reader is gone.
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Passes a log to `take` part by part, as far as it goes now. Returns false if `take` did.
fn read(store: &dyn JobStore, id: &str, take: &mut dyn FnMut(&JobLog) -> bool) -> Result<bool, StoreError> {
    let mut cursor = 0;
    loop {
        let log = store.read_log(id, cursor, LOG_PIECE_BYTES)?;
        if log.bytes.is_empty() {
            return Ok(true);
        }
        if !take(&log) {
            return Ok(false);
        }
        cursor = log.next_cursor;
    }
}

/// A line with the job's id, as that of tail(1).
fn print_head(id: &str, is_after_another: bool, is_mid_line: bool) {
    let line_end = if is_mid_line { "\n" } else { "" };
    let gap = if is_after_another { "\n" } else { "" };
    render::print(&format!("{line_end}{gap}==> job {id} <==\n"));
}

/// Prints a log as it is, or with times.
struct PlainSink {
    times: Option<LineTimes>,
    is_mid_line: bool,
}

impl PlainSink {
    fn take(&mut self, log: &JobLog) -> bool {
        self.is_mid_line = log.bytes.last().is_some_and(|last| *last != b'\n');
        match &mut self.times {
            None => render::write(To::Stdout, &log.bytes),
            Some(times) => render::write(To::Stdout, &times.stamp(log)),
        }
    }
}

/// Prints an object for each line.
struct LineSink<'a> {
    id: &'a str,
    errors: EncodingErrors,
    /// The beginning of a line whose end has not come, and when it came.
    pending: Vec<u8>,
    at_ms: Option<u64>,
}

impl LineSink<'_> {
    fn take(&mut self, log: &JobLog) -> bool {
        for (at_ms, piece) in log.pieces() {
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                if self.pending.is_empty() {
                    self.at_ms = at_ms;
                }
                self.pending.extend_from_slice(part);
                let is_whole = part.ends_with(b"\n");
                if (is_whole || self.pending.len() >= MAX_LINE_BYTES) && !self.print_line() {
                    return false;
                }
            }
        }
        true
    }

    /// Prints the last line, if it has no end.
    fn finish(&mut self) -> bool {
        self.pending.is_empty() || self.print_line()
    }

    fn print_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.pending);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let (text, encoding) = match (std::str::from_utf8(line), self.errors) {
            (Ok(text), _) => (text.to_owned(), "utf-8"),
            (Err(_), EncodingErrors::Replace) => (String::from_utf8_lossy(line).into_owned(), "utf-8"),
            (Err(_), EncodingErrors::Strict) => (BASE64_STANDARD.encode(line), "base64"),
        };
        let object = json!({"id": self.id, "at_ms": self.at_ms, "line": text, "encoding": encoding});
        render::write(To::Stdout, format!("{object}\n").as_bytes())
    }
}
