//! The interface of stores of jobs. Every call blocks, has its whole effect or none, and returns
//! which.
//!
//! ```text
//! scheduled ─▶ queued ─▶ leased ─▶ ended      with a result, good or bad
//!     │           │  ▲      ├────▶ dead       handed out too often without one
//!     │           │  └──────┘
//!     └───────────┴──────────────▶ cancelled
//! ```
//! A lease raises the job's epoch. A worker that writes for a leased job names the epoch it was
//! given: if the job has a later one, the lease was lost, and the write is refused or kept aside.

use std::fmt::Debug;
use std::time::Duration;

use sandtimer::model::Outcome;
use sandtimer_agents::resilience::BreakerSnapshot;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::SpecError;
use super::live::{LiveWorker, WorkerFacts};
use super::log::JobLog;
use super::queueing::JobBlocker;
use super::result::JobResult;
use super::schedule::ScheduleSpec;
use super::shared_breakers::BreakerPage;
use super::spec::JobSpec;
use super::state::{JobState, ShownState};
use super::webhook::{Delivery, DeliveryResult, WebhookShares, WebhookState};

/// Why a store did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(
        "the idempotency key `{key}` belongs to job {existing}, which has another spec; use another key, or the same spec"
    )]
    Conflict { key: String, existing: String },
    #[error(
        "{owner} has {MAX_QUEUES} queues, the maximum for one owner; use one of them, or purge the ended jobs of some"
    )]
    Queues { owner: String },
    #[error(
        "{owner} has {MAX_SCHEDULES} schedules, and no owner has more; remove those that are not used, or put several steps into one job"
    )]
    Schedules { owner: String },
    #[error("there is no job `{0}`; an ended job is removed after its `retention`, or by a purge")]
    Unknown(String),
    #[error("job {id} is {}; {remedy}", state.name())]
    WrongState { id: String, state: JobState, remedy: &'static str },
    #[error(
        "the cursor `{0}` is none of a listing; use the `next` of an earlier one, or none for the first part"
    )]
    Cursor(String),
    /// The caller no longer has the lease.
    #[error("the lease of job {0} was lost")]
    Lost(String),
    #[error("the store is full ({0}); nothing was changed: free some space, or purge ended jobs")]
    Full(String),
    #[error("another process kept the store busy for too long; try again")]
    Busy,
    #[error("the store has schema {found}, and this program knows up to {known}; use a newer sandtimer")]
    Newer { found: i64, known: i64 },
    #[error("the store cannot be used: {0}")]
    Broken(String),
    /// It is on another machine, or in another process, and does not answer.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The server that had it does not have it any more.
    #[error("the store is gone: {0}")]
    Gone(String),
    /// It may not be used in this way.
    #[error("the store is refused: {0}")]
    Refused(String),
}

/// Queues that an owner may have whose jobs were submitted to a server by a token.
pub const MAX_QUEUES: usize = 100;

/// Schedules that an owner may have whose jobs were submitted to a server by a token.
pub const MAX_SCHEDULES: usize = 100;

/// Whether a queue can have this name: 1 to 200 printable characters, as in a spec.
pub fn is_queue_name(name: &str) -> bool {
    (1..=200).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

/// A job to be taken in.
#[derive(Debug, Clone)]
pub struct Submission {
    pub spec: JobSpec,
    /// Whose it is; idempotency keys are each owner's own.
    pub owner: String,
}

/// The result of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubmittedJob {
    pub id: String,
    pub state: JobState,
    /// It had been submitted before, with the same idempotency key and the same spec.
    pub existed: bool,
}

/// What a worker asks for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeaseRequest {
    pub worker: String,
    /// The largest number of jobs: the free slots.
    pub slots: usize,
    /// From these queues; from all where it is empty.
    pub queues: Vec<String>,
    /// Only this job, of whichever queue.
    pub only: Option<String>,
    pub lease: Duration,
    /// The worker's memory; `None` if it ignores the memory of jobs.
    pub memory: Option<Room>,
}

/// The memory of a worker, for jobs that say how much they may have.
///
/// A job is handed out where it fits into what is free. Once a job has waited for `patience` and
/// would fit into all of it, room is kept for it: later jobs that say how much they may have are
/// handed out only if they leave that room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Bytes.
    pub free: u64,
    pub total: u64,
    pub patience: Duration,
}

/// A lease of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobLease {
    pub id: String,
    pub epoch: u64,
}

