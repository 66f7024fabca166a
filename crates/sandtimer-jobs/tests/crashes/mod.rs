//! SIGKILL of a worker at every step of a job's life: before, after and amid calls of the store,
//! and in the middle of a run. The worker is this program again, whose store kills its process, or
//! the store's server, at a given point.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use sandtimer::Engine;
use sandtimer_agents::resilience::BreakerSnapshot;
use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::executor::{Worker, WorkerContext, WorkerSettings};
use sandtimer_jobs::job::{
    BreakerPage, CancelResult, Delivery, DeliveryResult, FileOf, Filter, Finish, FinishResult, JobAssignment,
    JobLease, JobLine, JobLog, JobRecord, JobSpec, JobState, JobStore, LeaseRequest, LiveWorker, Page,
    QueueFacts, Renewal, ScheduleRecord, ScheduleSpec, StoreError, Submission, SubmittedJob, WebhookShares,
    WebhookState, WorkerFacts,
};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::json;

#[cfg(feature = "nats")]
mod nats;

const POINTS: [&str; 26] = [
    "before submit",
    "after submit",
    "before lease",
    "after lease",
    "before log",
    "after log",
    "before renew",
    "after renew",
    "before look",
    "after look",
    "before file",
    "after file",
    "before finish",
    "after finish",
    "amid submit",
    "amid lease",
    "amid finish",
    "before return",
    "after return",
    "amid return",
    "before pause",
    "after pause",
    "amid pause",
    "before remove",
    "after remove",
    "amid remove",
];
/// Of a worker that dies: so soon another one has what it had.
const LEASE: Duration = Duration::from_secs(1);
/// Of one that brings everything to its end, on a machine that may stop it for seconds.
const LONG_LEASE: Duration = Duration::from_secs(30);
const JOBS: usize = 3;

/// A store that kills or stops a process, its own or another, at one point: of a lease and a finish
/// at the second, so that some jobs are further on.
#[derive(Debug)]
struct Deadly {
    store: Arc<dyn JobStore>,
    point: String,
    victim: Arc<OwnedFd>,
    signal: Signal,
    passed: AtomicU32,
    /// Serialises the calls of a process that is stopped: it must not be stopped while another call
    /// holds the database's lock.
    alone: Mutex<()>,
}

impl Deadly {
    fn at<T>(&self, name: &str, call: impl FnOnce(&dyn JobStore) -> T) -> T {
        let _alone = (self.signal == Signal::STOP).then(|| self.alone.lock());
        self.pass(&format!("before {name}"), Duration::ZERO);
        self.pass(&format!("amid {name}"), Duration::from_micros(monotonic_nanoseconds() % 2000));
        let done = call(&*self.store);
        self.pass(&format!("after {name}"), Duration::ZERO);
        done
    }

    fn pass(&self, point: &str, pause: Duration) {
        let times = if point.ends_with("lease") || point.ends_with("finish") { 2 } else { 1 };
        if point == self.point && self.passed.fetch_add(1, Ordering::SeqCst) + 1 == times {
            let (victim, signal) = (Arc::clone(&self.victim), self.signal);
            let strike = move || pidfd_send_signal(victim.as_fd(), signal).expect("sent");
            match pause {
                Duration::ZERO => {
                    strike();
                    // A stop takes effect at another thread first: until then nothing more is begun
                    // here.
                    if signal == Signal::STOP {
                        let until = monotonic_nanoseconds() + 1_000_000_000;
                        while monotonic_nanoseconds() < until {
                            // It may be woken for what came before.
                            std::thread::park_timeout(Duration::from_millis(10));
                        }
                    }
                }
                pause => drop(std::thread::spawn(move || (std::thread::park_timeout(pause), strike()).1)),
            }
        }
    }
}

