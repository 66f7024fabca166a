//! How long a constant stream of what is more urgent keeps the rest waiting, on a clock that the
//! test moves: a minute for each point of priority between them in one queue, and not at all
//! against another queue or another owner. On both stores' tables.

use std::time::Duration;

use crate::job::{Finish, JobResult, JobStatus, LeaseRequest, Submission};
use serde_json::json;

use super::super::command::{CommandResult, FORMAT, LogEntry, StoreCommand};
use super::super::replica::{Message, Replica};
use super::interleavings::{BEGIN, ClockedStore, ReplicaStore};
use super::submission;
use crate::SqliteJobs;
use crate::sqlite::submitting::NewJob;

/// One job of the stream each second, and a worker that does one in a second.
const SECOND: i64 = 1_000;

fn request(slots: usize) -> LeaseRequest {
    let (worker, lease) = ("w".to_owned(), Duration::from_secs(60));
    LeaseRequest { worker, slots, queues: Vec::new(), only: None, lease, memory: None, handlers: Vec::new() }
}

/// Leases this many jobs and finishes them. Returns their ids.
fn work(store: &mut dyn ClockedStore, now: i64, slots: usize) -> Vec<String> {
    let leased = store.lease(now, request(slots));
    let ids = leased.iter().map(|leased| leased.held.id.clone()).collect();
    for leased in leased {
        let result = JobResult::bare(JobStatus::Ok, None);
        store.finish(now, Finish { held: leased.held, result, again: false, pause_ms: 0 });
    }
    ids
}

/// Returns after how many seconds a job in `queue` begins, during a stream of jobs that are
/// `points` more urgent.
fn waited(store: &mut dyn ClockedStore, now: &mut i64, queue: &str, points: i64) -> i64 {
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

fn check(store: &mut dyn ClockedStore) {
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
fn long_waiting_job_comes_first_in_log() {
    check(&mut ReplicaStore(Replica::empty().expect("made")));
}

#[test]
fn long_waiting_job_comes_first_in_file() {
    let directory = tempfile::tempdir().expect("a directory");
    check(&mut SqliteJobs::open(directory.path()).expect("opened"));
}

/// Submits a job of an owner's, for a queue of that name. Its id.
fn submit_for(store: &mut dyn ClockedStore, now: i64, owner: &str, queue: &str) -> String {
    let spec = submission(json!({"queue": format!("{owner} {queue}")})).spec;
    store.submit(now, Submission { spec, owner: owner.to_owned() })
}

/// After how many jobs of others a job of bob's begins.
fn begun_after(
    store: &mut dyn ClockedStore,
    now: i64,
    mut before_each: impl FnMut(&mut dyn ClockedStore),
) -> usize {
    let wanted = submit_for(store, now, "bob", "q");
    for others in 0..50 {
        before_each(store);
        if work(store, now, 1) == [wanted.as_str()] {
            return others;
        }
    }
    panic!("bob's job is not handed out")
}

fn check_owners(store: &mut dyn ClockedStore) {
    let now = BEGIN;
    for queue in 0..25 {
        for _ in 0..8 {
            submit_for(store, now, "alice", &format!("q{queue}"));
        }
    }
    for _ in 0..4 {
        let others = begun_after(store, now, |_| {});
        assert!(others <= 1, "one of bob's begins after {others} of alice's, who has 25 queues");
    }
    let mut number = 0;
    for _ in 0..4 {
        let others = begun_after(store, now, |store| {
            number += 1;
            submit_for(store, now, "alice", &format!("a-new-{number}"));
        });
        assert!(others <= 1, "one of bob's begins after {others} of alice's, who makes new queues");
    }
    // New owners come after an owner that has waited, however many there are.
    let others = begun_after(store, now, |store| {
        number += 1;
        submit_for(store, now, &format!("an-owner-{number}"), "q");
    });
    assert!(others <= 3, "one of bob's begins after {others} of new owners");
    // Many jobs at a time: each owner has its part.
    while !work(store, now, 99).is_empty() {}
    for queue in 0..10 {
        submit_for(store, now, "alice", &format!("q{queue}"));
        submit_for(store, now, "bob", "q");
    }
    let leased = store.lease(now, request(6));
    let owners: Vec<&str> = leased.iter().map(|leased| leased.owner.as_str()).collect();
    assert_eq!(owners.iter().filter(|owner| **owner == "bob").count(), 3, "{owners:?}");
}

/// Queues of one owner take turns as before; a new one comes after those that have waited.
fn check_queues(store: &mut dyn ClockedStore) {
    let now = BEGIN;
    let mut number = 0;
    for _ in 0..5 {
        let old = submit_for(store, now, "alice", "z");
        for others in 0.. {
            number += 1;
            submit_for(store, now, "alice", &format!("a{number}"));
            assert!(others <= 2, "queue z waits behind {others} new queues");
            if work(store, now, 1) == [old.as_str()] {
                break;
            }
        }
        // Jobs that wait already have their turn before the next job of z.
        while !work(store, now, 99).is_empty() {}
    }
}

#[test]
fn owners_take_turns_whatever_queues_they_have_in_a_log() {
    check_owners(&mut ReplicaStore(Replica::empty().expect("made")));
    check_queues(&mut ReplicaStore(Replica::empty().expect("made")));
}

#[test]
fn owners_take_turns_whatever_queues_they_have_in_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    check_owners(&mut SqliteJobs::open(&directory.path().join("owners")).expect("opened"));
    check_queues(&mut SqliteJobs::open(&directory.path().join("queues")).expect("opened"));
}

#[test]
fn a_log_of_an_earlier_version_keeps_its_turns_between_queues() {
    let mut replica = Replica::empty().expect("made");
    let mut sequence = 0;
    let mut apply_command = |command: StoreCommand, format: i64| {
        sequence += 1;
        let payload = serde_json::to_vec(&LogEntry { until_ms: None, command }).expect("written");
        let message = Message {
            sequence,
            at_ms: BEGIN,
            format,
            id: &format!("c{sequence}"),
            part: (1, 1),
            payload: &payload,
        };
        replica.apply(&message).expect("applied").expect("whole").expect("performed")
    };
    let submissions = |owner: &str, queue: &str| {
        let spec = submission(json!({"queue": format!("{owner} {queue}")})).spec;
        NewJob::all(&[Submission { spec, owner: owner.to_owned() }]).expect("valid")
    };
    let mut owners = |format: i64| {
        for queue in ["a", "b", "c"] {
            apply_command(StoreCommand::Submit(submissions("alice", queue)), format);
        }
        for _ in 0..3 {
            apply_command(StoreCommand::Submit(submissions("bob", "q")), format);
        }
        let CommandResult::Leased(leased) = apply_command(StoreCommand::Lease(request(6)), format) else {
            panic!("not leased")
        };
        leased.into_iter().map(|leased| leased.owner).collect::<Vec<_>>()
    };
    assert_eq!(owners(4), ["alice", "alice", "alice", "bob", "bob", "bob"]);
    let now = owners(FORMAT);
    let pairs: Vec<bool> = now.chunks(2).map(|pair| pair[0] != pair[1]).collect();
    assert_eq!(pairs, [true; 3], "{now:?}");
}
