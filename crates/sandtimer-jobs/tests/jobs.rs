//! Jobs from submission to result: a real store, a real engine, real processes.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer::Engine;
use sandtimer::model::{Layer, LimitKind};
use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::executor::{SendResult, WebhookSender, Worker, WorkerContext, WorkerSettings};
use sandtimer_jobs::job::{
    CancelResult, Delivery, JobPhase, JobRecord, JobSpec, JobState, JobStatus, JobStore, Submission,
};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};

/// After this a test has failed.
const HARD_STOP: Duration = Duration::from_secs(170);

fn submit(store: &dyn JobStore, source: Value) -> String {
    let spec = JobSpec::read(source).expect("a valid spec");
    store.submit(&[Submission { spec, owner: "test".to_owned() }]).expect("submitted").remove(0).id
}

fn store_and_worker(directory: &std::path::Path) -> (Arc<dyn JobStore>, Worker) {
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory).expect("opened"));
    let engine = Engine::new().expect("an engine");
    let worker = Worker::new(WorkerContext::new(engine, Arc::clone(&store), directory), settings("one"));
    (store, worker)
}

fn pause(time: Duration) {
    std::thread::park_timeout(time);
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = monotonic_nanoseconds();
    while !is() {
        assert!(monotonic_nanoseconds() - begun < HARD_STOP.as_nanos() as u64, "never: {what}");
        pause(Duration::from_millis(20));
    }
}

fn settings(name: &str) -> WorkerSettings {
    WorkerSettings {
        name: name.to_owned(),
        slots: 2,
        queues: Vec::new(),
        only: None,
        lease: Duration::from_secs(30),
        memory: None,
        ..WorkerSettings::new(|problem| panic!("{problem}"))
    }
}

/// Runs a job to its end, while `act` runs in parallel.
fn run_with(source: Value, act: impl Fn(&dyn JobStore, &str)) -> (JobRecord, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let engine = Engine::new().expect("an engine");
    let resources = WorkerContext::new(engine, Arc::clone(&store), directory.path());
    let worker = Worker::new(resources, settings("one"));
    let id = submit(&*store, source);
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        act(&*store, &id);
        until("the job is over", || store.get(&id).expect("readable").expect("there").line.state.is_over());
        worker.drain();
    });
    let log = store.read_log(&id, 0, 1 << 20).expect("readable").bytes;
    let record = store.get(&id).expect("readable").expect("there");
    if let Some(outcome) = record.result.as_ref().and_then(|result| result.outcome.as_ref()) {
        assert_eq!(outcome.tree.survivors, Some(0), "it is recorded when everything is dead");
    }
    (record, String::from_utf8_lossy(&log).into_owned())
}

fn run(source: Value) -> (JobRecord, String) {
    run_with(source, |_, _| {})
}

fn example(name: &str, scale: f64) -> Value {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs").canonicalize().expect("there");
    let text = std::fs::read_to_string(directory.join(name)).expect("readable");
    let mut source = JobSpec::json_of_toml(&text).expect("TOML");
    source["cwd"] = directory.to_str().expect("text").into();
    source["time_scale"] = scale.into();
    source
}

#[test]
fn a_stubborn_loop_is_ended_by_the_deadline_of_its_job() {
    let (record, log) = run(example("calculator.toml", 0.2));
    let result = record.result.expect("a result");
    let verdict = result.verdict.expect("a verdict");
    assert_eq!(result.status, JobStatus::Timeout, "{log}");
    assert_eq!((verdict.layer, verdict.kind), (Layer::Job, LimitKind::Wall));
    assert_eq!((verdict.scope, verdict.limit_ms), (format!("job/{}", record.line.id), Some(24_000)));
    assert!(verdict.elapsed_ms >= 24_000, "{}", verdict.elapsed_ms);
    let error = result.error.expect("a message");
    assert!(
        error.starts_with("Stopped by the job's wall limit of 24 s") && error.contains("went to 20 attempts"),
        "{error}"
    );
    // Five calls of three attempts and a fallback, then none: the breaker is open.
    assert_eq!(result.spent.attempts, 20, "{log}");
    assert_eq!(result.spent.backoff_ms, 5 * (20 + 40 + 80));
    assert!(result.spent.refused > 0 && result.turns.expect("turns") < 24);
    let breaker =
        result.breakers.iter().find(|breaker| breaker.key == "calculator:calculate").expect("there");
    assert_eq!((breaker.state.as_str(), breaker.failures_in_a_row), ("open", 5));
    assert!(
        log.contains("[SYSTEM: calculator:calculate circuit breaker open - try different approach]"),
        "{log}"
    );
    assert_eq!(record.line.state, JobState::Ended);
    assert_eq!(record.line.ok, Some(false));
}

