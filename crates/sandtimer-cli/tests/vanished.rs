//! A client whose machine, or the connection to it, is gone: it closes nothing, and sends nothing
//! any more.
#![allow(clippy::disallowed_methods, reason = "the programs under test are started here")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::machines;
use crate::serving;

use machines::NetworkMachine;
use serving::TestServer;

const SERVER: &str = "10.214.1.1";
const CLIENT: &str = "10.214.1.2";
const TOKEN: &str = "not-a-secret-but-long-enough";

/// Sends a request whose answer is read later, or never.
fn ask(address: &str, method: &str, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).expect("connected");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {SERVER}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream
}

fn answer(mut stream: TcpStream) -> Value {
    let mut text = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    stream.read_to_string(&mut text).expect("an answer");
    let (_, body) = text.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn vanished_client_cancels_its_waits_but_not_detached_runs() {
    let Some((machine, clients)) = NetworkMachine::make().zip(NetworkMachine::make()) else { return };
    machine.wire(0, SERVER, &clients, CLIENT);
    let state = tempfile::tempdir().expect("a directory");
    let tokens = state.path().join("tokens");
    std::fs::write(&tokens, format!("someone {TOKEN}\n")).expect("written");
    std::fs::set_permissions(&tokens, PermissionsExt::from_mode(0o600)).expect("set");
    let mut command = TestServer::command_at(&format!("{SERVER}:0"), &state.path().join("state"));
    command.arg("--token-file").arg(&tokens);
    let serving = machine.within(|| TestServer::start(&mut command));
    let sleep = json!({"command": ["sleep", "600"]});
    let mut detached = sleep.clone();
    (detached["detach"], detached["wait_ms"]) = (true.into(), 0.into());
    let get = |path: &str| machine.within(|| answer(ask(&serving.address, "GET", path, &Value::Null)));
    let (waiting, detached) = clients.within(|| {
        let detached = answer(ask(&serving.address, "POST", "/v1/runs", &detached));
        (ask(&serving.address, "POST", "/v1/runs", &sleep), detached)
    });
    let runs = || get("/v1/runs")["runs"].as_array().expect("a list").clone();
    let begun = Instant::now();
    while runs().len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", runs());
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let detached = detached["run_id"].as_str().expect("an id").to_owned();
    let run = runs().into_iter().find(|run| run["run_id"] != detached.as_str()).expect("the other one");
    let path = format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"));
    // What it sends is lost from here on, the kernel's answers too.
    clients.ip(&format!("route add blackhole {SERVER}/32"));
    let cut = Instant::now();
    while get(&path)["status"] == "running" {
        assert!(cut.elapsed() < Duration::from_secs(100), "it goes on for nobody: {}", get(&path));
        std::thread::park_timeout(Duration::from_millis(200));
    }
    assert!(cut.elapsed() > Duration::from_secs(20), "no longer silence than that is no end of a client");
    let ended = get(&path);
    assert_eq!(ended["outcome"]["ending"], "cancelled", "{ended}");
    assert_eq!(get(&format!("/v1/runs/{detached}"))["status"], "running");
    drop(waiting);
}
