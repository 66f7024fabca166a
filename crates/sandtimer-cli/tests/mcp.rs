//! `sandtimer mcp`: with the official TypeScript client and the inspector's command line, over
//! stdin and stdout; and how it comes to its server.
//!
//! The former are scenarios of `mcp/drive.mjs` in the server's tests. `cargo xtask npm` installs
//! both; without Node they are skipped.
#![allow(
    clippy::disallowed_methods,
    reason = "the command is started here, and the server that it started is ended"
)]

use crate::node;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a server may take to end what it has.
const END_TIMEOUT_MS: u64 = Duration::from_secs(30).as_millis() as u64;

/// Shorter than a server may take to come up.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the server of the commands keeps what it has; it is ended with the test.
struct McpStateDirectory(TempDir);

impl Drop for McpStateDirectory {
    fn drop(&mut self) {
        let Some(server) = server_of(self.0.path()) else { return };
        let Ok(pidfd) = pidfd_open(server, PidfdFlags::empty()) else { return };
        // The server may have ended by now.
        let _ = sandtimer_os::process::signal(pidfd.as_fd(), Signal::TERM);
        sandtimer_os::process::wait_readable(pidfd.as_fd(), END_TIMEOUT_MS);
    }
}

/// The server that has this directory, or one below it, among its arguments.
fn server_of(state: &Path) -> Option<Pid> {
    let named = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let state = state.as_os_str().as_encoded_bytes();
        arguments.get(1) == Some(&&b"serve"[..])
            && arguments.iter().any(|argument| argument.starts_with(state))
    };
    let entries =
        std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    entries.into_iter().find(named).and_then(Pid::from_raw)
}

fn play(scenario: &str) {
    let state = McpStateDirectory(tempfile::tempdir().expect("a directory"));
    let directory = state.0.path().to_str().expect("text");
    let command = json!([env!("CARGO_BIN_EXE_sandtimer"), "mcp", "--state-dir", directory]);
    let variables = [("SANDTIMER_MCP", command.to_string())];
    node::play("mcp", "@modelcontextprotocol/sdk", &[], scenario, &variables);
}

#[test]
fn every_tool() {
    play("every_tool");
}

#[test]
fn values_and_figures_are_shown_within_bounds() {
    play("values_and_figures_are_shown_within_bounds");
}

#[test]
fn a_connection_has_a_temporary_directory_of_its_own() {
    play("a_connection_has_a_temporary_directory_of_its_own");
}

/// The directory of a project, below the host's /tmp or not.
fn project(parent: &Path) -> TempDir {
    let project = tempfile::tempdir_in(parent).expect("a directory");
    let path = project.path();
    fs::create_dir(path.join("sub")).expect("made");
    let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(path.join(".venv")).status();
    assert!(made.expect("python3 is there").success());
    // As pip writes it.
    let tool = path.join(".venv/bin/tool");
    let text = format!("#!{}/.venv/bin/python\nimport sys\nprint('tool of', sys.prefix)\n", path.display());
    fs::write(&tool, text).expect("written");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("its mode");
    project
}

#[test]
fn a_project_is_at_its_own_path() {
    let state = state();
    for parent in [Path::new("/tmp"), Path::new(env!("CARGO_TARGET_TMPDIR"))] {
        let project = project(&parent.canonicalize().expect("a directory"));
        let path = project.path().to_str().expect("text");
        let mut named = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        named.arg("mcp").arg("--state-dir").arg(state.0.path()).arg("--workspace").arg(path);
        let answered = |name: &str, arguments: Value| {
            let call = json!({"name": name, "arguments": arguments});
            let answer = printed(client(&mut named), std::slice::from_ref(&call));
            let answer: Value = serde_json::from_str(answer.lines().next().expect("a line")).expect("JSON");
            answer["result"]["content"][0]["text"].as_str().expect("a text").to_owned()
        };
        let mut answered = answered;
        let mut bash = |command: &str| answered("bash", json!({"command": command}));
        let shown = bash(
            "pwd; cd / && cd \"$OLDPWD\" && .venv/bin/tool; readlink /workspace; cd /workspace/sub && pwd -P",
        );
        let wanted = format!("{path}\ntool of {path}/.venv\n{path}\n{path}/sub");
        assert!(shown.contains(&wanted), "{shown}");
        let shown = bash(&format!(
            "cd {path} && echo written > made && /workspace/.venv/bin/python -c 'import sys; print(sys.prefix)'"
        ));
        assert!(shown.contains("/workspace/.venv"), "{shown}");
        assert_eq!(fs::read_to_string(project.path().join("made")).expect("a file"), "written\n");
        for cwd in ["sub", "/workspace/sub", &format!("{path}/sub")] {
            let shown = answered("bash", json!({"command": "pwd", "cwd": cwd}));
            assert!(shown.contains(&format!("{path}/sub")), "{cwd}: {shown}");
        }
        for (language, code) in [
            ("python", "import os; os.getcwd(), open('/workspace/made').read()"),
            ("javascript", "process.cwd() + require('fs').readFileSync('/workspace/made', 'utf8')"),
            ("bash", "pwd; cat /workspace/made"),
        ] {
            let shown = answered("run_code", json!({"language": language, "code": code}));
            assert!(shown.contains(path) && shown.contains("written"), "{language}: {shown}");
        }
    }
}

