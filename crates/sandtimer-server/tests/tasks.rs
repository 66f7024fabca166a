//! Estimates over HTTP: what they rest on, which owner they belong to, and tasks that are compared
//! with them.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens};

fn estimate(client: &TestClient, asked: &Value) -> Value {
    let (status, answer) = client.post("/v1/tasks/estimate", asked);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["code"].as_str().unwrap_or_default())
}

#[test]
fn estimates_use_recorded_runs_across_restarts() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let asked = json!({"command": ["sleep", "0.3"]});
    assert_eq!(estimate(&client, &asked)["basis"], "unknown");
    for _ in 0..3 {
        client.run(&asked);
    }
    let answer = estimate(&client, &asked);
    // The machine may have become busier during the test: then the estimate rests on the runs under
    // the present load, or on all of them.
    let rests_on_them = |answer: &Value| match answer["runs"].as_u64() {
        Some(3) => true,
        Some(runs) => (1..3).contains(&runs) && answer["basis"] == "exact",
        None => false,
    };
    assert!(rests_on_them(&answer), "{answer}");
    assert_eq!(answer["censored_rate"], 0.0);
    let is_same = |answer: &Value| answer["basis"] == "exact" || answer["basis"] == "any_load";
    assert!(is_same(&answer), "{answer}");
    assert!((300..2000).contains(&answer["typical_ms"].as_u64().expect("a number")), "{answer}");
    // The same line for a shell, and another number.
    assert!(is_same(&estimate(&client, &json!({"command": "sleep 0.3"}))));
    assert_eq!(estimate(&client, &json!({"command": "sleep 7"}))["basis"], "template");
    let serving = ServerFixture::at(serving.stop(), |_| {});
    let again = estimate(&serving.client(), &asked);
    assert!(rests_on_them(&again), "{again}");
}

#[test]
fn a_run_that_was_ended_counts_as_longer() {
    let serving = ServerFixture::start();
    let client = serving.client();
    client.run(&json!({"command": ["sleep", "9"], "wall_ms": 400, "task_type": "write_file"}));
    client.run(&json!({"command": ["sh", "-c", "sleep 0.3; exit 3"]}));
    let limited = estimate(&client, &json!({"command": ["sleep", "9"]}));
    assert_eq!(limited["censored_rate"], 1.0);
    assert!(limited["typical_ms"].as_u64().expect("a number") > 400, "{limited}");
    assert_eq!(
        estimate(&client, &json!({"command": ["sh", "-c", "sleep 0.3; exit 3"]}))["censored_rate"],
        1.0
    );
    // No run of its type has ended by itself: the estimate is the table's.
    assert_eq!(estimate(&client, &json!({"task_type": "write_file"}))["basis"], "prior");
}

#[test]
fn immediate_failure_does_not_change_estimates() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let asked = json!({"command": ["sh", "-c", "exit 3"]});
    client.run(&asked);
    assert_eq!(estimate(&client, &asked)["basis"], "unknown");
}

#[test]
fn a_task_is_followed_by_itself_or_with_its_run() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (status, task) =
        client.post("/v1/tasks", &json!({"task_type": "train_complex_model", "data_size_mb": 2300}));
    assert_eq!((status, &task["status"], &task["run_id"]), (201, &json!("open"), &Value::Null), "{task}");
    assert_eq!(
        (&task["name"], &task["estimate"]["typical_ms"]),
        (&json!("train_complex_model"), &json!(1_800_000))
    );
    assert!(
        task["left_worst_ms"].as_u64().is_some_and(|left| left > 5_300_000 && left <= 5_400_000),
        "{task}"
    );
    let at = |what: &str| format!("/v1/tasks/{}{what}", task["task_id"].as_str().expect("an id"));
    let run = client.start(json!({"command": ["sh", "-c", "read x"], "stdin_open": true}));
    let (_, bound) = client.post(&at("/bind"), &json!({"run_id": run}));
    assert_eq!((&bound["status"], &bound["run_id"]), (&json!("running"), &json!(run)));
    client.post(&format!("/v1/runs/{run}/stdin"), &json!({"data": "x\n"}));
    client.get(&format!("/v1/runs/{run}?wait_ms=20000"));
    let (_, ended) = client.get(&at(""));
    assert_eq!(
        (&ended["status"], &ended["left_worst_ms"], &ended["is_overdue"]),
        (&json!("ended"), &Value::Null, &json!(false))
    );
    // Its run is remembered as what the task was about.
    let learned = estimate(&client, &json!({"task_type": "train_complex_model", "data_size_mb": 2300}));
    assert_eq!((&learned["basis"], &learned["runs"]), (&json!("class"), &json!(1)));
    assert_eq!(code(&client.post(&at("/bind"), &json!({"run_id": run}))), (409, "task_ended"));
    assert_eq!(code(&client.post(&at("/complete"), &json!({}))), (409, "task_ended"));

    let (_, alone) = client.post("/v1/tasks", &json!({"task_type": "debug_code", "name": "the bug"}));
    let id = alone["task_id"].as_str().expect("an id");
    let (_, done) = client.post(&format!("/v1/tasks/{id}/complete"), &json!({}));
    assert_eq!((&done["status"], &done["name"]), (&json!("ended"), &json!("the bug")));
    assert_eq!(estimate(&client, &json!({"task_type": "debug_code"}))["runs"], 1);
    let (_, list) = client.get("/v1/tasks");
    assert_eq!(list["tasks"].as_array().map(Vec::len), Some(2), "{list}");
}

