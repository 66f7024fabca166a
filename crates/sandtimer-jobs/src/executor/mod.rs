//! Executes jobs.
//!
//! ```text
//! worker          leases jobs, one thread for each slot; renews the leases and reads cancels
//! context         what a worker executes jobs with, and which it admits
//! conducting      one leased job, from its spec to its result
//! execution       one job under way
//! steps           steps, one after another or in parallel
//! turns           a loop: the driver is asked, its action is called, it gets the result
//! calls           one call: attempts, pauses, fallbacks; every attempt is a run
//! following       the output of a run is copied to the job's log
//! handlers        functions of the worker's program
//! handling        attempts that are calls of handlers; their runs are runs of the job as well
//! delivering      a thread that delivers the ends of jobs to webhooks
//! webhook_sender  what sends the requests of that
//! directories     the directories of a worker's jobs
//! files           the files of a job with inputs or outputs
//! level           the scopes, whose deadlines the enforcer keeps
//! observing       notification of each scope that has ended
//! control         what ends a job from outside
//! ```
//! What a job does is always a run in a sandbox, inside the job's scope. So the deadline is kept by
//! the enforcer whatever the code does, and when `execute` returns, everything the job started is
//! dead.

mod calls;
mod clock;
mod conducting;
mod context;
mod control;
mod delivering;
mod directories;
mod execution;
mod files;
mod following;
mod handlers;
mod handling;
mod level;
mod observing;
mod steps;
mod turns;
mod webhook_sender;
mod worker;

pub use context::{Admission, MAX_JOB_FILE_BYTES, WorkerContext, usable_memory};
pub use handlers::{Handler, HandlerCall, HandlerMessage, HandlerResult, Handlers};
pub use observing::{EndedScope, Observer};
pub use webhook_sender::{SendResult, WebhookSender};
pub use worker::{Worker, WorkerSettings};
