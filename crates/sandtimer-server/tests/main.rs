//! The integration tests of the crate, as one program: with a program for each file, each would be
//! linked on its own.

mod abandoned;
mod answers;
mod archives;
#[path = "../../sandtimer/tests/as_user/mod.rs"]
mod as_user;
mod branches;
mod compat;
mod contexts;
mod dify;
mod document;
mod exports;
mod files;
mod fusion;
mod javascript;
mod jobs;
mod judge;
mod judge0;
mod librechat;
mod lifetime;
mod mcp;
mod meetings;
#[path = "../../sandtimer/tests/namespaces/mod.rs"]
mod namespaces;
mod network;
mod ordinary;
mod overload;
mod page;
mod piston;
mod policy;
mod programs;
mod refusals;
mod runs;
mod sandbox_contexts;
mod sandbox_files;
mod sandbox_life;
mod sandbox_limits;
mod sandbox_networks;
mod sandbox_ports;
mod sandboxes;
mod support;
mod tasks;
mod templates;
mod terminal;
mod trees;
mod webhooks;
mod workspaces;
