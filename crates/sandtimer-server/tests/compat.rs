//! The unmodified npm package `@cloudflare/sandbox`, loaded in Node, against this server's /api.
//!
//! Each test is a scenario of `compat/scenarios.mjs`. `cargo xtask npm` installs the package;
//! without Node they are skipped.

#![allow(clippy::disallowed_methods, reason = "a client does not read for a while")]

mod storage;

use crate::sandbox_networks::Outside;
use crate::support;
use crate::workspaces::Overlay;

use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer_server::Interpreters;
use serde_json::{Value, json};
use support::{HARD_STOP, ServerFixture, TestClient, node, tokens, wait_until};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest;

fn drive(serving: &ServerFixture, scenario: &str, token: &str) {
    play(scenario, serving.variables(token).to_vec());
}

/// The same over one WebSocket for each sandbox.
fn drive_over_a_socket(serving: &ServerFixture, scenario: &str, token: &str) {
    let transport = ("SANDTIMER_TRANSPORT", "websocket".to_owned());
    play(scenario, serving.variables(token).into_iter().chain([transport]).collect());
}

fn play(scenario: &str, variables: Vec<(&str, String)>) {
    // Without the first, Node 20 has no WebSocket.
    let loader = ["--experimental-websocket", "--import", "./register.mjs"];
    node::play("compat", "@cloudflare/sandbox", &loader, scenario, &variables);
}

macro_rules! scenarios {
    ($drive:ident: $($name:ident)+) => {
        $(#[test]
        fn $name() {
            $drive(&ServerFixture::start(), stringify!($name), "");
        })+
    };
}

scenarios! { drive:
    exec
    streams
    nothing_is_lost_in_streams
    sessions
    timeouts
    what_times_out_is_dead
    without_sessions
    temporary_directory
    relative_paths
    commands_of_one_session_queue
    clients_that_go_away
    processes
    code
    code_that_takes_too_long
    interface_of_the_wire
    clones
    files
    paths_of_a_container
    long_ones_finish
}

mod over_a_socket {
    use super::*;

    scenarios! { drive_over_a_socket:
        exec
        streams
        nothing_is_lost_in_streams
        sessions
        timeouts
        commands_of_one_session_queue
        temporary_directory
        processes
        code
        files
        paths_of_a_container
        one_socket_has_it_all
    }
}

#[test]
fn tokens_are_those_of_the_server() {
    let serving =
        ServerFixture::with(|settings| settings.tokens = Some(tokens("one first-secret-token-1234\n")));
    drive(&serving, "tokens", "first-secret-token-1234");
}

#[test]
fn quiet_streams_are_kept_open() {
    let serving = ServerFixture::with(|settings| settings.heartbeat = Duration::from_millis(100));
    drive(&serving, "quiet_streams_are_kept_open", "");
}

#[test]
fn another_token_sees_no_path_of_a_sandbox() {
    let two = "one first-secret-token-1234\ntwo second-secret-token-567\n";
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(two)));
    drive(&serving, "paths_of_a_container", "first-secret-token-1234");
    drive(&serving, "paths_of_another_token", "second-secret-token-567");
}

#[test]
fn git_checkout_reaches_the_hosts_of_the_allow_list() {
    let outside = Outside::start();
    let serving = ServerFixture::start();
    let variables =
        [("SANDTIMER_TEST_HOST", outside.entry()), ("SANDTIMER_TEST_REPOSITORY", outside.repository())];
    play("clones_of_an_allowed_host", serving.variables("").into_iter().chain(variables).collect());
}

#[test]
fn processes_of_a_sandbox_have_one_loopback() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let watch = || client.post("/api/port-watch", &json!({"port": 8080})).1;
    std::thread::scope(|scope| {
        let watching = scope.spawn(watch);
        let served = json!({"command": "cd /tmp; echo served >f; python3 -m http.server 8080"});
        assert_eq!(client.post("/api/process/start", &served).0, 200);
        let events = watching.join().expect("answered");
        assert!(events.as_str().is_some_and(|events| events.contains("\"ready\"")), "{events}");
    });
    let body = json!({"command": "curl -sS http://127.0.0.1:8080/f"});
    assert_eq!(client.post("/api/execute", &body).1["stdout"], "served");
    let (_, other) = client.post_with("/api/execute", &body, &[("X-Sandbox-Id", "other")]);
    assert_eq!(other["exitCode"], 7, "{other}");
}

