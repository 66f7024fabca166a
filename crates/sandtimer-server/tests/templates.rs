//! `/v1/templates`, and snapshots and forks of sandboxes: which owners can make them of what, and
//! which find them.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens, wait_until};

fn made(client: &TestClient, body: &Value) -> String {
    let (status, sandbox) = client.post("/v1/sandboxes", body);
    assert_eq!(status, 201, "{sandbox}");
    sandbox["sandbox_id"].as_str().expect("an id").to_owned()
}

fn sh(client: &TestClient, id: &str, line: &str) -> String {
    let (_, run) =
        client.post(&format!("/v1/sandboxes/{id}/exec"), &json!({"command": line, "wall_ms": 20_000}));
    assert_eq!(run["outcome"]["exit_code"], 0, "{run}");
    run["outcome"]["stdout"].as_str().expect("text").to_owned()
}

fn refused(answer: (u16, Value)) -> (u16, String) {
    let (status, error) = answer;
    assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{error}");
    (status, error["code"].as_str().expect("a code").to_owned())
}

fn names(client: &TestClient) -> Vec<String> {
    let listed = client.get("/v1/templates").1["templates"].clone();
    let names =
        listed.as_array().expect("a list").iter().map(|one| one["name"].as_str().expect("text").to_owned());
    names.collect()
}

#[test]
fn snapshot_is_a_template_until_it_is_deleted() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    sh(&client, &id, "echo one >file");
    let at = format!("/v1/sandboxes/{id}");
    let (status, template) = client.post(&format!("{at}/snapshot"), &json!({"name": "ready"}));
    assert_eq!(
        (status, &template["name"], &template["kind"]),
        (201, &json!("ready"), &json!("snapshot")),
        "{template}"
    );
    assert_eq!((&template["sandbox_id"], template["layers"].as_array().map(Vec::len)), (&json!(id), Some(1)));
    assert_eq!(client.get(&at).1["layers"], template["layers"]);
    wait_until("its size is known", || {
        client.get("/v1/templates").1["templates"][1]["size_bytes"].as_u64().is_some_and(|size| size >= 4_096)
    });
    sh(&client, &id, "echo two >file");
    let of = made(&client, &json!({"template": "ready"}));
    assert_eq!(sh(&client, &of, "cat file"), "one\n");
    let (status, forks) = client.post(&format!("{at}/fork"), &json!({"count": 2}));
    assert_eq!((status, forks["sandboxes"].as_array().map(Vec::len)), (201, Some(2)), "{forks}");
    let fork = forks["sandboxes"][1]["sandbox_id"].as_str().expect("an id").to_owned();
    assert_eq!(
        (sh(&client, &fork, "cat file"), &forks["sandboxes"][0]["template"]),
        ("two\n".to_owned(), &json!("host"))
    );
    let state = serving.stop();

    let serving = ServerFixture::at(state, |_| {});
    let client = serving.client();
    assert_eq!(names(&client), ["host", "ready"]);
    assert_eq!(client.delete("/v1/templates/ready").0, 204);
    assert_eq!(refused(client.delete("/v1/templates/ready")), (404, "template_not_found".to_owned()));
    assert_eq!(
        (sh(&client, &of, "cat file"), sh(&client, &fork, "cat file")),
        ("one\n".to_owned(), "two\n".to_owned())
    );
    let gone = client.post("/v1/sandboxes", &json!({"template": "ready"}));
    assert_eq!(refused(gone), (404, "template_not_found".to_owned()));
}

