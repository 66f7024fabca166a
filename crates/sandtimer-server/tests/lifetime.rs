//! What happens to runs when a client goes away, when the server ends, and when it comes back.

use crate::support;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_server::{Listen, Retention, ServerHandle, StartError};
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, raw};

/// Sends a request that waits, and closes the connection once the run is there; its id.
fn abandon(serving: &ServerFixture, client: &TestClient, body: &Value, pipelined: &str) -> String {
    let body = body.to_string();
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}{pipelined}",
        body.len()
    );
    let stream = raw(serving.address, request.as_bytes());
    let end = monotonic_nanoseconds() + 30_000_000_000;
    while monotonic_nanoseconds() < end {
        let (_, list) = client.get("/v1/runs?status=running");
        if let Some(id) = list["runs"][0]["run_id"].as_str() {
            drop(stream);
            return id.to_owned();
        }
    }
    panic!("the run does not begin");
}

#[test]
fn disconnected_client_cancels_its_attached_run() {
    let serving = ServerFixture::start();
    let client = serving.client();
    // With an extra line break, and with another request after it; many times, because the end can
    // meet the request at any of its steps.
    let another = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for pipelined in ["\n", another].into_iter().chain(std::iter::repeat_n("", 30)) {
        let id = abandon(&serving, &client, &json!({"command": ["sleep", "25"]}), pipelined);
        let outcome = client.ended(&id)["outcome"].clone();
        assert_eq!(outcome["ending"], "cancelled");
        let sentence = outcome["verdict"]["sentence"].as_str();
        assert!(sentence.is_some_and(|text| text.contains("disconnected")), "{outcome}");
    }

    let id = abandon(
        &serving,
        &client,
        &json!({"command": ["sh", "-c", "sleep 1; echo done"], "detach": true}),
        "",
    );
    let outcome = client.ended(&id)["outcome"].clone();
    assert_eq!((&outcome["ending"], &outcome["stdout"]), (&json!("exited"), &json!("done\n")));
}

#[test]
fn attached_run_is_cancelled_without_waiters() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let command = json!(["sleep", "60"]);
    let watched = client.start(json!({"command": command, "attached": true}));
    let left = client.start(json!({"command": command, "attached": true}));
    let plain = client.start(json!({"command": command}));
    let (_, context) = client.post("/v1/sessions", &json!({}));
    let session = context["context_id"].as_str().expect("an id");
    let execute = |body: Value| {
        let (status, executed) = client.post(&format!("/v1/sessions/{session}/execute"), &body);
        assert_eq!(status, 200, "{executed}");
        executed["run_id"].as_str().expect("an id").to_owned()
    };
    let cell = execute(json!({"code": "sleep 60", "attached": true, "wait_ms": 50}));
    let queued = execute(json!({"code": "sleep 60", "attached": true, "wait_ms": 0}));

    let ended = |id: &str| client.get(&format!("/v1/runs/{id}")).1["status"] == "ended";
    support::wait_until("nobody waits for them", || {
        client.get(&format!("/v1/runs/{watched}?wait_ms=100"));
        ended(&left) && ended(&cell) && ended(&queued)
    });
    let outcome = client.ended(&left)["outcome"].clone();
    let sentence = outcome["verdict"]["sentence"].as_str().expect("a sentence");
    assert!(
        outcome["ending"] == "cancelled" && sentence.contains("has not waited for it for 10 s"),
        "{outcome}"
    );
    let elapsed = outcome["verdict"]["elapsed_ms"].as_u64().expect("a number");
    assert!((9_000..20_000).contains(&elapsed), "{outcome}");
    for running in [&watched, &plain] {
        assert_eq!(client.get(&format!("/v1/runs/{running}")).1["status"], "running");
    }

    let both = json!({"command": command, "attached": true, "detach": true});
    let (status, refused) = client.post("/v1/runs", &both);
    assert_eq!((status, &refused["details"]["key"]), (400, &json!("attached")), "{refused}");
}

#[test]
fn restart_keeps_finished_runs_and_records_the_end() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let script = "head -c 300000 /dev/zero | tr '\\0' b; echo oops >&2";
    let finished = client.run(&json!({"command": ["sh", "-c", script], "output_bytes": 100_000}));
    let running = client.start(json!({"command": ["sleep", "60"], "grace_ms": 30_000}));
    // A request that is open is served to its end.
    let mut events = client.events(&running, None);
    assert_eq!(events.next().map(|event| event.name).as_deref(), Some("started"));
    let state = serving.stop();
    let last = events.last().expect("an event");
    assert_eq!((last.name.as_str(), &last.data["outcome"]["ending"]), ("ended", &json!("cancelled")));

    let serving = ServerFixture::at(state, |_| {});
    let client = serving.client();
    let id = finished["run_id"].as_str().expect("an id");
    let mut again = client.get(&format!("/v1/runs/{id}")).1;
    assert_eq!(again["outcome"]["stdout"].as_str().map(str::len), Some(100_000));
    assert_eq!(again["outcome"].take(), finished["outcome"]);
    let (_, tail) = client.get(&format!("/v1/runs/{id}/output?cursor=60000&max_bytes=1000000"));
    assert_eq!(
        (&tail["dropped_before"], &tail["cursor"], &tail["ended"]),
        (&json!(190_000), &json!(250_000), &json!(true))
    );
    let cancelled = client.ended(&running);
    assert!(
        cancelled["outcome"]["verdict"]["sentence"]
            .as_str()
            .is_some_and(|text| text.contains("server was asked to end"))
    );
}

