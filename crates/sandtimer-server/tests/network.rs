//! Runs with the host's network or their own, waiting for their ports, and what the token file
//! grants.

use crate::support;

use std::net::TcpListener;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens};

/// A program that listens on each port it reads, in a child that its parent leaves.
const LISTENS: &str = "
import os, socket, sys
for line in sys.stdin:
    if os.fork() == 0:
        if os.fork() == 0:
            listener = socket.create_server(('127.0.0.1', int(line)))
            while True: listener.accept()
        os._exit(0)
    os.wait()
    print('told', flush=True)
";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

fn wait(client: &TestClient, id: &str, body: Value) -> (u16, Value) {
    client.post(&format!("/v1/runs/{id}/wait"), &body)
}

#[test]
fn a_port_counts_once_a_process_of_the_run_listens_on_it() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"code": LISTENS, "language": "python", "network": true, "stdin_open": true, "wall_ms": 25_000}));
    // A port on which another process listens does not end the wait.
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("bound").port();
    let (status, answer) = wait(&client, &id, json!({"port": taken, "wait_ms": 300}));
    assert_eq!((status, &answer["listening"], &answer["status"]), (200, &json!(false), &json!("running")));
    let port = free_port();
    assert_eq!(wait(&client, &id, json!({"port": port, "wait_ms": 0})).1["listening"], false);
    let waiting = std::thread::spawn({
        let (client, id) = (serving.client(), id.clone());
        move || wait(&client, &id, json!({"port": port}))
    });
    client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": format!("{port}\n")}));
    let (_, answer) = waiting.join().expect("an answer");
    let stands = json!({"run_id": id, "status": "running", "ending": null, "exit_code": null, "sentence": null,
        "port": port, "listening": true});
    assert_eq!(answer, stands);
    std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let waiting = std::thread::spawn({
        let (client, id) = (serving.client(), id.clone());
        move || wait(&client, &id, json!({"port": taken}))
    });
    client.post(&format!("/v1/runs/{id}/kill"), &json!({}));
    let (status, answer) = waiting.join().expect("an answer");
    assert_eq!((status, &answer["listening"], &answer["status"]), (200, &json!(false), &json!("ended")));
    assert_eq!(answer["ending"], "cancelled");
}

#[test]
fn a_port_on_a_runs_own_loopback_is_waited_for() {
    let serving = ServerFixture::start();
    let client = serving.client();
    // Nothing outside has it: the port of one run is free for another.
    let start = || {
        client.start(json!({"code": LISTENS, "language": "python", "stdin_open": true, "wall_ms": 25_000}))
    };
    let (id, other) = (start(), start());
    for run in [&id, &other] {
        assert_eq!(wait(&client, run, json!({"port": 8080, "wait_ms": 0})).1["listening"], false);
        client.post(&format!("/v1/runs/{run}/stdin"), &json!({"data": "8080\n"}));
        assert_eq!(wait(&client, run, json!({"port": 8080, "wait_ms": 20_000})).1["listening"], true);
    }
    for wrong in [
        json!({}),
        json!({"port": 0}),
        json!({"port": 65_536}),
        json!({"port": "80"}),
        json!({"port": 80, "wait_ms": -1}),
    ] {
        assert_eq!(wait(&client, &id, wrong.clone()).1["code"], "bad_field", "{wrong}");
    }
    assert_eq!(wait(&client, "nobody", json!({"port": 1})).1["code"], "run_not_found");
    for run in [&id, &other] {
        client.post(&format!("/v1/runs/{run}/kill"), &json!({}));
    }
    let (status, answer) = wait(&client, &id, json!({"port": 8080}));
    assert_eq!((status, &answer["listening"]), (200, &json!(false)));
}

