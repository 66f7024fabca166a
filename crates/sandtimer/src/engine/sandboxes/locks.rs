//! Locks of the sandboxes' state.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Poisoning is harmless: each field that is guarded is right by itself.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
