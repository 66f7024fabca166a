//! New jobs.

use rusqlite::{OptionalExtension, Transaction, params};
use sandtimer::engine::new_run_id;
use sandtimer::job::{JobState, StoreError, Submission, Submitted};

use super::files::keep_inputs;
use super::moving::enter;
use super::{broken, integer, natural, rank, state_number, state_of, webhooks};

/// Takes in one job.
pub(super) fn submit(tx: &Transaction<'_>, one: &Submission, now: i64) -> Result<Submitted, StoreError> {
    let spec = &one.spec;
    let body = spec.stored().to_string();
    if let Some(existing) = known(tx, one, &body)? {
        return Ok(existing);
    }
    let deadline = spec.deadline(natural(now))?.map(integer);
    let due = spec.not_before_ms.map_or(now, integer).max(now);
    let state = if due > now { JobState::Scheduled } else { JobState::Queued };
    let concurrency =
        spec.concurrency.as_ref().map(|one_of| (format!("{}\u{1f}{}", one.owner, one_of.key), one_of.most));
    let id = free_id(tx)?;
    let milliseconds = |time: Option<std::time::Duration>| time.map(|time| integer(time.as_millis() as u64));
    let insert =
        "INSERT INTO jobs (id, owner, name, queue, priority, state, rank, concurrency, most, idempotency,
        submitted_ms, due_ms, deadline_ms, wall_ms, retention_ms, deliveries_most)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    let values = params![
        id,
        one.owner,
        spec.name,
        spec.queue,
        spec.priority,
        state_number(JobState::Scheduled),
        rank(due, spec.priority.into()),
        concurrency.as_ref().map(|(key, _)| key),
        concurrency.as_ref().map(|(_, most)| most),
        spec.idempotency_key,
        now,
        due,
        deadline,
        milliseconds(spec.wall),
        milliseconds(spec.retention),
        spec.deliveries,
    ];
    tx.prepare_cached(insert).and_then(|mut insert| insert.execute(values)).map_err(broken)?;
    let seq = tx.last_insert_rowid();
    let insert = "INSERT INTO specs (job, body) VALUES (?1, ?2)";
    tx.prepare_cached(insert).and_then(|mut insert| insert.execute((seq, &body))).map_err(broken)?;
    keep_inputs(tx, seq, &spec.inputs)?;
    if let Some(webhook) = &spec.webhook {
        webhooks::keep(tx, seq, webhook)?;
    }
    let insert = "INSERT INTO queues (queue) VALUES (?1) ON CONFLICT DO NOTHING";
    tx.prepare_cached(insert).and_then(|mut insert| insert.execute([&spec.queue])).map_err(broken)?;
    if state == JobState::Queued {
        enter(tx, seq)?;
    }
    Ok(Submitted { id, state, existed: false })
}

/// The job that was submitted before with the same idempotency key.
fn known(tx: &Transaction<'_>, one: &Submission, body: &str) -> Result<Option<Submitted>, StoreError> {
    let Some(key) = &one.spec.idempotency_key else { return Ok(None) };
    let select =
        "SELECT id, state, body FROM jobs JOIN specs ON job = seq WHERE owner = ?1 AND idempotency = ?2";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?));
    let found: Option<(String, i64, String)> =
        tx.query_row(select, (&one.owner, key), read).optional().map_err(broken)?;
    match found {
        None => Ok(None),
        Some((id, state, stored)) if stored == body => {
            Ok(Some(Submitted { id, state: state_of(state), existed: true }))
        }
        Some((existing, ..)) => Err(StoreError::Conflict { key: key.clone(), existing }),
    }
}

fn free_id(tx: &Transaction<'_>) -> Result<String, StoreError> {
    loop {
        let id = new_run_id();
        let mut select = tx.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1").map_err(broken)?;
        if !select.exists([&id]).map_err(broken)? {
            return Ok(id);
        }
    }
}
