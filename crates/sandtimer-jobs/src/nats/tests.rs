//! The copies of the tables by themselves, and the store on a real server.

use std::path::Path;
use std::process::Command as Program;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

use crate::job::{
    Filter, Finish, FinishResult, JobLine, JobResult, JobSpec, JobState, JobStatus, JobStore, LeaseRequest,
    StoreError, Submission,
};
use rusqlite::types::Value as Sql;
use serde_json::json;

use super::command::{CommandResult, FORMAT, LogEntry, StoreCommand};
use super::replica::{Message, Replica};
use super::shared::SnapshotThresholds;
use super::{NatsAddress, NatsJobs, log_stream};
use crate::conformance;
use crate::sqlite::submitting::NewJob;

mod formats;
mod interleavings;
mod starvation;
#[path = "../../tests/support/nats.rs"]
mod support;

use support::{NatsServer, Wire, certificates, tls};

/// Lets time pass on every clock.
fn pass(time: Duration) {
    let (_open, never) = mpsc::channel::<()>();
    assert!(never.recv_timeout(time).is_err());
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = monotonic_nanoseconds();
    while !is() {
        assert!(monotonic_nanoseconds() - begun < 60_000_000_000, "never: {what}");
        pass(Duration::from_millis(20));
    }
}

fn submission(more: serde_json::Value) -> Submission {
    let mut source = json!({"command": ["true"]});
    source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
    Submission { spec: JobSpec::read(source).expect("valid"), owner: String::new() }
}

fn open(url: &str) -> NatsJobs {
    NatsJobs::open(&NatsAddress::parse(url).expect("an address"), quiet).expect("opened")
}

/// For tests that detect problems outside calls in other ways.
fn quiet(_: &str) {}

/// Snapshots after this many messages.
fn every(messages: u64) -> SnapshotThresholds {
    SnapshotThresholds { messages, bytes: u64::MAX }
}

fn open_error(url: &str) -> StoreError {
    let opened = NatsAddress::parse(url).and_then(|address| NatsJobs::open(&address, quiet));
    opened.expect_err("refused")
}

fn names(store: &NatsJobs) -> Vec<String> {
    let page = store.list(&Filter::default(), None, 1000).expect("listed");
    page.jobs.into_iter().rev().map(|line| line.name).collect()
}

/// Every row of every table.
fn everything(replica: &mut Replica) -> Vec<String> {
    let dumped = replica.read(|tx| {
        let mut tables = tx.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").expect("prepared");
        let tables: Vec<String> = tables
            .query_map([], |row| row.get(0))
            .expect("asked")
            .map(|name| name.expect("a name"))
            .collect();
        let mut rows = Vec::new();
        for table in tables {
            let mut select = tx.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).expect("prepared");
            let count = select.column_count();
            let read = |row: &rusqlite::Row<'_>| {
                (0..count).map(|index| row.get(index)).collect::<Result<Vec<Sql>, _>>()
            };
            for row in select.query_map([], read).expect("asked") {
                rows.push(format!("{table}: {:?}", row.expect("a row")));
            }
        }
        Ok(rows)
    });
    dumped.expect("read")
}

/// A log in memory, for copies by themselves.
#[derive(Default)]
struct Tape(Vec<TapedMessage>);

struct TapedMessage {
    at_ms: i64,
    id: String,
    part: (u32, u32),
    payload: Vec<u8>,
}

impl Tape {
    fn add(&mut self, at_ms: i64, command: StoreCommand) {
        let payload = serde_json::to_vec(&LogEntry { until_ms: None, command }).expect("written");
        self.add_part(at_ms, (1, 1), &payload);
    }

    fn add_part(&mut self, at_ms: i64, part: (u32, u32), payload: &[u8]) {
        let id = if part.1 > 1 { "in parts".to_owned() } else { format!("c{}", self.0.len()) };
        self.0.push(TapedMessage { at_ms, id, part, payload: payload.to_vec() });
    }

    /// Applies all messages to a copy, and returns the result of each.
    fn play(&self, replica: &mut Replica) -> Vec<Option<Result<CommandResult, StoreError>>> {
        let begun = replica.position().0;
        let mut apply = |(index, taped): (usize, &TapedMessage)| {
            let TapedMessage { at_ms, id, part, payload } = taped;
            let sequence = index as u64 + 1;
            let message = Message { sequence, at_ms: *at_ms, format: FORMAT, id, part: *part, payload };
            replica.apply(&message).expect("applied")
        };
        self.0.iter().enumerate().skip(begun as usize).map(&mut apply).collect()
    }
}

