//! Schedules: jobs that recur.
//!
//! The program that finds a schedule due works out the tick with its calendar: whether a job is
//! submitted, and when the schedule is due next. The tables take a tick only if the schedule is
//! still due since the moment that the tick is for, so of several programs one submits the job.
//! Applying a tick needs no calendar, so every copy of the tables does the same.

use crate::job::{
    LOCAL_OWNER, MAX_SCHEDULES, OverlapPolicy, ScheduleRecord, ScheduleSpec, SpecError, StoreError,
    Submission,
};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::submitting::{self, NewJob};
use super::turns::Turns;
use super::values::{broken, execute, integer, natural, state_of, unreadable};

/// Schedules that are due at a time and are handled in one go.
const CHUNK: usize = 64;
/// Bytes of a schedule, with its job: each tick copies them, and each listing reads them.
const MAX_BODY_BYTES: usize = 256 << 10;

/// A schedule on its way into the tables, with what its sender worked out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NewSchedule {
    owner: String,
    name: String,
    queue: String,
    body: String,
    timing: String,
    /// When it is due first, if it is new or has other moments than before.
    first_ms: Option<u64>,
    /// `None`: as it was.
    is_paused: Option<bool>,
}

impl NewSchedule {
    /// # Errors
    /// A schedule that is never due.
    pub fn of(owner: &str, queue: &str, spec: &ScheduleSpec, calendar: i64) -> Result<Self, StoreError> {
        let first_ms = spec.recurrence.first(natural(calendar));
        if first_ms.is_none() {
            let problem = "names no moment that ever comes; use days that the months have";
            return Err(SpecError { path: "cron".to_owned(), problem: problem.to_owned() }.into());
        }
        let body = spec.source().to_string();
        if body.len() > MAX_BODY_BYTES {
            let problem = format!(
                "has {} bytes with its inputs; a schedule has at most {MAX_BODY_BYTES}: keep code and inputs where the job can read them",
                body.len()
            );
            return Err(SpecError { path: "job".to_owned(), problem }.into());
        }
        Ok(NewSchedule {
            owner: owner.to_owned(),
            name: spec.name.clone(),
            queue: queue.to_owned(),
            body,
            timing: spec.timing(),
            first_ms,
            is_paused: spec.is_paused,
        })
    }
}

/// Stores a schedule in place of the one of its name.
pub(crate) fn put(tx: &Transaction<'_>, new: &NewSchedule, now: i64) -> Result<(), StoreError> {
    let known = "SELECT timing, next_ms, coalesce(json_extract(body, '$.paused'), 0)
        FROM schedules WHERE owner = ?1 AND name = ?2";
    let read =
        |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, bool>(2)?));
    let known = tx.query_row(known, (&new.owner, &new.name), read).optional().map_err(broken)?;
    if known.is_none() && new.owner != LOCAL_OWNER {
        let count = "SELECT count(*) FROM schedules WHERE owner = ?1";
        let count: i64 = tx.query_row(count, [&new.owner], |row| row.get(0)).map_err(broken)?;
        if count >= MAX_SCHEDULES as i64 {
            return Err(StoreError::Schedules { owner: new.owner.clone() });
        }
    }
    // A deployment that stores the same schedule again does not put its next moment off. A moment
    // that is later than the first one from now on was worked out with a wrong calendar.
    let was_paused = known.as_ref().is_some_and(|(_, _, is_paused)| *is_paused);
    let is_paused = new.is_paused.unwrap_or(was_paused);
    let kept = known.filter(|(timing, ..)| *timing == new.timing).and_then(|(_, next, _)| next);
    let first = new.first_ms.map(integer);
    let next = kept.into_iter().chain(first).min().filter(|_| !is_paused);
    let upsert = "INSERT INTO schedules (owner, name, queue, body, timing, created_ms, next_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE
        SET queue = ?3, body = ?4, timing = ?5, next_ms = ?7, error = NULL";
    let values = params![new.owner, new.name, new.queue, new.body, new.timing, now, next];
    execute(tx, upsert, values)?;
    if new.is_paused.is_none() && is_paused {
        set_paused(tx, &new.owner, &new.name, true)?;
    }
    adopt_unfinished_job(tx, &new.owner, &new.name)
}

