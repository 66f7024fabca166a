//! Rates: of the jobs with one rate key, at most N start in any period.
//!
//! `rate_starts` has the moments of the starts of the last period, so that what is left of the rate
//! is known at any moment. In the index of what can be leased (`ready = 1`) are, of each queue, at
//! most as many jobs of a key as may start now; the others wait next to it (`ready = 2`). So a key
//! with many jobs costs nothing to pass by, and a queue that is paused, or jobs that no worker has
//! the memory for, hold no share of the rate. `rates.wake_ms` is when a start leaves the period.

use crate::job::StoreError;
use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::values::{broken, execute};

/// Keys that are handled in one sweep.
const CHUNK: i64 = 512;

/// The rate of a job.
#[derive(Debug)]
struct Rate {
    key: String,
    most: i64,
    per_ms: i64,
}

/// Jobs of a key that can be leased by the same workers: of one queue, with the same handlers and
/// memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RateGroup {
    queue: String,
    handlers: String,
    memory: i64,
}

/// Whether a job of a key waits next to the index, or is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexState {
    InIndex = 1,
    Aside = 2,
}

fn rate(tx: &Transaction<'_>, which: &str, value: impl rusqlite::ToSql) -> Result<Option<Rate>, StoreError> {
    let select = format!("SELECT rate, rate_most, rate_per_ms FROM jobs WHERE {which}");
    let mut select = tx.prepare_cached(&select).map_err(broken)?;
    let read = |row: &Row<'_>| Ok(Rate { key: row.get(0)?, most: row.get(1)?, per_ms: row.get(2)? });
    select.query_row([value], read).optional().map_err(broken)
}

fn of_job(tx: &Transaction<'_>, seq: i64) -> Result<Option<Rate>, StoreError> {
    rate(tx, "seq = ?1 AND rate IS NOT NULL", seq)
}

/// Queues a job with a rate: in the index if its rate admits it, else next to it, after those that
/// wait there already.
pub(super) fn enter(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    match of_job(tx, seq)? {
        None => execute(tx, "UPDATE jobs SET state = 1, ready = 1 WHERE seq = ?1", [seq]).map(drop),
        Some(rate) => {
            execute(tx, "UPDATE jobs SET state = 1, ready = 2 WHERE seq = ?1", [seq])?;
            balance(tx, &rate, now)
        }
    }
}

/// A job was handed out.
pub(super) fn started(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    let Some(rate) = of_job(tx, seq)? else { return Ok(()) };
    execute(tx, "INSERT INTO rate_starts (key, at_ms) VALUES (?1, ?2)", (&rate.key, now))?;
    balance(tx, &rate, now)
}

/// The worker of a job that was handed out has returned it without a start: another job of its key
/// may start in its place.
pub(super) fn returned(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    let Some(rate) = of_job(tx, seq)? else { return Ok(()) };
    let delete = "DELETE FROM rate_starts WHERE rowid =
        (SELECT rowid FROM rate_starts WHERE key = ?1 ORDER BY at_ms DESC, rowid DESC LIMIT 1)";
    execute(tx, delete, [&rate.key])?;
    balance(tx, &rate, now)
}

/// A job left the index without a start, as one that was cancelled.
pub(super) fn withdrawn(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    of_job(tx, seq)?.map_or(Ok(()), |rate| balance(tx, &rate, now))
}

/// Admits jobs whose time has come.
pub(super) fn sweep(tx: &Transaction<'_>, now: i64) -> Result<(), StoreError> {
    let select = "SELECT key FROM rates INDEXED BY rates_wake WHERE wake_ms <= ?1 ORDER BY wake_ms LIMIT ?2";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let keys = select.query_map((now, CHUNK), |row| row.get::<_, String>(0)).map_err(broken)?;
    let keys: Vec<String> = keys.collect::<Result<_, _>>().map_err(broken)?;
    for key in keys {
        let waiting = "rowid = (SELECT rowid FROM jobs INDEXED BY jobs_paced
            WHERE state = 1 AND rate = ?1 AND ready > 0 ORDER BY ready DESC, queue LIMIT 1)";
        match rate(tx, waiting, &key)? {
            Some(rate) => balance(tx, &rate, now)?,
            // No job of the key is queued: what is remembered of it goes with the end of its
            // period.
            None => {
                execute(tx, "DELETE FROM rate_starts WHERE key = ?1", [&key])?;
                execute(tx, "DELETE FROM rates WHERE key = ?1", [&key])?;
            }
        }
    }
    Ok(())
}

