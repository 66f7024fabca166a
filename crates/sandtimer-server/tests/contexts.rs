//! Contexts and sessions over HTTP.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens, wait_until};

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

#[test]
fn code_finds_what_earlier_code_has_left() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({"env": {"GREETING": "hello"}, "cwd": "/tmp/there"}));
    executed(&client, &at, json!({"code": "import os\nx = os.environ['GREETING'], os.getcwd()"}));
    let found = executed(&client, &at, json!({"code": "print('out')\ndisplay(1)\nx"}));
    assert_eq!(
        (&found["ending"], &found["state"], &found["stdout"]),
        (&json!("returned"), &json!("kept"), &json!("out\n"))
    );
    assert_eq!(found["value"], json!(["hello", "/tmp/there"]));
    assert_eq!((&found["results"][0]["text/plain"], &found["execution_count"]), (&json!("1"), &json!(2)));
    let raised = executed(&client, &at, json!({"code": "1 / 0"}));
    assert_eq!(
        (&raised["ending"], &raised["error"]["type"]),
        (&json!("raised"), &json!("ZeroDivisionError"))
    );
    // It is a run like every other, with its record.
    let id = raised["run_id"].as_str().expect("an id");
    assert_eq!(client.get(&format!("/v1/runs/{id}")).1["outcome"]["ending"], "raised");
    let state = serving.stop();
    let again = ServerFixture::at(state, |_| {});
    assert_eq!(
        again.client().get(&format!("/v1/runs/{id}")).1["outcome"]["error"]["type"],
        "ZeroDivisionError"
    );
    let (status, ended) = again.client().get(&at);
    assert_eq!((status, &ended["code"]), (410, &json!("context_ended")), "{ended}");
}

/// Starts something in a context and gives its run's id, once it has begun.
fn begun(client: &TestClient, at: &str, mut body: Value) -> String {
    body["wait_ms"] = 0.into();
    body["turn_ms"] = 20_000.into();
    let (status, answer) = client.post(&format!("{at}/execute"), &body);
    assert_eq!((status, &answer["status"]), (200, &json!("running")), "{answer}");
    answer["run_id"].as_str().expect("an id").to_owned()
}

#[test]
fn input_arrives_while_something_is_executed() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let session = opened(&client, "/v1/sessions", json!({}));
    let context = opened(&client, "/v1/contexts", json!({}));
    let reads = "read first; read second; echo \"$first then $second\"; kept=$second";
    let shell = begun(&client, &session, json!({"command": reads, "stdin_open": true, "wall_ms": 20_000}));
    let (_, written) = client.post(&format!("/v1/runs/{shell}/stdin"), &json!({"data": "one\n"}));
    assert_eq!((&written["written"], &written["closed"]), (&json!(4), &json!(false)), "{written}");
    let code = "given, later = input(), __import__('sys').stdin.read()\n[given, later]";
    let given = json!({"code": code, "stdin": "given\n", "stdin_open": true, "wall_ms": 20_000});
    let cell = begun(&client, &context, given);
    for (run, rest) in [(&shell, "two\n"), (&cell, "later")] {
        let (_, written) = client.post(&format!("/v1/runs/{run}/stdin"), &json!({"data": rest, "eof": true}));
        assert_eq!(written["closed"], true, "{written}");
    }
    let outcome = |run: &str| client.get(&format!("/v1/runs/{run}?wait_ms=20000")).1["outcome"].clone();
    assert_eq!(outcome(&shell)["stdout"], "one then two\n");
    assert_eq!(outcome(&cell)["value"], json!(["given", "later"]));
    // What was executed has its state, and the next finds no input.
    let next = executed(&client, &session, json!({"command": "echo $kept; cat", "wall_ms": 20_000}));
    assert_eq!((&next["ending"], &next["stdout"]), (&json!("exited"), &json!("two\n")), "{next}");
    let (status, refused) = client.post(&format!("/v1/runs/{shell}/stdin"), &json!({"data": "x"}));
    assert_eq!((status, &refused["code"]), (409, &json!("run_ended")), "{refused}");
    // Without being asked for, nothing is left open.
    let closed = begun(&client, &session, json!({"command": "cat; sleep 20", "wall_ms": 20_000}));
    let (status, refused) = client.post(&format!("/v1/runs/{closed}/stdin"), &json!({"data": "x"}));
    assert_eq!((status, &refused["code"]), (409, &json!("stdin_closed")), "{refused}");
    client.post(&format!("/v1/runs/{closed}/kill"), &json!({}));
}

