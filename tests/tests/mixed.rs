//! Thousands of runs of all kinds beside one another: each ends as its kind must, and nothing is
//! left of any.

#![allow(clippy::disallowed_methods, reason = "the control is a bare process on purpose")]

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::RunInvocation;
use sandtimer_tests::count;
use sandtimer_tests::wait::{alone, until};

/// Runs beside one another.
const CONCURRENT_RUNS: usize = 4;

/// What a shell does, under which limits, and how that must end. Its subshells carry its arguments,
/// and so its mark.
const KINDS: &[(&str, &[&str], &str)] = &[
    ("exit 0", &[], "exited"),
    ("exit 3", &[], "exited"),
    ("kill -9 $$", &[], "signaled"),
    ("while :; do :; done", &["--wall", "60ms"], "timeout"),
    ("kill -STOP $$", &["--wall", "60ms"], "timeout"),
    ("trap '' TERM INT HUP; while :; do sleep 1; done", &["--wall", "80ms", "--grace", "20ms"], "timeout"),
    (
        "trap 'while :; do :; done' TERM; while :; do :; done",
        &["--wall", "80ms", "--grace", "20ms"],
        "timeout",
    ),
    ("(while :; do sleep 1; done) & exit 0", &[], "exited"),
    ("( ( trap '' HUP TERM; while :; do sleep 1; done ) & ) & exit 0", &[], "exited"),
    ("setsid sh -c 'while :; do sleep 1; done' \"$0\" & sleep 0.02; exit 0", &[], "exited"),
    (
        "for i in 1 2 3 4 5 6 7 8; do (while :; do sleep 1; done) & done; exit 0",
        &["--processes", "32"],
        "exited",
    ),
    ("for i in 1 2 3 4; do (while :; do :; done) & done; wait", &["--wall", "80ms"], "timeout"),
];

fn one(number: usize) -> Result<(), String> {
    let (source, limits, ending) = KINDS[number % KINDS.len()];
    let run =
        RunInvocation::new().flags(limits).command(&["sh", "-c", source, &format!("st-mark-mixed-{number}")]);
    let (outcome, _) = run.outcome().map_err(|error| format!("{source}: {error}"))?;
    match (outcome.ending() == ending, outcome.survivors()) {
        (true, Some(0)) => Ok(()),
        (_, survivors) => Err(format!("{source}: '{}', survivors {survivors:?}", outcome.ending())),
    }
}

/// The census sees what a shell leaves behind that nobody watches. It ends with its pipe.
fn census_finds_leftover_process() {
    let before = Census::take();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut shell = Command::new("sh");
    // What runs in the background has no stdin of the shell's unless it is given one.
    shell.args(["-c", "exec 3<&0; (read line <&3) & exit 0", "st-mark-mixed-control"]);
    shell.stdin(reader).stdout(Stdio::null());
    assert!(shell.spawn().expect("a shell").wait().expect("its end").success());
    drop(shell);
    let is_found = until(Duration::from_secs(2), || !Census::take().added_since(&before).is_empty());
    drop(writer);
    assert!(is_found, "the census does not see a process that was left behind");
    assert_clean(&before, "the control");
}

#[test]
fn nothing_is_left_of_many_runs_of_all_kinds() {
    let _alone = alone("mixed", Duration::from_secs(3000));
    census_finds_leftover_process();
    let before = Census::take();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let runs = count(10 * KINDS.len(), 10_000);
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENT_RUNS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return;
                    }
                    if let Err(error) = one(number) {
                        failures.lock().expect("a list").push(error);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("a list");
    assert!(failures.is_empty(), "{} of {runs}:\n{}", failures.len(), failures.join("\n"));
    assert_clean(&before, "many runs");
}
