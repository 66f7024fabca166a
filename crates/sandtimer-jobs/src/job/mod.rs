//! Jobs: durable work, as data, and the trait of its stores. Nothing here starts, waits for or
//! stores anything.
//!
//! ```text
//! error         the field that is rejected, and why
//! spec          what is to be done, read from TOML or JSON; every rejection names the field
//! files         the files that a job is given, and which of the files it leaves are stored
//! json          JSON without duplicate keys
//! source        the file that a spec is read from, and the directory of its relative paths
//! program       what a run executes
//! table         the reader that all of these use
//! fan_out       one job for each item of a list
//! graph         steps, each after those that it needs
//! result        how a job ended
//! ways          how a call is carried out: retries, fallbacks
//! live          workers as a store lists them
//! queueing      relations to other jobs: keys, rates, dependencies
//! dependencies  which jobs wait for which, among those that are submitted together
//! recurrence    when a recurring job is due
//! schedule      jobs that recur
//! webhook       who is notified of its end
//! webhook_body  the body of its request
//! store         the trait of stores, and the states of a job
//! log           a part of a job's log, and the times of its lines
//! matching      what is done to all jobs that match a filter
//! ```
//! `executor` executes them; `sqlite` and `nats` store them.

mod dependencies;
mod error;
mod fan_out;
mod files;
mod graph;
mod json;
mod live;
mod log;
mod matching;
mod program;
mod queueing;
mod recurrence;
mod result;
mod schedule;
mod sentence_examples;
pub(crate) mod sentences;
mod shared_breakers;
mod source;
mod spec;
mod state;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod ways;
mod webhook;
mod webhook_body;

pub(crate) use dependencies::resolve_names;
pub use error::SpecError;
pub use fan_out::{MAX_FAN_OUT_BYTES, expanded};
pub(crate) use files::MAX_PATH_DEPTH;
pub use files::{InputFile, MAX_INPUT_BYTES, MAX_JOB_FILES, OutputSpec, digest, embedded, hexadecimal};
pub use graph::StepSpec;
pub use json::UnambiguousValue;
pub use live::{LIVE_TIME, LiveWorker, WorkerFacts};
pub use log::{JobLog, LineTimes, LogTime};
pub use matching::{OPEN_STATES, RETRIED_STATES, each_open, each_retried, requeue_dead};
pub use program::{JobLanguage, JobProgram};
pub use queueing::{After, Concurrency, JobBlocker, MAX_BLOCKING_JOBS, RateLimit, UnreadableSpec};
pub use recurrence::{Recurrence, ScheduledMoment, rfc3339};
pub use result::{
    CallRecord, JobFile, JobFileRefused, JobPhase, JobResult, JobSpent, JobStatus, JobVerdict, StepRecord,
};
pub use schedule::{MAX_MISSED, MissedPolicy, OverlapPolicy, ScheduleSpec, Tick};
#[doc(hidden)]
pub use sentence_examples::sentences as example_sentences;
pub(crate) use shared_breakers::breaker_key;
pub use shared_breakers::{BreakerPage, StoredBreaker};
pub use source::{LOCAL_OWNER, anchored, parse_file, schedule_from};
pub use spec::{BreakerChoice, BreakerScope, JobSpec, JobWork, LoopSpec, Times};
pub use state::{JobState, ShownState};
pub use store::{
    CancelResult, FILE_PIECE, FileOf, Filter, Finish, FinishResult, JobAssignment, JobLease, JobLine,
    JobRecord, JobStore, LeaseRequest, MAX_QUEUES, MAX_SCHEDULES, Page, QueueFacts, Renewal, Room,
    ScheduleRecord, StoreError, Submission, SubmittedJob, is_queue_name,
};
pub use ways::{Action, RetryExclusions, WaySpec};
pub use webhook::{
    Delivery, DeliveryResult, Destination, JobEnd, Webhook, WebhookShares, WebhookState, signing_key,
};
pub(crate) use webhook_body::webhook_body;
