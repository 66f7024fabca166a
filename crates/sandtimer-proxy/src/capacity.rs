//! What all proxies of a process share, so that the sandboxes of one owner cannot use all of it.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Lookups of all proxies at once. Each has a thread, which the C library may keep for a minute.
const MAX_LOOKUPS: usize = 128;
/// Connections of all proxies at once. Each has two descriptors.
const MAX_CONNECTIONS: usize = 4096;

/// The lookups and connections that are left of those of all proxies.
#[derive(Clone, Debug)]
pub struct Capacity {
    pub(crate) lookups: Arc<Semaphore>,
    pub(crate) connections: Arc<Semaphore>,
}

impl Default for Capacity {
    fn default() -> Capacity {
        let of = |count| Arc::new(Semaphore::new(count));
        Capacity { lookups: of(MAX_LOOKUPS), connections: of(MAX_CONNECTIONS) }
    }
}
