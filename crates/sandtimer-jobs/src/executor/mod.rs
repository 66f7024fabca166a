//! Executes jobs.
//!
//! ```text
//! worker    leases jobs, one thread for each slot; the lease renewer extends leases and reads cancels
//! mod       one leased job, from its spec to its result
//! steps     steps in parallel
//! turns     a loop: the driver is asked, its action is called, it gets the result
//! calls     one call: attempts, pauses, fallbacks; every attempt is a run
//! handlers  functions of the worker's program, whose attempts are runs as well
//! delivering  a thread that delivers the ends of jobs to webhooks
//! files     the directory of a job with inputs or outputs
//! level     the scopes, whose deadlines the enforcer keeps
//! observing notification of each scope that has ended
//! control   what ends a job from outside
//! ```
//! What a job does is always a run in a sandbox, inside the job's scope. So the deadline is kept by
//! the enforcer whatever the code does, and when `execute` returns, everything the job started is
//! dead.

mod calls;
mod clock;
mod control;
mod delivering;
mod files;
mod handlers;
mod level;
mod observing;
mod steps;
mod turns;
mod worker;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer::engine::{Engine, Error, Interpreters, machine_memory};
use sandtimer::limits::Limits;
use sandtimer::model::{Layer, Outcome, Source};
use sandtimer::scope::ScopeId;
use sandtimer::time::Moment;
use sandtimer_agents::resilience::{BreakerSnapshot, Breakers, Budgets, SharedBreakers};

use crate::job::sentences::JobActivity;
use crate::job::{
    BreakerChoice, BreakerScope, CallRecord, Finish, JobAssignment, JobLease, JobPhase, JobResult, JobSpec,
    JobStatus, JobStore, JobVerdict, JobWork, SpecError, StepRecord, StepSpec, StoreError, UnreadableSpec,
    breaker_key,
};

use clock::now;
use control::{Halt, JobControl};
pub use delivering::{SendResult, WebhookSender};
use files::{JobDirectory, ScratchDirectory};
pub use handlers::{Handler, HandlerCall, HandlerMessage, HandlerResult, Handlers};
use level::Level;
pub use observing::{EndedScope, Observer};
pub use worker::{Worker, WorkerSettings};

/// Share of all jobs of a worker, in percent: that of one run without an operator's ceiling.
const JOBS_PERCENT: u64 = 80;

/// Returns 80 % of [`machine_memory`], in bytes.
pub fn usable_memory() -> u64 {
    machine_memory() / 100 * JOBS_PERCENT
}

/// Calls that a result lists.
const CALLS: usize = 100;

/// What a worker executes jobs with: the engine, the store, and bounds of its own.
#[derive(Debug, Clone)]
pub struct WorkerContext {
    /// Starts the runs of jobs.
    pub engine: Engine,
    /// The store that the jobs are leased from.
    pub store: Arc<dyn JobStore>,
    /// The warm interpreters in which Python programs of jobs run.
    pub interpreters: Arc<Interpreters>,
    /// The worker's own limits, by source, for runs whose spec names none; by default there are
    /// none.
    pub defaults: Vec<(Source, Limits)>,
    /// The directory below which jobs with inputs or outputs have theirs. [`Worker::work`] makes
    /// it.
    pub directories: PathBuf,
    /// The number of bytes that are stored of a job's output files together; by default
    /// [`MAX_JOB_FILE_BYTES`].
    pub max_file_bytes: u64,
    /// Is notified of the end of each scope of a job; by default there is no observer.
    pub observer: Option<Arc<dyn Observer>>,
}

/// The default of [`WorkerContext::max_file_bytes`].
pub const MAX_JOB_FILE_BYTES: u64 = 64 << 20;

impl WorkerContext {
    /// Makes a context without limits of its own, whose jobs have their directories in `job-files`
    /// below a state directory.
    pub fn new(engine: Engine, store: Arc<dyn JobStore>, state_directory: &Path) -> Self {
        let directories = state_directory.join("job-files");
        let (defaults, max_file_bytes) = (Vec::new(), MAX_JOB_FILE_BYTES);
        let interpreters = Arc::new(Interpreters::new(engine.clone(), "python3"));
        WorkerContext { engine, store, interpreters, defaults, directories, max_file_bytes, observer: None }
    }
}

