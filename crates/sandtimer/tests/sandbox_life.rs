//! The life of sandboxes: limits of the whole, pauses, and what a new engine finds of both.
#![allow(clippy::disallowed_methods)] // tests wait for time to pass

use crate::as_user;
use crate::sandbox_fixture::{OWNER, open, spec_with, wait_until};

use std::sync::Arc;
use std::time::Duration;

use as_user::as_a_user;
use sandtimer::engine::{
    CellSpec, Context, ContextSpec, Run, Sandbox, SandboxError, SandboxLimit, Sandboxes, Stream,
};
use sandtimer::model::{Ending, LimitKind, Outcome};
use sandtimer::{Engine, Error, Limits, Spec};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn spec_in(sandbox: &Sandbox, line: &str) -> Spec {
    let limits = Limits::new().wall(seconds(30));
    Spec { sandbox: Some(sandbox.clone()), ..Spec::command(["sh", "-c", line]).limits(limits) }
}

#[track_caller]
fn output(engine: &Engine, sandbox: &Sandbox, line: &str) -> String {
    let outcome = engine.run_blocking(spec_in(sandbox, line)).expect("a run");
    assert_eq!((outcome.ending, outcome.exit_code), (Ending::Exited, Some(0)), "{outcome:?}");
    outcome.stdout.clone()
}

fn printed(run: &Run) -> usize {
    run.output(Stream::Stdout, 0, 1 << 20).expect("in memory").bytes.len()
}

fn execute(context: &Context, source: &str) -> Result<Arc<Outcome>, Error> {
    let limits = Limits::new().wall(seconds(30));
    context.execute(CellSpec { source: source.to_owned(), limits, ..CellSpec::default() }, &mut |_| {})
}

/// Ends it as soon as it is due.
#[track_caller]
fn end_when_due(sandboxes: &Sandboxes, id: &str) {
    wait_until("it is due", || {
        sandboxes.due().iter().any(|due| due.id() == id && sandboxes.end_at_limit(due).expect("ended"))
    });
}

#[track_caller]
fn assert_ended(sandboxes: &Sandboxes, id: &str, limit: SandboxLimit) {
    match sandboxes.find(id, OWNER) {
        Err(SandboxError::Ended(end)) => assert_eq!((end.id.as_str(), end.limit), (id, limit)),
        other => panic!("{other:?}"),
    }
    let foreign = sandboxes.find(id, "token-b");
    assert!(matches!(foreign, Err(SandboxError::NotFound(_))), "{foreign:?}");
}

#[test]
fn wall_limit_ends_runs_and_is_reported() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new().wall(seconds(1)))).expect("a sandbox");
    let endless = sandboxes.create(spec_with(Limits::new())).expect("the control");
    let run = engine.start(spec_in(&sandbox, "while :; do :; done")).expect("a run");
    let other = engine.start(spec_in(&endless, "sleep 20")).expect("a run");
    let outcome = run.wait_blocking();
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Timeout, Some(0)), "{outcome:?}");
    let verdict = outcome.verdict.as_ref().expect("a verdict");
    assert_eq!(verdict.kind, Some(LimitKind::Wall));
    let named = format!("sandbox-{}", sandbox.id());
    assert!(verdict.scope.ends_with(&named) && verdict.sentence.contains(&named), "{verdict:?}");
    let late = engine.run_blocking(spec_in(&sandbox, "true"));
    assert!(matches!(late, Err(Error::Sandbox(SandboxError::Ended(_)))), "{late:?}");
    end_when_due(&sandboxes, sandbox.id());
    assert_ended(&sandboxes, sandbox.id(), SandboxLimit::Wall);
    let id = sandbox.id().to_owned();
    wait_until("its files are removed", || !state.path().join(&id).exists());
    assert!(!other.has_finished() && sandboxes.due().is_empty(), "the control has no limit");
    drop((sandbox, run, other, endless, sandboxes));
    drop(engine);

    let engine = Engine::new().expect("the next engine");
    let sandboxes = open(&engine, state.path());
    assert_ended(&sandboxes, &id, SandboxLimit::Wall);
    sandboxes.delete(&id, OWNER).expect("its owner has seen it");
    assert!(matches!(sandboxes.find(&id, OWNER), Err(SandboxError::NotFound(_))));
}