#[test]
fn bad_requests_name_the_field_and_make_nothing() {
    let tree = tempfile::tempdir().expect("a directory");
    let serving = ServerFixture::with(|settings| {
        settings.templates.insert("tree".to_owned(), tree.path().to_owned());
    });
    let client = serving.client();
    let id = made(&client, &json!({}));
    let at = format!("/v1/sandboxes/{id}");
    for name in ["", "../up", "host", "tree", "a b", &"x".repeat(65)] {
        let (status, error) = client.post(&format!("{at}/snapshot"), &json!({"name": name}));
        assert_eq!(
            (status, &error["code"], &error["details"]["key"]),
            (400, &json!("bad_field"), &json!("name")),
            "{error}"
        );
    }
    for count in [json!(0), json!(101), json!(-1), json!("2"), json!(1.5)] {
        let (status, error) = client.post(&format!("{at}/fork"), &json!({"count": count}));
        assert_eq!(
            (status, &error["code"], &error["details"]["key"]),
            (400, &json!("bad_field"), &json!("count")),
            "{error}"
        );
    }
    let run = client.start(json!({"command": ["sleep", "60"], "sandbox": id, "wall_ms": 60_000}));
    for what in ["snapshot", "fork"] {
        let (status, busy) = client.post(&format!("{at}/{what}"), &json!({}));
        assert_eq!(
            (status, &busy["code"], &busy["details"]["runs"]),
            (409, &json!("sandbox_busy"), &json!([run])),
            "{busy}"
        );
    }
    client.post(&format!("/v1/runs/{run}/kill"), &json!({}));
    client.ended(&run);
    assert_eq!(client.post(&format!("{at}/snapshot"), &json!({"name": "one"})).0, 201);
    assert_eq!(
        refused(client.post(&format!("{at}/snapshot"), &json!({"name": "one"}))),
        (409, "template_exists".to_owned())
    );
    assert_eq!(refused(client.delete("/v1/templates/host")).1, "bad_field");
    assert_eq!(names(&client), ["host", "tree", "one"]);
    assert_eq!(client.delete(&at).0, 204);
    assert_eq!(
        refused(client.post(&format!("{at}/snapshot"), &json!({}))),
        (404, "sandbox_not_found".to_owned())
    );
    assert_eq!(client.get("/v1/sandboxes").1["sandboxes"], json!([]));
}

#[test]
fn forks_beyond_the_share_of_a_token_are_not_made() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    let fork = || client.post(&format!("/v1/sandboxes/{id}/fork"), &json!({"count": 100}));
    for _ in 0..4 {
        assert_eq!(fork().0, 201);
    }
    let (status, error) = fork();
    assert_eq!(
        (status, &error["code"], &error["details"]["limit"]),
        (429, &json!("quota"), &json!(500)),
        "{error}"
    );
    assert_eq!(
        client.get("/v1/sandboxes").1["sandboxes"].as_array().map(Vec::len),
        Some(401),
        "none of them"
    );
    assert_eq!(client.post(&format!("/v1/sandboxes/{id}/fork"), &json!({"count": 99})).0, 201);
}

#[test]
fn tokens_see_nothing_of_each_others_templates() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("a secret-of-a-0123456789\nb secret-of-b-0123456789\n"))
    });
    let [a, b] = ["secret-of-a-0123456789", "secret-of-b-0123456789"].map(|token| serving.client_with(token));
    let id = made(&a, &json!({}));
    sh(&a, &id, "echo of a >file");
    let (_, template) = a.post(&format!("/v1/sandboxes/{id}/snapshot"), &json!({"name": "mine"}));
    let template_id = template["template_id"].as_str().expect("an id");
    assert_eq!(template["owner"], "token:a");
    for what in ["snapshot", "fork"] {
        let attempt = b.post(&format!("/v1/sandboxes/{id}/{what}"), &json!({}));
        assert_eq!(refused(attempt), (404, "sandbox_not_found".to_owned()));
    }
    for name in ["mine", template_id] {
        let attempts =
            [b.post("/v1/sandboxes", &json!({"template": name})), b.delete(&format!("/v1/templates/{name}"))];
        for attempt in attempts {
            assert!(!attempt.1.to_string().contains("host, mine"), "{}", attempt.1);
            assert_eq!(refused(attempt), (404, "template_not_found".to_owned()));
        }
    }
    assert_eq!((names(&a), names(&b)), (vec!["host".to_owned(), "mine".to_owned()], vec!["host".to_owned()]));
    let of = made(&a, &json!({"template": template_id}));
    assert_eq!(sh(&a, &of, "cat file"), "of a\n", "the control: its owner uses it");
}
