use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use sandtimer::Engine;

use crate::executor::{Worker, WorkerContext, WorkerSettings};
use crate::job::{
    Finish, FinishResult, JobLease, JobResult, JobSpec, JobStatus, JobStore, LeaseRequest, StoreError,
    Submission, WorkerFacts,
};
use rusqlite::Connection;
use serde_json::json;

use super::turns::Turns;
use super::values::natural;
use super::{SqliteJobs, schema, submitting};
use crate::conformance;

/// Lets time pass on every clock.
fn pass(time: Duration) {
    let (_open, never) = mpsc::channel::<()>();
    assert!(never.recv_timeout(time).is_err());
}

fn submission(more: serde_json::Value) -> Submission {
    let mut source = json!({"command": ["true"]});
    source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
    Submission { spec: JobSpec::read(source).expect("valid"), owner: String::new() }
}

#[test]
fn it_does_what_every_store_must() {
    let directory = tempfile::tempdir().expect("a directory");
    conformance::check(&SqliteJobs::open(directory.path()).expect("opened"), &pass);
}

#[test]
fn a_newer_schema_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(SqliteJobs::open(directory.path()).expect("opened"));
    let connection = Connection::open(directory.path().join("jobs.sqlite")).expect("opened");
    let ours: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).expect("read");
    connection.pragma_update(None, "user_version", ours + 1).expect("set");
    drop(connection);
    match SqliteJobs::open(directory.path()) {
        Err(StoreError::Newer { found, known }) => assert_eq!((found, known), (ours + 1, ours)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_database_of_the_first_schema_keeps_its_jobs() {
    let directory = tempfile::tempdir().expect("a directory");
    let connection = Connection::open(directory.path().join("jobs.sqlite")).expect("opened");
    connection.execute_batch(schema::FIRST).expect("made");
    // A job that a worker has, with a line in its log.
    let insert = "INSERT INTO jobs (seq, id, owner, name, queue, priority, state, rank, submitted_ms, due_ms, deliveries_most, epoch, lease_ms)
        VALUES (1, 'abc', 'o', 'n', 'q', 0, 2, 0, 0, 0, 3, 1, 4000000000000);
        INSERT INTO specs (job, body) VALUES (1, '{\"command\": [\"true\"]}');
        INSERT INTO log (job, start, bytes) VALUES (1, 0, CAST('of then\n' AS BLOB));
        INSERT INTO queues (queue) VALUES ('q'); PRAGMA user_version = 1";
    connection.execute_batch(insert).expect("filled");
    drop(connection);
    let store = SqliteJobs::open(directory.path()).expect("opened");
    let held = JobLease { id: "abc".to_owned(), epoch: 1 };
    store.append_log(&held, b"of now\n").expect("written");
    let log = store.read_log(&held.id, 0, 99).expect("readable");
    let pieces: Vec<(bool, &[u8])> = log.pieces().map(|(at_ms, bytes)| (at_ms.is_some(), bytes)).collect();
    assert_eq!(pieces, [(false, b"of then\n".as_slice()), (true, b"of now\n")]);
    let finish =
        Finish { held, result: JobResult::bare(JobStatus::Cancelled, None), again: false, pause_ms: 0 };
    assert_eq!(store.finish(&[finish]).expect("finished"), [FinishResult::Recorded]);
    assert_eq!(store.outcomes().expect("counted"), [("cancelled".to_owned(), 1)]);
}

#[test]
fn jobs_of_dead_worker_are_leased_again_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteJobs::open(directory.path()).expect("opened");
    store.submit(&[submission(json!({})), submission(json!({})), submission(json!({}))]).expect("submitted");
    let lease = |worker: &str| {
        let lease = Duration::from_secs(60);
        let worker = worker.to_owned();
        let request = LeaseRequest {
            worker,
            slots: 1,
            queues: Vec::new(),
            only: None,
            lease,
            memory: None,
            handlers: Vec::new(),
        };
        store.lease(&request).expect("leased").remove(0)
    };
    let (dead, _other) = (lease("dead"), lease("other"));
    store.cancel(&lease("dead").held.id, "nobody hears it").expect("asked");
    assert_eq!(store.take_back("dead").expect("taken"), 2);
    assert_eq!(store.take_back("dead").expect("taken"), 0);
    let again = lease("next");
    assert_eq!((&again.held.id, again.held.epoch, again.deliveries), (&dead.held.id, 2, 2));
    assert_eq!(store.outcomes().expect("counted"), [("cancelled".to_owned(), 1)]);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("jobs.sqlite");
    std::fs::write(&path, "these are somebody's notes, and no database".repeat(100)).expect("written");
    match SqliteJobs::open(directory.path()) {
        Err(StoreError::Broken(why)) => assert!(why.starts_with(&*path.to_string_lossy()), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(std::fs::read(&path).expect("readable").starts_with(b"these are"));
}

#[test]
fn removed_or_replaced_file_is_an_error_with_its_path() {
    let directory = tempfile::tempdir().expect("a directory");
    let (state, away) = (directory.path().join("state"), directory.path().join("away"));
    let store = SqliteJobs::open(&state).expect("opened");
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
    let refused = |what: &str| {
        let results = [store.lease(&request).map(drop), store.submit(&[submission(json!({}))]).map(drop)];
        for result in results {
            let error = result.expect_err("refused");
            assert!(matches!(error, StoreError::Gone(_)), "{error:?}");
            let message = error.to_string();
            let path = state.join("jobs.sqlite").display().to_string();
            assert!(message.contains(&path) && message.contains(what), "{message}");
        }
    };
    std::fs::rename(&state, &away).expect("moved");
    refused("was removed");
    let other = SqliteJobs::open(&state).expect("opened");
    refused("was replaced");
    drop(other);
    std::fs::remove_dir_all(&state).expect("removed");
    std::fs::rename(&away, &state).expect("moved back");
    store.submit(&[submission(json!({}))]).expect("it is there again");
    assert_eq!(store.lease(&request).expect("leased").len(), 1);
}

#[test]
fn breaker_list_searches_the_primary_key() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(SqliteJobs::open(directory.path()).expect("opened"));
    let connection = rusqlite::Connection::open(directory.path().join("jobs.sqlite")).expect("opened");
    for (is_bounded, range) in [(true, "(key>? AND key<?)"), (false, "(key>?)")] {
        let sql = format!("EXPLAIN QUERY PLAN {}", super::breakers::select(is_bounded));
        let mut plan = connection.prepare(&sql).expect("prepared");
        let count = plan.parameter_count();
        let steps = plan.query_map(rusqlite::params_from_iter(vec![0; count]), |row| row.get::<_, String>(3));
        let steps: Vec<_> = steps.expect("planned").map(|step| step.expect("text")).collect();
        assert_eq!(steps, [format!("SEARCH breakers USING PRIMARY KEY {range}")]);
    }
}

#[test]
fn a_full_disk_refuses_the_submission_and_breaks_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteJobs::open(directory.path()).expect("opened");
    store.submit(&[submission(json!({"name": "before"}))]).expect("submitted");
    store.fill(2);
    let large = json!({"env": {"X": "x".repeat(64 << 10)}});
    let refused = store.submit(&[submission(json!({"name": "small"})), submission(large.clone())]);
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    let all = store.list(&Default::default(), None, 9).expect("listed").jobs;
    assert_eq!(
        all.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(),
        ["before"],
        "nothing of the batch"
    );
    let check: String =
        store.connection().pragma_query_value(None, "integrity_check", |row| row.get(0)).expect("checked");
    assert_eq!(check, "ok");
    store.fill(-1);
    store.submit(&[submission(large)]).expect("there is room again");
}

/// Many processes' worth of connections: every job is recorded once.
#[test]
fn workers_that_race_record_every_job_once() {
    const JOBS: usize = 300;
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteJobs::open(directory.path()).expect("opened");
    let batch: Vec<Submission> = (0..JOBS).map(|_| submission(json!({}))).collect();
    store.submit(&batch).expect("submitted");
    let work = |name: usize| {
        let store = SqliteJobs::open(directory.path()).expect("opened");
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
        loop {
            let leased = store.lease(&request).expect("leased");
            if leased.is_empty() {
                return done;
            }
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
    };
    let done: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|name| scope.spawn(move || work(name))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    assert_eq!(done, JOBS);
}

#[test]
fn a_queue_that_is_paused_before_its_first_job_is_its_owners() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteJobs::open(directory.path()).expect("opened");
    let of = |owner: &str, queue: &str| Submission {
        owner: owner.to_owned(),
        ..submission(json!({"queue": format!("{owner} {queue}")}))
    };
    for queue in 0..9 {
        store.pause(&format!("alice {queue}"), true).expect("paused");
        store.pause(&format!("alice {queue}"), false).expect("resumed");
        store.submit(&[of("alice", &queue.to_string()), of("bob", "q")]).expect("submitted");
    }
    let (worker, lease) = ("w".to_owned(), Duration::from_secs(60));
    let request = LeaseRequest {
        worker,
        slots: 8,
        queues: Vec::new(),
        only: None,
        lease,
        memory: None,
        handlers: Vec::new(),
    };
    let owners: Vec<String> =
        store.lease(&request).expect("leased").into_iter().map(|leased| leased.owner).collect();
    assert_eq!(owners.iter().filter(|owner| *owner == "bob").count(), 4, "{owners:?}");
}

fn lease(store: &SqliteJobs) -> Vec<crate::job::JobAssignment> {
    let (worker, lease) = ("w".to_owned(), Duration::from_secs(60));
    let request = LeaseRequest {
        worker,
        slots: 9,
        queues: Vec::new(),
        only: None,
        lease,
        memory: None,
        handlers: Vec::new(),
    };
    store.lease(&request).expect("leased")
}

#[test]
fn moments_follow_a_calendar_that_is_set() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = SqliteJobs::open(directory.path()).expect("opened");
    let (start, hour) = (2_000_000_000_000, 3_600_000);
    let moment = natural(start + hour);
    store.stopped_at(start);
    let submit =
        |store: &SqliteJobs, more| store.submit(&[submission(more)]).expect("submitted").remove(0).id;
    let waits = submit(&store, json!({"not_before_ms": moment}));
    let delayed = submit(&store, json!({"delay_ms": hour}));
    assert!(lease(store.stopped_with(start + 1_000, start + hour - 1)).is_empty());
    // The calendar was an hour behind, and is set: a moment has come, a time has not passed.
    let leased = lease(store.stopped_with(start + 2_000, start + hour + 1_000));
    assert_eq!(leased.iter().map(|one| &one.held.id).collect::<Vec<_>>(), [&waits]);
    assert_eq!(store.get(&delayed).expect("read").expect("there").line.due_ms, moment);
    // What is submitted from now on counts by the calendar, too.
    let due = submit(&store, json!({"not_before_ms": moment, "deadline_ms": moment + 60_000}));
    let leased = lease(&store);
    assert_eq!(leased.iter().map(|one| &one.held.id).collect::<Vec<_>>(), [&due]);
    let left = leased[0].deadline_ms.expect("a deadline") - natural(start + 2_000);
    assert_eq!(left, 59_000);
    // It is set back: what waits for a moment waits longer.
    let waits = submit(&store, json!({"not_before_ms": moment + 5_000}));
    assert!(lease(store.stopped_with(start + 10_000, start)).is_empty());
    assert_eq!(store.get(&waits).expect("read").expect("there").line.due_ms, natural(start + hour + 15_000));
}

