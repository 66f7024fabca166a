//! A worker: leases jobs for its free slots, and executes each on a thread of its own.
//!
//! The lease renewer is another thread, which does nothing but renew leases and read which jobs are
//! cancelled; it dies with the process, and the leases run out then. A lease that cannot be renewed
//! for its whole length counts as lost: the lease monitor handles that, a third thread, which asks
//! no store and so waits for none.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use sandtimer::model::time;
use sandtimer::time::Moment;

use super::clock::now;
use super::conducting::{JobContext, execute};
use super::context::{Admission, WorkerContext, usable_memory};
use super::control::{Halt, JobControl};
use super::directories::ScratchDirectory;
use super::handlers::Handlers;
use super::webhook_sender::WebhookSender;
use crate::job::{
    Finish, JobAssignment, JobLease, JobResult, JobStatus, JobStore, LeaseRequest, Renewal, Room, WorkerFacts,
};

/// How often a worker with a free slot looks for a job.
const JOB_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often the lease renewer reads whether a job is cancelled.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// By how many milliseconds the calendar and the store's clock may differ without a report.
const MAX_QUIET_SKEW_MS: u64 = 5_000;
/// How long a lease lasts that is not renewed.
const LEASE: Duration = Duration::from_secs(30);
/// How often a worker announces itself to the store: three times in the time for which it counts as
/// live.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(30);
/// Workers of this process that have a name of their own.
static NAMED_WORKERS: AtomicUsize = AtomicUsize::new(0);
/// How long a worker waits after the store has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// How long a job that does not fit into what is free waits until room is kept for it.
const ROOM_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The name by which its jobs show it; unique among the workers of the store.
    pub name: String,
    /// The number of jobs at a time; by default 1.
    pub slots: usize,
    /// The queues from which it takes jobs; all of them if it is empty, as by default.
    pub queues: Vec<String>,
    /// The id of the only job that it takes; by default it takes each job.
    pub only: Option<String>,
    /// How long a lease lasts that is not renewed; by default 30 s. It is renewed three times in
    /// that time.
    pub lease: Duration,
    /// How often it announces itself to the store; by default every 30 s.
    pub announce_interval: Duration,
    /// The memory, in bytes, for the runs of jobs whose spec limits theirs; by default
    /// [`usable_memory`]. With `None` there may be as many jobs as there are slots.
    pub memory: Option<u64>,
    /// Is called with each error that is not the result of a job, such as a store that cannot be
    /// reached.
    pub report: fn(&str),
}

impl WorkerSettings {
    /// Makes the defaults. The name is that of the host with the PID; from the second worker of a
    /// process on it also has a number.
    pub fn new(report: fn(&str)) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let earlier = NAMED_WORKERS.fetch_add(1, Ordering::Relaxed);
        let number = if earlier == 0 { String::new() } else { format!("/{}", earlier + 1) };
        WorkerSettings {
            name: format!("{}{number}:{}", host.trim(), std::process::id()),
            slots: 1,
            queues: Vec::new(),
            only: None,
            lease: LEASE,
            announce_interval: ANNOUNCE_INTERVAL,
            memory: Some(usable_memory()),
            report,
        }
    }
}

/// Executes jobs until [`Worker::drain`] or [`Worker::give_back`]; the crate has an
/// example.
#[derive(Debug)]
pub struct Worker {
    context: WorkerContext,
    handlers: Handlers,
    settings: WorkerSettings,
    admission: Option<Arc<dyn Admission>>,
    webhook_sender: Option<Arc<dyn WebhookSender>>,
    state: Mutex<WorkerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WorkerState {
    draining: bool,
    ended: bool,
    /// By the lease: a lost lease may be followed by another of the same job, while the first still
    /// ends.
    jobs: HashMap<JobLease, ActiveJob>,
    /// Until when every lease lasts at least, if there are any.
    kept_until: Option<Moment>,
    /// The last report of each concern: the same problem is reported once.
    reported: HashMap<Concern, String>,
}

/// What a worker would report at every try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Concern {
    Clock,
    Leasing,
    Webhooks,
    Threads,
}

/// A job that is active here.
#[derive(Debug, Clone)]
struct ActiveJob {
    control: Arc<JobControl>,
    memory: u64,
}