/// Decides whether a worker executes a job, by the job's owner.
pub trait Admission: Send + Sync + Debug {
    /// Returns the scope in which the job runs; `None` if its owner has none.
    ///
    /// # Errors
    /// The reason if the job is not to be executed: it fails with that reason.
    fn admit(&self, owner: &str, spec: &JobSpec) -> Result<Option<ScopeId>, String>;
}

/// What a worker executes jobs with.
#[derive(Debug)]
struct JobContext<'a> {
    /// The name of the worker.
    pub worker: &'a str,
    pub context: &'a WorkerContext,
    /// Where jobs have their directories, or why there is no such place.
    pub scratch: &'a Result<ScratchDirectory, String>,
    /// The functions that jobs may name.
    pub handlers: &'a Handlers,
    /// Decides whether each job is admitted.
    pub admission: Option<&'a dyn Admission>,
}

/// Why a job's work stops short.
#[derive(Debug)]
enum StopCause {
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
    fn failed(message: String) -> Self {
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
struct JobExecution<'a> {
    context: &'a WorkerContext,
    scratch: &'a Result<ScratchDirectory, String>,
    /// The scope that the job's own is opened in.
    within: Option<ScopeId>,
    handlers: &'a Handlers,
    control: &'a JobControl,
    held: &'a JobLease,
    owner: &'a str,
    spec: &'a JobSpec,
    /// Ids of the jobs whose results it is to have.
    after: &'a [String],
    /// Shared by the job's steps.
    breakers: Arc<Mutex<Breakers>>,
    budgets: Arc<Mutex<Budgets>>,
    result: JobResult,
    outcome: Option<Arc<Outcome>>,
    /// Where its runs work, where it has files.
    directory: Option<Arc<JobDirectory<'a>>>,
    unlogged: Arc<Mutex<LogBacklog>>,
}

/// What of the log the store has not taken yet, in its order.
#[derive(Debug, Default)]
struct LogBacklog {
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

/// After a store has not taken a part of a log, the next try comes after this time, and this many
/// bytes are kept for it.
const LOG_RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_UNLOGGED_BYTES: usize = 1 << 20;
/// For how long a store that cannot be reached is asked to take the last of a log.
const FINAL_LOG_TIMEOUT: Duration = Duration::from_secs(60);
/// How much of what has waited is handed over at a time.
const LOG_CHUNK_BYTES: usize = 256 << 10;

/// How long a job that a worker returned because it cannot read the spec waits before it may be
/// leased again.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(10);

/// Executes a leased job. Returns what the store records of it.
///
/// It was leased after `asked`.
fn execute(
    job_context: &JobContext<'_>,
    leased: &JobAssignment,
    asked: Moment,
    control: &JobControl,
) -> Finish {
    let held = leased.held.clone();
    let refused = |why: String| {
        let result = JobResult::bare(JobStatus::Failed, Some(why));
        Finish { held: held.clone(), result, again: false, pause_ms: 0 }
    };
    let spec = match JobSpec::read_stored(leased.spec.clone()) {
        Ok(spec) => spec,
        // Its submission was accepted by a version that reads it.
        Err(error) if leased.spec.is_object() => return return_unreadable(held, &error, job_context.worker),
        Err(error) => return refused(error.to_string()),
    };
    let within =
        match job_context.admission.map_or(Ok(None), |admission| admission.admit(&leased.owner, &spec)) {
            Ok(within) => within,
            Err(why) => return refused(why),
        };
    let mut execution = JobExecution {
        context: job_context.context,
        scratch: job_context.scratch,
        within,
        handlers: job_context.handlers,
        control,
        held: &leased.held,
        owner: &leased.owner,
        spec: &spec,
        after: &leased.after,
        breakers: Arc::new(Mutex::new(breakers(job_context.context, leased, &spec.breaker))),
        budgets: Arc::default(),
        result: JobResult::bare(JobStatus::Ok, None),
        outcome: None,
        directory: None,
        unlogged: Arc::default(),
    };
    if leased.held.epoch > 1 {
        let first_due_ms = spec.times().start(leased.submitted_ms);
        execution.result.spent.earlier_ms = leased.due_ms.saturating_sub(first_due_ms);
    }
    execution.result.spent.queued_ms = leased.leased_ms.saturating_sub(leased.due_ms);
    let ended = execution.work(leased, asked);
    let again = execution.settle(ended);
    execution.collect();
    execution.result.log_bytes_dropped = execution.end_log();
    Finish { held, result: execution.result, again, pause_ms: 0 }
}

/// Leaves a job to workers of other versions. The delivery does not count.
fn return_unreadable(held: JobLease, error: &SpecError, worker: &str) -> Finish {
    let version = env!("CARGO_PKG_VERSION");
    let reason = format!(
        "a worker of version {version} cannot read the spec and returned the job: {error}; start a worker of the version that \
         submitted it"
    );
    let unreadable = UnreadableSpec {
        worker: worker.to_owned(),
        version: version.to_owned(),
        field: error.path.clone(),
        problem: error.problem.clone(),
    };
    let result =
        JobResult { unreadable: Some(unreadable), ..JobResult::bare(JobStatus::Drained, Some(reason)) };
    let pause_ms = UNREADABLE_PAUSE.as_millis() as u64;
    Finish { held, result, again: true, pause_ms }
}

impl JobExecution<'_> {
    fn work(&mut self, leased: &JobAssignment, asked: Moment) -> Result<(), StopCause> {
        // A store's clock may have stopped, while this program's copy of it continues; no more time
        // can have passed than since the request.
        let most = u64::try_from(now().since(asked).as_millis()).unwrap_or(u64::MAX);
        let store_now = self.context.store.now_ms().min(leased.leased_ms.saturating_add(most));
        let age = Duration::from_millis(store_now.saturating_sub(leased.submitted_ms));
        let left =
            leased.deadline_ms.map(|deadline| Duration::from_millis(deadline.saturating_sub(store_now)));
        let observer = self.context.observer.clone();
        let job = Level::job(&self.context.engine, self.within, observer, &leased.held.id, age, left)?;
        self.work_in(&job).inspect_err(|_| job.fails())
    }