#[test]
fn idle_limit_counts_from_the_last_use() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let idle = Duration::from_millis(800);
    let [used, unused] =
        [(); 2].map(|()| sandboxes.create(spec_with(Limits::new().idle(idle))).expect("a sandbox"));
    let context = ContextSpec { sandbox: Some(used.clone()), ..ContextSpec::default() };
    let session = engine.session(context).expect("a session");
    end_when_due(&sandboxes, unused.id());
    assert_ended(&sandboxes, unused.id(), SandboxLimit::Idle);
    assert_eq!(used.life().idle_left, Some(idle), "a live session is use");
    assert!(!sandboxes.end_at_limit(&used).expect("no error"), "it is used");
    assert_eq!(output(&engine, &used, "echo there"), "there\n");
    session.close();
    drop(session);
    end_when_due(&sandboxes, used.id());
    assert_ended(&sandboxes, used.id(), SandboxLimit::Idle);
}

#[test]
fn restart_neither_extends_nor_resets_limits() {
    let state = tempfile::tempdir().expect("a directory");
    let (long, short) = (seconds(3600), Duration::from_millis(300));
    let limits = [
        Limits::new().wall(long).idle(long),
        Limits::new().wall(short),
        Limits::new().idle(short),
        Limits::new().wall(seconds(2)),
    ];
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let ids = limits.map(|limits| sandboxes.create(spec_with(limits)).expect("a sandbox").id().to_owned());
    sandboxes.find(&ids[3], OWNER).expect("it is there").pause().expect("paused");
    drop(sandboxes);
    drop(engine);
    // Longer than the walls of all but the first.
    std::thread::sleep(Duration::from_millis(2_100));

    let engine = Engine::new().expect("the next engine");
    let sandboxes = open(&engine, state.path());
    let kept = sandboxes.find(&ids[0], OWNER).expect("it is there");
    let life = kept.life();
    assert_eq!((life.idle, life.wall), (Some(long), Some(long)));
    for left in [life.idle_left, life.wall_left] {
        let left = left.expect("a limit");
        assert!(left < long - seconds(2) && left > long - seconds(600), "{left:?}");
    }
    end_when_due(&sandboxes, &ids[1]);
    assert_ended(&sandboxes, &ids[1], SandboxLimit::Wall);
    end_when_due(&sandboxes, &ids[2]);
    assert_ended(&sandboxes, &ids[2], SandboxLimit::Idle);
    let paused = sandboxes.find(&ids[3], OWNER).expect("its clock stands still");
    assert!(paused.life().is_paused && paused.life().wall_left > Some(seconds(1)), "{:?}", paused.life());
    let refused = engine.run_blocking(spec_in(&paused, "true"));
    assert!(matches!(refused, Err(Error::Sandbox(SandboxError::Paused(_)))), "{refused:?}");
    paused.resume().expect("resumed");
    end_when_due(&sandboxes, &ids[3]);
}

