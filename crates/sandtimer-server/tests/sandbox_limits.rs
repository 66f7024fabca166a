//! Memory and processes of a sandbox as a whole, over HTTP.
#![allow(clippy::disallowed_methods)] // tests wait for processes

use crate::support::{ServerFixture, TestClient, tokens, wait_until};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn made(client: &TestClient, body: &Value) -> (String, Value) {
    let (status, sandbox) = client.post("/v1/sandboxes", body);
    assert_eq!(status, 201, "{sandbox}");
    (sandbox["sandbox_id"].as_str().expect("an id").to_owned(), sandbox)
}

/// Not by bash, which tries to fork again for 15 s.
fn exec(client: &TestClient, id: &str, line: &str) -> Value {
    let body = json!({"command": ["sh", "-c", line], "wall_ms": 25_000});
    let (status, run) = client.post(&format!("/v1/sandboxes/{id}/exec"), &body);
    assert_eq!((status, &run["status"]), (200, &json!("ended")), "{run}");
    run["outcome"].clone()
}

#[test]
fn whole_is_shown_and_named_by_verdicts() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (id, sandbox) = made(&client, &json!({"memory_bytes": "64M", "processes": 12}));
    assert_eq!(sandbox["memory_bytes"], json!(64 * MIB), "{sandbox}");
    assert_eq!((&sandbox["processes"], &sandbox["processes_used"]), (&json!(12), &json!(0)), "{sandbox}");
    let (free, unlimited) = made(&client, &json!({"memory_bytes": null, "processes": 0}));
    for key in ["memory_bytes", "memory_used_bytes", "processes", "processes_used"] {
        assert_eq!(unlimited[key], Value::Null, "{key}: {unlimited}");
    }
    let session = client.post("/v1/sessions", &json!({"sandbox": id})).1;
    let session = session["context_id"].as_str().expect("an id").to_owned();
    let start = json!({"command": "for i in 1 2 3 4 5 6; do sleep 60 & done", "wall_ms": 25_000});
    let (status, run) = client.post(&format!("/v1/sessions/{session}/execute"), &start);
    assert_eq!(status, 200, "{run}");
    // A copy of the shell that is being made is counted, too.
    wait_until("the shell and its six are counted", || {
        let used = client.get(&format!("/v1/sandboxes/{id}")).1;
        used["processes_used"].as_u64().is_some_and(|count| (7..=9).contains(&count))
    });
    let used = client.get(&format!("/v1/sandboxes/{id}")).1;
    assert!(used["memory_used_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{used}");

    let line = "for i in 1 2 3 4 5 6 7 8; do sleep 30 & done; exit 0";
    let outcome = exec(&client, &id, line);
    assert_eq!(outcome["ending"], "process_limit", "{outcome}");
    let verdict = &outcome["verdict"];
    assert_eq!((&verdict["layer"], &verdict["limit"]), (&json!("sandbox"), &json!(12)), "{verdict}");
    assert!(verdict["scope"].as_str().is_some_and(|scope| scope.ends_with(&id)), "{verdict}");
    assert_eq!(exec(&client, &free, line)["ok"], true, "the control has no limit");
    let listed = client.get("/v1/sandboxes").1;
    let shown = listed["sandboxes"].as_array().expect("a list").iter().find(|each| each["sandbox_id"] == id);
    assert_eq!(shown.expect("listed")["processes"], 12);
    assert_eq!(client.delete(&format!("/v1/sessions/{session}")).0, 204);
    wait_until("its processes are gone", || {
        let used = client.get(&format!("/v1/sandboxes/{id}")).1;
        used["processes_used"] == 0
    });
    let (status, forks) = client.post(&format!("/v1/sandboxes/{id}/fork"), &json!({"count": 1}));
    assert_eq!((status, &forks["sandboxes"][0]["processes"]), (201, &json!(12)), "{forks}");
}

#[test]
fn bad_limits_of_the_whole_are_rejected() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for key in ["memory_bytes", "processes"] {
        for value in [json!(-1), json!("plenty"), json!(true), json!([]), json!(1.5), json!("1s")] {
            let (status, error) = client.post("/v1/sandboxes", &json!({key: value}));
            assert_eq!((status, &error["code"]), (400, &json!("bad_limit")), "{key} {value}: {error}");
            assert!(error["message"].as_str().is_some_and(|text| text.contains(key)), "{error}");
        }
    }
    let (status, error) = client.post("/v1/sandboxes", &json!({"memory_bytes": 1}));
    assert_eq!((status, &error["code"]), (400, &json!("bad_limit")), "{error}");
    let (status, error) = client.post("/v1/sandboxes", &json!({"cpu_ms": 1_000}));
    assert_eq!((status, &error["code"]), (400, &json!("unknown_field")), "{error}");
    assert_eq!(client.get("/v1/sandboxes").1["sandboxes"], json!([]));
}

#[test]
fn ceilings_of_a_token_bound_the_whole() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens(
            "a secret-of-a-0123456789 max_memory_bytes=64M max_processes=12\nb secret-of-b-0123456789\n",
        ))
    });
    let client = serving.client_with("secret-of-a-0123456789");
    let (_, sandbox) = made(&client, &json!({"memory_bytes": "1T", "processes": 1_000_000}));
    assert_eq!((&sandbox["memory_bytes"], &sandbox["processes"]), (&json!(64 * MIB), &json!(12)));
    let other = serving.client_with("secret-of-b-0123456789");
    let (_, wider) = made(&other, &json!({"memory_bytes": "128M"}));
    assert_eq!((&wider["memory_bytes"], &wider["processes"]), (&json!(128 * MIB), &Value::Null));
}
