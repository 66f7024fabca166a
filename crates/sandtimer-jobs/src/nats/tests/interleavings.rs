//! Random interleavings of what workers, callers and time do to jobs, on a clock that the schedule
//! moves: the tables that every copy of a NATS server's log has, and the same schedules on the
//! SQLite store, which must answer the same.
//!
//! A schedule is a few jobs and workers, and what they do in random order, late and twice as well:
//! expired leases are renewed and finished, a lost delivery is finished while its successor is
//! active, and jobs are cancelled and retried in between. A ledger that knows nothing of states or
//! tables holds every answer to what is promised. A failure shows its seed.
//!
//! Breakers that jobs share in a store are changed by compare-and-set: of three workers that read,
//! change and write in any order one is the probe, every failure counts, and a result that was
//! admitted before a change of state changes nothing after it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer::time::Moment;
use sandtimer_agents::resilience::{
    AttemptFailure, AttemptResult, BreakerSettings, BreakerSnapshot, Breakers, SharedBreakers,
};

use crate::job::{
    CancelResult, Filter, Finish, FinishResult, JobAssignment, JobLease, JobRecord, JobResult, JobStatus,
    JobStore, LeaseRequest, Renewal, StoreError, Submission,
};
use fastrand::Rng;
use serde_json::{Value, json};

use super::super::command::{CommandResult, FORMAT, LogEntry, StoreCommand};
use super::super::replica::{Message, Replica};
use super::submission;
use crate::SqliteJobs;
use crate::sqlite::submitting::NewJob;
use crate::sqlite::{breakers, reading};

/// Where the clock of each schedule begins: any moment after 1970.
pub(super) const BEGIN: i64 = 1_000_000;

/// An action of a worker or a caller; jobs are named by their order of submission.
#[derive(Debug, Clone)]
enum Act {
    Submit(Value),
    Lease { worker: usize, slots: usize, lease: i64 },
    Renew { job: usize, epoch: u64, lease: i64 },
    Finish { job: usize, epoch: u64, status: JobStatus, again: bool },
    Cancel(usize),
    Retry(usize),
    Sweep,
}

/// The reply to an action.
#[derive(Debug, PartialEq)]
enum ActReply {
    Submitted,
    Leased(Vec<LeasedJob>),
    Renewed(Renewal),
    Finished(FinishResult),
    Cancelled(CancelResult),
    Retried(bool),
    Swept,
}

/// A job that was handed out.
#[derive(Debug, PartialEq)]
struct LeasedJob {
    job: usize,
    epoch: u64,
    deadline: Option<i64>,
    deliveries: u32,
}

/// A store whose clock moves only with the schedule.
pub(super) trait ClockedStore {
    fn submit(&mut self, now: i64, one: Submission) -> String;
    fn lease(&mut self, now: i64, request: LeaseRequest) -> Vec<JobAssignment>;
    fn renew(&mut self, now: i64, held: JobLease, lease: Duration) -> Renewal;
    fn finish(&mut self, now: i64, finish: Finish) -> FinishResult;
    fn cancel(&mut self, now: i64, id: &str) -> CancelResult;
    /// Whether it is queued again.
    fn retry(&mut self, now: i64, id: &str) -> bool;
    fn sweep(&mut self, now: i64);
    fn get(&mut self, now: i64, id: &str) -> JobRecord;
    fn purge(&mut self, now: i64) -> u64;
}

/// A copy of the tables, changed by messages of a log.
#[derive(Debug)]
pub(super) struct ReplicaStore(pub Replica);

impl ReplicaStore {
    fn apply_command(&mut self, now: i64, command: StoreCommand) -> Result<CommandResult, StoreError> {
        let payload = serde_json::to_vec(&LogEntry { until_ms: None, command }).expect("written");
        let sequence = self.0.position().0 + 1;
        let id = sequence.to_string();
        let message =
            Message { sequence, at_ms: now, format: FORMAT, id: &id, part: (1, 1), payload: &payload };
        self.0.apply(&message).expect("applied").expect("a command")
    }
}

