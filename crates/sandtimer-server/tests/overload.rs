//! A client that sends too much gets an error, costs little, and delays no other client. At full
//! size, over time: `python/benches/server_overload.py`.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use support::{HARD_STOP, ServerFixture, TestClient, raw, read_to_end, tokens, wait_until};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest;

/// One million values in 7 MiB: parsed, they are a hundred times that.
fn bomb() -> String {
    format!("[{}0]", r#"{"":0},"#.repeat(1 << 20))
}

/// The most memory that this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number") * 1024
}

fn is_rejected(answer: &(u16, Value)) {
    let (status, body) = answer;
    assert_eq!((*status, &body["code"]), (413, &json!("json_too_large")), "{body}");
    assert_eq!(body["details"], json!({"counted": "json_values", "limit": 10_000}), "{body}");
    assert!(body["hint"].as_str().is_some_and(|hint| hint.contains("stdin")), "{body}");
}

#[test]
fn json_bombs_are_rejected_at_every_door() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": "cat", "stdin_open": true}));
    let (_, context) = client.post("/v1/contexts", &json!({}));
    let context = context["context_id"].as_str().expect("an id").to_owned();
    let bomb = bomb();
    let before = peak_memory();
    for (path, field) in [
        ("/v1/runs".to_owned(), "command"),
        (format!("/v1/runs/{id}/stdin"), "data"),
        ("/v1/contexts".to_owned(), "env"),
        (format!("/v1/contexts/{context}/execute"), "code"),
        ("/v1/tasks".to_owned(), "x"),
        ("/v1/jobs".to_owned(), "command"),
        ("/v1/jobs/purge".to_owned(), "queue"),
        ("/v1/workspaces".to_owned(), "x"),
        ("/mcp".to_owned(), "params"),
    ] {
        is_rejected(&client.post_bytes(&path, format!(r#"{{"{field}": {bomb}}}"#).as_bytes()));
    }
    let (status, body) = client.post_bytes("/api/execute", format!(r#"{{"command": {bomb}}}"#).as_bytes());
    assert_eq!((status, &body["context"]["reason"]), (400, &json!("json_too_large")), "{body}");
    // Many jobs may be sent at a time, but not more values than memory.
    let (status, body) = client.post_bytes("/v1/jobs", bomb.as_bytes());
    assert_eq!((status, &body["details"]["counted"]), (413, &json!("batch_values")), "{body}");
    let grown = peak_memory() - before;
    assert!(grown < 100 << 20, "{grown} bytes");
    // The control: what a parser makes of it without the bound.
    let before = peak_memory();
    assert_eq!(
        serde_json::from_str::<Value>(&bomb).expect("JSON").as_array().map(Vec::len),
        Some((1 << 20) + 1)
    );
    assert!(peak_memory() - before > 300 << 20);
    client.post(&format!("/v1/runs/{id}/kill"), &json!({}));
}

#[test]
fn json_up_to_the_limits_is_read() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let list = |count: usize| format!(r#"{{"command": ["true", {}""]}}"#, r#""","#.repeat(count - 4));
    assert_eq!(client.post_bytes("/v1/runs", list(10_000).as_bytes()).0, 200);
    is_rejected(&client.post_bytes("/v1/runs", list(10_001).as_bytes()));
    let named =
        |bytes: usize| client.post("/v1/runs", &json!({"command": ["true"], "task_type": "x".repeat(bytes)}));
    assert_eq!(named((1 << 20) - 100).1["code"], "bad_field");
    let (status, body) = named(1 << 20);
    assert_eq!((status, &body["details"]["counted"]), (413, &json!("json_bytes")), "{body}");
    // What carries content is bounded by its own limit only.
    let text = "x".repeat(8 << 20);
    let run = client.run(&json!({"command": "wc -c", "stdin": text}));
    assert_eq!(run["outcome"]["stdout"], format!("{}\n", text.len()), "{run}");
    let (_, context) = client.post("/v1/contexts", &json!({}));
    let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
    let (_, answer) = client.post(&at, &json!({"code": format!("len('{text}')")}));
    assert_eq!(answer["outcome"]["value"], text.len(), "{}", answer["outcome"]["error"]);
    let jobs: Vec<Value> =
        (0..4).map(|_| json!({"command": ["true"], "inputs": {"a": &text[..1 << 20]}})).collect();
    assert_eq!(client.post("/v1/jobs", &json!(jobs)).0, 201);
}

fn web_socket(serving: &ServerFixture, path: &str) -> tungstenite::WebSocket<TcpStream> {
    let stream = TcpStream::connect(serving.address).expect("connected");
    stream.set_read_timeout(Some(HARD_STOP)).expect("set");
    let request = format!("ws://{}{path}", serving.address).into_client_request().expect("an address");
    tungstenite::client(request, stream).expect("a WebSocket").0
}

fn next_message(socket: &mut tungstenite::WebSocket<TcpStream>) -> Value {
    loop {
        if let Message::Text(text) = socket.read().expect("a message") {
            return serde_json::from_str(&text).expect("JSON");
        }
    }
}

#[test]
fn messages_of_web_sockets_and_lines_have_the_same_bounds() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let bomb = bomb();
    let mut socket = web_socket(&serving, "/ws");
    let request = |body: &str| {
        format!(r#"{{"type":"request","id":"1","method":"POST","path":"/api/execute","body":{body}}}"#)
    };
    socket.send(Message::text(request(&format!(r#"{{"command": {bomb}}}"#)))).expect("sent");
    let answer = next_message(&mut socket);
    assert_eq!(
        (&answer["type"], &answer["id"], &answer["status"]),
        (&json!("error"), &json!("1"), &json!(400))
    );
    assert!(answer["message"].as_str().is_some_and(|message| message.contains("10000 values")), "{answer}");
    socket.send(Message::text(request(&json!({"command": "echo hi"}).to_string()))).expect("sent");
    assert_eq!(next_message(&mut socket)["body"]["stdout"], "hi");

    let id = client.start(json!({"command": "cat", "terminal": {}}));
    let mut terminal = web_socket(&serving, &format!("/v1/runs/{id}/terminal"));
    let small = format!(r#"{{"resize": [{}0]}}"#, r#"{"":0},"#.repeat(20_000));
    terminal.send(Message::text(small)).expect("sent");
    assert_eq!(next_message(&mut terminal)["error"]["code"], "json_too_large");
    client.post(&format!("/v1/runs/{id}/kill"), &json!({}));

    let head =
        "GET /mcp/stdio HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade\r\nUpgrade: sandtimer-mcp\r\n\r\n";
    let mut lines = raw(serving.address, head.as_bytes());
    read_until(&mut lines, "\r\n\r\n");
    let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}});
    writeln!(lines, "{begin}").expect("sent");
    assert!(read_until(&mut lines, "\n").contains("serverInfo"));
    writeln!(lines, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).expect("sent");
    writeln!(lines, r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{bomb}}}"#).expect("sent");
    let refused: Value = serde_json::from_str(&read_until(&mut lines, "\n")).expect("JSON");
    assert_eq!(refused["error"]["data"]["code"], "json_too_large", "{refused}");
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "bash", "arguments": {"command": "wc -c", "stdin": "x".repeat(1 << 20)}}});
    writeln!(lines, "{call}").expect("sent");
    let answer = read_until(&mut lines, "\n");
    assert!(answer.contains("1048576"), "{answer}");
}

fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("more");
        read.push(byte[0]);
    }
    String::from_utf8(read).expect("text")
}