#[test]
fn id_from_before_a_restart_reports_its_end() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, workspace) = client.post("/v1/workspaces", &json!({}));
    let kept = workspace["workspace_id"].as_str().expect("an id").to_owned();
    let context = opened(&client, "/v1/contexts", json!({}));
    let session = opened(&client, "/v1/sessions", json!({"workspace": kept}));
    let closed = opened(&client, "/v1/sessions", json!({}));
    client.delete(&closed);
    let state = serving.stop();
    let again = ServerFixture::at(state, |_| {});
    let client = again.client();
    let (status, ended) = client.get(&context);
    assert_eq!((status, &ended["code"]), (410, &json!("context_ended")), "{ended}");
    let message = ended["message"].as_str().expect("a text");
    assert!(message.contains("ended with the server at 20") && message.contains("no files"), "{ended}");
    assert!(ended["details"]["ended_at_ms"].as_u64().is_some_and(|at| at > 1_600_000_000_000), "{ended}");
    let (status, ended) = client.post(&format!("{session}/execute"), &json!({"code": "echo"}));
    assert_eq!((status, &ended["details"]["workspace"]), (410, &json!(kept)), "{ended}");
    for unknown in [closed, "/v1/contexts/0123456789abcdef".to_owned(), "/v1/contexts/..%2Flock".to_owned()] {
        assert_eq!(client.get(&unknown).1["code"], "context_not_found", "{unknown}");
    }
    // It is still known after one more restart.
    let state = again.stop();
    assert_eq!(ServerFixture::at(state, |_| {}).client().get(&context).0, 410);
}

#[test]
fn a_cell_that_does_not_end_leaves_what_was_before() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({"wall_ms": 20_000}));
    executed(&client, &at, json!({"code": "x = 1"}));
    // Only the cell itself kills: of two that do, the one that is born later may well be the one
    // that is left.
    let hostile = "x = 2\nimport os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('so far', flush=True)\n\
                   if os.fork() == 0:\n    os.setsid()\n    while True: signal.pause()\n\
                   while True:\n    try: os.kill(-1, 9)\n    except BaseException: pass";
    let found = executed(&client, &at, json!({"code": hostile, "wall_ms": 300}));
    assert_eq!(
        (&found["ending"], &found["state"], &found["stdout"]),
        (&json!("timeout"), &json!("rolled_back"), &json!("so far\n"))
    );
    assert_eq!((&found["tree"]["survivors"], &found["verdict"]["limit_ms"]), (&json!(0), &json!(300)));
    let found = executed(&client, &at, json!({"code": "x"}));
    assert_eq!(found["value"], json!(1));
    let (_, context) = client.get(&at);
    assert_eq!((&context["executions"], &context["checkpoint"]), (&json!(3), &json!(true)), "{context}");
    let (status, _) = client.post(&format!("{at}/undo"), &json!({}));
    assert_eq!(status, 200);
}

