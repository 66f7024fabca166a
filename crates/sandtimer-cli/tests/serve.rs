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
    for variable in [
        "SANDTIMER_WALL",
        "COMMAND_TIMEOUT_MS",
        "INTERPRETER_EXECUTION_TIMEOUT_MS",
        "INTERPRETER_SPAWN_TIMEOUT_MS",
        "SANDTIMER_TOKEN_FILE",
        "SANDTIMER_LISTEN",
    ] {
        command.env_remove(variable);
    }
    command
}

/// A server that is up, ended with the test.
struct ServeProcess {
    child: Child,
    address: String,
}

impl ServeProcess {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("listening on http://").expect("its address").to_owned();
        ServeProcess { child, address }
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

impl Drop for ServeProcess {
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
fn finished_runs_survive_kill_9_and_others_end_with_server() {
    let state = tempfile::tempdir().expect("a directory");
    let serving = ServeProcess::start(&mut serve(state.path()));
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

    let serving = ServeProcess::start(&mut serve(state.path()));
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
    let mut serving = ServeProcess::start(&mut serve(state.path()));
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
fn settings_of_flags_and_variables_show_their_origin() {
    let state = tempfile::tempdir().expect("a directory");
    let mut command = serve(state.path());
    command.args(["--keep-for", "2d"]).env("SANDTIMER_KEEP_RUNS", "7").env("SANDTIMER_WALL", "9s");
    let serving = ServeProcess::start(&mut command);
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
    assert_eq!(
        run["effective"]["wall_ms"],
        json!({"limit": 9_000, "source": "env", "origin": "SANDTIMER_WALL"})
    );
    let own = serving.ask("POST", "/v1/runs", &json!({"command": ["true"], "wall_ms": 0}));
    assert_eq!(own["effective"]["wall_ms"], Value::Null);
}

#[test]
fn invalid_settings_are_reported_in_one_line() {
    let state = tempfile::tempdir().expect("a directory");
    let tokens = state.path().join("tokens");
    std::fs::write(&tokens, "a b\n").expect("written");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).expect("set");
    let tokens = tokens.to_str().expect("text");
    for (flags, expected) in [
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
        assert!(errors.contains(expected), "{errors}");
    }
}

#[test]
fn local_file_that_is_not_valid_is_ignored() {
    let state = tempfile::tempdir().expect("a directory");
    let here = tempfile::tempdir().expect("a directory");
    std::fs::write(here.path().join("sandtimer.toml"), "cpu = 1\nwall = \"soon\"\n").expect("written");
    let mut serving = ServeProcess::start(serve(state.path()).current_dir(here.path()));
    let outcome = serving.ask("POST", "/v1/runs?wait_ms=20000", &json!({"command": ["echo", "done"]}));
    assert_eq!(outcome["outcome"]["stdout"], "done\n", "{outcome}");
    assert_eq!(outcome["effective"]["cpu_ms"], Value::Null, "{outcome}");
    serving.signal(Signal::TERM);
    let mut errors = String::new();
    let mut stderr = serving.child.stderr.take().expect("piped");
    stderr.read_to_string(&mut errors).expect("its end");
    let notice =
        format!("; {} is ignored: correct it, or remove it\n", here.path().join("sandtimer.toml").display());
    assert!(errors.starts_with("sandtimer: wall: `soon`") && errors.ends_with(&notice), "{errors}");
    assert!(errors.contains("(from sandtimer.toml:2)"), "{errors}");
}

/// A directory of programs that are scripts, before those of PATH.
fn path_with(directory: &Path, name: &str, script: &str) -> std::ffi::OsString {
    let program = directory.join(name);
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("set");
    let path = std::env::var_os("PATH").expect("a PATH");
    std::env::join_paths([directory.to_owned()].into_iter().chain(std::env::split_paths(&path)))
        .expect("a PATH")
}

/// How many processes have this marker in their command.
fn processes_with(marker: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("proc").flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(marker)).count()
}

#[test]
fn late_interpreter_is_killed_and_can_be_requested_again() {
    for (name, path, body) in
        [("python3", "/v1/contexts", json!({})), ("bash", "/v1/sessions", json!({"cwd": "/tmp"}))]
    {
        let (state, programs) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
        let marker = format!("1{:07}", u64::from(std::process::id()) + u64::from(name == "bash"));
        let mut command = serve(state.path());
        command.env("PATH", path_with(programs.path(), name, &format!("#!/bin/sh\nsleep {marker}\n")));
        command.env("INTERPRETER_SPAWN_TIMEOUT_MS", "700");
        let serving = ServeProcess::start(&mut command);
        for _ in 0..2 {
            let answer = serving.ask("POST", path, &body);
            assert_eq!(
                (&answer["code"], &answer["retryable"]),
                (&json!("spawn_timeout"), &json!(true)),
                "{answer}"
            );
            assert_eq!(answer["details"]["limit_ms"], 700);
            assert!(
                answer["message"].as_str().expect("a text").contains("INTERPRETER_SPAWN_TIMEOUT_MS"),
                "{answer}"
            );
            wait_until("nothing of it is alive", || processes_with(&marker) == 0);
        }
        let config = serving.ask("GET", "/v1/config", &Value::Null);
        assert_eq!(
            config["policy"]["interpreter_spawn_timeout_ms"],
            json!({"limit": 700, "source": "env", "origin": "INTERPRETER_SPAWN_TIMEOUT_MS"})
        );
    }
}

#[test]
fn policy_values_name_their_flag_variable_or_file() {
    let state = tempfile::tempdir().expect("a directory");
    let file = state.path().join("settings.toml");
    let script = state.path().join("ready.py");
    std::fs::write(&script, "import json").expect("written");
    let of_shells = state.path().join("ready.sh");
    std::fs::write(&of_shells, "ready() { echo yes; }").expect("written");
    let text = format!(
        "interpreter_prewarm_timeout_ms = 4000\n\n[limits]\ncommand_timeout_ms = 8000\nvm_execution_timeout_ms = 300\n\
                        [prewarm]\npython = {script:?}\n"
    );
    std::fs::write(&file, text).expect("written");
    let shown_by = |command: &mut Command| {
        command.env("SANDTIMER_CONFIG", &file).env("INTERPRETER_EXECUTION_TIMEOUT_MS", "6000");
        command.env("COMMAND_TIMEOUT_MS", "7000").env_remove("SANDTIMER_WALL");
        command.env_remove("MAX_OUTPUT_SIZE_BYTES");
        for start in ["SPAWN", "PREWARM"] {
            command.env_remove(format!("INTERPRETER_{start}_TIMEOUT_MS"));
        }
    };
    let mut command = serve(state.path());
    shown_by(&mut command);
    command.args(["--prewarm", &format!("bash={}", of_shells.display())]);
    let serving = ServeProcess::start(command.args(["--command-timeout-ms", "0", "--pool", "python=1"]));
    let config = serving.ask("GET", "/v1/config", &Value::Null);
    let location = |line: u32| format!("{}:{line}", file.display());
    let is = |key: &str, value: Value| assert_eq!(config["policy"][key], value, "{key}");
    is("interpreter_spawn_timeout_ms", json!({"limit": 60_000, "source": "builtin", "origin": "built in"}));
    is("interpreter_prewarm_timeout_ms", json!({"limit": 4_000, "source": "config", "origin": location(1)}));
    is("command_timeout_ms", json!({"limit": null, "source": "env", "origin": "--command-timeout-ms"}));
    is(
        "interpreter_execution_timeout_ms",
        json!({"limit": 6_000, "source": "env", "origin": "INTERPRETER_EXECUTION_TIMEOUT_MS"}),
    );
    is("vm_execution_timeout_ms", json!({"limit": 300, "source": "config", "origin": location(5)}));
    is("max_output_size_bytes", json!({"limit": 10_485_760, "source": "builtin", "origin": "built in"}));
    is("pool.python", json!({"value": 1, "source": "env", "origin": "--pool"}));
    is(
        "prewarm.python",
        json!({"value": script.display().to_string(), "source": "config", "origin": location(7)}),
    );
    is(
        "prewarm.bash",
        json!({"value": of_shells.display().to_string(), "source": "env", "origin": "--prewarm"}),
    );
    let session = serving.ask("POST", "/v1/sessions", &json!({}));
    let at = format!("/v1/sessions/{}/execute", session["context_id"].as_str().expect("an id"));
    assert_eq!(serving.ask("POST", &at, &json!({"command": "ready"}))["outcome"]["stdout"], "yes\n");
    let run = serving.ask("POST", "/v1/runs", &json!({"command": ["true"]}));
    assert_eq!(run["effective"]["wall_ms"], Value::Null);
    // The command shows the same, but for the flags of the server.
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    shown_by(&mut command);
    let output = command.args(["config", "show", "--json"]).output().expect("it ends");
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(shown["vm_execution_timeout_ms"], config["policy"]["vm_execution_timeout_ms"]);
    assert_eq!(
        shown["command_timeout_ms"],
        json!({"limit": 7_000, "source": "env", "origin": "COMMAND_TIMEOUT_MS"})
    );
}

#[test]
fn what_cannot_be_a_timeout_keeps_a_server_from_starting() {
    let state = tempfile::tempdir().expect("a directory");
    for (variable, value) in [
        ("INTERPRETER_SPAWN_TIMEOUT_MS", "0"),
        ("INTERPRETER_PREWARM_TIMEOUT_MS", "unlimited"),
        ("INTERPRETER_EXECUTION_TIMEOUT_MS", "abc"),
        ("VM_EXECUTION_TIMEOUT_MS", "-1"),
        ("COMMAND_TIMEOUT_MS", "1e99"),
        ("MAX_OUTPUT_SIZE_BYTES", "1.5"),
        ("COMMAND_TIMEOUT_MS", "30s"),
        ("MAX_OUTPUT_SIZE_BYTES", "10M"),
        ("COMMAND_TIMEOUT_MS", ""),
    ] {
        let flag = format!("--{}={value}", variable.to_lowercase().replace('_', "-"));
        let by_variable = serve(state.path()).env(variable, value).output();
        for (name, output) in [
            (variable, by_variable),
            (&flag[..flag.len() - value.len() - 1], serve(state.path()).arg(&flag).output()),
        ] {
            let output = output.expect("it ends");
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!((output.status.code(), errors.lines().count()), (Some(125), 1), "{errors}");
            assert!(errors.contains(&format!("{name}: `{value}` ")) && errors.contains("; use "), "{errors}");
        }
    }
}

/// Patterns in types are read once to see what they are, and again; in one another that doubles
/// with each.
fn endless() -> String {
    let levels = 60;
    format!("let x: {}0{}", "({a=(y:".repeat(levels), ")=>0})=>void".repeat(levels))
}

/// Processes of this program that read TypeScript, by the server that has them do so.
fn readers(server: u32) -> usize {
    let is_reader = |entry: std::fs::DirEntry| {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        command.windows(16).any(|part| part == b"read-typescript\0") && descends(entry.path(), server)
    };
    std::fs::read_dir("/proc").expect("processes").flatten().map(is_reader).filter(|is_one| *is_one).count()
}

/// Whether a process is a child of this one, or one of theirs.
fn descends(mut process: std::path::PathBuf, of: u32) -> bool {
    loop {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
        match parent {
            Some(parent) if parent == of => return true,
            None | Some(0 | 1) => return false,
            Some(parent) => process = format!("/proc/{parent}").into(),
        }
    }
}

#[test]
fn endless_typescript_parse_is_ended_and_blocks_no_other() {
    let state = tempfile::tempdir().expect("a directory");
    let serving = ServeProcess::start(&mut serve(state.path()));
    let run = |code: &str| {
        serving.ask("POST", "/v1/runs", &json!({"code": code, "language": "typescript", "wall_ms": 700}))
    };
    // More than there are threads that read in a process without a reader.
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let refused = run(&endless());
                assert_eq!(refused["code"], "bad_field", "{refused}");
                let output = refused["message"].as_str().expect("a text");
                assert!(output.contains("took longer than 700ms"), "{refused}");
            });
        }
    });
    wait_until("no reader is left", || readers(serving.child.id()) == 0);
    assert_eq!(run("enum A { B = 42 }\nconsole.log(A.B)")["outcome"]["stdout"], "42\n");
    let context = serving.ask("POST", "/v1/contexts", &json!({"language": "typescript"}));
    let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
    let ended = serving.ask("POST", &at, &json!({"code": endless(), "wall_ms": 500}));
    assert!(ended["outcome"]["ending"] == "timeout" || ended["outcome"]["ending"] == "raised", "{ended}");
    let elapsed = ended["outcome"]["usage"]["wall_ms"].as_u64().expect("a time");
    assert!((500..5_000).contains(&elapsed), "reading is on the cell's bill: {ended}");
    assert_eq!(serving.ask("POST", &at, &json!({"code": "(6 as number) * 7"}))["outcome"]["value"], 42);
    // Sums of texts are computed while they are read: this one has 2^40 characters.
    let members: String = (1..40).map(|n| format!("a{n} = a{} + a{},", n - 1, n - 1)).collect();
    let large = serving.ask("POST", &at, &json!({"code": format!("enum A {{ a0 = 'xx', {members} }}")}));
    let output = large["outcome"]["error"]["message"].as_str().expect("a message");
    assert!(output.starts_with("reading the code took "), "{large}");
}

