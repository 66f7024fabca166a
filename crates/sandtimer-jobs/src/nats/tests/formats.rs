//! Commands by the version and the moment of the log.

use std::time::Duration;

use crate::job::{JobLease, LeaseRequest, WorkerFacts};
use serde_json::json;

use super::super::command::{CommandResult, FORMAT, LogEntry, StoreCommand};
use super::super::replica::{Message, Replica};
use super::submit;
use crate::sqlite::{reading, workers};

/// Applies a command as a message of this version of the log.
fn apply(replica: &mut Replica, format: i64, command: StoreCommand) -> CommandResult {
    let payload = serde_json::to_vec(&LogEntry { until_ms: None, command }).expect("written");
    let sequence = replica.position().0 + 1;
    let at_ms = 1_000 * sequence as i64;
    let message = Message { sequence, at_ms, format, id: "c", part: (1, 1), payload: &payload };
    replica.apply(&message).expect("applied").expect("whole").expect("done")
}

#[test]
fn pieces_of_logs_have_times_from_version_8_on() {
    let mut replica = Replica::empty().expect("opened");
    apply(&mut replica, 7, submit(json!({})));
    let (worker, lease) = ("w".to_owned(), Duration::from_secs(60));
    let request = LeaseRequest {
        worker,
        slots: 1,
        queues: Vec::new(),
        only: None,
        lease,
        memory: None,
        handlers: Vec::new(),
    };
    let CommandResult::Leased(leased) = apply(&mut replica, 7, StoreCommand::Lease(request)) else {
        panic!("no lease")
    };
    let held: JobLease = leased[0].held.clone();
    for (format, bytes) in [(7, b"old\n"), (FORMAT, b"new\n")] {
        apply(&mut replica, format, StoreCommand::AppendLog { held: held.clone(), bytes: bytes.to_vec() });
    }
    let log = replica.read(|tx| reading::read_log(tx, &held.id, 0, 99)).expect("readable");
    let pieces: Vec<(Option<u64>, &[u8])> = log.pieces().collect();
    assert_eq!(pieces, [(None, b"old\n".as_slice()), (Some(4_000), b"new\n")]);
}

#[test]
fn worker_is_live_for_90_s_of_the_logs_time() {
    let mut replica = Replica::empty().expect("opened");
    let facts = WorkerFacts {
        name: "w".to_owned(),
        slots: 2,
        version: "1".to_owned(),
        queues: vec!["q".to_owned()],
        memory_bytes: Some(1 << 30),
        handlers: Vec::new(),
    };
    apply(&mut replica, FORMAT, StoreCommand::Announce(facts.clone()));
    let live = |replica: &mut Replica, now| replica.read(|tx| workers::live(tx, now)).expect("readable");
    let listed = live(&mut replica, 90_999);
    assert_eq!((listed.len(), &listed[0].facts, listed[0].seen_ms), (1, &facts, 1_000));
    assert!(live(&mut replica, 91_000).is_empty());
    apply(&mut replica, FORMAT, StoreCommand::Depart("w".to_owned()));
    assert!(live(&mut replica, 2_000).is_empty());
}
