//! Runs whose client waits for them in pieces: none of its connections lasts as long as it does, so
//! that a run continues only while its client waits for it, or did so lately.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::live::{LiveRun, RunPhase};
use crate::body::RequestFields;
use crate::error::{ApiRejection, Code};

/// How long a client may be silent between two waits.
const WAIT_GRACE_PERIOD: Duration = Duration::from_secs(10);
/// The reason of a cancelled run to which its client did not come back.
const ABANDONED_REASON: &str = "its client, which was attached, has not waited for it for 10 s";

/// `attached` and `detach`, which exclude each other.
pub(crate) fn parse(fields: &mut RequestFields) -> Result<(bool, bool), ApiRejection> {
    let attached = fields.boolean("attached")?.unwrap_or(false);
    let detach = fields.boolean("detach")?.unwrap_or(false);
    if attached && detach {
        let message = "attached: a run that is detached continues without its client; use one of the two";
        return Err(ApiRejection::new(Code::BadField, message).with("key", "attached"));
    }
    Ok((attached, detach))
}

/// Cancels a run once no request has waited for it for a while. To be called after its client has
/// had the answer to its first wait.
pub(crate) fn watch_over(run: &Arc<LiveRun>) {
    if !matches!(run.phase(), RunPhase::Ended(_)) {
        tokio::spawn(watch_to_its_end(run.clone()));
    }
}

async fn watch_to_its_end(run: Arc<LiveRun>) {
    let mut waiting = run.waiters.subscribe();
    loop {
        let patience = if *waiting.borrow_and_update() == 0 { WAIT_GRACE_PERIOD } else { Duration::MAX };
        tokio::select! {
            () = run.wait_ended(None) => return,
            // A request that came and went is a change, too.
            changed = timeout(patience, waiting.changed()) => if changed.is_err() {
                return run.cancel(ABANDONED_REASON);
            },
        }
    }
}
