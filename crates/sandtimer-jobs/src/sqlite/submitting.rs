//! New jobs.

use std::collections::HashMap;

use sandtimer::engine::new_run_id;

use crate::job::{
    Concurrency, JobState, LOCAL_OWNER, MAX_QUEUES, RateLimit, SpecError, StoreError, Submission,
    SubmittedJob, Times, Webhook, resolve_names,
};
use rusqlite::{OptionalExtension, Transaction, params};
use serde::{Deserialize, Serialize};

use super::files::{JobInput, keep_inputs};
use super::handlers;
use super::transitions::enter;
use super::turns::{self, Turns};
use super::values::{broken, execute, integer, natural, rank, state_number, state_of};
use super::{waits, webhooks};

/// A job as the tables store it: the parts of its spec that the store needs, and the spec as it was
/// written. Random choices are made here, so that every store that applies the command gets the
/// same job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NewJob {
    /// Its id, unless that is taken.
    id: String,
    owner: String,
    name: String,
    queue: String,
    priority: i32,
    times: Times,
    idempotency_key: Option<String>,
    concurrency: Option<Concurrency>,
    retention_ms: Option<u64>,
    deliveries: u32,
    /// Bytes that each of its runs may have at most; 0 if not set.
    memory: u64,
    /// The same for jobs that are alike; empty if its sender did not set it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    work: String,
    /// The handlers that it needs, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    handlers: Vec<String>,
    /// As it is shown: digests in the place of inputs, and no secret.
    body: String,
    inputs: Vec<JobInput>,
    webhook: Option<Webhook>,
    /// The moment on the calendar from which it may run, on a store whose clock is not the
    /// calendar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<RateLimit>,
    /// Its idempotency key may be used again once it has ended without success.
    #[serde(default, skip_serializing_if = "is_false")]
    releases_key: bool,
    /// Ids of the jobs that it waits for: of the store, or as those that are submitted with it have
    /// them here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    runs_after_failure: bool,
    /// It is to have their results.
    #[serde(default, skip_serializing_if = "is_false")]
    wants_results: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl NewJob {
    /// Of all that are taken in together, or of none. Where two of them contend for a key, neither
    /// is one that exists.
    pub(crate) fn all(submissions: &[Submission]) -> Result<Vec<Self>, StoreError> {
        let mut new: Vec<_> = submissions.iter().map(NewJob::of).collect();
        let ids: Vec<String> = new.iter().map(|one| one.id.clone()).collect();
        let after = resolve_names(submissions, &ids)?;
        new.iter_mut().zip(after).for_each(|(one, after)| one.after = after);
        let mut first = HashMap::new();
        for one in &new {
            let Some(key) = &one.idempotency_key else { continue };
            if first.entry((&one.owner, key)).or_insert(one).body != one.body {
                let problem = format!(
                    "`{key}` is given to two jobs that are submitted together and differ; give each a key of its own"
                );
                return Err(SpecError { path: "idempotency_key".to_owned(), problem }.into());
            }
        }
        Ok(new)
    }

    /// Has its moments follow the calendar, which is this many milliseconds ahead of the store's
    /// clock.
    pub(crate) fn follow_calendar(&mut self, skew: i64) {
        self.start_ms = self.times.not_before_ms;
        self.times = self.times.corrected_for_skew(skew);
    }

    pub(crate) fn of(one: &Submission) -> Self {
        let spec = &one.spec;
        NewJob {
            id: new_run_id(),
            owner: one.owner.clone(),
            name: spec.name.clone(),
            queue: spec.queue.clone(),
            priority: spec.priority,
            times: spec.times(),
            idempotency_key: spec.idempotency_key.clone(),
            concurrency: spec.concurrency.clone(),
            retention_ms: spec.retention.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            deliveries: spec.deliveries,
            memory: spec.memory_bytes(),
            work: spec.work_digest(),
            handlers: spec.handlers().into_iter().map(str::to_owned).collect(),
            body: spec.stored().to_string(),
            inputs: spec.inputs.iter().map(JobInput::of).collect(),
            webhook: spec.webhook.clone(),
            start_ms: None,
            rate: spec.rate.clone(),
            releases_key: spec.releases_key,
            after: spec.after.jobs.clone(),
            runs_after_failure: spec.after.runs_after_failure,
            wants_results: spec.after.results.is_some(),
        }
    }
}

