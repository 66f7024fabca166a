//! Jobs of `sandtimer serve` as a process that is killed, and together with the command line on the
//! same store.
#![allow(clippy::disallowed_methods, reason = "the commands under test are started here")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::serving;

use serving::{HARD_STOP, TestServer};

fn start(state: &Path, slots: &str) -> TestServer {
    TestServer::start(TestServer::command(state).args(["--job-slots", slots]))
}

fn submit(serving: &TestServer, jobs: &Value) -> Vec<String> {
    let answer = ureq::post(format!("{}/v1/jobs", serving.address)).send(jobs.to_string());
    let text = answer.expect("an answer").body_mut().read_to_string().expect("a text");
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    let ids = answer["jobs"].as_array().expect("a list").iter();
    ids.map(|job| job["job_id"].as_str().expect("an id").to_owned()).collect()
}

fn ended(serving: &TestServer) -> usize {
    let list: Value = serde_json::from_str(&serving.get("/v1/jobs?state=ended")).expect("JSON");
    list["jobs"].as_array().expect("a list").len()
}

#[test]
fn killed_and_restarted_server_completes_jobs_once() {
    const BRIEF: usize = 24;
    let state = tempfile::tempdir().expect("a directory");
    let serving = start(state.path(), "3");
    let mut jobs =
        vec![json!({"command": ["sh", "-c", "sleep 3; echo done"], "priority": 100, "wall_ms": "1h"})];
    jobs.extend(vec![json!({"command": ["sh", "-c", "sleep 0.2; echo done"]}); BRIEF]);
    let ids = submit(&serving, &jobs.into());
    let deadline = serving.job(&ids[0], Duration::ZERO)["deadline_ms"].clone();
    let end = sandtimer_os::clock::monotonic_nanoseconds() + HARD_STOP.as_nanos() as u64;
    while ended(&serving) < 4 {
        assert!(sandtimer_os::clock::monotonic_nanoseconds() < end, "nothing is executed");
    }
    drop(serving);

    let serving = start(state.path(), "3");
    let before = ended(&serving);
    assert!((4..BRIEF).contains(&before), "{before} of {BRIEF} were over");
    for id in &ids {
        let job = serving.job(id, HARD_STOP);
        assert_eq!((&job["state"], &job["ok"]), (&json!("ended"), &json!(true)), "{job}");
        assert_eq!(job["duplicates"], json!([]), "{job}");
        let deliveries = job["deliveries"].as_u64().expect("a number");
        let earlier = job["earlier"].as_array().expect("a list").len() as u64;
        assert!(deliveries <= 2 && earlier == deliveries - 1, "{job}");
    }
    let first = serving.job(&ids[0], Duration::ZERO);
    assert_eq!((&first["deliveries"], &first["deadline_ms"]), (&json!(2), &deadline), "{first}");
    assert_eq!(first["earlier"][0]["status"], "lost");
    // Counted where it is recorded: each once, whichever server it was.
    let line = format!("sandtimer_jobs_ended_total{{status=\"ok\"}} {}\n", ids.len());
    let metrics = serving.get("/metrics");
    assert!(metrics.contains(&line), "{metrics}");
}

#[test]
fn server_executes_jobs_submitted_by_command_line() {
    let state = tempfile::tempdir().expect("a directory");
    let serving = start(state.path(), "1");
    let jobs = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        command.arg("jobs").args(arguments).env("SANDTIMER_STATE_DIR", state.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let mut submitting = jobs(&["submit", "-"]);
    let written = submitting.stdin.take().expect("piped").write_all(b"{\"command\": [\"echo\", \"hello\"]}");
    written.expect("written");
    let output = submitting.wait_with_output().expect("it ends");
    let id = String::from_utf8(output.stdout).expect("text").trim().to_owned();
    assert_eq!(jobs(&["wait", &id]).wait().expect("it ends").code(), Some(0));
    let job = serving.job(&id, Duration::ZERO);
    assert_eq!((&job["worker"], &job["ok"]), (&json!("server"), &json!(true)), "{job}");
    assert!(serving.get(&format!("/v1/jobs/{id}/log")).contains("hello\\n"));
}