impl JobStore for Deadly {
    fn now_ms(&self) -> u64 {
        self.store.now_ms()
    }
    fn submit(&self, submissions: &[Submission]) -> Result<Vec<SubmittedJob>, StoreError> {
        self.at("submit", |store| store.submit(submissions))
    }
    fn lease(&self, request: &LeaseRequest) -> Result<Vec<JobAssignment>, StoreError> {
        let mut leased = self.at("lease", |store| store.lease(request))?;
        if self.point.ends_with("return") {
            // The worker reads these specs at their second delivery only.
            let first = leased.iter_mut().filter(|job| job.held.epoch == 1);
            first.for_each(|job| job.spec["field_of_a_later_version"] = json!(1));
        }
        Ok(leased)
    }
    fn renew(&self, held: &[JobLease], lease: Duration) -> Result<Vec<Renewal>, StoreError> {
        self.at("renew", |store| store.renew(held, lease))
    }
    fn check_leases(&self, held: &[JobLease]) -> Result<Vec<Renewal>, StoreError> {
        self.at("look", |store| store.check_leases(held))
    }
    fn finish(&self, finishes: &[Finish]) -> Result<Vec<FinishResult>, StoreError> {
        if finishes.iter().all(|finish| finish.pause_ms == 0) {
            return self.at("finish", |store| store.finish(finishes));
        }
        let soon = |finish: &Finish| Finish { pause_ms: 200, ..finish.clone() };
        let finishes: Vec<Finish> = finishes.iter().map(soon).collect();
        self.at("return", |store| store.finish(&finishes))
    }
    fn append_log(&self, held: &JobLease, bytes: &[u8]) -> Result<(), StoreError> {
        self.at("log", |store| store.append_log(held, bytes))
    }
    fn write_file(&self, held: &JobLease, name: &str, start: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.at("file", |store| store.write_file(held, name, start, bytes))
    }
    fn read_file(&self, id: &str, file: FileOf<'_>, start: u64, most: usize) -> Result<Vec<u8>, StoreError> {
        self.store.read_file(id, file, start, most)
    }
    fn claim_webhooks(
        &self,
        most: usize,
        claim: Duration,
        shares: &WebhookShares,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.claim_webhooks(most, claim, shares)
    }
    fn settle_webhook(&self, delivery: &Delivery, came: &DeliveryResult) -> Result<(), StoreError> {
        self.store.settle_webhook(delivery, came)
    }
    fn redeliver_webhook(&self, id: &str) -> Result<WebhookState, StoreError> {
        self.store.redeliver_webhook(id)
    }
    fn announce(&self, worker: &WorkerFacts) -> Result<(), StoreError> {
        self.store.announce(worker)
    }
    fn depart(&self, worker: &str) -> Result<(), StoreError> {
        self.store.depart(worker)
    }
    fn workers(&self) -> Result<Vec<LiveWorker>, StoreError> {
        self.store.workers()
    }
    fn count(&self, filter: &Filter) -> Result<u64, StoreError> {
        self.store.count(filter)
    }
    fn cancel(&self, id: &str, reason: &str) -> Result<CancelResult, StoreError> {
        self.store.cancel(id, reason)
    }
    fn get(&self, id: &str) -> Result<Option<JobRecord>, StoreError> {
        self.store.get(id)
    }
    fn list(&self, filter: &Filter, cursor: Option<&str>, most: usize) -> Result<Page, StoreError> {
        self.store.list(filter, cursor, most)
    }
    fn find(&self, prefix: &str, most: usize) -> Result<Vec<JobLine>, StoreError> {
        self.store.find(prefix, most)
    }
    fn retry(&self, id: &str) -> Result<JobState, StoreError> {
        self.store.retry(id)
    }
    fn purge(&self, filter: &Filter) -> Result<u64, StoreError> {
        self.store.purge(filter)
    }
    fn pause(&self, queue: &str, paused: bool) -> Result<(), StoreError> {
        self.store.pause(queue, paused)
    }
    fn queues(&self) -> Result<Vec<QueueFacts>, StoreError> {
        self.store.queues()
    }
    fn put_schedule(
        &self,
        owner: &str,
        queue: &str,
        spec: &ScheduleSpec,
    ) -> Result<ScheduleRecord, StoreError> {
        self.store.put_schedule(owner, queue, spec)
    }
    fn pause_schedule(
        &self,
        owner: &str,
        name: &str,
        paused: bool,
    ) -> Result<Option<ScheduleRecord>, StoreError> {
        self.at("pause", |store| store.pause_schedule(owner, name, paused))
    }
    fn remove_schedule(&self, owner: &str, name: &str) -> Result<bool, StoreError> {
        self.at("remove", |store| store.remove_schedule(owner, name))
    }
    fn schedules(&self, owner: Option<&str>) -> Result<Vec<ScheduleRecord>, StoreError> {
        self.store.schedules(owner)
    }
    fn outcomes(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.store.outcomes()
    }
    fn sweep(&self) -> Result<(), StoreError> {
        self.store.sweep()
    }
    fn read_log(&self, id: &str, cursor: u64, most: usize) -> Result<JobLog, StoreError> {
        self.store.read_log(id, cursor, most)
    }
    fn load_breaker(&self, key: &str) -> Result<(u64, Option<BreakerSnapshot>), StoreError> {
        self.store.load_breaker(key)
    }
    fn swap_breaker(&self, version: u64, snapshot: &BreakerSnapshot) -> Result<bool, StoreError> {
        self.store.swap_breaker(version, snapshot)
    }
    fn breakers(
        &self,
        owner: Option<&str>,
        cursor: Option<&str>,
        most: usize,
    ) -> Result<BreakerPage, StoreError> {
        self.store.breakers(owner, cursor, most)
    }
}