/// Gives a schedule the last job of the removed one of its name, if that job has not finished: the
/// two count as one where only one job may run at a time.
fn adopt_unfinished_job(tx: &Transaction<'_>, owner: &str, name: &str) -> Result<(), StoreError> {
    let adopt = "UPDATE schedules SET (last_ms, last_job) = (removed.last_ms, removed.last_job)
        FROM removed_schedules AS removed JOIN jobs ON jobs.id = removed.last_job AND state < 3
        WHERE schedules.owner = ?1 AND schedules.name = ?2 AND schedules.last_job IS NULL
        AND removed.owner = ?1 AND removed.name = ?2";
    execute(tx, adopt, (owner, name))?;
    execute(tx, "DELETE FROM removed_schedules WHERE owner = ?1 AND name = ?2", (owner, name)).map(drop)
}

/// A pause of a schedule, or its end, on its way into the tables.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SchedulePause {
    owner: String,
    name: String,
    is_paused: bool,
    /// The moments for which `first_ms` was computed.
    timing: String,
    /// When a schedule that is resumed is due first.
    first_ms: Option<u64>,
}

impl SchedulePause {
    /// Returns `None` if there is no such schedule.
    ///
    /// # Errors
    /// When a schedule that this program cannot read would be resumed.
    pub fn of(
        tx: &Transaction<'_>,
        owner: &str,
        name: &str,
        is_paused: bool,
        calendar: i64,
    ) -> Result<Option<Self>, StoreError> {
        let select = "SELECT timing, body FROM schedules WHERE owner = ?1 AND name = ?2";
        let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
        let found = tx.query_row(select, (owner, name), read).optional().map_err(broken)?;
        let Some((timing, body)) = found else { return Ok(None) };
        let first_ms = match is_paused {
            true => None,
            false => read_body(&body)?.recurrence.first(natural(calendar)),
        };
        Ok(Some(SchedulePause {
            owner: owner.to_owned(),
            name: name.to_owned(),
            is_paused,
            timing,
            first_ms,
        }))
    }
}

/// Pauses or resumes a schedule. Returns whether it is there with the moments that the sender has
/// read.
pub(crate) fn pause(tx: &Transaction<'_>, pause: &SchedulePause) -> Result<bool, StoreError> {
    let SchedulePause { owner, name, is_paused, timing, first_ms } = pause;
    let update = "UPDATE schedules SET next_ms = CASE WHEN ?3 THEN NULL ELSE coalesce(next_ms, ?4) END
        WHERE owner = ?1 AND name = ?2 AND timing = ?5";
    let values = params![owner, name, is_paused, first_ms.map(integer), timing];
    let is_done = execute(tx, update, values)? > 0;
    if is_done {
        set_paused(tx, owner, name, *is_paused)?;
    }
    Ok(is_done)
}

fn set_paused(tx: &Transaction<'_>, owner: &str, name: &str, is_paused: bool) -> Result<(), StoreError> {
    let update = "UPDATE schedules SET body = json_set(body, '$.paused', json(?3))
        WHERE owner = ?1 AND name = ?2";
    execute(tx, update, (owner, name, if is_paused { "true" } else { "false" })).map(drop)
}

/// What remains of a removed schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovedSchedule {
    /// Its last job, until that has finished.
    LastJob,
    /// Nothing, as in earlier versions of the log.
    Nothing,
}

pub(crate) fn remove(
    tx: &Transaction<'_>,
    owner: &str,
    name: &str,
    rest: RemovedSchedule,
) -> Result<bool, StoreError> {
    if rest == RemovedSchedule::LastJob {
        let finished = "DELETE FROM removed_schedules
            WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = last_job AND state < 3)";
        execute(tx, finished, [])?;
        let keep = "INSERT OR REPLACE INTO removed_schedules (owner, name, last_ms, last_job)
            SELECT schedules.owner, schedules.name, last_ms, last_job FROM schedules
            JOIN jobs ON jobs.id = last_job AND state < 3
            WHERE schedules.owner = ?1 AND schedules.name = ?2";
        execute(tx, keep, (owner, name))?;
    }
    let removed = execute(tx, "DELETE FROM schedules WHERE owner = ?1 AND name = ?2", (owner, name))?;
    Ok(removed > 0)
}