fn tenants() -> ServerFixture {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("raised");
    ServerFixture::with(|settings| settings.tokens = Some(tokens("alice a-secret\nbob another\n")))
}

/// Whether another tenant and probes are answered over connections of their own.
fn is_open_to(serving: &ServerFixture, token: &str) {
    assert_eq!(serving.client().get("/healthz").0, 200);
    let run = serving.client_with(token).run(&json!({"command": ["true"]}));
    assert_eq!(run["outcome"]["ok"], true, "{run}");
}

fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    match stream.read(&mut [0; 16]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn silent_anonymous_connections_block_no_tenant() {
    let serving = tenants();
    let silent: Vec<TcpStream> = (0..1_100).map(|_| raw(serving.address, b"")).collect();
    is_open_to(&serving, "another");
    let open = || silent.iter().filter(|stream| !is_closed(stream)).count();
    wait_until("all but a few strangers are closed", || open() <= 128);
    // Also one that sends slowly.
    let slow = raw(serving.address, b"GET /v1/runs HT");
    wait_until("strangers that show no token in time are closed", || is_closed(&slow));
    is_open_to(&serving, "another");
}

#[test]
fn streams_of_one_tenant_block_no_other() {
    let serving = tenants();
    let alice = serving.client_with("a-secret");
    let id = alice.start(json!({"command": "sleep 60"}));
    let events = format!(
        "GET /v1/runs/{id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer a-secret\r\n\r\n"
    );
    let mut streams = Vec::new();
    let mut refused = None;
    for _ in 0..600 {
        let mut stream = raw(serving.address, events.as_bytes());
        let head = read_until(&mut stream, "\r\n");
        if head.contains(" 429 ") {
            refused = Some(read_to_end(stream));
            break;
        }
        assert!(head.contains(" 200 "), "{head}");
        streams.push(stream);
    }
    let refused = refused.expect("there are not so many places for one tenant");
    assert!(
        refused.contains(r#""code":"quota""#) && refused.contains(r#""quota":"connections""#),
        "{refused}"
    );
    assert!((500..=512).contains(&streams.len()), "{}", streams.len());
    is_open_to(&serving, "another");
    drop(streams);
    let bearer = TestClient::new(serving.address, Some("a-secret"));
    wait_until("there is room again", || bearer.get(&format!("/v1/runs/{id}")).0 == 200);
    bearer.post(&format!("/v1/runs/{id}/kill"), &json!({}));
}

#[test]
fn idle_connections_make_room_for_their_owner() {
    let serving = tenants();
    let request = "GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer a-secret\r\n\r\n";
    let idle: Vec<TcpStream> = (0..520)
        .map(|_| {
            let mut stream = raw(serving.address, request.as_bytes());
            assert!(read_until(&mut stream, "}\n").contains(" 200 "));
            stream
        })
        .collect();
    assert!(is_closed(&idle[0]) && !is_closed(&idle[519]));
    is_open_to(&serving, "another");
}

#[test]
fn requests_over_web_sockets_are_shared_out() {
    let serving = tenants();
    let open = |token: &'static str| {
        let stream = TcpStream::connect(serving.address).expect("connected");
        stream.set_read_timeout(Some(HARD_STOP)).expect("set");
        let mut request = format!("ws://{}/ws", serving.address).into_client_request().expect("an address");
        request.headers_mut().insert("Authorization", format!("Bearer {token}").parse().expect("a value"));
        tungstenite::client(request, stream).expect("a WebSocket").0
    };
    let request = |id: usize, method: &str, path: &str, body: Value| {
        let id = id.to_string();
        Message::text(
            json!({"type": "request", "id": id, "method": method, "path": path, "body": body}).to_string(),
        )
    };
    // Streams give their turns back with their heads: here are more of them than turns.
    let mut sockets: Vec<_> = (0..18).map(|_| open("a-secret")).collect();
    let command = json!({"command": "echo begun; sleep 60"});
    sockets[0].send(request(0, "POST", "/api/process/start", command)).expect("sent");
    let started = next_message(&mut sockets[0]);
    let process = started["body"]["processId"].as_str().expect("an id").to_owned();
    let path = format!("/api/process/{process}/stream");
    for socket in &mut sockets {
        for id in 1..=60 {
            socket.send(request(id, "GET", &path, Value::Null)).expect("sent");
        }
    }
    for socket in &mut sockets {
        assert_eq!(next_message(socket)["type"], "stream");
    }
    let mut bob = open("another");
    bob.send(request(1, "POST", "/api/execute", json!({"command": "echo hi"}))).expect("sent");
    assert_eq!(next_message(&mut bob)["body"]["stdout"], "hi");
    sockets[0].send(request(99, "DELETE", &format!("/api/process/{process}"), Value::Null)).expect("sent");
}