/// A schedule that is due each second, whichever process is killed.
fn ticker(name: &str, is_paused: bool) -> ScheduleSpec {
    let source = json!({
        "name": name, "every_ms": 1_000, "overlap": "allow", "missed": "all", "paused": is_paused,
        "job": {"command": ["true"], "deliveries": 9},
    });
    ScheduleSpec::read(source).expect("valid")
}

/// The same for every worker on this store; `place` is in the arguments of all that the jobs run.
fn batch(directory: &Path) -> Vec<Submission> {
    let one = |number: usize| {
        let script = "echo begun; sleep 1; echo made > made; echo done";
        let mark = directory.display().to_string();
        let mut source = json!({
            "name": format!("job {number}"), "idempotency_key": format!("k{number}"), "wall_ms": 120_000,
            "deliveries": 9, "outputs": ["made"], "command": ["sh", "-c", script, mark],
            "rate": {"key": "crash", "most": 50},
        });
        if number == JOBS - 1 {
            let script = "echo begun; test $(grep -c '\"ok\":true' earlier) = 2 && echo made > made";
            source["after"] = (0..number).map(|number| format!("job {number}")).collect();
            source["after_results"] = json!("earlier");
            source["command"] = json!(["sh", "-c", script, mark]);
        }
        Submission { spec: JobSpec::read(source).expect("valid"), owner: "test".to_owned() }
    };
    (0..JOBS).map(one).collect()
}

