//! Webhooks: due, claimed, shared out, settled.

use std::time::Duration;

use crate::job::{
    Delivery, DeliveryResult, Destination, Filter, JobSpec, JobState, JobStatus, StoreError, Submission,
    WebhookShares,
};
use serde_json::{Value, json};

use super::{ConformancePart, LONG_LEASE};

pub(super) fn ends_are_sent_until_acknowledged(part: &ConformancePart<'_>) {
    let url = "http://host/hook";
    let id = part.submit(json!({"webhook": {"url": url, "headers": {"A": "b"}, "secret": "s"}}));
    let claim = |claim| part.store.claim_webhooks(9, claim, &WebhookShares::default()).expect("claimed");
    let settle = |delivery: &Delivery, came| part.store.settle_webhook(delivery, &came).expect("settled");
    let state = || part.get(&id).webhook.expect("there is one");
    assert_eq!((state().url.as_str(), state().attempts, state().due_ms), (url, 0, None));
    assert_eq!(part.get(&id).spec["webhook"]["secret"], true, "it is not shown");
    assert!(claim(LONG_LEASE).is_empty(), "it goes on");
    let held = part.lease(1).remove(0).held;
    part.finish(&held, JobStatus::Failed, false);
    assert!(state().due_ms.is_some());
    let first = claim(Duration::from_millis(200)).remove(0);
    assert_eq!(
        (first.id.as_str(), first.attempts, first.webhook.secret.as_deref()),
        (id.as_str(), 1, Some("s"))
    );
    assert!(claim(LONG_LEASE).is_empty(), "one has it");
    (part.pass)(Duration::from_millis(300));
    // The worker that had the claim is dead, or slow.
    let second = claim(LONG_LEASE).remove(0);
    assert_eq!((second.attempts, second.age >= Duration::from_millis(300)), (2, true));
    settle(&first, DeliveryResult::Never { error: "too late".to_owned() });
    assert_eq!(state().error, None, "its claim had run out");
    settle(&second, DeliveryResult::Again { after: Duration::ZERO, error: "busy".to_owned() });
    assert_eq!((state().error.as_deref(), state().delivered_ms), (Some("busy"), None));
    let third = claim(LONG_LEASE).remove(0);
    settle(&third, DeliveryResult::Taken);
    let taken = state();
    assert_eq!((taken.attempts, taken.due_ms, taken.error.as_deref()), (3, None, None));
    assert!(taken.delivered_ms.is_some() && claim(LONG_LEASE).is_empty());
    // A later end is delivered again, even one without a worker.
    part.store.retry(&id).expect("queued");
    part.store.cancel(&id, "enough").expect("cancelled");
    let fourth = claim(LONG_LEASE).remove(0);
    assert_eq!(fourth.attempts, 1);
    settle(&fourth, DeliveryResult::Never { error: "no".to_owned() });
    assert_eq!((state().due_ms, state().error.as_deref()), (None, Some("no")));
    assert!(claim(LONG_LEASE).is_empty());
}

pub(super) fn webhooks_are_shared_out_among_owners(part: &ConformancePart<'_>) {
    for (owner, url) in [
        ("a", "http://one/1"),
        ("a", "http://one/2"),
        ("a", "http://two/3"),
        ("a", "http://two/4"),
        ("b", "http://one:80/5"),
        ("b", "http://Two/6"),
        ("c", "http://two/7"),
    ] {
        let spec = json!({"command": ["true"], "queue": part.name, "webhook": {"url": url}});
        let spec = JobSpec::read(spec).expect("a spec");
        let submitted =
            part.store.submit(&[Submission { spec, owner: owner.to_owned() }]).expect("submitted");
        part.store.cancel(&submitted[0].id, "over").expect("cancelled");
    }
    let of = |owner: &str, host: &str| Destination { owner: owner.to_owned(), host: host.to_owned() };
    let claim = |shares: &WebhookShares| -> Vec<String> {
        let claimed = part.store.claim_webhooks(8, LONG_LEASE, shares).expect("claimed");
        claimed.into_iter().map(|delivery| delivery.owner + " " + &delivery.webhook.url).collect()
    };
    let mut shares = WebhookShares { each: 2, under_way: vec![of("b", "x")], paused: vec![of("c", "two")] };
    // Of each owner the first, then the second; `b` has one already, and `c` failed there.
    assert_eq!(claim(&shares), ["a http://one/1", "b http://one:80/5", "a http://one/2"]);
    shares.under_way = vec![of("d", "two"), of("e", "x")];
    shares.paused.clear();
    assert_eq!(claim(&shares), ["a http://two/3"], "the host has its share then");
    assert_eq!(claim(&WebhookShares::default()), ["a http://two/4", "b http://Two/6", "c http://two/7"]);
}

