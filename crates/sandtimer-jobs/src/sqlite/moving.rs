//! From one state to the next. Each function is a part of one transaction.

use crate::job::{
    CancelResult, Filter, Finish, FinishResult, JobResult, JobState, JobStatus, LeaseRequest, StoreError,
};
use rusqlite::{Transaction, params_from_iter};

use super::reading::wanted;
use super::transitions::{COLUMNS, MovingJob, by_id, by_seq, end, enter, keep, leave, row, rows};
use super::values::{ResultKind, broken, execute, integer, natural, rank};
use super::webhooks::{self, WebhookRules};
use super::{handlers, rates, settling};

/// How long a job waits that could not be executed, and at most after several times.
const MIN_PAUSE_MS: i64 = 1_000;
const MAX_PAUSE_MS: i64 = 60_000;

/// Whether a worker may find something to lease, now or once time has done its part. Reads only.
pub(crate) fn is_something_to_do(
    tx: &Transaction<'_>,
    request: &LeaseRequest,
    now: i64,
) -> Result<bool, StoreError> {
    let found: rusqlite::Result<bool> = if let Some(id) = &request.only {
        // A request for one job gets it, however much is free.
        let select = "SELECT EXISTS (SELECT 1 FROM jobs JOIN queues USING (queue)
            WHERE id = ?1 AND state = 1 AND ready = 1 AND paused = 0)";
        tx.prepare_cached(select).and_then(|mut select| select.query_row([id], |row| row.get(0)))
    } else {
        let select = "SELECT EXISTS (SELECT 1 FROM queues WHERE paused = 0
            AND (?2 IS NULL OR queue IN (SELECT value FROM json_each(?2))) AND EXISTS
            (SELECT 1 FROM jobs WHERE state = 1 AND ready = 1 AND jobs.queue = queues.queue AND handlers = ''
             AND memory <= ?1))";
        tx.prepare_cached(select)
            .and_then(|mut select| select.query_row((free(request), queues(request)), |row| row.get(0)))
    };
    let found = found.map_err(broken)?
        || request.only.is_none() && is_something_for_handlers(tx, request)?
        || has_time_done_something(tx, now)?;
    Ok(found)
}

/// Whether a job that needs handlers can be leased by a worker that has them.
fn is_something_for_handlers(tx: &Transaction<'_>, request: &LeaseRequest) -> Result<bool, StoreError> {
    if request.handlers.is_empty() {
        return Ok(false);
    }
    let select = "SELECT queue FROM queues WHERE paused = 0
        AND (?1 IS NULL OR queue IN (SELECT value FROM json_each(?1)))";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    let found = select.query_map([queues(request)], |row| row.get::<_, String>(0)).map_err(broken)?;
    let found: Vec<String> = found.collect::<Result<_, _>>().map_err(broken)?;
    let exists = "SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_ready WHERE state = 1 AND ready = 1
        AND queue = ?1 AND handlers = ?2 AND memory <= ?3)";
    let mut exists = tx.prepare_cached(exists).map_err(broken)?;
    for queue in found {
        // The first is that of jobs without handlers.
        for list in handlers::leasable_lists(tx, &queue, &request.handlers)?.into_iter().skip(1) {
            if exists.query_row((&queue, list, free(request)), |row| row.get(0)).map_err(broken)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The memory that is free, as a bound of what can be leased.
fn free(request: &LeaseRequest) -> i64 {
    request.memory.map_or(i64::MAX, |room| integer(room.free))
}

/// The queues as a list in JSON; `None` for all.
fn queues(request: &LeaseRequest) -> Option<String> {
    (!request.queues.is_empty()).then(|| serde_json::json!(request.queues).to_string())
}

/// What time may have done since the last look. Reads only.
pub(crate) fn has_time_done_something(tx: &Transaction<'_>, now: i64) -> Result<bool, StoreError> {
    let select = "SELECT EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_due WHERE state = 0 AND waits = 0 AND due_ms <= ?1)
        OR EXISTS (SELECT 1 FROM rates INDEXED BY rates_wake WHERE wake_ms <= ?1)
        OR EXISTS (SELECT 1 FROM settled)
        OR EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_leased WHERE state = 2 AND lease_ms <= ?1)
        OR EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_scheduled_deadline WHERE state = 0 AND deadline_ms <= ?1)
        OR EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_queued_deadline WHERE state = 1 AND deadline_ms <= ?1)
        OR EXISTS (SELECT 1 FROM jobs INDEXED BY jobs_expiry WHERE expires_ms <= ?1)";
    tx.prepare_cached(select).and_then(|mut select| select.query_row([now], |row| row.get(0))).map_err(broken)
}

