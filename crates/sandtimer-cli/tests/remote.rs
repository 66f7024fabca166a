//! The commands that ask a server, against a real one.
#![allow(clippy::disallowed_methods, reason = "the commands under test are started here")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

fn sandtimer() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    command.env("SANDTIMER_CONFIG", "").stdin(Stdio::null());
    for variable in [
        "SANDTIMER_WALL",
        "COMMAND_TIMEOUT_MS",
        "SANDTIMER_SERVER",
        "SANDTIMER_TOKEN",
        "SANDTIMER_TOKEN_FILE",
    ] {
        command.env_remove(variable);
    }
    command
}

/// A server that is up, ended with the test.
struct RemoteServer {
    child: Child,
    url: String,
    _state: TempDir,
}

impl RemoteServer {
    fn start(tokens: Option<&str>) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let state = tempfile::tempdir().expect("a directory");
        let mut command = sandtimer();
        command
            .args(["serve", "--pool", "python=0", "--listen", "127.0.0.1:0", "--state-dir"])
            .arg(state.path());
        if let Some(tokens) = tokens {
            let path = state.path().join("tokens");
            std::fs::write(&path, tokens).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
            command.arg("--token-file").arg(path);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("listening on ").expect("its address").to_owned();
        RemoteServer { child, url, _state: state }
    }

    fn address(&self) -> &str {
        self.url.strip_prefix("http://").expect("an address")
    }

    fn post(&self, path: &str, body: &Value, token: &str) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.address()).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        serde_json::from_str(answer.split_once("\r\n\r\n").expect("an answer").1).expect("JSON")
    }

    fn started(&self, script: &str) -> String {
        let body = json!({"command": ["sh", "-c", script], "wait_ms": 0, "wall_ms": 60_000});
        self.post("/v1/runs", &body, "")["run_id"].as_str().expect("an id").to_owned()
    }

    fn asked(&self, arguments: &[&str]) -> Output {
        sandtimer().args(arguments).args(["--server", &self.url]).output().expect("it ends")
    }

    /// What a command that succeeds prints.
    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.asked(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.printed(&[arguments, &["--json"]].concat())).expect("JSON")
    }
}

impl Drop for RemoteServer {
    fn drop(&mut self) {
        // It is gone already where the test ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refused(output: &Output, parts: &[&str]) {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(125), 1), "{errors}");
    assert!(parts.iter().all(|part| errors.contains(part)), "{parts:?} in {errors}");
}

#[test]
fn how_far_a_run_is_comes_with_its_chance_to_be_done_in_time() {
    let serving = RemoteServer::start(None);
    let script = "for epoch in 1 2 3; do echo \"Epoch $epoch/9: loss 1\"; sleep 0.2; done; sleep 50";
    let run = serving.started(script);
    let outputs = (0..1000).map(|_| serving.printed(&["ps", &run]));
    let mut with_progress = outputs.filter(|printed| printed.contains("It is at 3 of 9, done in about "));
    let progress = with_progress.next().expect("it gets there");
    assert!(
        progress.lines().next().is_some_and(|line| line.contains(", before its limit with a chance of ")),
        "{progress}"
    );
    serving.printed(&["kill", &run]);
}

#[test]
fn activity_is_listed_paused_extended_and_ended() {
    let serving = RemoteServer::start(None);
    let run = serving.started("echo said; sleep 50; true");
    let session = serving.post("/v1/sessions", &json!({}), "");
    let session = session["context_id"].as_str().expect("an id");
    let listed = serving.printed(&["ps"]);
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = "KIND ID STATE WAITS FOR ELAPSED LIMIT PROGRESS IDLE COMMAND";
    assert_eq!(lines[0].join(" "), head);
    assert_eq!(lines[1][..3], ["session", session, "idle"]);
    assert_eq!(
        (&lines[2][..3], lines[2][5], &lines[2][8..10]),
        (&["run", run.as_str(), "running"][..], "1m", &["sh", "-c"][..])
    );
    // It may be on its way there.
    let doing = (0..1000)
        .map(|_| serving.printed(&["ps", &run]))
        .find(|doing| doing.contains("sleep"))
        .expect("a sleep");
    assert_eq!(serving.json(&["ps"])["runs"][0]["waiting_for"], json!("child"));
    let lines: Vec<&str> = doing.lines().collect();
    assert!(
        lines[0].starts_with("It waits for a process that it started (sleep, which sleeps), "),
        "{doing}"
    );
    let head: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(head.join(" "), "PID WAITS FOR IN CPU I/O THREADS NAME", "{doing}");
    assert!(lines[3].ends_with("  sh") && lines[4].ends_with("    sleep"), "{doing}");
    refused(&serving.asked(&["ps", "nobody"]), &["run_not_found: "]);

    assert_eq!(serving.printed(&["pause", &run]), "paused\n");
    assert!(serving.printed(&["ps"]).contains("paused"));
    refused(&serving.asked(&["pause", &run]), &["wrong_state: "]);
    assert_eq!(serving.json(&["resume", &run]), json!({"run_id": run, "paused": false}));
    let left = serving.json(&["extend", &run, "1h"])["wall_left_ms"].as_u64().expect("a limit");
    assert!(left > 3_600_000, "{left}");
    assert!(serving.printed(&["kill", &run, "--reason", "enough of it"]).contains("enough of it"));
    refused(&serving.asked(&["extend", &run, "1s"]), &["run_ended: ", "has its outcome"]);
    assert_eq!(serving.json(&["kill", session]), json!({"context_id": session, "deleted": true}));
    assert_eq!(serving.json(&["ps"]), json!({"runs": [], "contexts": []}));
    let over = serving.json(&["ps", "--all"]);
    assert_eq!((&over["runs"][0]["run_id"], &over["runs"][0]["ending"]), (&json!(run), &json!("cancelled")));
    assert!(serving.printed(&["ps", "-a"]).contains("cancelled"));
}

#[test]
fn what_was_written_is_printed_to_where_it_was_written() {
    let serving = RemoteServer::start(None);
    let run = serving.started("printf 'out\\377'; echo err >&2");
    let followed = serving.asked(&["logs", "-f", &run]);
    for output in [followed, serving.asked(&["logs", &run])] {
        assert_eq!(output.status.code(), Some(0));
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\xff"[..], &b"err\n"[..]));
    }
    let events = serving.printed(&["logs", "--follow", "--json", &run]);
    let names: Vec<Value> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["event"].clone())
        .collect();
    assert_eq!((names.first(), names.last()), (Some(&json!("started")), Some(&json!("ended"))));
}

