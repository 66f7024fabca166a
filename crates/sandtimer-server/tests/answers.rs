//! Answers that are long, not read, or take long to find: each owner has its part of the server's
//! memory and threads.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};
use support::{ServerFixture, raw, tokens, wait_until};

fn first_line(stream: &mut TcpStream) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\r\n") && stream.read(&mut byte).expect("an answer") == 1 {
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).into_owned()
}

#[test]
fn unread_answers_are_bounded_and_end() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("alice a-secret\nbob another\n"));
        settings.patience = Duration::from_secs(10);
    });
    let (alice, bob) = (serving.client_with("a-secret"), serving.client_with("another"));
    // As JSON each of these bytes is six.
    let command = "head -c 45000000 /dev/zero | tr '\\0' '\\1'";
    let id = alice.start(json!({"command": command, "output_bytes": "64M"}));
    let path = format!("/v1/runs/{id}");
    wait_until("the run has finished", || {
        let (_, runs) = alice.get("/v1/runs?status=ended");
        runs["total"] == 1
    });
    let get = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer a-secret\r\n\r\n");
    let mut streams: Vec<_> = (0..3).map(|_| raw(serving.address, get.as_bytes())).collect();
    // Long enough to be counted, and to need a permit.
    let written = bob.run(&json!({"command": "head -c 100000 /dev/zero | tr '\\0' x"}));
    assert_eq!(written["outcome"]["stdout"].as_str().map(str::len), Some(100_000));
    let mut lines: Vec<_> = streams.iter_mut().map(first_line).collect();
    lines.sort();
    assert!(
        lines[0].contains(" 200 ") && lines[1].contains(" 429 ") && lines[2].contains(" 429 "),
        "{lines:?}"
    );
    // What is not read ends, and leaves its memory to the next one.
    wait_until("there is memory again", || {
        let mut stream = raw(serving.address, get.as_bytes());
        first_line(&mut stream).contains(" 200 ")
    });
    drop(streams);
}

/// Takes a little of an answer from time to time, so that the server keeps its connection, until
/// this is dropped.
struct SlowReader(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl SlowReader {
    fn of(mut stream: TcpStream) -> Self {
        let (stop, stopped) = mpsc::channel();
        let reading = std::thread::spawn(move || {
            let mut piece = vec![0; 1 << 20];
            while stopped.recv_timeout(Duration::from_millis(500)) == Err(RecvTimeoutError::Timeout) {
                if stream.read(&mut piece).is_err() {
                    break;
                }
            }
        });
        SlowReader(Some((stop, reading)))
    }
}

impl Drop for SlowReader {
    fn drop(&mut self) {
        if let Some((stop, reading)) = self.0.take() {
            drop(stop);
            let _ = reading.join();
        }
    }
}

#[test]
fn execution_without_memory_for_its_answer_is_not_retryable() {
    let serving = ServerFixture::with(|settings| settings.patience = Duration::from_secs(2));
    let client = serving.client();
    // As JSON each of these bytes is six: an owner has memory for 89 million of them.
    let writing = |bytes: usize| {
        let command = format!("head -c {bytes} /dev/zero | tr '\\0' '\\1'");
        json!({"command": command, "output_bytes": "64M"})
    };
    let read_slowly = |bytes| {
        let id = client.start(writing(bytes));
        wait_until("the run has finished", || client.get(&format!("/v1/runs/{id}/processes")).0 == 409);
        let get = format!("GET /v1/runs/{id} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let mut unread = raw(serving.address, get.as_bytes());
        assert!(first_line(&mut unread).contains(" 200 "));
        SlowReader::of(unread)
    };
    let first = read_slowly(45_000_000);
    let (status, refused) = client.post("/v1/runs", &writing(45_000_000));
    let run_id = refused["details"]["run_id"].as_str().unwrap_or_default();
    assert_eq!(
        (status, &refused["code"], &refused["retryable"]),
        (409, &json!("answer_unavailable"), &json!(false)),
        "{:.300}",
        refused.to_string()
    );
    let (_, runs) = client.get("/v1/runs?status=ended");
    assert!(runs["total"] == 2 && runs["runs"][0]["run_id"] == run_id, "{runs:.300}");
    let second = read_slowly(41_000_000);
    // Of which 10 MiB are kept.
    let command = json!({"command": writing(11_000_000)["command"]});
    let (status, refused) = client.post("/api/execute", &command);
    assert_eq!(
        (status, &refused["context"]["reason"], refused["context"]["run_id"].is_string()),
        (409, &json!("answer_unavailable"), true),
        "{:.300}",
        refused.to_string()
    );
    // The control: with memory the same request is answered.
    drop((first, second));
    let (status, answered) = client.post("/api/execute", &command);
    assert_eq!((status, &answered["exitCode"]), (200, &json!(0)));
}

#[test]
fn large_values_are_whole_in_answers_and_events() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, context) = client.post("/v1/contexts", &json!({}));
    let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
    let (_, executed) = client.post(&at, &json!({"code": "'x' * 300_000"}));
    let path = format!("/v1/runs/{}", executed["run_id"].as_str().expect("an id"));
    let length = |outcome: &Value| outcome["value"].as_str().map(str::len);
    assert_eq!(length(&executed["outcome"]), Some(300_000));
    assert_eq!(length(&client.get(&path).1["outcome"]), Some(300_000));
    let last = client.events_at(&format!("{path}/events"), &[]).last().expect("an event");
    assert_eq!((&*last.name, length(&last.data["outcome"])), ("ended", Some(300_000)));
    let (_, listed) = client.get("/v1/runs");
    assert_eq!((&listed["runs"][0]["ok"], &listed["runs"][0]["ending"]), (&json!(true), &json!("returned")));
    let serving = ServerFixture::at(serving.stop(), |_| {});
    assert_eq!(length(&serving.client().get(&path).1["outcome"]), Some(300_000));
}

