//! Workers of an earlier version than the program that submits.

use std::sync::Arc;
use std::time::Duration;

use sandtimer::Engine;
use sandtimer_os::clock::monotonic_nanoseconds;

use crate::executor::{Worker, WorkerContext, WorkerSettings};
use crate::job::{JobSpec, JobState, JobStatus, JobStore, LOCAL_OWNER, Submission};
use serde_json::{Value, json};

use crate::sqlite::submitting::NewJob;

/// After this a test has failed.
const HARD_STOP_NS: u64 = 60_000_000_000;

/// A job whose stored spec has a field of a later version.
pub(crate) fn later_job() -> Vec<NewJob> {
    let spec = JobSpec::read(json!({"command": ["true"], "deliveries": 1})).expect("valid");
    let new = NewJob::all(&[Submission { spec, owner: LOCAL_OWNER.to_owned() }]).expect("valid");
    let mut new = serde_json::to_value(new).expect("written");
    let mut body: Value = serde_json::from_str(new[0]["body"].as_str().expect("a text")).expect("JSON");
    body["field_of_a_later_version"] = json!({"x": 1});
    new[0]["body"] = body.to_string().into();
    serde_json::from_value(new).expect("read")
}

/// Runs a worker on a store that has [`later_job`] under this id.
pub(crate) fn worker_leaves_later_job_to_others(store: &Arc<dyn JobStore>, id: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let resources =
        WorkerContext::new(Engine::new().expect("an engine"), Arc::clone(store), directory.path());
    let name = "worker of an earlier version";
    let settings =
        WorkerSettings { name: name.to_owned(), ..WorkerSettings::new(|problem| panic!("{problem}")) };
    let worker = Worker::new(resources, settings);
    let record = std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        let begun = monotonic_nanoseconds();
        let record = loop {
            let record = store.get(id).expect("readable").expect("there");
            if !record.earlier.is_empty() || record.line.state.is_over() {
                break record;
            }
            if monotonic_nanoseconds() - begun > HARD_STOP_NS {
                break record;
            }
            std::thread::park_timeout(Duration::from_millis(20));
        };
        worker.give_back();
        record
    });
    assert_eq!((record.line.state, record.line.deliveries), (JobState::Scheduled, 0), "{:?}", record.result);
    assert_eq!(record.earlier[0].status, JobStatus::Drained);
    let reason = record.earlier[0].error.as_deref().expect("a reason");
    assert!(
        reason.contains("field_of_a_later_version") && reason.contains("cannot read the spec"),
        "{reason}"
    );
    let shown = serde_json::to_value(&record).expect("written");
    let blocker = json!({
        "reason": "unreadable_spec", "worker": name, "version": env!("CARGO_PKG_VERSION"),
        "field": "field_of_a_later_version", "problem": shown["blocked_by"][0]["problem"],
    });
    assert_eq!(shown["blocked_by"][0], blocker, "{shown}");
    assert!(
        blocker["problem"].as_str().is_some_and(|problem| problem.contains("unknown field")),
        "{blocker}"
    );
    // Not at once, so that the worker does nothing else.
    assert!(record.line.due_ms >= record.now_ms + 5_000, "{:?}", record.line);
}
