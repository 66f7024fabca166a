//! Random interleavings of what workers, callers and time do to jobs, on a clock that the schedule moves: the tables that every copy
//! of a NATS server's log has, and the same schedules on the SQLite store, which must answer the same.
//!
//! A schedule is a few jobs and workers, and what they do in random order, late and twice as well: leases that have run out are
//! renewed and finished, what was lost is finished beside its successor, jobs are cancelled and retried meanwhile. A ledger that
//! knows nothing of states or tables holds every answer to what is promised. Whatever fails says its seed.
//!
//! Breakers that jobs share in a store are changed by compare-and-set: of three workers that read, change and write in any order
//! one is the probe, every failure counts, and what was admitted before a change of state says nothing behind it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer::time::Moment;
use sandtimer_agents::resilience::{
    BreakerSettings, BreakerSnapshot, Breakers, Failure, Judged, SharedBreakers,
};

use crate::job::{
    Cancelled, Filter, Finish, Finished, Held, JobRecord, JobResult, JobStore, LeaseRequest, Leased, Renewal,
    Status, StoreError, Submission,
};
use fastrand::Rng;
use serde_json::{Value, json};

use super::super::command::{Answer, Command, Entry, FORMAT};
use super::super::replica::{Message, Replica};
use super::submission;
use crate::SqliteJobs;
use crate::sqlite::submitting::NewJob;
use crate::sqlite::{breakers, reading};

/// Where the clock of each schedule begins: any moment after 1970.
pub(super) const BEGIN: i64 = 1_000_000;

/// What somebody does; jobs are named by their order of submission.
#[derive(Debug, Clone)]
enum Act {
    Submit(Value),
    Lease { worker: usize, slots: usize, lease: i64 },
    Renew { job: usize, epoch: u64, lease: i64 },
    Finish { job: usize, epoch: u64, status: Status, again: bool },
    Cancel(usize),
    Retry(usize),
    Sweep,
}

/// What it is told.
#[derive(Debug, PartialEq)]
enum Said {
    Submitted,
    Leased(Vec<Handed>),
    Renewed(Renewal),
    Finished(Finished),
    Cancelled(Cancelled),
    Retried(bool),
    Swept,
}

/// A job that was handed out.
#[derive(Debug, PartialEq)]
struct Handed {
    job: usize,
    epoch: u64,
    deadline: Option<i64>,
    deliveries: u32,
}

/// A store whose clock stands still.
pub(super) trait Stopped {
    fn submit(&mut self, now: i64, one: Submission) -> String;
    fn lease(&mut self, now: i64, request: LeaseRequest) -> Vec<Leased>;
    fn renew(&mut self, now: i64, held: Held, lease: Duration) -> Renewal;
    fn finish(&mut self, now: i64, finish: Finish) -> Finished;
    fn cancel(&mut self, now: i64, id: &str) -> Cancelled;
    /// Whether it is queued again.
    fn retry(&mut self, now: i64, id: &str) -> bool;
    fn sweep(&mut self, now: i64);
    fn get(&mut self, now: i64, id: &str) -> JobRecord;
    fn purge(&mut self, now: i64) -> u64;
}

/// A copy of the tables, told by messages of a log.
#[derive(Debug)]
pub(super) struct Copied(pub Replica);

impl Copied {
    fn tell(&mut self, now: i64, command: Command) -> Result<Answer, StoreError> {
        let payload = serde_json::to_vec(&Entry { until_ms: None, command }).expect("written");
        let sequence = self.0.place().0 + 1;
        let id = sequence.to_string();
        let message =
            Message { sequence, at_ms: now, format: FORMAT, id: &id, part: (1, 1), payload: &payload };
        self.0.apply(&message).expect("applied").expect("a command")
    }
}