#[test]
fn context_limits_cover_all_runs_and_run_limits_one() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({"wall_ms": 200}));
    executed(&client, &at, json!({"code": "import time", "wall_ms": 0}));
    let found = executed(&client, &at, json!({"code": "time.sleep(30)"}));
    assert_eq!((&found["ending"], &found["verdict"]["source"]), (&json!("timeout"), &json!("session")));
    let found = executed(&client, &at, json!({"code": "time.sleep(0.4)", "wall_ms": 0}));
    assert_eq!((&found["ending"], &found["verdict"]), (&json!("returned"), &Value::Null), "{found}");
    let found = executed(&client, &at, json!({"code": "time.sleep(30)"}));
    assert_eq!(found["ending"], "timeout");
}

#[test]
fn runs_queue_and_can_be_interrupted_cancelled_and_left() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({}));
    let execute = format!("{at}/execute");
    let (_, first) = client
        .post(&execute, &json!({"code": "import time; time.sleep(60)", "wait_ms": 400, "detach": true}));
    assert_eq!(first["status"], "running", "{first}");
    let (_, queued) = client.post(&execute, &json!({"code": "y = 1", "wait_ms": 50, "detach": true}));
    assert_eq!((&queued["status"], &queued["position"]), (&json!("queued"), &json!(1)));
    assert_eq!(client.post(&format!("{at}/interrupt"), &json!({})).1["interrupted"], true);
    let ended = client.ended(first["run_id"].as_str().expect("an id"));
    assert_eq!(
        (&ended["outcome"]["ending"], &ended["outcome"]["error"]["type"]),
        (&json!("raised"), &json!("KeyboardInterrupt"))
    );
    assert_eq!(executed(&client, &at, json!({"code": "y"}))["value"], json!(1));
    let (_, busy) =
        client.post(&execute, &json!({"code": "while True: pass", "wait_ms": 200, "detach": true}));
    let id = busy["run_id"].as_str().expect("an id");
    assert_eq!(client.get(&at).1["run_id"], json!(id));
    let (_, killed) = client.post(&format!("/v1/runs/{id}/kill"), &json!({}));
    assert_eq!(
        (&killed["outcome"]["ending"], &killed["outcome"]["state"]),
        (&json!("cancelled"), &json!("rolled_back"))
    );
    let (_, busy) =
        client.post(&execute, &json!({"code": "while True: pass", "wait_ms": 200, "detach": true}));
    assert_eq!(client.delete(&at).0, 204);
    assert_eq!(client.ended(busy["run_id"].as_str().expect("an id"))["outcome"]["ending"], "cancelled");
    assert_eq!(client.get(&at).1["code"], "context_not_found");
}

#[test]
fn free_context_returns_the_run_immediately() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/sessions", json!({}));
    for _ in 0..100 {
        let (status, answer) =
            client.post(&format!("{at}/execute"), &json!({"command": "true", "wait_ms": 0}));
        assert_eq!(status, 200, "{answer}");
        let id = answer["run_id"].as_str().unwrap_or_else(|| panic!("no run: {answer}"));
        assert_eq!(client.ended(id)["outcome"]["exit_code"], 0);
    }
}

#[test]
fn a_caller_may_wait_for_its_turn_and_not_for_the_end() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({}));
    let execute = format!("{at}/execute");
    let first = json!({"code": "import time; time.sleep(60)", "wait_ms": 0, "turn_ms": 20_000});
    let (_, first) = client.post(&execute, &first);
    assert_eq!(first["status"], "running", "{first}");
    let second = json!({"code": "import time; time.sleep(60)", "wait_ms": 0, "turn_ms": 20_000});
    let begun = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| client.post(&execute, &second).1);
        assert!((0..10_000).any(|_| client.get(&at).1["waiting"] == json!(1)));
        assert_eq!(client.post(&format!("{at}/interrupt"), &json!({})).1["interrupted"], true);
        waiting.join().expect("answered")
    });
    assert_eq!(begun["status"], "running", "{begun}");
    assert_eq!(client.get(&at).1["run_id"], begun["run_id"]);
}