/// What time alone does, in pieces.
pub(crate) fn sweep(tx: &Transaction<'_>, rules: WebhookRules, now: i64) -> Result<(), StoreError> {
    for job in rows(tx, "jobs_leased WHERE state = 2 AND lease_ms <= ?1 ORDER BY lease_ms", now)? {
        lose(tx, &job, "the lease ran out", now)?;
    }
    for which in [
        "jobs_scheduled_deadline WHERE state = 0 AND deadline_ms <= ?1",
        "jobs_queued_deadline WHERE state = 1 AND deadline_ms <= ?1",
    ] {
        for job in rows(tx, which, now)? {
            // The end of the one before it may have given this one its key's place.
            overdue(tx, &by_seq(tx, job.seq)?, now)?;
        }
    }
    settling::sweep(tx, now)?;
    for job in rows(tx, "jobs_due WHERE state = 0 AND waits = 0 AND due_ms <= ?1 ORDER BY due_ms", now)? {
        enter(tx, job.seq, now)?;
    }
    rates::sweep(tx, now)?;
    for job in rows(tx, "jobs_expiry WHERE expires_ms <= ?1", now)? {
        forget(tx, job.seq, rules, now)?;
    }
    Ok(())
}

/// Ends the leases of a worker that is dead.
pub(super) fn take_back(tx: &Transaction<'_>, worker: &str, now: i64) -> Result<usize, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM jobs INDEXED BY jobs_leased WHERE state = 2 AND worker = ?1");
    let mut select = tx.prepare_cached(&sql).map_err(broken)?;
    let found = select.query_map([worker], row).map_err(broken)?;
    let found: Vec<MovingJob> = found.collect::<Result<_, _>>().map_err(broken)?;
    found.iter().try_for_each(|job| lose(tx, job, "it is dead", now))?;
    Ok(found.len())
}

/// A job's worker is lost.
fn lose(tx: &Transaction<'_>, job: &MovingJob, how: &str, now: i64) -> Result<(), StoreError> {
    let worker = job.worker.as_deref().unwrap_or("unknown");
    let loss =
        format!("worker {worker} was lost ({how}), in delivery {} of {}", job.deliveries, job.max_deliveries);
    if let Some(reason) = &job.cancel {
        let result = JobResult::bare(JobStatus::Cancelled, Some(format!("Cancelled: {reason}; {loss}.")));
        return end(tx, job, JobState::Cancelled, &result, now);
    }
    give_back(tx, job, &JobResult::bare(JobStatus::Lost, Some(loss)), None, now)
}

/// Queues a leased job again, at once or after a pause, or ends it: past its deadline, or handed
/// out too often.
fn give_back(
    tx: &Transaction<'_>,
    job: &MovingJob,
    result: &JobResult,
    pause_ms: Option<i64>,
    now: i64,
) -> Result<(), StoreError> {
    let passed = "UPDATE jobs SET earlier_ms = earlier_ms + max(0, ?2 - leased_ms),
        waited_ms = waited_ms + max(0, leased_ms - due_ms) WHERE seq = ?1";
    execute(tx, passed, (job.seq, now))?;
    if job.deadline.is_some_and(|deadline| deadline <= now) {
        keep(tx, job, ResultKind::Earlier, result, now)?;
        return overdue(tx, job, now);
    }
    if job.deliveries >= job.max_deliveries {
        return end(tx, job, JobState::Dead, result, now);
    }
    keep(tx, job, ResultKind::Earlier, result, now)?;
    if let Some(pause_ms) = pause_ms {
        return defer(tx, job, now.saturating_add(pause_ms), now);
    }
    let update = "UPDATE jobs SET due_ms = ?2, worker = NULL, lease_ms = NULL WHERE seq = ?1";
    execute(tx, update, (job.seq, now))?;
    // It keeps its concurrency key's room; its next start counts for its rate like any other.
    rates::enter(tx, job.seq, now)
}

/// The pause of a job that could not be executed: a second, two, four …
fn pause_after_failure(job: &MovingJob) -> i64 {
    MIN_PAUSE_MS.saturating_mul(1 << (job.deliveries - 1).clamp(0, 20)).min(MAX_PAUSE_MS)
}

