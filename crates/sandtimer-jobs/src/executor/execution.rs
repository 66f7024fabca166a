//! One job under way.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer::engine::Error;
use sandtimer::model::{Layer, Outcome};
use sandtimer::scope::ScopeId;
use sandtimer_agents::resilience::{Breakers, Budgets};

use super::clock::now;
use super::context::WorkerContext;
use super::control::{Halt, JobControl};
use super::directories::{JobDirectory, ScratchDirectory};
use super::handlers::Handlers;
use super::level::Level;
use crate::job::sentences::JobActivity;
use crate::job::{CallRecord, JobLease, JobPhase, JobResult, JobSpec, JobVerdict, StoreError};

/// Calls that a result lists.
const CALLS: usize = 100;
/// After a store has not taken a part of a log, the next try comes after this time, and this many
/// bytes are kept for it.
const LOG_RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_UNLOGGED_BYTES: usize = 1 << 20;
/// For how long a store that cannot be reached is asked to take the last of a log.
const FINAL_LOG_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of what has waited is handed over at a time.
const LOG_CHUNK_BYTES: usize = 256 << 10;

/// Why a job's work stops short.
#[derive(Debug)]
pub(super) enum StopCause {
    /// A limit of the job or its loop.
    Limit(Box<JobVerdict>),
    Halted(Halt),
    /// Sandtimer could not do its part.
    Infrastructure(String),
    /// What was asked for cannot be done, wherever it is tried.
    Failed {
        message: String,
        /// Of the limit that ended the last run, where one did.
        verdict: Option<JobVerdict>,
    },
}

impl StopCause {
    pub fn failed(message: String) -> Self {
        StopCause::Failed { message, verdict: None }
    }
}

impl From<Error> for StopCause {
    fn from(error: Error) -> Self {
        match error {
            Error::Files(_)
            | Error::NoCommand
            | Error::Nul { .. }
            | Error::ArgumentTooLong { .. }
            | Error::Limit(_)
            | Error::Workspaces(_) => StopCause::failed(error.to_string()),
            error => StopCause::Infrastructure(error.to_string()),
        }
    }
}

/// One job under way.
pub(super) struct JobExecution<'a> {
    pub context: &'a WorkerContext,
    pub scratch: &'a Result<ScratchDirectory, String>,
    /// The scope that the job's own is opened in.
    pub within: Option<ScopeId>,
    pub handlers: &'a Handlers,
    pub control: &'a JobControl,
    pub held: &'a JobLease,
    pub owner: &'a str,
    pub spec: &'a JobSpec,
    /// Ids of the jobs whose results it is to have.
    pub after: &'a [String],
    /// Shared by the job's steps.
    pub breakers: Arc<Mutex<Breakers>>,
    pub budgets: Arc<Mutex<Budgets>>,
    pub result: JobResult,
    pub outcome: Option<Arc<Outcome>>,
    /// Where its runs work, where it has files.
    pub directory: Option<Arc<JobDirectory<'a>>>,
    pub unlogged: Arc<Mutex<LogBacklog>>,
}

/// What of the log the store has not taken yet, in its order.
#[derive(Debug, Default)]
pub(super) struct LogBacklog {
    waiting: Vec<u8>,
    /// Bytes after those, which were dropped.
    dropped: u64,
    /// Those of them that the log does not speak of yet, and whether they begin in the middle of a
    /// line.
    unreported: u64,
    is_mid_line: bool,
    /// When the store is asked again, in nanoseconds: to be refused may take a while.
    again: u64,
}

impl LogBacklog {
    /// Keeps bytes in order: nothing is kept after a gap.
    fn keep(&mut self, bytes: &[u8]) {
        if self.waiting.is_empty() && self.unreported == 0 {
            self.again = now().as_nanos() + LOG_RETRY_INTERVAL.as_nanos() as u64;
        }
        let room = if self.unreported == 0 { MAX_UNLOGGED_BYTES - self.waiting.len() } else { 0 };
        let (kept, rest) = bytes.split_at(room.min(bytes.len()));
        self.waiting.extend_from_slice(kept);
        if self.unreported == 0 {
            self.is_mid_line = self.waiting.last().is_some_and(|last| *last != b'\n');
        }
        self.dropped += rest.len() as u64;
        self.unreported += rest.len() as u64;
    }
}

