//! `sandtimer progress`.
#![allow(clippy::disallowed_methods, reason = "the command under test is started here")]

use std::process::{Command, Output};

fn progress(script: &str) -> Output {
    let script = script.replace("REPORT", &format!("{} progress", env!("CARGO_BIN_EXE_sandtimer")));
    Command::new("sh").args(["-c", &script]).env_remove("SANDTIMER_PROGRESS_FD").output().expect("it starts")
}

#[test]
fn report_goes_to_the_descriptor_of_the_variable() {
    let output = progress("SANDTIMER_PROGRESS_FD=3 REPORT 8/15 --unit epoch 3>&1 >/dev/null");
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(line, serde_json::json!({"done": 8.0, "total": 15.0, "unit": "epoch"}));
    assert!(output.status.success());
}

#[test]
fn report_without_listener_does_nothing() {
    let output = progress("REPORT 8/15 3>&1");
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    for (script, expected) in [
        ("REPORT 16/15", "16/15"),
        ("SANDTIMER_PROGRESS_FD=77 REPORT 8/15", "77"),
        ("SANDTIMER_PROGRESS_FD=x REPORT 8/15", "`x`"),
    ] {
        let output = progress(script);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{output:?}");
    }
}

/// Executes `sandtimer run`. Returns its exit code, its output and its own messages.
fn run(flags: &[&str], script: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    let arguments = [&["run"], flags, &["--", "sh", "-c", script]].concat();
    let output = command.args(arguments).env("SANDTIMER_CONFIG", "").output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const BUSY: &str = "echo \"on $SANDTIMER_PROGRESS_FD\"; while :; do :; done";

#[test]
fn busy_run_without_progress_stalls_by_progress_only() {
    let by =
        |ground| run(&["--progress-channel", "--stall", "500ms", "--stall-by", ground, "--wall", "3s"], BUSY);
    let (code, out, errors) = by("progress");
    assert_eq!((code, out.as_str()), (Some(124), "on 3\n"), "{errors}");
    assert!(errors.contains("stall limit of 500 ms"), "{errors}");
    let (code, _, errors) = by("output");
    assert!(code == Some(124) && errors.contains("wall limit of 3 s"), "{errors}");
}

#[test]
fn progress_reports_prevent_stall_and_are_in_sentence() {
    let script =
        "for i in 1 2 3 4 5 6; do echo '{\"done\":'$i',\"total\":15}' >&3; sleep 0.25; done; sleep 60";
    let flags = ["--progress-channel", "--stall", "1s", "--stall-by", "progress", "--wall", "30s"];
    let (code, _, errors) = run(&flags, script);
    assert_eq!(code, Some(124), "{errors}");
    assert!(errors.contains("stall limit of 1 s") && errors.contains("6 of 15"), "{errors}");
}

#[test]
fn stall_by_progress_without_channel_is_rejected() {
    let (code, _, errors) = run(&["--stall", "1s", "--stall-by", "progress"], "true");
    assert_eq!(code, Some(125));
    assert!(errors.contains("--stall-by: ") && errors.contains("progress channel"), "{errors}");
    assert_eq!(run(&["--stall", "1s", "--stall-by", "progress", "--json"], "true").0, Some(0));
    assert_eq!(run(&["--stall-by", "luck"], "true").0, Some(125));
}

#[test]
fn run_is_warned_before_its_limit_by_signal_and_channel() {
    let script = "trap 'echo told' USR1; while :; do sleep 0.05; done";
    let (code, out, errors) = run(&["--wall", "1500ms", "--warn", "700ms:usr1"], script);
    assert_eq!((code, out.as_str()), (Some(124), "told\n"), "{errors}");
    let script = "read line <&$SANDTIMER_NOTICE_FD; echo \"$line\"; sleep 60";
    let (_, out, errors) = run(&["--wall", "1500ms", "--warn", "700ms", "--progress-channel"], script);
    assert!(out.contains("\"limit\":\"wall\""), "{out} {errors}");
    assert!(errors.contains("the wall-clock limit ends it in "), "{errors}");
}

#[test]
fn impossible_notice_is_rejected_or_reported() {
    for (given, expected) in [
        ("soon", "--warn: `soon`"),
        ("30s:LOUD", "--warn: `LOUD`"),
        ("30s:KILL", "--warn: signal 9"),
        ("0", "--warn: `0`"),
        ("-1s", "--warn: `-1s`"),
    ] {
        let (code, _, errors) = run(&["--wall", "60s", "--warn", given], "true");
        assert!(code == Some(125) && errors.contains(expected), "{given}: {errors}");
    }
    let (code, _, errors) = run(&["--warn", "1s"], "true");
    assert!(code == Some(0) && errors.contains("no wall or cpu limit to warn of"), "{errors}");
}
