//! What every store of jobs must do with rates, jobs that wait for others, and keys that failures
//! release.

use std::time::Duration;

use crate::job::{
    CancelResult, Filter, FinishResult, JobBlocker, JobSpec, JobState, JobStatus, LeaseRequest, Room,
    StoreError, Submission, WorkerFacts,
};
use serde_json::{Value, json};

use super::{ConformancePart, LONG_LEASE};

fn submit_together(part: &ConformancePart<'_>, specs: &[Value]) -> Vec<String> {
    let submissions: Vec<Submission> = specs.iter().map(|spec| part.submission(spec.clone())).collect();
    part.store.submit(&submissions).expect("submitted").into_iter().map(|one| one.id).collect()
}

fn finish_one(part: &ConformancePart<'_>, status: JobStatus) -> String {
    let leased = part.lease(1).remove(0);
    part.finish(&leased.held, status, false);
    leased.held.id
}

pub(super) fn rate_bounds_starts_in_any_period(part: &ConformancePart<'_>) {
    let rate = json!({"rate": {"key": part.name, "most": 3, "per_ms": 3_000}});
    let ids: Vec<String> = (0..7).map(|_| part.submit(rate.clone())).collect();
    assert_eq!(part.ids(2), ids[..2]);
    (part.pass)(Duration::from_millis(1_500));
    assert_eq!(part.ids(10), ids[2..3], "one is left of the period");
    assert!(part.ids(10).is_empty());
    (part.pass)(Duration::from_millis(1_600));
    assert_eq!(part.ids(10), ids[3..5], "two starts have left the period");
    // Another key has its own rate.
    let other = part.submit(json!({"rate": {"key": "another", "most": 1, "per_ms": 60_000}}));
    assert_eq!(part.ids(10), [other]);
    (part.pass)(Duration::from_millis(3_100));
    assert_eq!(part.ids(10), ids[5..]);
}

pub(super) fn rate_is_not_held_by_jobs_that_cannot_start(part: &ConformancePart<'_>) {
    let rate = |more: Value| {
        let mut spec = json!({"rate": {"key": part.name, "most": 1, "per_ms": 3_000}});
        spec.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
        spec
    };
    // In a paused queue, and for a worker with more memory.
    let paused = part.submit(rate(json!({"queue": "rate paused"})));
    part.store.pause("rate paused", true).expect("paused");
    let large = part.submit(rate(json!({"limits": {"memory_bytes": "900G"}})));
    let small: Vec<String> = (0..2).map(|_| part.submit(rate(json!({})))).collect();
    let lease = || {
        let memory = Some(Room { free: 1 << 30, total: 1 << 30, patience: LONG_LEASE });
        let (worker, queues) = ("w".to_owned(), vec![part.name.to_owned(), "rate paused".to_owned()]);
        let request = LeaseRequest {
            worker,
            slots: 9,
            queues,
            only: None,
            lease: LONG_LEASE,
            memory,
            handlers: Vec::new(),
        };
        let leased = part.store.lease(&request).expect("leased");
        leased.into_iter().map(|one| one.held.id).collect::<Vec<_>>()
    };
    assert_eq!(lease(), small[..1]);
    (part.pass)(Duration::from_millis(3_100));
    assert_eq!(lease(), small[1..]);
    (part.pass)(Duration::from_millis(3_100));
    part.store.pause("rate paused", false).expect("not paused");
    assert_eq!(lease(), [paused]);
    assert_eq!(part.state(&large), JobState::Queued);
    part.store.cancel(&large, "test").expect("cancelled");
}

pub(super) fn rate_outlives_cancelled_jobs(part: &ConformancePart<'_>) {
    let rate = json!({"rate": {"key": part.name, "most": 1, "per_ms": 3_600_000}});
    let (first, second, third) =
        (part.submit(rate.clone()), part.submit(rate.clone()), part.submit(rate.clone()));
    assert_eq!(part.store.cancel(&first, "test").expect("cancelled"), CancelResult::Cancelled);
    let started = part.lease(10).remove(0);
    assert_eq!(started.held.id, second, "a job that did not start has no share");
    // A start counts whatever becomes of the job, and so does its next delivery.
    assert_eq!(part.finish(&started.held, JobStatus::Drained, true), FinishResult::Returned);
    assert!(part.ids(10).is_empty());
    for id in [second, third] {
        assert_eq!(part.state(&id), JobState::Queued);
        assert_eq!(part.store.cancel(&id, "test").expect("cancelled"), CancelResult::Cancelled);
    }
    // What a concurrency key holds back has no share of the rate.
    let both =
        |key: &str| json!({"rate": {"key": "both", "most": 1_000}, "concurrency": {"key": key, "most": 1}});
    let (first, second, other) = (part.submit(both("x")), part.submit(both("x")), part.submit(both("y")));
    let leased = part.lease(10);
    assert_eq!(leased.iter().map(|one| one.held.id.clone()).collect::<Vec<_>>(), [first, other]);
    for one in &leased {
        part.finish(&one.held, JobStatus::Ok, false);
    }
    assert_eq!(part.ids(10), [second]);
}