impl Worker {
    /// Makes a worker without handlers, admission and webhook sender. [`Worker::work`] starts it.
    pub fn new(context: WorkerContext, settings: WorkerSettings) -> Self {
        Worker {
            context,
            handlers: Handlers::default(),
            settings,
            admission: None,
            webhook_sender: None,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Asks `admission` about each job before it is executed; by default each job is.
    #[must_use]
    pub fn admitting(self, admission: Arc<dyn Admission>) -> Self {
        Worker { admission: Some(admission), ..self }
    }

    /// Delivers the ends of jobs to their webhooks with this sender; without one, other workers on
    /// the store do.
    #[must_use]
    pub fn with_webhook_sender(self, webhook_sender: Arc<dyn WebhookSender>) -> Self {
        Worker { webhook_sender: Some(webhook_sender), ..self }
    }

    /// Sets the functions that jobs may name; by default there are none.
    #[must_use]
    pub fn with_handlers(self, handlers: Handlers) -> Self {
        Worker { handlers, ..self }
    }

    /// Returns the number of jobs that it executes now.
    pub fn jobs(&self) -> usize {
        self.state().jobs.len()
    }

    /// Leases and executes jobs. Returns after [`Worker::drain`] or [`Worker::give_back`], when its
    /// last job has ended.
    pub fn work(&self) {
        let scratch = &ScratchDirectory::open(&self.context.directories)
            .map_err(|error| format!("{} cannot be used: {error}", self.context.directories.display()));
        let parts: [&(dyn Fn() + Sync); 4] = [
            &|| self.keep(),
            &|| self.guard(),
            &|| self.webhook_sender.iter().for_each(|webhook_sender| self.deliver(&**webhook_sender)),
            &|| scratch.iter().for_each(|scratch| scratch.sweep(self.settings.report)),
        ];
        thread::scope(|scope| {
            let _end = EndOfWork(self);
            let mut unstarted = &parts[..];
            loop {
                while let [part, rest @ ..] = unstarted
                    && self.start(scope, move || self.run_part(part))
                {
                    unstarted = rest;
                }
                let state = self.state();
                if state.draining && state.jobs.is_empty() {
                    return;
                }
                // Leases are taken only when they can be renewed.
                let is_leasing = !state.draining && unstarted.is_empty();
                let free = if is_leasing { self.settings.slots - state.jobs.len() } else { 0 };
                let taken = state.jobs.values().map(|going| going.memory).sum();
                drop(state);
                let asked = now();
                let leased = self.lease(free, taken);
                if leased.is_empty() {
                    let state = self.state();
                    // A job that ended since the check has already notified: an extra check costs
                    // nothing.
                    drop(self.changed.wait_timeout(state, JOB_POLL_INTERVAL));
                }
                for job in leased {
                    let control = Arc::new(JobControl::default());
                    let mut state = self.state();
                    // Other leases may be older.
                    state.kept_until.get_or_insert(asked.after(self.settings.lease));
                    let going = ActiveJob { control: Arc::clone(&control), memory: job.memory };
                    state.jobs.insert(job.held.clone(), going);
                    drop(state);
                    let held = job.held.clone();
                    if !self.start(scope, move || self.conduct(&job, asked, scratch, &control)) {
                        self.return_unbegun(held);
                    }
                }
            }
        });
    }

    /// Starts a thread. A failure (a limit of threads, no memory) is reported once, and may have
    /// passed at the next try.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() + Send + 'scope,
    ) -> bool {
        match thread::Builder::new().spawn_scoped(scope, work) {
            Ok(_) => self.is_well_again(Concern::Threads, "threads can be started again"),
            Err(error) => {
                let then = "jobs are left to other workers until that changes";
                self.report_once(Concern::Threads, format!("no thread can be started: {error}; {then}"));
                return false;
            }
        }
        true
    }

    /// Runs a part of the worker until it returns. After a panic it starts again: leases are
    /// renewed and webhooks sent all the same.
    fn run_part(&self, part: &dyn Fn()) {
        while catch_unwind(AssertUnwindSafe(part)).is_err() && !self.has_ended() {
            self.report("a thread of the worker failed (its stderr has the reason) and is restarted");
            self.pause(FAILURE_PAUSE);
        }
    }

    /// Gives back a job that no thread could be started for. The delivery does not count.
    fn return_unbegun(&self, held: JobLease) {
        let release = Release { worker: self, held };
        let reason = "its worker could not start a thread for it, and gave it back";
        let result = JobResult::bare(JobStatus::Drained, Some(reason.to_owned()));
        self.finish(Finish { held: release.held.clone(), result, again: true, pause_ms: 0 });
        drop(release);
        self.pause(FAILURE_PAUSE);
    }

    /// Stops leasing jobs; [`Worker::work`] returns when those that are active have ended.
    pub fn drain(&self) {
        self.state().draining = true;
        self.changed.notify_all();
    }

    /// As [`Worker::drain`], and returns the active jobs: their runs are ended here, and the store
    /// hands the jobs out again.
    pub fn give_back(&self) {
        self.drain();
        for going in self.state().jobs.values() {
            going.control.halt(Halt::GiveBack);
        }
    }

    fn lease(&self, slots: usize, taken: u64) -> Vec<JobAssignment> {
        if slots == 0 {
            return Vec::new();
        }
        self.check_clock();
        let WorkerSettings { name, queues, only, lease, memory, .. } = self.settings.clone();
        let room = |total: u64| Room { free: total.saturating_sub(taken), total, patience: ROOM_TIMEOUT };
        let (memory, handlers) = (memory.map(room), self.handlers.names());
        let request = LeaseRequest { worker: name, slots, queues, only, lease, memory, handlers };
        match self.context.store.lease(&request) {
            Ok(leased) => {
                self.state().reported.remove(&Concern::Leasing);
                leased
            }
            Err(error) => {
                self.report_once(Concern::Leasing, format!("no job can be leased: {error}"));
                drop(self.changed.wait_timeout(self.state(), FAILURE_PAUSE));
                Vec::new()
            }
        }
    }

    /// Reports once that the calendar was set after the store's clock was.
    fn check_clock(&self) {
        let store = self.store();
        let skew = i128::from(store.calendar_ms()) - i128::from(store.now_ms());
        if skew.unsigned_abs() < u128::from(MAX_QUIET_SKEW_MS) {
            return self.is_well_again(Concern::Clock, "the store's clock is right again");
        }
        if !self.state().reported.contains_key(&Concern::Clock) {
            let by = time(u64::try_from(skew.unsigned_abs()).unwrap_or(u64::MAX));
            let which = if skew > 0 { "behind" } else { "ahead of" };
            let then = "`not_before_ms` and schedules follow the calendar; deadlines keep the store's clock until the next boot";
            self.report_once(
                Concern::Clock,
                format!("the store's clock is {by} {which} the calendar, which was set after it: {then}"),
            );
        }
    }

    /// One job, from its lease to its end in the store.
    fn conduct(
        &self,
        job: &JobAssignment,
        asked: Moment,
        scratch: &Result<ScratchDirectory, String>,
        control: &JobControl,
    ) {
        let _release = Release { worker: self, held: job.held.clone() };
        let Worker { context, handlers, .. } = self;
        let (worker, admission) = (self.settings.name.as_str(), self.admission.as_deref());
        let job_context = JobContext { worker, context, scratch, handlers, admission };
        let executed = catch_unwind(AssertUnwindSafe(|| execute(&job_context, job, asked, control)));
        let finish = executed.unwrap_or_else(|_| {
            let message = "the worker failed while it executed the job (its stderr has the reason)";
            let result = JobResult::bare(JobStatus::InfraError, Some(message.to_owned()));
            Finish { held: job.held.clone(), result, again: true, pause_ms: 0 }
        });
        self.finish(finish);
        scratch.iter().for_each(|scratch| scratch.tidy(self.settings.report));
    }

    /// Reports a problem, the same one only once.
    pub(super) fn report_once(&self, of: Concern, problem: String) {
        let previous = self.state().reported.insert(of, problem.clone());
        if previous.is_none_or(|previous| previous != problem) {
            self.report(&problem);
        }
    }

    /// Reports that a problem which was reported has ended.
    pub(super) fn is_well_again(&self, of: Concern, relief: &str) {
        let previous = self.state().reported.remove(&of);
        if previous.is_some() {
            self.report(relief);
        }
    }

    /// Records a result. A store that does not take it is asked again for as long as a lease lasts.
    fn finish(&self, finish: Finish) {
        let until = now().after(self.settings.lease);
        let finishes = [finish];
        while let Err(error) = self.context.store.finish(&finishes) {
            let last = now() >= until;
            let then = if last { "; it is left to its lease" } else { "; it is tried again" };
            let id = &finishes[0].held.id;
            (self.settings.report)(&format!("the result of job {id} cannot be recorded: {error}{then}"));
            if last {
                return;
            }
            drop(self.changed.wait_timeout(self.state(), FAILURE_PAUSE));
        }
    }

    /// Announces the worker to the store. Returns whether the store took it in: if it did not, the
    /// leasing reports the same failure, and the next announcement follows after the interval.
    fn announce(&self) -> bool {
        let WorkerSettings { name, slots, queues, memory, .. } = &self.settings;
        let facts = WorkerFacts {
            name: name.clone(),
            slots: *slots,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            queues: queues.clone(),
            memory_bytes: *memory,
            handlers: self.handlers.names(),
        };
        self.context.store.announce(&facts).is_ok()
    }

    /// Renews leases, passes on what is wanted of them, and announces the worker.
    fn keep(&self) {
        let every = self.settings.lease / 3;
        // The worker of one job takes no other.
        let announces = self.settings.only.is_none();
        let mut is_announced = announces && self.announce();
        let mut announced = now();
        let mut renewed = now();
        let mut checked = now();
        loop {
            let (state, _) = self
                .changed
                .wait_timeout(self.state(), LEASE_POLL_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            if state.ended {
                drop(state);
                // If that cannot be stored, it counts as live until its time has passed.
                if is_announced {
                    let _ = self.context.store.depart(&self.settings.name);
                }
                return;
            }
            let entry = |(held, going): (&JobLease, &ActiveJob)| (held.clone(), Arc::clone(&going.control));
            let jobs: Vec<(JobLease, Arc<JobControl>)> = state.jobs.iter().map(entry).collect();
            drop(state);
            if announces && now().since(announced) >= self.settings.announce_interval {
                is_announced = self.announce();
                announced = now();
            }
            if jobs.is_empty() {
                // What is leased next has its whole lease ahead.
                renewed = now();
                continue;
            }
            if now().since(checked) < LEASE_POLL_INTERVAL {
                continue;
            }
            checked = now();
            let held: Vec<JobLease> = jobs.iter().map(|(held, _)| held.clone()).collect();
            let due = now().since(renewed) >= every;
            let answers = if due {
                self.context.store.renew(&held, self.settings.lease)
            } else {
                self.context.store.check_leases(&held)
            };
            // Until it succeeds it is tried again; the guard knows when that is too late.
            if let Ok(answers) = answers {
                pass_on(&jobs, answers);
                if due {
                    renewed = checked;
                    let mut state = self.state();
                    state.kept_until = state.kept_until.map(|_| renewed.after(self.settings.lease));
                }
            }
        }
    }

    /// Ends what is active once its leases have passed without a renewal.
    fn guard(&self) {
        loop {
            let (mut state, _) = self
                .changed
                .wait_timeout(self.state(), LEASE_POLL_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            if state.ended {
                return;
            }
            if state.kept_until.is_some_and(|until| now() > until) {
                // What is leased next begins again.
                state.kept_until = None;
                state.jobs.values().for_each(|going| going.control.halt(Halt::Lost));
                drop(state);
                (self.settings.report)(
                    "leases were not renewed in time; the jobs that were running are ended",
                );
            }
        }
    }

    pub(super) fn store(&self) -> &dyn JobStore {
        &*self.context.store
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().ended
    }

    pub(super) fn report(&self, problem: &str) {
        (self.settings.report)(problem);
    }

    /// Waits for `most`, or until something has changed.
    pub(super) fn pause(&self, most: Duration) {
        let state = self.state();
        if !state.ended {
            drop(self.changed.wait_timeout(state, most));
        }
    }

    fn state(&self) -> MutexGuard<'_, WorkerState> {
        // Flags, a moment and tables; whole whatever happened.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a job out of the worker's table when it is dropped, after a panic as well: else its lease
/// would be renewed for ever.
struct Release<'a> {
    worker: &'a Worker,
    held: JobLease,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        let mut state = self.worker.state();
        state.jobs.remove(&self.held);
        if state.jobs.is_empty() {
            state.kept_until = None;
        }
        drop(state);
        self.worker.changed.notify_all();
    }
}

/// Ends the worker's threads when it is dropped, after a panic as well: else the scope would wait
/// for them for ever.
struct EndOfWork<'a>(&'a Worker);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        // Without a panic there are no jobs left.
        self.0.give_back();
        self.0.state().ended = true;
        self.0.changed.notify_all();
    }
}

fn pass_on(jobs: &[(JobLease, Arc<JobControl>)], answers: Vec<Renewal>) {
    for ((_, control), answer) in jobs.iter().zip(answers) {
        match answer {
            Renewal::Kept => {}
            Renewal::Cancel(reason) => control.halt(Halt::Cancel(reason)),
            Renewal::Lost => control.halt(Halt::Lost),
        }
    }
}