pub(super) fn returned_webhook_counts_no_attempt_and_keeps_its_error(part: &ConformancePart<'_>) {
    let id = part.submit(json!({"webhook": {"url": "http://private/"}}));
    part.store.cancel(&id, "over").expect("cancelled");
    let claim = || part.claim_own(LONG_LEASE).remove(0);
    let settle = |delivery: &Delivery, came| part.store.settle_webhook(delivery, &came).expect("settled");
    let returned = |error: &str| DeliveryResult::Returned { after: Duration::ZERO, error: error.to_owned() };
    let state = || part.get(&id).webhook.expect("there is one");
    settle(&claim(), returned("forbidden here"));
    let waiting = state();
    assert_eq!((waiting.attempts, waiting.error.as_deref()), (0, Some("forbidden here")));
    assert!(waiting.due_ms.is_some() && waiting.delivered_ms.is_none(), "{waiting:?}");
    let second = claim();
    assert_eq!((second.attempts, second.returns), (1, 1));
    settle(&second, DeliveryResult::Again { after: Duration::ZERO, error: "busy".to_owned() });
    settle(&claim(), returned("forbidden here"));
    assert_eq!((state().attempts, state().error.as_deref()), (1, Some("busy")), "an attempt found it");
    let fourth = claim();
    assert_eq!((fourth.attempts, fourth.returns), (2, 2));
    settle(&fourth, DeliveryResult::Taken);
    assert_eq!((state().attempts, state().error), (2, None));
}

pub(super) fn paused_destinations_hide_no_other_webhook(part: &ConformancePart<'_>) {
    let submit = |url: String| {
        let id = part.submit(json!({"webhook": {"url": url}}));
        part.store.cancel(&id, "over").expect("cancelled");
        id
    };
    // More of one owner than a claim inspects.
    for number in 0..70 {
        submit(format!("http://Forbidden/{number}"));
    }
    let open = submit("http://open/".to_owned());
    let forbidden = Destination { owner: part.name.to_owned(), host: "forbidden".to_owned() };
    let shares = WebhookShares { each: 2, under_way: Vec::new(), paused: vec![forbidden] };
    let claim = || part.store.claim_webhooks(9, LONG_LEASE, &shares).expect("claimed");
    assert_eq!(claim().into_iter().map(|delivery| delivery.id).collect::<Vec<_>>(), [open]);
    assert!(claim().is_empty());
    let filter = Filter { queue: Some(part.name.to_owned()), ..Filter::default() };
    for delivery in part.claim_own(LONG_LEASE) {
        part.store.settle_webhook(&delivery, &DeliveryResult::Taken).expect("settled");
    }
    assert_eq!(part.store.purge(&filter).expect("purged"), 71);
}

