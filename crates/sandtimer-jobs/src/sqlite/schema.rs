//! The tables, and how a database comes to have them.

use crate::job::StoreError;
use rusqlite::{Connection, TransactionBehavior};

use super::values::broken;

/// One step for each version of the schema; never changed once it is released.
const MIGRATIONS: [&str; 19] = [
    FIRST,
    OWNERS,
    FILES,
    WEBHOOKS,
    ADMISSION,
    DURATIONS,
    BREAKERS,
    TURNS,
    LASTING_WEBHOOKS,
    SCHEDULES,
    RATES,
    WAITS,
    CALENDAR,
    REDELIVERY,
    LOG_TIMES,
    WORKERS,
    REMOVED_SCHEDULES,
    WORKER_MEMORY,
    HANDLERS,
];

/// An owner's listing walks over that owner's jobs only. `outcomes` is how many jobs have ended in
/// each way since it is there, also those that are forgotten.
const OWNERS: &str = "
CREATE INDEX jobs_owner ON jobs (owner, seq);
CREATE TABLE outcomes (status TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

/// Files in pieces: `kind` is 0 for those a job is given, 1 for those it leaves.
const FILES: &str = "
CREATE TABLE files (job INTEGER NOT NULL, kind INTEGER NOT NULL, name TEXT NOT NULL, start INTEGER NOT NULL, bytes BLOB NOT NULL) STRICT;
CREATE UNIQUE INDEX files_piece ON files (job, kind, name, start);
";

/// The deliveries of ends of jobs: `due_ms` is when the next attempt is, `since_ms` when the job
/// had ended.
const WEBHOOKS: &str = "
CREATE TABLE webhooks (
    job INTEGER PRIMARY KEY,
    target TEXT NOT NULL,
    since_ms INTEGER NOT NULL DEFAULT 0,
    due_ms INTEGER,
    claim INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    delivered_ms INTEGER,
    error TEXT
) STRICT;
CREATE INDEX webhooks_due ON webhooks (due_ms) WHERE due_ms IS NOT NULL;
";

/// The memory that a job's runs may have, by which workers choose; and the owner that made a queue.
const ADMISSION: &str = "
ALTER TABLE jobs ADD COLUMN memory INTEGER NOT NULL DEFAULT 0;
DROP INDEX jobs_ready;
CREATE INDEX jobs_ready ON jobs (queue, rank, seq, memory) WHERE state = 1 AND ready = 1;
ALTER TABLE queues ADD COLUMN owner TEXT NOT NULL DEFAULT '';
";

/// How long jobs took from their last lease to a good result; `work` is the same for those that are
/// alike.
const DURATIONS: &str = "
ALTER TABLE jobs ADD COLUMN work TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN took_ms INTEGER;
CREATE INDEX jobs_took ON jobs (owner, work, took_ms) WHERE took_ms IS NOT NULL;
";

/// A version for each breaker, and until when it is kept.
const BREAKERS: &str = "
DELETE FROM breakers;
ALTER TABLE breakers ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE breakers ADD COLUMN expires_ms INTEGER NOT NULL DEFAULT 0;
CREATE INDEX breakers_expiry ON breakers (expires_ms);
";

/// The number of each owner's last turn. It stays when the owner's queues are forgotten.
const TURNS: &str = "
CREATE TABLE owners (owner TEXT PRIMARY KEY, served INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

/// What a webhook needs of its job, so that it outlives the job's record: `body` is what is sent
/// once the record is gone, and `job` is negative then. `host` is empty in rows of earlier
/// versions.
const LASTING_WEBHOOKS: &str = "
ALTER TABLE webhooks ADD COLUMN id TEXT NOT NULL DEFAULT '';
ALTER TABLE webhooks ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE webhooks ADD COLUMN host TEXT NOT NULL DEFAULT '';
ALTER TABLE webhooks ADD COLUMN returns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE webhooks ADD COLUMN body BLOB;
UPDATE webhooks SET (id, owner) = (SELECT id, owner FROM jobs WHERE seq = job) WHERE job IN (SELECT seq FROM jobs);
CREATE INDEX webhooks_id ON webhooks (id);
";

/// Jobs that recur. `next_ms` is the moment on the calendar at which the next job is due,
/// `last_job` the id of the last one.
const SCHEDULES: &str = "
CREATE TABLE schedules (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    body TEXT NOT NULL,
    timing TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    next_ms INTEGER,
    last_ms INTEGER,
    last_job TEXT,
    submitted INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_next ON schedules (next_ms) WHERE next_ms IS NOT NULL;
";

/// Rates of jobs' starts. A queued job that its rate holds back has `ready = 2`.
const RATES: &str = "
ALTER TABLE jobs ADD COLUMN rate TEXT;
ALTER TABLE jobs ADD COLUMN rate_most INTEGER;
ALTER TABLE jobs ADD COLUMN rate_per_ms INTEGER;
CREATE INDEX jobs_paced ON jobs (rate, ready, queue, memory, rank, seq) WHERE state = 1 AND rate IS NOT NULL;
CREATE TABLE rates (key TEXT PRIMARY KEY, wake_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX rates_wake ON rates (wake_ms);
CREATE TABLE rate_starts (key TEXT NOT NULL, at_ms INTEGER NOT NULL) STRICT;
CREATE INDEX rate_starts_key ON rate_starts (key, at_ms);
";

/// Jobs that wait for others: `waits` of a job is how many it waits for, `after_ids` a list of
/// those whose results it is to have, `awaited` whether others wait for it. `settled` has jobs that
/// have ended, until every job that waits for them is updated.
const WAITS: &str = "
ALTER TABLE jobs ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN after_ids TEXT;
ALTER TABLE jobs ADD COLUMN awaited INTEGER NOT NULL DEFAULT 0;
DROP INDEX jobs_due;
CREATE INDEX jobs_due ON jobs (due_ms) WHERE state = 0 AND waits = 0;
CREATE TABLE waits (on_job INTEGER NOT NULL, job INTEGER NOT NULL, runs INTEGER NOT NULL, PRIMARY KEY (on_job, job)) STRICT, WITHOUT ROWID;
CREATE INDEX waits_job ON waits (job);
CREATE TABLE settled (on_job INTEGER PRIMARY KEY, ok INTEGER NOT NULL, id TEXT NOT NULL) STRICT;
";

/// `releases` is whether a job that did not succeed releases its idempotency key. Moments on the
/// calendar: `start_ms` of a job that has not been handed out, and by how much the calendar is
/// ahead of the store's clock.
const CALENDAR: &str = "
ALTER TABLE jobs ADD COLUMN start_ms INTEGER;
ALTER TABLE jobs ADD COLUMN releases INTEGER NOT NULL DEFAULT 0;
ALTER TABLE clock ADD COLUMN skew_ms INTEGER NOT NULL DEFAULT 0;
";

/// When a webhook was last to be delivered again by hand, since the job's end.
const REDELIVERY: &str = "
ALTER TABLE webhooks ADD COLUMN redelivered_ms INTEGER;
";

/// When each piece of a log was appended; NULL in rows of earlier versions.
const LOG_TIMES: &str = "
ALTER TABLE log ADD COLUMN at_ms INTEGER;
";

/// Workers that have announced themselves: `queues` is a list in JSON, `seen_ms` when each did
/// last.
const WORKERS: &str = "
CREATE TABLE workers (
    name TEXT PRIMARY KEY,
    slots INTEGER NOT NULL,
    version TEXT NOT NULL,
    queues TEXT NOT NULL,
    seen_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Schedules that were removed while their last job had not finished. One of the same name
/// continues with that job.
const REMOVED_SCHEDULES: &str = "
CREATE TABLE removed_schedules (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    last_ms INTEGER,
    last_job TEXT NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;
";

/// The memory of a worker; NULL without a bound.
const WORKER_MEMORY: &str = "
ALTER TABLE workers ADD COLUMN memory INTEGER;
";

/// The names of the handlers that a job needs, as a sorted list in JSON, or an empty text without
/// any: jobs with the same list can be leased by the same workers. `workers.handlers` is always a
/// list. Of deliveries before the present one, `earlier_ms` is how long they took with the pauses
/// after them, and `waited_ms` how long the job waited for their workers.
const HANDLERS: &str = "
ALTER TABLE jobs ADD COLUMN handlers TEXT NOT NULL DEFAULT '';
DROP INDEX jobs_ready;
CREATE INDEX jobs_ready ON jobs (queue, handlers, rank, seq, memory) WHERE state = 1 AND ready = 1;
DROP INDEX jobs_paced;
CREATE INDEX jobs_paced ON jobs (rate, ready, queue, handlers, memory, rank, seq) WHERE state = 1 AND rate IS NOT NULL;
ALTER TABLE workers ADD COLUMN handlers TEXT NOT NULL DEFAULT '[]';
ALTER TABLE jobs ADD COLUMN earlier_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN waited_ms INTEGER NOT NULL DEFAULT 0;
";

/// States are numbers in the order of `JobState::ALL`. A queued job is `ready` unless its
/// concurrency key is used up.
pub(super) const FIRST: &str = "
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    state INTEGER NOT NULL,
    ready INTEGER NOT NULL DEFAULT 0,
    rank INTEGER NOT NULL,
    concurrency TEXT,
    most INTEGER,
    idempotency TEXT,
    submitted_ms INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    deadline_ms INTEGER,
    wall_ms INTEGER,
    retention_ms INTEGER,
    deliveries INTEGER NOT NULL DEFAULT 0,
    deliveries_most INTEGER NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0,
    worker TEXT,
    leased_ms INTEGER,
    lease_ms INTEGER,
    ended_ms INTEGER,
    expires_ms INTEGER,
    cancel TEXT,
    ok INTEGER,
    error TEXT
) STRICT;
CREATE UNIQUE INDEX jobs_idempotency ON jobs (owner, idempotency) WHERE idempotency IS NOT NULL;
CREATE INDEX jobs_state ON jobs (state, seq);
CREATE INDEX jobs_ready ON jobs (queue, rank, seq) WHERE state = 1 AND ready = 1;
CREATE INDEX jobs_aside ON jobs (concurrency, rank, seq) WHERE state = 1 AND ready = 0;
CREATE INDEX jobs_due ON jobs (due_ms) WHERE state = 0;
CREATE INDEX jobs_scheduled_deadline ON jobs (deadline_ms) WHERE state = 0 AND deadline_ms IS NOT NULL;
CREATE INDEX jobs_queued_deadline ON jobs (deadline_ms) WHERE state = 1 AND deadline_ms IS NOT NULL;
CREATE INDEX jobs_leased ON jobs (lease_ms) WHERE state = 2;
CREATE INDEX jobs_expiry ON jobs (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE TABLE specs (job INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
CREATE TABLE results (
    job INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX results_job ON results (job, kind, at_ms);
CREATE UNIQUE INDEX results_one ON results (job) WHERE kind = 0;
CREATE TABLE log (job INTEGER NOT NULL, start INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (job, start)) STRICT, WITHOUT ROWID;
CREATE TABLE queues (queue TEXT PRIMARY KEY, paused INTEGER NOT NULL DEFAULT 0, served INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;
CREATE TABLE concurrency (key TEXT PRIMARY KEY, taken INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE breakers (key TEXT PRIMARY KEY, at_ms INTEGER NOT NULL, body TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), boot TEXT NOT NULL, offset_ms INTEGER NOT NULL) STRICT;
";

/// Brings a database up to date.
///
/// # Errors
/// When it comes from a newer program.
pub(crate) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let known = MIGRATIONS.len() as i64;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(broken)?;
    let found: i64 = tx.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(broken)?;
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    if found < known {
        for step in &MIGRATIONS[usize::try_from(found).unwrap_or(0)..] {
            tx.execute_batch(step).map_err(broken)?;
        }
        tx.pragma_update(None, "user_version", known).map_err(broken)?;
    }
    tx.commit().map_err(broken)
}