#[test]
fn pause_stops_runs_contexts_and_clocks() {
    if as_a_user("pause_stops_runs_contexts_and_clocks") {
        // And as root, below.
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new().wall(seconds(60)))).expect("a sandbox");
    let control = sandboxes.create(spec_with(Limits::new())).expect("the control");
    let line = "while :; do echo x; sleep 0.01; done";
    let limits = Limits::new().wall(Duration::from_millis(1_500));
    let short = engine.start(spec_in(&sandbox, "echo x; sleep 30").limits(limits)).expect("a run");
    let [inside, outside] =
        [&sandbox, &control].map(|sandbox| engine.start(spec_in(sandbox, line)).expect("a run"));
    let context = ContextSpec { sandbox: Some(sandbox.clone()), ..ContextSpec::default() };
    let session = engine.session(context).expect("a session");
    // It continues between the runs of the session.
    execute(&session, "(while :; do echo x >>/tmp/left; sleep 0.01; done) >/dev/null 2>&1 &").expect("a run");
    wait_until("all have begun", || [&short, &inside, &outside].iter().all(|run| printed(run) > 0));

    sandbox.pause().expect("paused");
    assert!(matches!(sandbox.pause(), Err(Error::Sandbox(SandboxError::Paused(_)))));
    let left = sandbox.life().wall_left;
    let size = || {
        // By its layer: no run can look.
        let layer = state.path().join(sandbox.id()).join("layer/upper/tmp/left");
        std::fs::metadata(layer).map_or(0, |data| data.len())
    };
    let mut before = (printed(&inside), size());
    wait_until("its processes stand still", || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut before, (printed(&inside), size())) == (printed(&inside), size())
    });
    let outside_before = printed(&outside);
    // Longer than the wall of the short run.
    std::thread::sleep(Duration::from_millis(1_600));
    assert_eq!(before, (printed(&inside), size()), "they stay still");
    assert!(printed(&outside) > outside_before, "the control continues");
    assert!(!short.has_finished() && short.is_paused(), "its clock stands still");
    assert_eq!(sandbox.life().wall_left, left);
    let refused = engine.run_blocking(spec_in(&sandbox, "true"));
    assert!(matches!(refused, Err(Error::Sandbox(SandboxError::Paused(_)))), "{refused:?}");
    let refused = execute(&session, "true");
    assert!(matches!(refused, Err(Error::Sandbox(SandboxError::Paused(_)))), "{refused:?}");

    sandbox.resume().expect("resumed");
    assert!(matches!(sandbox.resume(), Err(Error::Sandbox(SandboxError::NotPaused(_)))));
    wait_until("they continue", || printed(&inside) > before.0 && size() > before.1);
    let outcome = short.wait_blocking();
    assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
    assert!(outcome.verdict.as_ref().is_some_and(|verdict| verdict.spent.paused_ms >= 1_500), "{outcome:?}");
    let outcome = execute(&session, "echo there").expect("a run");
    assert_eq!(outcome.stdout, "there\n", "{outcome:?}");
    drop(session);
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
}

#[test]
fn run_paused_by_itself_stays_so_over_its_sandboxs_pause() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new())).expect("a sandbox");
    let run = engine.start(spec_in(&sandbox, "while :; do echo x; sleep 0.01; done")).expect("a run");
    wait_until("it has begun", || printed(&run) > 0);
    run.pause().expect("paused");
    sandbox.pause().expect("paused");
    sandbox.resume().expect("resumed");
    let mut before = printed(&run);
    wait_until("it stands still", || {
        std::thread::sleep(Duration::from_millis(200));
        std::mem::replace(&mut before, printed(&run)) == printed(&run)
    });
    assert!(run.is_paused());
    run.resume().expect("resumed");
    wait_until("it continues", || printed(&run) > before);
}

#[test]
fn paused_sandbox_can_be_deleted() {
    if as_a_user("paused_sandbox_can_be_deleted") {
        // And as root, below.
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new())).expect("a sandbox");
    let run = engine.start(spec_in(&sandbox, "echo x; sleep 30")).expect("a run");
    let context = ContextSpec { sandbox: Some(sandbox.clone()), ..ContextSpec::default() };
    let session = engine.session(context).expect("a session");
    wait_until("it has begun", || printed(&run) > 0);
    sandbox.pause().expect("paused");
    session.close();
    drop(session);
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
    let outcome = run.wait_blocking();
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Cancelled, Some(0)), "{outcome:?}");
    // What was frozen is not so for the next one in the same place.
    let next = sandboxes.create(spec_with(Limits::new())).expect("a sandbox");
    for _ in 0..4 {
        assert_eq!(output(&engine, &next, "echo there"), "there\n");
    }
}

#[test]
fn extension_moves_the_wall_of_the_whole() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_with(Limits::new().wall(seconds(1)))).expect("a sandbox");
    let run = engine.start(spec_in(&sandbox, "sleep 1.5; echo survived")).expect("a run");
    sandbox.extend(seconds(60)).expect("extended");
    assert_eq!(sandbox.life().wall, Some(seconds(61)));
    let outcome = run.wait_blocking();
    assert_eq!((outcome.ending, outcome.stdout.as_str()), (Ending::Exited, "survived\n"), "{outcome:?}");
    let fork = sandboxes.fork(&sandbox, 1, None).expect("a fork").remove(0);
    let left = fork.life().wall_left.expect("a limit");
    assert!(left > seconds(59), "its own clock begins with it: {left:?}");
}