pub(super) fn webhook_outlives_its_jobs_record(part: &ConformancePart<'_>) {
    let hook = json!({"url": "http://host/", "secret": "s"});
    let claim = |claim| part.claim_own(claim);
    let settle = |delivery: &Delivery, came| part.store.settle_webhook(delivery, &came).expect("settled");
    let filter = Filter { queue: Some(part.name.to_owned()), ..Filter::default() };
    let purged = part.submit(json!({"name": "purged", "webhook": hook}));
    part.finish(&part.lease(1).remove(0).held, JobStatus::Failed, false);
    let first = claim(LONG_LEASE).remove(0);
    assert_eq!(first.body, None, "the record is there");
    assert_eq!(part.store.purge(&filter).expect("purged"), 1);
    assert!(part.store.get(&purged).expect("readable").is_none());
    let expired = part.submit(json!({"name": "expired", "webhook": hook, "retention_ms": 50}));
    part.finish(&part.lease(1).remove(0).held, JobStatus::Ok, false);
    (part.pass)(Duration::from_millis(70));
    part.store.sweep().expect("swept");
    assert!(part.store.get(&expired).expect("readable").is_none());
    // What was claimed before the purge is settled as ever.
    settle(&first, DeliveryResult::Again { after: Duration::ZERO, error: "busy".to_owned() });
    let mut left = claim(LONG_LEASE);
    left.sort_by_key(|delivery| delivery.attempts);
    let names = |delivery: &Delivery| {
        let body: Value = serde_json::from_slice(delivery.body.as_ref().expect("a body")).expect("JSON");
        (body["name"].clone(), body["result"]["status"].clone())
    };
    assert_eq!(left.iter().map(|delivery| delivery.id.clone()).collect::<Vec<_>>(), [expired, purged]);
    assert_eq!(names(&left[0]), (json!("expired"), json!("ok")));
    assert_eq!(names(&left[1]), (json!("purged"), json!("failed")));
    assert_eq!((left[1].owner.as_str(), left[1].webhook.secret.as_deref()), (part.name, Some("s")));
    settle(&left[0], DeliveryResult::Taken);
    settle(&left[1], DeliveryResult::Never { error: "no".to_owned() });
    assert!(claim(LONG_LEASE).is_empty(), "nothing is left of them");
    // A settled webhook goes with its record.
    let done = part.submit(json!({"webhook": hook}));
    part.store.cancel(&done, "over").expect("cancelled");
    settle(&claim(LONG_LEASE).remove(0), DeliveryResult::Taken);
    assert_eq!(part.store.purge(&filter).expect("purged"), 1);
    assert!(claim(LONG_LEASE).is_empty());
}

pub(super) fn webhook_sends_the_ends_that_it_names(part: &ConformancePart<'_>) {
    let finish = |events: Value, status, again| {
        let hook = json!({"url": "http://host/", "events": events});
        let id = part.submit(json!({"webhook": hook, "deliveries": 1}));
        part.finish(&part.lease(1).remove(0).held, status, again);
        id
    };
    let all = json!(["ok", "failed", "timeout", "budget", "cancelled", "dead"]);
    for (name, status, again) in [
        ("ok", JobStatus::Ok, false),
        ("failed", JobStatus::Failed, false),
        ("timeout", JobStatus::Timeout, false),
        ("budget", JobStatus::Budget, false),
        ("cancelled", JobStatus::Cancelled, false),
        ("dead", JobStatus::InfraError, true),
    ] {
        let chosen = finish(json!([name]), status, again);
        let claimed = part.claim_own(LONG_LEASE);
        assert_eq!(claimed.iter().map(|one| &one.id).collect::<Vec<_>>(), [&chosen], "{name}");
        part.store.settle_webhook(&claimed[0], &DeliveryResult::Taken).expect("settled");
        let mut others = all.clone();
        others.as_array_mut().expect("a list").retain(|other| other != name);
        let other = finish(others, status, again);
        assert!(part.claim_own(LONG_LEASE).is_empty(), "{name}");
        let state = part.get(&other).webhook.expect("there is one");
        assert_eq!((state.attempts, state.due_ms, state.delivered_ms), (0, None, None), "{name}");
        let error = state.error.expect("a reason");
        assert!(error.contains(&format!("`{name}`")) && error.contains("`events`"), "{error}");
    }
    // Another end of the same job may be one that is named.
    let id = finish(json!(["ok"]), JobStatus::Failed, false);
    part.store.retry(&id).expect("queued");
    part.finish(&part.lease(1).remove(0).held, JobStatus::Ok, false);
    assert_eq!(part.claim_own(LONG_LEASE).remove(0).id, id);
    assert_eq!(part.get(&id).webhook.expect("there is one").error, None);
}