#[test]
fn only_the_newest_runs_are_kept() {
    let retention = Retention { runs: Some(2), age: None };
    let serving = ServerFixture::with(|settings| settings.retention = retention);
    let client = serving.client();
    let ids: Vec<String> = (0..4)
        .map(|_| {
            client.run(&json!({"command": ["sleep", "0.01"]}))["run_id"].as_str().expect("an id").to_owned()
        })
        .collect();
    let serving = ServerFixture::at(serving.stop(), |settings| settings.retention = retention);
    let (_, list) = serving.client().get("/v1/runs");
    let kept: Vec<&Value> =
        list["runs"].as_array().expect("a list").iter().map(|run| &run["run_id"]).collect();
    assert!(kept.len() == 2 && kept.contains(&&json!(ids[3])) && kept.contains(&&json!(ids[2])), "{kept:?}");
    let state = serving.stop();
    let records = |state: &Path| {
        let entries = std::fs::read_dir(state.join("runs")).expect("readable");
        // The directory also holds preallocated files for later records.
        entries
            .filter(|entry| {
                entry.as_ref().is_ok_and(|entry| entry.path().extension() != Some("spare".as_ref()))
            })
            .count()
    };
    assert_eq!(records(state.path()), 2);
    let path = state.path().to_owned();
    let serving = ServerFixture::at(state, |settings| {
        settings.retention = Retention { runs: None, age: Some(Duration::ZERO) }
    });
    assert_eq!(serving.client().get("/v1/runs").1["total"], 0, "{ids:?}");
    assert_eq!(records(&path), 0);
}

#[test]
fn records_are_thinned_out_while_the_server_runs() {
    let retention = Retention { runs: Some(16), age: None };
    let serving = ServerFixture::with(|settings| settings.retention = retention);
    let client = serving.client();
    let ended = || client.get("/v1/runs?status=ended").1["total"].as_u64();
    for _ in 0..24 {
        client.run(&json!({"command": ["true"]}));
    }
    // One more than are to be kept is a sixteenth.
    support::wait_until("runs are forgotten", || ended() <= Some(17));
}

#[test]
fn one_tenants_runs_push_out_no_record_of_another() {
    let serving = ServerFixture::with(|settings| {
        settings.retention = Retention { runs: Some(4), age: None };
        settings.tokens = Some(support::tokens("alice a-secret\nbob another\n"));
    });
    let (alice, bob) = (serving.client_with("a-secret"), serving.client_with("another"));
    let kept = bob.run(&json!({"command": ["true"]}))["run_id"].as_str().expect("an id").to_owned();
    for _ in 0..8 {
        alice.run(&json!({"command": ["true"]}));
    }
    let ended = || alice.get("/v1/runs?status=ended").1["total"].as_u64();
    support::wait_until("the owner's own are forgotten", || ended() == Some(4));
    assert_eq!(bob.get(&format!("/v1/runs/{kept}")).0, 200);
}

#[test]
fn records_of_what_never_began_are_thinned_out_as_well() {
    let retention = Retention { runs: Some(16), age: None };
    let serving = ServerFixture::with(|settings| settings.retention = retention);
    let client = serving.client();
    let (_, context) = client.post("/v1/contexts", &json!({"language": "python"}));
    let path = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
    let busy = client.post(&path, &json!({"code": "while True: pass", "wait_ms": 50, "detach": true})).1;
    let queued: Vec<Value> = (0..24)
        .map(|_| client.post(&path, &json!({"code": "1", "wait_ms": 0, "detach": true})).1["run_id"].take())
        .collect();
    for id in queued.iter().chain([&busy["run_id"]]) {
        client.post(&format!("/v1/runs/{}/kill", id.as_str().expect("an id")), &json!({}));
    }
    support::wait_until("what did not begin is forgotten", || {
        let total = |status: &str| client.get(&format!("/v1/runs?status={status}")).1["total"].as_u64();
        total("running") == Some(0) && total("ended") <= Some(17)
    });
}

#[test]
fn an_open_address_needs_tokens_and_a_directory_has_one_server() {
    let serving = ServerFixture::start();
    let mut open = support::settings(serving.state.path());
    open.listen = "0.0.0.0:0".parse().expect("an address");
    assert!(matches!(ServerHandle::start(open), Err(StartError::Open(_))));
    let second = support::settings(serving.state.path());
    assert!(matches!(ServerHandle::start(second), Err(StartError::Store(_))));
    let another = tempfile::tempdir().expect("a directory");
    let mut taken = support::settings(another.path());
    taken.listen = Listen::Address(serving.address);
    assert!(matches!(ServerHandle::start(taken), Err(StartError::Listen { .. })));
}

#[test]
fn full_disk_answers_from_memory_and_logs_an_error() {
    let messages = Arc::new(Mutex::new(Vec::new()));
    let logged = messages.clone();
    let serving = ServerFixture::with(|settings| {
        settings.host.log_error =
            Box::new(move |message| logged.lock().expect("whole").push(message.to_owned()));
    });
    let client = serving.client();
    let id = client.start(json!({"command": "read line; echo $line", "stdin_open": true}));
    // At once, whatever is just being made there.
    std::fs::rename(serving.state.path().join("runs"), serving.state.path().join("removed")).expect("moved");
    client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "kept\n"}));
    assert_eq!(client.ended(&id)["outcome"]["stdout"], "kept\n");
    assert_eq!(client.get(&format!("/v1/runs/{id}/output?cursor=2")).1["data"], "pt\n");
    assert!(messages.lock().expect("whole").iter().any(|message| message.contains("kept in memory only")));
    assert!(
        client
            .get("/metrics")
            .1
            .as_str()
            .is_some_and(|text| text.contains("sandtimer_store_failures_total 1\n"))
    );
    let (status, refused) = client.post("/v1/runs", &json!({"command": ["true"]}));
    assert_eq!((status, &refused["code"], &refused["retryable"]), (503, &json!("storage"), &json!(true)));
}
