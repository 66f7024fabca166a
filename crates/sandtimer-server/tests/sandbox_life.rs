//! The life of sandboxes over HTTP: limits of the whole, pauses, extensions, and what a restart
//! keeps of them.
#![allow(clippy::disallowed_methods)] // tests wait for time to pass

use std::time::Duration;

use crate::support::{ServerFixture, TestClient, raw, tokens, wait_until};
use serde_json::{Value, json};

fn made(client: &TestClient, body: &Value) -> String {
    let (status, sandbox) = client.post("/v1/sandboxes", body);
    assert_eq!(status, 201, "{sandbox}");
    sandbox["sandbox_id"].as_str().expect("an id").to_owned()
}

fn path(id: &str) -> String {
    format!("/v1/sandboxes/{id}")
}

fn shown(client: &TestClient, id: &str) -> Value {
    let (status, sandbox) = client.get(&path(id));
    assert_eq!(status, 200, "{sandbox}");
    sandbox
}

fn exec(client: &TestClient, id: &str, line: &str) -> Value {
    let (status, run) =
        client.post(&format!("{}/exec", path(id)), &json!({"command": line, "wall_ms": 25_000}));
    assert_eq!((status, &run["status"]), (200, &json!("ended")), "{run}");
    run["outcome"].clone()
}

#[track_caller]
fn changed(client: &TestClient, id: &str, action: &str, body: &Value) -> Value {
    let (status, sandbox) = client.post(&format!("{}/{action}", path(id)), body);
    assert_eq!((status, &sandbox["sandbox_id"]), (200, &json!(id)), "{sandbox}");
    sandbox
}

/// The code of an error, which has a hint.
#[track_caller]
fn refused(answer: (u16, Value)) -> (u16, String) {
    let (status, error) = answer;
    assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{error}");
    (status, error["code"].as_str().expect("a code").to_owned())
}

/// The error of a sandbox that has ended at a limit.
#[track_caller]
fn ended(client: &TestClient, id: &str) -> Value {
    wait_until("it ends at a limit", || client.get("/v1/sandboxes").1.to_string().find(id).is_none());
    let (status, error) = client.get(&path(id));
    assert_eq!((status, &error["code"]), (410, &json!("sandbox_ended")), "{error}");
    error
}

fn now_ms() -> u64 {
    sandtimer_os::clock::calendar_milliseconds()
}

#[test]
fn wall_limit_ends_all_and_the_id_says_so() {
    let began = now_ms();
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({"wall_ms": 800}));
    let endless = made(&client, &json!({}));
    let session = client.post("/v1/sessions", &json!({"sandbox": id})).1["context_id"].clone();
    let outcome = exec(&client, &id, "sleep 60");
    assert_eq!(
        (&outcome["ending"], &outcome["tree"]["survivors"]),
        (&json!("timeout"), &json!(0)),
        "{outcome}"
    );
    let verdict = &outcome["verdict"];
    assert!(
        verdict["kind"] == "wall" && verdict["scope"].to_string().contains(&format!("sandbox-{id}")),
        "{verdict}"
    );

    let error = ended(&client, &id);
    let message = error["message"].as_str().expect("text");
    assert!(message.contains("wall-clock limit of 800ms") && message.contains(&id), "{error}");
    assert_eq!((&error["details"]["limit"], &error["details"]["limit_ms"]), (&json!("wall"), &json!(800)));
    let at = error["details"]["ended_at_ms"].as_u64().expect("a time");
    assert!((began + 800..=now_ms()).contains(&at), "{error}");
    let attempts = [
        client.post(&format!("{}/exec", path(&id)), &json!({"command": "true"})),
        client.post("/v1/runs", &json!({"command": "true", "sandbox": id})),
        client.post("/v1/contexts", &json!({"sandbox": id})),
        client.post(&format!("{}/pause", path(&id)), &json!({})),
        client.post(&format!("{}/extend", path(&id)), &json!({"by_ms": 60_000})),
        client.post(&format!("{}/snapshot", path(&id)), &json!({})),
        client.get(&format!("/v1/files/stat?sandbox={id}&path=/workspace")),
        client.get(&format!("{}/ports", path(&id))),
    ];
    for attempt in attempts {
        assert_eq!(refused(attempt), (410, "sandbox_ended".to_owned()));
    }
    let session = format!("/v1/sessions/{}", session.as_str().expect("an id"));
    wait_until("its session is closed", || client.get(&session).0 == 410);
    let (status, gone) = client.get(&session);
    assert_eq!((status, &gone["code"]), (410, &json!("context_ended")), "{gone}");
    assert!(gone["message"].as_str().is_some_and(|text| text.contains("reached a limit")), "{gone}");
    assert_eq!(exec(&client, &endless, "echo there")["stdout"], "there\n", "the control has no limit");
    // After the owner's DELETE the id is forgotten.
    assert_eq!(client.delete(&path(&id)).0, 204);
    assert_eq!(refused(client.get(&path(&id))), (404, "sandbox_not_found".to_owned()));
    assert_eq!(refused(client.delete(&path(&id))), (404, "sandbox_not_found".to_owned()));
}