pub(super) fn retry_forgets_the_first_end(part: &ConformancePart<'_>) {
    let ids = submit_together(part, &[json!({"name": "a"}), json!({"name": "b", "after": ["a"]})]);
    assert_eq!(part.store.cancel(&ids[0], "test").expect("cancelled"), CancelResult::Cancelled);
    assert_eq!(part.store.retry(&ids[0]).expect("retried"), JobState::Queued);
    assert_eq!(part.state(&ids[1]), JobState::Cancelled, "its predecessor had ended");
    let waits = part.submit(json!({"after": [ids[0]]}));
    let runs = part.submit(json!({"after": [ids[0]], "after_failure": "run"}));
    let first = part.lease(10).remove(0);
    assert_eq!(first.held.id, ids[0]);
    assert!(part.ids(10).is_empty(), "it has not ended again");
    part.finish(&first.held, JobStatus::Ok, false);
    assert_eq!(part.ids(10), [waits, runs]);
}

pub(super) fn job_waits_for_others(part: &ConformancePart<'_>) {
    let ids = submit_together(
        part,
        &[
            json!({"name": "sum", "after": ["left", "right"]}),
            json!({"name": "left"}),
            json!({"name": "right", "after": ["left"]}),
        ],
    );
    let waiting = part.get(&ids[0]);
    assert_eq!((waiting.line.state, waiting.line.waiting_for), (JobState::Scheduled, 2));
    let others = JobBlocker::Jobs { ids: vec![ids[1].clone(), ids[2].clone()], count: 2 };
    assert_eq!(waiting.blocked_by, [others]);
    assert_eq!(finish_one(part, JobStatus::Ok), ids[1]);
    assert_eq!(finish_one(part, JobStatus::Ok), ids[2]);
    assert_eq!(finish_one(part, JobStatus::Ok), ids[0]);
    // Of jobs that have ended already nothing is waited for.
    let late = part.submit(json!({"after": [ids[0], ids[1], ids[0]]}));
    assert_eq!(part.ids(1), [late]);
    // Its own start counts as well.
    let delayed = part.submit(json!({"after": [ids[0]], "delay_ms": 2_000}));
    assert!(part.ids(1).is_empty());
    let found = part.get(&delayed);
    assert_eq!(found.blocked_by, [JobBlocker::NotBefore { at_ms: found.line.due_ms }]);
    (part.pass)(Duration::from_millis(2_100));
    assert_eq!(part.ids(1), [delayed]);
}

pub(super) fn jobs_wait_for_workers_with_their_handlers(part: &ConformancePart<'_>) {
    let handler = |name: &str, more: Value| {
        let mut source = json!({"queue": part.name, "handler": name});
        source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
        let spec = JobSpec::read(source).expect("a valid spec");
        let submission = Submission { spec, owner: part.name.to_owned() };
        part.store.submit(&[submission]).expect("submitted").remove(0).id
    };
    let lease = |slots, handlers: &[&str]| {
        let request = LeaseRequest {
            worker: "w".to_owned(),
            slots,
            queues: vec![part.name.to_owned()],
            only: None,
            lease: LONG_LEASE,
            memory: None,
            handlers: handlers.iter().map(|name| (*name).to_owned()).collect(),
        };
        let leased = part.store.lease(&request).expect("leased");
        leased.into_iter().map(|one| one.held.id).collect::<Vec<_>>()
    };
    // These come before all others, by their priority.
    let many: Vec<String> = (0..20).map(|_| handler("train", json!({"priority": 5}))).collect();
    // Lists that begin with one of the worker's handlers, and have others.
    for index in 0..50 {
        handler("train", json!({"fallback": [{"handler": format!("other {index}")}]}));
    }
    let both = handler("train", json!({"fallback": [{"handler": "a \"quoted\" one"}]}));
    let near = handler("trainer", json!({}));
    let plain = part.submit(json!({}));
    let rate = json!({"rate": {"key": part.name, "most": 1, "per_ms": 3_600_000}});
    let held_back = handler("train", rate.clone());
    let paced = part.submit(rate);
    assert_eq!(lease(9, &["other"]), [plain, paced]);
    assert_eq!(lease(9, &[]), <[String; 0]>::default());
    assert_eq!(part.get(&many[0]).line.deliveries, 0, "no worker without the handler had it");
    let worker = |handlers: &[&str]| WorkerFacts {
        name: part.name.to_owned(),
        slots: 1,
        version: "1".to_owned(),
        queues: vec![part.name.to_owned()],
        memory_bytes: None,
        handlers: handlers.iter().map(|name| (*name).to_owned()).collect(),
    };
    let blocked_by = |id| part.get(id).blocked_by;
    assert_eq!(blocked_by(&near), [JobBlocker::NoHandler { handlers: vec!["trainer".to_owned()] }]);
    part.store.announce(&worker(&["train"])).expect("announced");
    assert_eq!(blocked_by(&near), [JobBlocker::NoHandler { handlers: vec!["trainer".to_owned()] }]);
    let needed = vec!["a \"quoted\" one".to_owned(), "train".to_owned()];
    assert_eq!(blocked_by(&both), [JobBlocker::NoHandler { handlers: needed }]);
    assert_eq!(blocked_by(&many[0]), []);
    assert_eq!(lease(9, &["train"]), many[..9]);
    let quoted = "a \"quoted\" one";
    assert_eq!(lease(30, &["train", quoted]), [&many[9..], std::slice::from_ref(&both)].concat());
    assert_eq!(lease(9, &["trainer"]), [near]);
    assert_eq!(lease(9, &["train"]), <[String; 0]>::default(), "its rate is used up");
    let only = LeaseRequest {
        worker: "w".to_owned(),
        slots: 1,
        queues: Vec::new(),
        only: Some(handler("absent", json!({}))),
        lease: LONG_LEASE,
        memory: None,
        handlers: Vec::new(),
    };
    assert_eq!(part.store.lease(&only).expect("leased").len(), 1, "a request for one job gets it");
    part.store.cancel(&held_back, "it was seen").expect("cancelled");
    part.store.depart(part.name).expect("removed");
}