#[test]
fn a_loop_that_takes_another_way_is_done() {
    let (record, log) = run(example("another_way.toml", 0.5));
    let result = record.result.expect("a result");
    assert_eq!(result.status, JobStatus::Ok, "{:?} {log}", result.error);
    assert_eq!(result.value, Some(json!(42)));
    // Five turns that fail, one that is refused, one on the abacus, one that reports the end.
    assert_eq!(result.turns, Some(8));
    assert_eq!((result.spent.attempts, result.spent.refused), (21, 2));
}

#[test]
fn steps_run_in_sequence_with_retries_and_fallback() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |script: &str| json!(["sh", "-c", script]);
    let (record, log) = run(json!({
        "workspaces": [directory.path()],
        "cwd": directory.path(),
        "steps": [
            {"name": "second", "needs": ["first"], "command": at("cat made"), "attempts": 2,
             "fallback": [{"command": at("echo instead")}]},
            {"name": "first", "command": at("test -e tried || { touch tried; exit 3; }"), "attempts": 2, "backoff_ms": [5]},
        ],
    }));
    let result = record.result.expect("a result");
    assert_eq!(result.status, JobStatus::Ok, "{:?} {log}", result.error);
    assert!(result.degraded && result.steps[1].degraded && !result.steps[0].degraded);
    let names: Vec<&str> = result.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(result.spent.attempts, 5);
    assert!(log.contains("instead"));
}

#[test]
fn failed_step_ends_job_and_is_named() {
    let (record, _) = run(json!({
        "steps": [
            {"name": "bad", "command": ["sh", "-c", "echo no such thing >&2; exit 7"]},
            {"name": "never", "needs": ["bad"], "command": ["true"]},
        ],
    }));
    let result = record.result.expect("a result");
    assert_eq!(result.status, JobStatus::Failed);
    let error = result.error.expect("a message");
    assert!(error.starts_with("bad: ") && error.contains("exit code 7: no such thing"), "{error}");
    assert_eq!(result.steps.iter().map(|step| step.ok).collect::<Vec<_>>(), [Some(false), None]);
}

#[test]
fn a_busy_loop_and_its_daemon_are_dead_when_the_job_is_recorded() {
    let script = "setsid sh -c 'trap \"\" TERM; while :; do :; done' & trap '' TERM; while :; do :; done";
    let (record, _) = run(json!({"wall_ms": 1500, "command": ["sh", "-c", script], "attempts": 5}));
    let result = record.result.expect("a result");
    let verdict = result.verdict.expect("a verdict");
    assert_eq!(
        (result.status, verdict.layer, verdict.phase),
        (JobStatus::Timeout, Layer::Job, JobPhase::Running)
    );
    assert_eq!(result.spent.attempts, 1, "a job whose time is over tries nothing again");
    assert_eq!(result.outcome.expect("an outcome").tree.survivors, Some(0));
}

#[test]
fn grace_beyond_the_jobs_wall_leaves_the_run_its_time() {
    let wall = json!({"wall_ms": "4s", "limits": {"grace_ms": "5s"}});
    let parts = [
        json!({"command": ["sh", "-c", "sleep 0.5; echo done"]}),
        json!({"steps": [{"name": "a", "command": ["sh", "-c", "sleep 0.5; echo done"]}]}),
    ];
    for part in parts {
        let mut source = wall.clone();
        source.as_object_mut().expect("a table").extend(part.as_object().expect("a table").clone());
        let (record, log) = run(source);
        let outcome = record.result.expect("a result").outcome.expect("an outcome");
        assert_eq!((record.line.ok, &log[..]), (Some(true), "done\n"), "{part}: {outcome:?}");
    }
}