#[test]
fn idle_limit_counts_from_the_last_use() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let [used, unused] = [(); 2].map(|()| made(&client, &json!({"idle_ms": 1_000})));
    let run = client.start(json!({"command": "sleep 2.5", "sandbox": used, "wall_ms": 20_000}));
    let error = ended(&client, &unused);
    assert_eq!((&error["details"]["limit"], &error["details"]["limit_ms"]), (&json!("idle"), &json!(1_000)));
    assert!(error["message"].as_str().is_some_and(|text| text.contains("idle limit of 1s")), "{error}");
    let during = shown(&client, &used);
    assert_eq!(
        (&during["runs"], &during["idle_left_ms"]),
        (&json!(1), &json!(1_000)),
        "a run is use: {during}"
    );
    assert_eq!(client.ended(&run)["outcome"]["ending"], "exited", "the limit ends no run");
    assert_eq!(ended(&client, &used)["details"]["limit"], "idle");
}

#[test]
fn pause_stops_runs_and_the_clocks_of_both_limits() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let limits = json!({"wall_ms": 4_000, "idle_ms": 1_500});
    let [busy, unused] = [(); 2].map(|()| made(&client, &limits));
    let line = "while :; do echo x; sleep 0.01; done";
    let run = client.start(json!({"command": line, "sandbox": busy, "wall_ms": 3_000}));
    let printed = || {
        let (status, output) = client.get(&format!("/v1/runs/{run}/output"));
        assert_eq!(status, 200, "{output}");
        output["next_cursor"].to_string()
    };
    let first = printed();
    wait_until("it has begun", || printed() != first);
    for id in [&busy, &unused] {
        assert_eq!(changed(&client, id, "pause", &json!({}))["paused"], true);
    }
    let before = [shown(&client, &busy), shown(&client, &unused)];
    let (control, started) = (made(&client, &json!({"idle_ms": 1_500})), now_ms());
    assert_eq!(ended(&client, &control)["details"]["limit"], "idle", "the control is not paused");
    let output = printed();
    // Longer than any limit here.
    std::thread::sleep(Duration::from_millis(4_500_u64.saturating_sub(now_ms() - started)));
    assert_eq!(printed(), output, "its processes stand still");
    for (before, id) in before.iter().zip([&busy, &unused]) {
        let after = shown(&client, id);
        let left = |sandbox: &Value| [sandbox["wall_left_ms"].clone(), sandbox["idle_left_ms"].clone()];
        assert_eq!(left(before), left(&after), "{after}");
    }
    let listed = client.get(&format!("/v1/runs?sandbox={busy}")).1["runs"][0].clone();
    assert_eq!((&listed["run_id"], &listed["paused"]), (&json!(run), &json!(true)), "{listed}");

    for id in [&busy, &unused] {
        assert_eq!(changed(&client, id, "resume", &json!({}))["paused"], false);
    }
    wait_until("it continues", || printed() != output);
    let outcome = client.ended(&run)["outcome"].clone();
    let paused = outcome["verdict"]["spent"]["paused_ms"].as_u64();
    assert!(outcome["ending"] == "timeout" && paused.is_some_and(|paused| paused >= 4_000), "{outcome}");
    assert_eq!(ended(&client, &unused)["details"]["limit"], "idle", "its clock runs again");
    ended(&client, &busy);
}

