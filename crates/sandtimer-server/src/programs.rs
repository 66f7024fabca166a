//! Programs for the front doors of other systems (see `api`): compiled if their language is, run,
//! and how that ended.
//!
//! ```text
//! language   the table of languages, and which of them this host has
//! execution  one program from its source to the end of its run
//! compiled   compiled programs, kept by the hash of what they were made of
//! ending     how a stage ended, in the terms that judges share
//! ```
//! Compiling and running are two runs, each isolated and with its own limits; both are found under
//! /v1/runs. So few programs are executed at a time that a program which needs a quarter of its
//! time limit in processor time is not ended by it because of others. Further ones wait for their
//! turn, which does not count towards their limits. A program that has a turn waits for nothing
//! else before it runs, and one that only waits while it runs releases its turn.

mod compile_cache;
mod ending;
mod execution;
pub(crate) mod language;
mod service;
mod spec;

pub(crate) use ending::{StageEnd, StageReport};
pub(crate) use execution::{execute, execute_queued};
pub(crate) use language::ProgramLanguage;
pub(crate) use service::{
    ProgramService, attended, ceiling, enter, installed, report, version, wait_ended, while_quota, write,
};
pub(crate) use spec::{Directory, ProgramFile, ProgramResult, ProgramSpec, StageLimits};
