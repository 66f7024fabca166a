//! `sandtimer jobs watch`: what a job writes as it comes, and how far each of several is. On a
//! terminal that is a bar for each, drawn over; elsewhere a line when something has changed. All of
//! it is on stderr; stdout has the log and the ends.
//!
//! How far a job is comes from what it prints, read as the output of any run is; if that shows no
//! progress, the bar is its time.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use rustix::stdio::stderr;
use rustix::termios::tcgetwinsize;
use sandtimer::progress::Tracker;
use sandtimer::time::Moment;
use sandtimer_jobs::job::{JobRecord, JobState, JobStore, StoreError};
use sandtimer_os::clock::monotonic_nanoseconds;

use super::answers::answer_job;
use super::following::{LOG_PIECE_BYTES, OutageTracker, POLL_INTERVAL, ending, exit_of, worst};
use super::store::open;
use super::{choosing, text};
use crate::args::jobs::WatchArguments;
use crate::commands::CommandFailure;
use crate::render::{self, To};
use crate::signals::Signals;

/// The width of a terminal that does not report it.
const COLUMNS: usize = 80;

/// One job that is watched.
struct WatchedJob {
    id: String,
    cursor: u64,
    /// Reads its progress from its output, once it has begun.
    tracker: Option<Tracker>,
    /// As of the last look.
    record: Option<JobRecord>,
    /// The state that was reported last.
    reported_state: String,
}

/// What is shown besides the bars.
struct WatchDisplay {
    log: bool,
    is_terminal: bool,
    /// Lines of bars above the cursor.
    bars: usize,
}

/// `sandtimer jobs watch`.
pub(super) fn watch(given: &WatchArguments) -> Result<ExitCode, CommandFailure> {
    let store = open(&given.store)?;
    let signals = Signals::watch().map_err(CommandFailure::system("cannot watch for signals"))?;
    let ids = choosing::resolve_all(&*store, &given.jobs.ids)?;
    let mut all: Vec<WatchedJob> = ids.iter().map(|id| WatchedJob::new(id)).collect();
    let is_terminal = std::io::stderr().is_terminal();
    let mut shown = WatchDisplay { log: all.len() == 1 && !given.store.json, is_terminal, bars: 0 };
    let mut patience = OutageTracker::new();
    loop {
        let outcome = refresh(&*store, &mut all, &mut shown);
        let answered = patience.with(outcome, || shown.clear());
        if answered.is_err() {
            shown.clear();
        }
        answered?;
        if all.iter().all(WatchedJob::is_over) {
            break;
        }
        shown.draw(&all);
        if let Some(ending) = ending(&signals, POLL_INTERVAL) {
            shown.clear();
            return Ok(ExitCode::from(ending.exit_code()));
        }
    }
    shown.clear();
    let records: Vec<&JobRecord> = all.iter().filter_map(|watched| watched.record.as_ref()).collect();
    for record in &records {
        answer_job(&given.store, given.output, record, |record| format!("{}\n", text::ending(record)));
    }
    Ok(ExitCode::from(records.iter().map(|record| exit_of(record)).fold(0, worst)))
}

/// What has happened to those that are not over.
fn refresh(store: &dyn JobStore, all: &mut [WatchedJob], shown: &mut WatchDisplay) -> Result<(), StoreError> {
    store.sweep()?;
    all.iter_mut().filter(|watched| !watched.is_over()).try_for_each(|watched| watched.refresh(store, shown))
}

impl WatchedJob {
    fn new(id: &str) -> Self {
        WatchedJob {
            id: id.to_owned(),
            cursor: 0,
            tracker: None,
            record: None,
            reported_state: String::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.line.state.is_over())
    }

    /// What has happened since the last look.
    fn refresh(&mut self, store: &dyn JobStore, shown: &mut WatchDisplay) -> Result<(), StoreError> {
        // Before its log, which is whole once it has ended.
        let record = store.get(&self.id)?.ok_or_else(|| StoreError::Unknown(self.id.clone()))?;
        if record.line.state == JobState::Leased && self.tracker.is_none() {
            let age = record.now_ms.saturating_sub(record.line.leased_ms.unwrap_or(record.now_ms));
            self.tracker = Some(Tracker::new(now().before(Duration::from_millis(age))));
        }
        loop {
            let log = store.read_log(&self.id, self.cursor, LOG_PIECE_BYTES)?;
            if log.bytes.is_empty() {
                break;
            }
            self.cursor = log.next_cursor;
            if let Some(tracker) = &mut self.tracker {
                tracker.feed(0, &log.bytes, now());
            }
            if shown.log {
                shown.clear();
                render::write(To::Stdout, &log.bytes);
            }
        }
        let state = text::state(&record.line);
        if !shown.is_terminal && !record.line.state.is_over() && state != self.reported_state {
            render::note(&format!("job {} is {state}", self.id));
            self.reported_state = state;
        }
        self.record = Some(record);
        Ok(())
    }

    fn line(&self, columns: usize) -> String {
        let Some(record) = &self.record else { return String::new() };
        let progress = self.tracker.as_ref().and_then(|tracker| tracker.progress(now()));
        let line = match record.line.state.is_over() {
            true => text::ending(record),
            false => text::bar(&record.line, record.now_ms, progress.as_ref()),
        };
        line.chars().map(text::visible).take(columns).collect()
    }
}

impl WatchDisplay {
    fn draw(&mut self, all: &[WatchedJob]) {
        if !self.is_terminal {
            return;
        }
        let size = tcgetwinsize(stderr()).ok();
        let width = |columns: u16| usize::from(columns).max(20);
        let columns = size.filter(|size| size.ws_col > 0).map_or(COLUMNS, |size| width(size.ws_col)) - 1;
        // More than the terminal has lines would scroll, and could not be drawn over.
        let most = size.filter(|size| size.ws_row > 1).map_or(24, |size| usize::from(size.ws_row)) - 1;
        let going = all.iter().filter(|watched| !watched.is_over());
        let over = all.iter().filter(|watched| watched.is_over());
        let lines: Vec<String> = going
            .chain(over)
            .take(most)
            .map(|watched| format!("\x1b[2K{}\n", watched.line(columns)))
            .collect();
        let up = if self.bars > 0 { format!("\x1b[{}F", self.bars) } else { String::new() };
        // What was drawn below the last line goes with it.
        render::write(To::Stderr, format!("{up}{}\x1b[J", lines.concat()).as_bytes());
        self.bars = lines.len();
    }

    fn clear(&mut self) {
        let bars = std::mem::take(&mut self.bars);
        if bars > 0 {
            render::write(To::Stderr, format!("\x1b[{bars}F\x1b[J").as_bytes());
        }
    }
}

fn now() -> Moment {
    Moment::from_nanos(monotonic_nanoseconds())
}