/// Schedules a job again.
fn defer(tx: &Transaction<'_>, job: &MovingJob, due: i64, now: i64) -> Result<(), StoreError> {
    let update = "UPDATE jobs SET state = 0, ready = 0, due_ms = ?2, worker = NULL, lease_ms = NULL,
        earlier_ms = earlier_ms + max(0, ?2 - ?3) WHERE seq = ?1";
    execute(tx, update, (job.seq, due, now))?;
    leave(tx, job.concurrency.as_deref(), now)
}

fn overdue(tx: &Transaction<'_>, job: &MovingJob, now: i64) -> Result<(), StoreError> {
    let limit = natural(job.deadline.unwrap_or(now) - job.submitted);
    let deliveries = u32::try_from(job.deliveries).unwrap_or(u32::MAX);
    let earlier = earlier_ms(tx, job.seq)?;
    let result = JobResult::overdue(&job.id, limit, natural(now - job.submitted), earlier, deliveries);
    end(tx, job, JobState::Ended, &result, now)
}

/// How long earlier deliveries of a job took, with the pauses after them.
fn earlier_ms(tx: &Transaction<'_>, seq: i64) -> Result<u64, StoreError> {
    let select = "SELECT earlier_ms FROM jobs WHERE seq = ?1";
    tx.query_row(select, [seq], |row| row.get(0)).map(natural).map_err(broken)
}

/// Ends a queued job that could not be done any more.
pub(super) fn end_too_late(
    tx: &Transaction<'_>,
    seq: i64,
    shortest: i64,
    now: i64,
) -> Result<(), StoreError> {
    let job = by_seq(tx, seq)?;
    let limit = natural(job.deadline.unwrap_or(now) - job.submitted);
    let earlier = earlier_ms(tx, seq)?;
    let elapsed = natural(now - job.submitted);
    let result = JobResult::too_late(&job.id, limit, elapsed, earlier, natural(shortest));
    end(tx, &job, JobState::Ended, &result, now)
}

/// Records the result of a leased job, if the lease is still this one. A job that could not be
/// executed may be deferred.
pub(crate) fn finish(
    tx: &Transaction<'_>,
    finish: &Finish,
    may_defer: bool,
    now: i64,
) -> Result<FinishResult, StoreError> {
    let Some(job) = by_id(tx, &finish.held.id)? else { return Ok(FinishResult::Duplicate) };
    let result = &finish.result;
    if job.state != JobState::Leased || natural(job.epoch) != finish.held.epoch {
        let late = MovingJob { epoch: integer(finish.held.epoch), ..job };
        keep(tx, &late, ResultKind::Duplicate, result, now)?;
        return Ok(FinishResult::Duplicate);
    }
    if finish.again && job.cancel.is_none() {
        // The end of its worker is no evidence about the job.
        let returned = i64::from(result.status == JobStatus::Drained);
        let job = MovingJob { deliveries: job.deliveries - returned, ..job };
        execute(tx, "UPDATE jobs SET deliveries = ?2 WHERE seq = ?1", (job.seq, job.deliveries))?;
        let pause_ms = match result.status {
            JobStatus::InfraError if may_defer => Some(pause_after_failure(&job)),
            JobStatus::Drained if finish.pause_ms > 0 => {
                rates::returned(tx, job.seq, now)?;
                Some(integer(finish.pause_ms))
            }
            _ => None,
        };
        give_back(tx, &job, result, pause_ms, now)?;
        return Ok(FinishResult::Returned);
    }
    let state = if result.status == JobStatus::Cancelled { JobState::Cancelled } else { JobState::Ended };
    end(tx, &job, state, result, now)?;
    Ok(FinishResult::Recorded)
}

/// Ends a job, or asks its worker to.
pub(crate) fn cancel(
    tx: &Transaction<'_>,
    id: &str,
    reason: &str,
    now: i64,
) -> Result<CancelResult, StoreError> {
    let job = by_id(tx, id)?.ok_or_else(|| StoreError::Unknown(id.to_owned()))?;
    match job.state {
        JobState::Scheduled | JobState::Queued => {
            let when = if job.deliveries == 0 { "before it began" } else { "before it was handed out again" };
            let result = JobResult::bare(JobStatus::Cancelled, Some(format!("Cancelled {when}: {reason}.")));
            end(tx, &job, JobState::Cancelled, &result, now)?;
            Ok(CancelResult::Cancelled)
        }
        JobState::Leased => {
            execute(tx, "UPDATE jobs SET cancel = coalesce(cancel, ?2) WHERE seq = ?1", (job.seq, reason))?;
            Ok(CancelResult::Asked)
        }
        JobState::Ended | JobState::Dead | JobState::Cancelled => Ok(CancelResult::TooLate),
    }
}

