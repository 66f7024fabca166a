//! What remains of clients that go away, or that are answered before their work is done: no thread
//! and no uncounted memory.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, raw, tokens, wait_until};

fn tenants() -> ServerFixture {
    ServerFixture::with(|settings| settings.tokens = Some(tokens("alice a-secret\nbob another\n")))
}

/// A context of Alice's in which a cell is executed that takes longer than any test.
fn busy_context(alice: &TestClient) -> String {
    let (status, context) = alice.post("/v1/contexts", &json!({}));
    assert_eq!(status, 201, "{context}");
    let at = format!("/v1/contexts/{}", context["context_id"].as_str().expect("an id"));
    let cell = json!({"code": "import time; time.sleep(120)", "wait_ms": 0, "detach": true});
    assert_eq!(alice.post(&format!("{at}/execute"), &cell).0, 200);
    wait_until("the cell has begun", || alice.get(&at).1["status"] == "busy");
    at
}

fn post_of_alice(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer a-secret\r\nContent-Length: 2\r\n\r\n{{}}"
    )
}

#[test]
fn abandoned_waits_for_a_context_are_cancelled() {
    let serving = tenants();
    let alice = serving.client_with("a-secret");
    let at = busy_context(&alice);
    let waiting = || alice.get(&at).1["waiting"].as_u64().expect("a number");
    for round in 0..4 {
        let paths = ["undo", "branch"].into_iter().cycle().take(40);
        let streams: Vec<_> = paths
            .map(|what| raw(serving.address, post_of_alice(&format!("{at}/{what}")).as_bytes()))
            .collect();
        wait_until("they wait", || waiting() == 40);
        drop(streams);
        wait_until(&format!("those of round {round} are gone"), || waiting() == 0);
    }
    let bob = serving.client_with("another");
    assert_eq!(bob.run(&json!({"command": ["true"]}))["outcome"]["exit_code"], 0);
    assert_eq!(alice.delete(&at).0, 204);
}

#[test]
fn waits_for_a_context_are_bounded() {
    let serving = tenants();
    let alice = serving.client_with("a-secret");
    let at = busy_context(&alice);
    let waiting = || alice.get(&at).1["waiting"].as_u64().expect("a number");
    let streams: Vec<_> =
        (0..64).map(|_| raw(serving.address, post_of_alice(&format!("{at}/undo")).as_bytes())).collect();
    wait_until("they wait", || waiting() == 64);
    for what in ["undo", "branch"] {
        let (status, body) = alice.post(&format!("{at}/{what}"), &json!({}));
        assert_eq!((status, &body["code"]), (503, &json!("capacity")), "{body}");
    }
    // Its end refuses them all.
    assert_eq!(alice.delete(&at).0, 204);
    drop(streams);
}

/// Sends something large, which is answered at once and kept, until it is refused; how many were
/// taken.
fn until_refused(mut send: impl FnMut() -> (u16, Value)) -> usize {
    for taken in 0..16 {
        let (status, body) = send();
        if status == 429 {
            assert_eq!(body["details"]["quota"], "request_bytes", "{body}");
            return taken;
        }
        assert_eq!(status, 200, "{body}");
    }
    panic!("all of it was taken: more than the half of the memory that an owner may have");
}

#[test]
fn memory_for_input_is_counted_until_it_is_used() {
    let serving = tenants();
    let alice = serving.client_with("a-secret");
    let input = "x".repeat(40 << 20);
    let at = busy_context(&alice);
    let cell = json!({"code": "1", "stdin": input, "wait_ms": 0}).to_string();
    let taken = until_refused(|| alice.post_bytes(&format!("{at}/execute"), cell.as_bytes()));
    assert!(taken >= 8, "{taken}");
    assert_eq!(alice.delete(&at).0, 204);
    for field in ["stdin_open", "detach"] {
        let mut ids = Vec::new();
        let run = json!({"command": "sleep 120", "stdin": input, field: true, "wait_ms": 0}).to_string();
        let taken = until_refused(|| {
            let (status, answer) = alice.post_bytes("/v1/runs", run.as_bytes());
            ids.extend(answer["run_id"].as_str().map(str::to_owned));
            (status, answer)
        });
        assert!(taken >= 8, "{taken}");
        for id in &ids {
            assert_eq!(alice.post(&format!("/v1/runs/{id}/kill"), &json!({})).0, 200);
        }
    }
    let whole = json!({"command": "wc -c", "stdin": input});
    assert_eq!(alice.run(&whole)["outcome"]["stdout"], format!("{}\n", input.len()));
}