    fn work_in(&mut self, job: &Level) -> Result<(), StopCause> {
        self.prepare()?;
        match &self.spec.work {
            JobWork::Action(action) => {
                let called = self.call(job, &self.spec.name, None, action, &[])?;
                self.take(called)
            }
            JobWork::Steps(steps) if self.spec.parallel > 1 => self.parallel_steps(job, steps),
            JobWork::Steps(steps) => self.steps(job, steps),
            JobWork::Loop(spec) => self.turns(job, spec),
        }
    }

    fn steps(&mut self, job: &Level, steps: &[StepSpec]) -> Result<(), StopCause> {
        self.list_steps(steps);
        for (index, step) in steps.iter().enumerate() {
            let called = self.call(job, &step.name, None, &step.action, &[])?;
            let record = &mut self.result.steps[index];
            (record.ok, record.degraded) = (Some(called.record.ok), called.record.degraded);
            self.take(called)?;
        }
        Ok(())
    }

    fn list_steps(&mut self, steps: &[StepSpec]) {
        let unbegun = |step: &StepSpec| StepRecord { name: step.name.clone(), ok: None, degraded: false };
        self.result.steps = steps.iter().map(unbegun).collect();
    }

    /// Handles the result of a call on which the job depends.
    fn take(&mut self, called: calls::JobCallCompletion) -> Result<(), StopCause> {
        let failed = (!called.record.ok).then(|| {
            let message = called.record.said.clone().unwrap_or_default();
            StopCause::Failed {
                message: format!("{}: {message}", called.record.name),
                verdict: called.verdict.clone(),
            }
        });
        if let Some(value) = called.value() {
            self.result.value = Some(value.clone());
        }
        self.note(called.record);
        failed.map_or(Ok(()), Err)
    }

    fn note(&mut self, record: CallRecord) {
        self.result.degraded |= record.degraded;
        if self.result.calls.len() == CALLS {
            self.result.calls.remove(0);
            self.result.calls_dropped += 1;
        }
        self.result.calls.push(record);
    }

