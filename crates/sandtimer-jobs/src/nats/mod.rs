//! Jobs in a log on a NATS server (JetStream): any number of processes, on any number of machines.
//!
//! ```text
//! command     the store's commands: one message of the log each, and what that does to the tables
//! replica     a private copy of the tables, brought about by the log
//! log_stream  the stream that is the log, and which command a message of it is
//! link        the connection: commands are appended, the log is followed
//! snapshot    the tables at one place in the log, so that the log before them can go
//! shared      what the callers' threads and the connection's share
//! address     where the server is, and as whom it is asked
//! ```
//! The log's order is the only one there is: every program applies every command in it, by the
//! functions of the SQLite store, and so comes to the same tables and the same answers. A call that
//! changes something appends its command and waits until its own copy has come to it; a call that
//! reads asks how far the log is, and waits until the copy is there. The store's clock is the
//! server's, held so that it never goes back.

mod address;
mod command;
mod link;
mod log_stream;
mod replica;
mod shared;
mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use sandtimer::engine::new_run_id;
use sandtimer_agents::resilience::BreakerSnapshot;
use sandtimer_os::clock::monotonic_nanoseconds;

use crate::job::{
    BreakerPage, CancelResult, Delivery, DeliveryResult, FileOf, Filter, Finish, FinishResult, JobAssignment,
    JobLease, JobLine, JobLog, JobRecord, JobState, JobStore, LeaseRequest, LiveWorker, Page, QueueFacts,
    Renewal, ScheduleRecord, ScheduleSpec, StoreError, Submission, SubmittedJob, WebhookShares, WebhookState,
    WorkerFacts,
};
use rusqlite::Transaction;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

pub use address::NatsAddress;

use crate::sqlite::schedules::{NewSchedule, SchedulePause};
use crate::sqlite::submitting::NewJob;
use crate::sqlite::values::natural;
use crate::sqlite::{breakers, files, moving, reading, renewing, schedules, webhooks, workers};
use command::{CommandResult, LogEntry, StoreCommand};
use link::Link;
use shared::{CALL_TIMEOUT, SharedReplica, SnapshotThresholds};

/// Large enough that a snapshot is worth its trouble, small enough that the rest is read in a
/// moment.
const SNAPSHOTS: SnapshotThresholds = SnapshotThresholds { messages: 10_000, bytes: 16 << 20 };
/// How long a snapshot that is being written is waited for at the end.
const LAST_SNAPSHOT: Duration = Duration::from_secs(30);

/// The store of jobs in a log on a NATS server with JetStream, for workers on several machines.
#[derive(Debug)]
pub struct NatsJobs {
    link: Arc<Link>,
    shared: Arc<SharedReplica>,
    runtime: Handle,
    /// Dropped to end the thread.
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// This store's, in the ids of its commands.
    name: String,
    count: AtomicU64,
}

impl NatsJobs {
    /// Opens the jobs on a server, and makes the stream they are in if it is missing.
    /// `report_error` is called with errors that are not those of a call, such as a lost
    /// connection.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the server may not be used or has no JetStream,
    /// [`StoreError::Unreachable`] if it does not answer, and [`StoreError::Newer`] if a newer
    /// version of Sandtimer wrote the jobs.
    pub fn open(address: &NatsAddress, report_error: fn(&str)) -> Result<Self, StoreError> {
        Self::open_with(address, SNAPSHOTS, report_error)
    }

    fn open_with(
        address: &NatsAddress,
        often: SnapshotThresholds,
        report_error: fn(&str),
    ) -> Result<Self, StoreError> {
        address.check()?;
        let shared = Arc::new(SharedReplica::new()?);
        let (end, ended) = oneshot::channel();
        let (opened_sender, opened_receiver) = mpsc::channel();
        let (address, for_thread) = (address.clone(), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("sandtimer-nats".to_owned());
        let thread = thread
            .spawn(move || {
                // Signals are for the program's own threads, and it may not have installed its
                // handlers yet.
                sandtimer_os::thread::block_signals();
                let runtime = match Builder::new_current_thread().enable_all().build() {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        return drop(opened_sender.send(Err(StoreError::Broken(error.to_string()))));
                    }
                };
                runtime.block_on(async {
                    match Link::open(address, for_thread, often, report_error).await {
                        Err(error) => drop(opened_sender.send(Err(error))),
                        Ok(link) => {
                            let link = Arc::new(link);
                            tokio::spawn(Arc::clone(&link).follow());
                            drop(opened_sender.send(Ok((link, Handle::current()))));
                            // The other end is dropped with the store.
                            let _ = ended.await;
                        }
                    }
                });
                runtime.shutdown_background();
            })
            .map_err(|error| StoreError::Broken(format!("no thread for the connection: {error}")))?;
        let opened = opened_receiver
            .recv()
            .map_err(|_| StoreError::Broken("the connection's thread failed".to_owned()))?;
        let (link, runtime) = opened?;
        let name = format!("{}{}", new_run_id(), new_run_id());
        let store = NatsJobs {
            link,
            shared,
            runtime,
            end: Some(end),
            thread: Some(thread),
            name,
            count: AtomicU64::new(0),
        };
        // After it the copy of the tables is as far as the log was, and the server's time is known.
        match store.append(StoreCommand::Sweep) {
            // What a full server has can still be read.
            Err(StoreError::Full(_)) => store.catch_up()?,
            swept => drop(swept?),
        }
        Ok(store)
    }