#[test]
fn exit_codes_that_are_named_are_not_retried() {
    let spec = |code| {
        json!({"command": ["sh", "-c", format!("exit {code}")], "attempts": 3, "backoff_ms": [1], "not_retried": [2, 7],
               "fallback": [{"command": ["true"]}]})
    };
    for (code, attempts) in [(7, 2), (6, 4)] {
        let (record, log) = run(spec(code));
        let result = record.result.expect("it has ended");
        assert!(result.ok, "the fallback is next: {log}");
        assert_eq!(result.spent.attempts, attempts, "{log}");
    }
}

#[test]
fn verdict_names_layer_of_limit() {
    let sleep = json!(["sleep", "60"]);
    let (record, _) = run(json!({"command": sleep, "limits": {"wall_ms": 200}, "wall_ms": 60_000}));
    let result = record.result.expect("a result");
    let verdict = result.verdict.expect("a verdict");
    assert_eq!((result.status, verdict.layer, verdict.limit_ms), (JobStatus::Timeout, Layer::Run, Some(200)));
    assert!(result.error.expect("a message").contains("the run's wall limit of 200 ms"));
    let slow = json!({"name": "slow", "command": sleep, "wall_ms": 200, "attempts": 9, "key": "slow:sleep"});
    let (record, _) = run(json!({"steps": [slow]}));
    let result = record.result.expect("a result");
    let (verdict, error) = (result.verdict.expect("a verdict"), result.error.expect("a message"));
    assert_eq!(
        (result.status, verdict.layer, verdict.limit_ms),
        (JobStatus::Timeout, Layer::Call, Some(200))
    );
    assert!(error.contains("the call's wall limit of 200 ms"), "{error}");
    assert_eq!((result.spent.attempts, result.breakers[0].failures_in_a_row), (1, 1), "it is its own limit");
    let hungry = "exec head -c 256M /dev/zero | tail -c 256M > /dev/null";
    let (record, _) =
        run(json!({"command": ["sh", "-c", hungry], "limits": {"memory_bytes": "32M"}, "wall_ms": 60_000}));
    let result = record.result.expect("a result");
    assert_eq!(
        (result.status, result.verdict.map(|verdict| verdict.kind)),
        (JobStatus::Failed, Some(LimitKind::Memory))
    );
    let endless = json!({"command": ["sh", "-c", "echo '{\"action\": \"x\", \"input\": 1}'"]});
    let action = json!({"x": {"command": ["true"]}});
    let (record, _) = run(json!({"loop": {"driver": endless, "actions": action, "iterations": 3}}));
    let result = record.result.expect("a result");
    let verdict = result.verdict.expect("a verdict");
    assert_eq!(
        (result.status, verdict.layer, verdict.kind),
        (JobStatus::Budget, Layer::Loop, LimitKind::Turns)
    );
    assert_eq!(result.turns, Some(3));
    let driver = json!({"command": ["sleep", "60"]});
    let (record, _) = run(json!({"loop": {"driver": driver, "wall_ms": 300}, "wall_ms": 60_000}));
    let verdict = record.result.expect("a result").verdict.expect("a verdict");
    assert_eq!((verdict.layer, verdict.limit_ms), (Layer::Loop, Some(300)));
}

#[test]
fn driver_is_notified_of_open_breaker_despite_fallback() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = r#"read -r asked
        case "$asked" in
            *"a:b circuit breaker open - try different approach"*) echo '{"done": "told"}' ;;
            *) echo '{"action": "x", "input": 1}' ;;
        esac"#;
    let fallback = json!([{"command": ["sh", "-c", "test -e tried || { touch tried; exit 1; }"]}]);
    let action = json!({"command": ["false"], "key": "a:b", "fallback": fallback});
    let turns =
        json!({"driver": {"command": ["sh", "-c", script]}, "actions": {"x": action}, "iterations": 5});
    let breaker = json!({"failures": 1, "open_ms": "1h"});
    let workspaces = json!([directory.path()]);
    let source =
        json!({"loop": turns, "breaker": breaker, "workspaces": workspaces, "cwd": directory.path()});
    let (record, log) = run(source);
    let result = record.result.expect("a result");
    assert_eq!((result.value, result.turns), (Some(json!("told")), Some(3)), "{log}");
    assert!(result.degraded && log.contains("[SYSTEM: a:b circuit breaker open"), "{log}");
}