#[test]
fn schedules_follow_the_calendar() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = SqliteJobs::open(directory.path()).expect("opened");
    let (start, hour) = (2_000_000_000_000, 3_600_000);
    let spec = json!({"name": "s", "every_ms": hour, "job": {"command": ["true"]}});
    let spec = crate::job::ScheduleSpec::read(spec).expect("valid");
    store.stopped_at(start).put_schedule("o", "q", &spec).expect("stored");
    assert!(lease(store.stopped_with(start + hour + 1, start + 5_000)).is_empty());
    assert_eq!(lease(store.stopped_with(start + 10_000, start + hour + 1)).len(), 1);
    assert!(lease(store.stopped_with(start + 20_000, start)).is_empty(), "no moment has two jobs");
    assert!(lease(store.stopped_with(start + 30_000, start + hour + 2)).is_empty());
}

#[test]
fn worker_is_live_for_90_s_after_its_announcement() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = SqliteJobs::open(directory.path()).expect("opened");
    let facts = |name: &str| WorkerFacts {
        name: name.to_owned(),
        slots: 1,
        version: "1.0".to_owned(),
        queues: Vec::new(),
        memory_bytes: None,
        handlers: Vec::new(),
    };
    let names = |store: &SqliteJobs| -> Vec<String> {
        store.workers().expect("listed").into_iter().map(|worker| worker.facts.name).collect()
    };
    let begun = 1_000_000;
    store.stopped_at(begun).announce(&facts("first")).expect("announced");
    store.stopped_at(begun + 60_000).announce(&facts("second")).expect("announced");
    assert_eq!(names(store.stopped_at(begun + 89_999)), ["first", "second"]);
    assert_eq!(names(store.stopped_at(begun + 90_000)), ["second"]);
    store.stopped_at(begun + 100_000).announce(&facts("third")).expect("announced");
    let count = "SELECT count(*) FROM workers";
    let count: i64 = store.connection().query_row(count, [], |row| row.get(0)).expect("counted");
    assert_eq!(count, 2, "one that is dead is forgotten");
    store.stopped_at(begun + 149_999).announce(&facts("second")).expect("announced");
    assert_eq!(names(store.stopped_at(begun + 150_001)), ["second", "third"]);
}