/// Queues a job again that has ended and did not succeed.
pub(crate) fn retry(tx: &Transaction<'_>, id: &str, now: i64) -> Result<JobState, StoreError> {
    let job = by_id(tx, id)?.ok_or_else(|| StoreError::Unknown(id.to_owned()))?;
    let refused = |remedy| StoreError::WrongState { id: id.to_owned(), state: job.state, remedy };
    if !job.state.is_over() {
        return Err(refused("it has not ended: cancel it first"));
    }
    if job.ok == Some(true) {
        return Err(refused("it succeeded: submit its spec again for another one"));
    }
    let has_moment = "SELECT wall_ms IS NULL FROM jobs WHERE seq = ?1";
    let has_moment: bool = tx.query_row(has_moment, [job.seq], |row| row.get(0)).map_err(broken)?;
    if has_moment && job.deadline.is_some_and(|deadline| deadline <= now) {
        return Err(refused("its `deadline_ms` has passed: submit its spec again with a later one"));
    }
    // What waited for its end before is settled by that end.
    settling::settle_all(tx, job.seq, now)?;
    execute(tx, "UPDATE results SET kind = 1 WHERE job = ?1 AND kind = 0", [job.seq])?;
    webhooks::reopened(tx, job.seq)?;
    let priority = "SELECT priority FROM jobs WHERE seq = ?1";
    let priority: i64 = tx.query_row(priority, [job.seq], |row| row.get(0)).map_err(broken)?;
    let update =
        "UPDATE jobs SET submitted_ms = ?2, due_ms = ?2, rank = ?3, deliveries = 0, cancel = NULL, ok = NULL,
        error = NULL, worker = NULL, ended_ms = NULL, expires_ms = NULL, waits = 0, start_ms = NULL, earlier_ms = 0, waited_ms = 0,
        deadline_ms = CASE WHEN wall_ms IS NULL THEN deadline_ms ELSE ?2 + wall_ms END WHERE seq = ?1";
    execute(tx, update, (job.seq, now, rank(now, priority)))?;
    enter(tx, job.seq, now)?;
    Ok(JobState::Queued)
}

/// Purges jobs that have ended.
pub(crate) fn purge(
    tx: &Transaction<'_>,
    filter: &Filter,
    most: usize,
    rules: WebhookRules,
    now: i64,
) -> Result<u64, StoreError> {
    let (which, values) = wanted(filter);
    let sql =
        format!("SELECT seq FROM jobs WHERE state >= 3 AND {which} LIMIT {}", most.min(i64::MAX as usize));
    let mut select = tx.prepare(&sql).map_err(broken)?;
    let found = select.query_map(params_from_iter(values), |row| row.get::<_, i64>(0)).map_err(broken)?;
    let found: Vec<i64> = found.collect::<Result<_, _>>().map_err(broken)?;
    for seq in &found {
        forget(tx, *seq, rules, now)?;
    }
    Ok(found.len() as u64)
}

/// Pauses or resumes a queue.
pub(crate) fn pause(tx: &Transaction<'_>, queue: &str, paused: bool) -> Result<(), StoreError> {
    let set = "INSERT INTO queues (queue, paused) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET paused = ?2";
    execute(tx, set, (queue, paused)).map(drop)
}

fn forget(tx: &Transaction<'_>, seq: i64, rules: WebhookRules, now: i64) -> Result<(), StoreError> {
    settling::settle_all(tx, seq, now)?;
    webhooks::part(tx, seq, rules)?;
    let tables = ["DELETE FROM jobs WHERE seq = ?1", "DELETE FROM specs WHERE job = ?1"];
    let more = [
        "DELETE FROM results WHERE job = ?1",
        "DELETE FROM log WHERE job = ?1",
        "DELETE FROM files WHERE job = ?1",
    ];
    tables.into_iter().chain(more).try_for_each(|sql| execute(tx, sql, [seq]).map(drop))
}
