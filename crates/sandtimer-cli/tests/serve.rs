//! `sandtimer serve` as a process: how it comes up, ends, and is killed.
//!
//! What it answers has suites of its own in `sandtimer-server`.
#![allow(
    clippy::disallowed_methods,
    reason = "the command under test is started here; the engine is inside it"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::{Value, json};

fn serve(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    command.arg("serve").args(["--listen", "127.0.0.1:0", "--state-dir"]).arg(state);
    command.env("SANDTIMER_CONFIG", "").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in ["SANDTIMER_WALL", "COMMAND_TIMEOUT_MS", "SANDTIMER_TOKEN_FILE", "SANDTIMER_LISTEN"] {
        command.env_remove(variable);
    }
    command
}

/// A server that is up, ended with the test.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on http://").expect("its address").to_owned();
        Serving { child, address }
    }

    fn signal(&self, signal: Signal) {
        let pidfd =
            pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).expect("it is not reaped yet");
        sandtimer_os::process::signal(pidfd.as_fd(), signal).expect("it lives");
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
        serde_json::from_str(body).expect("JSON")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It is gone already where the test ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks again until it is so, for ten seconds.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = sandtimer_os::clock::monotonic_nanoseconds() + 10_000_000_000;
    while !is_so() {
        assert!(sandtimer_os::clock::monotonic_nanoseconds() < end, "not in time: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_was_finished_outlives_kill_9_and_what_was_not_says_that_it_ended_with_the_server() {
    let state = tempfile::tempdir().expect("a directory");
    let serving = Serving::start(&mut serve(state.path()));
    let finished = serving.ask(
        "POST",
        "/v1/runs",
        &json!({"command": ["sh", "-c", "echo kept; echo also >&2; exit 4"]}),
    );
    let running = serving.ask(
        "POST",
        "/v1/runs",
        &json!({"command": ["sh", "-c", "echo said; sleep 100"], "wait_ms": 0, "wall_ms": 90_000}),
    );
    let copy = state.path().join(format!("runs/{}.stdout", running["run_id"].as_str().expect("an id")));
    wait_until("its output is copied", || std::fs::read(&copy).is_ok_and(|bytes| bytes.ends_with(b"said\n")));
    serving.signal(Signal::KILL);
    drop(serving);

    let serving = Serving::start(&mut serve(state.path()));
    let show = |answer: &Value| {
        serving.ask("GET", &format!("/v1/runs/{}", answer["run_id"].as_str().expect("an id")), &Value::Null)
    };
    assert_eq!(show(&finished), finished);
    let lost = show(&running);
    assert_eq!((&lost["status"], &lost["outcome"]["ending"]), (&json!("ended"), &json!("infra_error")));
    let message = lost["outcome"]["error"]["message"].as_str().expect("why");
    assert!(message.contains("ended with the server"), "{message}");
    assert_eq!((&lost["effective"], &lost["outcome"]["stdout"]), (&running["effective"], &json!("said\n")));
    assert!(!copy.exists());
}

#[test]
fn sigterm_ends_it_and_its_runs_with_exit_code_0() {
    let state = tempfile::tempdir().expect("a directory");
    let mut serving = Serving::start(&mut serve(state.path()));
    let script = "trap '' TERM; while :; do sleep 1; done";
    let body = json!({"command": ["sh", "-c", script], "wait_ms": 0, "grace_ms": 60_000});
    let running = serving.ask("POST", "/v1/runs", &body);
    serving.signal(Signal::TERM);
    assert_eq!(serving.child.wait().expect("it ends").code(), Some(0));
    let mut errors = String::new();
    serving.child.stderr.as_mut().expect("piped").read_to_string(&mut errors).expect("text");
    assert_eq!(errors, "");
    let path = state.path().join("runs").join(format!("{}.run", running["run_id"].as_str().expect("an id")));
    let record = std::fs::read(path).expect("the run is recorded");
    assert!(String::from_utf8_lossy(&record).contains("\"cancelled\""));
}

#[test]
fn settings_come_from_flags_and_variables_and_are_shown_with_their_origin() {
    let state = tempfile::tempdir().expect("a directory");
    let mut command = serve(state.path());
    command.args(["--keep-for", "2d"]).env("SANDTIMER_KEEP_RUNS", "7").env("SANDTIMER_WALL", "9s");
    let serving = Serving::start(&mut command);
    let config = serving.ask("GET", "/v1/config", &Value::Null);
    assert_eq!(
        config["server"]["keep_runs"],
        json!({"value": 7, "source": "env", "origin": "the environment"})
    );
    assert_eq!(config["server"]["keep_for_ms"]["value"], 2 * 24 * 3_600_000);
    assert_eq!(
        config["limits"]["wall_ms"],
        json!({"limit": 9_000, "source": "env", "origin": "SANDTIMER_WALL"})
    );
    let run = serving.ask("POST", "/v1/runs", &json!({"command": ["true"]}));
    assert_eq!(run["effective"]["wall_ms"], json!({"limit": 9_000, "source": "env"}));
    let own = serving.ask("POST", "/v1/runs", &json!({"command": ["true"], "wall_ms": 0}));
    assert_eq!(own["effective"]["wall_ms"], Value::Null);
}

#[test]
fn what_cannot_be_served_is_said_in_one_line() {
    let state = tempfile::tempdir().expect("a directory");
    let tokens = state.path().join("tokens");
    std::fs::write(&tokens, "a b\n").expect("written");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).expect("set");
    let tokens = tokens.to_str().expect("text");
    for (flags, word) in [
        (["--listen", "0.0.0.0:0"], "--token-file"),
        (["--listen", "here"], "--listen: `here` is not an address"),
        (["--token-file", tokens], "chmod 600"),
        (["--keep-runs", "-1"], "--keep-runs: `-1`"),
        (["--state-dir", "/dev/null/x"], "/dev/null/x"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        command.arg("serve").args(flags).env("SANDTIMER_CONFIG", "").env_remove("SANDTIMER_TOKEN_FILE");
        if flags[0] != "--state-dir" {
            command.arg("--state-dir").arg(state.path());
        }
        let output = command.output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(125), 1), "{errors}");
        assert!(errors.contains(word), "{errors}");
    }
}
