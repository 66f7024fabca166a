//! Jobs as listings have them, and their results.

use crate::job::{JobLine, JobResult, StoreError};
use rusqlite::{Row, Transaction};

use super::values::{ResultKind, broken, natural, state_of, unreadable};

pub(super) const LINE: &str = "id, name, queue, priority, state, ok, error, submitted_ms, due_ms, deadline_ms, leased_ms, ended_ms, \
    deliveries, worker, cancel, waits, seq";

pub(super) fn line(row: &Row<'_>) -> rusqlite::Result<(JobLine, i64)> {
    let moment = |index| row.get::<_, Option<i64>>(index).map(|moment| moment.map(natural));
    let line = JobLine {
        id: row.get(0)?,
        name: row.get(1)?,
        queue: row.get(2)?,
        priority: row.get(3)?,
        state: state_of(row.get(4)?),
        ok: row.get(5)?,
        error: row.get(6)?,
        submitted_ms: natural(row.get(7)?),
        due_ms: natural(row.get(8)?),
        deadline_ms: moment(9)?,
        leased_ms: moment(10)?,
        ended_ms: moment(11)?,
        deliveries: row.get(12)?,
        worker: row.get(13)?,
        cancel: row.get(14)?,
        waiting_for: row.get(15)?,
    };
    Ok((line, row.get(16)?))
}

/// A job as a listing has it.
pub(super) fn line_of(tx: &Transaction<'_>, seq: i64) -> Result<JobLine, StoreError> {
    let mut select = tx.prepare_cached(&format!("SELECT {LINE} FROM jobs WHERE seq = ?1")).map_err(broken)?;
    select.query_row([seq], line).map(|(line, _)| line).map_err(broken)
}

/// The results of a job, of one kind.
pub(super) fn results(
    tx: &Transaction<'_>,
    seq: i64,
    kind: ResultKind,
) -> Result<Vec<JobResult>, StoreError> {
    let select = "SELECT body FROM results WHERE job = ?1 AND kind = ?2 ORDER BY rowid";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let bodies = select.query_map((seq, kind as i64), |row| row.get::<_, String>(0)).map_err(broken)?;
    bodies.map(|body| serde_json::from_str(&body.map_err(broken)?).map_err(unreadable)).collect()
}