/// Stores jobs that were submitted together. Dependencies are added once all of them are stored.
pub(crate) fn submit_all(
    tx: &Transaction<'_>,
    new: &[NewJob],
    turns: Turns,
    now: i64,
) -> Result<Vec<SubmittedJob>, StoreError> {
    let submitted: Vec<SubmittedJob> =
        new.iter().map(|one| insert(tx, one, turns, now)).collect::<Result<_, _>>()?;
    // A job that was there already has another id, and so has one whose id was taken.
    let actual: HashMap<&str, &str> =
        new.iter().zip(&submitted).map(|(one, done)| (one.id.as_str(), done.id.as_str())).collect();
    for (one, done) in new.iter().zip(&submitted).filter(|(one, done)| !one.after.is_empty() && !done.existed)
    {
        let after: Vec<String> = one
            .after
            .iter()
            .map(|id| (*actual.get(id.as_str()).unwrap_or(&id.as_str())).to_owned())
            .collect();
        let seq = "SELECT seq FROM jobs WHERE id = ?1";
        let seq: i64 = tx.query_row(seq, [&done.id], |row| row.get(0)).map_err(broken)?;
        waits::begin(tx, seq, &one.owner, &after, one.runs_after_failure)?;
        if one.wants_results {
            let after = serde_json::json!(after).to_string();
            execute(tx, "UPDATE jobs SET after_ids = ?2 WHERE seq = ?1", (seq, after))?;
        }
    }
    Ok(submitted)
}

/// Takes in one job.
pub(crate) fn submit(
    tx: &Transaction<'_>,
    new: &NewJob,
    turns: Turns,
    now: i64,
) -> Result<SubmittedJob, StoreError> {
    let mut submitted = submit_all(tx, std::slice::from_ref(new), turns, now)?;
    submitted.pop().ok_or_else(|| StoreError::Broken("a job that was submitted is not there".to_owned()))
}

/// Adds one job to the tables, without those that it waits for.
fn insert(tx: &Transaction<'_>, new: &NewJob, turns: Turns, now: i64) -> Result<SubmittedJob, StoreError> {
    if let Some(existing) = known(tx, new)? {
        return Ok(existing);
    }
    let deadline = new.times.deadline(natural(now))?.map(integer);
    let due = integer(new.times.start(natural(now)));
    let is_scheduled = due > now || !new.after.is_empty();
    let state = if is_scheduled { JobState::Scheduled } else { JobState::Queued };
    let concurrency =
        new.concurrency.as_ref().map(|one_of| (format!("{}\u{1f}{}", new.owner, one_of.key), one_of.most));
    // What has neither a key nor a rate has room at once.
    let enters_at_once = state == JobState::Queued && new.concurrency.is_none() && new.rate.is_none();
    let first = if enters_at_once { JobState::Queued } else { JobState::Scheduled };
    let id = free_id(tx, &new.id)?;
    let insert =
        "INSERT INTO jobs (id, owner, name, queue, priority, state, rank, concurrency, most, idempotency,
        submitted_ms, due_ms, deadline_ms, wall_ms, retention_ms, deliveries_most, memory, work, rate, rate_most,
        rate_per_ms, start_ms, releases, ready, handlers) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
        ?20, ?21, ?22, ?23, ?24, ?25)";
    let values = params![
        id,
        new.owner,
        new.name,
        new.queue,
        new.priority,
        state_number(first),
        rank(due, new.priority.into()),
        concurrency.as_ref().map(|(key, _)| key),
        concurrency.as_ref().map(|(_, most)| most),
        new.idempotency_key,
        now,
        due,
        deadline,
        new.times.wall_ms.map(integer),
        new.retention_ms.map(integer),
        new.deliveries,
        integer(new.memory),
        new.work,
        new.rate.as_ref().map(|rate| format!("{}\u{1f}{}", new.owner, rate.key)),
        new.rate.as_ref().map(|rate| rate.most),
        new.rate.as_ref().map(|rate| integer(rate.per_ms)),
        new.start_ms.map(integer),
        new.releases_key,
        enters_at_once,
        handlers::list_to_json(&new.handlers)?,
    ];
    tx.prepare_cached(insert).and_then(|mut insert| insert.execute(values)).map_err(broken)?;
    let seq = tx.last_insert_rowid();
    let insert = "INSERT INTO specs (job, body) VALUES (?1, ?2)";
    tx.prepare_cached(insert).and_then(|mut insert| insert.execute((seq, &new.body))).map_err(broken)?;
    keep_inputs(tx, seq, &new.inputs)?;
    if let Some(webhook) = &new.webhook {
        webhooks::keep(tx, seq, &id, &new.owner, webhook)?;
    }
    open_queue(tx, &new.queue, &new.owner, turns)?;
    if state == JobState::Queued && !enters_at_once {
        enter(tx, seq, now)?;
    }
    Ok(SubmittedJob { id, state, existed: false })
}