#[test]
fn what_is_asked_wrongly_is_refused_with_its_field() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (asked, key) in [
        (json!({}), "task_type"),
        (json!({"task_type": "train_model"}), "task_type"),
        (json!({"task_type": 3}), "task_type"),
        (json!({"task_type": "load_data", "data_size_mb": -1}), "data_size_mb"),
        (json!({"task_type": "load_data", "data_size_mb": "1"}), "data_size_mb"),
        (json!({"task_type": "load_data", "data_size_mb": true}), "data_size_mb"),
        (json!({"task_type": "load_data", "data_size_mb": 1e300}), "data_size_mb"),
        (json!({"task_type": "load_data", "complexity": "hard"}), "complexity"),
        (json!({"task_type": "load_data", "budget_ms": -1}), "budget_ms"),
        (json!({"command": []}), "command"),
        (json!({"command": " "}), "command"),
        (json!({"command": ["a", 1]}), "command"),
    ] {
        let (status, answer) = client.post("/v1/tasks/estimate", &asked);
        assert_eq!((status, &answer["details"]["key"]), (400, &json!(key)), "{asked}: {answer}");
        let begun = client.post("/v1/tasks", &asked);
        assert_eq!((begun.0, &begun.1["details"]["key"]), (400, &json!(key)), "{asked}: {begun:?}");
    }
    let (_, unknown) = client.post("/v1/tasks/estimate", &json!({"task_type": "train_model"}));
    assert_eq!(unknown["details"]["nearest"][0], "train_simple_model", "{unknown}");
    let unknown = client.post("/v1/runs", &json!({"command": ["true"], "task_type": "train_model"}));
    assert_eq!(code(&unknown), (400, "bad_field"));
    assert_eq!(
        code(&client.post("/v1/tasks", &json!({"task_type": "load_data", "size": 1}))),
        (400, "unknown_field")
    );
    let no_run = json!({"task_type": "load_data", "run_id": "none"});
    assert_eq!(code(&client.post("/v1/tasks", &no_run)), (404, "run_not_found"));
    let (_, task) = client.post("/v1/tasks", &json!({"task_type": "load_data"}));
    let at = format!("/v1/tasks/{}/bind", task["task_id"].as_str().expect("an id"));
    assert_eq!(code(&client.post(&at, &json!({}))), (400, "bad_field"));
}

#[test]
fn tasks_and_durations_are_their_owners() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens =
            Some(tokens("one 0123456789abcdef0123456789abcdef\ntwo abcdef0123456789abcdef0123456789\n"));
    });
    let one = serving.client_with("0123456789abcdef0123456789abcdef");
    let two = serving.client_with("abcdef0123456789abcdef0123456789");
    let asked = json!({"command": ["true"]});
    one.run(&asked);
    assert_eq!(estimate(&one, &asked)["runs"], 1);
    assert_eq!(estimate(&two, &asked)["basis"], "unknown");
    let (_, task) = one.post("/v1/tasks", &json!({"task_type": "load_data"}));
    let at = format!("/v1/tasks/{}", task["task_id"].as_str().expect("an id"));
    for answer in [two.get(&at), two.post(&format!("{at}/complete"), &json!({}))] {
        assert_eq!(code(&answer), (404, "task_not_found"));
    }
    assert_eq!(two.get("/v1/tasks").1["tasks"], json!([]));
    assert_eq!(one.get(&at).0, 200);
}

#[test]
fn task_fields_are_truncated_to_their_prefix() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let long = "ä".repeat(200_000);
    let (status, task) = client.post(
        "/v1/tasks",
        &json!({"task_type": "debug_code", "name": long, "context": long, "command": long}),
    );
    assert_eq!(status, 201, "{task}");
    for text in [&task["name"], &task["estimate"]["context"]] {
        assert_eq!(text.as_str().map(str::len), Some(400));
    }
    assert!(task.to_string().len() < 3_000);
}
