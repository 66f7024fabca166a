//! The messages of a job in a live jail, as far as its Outcome waits for them.

use std::sync::Arc;

use super::bounded_threads::BoundedThreads;
use super::run::SharedRun;

/// Runs whose displays are received after their ends at a time.
static DISPLAY_RECEIVERS: BoundedThreads = BoundedThreads::new("st-words", 256);

/// Values of JSON that a cell may show in all, and that one thing it displays may have: enough for
/// the 100,000 cells of a table.
pub(crate) const MAX_SHOWN_VALUES: usize = 2_000_000;

/// The messages of an active job in a live jail: what it displays, and its progress.
pub(crate) trait DisplaySource: std::fmt::Debug + Send + Sync {
    /// The displays that were received so far. `last`: none counts after this call.
    fn displayed(&self, last: bool) -> DisplayedValues;

    /// Whether all displays that count were received. Does not wait.
    fn is_drained(&self) -> bool;

    /// Receives the remaining displays of a dead job; none counts after this call. The job
    /// determines how long this takes.
    fn receive_rest(&self, run: &SharedRun);
}

/// What a job has displayed, up to its result limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct DisplayedValues {
    pub values: Vec<serde_json::Value>,
    /// Of those and of what was dropped.
    pub bytes: u64,
    pub dropped: u64,
}

/// Receives the remaining displays of a dead run on a new thread, which then calls `on_received`.
/// Returns false if nothing is left, or no thread can be started.
pub(super) fn receive_rest(
    run: &Arc<SharedRun>,
    on_received: impl FnOnce(Arc<SharedRun>) + Send + 'static,
) -> bool {
    if run.live().is_none_or(|live| live.displays.is_drained()) {
        return false;
    }
    let run = run.clone();
    DISPLAY_RECEIVERS.try_spawn(move || {
        if let Some(live) = run.live() {
            live.displays.receive_rest(&run);
        }
        on_received(run);
    })
}
