//! Durable work: what a job is, the worker that executes jobs as runs of Sandtimer's engine, and
//! the stores that keep them, in an SQLite database or in a log on a NATS server.
//!
//! Everything that a job does is a run, a scope bounds it, and the engine ends it: nothing here
//! ends a process itself. It knows neither HTTP nor who may see a job.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use sandtimer::Engine;
//! use sandtimer_jobs::SqliteJobs;
//! use sandtimer_jobs::executor::{Worker, WorkerContext, WorkerSettings};
//! use sandtimer_jobs::job::{
//!     JobRecord, JobSpec, JobStore, LOCAL_OWNER, StoreError, Submission,
//! };
//! use serde_json::json;
//!
//! /// Reads the job again and again until it has ended.
//! fn wait(store: &dyn JobStore, id: &str) -> Result<JobRecord, StoreError> {
//!     loop {
//!         match store.get(id)? {
//!             Some(record) if record.line.state.is_over() => return Ok(record),
//!             Some(_) => std::thread::park_timeout(Duration::from_millis(20)),
//!             None => return Err(StoreError::Unknown(id.to_owned())),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let temporary = tempfile::tempdir()?;
//! # let directory = temporary.path();
//! // A store in the files of a state directory, and a job in it.
//! let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory)?);
//! let spec = JobSpec::read(json!({"command": ["echo", "hello"], "wall_ms": "1m"}))?;
//! let submission = Submission { spec, owner: LOCAL_OWNER.to_owned() };
//! let id = store.submit(&[submission])?.remove(0).id;
//!
//! // A worker, which usually is in another process.
//! let context = WorkerContext::new(Engine::new()?, Arc::clone(&store), directory);
//! let worker = Worker::new(context, WorkerSettings::new(|problem| eprintln!("{problem}")));
//! let ended = std::thread::scope(|threads| {
//!     threads.spawn(|| worker.work());
//!     let ended = wait(&*store, &id);
//!     worker.drain();
//!     ended
//! })?;
//! let result = ended.result.expect("an ended job has a result");
//! assert!(result.ok);
//! assert_eq!(result.outcome.expect("the job had a run").stdout, "hello\n");
//! # Ok(())
//! # }
//! ```
//!
//! # The main types
//!
//! - [`JobSpec`](job::JobSpec) is a job as it is submitted, read from JSON or TOML, and
//!   [`ScheduleSpec`](job::ScheduleSpec) one that recurs.
//! - [`JobStore`](job::JobStore) is the trait of stores. [`SqliteJobs`] is a store in a file;
//!   `NatsJobs`, with the feature `nats`, is one on a NATS server.
//! - [`Worker`](executor::Worker) leases jobs from a store and executes them.
//! - [`JobRecord`](job::JobRecord) is what a store knows of a job, and
//!   [`JobResult`](job::JobResult) how it ended.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod base64_text;
#[cfg(test)]
mod conformance;
pub mod executor;
pub mod job;
#[cfg(feature = "nats")]
mod nats;
mod sqlite;

#[cfg(feature = "nats")]
pub use nats::{NatsAddress, NatsJobs};
pub use sqlite::SqliteJobs;
