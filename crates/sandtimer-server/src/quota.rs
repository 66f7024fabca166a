//! How much an owner may have at once: limits of the token file, and shares of what is limited for
//! all owners together.
//!
//! A place is held by what it was taken for, and is free again when that has ended.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Serialize, Serializer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

pub(crate) use crate::auth::QuotaKind;
use crate::auth::{OwnerId, Tokens};
use crate::body::MayBeLong;
use crate::error::{ApiRejection, Code};

/// A place under a quota, which several runs may share if they follow each other. Dropping the last
/// copy gives it back.
#[derive(Debug, Clone)]
pub(crate) struct QuotaPermit {
    _held: Option<Arc<OwnedSemaphorePermit>>,
}

/// All quotas there are.
#[derive(Debug, Default)]
pub(crate) struct QuotaTable(HashMap<(OwnerId, QuotaKind), (usize, Arc<Semaphore>)>);

impl QuotaTable {
    pub fn of(tokens: Option<&Tokens>) -> Self {
        let mut slots = HashMap::new();
        for (owner, quotas) in tokens.into_iter().flat_map(Tokens::quotas) {
            for (kind, most) in quotas {
                slots.insert((owner.clone(), *kind), (*most, Arc::new(Semaphore::new(*most))));
            }
        }
        QuotaTable(slots)
    }

    /// A place for one more.
    pub fn take(&self, owner: &OwnerId, kind: QuotaKind) -> Result<QuotaPermit, ApiRejection> {
        let Some((most, slots)) = self.0.get(&(owner.clone(), kind)) else {
            return Ok(QuotaPermit { _held: None });
        };
        let name = kind.name();
        let taken = slots.clone().try_acquire_owned().map_err(|_| {
            ApiRejection::new(Code::Quota, format!("this token may have {most} {name} at once, and has them"))
                .with("quota", name)
                .with("limit", *most)
        })?;
        Ok(QuotaPermit { _held: Some(Arc::new(taken)) })
    }

    /// Waits for a place, in the order in which places are asked for.
    pub async fn wait(&self, owner: &OwnerId, kind: QuotaKind) -> QuotaPermit {
        let Some((_, slots)) = self.0.get(&(owner.clone(), kind)) else { return QuotaPermit { _held: None } };
        // The semaphores are never closed.
        QuotaPermit { _held: slots.clone().acquire_owned().await.ok().map(Arc::new) }
    }
}

/// A limited number of things of the server: no owner has more than half of them.
#[derive(Debug)]
pub(crate) struct Shares {
    name: &'static str,
    most: usize,
    /// How many each owner has; owners without any are absent.
    taken: Mutex<Vec<(OwnerId, usize)>>,
}

impl Shares {
    pub const fn of(name: &'static str, most: usize) -> Self {
        Shares { name, most, taken: Mutex::new(Vec::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(OwnerId, usize)>> {
        // Each change is one number.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more for this owner.
    pub fn take(&'static self, owner: &OwnerId) -> Result<Share, ApiRejection> {
        let (name, share) = (self.name, self.most / 2);
        let mut taken = self.lock();
        let index = taken.iter().position(|(other, _)| other == owner);
        if index.is_some_and(|index| taken[index].1 >= share) {
            let message = format!("the server has {} {name}, of which one owner may have {share}", self.most);
            return Err(ApiRejection::new(Code::Quota, message).with("quota", name).with("limit", share));
        }
        if taken.iter().map(|(_, count)| count).sum::<usize>() >= self.most {
            let message = format!("all {} {name} of this server are taken", self.most);
            return Err(ApiRejection::new(Code::Capacity, message));
        }
        match index {
            Some(index) => taken[index].1 += 1,
            None => taken.push((owner.clone(), 1)),
        }
        Ok(Share { shares: self, owner: owner.clone() })
    }
}

/// One of an owner's share. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    shares: &'static Shares,
    owner: OwnerId,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.lock().retain_mut(|(owner, count)| {
            *count -= usize::from(*owner == self.owner);
            *count > 0
        });
    }
}

/// Work of which only a few pieces are done at a time, for each owner and in all; further ones wait
/// in the order in which they came. An owner that asks for much waits for itself before it waits
/// for others.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    per_owner: usize,
    all: Semaphore,
    owners: Mutex<Vec<(OwnerId, Arc<Semaphore>)>>,
}

impl ConcurrencyLimit {
    pub const fn new(per_owner: usize, all: usize) -> Self {
        ConcurrencyLimit { per_owner, all: Semaphore::const_new(all), owners: Mutex::new(Vec::new()) }
    }