/// The schedules of an owner, or of all owners, by owner and name; or those of this name.
pub(crate) fn list(
    tx: &Transaction<'_>,
    owner: Option<&str>,
    name: Option<&str>,
) -> Result<Vec<ScheduleRecord>, StoreError> {
    let select =
        "SELECT schedules.name, schedules.queue, next_ms, last_ms, last_job, state, submitted, skipped,
        schedules.error, created_ms, body, schedules.owner FROM schedules LEFT JOIN jobs ON jobs.id = last_job
        WHERE coalesce(schedules.owner = ?1, 1) AND coalesce(schedules.name = ?2, 1)
        ORDER BY schedules.owner, schedules.name";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let found = select.query_map((owner, name), record).map_err(broken)?;
    let found: Vec<(ScheduleRecord, String)> = found.collect::<Result<_, _>>().map_err(broken)?;
    // A schedule that this program cannot read is listed all the same, with the reason.
    let with_spec = |(record, body): (ScheduleRecord, String)| match read_body(&body) {
        Ok(spec) => ScheduleRecord { spec: spec.shown(), ..record },
        Err(error) => {
            ScheduleRecord { error: Some(format!("this program cannot read it: {error}")), ..record }
        }
    };
    Ok(found.into_iter().map(with_spec).collect())
}

fn read_body(body: &str) -> Result<ScheduleSpec, StoreError> {
    Ok(ScheduleSpec::read(serde_json::from_str(body).map_err(unreadable)?)?)
}

fn record(row: &Row<'_>) -> rusqlite::Result<(ScheduleRecord, String)> {
    let moment = |index| row.get::<_, Option<i64>>(index).map(|moment| moment.map(natural));
    let record = ScheduleRecord {
        owner: row.get(11)?,
        name: row.get(0)?,
        queue: row.get(1)?,
        next_ms: moment(2)?,
        last_ms: moment(3)?,
        last_job: row.get(4)?,
        last_state: row.get::<_, Option<i64>>(5)?.map(state_of),
        submitted: natural(row.get(6)?),
        skipped: natural(row.get(7)?),
        error: row.get(8)?,
        created_ms: natural(row.get(9)?),
        spec: serde_json::Value::Null,
    };
    Ok((record, row.get(10)?))
}

/// What one schedule does at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ScheduleTick {
    owner: String,
    name: String,
    /// Since when it is due: a schedule that is due since another moment is left alone.
    due_ms: u64,
    next_ms: Option<u64>,
    skipped: u64,
    job: Option<TickJob>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct TickJob {
    moment_ms: u64,
    new: NewJob,
    /// It is not submitted while the job before has not finished.
    is_single: bool,
}

/// The calendar was set: schedules whose next moment was worked out with a later one are due at
/// their first moment from now on.
pub(super) fn follow(tx: &Transaction<'_>, calendar: i64) -> Result<(), StoreError> {
    let select = "SELECT owner, name, body FROM schedules WHERE next_ms > ?1";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let read =
        |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?));
    let found = select.query_map([calendar], read).map_err(broken)?;
    let found: Vec<(String, String, String)> = found.collect::<Result<_, _>>().map_err(broken)?;
    for (owner, name, body) in found {
        let first = read_body(&body).ok().and_then(|spec| spec.recurrence.first(natural(calendar)));
        let update = "UPDATE schedules SET next_ms = min(next_ms, ?3) WHERE owner = ?1 AND name = ?2";
        if let Some(first) = first {
            execute(tx, update, (owner, name, integer(first)))?;
        }
    }
    Ok(())
}

/// Whether a schedule is due. Reads only.
pub(crate) fn is_due(tx: &Transaction<'_>, calendar: i64) -> Result<bool, StoreError> {
    let query = "SELECT EXISTS (SELECT 1 FROM schedules INDEXED BY schedules_next WHERE next_ms <= ?1)";
    let mut query = tx.prepare_cached(query).map_err(broken)?;
    query.query_row([calendar], |row| row.get(0)).map_err(broken)
}

