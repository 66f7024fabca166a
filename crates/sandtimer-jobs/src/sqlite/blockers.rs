//! Why a job that has not started cannot be leased now.

use crate::job::{JobBlocker, MAX_BLOCKING_JOBS, StoreError, UnreadableSpec};
use rusqlite::{OptionalExtension, Row, Transaction};

use super::values::{ResultKind, broken, integer, natural};
use super::{handlers, lines, workers};

/// The columns of a job that decide whether a worker can lease it.
struct Candidate {
    seq: i64,
    is_queued: bool,
    /// As in `jobs.ready`: 0 waits for its concurrency key, 2 for its rate.
    ready: i64,
    due_ms: i64,
    queue: String,
    is_paused: bool,
    rate: Option<String>,
    concurrency: Option<String>,
    waits: i64,
    /// Bytes that each of its runs may have; 0 if it does not name them.
    memory: i64,
    /// The handlers that it needs.
    handlers: Vec<String>,
}

/// Returns every reason, the first to be resolved by its owner first. Jobs that are leased or have
/// ended have none.
pub(super) fn of(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<Vec<JobBlocker>, StoreError> {
    let Some(job) = candidate(tx, seq)? else { return Ok(Vec::new()) };
    let mut blockers = Vec::new();
    if job.is_paused {
        blockers.push(JobBlocker::QueuePaused { queue: job.queue.clone() });
    }
    blockers.extend(unreadable_spec(tx, job.seq)?.map(JobBlocker::UnreadableSpec));
    if job.waits > 0 {
        blockers.push(jobs(tx, &job)?);
    } else if !job.is_queued && job.due_ms > now {
        blockers.push(JobBlocker::NotBefore { at_ms: natural(job.due_ms) });
    }
    if let (true, 2, Some(key)) = (job.is_queued, job.ready, &job.rate) {
        blockers.push(JobBlocker::Rate { key: without_owner(key), at_ms: next_start(tx, key)? });
    }
    if let (true, 0, Some(key)) = (job.is_queued, job.ready, &job.concurrency) {
        blockers.push(JobBlocker::Concurrency { key: without_owner(key) });
    }
    if job.is_queued {
        let bytes = natural(job.memory);
        match workers::largest_memory(tx, &job.queue, &job.handlers, now)? {
            None if !job.handlers.is_empty() => {
                blockers.push(JobBlocker::NoHandler { handlers: job.handlers });
            }
            None => blockers.push(JobBlocker::NoWorker { queue: job.queue }),
            Some(largest_bytes) if largest_bytes < bytes => {
                blockers.push(JobBlocker::Memory { bytes, largest_bytes });
            }
            Some(_) => {}
        }
    }
    Ok(blockers)
}

fn candidate(tx: &Transaction<'_>, seq: i64) -> Result<Option<Candidate>, StoreError> {
    let select =
        "SELECT seq, state = 1, ready, due_ms, queue, coalesce(paused, 0), rate, concurrency, waits, memory, handlers
        FROM jobs LEFT JOIN queues USING (queue) WHERE seq = ?1 AND state IN (0, 1)";
    let read = |row: &Row<'_>| {
        Ok(Candidate {
            seq: row.get(0)?,
            is_queued: row.get(1)?,
            ready: row.get(2)?,
            due_ms: row.get(3)?,
            queue: row.get(4)?,
            is_paused: row.get(5)?,
            rate: row.get(6)?,
            concurrency: row.get(7)?,
            waits: row.get(8)?,
            memory: row.get(9)?,
            handlers: row
                .get::<_, String>(10)
                .map(|list| handlers::list_from_json(&list).unwrap_or_default())?,
        })
    };
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    select.query_row([seq], read).optional().map_err(broken)
}

/// Why the last worker of a job returned it, if that worker could not read the spec.
fn unreadable_spec(tx: &Transaction<'_>, seq: i64) -> Result<Option<UnreadableSpec>, StoreError> {
    Ok(lines::results(tx, seq, ResultKind::Earlier)?.pop().and_then(|last| last.unreadable))
}

/// The jobs of its `after` that have not ended.
fn jobs(tx: &Transaction<'_>, job: &Candidate) -> Result<JobBlocker, StoreError> {
    let select =
        "SELECT id FROM waits JOIN jobs ON jobs.seq = on_job WHERE job = ?1 ORDER BY on_job LIMIT ?2";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let bound = integer(MAX_BLOCKING_JOBS as u64);
    let found = select.query_map((job.seq, bound), |row| row.get(0)).map_err(broken)?;
    let ids = found.collect::<Result<_, _>>().map_err(broken)?;
    Ok(JobBlocker::Jobs { ids, count: natural(job.waits) })
}

/// When the next start of a key leaves its period. `None` before the first start.
fn next_start(tx: &Transaction<'_>, key: &str) -> Result<Option<u64>, StoreError> {
    let mut select = tx.prepare_cached("SELECT wake_ms FROM rates WHERE key = ?1").map_err(broken)?;
    let found = select.query_row([key], |row| row.get::<_, i64>(0)).optional().map_err(broken)?;
    Ok(found.map(natural))
}

/// A key as the job's spec has it; the store's keys begin with their owner.
fn without_owner(key: &str) -> String {
    key.split_once('\u{1f}').map_or(key, |(_, key)| key).to_owned()
}
