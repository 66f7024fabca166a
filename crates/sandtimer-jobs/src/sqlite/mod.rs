//! Jobs in an SQLite database: one file, any number of processes.
//!
//! ```text
//! schema       tables, and their migrations
//! clock        what time it is
//! submitting   new jobs, one transaction for any number
//! leasing      jobs are handed out
//! renewing     leases are kept, and inspected
//! handlers     which jobs a worker has the handlers for
//! turns        whose job is next
//! blockers     why a job that has not started cannot be leased now
//! transitions  a job enters its queue, and ends
//! moving       from one state to the next: finish, cancel, and what time alone does
//! files        those that jobs are given, and those they leave
//! webhooks     ends of jobs that are to be delivered
//! workers      those that have announced themselves
//! lines        jobs as listings have them, and their results
//! reading      listings, records, logs
//! breakers     those that jobs share, by version
//! schedules    jobs that recur
//! rates        how many jobs of one key start in a period
//! waits        jobs that wait for others
//! settling     ends of jobs are applied to those that waited for them
//! values       values of columns, and the failures of statements
//! reserve      room for when the disk is full
//! ```
//! Every call is one transaction, begun for writing before it reads, so none is ever undone by
//! another. WAL and `synchronous = NORMAL`: what was answered outlives the death of any process; a
//! loss of power may take the last transactions, and never a part of one.

mod blockers;
pub(crate) mod breakers;
mod clock;
pub(crate) mod files;
mod handlers;
pub(crate) mod leasing;
mod lines;
pub(crate) mod moving;
pub(crate) mod rates;
pub(crate) mod reading;
pub(crate) mod renewing;
mod reserve;
pub(crate) mod schedules;
pub(crate) mod schema;
mod settling;
pub(crate) mod submitting;
#[cfg(test)]
mod tests;
mod transitions;
pub(crate) mod turns;
pub(crate) mod values;
mod waits;
pub(crate) mod webhooks;
pub(crate) mod workers;

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_agents::resilience::BreakerSnapshot;
use sandtimer_records::write_ahead;

use crate::job::{
    BreakerPage, CancelResult, Delivery, DeliveryResult, FileOf, Filter, Finish, FinishResult, JobAssignment,
    JobLease, JobLine, JobLog, JobRecord, JobState, JobStore, LeaseRequest, LiveWorker, Page, QueueFacts,
    Renewal, ScheduleRecord, ScheduleSpec, StoreError, Submission, SubmittedJob, WebhookShares, WebhookState,
    WorkerFacts,
};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use clock::StoreClock;
use reserve::Reserve;
use schedules::{NewSchedule, RemovedSchedule, SchedulePause};
use submitting::NewJob;
use turns::Turns;
use values::{broken, natural};
use webhooks::WebhookRules;

/// How long another writer is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Statements that a connection keeps: all that there are.
const STATEMENTS: usize = 256;
/// Jobs that are forgotten in one transaction where there is little room for it.
const SMALL_PURGE_JOBS: usize = 16;
/// How often the reserve is released for one transaction while other processes contend for it.
const MAX_RESERVE_TRIES: usize = 5;
/// This store has no commands of earlier versions.
const RULES: WebhookRules = WebhookRules::OutliveRecord;

/// The store of jobs in the file `jobs.sqlite` of a state directory. Several processes of one
/// machine may have it open; [`JobStore`] has an example.
#[derive(Debug)]
pub struct SqliteJobs {
    connection: Mutex<Connection>,
    file: DatabaseFile,
    clock: StoreClock,
    reserve: Reserve,
}

