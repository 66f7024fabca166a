//! Breakers that the jobs of an owner share, as stores keep and list them.

use serde::Serialize;

use sandtimer_agents::resilience::BreakerSnapshot;

/// A breaker in a store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredBreaker {
    /// The owner of the jobs that share it.
    #[serde(skip)]
    pub owner: String,
    /// Its state, under its key without the owner.
    #[serde(flatten)]
    pub snapshot: BreakerSnapshot,
}

impl StoredBreaker {
    /// Separates the owner from the key of a snapshot that a store has.
    pub fn of(snapshot: BreakerSnapshot) -> Self {
        let (owner, key) = snapshot.key.split_once('\n').unwrap_or(("", &snapshot.key));
        let (owner, key) = (owner.to_owned(), key.to_owned());
        StoredBreaker { owner, snapshot: BreakerSnapshot { key, ..snapshot } }
    }
}

/// A part of the breakers of a store, by owner and key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakerPage {
    /// The breakers, sorted by owner and key.
    pub breakers: Vec<StoredBreaker>,
    /// The cursor of the next part; `None` at the end.
    pub next: Option<String>,
}

/// Returns the key under which a store has a breaker of an owner: owners share no breakers, and do
/// not read each other's failures. No name of an owner contains a new line.
pub fn breaker_key(owner: &str, key: &str) -> String {
    format!("{owner}\n{key}")
}
