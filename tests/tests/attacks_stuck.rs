//! Attacks A15 and C12: runs that wait in the kernel for something that does not come. Not even
//! SIGKILL ends them, the verdict is on time all the same, and they are gone as soon as it comes.
//!
//! A14, the same by a freezer, needs the engine's own count of slots:
//! `crates/sandtimer/tests/faults.rs`.

use std::path::Path;
use std::time::Duration;

use sandtimer_tests::attack::print_notice;
use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::{RunInvocation, read_outcome};
use sandtimer_tests::fuse::{Fuse, NAME};
use sandtimer_tests::honest::honest_run;
use sandtimer_tests::outcome::{Outcome, finding};
use sandtimer_tests::process::{ProcessStat, marked};
use sandtimer_tests::wait::{alone, until};

const LATE_MS: f64 = 250.0;

fn payloads(run: &RunInvocation) -> Vec<ProcessStat> {
    marked(&run.marker).into_iter().filter(|process| process.runs("hostile")).collect()
}

fn run_on(directory: &Path, payload: &str) -> RunInvocation {
    let (workspace, file) =
        (directory.to_string_lossy(), directory.join(NAME).to_string_lossy().into_owned());
    RunInvocation::new()
        .flags(&["--json", "--wall", "1s", "--workspace", &workspace])
        .hostile(&[payload, &file])
}

/// Mounts what hangs on request, for this thread and what it starts; says why where that is
/// refused.
fn mounted(directory: &Path) -> Option<Fuse> {
    let fuse = Fuse::mount(directory);
    fuse.inspect_err(|why| print_notice(&format!("not tried: {why}"), &[])).ok()
}

/// The control of both: while the file system answers, the payload ends by itself.
fn ends_by_itself(directory: &Path, payload: &str) {
    let finished = run_on(directory, payload).finish();
    let (outcome, _) = read_outcome(finished).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(outcome.ending(), "exited", "{payload}: {}", outcome.0);
    assert_eq!(finding(outcome.stdout()).expect("a finding")["result"], "succeeded", "{}", outcome.0);
}

fn assert_timeout(outcome: &Outcome) {
    assert_eq!((outcome.ending(), outcome.limit()), ("timeout", "wall"), "{}", outcome.0);
    assert!(outcome.late_ms().expect("late by something") < LATE_MS, "{}", outcome.0);
}

/// A15.
#[test]
fn a_run_that_waits_for_a_dead_disk_has_its_verdict_on_time() {
    let _alone = alone("stuck", Duration::from_secs(120));
    honest_run().unwrap_or_else(|error| panic!("{error}"));
    let before = Census::take();
    let directory = RunInvocation::new().directory;
    let Some(fuse) = mounted(directory.path()) else { return };
    ends_by_itself(directory.path(), "read-over");

    fuse.hold(true);
    let run = run_on(directory.path(), "read-over");
    let started = run.start();
    assert!(until(Duration::from_secs(5), || fuse.held() > 0), "no caller waits");
    let finished = started.finish();
    assert!(finished.elapsed < Duration::from_secs(10), "ended after {:?}", finished.elapsed);
    let (outcome, _) = read_outcome(finished).unwrap_or_else(|error| panic!("{error}"));
    assert_timeout(&outcome);
    assert!(["pending", "unkillable"].contains(&outcome.proof()), "{}", outcome.0);
    assert_eq!(outcome.survivors(), None, "{}", outcome.0);
    let alive = payloads(&run);
    assert!(alive.iter().any(|process| process.state == 'D'), "not stuck, {alive:?}: {}", outcome.0);
    // Its engine is gone; the next one must not take over its groups and uids.
    honest_run().unwrap_or_else(|error| panic!("beside a stuck run: {error}"));

    fuse.hold(false);
    let gone = until(Duration::from_secs(5), || marked(&run.marker).is_empty());
    assert!(gone, "alive though nothing holds it: {:?}", marked(&run.marker));
    drop(fuse);
    honest_run().unwrap_or_else(|error| panic!("{error}"));
    assert_clean(&before, "a run that was stuck");
}

/// C12, a residual risk (docs/threat-model.md): who writes to a pipe from memory that the kernel
/// has to fetch first holds the pipe meanwhile, and its reader waits with it. The verdict does not;
/// the Outcome does.
#[test]
fn pipe_held_by_dead_disk_delays_outcome_but_not_verdict() {
    let _alone = alone("stuck pipe", Duration::from_secs(120));
    let directory = RunInvocation::new().directory;
    let Some(fuse) = mounted(directory.path()) else { return };
    ends_by_itself(directory.path(), "echo-mapped");

    fuse.hold(true);
    let run = run_on(directory.path(), "echo-mapped");
    let started = run.start();
    assert!(until(Duration::from_secs(5), || fuse.held() > 0), "no caller waits");
    let ended = until(Duration::from_secs(4), || started.has_ended());
    fuse.hold(false);
    let (outcome, _) = read_outcome(started.finish()).unwrap_or_else(|error| panic!("{error}"));
    assert_timeout(&outcome);
    assert!(!ended, "the Outcome came while the pipe was held: the threat model says that it cannot");
    let gone = until(Duration::from_secs(5), || marked(&run.marker).is_empty());
    assert!(gone, "alive though nothing holds it: {:?}", marked(&run.marker));
}
