//! Whose job is next: owners in turns, and the queues of each owner in turns.
//!
//! An owner that has more queues, or new ones, has no more turns by that. Every turn has a number,
//! one more than the last; the owner and the queue whose number is lowest are next. A new queue,
//! and an owner without one until now, begins with the present number and not with the lowest: it
//! is served after those that have waited longer.

use std::collections::VecDeque;

use crate::job::{LeaseRequest, StoreError};
use rusqlite::{OptionalExtension, Row, Transaction};

use super::values::{broken, execute};

/// Between which jobs are handed out in turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turns {
    /// All queues, as logs of earlier versions were written.
    Queues,
    /// Owners, then the queues of each.
    Owners,
}

/// A job that could be leased.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ready {
    pub seq: i64,
    pub rank: i64,
    pub due: i64,
    pub memory: u64,
}

/// A queue, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnedQueue {
    pub owner: String,
    pub name: String,
}

/// The queues of one owner that have jobs, the next one first.
#[derive(Debug)]
struct OwnerQueues {
    owner: String,
    queues: VecDeque<(OwnedQueue, Vec<Ready>)>,
}

/// The queues that have jobs, in the order of their turns.
#[derive(Debug)]
pub(super) struct QueueRotation {
    turns: Turns,
    owners: VecDeque<OwnerQueues>,
}

impl QueueRotation {
    pub fn new(turns: Turns) -> Self {
        QueueRotation { turns, owners: VecDeque::new() }
    }

    /// The next queue, which leaves the order until it is added again.
    pub fn next(&mut self) -> Option<(OwnedQueue, Vec<Ready>)> {
        let owner = self.owners.front_mut()?;
        let next = owner.queues.pop_front();
        if owner.queues.is_empty() {
            self.owners.pop_front();
        }
        next
    }

    /// Adds a queue after all others of its owner. An owner whose queue was served comes after all
    /// others.
    pub fn add(&mut self, queue: OwnedQueue, jobs: Vec<Ready>) {
        let at =
            self.owners.iter().position(|known| self.turns == Turns::Queues || known.owner == queue.owner);
        let mut owner = at
            .and_then(|at| self.owners.remove(at))
            .unwrap_or_else(|| OwnerQueues { owner: queue.owner.clone(), queues: VecDeque::new() });
        owner.queues.push_back((queue, jobs));
        self.owners.push_back(owner);
    }

    /// Puts back a queue whose turn it still is.
    pub fn again(&mut self, queue: OwnedQueue, jobs: Vec<Ready>) {
        let is_first = |first: &&mut OwnerQueues| self.turns == Turns::Queues || first.owner == queue.owner;
        if let Some(first) = self.owners.front_mut().filter(is_first) {
            first.queues.push_front((queue, jobs));
        } else {
            let owner = queue.owner.clone();
            self.owners.push_front(OwnerQueues { owner, queues: VecDeque::from([(queue, jobs)]) });
        }
    }

    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The jobs of all queues.
    pub fn jobs(&self) -> impl Iterator<Item = &Ready> {
        self.owners.iter().flat_map(|owner| &owner.queues).flat_map(|(_, jobs)| jobs)
    }
}

/// The queues that may be served, those of the owner first whose turn was longest ago, and of each
/// owner likewise.
pub(super) fn queues(
    tx: &Transaction<'_>,
    request: &LeaseRequest,
    turns: Turns,
) -> Result<Vec<OwnedQueue>, StoreError> {
    let select = match turns {
        Turns::Queues => "SELECT queue, owner FROM queues WHERE paused = 0 ORDER BY served, queue",
        // An owner has had no turn of its own in a store that an earlier version wrote.
        Turns::Owners => {
            "SELECT queue, owner FROM queues LEFT JOIN owners USING (owner)
             LEFT JOIN (SELECT owner, max(served) AS latest FROM queues GROUP BY owner) USING (owner)
             WHERE paused = 0 ORDER BY coalesce(owners.served, latest), owner, queues.served, queue"
        }
    };
    let read = |row: &Row<'_>| Ok(OwnedQueue { name: row.get(0)?, owner: row.get(1)? });
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let all: Vec<OwnedQueue> = select.query_map([], read).and_then(Iterator::collect).map_err(broken)?;
    let wanted = |queue: &OwnedQueue| request.queues.is_empty() || request.queues.contains(&queue.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Notes that a queue has had its turn.
pub(super) fn was_served(tx: &Transaction<'_>, queue: &OwnedQueue, turns: Turns) -> Result<(), StoreError> {
    if turns == Turns::Queues {
        let served = "UPDATE queues SET served = (SELECT max(served) + 1 FROM queues) WHERE queue = ?1";
        return execute(tx, served, [&queue.name]).map(drop);
    }
    let number = latest(tx)? + 1;
    execute(tx, "UPDATE queues SET served = ?2 WHERE queue = ?1", (&queue.name, number))?;
    let served = "INSERT INTO owners (owner, served) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET served = ?2";
    execute(tx, served, (&queue.owner, number)).map(drop)
}

/// Makes a queue known, with its owner's present turn. Whether it was not, or had no owner: one
/// that was paused before it had a job.
pub(super) fn begin(tx: &Transaction<'_>, queue: &str, owner: &str) -> Result<bool, StoreError> {
    let known = "SELECT owner FROM queues WHERE queue = ?1";
    let mut known = tx.prepare_cached(known).map_err(broken)?;
    let known = known.query_row([queue], |row| row.get::<_, String>(0)).optional().map_err(broken)?;
    if known.is_some_and(|known| !known.is_empty() || owner.is_empty()) {
        return Ok(false);
    }
    let own = "SELECT coalesce((SELECT served FROM owners WHERE owner = ?1),
        (SELECT max(served) FROM queues WHERE owner = ?1 AND queue <> ?2))";
    let mut own = tx.prepare_cached(own).map_err(broken)?;
    let own: Option<i64> = own.query_row((owner, queue), |row| row.get(0)).map_err(broken)?;
    let turn = own.map_or_else(|| latest(tx), Ok)?;
    let insert = "INSERT INTO queues (queue, owner, served) VALUES (?1, ?2, ?3)
        ON CONFLICT DO UPDATE SET owner = ?2, served = ?3";
    execute(tx, insert, (queue, owner, turn)).map(|_| true)
}

/// The number of the last turn.
fn latest(tx: &Transaction<'_>) -> Result<i64, StoreError> {
    let select = "SELECT max(coalesce((SELECT max(served) FROM owners), 0), coalesce((SELECT max(served) FROM queues), 0))";
    tx.prepare_cached(select).and_then(|mut select| select.query_row([], |row| row.get(0))).map_err(broken)
}