/// A collector of traces on a port of its own: its address, and the spans of each request that it
/// gets.
fn collector() -> (String, std::sync::mpsc::Receiver<Vec<Value>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let (batch_sender, batches) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            // A connection may hold several requests.
            while let Some(head) = head(&mut reader) {
                assert!(
                    head.starts_with("POST /v1/traces ") && head.contains("authorization: x y"),
                    "{head}"
                );
                let length =
                    head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.expect("a length")];
                reader.read_exact(&mut body).expect("a body");
                let body: Value = serde_json::from_slice(&body).expect("JSON");
                let part = &body["resourceSpans"][0];
                assert_eq!(part["resource"]["attributes"][0]["value"]["stringValue"], "a-service", "{body}");
                let spans = part["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
                let answer =
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
                if batch_sender.send(spans).is_err() || reader.get_mut().write_all(answer).is_err() {
                    return;
                }
            }
        }
    });
    (format!("http://{address}"), batches)
}

/// The head of a request, with its names in lower case; `None` at the end.
fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        head += &match line.split_once(": ") {
            Some((name, value)) => format!("{}: {value}", name.to_lowercase()),
            None => line,
        };
    }
    Some(head)
}

fn fact<'a>(span: &'a Value, name: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().expect("attributes");
    let found = attributes.iter().find(|attribute| attribute["key"] == name);
    found.map_or(&Value::Null, |attribute| {
        attribute["value"].as_object().and_then(|value| value.values().next()).unwrap_or(&Value::Null)
    })
}

