//! LibreChat's code API: the requests of its agents and its file services, against a real server
//! and real programs.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens};

const KEY: &str = "first-secret-token-1234";

fn run(client: &TestClient, asked: &Value) -> Value {
    let (status, answer) = client.post("/librechat/exec", asked);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn is_id(value: &Value) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    value.as_str().is_some_and(|id| id.len() == 21 && id.bytes().all(is_letter))
}

/// The upload of a file, as form-data sends it.
fn upload(serving: &ServerFixture, name: &str, content: &str) -> Value {
    let boundary = "--------------------------515890814546601021194782";
    let body = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"entity_id\"\r\n\r\nagent\r\n--{boundary}\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: text/csv\r\n\r\n{content}\r\n\
         --{boundary}--\r\n"
    );
    let head = format!(
        "POST /librechat/upload HTTP/1.1\r\nHost: {}\r\nContent-Type: multipart/form-data; boundary={boundary}\r\n\
         X-API-Key: {KEY}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        serving.address,
        body.len()
    );
    let answer = support::read_to_end(support::raw(serving.address, head.as_bytes()));
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
    serde_json::from_str(body).unwrap_or_else(|_| Value::String(answer.clone()))
}

#[test]
fn files_go_from_session_to_session() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let code = "open('/mnt/data/a.json', 'w').write('{\"v\": 1}')\nimport os; os.makedirs('d'); open('d/b.txt', 'w').write('b')\nprint('made')";
    let made = run(&client, &json!({"lang": "py", "code": code}));
    assert_eq!((&made["stdout"], &made["stderr"]), (&json!("made\n"), &json!("")), "{made}");
    let session = made["session_id"].as_str().expect("an id");
    let names: Vec<&Value> =
        made["files"].as_array().expect("files").iter().map(|file| &file["name"]).collect();
    assert_eq!(names, ["a.json", "d/b.txt"]);
    assert!(is_id(&made["session_id"]) && is_id(&made["files"][0]["id"]), "{made}");
    let id = made["files"][0]["id"].as_str().expect("an id");
    let (_, full) = client.get(&format!("/librechat/files/{session}?detail=full"));
    assert_eq!(full[0]["name"], format!("{session}/{id}.json"));
    assert_eq!(full[0]["metadata"]["original-filename"], "a.json");
    let (_, summary) = client.get(&format!("/librechat/files/{session}?detail=summary"));
    assert!(summary[0]["lastModified"].is_string(), "{summary}");
    let (_, normalized) = client.get(&format!("/librechat/files/{session}?detail=normalized"));
    assert_eq!(normalized, made["files"]);
    let (status, bytes) = client.bytes(&format!("/librechat/download/{session}/{id}"), &[]);
    assert_eq!((status, &bytes[..]), (200, &b"{\"v\": 1}"[..]));
    // Only what is changed is a file of the next session.
    let code = "print(open('/mnt/data/a.json').read())\nopen('a.json', 'a').write('\\n')";
    let changed = run(&client, &json!({"lang": "py", "code": code, "files": made["files"]}));
    assert_eq!(changed["stdout"], "{\"v\": 1}\n", "{changed}");
    assert_eq!(changed["files"].as_array().map(Vec::len), Some(1), "{changed}");
    assert_ne!(changed["session_id"], made["session_id"]);
    assert_eq!(changed["files"][0]["modified_from"], json!({"id": id, "session_id": session}));
    let failed =
        run(&client, &json!({"lang": "bash", "code": "echo x > x; echo \"$1\"; exit 1", "args": ["a"]}));
    assert_eq!((&failed["files"], &failed["stdout"]), (&json!([]), &json!("a\n")), "{failed}");
    let failed = failed["session_id"].as_str().expect("an id");
    assert_eq!(client.get(&format!("/librechat/files/{failed}")).0, 404);
}

#[test]
fn warm_interpreters_see_the_files_too() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let is_warm = || {
        let run = client.run(&json!({"code": "1", "language": "python"}));
        run["outcome"]["path"] != "exec"
    };
    support::wait_until("a program is given to a warm interpreter", is_warm);
    let code = "open('/mnt/data/a', 'w').write('1'); print('made')";
    let made = run(&client, &json!({"lang": "py", "code": code}));
    assert_eq!((&made["stdout"], &made["files"][0]["name"]), (&json!("made\n"), &json!("a")), "{made}");
    let id = client.get("/v1/runs?status=ended").1["runs"][0]["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(client.ended(&id)["outcome"]["path"], "cold");
    // Other runs have no such link.
    let other =
        client.run(&json!({"code": "import os; print(os.path.exists('/mnt/data'))", "language": "python"}));
    assert_eq!(other["outcome"]["stdout"], "False\n");
}

#[test]
fn programs_in_other_languages_leave_no_traces() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (language, code) in [
        ("js", "require('fs').writeFileSync('/mnt/data/o.txt', 'o'); console.log('hello')"),
        ("ts", "const word: string = 'hello'; console.log(word)"),
        ("c", "#include <stdio.h>\nint main() { puts(\"hello\"); }"),
    ] {
        let (status, answer) = client.post("/librechat/exec", &json!({"lang": language, "code": code}));
        if status == 400 {
            assert_eq!(answer["error"], format!("lang: this server does not have `{language}`"));
            continue;
        }
        assert_eq!(answer["stdout"], "hello\n", "{answer}");
        let files = answer["files"].as_array().map_or(0, Vec::len);
        assert_eq!(files, usize::from(language == "js"), "{answer}");
    }
    let wrong = run(&client, &json!({"lang": "ts", "code": "const x: = 1"}));
    assert!(wrong["stderr"].as_str().is_some_and(|text| text.starts_with("main.ts:1:")), "{wrong}");
}

