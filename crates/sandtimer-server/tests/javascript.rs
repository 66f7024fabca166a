//! JavaScript and TypeScript over HTTP: runs of code, and contexts.

mod support;

use serde_json::{Value, json};
use support::{Client, Serving};

fn opened(client: &Client, body: Value) -> String {
    let (status, context) = client.post("/v1/contexts", &body);
    assert_eq!(status, 201, "{context}");
    assert_eq!(context["language"], body["language"]);
    format!("/v1/contexts/{}", context["context_id"].as_str().expect("an id"))
}

fn executed(client: &Client, at: &str, body: Value) -> Value {
    let (status, answer) = client.post(&format!("{at}/execute"), &body);
    assert_eq!((status, &answer["status"]), (200, &json!("ended")), "{answer}");
    answer["outcome"].clone()
}

#[test]
fn code_is_run_by_node() {
    let serving = Serving::start();
    let client = serving.client();
    for (language, code) in [
        ("javascript", "console.log(6 * 7)"),
        ("javascript", "import { sep } from 'path'; console.log(await Promise.resolve(42))"),
        ("typescript", "enum A { B = 42 }\nconst a: number = A.B; console.log(a)"),
    ] {
        let (status, run) = client.post("/v1/runs", &json!({"code": code, "language": language}));
        assert_eq!((status, &run["outcome"]["stdout"]), (200, &json!("42\n")), "{code}: {run}");
    }
    let (status, refused) =
        client.post("/v1/runs", &json!({"code": "let a = 1;\nlet b: = 2;", "language": "typescript"}));
    assert_eq!((status, &refused["code"]), (400, &json!("bad_field")), "{refused}");
    assert_eq!((&refused["details"]["line"], &refused["details"]["column"]), (&json!(2), &json!(8)));
}

#[test]
fn a_context_keeps_its_variables_until_a_limit_takes_the_interpreter() {
    let serving = Serving::start();
    let client = serving.client();
    let at = opened(&client, json!({"language": "javascript", "env": {"A": "b"}, "cwd": "/tmp/there"}));
    executed(&client, &at, json!({"code": "const x = [process.env.A, process.cwd()]"}));
    let found = executed(&client, &at, json!({"code": "console.log('out'); x", "wall_ms": 20_000}));
    assert_eq!(
        (&found["value"], &found["stdout"], &found["state"]),
        (&json!(["b", "/tmp/there"]), &json!("out\n"), &json!("kept"))
    );
    let found = executed(&client, &at, json!({"code": "await new Promise(() => {})", "wall_ms": 200}));
    assert_eq!((&found["ending"], &found["state"]), (&json!("timeout"), &json!("reset")));
    assert_eq!(found["tree"]["survivors"], 0);
    assert_eq!(executed(&client, &at, json!({"code": "typeof x"}))["value"], "undefined");
    let (status, refused) = client.post(&format!("{at}/undo"), &json!({}));
    assert_eq!((status, &refused["code"]), (409, &json!("nothing_to_undo")), "{refused}");
    assert!(refused["message"].as_str().expect("a text").contains("JavaScript"), "{refused}");
}

#[test]
fn a_typescript_context_knows_its_lines() {
    let serving = Serving::start();
    let client = serving.client();
    let at = opened(&client, json!({"language": "typescript"}));
    let found = executed(&client, &at, json!({"code": "const x: number = 41\nx + 1 as number"}));
    assert_eq!(found["value"], 42, "{found}");
    let raised = executed(&client, &at, json!({"code": "let a: string\nlet b: = 2"}));
    assert_eq!((&raised["ending"], &raised["error"]["type"]), (&json!("raised"), &json!("SyntaxError")));
    assert!(raised["error"]["traceback"].as_str().expect("a text").ends_with("<cell-2>:2:8"), "{raised}");
}