/// The ids of all sandboxes.
fn sandboxes(client: &TestClient) -> Vec<String> {
    let listed = client.get("/v1/sandboxes").1["sandboxes"].as_array().cloned().expect("sandboxes");
    listed.iter().map(|one| one["sandbox_id"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn files_are_there_after_a_restart() {
    let serving = ServerFixture::start();
    drive(&serving, "files_before_a_restart", "");
    let names_directory = serving.state.path().join("sandbox-names");
    let count = || std::fs::read_dir(&names_directory).expect("a directory").count();
    assert_eq!(count(), 2);
    let client = serving.client();
    let has_gone =
        |id: &&String| client.bytes(&format!("/v1/files?sandbox={id}&path=/tmp/gone.txt"), &[]).0 == 200;
    let all = sandboxes(&client);
    let gone = all.iter().find(has_gone).expect("it is there");
    assert_eq!(client.delete(&format!("/v1/sandboxes/{gone}")).0, 204);
    assert_eq!(count(), 1, "a name is deleted with its sandbox");
    let again = ServerFixture::at(serving.stop(), |_| {});
    drive(&again, "files_after_a_restart", "");
}

#[test]
fn deleted_sandbox_is_made_again_at_the_next_use() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let exec = |command: &str| client.post("/api/execute", &json!({"command": command}));
    assert_eq!(exec("echo kept >/home/user/f; cd /tmp; x=1").1["exitCode"], 0);
    let (_, made) = client.post("/api/contexts", &json!({"language": "python"}));
    let [id] = &sandboxes(&client)[..] else { panic!("one sandbox") };
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).0, 204);
    let (status, fresh) = exec("pwd; echo \"$x\"; ls -A /home/user");
    assert_eq!((status, &fresh["stdout"]), (200, &json!("/workspace\n")), "{fresh}");
    let body = json!({"context_id": made["contextId"], "code": "1"});
    let (status, gone) = client.post("/api/execute/code", &body);
    assert_eq!((status, &gone["code"]), (404, &json!("CONTEXT_NOT_FOUND")), "{gone}");
    assert_ne!(&sandboxes(&client)[0], id);
    // A pause is the owner's, and is not ended by a request.
    let id = &sandboxes(&client)[0];
    assert_eq!(client.post(&format!("/v1/sandboxes/{id}/pause"), &json!({})).0, 200);
    let (status, paused) = client.post("/api/write", &json!({"path": "/tmp/f", "content": "x"}));
    assert_eq!((status, &paused["code"]), (409, &json!("RESOURCE_BUSY")), "{paused}");
    assert_eq!(client.post(&format!("/v1/sandboxes/{id}/resume"), &json!({})).0, 200);
    assert_eq!(client.post("/api/write", &json!({"path": "/tmp/f", "content": "x"})).0, 200);
}

