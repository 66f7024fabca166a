//! The trait of stores of jobs. Every call blocks, and either has its whole effect or returns an
//! error and has none.
//!
//! ```text
//! scheduled ─▶ queued ─▶ leased ─▶ ended      with a result, good or bad
//!     │           │  ▲      ├────▶ dead       handed out too often without one
//!     │           │  └──────┘
//!     └───────────┴──────────────▶ cancelled
//! ```
//! A lease raises the job's epoch. A worker that writes for a leased job names the epoch of its
//! lease: if the job has a later one, the lease was lost, and the write is refused or kept apart.

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

/// Why a call of a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A submission is rejected because of its spec.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The idempotency key of a submission is used by a job with another spec.
    #[error(
        "the idempotency key `{key}` belongs to job {existing}, which has another spec; use another key, or the same spec"
    )]
    Conflict {
        /// The idempotency key.
        key: String,
        /// The id of the job that has it.
        existing: String,
    },
    /// The owner has [`MAX_QUEUES`] queues, and the submission names another one.
    #[error(
        "{owner} has {MAX_QUEUES} queues, the maximum for one owner; use one of them, or purge the ended jobs of some"
    )]
    Queues {
        /// The owner of the queues.
        owner: String,
    },
    /// The owner has [`MAX_SCHEDULES`] schedules.
    #[error(
        "{owner} has {MAX_SCHEDULES} schedules, and no owner has more; remove those that are not used, or put several steps into one job"
    )]
    Schedules {
        /// The owner of the schedules.
        owner: String,
    },
    /// There is no job with this id.
    #[error("there is no job `{0}`; an ended job is removed after its `retention`, or by a purge")]
    Unknown(String),
    /// The job is in a state in which this cannot be done.
    #[error("job {id} is {}; {remedy}", state.name())]
    WrongState {
        /// The id of the job.
        id: String,
        /// Its state.
        state: JobState,
        /// What would work instead.
        remedy: &'static str,
    },
    /// The cursor was not returned by a listing.
    #[error(
        "the cursor `{0}` is none of a listing; use the `next` of an earlier one, or none for the first part"
    )]
    Cursor(String),
    /// The lease has run out, or the job was leased again.
    #[error("the lease of job {0} was lost")]
    Lost(String),
    /// The disk, or the storage of the server, is full.
    #[error("the store is full ({0}); nothing was changed: free some space, or purge ended jobs")]
    Full(String),
    /// Other processes used the database for longer than this one waits.
    #[error("another process kept the store busy for too long; try again")]
    Busy,
    /// A newer version of Sandtimer wrote the store.
    #[error("the store has schema {found}, and this program knows up to {known}; use a newer sandtimer")]
    Newer {
        /// The version of its schema.
        found: i64,
        /// The newest version that this program can read.
        known: i64,
    },
    /// The store is damaged, or the system reports an error.
    #[error("the store cannot be used: {0}")]
    Broken(String),
    /// The store is on another machine, or in another process, and does not answer.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The file or the server does not have the store any more.
    #[error("the store is gone: {0}")]
    Gone(String),
    /// The store may not be used in this way, for this reason.
    #[error("the store is refused: {0}")]
    Refused(String),
}

/// The largest number of queues of an owner who submits jobs to a server with a token.
pub const MAX_QUEUES: usize = 100;

/// The largest number of schedules of an owner who submits jobs to a server with a token.
pub const MAX_SCHEDULES: usize = 100;

/// Whether a queue can have this name: 1 to 200 printable characters, as in a spec.
pub fn is_queue_name(name: &str) -> bool {
    (1..=200).contains(&name.chars().count()) && !name.chars().any(char::is_control)
}

/// A job that is submitted to a store.
#[derive(Debug, Clone)]
pub struct Submission {
    /// What the job is to do.
    pub spec: JobSpec,
    /// The owner of the job, whose idempotency keys are its own.
    pub owner: String,
}

/// The result of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubmittedJob {
    /// The id by which the store knows the job.
    pub id: String,
    /// Its state now.
    pub state: JobState,
    /// Whether it had been submitted before, with the same idempotency key and the same spec.
    pub existed: bool,
}

