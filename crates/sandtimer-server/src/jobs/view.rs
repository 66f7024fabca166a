//! Jobs and queues as their owner sees them.
//!
//! The jobs of the server's own user are those of the command line on the same store. A token's
//! queues are stored with its owner before the name and a space, which no name of a token has in
//! it: so no token pauses another's.

use sandtimer_jobs::job::{JobLine, JobRecord, QueueFacts};
use serde::Serialize;
use serde_json::Value;

use crate::auth::OwnerId;

/// Whose jobs those of the server's own user are, by HTTP or by the command line.
pub(super) const LOCAL_OWNER: &str = "local";
/// What the owners begin with that have a token.
const TOKEN_PREFIX: &str = "token:";

/// An owner as the store knows it.
#[derive(Debug, Clone)]
pub(super) struct StoreOwner(String);

pub(super) fn store_owner(owner: &OwnerId) -> StoreOwner {
    StoreOwner(if owner.as_str().starts_with(TOKEN_PREFIX) { owner.as_str() } else { LOCAL_OWNER }.to_owned())
}

impl StoreOwner {
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The server's own user.
    pub fn is_local(&self) -> bool {
        self.0 == LOCAL_OWNER
    }

    /// The store's name of a queue.
    pub fn stored_queue(&self, queue: &str) -> String {
        if self.0 == LOCAL_OWNER { queue.to_owned() } else { format!("{} {queue}", self.0) }
    }

    /// The owner's name of a queue; `None` where it is another's.
    pub fn own_queue<'a>(&self, stored: &'a str) -> Option<&'a str> {
        match self.0.as_str() {
            LOCAL_OWNER => (!stored.starts_with(TOKEN_PREFIX)).then_some(stored),
            token => stored.strip_prefix(token)?.strip_prefix(' '),
        }
    }

    /// A job in a listing.
    pub fn line(&self, line: &JobLine) -> Value {
        self.shown(line, &line.queue)
    }

    /// Everything about a job.
    pub fn record(&self, record: &JobRecord) -> Value {
        self.shown(record, &record.line.queue)
    }

    fn shown(&self, job: &impl Serialize, queue: &str) -> Value {
        // Plain data with text keys always serialises.
        let mut shown = serde_json::to_value(job).unwrap_or_default();
        if let Some(fields) = shown.as_object_mut() {
            let id = fields.remove("id").unwrap_or_default();
            fields.insert("job_id".to_owned(), id);
            fields.insert("queue".to_owned(), self.own_queue(queue).unwrap_or(queue).into());
        }
        shown
    }

    /// Those of these queues that are this owner's.
    pub fn queues(&self, facts: Vec<QueueFacts>) -> Vec<QueueFacts> {
        let own = |mut facts: QueueFacts| {
            facts.queue = self.own_queue(&facts.queue)?.to_owned();
            Some(facts)
        };
        facts.into_iter().filter_map(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_visible_to_its_owner_only() {
        let of = |owner: &str| store_owner(&OwnerId::recorded(owner));
        let (local, alice, other) = (of("uid:0"), of("token:alice"), of("token:al"));
        for owner in [&local, &alice, &other] {
            let stored = owner.stored_queue("ice ci");
            assert_eq!(owner.own_queue(&stored), Some("ice ci"), "{stored}");
        }
        assert_eq!(alice.stored_queue("ci"), "token:alice ci");
        assert_eq!((local.own_queue("token:alice ci"), other.own_queue("token:alice ci")), (None, None));
        assert_eq!((alice.own_queue("ci"), local.own_queue("ci")), (None, Some("ci")));
    }
}