#[test]
fn endings_name_their_runs_and_results() {
    play("ended_runs_report_their_results");
}

#[test]
fn chosen_names_of_tools_are_listed() {
    let state = state();
    let listed = |choice: Option<&str>| {
        let mut named = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        named.arg("mcp").arg("--state-dir").arg(state.0.path());
        if let Some(choice) = choice {
            named.args(["--tools", choice]);
        }
        let mut client = client(&mut named);
        let stdin = client.stdin.as_mut().expect("piped");
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}});
        writeln!(stdin, "{hello}").expect("it reads");
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .expect("it reads");
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})).expect("it reads");
        let mut lines = BufReader::new(client.stdout.take().expect("piped")).lines();
        let answer: Value =
            serde_json::from_str(&lines.nth(1).expect("a line").expect("text")).expect("JSON");
        drop(client.stdin.take());
        client.wait().expect("it ends");
        let tools = answer["result"]["tools"].as_array().expect("tools").clone();
        let names: Vec<String> =
            tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect();
        (names, answer.to_string().len())
    };
    let (both, all_bytes) = listed(None);
    let (ours, bytes) = listed(Some("ours"));
    assert!(ours.contains(&"bash".to_owned()) && !ours.contains(&"Bash".to_owned()), "{ours:?}");
    let (trained, _) = listed(Some("trained"));
    assert!(trained.contains(&"Bash".to_owned()) && !trained.contains(&"bash".to_owned()), "{trained:?}");
    assert!(bytes < all_bytes && both.len() == 20, "{both:?}");
    let refused = client(
        Command::new(env!("CARGO_BIN_EXE_sandtimer"))
            .args(["mcp", "--tools", "mine", "--state-dir"])
            .arg(state.0.path()),
    );
    let output = refused.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(125) && printed.contains("--tools: `mine`"), "{printed}");
}

#[test]
fn a_connection_has_the_network_that_it_was_given() {
    let state = state();
    let host = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = host.local_addr().expect("bound").port();
    let tries = format!(
        "(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached$((40 + 2)) || echo alone$((40 + 2))"
    );
    let calls = [
        json!({"name": "bash", "arguments": {"command": tries}}),
        json!({"name": "run_code", "arguments": {"code": tries, "language": "bash"}}),
    ];
    for (network, expected) in [(true, "reached42"), (false, "alone42")] {
        for call in &calls {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
            command.arg("mcp").arg("--state-dir").arg(state.0.path());
            if network {
                command.arg("--network");
            }
            let answer = printed(client(&mut command), std::slice::from_ref(call));
            assert!(answer.contains(expected), "{call}: {answer}");
        }
    }
}

#[test]
fn near_limit_is_reported() {
    play("near_limit_is_reported");
}

#[test]
fn the_inspector() {
    play("the_inspector");
}

/// A directory that the command takes for its own.
fn state() -> McpStateDirectory {
    let state = McpStateDirectory(tempfile::tempdir().expect("a directory"));
    fs::set_permissions(state.0.path(), fs::Permissions::from_mode(0o700)).expect("its mode");
    state
}

fn start(state: &McpStateDirectory) -> Child {
    client(Command::new(env!("CARGO_BIN_EXE_sandtimer")).arg("mcp").arg("--state-dir").arg(state.0.path()))
}

fn client(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// What a server answers to a first message; then the client leaves.
fn greeted(client: Child) -> String {
    printed(client, &[])
}

/// The last answer of a server to a first message and to these calls of tools, and the client's
/// error messages.
fn printed(mut client: Child, calls: &[Value]) -> String {
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}});
    let call = |call: &Value| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
    let mut stdin = client.stdin.take().expect("piped");
    let mut stdout = BufReader::new(client.stdout.take().expect("piped"));
    let mut answer = String::new();
    for message in std::iter::once(hello).chain(calls.iter().map(call)) {
        let is_first = answer.is_empty();
        writeln!(stdin, "{message}").expect("it reads");
        answer.clear();
        stdout.read_line(&mut answer).expect("a line");
        if is_first {
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .expect("it reads");
        }
    }
    drop(stdin);
    let output = client.wait_with_output().expect("it ends");
    answer + &String::from_utf8_lossy(&output.stderr)
}

fn log(state: &McpStateDirectory) -> String {
    fs::read_to_string(state.0.path().join("mcp.log")).unwrap_or_default()
}

