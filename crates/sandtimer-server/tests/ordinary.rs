//! What people do first over HTTP: a directory to start in, output that is not all text, answers in
//! a terminal and through a proxy.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, raw, read_to_end};

#[test]
fn runs_start_in_the_directory_that_is_named() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, workspace) = client.post("/v1/workspaces", &json!({}));
    let workspace = &workspace["workspace_id"];
    client.run(
        &json!({"command": "mkdir -p a/b; touch file; ln -s a link; ln -s /etc out", "workspace": workspace}),
    );
    let stdout = |cwd: &str| {
        client.run(&json!({"command": "pwd; echo $PWD", "workspace": workspace, "cwd": cwd}))["outcome"]["stdout"].clone()
    };
    assert_eq!(stdout("a/b"), "/workspace/a/b\n/workspace/a/b\n");
    assert_eq!(stdout("/workspace/a"), "/workspace/a\n/workspace/a\n");
    assert_eq!(stdout("/tmp"), "/tmp\n/tmp\n");
    assert_eq!(stdout("/usr/bin"), "/usr/bin\n/usr/bin\n");
    let own = client.run(&json!({"command": "pwd"}));
    assert_eq!(own["outcome"]["stdout"], "/workspace\n");
    for nowhere in
        ["missing", "/workspace/missing", "file", "/nowhere", "/root", "../../etc", "out", "/etc/shadow"]
    {
        let asked = json!({"command": "pwd", "workspace": workspace, "cwd": nowhere});
        let (status, refused) = client.post("/v1/runs", &asked);
        assert_eq!(
            (status, &refused["code"], &refused["details"]["key"]),
            (400, &json!("bad_field"), &json!("cwd")),
            "{nowhere}: {refused}"
        );
        assert!(
            refused["message"]
                .as_str()
                .is_some_and(|message| message.contains("is not a directory of the run")),
            "{refused}"
        );
    }
    for wrong in [json!(""), json!(5)] {
        let (status, refused) = client.post("/v1/runs", &json!({"command": "pwd", "cwd": wrong}));
        assert_eq!((status, &refused["details"]["key"]), (400, &json!("cwd")), "{refused}");
    }
    // What has just been removed is not entered, however recent the run before was.
    assert_eq!(stdout("a/b"), "/workspace/a/b\n/workspace/a/b\n");
    client.run(&json!({"command": "rm -r a", "workspace": workspace}));
    let (status, refused) =
        client.post("/v1/runs", &json!({"command": "pwd", "workspace": workspace, "cwd": "a/b"}));
    assert_eq!((status, &refused["code"]), (400, &json!("bad_field")), "{refused}");
}

#[test]
fn streams_have_their_own_encodings() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let asked = json!({"command": "printf 'a text\\n'; printf 'b\\377\\n' >&2"});
    let run = client.run(&asked);
    let outcome = &run["outcome"];
    let parts = |outcome: &Value| {
        ["stdout", "stdout_encoding", "stderr", "stderr_encoding", "encoding"]
            .map(|name| outcome[name].clone())
    };
    assert_eq!(parts(outcome), ["a text\n", "utf-8", "Yv8K", "base64", "base64"].map(Value::from));
    let replaced = ["a text\n", "utf-8", "b\u{fffd}\n", "utf-8", "utf-8"].map(Value::from);
    let mut asked = asked;
    asked["errors"] = "replace".into();
    assert_eq!(parts(&client.run(&asked)["outcome"]), replaced);
    let at = format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"));
    assert_eq!(parts(&client.get(&format!("{at}?errors=replace")).1["outcome"]), replaced);
    assert_eq!(client.get(&format!("{at}/output?stream=stderr&errors=replace")).1["data"], "b\u{fffd}\n");
    let events: Vec<_> = client.events_at(&format!("{at}/events?errors=replace"), &[]).collect();
    assert!(
        events.iter().any(|event| event.name == "stderr" && event.data["data"] == "b\u{fffd}\n"),
        "{events:?}"
    );
    let (status, refused) = client.get(&format!("{at}?errors=ignore"));
    assert_eq!((status, &refused["details"]["key"]), (400, &json!("errors")), "{refused}");
    // A record that is read again has the same contents.
    let serving = ServerFixture::at(serving.stop(), |_| {});
    assert_eq!(parts(&serving.client().get(&at).1["outcome"]), parts(outcome));
    let (_, context) = serving.client().post("/v1/contexts", &json!({}));
    let at = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
    let code = "import os; print('x', flush=True); os.write(2, b'\\xff');";
    let (_, executed) = serving.client().post(&at, &json!({"code": code, "errors": "replace"}));
    assert_eq!(
        (&executed["outcome"]["stdout"], &executed["outcome"]["stderr"]),
        (&json!("x\n"), &json!("\u{fffd}")),
        "{executed}"
    );
}