#[test]
fn schedule_of_a_wrong_calendar_is_due_again_once_it_is_right() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = SqliteJobs::open(directory.path()).expect("opened");
    let (start, decade) = (2_000_000_000_000, 315_360_000_000);
    let spec = json!({"name": "s", "cron": "* * * * *", "overlap": "allow", "job": {"command": ["true"]}});
    let spec = crate::job::ScheduleSpec::read(spec).expect("valid");
    store.stopped_at(start).put_schedule("o", "q", &spec).expect("stored");
    assert_eq!(
        lease(store.stopped_with(start + 1_000, start + decade)).len(),
        1,
        "one for all that were missed"
    );
    assert!(lease(store.stopped_with(start + 2_000, start + 2_000)).is_empty());
    let next = store.schedules(Some("o")).expect("listed")[0].next_ms.expect("a moment");
    assert!(next <= natural(start + 42_000), "{next}");
    assert_eq!(lease(store.stopped_with(start + 45_000, start + 45_000)).len(), 1);
}

#[test]
fn schedule_that_cannot_be_read_hides_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = SqliteJobs::open(directory.path()).expect("opened");
    store.stopped_at(2_000_000_000_000);
    for number in 0..70 {
        let spec = json!({"name": format!("s{number:02}"), "every_ms": 1_000, "job": {"command": ["true"]}});
        let spec = crate::job::ScheduleSpec::read(spec).expect("valid");
        store.put_schedule("local", "q", &spec).expect("stored");
    }
    let newer = "UPDATE schedules SET body = json_set(body, '$.of_a_newer_program', 1) WHERE name < 's69'";
    assert_eq!(store.connection().execute(newer, []).expect("changed"), 69);
    let listed = store.schedules(Some("local")).expect("listed");
    assert_eq!(listed.len(), 70);
    assert!(listed[0].error.as_ref().expect("a reason").contains("of_a_newer_program"), "{:?}", listed[0]);
    assert_eq!(lease(store.stopped_at(2_000_000_002_000)).len(), 1);
}

