//! Workers that have announced themselves.

use std::collections::HashMap;

use crate::job::{LIVE_TIME, LiveWorker, StoreError, WorkerFacts};
use rusqlite::{Row, Transaction, params};

use super::values::{broken, execute, integer, natural, unreadable};

/// Workers that announced themselves at this moment or before are not live any more.
fn last_dead(now: i64) -> i64 {
    now - LIVE_TIME.as_millis() as i64
}

/// Lists a worker as live from now on, and forgets those that are not.
pub(crate) fn announce(tx: &Transaction<'_>, worker: &WorkerFacts, now: i64) -> Result<(), StoreError> {
    execute(tx, "DELETE FROM workers WHERE seen_ms <= ?1", [last_dead(now)])?;
    let WorkerFacts { name, slots, version, queues, memory_bytes, handlers } = worker;
    let list = |names| serde_json::to_string(names).map_err(unreadable);
    let (queues, handlers) = (list(queues)?, list(handlers)?);
    let insert = "INSERT OR REPLACE INTO workers (name, slots, version, queues, seen_ms, memory, handlers)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let memory = memory_bytes.map(integer);
    let values = params![name, integer(*slots as u64), version, queues, now, memory, handlers];
    execute(tx, insert, values).map(drop)
}

/// Removes a worker that has ended.
pub(crate) fn depart(tx: &Transaction<'_>, worker: &str) -> Result<(), StoreError> {
    execute(tx, "DELETE FROM workers WHERE name = ?1", [worker]).map(drop)
}

/// The live ones, with the jobs that they have.
pub(crate) fn live(tx: &Transaction<'_>, now: i64) -> Result<Vec<LiveWorker>, StoreError> {
    let mut jobs = held(tx)?;
    let select = "SELECT name, slots, version, queues, seen_ms, memory, handlers FROM workers
        WHERE seen_ms > ?1 ORDER BY name";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| {
        let facts = WorkerFacts {
            name: row.get(0)?,
            slots: usize::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
            version: row.get(2)?,
            queues: Vec::new(),
            memory_bytes: row.get::<_, Option<i64>>(5)?.map(natural),
            handlers: Vec::new(),
        };
        let lists = (row.get::<_, String>(3)?, row.get::<_, String>(6)?);
        Ok((facts, lists, natural(row.get(4)?)))
    };
    let found = select.query_map([last_dead(now)], read).map_err(broken)?;
    found
        .map(|found| {
            let (facts, (queues, handlers), announced_ms) = found.map_err(broken)?;
            let jobs = jobs.remove(&facts.name).unwrap_or_default();
            let names = |list: &str| serde_json::from_str(list).map_err(unreadable);
            let facts = WorkerFacts { queues: names(&queues)?, handlers: names(&handlers)?, ..facts };
            Ok(LiveWorker { facts, seen_ms: announced_ms, jobs })
        })
        .collect()
}

/// The memory of the live worker that has the most of those that take jobs from `queue` and have
/// all of these handlers; `None` without such a worker, `u64::MAX` without a bound. A worker that
/// names no queues takes jobs from all.
pub(super) fn largest_memory(
    tx: &Transaction<'_>,
    queue: &str,
    handlers: &[String],
    now: i64,
) -> Result<Option<u64>, StoreError> {
    let select = "SELECT max(coalesce(memory, ?3)) FROM workers WHERE seen_ms > ?1
        AND (queues = '[]' OR EXISTS (SELECT 1 FROM json_each(queues) WHERE value = ?2))
        AND NOT EXISTS (SELECT 1 FROM json_each(?4) WHERE value NOT IN (SELECT value FROM json_each(workers.handlers)))";
    let handlers = serde_json::to_string(handlers).map_err(unreadable)?;
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let found: Option<i64> =
        select.query_row((last_dead(now), queue, i64::MAX, handlers), |row| row.get(0)).map_err(broken)?;
    Ok(found.map(|most| if most == i64::MAX { u64::MAX } else { natural(most) }))
}

/// The ids of leased jobs by their workers, the earliest submission first.
fn held(tx: &Transaction<'_>) -> Result<HashMap<String, Vec<String>>, StoreError> {
    let select = "SELECT worker, id FROM jobs INDEXED BY jobs_leased WHERE state = 2 AND worker IS NOT NULL ORDER BY seq";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let mut jobs: HashMap<String, Vec<String>> = HashMap::new();
    for found in select.query_map([], read).map_err(broken)? {
        let (worker, id) = found.map_err(broken)?;
        jobs.entry(worker).or_default().push(id);
    }
    Ok(jobs)
}