fn submit(more: serde_json::Value) -> StoreCommand {
    StoreCommand::Submit(vec![NewJob::of(&submission(more))])
}

#[test]
fn rejected_garbled_and_late_commands_only_advance_position() {
    let mut tape = Tape::default();
    tape.add(1000, submit(json!({"idempotency_key": "k"})));
    tape.add(
        2000,
        StoreCommand::Submit(vec![
            NewJob::of(&submission(json!({}))),
            NewJob::of(&submission(json!({"idempotency_key": "k", "name": "b"}))),
        ]),
    );
    tape.add_part(3000, (1, 1), b"not a command");
    let late = LogEntry { until_ms: Some(3999), command: submit(json!({})) };
    tape.add_part(4000, (1, 1), &serde_json::to_vec(&late).expect("written"));
    let mut replica = Replica::empty().expect("made");
    let done = tape.play(&mut replica);
    assert!(matches!(done[0], Some(Ok(CommandResult::Submitted(_)))), "{done:?}");
    assert!(matches!(done[1], Some(Err(StoreError::Conflict { .. }))), "{done:?}");
    assert!(done[2].is_none() && matches!(done[3], Some(Ok(CommandResult::Late))), "{done:?}");
    assert_eq!((replica.position().0, replica.now()), (4, 4000));
    let jobs = everything(&mut replica).iter().filter(|row| row.starts_with("jobs:")).count();
    assert_eq!(jobs, 1, "nothing of the batch that was refused");
}

#[test]
fn a_clock_that_is_set_back_holds_the_stores() {
    let mut tape = Tape::default();
    tape.add(5000, StoreCommand::Sweep);
    tape.add(1000, StoreCommand::Sweep);
    let mut replica = Replica::empty().expect("made");
    tape.play(&mut replica);
    assert_eq!(replica.now(), 5000);
}

#[test]
fn multipart_command_applies_at_its_last_part() {
    let payload =
        serde_json::to_vec(&LogEntry { until_ms: None, command: submit(json!({})) }).expect("written");
    let (one, two) = payload.split_at(20);
    for (pause, whole) in [(1000, true), (120_000, false)] {
        let mut tape = Tape::default();
        tape.add_part(1000, (1, 2), one);
        tape.add(1000 + pause, StoreCommand::Sweep);
        tape.add_part(1001 + pause, (2, 2), two);
        let mut replica = Replica::empty().expect("made");
        let done = tape.play(&mut replica);
        assert!(done[0].is_none());
        assert_eq!(matches!(done[2], Some(Ok(CommandResult::Submitted(_)))), whole, "{done:?}");
        assert!(!everything(&mut replica).iter().any(|row| row.starts_with("parts:")), "no part is left");
    }
}

#[test]
fn copy_from_snapshot_continues_like_copy_from_log() {
    let mut tape = Tape::default();
    for number in 0..20 {
        tape.add(1000 + number, submit(json!({"wall_ms": 50, "concurrency": {"key": "k", "most": 2}})));
    }
    let request = LeaseRequest {
        worker: "w".to_owned(),
        slots: 1,
        queues: Vec::new(),
        only: None,
        lease: Duration::from_millis(5),
        memory: None,
        handlers: Vec::new(),
    };
    let mut replica = Replica::empty().expect("made");
    tape.play(&mut replica);
    let file = tempfile::NamedTempFile::new().expect("a file");
    replica.save(file.path()).expect("saved");
    let mut other = Replica::from_snapshot(file.path()).expect("read");
    assert_eq!(other.position(), replica.position());
    for number in 0..9 {
        tape.add(1030 + 10 * number, StoreCommand::Lease(request.clone()));
    }
    let leased = tape.play(&mut replica);
    assert!(matches!(&leased[0], Some(Ok(CommandResult::Leased(leased))) if leased.len() == 1), "{leased:?}");
    tape.play(&mut other);
    assert_eq!(everything(&mut replica), everything(&mut other));
}