#[test]
fn host_without_sandboxes_serves_workspaces() {
    // Without root there is no overlay to be refused.
    let Some(overlay) = Overlay::mounted() else { return };
    let logged = Arc::new(Mutex::new(Vec::new()));
    let log = logged.clone();
    let serving = ServerFixture::with(|settings| {
        settings.state_directory = overlay.state_directory();
        settings.host.log_error = Box::new(move |line| log.lock().expect("a log").push(line.to_owned()));
    });
    let client = serving.client();
    for name in ["one", "two"] {
        let ask = |path: &str, body: &Value| client.post_with(path, body, &[("X-Sandbox-Id", name)]);
        let (_, ran) = ask("/api/execute", &json!({"command": "echo x >f; echo y >~/g; pwd; echo ~"}));
        assert_eq!(ran["stdout"], "/workspace\n/tmp", "{ran}");
        assert_eq!(ask("/api/read", &json!({"path": "/tmp/g"})).1["content"], "y\n");
        assert_eq!(ask("/api/read", &json!({"path": "f"})).1["content"], "x\n");
        let (status, refused) = ask("/api/read", &json!({"path": "/etc/passwd"}));
        assert_eq!((status, &refused["code"]), (403, &json!("PERMISSION_DENIED")), "{refused}");
        // Absolute links are followed in their own directory, and nowhere else.
        let links =
            "mkdir d; echo in >d/f; ln -s /workspace/d inside; ln -s /tmp/g across; ln -s /etc/passwd out";
        assert_eq!(ask("/api/execute", &json!({"command": links})).1["exitCode"], 0);
        assert_eq!(ask("/api/read", &json!({"path": "/workspace/inside/f"})).1["content"], "in\n");
        for path in ["/workspace/across", "/workspace/out"] {
            assert_eq!(ask("/api/read", &json!({"path": path})).0, 403, "{path}");
        }
        let network = [("X-Sandbox-Id", name), ("X-Sandbox-Network", "pypi.org")];
        let (status, refused) = client.post_with("/api/execute", &json!({"command": "true"}), &network);
        assert_eq!((status, &refused["code"]), (400, &json!("VALIDATION_FAILED")), "{refused}");
    }
    assert_eq!(sandboxes(&client), [""; 0]);
    let logged = logged.lock().expect("a log");
    assert!(logged.len() == 1 && logged[0].contains("lies on an overlay"), "{logged:?}");
    drop(serving);
}

#[test]
fn workspace_of_an_earlier_version_stays_in_use() {
    let serving = ServerFixture::start();
    let (_, made) = serving.client().post("/v1/workspaces", &json!({}));
    let id = made["workspace_id"].as_str().expect("an id");
    let put = serving.client().put(&format!("/v1/files?workspace={id}&path=f"), b"kept");
    assert_eq!(put.0, 200);
    let state = serving.stop();
    let record = state.path().join(format!("workspaces/kept/{id}.json"));
    let mut named: Value = serde_json::from_slice(&std::fs::read(&record).expect("read")).expect("JSON");
    named["sandbox"] = "old".into();
    std::fs::write(&record, named.to_string()).expect("written");
    let again = ServerFixture::at(state, |_| {});
    let client = again.client();
    let ask = |path: &str, body: &Value| client.post_with(path, body, &[("X-Sandbox-Id", "old")]);
    assert_eq!(ask("/api/execute", &json!({"command": "cat f"})).1["stdout"], "kept");
    assert_eq!(sandboxes(&client), [""; 0]);
    for session in client.get("/v1/sessions").1["contexts"].as_array().expect("sessions") {
        client.delete(&format!("/v1/sessions/{}", session["context_id"].as_str().expect("an id")));
    }
    assert_eq!(client.delete(&format!("/v1/workspaces/{id}")).0, 204);
    assert_eq!(ask("/api/execute", &json!({"command": "ls -A"})).1["stdout"], "");
    assert_eq!(sandboxes(&client).len(), 1);
}

#[test]
fn one_process_at_a_time_has_an_id() {
    let serving = ServerFixture::start();
    let start = || {
        serving.client().post("/api/process/start", &json!({"command": "sleep 100", "processId": "same"})).0
    };
    let mut answers: Vec<u16> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        asking.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    });
    answers.sort_unstable();
    assert_eq!(answers, [200, 409, 409, 409]);
    let client = serving.client();
    assert_eq!(client.delete("/api/process/kill-all").1["cleanedCount"], 1);
    assert_eq!(client.get("/v1/runs?status=running").1["total"], 0);
    assert_eq!(start(), 200, "its id is free again");
}