#[test]
fn a_cancel_ends_what_runs_and_what_waits() {
    let jobs = [
        json!({"command": ["sh", "-c", "echo begun; sleep 600"]}),
        json!({"command": ["sh", "-c", "echo begun; exit 1"], "attempts": 2, "backoff_ms": [600_000]}),
    ];
    for source in jobs {
        let (record, _) = run_with(source, |store, id| {
            until("it has begun", || {
                store.read_log(id, 0, 99).expect("readable").bytes.starts_with(b"begun")
            });
            pause(Duration::from_millis(100));
            assert_eq!(store.cancel(id, "the test wants it").expect("asked"), CancelResult::Asked);
        });
        let result = record.result.expect("a result");
        assert_eq!((record.line.state, result.status), (JobState::Cancelled, JobStatus::Cancelled));
        assert!(result.error.expect("a message").contains("the test wants it"));
    }
}

#[test]
fn a_driver_that_talks_nonsense_is_quoted() {
    let (record, _) = run(json!({"loop": {"driver": {"command": ["echo", "hello"]}}}));
    let error = record.result.expect("a result").error.expect("a message");
    assert!(
        error.contains("the driver failed in turn 1: it answered `hello`; it must answer with one line"),
        "{error}"
    );
}

#[test]
fn an_answer_of_a_driver_is_bounded() {
    let result_of = |program: &str| {
        let turns = json!({"driver": {"command": ["python3", "-c", program]}, "actions": {"x": {"command": ["true"]}}, "iterations": 2});
        let result = run(json!({"loop": turns})).0.result.expect("a result");
        (result.status, result.error.unwrap_or_default())
    };
    let answer = |input: &str| format!("print('{{\"action\": \"x\", \"input\": ' + {input} + '}}')");
    let (status, error) = result_of(&answer("'\"' + 'a' * (1 << 20) + '\"'"));
    assert_eq!(status, JobStatus::Failed);
    assert!(error.contains("its answer has 1048604 bytes, more than the limit of 1048576"), "{error:.300}");
    let (status, error) = result_of(&answer("'[' + '{\"\":0},' * 50_000 + '0]'"));
    assert_eq!(status, JobStatus::Failed);
    assert!(error.contains("in turn 1: its answer is too large: it counts as"), "{error:.300}");
    assert!(error.contains("the limit is 100000"), "{error:.300}");
    // The control: long texts and lists are passed on from turn to turn.
    let program = "import json, sys\nasked = json.load(sys.stdin)\n\
        state = asked['state'] or {'text': 'a' * 500_000, 'list': list(range(20_000))}\n\
        print(json.dumps({'done': len(state['text']) + len(asked['last']['input'])} if asked['turn'] == 2 else \
        {'action': 'x', 'input': list(range(5_000)), 'state': state}))";
    let turns = json!({"driver": {"command": ["python3", "-c", program]}, "actions": {"x": {"command": ["cat"]}}, "iterations": 2});
    let result = run(json!({"loop": turns})).0.result.expect("a result");
    assert_eq!((result.status, result.value), (JobStatus::Ok, Some(json!(505_000))), "{:?}", result.error);
}

#[test]
fn a_breaker_of_the_store_outlives_its_job() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, worker) = store_and_worker(directory.path());
    let source = json!({"command": ["false"], "key": "a:b", "breaker": {"failures": 2, "open_ms": "1h", "scope": "store"}});
    let errors: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        let one = |_| {
            let id = submit(&*store, source.clone());
            until("it is over", || store.get(&id).expect("readable").expect("there").line.state.is_over());
            store.get(&id).expect("readable").expect("there").line.error.expect("a message")
        };
        let errors = (0..3).map(one).collect();
        let spec = JobSpec::read(source.clone()).expect("a valid spec");
        let other = Submission { spec, owner: "another".to_owned() };
        let id = store.submit(&[other]).expect("submitted").remove(0).id;
        until("another owner's is over", || {
            store.get(&id).expect("readable").expect("there").line.state.is_over()
        });
        let reported = store.get(&id).expect("readable").expect("there").line.error.expect("a message");
        assert!(
            reported.contains("exit code 1"),
            "what one owner's jobs met is nobody else's business: {reported}"
        );
        worker.drain();
        errors
    });
    assert!(
        errors[1].contains("exit code 1") && errors[2].contains("[SYSTEM: a:b circuit breaker open"),
        "{errors:?}"
    );
}