#[test]
fn waiting_run_is_listed_and_can_be_cancelled() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({}));
    let send = |code: &str| {
        let body = json!({"code": code, "wait_ms": 0, "detach": true});
        let (status, answer) = client.post(&format!("{at}/execute"), &body);
        assert_eq!(status, 200, "{answer}");
        (answer["run_id"].as_str().expect("an id").to_owned(), answer["status"].clone())
    };
    let (busy, status) = send("import time; time.sleep(600)");
    assert_eq!(status, "running");
    let ((cancelled, first), (next, second)) = (send("x = 1"), send("y = 2; print('said')"));
    assert_eq!((first, second), (json!("queued"), json!("queued")));
    let (_, run) = client.get(&format!("/v1/runs/{next}"));
    assert_eq!(
        (&run["status"], &run["effective"], &run["outcome"]),
        (&json!("queued"), &json!(null), &json!(null))
    );
    let (_, list) = client.get("/v1/runs?status=queued");
    assert_eq!(list["runs"].as_array().map(Vec::len), Some(2), "{list}");
    let (status, rejection) = client.post(&format!("/v1/runs/{next}/pause"), &json!({}));
    assert_eq!((status, &rejection["code"]), (409, &json!("run_queued")));
    assert_eq!(client.get(&format!("/v1/runs/{next}/output")).1["ended"], false);

    let (_, killed) = client.post(&format!("/v1/runs/{cancelled}/kill"), &json!({}));
    assert_eq!((&killed["status"], &killed["outcome"]["ending"]), (&json!("ended"), &json!("cancelled")));
    assert_eq!(killed["outcome"]["error"]["code"], "cancelled");
    client.post(&format!("/v1/runs/{busy}/kill"), &json!({}));
    let ended = client.ended(&next);
    assert_eq!((&ended["outcome"]["stdout"], &ended["status"]), (&json!("said\n"), &json!("ended")));
    assert!(ended["effective"].is_object(), "{ended}");
    let outcome = executed(&client, &at, json!({"code": "'x' in dir(), 'y' in dir()"}));
    assert_eq!(outcome["value"], json!([false, true]));

    // A context that ends takes along what waits in it.
    let (_, waits) = (send("import time; time.sleep(600)"), send("1"));
    assert_eq!(client.delete(&at).0, 204);
    assert_eq!(client.ended(&waits.0)["outcome"]["ending"], "cancelled");
}

#[test]
fn a_session_keeps_its_shell() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/sessions", json!({"env": {"A": "1"}}));
    executed(&client, &at, json!({"command": "cd /tmp; f() { echo \"f $A\"; }"}));
    let found = executed(&client, &at, json!({"command": "pwd; f; exit 3"}));
    assert_eq!(
        (&found["exit_code"], &found["stdout"], &found["state"]),
        (&json!(3), &json!("/tmp\nf 1\n"), &json!("reset"))
    );
    let found = executed(&client, &at, json!({"command": "pwd; f", "wall_ms": 20_000}));
    assert_eq!((&found["exit_code"], &found["stdout"]), (&json!(127), &json!("/tmp\n")));
    let found = executed(&client, &at, json!({"command": "echo begun; sleep 60 | cat", "wall_ms": 200}));
    assert_eq!(
        (&found["ending"], &found["state"], &found["tree"]["survivors"]),
        (&json!("timeout"), &json!("rolled_back"), &json!(0))
    );
    assert_eq!(client.get("/v1/sessions").1["contexts"][0]["language"], "bash");
    assert_eq!(client.get("/v1/contexts").1["contexts"].as_array().map(Vec::len), Some(1));
}

