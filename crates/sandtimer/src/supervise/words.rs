//! What a job in a live sandbox says, as far as its Outcome waits for it.

use std::sync::Arc;

use super::apart::Apart;
use super::run::Running;

/// Runs whose words are heard behind their ends at a time.
static HEARERS: Apart = Apart::new("st-words", 256);

/// Values of JSON that a cell may show in all, and that one thing it displays may have: enough for the 100,000 cells of a table.
pub(crate) const MAX_SHOWN_VALUES: usize = 2_000_000;

/// What a job in a live sandbox says while it goes on: what it displays, and how far it is.
pub(crate) trait Words: std::fmt::Debug + Send + Sync {
    /// What it has displayed, as far as that was heard. `last`: nothing counts from then on.
    fn displayed(&self, last: bool) -> Displayed;

    /// Whether all that counts was heard. Does not wait.
    fn are_heard(&self) -> bool;

    /// Hears what is left when the job is dead; from then on nothing counts. Takes as long as the job has seen to.
    fn hear_rest(&self, run: &Running);
}

/// What a job has displayed, up to its result limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Displayed {
    pub values: Vec<serde_json::Value>,
    /// Of those and of what was dropped.
    pub bytes: u64,
    pub dropped: u64,
}

/// Has what is left of a dead run's words heard on a thread of its own, and then says so. False where nothing is left, or nobody
/// can hear it.
pub(super) fn hear_rest(run: &Arc<Running>, heard: impl FnOnce(Arc<Running>) + Send + 'static) -> bool {
    if run.live().is_none_or(|live| live.words.are_heard()) {
        return false;
    }
    let run = run.clone();
    HEARERS.have(move || {
        if let Some(live) = run.live() {
            live.words.hear_rest(&run);
        }
        heard(run);
    })
}