#[test]
fn what_is_only_called_a_driver_keeps_its_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, worker) = store_and_worker(directory.path());
    let id = submit(&*store, json!({"name": "driver", "command": ["echo", "hello"]}));
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        until("it is over", || store.get(&id).expect("readable").expect("there").line.state.is_over());
        worker.drain();
    });
    let log = store.read_log(&id, 0, 1000).expect("readable");
    assert!(String::from_utf8_lossy(&log.bytes).contains("hello"), "{log:?}");
}

#[test]
fn draining_worker_completes_its_job() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, worker) = store_and_worker(directory.path());
    let slow = submit(&*store, json!({"command": ["sh", "-c", "echo begun; sleep 0.5"]}));
    let state = |id: &String| store.get(id).expect("readable").expect("there").line.state;
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        until("it has begun", || state(&slow) == JobState::Leased);
        worker.drain();
    });
    let late = submit(&*store, json!({"command": ["true"]}));
    assert_eq!((state(&slow), state(&late)), (JobState::Ended, JobState::Queued));
}

#[test]
fn concurrent_jobs_are_bounded_by_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let engine = Engine::new().expect("an engine");
    let settings = WorkerSettings { slots: 4, memory: Some(100 << 20), ..settings("one") };
    let worker = Worker::new(WorkerContext::new(engine, Arc::clone(&store), directory.path()), settings);
    let sleep = |limits: Value| submit(&*store, json!({"command": ["sleep", "0.4"], "limits": limits}));
    let large: Vec<String> = (0..3).map(|_| sleep(json!({"memory_bytes": "60M"}))).collect();
    let plain = sleep(json!({}));
    let get = |id: &String| store.get(id).expect("readable").expect("there").line;
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        until("all are over", || large.iter().chain([&plain]).all(|id| get(id).state.is_over()));
        worker.drain();
    });
    let mut times: Vec<_> = large.iter().map(|id| (get(id).leased_ms, get(id).ended_ms)).collect();
    times.sort();
    assert!(times.windows(2).all(|two| two[0].1 <= two[1].0), "one after the other: {times:?}");
    assert!(get(&plain).leased_ms < times[1].0, "what says nothing does not wait: {times:?}");
}

#[derive(Debug)]
struct UnusedWebhookSender;

impl WebhookSender for UnusedWebhookSender {
    fn send(&self, _: &Delivery, _: &[u8]) -> SendResult {
        panic!("nothing is to be told")
    }
}

/// Answers every request in the same way.
#[derive(Debug)]
struct ConstantWebhookSender(SendResult);

impl WebhookSender for ConstantWebhookSender {
    fn send(&self, _: &Delivery, _: &[u8]) -> SendResult {
        self.0.clone()
    }
}

#[test]
fn webhook_that_one_worker_may_not_send_is_sent_by_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let engine = Engine::new().expect("an engine");
    let worker = |name: &str, sent: SendResult| {
        let resources = WorkerContext::new(engine.clone(), Arc::clone(&store), directory.path());
        Worker::new(resources, settings(name)).with_webhook_sender(Arc::new(ConstantWebhookSender(sent)))
    };
    let bystander = worker("bystander", SendResult::Forbidden("not from here".to_owned()));
    let sender = worker("sender", SendResult::Accepted);
    let submit_cancelled = |number: usize| {
        let hook = json!({"url": format!("http://host-{}/", number % 3)});
        let id = submit(&*store, json!({"command": ["true"], "webhook": hook}));
        store.cancel(&id, "over").expect("cancelled");
        id
    };
    let ids: Vec<String> = (0..6).map(submit_cancelled).collect();
    let webhook = |id: &String| store.get(id).expect("readable").expect("there").webhook.expect("one");
    std::thread::scope(|scope| {
        scope.spawn(|| bystander.work());
        until("a delivery waits visibly", || ids.iter().any(|id| webhook(id).error.is_some()));
        for state in ids.iter().map(webhook).filter(|state| state.error.is_some()) {
            let error = state.error.expect("a reason");
            assert!(error.contains("not from here") && error.contains("waits for a worker"), "{error}");
        }
        scope.spawn(|| sender.work());
        until("all are sent", || ids.iter().all(|id| webhook(id).delivered_ms.is_some()));
        bystander.drain();
        sender.drain();
    });
    assert!(
        ids.iter().all(|id| webhook(id).attempts == 1),
        "{:?}",
        ids.iter().map(webhook).collect::<Vec<_>>()
    );
}

