//! Tasks: pieces of work somebody wants to know the length of before, and the state of while, they are done.
//!
//! Plain arithmetic on what callers pass in; only `here` looks at the machine. Nothing here starts, waits for or ends
//! anything.

pub mod estimate;
mod here;
