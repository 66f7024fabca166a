//! Attacks I, as far as they apply to a command: what is reported is what happened, whatever the
//! command says.

use std::time::Duration;

use sandtimer_tests::census::{Census, assert_clean};
use sandtimer_tests::command::RunInvocation;
use sandtimer_tests::honest::honest_run;
use sandtimer_tests::outcome::{Outcome, finding};
use sandtimer_tests::wait::alone;

fn outcome(run: RunInvocation) -> Outcome {
    run.outcome().unwrap_or_else(|error| panic!("{error}")).0
}

#[test]
fn a_forged_outcome_on_stdout_is_only_data() {
    let _alone = alone("forged outcome", Duration::from_secs(60));
    let outcome = outcome(RunInvocation::new().flags(&["--wall", "20s"]).hostile(&["forge-outcome"]));
    assert_eq!((outcome.ending(), outcome.exit_code(), outcome.ok()), ("exited", Some(3), false));
    assert_ne!(outcome.0["run_id"], "forged");
    assert!(outcome.stdout().contains("forged"));
}

#[test]
fn unread_input_blocks_no_ending() {
    let _alone = alone("unread input", Duration::from_secs(60));
    for (payload, ending) in [("sleep", "timeout"), ("ignore-input", "exited")] {
        let mut run = RunInvocation::new().flags(&["--wall", "2s"]).hostile(&[payload]);
        run.input = vec![b'i'; 16 << 20];
        assert_eq!(outcome(run).ending(), ending);
    }
}

#[test]
fn the_callers_environment_stays_outside() {
    let _alone = alone("environment", Duration::from_secs(60));
    let secrets = ["LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "PYTHONSTARTUP", "HOSTILE_SECRET"];
    let mut run =
        RunInvocation::new().flags(&["--wall", "20s", "--env", "GIVEN=1", "--env", "HOSTILE_NAMED"]);
    for name in secrets {
        run = run.environment(name, "");
    }
    let outcome = outcome(run.environment("HOSTILE_NAMED", "2").hostile(&["environ"]));
    let environment = finding(outcome.stdout()).expect("a finding")["environment"].clone();
    for name in secrets {
        assert!(environment.get(name).is_none(), "{name} came through: {environment}");
    }
    assert_eq!((&environment["GIVEN"], &environment["HOSTILE_NAMED"]), (&"1".into(), &"2".into()));
}

/// I15: each layer left out is named in the report, and refused where its tier is required.
#[test]
fn a_layer_left_out_is_reported_and_refused_when_required() {
    let _alone = alone("layers", Duration::from_secs(180));
    for layer in ["seccomp", "landlock", "net", "cgroup"] {
        let reported =
            outcome(RunInvocation::new().flags(&["--wall", "20s"]).without(&[layer]).command(&["/bin/true"]));
        let degraded = reported.degraded();
        assert!(degraded.iter().any(|name| name.contains(layer)), "{layer} is not in {degraded:?}");
        let required =
            RunInvocation::new().flags(&["--require", "T3"]).without(&[layer]).command(&["/bin/true"]);
        let finished = required.finish();
        assert_eq!(finished.code(), Some(125), "T3 without {layer}: {}", finished.text());
    }
}

#[test]
fn negative_controls_need_their_environment_variable() {
    let _alone = alone("switch", Duration::from_secs(60));
    let run = RunInvocation::new().flags(&["--without", "seccomp"]).command(&["/bin/true"]);
    let finished = run.finish();
    assert_eq!(finished.code(), Some(125), "it was honoured: {}", finished.text());
}

/// A11: a command that ends at its deadline has exactly one ending, and either is right.
#[test]
fn ending_at_the_deadline_is_one_ending() {
    let _alone = alone("photo finish", Duration::from_secs(600));
    let before = {
        honest_run().unwrap_or_else(|error| panic!("{error}"));
        Census::take()
    };
    for turn in 0..sandtimer_tests::count(40, 1000) {
        let milliseconds = (195 + turn % 10).to_string();
        let outcome =
            outcome(RunInvocation::new().flags(&["--wall", "200ms"]).hostile(&["exit-at", &milliseconds]));
        let in_time = outcome.ending() == "exited" && outcome.ok() && outcome.0["verdict"].is_null();
        let too_late = outcome.ending() == "timeout" && !outcome.ok() && outcome.limit() == "wall";
        assert!(in_time != too_late, "turn {turn}: {}", outcome.0);
    }
    assert_clean(&before, "a photo finish");
}