/// A worker's request for jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeaseRequest {
    /// The name of the worker.
    pub worker: String,
    /// The largest number of jobs: the worker's free slots.
    pub slots: usize,
    /// The queues that they are taken from; all of them if it is empty.
    pub queues: Vec<String>,
    /// The id of the only job that is taken, whatever its queue.
    pub only: Option<String>,
    /// How long the leases last if they are not renewed.
    pub lease: Duration,
    /// The worker's memory; `None` if the memory of jobs does not count.
    pub memory: Option<Room>,
    /// The names of the worker's handlers. It is handed only jobs whose handlers it has, except by
    /// `only`.
    #[serde(default)]
    pub handlers: Vec<String>,
}

/// The memory of a worker, for jobs that limit theirs.
///
/// A job is handed out if it fits into what is free. If a job that would fit into `total` has
/// waited for `patience`, room is kept for it: later jobs that limit their memory are handed out
/// only if they leave that room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Bytes that no job of the worker has.
    pub free: u64,
    /// Bytes for all jobs of the worker together.
    pub total: u64,
    /// How long a job that does not fit waits until room is kept for it.
    pub patience: Duration,
}

/// A lease of a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobLease {
    /// The id of the job.
    pub id: String,
    /// Each lease of the job has a higher number: one with a lower number is lost.
    pub epoch: u64,
}

/// A job that was leased to a worker.
#[derive(Debug, Clone)]
pub struct JobAssignment {
    /// The lease.
    pub held: JobLease,
    /// The spec as it is stored, which [`JobSpec::read_stored`] reads. A worker that cannot read it
    /// returns the job.
    pub spec: Value,
    /// The owner of the job.
    pub owner: String,
    /// When it was submitted, in milliseconds since 1970 of the store's clock.
    pub submitted_ms: u64,
    /// The moment from which it could have been leased, in milliseconds since 1970 of the store's
    /// clock.
    pub due_ms: u64,
    /// When this lease began, in milliseconds since 1970 of the store's clock.
    pub leased_ms: u64,
    /// When its wall-clock limit is reached, in milliseconds since 1970 of the store's clock;
    /// `None` is unlimited.
    pub deadline_ms: Option<u64>,
    /// The number of deliveries, this one included.
    pub deliveries: u32,
    /// How long it was in the queue before all of its deliveries, in milliseconds.
    pub queued_ms: u64,
    /// How long earlier deliveries took, with the pauses after them, in milliseconds.
    pub earlier_ms: u64,
    /// The memory that its runs may have together, in bytes; 0 if it is not limited.
    pub memory: u64,
    /// The ids of the jobs that it waited for, if it gets their results.
    pub after: Vec<String>,
}

/// The state of a lease that a worker asks about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The lease is the worker's.
    Kept,
    /// The job was cancelled for this reason: the worker ends it.
    Cancel(String),
    /// The lease is lost: the worker ends what it runs of the job.
    Lost,
}

/// The end of a lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finish {
    /// The lease that ends.
    pub held: JobLease,
    /// The result of the job, or of this delivery.
    pub result: JobResult,
    /// Whether Sandtimer failed, not the job: the job is handed out again if it may be. The
    /// delivery of a [`Drained`](super::JobStatus::Drained) job does not count.
    pub again: bool,
    /// A [`Drained`](super::JobStatus::Drained) job is not handed out again before this many
    /// milliseconds have passed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pause_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a store did with a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishResult {
    /// It is the job's result.
    Recorded,
    /// The job waits for another delivery, or is dead.
    Returned,
    /// The lease had been lost: the result is kept among the duplicates of the job.
    Duplicate,
}

/// The result of a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelResult {
    /// No worker had the job, and none will.
    Cancelled,
    /// The worker of the job has been asked to end it.
    Asked,
    /// The job had ended already.
    TooLate,
}

/// Selects jobs. The default selects all of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Filter {
    /// Only jobs of this owner.
    pub owner: Option<String>,
    /// Only jobs of this queue.
    pub queue: Option<String>,
    /// Only jobs in this state.
    pub state: Option<JobState>,
    /// Only jobs that succeeded, or only those that ended otherwise.
    #[serde(default)]
    pub ok: Option<bool>,
    /// Only jobs that are being cancelled, or only those that are not.
    #[serde(default)]
    pub cancel: Option<bool>,
}