#[test]
fn leftovers_and_a_missing_network_are_remarked() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let remarks = |command: &str| client.run(&json!({"command": command}))["outcome"]["remarks"].clone();
    let left = remarks("sleep 300 & sleep 300 & echo started");
    assert_eq!(left[0]["kind"], "killed_leftovers");
    let message = left[0]["message"].as_str().expect("a message");
    assert!(
        message.starts_with("2 processes that it had left behind were killed") && message.contains("detach"),
        "{message}"
    );
    for quiet in ["true", "sleep 0.1 | cat", "python3 -c 'print(1)'"] {
        assert_eq!(remarks(quiet), json!([]), "{quiet}");
    }
    let network = remarks("python3 -c 'import urllib.request as u; u.urlopen(\"https://pypi.org\")'");
    assert_eq!(network[0]["kind"], "no_network", "{network}");
    assert!(network[0]["message"].as_str().is_some_and(|message| message.contains("--network")), "{network}");
    // The verdict reports processes that a limit ends, not a remark.
    let limited = client.run(&json!({"command": "sleep 300 & sleep 300", "wall_ms": 300}));
    assert_eq!(limited["outcome"]["remarks"], json!([]));
}

#[test]
fn names_of_other_tools_are_named_by_ours() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (theirs, ours) in
        [("time_limit", "wall_ms"), ("workdir", "cwd"), ("cmd", "command"), ("memory_limit", "memory_bytes")]
    {
        let mut asked = json!({"command": "true"});
        asked[theirs] = 5.into();
        let (status, refused) = client.post("/v1/runs", &asked);
        assert_eq!((status, &refused["details"]["nearest"]), (400, &json!(ours)), "{refused}");
        assert!(
            refused["message"]
                .as_str()
                .is_some_and(|message| message.contains(&format!("which is `{ours}` here"))),
            "{refused}"
        );
    }
    let (status, refused) = client.post("/v1/runs", &json!({"cmd": ["true"]}));
    assert_eq!((status, &refused["details"]["nearest"]), (400, &json!("command")), "{refused}");
    let (status, refused) = client.post("/v1/runs", &json!({"comand": "ls"}));
    assert_eq!((status, &refused["details"]["nearest"]), (400, &json!("command")), "{refused}");
    for (language, code) in [("py", "print(2)"), ("js", "console.log(2)"), ("sh", "echo 2")] {
        assert_eq!(
            client.run(&json!({"language": language, "code": code}))["outcome"]["stdout"],
            "2\n",
            "{language}"
        );
    }
}