#[test]
fn a_later_format_is_refused_by_its_number() {
    let mut replica = Replica::empty().expect("made");
    let message = Message { sequence: 1, at_ms: 1, format: FORMAT + 1, id: "x", part: (1, 1), payload: b"" };
    match replica.apply(&message) {
        Err(StoreError::Newer { found, known }) => assert_eq!((found, known), (FORMAT + 1, FORMAT)),
        other => panic!("{other:?}"),
    }
    assert_eq!(replica.position().0, 0);
}

#[test]
fn nats_store_conforms_and_late_copies_agree() {
    let Some(server) = NatsServer::start() else { return };
    let address = NatsAddress::parse(&server.url()).expect("an address");
    // So few messages that the log is cut many times.
    let store = NatsJobs::open_with(&address, every(25), quiet).expect("opened");
    conformance::check(&store, &pass);
    let dump = |store: &NatsJobs| {
        store.catch_up().expect("it is there");
        let rows = everything(&mut store.shared.lock().replica);
        rows.into_iter().filter(|row| !row.starts_with("place:")).collect::<Vec<_>>()
    };
    let later = NatsJobs::open_with(&address, every(25), quiet).expect("opened");
    assert_eq!(dump(&store), dump(&later));
    let log = store.runtime.block_on(store.link.context.get_stream(log_stream::STREAM)).expect("there");
    let log = &log.cached_info().state;
    // What comes while a snapshot is written is cut with the next one.
    assert!(log.last_sequence > 1_000 && log.messages < 250, "the log was cut: {log:?}");
}

#[test]
fn stale_copy_continues_from_snapshot_after_log_cut() {
    let Some(server) = NatsServer::start() else { return };
    let wire = Wire::to(server.port);
    let address = NatsAddress::parse(&server.url()).expect("an address");
    let here = NatsJobs::open_with(&address, every(10), quiet).expect("opened");
    let away = NatsJobs::open_with(&NatsAddress::parse(&wire.url()).expect("an address"), every(10), quiet)
        .expect("opened");
    here.submit(&[submission(json!({"name": "before"}))]).expect("submitted");
    assert_eq!(names(&away), ["before"]);
    wire.cut();
    for number in 0..60 {
        here.submit(&[submission(json!({"name": format!("n{number}")}))]).expect("submitted");
    }
    until("the last snapshot is written", || here.shared.lock().writing == 0);
    wire.mend();
    assert_eq!(names(&away), names(&here));
    away.submit(&[submission(json!({"name": "after"}))]).expect("submitted");
    assert_eq!(names(&here).last().map(String::as_str), Some("after"));
}

#[test]
fn few_large_messages_are_cut_off_as_well() {
    let Some(server) = NatsServer::start() else { return };
    let address = NatsAddress::parse(&server.url()).expect("an address");
    let often = SnapshotThresholds { messages: u64::MAX, bytes: 100 << 10 };
    let open = || NatsJobs::open_with(&address, often, |problem| panic!("{problem}")).expect("opened");
    let store = open();
    for number in 0..40 {
        let large = json!({"name": format!("n{number}"), "env": {"X": "x".repeat(50 << 10)}});
        store.submit(&[submission(large)]).expect("submitted");
    }
    until("the last snapshot is written", || store.shared.lock().writing == 0);
    let log = store.runtime.block_on(store.link.context.get_stream(log_stream::STREAM)).expect("there");
    let messages = log.cached_info().state.messages;
    assert!((1..30).contains(&messages), "the log was cut: {messages}");
    assert_eq!(names(&open()), names(&store));
}

/// The reports about snapshots.
static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn failed_snapshot_is_reported_once() {
    let user = "user: me, password: secret, permissions: { publish: { deny: \"$O.>\" } }";
    let configuration = format!("authorization {{ users: [ {{ {user} }} ] }}");
    let Some(server) = NatsServer::start_with(&configuration, true) else { return };
    let address = NatsAddress::parse(&format!("nats://me:secret@127.0.0.1:{}", server.port));
    let report = |problem: &str| REPORTED.lock().expect("no panic").push(problem.to_owned());
    let store = NatsJobs::open_with(&address.expect("an address"), every(1), report).expect("opened");
    for number in 0..3 {
        store.submit(&[submission(json!({"name": format!("n{number}")}))]).expect("submitted");
        until("it is given up", || store.shared.lock().writing == 0);
    }
    let reported = REPORTED.lock().expect("no panic");
    assert!(reported.len() == 1 && reported[0].starts_with("the log of jobs is not cut"), "{reported:?}");
    assert_eq!(names(&store), ["n0", "n1", "n2"]);
}

