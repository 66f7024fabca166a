//! Things that have an id and an owner, such as runs and contexts. Other owners do not find them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::OwnerId;

/// A thing that belongs to the owner that made it.
pub(crate) trait OwnedResource {
    fn id(&self) -> &str;
    fn owner(&self) -> &OwnerId;
}

/// All things of one kind, by id.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    things: Mutex<HashMap<String, Arc<T>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry { things: Mutex::default() }
    }
}

impl<T: OwnedResource> Registry<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<T>>> {
        // Each change is one call on the map.
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, thing: Arc<T>) {
        self.lock().insert(thing.id().to_owned(), thing);
    }

    /// The thing, if it is this owner's.
    pub fn find(&self, id: &str, owner: &OwnerId) -> Option<Arc<T>> {
        self.lock().get(id).filter(|thing| thing.owner() == owner).cloned()
    }

    /// All of one owner.
    pub fn of(&self, owner: &OwnerId) -> Vec<Arc<T>> {
        self.lock().values().filter(|thing| thing.owner() == owner).cloned().collect()
    }

    pub fn all(&self) -> Vec<Arc<T>> {
        self.lock().values().cloned().collect()
    }

    pub fn remove(&self, id: &str) -> Option<Arc<T>> {
        self.lock().remove(id)
    }
}