#[test]
fn names_that_are_not_utf8_are_listed() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let command = "touch \"$(printf '\\377%.0s' {1..200})\"";
    let (status, made) = client.post("/api/execute", &json!({"command": command}));
    assert_eq!((status, &made["exitCode"]), (200, &json!(0)), "{made}");
    let (status, listed) = client.post("/api/list-files", &json!({"path": "/workspace"}));
    assert_eq!((status, &listed["count"]), (200, &json!(1)), "{listed}");
}

#[test]
fn an_interpreter_that_is_slow_to_start_is_not_ready() {
    let serving = ServerFixture::with(|settings| {
        let spawn_limit = Duration::from_millis(1);
        settings.interpreters = Interpreters { spawn_limit, ..settings.interpreters.clone() };
    });
    let (status, refused) = serving.client().post("/api/contexts", &json!({"language": "python"}));
    assert_eq!((status, &refused["code"]), (503, &json!("INTERPRETER_NOT_READY")), "{refused}");
    // What the package looks for before it tries again.
    assert!(refused["message"].as_str().is_some_and(|message| message.contains("not ready")), "{refused}");
}

#[test]
fn code_context_has_three_languages_and_names_the_doc() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for language in ["python", "javascript", "typescript"] {
        let (status, made) = client.post("/api/contexts", &json!({"language": language}));
        assert_eq!((status, &made["language"]), (200, &json!(language)), "{made}");
        let body = json!({"context_id": made["contextId"], "code": "6 * 7", "language": language});
        let (status, events) = client.post("/api/execute/code", &body);
        assert_eq!(status, 200, "{events}");
        assert!(events.as_str().is_some_and(|events| events.contains("42")), "{events}");
    }
    let (_, refused) = client.post("/api/nowhere", &json!({}));
    assert!(refused["suggestion"].as_str().is_some_and(|hint| hint.contains("docs/compat.md")), "{refused}");
}

/// One WebSocket, as a client without the package has it.
struct Socket(tungstenite::WebSocket<TcpStream>);

impl Socket {
    fn open(serving: &ServerFixture, token: Option<&str>) -> Self {
        let mut request = format!("ws://{}/ws", serving.address).into_client_request().expect("an address");
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a value");
            request.headers_mut().insert("authorization", value);
        }
        let stream = TcpStream::connect(serving.address).expect("connected");
        stream.set_read_timeout(Some(HARD_STOP)).expect("set");
        Socket(tungstenite::client(request, stream).expect("a WebSocket").0)
    }

    fn send(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).expect("sent");
    }

    fn ask(&mut self, id: &str, method: &str, path: &str, body: &Value) {
        self.send(&json!({"type": "request", "id": id, "method": method, "path": path, "body": body}));
    }

    fn receive(&mut self) -> Value {
        loop {
            match self.0.read().expect("a message") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                _ => continue,
            }
        }
    }
}

#[test]
fn a_socket_that_closes_cancels_what_it_asked_for() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let mut socket = Socket::open(&serving, None);
    socket.ask("1", "POST", "/api/execute", &json!({"command": "sleep 600"}));
    socket.ask(
        "2",
        "POST",
        "/api/execute/stream",
        &json!({"command": "echo on; sleep 600", "sessionId": "other"}),
    );
    socket.ask(
        "3",
        "POST",
        "/api/process/start",
        &json!({"command": "sleep 600", "processId": "stays", "sessionId": "third"}),
    );
    let running = || client.get("/v1/runs?status=running").1["total"].as_u64();
    // What the third takes over from its session is read by a run too.
    wait_until("the process runs", || client.get("/api/process/stays").0 == 200);
    wait_until("all three run", || running() == Some(3));
    socket.send(&json!({"type": "cancel", "id": "1"}));
    wait_until("the first is cancelled", || running() == Some(2));
    drop(socket);
    wait_until("the stream is cancelled, the process stays", || running() == Some(1));
    assert_eq!(client.delete("/api/process/stays").0, 200);
}

