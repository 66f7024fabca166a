//! `/v1/sandboxes`: what they keep, and which owners find them.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens, wait_until};

fn made(client: &TestClient, body: &Value) -> String {
    let (status, sandbox) = client.post("/v1/sandboxes", body);
    assert_eq!(status, 201, "{sandbox}");
    sandbox["sandbox_id"].as_str().expect("an id").to_owned()
}

fn exec(client: &TestClient, id: &str, body: &Value) -> Value {
    let (status, run) = client.post(&format!("/v1/sandboxes/{id}/exec"), body);
    assert_eq!((status, &run["status"]), (200, &json!("ended")), "{run}");
    run["outcome"].clone()
}

fn sh(client: &TestClient, id: &str, line: &str) -> String {
    let outcome = exec(client, id, &json!({"command": line, "wall_ms": 20_000}));
    assert_eq!(outcome["exit_code"], 0, "{outcome}");
    outcome["stdout"].as_str().expect("text").to_owned()
}

fn refused(answer: (u16, Value)) -> (u16, String) {
    let (status, error) = answer;
    assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{error}");
    (status, error["code"].as_str().expect("a code").to_owned())
}

#[test]
fn sandbox_keeps_files_over_runs_and_servers() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    assert_eq!(sh(&client, &id, "pwd; echo one >file; echo two >~/file; id -un"), "/workspace\nuser\n");
    // The two paths are the same.
    let run = client.run(&json!({"command": ["cat", "file"], "sandbox": id, "wall_ms": 20_000}));
    assert_eq!(run["outcome"]["stdout"], "one\n", "{run}");
    let code = json!({"language": "python", "code": "print(open('/home/user/file').read(), end='')", "wall_ms": 20_000});
    assert_eq!(exec(&client, &id, &code)["stdout"], "two\n");
    assert_eq!(
        exec(&client, &id, &json!({"command": ["pwd"], "cwd": "/tmp", "wall_ms": 20_000}))["stdout"],
        "/tmp\n"
    );
    let listed = client.get("/v1/sandboxes").1["sandboxes"].clone();
    assert_eq!((&listed[0]["sandbox_id"], &listed[0]["template"]), (&json!(id), &json!("host")), "{listed}");
    let state = serving.stop();

    let serving = ServerFixture::at(state, |_| {});
    let client = serving.client();
    let sandbox = client.get(&format!("/v1/sandboxes/{id}")).1;
    assert_eq!((&sandbox["runs"], &sandbox["durability"]), (&json!(0), &json!("certain")), "{sandbox}");
    assert_eq!(sh(&client, &id, "cat file ~/file"), "one\ntwo\n");
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).0, 204);
    let gone = client.post(&format!("/v1/sandboxes/{id}/exec"), &json!({"command": "true"}));
    assert_eq!(refused(gone), (404, "sandbox_not_found".to_owned()));
    let sandboxes_directory = serving.state.path().join("sandboxes");
    wait_until("its files are removed", || {
        std::fs::read_dir(&sandboxes_directory).is_ok_and(|left| left.count() == 0)
    });
}

#[test]
fn limit_ends_its_run_and_deletion_all() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    let slow = exec(&client, &id, &json!({"command": "echo partial | tee kept; sleep 60", "wall_ms": 300}));
    assert_eq!((&slow["ending"], &slow["stdout"]), (&json!("timeout"), &json!("partial\n")), "{slow}");
    let scope = slow["verdict"]["scope"].as_str().expect("a scope");
    assert!(scope.contains(&format!("sandbox-{id}")), "{slow}");
    assert_eq!(sh(&client, &id, "cat kept"), "partial\n");
    let run = client.start(json!({"command": ["sleep", "60"], "sandbox": id, "wall_ms": 60_000}));
    assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).1["runs"], 1);
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).0, 204);
    let ended = client.ended(&run);
    assert_eq!(ended["outcome"]["ending"], "cancelled", "{ended}");
    assert!(ended.to_string().contains("its sandbox was deleted"), "{ended}");
    assert_eq!(client.get("/v1/sandboxes").1["sandboxes"], json!([]));
}

#[test]
fn tokens_see_nothing_of_each_others_sandboxes() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("a secret-of-a-0123456789\nb secret-of-b-0123456789\n"))
    });
    let [a, b] = ["secret-of-a-0123456789", "secret-of-b-0123456789"].map(|token| serving.client_with(token));
    let id = made(&a, &json!({}));
    let at = format!("/v1/sandboxes/{id}");
    let attempts = [
        b.get(&at),
        b.delete(&at),
        b.post(&format!("{at}/exec"), &json!({"command": "true"})),
        b.post("/v1/runs", &json!({"command": "true", "sandbox": id})),
    ];
    for attempt in attempts {
        assert_eq!(refused(attempt), (404, "sandbox_not_found".to_owned()));
    }
    assert_eq!(b.get("/v1/sandboxes").1["sandboxes"], json!([]));
    assert_eq!(sh(&a, &id, "echo there"), "there\n", "the control: its owner uses it");
}

#[test]
fn bad_requests_name_the_field_and_the_remedy() {
    let tree = tempfile::tempdir().expect("a directory");
    let serving = ServerFixture::with(|settings| {
        settings.templates.insert("gone".to_owned(), tree.path().join("gone"));
    });
    let client = serving.client();
    let (status, unknown) = client.post("/v1/sandboxes", &json!({"template": "debian"}));
    assert_eq!((status, &unknown["code"]), (404, &json!("template_not_found")), "{unknown}");
    assert!(
        unknown["message"].as_str().is_some_and(|text| text.ends_with("use one of host, gone")),
        "{unknown}"
    );
    let (status, gone) = client.post("/v1/sandboxes", &json!({"template": "gone"}));
    assert_eq!(
        (status, &gone["code"], &gone["details"]["key"]),
        (400, &json!("bad_field"), &json!("template")),
        "{gone}"
    );
    assert!(!gone.to_string().contains(&tree.path().display().to_string()), "{gone}");
    for template in ["../../etc", "", "/"] {
        assert_eq!(client.post("/v1/sandboxes", &json!({"template": template})).0, 404);
    }
    assert_eq!(refused(client.post("/v1/sandboxes", &json!({"tempalte": "host"}))).0, 400);
    assert_eq!(client.get("/v1/sandboxes/..%2f..%2fetc").0, 404);
    assert_eq!(client.get("/v1/sandboxes").1["sandboxes"], json!([]), "nothing is left of what failed");

    let id = made(&client, &json!({}));
    let workspace = client.post("/v1/workspaces", &json!({})).1["workspace_id"].clone();
    let both = client.post("/v1/runs", &json!({"command": "true", "sandbox": id, "workspace": workspace}));
    assert_eq!((both.0, &both.1["code"]), (400, &json!("bad_field")), "{}", both.1);
    let other =
        client.post(&format!("/v1/sandboxes/{id}/exec"), &json!({"command": "true", "sandbox": "other"}));
    assert_eq!((other.0, &other.1["code"]), (400, &json!("bad_field")), "{}", other.1);
    let absent = exec(&client, &id, &json!({"command": ["absent"], "wall_ms": 20_000}));
    assert_eq!(
        (&absent["exit_code"], &absent["error"]["code"]),
        (&json!(127), &json!("execute_failed")),
        "{absent}"
    );
}
