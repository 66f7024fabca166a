//! A client that sends a wrong request, sends it too slowly, or is not permitted to send it, gets
//! an error of the list and leaves no residue.
#![allow(clippy::disallowed_methods, reason = "a client of another user is started here")]

use crate::support;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::{ServerFixture, raw, read_to_end, tokens};

#[test]
fn limits_that_nothing_begins_under_are_refused() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (path, body, key, least) in [
        ("/v1/runs", json!({"command": ["true"], "disk_bytes": 1}), "disk_bytes", "65536"),
        ("/v1/sessions", json!({"disk_bytes": 4096}), "disk_bytes", "65536"),
        ("/v1/contexts", json!({"memory_bytes": "1M"}), "memory_bytes", "8M"),
        ("/v1/contexts", json!({"memory_bytes": "1M", "language": "javascript"}), "memory_bytes", "8M"),
    ] {
        let (status, refused) = client.post(path, &body);
        assert_eq!((status, &refused["code"]), (400, &json!("bad_limit")), "{refused}");
        assert_eq!(refused["details"]["key"], key, "{refused}");
        let message = refused["message"].as_str().expect("a text");
        assert!(message.contains(&format!("use `{least}` or more")), "{refused}");
    }
    let (status, made) = client.post("/v1/contexts", &json!({"memory_bytes": "8M"}));
    assert_eq!(status, 201, "{made}");
}