#[test]
fn contexts_are_their_owners_and_end_when_they_are_not_used() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234\ntwo second-secret-token-1234\n"))
    });
    let [one, two] =
        ["first-secret-token-1234", "second-secret-token-1234"].map(|token| serving.client_with(token));
    let at = opened(&one, "/v1/contexts", json!({}));
    assert_eq!(two.get(&at).1["code"], "context_not_found");
    assert_eq!(two.post(&format!("{at}/execute"), &json!({"code": "1"})).1["code"], "context_not_found");
    assert_eq!(two.get("/v1/contexts").1["contexts"], json!([]));
    let brief = opened(&one, "/v1/contexts", json!({"idle_ms": 100}));
    let gone = (0..100).any(|_| {
        one.run(&json!({"command": ["sleep", "0.1"]}));
        one.get(&brief).0 == 404
    });
    assert!(gone, "it was not used for its idle_ms");
    assert_eq!(one.get(&at).0, 200);
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let refused = |path: &str, body: Value, code: &str, named: &str| {
        let (status, answer) = client.post(path, &body);
        assert!((400..500).contains(&status), "{path} {body}: {answer}");
        assert_eq!(answer["code"], code, "{path} {body}: {answer}");
        assert!(
            answer["message"].as_str().is_some_and(|message| message.contains(named)),
            "{path} {body}: {answer}"
        );
    };
    refused("/v1/contexts", json!({"language": "cobol"}), "bad_field", "cobol");
    refused("/v1/contexts", json!({"wall_ms": -1}), "bad_limit", "wall_ms");
    refused("/v1/contexts", json!({"memory_bytes": "abc"}), "bad_limit", "abc");
    refused("/v1/contexts", json!({"surprise": 1}), "unknown_field", "surprise");
    refused("/v1/contexts", json!({"env": {"A=B": "x"}}), "bad_field", "A=B");
    refused("/v1/sessions", json!({"language": "bash"}), "unknown_field", "language");
    refused("/v1/sessions", json!({"processes": 1}), "bad_limit", "processes");
    refused("/v1/sessions", json!({"open_files": 100}), "bad_limit", "open_files");
    refused("/v1/contexts/nobody/execute", json!({"code": "1"}), "context_not_found", "nobody");
    let at = opened(&client, "/v1/contexts", json!({}));
    refused(&format!("{at}/execute"), json!({}), "bad_field", "code");
    refused(&format!("{at}/execute"), json!({"code": 1}), "bad_field", "code");
    refused(&format!("{at}/execute"), json!({"command": "ls"}), "bad_field", "code");
    refused(
        &format!("{at}/execute"),
        json!({"code": "1", "memory_bytes": 1}),
        "unknown_field",
        "memory_bytes",
    );
    refused(&format!("{at}/undo"), json!({}), "nothing_to_undo", "");
    let session = opened(&client, "/v1/sessions", json!({}));
    refused(&format!("{session}/execute"), json!({"command": "a\u{0}b"}), "nul_byte", "command");
    // And both still serve.
    assert_eq!(executed(&client, &at, json!({"code": "6 * 7"}))["value"], json!(42));
    assert_eq!(executed(&client, &session, json!({"command": "echo fine"}))["stdout"], json!("fine\n"));
}

#[test]
fn output_after_the_command_is_read_from_its_run() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, session) = client.post("/v1/sessions", &json!({}));
    let path = format!("/v1/sessions/{}", session["context_id"].as_str().expect("an id"));
    let execute = |command: &str| {
        let (status, answer) = client.post(&format!("{path}/execute"), &json!({"command": command}));
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let command = "(until [ -e go ]; do sleep 0.01; done; echo late; echo err >&2; touch done) & echo first";
    let first = execute(command);
    assert_eq!(first["outcome"]["stdout"], "first\n");
    execute("touch go; until [ -e done ]; do sleep 0.01; done");
    let output = format!("/v1/runs/{}/output", first["run_id"].as_str().expect("an id"));
    support::wait_until("it is read", || client.get(&output).1["data"] == "first\nlate\n");
    let following = client.get(&format!("{output}?cursor=6")).1;
    assert_eq!((&following["data"], &following["ended"]), (&json!("late\n"), &json!(true)), "{following}");
    support::wait_until("it is read", || client.get(&format!("{output}?stream=stderr")).1["data"] == "err\n");
    // The record has what the run itself has written.
    assert_eq!(client.delete(&path).0, 204);
    assert_eq!(client.get(&output).1["data"], "first\n");
}

