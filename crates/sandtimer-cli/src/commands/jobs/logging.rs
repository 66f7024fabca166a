//! `sandtimer jobs log`: what jobs have written so far.

use std::process::ExitCode;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sandtimer::job::{JobStore, StoreError};
use serde_json::json;

use super::following::PIECE;
use super::{choosing, open};
use crate::args::TextErrors;
use crate::args::jobs::LogArguments;
use crate::commands::Failure;
use crate::render::{self, To};

/// A longer line is printed as several where each has an object of its own.
const MAX_LINE_BYTES: usize = 1 << 20;

/// `sandtimer jobs log`.
pub(super) fn print(given: &LogArguments) -> Result<ExitCode, Failure> {
    let store = open(&given.store)?;
    let ids = choosing::resolve_all(&*store, &given.jobs.ids)?;
    let mut text = TextSink { is_mid_line: false };
    for (index, id) in ids.iter().enumerate() {
        let printed = if given.store.json {
            let mut lines = LineSink { id, errors: given.output.errors, pending: Vec::new() };
            read(&*store, id, &mut |bytes| lines.take(bytes)).map(|is_read| is_read && lines.finish())
        } else {
            if ids.len() > 1 {
                text.head(id, index > 0);
            }
            read(&*store, id, &mut |bytes| text.take(bytes))
        };
        if !printed? {
            // The reader is gone.
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Passes a log to `take` piece by piece, as far as it goes now. Returns false where `take` did.
fn read(store: &dyn JobStore, id: &str, take: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool, StoreError> {
    let mut cursor = 0;
    loop {
        let log = store.read_log(id, cursor, PIECE)?;
        if log.bytes.is_empty() {
            return Ok(true);
        }
        if !take(&log.bytes) {
            return Ok(false);
        }
        cursor = log.next_cursor;
    }
}

/// Prints logs as they are.
struct TextSink {
    is_mid_line: bool,
}

impl TextSink {
    /// A line with the job's id, as that of tail(1).
    fn head(&mut self, id: &str, is_after_another: bool) {
        let line_end = if std::mem::take(&mut self.is_mid_line) { "\n" } else { "" };
        let gap = if is_after_another { "\n" } else { "" };
        render::print(&format!("{line_end}{gap}==> job {id} <==\n"));
    }

    fn take(&mut self, bytes: &[u8]) -> bool {
        self.is_mid_line = bytes.last().is_some_and(|last| *last != b'\n');
        render::write(To::Stdout, bytes)
    }
}

/// Prints an object for each line.
struct LineSink<'a> {
    id: &'a str,
    errors: TextErrors,
    /// The beginning of a line whose end has not come.
    pending: Vec<u8>,
}

impl LineSink<'_> {
    fn take(&mut self, bytes: &[u8]) -> bool {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.pending.extend_from_slice(part);
            let is_whole = part.ends_with(b"\n");
            if (is_whole || self.pending.len() >= MAX_LINE_BYTES) && !self.print_line() {
                return false;
            }
        }
        true
    }

    /// The last line, where it has no end.
    fn finish(&mut self) -> bool {
        self.pending.is_empty() || self.print_line()
    }

    fn print_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.pending);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let (text, encoding) = match (std::str::from_utf8(line), self.errors) {
            (Ok(text), _) => (text.to_owned(), "utf-8"),
            (Err(_), TextErrors::Replace) => (String::from_utf8_lossy(line).into_owned(), "utf-8"),
            (Err(_), TextErrors::Strict) => (BASE64_STANDARD.encode(line), "base64"),
        };
        let object = json!({"id": self.id, "line": text, "encoding": encoding});
        render::write(To::Stdout, format!("{object}\n").as_bytes())
    }
}
