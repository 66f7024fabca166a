//! Something that two may take, and the first one has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

#[derive(Debug)]
pub(crate) struct Offer<T> {
    thing: Mutex<Option<T>>,
    is_taken: AtomicBool,
}

impl<T> Offer<T> {
    pub fn new(thing: T) -> Arc<Self> {
        Arc::new(Offer { thing: Mutex::new(Some(thing)), is_taken: AtomicBool::new(false) })
    }

    /// Whether it was taken, or is about to be.
    pub fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    /// Takes the thing, unless another thread has. Never waits: a thread that holds the lock is
    /// taking it.
    pub fn take(&self) -> Option<T> {
        self.is_taken.store(true, Ordering::Relaxed);
        match self.thing.try_lock() {
            Ok(mut thing) => thing.take(),
            Err(TryLockError::Poisoned(thing)) => thing.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
