//! Ends of jobs are applied to those that waited for them.

use crate::job::{JobResult, JobState, JobStatus, StoreError};
use rusqlite::{OptionalExtension, Transaction, params};

use super::transitions::{by_seq, end, enter};
use super::values::{broken, execute, state_number};

/// Jobs that are released, or cancelled, in one sweep.
const CHUNK: i64 = 512;

/// Releases jobs that waited for jobs that have ended, or cancels them.
pub(super) fn sweep(tx: &Transaction<'_>, now: i64) -> Result<(), StoreError> {
    let mut left = CHUNK;
    while left > 0 {
        let select = "SELECT on_job, ok, id FROM settled ORDER BY on_job LIMIT 1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?, row.get::<_, String>(2)?))
        };
        let mut select = tx.prepare_cached(select).map_err(broken)?;
        let Some((on, ok, id)) = select.query_row([], read).optional().map_err(broken)? else { break };
        left -= settle(tx, on, ok, &id, left, now)?.max(1);
    }
    Ok(())
}

/// The same for one job whose record is removed: its number may be another job's afterwards.
pub(super) fn settle_all(tx: &Transaction<'_>, seq: i64, now: i64) -> Result<(), StoreError> {
    let select = "SELECT ok, id FROM settled WHERE on_job = ?1";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, bool>(0)?, row.get::<_, String>(1)?));
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    while let Some((ok, id)) = select.query_row([seq], read).optional().map_err(broken)? {
        settle(tx, seq, ok, &id, CHUNK, now)?;
    }
    Ok(())
}

/// Settles at most `most` waits for a job that has ended. Returns how many.
fn settle(tx: &Transaction<'_>, on: i64, ok: bool, id: &str, most: i64, now: i64) -> Result<i64, StoreError> {
    let select = "SELECT job, runs FROM waits WHERE on_job = ?1 ORDER BY job LIMIT ?2";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let found = select
        .query_map((on, most), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?)))
        .map_err(broken)?;
    let found: Vec<(i64, bool)> = found.collect::<Result<_, _>>().map_err(broken)?;
    for (job, runs) in &found {
        execute(tx, "DELETE FROM waits WHERE on_job = ?1 AND job = ?2", (on, job))?;
        if !ok && !runs {
            cancel_waiting(tx, *job, id, now)?;
            continue;
        }
        let release = "UPDATE jobs SET waits = waits - 1 WHERE seq = ?1";
        execute(tx, release, params![job])?;
        let is_due = "SELECT waits = 0 AND due_ms <= ?2 AND state = ?3 FROM jobs WHERE seq = ?1";
        let scheduled = state_number(JobState::Scheduled);
        let is_due = tx.query_row(is_due, (job, now, scheduled), |row| row.get(0)).map_err(broken)?;
        if is_due {
            enter(tx, *job, now)?;
        }
    }
    if (found.len() as i64) < most {
        execute(tx, "DELETE FROM settled WHERE on_job = ?1", [on])?;
    }
    Ok(found.len() as i64)
}

/// Cancels a job because one that it waits for did not succeed.
fn cancel_waiting(tx: &Transaction<'_>, seq: i64, on: &str, now: i64) -> Result<(), StoreError> {
    let reason = format!("Cancelled before it began: job {on}, which it waits for, did not succeed.");
    let result = JobResult::bare(JobStatus::Cancelled, Some(reason));
    end(tx, &by_seq(tx, seq)?, JobState::Cancelled, &result, now)
}