/// The request goes with its socket at every moment of the start; a run that has begun is a process
/// that is found.
#[test]
fn process_with_dropped_request_is_found() {
    let serving = ServerFixture::start();
    let client = serving.client();
    // What a session hands on is read by a run of its own, which has a limit.
    let running = || {
        let runs = client.get("/v1/runs?status=running").1["runs"].as_array().cloned().unwrap_or_default();
        runs.iter().filter(|run| run["wall_ms"].is_null()).count()
    };
    for turn in 0..20 {
        let before = running();
        let mut socket = Socket::open(&serving, None);
        let id = format!("process-{turn}");
        socket.ask("1", "POST", "/api/process/start", &json!({"command": "sleep 600", "processId": id}));
        wait_until("it runs", || running() > before);
        drop(socket);
    }
    wait_until("all are found", || {
        client.delete("/api/process/kill-all");
        running() == 0
    });
}

#[test]
fn invalid_socket_request_returns_an_error() {
    let serving = ServerFixture::start();
    let mut socket = Socket::open(&serving, None);
    for (message, code) in [
        ("{", "PARSE_ERROR"),
        ("[]", "INVALID_REQUEST"),
        (r#"{"type": "request", "id": "1", "method": "GET"}"#, "INVALID_REQUEST"),
        (
            r#"{"type": "request", "id": "1", "method": "GET", "path": "/api/ping", "headers": 1}"#,
            "INVALID_REQUEST",
        ),
        (r#"{"type": "hello", "id": "1"}"#, "INVALID_REQUEST"),
        (r#"{"type": "request", "id": "1", "method": "GET", "path": "/v1/runs"}"#, "INVALID_REQUEST"),
        (r#"{"type": "request", "id": "1", "method": "GET", "path": "/api/../v1/runs"}"#, "UNKNOWN_ERROR"),
        (r#"{"type": "request", "id": "1", "method": "GET", "path": "/api/ws"}"#, "INVALID_REQUEST"),
        (r#"{"type": "request", "id": "1", "method": "G T", "path": "/api/ping"}"#, "INVALID_REQUEST"),
        (
            r#"{"type": "request", "id": "1", "method": "GET", "path": "/api/ping", "headers": {"a b": ""}}"#,
            "INVALID_REQUEST",
        ),
        (
            r#"{"type": "request", "id": "1", "method": "POST", "path": "/api/execute", "body": {"command": 1}}"#,
            "VALIDATION_FAILED",
        ),
    ] {
        socket.0.send(Message::text(message)).expect("sent");
        let received = socket.receive();
        let code_field =
            if received["type"] == "error" { &received["code"] } else { &received["body"]["code"] };
        assert_eq!(code_field, code, "{message}: {received}");
        assert_eq!(received["id"].is_string(), message.contains("\"id\""), "{received}");
        assert!(received["status"].as_u64().is_some_and(|status| (400..500).contains(&status)), "{received}");
    }
    let sleeping = json!({"command": "sleep 600"});
    for _ in 0..2 {
        socket.ask("same", "POST", "/api/execute", &sleeping);
    }
    assert_eq!(socket.receive()["code"], "INVALID_REQUEST");
    // With the one that sleeps there are as many as there may be at a time.
    for index in 1..64 {
        socket.ask(&index.to_string(), "POST", "/api/execute", &sleeping);
    }
    socket.ask("more", "GET", "/api/ping", &Value::Null);
    let received = socket.receive();
    assert_eq!((&received["id"], &received["status"]), (&json!("more"), &json!(429)), "{received}");
    socket.send(&json!({"type": "cancel", "id": "1"}));
    // Its task ends a moment later.
    let is_free = (0..1000).any(|_| {
        socket.ask("again", "GET", "/api/ping", &Value::Null);
        socket.receive()["status"] != 429
    });
    assert!(is_free, "its place is not free again");
    socket.send(&json!({"type": "cancel", "id": "same"}));
    socket.ask("last", "GET", "/api/ping", &Value::Null);
    let received = socket.receive();
    assert_eq!(
        (&received["id"], &received["body"]["message"]),
        (&json!("last"), &json!("pong")),
        "{received}"
    );
}

#[test]
fn a_socket_is_its_tokens() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234\ntwo second-secret-token-567\n"));
    });
    let mut one = Socket::open(&serving, Some("first-secret-token-1234"));
    one.ask("1", "POST", "/api/process/start", &json!({"command": "sleep 600", "processId": "mine"}));
    assert_eq!(one.receive()["status"], 200);
    let mut two = Socket::open(&serving, Some("second-secret-token-567"));
    // Whatever headers a request has in its message.
    two.send(&json!({"type": "request", "id": "1", "method": "GET", "path": "/api/process/mine",
        "headers": {"authorization": "Bearer first-secret-token-1234"}}));
    assert_eq!(two.receive()["status"], 404);
    one.ask("2", "GET", "/api/process/mine", &Value::Null);
    assert_eq!(one.receive()["status"], 200);
    one.ask("3", "DELETE", "/api/process/mine", &Value::Null);
    assert_eq!(one.receive()["status"], 200);
}

#[test]
fn a_server_that_ends_answers_what_a_socket_has_asked() {
    let serving = ServerFixture::start();
    let mut socket = Socket::open(&serving, None);
    socket.ask("1", "POST", "/api/execute", &json!({"command": "sleep 1; echo done"}));
    let client = serving.client();
    wait_until("it runs", || client.get("/v1/runs?status=running").1["total"] == 1);
    drop(client);
    let stopping = std::thread::spawn(move || serving.stop());
    let received = socket.receive();
    assert_eq!(
        (&received["status"], &received["body"]["stdout"]),
        (&json!(200), &json!("done")),
        "{received}"
    );
    assert!(matches!(socket.0.read(), Ok(Message::Close(_))), "and then it is closed");
    drop(socket);
    drop(stopping.join().expect("it ends"));
}

#[test]
fn silent_client_is_disconnected() {
    let serving = ServerFixture::with(|settings| settings.heartbeat = Duration::from_millis(100));
    let client = serving.client();
    let running = || client.get("/v1/runs?status=running").1["total"].as_u64();
    let mut silent = Socket::open(&serving, None);
    silent.ask("1", "POST", "/api/execute", &json!({"command": "sleep 600"}));
    wait_until("it runs", || running() == Some(1));
    // It does not read, so it answers no ping.
    wait_until("it is taken for gone", || running() == Some(0));
    let mut answering = Socket::open(&serving, None);
    answering.ask("1", "POST", "/api/execute", &json!({"command": "sleep 2; echo done"}));
    assert_eq!(answering.receive()["body"]["stdout"], "done");
}

#[test]
fn a_client_that_does_not_read_can_cancel() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let running = || client.get("/v1/runs?status=running").1["total"].as_u64();
    let mut socket = Socket::open(&serving, None);
    socket.ask("1", "POST", "/api/execute/stream", &json!({"command": "yes"}));
    wait_until("it runs", || running() == Some(1));
    // The socket's buffers are full by then.
    std::thread::sleep(Duration::from_secs(2));
    socket.send(&json!({"type": "hello", "id": "2"}));
    socket.send(&json!({"type": "cancel", "id": "1"}));
    wait_until("it is cancelled", || running() == Some(0));
}

#[test]
fn a_token_may_be_among_the_protocols() {
    let serving =
        ServerFixture::with(|settings| settings.tokens = Some(tokens("one first-secret-token-1234\n")));
    let mut request = format!("ws://{}/ws", serving.address).into_client_request().expect("an address");
    let protocols = "sandtimer, sandtimer.token.Zmlyc3Qtc2VjcmV0LXRva2VuLTEyMzQ";
    request.headers_mut().insert("sec-websocket-protocol", protocols.parse().expect("a value"));
    let stream = TcpStream::connect(serving.address).expect("connected");
    let (socket, response) = tungstenite::client(request, stream).expect("a WebSocket");
    assert_eq!(response.headers()["sec-websocket-protocol"], "sandtimer");
    let mut socket = Socket(socket);
    socket.ask("1", "GET", "/api/ping", &Value::Null);
    assert_eq!(socket.receive()["status"], 200);
}