/// Passes connections on to a server, and breaks each after `most` bytes of answers.
fn unreliable(server: &str, most: u64) -> (String, std::sync::mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let (server, (cut_sender, cut_receiver)) = (server.to_owned(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        for ours in listener.incoming() {
            let (mut ours, mut theirs) =
                (ours.expect("a client"), TcpStream::connect(&server).expect("the server"));
            let (mut from, mut to) = (ours.try_clone().expect("copied"), theirs.try_clone().expect("copied"));
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            // What went wrong with one connection is the client's to see.
            let _ = std::io::copy(&mut Read::by_ref(&mut theirs).take(most), &mut ours);
            let _ = ours.shutdown(std::net::Shutdown::Both);
            let _ = theirs.shutdown(std::net::Shutdown::Both);
            if cut_sender.send(()).is_err() {
                return;
            }
        }
    });
    (url, cut_receiver)
}

#[test]
fn follower_continues_at_its_cursor_after_reconnect() {
    let serving = RemoteServer::start(None);
    let run = serving.started("for i in $(seq 1 60000); do echo line $i; done");
    let (url, broken) = unreliable(serving.address(), 150_000);
    let output = sandtimer().args(["logs", "--follow", &run, "--server", &url]).output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let expected: String = (1..=60_000).map(|number| format!("line {number}\n")).collect();
    assert!(output.stdout == expected.as_bytes(), "{} of {} bytes", output.stdout.len(), expected.len());
    assert!(broken.try_iter().count() >= 2);
}

#[test]
fn rejections_of_server_have_code_and_hint() {
    let serving = RemoteServer::start(None);
    for what in ["logs", "pause", "resume", "kill"] {
        refused(
            &serving.asked(&[what, "nobody"]),
            &["run_not_found: there is no run `nobody`; GET /v1/runs lists"],
        );
    }
    refused(&serving.asked(&["logs", "-f", "nobody"]), &["run_not_found: "]);
    refused(&serving.asked(&["extend", "nobody", "unlimited"]), &["BY: "]);
    refused(&serving.asked(&["extend", "nobody", "-1"]), &["BY: `-1` is not a duration"]);
    refused(&serving.asked(&["kill", "../healthz"]), &["`../healthz` is not the id of a run"]);
    let nowhere = || {
        let mut command = sandtimer();
        command.args(["ps", "--server"]);
        command
    };
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    refused(
        &nowhere().arg(format!("http://{free}")).output().expect("it ends"),
        &["cannot reach", "sandtimer serve"],
    );
    refused(&nowhere().arg("ftp://x").output().expect("it ends"), &["--server: `ftp://x`"]);
}

#[test]
fn token_from_file_or_variable_shows_its_own_runs() {
    let serving = RemoteServer::start(Some("alice one-secret\nbob another\n"));
    let body = json!({"command": ["sleep", "50"], "wait_ms": 0});
    let run = serving.post("/v1/runs", &body, "one-secret")["run_id"].as_str().expect("an id").to_owned();
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        std::fs::write(directory.path().join(name), text).expect("written");
        directory.path().join(name)
    };
    let with_file = |path: &Path| {
        let path = path.to_str().expect("text");
        serving.asked(&["ps", "--json", "--token-file", path])
    };
    let shown = with_file(&file("alice", "one-secret\n"));
    assert!(String::from_utf8_lossy(&shown.stdout).contains(&run));
    let other = sandtimer()
        .args(["ps", "--server", &serving.url])
        .env("SANDTIMER_TOKEN", "another")
        .output()
        .expect("it ends");
    assert_eq!((other.status.code(), String::from_utf8_lossy(&other.stdout).lines().count()), (Some(0), 1));
    let stolen =
        sandtimer().args(["kill", &run, "--server", &serving.url]).env("SANDTIMER_TOKEN", "another").output();
    refused(&stolen.expect("it ends"), &["run_not_found: "]);
    refused(&serving.asked(&["ps"]), &["unauthorized: no token was sent; send `Authorization"]);
    refused(&with_file(&file("both", "alice one-secret")), &["has to hold one word"]);
    refused(&with_file(Path::new("/dev/null/none")), &["cannot be read"]);
}