#[test]
fn wall_limit_has_its_other_names() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (name, value) in [("timeout", json!("300ms")), ("timeout_ms", json!(300)), ("wall_ms", json!(300))] {
        let mut asked = json!({"command": ["sleep", "1000"]});
        asked[name] = value;
        let verdict = &client.run(&asked)["outcome"]["verdict"];
        assert_eq!(
            (&verdict["kind"], &verdict["limit_ms"]),
            (&json!("wall"), &json!(300)),
            "{name}: {verdict}"
        );
    }
    // To some it is seconds, to others milliseconds.
    for (given, expected) in [
        (json!({"timeout": 3}), "use `3s` or `3ms` as a string, or `wall_ms`"),
        (json!({"timeout": "3s", "wall_ms": 5}), "give one of wall_ms, timeout_ms, timeout"),
        (json!({"timeout_ms": "soon"}), "timeout_ms: `soon` is not a duration"),
    ] {
        let mut asked = json!({"command": "true"});
        asked.as_object_mut().expect("fields").extend(given.as_object().expect("fields").clone());
        let (status, refused) = client.post("/v1/runs", &asked);
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(expected), "{refused}");
    }
}

fn answer(serving: &ServerFixture, path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = read_to_end(raw(serving.address, request.as_bytes()));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn answers_end_with_a_newline_and_are_indented_on_request() {
    let serving = ServerFixture::start();
    let run = serving.client().run(&json!({"command": "true"}));
    let at = format!("/v1/runs/{}", run["run_id"].as_str().expect("an id"));
    for path in [&*at, "/v1/runs", "/healthz", "/openapi.json", "/v1/nowhere", "/v1/runs?limit=x"] {
        let (head, body) = answer(&serving, path);
        assert!(head.contains("content-type: application/json"), "{path}: {head}");
        assert!(body.ends_with("}\n") && !body.ends_with("\n\n"), "{path}: {body:?}");
    }
    let (_, plain) = answer(&serving, &at);
    assert_eq!(plain.lines().count(), 1);
    for pretty in ["?pretty", "?pretty=1", "?wait_ms=0&pretty=true"] {
        let (_, body) = answer(&serving, &format!("{at}{pretty}"));
        assert!(body.starts_with("{\n  \"run_id\": ") && body.ends_with("}\n"), "{body}");
        assert_eq!(
            serde_json::from_str::<Value>(&body).expect("JSON"),
            serde_json::from_str::<Value>(&plain).expect("JSON")
        );
    }
    let (_, refused) = answer(&serving, "/v1/nowhere?pretty");
    assert!(refused.starts_with("{\n"), "{refused}");
    let (_, refused) = answer(&serving, "/v1/runs?pretty=perhaps");
    assert!(refused.contains("unknown_field"), "{refused}");
}

#[test]
fn streams_are_passed_on_by_proxies_as_they_come() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let run = client.run(&json!({"command": "echo x"}));
    let (_, workspace) = client.post("/v1/workspaces", &json!({}));
    let (_, job) = client.post("/v1/jobs", &json!({"command": ["true"]}));
    let id = |answer: &Value, name: &str| answer[name].as_str().expect("an id").to_owned();
    let job = format!("/v1/jobs/{}", id(&job["jobs"][0], "job_id"));
    client.get(&format!("{job}?wait_ms=20000"));
    let heads = [format!("/v1/runs/{}/events", id(&run, "run_id")), format!("{job}/events")]
        .map(|path| answer(&serving, &path).0);
    let watched = format!(
        "GET /v1/files/watch?workspace={}&path=. HTTP/1.1\r\nHost: localhost\r\n\r\n",
        id(&workspace, "workspace_id")
    );
    let executed = "POST /api/execute/stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
        Content-Length: 18\r\n\r\n{\"command\":\"true\"}";
    let heads = heads.into_iter().chain([head(&serving, &watched), head(&serving, executed)]);
    for head in heads {
        for header in [
            "content-type: text/event-stream",
            "x-accel-buffering: no",
            "cache-control: no-store, no-transform",
        ] {
            assert!(head.contains(header), "{header}: {head}");
        }
    }
}

/// The head of an answer whose body may continue.
fn head(serving: &ServerFixture, request: &str) -> String {
    use std::io::Read;
    let mut stream = raw(serving.address, request.as_bytes());
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("an answer") == 1 {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).to_ascii_lowercase()
}
