//! No false stall: jobs that print nothing for many times their stall limit, and work all the time.
//!
//! Seconds by default; at full size (SANDTIMER_FULL) ten minutes, as training code is quiet.

use std::time::Duration;

use sandtimer::engine::{Engine, Spec};
use sandtimer::limits::Limits;
use sandtimer::model::{Ending, LimitKind, Outcome, Warning};

/// How long the jobs take, and how long they may neither write nor compute.
fn times() -> (Duration, Duration) {
    let (length, stall) = if std::env::var_os("SANDTIMER_FULL").is_some() { (600, 60) } else { (8, 2) };
    (Duration::from_secs(length), Duration::from_secs(stall))
}

/// A Python program that has `length` and `stall` in seconds, computes by `work(seconds)`, and
/// writes nothing.
fn job(body: &str) -> Spec {
    let (length, stall) = times();
    let code = format!(
        "import os, time\nlength, stall = {}, {}\n\
         def work(seconds):\n    end = time.monotonic() + seconds\n    while time.monotonic() < end: sum(range(10_000))\n{body}",
        length.as_secs(),
        stall.as_secs()
    );
    Spec::command(["python3", "-c", &code]).limits(Limits::new().stall(stall))
}

#[test]
fn who_computes_quietly_for_long_is_not_stalled() {
    let engine = Engine::new().expect("an engine");
    let quiet = [
        ("one that computes", "work(length)"),
        (
            "one whose child computes",
            "child = os.fork()\nif child == 0:\n    work(length)\n    os._exit(0)\nos.waitpid(child, 0)",
        ),
        (
            "one that pauses for less than the limit",
            "end = time.monotonic() + length\nwhile time.monotonic() < end:\n    work(stall / 4)\n    time.sleep(stall / 4)",
        ),
    ];
    let runs = quiet.map(|(name, body)| (name, engine.start(job(body)).expect("it starts")));
    let idle = engine.start(job("time.sleep(length)")).expect("it starts");
    for (name, run) in runs {
        let warning = run.warned_blocking();
        let quiet = |limit: Duration| matches!(warning, Some(Warning::Stall { quiet_ms }) if quiet_ms >= limit.as_millis() as u64);
        assert!(quiet(times().1), "{name} is quiet beyond the limit: {warning:?}");
        let outcome = run.settled_blocking();
        assert_eq!((outcome.ending, outcome.exit_code), (Ending::Exited, Some(0)), "{name}: {outcome:?}");
        assert!(is_long(&outcome) && outcome.stdout.is_empty(), "{name}: {outcome:?}");
    }
    // The same limit on a run that does nothing.
    let outcome = idle.settled_blocking();
    let verdict = outcome.verdict.as_ref().expect("its limit ended it");
    assert_eq!((outcome.ending, verdict.kind), (Ending::Stalled, Some(LimitKind::Stall)), "{outcome:?}");
    assert!(!is_long(&outcome), "{outcome:?}");
}

fn is_long(outcome: &Outcome) -> bool {
    u128::from(outcome.usage.wall_ms) >= times().0.as_millis()
}
