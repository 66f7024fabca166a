//! `sandtimer progress`.
#![allow(clippy::disallowed_methods, reason = "the command under test is started here")]

use std::process::{Command, Output};

fn progress(script: &str) -> Output {
    let script = script.replace("REPORT", &format!("{} progress", env!("CARGO_BIN_EXE_sandtimer")));
    Command::new("sh").args(["-c", &script]).env_remove("SANDTIMER_PROGRESS_FD").output().expect("it starts")
}

#[test]
fn a_report_goes_where_the_variable_says() {
    let output = progress("SANDTIMER_PROGRESS_FD=3 REPORT 8/15 --unit epoch 3>&1 >/dev/null");
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert_eq!(line, serde_json::json!({"done": 8.0, "total": 15.0, "unit": "epoch"}));
    assert!(output.status.success());
}

#[test]
fn where_nobody_listens_nothing_is_done() {
    let output = progress("REPORT 8/15 3>&1");
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    for (script, word) in [
        ("REPORT 16/15", "16/15"),
        ("SANDTIMER_PROGRESS_FD=77 REPORT 8/15", "77"),
        ("SANDTIMER_PROGRESS_FD=x REPORT 8/15", "`x`"),
    ] {
        let output = progress(script);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{output:?}");
    }
}
