//! The displays of a job in a live jail that were not received before its end.

use std::sync::Arc;

use sandtimer_os::clock::monotonic_nanoseconds;

use super::bounded_threads::BoundedThreads;
use super::run::SharedRun;

/// Runs whose displays are received after their ends at a time.
static DISPLAY_RECEIVERS: BoundedThreads = BoundedThreads::new("st-words", 256);

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
            live.displays.receive_rest(&mut |report| run.handle_report(report, monotonic_nanoseconds()));
        }
        on_received(run);
    })
}
