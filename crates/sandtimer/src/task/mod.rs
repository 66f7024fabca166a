//! Tasks: tracked pieces of an agent's work, with how long they should take, what they may use, and their progress.
//!
//! Plain arithmetic on what callers pass in; only `here` reads the state of the machine. Nothing here starts, waits for or
//! ends anything.

pub mod budget;
pub mod estimate;
mod here;
pub mod progress;