#[test]
fn webhook_of_a_removed_job_is_sent_by_the_next_worker() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, _) = store_and_worker(directory.path());
    let hook = json!({"url": "http://host/"});
    let id = submit(&*store, json!({"command": ["true"], "webhook": hook}));
    store.cancel(&id, "over").expect("cancelled");
    assert_eq!(store.purge(&Default::default()).expect("purged"), 1);
    #[derive(Debug, Default)]
    struct Bodies(Mutex<Vec<Value>>);
    impl WebhookSender for Bodies {
        fn send(&self, _: &Delivery, body: &[u8]) -> SendResult {
            self.0.lock().expect("no panic").push(serde_json::from_slice(body).expect("JSON"));
            SendResult::Accepted
        }
    }
    let bodies = Arc::new(Bodies::default());
    let webhook_sender: Arc<dyn WebhookSender> = Arc::clone(&bodies) as _;
    let worker = store_and_worker(directory.path()).1.with_webhook_sender(webhook_sender);
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        until("it is sent", || !bodies.0.lock().expect("no panic").is_empty());
        worker.drain();
    });
    let bodies = bodies.0.lock().expect("no panic");
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!((&bodies[0]["id"], &bodies[0]["state"]), (&json!(id), &json!("cancelled")));
}

#[test]
fn webhook_outage_and_recovery_are_reported_once() {
    static REPORTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let reported = || REPORTED.lock().expect("no panic").clone();
    let directory = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let resources = WorkerContext::new(Engine::new().expect("an engine"), store, directory.path());
    let report_error = |problem: &str| REPORTED.lock().expect("no panic").push(problem.to_owned());
    let worker = Worker::new(resources, WorkerSettings { report: report_error, ..settings("one") })
        .with_webhook_sender(Arc::new(UnusedWebhookSender));
    let other_connection = rusqlite::Connection::open(directory.path().join("jobs.sqlite")).expect("opened");
    other_connection.busy_timeout(HARD_STOP).expect("set");
    let rename = |from: &str, to: &str| {
        other_connection.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).expect("renamed");
    };
    rename("webhooks", "elsewhere");
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        until("it is said", || !reported().is_empty());
        // It looks twice a second.
        pause(Duration::from_millis(1_800));
        rename("elsewhere", "webhooks");
        until("it is over", || reported().len() > 1);
        worker.drain();
    });
    let reported = reported();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[0].starts_with("webhooks cannot be sent; the worker tries again: "), "{reported:?}");
    assert_eq!(reported[1], "webhooks can be sent again");
}

#[test]
fn worker_announces_itself_again_and_departs_at_its_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let resources =
        WorkerContext::new(Engine::new().expect("an engine"), Arc::clone(&store), directory.path());
    let announce_interval = Duration::from_millis(100);
    let worker = Worker::new(resources, WorkerSettings { announce_interval, slots: 2, ..settings("often") });
    let announced = || store.workers().expect("listed").first().map(|worker| worker.seen_ms);
    std::thread::scope(|scope| {
        scope.spawn(|| worker.work());
        until("it is listed", || announced().is_some());
        let first = announced();
        until("it is announced again", || announced() > first);
        let listed = store.workers().expect("listed").remove(0);
        assert_eq!((listed.facts.name.as_str(), listed.facts.slots), ("often", 2));
        worker.drain();
    });
    assert_eq!(announced(), None, "it has ended");
}

#[test]
fn workers_of_one_process_have_names_of_their_own() {
    let name = || WorkerSettings::new(|_| {}).name;
    assert_ne!(name(), name());
}
