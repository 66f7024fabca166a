//! Whether estimates hold what they promise: coverage, sharpness and cost, walked forward over runs
//! that were recorded and over runs that are made up with drift, noise and limits.
//!
//! Each run is foretold from the runs before it, then learned from; nothing else is known of it.
//! `cargo xtask prove bench-estimates` runs this at full size, optimised, and records what is
//! printed here.

mod evaluation;
mod recorded;
mod synthetic;

use std::io::Write;

use evaluation::{SIZES, walk};
use sandtimer_agents::estimate::{Estimator, FinishedRun, Question};
use sandtimer_os::clock::monotonic_nanoseconds;

/// Whether this is a proof at full size.
fn is_full() -> bool {
    std::env::var_os("SANDTIMER_FULL").is_some()
}

fn print(text: &str) {
    // The output of a test: a failed write loses nothing.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[test]
fn what_is_made_up_is_covered() {
    let keys = if is_full() { 12_000 } else { 2_400 };
    let evaluation = walk(synthetic::runs(keys, 70, 20_261_122));
    print(&evaluation.report("made-up runs with drift, noise and limits"));
    for (size, tally) in SIZES.iter().zip(&evaluation.ours) {
        assert!(tally.total >= 2000, "{size}: {} predictions", tally.total);
        let inside = share(tally.inside, tally.total);
        assert!((0.88..=0.92).contains(&inside), "{size}: {inside} between best and worst");
    }
    let covered = evaluation.covered();
    assert!((0.94..=0.96).contains(&covered), "{covered} within the worst case");
    assert!(evaluation.keys_covered() >= 0.95, "{} of the keys", evaluation.keys_covered());
    let ended = evaluation.ended_by_limit();
    assert!(ended <= 0.001, "{ended} of healthy runs ended by the suggested limit");
    let ended = evaluation.ended_in_tasks();
    assert!(ended <= 0.001, "{ended} of healthy runs ended in a task whose runs are ended");
}

#[test]
fn what_was_recorded_is_covered() {
    let runs = recorded::runs();
    let evaluation = walk(runs);
    print(&evaluation.report("recorded runs of real commands, idle and beside load"));
    for (size, tally) in SIZES.iter().zip(&evaluation.ours) {
        assert!(tally.is_within(tally.inside, 0.9, 3.0), "{size}: {tally:?}");
    }
    let whole = evaluation.whole();
    assert!(whole.is_within(whole.covered, 0.95, 3.0), "{}", evaluation.covered());
    assert!(evaluation.keys_covered() >= 0.95, "{} of the keys", evaluation.keys_covered());
    assert!(evaluation.ended_by_limit() <= 0.001, "{}", evaluation.ended_by_limit());
    assert!(evaluation.ended_in_tasks() <= 0.001, "{}", evaluation.ended_in_tasks());
    // No estimator can be narrower than the differences between a command's own runs.
    let (idle, least) = (evaluation.idle_widths(), evaluation.idle_hindsight());
    assert!(idle[3..].iter().all(|width| *width <= 1.05 * least), "worst to typical: {idle:?}, {least}");
}

#[test]
fn limits_that_end_runs_do_not_tighten_the_estimates() {
    print("runs that a limit stopped, with a spread of 0.5: within the worst case, as they would have ended");
    for (stopped, least) in [(0.03, 0.93), (0.1, 0.91), (0.2, 0.88)] {
        let evaluation = walk(synthetic::limited(300, 60, stopped, 7));
        let covered = evaluation.covered();
        print(&format!("  {:4.0} % stopped  {:5.1} %", 100.0 * stopped, 100.0 * covered));
        assert!(covered >= least, "{stopped}: {covered}");
    }
}

#[test]
fn an_estimate_costs_microseconds() {
    let runs = synthetic::runs(2_000, 40, 3);
    let mut estimator = Estimator::new();
    let finished: Vec<FinishedRun> = runs.iter().map(evaluation::EvaluatedRun::finished).collect();
    let start = monotonic_nanoseconds();
    finished.iter().for_each(|run| estimator.record(run).expect("a duration"));
    let recorded = monotonic_nanoseconds();
    let questions: Vec<&Question> = finished.iter().rev().map(|run| &run.question).collect();
    let typical: f64 = questions.iter().map(|question| estimator.predict(question).typical_seconds).sum();
    let predicted = monotonic_nanoseconds();
    assert!(typical > 0.0);
    let each = |nanoseconds: u64| nanoseconds as f64 / 1000.0 / finished.len() as f64;
    let (record, predict) = (each(recorded - start), each(predicted - recorded));
    let bytes = serde_json::to_string(&estimator).expect("JSON").len() / estimator.keys();
    print(&format!(
        "cost of each, over {} runs of {} keys: record {record:.1} µs, predict {predict:.1} µs, {bytes} bytes of JSON a key",
        finished.len(),
        estimator.keys(),
    ));
    assert!(bytes <= 2048);
    // Without optimisation, or while other tests run, a time means nothing.
    if is_full() {
        assert!(predict <= 50.0 && record <= 20.0, "predict {predict} µs, record {record} µs");
    }
}
