//! What jobs have to do with each other: steps in parallel, fan-out and fan-in, schedules, rates. A
//! real store, a real engine, real processes.

use std::sync::Arc;
use std::time::Duration;

use sandtimer::Engine;
use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::executor::{Worker, WorkerContext, WorkerSettings};
use sandtimer_jobs::job::{
    Filter, JobRecord, JobSpec, JobState, JobStatus, JobStore, MAX_FAN_OUT_BYTES, ScheduleSpec, Submission,
    expanded,
};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};

/// After this a test has failed.
const HARD_STOP: Duration = Duration::from_secs(120);

/// A store and a worker with `slots` slots, which works while `act` runs.
fn with_worker<T>(slots: usize, act: impl FnOnce(&dyn JobStore) -> T) -> T {
    let directory = tempfile::tempdir().expect("a directory");
    let store: Arc<dyn JobStore> = Arc::new(SqliteJobs::open(directory.path()).expect("opened"));
    let resources =
        WorkerContext::new(Engine::new().expect("an engine"), Arc::clone(&store), directory.path());
    let settings =
        WorkerSettings { slots, memory: None, ..WorkerSettings::new(|problem| panic!("{problem}")) };
    let worker = Worker::new(resources, settings);
    std::thread::scope(|scope| {
        let _drain = Drain(&worker);
        scope.spawn(|| worker.work());
        act(&*store)
    })
}

/// Ends the worker, after a failed assertion as well.
struct Drain<'a>(&'a Worker);

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

fn submit(store: &dyn JobStore, sources: Vec<Value>) -> Vec<String> {
    let one = |source| Submission { spec: JobSpec::read(source).expect("valid"), owner: "test".to_owned() };
    let submissions: Vec<Submission> = sources.into_iter().map(one).collect();
    store.submit(&submissions).expect("submitted").into_iter().map(|one| one.id).collect()
}