/// A job that a worker has now.
#[derive(Debug, Clone)]
pub struct JobAssignment {
    pub held: JobLease,
    /// As it was submitted; what cannot be read any more is the worker's to refuse.
    pub spec: Value,
    pub owner: String,
    pub submitted_ms: u64,
    /// From when on it could have been leased.
    pub due_ms: u64,
    pub leased_ms: u64,
    pub deadline_ms: Option<u64>,
    /// This one included.
    pub deliveries: u32,
    /// Bytes that each of its runs may have at most; 0 if not set.
    pub memory: u64,
    /// Ids of the jobs that it waited for, if it is to have their results.
    pub after: Vec<String>,
}

/// What a renewal found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    Kept,
    /// A caller cancelled the job, for this reason.
    Cancel(String),
    Lost,
}

/// The end of a lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finish {
    pub held: JobLease,
    pub result: JobResult,
    /// The result is Sandtimer's failure: the job is handed out again if it may be. A
    /// [`Drained`](super::JobStatus::Drained) result is not a failure, and its delivery does not
    /// count.
    pub again: bool,
    /// A [`Drained`](super::JobStatus::Drained) job is not handed out again before this many
    /// milliseconds have passed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pause_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What the store did with a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishResult {
    /// It is the job's result.
    Recorded,
    /// The job was given back, or is dead.
    Returned,
    /// The lease had been lost: the result is kept with the job as a duplicate.
    Duplicate,
}

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelResult {
    /// No worker had it, and none will.
    Cancelled,
    /// Its worker has been asked to end it.
    Asked,
    /// The job had ended already.
    TooLate,
}

/// Which jobs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Filter {
    pub owner: Option<String>,
    pub queue: Option<String>,
    pub state: Option<JobState>,
    /// Only those that ended well, or those that did not.
    #[serde(default)]
    pub ok: Option<bool>,
    /// Only jobs that a caller has cancelled, or only the others.
    #[serde(default)]
    pub cancel: Option<bool>,
}

impl Filter {
    /// The same of jobs in one state, where one is named.
    #[must_use]
    pub fn shown(self, shown: Option<ShownState>) -> Self {
        match shown {
            Some(ShownState { state, ok, cancel }) => Filter { state: Some(state), ok, cancel, ..self },
            None => self,
        }
    }
}

/// A job in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobLine {
    pub id: String,
    pub name: String,
    pub queue: String,
    pub priority: i32,
    pub state: JobState,
    pub ok: Option<bool>,
    pub error: Option<String>,
    pub submitted_ms: u64,
    pub due_ms: u64,
    pub deadline_ms: Option<u64>,
    pub leased_ms: Option<u64>,
    pub ended_ms: Option<u64>,
    pub deliveries: u32,
    pub worker: Option<String>,
    /// The reason of the caller that cancelled the job.
    pub cancel: Option<String>,
    /// Jobs of its `after` that have not ended.
    #[serde(default)]
    pub waiting_for: u32,
}

/// Everything about a job.
#[derive(Debug, Clone, Serialize)]
pub struct JobRecord {
    #[serde(flatten)]
    pub line: JobLine,
    /// As it was submitted.
    #[serde(skip)]
    pub owner: String,
    pub spec: Value,
    pub result: Option<JobResult>,
    /// The results of earlier deliveries, the latest last, at most three.
    pub earlier: Vec<JobResult>,
    /// Results that came after their lease was lost.
    pub duplicates: Vec<JobResult>,
    /// The state of the delivery of its end, if it has a webhook.
    pub webhook: Option<WebhookState>,
    /// Why no worker can lease it now; empty once it is leased or has ended.
    pub blocked_by: Vec<JobBlocker>,
    /// The store's moment of this answer.
    pub now_ms: u64,
}

impl JobRecord {
    /// Makes the output of its results text: each sequence of bytes that is not UTF-8 becomes
    /// U+FFFD.
    pub fn replace_invalid_utf8(&mut self) {
        let results = self.result.iter_mut().chain(&mut self.earlier).chain(&mut self.duplicates);
        results.filter_map(|result| result.outcome.as_mut()).for_each(Outcome::replace_invalid_utf8);
    }
}

/// A part of a listing, the latest submission first.
#[derive(Debug, Clone, Serialize)]
pub struct Page {
    pub jobs: Vec<JobLine>,
    /// For the next part; `None` at the end.
    pub next: Option<String>,
}

/// What is known of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueFacts {
    pub queue: String,
    pub paused: bool,
    pub scheduled: u64,
    pub queued: u64,
    pub leased: u64,
    pub dead: u64,
    /// How long the job has waited that waits longest.
    pub oldest_ms: Option<u64>,
}

