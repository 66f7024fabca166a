//! Supervision of runs: waiting for their ends, and ending them.
//!
//! Two threads share the work and exchange messages: the enforcer (deadlines, kills, verdicts;
//! real-time if the kernel allows it) and the collector (output, stdin, the inspection of a command
//! before its limit, and the Outcome once a run is dead). A run passes through `Starting → Running
//! → (Grace) → Killed → Dead`. The thread that starts a run makes its state and passes it to both:
//! its end to the enforcer (`commands`), its streams to the collector (`deliveries`). Once one of
//! them has taken its part, that thread alone changes it. Until then the thread that passed a part
//! may take it back, and ends the run itself (`at_once`, `deferred_reap`).

pub(crate) mod at_once;
pub(crate) mod bounded_threads;
pub(crate) mod collector;
pub(crate) mod commands;
pub(crate) mod deferred_reap;
pub(crate) mod deliveries;
pub mod denials;
pub(crate) mod displays;
pub(crate) mod ending;
pub(crate) mod enforcer;
pub(crate) mod follower;
mod kept_inspection;
mod late_displays;
pub(crate) mod listeners;
pub(crate) mod look;
mod notices;
pub(crate) mod offer;
pub mod output;
pub(crate) mod ports;
pub(crate) mod proc_files;
mod python;
pub(crate) mod remarks;
mod reports;
mod rows;
pub(crate) mod run;
pub(crate) mod run_facts;
pub(crate) mod run_inspection;
pub(crate) mod sentence;
mod streams;
mod unsent_slots;
pub(crate) mod verdict_examples;
pub(crate) mod verdict_sentences;
pub(crate) mod waiting;

pub use follower::OutputPiece;
pub use run_inspection::{ProcessInspection, RunInspection};
pub use sentence::{signal_name, signal_number};
#[doc(hidden)]
pub use verdict_examples::sections as example_sentences;
pub use verdict_sentences::bytes;
