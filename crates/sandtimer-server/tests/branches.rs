//! Branches of contexts over HTTP.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens};

fn opened(client: &TestClient, path: &str, body: Value) -> String {
    let (status, context) = client.post(path, &body);
    assert_eq!(status, 201, "{context}");
    format!("{path}/{}", context["context_id"].as_str().expect("an id"))
}

fn executed(client: &TestClient, at: &str, body: Value) -> Value {
    let (status, answer) = client.post(&format!("{at}/execute"), &body);
    assert_eq!((status, &answer["status"]), (200, &json!("ended")), "{answer}");
    answer["outcome"].clone()
}

fn branches(client: &TestClient, at: &str, body: Value) -> Vec<String> {
    let (status, answer) = client.post(&format!("{at}/branch"), &body);
    assert_eq!(status, 200, "{answer}");
    let contexts = answer["contexts"].as_array().expect("a list");
    contexts
        .iter()
        .map(|view| {
            assert_eq!((&view["language"], &view["status"]), (&json!("python"), &json!("idle")), "{view}");
            format!("/v1/contexts/{}", view["context_id"].as_str().expect("an id"))
        })
        .collect()
}

#[test]
fn branches_know_what_their_origin_knew_and_share_nothing() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({"wall_ms": 20_000, "idle_ms": 90_000}));
    let begin = "import os\nheld = [bytearray(os.urandom(4096)) for _ in range(12800)]\nx = [1]\nopen('notes', 'w').write('one');";
    executed(&client, &at, json!({"code": begin}));
    let all = branches(&client, &at, json!({"count": 8}));
    assert_eq!(all.len(), 8);
    for (number, branch) in all.iter().enumerate() {
        let code = format!(
            "x.append({number}); open('notes', 'a').write(' {number}')\n[x, open('notes').read(), len(held)]"
        );
        let found = executed(&client, branch, json!({"code": code}));
        assert_eq!(found["value"], json!([[1, number], format!("one {number}"), 12800]), "{found}");
    }
    let found = executed(&client, &at, json!({"code": "[x, open('notes').read()]"}));
    assert_eq!(found["value"], json!([[1], "one"]));
    let (_, view) = client.get(&all[0]);
    assert_eq!((&view["idle_ms"], &view["workspace"]), (&json!(90_000), &Value::Null), "{view}");
    // A limit ends one, and the end of the origin none.
    let deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nx = 0\nwhile True: pass";
    let ended = executed(&client, &all[0], json!({"code": deaf, "wall_ms": 300}));
    assert_eq!((&ended["ending"], &ended["state"]), (&json!("timeout"), &json!("rolled_back")));
    assert_eq!(client.delete(&at).0, 204);
    assert_eq!(executed(&client, &all[0], json!({"code": "x"}))["value"], json!([1, 0]));
    assert_eq!(executed(&client, &all[1], json!({"code": "x"}))["value"], json!([1, 1]));
    assert_eq!(client.delete(&all[1]).0, 204);
    assert_eq!(client.get(&all[1]).1["code"], "context_not_found");
}

#[test]
fn limits_are_inherited_or_given() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({"wall_ms": 400, "memory_bytes": "300M"}));
    executed(&client, &at, json!({"code": "x = 1"}));
    let same = branches(&client, &at, json!({})).remove(0);
    let other = branches(&client, &at, json!({"wall_ms": 0, "memory_bytes": "900M", "idle_ms": 0})).remove(0);
    let sleeps = json!({"code": "import time; time.sleep(0.8)"});
    assert_eq!(executed(&client, &same, sleeps.clone())["ending"], "timeout");
    assert_eq!(executed(&client, &other, sleeps)["ending"], "returned");
    let large = json!({"code": "y = bytearray(500 << 20); len(y)", "wall_ms": 20_000});
    assert_eq!(executed(&client, &same, large.clone())["ending"], "out_of_memory");
    assert_eq!(executed(&client, &other, large)["ending"], "returned");
    assert_eq!(client.get(&other).1["idle_ms"], Value::Null);
}

