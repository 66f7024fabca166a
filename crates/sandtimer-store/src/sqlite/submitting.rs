//! New jobs.

use rusqlite::{OptionalExtension, Transaction, params};
use sandtimer::engine::new_run_id;
use sandtimer::job::{JobState, LOCAL_OWNER, MOST_QUEUES, StoreError, Submission, Submitted};

use super::files::keep_inputs;
use super::moving::{enter, execute};
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
        submitted_ms, due_ms, deadline_ms, wall_ms, retention_ms, deliveries_most, memory)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
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
        integer(spec.memory_bytes()),
    ];
    tx.prepare_cached(insert).and_then(|mut insert| insert.execute(values)).map_err(broken)?;
    let seq = tx.last_insert_rowid();
    let insert = "INSERT INTO specs (job, body) VALUES (?1, ?2)";
    tx.prepare_cached(insert).and_then(|mut insert| insert.execute((seq, &body))).map_err(broken)?;
    keep_inputs(tx, seq, &spec.inputs)?;
    if let Some(webhook) = &spec.webhook {
        webhooks::keep(tx, seq, webhook)?;
    }
    open_queue(tx, &spec.queue, &one.owner)?;
    if state == JobState::Queued {
        enter(tx, seq)?;
    }
    Ok(Submitted { id, state, existed: false })
}

/// Makes a queue known. An owner with a token has only so many; those without jobs are forgotten first.
fn open_queue(tx: &Transaction<'_>, queue: &str, owner: &str) -> Result<(), StoreError> {
    let insert = "INSERT INTO queues (queue, owner) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    if execute(tx, insert, (queue, owner))? == 0 || owner == LOCAL_OWNER {
        return Ok(());
    }
    let has_too_many = || {
        let count = "SELECT count(*) FROM queues WHERE owner = ?1";
        let count = tx.query_row(count, [owner], |row| row.get::<_, i64>(0)).map_err(broken)?;
        Ok::<_, StoreError>(count > MOST_QUEUES as i64)
    };
    if has_too_many()? {
        let unused = "DELETE FROM queues WHERE owner = ?1 AND paused = 0 AND queue NOT IN (SELECT queue FROM jobs WHERE owner = ?1)";
        execute(tx, unused, [owner])?;
        if has_too_many()? {
            return Err(StoreError::Queues { owner: owner.to_owned() });
        }
    }
    Ok(())
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
