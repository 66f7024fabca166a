//! The integration tests of the crate, as one program: a program for each file would be linked for each file.

#[path = "../../sandtimer/tests/as_user/mod.rs"]
mod as_user;
mod crashes;
mod handlers;
mod job_files;
mod job_threads;
mod jobs;
mod queueing;
