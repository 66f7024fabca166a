//! A job enters its queue, and ends.

use crate::job::{JobEnd, JobResult, JobState, StoreError};
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::values::{ResultKind, broken, execute, state_number, state_of, unreadable};
use super::{rates, waits, webhooks};

/// The number of changes of one kind that the passage of time makes in one transaction.
const CHUNK: i64 = 512;
/// Results of earlier deliveries that are kept.
const MAX_EARLIER_RESULTS: i64 = 3;

/// The columns that a move needs.
#[derive(Debug)]
pub(super) struct MovingJob {
    pub seq: i64,
    pub id: String,
    pub state: JobState,
    /// 1 in the index of what can be leased, 2 held back by its rate, 0 neither.
    pub ready: i64,
    pub epoch: i64,
    pub concurrency: Option<String>,
    pub deliveries: i64,
    pub max_deliveries: i64,
    pub submitted: i64,
    pub deadline: Option<i64>,
    pub retention: Option<i64>,
    pub cancel: Option<String>,
    pub worker: Option<String>,
    pub ok: Option<bool>,
    /// Whether it waits for other jobs.
    pub has_waits: bool,
    /// Whether other jobs wait for it.
    pub is_awaited: bool,
}

pub(super) const COLUMNS: &str = "seq, id, state, ready, epoch, concurrency, deliveries, deliveries_most, submitted_ms, deadline_ms, \
    retention_ms, cancel, worker, ok, waits, awaited";

pub(super) fn row(row: &Row<'_>) -> rusqlite::Result<MovingJob> {
    Ok(MovingJob {
        seq: row.get(0)?,
        id: row.get(1)?,
        state: state_of(row.get(2)?),
        ready: row.get(3)?,
        epoch: row.get(4)?,
        concurrency: row.get(5)?,
        deliveries: row.get(6)?,
        max_deliveries: row.get(7)?,
        submitted: row.get(8)?,
        deadline: row.get(9)?,
        retention: row.get(10)?,
        cancel: row.get(11)?,
        worker: row.get(12)?,
        ok: row.get(13)?,
        has_waits: row.get(14)?,
        is_awaited: row.get(15)?,
    })
}

pub(super) fn by_id(tx: &Transaction<'_>, id: &str) -> Result<Option<MovingJob>, StoreError> {
    let mut select =
        tx.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1")).map_err(broken)?;
    select.query_row([id], row).optional().map_err(broken)
}

pub(super) fn by_seq(tx: &Transaction<'_>, seq: i64) -> Result<MovingJob, StoreError> {
    let mut select =
        tx.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE seq = ?1")).map_err(broken)?;
    select.query_row([seq], row).map_err(broken)
}

/// Some jobs, by the index of just those: the planner would take the one of all states, and walk
/// over all that wait.
pub(super) fn rows(tx: &Transaction<'_>, which: &str, bound: i64) -> Result<Vec<MovingJob>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM jobs INDEXED BY {which} LIMIT {CHUNK}");
    let mut select = tx.prepare_cached(&sql).map_err(broken)?;
    let found = select.query_map([bound], row).map_err(broken)?;
    found.collect::<Result<_, _>>().map_err(broken)
}

