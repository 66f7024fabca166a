//! Workers that announce themselves.

use sandtimer::job::{LeaseRequest, LiveWorker, Status, WorkerFacts};
use serde_json::json;

use super::{LONG, Part};

pub(super) fn workers_are_listed_with_their_jobs(part: &Part<'_>) {
    let facts = |name: &str, slots, queues: &[&str]| WorkerFacts {
        name: format!("{} {name}", part.name),
        slots,
        version: "1.2.3".to_owned(),
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
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
        lease: LONG,
        memory: None,
    };
    let leased = part.store.lease(&request).expect("leased");
    let jobs = || listed().into_iter().map(|worker| worker.jobs).collect::<Vec<_>>();
    assert_eq!(jobs(), [ids.to_vec(), Vec::new()]);
    part.finish(&leased[0].held, Status::Ok, false);
    assert_eq!(jobs(), [vec![ids[1].clone()], Vec::new()]);
    let changed = WorkerFacts { slots: 8, ..one.clone() };
    part.store.announce(&changed).expect("announced");
    assert_eq!((listed().len(), listed()[0].facts.clone()), (2, changed));
    part.store.depart(&one.name).expect("removed");
    part.store.depart(&one.name).expect("it is no error that it is gone");
    assert_eq!(listed().iter().map(|worker| &worker.facts).collect::<Vec<_>>(), [&two]);
    part.finish(&leased[1].held, Status::Ok, false);
    part.store.depart(&two.name).expect("removed");
    assert!(listed().is_empty());
}