    /// Appends a command, and waits for what it did.
    fn append(&self, command: StoreCommand) -> Result<CommandResult, StoreError> {
        let until = monotonic_nanoseconds() + CALL_TIMEOUT.as_nanos() as u64;
        let mut entry = LogEntry { until_ms: None, command };
        loop {
            {
                let state = self.shared.lock();
                if let Some(trouble) = state.trouble.as_ref().filter(|trouble| trouble.is_lasting()) {
                    return Err(trouble.error());
                }
                // No later than its sender stops waiting, or the command would have an effect that
                // the sender reports as failed.
                let left = until.saturating_sub(monotonic_nanoseconds()) / 1_000_000;
                entry.until_ms = (state.now() > 0).then(|| state.now() + left as i64);
            }
            match self.append_once(&entry, until)? {
                // The server's clock was set forward: by its present time the command is not late.
                CommandResult::Late if monotonic_nanoseconds() < until => {}
                CommandResult::Late => {
                    let why = "the log took it in too late, and it was not done; try again";
                    return Err(self.link.unreachable(why));
                }
                answer => return Ok(answer),
            }
        }
    }

    fn append_once(&self, entry: &LogEntry, until: u64) -> Result<CommandResult, StoreError> {
        let id = format!("{}-{}", self.name, self.count.fetch_add(1, Ordering::Relaxed));
        let payload = serde_json::to_vec(entry)
            .map_err(|error| StoreError::Broken(format!("it cannot be written down: {error}")))?;
        self.shared.lock().expect(&id);
        let (link, sent) = (Arc::clone(&self.link), id.clone());
        let sending = self.runtime.spawn(async move {
            if let Err(error) = link.append(&sent, &payload, until).await {
                link.shared.change(|state| state.answer(&sent, Err(error)));
            }
        });
        // A failed send ends first, and has the reason. As long as it may succeed this waits for
        // it, however long the server has been unreachable: jobs that a lease hands to a caller
        // that left are held until the lease has passed.
        let answer = self.shared.wait(until + EXTRA_CALL_TIMEOUT.as_nanos() as u64, |state| {
            let unreadable = state.trouble.as_ref().filter(|trouble| trouble.is_unreadable());
            let unreadable = unreadable.map(|trouble| trouble.error());
            state.answered(&id).or_else(|| unreadable.map(Err))
        });
        sending.abort();
        self.shared.lock().forget(&id);
        answer.unwrap_or_else(|| {
            let own = self.shared.lock().trouble.clone().filter(shared::Trouble::is_broken);
            let why = "it was handed over, and its effect was not seen within 12 s; look whether it was done";
            Err(own.map_or_else(|| self.link.unreachable(why), |trouble| trouble.error()))
        })
    }

    /// Submits the jobs of schedules that are due by the server's clock.
    fn tick(&self) -> Result<(), StoreError> {
        if !self.read_unless_stale(schedules::is_due)? {
            return Ok(());
        }
        for tick in self.read_unless_stale(schedules::ticks)? {
            self.append(StoreCommand::Tick(Box::new(tick)))?;
        }
        Ok(())
    }

    /// Waits until the copy of the tables is as far as the log is now.
    fn catch_up(&self) -> Result<(), StoreError> {
        let until = monotonic_nanoseconds() + CALL_TIMEOUT.as_nanos() as u64;
        loop {
            let (had, rounds) = {
                let state = self.shared.lock();
                if let Some(trouble) = state.trouble.as_ref().filter(|trouble| trouble.is_lasting()) {
                    return Err(trouble.error());
                }
                (state.replica.position().0, state.rounds)
            };
            let last = self.ask(until)?;
            let is_shorter = last < had;
            if is_shorter {
                self.link.renew();
            }
            let come = self.shared.wait(until, |state| match is_shorter {
                _ if state.trouble.as_ref().is_some_and(shared::Trouble::is_unreadable) => Some(()),
                true => (state.rounds > rounds).then_some(()),
                false => (state.replica.position().0 >= last).then_some(()),
            });
            if come.is_none() {
                let trouble = self.shared.lock().trouble.as_ref().map(shared::Trouble::error);
                return Err(
                    trouble.unwrap_or_else(|| self.link.unreachable("the log is not handed out; try again"))
                );
            }
            if !is_shorter {
                return Ok(());
            }
        }
    }

