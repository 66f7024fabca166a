//! A cell as its caller gives it, and the events of it that the caller gets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::super::run::Run;
use super::turns::ContextTurn;
use crate::limits::Limits;
use crate::model::{RemainingState, Source};
use crate::scope::ScopeId;

/// A piece of code for a context, and its limits.
#[derive(Debug, Default)]
pub struct CellSpec {
    /// The text of the code, in the language of the context.
    pub source: String,
    /// What it reads from stdin; nothing by default.
    pub stdin: Option<Vec<u8>>,
    /// Its stdin stays open, and [`Run::take_stdin`] gives the pipe to it: nothing of `stdin` is
    /// written there.
    pub stdin_open: bool,
    /// The cell's own limits; `wall` bounds this execution, not the context.
    pub limits: Limits,
    /// Limits with lower precedence than the cell's own, by source.
    pub defaults: Vec<(Source, Limits)>,
    /// As [`Spec::warn`](crate::engine::Spec::warn) and
    /// [`Spec::warn_signal`](crate::engine::Spec::warn_signal).
    pub warn: Option<Duration>,
    /// A signal that the processes of the cell are sent that long before the limit; none by
    /// default.
    pub warn_signal: Option<i32>,
    /// Ends the cell at its output limit; by default it continues and further output is dropped.
    pub end_on_output_limit: bool,
    /// The scope that its run belongs to, instead of the context's.
    pub parent: Option<ScopeId>,
    /// Its place in the order of this context's runs, from
    /// [`Context::queue`](super::Context::queue); the last one by default.
    pub turn: Option<ContextTurn>,
    /// Set by a caller that has left: a cell that has not begun by then does not begin.
    pub withdrawn: Option<Arc<AtomicBool>>,
    /// The run's id, from [`new_run_id`](crate::engine::new_run_id), for a caller that names the
    /// run before it begins.
    pub run_id: Option<String>,
}

/// An event of a cell while it runs.
#[derive(Debug)]
pub enum CellEvent {
    /// It has begun; its output can be read, and it can be cancelled.
    Started(Arc<Run>),
    /// Something that it displays, by MIME type.
    Displayed(serde_json::Value),
    /// The exception that ends it, pickled, as base64: for callers that can rebuild one. Not to be
    /// trusted.
    Raised(String),
    /// The interpreter was lost since the last cell: what remains of its state, and why.
    Lost(RemainingState, String),
}
