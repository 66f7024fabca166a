//! Locks of the sandboxes' state.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning is harmless: every update is a single assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
