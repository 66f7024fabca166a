//! Following a job to its end: its log as it comes, a line of progress on terminals, and its exit
//! code.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandtimer::model::LimitKind;
use sandtimer_jobs::job::{JobRecord, JobStatus, JobStore, StoreError};
use sandtimer_os::clock::monotonic_nanoseconds;

use super::answers::answer_job;
use super::durations::duration;
use super::store::open;
use super::{acting, choosing, text};
use crate::args::jobs::WaitArguments;
use crate::commands::CommandFailure;
use crate::render::{self, To};
use crate::signals::{EndRequest, ReceivedSignal, Signals};

/// How often the store is asked.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// For how long a store that cannot be reached is asked again: twice as long as a lease.
const OUTAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of a log at a time.
pub(super) const LOG_PIECE_BYTES: usize = 256 << 10;
/// The job was still active when the wait ended; EX_TEMPFAIL of sysexits.h.
const EXIT_STILL_RUNNING: u8 = 75;

/// The result of following a job.
pub(super) enum FollowResult {
    Over(Box<JobRecord>),
    /// It continues; the exit code.
    Left(u8),
}

/// `sandtimer jobs wait`. A store that does not answer is not waited for either, when the time is
/// over.
pub(super) fn wait(given: &WaitArguments) -> Result<ExitCode, CommandFailure> {
    let most = given.max_wait.as_deref().map(|typed| duration("--for", typed, Duration::ZERO)).transpose()?;
    let signals = Signals::watch().map_err(CommandFailure::system("cannot watch for signals"))?;
    let Some(most) = most else { return follow_all(given, &signals, None) };
    let given = given.clone();
    let (result_sender, result_receiver) = channel();
    let following = move || result_sender.send(follow_all(&given, &signals, Some(most)));
    std::thread::Builder::new().spawn(following).map_err(CommandFailure::system("cannot start a thread"))?;
    result_receiver.recv_timeout(most.saturating_add(POLL_INTERVAL * 3)).unwrap_or_else(|_| {
        render::note("the time to wait has passed, and the store has not answered");
        Ok(ExitCode::from(EXIT_STILL_RUNNING))
    })
}

