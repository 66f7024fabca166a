//! Something that two may take, and the first one has.

use std::sync::{Arc, Mutex, TryLockError};

#[derive(Debug)]
pub(crate) struct Offer<T>(Mutex<Option<T>>);

impl<T> Offer<T> {
    pub fn new(thing: T) -> Arc<Self> {
        Arc::new(Offer(Mutex::new(Some(thing))))
    }

    /// Takes it, unless another has. Never waits: whoever holds the lock is taking it.
    pub fn take(&self) -> Option<T> {
        match self.0.try_lock() {
            Ok(mut thing) => thing.take(),
            Err(TryLockError::Poisoned(thing)) => thing.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
