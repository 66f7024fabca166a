//! Following a job to its end: its log as it comes, a line of progress on terminals, and its exit code.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandtimer::job::{JobRecord, JobStore, Status, StoreError};
use sandtimer_os::clock::monotonic_nanoseconds;

use super::{answer, duration, open, text};
use crate::args::jobs::{OneJob, WaitArguments};
use crate::commands::Failure;
use crate::render::{self, To};
use crate::signals::{Arrived, Ending, Signals};

/// How often the store is asked.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// For how long a store that cannot be reached is asked again: twice as long as a lease.
const OUTAGE: Duration = Duration::from_secs(60);
/// How much of a log at a time.
pub(super) const PIECE: usize = 256 << 10;
/// Still going on when the wait was over; EX_TEMPFAIL of sysexits.h.
const GOES_ON: u8 = 75;

/// What became of the following.
pub(super) enum Followed {
    Over(Box<JobRecord>),
    /// It goes on; the exit code.
    Left(u8),
}

/// `sandtimer jobs wait`.
pub(super) fn wait(given: &WaitArguments) -> Result<ExitCode, Failure> {
    let most = given.at_most.as_deref().map(|typed| duration("--for", typed, Duration::ZERO)).transpose()?;
    follow(&given.job, most)
}

fn follow(given: &OneJob, most: Option<Duration>) -> Result<ExitCode, Failure> {
    let store = open(&given.store)?;
    let signals = Signals::watch().map_err(Failure::system("cannot watch for signals"))?;
    let follower = Follower::new(&*store, &given.id, &signals, false);
    match follower.follow(most, &|_, _| Err(StoreError::Busy))? {
        Followed::Over(record) => {
            answer(&given.store, &record, || format!("{}\n", text::ending(&record)));
            Ok(exit_code(&record))
        }
        Followed::Left(code) => Ok(ExitCode::from(code)),
    }
}

/// Follows one job.
pub(super) struct Follower<'a> {
    store: &'a dyn JobStore,
    id: &'a str,
    signals: &'a Signals,
    shows_log: bool,
    cursor: u64,
    /// There is a line of progress on the terminal.
    line: bool,
}

impl<'a> Follower<'a> {
    pub(super) fn new(store: &'a dyn JobStore, id: &'a str, signals: &'a Signals, shows_log: bool) -> Self {
        Follower { store, id, signals, shows_log, cursor: 0, line: false }
    }

    /// Until the job is over, `most` has passed, or a signal that `asked` does not take.
    pub(super) fn follow(
        mut self,
        most: Option<Duration>,
        asked: &dyn Fn(u32, &str) -> Result<(), StoreError>,
    ) -> Result<Followed, Failure> {
        let begun = monotonic_nanoseconds();
        let (mut count, mut seen, mut is_told) = (0, begun, false);
        loop {
            match self.look() {
                Ok(record) if record.line.state.is_over() => {
                    self.clear();
                    return Ok(Followed::Over(Box::new(record)));
                }
                Ok(record) => {
                    (seen, is_told) = (monotonic_nanoseconds(), false);
                    self.show_progress(&record);
                }
                // What goes on elsewhere, or here, may outlast it.
                Err(error @ StoreError::Unreachable(_))
                    if monotonic_nanoseconds() - seen < OUTAGE.as_nanos() as u64 =>
                {
                    self.clear();
                    if !std::mem::replace(&mut is_told, true) {
                        render::note(&format!("{error}; it is asked again for a minute"));
                    }
                }
                Err(error) => return Err(error.into()),
            }
            let waited = Duration::from_nanos(monotonic_nanoseconds() - begun);
            if most.is_some_and(|most| waited >= most) {
                self.clear();
                return Ok(Followed::Left(GOES_ON));
            }
            let pause = most.map_or(LOOK, |most| LOOK.min(most - waited));
            if let Some(ending) = ending(self.signals, pause) {
                count += 1;
                if asked(count, ending.reason()).is_err() || count > 1 {
                    self.clear();
                    return Ok(Followed::Left(ending.exit_code()));
                }
            }
        }
    }

    /// The job as it is, once its log was shown that far.
    fn look(&mut self) -> Result<JobRecord, StoreError> {
        self.store.sweep()?;
        let record = self.store.get(self.id)?.ok_or_else(|| StoreError::Unknown(self.id.to_owned()))?;
        self.show_log()?;
        Ok(record)
    }

    fn show_log(&mut self) -> Result<(), StoreError> {
        while self.shows_log {
            let log = self.store.read_log(self.id, self.cursor, PIECE)?;
            if log.bytes.is_empty() {
                break;
            }
            self.clear();
            render::write(To::Stdout, &log.bytes);
            self.cursor = log.next_cursor;
        }
        Ok(())
    }

    /// One line that is written over, for people only.
    fn show_progress(&mut self, record: &JobRecord) {
        if std::io::stderr().is_terminal() {
            render::write(
                To::Stderr,
                format!("\r\x1b[K{}", text::progress(&record.line, record.now_ms)).as_bytes(),
            );
            self.line = true;
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.line) {
            render::write(To::Stderr, b"\r\x1b[K");
        }
    }
}

/// A signal that asks for an end, within this time.
pub(super) fn ending(signals: &Signals, within: Duration) -> Option<Ending> {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
    // An interrupted wait is one that ended early; every caller looks again.
    let _ = poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&timeout));
    std::iter::from_fn(|| signals.next()).find_map(|arrived| match arrived {
        Arrived::End(ending) => Some(ending),
        Arrived::Resized => None,
    })
}

/// What a shell sees of a job that is over.
pub(super) fn exit_of(record: &JobRecord) -> u8 {
    match record.result.as_ref().map(|result| result.status) {
        Some(Status::Ok) => 0,
        Some(Status::Failed) => 1,
        Some(Status::Timeout | Status::Budget) => 124,
        Some(Status::Cancelled) => 130,
        Some(Status::InfraError | Status::Lost | Status::Drained) | None => 125,
    }
}

pub(super) fn exit_code(record: &JobRecord) -> ExitCode {
    ExitCode::from(exit_of(record))
}
