//! Descriptors of the host program that pools leave to it.
//!
//! Pools make children ahead of need, and use the sandboxes of calls that have ended again, only while enough descriptors are free: a
//! quarter of the process's limit, 64 at least, is for the code of the caller. A caller that waits for a child waits until there is room
//! as well, unless no other call of its pool could make some.

use std::sync::atomic::{AtomicU64, Ordering};

use sandtimer_os::descriptors;

/// Descriptors that one child takes with its sandbox, while it is made and once it has a job.
const PER_CHILD: u64 = 48;
/// The same of the sandbox that its job leaves.
const PER_VACANCY: u64 = 20;
/// Left to the caller: this number, and this share of its limit.
const MIN_RESERVE: u64 = 64;
const RESERVE_SHARE: u64 = 4;

/// Children that are being made in this process, whichever pool they are for: not all of their descriptors are open yet.
static MAKING: AtomicU64 = AtomicU64::new(0);

/// A child that is being made.
#[derive(Debug)]
pub(super) struct Making(());

impl Making {
    pub fn begin() -> Self {
        MAKING.fetch_add(1, Ordering::Relaxed);
        Making(())
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether there is room for another child. One that is made `ahead` of need leaves room for one that a caller of another pool waits for.
pub(super) fn has_room_for_child(ahead: bool) -> bool {
    has_room(PER_CHILD * (1 + u64::from(ahead)))
}

/// Whether there is room for a sandbox that is kept for the next call.
pub(super) fn has_room_for_vacancy() -> bool {
    has_room(PER_VACANCY)
}

/// How many children a pool may have without the caller's share of `limit`.
pub(super) fn most_children(limit: u64) -> usize {
    usize::try_from(limit.saturating_sub(reserve(limit)) / PER_CHILD).unwrap_or(usize::MAX)
}

fn has_room(wanted: u64) -> bool {
    let Some(limit) = descriptors::limit() else { return true };
    let wanted = wanted + PER_CHILD * MAKING.load(Ordering::Relaxed);
    // Where they cannot be counted, what needs them fails with the reason.
    descriptors::opened().is_ok_and(|opened| opened + reserve(limit) + wanted <= limit)
}

fn reserve(limit: u64) -> u64 {
    (limit / RESERVE_SHARE).max(MIN_RESERVE)
}