pub(super) fn blockers_of_queued_jobs(part: &ConformancePart<'_>) {
    let queue = || part.name.to_owned();
    let no_worker = || JobBlocker::NoWorker { queue: queue() };
    let rate = json!({"rate": {"key": "blocked", "most": 1, "per_ms": 3_600_000}});
    let (first, second) = (part.submit(rate.clone()), part.submit(rate));
    assert_eq!(part.get(&first).blocked_by, [no_worker()]);
    let worker = WorkerFacts {
        name: queue(),
        slots: 1,
        version: "1".to_owned(),
        queues: vec![queue(), "x".to_owned()],
        memory_bytes: Some(1 << 30),
        handlers: Vec::new(),
    };
    part.store.announce(&worker).expect("announced");
    assert_eq!(part.get(&first).blocked_by, []);
    let with_memory = |bytes: u64| part.submit(json!({"limits": {"memory_bytes": bytes}}));
    let (small, large) = (with_memory(1 << 30), with_memory((1 << 30) + 1));
    assert_eq!(part.get(&small).blocked_by, []);
    let memory = JobBlocker::Memory { bytes: (1 << 30) + 1, largest_bytes: 1 << 30 };
    assert_eq!(part.get(&large).blocked_by, [memory]);
    let unbounded =
        WorkerFacts { name: format!("{} unbounded", part.name), memory_bytes: None, ..worker.clone() };
    part.store.announce(&unbounded).expect("announced");
    assert_eq!(part.get(&large).blocked_by, []);
    part.store.depart(&unbounded.name).expect("removed");
    for id in [small, large] {
        part.store.cancel(&id, "it was seen").expect("cancelled");
    }
    let lease = part.lease(1).remove(0);
    assert_eq!((&lease.held.id, part.get(&first).blocked_by), (&first, Vec::new()));
    let [JobBlocker::Rate { key, at_ms: Some(at_ms) }] = &part.get(&second).blocked_by[..] else {
        panic!("{:?}", part.get(&second).blocked_by)
    };
    assert!(key == "blocked" && *at_ms > part.store.now_ms() + 3_000_000, "{key} {at_ms}");
    let one = || part.submit(json!({"concurrency": {"key": "narrow", "most": 1}}));
    let (holder, waiter) = (one(), one());
    assert_eq!(part.ids(1), std::slice::from_ref(&holder));
    assert_eq!(part.get(&waiter).blocked_by, [JobBlocker::Concurrency { key: "narrow".to_owned() }]);
    part.store.pause(part.name, true).expect("paused");
    let paused = part.get(&waiter).blocked_by;
    assert_eq!(paused[0], JobBlocker::QueuePaused { queue: queue() }, "{paused:?}");
    assert_eq!(part.get(&holder).blocked_by, [], "it is leased");
    part.store.pause(part.name, false).expect("resumed");
    part.store.depart(&worker.name).expect("removed");
}