fn worker(store: Arc<dyn JobStore>, directory: &Path, lease: Duration, report_error: fn(&str)) -> Worker {
    let settings = WorkerSettings {
        name: format!("w{}", std::process::id()),
        slots: JOBS,
        queues: Vec::new(),
        only: None,
        lease,
        memory: None,
        ..WorkerSettings::new(report_error)
    };
    Worker::new(WorkerContext::new(Engine::new().expect("an engine"), store, directory), settings)
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = monotonic_nanoseconds();
    while !is() {
        assert!(monotonic_nanoseconds() - begun < 100_000_000_000, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A store by its directory or its server's URL.
fn open(store: &str) -> Arc<dyn JobStore> {
    #[cfg(feature = "nats")]
    if sandtimer_jobs::NatsAddress::is_meant(store) {
        return nats::open(store);
    }
    Arc::new(SqliteJobs::open(Path::new(store)).expect("opened"))
}

/// The worker that dies, or whose server dies: not a test by itself.
#[test]
#[ignore = "started by the test beside it"]
fn doomed() {
    let variable = |name| std::env::var(name).ok();
    let (Some(directory), Some(store), Some(point)) =
        (variable("CRASH_PLACE"), variable("CRASH_STORE"), variable("CRASH_POINT"))
    else {
        return;
    };
    let (signal, point) = match point.strip_prefix("stop ") {
        Some(point) => (Signal::STOP, point.to_owned()),
        None => (Signal::KILL, point),
    };
    let victim = variable("CRASH_VICTIM")
        .and_then(|pid| Pid::from_raw(pid.parse().expect("a pid")))
        .unwrap_or_else(getpid);
    let victim = Arc::new(pidfd_open(victim, PidfdFlags::empty()).expect("a pidfd"));
    let store = Deadly {
        store: open(&store),
        point,
        victim,
        signal,
        passed: AtomicU32::new(0),
        alone: Mutex::default(),
    };
    let store: Arc<dyn JobStore> = Arc::new(store);
    for name in ["ticker", "paused", "removed"] {
        store.put_schedule(name, "ticks", &ticker(name, false)).expect("stored");
    }
    store.submit(&batch(Path::new(&directory))).expect("submitted");
    store.pause_schedule("paused", "paused", true).expect("paused");
    store.remove_schedule("removed", "removed").expect("removed");
    // The test judges the effects of its failure.
    worker(store, Path::new(&directory), LEASE, |_| {}).work();
}

#[test]
fn whatever_is_killed_no_job_is_lost_and_none_is_recorded_twice() {
    let rounds = if is_full() { 34 } else { 1 };
    for point in POINTS.iter().cycle().take(POINTS.len() * rounds) {
        let directory = tempfile::tempdir().expect("a directory");
        kill_a_worker(directory.path(), directory.path().to_str().expect("text"), point);
    }
}

fn is_full() -> bool {
    std::env::var_os("SANDTIMER_FULL").is_some()
}

/// A worker dies at this point; another one finds everything as it must be.
fn kill_a_worker(directory: &Path, store: &str, point: &str) {
    let mut child = doomed_worker(directory, store, point, None);
    until("the worker dies", || child.0.try_wait().expect("waited").is_some());
    let status = child.0.wait().expect("waited");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{point}");
    until("what the dead worker had started is dead", || !is_something_alive(directory));
    check(directory, store, point);
    assert!(!is_something_alive(directory), "{point}");
}

#[allow(clippy::disallowed_methods, reason = "the worker is a process of its own, which is waited for")]
fn doomed_worker(directory: &Path, store: &str, point: &str, victim: Option<u32>) -> Doomed {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "crashes::doomed", "--ignored", "--nocapture"]);
    command.env("CRASH_PLACE", directory).env("CRASH_STORE", store).env("CRASH_POINT", point);
    if let Some(victim) = victim {
        command.env("CRASH_VICTIM", victim.to_string());
    }
    Doomed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started"))
}

/// A worker that ends with its test at the latest.
struct Doomed(Child);

impl Drop for Doomed {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_worker_that_comes_back_too_late_is_fenced() {
    let directory = tempfile::tempdir().expect("a directory");
    fence(directory.path(), directory.path().to_str().expect("text"));
}

/// A worker that is stopped with a result in its hands, for longer than its lease.
fn fence(directory: &Path, store: &str) {
    let child = doomed_worker(directory, store, "stop before finish", None);
    let status = format!("/proc/{}/stat", child.0.id());
    let is_stopped = || std::fs::read_to_string(&status).expect("readable").contains(") T ");
    until("the worker has stopped", is_stopped);
    check(directory, store, "stopped");
    let worker = pidfd_open(Pid::from_child(&child.0), PidfdFlags::empty()).expect("a pidfd");
    pidfd_send_signal(&worker, Signal::CONT).expect("sent");
    let store = open(store);
    let jobs = store.list(&of("test"), None, 99).expect("listed").jobs;
    let get = |id: &str| store.get(id).expect("readable").expect("there");
    until("its late result is kept", || jobs.iter().any(|line| !get(&line.id).duplicates.is_empty()));
    for line in &jobs {
        let record = get(&line.id);
        assert!(record.result.expect("a result").ok, "the recorded result stays");
        assert_eq!((record.line.state, record.line.ended_ms), (JobState::Ended, line.ended_ms));
    }
}

/// Whether a process of a job of this store is active, by its arguments.
fn is_something_alive(directory: &Path) -> bool {
    let mark = directory.display().to_string();
    let entries = std::fs::read_dir("/proc").expect("readable").flatten();
    let mut arguments = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    arguments.any(|arguments| String::from_utf8_lossy(&arguments).contains(&mark))
}

fn deadlines(store: &dyn JobStore) -> Vec<(String, Option<u64>)> {
    let lines = store.list(&of("test"), None, 99).expect("listed").jobs;
    let mut deadlines: Vec<_> = lines.into_iter().map(|line| (line.id, line.deadline_ms)).collect();
    deadlines.sort();
    deadlines
}

fn of(owner: &str) -> Filter {
    Filter { owner: Some(owner.to_owned()), ..Filter::default() }
}

/// Each moment of a schedule has one job, whichever program submitted it, and none from its pause
/// or its end on.
fn check_ticks(store: &dyn JobStore, point: &str) {
    check_moments(store, "ticker", point);
    let get = |name: &str| store.schedules(Some(name)).expect("listed").pop();
    let paused = get("paused").expect("it is there");
    let is_paused = paused.spec["paused"] == true;
    assert!(is_done("pause", point).is_none_or(|is_done| is_done == is_paused), "{point}: {paused:?}");
    assert_eq!(paused.next_ms.is_none(), is_paused, "{point}: {paused:?}");
    if is_paused {
        let resumed = store.pause_schedule("paused", "paused", false).expect("resumed").expect("there");
        assert!(resumed.next_ms >= Some(store.calendar_ms()), "{point}: {resumed:?}");
    }
    check_moments(store, "paused", point);
    let removed = get("removed");
    assert!(
        is_done("remove", point).is_none_or(|is_done| is_done == removed.is_none()),
        "{point}: {removed:?}"
    );
    if removed.is_some() {
        check_moments(store, "removed", point);
    }
}

/// Whether the worker that died at this point had made this call; `None` if it may have.
fn is_done(call: &str, point: &str) -> Option<bool> {
    let directory = |call: &str| ["submit", "pause", "remove"].iter().position(|one| *one == call);
    let (when, last) = point.split_once(' ').unwrap_or(("after", point));
    match directory(last) {
        Some(last) if Some(last) <= directory(call) => match when {
            "amid" => None,
            _ => Some(when == "after" && Some(last) == directory(call)),
        },
        _ => Some(true),
    }
}

fn check_moments(store: &dyn JobStore, name: &str, point: &str) {
    let schedule = store.put_schedule(name, "ticks", &ticker(name, true)).expect("paused");
    let jobs = store.list(&of(name), None, 999).expect("listed").jobs;
    assert_eq!(jobs.len() as u64, schedule.submitted, "{point}");
    assert_eq!(schedule.skipped, 0, "{point}");
    let moment = |id: &str| {
        store.get(id).expect("readable").expect("there").spec["scheduled"]["moment_ms"]
            .as_u64()
            .expect("a moment")
    };
    let mut moments: Vec<u64> = jobs.iter().map(|line| moment(&line.id)).collect();
    moments.sort_unstable();
    assert!(moments.windows(2).all(|pair| pair[1] == pair[0] + 1_000), "{point}: {moments:?}");
}

/// What is there after a kill, and after another worker has taken over.
fn check(directory: &Path, store: &str, point: &str) {
    let store = open(store);
    let before = deadlines(&*store);
    // A submission is whole or has no effect; a caller that got no answer submits again, under the
    // same keys.
    let was_submitted = match point {
        "before submit" => false,
        "amid submit" => !before.is_empty(),
        _ => true,
    };
    assert_eq!(before.len(), if was_submitted { JOBS } else { 0 }, "{point}");
    let again = store.submit(&batch(directory)).expect("submitted");
    assert!(!was_submitted || again.iter().all(|one| one.existed), "{point}");
    let worker = worker(Arc::clone(&store), directory, LONG_LEASE, |problem| panic!("{problem}"));
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        until_over(&*store, &again);
        worker.drain();
    });
    check_records(&*store, &again, point);
    check_ticks(&*store, point);
    let get = |id: &str| store.get(id).expect("readable").expect("there");
    assert!(
        again.iter().all(|one| get(&one.id).duplicates.is_empty()),
        "{point}: a dead worker says nothing"
    );
    for one in &again {
        let made = store.read_file(&one.id, FileOf::Output("made"), 0, 99).expect("readable");
        let result = get(&one.id).result.expect("a result");
        assert_eq!((result.files.len(), &made[..]), (1, &b"made\n"[..]), "{point}");
    }
    if was_submitted {
        assert_eq!(deadlines(&*store), before, "{point}: no deadline is reset");
    }
}

fn until_over(store: &dyn JobStore, jobs: &[SubmittedJob]) {
    let is_over =
        |one: &SubmittedJob| store.get(&one.id).expect("readable").expect("there").line.state.is_over();
    until("all are over", || jobs.iter().all(is_over));
}

/// Each has one result, a good one, and left nothing running.
fn check_records(store: &dyn JobStore, jobs: &[SubmittedJob], point: &str) {
    for one in jobs {
        let record = store.get(&one.id).expect("readable").expect("there");
        assert_eq!((record.line.state, record.line.ok), (JobState::Ended, Some(true)), "{point}: {record:?}");
        let result = record.result.expect("a result");
        assert_eq!(result.outcome.expect("an outcome").tree.survivors, Some(0), "{point}");
    }
}