    fn ask(&self, until: u64) -> Result<u64, StoreError> {
        let link = Arc::clone(&self.link);
        let (opened_sender, opened_receiver) = mpsc::channel();
        self.runtime.spawn(async move { drop(opened_sender.send(link.last_sequence(until).await)) });
        let left = Duration::from_nanos(until.saturating_sub(monotonic_nanoseconds())) + EXTRA_CALL_TIMEOUT;
        opened_receiver
            .recv_timeout(left)
            .unwrap_or_else(|_| Err(self.link.unreachable("no answer; try again")))
    }

    /// Reads the tables as of now.
    fn read<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.catch_up()?;
        self.read_here(work)
    }

    /// Reads the tables as far as they have come.
    fn read_here<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.shared.lock();
        let now = state.now();
        state.replica.read(|tx| work(tx, now))
    }

    /// The same, and an error where they have not come any further for a while.
    fn read_unless_stale<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let lasting = self.shared.lock().trouble.clone().filter(shared::Trouble::is_lasting);
        lasting.map_or(Ok(()), |trouble| Err(trouble.error()))?;
        self.read_here(work)
    }
}

/// How much later than its work a call times out: a command that took effect in the last moment is
/// known by then, even over a new connection.
const EXTRA_CALL_TIMEOUT: Duration = Duration::from_secs(2);

impl Drop for NatsJobs {
    fn drop(&mut self) {
        let until = monotonic_nanoseconds() + LAST_SNAPSHOT.as_nanos() as u64;
        self.shared.wait(until, |state| (state.writing == 0).then_some(()));
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has reported that.
            let _ = thread.join();
        }
    }
}

fn misplaced(answer: &CommandResult) -> StoreError {
    StoreError::Broken(format!("the log answered another question: {answer:?}"))
}

impl JobStore for NatsJobs {
    fn now_ms(&self) -> u64 {
        natural(self.shared.lock().now())
    }

    fn submit(&self, submissions: &[Submission]) -> Result<Vec<SubmittedJob>, StoreError> {
        match self.append(StoreCommand::Submit(NewJob::all(submissions)?))? {
            CommandResult::Submitted(submitted) => Ok(submitted),
            other => Err(misplaced(&other)),
        }
    }

    fn lease(&self, request: &LeaseRequest) -> Result<Vec<JobAssignment>, StoreError> {
        if request.only.is_none() {
            self.tick()?;
        }
        let has_something = |tx: &Transaction<'_>, now| moving::is_something_to_do(tx, request, now);
        if request.slots == 0 || !self.read_unless_stale(has_something)? {
            return Ok(Vec::new());
        }
        match self.append(StoreCommand::Lease(request.clone()))? {
            CommandResult::Leased(leased) => Ok(leased),
            other => Err(misplaced(&other)),
        }
    }

    fn renew(&self, held: &[JobLease], lease: Duration) -> Result<Vec<Renewal>, StoreError> {
        match self.append(StoreCommand::Renew { held: held.to_vec(), lease })? {
            CommandResult::Renewed(renewed) => Ok(renewed),
            other => Err(misplaced(&other)),
        }
    }

    fn check_leases(&self, held: &[JobLease]) -> Result<Vec<Renewal>, StoreError> {
        self.read_here(|tx, _| held.iter().map(|held| renewing::read_renewal(tx, held)).collect())
    }

    fn finish(&self, finishes: &[Finish]) -> Result<Vec<FinishResult>, StoreError> {
        match self.append(StoreCommand::Finish(finishes.to_vec()))? {
            CommandResult::Finished(finished) => Ok(finished),
            other => Err(misplaced(&other)),
        }
    }

    fn cancel(&self, id: &str, reason: &str) -> Result<CancelResult, StoreError> {
        match self.append(StoreCommand::Cancel { id: id.to_owned(), reason: reason.to_owned() })? {
            CommandResult::Cancelled(cancelled) => Ok(cancelled),
            other => Err(misplaced(&other)),
        }
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
        match self.append(StoreCommand::Retry(id.to_owned()))? {
            CommandResult::State(state) => Ok(state),
            other => Err(misplaced(&other)),
        }
    }

    fn purge(&self, filter: &Filter) -> Result<u64, StoreError> {
        match self.append(StoreCommand::Purge(filter.clone()))? {
            CommandResult::Count(count) => Ok(count),
            other => Err(misplaced(&other)),
        }
    }