pub(super) fn webhook_is_redelivered_by_hand(part: &ConformancePart<'_>) {
    let settle = |delivery: &Delivery, came| part.store.settle_webhook(delivery, &came).expect("settled");
    let refused = |id: &str| part.store.redeliver_webhook(id).expect_err("refused");
    assert!(matches!(refused("none"), StoreError::Unknown(_)));
    let without = part.submit(json!({}));
    part.store.cancel(&without, "over").expect("cancelled");
    assert!(refused(&without).to_string().contains("it has no `webhook`"), "{}", refused(&without));
    let hook = json!({"url": "http://host/", "events": ["ok"]});
    let id = part.submit(json!({"webhook": hook}));
    assert!(matches!(refused(&id), StoreError::WrongState { state: JobState::Queued, .. }));
    part.finish(&part.lease(1).remove(0).held, JobStatus::Ok, false);
    let ended = part.get(&id).line.ended_ms.expect("over");
    let first = part.claim_own(LONG_LEASE).remove(0);
    assert_eq!((first.ended_ms, first.message_id()), (ended, format!("{id}-{ended}")));
    settle(&first, DeliveryResult::Never { error: "no".to_owned() });
    (part.pass)(Duration::from_millis(400));
    let state = part.store.redeliver_webhook(&id).expect("due");
    assert_eq!((state.attempts, state.error, state.due_ms.is_some()), (0, None, true));
    let second = part.claim_own(LONG_LEASE).remove(0);
    assert_eq!((second.attempts, second.message_id()), (1, first.message_id()), "it is the same end");
    assert!(second.age < Duration::from_millis(400), "its time counts from then: {:?}", second.age);
    // While one is under way another one is sent, and the result of the first does not count.
    part.store.redeliver_webhook(&id).expect("due");
    settle(&second, DeliveryResult::Never { error: "late".to_owned() });
    settle(&part.claim_own(LONG_LEASE).remove(0), DeliveryResult::Taken);
    let taken = part.get(&id).webhook.expect("there is one");
    assert!(taken.delivered_ms.is_some() && taken.error.is_none(), "{taken:?}");
    // An end that is not among its events is sent on request.
    let unnamed = part.submit(json!({"webhook": hook}));
    part.store.cancel(&unnamed, "over").expect("cancelled");
    assert!(part.claim_own(LONG_LEASE).is_empty());
    part.store.redeliver_webhook(&unnamed).expect("due");
    let asked = part.claim_own(LONG_LEASE).remove(0);
    assert_eq!(asked.id, unnamed);
    settle(&asked, DeliveryResult::Taken);
    // Another end is another message, and its time counts from itself.
    part.store.retry(&unnamed).expect("queued");
    (part.pass)(Duration::from_millis(50));
    part.finish(&part.lease(1).remove(0).held, JobStatus::Ok, false);
    let next = part.claim_own(LONG_LEASE).remove(0);
    assert!(next.message_id() != asked.message_id() && next.age < Duration::from_secs(20));
    // A webhook that is due when its record is removed is still sent.
    part.store.redeliver_webhook(&unnamed).expect("due");
    let filter = Filter { queue: Some(part.name.to_owned()), ..Filter::default() };
    part.store.purge(&filter).expect("purged");
    let last = part.claim_own(LONG_LEASE).remove(0);
    assert_eq!((last.message_id(), last.body.is_some()), (next.message_id(), true));
    settle(&last, DeliveryResult::Taken);
}
