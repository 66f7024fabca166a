//! The integration tests of the crate, as one program: with a program for each file, each would be
//! linked on its own.

#[path = "../../sandtimer/tests/as_user/mod.rs"]
mod as_user;
mod crashes;
mod handlers;
mod job_files;
mod job_threads;
mod jobs;
mod queueing;