#[test]
fn logs_and_commands_of_the_other_interface_are_whole() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let command = json!({"command": "head -c 100000 /dev/zero | tr '\\0' x; echo; echo no >&2"});
    let (status, answer) = client.post("/api/execute", &command);
    assert_eq!(
        (status, &answer["success"], &answer["stderr"]),
        (200, &json!(true), &json!("no")),
        "{answer:.300}"
    );
    assert!(answer["stdout"].as_str().map(str::len) == Some(100_000) && answer["timestamp"].is_string());
    let (_, started) = client.post("/api/process/start", &command);
    let path = format!("/api/process/{}", started["processId"].as_str().expect("an id"));
    wait_until("it has ended", || client.get(&path).1["process"]["status"] == "completed");
    let (status, logs) = client.get(&format!("{path}/logs"));
    assert_eq!(
        (status, &logs["success"], &logs["stderr"]),
        (200, &json!(true), &json!("no\n")),
        "{logs:.300}"
    );
    assert_eq!(logs["stdout"].as_str().map(str::len), Some(100_001));
}

#[test]
fn patterns_are_short_and_searches_end_in_time() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let wait = |id: &str, pattern: &str| {
        client.post(&format!("/v1/runs/{id}/wait"), &json!({"pattern": pattern, "wait_ms": 1}))
    };
    // Before it is known whether there is such a run nothing is made of the pattern.
    assert_eq!(wait("missing", "(").1["code"], "run_not_found");
    let lines = "line=$(head -c 30000 /dev/zero | tr '\\0' 1); for i in $(seq 64); do echo $line; done";
    let run = client.run(&json!({"command": lines}));
    let id = run["run_id"].as_str().expect("an id");
    let (status, body) = wait(id, &"x".repeat(1025));
    assert_eq!(
        (status, &body["code"], &body["details"]["limit"]),
        (400, &json!("bad_field"), &json!(1024)),
        "{body}"
    );
    assert_eq!(wait(id, &"x".repeat(1024)).0, 200);
    assert_eq!(wait(id, "1+").1["matched"], true);
    // Each line takes as many steps as it has bytes, times the states of the pattern.
    let began = monotonic_nanoseconds();
    let (status, body) = wait(id, "[01]*1[01]{900}x");
    assert_eq!((status, &body["matched"]), (200, &json!(false)), "{body}");
    let all = 64 * 30_001;
    let next_cursor = body["next_cursor"].as_u64().expect("a cursor");
    assert!((30_001..all).contains(&next_cursor), "not cut: {body}");
    // Several at once are cut too, also those that wait for their turn.
    std::thread::scope(|scope| {
        let search = || {
            let (status, body) = wait(id, "[01]*1[01]{900}x");
            assert_eq!((status, &body["matched"]), (200, &json!(false)), "{body}");
            assert!(body["next_cursor"].as_u64() < Some(all), "not cut: {body}");
        };
        for _ in 0..6 {
            scope.spawn(search);
        }
    });
    let took = Duration::from_nanos(monotonic_nanoseconds() - began);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// A conversation over lines.
struct LineConversation {
    stream: TcpStream,
    read: BufReader<TcpStream>,
}