impl Filter {
    /// Selects only jobs in the state `shown`, if there is one.
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
    /// The id of the job.
    pub id: String,
    /// The name in its spec.
    pub name: String,
    /// The queue it is in.
    pub queue: String,
    /// From −100 to 100; a higher one is earlier.
    pub priority: i32,
    /// Its state.
    pub state: JobState,
    /// Whether it succeeded; `None` until it has ended.
    pub ok: Option<bool>,
    /// Why it did not succeed, in a sentence.
    pub error: Option<String>,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// The moment from which it can be leased, in milliseconds since 1970.
    pub due_ms: u64,
    /// When its wall-clock limit is reached, in milliseconds since 1970; `None` is unlimited.
    pub deadline_ms: Option<u64>,
    /// When its latest lease began, in milliseconds since 1970.
    pub leased_ms: Option<u64>,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// How often it was handed to a worker.
    pub deliveries: u32,
    /// The name of the worker that has it, or that had it when it ended.
    pub worker: Option<String>,
    /// Why it is to be cancelled, if it is.
    pub cancel: Option<String>,
    /// The number of jobs of its `after` that have not ended.
    #[serde(default)]
    pub waiting_for: u32,
}

/// Everything that a store knows about a job.
#[derive(Debug, Clone, Serialize)]
pub struct JobRecord {
    /// What listings have of it.
    #[serde(flatten)]
    pub line: JobLine,
    /// The owner of the job, which the wire does not have.
    #[serde(skip)]
    pub owner: String,
    /// The spec as it was submitted, with digests in place of inputs, and without secrets.
    pub spec: Value,
    /// Its result, once it has ended.
    pub result: Option<JobResult>,
    /// The results of earlier deliveries, the latest last, at most three.
    pub earlier: Vec<JobResult>,
    /// Results that came after their lease was lost.
    pub duplicates: Vec<JobResult>,
    /// The state of the delivery of its end, if it has a webhook.
    pub webhook: Option<WebhookState>,
    /// Why no worker can lease it now; empty once it is leased or has ended.
    pub blocked_by: Vec<JobBlocker>,
    /// The moment of this record, in milliseconds since 1970 of the store's clock.
    pub now_ms: u64,
}

impl JobRecord {
    /// Makes the output of its results text: each sequence of bytes that is not UTF-8 is replaced
    /// by U+FFFD.
    pub fn replace_invalid_utf8(&mut self) {
        let results = self.result.iter_mut().chain(&mut self.earlier).chain(&mut self.duplicates);
        results.filter_map(|result| result.outcome.as_mut()).for_each(Outcome::replace_invalid_utf8);
    }
}

/// A part of a listing, the latest submission first.
#[derive(Debug, Clone, Serialize)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<JobLine>,
    /// The cursor of the next part; `None` at the end.
    pub next: Option<String>,
}

/// The state of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueFacts {
    /// The name of the queue.
    pub queue: String,
    /// Whether it hands out nothing.
    pub paused: bool,
    /// Jobs that wait for their start or for other jobs.
    pub scheduled: u64,
    /// Jobs that wait for a worker.
    pub queued: u64,
    /// Jobs that workers have.
    pub leased: u64,
    /// Jobs that were handed out too often without a result.
    pub dead: u64,
    /// The waiting time, in milliseconds, of the queued job that has waited longest.
    pub oldest_ms: Option<u64>,
}

/// A schedule in a store. Moments are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// The owner of the schedule, which the wire does not have.
    #[serde(skip)]
    pub owner: String,
    /// Its name, unique among the schedules of the owner.
    pub name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// When it is due next; `None` if it is paused, or no moment is left.
    pub next_ms: Option<u64>,
    /// The latest moment for which a job was submitted.
    pub last_ms: Option<u64>,
    /// The job of that moment.
    pub last_job: Option<String>,
    /// The state of that job, as long as the store has it.
    pub last_state: Option<JobState>,
    /// The number of jobs that were submitted.
    pub submitted: u64,
    /// The number of moments without a job: they were missed, or the job before had not ended.
    pub skipped: u64,
    /// Why the job of the last moment could not be submitted.
    pub error: Option<String>,
    /// When it was stored first.
    pub created_ms: u64,
    /// The schedule as it was stored, without the secret of its webhook.
    pub spec: Value,
}

/// The largest number of bytes of a file that are written at a time.
pub const FILE_PIECE: usize = 256 << 10;