macro_rules! answer {
    ($told:expr, $kind:ident) => {
        match $told.expect("done") {
            CommandResult::$kind(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
}

impl ClockedStore for ReplicaStore {
    fn submit(&mut self, now: i64, one: Submission) -> String {
        answer!(self.apply_command(now, StoreCommand::Submit(vec![NewJob::of(&one)])), Submitted).remove(0).id
    }
    fn lease(&mut self, now: i64, request: LeaseRequest) -> Vec<JobAssignment> {
        answer!(self.apply_command(now, StoreCommand::Lease(request)), Leased)
    }
    fn renew(&mut self, now: i64, held: JobLease, lease: Duration) -> Renewal {
        answer!(self.apply_command(now, StoreCommand::Renew { held: vec![held], lease }), Renewed).remove(0)
    }
    fn finish(&mut self, now: i64, finish: Finish) -> FinishResult {
        answer!(self.apply_command(now, StoreCommand::Finish(vec![finish])), Finished).remove(0)
    }
    fn cancel(&mut self, now: i64, id: &str) -> CancelResult {
        let (id, reason) = (id.to_owned(), "not wanted".to_owned());
        answer!(self.apply_command(now, StoreCommand::Cancel { id, reason }), Cancelled)
    }
    fn retry(&mut self, now: i64, id: &str) -> bool {
        match self.apply_command(now, StoreCommand::Retry(id.to_owned())) {
            Ok(CommandResult::State(_)) => true,
            Err(StoreError::WrongState { .. }) => false,
            other => panic!("{other:?}"),
        }
    }
    fn sweep(&mut self, now: i64) {
        self.apply_command(now, StoreCommand::Sweep).expect("done");
    }
    fn get(&mut self, now: i64, id: &str) -> JobRecord {
        self.0.read(|tx| reading::get(tx, id, now)).expect("readable").expect("there")
    }
    fn purge(&mut self, now: i64) -> u64 {
        answer!(self.apply_command(now, StoreCommand::Purge(Filter::default())), Count)
    }
}

impl ClockedStore for SqliteJobs {
    fn submit(&mut self, now: i64, one: Submission) -> String {
        JobStore::submit(self.stopped_at(now), &[one]).expect("submitted").remove(0).id
    }
    fn lease(&mut self, now: i64, request: LeaseRequest) -> Vec<JobAssignment> {
        JobStore::lease(self.stopped_at(now), &request).expect("leased")
    }
    fn renew(&mut self, now: i64, held: JobLease, lease: Duration) -> Renewal {
        JobStore::renew(self.stopped_at(now), &[held], lease).expect("renewed").remove(0)
    }
    fn finish(&mut self, now: i64, finish: Finish) -> FinishResult {
        JobStore::finish(self.stopped_at(now), &[finish]).expect("finished").remove(0)
    }
    fn cancel(&mut self, now: i64, id: &str) -> CancelResult {
        JobStore::cancel(self.stopped_at(now), id, "not wanted").expect("cancelled")
    }
    fn retry(&mut self, now: i64, id: &str) -> bool {
        match JobStore::retry(self.stopped_at(now), id) {
            Ok(_) => true,
            Err(StoreError::WrongState { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }
    fn sweep(&mut self, now: i64) {
        JobStore::sweep(self.stopped_at(now)).expect("swept");
    }
    fn get(&mut self, now: i64, id: &str) -> JobRecord {
        JobStore::get(self.stopped_at(now), id).expect("readable").expect("there")
    }
    fn purge(&mut self, now: i64) -> u64 {
        JobStore::purge(self.stopped_at(now), &Filter::default()).expect("purged")
    }
}

/// A store, and what its jobs are called.
struct StorePlayer<'a> {
    store: &'a mut dyn ClockedStore,
    ids: Vec<String>,
    numbers: HashMap<String, usize>,
}

fn span(milliseconds: i64) -> Duration {
    Duration::from_millis(milliseconds.unsigned_abs())
}

fn request(worker: usize, slots: usize, lease: i64) -> LeaseRequest {
    let (worker, lease) = (format!("w{worker}"), span(lease));
    LeaseRequest { worker, slots, queues: Vec::new(), only: None, lease, memory: None, handlers: Vec::new() }
}

/// The message shows the epoch that the result belongs to.
fn result(status: JobStatus, epoch: u64) -> JobResult {
    JobResult::bare(status, Some(format!("of epoch {epoch}")))
}

impl<'a> StorePlayer<'a> {
    fn on(store: &'a mut dyn ClockedStore) -> Self {
        StorePlayer { store, ids: Vec::new(), numbers: HashMap::new() }
    }

    fn play(&mut self, now: i64, act: &Act) -> ActReply {
        let held = |job: usize, epoch| JobLease { id: self.ids[job].clone(), epoch };
        match act {
            Act::Submit(spec) => {
                let id = self.store.submit(now, submission(spec.clone()));
                self.numbers.insert(id.clone(), self.ids.len());
                self.ids.push(id);
                ActReply::Submitted
            }
            Act::Lease { worker, slots, lease } => {
                let leased = self.store.lease(now, request(*worker, *slots, *lease));
                let leased_job = |one: JobAssignment| LeasedJob {
                    job: self.numbers[&one.held.id],
                    epoch: one.held.epoch,
                    deadline: one.deadline_ms.map(|deadline| deadline as i64),
                    deliveries: one.deliveries,
                };
                ActReply::Leased(leased.into_iter().map(leased_job).collect())
            }
            Act::Renew { job, epoch, lease } => {
                ActReply::Renewed(self.store.renew(now, held(*job, *epoch), span(*lease)))
            }
            Act::Finish { job, epoch, status, again } => {
                let (held, result) = (held(*job, *epoch), result(*status, *epoch));
                ActReply::Finished(
                    self.store.finish(now, Finish { held, result, again: *again, pause_ms: 0 }),
                )
            }
            Act::Cancel(job) => ActReply::Cancelled(self.store.cancel(now, &self.ids[*job])),
            Act::Retry(job) => ActReply::Retried(self.store.retry(now, &self.ids[*job])),
            Act::Sweep => {
                self.store.sweep(now);
                ActReply::Swept
            }
        }
    }
}

/// What is known of a job from the answers about it.
#[derive(Debug, Default)]
struct ExpectedJob {
    wall: Option<i64>,
    deadline: Option<i64>,
    deliveries: u32,
    /// Of these one at a time continues.
    key: Option<String>,
    epoch: u64,
    /// Until when no other worker may have it.
    until: Option<i64>,
    /// No worker may have it before then, for it could not be executed.
    not_before: i64,
    /// The result that was reported as recorded.
    recorded: Option<(JobStatus, u64)>,
}

#[derive(Debug, Default)]
struct Ledger(Vec<ExpectedJob>);

impl Ledger {
    /// Holds an answer to what is promised.
    fn note(&mut self, now: i64, act: &Act, reply: &ActReply) {
        match (act, reply) {
            (Act::Submit(spec), ActReply::Submitted) => {
                let wall = spec["wall_ms"].as_i64();
                let count = |value: &Value| value.as_u64().unwrap_or(0);
                let key =
                    spec.get("concurrency").map(|one| one["key"].as_str().unwrap_or_default().to_owned());
                let deliveries = count(&spec["deliveries"]) as u32;
                let deadline = wall.map(|wall| now + wall);
                self.0.push(ExpectedJob { wall, deadline, deliveries, key, ..ExpectedJob::default() });
            }
            (Act::Lease { slots, lease, .. }, ActReply::Leased(leased_job)) => {
                assert!(leased_job.len() <= *slots, "more than there are slots");
                leased_job.iter().for_each(|one| self.hand_out(now, one, now + lease));
            }
            (Act::Renew { job, epoch, lease }, ActReply::Renewed(renewal)) => {
                let known = &mut self.0[*job];
                let is_current = *epoch == known.epoch && known.until.is_some();
                if *renewal == Renewal::Lost {
                    assert!(!is_current || known.until <= Some(now), "a lease that lasts was lost");
                } else {
                    assert!(is_current, "a lease was kept that is over");
                    known.until = Some(now + lease);
                }
            }
            (Act::Finish { job, epoch, status, .. }, ActReply::Finished(finished)) => {
                let known = &mut self.0[*job];
                let is_current = *epoch == known.epoch && known.until.is_some();
                if *finished == FinishResult::Duplicate {
                    assert!(!is_current || known.until <= Some(now), "a lease that lasts was lost");
                    return;
                }
                assert!(is_current, "a lease that is over has ended its job");
                known.until = None;
                if *status == JobStatus::InfraError {
                    known.not_before = now + 1_000;
                }
                if *finished == FinishResult::Recorded {
                    assert_eq!(known.recorded.replace((*status, *epoch)), None, "two results were recorded");
                }
            }
            (Act::Cancel(job), ActReply::Cancelled(cancelled)) => {
                let known = &mut self.0[*job];
                match cancelled {
                    CancelResult::Cancelled => {
                        assert!(known.until.is_none_or(|until| until <= now), "its worker was not asked");
                        assert_eq!(known.recorded.replace((JobStatus::Cancelled, 0)), None, "it was over");
                        known.until = None;
                    }
                    CancelResult::Asked => assert!(known.until.is_some(), "nobody has it"),
                    CancelResult::TooLate => {}
                }
            }
            (Act::Retry(job), ActReply::Retried(is_queued)) => {
                let known = &mut self.0[*job];
                if *is_queued {
                    assert!(known.until.is_none_or(|until| until <= now), "it goes on");
                    assert!(known.recorded.is_none_or(|(status, _)| status != JobStatus::Ok), "it succeeded");
                    (known.until, known.recorded, known.not_before) = (None, None, 0);
                    known.deadline = known.wall.map(|wall| now + wall);
                }
            }
            (Act::Sweep, ActReply::Swept) => {}
            other => panic!("{other:?}"),
        }
    }

    fn hand_out(&mut self, now: i64, one: &LeasedJob, until: i64) {
        let known = &mut self.0[one.job];
        assert_eq!(one.epoch, known.epoch + 1, "epochs grow by one with each lease");
        assert!(known.until.is_none_or(|until| until <= now), "two have it");
        assert!(known.recorded.is_none(), "it is over");
        assert!(now >= known.not_before, "it was not left alone");
        assert_eq!(one.deadline, known.deadline, "a deadline is moved by a retry only");
        assert!(one.deadline.is_none_or(|deadline| deadline > now), "its deadline has passed");
        assert!((1..=known.deliveries).contains(&one.deliveries), "it was handed out too often");
        (known.epoch, known.until) = (one.epoch, Some(until));
        if let Some(key) = known.key.clone() {
            let has = |other: &&ExpectedJob| {
                other.key.as_ref() == Some(&key) && other.until.is_some_and(|until| until > now)
            };
            assert_eq!(self.0.iter().filter(has).count(), 1, "two of one key go on");
        }
    }
}

fn any<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

fn spec(random: &mut Rng) -> Value {
    let mut spec = json!({
        "queue": any(random, &["a", "b"]),
        "deliveries": random.u32(1..4),
        "priority": random.i32(0..2),
    });
    if random.bool() {
        spec["wall_ms"] = random.u32(100..2_000).into();
    }
    if random.u8(..3) == 0 {
        spec["concurrency"] = json!({"key": any(random, &["k", "l"]), "most": 1});
    }
    spec
}

/// Chooses an action at random, on a past or a present lease.
fn act(random: &mut Rng, leases: &[(usize, u64)], jobs: usize) -> Act {
    let lease = any(random, &[50, 200, 1_000]);
    if leases.is_empty() || random.u8(..3) == 0 {
        return match random.u8(..8) {
            0 => Act::Cancel(random.usize(..jobs)),
            1 => Act::Retry(random.usize(..jobs)),
            2 => Act::Sweep,
            _ => Act::Lease { worker: random.usize(..3), slots: random.usize(1..3), lease },
        };
    }
    let (job, epoch) = any(random, leases);
    match random.u8(..3) {
        0 => Act::Renew { job, epoch, lease },
        _ => {
            let (status, again) = any(
                random,
                &[
                    (JobStatus::Ok, false),
                    (JobStatus::Failed, false),
                    (JobStatus::Cancelled, false),
                    (JobStatus::InfraError, true),
                    (JobStatus::Drained, true),
                ],
            );
            Act::Finish { job, epoch, status, again }
        }
    }
}

/// One schedule, on all of these stores, from `now` on. When it ended.
fn schedule(seed: u64, mut now: i64, stores: &mut [&mut dyn ClockedStore]) -> i64 {
    let (mut random, mut ledger) = (Rng::with_seed(seed), Ledger::default());
    let mut playing: Vec<StorePlayer<'_>> =
        stores.iter_mut().map(|store| StorePlayer::on(&mut **store)).collect();
    let mut leases = Vec::new();
    let mut step = |now: i64, act: &Act, leases: &mut Vec<(usize, u64)>| {
        let mut reply: Vec<ActReply> = playing.iter_mut().map(|playing| playing.play(now, act)).collect();
        let first = reply.remove(0);
        reply.iter().for_each(|other| assert_eq!(other, &first, "the stores differ in {act:?}"));
        ledger.note(now, act, &first);
        if let ActReply::Leased(leased_job) = first {
            leases.extend(leased_job.iter().map(|one| (one.job, one.epoch)));
        }
    };
    let jobs = random.usize(1..4);
    for _ in 0..jobs {
        step(now, &Act::Submit(spec(&mut random)), &mut leases);
    }
    for _ in 0..random.u8(4..16) {
        now += any(&mut random, &[0, 0, 1, 49, 60, 300]);
        step(now, &act(&mut random, &leases, jobs), &mut leases);
    }
    // Workers let their leases expire, and the remaining jobs are brought to their ends; no job is
    // paused for more than two seconds.
    let mut idle = 0;
    while idle < 3 {
        now += 1_000;
        let before = leases.len();
        step(now, &Act::Lease { worker: 0, slots: 9, lease: 1_000 }, &mut leases);
        for index in before..leases.len() {
            let (job, epoch) = leases[index];
            step(now, &Act::Finish { job, epoch, status: JobStatus::Failed, again: false }, &mut leases);
        }
        idle = if leases.len() == before { idle + 1 } else { 0 };
    }
    let Ledger(known) = ledger;
    for StorePlayer { store, ids, .. } in &mut playing {
        for (id, known) in ids.iter().zip(&known) {
            let record = store.get(now, id);
            assert!(record.line.state.is_over(), "a job was lost: {record:?}");
            let result = record.result.expect("a job that is over has a result");
            if let Some((status, epoch)) = known.recorded {
                let of = result.error.as_deref().and_then(|reply| reply.strip_prefix("of epoch "));
                assert_eq!(result.status, status, "another result was recorded");
                assert!(epoch == 0 || of == Some(epoch.to_string().as_str()), "another's result: {result:?}");
            }
        }
        assert_eq!(store.purge(now), jobs as u64);
    }
    now
}

/// Runs this many schedules, one after the other.
fn schedules(count: u64, stores: &mut [&mut dyn ClockedStore]) {
    let mut now = BEGIN;
    for seed in 0..count {
        let played = catch_unwind(AssertUnwindSafe(|| schedule(seed, now, stores)));
        now = played.unwrap_or_else(|_| panic!("the schedule of seed {seed}"));
    }
}

/// How many, at full size and otherwise.
fn full_or(fewer: u64, full: u64) -> u64 {
    if std::env::var_os("SANDTIMER_FULL").is_some() { full } else { fewer }
}

#[test]
fn no_interleaving_loses_a_job_or_records_it_twice() {
    let mut copy = ReplicaStore(Replica::empty().expect("made"));
    schedules(full_or(10_000, 1_000_000), &mut [&mut copy]);
}

#[test]
fn both_stores_answer_every_interleaving_alike() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut file = SqliteJobs::open(directory.path()).expect("opened");
    let mut copy = ReplicaStore(Replica::empty().expect("made"));
    schedules(full_or(2_000, 50_000), &mut [&mut copy, &mut file]);
}

/// A clock of the engine's that goes with the store's.
fn moment(now: i64) -> Moment {
    Moment::from_nanos(now.unsigned_abs() * 1_000_000)
}

const KEY: &str = "calculator:calculate";

/// The breakers of a copy, and its clock.
#[derive(Debug)]
struct ReplicaBreakers(Mutex<(ReplicaStore, i64)>);

impl ReplicaBreakers {
    fn pass(&self, milliseconds: i64) -> Moment {
        let mut copy = self.0.lock().expect("whole");
        copy.1 += milliseconds;
        moment(copy.1)
    }
}

impl SharedBreakers for ReplicaBreakers {
    fn load(&self, key: &str) -> Option<(u64, Option<BreakerSnapshot>)> {
        let mut copy = self.0.lock().expect("whole");
        let now = copy.1;
        Some(copy.0.0.read(|tx| breakers::load(tx, key, now)).expect("loaded"))
    }

    fn swap(&self, version: u64, snapshot: &BreakerSnapshot) -> Option<bool> {
        let mut copy = self.0.lock().expect("whole");
        let now = copy.1;
        match copy.0.apply_command(now, StoreCommand::SwapBreaker { version, snapshot: snapshot.clone() }) {
            Ok(CommandResult::Swapped(is_kept)) => Some(is_kept),
            other => panic!("{other:?}"),
        }
    }
}

/// Jobs on several workers share a breaker: as if there were one for all of them.
#[test]
fn shared_breakers_count_failures_and_ignore_late_results() {
    let (open, max_open) = (Duration::from_secs(1), Duration::from_secs(8));
    let probe = Duration::from_millis(500);
    let settings = BreakerSettings { consecutive: Some(3), rate: None, open, max_open, successes: 2, probe };
    let (mut counted, mut late) = (0, 0);
    for seed in 0..full_or(100, 5_000) {
        let kept =
            Arc::new(ReplicaBreakers(Mutex::new((ReplicaStore(Replica::empty().expect("made")), BEGIN))));
        let mut random = Rng::with_seed(seed);
        let shared = |number: u64| {
            Breakers::new(settings.clone(), seed + number)
                .shared(Arc::clone(&kept) as Arc<_>, &number.to_string())
        };
        // Of each: what it has under way, and in which generation that was admitted.
        let mut workers: Vec<_> = (0..3).map(|number| (shared(number), None)).collect();
        for _ in 0..100 {
            let now = kept.pass(any(&mut random, &[0, 1, 100, 600]));
            let number = random.usize(..workers.len());
            let (breakers, running) = &mut workers[number];
            let before = kept.load(KEY).and_then(|(_, kept)| kept);
            let state = before.as_ref().map_or("closed", |before| before.state.as_str());
            let probe =
                |one: &BreakerSnapshot| one.probe_ends_ms.map(|left| u64::try_from(left).unwrap_or(0));
            let left = before.as_ref().and_then(|one| one.retry_after_ms.or(probe(one))).unwrap_or(0);
            let Some((ticket, generation)) = running.take() else {
                let admitted = breakers.admit(KEY, None, now);
                assert!(admitted.is_err() || left == 0, "seed {seed}: {before:?}");
                assert!(admitted.is_ok() || state != "closed", "seed {seed}: {before:?}");
                let generation = kept.load(KEY).and_then(|(_, kept)| kept).map_or(0, |kept| kept.generation);
                *running = admitted.ok().map(|ticket| (ticket, generation));
                continue;
            };
            let fails = random.u8(..3) > 0;
            let judged = if fails {
                AttemptResult::Failure(AttemptFailure::new("no"))
            } else {
                AttemptResult::Success
            };
            breakers.settle(ticket, &judged, now);
            let after = kept.load(KEY).and_then(|(_, kept)| kept);
            let failures =
                |one: &Option<BreakerSnapshot>| one.as_ref().map_or(0, |one| one.failures_in_a_row);
            let is_late = before.as_ref().map_or(0, |before| before.generation) != generation;
            if is_late && left > 0 {
                late += 1;
                assert_eq!(after, before, "seed {seed}: an old word was heard");
            } else if !is_late && state == "closed" {
                counted += 1;
                let row = if fails { failures(&before) + 1 } else { 0 };
                assert_eq!(failures(&after), row, "seed {seed}: {before:?} {after:?}");
                assert_eq!(after.is_some_and(|after| after.state == "open"), row >= 3, "seed {seed}");
            }
        }
    }
    assert!(counted > 100 && late > 100, "{counted} counted, {late} late");
}

#[test]
fn breaker_changes_when_log_clock_lags_reader_clock() {
    let mut copy = ReplicaStore(Replica::empty().expect("made"));
    let mut breakers_here = Breakers::new(BreakerSettings::default(), 1);
    breakers_here.hold(KEY, None, moment(BEGIN));
    let snapshot = breakers_here.snapshot(moment(BEGIN)).remove(0);
    let swap = |copy: &mut ReplicaStore, now, version| {
        copy.apply_command(now, StoreCommand::SwapBreaker { version, snapshot: snapshot.clone() })
    };
    assert!(matches!(swap(&mut copy, BEGIN, 0), Ok(CommandResult::Swapped(true))));
    let month = 30 * 24 * 3_600_000;
    let (version, kept) = copy.0.read(|tx| breakers::load(tx, KEY, BEGIN + month)).expect("loaded");
    assert_eq!((version, kept), (1, None), "by the reader's clock it is forgotten");
    assert!(matches!(swap(&mut copy, BEGIN, version), Ok(CommandResult::Swapped(true))));
}
