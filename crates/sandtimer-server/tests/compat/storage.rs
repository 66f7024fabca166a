//! Which sandbox a name has, what its files are, and what its network may be.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use super::sandboxes;
use crate::support::{ServerFixture, TestClient, wait_until};

fn exec(client: &TestClient, command: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    client.post_with("/api/execute", &json!({"command": command}), headers)
}

#[test]
fn listing_has_all_of_10001_files() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for directory in ["/workspace/d", "/tmp/d"] {
        let make = format!("mkdir {directory}; cd {directory}; seq -f f%.0f 10001 | xargs touch");
        assert_eq!(exec(&client, &make, &[]).1["exitCode"], 0);
        for recursive in [false, true] {
            let body = json!({"path": directory, "options": {"recursive": recursive}});
            let (status, listed) = client.post("/api/list-files", &body);
            assert_eq!((status, &listed["count"]), (200, &json!(10_001)), "{directory}");
        }
    }
}

#[test]
fn unreadable_directory_of_a_listing_is_named() {
    let serving = ServerFixture::start();
    let client = serving.client();
    assert_eq!(exec(&client, "mkdir -p d/shut; chmod 0 d/shut", &[]).1["exitCode"], 0);
    let body = json!({"path": "/workspace/d", "options": {"recursive": true}});
    let (status, refused) = client.post("/api/list-files", &body);
    assert_eq!((status, &refused["code"]), (403, &json!("PERMISSION_DENIED")), "{refused}");
    assert!(
        refused["message"].as_str().is_some_and(|text| text.contains("`/workspace/d/shut`")),
        "{refused}"
    );
}

#[test]
fn client_that_leaves_does_not_make_a_second_sandbox() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let body = json!({"path": "/tmp/f"}).to_string();
    let length = body.len();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(serving.address).expect("connected");
        write!(
            stream,
            "POST /api/exists HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .expect("sent");
        std::thread::sleep(std::time::Duration::from_millis(2));
        let _ = stream.shutdown(Shutdown::Both);
    }
    assert_eq!(exec(&client, "true", &[]).0, 200);
    assert_eq!(sandboxes(&client).len(), 1);
}

#[test]
fn name_of_an_unreadable_sandbox_is_kept() {
    let serving = ServerFixture::start();
    assert_eq!(exec(&serving.client(), "echo kept >f", &[]).0, 200);
    let id = sandboxes(&serving.client()).remove(0);
    let state = serving.stop();
    let record = state.path().join(format!("sandboxes/{id}/record.json"));
    let text = std::fs::read(&record).expect("a record");
    std::fs::write(&record, "no JSON").expect("written");
    let unreadable = ServerFixture::at(state, |settings| settings.host.log_error = Box::new(|_| {}));
    let (status, refused) = exec(&unreadable.client(), "cat f", &[]);
    assert_eq!((status, &refused["code"]), (500, &json!("INTERNAL_ERROR")), "{refused}");
    assert_eq!(refused["context"]["sandbox_id"], json!(id), "{refused}");
    let state = unreadable.stop();
    std::fs::write(&record, text).expect("written");
    let again = ServerFixture::at(state, |_| {});
    assert_eq!(exec(&again.client(), "cat f", &[]).1["stdout"], "kept");
}

#[test]
fn replacement_has_the_network_of_its_own_request() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let listed = [("X-Sandbox-Network", "pypi.org, github.com:443")];
    assert_eq!(exec(&client, "true", &listed).0, 200);
    let id = sandboxes(&client).remove(0);
    let (status, refused) = exec(&client, "true", &[("X-Sandbox-Network", "none")]);
    assert_eq!((status, &refused["code"]), (400, &json!("VALIDATION_FAILED")), "{refused}");
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("`pypi.org, github.com:443`"), "{message}");
    assert!(message.contains(&format!("DELETE /v1/sandboxes/{id}")), "{message}");
    assert_eq!(refused["context"]["sandbox_id"], json!(id));
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).0, 204);
    assert_eq!(exec(&client, "true", &[]).0, 200);
    let id = sandboxes(&client).remove(0);
    assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).1["network"], "none");
}

#[test]
fn headers_are_refused_by_their_own_names() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (name, value) in [
        ("X-Sandbox-Network", "None"),
        ("X-Sandbox-Network", "HOST"),
        ("X-Sandbox-Network", "host, pypi.org"),
        ("X-Sandbox-Network", "http://x/"),
        ("X-Sandbox-Network", "pypi.org\u{e9}"),
        ("X-Sandbox-Id", "caf\u{e9}"),
        ("X-Session-Id", "caf\u{e9}"),
    ] {
        let (status, refused) = exec(&client, "true", &[(name, value)]);
        assert_eq!((status, &refused["code"]), (400, &json!("VALIDATION_FAILED")), "{value}: {refused}");
        let message = refused["message"].as_str().expect("a message");
        assert!(message.starts_with(&format!("{name}: ")), "{message}");
        assert_eq!(refused["context"]["key"], json!(name));
    }
    assert_eq!(sandboxes(&client), [""; 0]);
}

#[test]
fn only_what_commands_write_is_written() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for path in ["/etc/new", "/root/new", "/workspaces"] {
        let (status, refused) = client.post("/api/write", &json!({"path": path, "content": "x"}));
        assert_eq!((status, &refused["code"]), (403, &json!("PERMISSION_DENIED")), "{path}: {refused}");
        assert!(refused["message"].as_str().is_some_and(|text| text.contains("/home/user")), "{refused}");
    }
    for path in ["f", "/tmp/f", "/var/tmp/f", "/home/user/f"] {
        assert_eq!(client.post("/api/write", &json!({"path": path, "content": "x"})).0, 200, "{path}");
    }
}

#[test]
fn port_of_any_process_is_asked_for_its_status() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let served = json!({"command": "cd /tmp; python3 -m http.server 8080"});
    assert_eq!(client.post("/api/process/start", &served).0, 200);
    let watch = |path: &str, status: u16| {
        let body =
            json!({"port": 8080, "mode": "http", "path": path, "statusMin": status, "statusMax": status});
        client.post("/api/port-watch", &body).1.to_string()
    };
    let missing = watch("/missing", 404);
    assert!(missing.contains("ready") && missing.contains("404"), "{missing}");
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch("/later", 200));
        wait_until("it is made", || {
            exec(&client, "sleep 1; echo >/tmp/later", &[("X-Session-Id", "other")]).0 == 200
        });
        let later = watching.join().expect("answered");
        assert!(later.contains("ready") && later.contains("200"), "{later}");
    });
}