#[test]
fn paused_sandbox_takes_nothing_but_reads() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    let session = client.post("/v1/sessions", &json!({"sandbox": id})).1["context_id"].clone();
    let execute = format!("/v1/sessions/{}/execute", session.as_str().expect("an id"));
    let serve = ["python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"];
    client.start(json!({"command": serve, "sandbox": id, "wall_ms": 60_000}));
    let ports = format!("{}/ports", path(&id));
    assert_eq!(client.get(&format!("{ports}?port=8000&wait_ms=20000")).1["listening"], true);
    let files = format!("/v1/files?sandbox={id}&path=/workspace/file");
    let attempts = || {
        [
            client.post(&format!("{}/exec", path(&id)), &json!({"command": "true", "wall_ms": 20_000})),
            client.post("/v1/runs", &json!({"command": "true", "sandbox": id, "wall_ms": 20_000})),
            client.post("/v1/contexts", &json!({"sandbox": id})),
            client.post("/v1/sessions", &json!({"sandbox": id})),
            client.post(&execute, &json!({"code": "true", "wall_ms": 20_000})),
            client.put(&files, b"text"),
            client.get(&format!("{ports}/8000/file")),
        ]
    };
    for (status, answer) in attempts() {
        assert!(status < 300, "the control is not paused: {answer}");
    }
    changed(&client, &id, "pause", &json!({}));
    for attempt in attempts() {
        assert_eq!(refused(attempt), (409, "sandbox_paused".to_owned()));
    }
    assert_eq!(client.get(&files), (200, json!("text")), "files can be read");
    assert_eq!(client.get(&ports).1["ports"][0]["port"], 8000);
    assert_eq!(
        refused(client.post(&format!("{}/pause", path(&id)), &json!({}))),
        (409, "sandbox_paused".to_owned())
    );
    changed(&client, &id, "resume", &json!({}));
    let again = client.post(&format!("{}/resume", path(&id)), &json!({}));
    assert_eq!(refused(again), (409, "wrong_state".to_owned()));
    for (status, answer) in attempts() {
        assert!(status < 300, "{answer}");
    }
    // A paused sandbox is deleted with its stopped processes.
    changed(&client, &id, "pause", &json!({}));
    assert_eq!(client.delete(&path(&id)).0, 204);
}

#[test]
fn extension_moves_the_wall_and_restarts_idle() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let [extended, control] = [(); 2].map(|()| made(&client, &json!({"wall_ms": 1_500, "idle_ms": 60_000})));
    let line = "sleep 2.5; echo survived";
    let [long, short] = [&extended, &control]
        .map(|id| client.start(json!({"command": line, "sandbox": id, "wall_ms": 20_000})));
    let answer = changed(&client, &extended, "extend", &json!({"by_ms": 60_000}));
    assert_eq!((&answer["wall_ms"], &answer["idle_ms"]), (&json!(61_500), &json!(60_000)), "{answer}");
    let left = answer["wall_left_ms"].as_u64().expect("a number");
    assert!((40_000..=61_500).contains(&left), "{answer}");
    assert_eq!(client.ended(&short)["outcome"]["ending"], "timeout");
    assert_eq!(client.ended(&long)["outcome"]["stdout"], "survived\n");
    ended(&client, &control);
    std::thread::sleep(Duration::from_millis(300));
    assert!(shown(&client, &extended)["idle_left_ms"].as_u64().is_some_and(|left| left < 60_000));
    let unlimited = made(&client, &json!({}));
    let answer = changed(&client, &unlimited, "extend", &json!({"by_ms": 1_000}));
    assert_eq!((&answer["wall_ms"], &answer["wall_left_ms"]), (&Value::Null, &Value::Null), "{answer}");
}

