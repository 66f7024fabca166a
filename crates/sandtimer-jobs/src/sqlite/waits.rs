//! Jobs that wait for others.
//!
//! A job with `after` is scheduled until every job that it names has ended: `waits` counts those
//! that have not. The transaction that ends a job notes the end in `settled`, and a sweep applies
//! it to the jobs that waited for it, some hundred at a time: so the end of a job that thousands
//! wait for is as quick as any other, and so is the end of a long chain.

use crate::job::{SpecError, StoreError};
use rusqlite::{OptionalExtension, Transaction};

use super::values::{broken, execute, state_of};

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
        if state_of(state).is_over() {
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