/// A file of a job, by its path below the job's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOf<'a> {
    /// A file that was submitted with the job.
    Input(&'a str),
    /// A file that the job has left.
    Output(&'a str),
}

/// A store of jobs, which several processes may use at the same time.
///
/// ```
/// use std::time::Duration;
/// use sandtimer_jobs::SqliteJobs;
/// use sandtimer_jobs::job::{
///     Finish, FinishResult, JobResult, JobSpec, JobState, JobStatus, JobStore, LOCAL_OWNER,
///     LeaseRequest, Submission,
/// };
/// use serde_json::json;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let store = SqliteJobs::open(directory.path())?;
/// let spec = JobSpec::read(json!({"command": ["true"]}))?;
/// let job = store.submit(&[Submission { spec, owner: LOCAL_OWNER.to_owned() }])?.remove(0);
/// assert_eq!(job.state, JobState::Queued);
///
/// // What a worker does.
/// let request = LeaseRequest {
///     worker: "worker-1".to_owned(),
///     slots: 1,
///     queues: Vec::new(),
///     only: None,
///     lease: Duration::from_secs(30),
///     memory: None,
///     handlers: Vec::new(),
/// };
/// let leased = store.lease(&request)?.remove(0);
/// let result = JobResult::bare(JobStatus::Ok, None);
/// let finish = Finish { held: leased.held, result, again: false, pause_ms: 0 };
/// assert_eq!(store.finish(&[finish])?, [FinishResult::Recorded]);
/// assert_eq!(store.get(&job.id)?.expect("it is kept for a week").line.ok, Some(true));
/// # Ok(())
/// # }
/// ```
pub trait JobStore: Send + Sync + Debug {
    /// Returns the time of the store's clock: milliseconds since 1970 that never go back.
    fn now_ms(&self) -> u64;

    /// Returns the time of the calendar, by which moments in specs count; by default that of the
    /// store's clock.
    fn calendar_ms(&self) -> u64 {
        self.now_ms()
    }

    /// Stores all of the submissions, or none. A submission whose idempotency key and spec are
    /// known is the job that exists.
    ///
    /// # Errors
    /// If a submission is rejected, why the first one is.
    fn submit(&self, submissions: &[Submission]) -> Result<Vec<SubmittedJob>, StoreError>;

    /// Leases at most as many jobs to a worker as it has slots: the owners take turns, and so do
    /// the queues of each owner.
    ///
    /// # Errors
    /// Only if the store itself cannot be used.
    fn lease(&self, request: &LeaseRequest) -> Result<Vec<JobAssignment>, StoreError>;

    /// Extends leases to `lease` from now, and returns the state of each, in their order.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn renew(&self, held: &[JobLease], lease: Duration) -> Result<Vec<Renewal>, StoreError>;

    /// Returns the state of each lease without extending it: cheap enough for many calls a second.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn check_leases(&self, held: &[JobLease]) -> Result<Vec<Renewal>, StoreError>;

    /// Records the results of leased jobs, each by compare-and-set on its epoch, and returns what
    /// was done with each.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn finish(&self, finishes: &[Finish]) -> Result<Vec<FinishResult>, StoreError>;

    /// Cancels a job: at once if no worker has it.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    fn cancel(&self, id: &str, reason: &str) -> Result<CancelResult, StoreError>;

    /// Returns everything about a job; `None` if there is none with this id.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn get(&self, id: &str) -> Result<Option<JobRecord>, StoreError>;

    /// Lists at most `most` of the jobs that match, the latest submission first, after `cursor`.
    ///
    /// # Errors
    /// [`StoreError::Cursor`].
    fn list(&self, filter: &Filter, cursor: Option<&str>, most: usize) -> Result<Page, StoreError>;

    /// Returns the number of jobs that match.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn count(&self, filter: &Filter) -> Result<u64, StoreError>;

    /// Returns at most `most` of the jobs whose ids begin with `prefix`, in the order of their ids.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn find(&self, prefix: &str, most: usize) -> Result<Vec<JobLine>, StoreError>;

    /// Queues a job again that has ended and did not succeed. Its deadline counts from now, because
    /// a person has chosen a new start.
    ///
    /// # Errors
    /// [`StoreError::Unknown`], or [`StoreError::WrongState`] if it has not ended, or succeeded.
    fn retry(&self, id: &str) -> Result<JobState, StoreError>;

    /// Removes the jobs that match and have ended; webhooks that are due or under way are still
    /// sent. Returns the number of jobs that were removed.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn purge(&self, filter: &Filter) -> Result<u64, StoreError>;

    /// Pauses a queue, which then hands out nothing, or resumes it. Jobs that are leased continue.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn pause(&self, queue: &str, paused: bool) -> Result<(), StoreError>;

    /// Returns every queue that has jobs or is paused.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn queues(&self) -> Result<Vec<QueueFacts>, StoreError>;

    /// Stores a schedule in place of the one that has its name. Its next moment stays as it was
    /// unless the new one has other moments. Jobs are submitted by [`JobStore::lease`] and
    /// [`JobStore::sweep`], one for each moment. `queue` is the name under which the store has the
    /// job's queue.
    ///
    /// # Errors
    /// [`StoreError::Schedules`], or [`StoreError::Spec`] if the schedule is never due.
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
    /// If a schedule is resumed that this program cannot read.
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

    /// Returns the schedules of an owner, or of all owners, sorted by owner and name.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn schedules(&self, owner: Option<&str>) -> Result<Vec<ScheduleRecord>, StoreError>;

    /// Returns how many jobs have ended in each way since the store was made, by the name of their
    /// [`JobStatus`](super::JobStatus).
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn outcomes(&self) -> Result<Vec<(String, u64)>, StoreError>;

    /// Applies what the time alone changes: jobs that are due are queued, leases that have run out
    /// are taken back, jobs past their deadlines end, and those past their retention are removed.
    /// [`JobStore::lease`] does so, too.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn sweep(&self) -> Result<(), StoreError>;

    /// Adds to the log of a leased job, with the time of the store's clock.
    ///
    /// # Errors
    /// [`StoreError::Lost`].
    fn append_log(&self, held: &JobLease, bytes: &[u8]) -> Result<(), StoreError>;

    /// Reads about `most` bytes of a job's log from an absolute byte position.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn read_log(&self, id: &str, cursor: u64, most: usize) -> Result<JobLog, StoreError>;

    /// Adds to a file that a leased job leaves: at most [`FILE_PIECE`] bytes, `start` bytes from
    /// its beginning. The next lease of the job removes what earlier deliveries left.
    ///
    /// # Errors
    /// [`StoreError::Lost`].
    fn write_file(&self, held: &JobLease, name: &str, start: u64, bytes: &[u8]) -> Result<(), StoreError>;

    /// Returns at most `most` bytes of a file from an absolute position; none after its end, or if
    /// there is no such file.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn read_file(&self, id: &str, file: FileOf<'_>, start: u64, most: usize) -> Result<Vec<u8>, StoreError>;

    /// Claims at most `most` ends of jobs that are due for delivery: of each owner in turn the
    /// longest due, as far as the shares admit them. Each is due again after `claim` unless it is
    /// settled before.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn claim_webhooks(
        &self,
        most: usize,
        claim: Duration,
        shares: &WebhookShares,
    ) -> Result<Vec<Delivery>, StoreError>;

    /// Records the result of a delivery. If its claim has run out and another worker has it,
    /// nothing is changed.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn settle_webhook(&self, delivery: &Delivery, came: &DeliveryResult) -> Result<(), StoreError>;

    /// Makes the delivery of a job's end due at once, whatever its state, and whether or not the
    /// webhook selects that end. Attempts and their time count from now.
    ///
    /// # Errors
    /// [`StoreError::Unknown`], or [`StoreError::WrongState`] if the job has not ended or has no
    /// webhook.
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

    /// Returns the live workers with the jobs that they have, sorted by name.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn workers(&self) -> Result<Vec<LiveWorker>, StoreError>;

    /// Returns the version of a shared breaker and its state, with its times as of now; version 0
    /// if there is none.
    ///
    /// # Errors
    /// See [`JobStore::lease`].
    fn load_breaker(&self, key: &str) -> Result<(u64, Option<BreakerSnapshot>), StoreError>;

    /// Stores the state of a shared breaker in place of this version, until a week after the key
    /// may be tried again. Returns whether it was stored: `false` if the store has another version,
    /// and then changes nothing.
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
