//! Tracked pieces of an agent's work: how long they should take, what they may use, how far they are.
//!
//! Plain arithmetic on what callers pass in; only `here` looks at the machine. Nothing here starts, waits for or ends
//! anything.

pub mod budget;
pub mod estimate;
mod here;
pub mod progress;
