//! How long a constant stream of what is more urgent keeps the rest waiting, on a clock that the test moves: a minute for each point
//! of priority between them in one queue, and not at all beside another queue. On both stores' tables.

use std::time::Duration;

use sandtimer::job::{Finish, JobResult, LeaseRequest, Status};
use serde_json::json;

use super::super::replica::Replica;
use super::interleavings::{BEGIN, Copied, Stopped};
use super::submission;
use crate::SqliteJobs;

/// One job of the stream each second, and a worker that does one in a second.
const SECOND: i64 = 1_000;

fn request(slots: usize) -> LeaseRequest {
    let (worker, lease) = ("w".to_owned(), Duration::from_secs(60));
    LeaseRequest { worker, slots, queues: Vec::new(), only: None, lease, memory: None }
}

/// Takes so many jobs and does them. Their ids.
fn work(store: &mut dyn Stopped, now: i64, slots: usize) -> Vec<String> {
    let leased = store.lease(now, request(slots));
    let ids = leased.iter().map(|leased| leased.held.id.clone()).collect();
    for leased in leased {
        let result = JobResult::bare(Status::Ok, None);
        store.finish(now, Finish { held: leased.held, result, again: false });
    }
    ids
}

/// After how many seconds a job begins, in `queue`, beside a stream of those that are `points` more urgent.
fn waited(store: &mut dyn Stopped, now: &mut i64, queue: &str, points: i64) -> i64 {
    let begun = *now;
    let wanted = store.submit(*now, submission(json!({"queue": queue, "priority": -50})));
    loop {
        store.submit(*now, submission(json!({"queue": "stream", "priority": points - 50})));
        if work(store, *now, 1) == [wanted.as_str()] {
            let waited = (*now - begun) / SECOND;
            // What the stream has left is no part of the next one.
            while !work(store, *now, 9).is_empty() {}
            store.purge(*now);
            return waited;
        }
        assert!(*now - begun <= points * 61 * SECOND, "it is never begun, beside {points} points more");
        *now += SECOND;
    }
}

fn check(store: &mut dyn Stopped) {
    let mut now = BEGIN;
    for points in [0, 1, 2, 5, 100] {
        assert_eq!(waited(store, &mut now, "stream", points), 60 * points, "a minute for each of {points}");
    }
    for points in [0, 100] {
        for _ in 0..20 {
            assert!(waited(store, &mut now, "quiet", points) <= 1, "queues take turns, whatever is in them");
        }
    }
}

#[test]
fn whoever_waits_long_enough_comes_first_in_the_tables_of_a_log() {
    check(&mut Copied(Replica::empty().expect("made")));
}

#[test]
fn whoever_waits_long_enough_comes_first_in_a_file() {
    let place = tempfile::tempdir().expect("a directory");
    check(&mut SqliteJobs::open(place.path()).expect("opened"));
}
