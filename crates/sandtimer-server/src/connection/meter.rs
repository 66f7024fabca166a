//! Counts what arrives on a connection that is no longer HTTP, whose libraries collect a message
//! before they hand it over.
//!
//! What of a message has arrived is reserved in steps, without waiting: a connection whose step is
//! refused fails to be read.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::OwnerId;
use crate::error::ApiRejection;
use crate::intake::{Intake, MAX_SHORT_BYTES, Reservation};

/// What is reserved at a time.
const STEP_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct MessageMeter {
    /// Without it nothing is locked.
    counts: AtomicBool,
    message: Mutex<ArrivedMessage>,
}

/// What has arrived of the next message.
#[derive(Debug, Default)]
struct ArrivedMessage {
    requester: Option<(Arc<Intake>, OwnerId)>,
    bytes: usize,
    reserved: Vec<Reservation>,
    refused: Option<ApiRejection>,
    /// It was refused, and nothing more is read.
    has_failed: bool,
}

impl MessageMeter {
    fn arrived(&self) -> MutexGuard<'_, ArrivedMessage> {
        // Whole between any two changes.
        self.message.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on messages arrive, which are this owner's.
    pub fn begin(&self, requests: &Arc<Intake>, owner: &OwnerId) {
        self.arrived().requester = Some((requests.clone(), owner.clone()));
        self.counts.store(true, Ordering::Release);
    }

    /// Counts this many more bytes.
    pub fn add(&self, bytes: usize) -> io::Result<()> {
        if !self.counts.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut arrived = self.arrived();
        if arrived.has_failed {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        arrived.bytes += bytes;
        let ArrivedMessage { requester: Some((requests, owner)), bytes, reserved, .. } = &*arrived else {
            return Ok(());
        };
        if *bytes <= MAX_SHORT_BYTES + reserved.len() * STEP_BYTES {
            return Ok(());
        }
        match requests.try_reserve(owner, STEP_BYTES) {
            Ok(step) => {
                arrived.reserved.push(step);
                Ok(())
            }
            Err(rejection) => {
                (arrived.refused, arrived.has_failed) = (Some(rejection), true);
                Err(io::ErrorKind::QuotaExceeded.into())
            }
        }
    }

    /// The message is whole: what was reserved for it.
    pub fn settle(&self) -> Vec<Reservation> {
        let mut arrived = self.arrived();
        arrived.bytes = 0;
        std::mem::take(&mut arrived.reserved)
    }

    /// Why it cannot be read any more, once.
    pub fn refused(&self) -> Option<ApiRejection> {
        self.arrived().refused.take()
    }
}