/// A schedule in a store. Moments are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    #[serde(skip)]
    pub owner: String,
    pub name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// When it is due next; `None` if it is paused, or no moment is left.
    pub next_ms: Option<u64>,
    /// The last moment for which a job was submitted.
    pub last_ms: Option<u64>,
    /// The job of that moment.
    pub last_job: Option<String>,
    /// The state of that job, as long as the store has it.
    pub last_state: Option<JobState>,
    /// Jobs that were submitted.
    pub submitted: u64,
    /// Starts that were skipped, because the job before had not finished, or that were missed.
    pub skipped: u64,
    /// Why the job of the last moment could not be submitted.
    pub error: Option<String>,
    pub created_ms: u64,
    /// As it was given, without the secret of its webhook.
    pub spec: Value,
}

/// The longest piece of a file that is written or read at a time.
pub const FILE_PIECE: usize = 256 << 10;

/// A file of a job, by its path below the job's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOf<'a> {
    /// Submitted with it.
    Input(&'a str),
    /// Left by it.
    Output(&'a str),
}

/// A store of jobs.
pub trait JobStore: Send + Sync + Debug {
    /// The store's clock: milliseconds since 1970 that never go back.
    fn now_ms(&self) -> u64;

    /// The calendar's time, by which moments in specs count. A store whose clock is the calendar
    /// has one for both.
    fn calendar_ms(&self) -> u64 {
        self.now_ms()
    }

    /// Takes in all of them, or none. Those whose idempotency key and spec are known are answered
    /// with the job there is.
    ///
    /// # Errors
    /// The first submission that is refused.
    fn submit(&self, submissions: &[Submission]) -> Result<Vec<SubmittedJob>, StoreError>;

    /// Hands out at most as many jobs as there are slots, owners in turns and then the queues of
    /// each.
    ///
    /// # Errors
    /// Only those of the store itself, as for all methods below that name no others.
    fn lease(&self, request: &LeaseRequest) -> Result<Vec<JobAssignment>, StoreError>;

    /// Renews leases for another `lease`, and returns for each whether it is kept, cancelled or
    /// lost.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn renew(&self, held: &[JobLease], lease: Duration) -> Result<Vec<Renewal>, StoreError>;

    /// What is wanted of each lease, without renewing it: cheap enough to ask many times a second.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn check_leases(&self, held: &[JobLease]) -> Result<Vec<Renewal>, StoreError>;

    /// Records the results of leased jobs, each by compare-and-set on its epoch.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn finish(&self, finishes: &[Finish]) -> Result<Vec<FinishResult>, StoreError>;

    /// Ends a job: at once where no worker has it.
    ///
    /// # Errors
    /// A job that is not there.
    fn cancel(&self, id: &str, reason: &str) -> Result<CancelResult, StoreError>;

    /// Everything about a job, if it is there.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn get(&self, id: &str) -> Result<Option<JobRecord>, StoreError>;

    /// A page of the jobs, the latest submission first, from after `cursor`.
    ///
    /// # Errors
    /// A cursor that is none.
    fn list(&self, filter: &Filter, cursor: Option<&str>, most: usize) -> Result<Page, StoreError>;

    /// How many jobs match.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn count(&self, filter: &Filter) -> Result<u64, StoreError>;

    /// The jobs whose ids begin with `prefix`, in the order of their ids, at most `most`.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn find(&self, prefix: &str, most: usize) -> Result<Vec<JobLine>, StoreError>;

    /// Queues a job again that has ended and did not succeed. Its deadline counts from now: a retry
    /// by a caller is a new start.
    ///
    /// # Errors
    /// A job that is not there, is active, or succeeded.
    fn retry(&self, id: &str) -> Result<JobState, StoreError>;

    /// Removes jobs that have ended; webhooks that are due or under way are still sent. Returns how
    /// many jobs that were.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn purge(&self, filter: &Filter) -> Result<u64, StoreError>;

    /// Pauses or resumes a queue. Leased jobs continue.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn pause(&self, queue: &str, paused: bool) -> Result<(), StoreError>;

    /// Every queue that has jobs or is paused.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn queues(&self) -> Result<Vec<QueueFacts>, StoreError>;

    /// Stores a schedule in place of the one that has its name. Its next moment stays as it was
    /// unless the new one has other moments. Jobs are submitted by [`JobStore::lease`] and
    /// [`JobStore::sweep`], one for each moment. `queue` is where the store has the job's queue.
    ///
    /// # Errors
    /// [`StoreError::Schedules`], or a schedule that is never due.
    fn put_schedule(
        &self,
        owner: &str,
        queue: &str,
        spec: &ScheduleSpec,
    ) -> Result<ScheduleRecord, StoreError>;

    /// Pauses a schedule, or resumes it: it is due again at its next moment, and those that passed
    /// are not made up for. Returns the schedule, if there is one.
    ///
    /// # Errors
    /// To resume a schedule that this program cannot read.
    fn pause_schedule(
        &self,
        owner: &str,
        name: &str,
        paused: bool,
    ) -> Result<Option<ScheduleRecord>, StoreError>;

    /// Removes a schedule. Returns whether there was one; its jobs stay.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn remove_schedule(&self, owner: &str, name: &str) -> Result<bool, StoreError>;

    /// The schedules of an owner, or of all owners, by owner and name.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn schedules(&self, owner: Option<&str>) -> Result<Vec<ScheduleRecord>, StoreError>;

    /// How many jobs have ended in each way, by the name of their [`JobStatus`](super::JobStatus):
    /// all there ever were.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn outcomes(&self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Does what time alone does: what is due is queued, lost leases are taken back, what is past
    /// its deadline ends, what is past its retention is forgotten. [`JobStore::lease`] does it as
    /// well.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn sweep(&self) -> Result<(), StoreError>;

    /// Adds to the log of a leased job, with the store's moment.
    ///
    /// # Errors
    /// [`StoreError::Lost`].
    fn append_log(&self, held: &JobLease, bytes: &[u8]) -> Result<(), StoreError>;

    /// Reads a job's log from an absolute byte position.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn read_log(&self, id: &str, cursor: u64, most: usize) -> Result<JobLog, StoreError>;

    /// Adds to a file that a leased job leaves: at most [`FILE_PIECE`] bytes, `start` bytes from
    /// its beginning. What earlier deliveries of the job left goes with their successor's lease.
    ///
    /// # Errors
    /// [`StoreError::Lost`].
    fn write_file(&self, held: &JobLease, name: &str, start: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// A file's bytes from an absolute position: at most `most`, and none after its end or if there
    /// is no such file.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn read_file(&self, id: &str, file: FileOf<'_>, start: u64, most: usize) -> Result<Vec<u8>, StoreError>;

    /// Claims due deliveries of ends of jobs, at most `most`: of each owner in turn the longest
    /// due, as far as the shares admit them. Each is due again after `claim` unless it is settled
    /// before.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn claim_webhooks(
        &self,
        most: usize,
        claim: Duration,
        shares: &WebhookShares,
    ) -> Result<Vec<Delivery>, StoreError>;

    /// Records the result of a delivery; does nothing if its claim has expired and another worker
    /// has it.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn settle_webhook(&self, delivery: &Delivery, came: &DeliveryResult) -> Result<(), StoreError>;

    /// Makes the delivery of a job's end due at once, whatever has come of it before, and whether
    /// or not the webhook names that end. Attempts and their time count from now.
    ///
    /// # Errors
    /// A job that is not there, is not over, or has no webhook.
    fn redeliver_webhook(&self, id: &str) -> Result<WebhookState, StoreError>;

    /// Lists a worker as live for [`LIVE_TIME`](super::LIVE_TIME) from now, in place of what it
    /// announced before.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn announce(&self, worker: &WorkerFacts) -> Result<(), StoreError>;

    /// Removes a worker that has ended from the live ones. Its jobs stay.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn depart(&self, worker: &str) -> Result<(), StoreError>;

    /// The live workers with the jobs that they have, in the order of their names.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn workers(&self) -> Result<Vec<LiveWorker>, StoreError>;

    /// The version of what is kept of a breaker that jobs share, and that, its times counted down
    /// to now; version 0 where nothing is.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn load_breaker(&self, key: &str) -> Result<(u64, Option<BreakerSnapshot>), StoreError>;

    /// Keeps it in place of this version, until a week after it may be tried again. Whether it is
    /// kept: `false` where another version is there by now, and nothing is changed.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn swap_breaker(&self, version: u64, snapshot: &BreakerSnapshot) -> Result<bool, StoreError>;

    /// Returns at most `most` of the breakers that jobs of an owner share, or those of all owners,
    /// by owner and key, after `cursor`.
    ///
    /// # Errors
    /// [`StoreError::Cursor`].
    fn breakers(
        &self,
        owner: Option<&str>,
        cursor: Option<&str>,
        most: usize,
    ) -> Result<BreakerPage, StoreError>;
}
