//! Durable work: what a job is, the worker that executes jobs as runs of Sandtimer's engine, and
//! the stores that keep them, in an SQLite database or in a log on a NATS server.
//!
//! Everything that a job does is a run, a scope bounds it, and the engine ends it: nothing here
//! ends a process itself. It knows neither HTTP nor which clients may see a job.
#![forbid(unsafe_code)]

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
