//! `sandtimer jobs --store nats://…`, as a person and a script use it.
#![allow(clippy::disallowed_methods, reason = "the commands under test are started here")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support;

use crate::serving;

use serving::TestServer;
use support::NatsServer;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    command.arg("jobs").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in
        ["SANDTIMER_STORE", "SANDTIMER_STATE_DIR", "SANDTIMER_NATS_CREDENTIALS", "SANDTIMER_TIME_SCALE"]
    {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("it starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stderr(output)))
}

#[test]
fn calculator_on_server_is_ended_by_its_jobs_deadline() {
    let Some(server) = NatsServer::start() else { return };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs/calculator.toml");
    let file = file.to_str().expect("text");
    let output = run(&["run", file, "--time-scale", "0.2", "--store", &server.url()]);
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    assert!(stderr(&output).contains("Stopped by the job's wall limit of 24 s"), "{}", stderr(&output));
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = "[SYSTEM: calculator:calculate circuit breaker open - try different approach]";
    assert!(log.contains(line), "{log}");
    let listed = json(&run(&["list", "--json", "--store", &server.url()]));
    let record = json(&run(&[
        "show",
        listed["jobs"][0]["id"].as_str().expect("an id"),
        "--json",
        "--store",
        &server.url(),
    ]));
    let (result, verdict) = (&record["result"], &record["result"]["verdict"]);
    assert_eq!((&verdict["layer"], &verdict["limit_ms"]), (&"job".into(), &24_000.into()));
    // Five calls of three attempts and a fallback, then none: the breaker is open.
    assert_eq!((&result["spent"]["attempts"], &result["spent"]["backoff_ms"]), (&20.into(), &700.into()));
    assert_eq!(result["breakers"][0]["state"], "open");
}

#[test]
fn signals_reach_workers_of_server_as_of_this_machine() {
    let Some(server) = NatsServer::start() else { return };
    let file = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
    std::fs::write(file.path(), "command = [\"sh\", \"-c\", \"echo up; exec sleep 60\"]\nwall_ms = \"2m\"\n")
        .expect("written");
    let file = file.path().to_str().expect("text");
    let listed = || json(&run(&["list", "--json", "--store", &server.url()]))["jobs"].clone();
    let signalled = |arguments: &[&str], signal: rustix::process::Signal| {
        let mut child = command(arguments).spawn().expect("started");
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while listed().as_array().expect("a list").iter().all(|job| job["state"] != "leased") {
            assert!(std::time::Instant::now() < deadline, "no worker has it");
            std::thread::sleep(Duration::from_millis(50));
        }
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("it lives");
        rustix::process::pidfd_send_signal(&pidfd, signal).expect("sent");
        std::thread::sleep(Duration::from_millis(500));
        // A worker that drains first brings its job to an end, unless a second signal follows.
        if child.try_wait().expect("asked").is_none() {
            let _ = rustix::process::pidfd_send_signal(&pidfd, signal);
        }
        child.wait_with_output().expect("it ends")
    };
    let cancelled = signalled(&["run", file, "--store", &server.url()], rustix::process::Signal::INT);
    assert_eq!(cancelled.status.code(), Some(130), "{}", stderr(&cancelled));
    assert_eq!(listed()[0]["state"], "cancelled");
    assert!(run(&["submit", file, "--store", &server.url()]).status.success());
    let drained = signalled(&["work", "--store", &server.url()], rustix::process::Signal::TERM);
    assert_eq!(drained.status.signal(), None, "{}", stderr(&drained));
    assert_eq!(listed()[0]["state"], "queued", "it was given back: {}", stderr(&drained));
}

#[test]
fn a_job_that_runs_here_outlasts_a_server_that_is_away() {
    let Some(mut server) = NatsServer::start() else { return };
    let file = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
    std::fs::write(file.path(), "command = [\"sh\", \"-c\", \"sleep 4; echo done\"]\nwall_ms = \"1m\"\n")
        .expect("written");
    let running = command(&["run", file.path().to_str().expect("text"), "--store", &server.url()])
        .spawn()
        .expect("started");
    std::thread::sleep(Duration::from_secs(2));
    server.kill();
    // Longer than one call waits for it.
    std::thread::sleep(Duration::from_secs(13));
    server.again();
    let output = running.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("it is asked again for a minute"), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "done\n");
}

#[test]
fn store_comes_from_flag_or_variable_and_may_be_directory() {
    let Some(server) = NatsServer::start() else { return };
    let temporary = tempfile::tempdir().expect("a directory");
    let directory = temporary.path().to_str().expect("text");
    let submit = |more: &[&str], store: &str| {
        let mut command = command(&[&["submit", "-", "--json"], more].concat());
        let mut child =
            command.env("SANDTIMER_STORE", store).stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("piped").write_all(b"{\"command\": [\"true\"]}").expect("written");
        let output = child.wait_with_output().expect("it ends");
        json(&output)["jobs"][0]["id"].as_str().expect("an id").to_owned()
    };
    let on_server = submit(&[], &server.url());
    let in_directory = submit(&["--state-dir", directory], &server.url());
    assert_eq!(json(&run(&["show", &on_server, "--json", "--store", &server.url()]))["state"], "queued");
    assert_eq!(json(&run(&["show", &in_directory, "--json", "--store", directory]))["state"], "queued");
    let other = run(&["show", &in_directory, "--store", &server.url()]);
    assert_eq!(other.status.code(), Some(125));
    assert!(stderr(&other).contains(&format!("there is no job `{in_directory}`")), "{}", stderr(&other));
}