#[test]
fn logs_and_traces_of_requests_have_no_content() {
    let state = tempfile::tempdir().expect("a directory");
    let (endpoint, batches) = collector();
    let mut command = serve(state.path());
    command.args(["--log", "debug", "--log-format", "json"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_SERVICE_NAME", "a-service");
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=x y");
    let mut serving = ServeProcess::start(&mut command);
    let body = json!({"command": "echo hush-hush; sleep 20", "env": {"SECRET": "hush-hush"}, "wall_ms": 200});
    let run = serving.ask("POST", "/v1/runs", &body);
    let id = run["run_id"].as_str().expect("an id");
    serving.ask("GET", &format!("/v1/runs/{id}"), &Value::Null);

    let mut executed = Vec::new();
    for (kind, code) in [("sessions", "echo hush-hush"), ("contexts", "print('hush-hush')")] {
        let context = serving.ask("POST", &format!("/v1/{kind}"), &json!({}));
        let path = format!("/v1/{kind}/{}/execute", context["context_id"].as_str().expect("an id"));
        let cell = serving.ask("POST", &path, &json!({"code": code}));
        executed.push((format!("POST /v1/{kind}/{{id}}/execute"), cell["run_id"].clone()));
    }

    let mut spans: Vec<Value> = Vec::new();
    // Of six requests, and of three runs.
    while spans.len() < 9 {
        spans.extend(batches.recv_timeout(Duration::from_secs(20)).expect("spans in time"));
    }
    let named =
        |name: &str| spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{spans:?}"));
    let (request, ended) = (named("POST /v1/runs"), named("run"));
    assert_eq!((&ended["traceId"], &ended["parentSpanId"]), (&request["traceId"], &request["spanId"]));
    assert_ne!(named("GET /v1/runs/{id}")["traceId"], request["traceId"]);
    assert_eq!(
        (fact(ended, "sandtimer.ending"), fact(ended, "sandtimer.layer")),
        (&json!("timeout"), &json!("run"))
    );
    assert_eq!(
        (fact(ended, "sandtimer.limit_kind"), fact(ended, "sandtimer.limit_ms")),
        (&json!("wall"), &json!("200"))
    );
    assert_eq!(
        (fact(ended, "sandtimer.run_id"), fact(request, "http.response.status_code")),
        (&json!(id), &json!("200"))
    );
    for (route, id) in &executed {
        let request = named(route);
        let run = spans.iter().find(|span| fact(span, "sandtimer.run_id") == id).expect("a span");
        assert_eq!((&run["traceId"], &run["parentSpanId"]), (&request["traceId"], &request["spanId"]));
    }
    assert!(!format!("{spans:?}").contains("hush-hush"));

    serving.signal(Signal::TERM);
    assert!(serving.child.wait().expect("it ends").success());
    let mut output = String::new();
    serving.child.stderr.take().expect("piped").read_to_string(&mut output).expect("text");
    assert!(!output.contains("hush-hush"), "{output}");
    let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let line = |message: &str| {
        lines.iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("{output}"))
    };
    assert_eq!((&line("run began")["run_id"], &line("run ended")["run_id"]), (&json!(id), &json!(id)));
    assert_eq!(
        (&line("run ended")["ending"], &line("run ended")["limit_kind"]),
        (&json!("timeout"), &json!("wall"))
    );
    assert_eq!((&line("request")["route"], &line("request")["status"]), (&json!("/v1/runs"), &json!(200)));
}

#[test]
fn every_scope_of_a_job_is_a_span_of_its_trace() {
    let state = tempfile::tempdir().expect("a directory");
    let (endpoint, batches) = collector();
    let mut command = serve(state.path());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_SERVICE_NAME", "a-service");
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=x y");
    let serving = ServeProcess::start(&mut command);
    let steps = json!([
        {"name": "hush-hush", "command": ["true"]},
        {"name": "fails", "command": ["false"], "attempts": 2, "backoff_ms": [1]},
    ]);
    let job = serving.ask("POST", "/v1/jobs", &json!({"steps": steps}));
    let id = job["jobs"][0]["job_id"].as_str().expect("an id");
    let mut spans: Vec<Value> = Vec::new();
    let of = |spans: &[Value], layer: &str| -> Vec<Value> {
        spans.iter().filter(|span| fact(span, "sandtimer.layer") == layer).cloned().collect()
    };
    // It ends last.
    while of(&spans, "job").is_empty() {
        spans.extend(batches.recv_timeout(Duration::from_secs(20)).expect("spans in time"));
    }
    assert!(!format!("{spans:?}").contains("hush-hush"));
    let (job, calls, attempts) = (of(&spans, "job"), of(&spans, "call"), of(&spans, "attempt"));
    assert_eq!((job.len(), calls.len(), attempts.len()), (1, 2, 3), "{spans:?}");
    assert_eq!((fact(&job[0], "sandtimer.job_id"), &job[0]["parentSpanId"]), (&json!(id), &Value::Null));
    let failed =
        |spans: &[Value]| -> Vec<bool> { spans.iter().map(|span| span["status"]["code"] == 2).collect() };
    assert_eq!((failed(&job), failed(&calls)), (vec![true], vec![false, true]));
    assert_eq!(failed(&attempts), [false, true, true]);
    for span in calls.iter().chain(&attempts) {
        assert_eq!(span["traceId"], job[0]["traceId"]);
    }
    assert!(calls.iter().all(|call| call["parentSpanId"] == job[0]["spanId"]));
    let inside: Vec<bool> =
        attempts.iter().map(|attempt| attempt["parentSpanId"] == calls[1]["spanId"]).collect();
    assert_eq!(inside, [false, true, true]);
    let numbers: Vec<&Value> = attempts.iter().map(|attempt| fact(attempt, "sandtimer.number")).collect();
    assert_eq!(numbers, ["1", "1", "2"]);
}
