//! Workers that announce themselves.

use std::time::Duration;

use crate::job::{
    Finish, FinishResult, JobBlocker, JobResult, JobState, JobStatus, LeaseRequest, LiveWorker,
    UnreadableSpec, WorkerFacts,
};
use serde_json::json;

use super::{ConformancePart, LONG_LEASE};

pub(super) fn returned_job_waits_for_its_pause(part: &ConformancePart<'_>) {
    let id = part.submit(json!({"deliveries": 1, "concurrency": {"key": "returned"}}));
    let next = part.submit(json!({"concurrency": {"key": "returned"}}));
    for returned in 1..=2 {
        let leased = part.lease(5);
        let held = leased.iter().find(|leased| leased.held.id == id).expect("leased").held.clone();
        let result = JobResult::bare(JobStatus::Drained, Some(format!("returned {returned}")));
        let finish = Finish { held, result, again: true, pause_ms: 1_000 };
        assert_eq!(part.store.finish(&[finish]).expect("finished"), [FinishResult::Returned]);
        let record = part.get(&id);
        assert_eq!((record.line.state, record.line.deliveries), (JobState::Scheduled, 0));
        let reason = record.earlier.last().and_then(|earlier| earlier.error.clone());
        assert_eq!(reason.as_deref(), Some(&*format!("returned {returned}")));
        if returned == 1 {
            // Its concurrency key is free in the pause.
            let other = part.lease(5).remove(0);
            assert_eq!(other.held.id, next);
            part.finish(&other.held, JobStatus::Ok, false);
        }
        assert!(part.lease(5).is_empty(), "its pause has not passed");
        (part.pass)(Duration::from_millis(1_050));
    }
    let leased = part.lease(5).remove(0);
    assert_eq!(leased.held.id, id);
    let all_ms = leased.leased_ms - leased.submitted_ms;
    assert!((2_000..=all_ms).contains(&leased.earlier_ms), "{} of {all_ms}", leased.earlier_ms);
    assert_eq!(leased.earlier_ms + leased.queued_ms, all_ms, "it was in a delivery, a pause or the queue");
    assert_eq!(part.finish(&leased.held, JobStatus::Ok, false), FinishResult::Recorded);
    // Its next end is not one of a worker that cannot read it.
    let id = part.submit(json!({}));
    let held = part.lease(5).remove(0).held;
    let unreadable = UnreadableSpec {
        worker: "w".to_owned(),
        version: "0".to_owned(),
        field: "f".to_owned(),
        problem: "unknown field".to_owned(),
    };
    let result =
        JobResult { unreadable: Some(unreadable.clone()), ..JobResult::bare(JobStatus::Drained, None) };
    let finish = Finish { held, result, again: true, pause_ms: 1_000 };
    assert_eq!(part.store.finish(&[finish]).expect("finished"), [FinishResult::Returned]);
    let due_ms = part.get(&id).line.due_ms;
    let unreadable = JobBlocker::UnreadableSpec(unreadable);
    assert_eq!(part.get(&id).blocked_by, [unreadable.clone(), JobBlocker::NotBefore { at_ms: due_ms }]);
    (part.pass)(Duration::from_millis(1_050));
    part.store.sweep().expect("swept");
    assert_eq!(part.get(&id).blocked_by[0], unreadable, "it is queued again");
    let held = part.lease(5).remove(0).held;
    assert_eq!(part.get(&id).blocked_by, []);
    assert_eq!(part.finish(&held, JobStatus::Drained, true), FinishResult::Returned);
    assert!(!part.get(&id).blocked_by.contains(&unreadable), "that worker could read it");
    let held = part.lease(5).remove(0).held;
    part.finish(&held, JobStatus::Ok, false);
    // Its rate is free, too.
    let rate = json!({"rate": {"key": format!("{} returned", part.name), "most": 1, "per_ms": 3_600_000}});
    let [first, second] = [part.submit(rate.clone()), part.submit(rate)];
    let held = part.lease(5).remove(0).held;
    assert_eq!(held.id, first);
    let result = JobResult::bare(JobStatus::Drained, Some("returned".to_owned()));
    let finish = Finish { held, result, again: true, pause_ms: 3_600_000 };
    assert_eq!(part.store.finish(&[finish]).expect("finished"), [FinishResult::Returned]);
    let other = part.lease(5).remove(0);
    assert_eq!(other.held.id, second);
    part.finish(&other.held, JobStatus::Ok, false);
}

pub(super) fn workers_are_listed_with_their_jobs(part: &ConformancePart<'_>) {
    let facts = |name: &str, slots, queues: &[&str]| WorkerFacts {
        name: format!("{} {name}", part.name),
        slots,
        version: "1.2.3".to_owned(),
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        memory_bytes: (slots > 1).then_some(1 << 30),
        handlers: Vec::new(),
    };
    let listed = || -> Vec<LiveWorker> {
        let all = part.store.workers().expect("listed").into_iter();
        all.filter(|worker| worker.facts.name.starts_with(part.name)).collect()
    };
    let (one, two) = (facts("one", 4, &[part.name, "other"]), facts("two", 1, &[]));
    // A server's clock is known here to a millisecond.
    let before = part.store.now_ms() - 5;
    for worker in [&two, &one] {
        part.store.announce(worker).expect("announced");
    }
    let found = listed();
    assert_eq!(found.iter().map(|worker| &worker.facts).collect::<Vec<_>>(), [&one, &two]);
    assert!(found.iter().all(|worker| worker.seen_ms >= before && worker.jobs.is_empty()), "{found:?}");
    let ids = [part.submit(json!({})), part.submit(json!({}))];
    let request = LeaseRequest {
        worker: one.name.clone(),
        slots: 2,
        queues: vec![part.name.to_owned()],
        only: None,
        lease: LONG_LEASE,
        memory: None,
        handlers: Vec::new(),
    };
    let leased = part.store.lease(&request).expect("leased");
    let jobs = || listed().into_iter().map(|worker| worker.jobs).collect::<Vec<_>>();
    assert_eq!(jobs(), [ids.to_vec(), Vec::new()]);
    part.finish(&leased[0].held, JobStatus::Ok, false);
    assert_eq!(jobs(), [vec![ids[1].clone()], Vec::new()]);
    let changed = WorkerFacts { slots: 8, ..one.clone() };
    part.store.announce(&changed).expect("announced");
    assert_eq!((listed().len(), listed()[0].facts.clone()), (2, changed));
    part.store.depart(&one.name).expect("removed");
    part.store.depart(&one.name).expect("it is no error that it is gone");
    assert_eq!(listed().iter().map(|worker| &worker.facts).collect::<Vec<_>>(), [&two]);
    part.finish(&leased[1].held, JobStatus::Ok, false);
    part.store.depart(&two.name).expect("removed");
    assert!(listed().is_empty());
}