macro_rules! answer {
    ($told:expr, $kind:ident) => {
        match $told.expect("done") {
            Answer::$kind(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
}

impl Stopped for Copied {
    fn submit(&mut self, now: i64, one: Submission) -> String {
        answer!(self.tell(now, Command::Submit(vec![NewJob::of(&one)])), Submitted).remove(0).id
    }
    fn lease(&mut self, now: i64, request: LeaseRequest) -> Vec<Leased> {
        answer!(self.tell(now, Command::Lease(request)), Leased)
    }
    fn renew(&mut self, now: i64, held: Held, lease: Duration) -> Renewal {
        answer!(self.tell(now, Command::Renew { held: vec![held], lease }), Renewed).remove(0)
    }
    fn finish(&mut self, now: i64, finish: Finish) -> Finished {
        answer!(self.tell(now, Command::Finish(vec![finish])), Finished).remove(0)
    }
    fn cancel(&mut self, now: i64, id: &str) -> Cancelled {
        let (id, reason) = (id.to_owned(), "not wanted".to_owned());
        answer!(self.tell(now, Command::Cancel { id, reason }), Cancelled)
    }
    fn retry(&mut self, now: i64, id: &str) -> bool {
        match self.tell(now, Command::Retry(id.to_owned())) {
            Ok(Answer::State(_)) => true,
            Err(StoreError::WrongState { .. }) => false,
            other => panic!("{other:?}"),
        }
    }
    fn sweep(&mut self, now: i64) {
        self.tell(now, Command::Sweep).expect("done");
    }
    fn get(&mut self, now: i64, id: &str) -> JobRecord {
        self.0.read(|tx| reading::get(tx, id, now)).expect("readable").expect("there")
    }
    fn purge(&mut self, now: i64) -> u64 {
        answer!(self.tell(now, Command::Purge(Filter::default())), Count)
    }
}

impl Stopped for SqliteJobs {
    fn submit(&mut self, now: i64, one: Submission) -> String {
        JobStore::submit(self.stopped_at(now), &[one]).expect("submitted").remove(0).id
    }
    fn lease(&mut self, now: i64, request: LeaseRequest) -> Vec<Leased> {
        JobStore::lease(self.stopped_at(now), &request).expect("leased")
    }
    fn renew(&mut self, now: i64, held: Held, lease: Duration) -> Renewal {
        JobStore::renew(self.stopped_at(now), &[held], lease).expect("renewed").remove(0)
    }
    fn finish(&mut self, now: i64, finish: Finish) -> Finished {
        JobStore::finish(self.stopped_at(now), &[finish]).expect("finished").remove(0)
    }
    fn cancel(&mut self, now: i64, id: &str) -> Cancelled {
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
struct Playing<'a> {
    store: &'a mut dyn Stopped,
    ids: Vec<String>,
    numbers: HashMap<String, usize>,
}

fn span(milliseconds: i64) -> Duration {
    Duration::from_millis(milliseconds.unsigned_abs())
}

fn request(worker: usize, slots: usize, lease: i64) -> LeaseRequest {
    let (worker, lease) = (format!("w{worker}"), span(lease));
    LeaseRequest { worker, slots, queues: Vec::new(), only: None, lease, memory: None }
}

/// So that it is seen whose result it is.
fn result(status: Status, epoch: u64) -> JobResult {
    JobResult::bare(status, Some(format!("of epoch {epoch}")))
}

impl<'a> Playing<'a> {
    fn on(store: &'a mut dyn Stopped) -> Self {
        Playing { store, ids: Vec::new(), numbers: HashMap::new() }
    }

    fn play(&mut self, now: i64, act: &Act) -> Said {
        let held = |job: usize, epoch| Held { id: self.ids[job].clone(), epoch };
        match act {
            Act::Submit(spec) => {
                let id = self.store.submit(now, submission(spec.clone()));
                self.numbers.insert(id.clone(), self.ids.len());
                self.ids.push(id);
                Said::Submitted
            }
            Act::Lease { worker, slots, lease } => {
                let leased = self.store.lease(now, request(*worker, *slots, *lease));
                let handed = |one: Leased| Handed {
                    job: self.numbers[&one.held.id],
                    epoch: one.held.epoch,
                    deadline: one.deadline_ms.map(|deadline| deadline as i64),
                    deliveries: one.deliveries,
                };
                Said::Leased(leased.into_iter().map(handed).collect())
            }
            Act::Renew { job, epoch, lease } => {
                Said::Renewed(self.store.renew(now, held(*job, *epoch), span(*lease)))
            }
            Act::Finish { job, epoch, status, again } => {
                let (held, result) = (held(*job, *epoch), result(*status, *epoch));
                Said::Finished(self.store.finish(now, Finish { held, result, again: *again, pause_ms: 0 }))
            }
            Act::Cancel(job) => Said::Cancelled(self.store.cancel(now, &self.ids[*job])),
            Act::Retry(job) => Said::Retried(self.store.retry(now, &self.ids[*job])),
            Act::Sweep => {
                self.store.sweep(now);
                Said::Swept
            }
        }
    }
}

/// What is known of a job from what was said of it.
#[derive(Debug, Default)]
struct Known {
    wall: Option<i64>,
    deadline: Option<i64>,
    deliveries: u32,
    /// Of these one at a time goes on.
    key: Option<String>,
    epoch: u64,
    /// Until when nobody else may have it.
    until: Option<i64>,
    /// Nobody may have it before then, for it could not be executed.
    not_before: i64,
    /// The result that was said to be recorded.
    recorded: Option<(Status, u64)>,
}

#[derive(Debug, Default)]
struct Ledger(Vec<Known>);

impl Ledger {
    /// Holds an answer to what is promised.
    fn note(&mut self, now: i64, act: &Act, said: &Said) {
        match (act, said) {
            (Act::Submit(spec), Said::Submitted) => {
                let wall = spec["wall_ms"].as_i64();
                let count = |value: &Value| value.as_u64().unwrap_or(0);
                let key =
                    spec.get("concurrency").map(|one| one["key"].as_str().unwrap_or_default().to_owned());
                let deliveries = count(&spec["deliveries"]) as u32;
                let deadline = wall.map(|wall| now + wall);
                self.0.push(Known { wall, deadline, deliveries, key, ..Known::default() });
            }
            (Act::Lease { slots, lease, .. }, Said::Leased(handed)) => {
                assert!(handed.len() <= *slots, "more than there are slots");
                handed.iter().for_each(|one| self.hand_out(now, one, now + lease));
            }
            (Act::Renew { job, epoch, lease }, Said::Renewed(renewal)) => {
                let known = &mut self.0[*job];
                let is_current = *epoch == known.epoch && known.until.is_some();
                if *renewal == Renewal::Lost {
                    assert!(!is_current || known.until <= Some(now), "a lease that lasts was lost");
                } else {
                    assert!(is_current, "a lease was kept that is over");
                    known.until = Some(now + lease);
                }
            }
            (Act::Finish { job, epoch, status, .. }, Said::Finished(finished)) => {
                let known = &mut self.0[*job];
                let is_current = *epoch == known.epoch && known.until.is_some();
                if *finished == Finished::Duplicate {
                    assert!(!is_current || known.until <= Some(now), "a lease that lasts was lost");
                    return;
                }
                assert!(is_current, "a lease that is over has ended its job");
                known.until = None;
                if *status == Status::InfraError {
                    known.not_before = now + 1_000;
                }
                if *finished == Finished::Recorded {
                    assert_eq!(known.recorded.replace((*status, *epoch)), None, "two results were recorded");
                }
            }
            (Act::Cancel(job), Said::Cancelled(cancelled)) => {
                let known = &mut self.0[*job];
                match cancelled {
                    Cancelled::Cancelled => {
                        assert!(known.until.is_none_or(|until| until <= now), "its worker was not asked");
                        assert_eq!(known.recorded.replace((Status::Cancelled, 0)), None, "it was over");
                        known.until = None;
                    }
                    Cancelled::Asked => assert!(known.until.is_some(), "nobody has it"),
                    Cancelled::TooLate => {}
                }
            }
            (Act::Retry(job), Said::Retried(is_queued)) => {
                let known = &mut self.0[*job];
                if *is_queued {
                    assert!(known.until.is_none_or(|until| until <= now), "it goes on");
                    assert!(known.recorded.is_none_or(|(status, _)| status != Status::Ok), "it succeeded");
                    (known.until, known.recorded, known.not_before) = (None, None, 0);
                    known.deadline = known.wall.map(|wall| now + wall);
                }
            }
            (Act::Sweep, Said::Swept) => {}
            other => panic!("{other:?}"),
        }
    }

    fn hand_out(&mut self, now: i64, one: &Handed, until: i64) {
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
            let has = |other: &&Known| {
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

/// Somebody does something, to a lease of the past or the present.
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
                    (Status::Ok, false),
                    (Status::Failed, false),
                    (Status::Cancelled, false),
                    (Status::InfraError, true),
                    (Status::Drained, true),
                ],
            );
            Act::Finish { job, epoch, status, again }
        }
    }
}

/// One schedule, on all of these stores, from `now` on. When it ended.
fn schedule(seed: u64, mut now: i64, stores: &mut [&mut dyn Stopped]) -> i64 {
    let (mut random, mut ledger) = (Rng::with_seed(seed), Ledger::default());
    let mut playing: Vec<Playing<'_>> = stores.iter_mut().map(|store| Playing::on(&mut **store)).collect();
    let mut leases = Vec::new();
    let mut step = |now: i64, act: &Act, leases: &mut Vec<(usize, u64)>| {
        let mut said: Vec<Said> = playing.iter_mut().map(|playing| playing.play(now, act)).collect();
        let first = said.remove(0);
        said.iter().for_each(|other| assert_eq!(other, &first, "the stores differ in {act:?}"));
        ledger.note(now, act, &first);
        if let Said::Leased(handed) = first {
            leases.extend(handed.iter().map(|one| (one.job, one.epoch)));
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
    // Whoever has one lets it go, and what is left is brought to its end; a job is left alone for two seconds at most.
    let mut idle = 0;
    while idle < 3 {
        now += 1_000;
        let before = leases.len();
        step(now, &Act::Lease { worker: 0, slots: 9, lease: 1_000 }, &mut leases);
        for index in before..leases.len() {
            let (job, epoch) = leases[index];
            step(now, &Act::Finish { job, epoch, status: Status::Failed, again: false }, &mut leases);
        }
        idle = if leases.len() == before { idle + 1 } else { 0 };
    }
    let Ledger(known) = ledger;
    for Playing { store, ids, .. } in &mut playing {
        for (id, known) in ids.iter().zip(&known) {
            let record = store.get(now, id);
            assert!(record.line.state.is_over(), "a job was lost: {record:?}");
            let result = record.result.expect("a job that is over has a result");
            if let Some((status, epoch)) = known.recorded {
                let of = result.error.as_deref().and_then(|said| said.strip_prefix("of epoch "));
                assert_eq!(result.status, status, "another result was recorded");
                assert!(epoch == 0 || of == Some(epoch.to_string().as_str()), "another's result: {result:?}");
            }
        }
        assert_eq!(store.purge(now), jobs as u64);
    }
    now
}

/// So many schedules, one after the other.
fn schedules(count: u64, stores: &mut [&mut dyn Stopped]) {
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
    let mut copy = Copied(Replica::empty().expect("made"));
    schedules(full_or(10_000, 1_000_000), &mut [&mut copy]);
}

#[test]
fn both_stores_answer_every_interleaving_alike() {
    let place = tempfile::tempdir().expect("a directory");
    let mut file = SqliteJobs::open(place.path()).expect("opened");
    let mut copy = Copied(Replica::empty().expect("made"));
    schedules(full_or(2_000, 50_000), &mut [&mut copy, &mut file]);
}

/// A clock of the engine's that goes with the store's.
fn moment(now: i64) -> Moment {
    Moment::from_nanos(now.unsigned_abs() * 1_000_000)
}

const KEY: &str = "calculator:calculate";

/// The breakers of a copy, and its clock.
#[derive(Debug)]
struct Kept(Mutex<(Copied, i64)>);

impl Kept {
    fn pass(&self, milliseconds: i64) -> Moment {
        let mut copy = self.0.lock().expect("whole");
        copy.1 += milliseconds;
        moment(copy.1)
    }
}

impl SharedBreakers for Kept {
    fn load(&self, key: &str) -> Option<(u64, Option<BreakerSnapshot>)> {
        let mut copy = self.0.lock().expect("whole");
        let now = copy.1;
        Some(copy.0.0.read(|tx| breakers::load(tx, key, now)).expect("loaded"))
    }

    fn swap(&self, version: u64, snapshot: &BreakerSnapshot) -> Option<bool> {
        let mut copy = self.0.lock().expect("whole");
        let now = copy.1;
        match copy.0.tell(now, Command::SwapBreaker { version, snapshot: snapshot.clone() }) {
            Ok(Answer::Swapped(is_kept)) => Some(is_kept),
            other => panic!("{other:?}"),
        }
    }
}

/// Jobs on several workers share a breaker: as if there were one for all of them.
#[test]
fn breakers_in_a_store_count_every_failure_and_hear_nothing_of_what_was_before() {
    let (open, most_open) = (Duration::from_secs(1), Duration::from_secs(8));
    let probe = Duration::from_millis(500);
    let settings = BreakerSettings { consecutive: Some(3), rate: None, open, most_open, successes: 2, probe };
    let (mut counted, mut late) = (0, 0);
    for seed in 0..full_or(100, 5_000) {
        let kept = Arc::new(Kept(Mutex::new((Copied(Replica::empty().expect("made")), BEGIN))));
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
            let judged = if fails { Judged::Failure(Failure::new("no")) } else { Judged::Success };
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
fn a_breaker_is_changed_also_where_the_clock_of_the_log_is_behind_the_readers() {
    let mut copy = Copied(Replica::empty().expect("made"));
    let mut breakers_here = Breakers::new(BreakerSettings::default(), 1);
    breakers_here.hold(KEY, None, moment(BEGIN));
    let snapshot = breakers_here.snapshot(moment(BEGIN)).remove(0);
    let swap = |copy: &mut Copied, now, version| {
        copy.tell(now, Command::SwapBreaker { version, snapshot: snapshot.clone() })
    };
    assert!(matches!(swap(&mut copy, BEGIN, 0), Ok(Answer::Swapped(true))));
    let month = 30 * 24 * 3_600_000;
    let (version, kept) = copy.0.read(|tx| breakers::load(tx, KEY, BEGIN + month)).expect("loaded");
    assert_eq!((version, kept), (1, None), "by the reader's clock it is forgotten");
    assert!(matches!(swap(&mut copy, BEGIN, version), Ok(Answer::Swapped(true))));
}
