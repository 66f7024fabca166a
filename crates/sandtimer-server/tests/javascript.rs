//! JavaScript and TypeScript over HTTP: runs of code, and contexts.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient};

fn opened(client: &TestClient, body: Value) -> String {
    let (status, context) = client.post("/v1/contexts", &body);
    assert_eq!(status, 201, "{context}");
    assert_eq!(context["language"], body["language"]);
    format!("/v1/contexts/{}", context["context_id"].as_str().expect("an id"))
}

fn executed(client: &TestClient, at: &str, body: Value) -> Value {
    let (status, answer) = client.post(&format!("{at}/execute"), &body);
    assert_eq!((status, &answer["status"]), (200, &json!("ended")), "{answer}");
    answer["outcome"].clone()
}

#[test]
fn code_is_run_by_node() {
    let serving = ServerFixture::start();
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
fn context_keeps_variables_until_a_limit_fires() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, json!({"language": "javascript", "env": {"A": "b"}, "cwd": "/tmp/there"}));
    executed(&client, &at, json!({"code": "const x = [process.env.A, process.cwd()]"}));
    let found = executed(&client, &at, json!({"code": "console.log('out'); x", "wall_ms": 20_000}));
    assert_eq!(
        (&found["value"], &found["stdout"], &found["state"]),
        (&json!(["b", "/tmp/there"]), &json!("out\n"), &json!("kept"))
    );
    let found = executed(&client, &at, json!({"code": "await 0; for (;;) {}", "wall_ms": 200}));
    assert_eq!((&found["ending"], &found["state"]), (&json!("timeout"), &json!("reset")));
    assert_eq!(found["tree"]["survivors"], 0);
    assert_eq!(executed(&client, &at, json!({"code": "typeof x"}))["value"], "undefined");
    let (status, refused) = client.post(&format!("{at}/undo"), &json!({}));
    assert_eq!((status, &refused["code"]), (409, &json!("nothing_to_undo")), "{refused}");
    assert!(refused["message"].as_str().expect("a text").contains("JavaScript"), "{refused}");
}

#[test]
fn a_typescript_context_knows_its_lines() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, json!({"language": "typescript"}));
    let found = executed(&client, &at, json!({"code": "const x: number = 41\nx + 1 as number"}));
    assert_eq!(found["value"], 42, "{found}");
    let raised = executed(&client, &at, json!({"code": "let a: string\nlet b: = 2"}));
    assert_eq!((&raised["ending"], &raised["error"]["type"]), (&json!("raised"), &json!("SyntaxError")));
    assert!(raised["error"]["traceback"].as_str().expect("a text").ends_with("<cell-2>:2:8"), "{raised}");
}

/// Hostile code may take long to read, and other clients do not wait for that.
#[test]
fn others_are_served_while_code_is_read() {
    let serving = ServerFixture::start();
    let levels = 60;
    let slow = format!("let x: {}0{}", "({a=(y:".repeat(levels), ")=>0})=>void".repeat(levels));
    let body = json!({"code": slow, "language": "typescript"});
    // As many as the server has workers, and no more than are read at once.
    let asking = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    std::thread::scope(|scope| {
        let (reply_sender, reply_receiver) = std::sync::mpsc::channel();
        for _ in 0..asking {
            let (client, body, reply_sender) = (serving.client(), &body, reply_sender.clone());
            scope.spawn(move || {
                let answer = client.post("/v1/runs", body);
                // Only the first message is received.
                let _ = reply_sender.send("read");
                assert_eq!((answer.0, &answer.1["code"]), (400, &json!("bad_field")), "{answer:?}");
            });
        }
        // Queued after them.
        let half = std::time::Duration::from_millis(500);
        assert!(
            reply_receiver.recv_timeout(half).is_err(),
            "reading it took no time: the test shows nothing"
        );
        let client = serving.client();
        scope.spawn(move || {
            assert_eq!(client.get("/v1/runs").0, 200);
            let _ = reply_sender.send("served");
        });
        assert_eq!(reply_receiver.recv_timeout(support::HARD_STOP), Ok("served"));
    });
}

#[test]
fn deeply_nested_values_keep_repr_and_records() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let mut runs = Vec::new();
    for (language, code) in [
        ("javascript", "console.log('out'); let a = 1; for (let i = 0; i < LEVELS; i++) a = [a]; a"),
        ("python", "print('out')\na = 1\nfor i in range(LEVELS): a = [a]\na"),
    ] {
        let at = opened(&client, json!({"language": language}));
        for levels in [100, 120, 124, 125, 500] {
            let code = code.replace("LEVELS", &levels.to_string());
            let (status, run) = client.post(&format!("{at}/execute"), &json!({"code": code}));
            let shown = &run["outcome"]["results"][0];
            assert_eq!((status, run["outcome"]["value"].is_array()), (200, levels <= 100), "{levels}: {run}");
            assert!(
                shown["text/plain"].as_str().is_some_and(|text| text.starts_with('[')),
                "{levels}: {run}"
            );
            runs.push(run["run_id"].as_str().expect("an id").to_owned());
        }
    }
    let again = ServerFixture::at(serving.stop(), |_| {});
    for run in runs {
        let (status, found) = again.client().get(&format!("/v1/runs/{run}"));
        assert_eq!((status, &found["outcome"]["stdout"]), (200, &json!("out\n")), "{found}");
    }
}

#[test]
fn half_characters_are_no_reason_to_lose_an_answer() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (language, value, error) in [
        ("javascript", "'a\\ud800'", "throw new RangeError('b\\ud800')"),
        ("python", "'a\\ud800'", "raise ValueError('b\\ud800')"),
    ] {
        let at = opened(&client, json!({"language": language}));
        let found = executed(&client, &at, json!({"code": value}));
        let text = found["results"][0]["text/plain"].as_str().expect("a text");
        assert!(text.starts_with("'a") && found["execution_count"] == 1, "{found}");
        let raised = executed(&client, &at, json!({"code": error}));
        let message = raised["error"]["message"].as_str().expect("a message");
        assert!(raised["ending"] == "raised" && message.starts_with('b'), "{raised}");
    }
}
