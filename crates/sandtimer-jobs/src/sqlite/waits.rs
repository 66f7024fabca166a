//! Jobs that wait for others.
//!
//! A job with `after` is scheduled until every job that it names has ended: `waits` counts those
//! that have not. The transaction that ends a job notes the end in `settled`, and a sweep applies
//! it to the jobs that waited for it, some hundred at a time: so the end of a job that thousands
//! wait for is as quick as any other, and so is the end of a long chain.

use crate::job::{JobState, SpecError, StoreError};
use rusqlite::{OptionalExtension, Transaction, params};

use super::moving;
use super::values::{broken, execute};

/// Jobs that are released, or cancelled, in one sweep.
const CHUNK: i64 = 512;

/// Has a job wait for others. The end of a job that has ended already is applied by the next sweep.
pub(super) fn begin(
    tx: &Transaction<'_>,
    seq: i64,
    owner: &str,
    after: &[String],
    runs_after_failure: bool,
) -> Result<(), StoreError> {
    for (index, id) in after.iter().enumerate() {
        let select = "SELECT seq, state, ok FROM jobs WHERE id = ?1 AND owner = ?2";
        let mut select = tx.prepare_cached(select).map_err(broken)?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<bool>>(2)?))
        };
        let Some((on, state, ok)) = select.query_row((id, owner), read).optional().map_err(broken)? else {
            let problem = format!(
                "no job has the id `{id}`, and none that is submitted with this one has the name; use an id that `jobs list` shows"
            );
            return Err(SpecError { path: format!("after[{index}]"), problem }.into());
        };
        let insert = "INSERT INTO waits (on_job, job, runs) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
        execute(tx, insert, (on, seq, runs_after_failure))?;
        execute(tx, "UPDATE jobs SET awaited = 1 WHERE seq = ?1", [on])?;
        if super::values::state_of(state).is_over() {
            note(tx, on, ok == Some(true))?;
        }
    }
    let count = "UPDATE jobs SET waits = (SELECT count(*) FROM waits WHERE job = ?1) WHERE seq = ?1";
    execute(tx, count, [seq]).map(drop)
}

/// A job has ended: what waits for it is settled by the next sweep, and it waits for nothing
/// itself.
pub(super) fn ended(
    tx: &Transaction<'_>,
    seq: i64,
    has_waits: bool,
    is_awaited: bool,
    ok: bool,
) -> Result<(), StoreError> {
    if has_waits {
        execute(tx, "DELETE FROM waits WHERE job = ?1", [seq])?;
    }
    if is_awaited { note(tx, seq, ok) } else { Ok(()) }
}

fn note(tx: &Transaction<'_>, seq: i64, ok: bool) -> Result<(), StoreError> {
    let insert = "INSERT INTO settled (on_job, ok, id) SELECT seq, ?2, id FROM jobs WHERE seq = ?1
        AND EXISTS (SELECT 1 FROM waits WHERE on_job = ?1) ON CONFLICT DO UPDATE SET ok = ?2";
    execute(tx, insert, (seq, ok)).map(drop)
}

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
            moving::cancel_waiting(tx, *job, id, now)?;
            continue;
        }
        let release = "UPDATE jobs SET waits = waits - 1 WHERE seq = ?1";
        execute(tx, release, params![job])?;
        let is_due = "SELECT waits = 0 AND due_ms <= ?2 AND state = ?3 FROM jobs WHERE seq = ?1";
        let scheduled = super::values::state_number(JobState::Scheduled);
        let is_due = tx.query_row(is_due, (job, now, scheduled), |row| row.get(0)).map_err(broken)?;
        if is_due {
            moving::enter(tx, *job, now)?;
        }
    }
    if (found.len() as i64) < most {
        execute(tx, "DELETE FROM settled WHERE on_job = ?1", [on])?;
    }
    Ok(found.len() as i64)
}