#[test]
fn disconnected_store_continues_after_reconnect() {
    let Some(server) = NatsServer::start() else { return };
    let wire = Wire::to(server.port);
    let store = open(&wire.url());
    let id = store.submit(&[submission(json!({}))]).expect("submitted").remove(0).id;
    wire.cut();
    let begun = monotonic_nanoseconds();
    for refused in [store.cancel(&id, "nobody hears it").map(drop), store.get(&id).map(drop)] {
        let error = refused.expect_err("cut off");
        assert!(
            matches!(&error, StoreError::Unreachable(reported) if reported.contains(&wire.url())),
            "{error}"
        );
    }
    let took = Duration::from_nanos(monotonic_nanoseconds() - begun);
    assert!(took < Duration::from_secs(25), "each gives up after a while: {took:?}");
    wire.mend();
    // A command for which no caller waits any more has no effect, even if it was already sent.
    until("it goes on", || store.get(&id).is_ok());
    let record = store.get(&id).expect("readable").expect("there");
    assert_eq!(record.line.state.name(), "queued");
}

#[test]
fn a_server_that_is_killed_and_comes_back_is_waited_for() {
    let Some(mut server) = NatsServer::start() else { return };
    let store = open(&server.url());
    store.submit(&[submission(json!({"name": "before"}))]).expect("submitted");
    server.kill();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| store.submit(&[submission(json!({"name": "meanwhile"}))]));
        pass(Duration::from_millis(500));
        server.again();
        asked.join().expect("no panic").expect("submitted");
    });
    assert_eq!(names(&store), ["before", "meanwhile"]);
    assert_eq!(names(&open(&server.url())), ["before", "meanwhile"]);
}

#[test]
fn lease_request_survives_long_server_outage() {
    let Some(mut server) = NatsServer::start() else { return };
    let store = open(&server.url());
    let due = store.now_ms() + 5_000;
    store.submit(&[submission(json!({"not_before_ms": due}))]).expect("submitted");
    server.kill();
    let request = LeaseRequest {
        worker: "w".to_owned(),
        slots: 1,
        queues: Vec::new(),
        only: None,
        lease: Duration::from_secs(60),
        memory: None,
        handlers: Vec::new(),
    };
    std::thread::scope(|scope| {
        let leased = scope.spawn(|| {
            let begun = monotonic_nanoseconds();
            loop {
                match store.lease(&request) {
                    Ok(leased) if leased.is_empty() => pass(Duration::from_millis(20)),
                    Ok(mut leased) => return (leased.remove(0), store.now_ms()),
                    Err(StoreError::Unreachable(_)) => pass(Duration::from_millis(100)),
                    Err(error) => panic!("{error}"),
                }
                assert!(monotonic_nanoseconds() - begun < 40_000_000_000, "nobody gets it");
            }
        });
        // Longer than a call waits, and the job is asked for in between.
        pass(Duration::from_secs(13));
        server.again();
        let back = store.now_ms();
        let (leased, at) = leased.join().expect("no panic");
        assert_eq!(leased.deliveries, 1, "it was leased to nobody before");
        assert!(at - back < 5_000, "leased {} ms after the server was back", at - back);
    });
}

#[test]
fn a_server_that_lost_the_end_of_its_log_is_believed() {
    let Some(mut server) = NatsServer::start() else { return };
    let store = open(&server.url());
    store.submit(&[submission(json!({"name": "kept"}))]).expect("submitted");
    server.kill();
    let copy = tempfile::tempdir().expect("a directory");
    let copied = |from: &Path, to: &Path| {
        #[allow(clippy::disallowed_methods, reason = "a directory is copied")]
        let status = Program::new("cp").arg("-a").arg(from).arg(to).status().expect("copied");
        assert!(status.success());
    };
    copied(&server.kept(), &copy.path().join("jetstream"));
    server.again();
    for name in ["lost", "lost too"] {
        store.submit(&[submission(json!({"name": name}))]).expect("submitted");
    }
    server.kill();
    std::fs::remove_dir_all(server.kept()).expect("removed");
    copied(&copy.path().join("jetstream"), &server.kept());
    server.again();
    // Another writer, so that the log is as long again, with another end.
    let other = open(&server.url());
    for name in ["new", "newer", "newest"] {
        other.submit(&[submission(json!({"name": name}))]).expect("submitted");
    }
    until("the lost end is noticed", || names(&store) == ["kept", "new", "newer", "newest"]);
}

