//! Leases: jobs are handed out.

use crate::job::{JobAssignment, JobLease, LeaseRequest, Room, StoreError};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::files::forget_outputs;
use super::handlers;
use super::moving::end_too_late;
use super::rates;
use super::renewing::end_of;
use super::turns::{self, QueueRotation, Ready, Turns};
use super::values::{broken, execute, integer, natural};

/// How many more jobs are inspected of a queue whose first jobs say how much memory they may have.
const EXTRA_CANDIDATES: usize = 256;
/// How many jobs of the same work must have finished before it is known how long they take at
/// least.
const MIN_FINISHED_JOBS: i64 = 5;

/// Hands jobs out, by these turns.
pub(crate) fn lease(
    tx: &Transaction<'_>,
    request: &LeaseRequest,
    turns: Turns,
    now: i64,
) -> Result<Vec<JobAssignment>, StoreError> {
    let until = end_of(request.lease, now);
    if let Some(id) = &request.only {
        let one = "SELECT seq FROM jobs JOIN queues USING (queue) WHERE id = ?1 AND state = 1 AND ready = 1 AND paused = 0
            AND coalesce(deadline_ms > ?2, 1)";
        let found = tx.query_row(one, (id, now), |row| row.get::<_, i64>(0)).optional().map_err(broken)?;
        let seq = match found {
            Some(seq) if !is_too_late(tx, seq, now)? => seq,
            _ => return Ok(Vec::new()),
        };
        return Ok(hand_out(tx, seq, &request.worker, until, now)?.into_iter().collect());
    }
    let mut rotation = QueueRotation::new(turns);
    for queue in turns::queues(tx, request, turns)? {
        let found = first(tx, &queue.name, request, now)?;
        if !found.is_empty() {
            rotation.add(queue, found);
        }
    }
    let mut room = FreeMemory::new(request.memory, rotation.jobs(), now);
    let mut leased = Vec::new();
    while leased.len() < request.slots
        && let Some((queue, mut rest)) = rotation.next()
    {
        let Some(next) = rest.iter().position(|job| room.has(job)) else { continue };
        let job = rest.remove(next);
        if is_too_late(tx, job.seq, now)? {
            room.forget(&job);
            rotation.again(queue, rest);
            continue;
        }
        let Some(next) = hand_out(tx, job.seq, &request.worker, until, now)? else {
            // A start before it used up its rate.
            room.forget(&job);
            rotation.again(queue, rest);
            continue;
        };
        room.take(&job);
        leased.push(next);
        // One queue by itself needs no turns.
        if !rotation.is_empty() {
            turns::was_served(tx, &queue, turns)?;
        }
        rotation.add(queue, rest);
    }
    Ok(leased)
}

/// Ends a job that has waited for too long: no finished job of the same work was ever as short as
/// the time that it has left, while its whole time would have been enough. Returns whether it was
/// such a job. A job whose whole time is shorter than that is executed nevertheless.
fn is_too_late(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<bool, StoreError> {
    let select = "SELECT owner, work, deadline_ms - submitted_ms, deadline_ms - ?2 FROM jobs
        WHERE seq = ?1 AND deadline_ms IS NOT NULL AND work <> ''";
    let read = |row: &Row<'_>| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
    };
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let Some((owner, work, all, left)) = select.query_row((seq, now), read).optional().map_err(broken)?
    else {
        return Ok(false);
    };
    let shortest =
        "SELECT took_ms FROM jobs INDEXED BY jobs_took WHERE owner = ?1 AND work = ?2 AND took_ms IS NOT NULL
        ORDER BY took_ms LIMIT ?3";
    let mut select = tx.prepare_cached(shortest).map_err(broken)?;
    let found =
        select.query_map((owner, work, MIN_FINISHED_JOBS), |row| row.get::<_, i64>(0)).map_err(broken)?;
    let found: Vec<i64> = found.collect::<Result<_, _>>().map_err(broken)?;
    match found[..] {
        [shortest, ..] if found.len() as i64 == MIN_FINISHED_JOBS && (left + 1..=all).contains(&shortest) => {
            end_too_late(tx, seq, shortest, now).map(|()| true)
        }
        _ => Ok(false),
    }
}

