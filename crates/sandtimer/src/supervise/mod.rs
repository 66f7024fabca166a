//! Watching runs and ending them.
//!
//! Two threads share the work and nothing but messages: the enforcer (deadlines, kills, verdicts; real-time where
//! allowed) and the collector (output, stdin, the last look at a command, and the Outcome once a run is dead). A run
//! passes through `Starting → Running → (Grace) → Killed → dead`. Whoever begins it makes its state and hands it over
//! (`orders`); from then on only the enforcer moves it. Until one of the two threads has looked at its part of a run, whoever
//! brought it may take that part back: what is over by then was nobody else's (`at_once`, `burial`).

pub(crate) mod apart;
pub(crate) mod at_once;
pub(crate) mod burial;
pub(crate) mod collector;
pub(crate) mod ending;
pub(crate) mod enforcer;
pub(crate) mod follower;
pub(crate) mod listeners;
pub(crate) mod look;
mod notices;
pub(crate) mod offer;
pub(crate) mod orders;
pub mod output;
pub(crate) mod ports;
mod python;
mod reports;
pub(crate) mod run;
pub(crate) mod seen;
pub(crate) mod sentence;
mod unsent;
pub(crate) mod waiting;
pub(crate) mod words;

pub use seen::{Look, SeenProcess};
pub use sentence::signal_number;