#[test]
fn what_is_larger_than_a_message_goes_in_parts() {
    let Some(server) = NatsServer::start() else { return };
    let store = open(&server.url());
    let large = "x".repeat(3 << 20);
    let id = store.submit(&[submission(json!({"env": {"LARGE": large}}))]).expect("submitted").remove(0).id;
    let other = open(&server.url());
    let record = other.get(&id).expect("readable").expect("there");
    assert_eq!(record.spec["env"]["LARGE"].as_str().map(str::len), Some(3 << 20));
}

#[test]
fn a_full_server_refuses_the_submission_and_breaks_nothing() {
    let Some(server) = NatsServer::start_with("jetstream { max_file_store: 8MB }", true) else { return };
    let store = open(&server.url());
    let mut taken = Vec::new();
    let refused = loop {
        assert!(taken.len() < 100, "it is never full");
        let name = format!("n{}", taken.len());
        match store.submit(&[submission(json!({"name": name, "env": {"X": "x".repeat(400 << 10)}}))]) {
            Ok(_) => taken.push(name),
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, StoreError::Full(reported) if reported.contains(&server.url())), "{refused}");
    assert!(taken.len() > 5);
    assert_eq!(names(&store), taken);
    assert_eq!(names(&open(&server.url())), taken);
}

#[test]
fn what_cannot_be_a_store_is_refused_with_the_remedy() {
    let Some(server) = NatsServer::start_with("", false) else { return };
    let without = open_error(&server.url());
    assert!(
        matches!(&without, StoreError::Refused(reported) if reported.contains("start it with `nats-server -js`")),
        "{without}"
    );
    let nothing = open_error("nats://127.0.0.1:9");
    assert!(
        matches!(&nothing, StoreError::Unreachable(reported) if reported.contains("nats://127.0.0.1:9: nothing")),
        "{nothing}"
    );
    let Some(server) = NatsServer::start_with("authorization { user: me, password: \"p@ss\" }", true) else {
        return;
    };
    let wrong = open_error(&format!("nats://me:wrong@127.0.0.1:{}", server.port));
    assert!(
        matches!(&wrong, StoreError::Refused(reported) if reported.contains("credentials") && !reported.contains("wrong")),
        "{wrong}"
    );
    drop(open(&format!("nats://me:p%40ss@127.0.0.1:{}", server.port)));
    let file =
        NatsAddress::parse(&server.url()).expect("read").with_credentials(Some("/no/such/file".into()));
    let unreadable = NatsJobs::open(&file, quiet).expect_err("refused");
    assert!(unreadable.to_string().contains("/no/such/file"), "{unreadable}");
}

#[test]
fn over_tls_only_a_certificate_that_is_trusted_will_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(()) = certificates(directory.path(), "DNS:localhost") else { return };
    let Some(server) = NatsServer::start_with(&tls(directory.path()), true) else { return };
    let url = format!("tls://localhost:{}", server.port);
    let address = NatsAddress::parse(&url)
        .expect("an address")
        .with_certificates(Some(directory.path().join("ca.pem")));
    let store = NatsJobs::open(&address, quiet).expect("opened");
    store.submit(&[submission(json!({"name": "over TLS"}))]).expect("submitted");
    assert_eq!(names(&store), ["over TLS"]);
    let unknown = open_error(&url);
    assert!(
        matches!(&unknown, StoreError::Refused(reported) if reported.contains("SANDTIMER_NATS_CA")),
        "{unknown}"
    );
}

