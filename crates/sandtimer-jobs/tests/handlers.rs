//! Handlers: functions of the worker's program, from a submission to a result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use sandtimer::model::Layer;
use sandtimer::{Engine, Spec};
use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::executor::{
    Handler, HandlerCall, HandlerMessage, HandlerResult, Handlers, Worker, WorkerContext, WorkerSettings,
};
use sandtimer_jobs::job::{JobRecord, JobSpec, JobState, JobStatus, JobStore, LOCAL_OWNER, Submission};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};

/// After this a test has failed.
const HARD_STOP: Duration = Duration::from_secs(120);

/// Begins a shell with its input as the program, and returns what that printed.
#[derive(Debug)]
struct ShellHandler(Engine);

impl Handler for ShellHandler {
    fn call(&self, call: HandlerCall, sender: &Sender<HandlerMessage>) {
        let program = call.input.as_str().unwrap_or("exit 9").to_owned();
        let mut spec = Spec::command(["sh", "-c", &program]).limits(call.limits);
        spec.parent = Some(call.scope.id());
        let over = match self.0.start(spec) {
            Err(error) => HandlerResult::Unavailable(error.to_string()),
            Ok(run) => {
                sender.send(HandlerMessage::Started(run.another())).expect("the worker listens");
                let outcome = run.settled_blocking();
                match outcome.ok {
                    true => HandlerResult::Returned(Value::String(outcome.stdout.clone())),
                    false => HandlerResult::Failed {
                        message: "it did not go well".to_owned(),
                        detail: String::new(),
                        exception: None,
                    },
                }
            }
        };
        sender.send(HandlerMessage::Over(over)).expect("the worker listens");
    }
}

/// A handler that sends no message.
#[derive(Debug)]
struct Silent;

impl Handler for Silent {
    fn call(&self, _: HandlerCall, _: &Sender<HandlerMessage>) {}
}

fn run(source: Value) -> (JobRecord, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let engine = Engine::new().expect("an engine");
    let shell: Arc<dyn Handler> = Arc::new(ShellHandler(engine.clone()));
    let silent: Arc<dyn Handler> = Arc::new(Silent);
    let handlers = BTreeMap::from([("shell".to_owned(), shell), ("silent".to_owned(), silent)]);
    let resources = WorkerContext::new(engine, Arc::clone(&store), directory.path());
    let spec = JobSpec::read(source).expect("a valid spec");
    let id =
        store.submit(&[Submission { spec, owner: LOCAL_OWNER.to_owned() }]).expect("submitted").remove(0).id;
    // A job of which the worker lacks a handler is handed to it only by name.
    let settings =
        WorkerSettings { only: Some(id.clone()), ..WorkerSettings::new(|problem| panic!("{problem}")) };
    let worker = Worker::new(resources, settings).with_handlers(Handlers(handlers));
    let record = || store.get(&id).expect("readable").expect("there");
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        let begun = monotonic_nanoseconds();
        while !record().line.state.is_over() {
            assert!(monotonic_nanoseconds() - begun < HARD_STOP.as_nanos() as u64, "it is never over");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        worker.drain();
    });
    let log = store.read_log(&id, 0, 1 << 20).expect("readable").bytes;
    (record(), String::from_utf8_lossy(&log).into_owned())
}

#[test]
fn handler_result_is_job_value_and_its_output_is_in_log() {
    let (record, log) = run(json!({"handler": "shell", "input": "printf hello"}));
    let result = record.result.expect("a result");
    assert_eq!((result.status, result.value), (JobStatus::Ok, Some(json!("hello"))), "{:?}", result.error);
    assert_eq!(log, "hello");
}

#[test]
fn the_deadline_of_the_job_ends_what_a_handler_has_begun() {
    let (record, _) = run(json!({"handler": "shell", "input": "while :; do :; done", "wall_ms": 700}));
    let result = record.result.expect("a result");
    let verdict = result.verdict.expect("a verdict");
    assert_eq!((result.status, verdict.layer, verdict.limit_ms), (JobStatus::Timeout, Layer::Job, Some(700)));
    assert_eq!(result.outcome.expect("an Outcome").tree.survivors, Some(0));
}

#[test]
fn a_handler_drives_a_loop_and_is_an_action_of_it() {
    // The driver's input takes precedence over the spec's.
    let driver = r#"read asked; case $asked in *'"turn":1}'*) echo '{"action": "act"}';; *) echo '{"action": "act", "input": "printf acted"}';; esac"#;
    let source = json!({"loop": {
        "driver": {"command": ["sh", "-c", driver]},
        "actions": {"act": {"handler": "shell", "input": "printf instead"}},
        "iterations": 2,
    }});
    let (record, log) = run(source);
    let result = record.result.expect("a result");
    assert_eq!((result.status, result.turns), (JobStatus::Budget, Some(2)), "{:?}", result.error);
    assert_eq!(log, "insteadacted");
}

#[test]
fn handler_errors_are_reported() {
    let (record, _) = run(json!({"handler": "shell", "input": "exit 3"}));
    assert_eq!(record.line.state, JobState::Ended);
    assert!(record.line.error.expect("a message").contains("it did not go well"));
    for (name, expected) in
        [("silent", "ended without a word"), ("absent", "no handler `absent` (it has: shell, silent)")]
    {
        let (record, _) = run(json!({"handler": name}));
        let error = record.line.error.expect("a message");
        assert_eq!(record.line.state, JobState::Dead, "{error}");
        assert!(error.contains(expected), "{error}");
    }
}