/// A call under way.
#[derive(Clone, Copy)]
pub(super) struct JobCall<'a> {
    pub name: &'a str,
    pub level: &'a Level,
}

impl JobExecution<'_> {
    pub(super) fn note(&mut self, record: CallRecord) {
        self.result.degraded |= record.degraded;
        if self.result.calls.len() == CALLS {
            self.result.calls.remove(0);
            self.result.calls_dropped += 1;
        }
        self.result.calls.push(record);
    }

    /// Fails if the time of the job or its loop has ended, or the job was halted.
    pub(super) fn check(
        &self,
        level: &Level,
        phase: JobPhase,
        activity: JobActivity<'_>,
    ) -> Result<(), StopCause> {
        if let Some(halt) = self.control.halted() {
            return Err(StopCause::Halted(halt));
        }
        match level.over().filter(|bound| bound.layer <= Layer::Loop) {
            Some(bound) => Err(StopCause::Limit(Box::new(bound.verdict(phase, activity)))),
            None => Ok(()),
        }
    }

    /// Adds to the job's log. That it cannot be written is no reason to end the job: what the store
    /// does not take waits for it, and what is too much for that is spoken of where it is missing,
    /// and in the result.
    pub(super) fn log(&self, bytes: &[u8]) {
        let mut unlogged = self.unlogged();
        // An error of the store is handled at the end.
        let is_taken = unlogged.again <= now().as_nanos()
            && self.hand_over(&mut unlogged).is_ok()
            && (bytes.is_empty() || self.context.store.append_log(self.held, bytes).is_ok());
        if !is_taken {
            unlogged.keep(bytes);
        }
    }

    /// Hands over what has waited.
    fn hand_over(&self, unlogged: &mut LogBacklog) -> Result<(), StoreError> {
        let hand = |bytes: &[u8]| self.context.store.append_log(self.held, bytes);
        let drained = loop {
            let count = unlogged.waiting.len().min(LOG_CHUNK_BYTES);
            if count == 0 {
                break Ok(());
            }
            if let Err(error) = hand(&unlogged.waiting[..count]) {
                break Err(error);
            }
            unlogged.waiting.drain(..count);
        };
        let reported = drained.and_then(|()| match unlogged.unreported {
            0 => Ok(()),
            bytes => {
                let line_end = if unlogged.is_mid_line { "\n" } else { "" };
                hand(format!("{line_end}sandtimer: {bytes} bytes are missing here\n").as_bytes())
            }
        });
        match &reported {
            Ok(()) => unlogged.unreported = 0,
            Err(_) => unlogged.again = now().as_nanos() + LOG_RETRY_INTERVAL.as_nanos() as u64,
        }
        reported
    }

    /// Hands over what has waited for the store, which is asked for a while where it may come back
    /// and the job is this worker's. How many bytes the log lacks.
    pub(super) fn end_log(&self) -> u64 {
        let mut unlogged = self.unlogged();
        let until = now().as_nanos() + FINAL_LOG_TIMEOUT.as_nanos() as u64;
        while let Err(error) = self.hand_over(&mut unlogged) {
            let may_come_back =
                matches!(error, StoreError::Unreachable(_) | StoreError::Gone(_) | StoreError::Busy);
            let is_given_up = matches!(self.control.halted(), Some(Halt::Lost | Halt::GiveBack));
            if !may_come_back || is_given_up || now().as_nanos() >= until {
                break;
            }
            std::thread::park_timeout(LOG_RETRY_INTERVAL);
        }
        unlogged.dropped + unlogged.waiting.len() as u64
    }

    pub(super) fn breakers(&self) -> MutexGuard<'_, Breakers> {
        // After a panic the job has failed, and nothing more is called.
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn budgets(&self) -> MutexGuard<'_, Budgets> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unlogged(&self) -> MutexGuard<'_, LogBacklog> {
        self.unlogged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remark(&self, text: &str) {
        self.log(format!("sandtimer: {text}\n").as_bytes());
    }
}
