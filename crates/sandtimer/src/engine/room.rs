//! Descriptors of the host program that pools leave to it.
//!
//! Pools make children ahead of need, and use the sandboxes of calls that have ended again, only
//! while enough descriptors are free: a quarter of the process's limit, 64 at least, is for the
//! code of the caller. A caller that waits for a child waits until there is room as well, unless no
//! other call of its pool could make some.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sandtimer_os::descriptors;

/// Descriptors that one child takes with its sandbox, while it is made and once it has a job.
const DESCRIPTORS_PER_CHILD: u64 = 48;
/// The same of the sandbox that its job leaves.
const DESCRIPTORS_PER_IDLE_JAIL: u64 = 20;
/// Left to the caller: this number, and this share of its limit.
const MIN_RESERVE: u64 = 64;
const RESERVE_SHARE: u64 = 4;

/// Children that are being made, for any pool of the process with this PID: not all of their
/// descriptors are open yet.
static PENDING: AtomicU64 = AtomicU64::new(0);
static PENDING_OF: AtomicU32 = AtomicU32::new(0);

/// A child that is being made.
#[derive(Debug)]
pub(super) struct PendingChild {
    process: u32,
}

impl PendingChild {
    pub fn begin() -> Self {
        let process = std::process::id();
        // A forked process makes none of the children that its parent was making.
        if PENDING_OF.swap(process, Ordering::Relaxed) != process {
            PENDING.store(0, Ordering::Relaxed);
        }
        PENDING.fetch_add(1, Ordering::Relaxed);
        PendingChild { process }
    }
}

impl Drop for PendingChild {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            PENDING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn pending() -> u64 {
    match PENDING_OF.load(Ordering::Relaxed) == std::process::id() {
        true => PENDING.load(Ordering::Relaxed),
        false => 0,
    }
}

/// Whether there is room for another child. A child that is made `ahead` of need leaves room for
/// one for which a caller of another pool waits.
pub(super) fn has_room_for_child(ahead: bool) -> bool {
    has_room(DESCRIPTORS_PER_CHILD * (1 + u64::from(ahead)))
}

/// Whether there is room for a sandbox that is kept for the next call.
pub(super) fn has_room_for_idle_jail() -> bool {
    has_room(DESCRIPTORS_PER_IDLE_JAIL)
}

/// Returns how many children fit into `limit` after the caller's reserve.
pub(super) fn max_children(limit: u64) -> usize {
    usize::try_from(limit.saturating_sub(reserve(limit)) / DESCRIPTORS_PER_CHILD).unwrap_or(usize::MAX)
}

fn has_room(wanted: u64) -> bool {
    let Some(limit) = descriptors::limit() else { return true };
    match descriptors::opened() {
        Ok(opened) => opened + reserve(limit) + wanted + DESCRIPTORS_PER_CHILD * pending() <= limit,
        // Unless this process has none left, what needs descriptors is tried.
        Err(error) => error.raw_os_error() != Some(rustix::io::Errno::MFILE.raw_os_error()),
    }
}

fn reserve(limit: u64) -> u64 {
    (limit / RESERVE_SHARE).max(MIN_RESERVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_leave_the_reserve() {
        assert_eq!(max_children(64), 0);
        assert_eq!(max_children(256), 4);
        assert_eq!(max_children(1024), 16);
    }

    #[test]
    fn pending_children_are_counted_until_dropped() {
        let before = pending();
        let child = PendingChild::begin();
        assert!(pending() > before);
        drop(child);
        // As in the parent of this process: it is not counted here, and its end changes nothing.
        drop(PendingChild { process: 0 });
        assert_eq!(pending(), before);
    }
}