#[test]
fn uploads_are_available_to_programs() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens(&format!("one {KEY}\ntwo another-secret-token-1\n")))
    });
    let uploaded = upload(&serving, "table.csv", "a,b\r\n1,2");
    assert_eq!(
        (&uploaded["message"], &uploaded["files"][0]["filename"]),
        (&json!("success"), &json!("table.csv")),
        "{uploaded}"
    );
    let (session, id) = (&uploaded["session_id"], &uploaded["files"][0]["fileId"]);
    assert!(is_id(session) && is_id(id), "{uploaded}");
    let client = serving.client_with(KEY);
    let file = json!({"id": id, "session_id": session, "name": "table.csv"});
    let read = json!({"lang": "bash", "code": "cat table.csv", "files": [file]});
    assert_eq!(run(&client, &read)["stdout"], "a,b\r\n1,2");
    // Of another token it is not there.
    let (status, answer) = serving.client_with("another-secret-token-1").post("/librechat/exec", &read);
    assert_eq!((status, &answer["error"]), (404, &json!("Session not found")));
    let (session, id) = (session.as_str().expect("an id"), id.as_str().expect("an id"));
    let path = format!("/librechat/download/{session}/{id}");
    assert_eq!(serving.client_with("another-secret-token-1").bytes(&path, &[]).0, 404);
    assert_eq!(serving.client().bytes(&path, &[("X-API-Key", KEY)]), (200, b"a,b\r\n1,2".to_vec()));
    assert_eq!(upload(&serving, "..", "")["error"], "the file name `..` cannot be used");
}

#[test]
fn wrong_requests_are_refused() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(&format!("one {KEY}\n"))));
    let (status, answer) = serving.client().post("/librechat/exec", &json!({"lang": "py", "code": "1"}));
    assert!(status == 401 && answer["error"].is_string(), "{answer}");
    let client = serving.client_with(KEY);
    for (asked, status, error) in [
        (json!({"code": "1"}), 400, "lang is required as a string"),
        (json!({"lang": "py"}), 400, "code is required as a string"),
        (json!({"lang": "f90", "code": "1"}), 400, "lang: this server does not have `f90`"),
        (json!({"lang": "py", "code": "1", "files": [{}]}), 400, "files: each needs `id` and `session_id`"),
        (
            json!({"lang": "py", "code": "1", "files": [{"id": "x", "session_id": "code-0"}]}),
            404,
            "Session not found",
        ),
        (json!({"lang": "py", "code": "1", "args": [1]}), 400, "args: it is not a list of strings"),
    ] {
        let (found, answer) = client.post("/librechat/exec", &asked);
        assert_eq!((found, &answer["error"]), (status, &json!(error)), "{asked}");
    }
    let (status, answer) = client.post_bytes("/librechat/upload", b"no form");
    assert!(
        status == 400 && answer["error"].as_str().is_some_and(|text| text.contains("multipart")),
        "{answer}"
    );
    assert_eq!(client.get("/librechat/files/unknown").0, 404);
    assert_eq!(client.get("/librechat/download/unknown/unknown").0, 404);
}

#[test]
fn files_of_a_program_that_a_limit_ends_are_kept() {
    let serving = ServerFixture::with(|settings| {
        settings.maxima = sandtimer::Limits::new().wall(std::time::Duration::from_secs(2));
    });
    let client = serving.client();
    let late = run(&client, &json!({"lang": "bash", "code": "echo partial > result; sleep 60"}));
    assert_eq!(late["files"][0]["name"], "result", "{late}");
    let (session, id) = (&late["session_id"], &late["files"][0]["id"]);
    let (session, id) = (session.as_str().expect("an id"), id.as_str().expect("an id"));
    let found = client.bytes(&format!("/librechat/download/{session}/{id}"), &[]);
    assert_eq!(found, (200, b"partial\n".to_vec()));
}

#[test]
fn session_of_a_client_that_left_is_removed() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let body = json!({"lang": "bash", "code": "touch left; sleep 60"}).to_string();
    let request = format!(
        "POST /librechat/exec HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        serving.address,
        body.len()
    );
    let connection = support::raw(serving.address, request.as_bytes());
    let sessions = || client.get("/v1/workspaces").1["workspaces"].as_array().map_or(0, Vec::len);
    support::wait_until("its session is made", || sessions() == 1);
    drop(connection);
    support::wait_until("its session is removed", || sessions() == 0);
}

#[test]
fn sessions_expire() {
    let serving = ServerFixture::start();
    let made = run(&serving.client(), &json!({"lang": "bash", "code": "echo 1 > a"}));
    let path = format!("/librechat/files/{}", made["session_id"].as_str().expect("an id"));
    assert_eq!(serving.client().get(&path).0, 200);
    let state = serving.stop();
    let kept = state.path().join("workspaces/kept");
    let record = std::fs::read_dir(&kept).expect("workspaces").map(|entry| entry.expect("an entry").path());
    let record = record.into_iter().find(|path| path.extension().is_some()).expect("a record");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&record).expect("read")).expect("JSON");
    value["created_at_ms"] = json!(value["created_at_ms"].as_u64().expect("a time") - 25 * 3_600_000);
    std::fs::write(&record, value.to_string()).expect("written");
    let again = ServerFixture::at(state, |_| {});
    assert_eq!(again.client().get(&path).0, 404);
    support::wait_until("it is removed", || !record.exists());
}

#[test]
fn input_files_are_limited() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let file = json!({"id": "x", "session_id": "code-0"});
    let asked = json!({"lang": "py", "code": "1", "files": vec![file; 201]});
    let (status, answer) = client.post("/librechat/exec", &asked);
    let error = "files: it has 201 files; at most 200 are handed on";
    assert_eq!((status, &answer["error"]), (400, &json!(error)));
}