#[test]
fn bad_limits_and_actions_change_nothing() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("a secret-of-a-0123456789\nb secret-of-b-0123456789\n"))
    });
    let [client, foreign] =
        ["secret-of-a-0123456789", "secret-of-b-0123456789"].map(|token| serving.client_with(token));
    for key in ["wall_ms", "idle_ms"] {
        for value in [json!(-1), json!("soon"), json!(true), json!([])] {
            let (status, error) = client.post("/v1/sandboxes", &json!({key: value}));
            assert_eq!((status, &error["code"]), (400, &json!("bad_limit")), "{key} {value}: {error}");
            assert!(error["message"].as_str().is_some_and(|text| text.contains(key)), "{error}");
        }
    }
    for key in ["cpu_ms", "turns", "lifetime_ms"] {
        assert_eq!(client.post("/v1/sandboxes", &json!({key: 1_000})).0, 400, "{key}");
    }
    assert_eq!(client.get("/v1/sandboxes").1["sandboxes"], json!([]), "nothing is left of what failed");

    // Zero is no limit, as everywhere.
    let id = made(&client, &json!({"wall_ms": 0, "idle_ms": "unlimited"}));
    let fields = ["wall_ms", "wall_left_ms", "idle_ms", "idle_left_ms"];
    assert!(fields.iter().all(|field| shown(&client, &id)[field].is_null()), "{}", shown(&client, &id));
    let id = made(&client, &json!({"wall_ms": "1h"}));
    let extend = format!("{}/extend", path(&id));
    for body in
        [json!({}), json!({"by_ms": 0}), json!({"by_ms": -5}), json!({"by_ms": "5"}), json!({"by_ms": null})]
    {
        let (status, error) = client.post(&extend, &body);
        assert_eq!((status, &error["code"]), (400, &json!("bad_field")), "{body}: {error}");
        assert_eq!(error["details"]["key"], "by_ms", "{error}");
    }
    assert_eq!(refused(client.post(&extend, &json!({"by_ms": 1_000, "to_ms": 5}))).0, 400);
    for action in ["pause", "resume"] {
        let odd = client.post(&format!("{}/{action}", path(&id)), &json!({"for_ms": 5}));
        assert_eq!(refused(odd).0, 400);
    }
    let all = |client: &TestClient, id: &str| {
        ["pause", "resume", "extend"].map(|action| {
            let body = if action == "extend" { json!({"by_ms": 1_000}) } else { json!({}) };
            refused(client.post(&format!("{}/{action}", path(id)), &body))
        })
    };
    let absent = (404, "sandbox_not_found".to_owned());
    assert_eq!(all(&foreign, &id), [(); 3].map(|()| absent.clone()), "it is not this token's");
    let sandbox = shown(&client, &id);
    assert_eq!((&sandbox["wall_ms"], &sandbox["paused"]), (&json!(3_600_000), &json!(false)), "{sandbox}");
    assert_eq!(client.delete(&path(&id)).0, 204);
    assert_eq!(all(&client, &id), [(); 3].map(|()| absent.clone()), "it was deleted");
    // An ended sandbox is absent for other owners.
    let short = made(&client, &json!({"wall_ms": 200}));
    ended(&client, &short);
    assert_eq!(all(&client, &short), [(); 3].map(|()| (410, "sandbox_ended".to_owned())));
    assert_eq!(all(&foreign, &short), [(); 3].map(|()| absent.clone()));
}

