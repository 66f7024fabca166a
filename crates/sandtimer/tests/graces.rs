//! A grace period that does not fit into the limits around its run is cut, with a remark; the run
//! has its time.

use std::time::Duration;

use sandtimer::Limits;
use sandtimer::engine::{Engine, Options, Spec};
use sandtimer::limits::Key;
use sandtimer::model::{Ending, Layer, LimitKind, RemarkKind, Source};

fn shell(script: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", script])
}

/// Deaf to SIGTERM.
const IGNORES_SIGTERM: &str = "trap '' TERM; while :; do sleep 0.05; done";

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// The wall of the scope around the runs, in seconds.
const WALL: f64 = 8.0;

fn graceful() -> Limits {
    Limits::new().grace(seconds(30.0))
}

#[test]
fn grace_takes_half_of_what_an_outer_limit_leaves() {
    let engine = Engine::new().expect("an engine");
    let within = |script: &str| {
        let limits = Limits::new().wall(seconds(WALL));
        let job = engine.open_scope(None, Layer::Job, "job/a", &limits).expect("a scope");
        let mut spec = shell(script).limits(graceful());
        spec.parent = Some(job.id());
        let run = engine.start(spec).expect("a run");
        let grace = run.effective().get(Key::Grace).expect("a grace").clone();
        assert_eq!((grace.source, grace.layer, &*grace.scope), (Source::Ancestor, Layer::Job, "job/a"));
        // Half of what is left when it is submitted, which is soon.
        assert!(grace.value > 0 && grace.value as f64 <= WALL / 2.0 * 1e9, "{grace:?}");
        run.settled_blocking()
    };
    let outcome = within("sleep 0.5; echo done");
    assert_eq!((outcome.ending, &*outcome.stdout), (Ending::Exited, "done\n"));
    let remark = outcome.remarks.first().expect("a remark");
    assert_eq!(remark.kind, RemarkKind::ShortenedGrace);
    assert!(remark.message.contains("instead of 30 s") && remark.message.contains("the job's"), "{remark:?}");
    assert!(!remark.message.contains("  "), "{remark:?}");

    let outcome = within(IGNORES_SIGTERM);
    let verdict = outcome.verdict.as_ref().expect("a verdict");
    assert_eq!((verdict.kind, verdict.source), (Some(LimitKind::Wall), Source::Ancestor), "{verdict:?}");
    let [term, kill] = [0, 1].map(|sent| verdict.signals[sent].at_ms);
    assert!(term > 0 && kill > term, "{verdict:?}");
}

#[test]
fn grace_takes_half_of_an_operators_maximum() {
    let options = Options { maxima: Limits::new().wall(seconds(WALL)), ..Options::default() };
    let engine = Engine::with_options(options).expect("an engine");
    let outcome = engine.run_blocking(shell("sleep 0.2; echo done").limits(graceful())).expect("a run");
    assert_eq!((outcome.ending, &*outcome.stdout), (Ending::Exited, "done\n"));
    assert!(outcome.remarks[0].message.contains("the operator's"), "{:?}", outcome.remarks);
    let outcome = engine.run_blocking(shell(IGNORES_SIGTERM).limits(graceful())).expect("a run");
    let verdict = outcome.verdict.as_ref().expect("a verdict");
    assert_eq!((verdict.source, verdict.signals.len()), (Source::Ceiling, 2), "{verdict:?}");
    assert!(verdict.signals[0].at_ms >= 3_900, "its half is its own: {verdict:?}");
}

#[test]
fn grace_that_fits_is_left_alone_and_not_remarked() {
    let engine = Engine::new().expect("an engine");
    let job =
        engine.open_scope(None, Layer::Job, "job/a", &Limits::new().wall(seconds(60.0))).expect("a scope");
    let mut spec = shell("true").limits(Limits::new().wall(seconds(1.0)).grace(seconds(50.0)));
    spec.parent = Some(job.id());
    let run = engine.start(spec).expect("a run");
    let grace = run.effective().get(Key::Grace).expect("a grace").clone();
    assert_eq!((grace.source, grace.value), (Source::Call, 50_000_000_000));
    assert_eq!(run.settled_blocking().remarks, []);
}

#[test]
fn grace_has_its_length_again_once_the_outer_limit_is_extended() {
    let engine = Engine::new().expect("an engine");
    let outer = engine.start(shell("sleep 1000").limits(Limits::new().wall(seconds(10.0)))).expect("a run");
    outer.started_blocking();
    let mut spec = shell("sleep 1000").limits(graceful());
    spec.parent = Some(outer.scope());
    let inner = engine.start(spec).expect("a run");
    inner.started_blocking();
    let grace = || inner.deadline().expect("a deadline") - inner.wall_end().expect("a wall limit");
    assert!(grace() <= 5_000_000_000, "{}", grace());
    outer.extend(seconds(90.0)).expect("an extension");
    assert_eq!(grace(), 30_000_000_000);
    outer.cancel("the test has ended");
    inner.cancel("the test has ended");
    assert_eq!(inner.settled_blocking().remarks, []);
}