#[test]
fn what_cannot_be_a_store_is_refused_and_nothing_hangs() {
    let refused = [
        ("http://127.0.0.1:4222", "use nats://HOST"),
        ("nats://127.0.0.1:9", "nothing that speaks NATS answers there"),
        ("nats://queue.example.org", "is not on this machine"),
        ("tls://10.255.255.1", "add credentials"),
    ];
    for (store, expected) in refused {
        let output = run(&["list", "--store", store]);
        assert_eq!(output.status.code(), Some(125), "{store}");
        assert!(stderr(&output).contains(expected), "{store}: {}", stderr(&output));
    }
    let Some(server) = NatsServer::start_with("", false) else { return };
    let output = run(&["list", "--store", &server.url()]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("start it with `nats-server -js`"), "{}", stderr(&output));
}

#[test]
fn restarting_server_is_waited_for() {
    let Some(mut server) = NatsServer::start() else { return };
    server.kill();
    let mut listing = command(&["list", "--store", &server.url()]).spawn().expect("it starts");
    let mut errors = BufReader::new(listing.stderr.take().expect("a pipe"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("readable");
    assert!(line.contains("trying again for 5 s"), "{line}");
    server.again();
    let output = listing.wait_with_output().expect("it ends");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "no jobs\n");
}

#[test]
fn wait_ends_in_time_when_server_is_silent() {
    // Accepts connections, and never sends anything.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let url = format!("nats://{}", silent.local_addr().expect("an address"));
    let begun = std::time::Instant::now();
    let waited = run(&["wait", "nosuchjob", "--for", "300ms", "--store", &url]);
    assert_eq!(waited.status.code(), Some(75), "{}", stderr(&waited));
    assert!(stderr(&waited).contains("the store has not answered"), "{}", stderr(&waited));
    let waited = begun.elapsed();
    // Control: without one, the store's own patience is what it takes.
    assert_eq!(run(&["wait", "nosuchjob", "--store", &url]).status.code(), Some(125));
    assert!(begun.elapsed() - waited > waited, "{waited:?}");
}

/// One server executes what was submitted to the other one, or on the command line, and both report
/// it.
#[test]
fn servers_and_command_line_share_a_store() {
    let Some(mut server) = NatsServer::start() else { return };
    let state_directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let url = server.url();
    let mut command_of_idle = TestServer::command(state_directories[0].path());
    let idle = TestServer::start(command_of_idle.args(["--job-slots", "0", "--store", &url]));
    let body = r#"{"command": ["echo", "by whom?"], "idempotency_key": "first"}"#;
    let answer = ureq::post(format!("{}/v1/jobs", idle.address)).send(body).expect("an answer");
    let answer: Value =
        serde_json::from_str(&answer.into_body().read_to_string().expect("a text")).expect("JSON");
    let first = answer["jobs"][0]["job_id"].as_str().expect("an id").to_owned();
    let shown = || json(&run(&["show", &first, "--json", "--store", &url]));
    assert_eq!(shown()["state"], "queued");

    let mut command_of_working = TestServer::command(state_directories[1].path());
    let working =
        TestServer::start(command_of_working.args(["--job-slots", "2"]).env("SANDTIMER_STORE", &url));
    assert_eq!(
        (&idle.job(&first, Duration::from_secs(60))["state"], &shown()["ok"]),
        (&"ended".into(), &true.into())
    );
    let mut submitting = command(&["submit", "-", "--json", "--store", &url]);
    let mut child = submitting.stdin(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(b"{\"command\": [\"true\"]}").expect("written");
    let second = json(&child.wait_with_output().expect("it ends"))["jobs"][0]["id"].clone();
    assert_eq!(working.job(second.as_str().expect("an id"), Duration::from_secs(60))["state"], "ended");
    for serving in [&idle, &working] {
        let metrics = serving.get("/metrics");
        assert!(metrics.contains("sandtimer_jobs_ended_total{status=\"ok\"} 2\n"), "{metrics}");
    }
    let config = working.get("/v1/config");
    assert!(config.contains(&format!("\"value\":\"{}\"", url)), "{config}");

    server.kill();
    let (status, refused) = idle.answer(&format!("/v1/jobs/{first}"));
    assert_eq!(
        (status, &refused["code"], &refused["retryable"]),
        (503, &"store_unreachable".into(), &true.into())
    );
    assert!(
        !refused.to_string().contains(&server.port.to_string()),
        "where it is, is not for clients: {refused}"
    );
    server.again();
    let found = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        idle.job(&first, Duration::ZERO)["state"] == "ended"
    });
    assert!(found, "it goes on when the store is back");
}

#[test]
fn unusable_store_is_rejected_by_serve_as_by_other_commands() {
    let temporary = tempfile::tempdir().expect("a directory");
    for store in ["http://127.0.0.1:4222", "nats://127.0.0.1:9", "nats://queue.example.org"] {
        let output =
            TestServer::command(temporary.path()).args(["--store", store]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(125), "{store}");
        // The commands may print before that they try again.
        let listing = stderr(&run(&["list", "--store", store]));
        assert_eq!(stderr(&output).lines().last(), listing.lines().last());
    }
}