#[test]
fn each_bad_body_is_refused_by_name_and_nothing_is_started() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let long = format!(r#"{{"command":["echo","{}"]}}"#, "x".repeat(200_000));
    let deep = format!(r#"{{"command":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let cases: &[(&[u8], u16, &str, &str)] = &[
        (b"", 400, "bad_field", "command"),
        (b"{", 400, "bad_json", "JSON"),
        (b"[]", 400, "bad_json", "object"),
        (b"null", 400, "bad_json", "object"),
        (b"{\"command\":[\"\xff\"]}", 400, "bad_json", "JSON"),
        (deep.as_bytes(), 413, "json_too_large", "64 deep"),
        (br#"{"command":["echo"],"wall":2}"#, 400, "unknown_field", "wall"),
        (br#"{"command":["echo"],"idle_ms":2}"#, 400, "unknown_field", "idle_ms"),
        (br#"{"command":["echo"],"wall_ms":-1}"#, 400, "bad_limit", "wall_ms: `-1`"),
        (br#"{"command":["echo"],"wall_ms":true}"#, 400, "bad_limit", "wall_ms: `true`"),
        (br#"{"command":["echo"],"memory_bytes":"lots"}"#, 400, "bad_limit", "memory_bytes: `lots`"),
        (br#"{"command":["echo"],"memory_bytes":1e300}"#, 400, "bad_limit", "memory_bytes"),
        (br#"{"command":["echo"],"processes":1.5}"#, 400, "bad_limit", "processes: `1.5`"),
        (br#"{"command":["echo"],"open_files":3}"#, 400, "bad_limit", "open_files"),
        (br#"{"command":["echo"],"wait_ms":-5}"#, 400, "bad_field", "wait_ms: `-5`"),
        (br#"{"command":["echo"],"detach":"yes"}"#, 400, "bad_field", "detach: `yes`"),
        (br#"{"command":["echo"],"env":{"A=B":"x"}}"#, 400, "bad_field", "A=B"),
        (br#"{"command":["echo"],"env":{"A":1}}"#, 400, "bad_field", "env.A: `1`"),
        (br#"{"command":{"a":1}}"#, 400, "bad_field", "command"),
        (br#"{"command":["echo","a\u0000b"]}"#, 400, "nul_byte", "NUL"),
        (br#"{"code":"a\u0000b","language":"bash"}"#, 400, "nul_byte", "NUL"),
        (br#"{"command":["echo"],"env":{"A":"\u0000"}}"#, 400, "nul_byte", "NUL"),
        (long.as_bytes(), 400, "too_long", "200000"),
        (br#"{"command":["no-such-command"]}"#, 422, "command_not_found", "no-such-command"),
        (br#"{"command":["/etc/passwd"]}"#, 422, "command_not_executable", "/etc/passwd"),
        (br#"{"command":["/workspace/../etc"]}"#, 422, "", ""),
    ];
    for (body, status, code, expected) in cases {
        let (found, answer) = client.post_bytes("/v1/runs", body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]);
        assert_eq!(found, *status, "{shown}: {answer}");
        assert!(code.is_empty() || answer["code"] == *code, "{shown}: {answer}");
        assert!(
            answer["message"].as_str().is_some_and(|message| message.contains(expected)),
            "{shown}: {answer}"
        );
        let keys: Vec<&String> = answer.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["code", "details", "hint", "message", "retryable"]);
    }
    assert_eq!(client.get("/v1/runs").1["total"], 0);
}

#[test]
fn paths_queries_and_ids_are_refused_by_name() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": ["true"]}));
    client.ended(&id);
    for (path, status, code) in [
        ("/v1/run", 404, "not_found"),
        ("/v1/runs/nobody", 404, "run_not_found"),
        ("/v1/runs/nobody/output", 404, "run_not_found"),
        ("/v1/runs/nobody/events", 404, "run_not_found"),
        ("/v1/runs/%ff", 404, "not_found"),
        ("/v1/runs/%00..%2f", 404, "run_not_found"),
        ("/v1/runs?status=dead", 400, "bad_field"),
        ("/v1/runs?limit=-1", 400, "bad_field"),
        ("/v1/runs?limit=1&limit=2", 400, "bad_field"),
        ("/v1/runs?colour=red", 400, "unknown_field"),
        (&format!("/v1/runs/{id}?wait_ms=soon"), 400, "bad_field"),
        (&format!("/v1/runs/{id}/output?cursor=99999999999999999999"), 400, "bad_field"),
        (&format!("/v1/runs/{id}/output?stream=stdlog"), 400, "bad_field"),
        (&format!("/v1/runs/{id}/kill"), 405, "method_not_allowed"),
    ] {
        let (found, answer) = client.get(path);
        assert_eq!(found, status, "{path}: {answer}");
        assert_eq!(answer["code"], code, "{path}: {answer}");
    }
    for (what, body) in [
        ("signal", json!({"signal": "SIGNOPE"})),
        ("signal", json!({"signal": 65})),
        ("extend", json!({"by_ms": 0})),
    ] {
        let (status, answer) = client.post(&format!("/v1/runs/{id}/{what}"), &body);
        assert_eq!((status, &answer["code"]), (400, &json!("bad_field")), "{what}");
    }
}

#[test]
fn too_much_is_refused_before_it_is_read_and_too_slow_is_closed() {
    let serving = ServerFixture::with(|settings| settings.patience = Duration::from_millis(300));
    let head = |length: u64| {
        format!("POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
    };
    let mut stream = raw(serving.address, head(70 << 20).as_bytes());
    let mut answer = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 413");
    // A head that never ends, a body that does not come.
    assert!(!read_to_end(raw(serving.address, b"GET /healthz HTTP/1.1\r\nHost: loc")).contains("200 OK"));
    let slow = read_to_end(raw(serving.address, head(100).as_bytes()));
    assert!(slow.starts_with("HTTP/1.1 408") && slow.contains("request_timeout"), "{slow}");
    assert_eq!(serving.client().get("/healthz").0, 200);
}

#[test]
fn oversized_head_is_rejected_with_a_message() {
    let serving = ServerFixture::start();
    let lines: String = (0..100).map(|line| format!("X-{line}: y\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "y".repeat(100 << 10));
    let path = "/".repeat(20 << 10);
    for (path, lines, status, code) in [
        ("/healthz", &lines, 431, "head_too_large"),
        ("/healthz", &long, 431, "head_too_large"),
        (path.as_str(), &String::new(), 414, "uri_too_long"),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n");
        let answer = read_to_end(raw(serving.address, request.as_bytes()));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        let refused: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(refused["code"], code, "{refused}");
        assert!(refused["message"].is_string() && refused["hint"].is_string(), "{refused}");
    }
    // What is within the bounds is answered.
    let lines: String = (0..60).map(|line| format!("X-{line}: {}\r\n", "y".repeat(1000))).collect();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{lines}\r\n");
    assert!(read_to_end(raw(serving.address, request.as_bytes())).starts_with("HTTP/1.1 200"));
}

#[test]
fn unparsable_http_is_rejected_with_a_message() {
    let serving = ServerFixture::start();
    let lines: String = (0..500).map(|line| format!("X-{line}: y\r\n")).collect();
    let many = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(70_000));
    let pipelined = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nnonsense\r\n\r\n";
    for (request, status, code) in [
        ("\x16\x03\x01 nonsense\r\n\r\n", 400, "bad_http"),
        ("GET /healthz HTTP/1.1\r\nno header\r\n\r\n", 400, "bad_http"),
        (&many, 431, "head_too_large"),
        (&long, 414, "uri_too_long"),
        (pipelined, 400, "bad_http"),
    ] {
        let answer = read_to_end(raw(serving.address, request.as_bytes()));
        let (head, body) = answer.rsplit_once("\r\n\r\n").expect("a body");
        assert!(head.contains(&format!("HTTP/1.1 {status} ")), "{answer}");
        let refused: Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(refused["code"], code, "{answer}");
        assert!(refused["message"].is_string() && refused["hint"].is_string(), "{refused}");
    }
    assert_eq!(serving.client().get("/healthz").0, 200);
}

#[test]
fn a_body_that_hides_its_length_is_bounded_too() {
    let serving = ServerFixture::start();
    let mut stream = raw(
        serving.address,
        b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    let piece = [format!("{:x}\r\n", 1 << 20).as_bytes(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..65 {
        // It may have answered and closed before all is sent.
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    let answer = read_to_end(stream);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(serving.client().get("/v1/runs").1["total"], 0);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let own = format!("http://{}", serving.address);
    let code = |headers: &[(&str, &str)]| client.get_with("/v1/runs", headers).1["code"].clone();
    assert_eq!(code(&[("Host", "evil.example")]), "host_refused");
    assert_eq!(code(&[("Origin", "http://evil.example")]), "origin_refused");
    assert_eq!(code(&[("Origin", "null")]), "origin_refused");
    assert_eq!(code(&[("Origin", &own)]), Value::Null);
    assert_eq!(code(&[("Host", "localhost:1")]), Value::Null);
    assert!(read_to_end(raw(serving.address, b"GET /healthz HTTP/1.0\r\n\r\n")).starts_with("HTTP/1.0 403"));
    let line = b"GET http://evil.example/v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(read_to_end(raw(serving.address, line)).starts_with("HTTP/1.1 403"));
}

#[test]
fn what_a_token_made_is_not_there_for_another() {
    let serving =
        ServerFixture::with(|settings| settings.tokens = Some(tokens("alice a-token\nbob b-token\n")));
    let (alice, bob) = (serving.client_with("a-token"), serving.client_with("b-token"));
    let id = alice.start(json!({"command": ["sleep", "20"]}));
    for path in ["", "/output", "/events"] {
        let (status, answer) = bob.get(&format!("/v1/runs/{id}{path}"));
        assert_eq!((status, &answer["code"]), (404, &json!("run_not_found")), "{path}");
    }
    for what in ["kill", "pause", "resume", "stdin"] {
        assert_eq!(bob.post(&format!("/v1/runs/{id}/{what}"), &json!({})).0, 404, "{what}");
    }
    assert_eq!(bob.delete(&format!("/v1/runs/{id}")).0, 404);
    assert_eq!(
        (bob.get("/v1/runs").1["total"].clone(), alice.get("/v1/runs").1["total"].clone()),
        (json!(0), json!(1))
    );
    assert_eq!(alice.get(&format!("/v1/runs/{id}")).1["status"], "running");
    for (client, status) in
        [(serving.client(), 401), (serving.client_with("a-toke"), 401), (serving.client_with("a-token"), 200)]
    {
        assert_eq!(client.get("/v1/runs").0, status);
    }
    assert_eq!(serving.client().get("/healthz").0, 200);
    assert_eq!(serving.client().get("/metrics").0, 401);
}

#[test]
fn server_wide_view_requires_an_operator_token() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("alice a-token\nbob b-token\nops o-token operator\n"));
        settings.host.config = json!({
            "limits": {"wall_ms": {"value": 5000, "source": "file", "origin": "/srv/sandtimer.toml"}},
            "policy": {"X": {"value": "/srv/x", "source": "file", "origin": "/srv/sandtimer.toml"}},
            "server": {"state_dir": {"value": "/srv/state", "source": "default", "origin": null}},
        });
        settings.host.facts = Box::new(|| {
            json!({"tier": "T3", "kill": "K3", "deadline_layers": [], "measured": {"spawn_ms": 1},
                "layers": [{"layer": "cgroup", "status": "ok", "evidence": "/sys/fs/cgroup/srv", "consequence": "", "remedy": ""}]})
        });
    });
    let [alice, bob, ops] = ["a-token", "b-token", "o-token"].map(|token| serving.client_with(token));
    bob.run(&json!({"command": ["true"]}));
    bob.post("/v1/jobs", &json!({"command": ["true"], "not_before_ms": 9_000_000_000_000_u64}));
    alice.run(&json!({"command": ["true"]}));
    let text = |client: &support::TestClient, path: &str| match client.get(path) {
        (200, Value::String(text)) => text,
        (200, value) => value.to_string(),
        other => panic!("{path}: {other:?}"),
    };
    let metrics = text(&alice, "/metrics");
    assert!(metrics.contains("sandtimer_runs_kept 1\n") && !metrics.contains("sandtimer_jobs{"), "{metrics}");
    assert!(!metrics.contains("sandtimer_runs_total"), "{metrics}");
    let metrics = text(&ops, "/metrics");
    assert!(metrics.contains("sandtimer_runs_kept 2\n"), "{metrics}");
    assert!(metrics.contains("sandtimer_jobs{state=\"scheduled\"} 1\n"), "{metrics}");
    for path in ["/v1/config", "/v1/host"] {
        let (shown, whole) = (text(&alice, path), text(&ops, path));
        assert!(!shown.contains("/srv") && whole.contains("/srv"), "{path}: {shown} {whole}");
    }
    assert_eq!(alice.get("/v1/config").1["limits"]["wall_ms"]["value"], 5000);
    assert_eq!(alice.get("/v1/host").1["tier"], "T3");
}

#[test]
fn without_tokens_only_the_servers_own_user_is_answered() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become another user.
        return;
    }
    let serving = ServerFixture::start();
    let port = serving.address.port();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /v1/runs HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    let ask = |uid: u32| {
        let output =
            Command::new("bash").args(["-c", &script]).uid(uid).gid(uid).output().expect("it starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let refused = ask(65_534);
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("peer_refused"), "{refused}");
    let answered = ask(0);
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
}