impl SqliteJobs {
    /// Opens the jobs below a state directory, making what is missing with access for this user
    /// only.
    ///
    /// # Errors
    /// [`StoreError::Newer`] if a newer version of Sandtimer wrote the database, and
    /// [`StoreError::Broken`] or [`StoreError::Full`] if it cannot be read or written.
    pub fn open(state_directory: &Path) -> Result<Self, StoreError> {
        let unusable =
            |error| StoreError::Broken(format!("the state directory {}: {error}", state_directory.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(state_directory).map_err(unusable)?;
        let path = state_directory.join("jobs.sqlite");
        let reserve = Reserve::below(state_directory);
        let with_path = |error| match error {
            StoreError::Broken(why) if !why.contains(&*path.to_string_lossy()) => {
                StoreError::Broken(format!("{}: {why}", path.display()))
            }
            other => other,
        };
        let (connection, clock) = match connect(&path) {
            Err(StoreError::Full(_)) if reserve.release() => connect(&path),
            connected => connected,
        }
        .map_err(with_path)?;
        reserve.keep();
        let file = DatabaseFile::of(&path).map_err(unusable)?;
        Ok(SqliteJobs { connection: Mutex::new(connection), file, clock, reserve })
    }

    /// Ends the leases of a worker that is known to be dead, as if they had run out. Returns the
    /// number of leases.
    ///
    /// # Errors
    /// As [`JobStore::lease`].
    pub fn take_back(&self, worker: &str) -> Result<usize, StoreError> {
        self.write_still(|tx, now| moving::take_back(tx, worker, now))
    }

    /// Lets the file grow no further, as a full disk does.
    #[cfg(test)]
    fn fill(&self, more_pages: i64) {
        let connection = self.connection();
        let pages: i64 =
            connection.pragma_query_value(None, "page_count", |row| row.get(0)).expect("readable");
        let most = if more_pages < 0 { 1_073_741_823 } else { pages + more_pages };
        connection.pragma_update_and_check(None, "max_page_count", most, |_| Ok(())).expect("set");
    }

    /// Bytes of the file that hold nothing any more.
    fn reusable(&self) -> u64 {
        let connection = self.connection();
        let number = |name| connection.pragma_query_value(None, name, |row| row.get(0)).unwrap_or(0);
        natural(number("freelist_count") * number("page_size"))
    }

    /// The same store at this moment, from now on.
    #[cfg(test)]
    pub(crate) fn stopped_at(&mut self, now: i64) -> &Self {
        self.stopped_with(now, now)
    }

    /// The same, with another time on the calendar.
    #[cfg(test)]
    fn stopped_with(&mut self, now: i64, calendar: i64) -> &Self {
        self.clock = StoreClock::Stopped { now, calendar };
        self
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A transaction that a panic left open was undone when it was dropped.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One transaction for writing.
    fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.file.check()?;
        let mut connection = self.connection();
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(broken)?;
        let done = work(&tx, self.clock.now())?;
        tx.commit().map_err(broken)?;
        Ok(done)
    }

    /// The same, with the last room there is: for what frees some, or ends what is active.
    fn write_still<T>(
        &self,
        work: impl Fn(&Transaction<'_>, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut done = self.write(&work);
        for _ in 0..MAX_RESERVE_TRIES {
            if !matches!(done, Err(StoreError::Full(_))) {
                break;
            }
            // Another process may have given it up, or taken back what this one gave up, at the
            // same moment.
            self.reserve.release();
            done = self.write(&work);
            self.reserve.take_back();
        }
        done
    }

    /// The same for what a job writes: it leaves the last room to what ends jobs.
    fn write_of_job<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.reserve.leave(|| self.reusable())?;
        self.write(work)
    }

    /// Forgets a few jobs at a time, so that SQLite's log stays small.
    fn purge_bit_by_bit(&self, filter: &Filter) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        loop {
            match self.write(|tx, now| moving::purge(tx, filter, SMALL_PURGE_JOBS, RULES, now))? {
                0 => return Ok(forgotten),
                some => forgotten += some,
            }
            // What it cannot bring to the database now, a later one can.
            let _ = self.connection().pragma_query(None, "wal_checkpoint", |_| Ok(()));
        }
    }

    /// Follows the calendar: moves what waits for a moment if the calendar was set, and submits the
    /// jobs of schedules that are due.
    fn follow_calendar(&self) -> Result<(), StoreError> {
        let (calendar, skew) = (self.clock.calendar(), self.clock.skew());
        let (is_due, is_followed) =
            self.read(|tx, _| Ok((schedules::is_due(tx, calendar)?, clock::is_followed(tx, skew)?)))?;
        if !is_followed {
            self.write_still(|tx, _| {
                clock::follow(tx, skew)?;
                schedules::follow(tx, calendar)
            })?;
        }
        if !is_due {
            return Ok(());
        }
        self.reserve.leave(|| self.reusable())?;
        for tick in self.read(|tx, _| schedules::ticks(tx, calendar))? {
            self.write(|tx, now| schedules::apply(tx, &tick, Turns::Owners, now))?;
        }
        Ok(())
    }

    /// One transaction for reading.
    fn read<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connection = self.connection();
        let tx = connection.transaction().map_err(broken)?;
        work(&tx, self.clock.now())
    }
}