/// Queues a job: at once if its concurrency key and its rate have room, else next to the queue.
pub(super) fn enter(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    let select = "SELECT concurrency, most, rate IS NOT NULL FROM jobs WHERE seq = ?1";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| {
        Ok((row.get::<_, Option<String>>(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, bool>(2)?))
    };
    let (key, most, has_rate) = select.query_row([seq], read).map_err(broken)?;
    let has_room = match &key {
        None => true,
        Some(key) => take(tx, key, most.unwrap_or(1))?,
    };
    if has_room && has_rate {
        return rates::enter(tx, seq, now);
    }
    execute(tx, "UPDATE jobs SET state = 1, ready = ?2 WHERE seq = ?1", (seq, has_room)).map(drop)
}

/// Takes one of a key's places, if one is free.
fn take(tx: &Transaction<'_>, key: &str, most: i64) -> Result<bool, StoreError> {
    execute(tx, "INSERT INTO concurrency (key, taken) VALUES (?1, 0) ON CONFLICT DO NOTHING", [key])?;
    let update = "UPDATE concurrency SET taken = taken + 1 WHERE key = ?1 AND taken < ?2";
    Ok(execute(tx, update, (key, most))? == 1)
}

/// Gives a key's place back, to the job that waits for it first.
pub(super) fn leave(tx: &Transaction<'_>, key: Option<&str>, now: i64) -> Result<(), StoreError> {
    let Some(key) = key else { return Ok(()) };
    execute(tx, "UPDATE concurrency SET taken = taken - 1 WHERE key = ?1", [key])?;
    let first = "SELECT seq, most FROM jobs WHERE state = 1 AND ready = 0 AND concurrency = ?1 ORDER BY rank, seq LIMIT 1";
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    // More than one where those that wait allow more at a time than those before them.
    while let Some((seq, most)) = tx
        .prepare_cached(first)
        .and_then(|mut select| select.query_row([key], read).optional())
        .map_err(broken)?
    {
        if !take(tx, key, most)? {
            return Ok(());
        }
        rates::enter(tx, seq, now)?;
    }
    execute(tx, "DELETE FROM concurrency WHERE key = ?1 AND taken <= 0", [key]).map(drop)
}

/// Writes a result down.
pub(super) fn keep(
    tx: &Transaction<'_>,
    job: &MovingJob,
    kind: ResultKind,
    result: &JobResult,
    now: i64,
) -> Result<(), StoreError> {
    let body = serde_json::to_string(result).map_err(unreadable)?;
    let insert = "INSERT INTO results (job, epoch, kind, at_ms, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    execute(tx, insert, params![job.seq, job.epoch, kind as i64, now, body])?;
    if kind == ResultKind::Earlier {
        let old = "DELETE FROM results WHERE job = ?1 AND kind = 1 AND rowid NOT IN
            (SELECT rowid FROM results WHERE job = ?1 AND kind = 1 ORDER BY rowid DESC LIMIT ?2)";
        execute(tx, old, (job.seq, MAX_EARLIER_RESULTS))?;
    }
    Ok(())
}

/// Ends a job in this state with this result.
pub(super) fn end(
    tx: &Transaction<'_>,
    job: &MovingJob,
    state: JobState,
    result: &JobResult,
    now: i64,
) -> Result<(), StoreError> {
    keep(tx, job, ResultKind::Recorded, result, now)?;
    let expires = job.retention.map(|retention| now.saturating_add(retention));
    let update = "UPDATE jobs SET state = ?2, ready = 0, ended_ms = ?3, expires_ms = ?4, ok = ?5, error = ?6,
        lease_ms = NULL, took_ms = CASE WHEN ?5 THEN ?3 - leased_ms END WHERE seq = ?1";
    execute(tx, update, params![job.seq, state_number(state), now, expires, result.ok, result.error])?;
    let status = serde_json::to_value(result.status).map_err(unreadable)?;
    let count = "INSERT INTO outcomes VALUES (?1, 1) ON CONFLICT DO UPDATE SET count = count + 1";
    execute(tx, count, [status.as_str()])?;
    webhooks::ended(tx, job.seq, JobEnd::of(state, result.status), now)?;
    waits::ended(tx, job.seq, job.has_waits, job.is_awaited, result.ok)?;
    if job.ready == 1 {
        rates::withdrawn(tx, job.seq, now)?;
    }
    // Its key's room: of a leased job, and of one whose key had room for it.
    match job.ready != 0 || job.state == JobState::Leased {
        true => leave(tx, job.concurrency.as_deref(), now),
        false => Ok(()),
    }
}
