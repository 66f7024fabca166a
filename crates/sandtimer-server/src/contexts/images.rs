//! The server's memory that images of contexts take, for all owners together and for each.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use sandtimer::engine::ImageAccount;

use crate::auth::OwnerId;

/// The part of the machine's memory that all images take. Runs have four fifths, and the server the
/// rest.
const PART_OF_MEMORY: u64 = 10;

/// An account for each owner, of half of what all have.
#[derive(Debug)]
pub(super) struct Images {
    all: ImageAccount,
    bytes_per_owner: u64,
    owners: Mutex<HashMap<OwnerId, ImageAccount>>,
}

impl Default for Images {
    fn default() -> Self {
        Self::of_memory(sandtimer_os::probe::total_memory_bytes() / PART_OF_MEMORY)
    }
}

impl Images {
    fn of_memory(bytes: u64) -> Self {
        Images { all: ImageAccount::new(bytes), bytes_per_owner: bytes / 2, owners: Mutex::default() }
    }

    /// Returns the account of an owner.
    pub fn account(&self, owner: &OwnerId) -> ImageAccount {
        // Each change is one more account.
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.entry(owner.clone()).or_insert_with(|| self.all.part(self.bytes_per_owner)).clone()
    }
}