impl JobStore for SqliteJobs {
    fn now_ms(&self) -> u64 {
        natural(self.clock.now())
    }

    fn calendar_ms(&self) -> u64 {
        self.now_ms().saturating_add_signed(self.clock.skew())
    }

    fn submit(&self, submissions: &[Submission]) -> Result<Vec<SubmittedJob>, StoreError> {
        let mut new = NewJob::all(submissions)?;
        new.iter_mut().for_each(|one| one.follow_calendar(self.clock.skew()));
        self.reserve.leave(|| self.reusable())?;
        self.write(|tx, now| submitting::submit_all(tx, &new, Turns::Owners, now))
    }

    fn lease(&self, request: &LeaseRequest) -> Result<Vec<JobAssignment>, StoreError> {
        self.file.check()?;
        if request.only.is_none() {
            match self.follow_calendar() {
                // The disk is full: what is there is leased all the same, and the schedule stays
                // due.
                Ok(()) | Err(StoreError::Full(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if request.slots == 0 || !self.read(|tx, now| moving::is_something_to_do(tx, request, now))? {
            return Ok(Vec::new());
        }
        // What is active needs the last room to end.
        if let Err(full) = self.reserve.leave(|| self.reusable()) {
            self.write_still(|tx, now| moving::sweep(tx, RULES, now))?;
            return Err(full);
        }
        self.write(|tx, now| {
            moving::sweep(tx, RULES, now)?;
            leasing::lease(tx, request, Turns::Owners, now)
        })
    }

    fn renew(&self, held: &[JobLease], lease: Duration) -> Result<Vec<Renewal>, StoreError> {
        self.write_still(|tx, now| held.iter().map(|held| renewing::renew(tx, held, lease, now)).collect())
    }

    fn check_leases(&self, held: &[JobLease]) -> Result<Vec<Renewal>, StoreError> {
        self.read(|tx, _| held.iter().map(|held| renewing::read_renewal(tx, held)).collect())
    }

    fn finish(&self, finishes: &[Finish]) -> Result<Vec<FinishResult>, StoreError> {
        let record = |finishes: &[Finish]| {
            self.write_still(|tx, now| {
                finishes.iter().map(|finish| moving::finish(tx, finish, true, now)).collect()
            })
        };
        match record(finishes) {
            // What has ended is not executed again for want of room for its output.
            Err(StoreError::Full(_)) => record(&finishes.iter().map(without_output).collect::<Vec<_>>()),
            done => done,
        }
    }

    fn cancel(&self, id: &str, reason: &str) -> Result<CancelResult, StoreError> {
        self.write_still(|tx, now| moving::cancel(tx, id, reason, now))
    }

    fn get(&self, id: &str) -> Result<Option<JobRecord>, StoreError> {
        self.read(|tx, now| reading::get(tx, id, now))
    }

    fn list(&self, filter: &Filter, cursor: Option<&str>, most: usize) -> Result<Page, StoreError> {
        self.read(|tx, _| reading::list(tx, filter, cursor, most))
    }

    fn count(&self, filter: &Filter) -> Result<u64, StoreError> {
        self.read(|tx, _| reading::count(tx, filter))
    }

    fn find(&self, prefix: &str, most: usize) -> Result<Vec<JobLine>, StoreError> {
        self.read(|tx, _| reading::find(tx, prefix, most))
    }

    fn retry(&self, id: &str) -> Result<JobState, StoreError> {
        self.write(|tx, now| moving::retry(tx, id, now))
    }

    fn purge(&self, filter: &Filter) -> Result<u64, StoreError> {
        let purged = match self.write(|tx, now| moving::purge(tx, filter, usize::MAX, RULES, now)) {
            Err(StoreError::Full(_)) => {
                self.reserve.release();
                let purged = self.purge_bit_by_bit(filter);
                self.reserve.take_back();
                purged
            }
            done => done,
        };
        self.reserve.keep();
        purged
    }

    fn pause(&self, queue: &str, paused: bool) -> Result<(), StoreError> {
        self.write_still(|tx, _| moving::pause(tx, queue, paused))
    }

    fn queues(&self) -> Result<Vec<QueueFacts>, StoreError> {
        self.read(reading::queues)
    }

    fn put_schedule(
        &self,
        owner: &str,
        queue: &str,
        spec: &ScheduleSpec,
    ) -> Result<ScheduleRecord, StoreError> {
        let new = NewSchedule::of(owner, queue, spec, self.clock.calendar())?;
        self.reserve.leave(|| self.reusable())?;
        self.write(|tx, now| {
            schedules::put(tx, &new, now)?;
            schedules::list(tx, Some(owner), Some(&spec.name))
        })?
        .pop()
        .ok_or_else(|| StoreError::Broken("a schedule that was stored is not there".to_owned()))
    }

    fn pause_schedule(
        &self,
        owner: &str,
        name: &str,
        paused: bool,
    ) -> Result<Option<ScheduleRecord>, StoreError> {
        let calendar = self.clock.calendar();
        self.write_still(|tx, _| {
            let Some(pause) = SchedulePause::of(tx, owner, name, paused, calendar)? else {
                return Ok(None);
            };
            schedules::pause(tx, &pause)?;
            Ok(schedules::list(tx, Some(owner), Some(name))?.pop())
        })
    }

    fn remove_schedule(&self, owner: &str, name: &str) -> Result<bool, StoreError> {
        self.write_still(|tx, _| schedules::remove(tx, owner, name, RemovedSchedule::LastJob))
    }

    fn schedules(&self, owner: Option<&str>) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.read(|tx, _| schedules::list(tx, owner, None))
    }

    fn outcomes(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.read(|tx, _| reading::outcomes(tx))
    }

    fn sweep(&self) -> Result<(), StoreError> {
        self.reserve.keep();
        match self.follow_calendar() {
            Ok(()) | Err(StoreError::Full(_)) => {}
            Err(error) => return Err(error),
        }
        if self.read(moving::has_time_done_something)? {
            self.write_still(|tx, now| moving::sweep(tx, RULES, now))?;
        }
        Ok(())
    }

    fn append_log(&self, held: &JobLease, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_of_job(|tx, now| reading::append_log(tx, held, bytes, Some(now)))
    }

    fn read_log(&self, id: &str, cursor: u64, most: usize) -> Result<JobLog, StoreError> {
        self.read(|tx, _| reading::read_log(tx, id, cursor, most))
    }

    fn write_file(&self, held: &JobLease, name: &str, start: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_of_job(|tx, _| files::write(tx, held, name, start, bytes))
    }

    fn read_file(&self, id: &str, file: FileOf<'_>, start: u64, most: usize) -> Result<Vec<u8>, StoreError> {
        self.read(|tx, _| files::read(tx, id, file, start, most))
    }

    fn claim_webhooks(
        &self,
        most: usize,
        claim: Duration,
        shares: &WebhookShares,
    ) -> Result<Vec<Delivery>, StoreError> {
        if !self.read(|tx, now| webhooks::is_due(tx, shares, now))? {
            return Ok(Vec::new());
        }
        self.write(|tx, now| webhooks::claim(tx, most, claim, shares, RULES, now))
    }

    fn settle_webhook(&self, delivery: &Delivery, came: &DeliveryResult) -> Result<(), StoreError> {
        self.write_still(|tx, now| webhooks::settle(tx, delivery, came, now))
    }

    fn redeliver_webhook(&self, id: &str) -> Result<WebhookState, StoreError> {
        self.write(|tx, now| webhooks::redeliver(tx, id, now))
    }

    fn announce(&self, worker: &WorkerFacts) -> Result<(), StoreError> {
        self.write(|tx, now| workers::announce(tx, worker, now))
    }

    fn depart(&self, worker: &str) -> Result<(), StoreError> {
        self.write_still(|tx, _| workers::depart(tx, worker))
    }

    fn workers(&self) -> Result<Vec<LiveWorker>, StoreError> {
        self.read(workers::live)
    }

    fn load_breaker(&self, key: &str) -> Result<(u64, Option<BreakerSnapshot>), StoreError> {
        self.read(|tx, now| breakers::load(tx, key, now))
    }

    fn swap_breaker(&self, version: u64, snapshot: &BreakerSnapshot) -> Result<bool, StoreError> {
        self.write(|tx, now| breakers::swap(tx, version, snapshot, now))
    }

    fn breakers(
        &self,
        owner: Option<&str>,
        cursor: Option<&str>,
        most: usize,
    ) -> Result<BreakerPage, StoreError> {
        self.read(|tx, now| breakers::list(tx, owner, cursor, most, now))
    }
}

/// The file that a connection has open. What is written to one that was removed or replaced is lost
/// with the connection.
#[derive(Debug)]
struct DatabaseFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl DatabaseFile {
    fn of(path: &Path) -> std::io::Result<Self> {
        let found = std::fs::metadata(path)?;
        Ok(DatabaseFile { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// Refuses once the path leads elsewhere.
    fn check(&self) -> Result<(), StoreError> {
        let path = self.path.display();
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            Ok(_) => Err(StoreError::Gone(format!(
                "{path} was replaced by another file; put the old one back, or start this program again"
            ))),
            Err(error) => Err(StoreError::Gone(format!(
                "{path} was removed ({error}); put its directory back, or start this program again"
            ))),
        }
    }
}

/// The same result without the output, values and calls, which the disk has no room for.
fn without_output(finish: &Finish) -> Finish {
    let missing = "its output and value were not recorded, because the store is full";
    let error = finish
        .result
        .error
        .as_ref()
        .map_or_else(|| missing.to_owned(), |error| format!("{error}; {missing}"));
    // What is kept besides, its files and what its log lacks, is small, and names what is stored
    // already.
    let mut result = finish.result.clone();
    result.outcome = None;
    result.value = None;
    result.calls_dropped += u64::try_from(result.calls.len()).unwrap_or(u64::MAX);
    result.calls.clear();
    result.error = Some(error);
    Finish { result, ..finish.clone() }
}

/// Has a connection plan each statement once. Without the guarantee of a stable plan SQLite plans a
/// statement again whenever other values are bound to it, if they could matter for the plan:
/// <https://sqlite.org/queryplanner-ng.html#qpsg>.
pub(crate) fn keep_statements(connection: &Connection) -> Result<(), StoreError> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop).map_err(broken)
}

fn connect(path: &Path) -> Result<(Connection, StoreClock), StoreError> {
    let mut connection = Connection::open(path).map_err(broken)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(broken)?;
    keep_statements(&connection)?;
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, private)
        .map_err(|error| StoreError::Broken(format!("{}: {error}", path.display())))?;
    write_ahead(&connection, BUSY_TIMEOUT).map_err(broken)?;
    connection.pragma_update(None, "synchronous", "normal").map_err(broken)?;
    schema::migrate(&mut connection)?;
    let clock = StoreClock::of(&mut connection)?;
    Ok((connection, clock))
}
