//! What images of contexts take of the engine's memory, added up over all contexts that share an
//! account.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An account of the memory that images of contexts take outside of the contexts' own: of all
/// contexts that are opened with it, and of their branches. An image that does not fit is written
/// into the memory of the context that it is of. A clone is the same account.
#[derive(Debug, Clone)]
pub struct ImageAccount(Arc<Account>);

#[derive(Debug)]
struct Account {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// What bounds this account and others together.
    whole: Option<ImageAccount>,
}

impl ImageAccount {
    /// Makes an account of at most this many bytes.
    pub fn new(limit_bytes: u64) -> Self {
        Self::make(limit_bytes, None)
    }

    /// Makes an account of at most this many bytes, which this one bounds as well.
    #[must_use]
    pub fn part(&self, limit_bytes: u64) -> Self {
        Self::make(limit_bytes, Some(self.clone()))
    }

    fn make(limit_bytes: u64, whole: Option<ImageAccount>) -> Self {
        ImageAccount(Arc::new(Account { limit_bytes, used_bytes: AtomicU64::new(0), whole }))
    }

    /// Returns how many bytes are charged to it.
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.load(Ordering::Relaxed)
    }

    /// Charges bytes to it until the charge is dropped; `None` if there is no room for them.
    pub(super) fn charge(&self, bytes: u64) -> Option<Charge> {
        let with = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.0.limit_bytes);
        self.0.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).ok()?;
        let mut charge = Charge { bytes, account: self.clone(), _whole: None };
        if let Some(whole) = &self.0.whole {
            charge._whole = Some(Box::new(whole.charge(bytes)?));
        }
        Some(charge)
    }
}

/// Bytes that are charged to an account.
#[derive(Debug)]
pub(super) struct Charge {
    bytes: u64,
    account: ImageAccount,
    _whole: Option<Box<Charge>>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.0.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_is_bounded_by_account_and_whole() {
        let whole = ImageAccount::new(100);
        let (one, other) = (whole.part(70), whole.part(70));
        assert!(one.charge(71).is_none());
        let held = one.charge(60).expect("room");
        assert!(other.charge(50).is_none(), "of the whole 40 are left");
        assert_eq!((one.used_bytes(), other.used_bytes(), whole.used_bytes()), (60, 0, 60));
        drop(held);
        assert_eq!((one.used_bytes(), whole.used_bytes()), (0, 0));
        assert!(other.charge(u64::MAX).is_none() && other.charge(50).is_some());
    }
}
