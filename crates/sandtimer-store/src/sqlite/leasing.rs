//! Leases: jobs are handed out, kept, and looked at.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, Transaction, params};
use sandtimer::job::{Held, LeaseRequest, Leased, Renewal, StoreError};

use super::files::forget_outputs;
use super::moving::execute;
use super::{broken, integer, natural};

/// Hands jobs out, queues in turns.
pub(crate) fn lease(
    tx: &Transaction<'_>,
    request: &LeaseRequest,
    now: i64,
) -> Result<Vec<Leased>, StoreError> {
    let until = end_of(request.lease, now);
    if let Some(id) = &request.only {
        let one = "SELECT seq FROM jobs JOIN queues USING (queue) WHERE id = ?1 AND state = 1 AND ready = 1 AND paused = 0";
        let found = tx.query_row(one, [id], |row| row.get::<_, i64>(0)).optional().map_err(broken)?;
        return found.into_iter().map(|seq| hand_out(tx, seq, &request.worker, (until, now))).collect();
    }
    let mut waiting = Vec::new();
    for queue in queues(tx, request)? {
        let first =
            "SELECT seq FROM jobs WHERE state = 1 AND ready = 1 AND queue = ?1 ORDER BY rank, seq LIMIT ?2";
        let mut select = tx.prepare_cached(first).map_err(broken)?;
        let found = select
            .query_map((&queue, integer(request.slots as u64)), |row| row.get::<_, i64>(0))
            .map_err(broken)?;
        let found: Vec<i64> = found.collect::<Result<_, _>>().map_err(broken)?;
        if !found.is_empty() {
            waiting.push((queue, found.into_iter()));
        }
    }
    let mut leased = Vec::new();
    while leased.len() < request.slots && !waiting.is_empty() {
        let (queue, mut rest) = waiting.remove(0);
        let Some(seq) = rest.next() else { continue };
        leased.push(hand_out(tx, seq, &request.worker, (until, now))?);
        let served = "UPDATE queues SET served = (SELECT max(served) + 1 FROM queues) WHERE queue = ?1";
        // One queue by itself needs no turns.
        if !waiting.is_empty() {
            execute(tx, served, [&queue])?;
        }
        waiting.push((queue, rest));
    }
    Ok(leased)
}

/// The queues that may be served, the one that was served longest ago first.
fn queues(tx: &Transaction<'_>, request: &LeaseRequest) -> Result<Vec<String>, StoreError> {
    let mut select = tx
        .prepare_cached("SELECT queue FROM queues WHERE paused = 0 ORDER BY served, queue")
        .map_err(broken)?;
    let all = select.query_map([], |row| row.get::<_, String>(0)).map_err(broken)?;
    let all: Vec<String> = all.collect::<Result<_, _>>().map_err(broken)?;
    let wanted = |queue: &String| request.queues.is_empty() || request.queues.contains(queue);
    Ok(all.into_iter().filter(wanted).collect())
}

fn hand_out(
    tx: &Transaction<'_>,
    seq: i64,
    worker: &str,
    (until, now): (i64, i64),
) -> Result<Leased, StoreError> {
    let update =
        "UPDATE jobs SET state = 2, ready = 0, epoch = epoch + 1, deliveries = deliveries + 1, worker = ?2,
        lease_ms = ?3, leased_ms = ?4 WHERE seq = ?1";
    execute(tx, update, params![seq, worker, until, now])?;
    let select = "SELECT id, epoch, body, owner, submitted_ms, due_ms, deadline_ms, deliveries FROM jobs
        JOIN specs ON job = seq WHERE seq = ?1";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| {
        let held = Held { id: row.get(0)?, epoch: natural(row.get(1)?) };
        let body: String = row.get(2)?;
        Ok(Leased {
            held,
            // What cannot be read is refused by the worker, with its text.
            spec: serde_json::from_str(&body).unwrap_or(serde_json::Value::String(body)),
            owner: row.get(3)?,
            submitted_ms: natural(row.get(4)?),
            due_ms: natural(row.get(5)?),
            leased_ms: natural(now),
            deadline_ms: row.get::<_, Option<i64>>(6)?.map(natural),
            deliveries: row.get(7)?,
        })
    };
    let leased = select.query_row([seq], read).map_err(broken)?;
    if leased.held.epoch > 1 {
        forget_outputs(tx, seq)?;
    }
    Ok(leased)
}

/// What is wanted of a lease.
pub(crate) fn look(tx: &Transaction<'_>, held: &Held) -> Result<Renewal, StoreError> {
    let select = "SELECT cancel FROM jobs WHERE id = ?1 AND epoch = ?2 AND state = 2";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| row.get::<_, Option<String>>(0);
    Ok(match select.query_row((&held.id, integer(held.epoch)), read).optional().map_err(broken)? {
        None => Renewal::Lost,
        Some(None) => Renewal::Kept,
        Some(Some(reason)) => Renewal::Cancel(reason),
    })
}

/// Keeps a lease for that long from now.
pub(crate) fn renew(
    tx: &Transaction<'_>,
    held: &Held,
    lease: Duration,
    now: i64,
) -> Result<Renewal, StoreError> {
    let update = "UPDATE jobs SET lease_ms = ?3 WHERE id = ?1 AND epoch = ?2 AND state = 2";
    execute(tx, update, params![held.id, integer(held.epoch), end_of(lease, now)])?;
    look(tx, held)
}

fn end_of(lease: Duration, now: i64) -> i64 {
    now.saturating_add(i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
}