fn ended(store: &dyn JobStore, id: &str) -> JobRecord {
    let begun = monotonic_nanoseconds();
    loop {
        let record = store.get(id).expect("readable").expect("there");
        if record.line.state.is_over() {
            return record;
        }
        assert!(monotonic_nanoseconds() - begun < HARD_STOP.as_nanos() as u64, "{:?}", record.line);
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// A step that ends when the other one has begun too.
fn meeting(name: &str, other: &str) -> Value {
    let script = format!("touch {name}; until [ -e {other} ]; do sleep 0.02; done; echo {name}");
    json!({"name": name, "command": ["sh", "-c", script]})
}

#[test]
fn parallel_steps_run_at_the_same_time() {
    let spec = |parallel: u32, wall: &str| {
        let last = json!({"name": "last", "needs": ["a", "b"], "command": ["sh", "-c", "ls; echo last"]});
        json!({
            "steps": [meeting("a", "b"), meeting("b", "a"), last], "parallel": parallel, "outputs": ["a"], "wall_ms": wall,
        })
    };
    with_worker(2, |store| {
        let ids = submit(store, vec![spec(2, "60s"), spec(1, "1s")]);
        let together = ended(store, &ids[0]);
        let result = together.result.expect("a result");
        assert_eq!(result.status, JobStatus::Ok, "{:?}", result.error);
        assert!(result.steps.iter().all(|step| step.ok == Some(true)), "{:?}", result.steps);
        assert_eq!((result.calls.len(), result.spent.attempts), (3, 3));
        assert!(result.outcome.expect("of the last step").stdout.ends_with("last\n"));
        assert_eq!(result.files.len(), 1);
        let log = store.read_log(&ids[0], 0, 1 << 16).expect("readable").bytes;
        assert!(String::from_utf8_lossy(&log).ends_with("last\n"));
        // One after another the first step waits for ever.
        let alone = ended(store, &ids[1]).result.expect("a result");
        assert_eq!(alone.status, JobStatus::Timeout);
        assert_eq!(alone.steps.iter().map(|step| step.ok).collect::<Vec<_>>(), [None, None, None]);
    });
}

#[test]
fn failed_step_lets_others_end_and_none_begin() {
    with_worker(1, |store| {
        let ids = submit(
            store,
            vec![json!({
                "steps": [
                    {"name": "fails", "command": ["sh", "-c", "until [ -e begun ]; do sleep 0.02; done; touch failing; exit 3"]},
                    {"name": "ends", "command": ["sh", "-c", "touch begun; until [ -e failing ]; do sleep 0.02; done; sleep 0.3; echo ended"]},
                    {"name": "after both", "needs": ["fails", "ends"], "command": ["true"]},
                    {"name": "after one", "needs": ["ends"], "command": ["true"]},
                ],
                "parallel": 3, "outputs": ["begun"], "wall_ms": "60s",
            })],
        );
        let result = ended(store, &ids[0]).result.expect("a result");
        assert_eq!(result.status, JobStatus::Failed);
        assert!(result.error.expect("a reason").starts_with("fails: "));
        assert_eq!(result.outcome.expect("of the step that failed").exit_code, Some(3));
        let ok: Vec<Option<bool>> = result.steps.iter().map(|step| step.ok).collect();
        assert_eq!(ok, [Some(false), Some(true), None, None]);
    });
}

#[test]
fn cancel_and_limit_end_all_parallel_steps() {
    let sleep = |name: &str| json!({"name": name, "command": ["sleep", "600"]});
    let steps = || (0..4).map(|number| sleep(&number.to_string())).collect::<Vec<_>>();
    with_worker(2, |store| {
        let spec = |wall: &str| json!({"steps": steps(), "parallel": 4, "wall_ms": wall});
        let ids = submit(store, vec![spec("10m"), spec("1s")]);
        let limited = ended(store, &ids[1]).result.expect("a result");
        assert_eq!(limited.status, JobStatus::Timeout);
        assert_eq!(limited.calls.len(), 4, "each was stopped");
        store.cancel(&ids[0], "a test").expect("asked");
        let cancelled = ended(store, &ids[0]);
        assert_eq!(cancelled.line.state, JobState::Cancelled);
        let outcome = cancelled.result.expect("a result").outcome.expect("an Outcome");
        assert_eq!(outcome.tree.survivors, Some(0));
    });
}

#[test]
fn map_runs_each_item_and_then_has_their_results() {
    let source = json!({
        "name": "square", "wall_ms": "60s",
        "command": ["sh", "-c", "echo $((SANDTIMER_ITEM * SANDTIMER_ITEM)); [ $SANDTIMER_ITEM != 4 ]"],
        "map": {"over": [2, 3, 4], "most": 2, "then": {
            "command": ["cat", "results.json"], "after_results": "results.json", "after_failure": "run", "wall_ms": "60s",
        }},
    });
    with_worker(4, |store| {
        let ids = submit(store, expanded(source, &mut MAX_FAN_OUT_BYTES.clone()).expect("valid"));
        assert_eq!(ids.len(), 4);
        let outcome = ended(store, &ids[3]).result.expect("a result").outcome.expect("an Outcome");
        let results: Vec<Value> = serde_json::from_str(&outcome.stdout).expect("JSON");
        let of = |key: &str| results.iter().map(|result| result[key].clone()).collect::<Vec<_>>();
        assert_eq!(of("id"), ids[..3].iter().map(|id| json!(id)).collect::<Vec<_>>());
        assert_eq!(of("stdout"), ["4\n", "9\n", "16\n"]);
        assert_eq!(of("ok"), [json!(true), json!(true), json!(false)]);
        assert_eq!(of("name"), ["square[0]", "square[1]", "square[2]"]);
    });
}

#[test]
fn job_of_a_schedule_knows_its_moment() {
    let source = json!({
        "name": "tick", "every_ms": 1_000, "job": {"command": ["sh", "-c", "echo $SANDTIMER_SCHEDULED_MS"], "wall_ms": "30s"},
    });
    with_worker(1, |store| {
        let spec = ScheduleSpec::read(source).expect("valid");
        let first = store.put_schedule("test", "default", &spec).expect("stored").next_ms.expect("a moment");
        let begun = monotonic_nanoseconds();
        while store.schedules(Some("test")).expect("listed")[0].submitted < 2 {
            assert!(monotonic_nanoseconds() - begun < HARD_STOP.as_nanos() as u64);
            std::thread::park_timeout(Duration::from_millis(20));
        }
        assert!(store.remove_schedule("test", "tick").expect("removed"));
        let jobs = store.list(&Filter::default(), None, 100).expect("listed").jobs;
        let moments: Vec<u64> = jobs
            .iter()
            .map(|line| ended(store, &line.id).result.expect("a result").outcome.expect("an Outcome").stdout)
            .map(|stdout| stdout.trim().parse().expect("a number"))
            .collect();
        assert!(
            moments.iter().all(|moment| *moment >= first && (moment - first) % 1_000 == 0),
            "{moments:?}"
        );
        let distinct: std::collections::BTreeSet<&u64> = moments.iter().collect();
        assert_eq!(distinct.len(), moments.len(), "each moment has one job");
    });
}