/// Has as many jobs of each group in the index as may start now, and notes when more may.
fn balance(tx: &Transaction<'_>, rate: &Rate, now: i64) -> Result<(), StoreError> {
    let begins = now.saturating_sub(rate.per_ms);
    execute(tx, "DELETE FROM rate_starts WHERE key = ?1 AND at_ms <= ?2", (&rate.key, begins))?;
    let select = "SELECT count(*), min(at_ms) FROM rate_starts WHERE key = ?1";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?));
    let (started, first): (i64, Option<i64>) = select.query_row([&rate.key], read).map_err(broken)?;
    let may_start = (rate.most - started).max(0);
    for group in groups(tx, rate, IndexState::InIndex)? {
        let excess = count(tx, rate, &group, IndexState::InIndex)? - may_start;
        move_some(tx, rate, &group, IndexState::InIndex, IndexState::Aside, excess)?;
    }
    for group in groups(tx, rate, IndexState::Aside)? {
        let room = may_start - count(tx, rate, &group, IndexState::InIndex)?;
        move_some(tx, rate, &group, IndexState::Aside, IndexState::InIndex, room)?;
    }
    let wake = first.map(|first| first.saturating_add(rate.per_ms));
    let Some(wake) = wake else {
        return execute(tx, "DELETE FROM rates WHERE key = ?1", [&rate.key]).map(drop);
    };
    let upsert = "INSERT INTO rates (key, wake_ms) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET wake_ms = ?2";
    execute(tx, upsert, params![rate.key, wake]).map(drop)
}

/// The groups of a key's jobs, found by one step in the index for each.
fn groups(tx: &Transaction<'_>, rate: &Rate, waiting: IndexState) -> Result<Vec<RateGroup>, StoreError> {
    let select =
        "SELECT queue, handlers, memory FROM jobs INDEXED BY jobs_paced WHERE state = 1 AND rate = ?1 AND ready = ?2
        AND (queue, handlers, memory) > (?3, ?4, ?5) ORDER BY queue, handlers, memory LIMIT 1";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read =
        |row: &Row<'_>| Ok(RateGroup { queue: row.get(0)?, handlers: row.get(1)?, memory: row.get(2)? });
    let mut groups: Vec<RateGroup> = Vec::new();
    loop {
        let last = groups.last();
        let (queue, handlers) = last.map_or(("", ""), |last| (last.queue.as_str(), last.handlers.as_str()));
        let memory = last.map_or(-1, |last| last.memory);
        let values = params![rate.key, waiting as i64, queue, handlers, memory];
        match select.query_row(values, read).optional().map_err(broken)? {
            Some(group) => groups.push(group),
            None => return Ok(groups),
        }
    }
}

fn count(
    tx: &Transaction<'_>,
    rate: &Rate,
    group: &RateGroup,
    waiting: IndexState,
) -> Result<i64, StoreError> {
    let select = "SELECT count(*) FROM jobs INDEXED BY jobs_paced
        WHERE state = 1 AND rate = ?1 AND ready = ?2 AND queue = ?3 AND handlers = ?4 AND memory = ?5";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let values = params![rate.key, waiting as i64, group.queue, group.handlers, group.memory];
    select.query_row(values, |row| row.get(0)).map_err(broken)
}

/// Moves the first jobs of a group into the index, or the last ones out of it.
fn move_some(
    tx: &Transaction<'_>,
    rate: &Rate,
    group: &RateGroup,
    from: IndexState,
    to: IndexState,
    number: i64,
) -> Result<(), StoreError> {
    if number <= 0 {
        return Ok(());
    }
    let sorting = if to == IndexState::InIndex { "rank, seq" } else { "rank DESC, seq DESC" };
    let update = format!(
        "UPDATE jobs SET ready = ?7 WHERE seq IN (SELECT seq FROM jobs INDEXED BY jobs_paced
        WHERE state = 1 AND rate = ?1 AND ready = ?2 AND queue = ?3 AND handlers = ?4 AND memory = ?5
        ORDER BY {sorting} LIMIT ?6)"
    );
    let values = params![rate.key, from as i64, group.queue, group.handlers, group.memory, number, to as i64];
    execute(tx, &update, values).map(drop)
}
