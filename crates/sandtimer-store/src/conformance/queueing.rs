//! What every store of jobs must do with rates, jobs that wait for others, and keys that failures release.

use std::time::Duration;

use sandtimer::job::{Cancelled, Filter, JobState, Status, StoreError, Submission};
use serde_json::{Value, json};

use super::{LONG, Part};

fn submit_together(part: &Part<'_>, specs: &[Value]) -> Vec<String> {
    let submissions: Vec<Submission> = specs.iter().map(|spec| part.submission(spec.clone())).collect();
    part.store.submit(&submissions).expect("submitted").into_iter().map(|one| one.id).collect()
}

fn finish_one(part: &Part<'_>, status: Status) -> String {
    let leased = part.lease(1).remove(0);
    part.finish(&leased.held, status, false);
    leased.held.id
}

pub(super) fn rate_spreads_starts(part: &Part<'_>) {
    // One each 400 ms; as the slack is a second, three may start at once.
    let rate = json!({"rate": {"key": part.name, "most": 5, "per_ms": 2_000}});
    let ids: Vec<String> = (0..6).map(|_| part.submit(rate.clone())).collect();
    let first = part.lease(10);
    assert_eq!(
        first.iter().map(|leased| &leased.held.id).collect::<Vec<_>>(),
        ids[..3].iter().collect::<Vec<_>>()
    );
    assert!(part.lease(10).is_empty(), "their time has not come");
    (part.pass)(Duration::from_millis(450));
    let soon = part.lease(10).len();
    assert!(soon >= 1);
    (part.pass)(Duration::from_millis(850));
    assert_eq!(3 + soon + part.lease(10).len(), 6, "all have started");
    // Another key has its own rate.
    let other = part.submit(json!({"rate": {"key": "another", "most": 1, "per_ms": 60_000}}));
    assert_eq!(part.ids(10), [other]);
}

pub(super) fn rate_outlives_cancelled_jobs(part: &Part<'_>) {
    // One each hour: one may start at once.
    let rate = json!({"rate": {"key": part.name, "most": 1, "per_ms": 3_600_000}});
    let (first, second, third) =
        (part.submit(rate.clone()), part.submit(rate.clone()), part.submit(rate.clone()));
    assert_eq!(part.store.cancel(&first, "test").expect("cancelled"), Cancelled::Cancelled);
    assert_eq!(part.ids(10), [second], "a job that did not start has no share");
    assert!(part.ids(10).is_empty());
    assert_eq!(part.state(&third), JobState::Queued);
    assert_eq!(part.store.cancel(&third, "test").expect("cancelled"), Cancelled::Cancelled);
    // With a concurrency key: what a key holds back has no share of the rate either.
    let both =
        |key: &str| json!({"rate": {"key": "both", "most": 1_000}, "concurrency": {"key": key, "most": 1}});
    let (first, second, other) = (part.submit(both("x")), part.submit(both("x")), part.submit(both("y")));
    assert_eq!(part.ids(10), [first.clone(), other.clone()]);
    for leased in [first, other] {
        let held = sandtimer::job::Held { id: leased, epoch: 1 };
        part.finish(&held, Status::Ok, false);
    }
    assert_eq!(part.ids(10), [second]);
}

pub(super) fn job_waits_for_others(part: &Part<'_>) {
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
    assert_eq!(finish_one(part, Status::Ok), ids[1]);
    assert_eq!(finish_one(part, Status::Ok), ids[2]);
    assert_eq!(finish_one(part, Status::Ok), ids[0]);
    // Of jobs that have ended already nothing is waited for.
    let late = part.submit(json!({"after": [ids[0], ids[1], ids[0]]}));
    assert_eq!(part.ids(1), [late]);
    // Its own start counts as well.
    let delayed = part.submit(json!({"after": [ids[0]], "delay_ms": 600}));
    assert!(part.ids(1).is_empty());
    (part.pass)(Duration::from_millis(700));
    assert_eq!(part.ids(1), [delayed]);
}

pub(super) fn failure_cancels_what_waits(part: &Part<'_>) {
    let ids = submit_together(
        part,
        &[
            json!({"name": "first"}),
            json!({"name": "second", "after": ["first"]}),
            json!({"name": "third", "after": ["second"]}),
            json!({"name": "clean up", "after": ["third"], "after_failure": "run"}),
        ],
    );
    assert_eq!(finish_one(part, Status::Failed), ids[0]);
    assert_eq!(part.ids(10), [ids[3].clone()]);
    for id in &ids[1..3] {
        let record = part.get(id);
        assert_eq!(record.line.state, JobState::Cancelled);
        let error = record.line.error.expect("a reason");
        assert!(error.contains("which it waits for, did not succeed"), "{error}");
    }
    assert!(part.get(&ids[1]).line.error.expect("a reason").contains(&ids[0]));
    // A job that was cancelled while it waited is let go by nothing any more, and can be retried at once.
    let ids = submit_together(part, &[json!({"name": "a"}), json!({"name": "b", "after": ["a"]})]);
    assert_eq!(part.store.cancel(&ids[1], "test").expect("cancelled"), Cancelled::Cancelled);
    assert_eq!(finish_one(part, Status::Ok), ids[0]);
    assert!(part.ids(1).is_empty());
    assert_eq!(part.store.retry(&ids[1]).expect("retried"), JobState::Queued);
    assert_eq!(part.ids(1), [ids[1].clone()]);
}

pub(super) fn unknown_predecessors_are_refused(part: &Part<'_>) {
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

pub(super) fn fan_in_waits_for_a_thousand(part: &Part<'_>) {
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
            part.finish(&one.held, Status::Ok, false);
        }
        ended += leased.len();
    }
    assert_eq!(part.ids(10), [ids[1_000].clone()]);
}

pub(super) fn purged_predecessor_lets_go(part: &Part<'_>) {
    let ids = submit_together(part, &[json!({"name": "a"}), json!({"name": "b", "after": ["a"]})]);
    assert_eq!(finish_one(part, Status::Ok), ids[0]);
    let ended = Filter { owner: Some(part.name.to_owned()), ..Filter::default() };
    assert_eq!(part.store.purge(&ended).expect("purged"), 1);
    assert_eq!(part.lease_from(&[part.name], 1, LONG).remove(0).held.id, ids[1]);
}

pub(super) fn failure_releases_its_key(part: &Part<'_>) {
    let spec = json!({"idempotency_key": "k", "release_on_failure": true});
    let first = part.submit(spec.clone());
    assert_eq!(part.submit(spec.clone()), first, "it has not ended");
    assert_eq!(finish_one(part, Status::Failed), first);
    let second = part.submit(spec.clone());
    assert_ne!(second, first);
    assert_eq!(part.store.cancel(&second, "test").expect("cancelled"), Cancelled::Cancelled);
    let third = part.submit(spec.clone());
    assert_ne!(third, second);
    assert_eq!(finish_one(part, Status::Ok), third);
    assert_eq!(part.submit(spec), third, "it succeeded");
    // Without it a key stays with its job.
    let plain = json!({"idempotency_key": "plain"});
    let failed = part.submit(plain.clone());
    assert_eq!(finish_one(part, Status::Failed), failed);
    assert_eq!(part.submit(plain), failed);
}
