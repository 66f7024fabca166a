//! Workers on a host that refuses threads for a while. Root has no such limit: its tests start
//! themselves again as a user.
#![allow(clippy::disallowed_methods)] // starts itself

use crate::as_user;

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use as_user::as_a_user;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandtimer::Engine;
use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::executor::{SendResult, WebhookSender, Worker, WorkerContext, WorkerSettings};
use sandtimer_jobs::job::{Delivery, JobSpec, JobState, JobStore, Submission};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};
use tempfile::TempDir;

/// After this a test has failed.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = monotonic_nanoseconds();
    while !is() {
        assert!(monotonic_nanoseconds() - begun < TEST_TIMEOUT.as_nanos() as u64, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// No thread and no process can be started while it lives.
struct NoThreads(Rlimit);

impl NoThreads {
    fn begin() -> Self {
        let before = getrlimit(Resource::Nproc);
        setrlimit(Resource::Nproc, Rlimit { current: Some(1), ..before }).expect("a lower limit");
        assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the limit has no effect");
        NoThreads(before)
    }
}

impl Drop for NoThreads {
    fn drop(&mut self) {
        setrlimit(Resource::Nproc, self.0).expect("the limit from before");
    }
}

#[derive(Debug, Default)]
struct RecordingWebhookSender(Mutex<Vec<String>>);

impl WebhookSender for RecordingWebhookSender {
    fn send(&self, delivery: &Delivery, _: &[u8]) -> SendResult {
        self.0.lock().expect("no panic").push(delivery.id.clone());
        SendResult::Accepted
    }
}

static REPORTED_ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn has_complained_of(what: &str) -> bool {
    REPORTED_ERRORS.lock().expect("no panic").iter().any(|error| error.contains(what))
}

/// A worker with one slot, on a thread that the test does not wait for: it fails instead of
/// hanging.
struct WorkerScene {
    _directory: TempDir,
    store: Arc<dyn JobStore>,
    webhook_sender: Arc<RecordingWebhookSender>,
    worker: Arc<Worker>,
    thread: JoinHandle<()>,
}

impl WorkerScene {
    fn open() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
        let resources =
            WorkerContext::new(Engine::new().expect("an engine"), Arc::clone(&store), directory.path());
        let report_error = |problem: &str| REPORTED_ERRORS.lock().expect("no panic").push(problem.to_owned());
        let webhook_sender = Arc::new(RecordingWebhookSender::default());
        let worker = Worker::new(resources, WorkerSettings::new(report_error))
            .with_webhook_sender(webhook_sender.clone());
        let worker = Arc::new(worker);
        let works = Arc::clone(&worker);
        let thread = std::thread::spawn(move || works.work());
        let scene = WorkerScene { _directory: directory, store, webhook_sender, worker, thread };
        // By then all threads of the worker and of its engine are there.
        let first = scene.submit(json!({"name": "first", "command": ["true"]}));
        until("the first job has ended", || scene.state(&first).is_over());
        until("the first job was released", || scene.worker.jobs() == 0);
        scene
    }

    fn submit(&self, source: Value) -> String {
        let spec = JobSpec::read(source).expect("a valid spec");
        let submission = Submission { spec, owner: "test".to_owned() };
        self.store.submit(&[submission]).expect("submitted").remove(0).id
    }

    fn state(&self, id: &str) -> JobState {
        self.store.get(id).expect("readable").expect("there").line.state
    }

    fn ends(self) {
        self.worker.drain();
        until("the worker has ended", || self.thread.is_finished());
        self.thread.join().expect("no panic");
    }
}

#[test]
fn worker_without_threads_gives_jobs_back_until_there_are_some() {
    if as_a_user("worker_without_threads_gives_jobs_back_until_there_are_some") {
        return;
    }
    let scene = WorkerScene::open();
    let no_threads = NoThreads::begin();
    let jobs: Vec<String> =
        (0..2).map(|_| scene.submit(json!({"name": "later", "command": ["true"]}))).collect();
    until("it complains of threads", || has_complained_of("no thread can be started"));
    until("the job was given back", || scene.worker.jobs() == 0);
    drop(no_threads);
    until("both jobs have ended", || jobs.iter().all(|id| scene.state(id).is_over()));
    for id in &jobs {
        let record = scene.store.get(id).expect("readable").expect("there");
        assert_eq!((record.line.ok, record.line.deliveries), (Some(true), 1), "{record:?}");
    }
    assert!(has_complained_of("threads can be started again"));
    scene.ends();
}

#[test]
fn worker_without_threads_drains() {
    if as_a_user("worker_without_threads_drains") {
        return;
    }
    let scene = WorkerScene::open();
    let _no_threads = NoThreads::begin();
    let id = scene.submit(json!({"name": "never begun", "command": ["true"]}));
    until("it complains of threads", || has_complained_of("no thread can be started"));
    let store = Arc::clone(&scene.store);
    scene.ends();
    let record = store.get(&id).expect("readable").expect("there");
    assert_eq!((record.line.state, record.line.deliveries), (JobState::Queued, 0), "{record:?}");
}

#[test]
fn webhooks_without_threads_are_sent_in_turn() {
    if as_a_user("webhooks_without_threads_are_sent_in_turn") {
        return;
    }
    let scene = WorkerScene::open();
    let no_threads = NoThreads::begin();
    let source = json!({
        "name": "cancelled", "command": ["true"], "not_before_ms": 4_000_000_000_000_u64,
        "webhook": {"url": "http://127.0.0.1:9/"},
    });
    let jobs: Vec<String> = (0..3).map(|_| scene.submit(source.clone())).collect();
    for id in &jobs {
        scene.store.cancel(id, "as the test wants").expect("cancelled");
    }
    let sent = |id| scene.webhook_sender.0.lock().expect("no panic").contains(id);
    until("all webhooks were sent", || jobs.iter().all(sent));
    drop(no_threads);
    scene.ends();
}