#[test]
fn failing_server_is_started_once_and_its_output_reported() {
    let state = state();
    fs::write(state.0.path().join("runs"), "no directory").expect("written");
    let begun = Instant::now();
    let output = start(&state).wait_with_output().expect("it ends");
    assert!(begun.elapsed() < PROMPT_TIMEOUT, "{:?}", begun.elapsed());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{printed}");
    assert!(
        printed.contains("the server that was started has ended") && printed.contains("File exists"),
        "{printed}"
    );
    assert_eq!(log(&state).lines().count(), 1, "it was started once: {}", log(&state));
}

#[test]
fn newer_durations_stay_unchanged_and_estimates_report_it() {
    let state = state();
    let path = state.0.path().join("durations.sqlite");
    drop(sandtimer_records::DurationStore::open(state.0.path(), 0).expect("it opens"));
    let mut bytes = fs::read(&path).expect("there");
    // `user_version` in the header of an SQLite file.
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&path, &bytes).expect("written");
    let asked = json!({"name": "estimate_duration", "arguments": {"task_type": "load_data"}});
    for client in [start(&state), start(&state)] {
        let printed = printed(client, std::slice::from_ref(&asked));
        let (answer, errors) = printed.split_once('\n').expect("lines");
        assert!(answer.contains("Typical") && answer.contains("version 99"), "{answer}");
        assert!(errors.contains("left out") && errors.contains("durations.sqlite"), "{errors}");
    }
    assert_eq!(fs::read(&path).expect("there"), bytes);
}

#[test]
fn what_an_ending_server_still_holds_is_waited_for() {
    let state = state();
    let lock = fs::File::create(state.0.path().join("lock")).expect("made");
    flock(&lock, FlockOperation::NonBlockingLockExclusive).expect("free");
    let client = start(&state);
    let begun = Instant::now();
    while !log(&state).contains("is used by another server") {
        assert!(begun.elapsed() < PROMPT_TIMEOUT, "{}", log(&state));
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(lock);
    let answer = greeted(client);
    assert!(answer.contains("\"serverInfo\""), "{answer}");
    let starts = log(&state).lines().count();
    assert!(starts < 20, "one a second: {}", log(&state));
}

#[test]
fn clients_that_come_at_once_have_one_server() {
    let state = state();
    let clients: Vec<Child> = (0..4).map(|_| start(&state)).collect();
    let answers: Vec<_> = clients.into_iter().map(|client| std::thread::spawn(|| greeted(client))).collect();
    for answer in answers {
        let answer = answer.join().expect("no panic");
        assert!(answer.contains("\"serverInfo\""), "{answer}{}", log(&state));
    }
}

#[test]
fn estimate_uses_runs_of_agents_in_same_state_directory() {
    let state = state();
    let named = |command: &str| {
        let mut named = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        named.arg(command).env("SANDTIMER_STATE_DIR", state.0.path());
        named
    };
    let call = json!({"name": "bash", "arguments": {"command": "sleep 0.2; : agents", "wait_ms": 20_000}});
    let answer = printed(client(&mut named("mcp")), &[call.clone(), call]);
    assert!(answer.contains("EXITED 0"), "{answer}");
    assert!(state.0.path().join("mcp/durations.sqlite").exists());
    let asked = ["--json", "--command", "sleep 0.2; : agents"];
    let output = named("estimate").args(asked).output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let estimate: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    // Under the same load, or another.
    assert!(matches!(estimate["basis"].as_str(), Some("exact" | "any_load")), "{estimate}");
    assert!(estimate["typical_ms"].as_u64().is_some_and(|typical| typical >= 200), "{estimate}");
}

#[test]
fn commands_for_servers_list_and_control_runs_of_agents() {
    let state = state();
    let named = |arguments: &[&str]| {
        let mut named = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        named.args(arguments).env("SANDTIMER_STATE_DIR", state.0.path()).env_remove("SANDTIMER_SERVER");
        named
    };
    let succeeds = |arguments: &[&str]| {
        let output = named(arguments).output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {printed}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let asked = json!({"command": "echo of an agent; sleep 60; : seen", "background": true});
    let answer = printed(client(&mut named(&["mcp"])), &[json!({"name": "bash", "arguments": asked})]);
    assert!(answer.contains("STILL RUNNING"), "{answer}");
    let listed: Value = serde_json::from_str(&succeeds(&["ps", "--json"])).expect("JSON");
    let mut runs = listed["runs"].as_array().into_iter().flatten();
    let run = runs.find(|run| run["command"].to_string().contains(": seen")).expect("it is listed");
    let id = run["run_id"].as_str().expect("an id");
    assert!(succeeds(&["ps"]).contains(id));
    // The shell may not have come to it.
    let since = Instant::now();
    while !succeeds(&["ps", id]).contains("sleep") {
        assert!(since.elapsed() < Duration::from_secs(20), "{}", succeeds(&["ps", id]));
    }
    assert_eq!(succeeds(&["logs", id]), "of an agent\n");
    succeeds(&["kill", id]);
    assert!(!succeeds(&["ps"]).contains(id));
}
