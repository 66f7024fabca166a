//! The same with jobs on a NATS server: its workers die, it dies itself, and a worker is cut off
//! from it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use sandtimer_jobs::job::{Filter, JobSpec, JobState, JobStatus, JobStore, StoreError, Submission};
use sandtimer_jobs::{NatsAddress, NatsJobs};
use serde_json::json;

use super::{
    LEASE, LONG_LEASE, POINTS, batch, check_records, check_ticks, deadlines, doomed_worker, fence, is_full,
    is_something_alive, kill_a_worker, until, until_over, worker,
};

#[path = "../support/nats.rs"]
mod support;

use support::{NatsServer, Wire};

pub(super) fn open(url: &str) -> Arc<dyn JobStore> {
    Arc::new(NatsJobs::open(&NatsAddress::parse(url).expect("an address"), |_| {}).expect("opened"))
}

/// By default some points; in full tests all of them, many times.
fn points() -> impl Iterator<Item = &'static str> {
    let (count, step) = if is_full() { (POINTS.len() * 17, 1) } else { (POINTS.len(), 3) };
    POINTS.into_iter().cycle().take(count).step_by(step)
}

#[test]
fn killed_worker_loses_no_job_and_records_none_twice() {
    for point in points() {
        let Some(server) = NatsServer::start() else { return };
        let directory = tempfile::tempdir().expect("a directory");
        kill_a_worker(directory.path(), &server.url(), point);
    }
}

/// The worker lives on, and brings everything to its end on the server that comes back.
#[test]
fn a_server_that_is_killed_loses_no_job_and_records_none_twice() {
    for point in points() {
        let Some(mut server) = NatsServer::start() else { return };
        let directory = tempfile::tempdir().expect("a directory");
        let _worker = doomed_worker(directory.path(), &server.url(), point, Some(server.pid()));
        until("the server dies", || server.is_dead());
        server.again();
        let store = open(&server.url());
        until("the submission is there", || deadlines(&*store).len() == batch(directory.path()).len());
        let before = deadlines(&*store);
        let jobs = store.submit(&batch(directory.path())).expect("submitted");
        assert!(jobs.iter().all(|one| one.existed), "{point}");
        until_over(&*store, &jobs);
        check_records(&*store, &jobs, point);
        // The worker lives, and makes all its calls.
        check_ticks(&*store, &format!("server {point}"));
        assert_eq!(deadlines(&*store), before, "{point}: no deadline is reset");
        assert!(!is_something_alive(directory.path()), "{point}");
    }
}

#[test]
fn a_worker_of_a_server_that_comes_back_too_late_is_fenced() {
    let Some(server) = NatsServer::start() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    fence(directory.path(), &server.url());
}

fn submission(directory: &Path, more: serde_json::Value) -> Submission {
    let mut source = json!({"deliveries": 9, "wall_ms": 120_000});
    source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
    source["command"].as_array_mut().expect("a list").push(directory.display().to_string().into());
    Submission { spec: JobSpec::read(source).expect("valid"), owner: "test".to_owned() }
}

/// A worker whose connection is cut silently ends its runs when its lease has passed; another
/// worker has the job by then, and the late result of the first is kept as a duplicate.
#[test]
fn a_worker_that_is_cut_off_ends_its_runs_and_is_fenced() {
    let Some(server) = NatsServer::start() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let wire = Wire::to(server.port);
    let store = open(&server.url());
    let first = "test -e began || { touch began; exec sleep 600; }; echo second";
    let source =
        json!({"workspaces": [directory.path()], "cwd": directory.path(), "command": ["sh", "-c", first]});
    let id = store.submit(&[submission(directory.path(), source)]).expect("submitted").remove(0).id;
    let get = || store.get(&id).expect("readable").expect("there");
    let of = |url: &str| worker(open(url), directory.path(), LEASE, |_| {});
    let (cut_off, other) = (of(&wire.url()), of(&server.url()));
    std::thread::scope(|scope| {
        scope.spawn(|| cut_off.work());
        until("it has begun", || directory.path().join("began").exists());
        wire.cut();
        until("what it ran is dead", || !is_something_alive(directory.path()));
        scope.spawn(|| other.work());
        until("the other one has done it", || get().line.state == JobState::Ended);
        let ended = get().line.ended_ms;
        wire.mend();
        until("the late result is kept", || !get().duplicates.is_empty());
        let record = get();
        assert_eq!((record.line.ok, record.line.ended_ms), (Some(true), ended));
        assert_eq!(record.duplicates[0].status, JobStatus::Lost);
        cut_off.drain();
        other.drain();
    });
}

/// What a worker of a server without its log reports.
static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The directory of a server's streams vanishes while a worker runs, and the server starts again
/// without it. Everything that the server acknowledged is there again once the directory is back.
#[test]
fn server_without_its_store_directory_loses_nothing() {
    let Some(mut server) = NatsServer::start() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let away = directory.path().join("away");
    let first = "touch begun; until test -e end; do sleep 0.05; done; echo printed; touch ended";
    let source =
        json!({"workspaces": [directory.path()], "cwd": directory.path(), "command": ["sh", "-c", first]});
    let store = open(&server.url());
    let submit =
        |source| Ok::<_, StoreError>(store.submit(&[submission(directory.path(), source)])?.remove(0).id);
    let running = submit(source).expect("submitted");
    let report = |problem: &str| REPORTED.lock().expect("no panic").push(problem.to_owned());
    let worker = worker(open(&server.url()), directory.path(), LONG_LEASE, report);
    let reported =
        |part: &str| REPORTED.lock().expect("no panic").iter().any(|problem| problem.contains(part));
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        until("the job has begun", || directory.path().join("begun").exists());
        std::fs::rename(server.kept(), &away).expect("moved");
        let later = submit(json!({"command": ["true"], "priority": 5})).expect("the server still takes jobs");
        server.kill();
        server.again();
        let refused = submit(json!({"command": ["true"]})).expect_err("the log is gone").to_string();
        for part in [&server.url()[..], "the stream sandtimer-jobs", "put the directory back"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        until("the worker reports it", || reported("no job can be leased: the store is gone"));
        // Another program begins a log of its own there: the worker takes no part in it.
        let other = open(&server.url());
        other.submit(&[submission(directory.path(), json!({"command": ["false"]}))]).expect("submitted");
        until("the other log is not read", || {
            let refused = store.list(&Filter::default(), None, 9).expect_err("another log").to_string();
            refused.contains("has another one of its name")
        });
        std::fs::write(directory.path().join("end"), "").expect("written");
        until("the job has ended", || directory.path().join("ended").exists());
        server.kill();
        std::fs::remove_dir_all(server.kept()).expect("removed");
        std::fs::rename(&away, server.kept()).expect("moved back");
        server.again();
        let get = |id: &str| store.get(id).ok().flatten();
        let is_done = |id: &str| get(id).is_some_and(|job| job.line.state == JobState::Ended);
        until("both are done", || is_done(&running) && is_done(&later));
        for id in [&running, &later] {
            let job = get(id).expect("there");
            assert_eq!((job.line.ok, job.line.deliveries), (Some(true), 1), "{job:?}");
        }
        let log = store.read_log(&running, 0, 1_000).expect("a log");
        assert!(String::from_utf8_lossy(&log.bytes).contains("printed"), "{log:?}");
        worker.drain();
    });
}