#[test]
fn a_named_workspace_is_shared() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, workspace) = client.post("/v1/workspaces", &json!({}));
    let at = opened(&client, "/v1/contexts", json!({"workspace": workspace["workspace_id"]}));
    executed(&client, &at, json!({"code": "open('notes', 'w').write('one')"}));
    let (_, answer) = client.post(&format!("{at}/branch"), &json!({}));
    assert_eq!(answer["contexts"][0]["workspace"], workspace["workspace_id"], "{answer}");
    let branch = format!("/v1/contexts/{}", answer["contexts"][0]["context_id"].as_str().expect("an id"));
    executed(&client, &branch, json!({"code": "open('notes', 'a').write(' two')"}));
    assert_eq!(executed(&client, &at, json!({"code": "open('notes').read()"}))["value"], "one two");
    let workspace_path = format!("/v1/workspaces/{}", workspace["workspace_id"].as_str().expect("an id"));
    client.delete(&at);
    assert_eq!(client.delete(&workspace_path).1["code"], "workspace_in_use");
    client.delete(&branch);
    assert_eq!(client.delete(&workspace_path).0, 204);
}

#[test]
fn what_cannot_be_branched_is_refused_with_its_reason() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let refused = |at: &str, body: Value, status: u16, code: &str, named: &str| {
        let (found, answer) = client.post(&format!("{at}/branch"), &body);
        assert_eq!((found, answer["code"].as_str()), (status, Some(code)), "{at} {body}: {answer}");
        assert!(answer["message"].as_str().is_some_and(|message| message.contains(named)), "{answer}");
    };
    let at = opened(&client, "/v1/contexts", json!({}));
    for count in [json!(0), json!(-1), json!(65), json!(true), json!("2"), json!(1.5), json!(1e30)] {
        refused(&at, json!({"count": count}), 400, "bad_field", "count");
    }
    refused(&at, json!({"surprise": 1}), 400, "unknown_field", "surprise");
    refused(&at, json!({"memory_bytes": -1}), 400, "bad_limit", "memory_bytes");
    refused("/v1/contexts/nobody", json!({}), 404, "context_not_found", "nobody");
    executed(&client, &at, json!({"code": "file = open('/tmp/held', 'w')"}));
    refused(&at, json!({}), 409, "no_branch", "/tmp/held");
    executed(&client, &at, json!({"code": "file.close()"}));
    assert_eq!(branches(&client, &at, json!({"count": 2})).len(), 2);
    let session = opened(&client, "/v1/sessions", json!({})).replace("sessions", "contexts");
    refused(&session, json!({}), 409, "no_branch", "session");
    let script = opened(&client, "/v1/contexts", json!({"language": "javascript"}));
    refused(&script, json!({}), 409, "no_branch", "only Python");
}

#[test]
fn each_branch_counts_to_the_quota_and_has_one_owner() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("ann one contexts=3\nbob two\n"));
    });
    let (ann, bob) = (serving.client_with("one"), serving.client_with("two"));
    let at = opened(&ann, "/v1/contexts", json!({}));
    assert_eq!(bob.post(&format!("{at}/branch"), &json!({})).1["code"], "context_not_found");
    let (status, answer) = ann.post(&format!("{at}/branch"), &json!({"count": 3}));
    assert_eq!((status, &answer["code"], &answer["details"]["limit"]), (429, &json!("quota"), &json!(3)));
    let all = branches(&ann, &at, json!({"count": 2}));
    assert_eq!(ann.post(&format!("{at}/branch"), &json!({})).0, 429);
    assert_eq!(bob.get(&all[0]).0, 404);
    assert_eq!(ann.delete(&all[0]).0, 204);
    assert_eq!(branches(&ann, &all[1], json!({})).len(), 1);
}