pub(super) fn failure_cancels_what_waits(part: &ConformancePart<'_>) {
    let ids = submit_together(
        part,
        &[
            json!({"name": "first"}),
            json!({"name": "second", "after": ["first"]}),
            json!({"name": "third", "after": ["second"]}),
            json!({"name": "clean up", "after": ["third"], "after_failure": "run"}),
        ],
    );
    assert_eq!(finish_one(part, JobStatus::Failed), ids[0]);
    assert_eq!(part.ids(10), [ids[3].clone()]);
    for id in &ids[1..3] {
        let record = part.get(id);
        assert_eq!(record.line.state, JobState::Cancelled);
        let error = record.line.error.expect("a reason");
        assert!(error.contains("which it waits for, did not succeed"), "{error}");
    }
    assert!(part.get(&ids[1]).line.error.expect("a reason").contains(&ids[0]));
    // A job that was cancelled while it waited is let go by nothing any more, and can be retried at
    // once.
    let ids = submit_together(part, &[json!({"name": "a"}), json!({"name": "b", "after": ["a"]})]);
    assert_eq!(part.store.cancel(&ids[1], "test").expect("cancelled"), CancelResult::Cancelled);
    assert_eq!(finish_one(part, JobStatus::Ok), ids[0]);
    assert!(part.ids(1).is_empty());
    assert_eq!(part.store.retry(&ids[1]).expect("retried"), JobState::Queued);
    assert_eq!(part.ids(1), [ids[1].clone()]);
}

pub(super) fn unknown_predecessors_are_refused(part: &ConformancePart<'_>) {
    let refused = |after: Value, owner: &str| {
        let submission = Submission { owner: owner.to_owned(), ..part.submission(json!({"after": after})) };
        match part.store.submit(&[submission]) {
            Err(StoreError::Spec(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let known = part.submit(json!({}));
    assert_eq!(refused(json!([known, "000000000000"]), part.name).path, "after[1]");
    assert_eq!(refused(json!([known]), "another owner").path, "after[0]");
    assert_eq!(part.ids(10), [known], "nothing of what was refused is there");
}

pub(super) fn fan_in_waits_for_a_thousand(part: &ConformancePart<'_>) {
    let mut specs: Vec<Value> = (0..1_000)
        .map(|number| json!({"name": format!("part {number}"), "concurrency": {"key": "fan", "most": 50}}))
        .collect();
    let names: Vec<Value> = specs.iter().map(|spec| spec["name"].clone()).collect();
    specs.push(json!({"name": "all", "after": names}));
    let ids = submit_together(part, &specs);
    let mut ended = 0;
    while ended < 1_000 {
        let leased = part.lease(100);
        assert!((1..=50).contains(&leased.len()), "{} at a time", leased.len());
        assert!(leased.iter().all(|one| one.held.id != ids[1_000]));
        for one in &leased {
            part.finish(&one.held, JobStatus::Ok, false);
        }
        ended += leased.len();
    }
    assert_eq!(part.ids(10), [ids[1_000].clone()]);
}

pub(super) fn purged_predecessor_lets_go(part: &ConformancePart<'_>) {
    let ids = submit_together(part, &[json!({"name": "a"}), json!({"name": "b", "after": ["a"]})]);
    assert_eq!(finish_one(part, JobStatus::Ok), ids[0]);
    let ended = Filter { owner: Some(part.name.to_owned()), ..Filter::default() };
    assert_eq!(part.store.purge(&ended).expect("purged"), 1);
    assert_eq!(part.lease_from(&[part.name], 1, LONG_LEASE).remove(0).held.id, ids[1]);
}

pub(super) fn failure_releases_its_key(part: &ConformancePart<'_>) {
    let spec = json!({"idempotency_key": "k", "release_on_failure": true});
    let first = part.submit(spec.clone());
    assert_eq!(part.submit(spec.clone()), first, "it has not ended");
    assert_eq!(finish_one(part, JobStatus::Failed), first);
    let second = part.submit(spec.clone());
    assert_ne!(second, first);
    assert_eq!(part.store.cancel(&second, "test").expect("cancelled"), CancelResult::Cancelled);
    let third = part.submit(spec.clone());
    assert_ne!(third, second);
    assert_eq!(finish_one(part, JobStatus::Ok), third);
    assert_eq!(part.submit(spec), third, "it succeeded");
    // Without it a key stays with its job.
    let plain = json!({"idempotency_key": "plain"});
    let failed = part.submit(plain.clone());
    assert_eq!(finish_one(part, JobStatus::Failed), failed);
    assert_eq!(part.submit(plain), failed);
    // The flag is that of the job that has the key.
    let other = part.submission(json!({"idempotency_key": "plain", "release_on_failure": true}));
    assert!(matches!(part.store.submit(&[other]), Err(StoreError::Conflict { .. })));
}
