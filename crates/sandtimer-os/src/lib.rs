//! The system calls of Sandtimer, behind safe functions, and the helper programs of its sandboxes.
//!
//! The only crate with `unsafe`. It knows no policy: what to run, what to limit and when to kill is
//! decided by the engine. It never logs, never reads configuration and starts no thread.

pub mod clock;
pub mod control;
pub mod descriptors;
pub mod fork;
#[path = "../helper/group.rs"]
mod group;
pub mod helper;
pub mod launcher;
pub mod networks;
pub mod own_namespaces;
pub mod probe;
pub mod process;
pub mod processors;
pub mod program;
pub mod queue;
pub mod remove;
pub mod seccomp;
pub mod socket;
pub mod stdout;
/// What the watchdog's process needs; the same files are compiled into the helper program.
#[allow(dead_code, reason = "the helper program uses the rest")]
#[path = "../helper/sys.rs"]
mod sys;
pub mod thread;
pub mod watchdog;
#[allow(dead_code, reason = "the helper program uses the rest")]
#[path = "../helper/watchdog.rs"]
mod watchdog_process;
/// The messages between engine and helpers; one file compiled into both.
#[path = "../helper/wire.rs"]
pub mod wire;
pub mod zygote;