/// Makes a queue known. An owner with a token has a limited number of queues; queues without jobs
/// are forgotten first.
fn open_queue(tx: &Transaction<'_>, queue: &str, owner: &str, turns: Turns) -> Result<(), StoreError> {
    let is_new = match turns {
        Turns::Queues => {
            let insert = "INSERT INTO queues (queue, owner) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
            execute(tx, insert, (queue, owner))? > 0
        }
        Turns::Owners => turns::begin(tx, queue, owner)?,
    };
    if !is_new || owner == LOCAL_OWNER {
        return Ok(());
    }
    let has_too_many = || {
        let count = "SELECT count(*) FROM queues WHERE owner = ?1";
        let count = tx.query_row(count, [owner], |row| row.get::<_, i64>(0)).map_err(broken)?;
        Ok::<_, StoreError>(count > MAX_QUEUES as i64)
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
fn known(tx: &Transaction<'_>, new: &NewJob) -> Result<Option<SubmittedJob>, StoreError> {
    let Some(key) = &new.idempotency_key else { return Ok(None) };
    // The flag is that of the job that has the key.
    let release = "UPDATE jobs SET idempotency = NULL WHERE owner = ?1 AND idempotency = ?2 AND releases = 1
        AND state IN (3, 4, 5) AND coalesce(ok, 0) = 0";
    execute(tx, release, (&new.owner, key))?;
    let select =
        "SELECT id, state, body FROM jobs JOIN specs ON job = seq WHERE owner = ?1 AND idempotency = ?2";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?));
    let found: Option<(String, i64, String)> =
        tx.query_row(select, (&new.owner, key), read).optional().map_err(broken)?;
    match found {
        None => Ok(None),
        Some((id, state, stored)) if stored == new.body => {
            Ok(Some(SubmittedJob { id, state: state_of(state), existed: true }))
        }
        Some((existing, ..)) => Err(StoreError::Conflict { key: key.clone(), existing }),
    }
}

/// This id, or the next one that no job has.
fn free_id(tx: &Transaction<'_>, wanted: &str) -> Result<String, StoreError> {
    let mut id = wanted.to_owned();
    loop {
        let mut select = tx.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1").map_err(broken)?;
        if !select.exists([&id]).map_err(broken)? {
            return Ok(id);
        }
        let number = u64::from_str_radix(&id, 16).unwrap_or(0).wrapping_add(1);
        id = format!("{number:012x}");
    }
}
