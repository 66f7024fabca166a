//! The integration tests of the crate, as one program: with a program for each file, each would be
//! linked on its own.

mod estimate;
mod javascript;
mod jobs;
mod jobs_disk;
mod jobs_machines;
mod jobs_nats;
mod jobs_server;
mod jobs_several;
mod machines;
mod mcp;
#[path = "../../sandtimer-server/tests/support/node.rs"]
mod node;
mod progress;
mod remote;
mod rootless;
mod serve;
mod serving;
mod streams;
#[path = "../../sandtimer-jobs/tests/support/nats.rs"]
mod support;
mod unattended;
mod vanished;