#[test]
fn a_directory_that_cannot_be_is_the_callers_to_change() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (language, directory) in [
        ("python", "/usr/not-there"),
        ("javascript", "/usr/not-there"),
        ("bash", "/usr/not-there"),
        ("python", "/etc/passwd"),
        ("javascript", "/etc/passwd"),
        ("bash", "/etc/passwd"),
    ] {
        let (status, refused) = client.post("/v1/contexts", &json!({"language": language, "cwd": directory}));
        assert_eq!((status, &refused["code"]), (400, &json!("bad_field")), "{language}: {refused}");
        let details = &refused["details"];
        assert_eq!((&details["key"], &details["value"]), (&json!("cwd"), &json!(directory)), "{refused}");
        let message = refused["message"].as_str().expect("a text");
        assert!(message.contains("/workspace") && !message.contains("interpreter"), "{refused}");
    }
    assert_eq!(client.get("/v1/contexts").1["contexts"], json!([]));
}

#[test]
fn a_context_of_a_client_that_has_left_is_not_kept() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, workspace) = client.post("/v1/workspaces", &json!({}));
    let id = workspace["workspace_id"].as_str().expect("an id");
    let used = || client.get(&format!("/v1/workspaces/{id}")).1["in_use"].as_u64().expect("a number");
    // There is no warm interpreter of this language, nor one of any language in a given workspace.
    let body = json!({"language": "javascript", "workspace": id}).to_string();
    let request = format!(
        "POST /v1/contexts HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let asking = support::raw(serving.address, request.as_bytes());
    support::wait_until("it is being made", || used() == 1);
    assert_eq!(
        client.get("/v1/contexts").1["contexts"],
        json!([]),
        "it is made already: the test shows nothing"
    );
    drop(asking);
    support::wait_until("it is gone", || used() == 0);
    assert_eq!(client.get("/v1/contexts").1["contexts"], json!([]));
    assert_eq!(client.delete(&format!("/v1/workspaces/{id}")).0, 204);
}

#[test]
fn the_wait_for_a_turn_is_counted() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({}));
    let first = json!({"code": "import time; time.sleep(1)", "wait_ms": 0});
    client.post(&format!("{at}/execute"), &first);
    executed(&client, &at, json!({"code": "1"}));
    // A run is counted only after all clients were notified of its end.
    wait_until("both are counted", || {
        let metrics = client.get("/metrics").1;
        let metrics = metrics.as_str().expect("text");
        let count = |line: &str| {
            let found = metrics.lines().find_map(|found| found.strip_prefix(line));
            found.unwrap_or_else(|| panic!("{line} in {metrics}")).trim().to_owned()
        };
        // The one that waited did so for about a second.
        count("sandtimer_queue_wait_seconds_count") == "2"
            && count("sandtimer_queue_wait_seconds_bucket{le=\"0.1\"}") == "1"
            && count("sandtimer_queue_wait_seconds_bucket{le=\"2\"}") == "2"
    });
}

#[test]
fn reset_reports_why_no_checkpoint_exists() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let at = opened(&client, "/v1/contexts", json!({}));
    let thread = "import os, threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()";
    executed(&client, &at, json!({"code": thread}));
    let answer = client.post(&format!("{at}/execute"), &json!({"code": "os._exit(2)"})).1;
    assert_eq!(answer["outcome"]["state"], "reset", "{answer}");
    let note = answer["notes"][0].as_str().unwrap_or_default();
    assert!(note.starts_with("the context starts again") && note.contains("1 other threads"), "{answer}");
    let next = client.post(&format!("{at}/execute"), &json!({"code": "1"})).1;
    assert_eq!(next["notes"], json!([]), "{next}");
}
