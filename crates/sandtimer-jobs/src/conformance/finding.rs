//! Jobs by the beginning of their ids, and by filters.

use std::collections::BTreeSet;

use crate::job::{
    CancelResult, Filter, JobState, JobStatus, ShownState, Submission, each_open, each_retried, requeue_dead,
};
use serde_json::json;

use super::ConformancePart;

pub(super) fn jobs_are_found_by_the_beginning_of_their_ids(part: &ConformancePart<'_>) {
    let ids: BTreeSet<String> = (0..40).map(|_| part.submit(json!({"name": "found"}))).collect();
    let find = |prefix: &str, most| -> Vec<String> {
        part.store.find(prefix, most).expect("found").into_iter().map(|line| line.id).collect()
    };
    for id in &ids {
        assert_eq!(find(id, 9), [id.as_str()]);
        let own: Vec<String> = find(&id[..1], 10_000).into_iter().filter(|id| ids.contains(id)).collect();
        let expected: Vec<String> = ids.iter().filter(|other| other[..1] == id[..1]).cloned().collect();
        assert_eq!(own, expected, "all that begin so, in their order");
        assert!(find(&format!("{id}0"), 9).is_empty(), "it is no longer than that");
    }
    let first = ids.first().expect("there are some");
    let line = part.store.find(first, 1).expect("found").remove(0);
    assert_eq!((line.name.as_str(), line.state), ("found", JobState::Queued));
    assert_eq!(find("", 3).len(), 3);
    // Signs of patterns are none here.
    for pattern in ["%", "*", "_", "?", "[0-9]", "'", "\u{10ffff}"] {
        assert!(find(pattern, 9).is_empty(), "{pattern}");
    }
}

pub(super) fn filter_acts_on_all_that_it_matches(part: &ConformancePart<'_>) {
    // More than a listing has at a time.
    const MANY: usize = 1_010;
    let batch: Vec<Submission> = (0..MANY).map(|_| part.submission(json!({"deliveries": 1}))).collect();
    part.store.submit(&batch).expect("submitted");
    let scheduled = part.submit(json!({"delay_ms": "1h"}));
    let leased = part.lease(4);
    part.finish(&leased[0].held, JobStatus::Ok, false);
    part.finish(&leased[1].held, JobStatus::Failed, false);
    part.finish(&leased[2].held, JobStatus::InfraError, true);
    let running = &leased[3].held;
    let filter = Filter { queue: Some(part.name.to_owned()), ..Filter::default() };
    let cancel = |name: Option<&str>| {
        let shown = name.map(|name| ShownState::from_name(name).expect("a state"));
        let mut done = Vec::new();
        each_open(part.store, &filter, shown, &mut |line| {
            done.push(part.store.cancel(&line.id, "all of them")?);
            Ok(())
        })
        .expect("cancelled");
        let count = |which| done.iter().filter(|done| **done == which).count();
        (count(CancelResult::Cancelled), count(CancelResult::Asked), count(CancelResult::TooLate))
    };
    assert_eq!(cancel(Some("scheduled")), (1, 0, 0));
    assert_eq!(part.state(&scheduled), JobState::Cancelled);
    assert_eq!(cancel(None), (MANY - 4, 1, 0));
    part.finish(running, JobStatus::Cancelled, false);
    let open = Filter { state: Some(JobState::Queued), ..filter.clone() };
    assert!(part.store.list(&open, None, 9).expect("listed").jobs.is_empty());
    let retry = |name: Option<&str>| {
        let shown = name.map(|name| ShownState::from_name(name).expect("a state"));
        let mut count = 0;
        each_retried(part.store, &filter, shown, &mut |line| part.store.retry(&line.id).map(|_| count += 1))
            .expect("retried");
        count
    };
    assert_eq!(retry(Some("failed")), 1, "one that succeeded is none of them");
    assert_eq!(requeue_dead(part.store, &filter).expect("queued"), 1);
    assert_eq!(retry(None), MANY - 4 + 2, "those that were cancelled");
    assert_eq!(retry(None), 0);
    cancel(None);
    assert_eq!(part.store.purge(&filter).expect("purged"), MANY as u64 + 1);
}