#[test]
fn restart_keeps_limits_pause_and_reason() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let paused = made(&client, &json!({"wall_ms": "1h", "idle_ms": "2h", "network": ["pypi.org"]}));
    changed(&client, &paused, "extend", &json!({"by_ms": 60_000}));
    let run = client.start(json!({"command": "echo x; sleep 60", "sandbox": paused, "wall_ms": 60_000}));
    assert_eq!(exec(&client, &paused, "echo kept >file")["exit_code"], 0);
    let left = changed(&client, &paused, "pause", &json!({}))["wall_left_ms"].as_u64().expect("a number");
    let reached = made(&client, &json!({"wall_ms": 200}));
    ended(&client, &reached);
    // Its clock runs while there is no server.
    let running = made(&client, &json!({"wall_ms": 1_500}));
    let state = serving.stop();
    std::thread::sleep(Duration::from_millis(1_600));

    let serving = ServerFixture::at(state, |_| {});
    let client = serving.client();
    let sandbox = shown(&client, &paused);
    assert_eq!((&sandbox["paused"], &sandbox["runs"]), (&json!(true), &json!(0)), "{sandbox}");
    assert_eq!(
        (&sandbox["wall_ms"], &sandbox["idle_ms"]),
        (&json!(3_660_000), &json!(7_200_000)),
        "{sandbox}"
    );
    assert_eq!(sandbox["network"], json!(["pypi.org"]));
    let now_left = sandbox["wall_left_ms"].as_u64().expect("a number");
    assert!(now_left.abs_diff(left) < 100, "its clock stood still: {left} {now_left}");
    let start = client.post(&format!("{}/exec", path(&paused)), &json!({"command": "true"}));
    assert_eq!(refused(start), (409, "sandbox_paused".to_owned()));
    assert_ne!(
        client.get(&format!("/v1/runs/{run}")).1["status"],
        "running",
        "processes do not outlive the server"
    );
    changed(&client, &paused, "resume", &json!({}));
    assert_eq!(exec(&client, &paused, "cat file")["stdout"], "kept\n");
    assert_eq!(client.get(&path(&reached)).1["details"]["limit"], "wall", "the reason is kept");
    assert_eq!(ended(&client, &running)["details"]["limit"], "wall");
}

#[test]
fn pause_right_after_a_cell_loses_no_variables() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let execute = |kind: &str, id: &str, code: &str| {
        let cell = json!({"code": code, "wall_ms": 20_000});
        let (status, answer) = client.post(&format!("/v1/{kind}/{id}/execute"), &cell);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let open = |kind: &str, limits: Value| {
        let sandbox = made(&client, &json!({}));
        let mut body = limits;
        body["sandbox"] = sandbox.as_str().into();
        let (status, context) = client.post(&format!("/v1/{kind}"), &body);
        assert_eq!(status, 201, "{context}");
        (sandbox, context["context_id"].as_str().expect("an id").to_owned())
    };
    // The more memory, the longer the checkpoint takes that follows the answer.
    let python = open("contexts", json!({"memory_bytes": 3_u64 << 30}));
    execute("contexts", &python.1, "x = 42; held = bytearray(b'x') * (700 << 20)");
    changed(&client, &python.0, "pause", &json!({}));
    let shells = [(); 4].map(|()| open("sessions", json!({})));
    for (sandbox, id) in &shells {
        execute("sessions", id, "x=42");
        changed(&client, sandbox, "pause", &json!({}));
    }
    // Longer than an interpreter may take to make a checkpoint.
    std::thread::sleep(Duration::from_secs(11));
    for (sandbox, _) in shells.iter().chain([&python]) {
        changed(&client, sandbox, "resume", &json!({}));
    }
    for (_, id) in &shells {
        let answer = execute("sessions", id, "echo $x");
        assert!(answer.to_string().contains("42"), "{answer}");
    }
    let answer = execute("contexts", &python.1, "print(x, len(held))");
    assert!(answer.to_string().contains("42 734003200"), "{answer}");
}