    /// Writes down how it ended. Whether it may be handed out again.
    fn settle(&mut self, ended: Result<(), StopCause>) -> bool {
        let breakers = self.breakers().snapshot(now());
        let result = &mut self.result;
        result.breakers = breakers;
        result.outcome = self.outcome.as_deref().cloned();
        let mut again = false;
        (result.status, result.error) = match ended {
            Ok(()) => (JobStatus::Ok, None),
            Err(StopCause::Limit(mut verdict)) => {
                verdict.sentence.push_str(&result.spent.sentence());
                let status = if verdict.limit_ms.is_some() { JobStatus::Timeout } else { JobStatus::Budget };
                let sentence = verdict.sentence.clone();
                result.verdict = Some(*verdict);
                (status, Some(sentence))
            }
            Err(StopCause::Halted(Halt::Cancel(reason))) => {
                (JobStatus::Cancelled, Some(format!("Cancelled: {reason}.")))
            }
            Err(StopCause::Halted(Halt::Lost)) => {
                // A worker that has leased the job by now keeps it; if none has, the job is queued
                // again.
                again = true;
                (JobStatus::Lost, Some("its worker lost the lease".to_owned()))
            }
            Err(StopCause::Halted(Halt::GiveBack)) => {
                again = true;
                (JobStatus::Drained, Some("its worker was asked to end, and gave it back".to_owned()))
            }
            Err(StopCause::Infrastructure(problem)) => {
                again = true;
                (JobStatus::InfraError, Some(problem))
            }
            Err(StopCause::Failed { message, mut verdict }) => {
                if let Some(verdict) = &mut verdict {
                    verdict.sentence.push_str(&result.spent.sentence());
                }
                let is_of_time = verdict.as_ref().is_some_and(|verdict| verdict.limit_ms.is_some());
                result.verdict = verdict;
                (if is_of_time { JobStatus::Timeout } else { JobStatus::Failed }, Some(message))
            }
        };
        result.ok = result.status == JobStatus::Ok;
        again
    }

    /// Fails if the time of the job or its loop has ended, or the job was halted.
    fn check(&self, level: &Level, phase: JobPhase, activity: JobActivity<'_>) -> Result<(), StopCause> {
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
    fn log(&self, bytes: &[u8]) {
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
    fn end_log(&self) -> u64 {
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

    fn breakers(&self) -> MutexGuard<'_, Breakers> {
        // After a panic the job has failed, and nothing more is called.
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn budgets(&self) -> MutexGuard<'_, Budgets> {
        self.budgets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unlogged(&self) -> MutexGuard<'_, LogBacklog> {
        self.unlogged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remark(&self, text: &str) {
        self.log(format!("sandtimer: {text}\n").as_bytes());
    }
}

/// The breakers that all jobs of one owner share.
#[derive(Debug)]
struct OwnersBreakers {
    store: Arc<dyn JobStore>,
    owner: String,
}

impl SharedBreakers for OwnersBreakers {
    fn load(&self, key: &str) -> Option<(u64, Option<BreakerSnapshot>)> {
        let (version, kept) = self.store.load_breaker(&breaker_key(&self.owner, key)).ok()?;
        Some((version, kept.map(|kept| BreakerSnapshot { key: key.to_owned(), ..kept })))
    }

    fn swap(&self, version: u64, snapshot: &BreakerSnapshot) -> Option<bool> {
        let key = breaker_key(&self.owner, &snapshot.key);
        self.store.swap_breaker(version, &BreakerSnapshot { key, ..snapshot.clone() }).ok()
    }
}

/// A job's own breakers, or those of its owner.
fn breakers(context: &WorkerContext, leased: &JobAssignment, choice: &BreakerChoice) -> Breakers {
    let breakers = Breakers::new(choice.settings.clone(), now().as_nanos());
    match choice.scope {
        BreakerScope::Job => breakers,
        BreakerScope::Store => {
            let (store, owner) = (Arc::clone(&context.store), leased.owner.clone());
            breakers.shared(Arc::new(OwnersBreakers { store, owner }), &leased.held.id)
        }
    }
}