#[test]
fn worker_leaves_a_job_of_a_later_version_to_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteJobs::open(directory.path()).expect("opened");
    let later = conformance::versions::later_job();
    let submit =
        store.write(|tx, now| submitting::submit_all(tx, &later, Turns::Owners, now)).expect("submitted");
    let store: Arc<dyn JobStore> = Arc::new(store);
    conformance::versions::worker_leaves_later_job_to_others(&store, &submit[0].id);
}

/// What the worker of the next test reports.
static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn worker_reports_a_calendar_that_was_set() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = SqliteJobs::open(directory.path()).expect("opened");
    store.stopped_with(2_000_000_000_000, 2_000_003_600_000);
    let store: Arc<dyn JobStore> = Arc::new(store);
    let report = |problem: &str| REPORTED.lock().expect("no panic").push(problem.to_owned());
    let resources = WorkerContext::new(Engine::new().expect("an engine"), store, directory.path());
    let worker = Worker::new(resources, WorkerSettings::new(report));
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        let is_reported = || !REPORTED.lock().expect("no panic").is_empty();
        (0..3_000).take_while(|_| !is_reported()).for_each(|_| pass(Duration::from_millis(20)));
        worker.drain();
    });
    let reported = REPORTED.lock().expect("no panic");
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with("the store's clock is 1 h 0 m behind the calendar"), "{reported:?}");
}