    fn pause(&self, queue: &str, paused: bool) -> Result<(), StoreError> {
        self.append(StoreCommand::Pause { queue: queue.to_owned(), paused }).map(drop)
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
        let now = self.shared.lock().now();
        self.append(StoreCommand::PutSchedule(NewSchedule::of(owner, queue, spec, now)?))?;
        // Another program may have removed it at the same moment.
        let mut stored = self.read_here(|tx, _| schedules::list(tx, Some(owner), Some(&spec.name)))?;
        stored
            .pop()
            .ok_or_else(|| StoreError::Broken("the schedule was removed at the same moment".to_owned()))
    }

    fn pause_schedule(
        &self,
        owner: &str,
        name: &str,
        paused: bool,
    ) -> Result<Option<ScheduleRecord>, StoreError> {
        let pause = |tx: &Transaction<'_>, now| SchedulePause::of(tx, owner, name, paused, now);
        while let Some(pause) = self.read(pause)? {
            match self.append(StoreCommand::PauseSchedule(pause))? {
                // Another program has removed it, or given it other moments, at the same time.
                CommandResult::OfSchedule(false) => {}
                CommandResult::OfSchedule(true) => {
                    return Ok(self.read_here(|tx, _| schedules::list(tx, Some(owner), Some(name)))?.pop());
                }
                other => return Err(misplaced(&other)),
            }
        }
        Ok(None)
    }

    fn remove_schedule(&self, owner: &str, name: &str) -> Result<bool, StoreError> {
        match self.append(StoreCommand::RemoveSchedule { owner: owner.to_owned(), name: name.to_owned() })? {
            CommandResult::OfSchedule(was_there) => Ok(was_there),
            other => Err(misplaced(&other)),
        }
    }

    fn schedules(&self, owner: Option<&str>) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.read(|tx, _| schedules::list(tx, owner, None))
    }

    fn outcomes(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.read(|tx, _| reading::outcomes(tx))
    }

    fn sweep(&self) -> Result<(), StoreError> {
        if self.read_unless_stale(moving::has_time_done_something)? {
            self.append(StoreCommand::Sweep)?;
        }
        self.tick()
    }

    fn append_log(&self, held: &JobLease, bytes: &[u8]) -> Result<(), StoreError> {
        self.append(StoreCommand::AppendLog { held: held.clone(), bytes: bytes.to_vec() }).map(drop)
    }

    fn read_log(&self, id: &str, cursor: u64, most: usize) -> Result<JobLog, StoreError> {
        self.read(|tx, _| reading::read_log(tx, id, cursor, most))
    }

    fn write_file(&self, held: &JobLease, name: &str, start: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let (held, name, bytes) = (held.clone(), name.to_owned(), bytes.to_vec());
        self.append(StoreCommand::WriteFile { held, name, start, bytes }).map(drop)
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
        if !self.read_unless_stale(|tx, now| webhooks::is_due(tx, shares, now))? {
            return Ok(Vec::new());
        }
        match self.append(StoreCommand::ClaimWebhooks { most, claim, shares: shares.clone() })? {
            CommandResult::Deliveries(deliveries) => Ok(deliveries),
            other => Err(misplaced(&other)),
        }
    }

    fn settle_webhook(&self, delivery: &Delivery, came: &DeliveryResult) -> Result<(), StoreError> {
        let (delivery, came) = (delivery.clone(), came.clone());
        self.append(StoreCommand::SettleWebhook { delivery, came }).map(drop)
    }

    fn redeliver_webhook(&self, id: &str) -> Result<WebhookState, StoreError> {
        match self.append(StoreCommand::RedeliverWebhook(id.to_owned()))? {
            CommandResult::Webhook(state) => Ok(state),
            other => Err(misplaced(&other)),
        }
    }

    fn announce(&self, worker: &WorkerFacts) -> Result<(), StoreError> {
        self.append(StoreCommand::Announce(worker.clone())).map(drop)
    }

    fn depart(&self, worker: &str) -> Result<(), StoreError> {
        self.append(StoreCommand::Depart(worker.to_owned())).map(drop)
    }

    fn workers(&self) -> Result<Vec<LiveWorker>, StoreError> {
        self.read(workers::live)
    }

    fn load_breaker(&self, key: &str) -> Result<(u64, Option<BreakerSnapshot>), StoreError> {
        self.read(|tx, now| breakers::load(tx, key, now))
    }

    fn swap_breaker(&self, version: u64, snapshot: &BreakerSnapshot) -> Result<bool, StoreError> {
        match self.append(StoreCommand::SwapBreaker { version, snapshot: snapshot.clone() })? {
            CommandResult::Swapped(is_kept) => Ok(is_kept),
            other => Err(misplaced(&other)),
        }
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
