//! What the networks of sandboxes have done, for the metrics.

use std::sync::atomic::AtomicU64;

/// What the networks of all sandboxes have done.
#[derive(Debug, Default)]
pub(crate) struct NetworkCounts {
    pub allowed: AtomicU64,
    pub denied: AtomicU64,
    pub sent: AtomicU64,
    pub received: AtomicU64,
}