impl LineConversation {
    fn open(serving: &ServerFixture) -> Self {
        let upgrade = "GET /mcp/stdio HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade\r\nUpgrade: sandtimer-mcp\r\n\r\n";
        let stream = raw(serving.address, upgrade.as_bytes());
        let mut lines =
            LineConversation { read: BufReader::new(stream.try_clone().expect("another")), stream };
        while !lines.line().trim().is_empty() {}
        let client = json!({"name": "test", "version": "1"});
        let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        lines.send(&json!({"jsonrpc": "2.0", "id": "begin", "method": "initialize", "params": about}));
        lines.line();
        lines.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        lines
    }

    fn send(&mut self, message: &Value) {
        // A server that ends the connection sends the reason.
        let _ = self.stream.write_all(format!("{message}\n").as_bytes());
    }

    fn call(&mut self, id: usize, name: &str, arguments: &Value) {
        let params = json!({"name": name, "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        // A reset is an end, too.
        let _ = self.read.read_line(&mut line);
        line
    }
}

#[test]
fn calls_of_one_connection_are_bounded() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": "sleep 60", "stdin_open": true}));
    let mut lines = LineConversation::open(&serving);
    for call in 0..70 {
        lines.call(call, "wait", &json!({"run_ids": [id], "wait_ms": 40_000}));
    }
    for _ in 0..6 {
        let answer = lines.line();
        assert!(answer.contains("64 calls of this connection are under way"), "{answer}");
    }
    client.post(&format!("/v1/runs/{id}/kill"), &json!({}));
    for _ in 0..64 {
        let answer = lines.line();
        assert!(answer.contains("STOPPED BY"), "{answer}");
    }
    lines.call(100, "wait", &json!({"run_ids": [id]}));
    assert!(lines.line().contains("STOPPED BY"));
}

#[test]
fn nothing_is_read_while_64_answers_are_unread() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let run = client.run(&json!({"command": "head -c 300000 /dev/zero | tr '\\0' x"}));
    let mut lines = LineConversation::open(&serving);
    let (_pause, paused) = mpsc::channel::<()>();
    let pause = |milliseconds| _ = paused.recv_timeout(Duration::from_millis(milliseconds));
    // Each answer is 400 KB: the system's buffers take some of them. Not at once, or calls are
    // refused.
    let calls = 140;
    for call in 0..calls {
        lines.call(call, "read_output", &json!({"run_id": run["run_id"], "max_bytes": 200_000}));
        pause(20);
    }
    pause(1_000);
    lines.call(calls, "bash", &json!({"command": "true"}));
    pause(2_000);
    let total = || client.get("/v1/runs").1["total"].clone();
    assert_eq!(total(), 1, "a call was started with 64 answers unread");
    // The control: it starts once they are read.
    let answers: Vec<_> = (0..=calls).map(|_| serde_json::from_str::<Value>(&lines.line())).collect();
    let is_of_bash = |answer: &Result<Value, _>| answer.as_ref().is_ok_and(|answer| answer["id"] == calls);
    assert!(answers.iter().any(is_of_bash));
    assert_eq!(total(), 2);
}

#[test]
fn memory_of_calls_is_counted_until_they_end() {
    let serving = ServerFixture::start();
    let client = serving.client();
    // Memory that stays taken, all but 72 MiB of what an owner may have.
    let data = "x".repeat(40 << 20);
    let sleeping = json!({"command": "sleep 120", "stdin": data, "detach": true, "wait_ms": 0}).to_string();
    for _ in 0..11 {
        let (status, answer) = client.post_bytes("/v1/runs", sleeping.as_bytes());
        assert_eq!(status, 200, "{answer}");
    }
    let mut lines = LineConversation::open(&serving);
    // The control: one such call after another.
    let id = client.start(json!({"command": "cat > /dev/null", "stdin_open": true}));
    for call in 0..2 {
        lines.call(call, "write_stdin", &json!({"run_id": id, "data": data, "wait_ms": 0}));
        let answer = lines.line();
        assert!(answer.contains(&format!("{} bytes were written", data.len())), "{answer:.300}");
    }
    let id = client.start(json!({"command": "sleep 120", "stdin_open": true}));
    for call in 2..4 {
        lines.call(call, "write_stdin", &json!({"run_id": id, "data": data, "wait_ms": 0}));
    }
    // The first one continues for ten seconds. The second one is refused.
    let answer = lines.line();
    assert!(answer.contains("the requests that you have under way"), "{answer:.300}");
}