/// Waits for one after the other: all of them are waited for anyway.
fn follow_all(
    given: &WaitArguments,
    signals: &Signals,
    most: Option<Duration>,
) -> Result<ExitCode, CommandFailure> {
    let flags = &given.store;
    let begun = monotonic_nanoseconds();
    let store = open(flags)?;
    let ids = choosing::open(&*store, &given.jobs)?;
    acting::note_if_none(flags, ids.len());
    let mut code = 0;
    for id in &ids {
        let waited = Duration::from_nanos(monotonic_nanoseconds() - begun);
        let left = most.map(|most| most.saturating_sub(waited));
        match Follower::new(&*store, id, signals, false).follow(left, &|_, _| Err(StoreError::Busy)) {
            Ok(FollowResult::Over(record)) => {
                answer_job(flags, given.output, &record, |record| format!("{}\n", text::ending(record)));
                code = worst(code, exit_of(&record));
            }
            // The others may have ended: those are printed, and count.
            Ok(FollowResult::Left(EXIT_STILL_RUNNING)) => code = worst(code, EXIT_STILL_RUNNING),
            Ok(FollowResult::Left(signalled)) => return Ok(ExitCode::from(signalled)),
            // How it ended is not known any more.
            Err(error @ StoreError::Unknown(_)) if ids.len() > 1 => {
                render::report_error(&error.to_string());
                code = worst(code, 125);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ExitCode::from(code))
}

/// What is read of a store that may be away for a while: what is active elsewhere, or here, may
/// outlast that.
pub(super) struct OutageTracker {
    /// When it answered last.
    last_answer_ns: u64,
    is_reported: bool,
}

impl OutageTracker {
    pub(super) fn new() -> Self {
        OutageTracker { last_answer_ns: monotonic_nanoseconds(), is_reported: false }
    }

    /// Returns `None` if the store is unreachable and to be asked again; the user is notified once,
    /// after `clear` has cleared the terminal.
    pub(super) fn with<T>(
        &mut self,
        answer: Result<T, StoreError>,
        clear: impl FnOnce(),
    ) -> Result<Option<T>, StoreError> {
        match answer {
            Err(error @ StoreError::Unreachable(_))
                if monotonic_nanoseconds() - self.last_answer_ns < OUTAGE_TIMEOUT.as_nanos() as u64 =>
            {
                if !std::mem::replace(&mut self.is_reported, true) {
                    clear();
                    render::note(&format!("{error}; it is asked again for a minute"));
                }
                Ok(None)
            }
            answer => {
                *self = OutageTracker::new();
                answer.map(Some)
            }
        }
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

    /// Until the job has ended, `most` has passed, or a signal that `asked` does not take.
    pub(super) fn follow(
        mut self,
        most: Option<Duration>,
        asked: &dyn Fn(u32, &str) -> Result<(), StoreError>,
    ) -> Result<FollowResult, StoreError> {
        let begun = monotonic_nanoseconds();
        let (mut count, mut patience) = (0, OutageTracker::new());
        loop {
            let snapshot = self.read_record();
            match patience.with(snapshot, || self.clear())? {
                Some(record) if record.line.state.is_over() => {
                    self.clear();
                    return Ok(FollowResult::Over(Box::new(record)));
                }
                Some(record) => self.show_progress(&record),
                None => {}
            }
            let waited = Duration::from_nanos(monotonic_nanoseconds() - begun);
            if most.is_some_and(|most| waited >= most) {
                self.clear();
                return Ok(FollowResult::Left(EXIT_STILL_RUNNING));
            }
            let pause = most.map_or(POLL_INTERVAL, |most| POLL_INTERVAL.min(most - waited));
            if let Some(ending) = ending(self.signals, pause) {
                count += 1;
                if asked(count, ending.reason()).is_err() || count > 1 {
                    self.clear();
                    return Ok(FollowResult::Left(ending.exit_code()));
                }
            }
        }
    }

    /// The job as it is, once its log was shown that far.
    fn read_record(&mut self) -> Result<JobRecord, StoreError> {
        self.store.sweep()?;
        let record = self.store.get(self.id)?.ok_or_else(|| StoreError::Unknown(self.id.to_owned()))?;
        self.show_log()?;
        Ok(record)
    }

    fn show_log(&mut self) -> Result<(), StoreError> {
        while self.shows_log {
            let log = self.store.read_log(self.id, self.cursor, LOG_PIECE_BYTES)?;
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
pub(super) fn ending(signals: &Signals, within: Duration) -> Option<EndRequest> {
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
    // An interrupted wait is one that ended early; every caller looks again.
    let _ = poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&timeout));
    std::iter::from_fn(|| signals.next()).find_map(|arrived| match arrived {
        ReceivedSignal::End(ending) => Some(ending),
        ReceivedSignal::Resized | ReceivedSignal::Stopped | ReceivedSignal::Continued => None,
    })
}

/// Whether a signal to end comes within this time.
pub(in crate::commands) fn is_end_requested(signals: &Signals, within: Duration) -> bool {
    ending(signals, within).is_some()
}

/// The exit code for an ended job: as of a run, whose limits may have ended it.
pub(super) fn exit_of(record: &JobRecord) -> u8 {
    let Some(result) = &record.result else { return 125 };
    match result.status {
        JobStatus::Ok => 0,
        JobStatus::Failed => match result.verdict.as_ref().map(|verdict| verdict.kind) {
            None => 1,
            Some(LimitKind::Memory) => 137,
            Some(_) => 124,
        },
        JobStatus::Timeout | JobStatus::Budget => 124,
        JobStatus::Cancelled => 130,
        JobStatus::InfraError | JobStatus::Lost | JobStatus::Drained => 125,
    }
}

/// Exit codes of jobs, the worst first.
const WORST: [u8; 6] = [125, EXIT_STILL_RUNNING, 137, 124, 1, 130];

/// The worse of two exit codes of jobs.
pub(super) fn worst(one: u8, other: u8) -> u8 {
    let severity = |code: u8| WORST.iter().position(|known| *known == code).unwrap_or(WORST.len());
    if severity(other) < severity(one) { other } else { one }
}

pub(super) fn exit_code(record: &JobRecord) -> ExitCode {
    ExitCode::from(exit_of(record))
}
