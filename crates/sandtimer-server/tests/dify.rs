//! Dify's sandbox: the requests of its code nodes, against a real server and real programs.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, tokens};

const KEY: &str = "first-secret-token-1234";

/// The request of a code node.
fn request(language: &str, code: &str) -> Value {
    json!({"language": language, "code": code, "preload": "", "enable_network": true})
}

#[test]
fn code_is_run_as_dify_reads_it() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let run = |language: &str, code: &str| {
        let (status, answer) = client.post("/v1/sandbox/run", &request(language, code));
        assert_eq!(
            (status, &answer["code"], &answer["message"]),
            (200, &json!(0), &json!("success")),
            "{answer}"
        );
        answer["data"].clone()
    };
    let answer = run("python3", "import sys\nprint('out')\nprint('log', file=sys.stderr)");
    assert_eq!(answer, json!({"stdout": "out\n", "stderr": "log\n", "error": "", "exit_code": 0}));
    assert_eq!(run("nodejs", "console.log(JSON.stringify({a: 1}))")["stdout"], "{\"a\":1}\n");
    let raised = run("python3", "print('before'); raise ValueError('no')");
    assert_eq!((&raised["exit_code"], &raised["stdout"]), (&json!(1), &json!("before\n")));
    let error = raised["error"].as_str().expect("a text");
    assert!(
        error.starts_with("process exited with code 1\nTraceback") && error.contains("ValueError: no"),
        "{error}"
    );
    // Five seconds, as there.
    let late = run("python3", "import time\nprint(1, flush=True)\ntime.sleep(60)");
    assert_eq!((&late["exit_code"], &late["stdout"]), (&json!(-1), &json!("1\n")), "{late}");
    let error = late["error"].as_str().expect("a text");
    assert!(
        error.starts_with("process exited with code -1\nerror: timeout\n") && error.contains("5 s"),
        "{error}"
    );
    let killed = run("python3", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)");
    assert_eq!(killed["exit_code"], -1, "{killed}");
}

#[test]
fn packages_are_listed() {
    let serving = ServerFixture::start();
    let (status, answer) = serving.client().get("/v1/sandbox/dependencies?language=python3");
    assert_eq!((status, &answer["code"]), (200, &json!(0)), "{answer}");
    let listed = answer["data"]["dependencies"].as_array().expect("a list");
    assert!(listed.iter().all(|package| package["name"].is_string() && package["version"].is_string()));
}

#[test]
fn wrong_requests_are_refused_as_there() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(&format!("one {KEY}\n"))));
    let client = serving.client();
    assert_eq!(client.get("/health"), (200, json!("ok")));
    let (status, answer) = client.post("/v1/sandbox/run", &request("python3", "1"));
    assert_eq!((status, &answer["code"], &answer["data"]), (401, &json!(-401), &Value::Null), "{answer}");
    let post = |asked: &Value| client.post_with("/v1/sandbox/run", asked, &[("X-Api-Key", KEY)]);
    // It asks for a network, which this token may not have, and needs none.
    let (status, answer) = post(&request("python3", "print(1)"));
    assert_eq!((status, &answer["data"]["stdout"]), (200, &json!("1\n")), "{answer}");
    for (asked, message) in [
        (request("cobol", "1"), "unsupported language"),
        (json!({"code": "1"}), "language: it is missing; give python3 or nodejs"),
        (json!({"language": "python3"}), "code: it is missing; give it as a string"),
        (json!({"language": "python3", "code": 1}), "code: `1` is not a string"),
    ] {
        let (status, answer) = post(&asked);
        assert_eq!(
            (status, &answer["code"], &answer["message"]),
            (400, &json!(-400), &json!(message)),
            "{asked}"
        );
    }
    assert_eq!(
        client.post_with("/v1/sandbox/run", &request("python3", "1"), &[("X-Api-Key", "wrong")]).0,
        401
    );
    let (status, answer) = client.get_with("/v1/sandbox/dependencies?language=nodejs", &[("X-Api-Key", KEY)]);
    assert_eq!((status, &answer["code"]), (400, &json!(-400)), "{answer}");
}