/// Those of a queue that come first. Of those whose deadline has passed there may be more than a
/// sweep has ended.
fn first(
    tx: &Transaction<'_>,
    queue: &str,
    request: &LeaseRequest,
    now: i64,
) -> Result<Vec<Ready>, StoreError> {
    let first = "SELECT seq, rank, due_ms, memory FROM jobs INDEXED BY jobs_ready WHERE state = 1 AND ready = 1
        AND queue = ?1 AND handlers = ?5 AND memory <= ?2 AND coalesce(deadline_ms > ?4, 1) ORDER BY rank, seq LIMIT ?3";
    let mut select = tx.prepare_cached(first).map_err(broken)?;
    let read = |row: &Row<'_>| {
        Ok(Ready { seq: row.get(0)?, rank: row.get(1)?, due: row.get(2)?, memory: natural(row.get(3)?) })
    };
    let total = request.memory.map_or(i64::MAX, |room| integer(room.total));
    let lists = handlers::leasable_lists(tx, queue, &request.handlers)?;
    let mut select_ready = |most: usize| -> Result<Vec<Ready>, StoreError> {
        let mut ready: Vec<Ready> = Vec::new();
        for list in &lists {
            let values = (queue, total, integer(most as u64), now, list);
            let found = select.query_map(values, read).map_err(broken)?;
            ready.extend(found.collect::<Result<Vec<_>, _>>().map_err(broken)?);
        }
        if lists.len() > 1 {
            ready.sort_unstable_by_key(|job| (job.rank, job.seq));
            ready.truncate(most);
        }
        Ok(ready)
    };
    let found = select_ready(request.slots)?;
    // After jobs that do not fit there may be others that do.
    let choosy = request.memory.is_some() && found.iter().any(|job| job.memory > 0);
    if choosy { select_ready(request.slots + EXTRA_CANDIDATES) } else { Ok(found) }
}

/// The memory that is left of a worker's.
struct FreeMemory {
    free: Option<u64>,
    /// Jobs that have waited for long enough, the first in the order first.
    overdue: Vec<Ready>,
}

impl FreeMemory {
    fn new<'a>(room: Option<Room>, ready: impl Iterator<Item = &'a Ready>, now: i64) -> Self {
        let patience = room.map_or(i64::MAX, |room| integer(room.patience.as_millis() as u64));
        let is_overdue = |job: &&Ready| room.is_some() && job.memory > 0 && now - job.due >= patience;
        let mut overdue: Vec<Ready> = ready.filter(is_overdue).copied().collect();
        overdue.sort_by_key(|job| (job.rank, job.seq));
        FreeMemory { free: room.map(|room| room.free), overdue }
    }

    fn has(&self, job: &Ready) -> bool {
        let Some(free) = self.free.filter(|_| job.memory > 0) else { return true };
        let ahead = self.overdue.first().filter(|first| (first.rank, first.seq) < (job.rank, job.seq));
        job.memory.saturating_add(ahead.map_or(0, |first| first.memory)) <= free
    }

    fn take(&mut self, job: &Ready) {
        self.free = self.free.map(|free| free.saturating_sub(job.memory));
        self.forget(job);
    }

    fn forget(&mut self, job: &Ready) {
        self.overdue.retain(|other| other.seq != job.seq);
    }
}

/// Hands a job out, unless it is not in the index any more.
fn hand_out(
    tx: &Transaction<'_>,
    seq: i64,
    worker: &str,
    until: i64,
    now: i64,
) -> Result<Option<JobAssignment>, StoreError> {
    let update =
        "UPDATE jobs SET state = 2, ready = 0, start_ms = NULL, epoch = epoch + 1, deliveries = deliveries + 1, worker = ?2,
        lease_ms = ?3, leased_ms = ?4 WHERE seq = ?1 AND state = 1 AND ready = 1";
    if execute(tx, update, params![seq, worker, until, now])? == 0 {
        return Ok(None);
    }
    let select =
        "SELECT id, epoch, body, owner, submitted_ms, due_ms, deadline_ms, deliveries, memory, after_ids, rate IS NOT NULL, earlier_ms,
        waited_ms + max(0, leased_ms - due_ms)
        FROM jobs JOIN specs ON job = seq WHERE seq = ?1";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| {
        let held = JobLease { id: row.get(0)?, epoch: natural(row.get(1)?) };
        let body: String = row.get(2)?;
        let leased = JobAssignment {
            held,
            // What cannot be read is refused by the worker, with its text.
            spec: serde_json::from_str(&body).unwrap_or(serde_json::Value::String(body)),
            owner: row.get(3)?,
            submitted_ms: natural(row.get(4)?),
            due_ms: natural(row.get(5)?),
            leased_ms: natural(now),
            deadline_ms: row.get::<_, Option<i64>>(6)?.map(natural),
            deliveries: row.get(7)?,
            earlier_ms: natural(row.get(11)?),
            queued_ms: natural(row.get(12)?),
            memory: natural(row.get(8)?),
            after: row.get::<_, Option<String>>(9)?.map_or_else(Vec::new, ids),
        };
        Ok((leased, row.get(10)?))
    };
    let (leased, has_rate): (JobAssignment, bool) = select.query_row([seq], read).map_err(broken)?;
    if has_rate {
        rates::started(tx, seq, now)?;
    }
    if leased.held.epoch > 1 {
        forget_outputs(tx, seq)?;
    }
    Ok(Some(leased))
}

fn ids(list: String) -> Vec<String> {
    // It was written by `submitting`.
    serde_json::from_str(&list).unwrap_or_default()
}