    /// Waits until one more piece of this owner's work may be done.
    pub async fn enter(&'static self, owner: &OwnerId) -> Permit {
        let of_owner = {
            // Each change is one push.
            let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
            match owners.iter().find(|(other, _)| other == owner) {
                Some((_, semaphore)) => semaphore.clone(),
                None => {
                    let semaphore = Arc::new(Semaphore::new(self.per_owner));
                    owners.push((owner.clone(), semaphore.clone()));
                    semaphore
                }
            }
        };
        // The semaphores are never closed.
        let of_owner = of_owner.acquire_owned().await.ok();
        Permit { _of_owner: of_owner, _of_all: self.all.acquire().await.ok() }
    }
}

/// That a piece of work may be done. Dropping it lets the next one begin.
#[derive(Debug)]
pub(crate) struct Permit {
    _of_owner: Option<OwnedSemaphorePermit>,
    _of_all: Option<SemaphorePermit<'static>>,
}

/// Something that is large, with the permit to have it in memory.
#[derive(Debug)]
pub(crate) struct PermittedValue<T> {
    value: T,
    /// `None` for what is not large.
    permit: Option<Permit>,
}

impl<T> PermittedValue<T> {
    pub fn new(value: T, permit: Option<Permit>) -> Self {
        PermittedValue { value, permit }
    }

    /// Something that is made of it, in its place.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> PermittedValue<U> {
        PermittedValue { value: change(self.value), permit: self.permit }
    }
}

impl<T> Deref for PermittedValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Serialize> MayBeLong for PermittedValue<T> {
    fn may_be_long(&self) -> bool {
        self.permit.is_some()
    }
}

impl<T: Serialize> Serialize for PermittedValue<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn concurrency_limit_is_shared_among_owners() {
        static LIMIT: ConcurrencyLimit = ConcurrencyLimit::new(1, 2);
        let [a, b, c] = ["a", "b", "c"].map(OwnerId::recorded);
        let enter = |owner: &OwnerId| LIMIT.enter(owner).now_or_never();
        let of_a = enter(&a).expect("the first");
        assert!(enter(&a).is_none());
        let of_b = enter(&b).expect("another owner's");
        assert!(enter(&c).is_none());
        drop(of_a);
        assert!(enter(&b).is_none() && enter(&c).is_some() && enter(&a).is_some());
        drop(of_b);
    }

    #[test]
    fn no_owner_exceeds_half() {
        static SHARES: Shares = Shares::of("things", 5);
        let owner = |name: &str| OwnerId::recorded(name);
        let refused = |name: &str| SHARES.take(&owner(name)).expect_err("none").code;
        let of_a = [SHARES.take(&owner("a")), SHARES.take(&owner("a"))];
        assert_eq!(refused("a"), Code::Quota);
        let of_b = [SHARES.take(&owner("b")), SHARES.take(&owner("b"))];
        let of_c = SHARES.take(&owner("c"));
        assert_eq!(refused("c"), Code::Capacity);
        assert_eq!(refused("a"), Code::Quota);
        drop((of_a, of_b, of_c));
        assert!(SHARES.take(&owner("a")).is_ok() && SHARES.lock().is_empty());
    }
}
