//! `sandtimer estimate`, as people, scripts and agents call it.
#![allow(
    clippy::disallowed_methods,
    reason = "the command under test is started here; it starts nothing itself"
)]

use std::path::Path;
use std::process::{Command, Output};

use sandtimer_agents::estimate::{Conditions, FinishedRun, History, Question};
use sandtimer_records::DurationStore;
use serde_json::Value;

fn estimate(state: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    command.arg("estimate").args(arguments).arg("--state-dir").arg(state);
    command.output().expect("it starts")
}

fn printed(state: &Path, arguments: &[&str]) -> String {
    let output = estimate(state, arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn object(state: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(state, &[arguments, &["--json"]].concat())).expect("JSON")
}

#[test]
fn the_block_of_the_description_is_printed_and_nothing_is_made() {
    let state = tempfile::tempdir().expect("a directory");
    let text = printed(
        state.path(),
        &["train_complex_model", "--data-size-mb", "2300", "--complexity", "moderate", "--budget", "1h45m"],
    );
    assert!(
        text.starts_with(
            "⏱️ Task Duration Estimate: train_complex_model\n\n📊 Estimated Duration:\n   ⚡ Best case:  12m 0s\n   \
             📈 Typical:    30m 0s\n   ⚠️ Worst case: 1h 30m\n"
        ),
        "{text}"
    );
    assert!(text.contains("Fits the remaining 1h 45m: yes"), "{text}");
    let object = object(state.path(), &["feature_engineering", "--budget", "15m"]);
    assert_eq!(
        (object["typical_ms"].as_u64(), object["fits_budget"].as_bool()),
        (Some(1_500_000), Some(false))
    );
    assert_eq!(std::fs::read_dir(state.path()).expect("there").count(), 0);
}

#[test]
fn the_runs_of_this_users_server_are_what_an_estimate_rests_on() {
    let state = tempfile::tempdir().expect("a directory");
    let store = DurationStore::open(state.path(), 0).expect("it opens").durations;
    let owner = format!("uid:{}", rustix::process::geteuid().as_raw());
    let run = |owner: &str, seconds| {
        let question = Question::command(&["make", "-j2"]).conditions(Conditions::here()).owner(owner);
        store.append(&FinishedRun { question, seconds, stopped: false, ended_at_ms: 0 }).expect("written");
    };
    (0..6).for_each(|_| run(&owner, 10.0));
    run("token:somebody", 500.0);
    let object = object(state.path(), &["--command", "make -j2"]);
    assert_eq!((object["runs"].as_u64(), object["typical_ms"].as_u64()), (Some(6), Some(10_000)));
    assert!(object["worst_ms"].as_u64().expect("a number") < 20_000, "{object}");
    assert!(printed(state.path(), &["--command", "make -j7"]).contains("10s"));
}

#[test]
fn unknown_commands_get_a_range_with_its_basis() {
    let state = tempfile::tempdir().expect("a directory");
    let output = estimate(state.path(), &["--command", "make -j2"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("Basis: unknown: no run of this command"), "{text}");
    assert!(text.contains("1m 0s") && text.contains("1h 0m"), "{text}");
}

#[test]
fn what_cannot_be_estimated_is_refused_by_name() {
    let state = tempfile::tempdir().expect("a directory");
    for (arguments, parts) in [
        (&["train_model"][..], &["train_model", "train_simple_model"][..]),
        (&["load_data", "--data-size-mb", "-3"], &["data_size_mb", "-3"]),
        (&["load_data", "--data-size-mb", "nan"], &["data_size_mb", "NaN"]),
        (&["load_data", "--data-size-mb", "inf"], &["data_size_mb", "inf"]),
        (&["load_data", "--data-size-mb", "1e300"], &["data_size_mb", "1e300", "1000000000000"]),
        (&["load_data", "--data-size-mb", "true"], &["--data-size-mb", "true"]),
        (&["load_data", "--complexity", "hard"], &["complexity", "hard", "moderate"]),
        (&["load_data", "--budget", "soon"], &["--budget", "soon"]),
        (&[], &["TYPE"]),
    ] {
        let output = estimate(state.path(), arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{arguments:?}: {text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{arguments:?}: {text}");
    }
}

#[test]
fn all_types_are_listed() {
    let state = tempfile::tempdir().expect("a directory");
    let text = printed(state.path(), &["--list"]);
    assert_eq!(text.lines().count(), 30, "{text}");
    assert!(text.contains("train_complex_model      12m 0s   30m 0s   1h 30m   2300"), "{text}");
    assert_eq!(object(state.path(), &["--list"]).as_array().map(Vec::len), Some(29));
}

#[test]
fn damaged_history_is_reported_and_newer_one_rejected() {
    let state = tempfile::tempdir().expect("a directory");
    let path = state.path().join("durations.sqlite");
    std::fs::write(&path, "no database").expect("written");
    let output = estimate(state.path(), &["load_data"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("damaged"), "{text}");
    let mut bytes = std::fs::read(&path).expect("a new one");
    // `user_version` in the header of an SQLite file.
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&path, bytes).expect("written");
    let output = estimate(state.path(), &["load_data"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("version 99"), "{text}");
    // That of MCP clients is another program's.
    let clients = state.path().join("mcp");
    std::fs::create_dir(&clients).expect("made");
    std::fs::rename(&path, clients.join("durations.sqlite")).expect("moved");
    let output = estimate(state.path(), &["load_data"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("estimates do without the runs of MCP clients") && text.contains("version 99"),
        "{text}"
    );
}