/// What each kind of interpreter answers that tries to reach a port of the host's loopback.
fn tries(client: &TestClient, port: u16, network: bool) -> Vec<String> {
    let python = format!(
        "import socket\n'reached' if socket.socket().connect_ex(('127.0.0.1', {port})) == 0 else 'alone'"
    );
    let javascript = format!(
        "await new Promise((say) => require('net').connect({port}, '127.0.0.1', () => say('reached')).on('error', () => say('alone')))"
    );
    let bash = format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached || echo alone");
    let of_language = |language: &str, code: String| {
        let (status, context) =
            client.post("/v1/contexts", &json!({"language": language, "network": network}));
        assert_eq!((status, &context["network"]), (201, &json!(network)), "{context}");
        let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
        let (_, answer) = client.post(&at, &json!({"code": code, "wall_ms": 20_000}));
        let outcome = &answer["outcome"];
        let shown = outcome["value"].as_str().unwrap_or_else(|| outcome["stdout"].as_str().expect("a text"));
        shown.trim().to_owned()
    };
    vec![of_language("python", python), of_language("javascript", javascript), of_language("bash", bash)]
}

#[test]
fn contexts_and_sessions_have_the_network_that_they_were_given() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let host = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = host.local_addr().expect("bound").port();
    assert_eq!(tries(&client, port, true), ["reached"; 3]);
    // The control.
    assert_eq!(tries(&client, port, false), ["alone"; 3]);
    let (status, refused) = client.post("/v1/sessions", &json!({"network": "yes"}));
    assert_eq!((status, &refused["details"]["key"]), (400, &json!("network")), "{refused}");
}

#[test]
fn network_requires_a_token_with_the_flag() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("alice a-secret network\nbob another\n"))
    });
    let request = json!({"command": "true", "network": true});
    let (status, answer) = serving.client_with("another").post("/v1/runs", &request);
    assert_eq!(
        (status, &answer["code"], &answer["details"]["key"]),
        (403, &json!("network_refused"), &json!("network"))
    );
    assert_eq!(serving.client_with("a-secret").post("/v1/runs", &request).0, 200);
    for path in ["/v1/contexts", "/v1/sessions"] {
        let request = json!({"network": true});
        let (status, answer) = serving.client_with("another").post(path, &request);
        assert_eq!((status, &answer["code"]), (403, &json!("network_refused")), "{answer}");
        assert_eq!(serving.client_with("a-secret").post(path, &request).0, 201);
    }
}

#[test]
fn token_ceilings_bound_runs_contexts_and_extensions() {
    let line = "alice a-secret max_wall_ms=1500 max_memory_bytes=256M max_processes=50\nbob another\n";
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(line)));
    let (alice, bob) = (serving.client_with("a-secret"), serving.client_with("another"));
    let sleep = json!({"command": "sleep 20", "wall_ms": 0, "memory_bytes": "unlimited", "processes": 20});
    let id = alice.start(sleep);
    let (_, run) = alice.get(&format!("/v1/runs/{id}"));
    assert_eq!(run["effective"]["wall_ms"], json!({"limit": 1_500, "source": "ceiling"}), "{run}");
    assert_eq!(run["effective"]["memory_bytes"], json!({"limit": 256 << 20, "source": "ceiling"}));
    assert_eq!(run["effective"]["processes"], json!({"limit": 20, "source": "call"}));
    let (status, extended) = alice.post(&format!("/v1/runs/{id}/extend"), &json!({"by_ms": 60_000}));
    assert_eq!(status, 200, "{extended}");
    assert!(extended["wall_left_ms"].as_u64().is_some_and(|left| left <= 1_500), "{extended}");
    let outcome = &alice.ended(&id)["outcome"];
    assert_eq!((&outcome["ending"], &outcome["verdict"]["source"]), (&json!("timeout"), &json!("ceiling")));

    let (status, context) = alice.post("/v1/contexts", &json!({"memory_bytes": "4G"}));
    assert_eq!(status, 201, "{context}");
    let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
    let endless = alice.post(&at, &json!({"code": "while True: pass", "wall_ms": 0})).1;
    assert_eq!(
        (&endless["outcome"]["ending"], &endless["outcome"]["verdict"]["source"]),
        (&json!("timeout"), &json!("ceiling"))
    );
    let large = alice.post(&at, &json!({"code": "x = b'x' * (1 << 30)\nlen(x)"})).1;
    assert_eq!(large["outcome"]["ok"], false, "{large}");

    let free = bob.run(&json!({"command": "sleep 2", "wall_ms": 0}));
    assert_eq!((&free["outcome"]["ok"], &free["effective"]["wall_ms"]), (&json!(true), &Value::Null));
}
