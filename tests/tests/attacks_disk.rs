//! Attacks D: disk and output. What a run writes is bounded, and cannot stall whoever reads it.

use std::time::Duration;

use sandtimer_tests::attack::check;
use sandtimer_tests::attack_list::DISK;
use sandtimer_tests::command::{RunInvocation, read_outcome};
use sandtimer_tests::outcome::finding;
use sandtimer_tests::process::marked;
use sandtimer_tests::wait::alone;

const LIMIT: usize = 1 << 20;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("disk attacks", Duration::from_secs(600));
    check(DISK);
}

/// Runs a flood under an output limit of 1 MiB and checks what holds for each.
fn flooded(payload: &[&str]) -> sandtimer_tests::outcome::Outcome {
    let run = RunInvocation::new().flags(&["--wall", "30s", "--output", "1M"]).hostile(payload);
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{payload:?}: {error}"));
    assert_eq!(
        outcome.ending(),
        "exited",
        "output past its limit is dropped, the run goes on: {}",
        outcome.0
    );
    outcome
}

#[test]
fn output_past_its_limit_is_dropped_and_flagged() {
    let _alone = alone("flood", Duration::from_secs(120));
    let outcome = flooded(&["flood-stdout", "64M"]);
    assert!(outcome.is_truncated("stdout") && !outcome.is_truncated("stderr"));
    let kept = outcome.stdout().len();
    assert!((LIMIT / 2..=LIMIT + 4096).contains(&kept), "kept {kept} bytes of a limit of {LIMIT}");
}

#[test]
fn output_within_its_limit_is_kept_whole() {
    let _alone = alone("no flood", Duration::from_secs(60));
    let outcome = flooded(&["flood-stdout", "1000000"]);
    assert!(!outcome.is_truncated("stdout"));
    assert_eq!(outcome.stdout().len(), 1_000_000);
}

#[test]
fn both_streams_full_at_once_do_not_deadlock() {
    let _alone = alone("both streams", Duration::from_secs(120));
    let outcome = flooded(&["flood-both", "32M"]);
    assert!(outcome.is_truncated("stdout") && outcome.is_truncated("stderr"));
}

#[test]
fn a_flood_of_lines_is_only_bytes() {
    let _alone = alone("lines", Duration::from_secs(120));
    assert!(flooded(&["newline-flood", "64M"]).is_truncated("stdout"));
}

#[test]
fn bytes_that_are_not_utf8_arrive_as_base64() {
    let _alone = alone("junk", Duration::from_secs(60));
    let outcome = flooded(&["junk-output"]);
    assert_eq!(outcome.0["encoding"], "base64");
    assert!(outcome.stdout().starts_with("//4AG1sySht"), "lost or changed: {}", outcome.0);
}

#[test]
fn a_flood_passes_through_whole_without_a_limit() {
    let _alone = alone("pass-through", Duration::from_secs(120));
    let finished = RunInvocation::new().flags(&["--wall", "60s"]).hostile(&["flood-stdout", "32M"]).finish();
    assert_eq!(finished.code(), Some(0), "{}", finished.errors());
    assert_eq!(finished.stdout.len(), 32 << 20);
}

#[test]
fn grandchild_holding_the_pipe_delays_no_exit() {
    let _alone = alone("held pipe", Duration::from_secs(60));
    let mut run = RunInvocation::new().flags(&["--json", "--wall", "30s"]).hostile(&["hold-pipe", "25"]);
    run.hard_stop = Duration::from_secs(20);
    let finished = run.finish();
    assert!(finished.elapsed < Duration::from_secs(5), "ended after {:?}", finished.elapsed);
    assert!(!finished.pipe_held, "the command line's own pipe is still open");
    let (outcome, _) = read_outcome(finished).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(outcome.ending(), "exited", "{}", outcome.0);
    assert_eq!(marked(&run.marker), []);
}

/// E7: whoever measures a workspace is not led out of it by what changes under its eyes.
#[test]
fn a_workspace_that_changes_while_it_is_measured_is_not_left() {
    let _alone = alone("measured workspace", Duration::from_secs(60));
    let outside = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(outside.path().join("large"), vec![b'x'; 64 << 20]).expect("own directory");
    let workspace = tempfile::tempdir().expect("a temporary directory");
    let [inside, target] = [workspace.path(), outside.path()].map(|path| path.to_string_lossy().into_owned());
    let flags = ["--wall", "20s", "--disk", "8M", "--workspace", &inside];
    // Five looks, at least: one each 200 ms.
    let run = RunInvocation::new().flags(&flags).hostile(&["swap", &inside, &target, "1500"]);
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(outcome.ending(), "exited", "charged with what is outside: {}", outcome.0);
    let swaps = finding(outcome.stdout()).expect("a finding")["swaps"].as_u64().expect("a count");
    assert!(swaps > 100, "only {swaps} changes");
    // Whoever followed the link would have counted it.
    let followed = ["hostile-a", "hostile-b"].iter().any(|name| {
        std::fs::metadata(workspace.path().join(name).join("large")).is_ok_and(|facts| facts.len() > 8 << 20)
    });
    assert!(followed, "the link leads nowhere: the test shows nothing");
}

/// The control of the test above: the same measure does see what is really inside.
#[test]
fn a_workspace_that_grows_past_the_limit_is_noticed() {
    let _alone = alone("grown workspace", Duration::from_secs(60));
    let workspace = tempfile::tempdir().expect("a temporary directory");
    let inside = workspace.path().to_string_lossy().into_owned();
    let flags = ["--wall", "20s", "--disk", "8M", "--workspace", &inside];
    let script = "for i in 1 2 3 4 5 6; do head -c 4000000 /dev/zero >$0/$i; sleep 0.3; done; sleep 15";
    let run = RunInvocation::new().flags(&flags).command(&["sh", "-c", script, &inside]);
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(outcome.ending(), "disk_limit", "{}", outcome.0);
}