/// The ticks of due schedules. A schedule that this program cannot read is left to newer programs.
pub(crate) fn ticks(tx: &Transaction<'_>, calendar: i64) -> Result<Vec<ScheduleTick>, StoreError> {
    let select = "SELECT owner, name, queue, body, next_ms FROM schedules INDEXED BY schedules_next
        WHERE next_ms <= ?1 ORDER BY next_ms";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let mut rows = select.query([calendar]).map_err(broken)?;
    let mut ticks = Vec::new();
    while let Some(row) = rows.next().map_err(broken)?.filter(|_| ticks.len() < CHUNK) {
        ticks.extend(tick(row, natural(calendar)).map_err(broken)?);
    }
    Ok(ticks)
}

fn tick(row: &Row<'_>, calendar: u64) -> rusqlite::Result<Option<ScheduleTick>> {
    let (owner, name, body): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(3)?);
    let (queue, due_ms): (String, u64) = (row.get(2)?, natural(row.get(4)?));
    let Ok(spec) = read_body(&body) else { return Ok(None) };
    let tick = spec.tick(due_ms, calendar);
    let job = tick.moment_ms.map(|moment_ms| {
        let mut job = spec.job_for(moment_ms);
        job.queue = queue;
        let new = NewJob::of(&Submission { spec: job, owner: owner.clone() });
        TickJob { moment_ms, new, is_single: spec.overlap == OverlapPolicy::Skip }
    });
    Ok(Some(ScheduleTick { owner, name, due_ms, next_ms: tick.next_ms, skipped: tick.skipped, job }))
}

/// Does it, unless another program did.
pub(crate) fn apply(
    tx: &Transaction<'_>,
    tick: &ScheduleTick,
    turns: Turns,
    now: i64,
) -> Result<(), StoreError> {
    let ScheduleTick { owner, name, due_ms, next_ms, skipped, job } = tick;
    let advance = "UPDATE schedules SET next_ms = ?4, skipped = skipped + ?5
        WHERE owner = ?1 AND name = ?2 AND next_ms = ?3";
    let values = params![owner, name, integer(*due_ms), next_ms.map(integer), integer(*skipped)];
    let is_applied = execute(tx, advance, values)? > 0;
    let Some(job) = job.as_ref().filter(|_| is_applied) else { return Ok(()) };
    if job.is_single && has_unfinished_job(tx, owner, name)? {
        let skip = "UPDATE schedules SET skipped = skipped + 1 WHERE owner = ?1 AND name = ?2";
        return execute(tx, skip, (owner, name)).map(drop);
    }
    match submit_or_undo(tx, &job.new, turns, now)? {
        Ok(id) => {
            let note =
                "UPDATE schedules SET last_ms = ?3, last_job = ?4, submitted = submitted + 1, error = NULL
                WHERE owner = ?1 AND name = ?2";
            execute(tx, note, params![owner, name, integer(job.moment_ms), id]).map(drop)
        }
        Err(rejection) => {
            let note =
                "UPDATE schedules SET skipped = skipped + 1, error = ?3 WHERE owner = ?1 AND name = ?2";
            execute(tx, note, (owner, name, rejection)).map(drop)
        }
    }
}

fn has_unfinished_job(tx: &Transaction<'_>, owner: &str, name: &str) -> Result<bool, StoreError> {
    let query = "SELECT EXISTS (SELECT 1 FROM schedules JOIN jobs ON jobs.id = last_job
        WHERE schedules.owner = ?1 AND schedules.name = ?2 AND state < 3)";
    tx.query_row(query, (owner, name), |row| row.get(0)).map_err(broken)
}

/// Submits a job. What is refused leaves nothing in the tables, and the reason is returned.
fn submit_or_undo(
    tx: &Transaction<'_>,
    new: &NewJob,
    turns: Turns,
    now: i64,
) -> Result<Result<String, String>, StoreError> {
    tx.execute_batch("SAVEPOINT tick").map_err(broken)?;
    let submitted = submitting::submit(tx, new, turns, now);
    let is_undone = matches!(submitted, Err(StoreError::Spec(_) | StoreError::Queues { .. }));
    let end = if is_undone { "ROLLBACK TO tick; RELEASE tick" } else { "RELEASE tick" };
    tx.execute_batch(end).map_err(broken)?;
    match submitted {
        Ok(submitted) => Ok(Ok(submitted.id)),
        Err(rejection) if is_undone => Ok(Err(rejection.to_string())),
        Err(error) => Err(error),
    }
}
