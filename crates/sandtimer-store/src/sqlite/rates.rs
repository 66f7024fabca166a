//! Rates: of the jobs with one rate key, so many start in a time.
//!
//! Starts are spread evenly over time, and may catch up by the slack: the generic cell rate algorithm (ITU-T I.371), whose
//! theoretical arrival time is `next_us`. As many jobs of a key are in the index of what can be leased as may start now;
//! the others wait next to it, `ready = 2`, so a key with many jobs costs nothing to pass by. `admitted` counts those in the
//! index, and `wake_ms` is when one more can enter it.

use rusqlite::{OptionalExtension, Row, Transaction, params};
use sandtimer::job::StoreError;

use super::broken;
use super::moving::execute;

/// Jobs that enter the index in one sweep, of each key.
const CHUNK: usize = 512;

/// The rate of a job.
#[derive(Debug)]
struct Rate {
    key: String,
    /// Microseconds between starts.
    interval: i64,
    /// By how many microseconds starts may come early, to catch up.
    slack: i64,
}

/// The starts of a key.
#[derive(Debug)]
struct Starts {
    admitted: i64,
    next_us: i64,
}

impl Starts {
    /// The moment at which one more job can enter the index; `None` if a start has to come first.
    fn entry_ms(&self, rate: &Rate) -> Option<i64> {
        let ahead = self.admitted.saturating_mul(rate.interval);
        let entry_us = self.next_us.saturating_sub(rate.slack).saturating_add(ahead);
        (ahead <= rate.slack).then(|| entry_us.saturating_add(999).div_euclid(1_000))
    }
}

fn rate(tx: &Transaction<'_>, seq: i64) -> Result<Option<Rate>, StoreError> {
    let select = "SELECT rate, rate_us, rate_slack_us FROM jobs WHERE seq = ?1 AND rate IS NOT NULL";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read = |row: &Row<'_>| Ok(Rate { key: row.get(0)?, interval: row.get(1)?, slack: row.get(2)? });
    select.query_row([seq], read).optional().map_err(broken)
}

fn starts(tx: &Transaction<'_>, key: &str) -> Result<Starts, StoreError> {
    let mut select =
        tx.prepare_cached("SELECT admitted, next_us FROM rates WHERE key = ?1").map_err(broken)?;
    let read = |row: &Row<'_>| Ok(Starts { admitted: row.get(0)?, next_us: row.get(1)? });
    let found = select.query_row([key], read).optional().map_err(broken)?;
    Ok(found.unwrap_or(Starts { admitted: 0, next_us: 0 }))
}

fn store(tx: &Transaction<'_>, key: &str, starts: &Starts) -> Result<(), StoreError> {
    let upsert = "INSERT INTO rates (key, admitted, next_us) VALUES (?1, ?2, ?3)
        ON CONFLICT DO UPDATE SET admitted = ?2, next_us = ?3";
    execute(tx, upsert, (key, starts.admitted, starts.next_us)).map(drop)
}

/// Queues a job: in the index of what can be leased if its rate admits it, else next to it.
pub(super) fn enter(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    let Some(rate) = rate(tx, seq)? else {
        return execute(tx, "UPDATE jobs SET state = 1, ready = 1 WHERE seq = ?1", [seq]).map(drop);
    };
    // After those that wait already: their turn comes with the key's next admission.
    execute(tx, "UPDATE jobs SET state = 1, ready = 2 WHERE seq = ?1", [seq])?;
    admit(tx, &rate.key, now)
}

/// A job was handed out.
pub(super) fn started(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    let Some(rate) = rate(tx, seq)? else { return Ok(()) };
    let mut starts = starts(tx, &rate.key)?;
    starts.admitted = (starts.admitted - 1).max(0);
    starts.next_us = starts.next_us.max(now.saturating_mul(1_000)).saturating_add(rate.interval);
    store(tx, &rate.key, &starts)?;
    admit(tx, &rate.key, now)
}

/// A job left the index without a start, as one that was cancelled.
pub(super) fn withdrawn(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    let Some(rate) = rate(tx, seq)? else { return Ok(()) };
    execute(tx, "UPDATE rates SET admitted = max(0, admitted - 1) WHERE key = ?1", [&rate.key])?;
    admit(tx, &rate.key, now)
}

/// Lets jobs into the index whose moment has come.
pub(super) fn sweep(tx: &Transaction<'_>, now: i64) -> Result<(), StoreError> {
    let select = "SELECT key FROM rates INDEXED BY rates_wake WHERE wake_ms <= ?1 LIMIT 512";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let keys = select.query_map([now], |row| row.get::<_, String>(0)).map_err(broken)?;
    let keys: Vec<String> = keys.collect::<Result<_, _>>().map_err(broken)?;
    keys.iter().try_for_each(|key| admit(tx, key, now))
}

/// Lets the first waiting jobs of a key into the index, as many as may start now, and notes when the next one can.
fn admit(tx: &Transaction<'_>, key: &str, now: i64) -> Result<(), StoreError> {
    let first = "SELECT seq, rate_us, rate_slack_us FROM jobs INDEXED BY jobs_paced
        WHERE state = 1 AND ready = 2 AND rate = ?1 ORDER BY rank, seq LIMIT 1";
    let mut first = tx.prepare_cached(first).map_err(broken)?;
    let read = |row: &Row<'_>| {
        Ok((row.get::<_, i64>(0)?, Rate { key: key.to_owned(), interval: row.get(1)?, slack: row.get(2)? }))
    };
    let mut starts = starts(tx, key)?;
    let mut wake = None;
    for _ in 0..CHUNK {
        let Some((seq, rate)) = first.query_row([key], read).optional().map_err(broken)? else {
            // The row is of no more use once the next start would be as if it were the first.
            wake = (starts.admitted == 0).then(|| starts.next_us.div_euclid(1_000) + 1);
            break;
        };
        wake = starts.entry_ms(&rate);
        if wake.is_none_or(|wake| wake > now) {
            break;
        }
        execute(tx, "UPDATE jobs SET ready = 1 WHERE seq = ?1", [seq])?;
        starts.admitted += 1;
    }
    if starts.admitted == 0 && starts.next_us <= now.saturating_mul(1_000) {
        let is_idle = first.query_row([key], |_| Ok(())).optional().map_err(broken)?.is_none();
        if is_idle {
            return execute(tx, "DELETE FROM rates WHERE key = ?1", [key]).map(drop);
        }
    }
    store(tx, key, &starts)?;
    execute(tx, "UPDATE rates SET wake_ms = ?2 WHERE key = ?1", params![key, wake]).map(drop)
}