#[test]
fn newer_log_and_expiring_stream_are_rejected() {
    let Some(server) = NatsServer::start() else { return };
    let store = open(&server.url());
    let message = async_nats::jetstream::message::PublishMessage::build()
        .payload("{}".into())
        .header("Sandtimer-Log", (FORMAT + 1).to_string().as_str());
    let sent =
        async { store.link.context.send_publish("sandtimer.jobs", message).await.expect("sent").await };
    store.runtime.block_on(sent).expect("taken in");
    until("it is noticed", || store.get("x").is_err());
    for refused in [store.get("x").expect_err("newer"), open_error(&server.url())] {
        assert!(
            matches!(refused, StoreError::Newer { found, known: FORMAT } if found == FORMAT + 1),
            "{refused}"
        );
    }
    let Some(server) = NatsServer::start() else { return };
    let made = async {
        let client = async_nats::connect(server.url()).await.expect("connected");
        let config = async_nats::jetstream::stream::Config {
            name: log_stream::STREAM.to_owned(),
            subjects: vec!["sandtimer.jobs".to_owned()],
            max_age: Duration::from_secs(3600),
            ..Default::default()
        };
        async_nats::jetstream::new(client).create_stream(config).await.expect("made");
    };
    store.runtime.block_on(made);
    let refused = open_error(&server.url());
    assert!(
        matches!(&refused, StoreError::Refused(reported) if reported.contains("is not a log of jobs")),
        "{refused}"
    );
}

#[test]
fn a_worker_for_whom_there_is_nothing_adds_nothing_to_the_log() {
    let Some(server) = NatsServer::start() else { return };
    let store = open(&server.url());
    store.submit(&[submission(json!({"queue": "others"}))]).expect("submitted");
    let request = |queue: &str, only: Option<&str>| LeaseRequest {
        worker: "w".to_owned(),
        slots: 1,
        queues: vec![queue.to_owned()],
        only: only.map(str::to_owned),
        lease: Duration::from_secs(60),
        memory: None,
        handlers: Vec::new(),
    };
    let last = || store.ask(monotonic_nanoseconds() + 10_000_000_000).expect("answered");
    let before = last();
    assert!(store.lease(&request("own", None)).expect("asked").is_empty());
    assert!(store.lease(&request("others", Some("no such job"))).expect("asked").is_empty());
    assert_eq!(last(), before);
    assert_eq!(store.lease(&request("others", None)).expect("leased").len(), 1);
    assert_eq!(last(), before + 1);
}

/// Many processes' worth of stores: every job is recorded once.
#[test]
fn workers_that_race_record_every_job_once() {
    const JOBS: usize = 300;
    let Some(server) = NatsServer::start() else { return };
    let store = open(&server.url());
    let batch: Vec<Submission> = (0..JOBS).map(|_| submission(json!({}))).collect();
    store.submit(&batch).expect("submitted");
    let work = |name: usize| {
        let store = open(&server.url());
        let request = LeaseRequest {
            worker: format!("w{name}"),
            slots: 7,
            queues: Vec::new(),
            only: None,
            lease: Duration::from_secs(60),
            memory: None,
            handlers: Vec::new(),
        };
        let mut done = 0;
        // Nothing leased may be another's haste: only an empty queue is the end.
        while store.queues().expect("readable").iter().any(|facts| facts.queued > 0) {
            let leased = store.lease(&request).expect("leased");
            let finish = |one: crate::job::JobAssignment| Finish {
                held: one.held,
                result: JobResult::bare(JobStatus::Ok, None),
                again: false,
                pause_ms: 0,
            };
            let finished =
                store.finish(&leased.into_iter().map(finish).collect::<Vec<_>>()).expect("finished");
            assert!(finished.iter().all(|one| *one == FinishResult::Recorded));
            done += finished.len();
        }
        done
    };
    let done: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|name| scope.spawn(move || work(name))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    assert_eq!(done, JOBS);
    let ended = store.list(&Filter::default(), None, JOBS + 1).expect("listed").jobs;
    let once = |line: &JobLine| (line.state, line.ok, line.deliveries) == (JobState::Ended, Some(true), 1);
    assert_eq!((ended.len(), ended.iter().all(once)), (JOBS, true), "{ended:?}");
}

#[test]
fn worker_leaves_a_job_of_a_later_version_to_others() {
    let Some(server) = NatsServer::start() else { return };
    let store = open(&server.url());
    let later = StoreCommand::Submit(conformance::versions::later_job());
    let CommandResult::Submitted(submitted) = store.append(later).expect("submitted") else {
        panic!("another answer")
    };
    let store: Arc<dyn JobStore> = Arc::new(store);
    conformance::versions::worker_leaves_later_job_to_others(&store, &submitted[0].id);
}
