//! Bubblewrap's command line, set up exactly as it asks.
//!
//! Three processes besides the caller's own:
//! - the **guard** ([`guard`]) is a copy of the caller that outlives its signals. It adopts every
//!   orphan, ends whatever is left when the command has ended, its deadline has passed or the
//!   caller is gone, and removes the mount points that were made on the host. To the engine it is a
//!   jail's init: it reads the same commands and sends the same notices.
//! - the **setup** ([`setup`]) is born in the namespaces that were asked for, builds the root, and
//!   becomes the command, or
//! - the **init** ([`command`]), the first process of the PID namespace, which waits for the
//!   command.
//!
//! Nothing here restricts the command beyond what the command line asks for: limits and the kill
//! are the engine's.
#![forbid(unsafe_code)]

mod capabilities;
mod command;
mod failure;
mod guard;
mod in_root;
mod message;
mod mount_points;
mod operations;
mod options;
mod processes;
mod rlimits;
mod setup;
mod usage;

pub use failure::{BwrapFailure, Messages, reason};
pub use guard::{BwrapGuard, GuardEvent, StartRequest};
pub use options::{Access, BwrapOptions, Operation, ParseResult};
pub use rlimits::ProcessRlimit;
pub use usage::{usage, version};