#[test]
fn verdicts_quote_the_limit_that_fired_after_an_extension() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let [moved, own] = [(); 2].map(|()| made(&client, &json!({"wall_ms": 2_000})));
    let run = |id: &str, wall_ms: u64| {
        client.start(json!({"command": "sleep 60", "sandbox": id, "wall_ms": wall_ms}))
    };
    let (of_sandbox, of_run) = (run(&moved, 60_000), run(&own, 3_000));
    changed(&client, &moved, "extend", &json!({"by_ms": 1_500}));
    changed(&client, &own, "extend", &json!({"by_ms": 60_000}));

    let verdict = client.ended(&of_sandbox)["outcome"]["verdict"].clone();
    assert_eq!((&verdict["limit_ms"], &verdict["extended_ms"]), (&json!(3_500), &json!(1_500)), "{verdict}");
    assert_eq!(verdict["scope"], format!("sandbox-{moved}"), "{verdict}");
    let verdict = client.ended(&of_run)["outcome"]["verdict"].clone();
    assert_eq!((&verdict["limit_ms"], &verdict["extended_ms"]), (&json!(3_000), &json!(null)), "{verdict}");
    assert_eq!((&verdict["layer"], &verdict["source"]), (&json!("run"), &json!("call")), "{verdict}");
}

#[test]
fn deletion_whose_client_leaves_is_whole_or_not_begun() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let mut deleted = 0;
    for milliseconds in [1, 2, 4, 8, 16, 32, 64, 500] {
        let id = made(&client, &json!({}));
        let (status, session) = client.post("/v1/sessions", &json!({"sandbox": id}));
        assert_eq!(status, 201, "{session}");
        let request = format!("DELETE {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path(&id));
        let stream = raw(serving.address, request.as_bytes());
        std::thread::sleep(Duration::from_millis(milliseconds));
        drop(stream);
        std::thread::sleep(Duration::from_millis(500));
        let is_gone = || client.get(&path(&id)).0 == 404;
        let line = json!({"command": "true", "wall_ms": 20_000});
        wait_until("it is gone, or takes runs", || {
            is_gone() || client.post(&format!("{}/exec", path(&id)), &line).0 == 200
        });
        let session = format!("/v1/sessions/{}", session["context_id"].as_str().expect("an id"));
        assert_eq!(client.get(&session).0 == 200, !is_gone(), "its session goes with it");
        deleted += u32::from(is_gone());
    }
    assert!(deleted > 0, "the control: one whose client waits is deleted");
}

#[test]
fn sandbox_that_ends_late_delays_no_other() {
    let serving = ServerFixture::start();
    let (client, opener) = (serving.client(), serving.client());
    let stuck = [(); 3].map(|()| made(&client, &json!({"wall_ms": 3_000})));
    let shell = b"#!/bin/sh\nexec sleep 25\n";
    for id in &stuck {
        let (status, written) =
            client.put(&format!("/v1/files?sandbox={id}&path=/workspace/bash&mode=755"), shell);
        assert!(status < 300, "{written}");
    }
    std::thread::scope(|threads| {
        for id in &stuck {
            let opener = &opener;
            let body = json!({"sandbox": id, "env": {"PATH": "/workspace"}});
            // Its shell never answers; how that is refused is no part of this test.
            threads.spawn(move || opener.post("/v1/sessions", &body));
        }
        let other = made(&client, &json!({"wall_ms": 4_000}));
        let began = now_ms();
        ended(&client, &other);
        let took = now_ms() - began;
        assert!(took < 10_000, "it ended after {took} ms");
        // They end too, once nothing opens a session in them.
        stuck.iter().for_each(|id| drop(ended(&client, id)));
    });
}
