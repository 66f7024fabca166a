//! Contexts and sessions in sandboxes: live interpreters whose files are the sandbox's.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, wait_until};

fn sandbox(client: &TestClient) -> String {
    let (status, sandbox) = client.post("/v1/sandboxes", &json!({}));
    assert_eq!(status, 201, "{sandbox}");
    sandbox["sandbox_id"].as_str().expect("an id").to_owned()
}

fn opened(client: &TestClient, path: &str, body: &Value) -> String {
    let (status, context) = client.post(path, body);
    assert_eq!(status, 201, "{context}");
    assert_eq!(context["sandbox"], body["sandbox"], "{context}");
    format!("{path}/{}", context["context_id"].as_str().expect("an id"))
}

fn executed(client: &TestClient, at: &str, mut body: Value) -> Value {
    if body.get("wall_ms").is_none() {
        body["wall_ms"] = 20_000.into();
    }
    let (status, answer) = client.post(&format!("{at}/execute"), &body);
    assert_eq!((status, &answer["status"]), (200, &json!("ended")), "{answer}");
    answer["outcome"].clone()
}

fn sh(client: &TestClient, id: &str, line: &str) -> String {
    let run = client.run(&json!({"command": line, "sandbox": id, "wall_ms": 20_000}));
    assert_eq!(run["outcome"]["exit_code"], 0, "{run}");
    run["outcome"]["stdout"].as_str().expect("text").to_owned()
}

#[test]
fn session_works_with_the_files_of_its_sandbox() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = sandbox(&client);
    let at = opened(&client, "/v1/sessions", &json!({"sandbox": id}));
    let first = executed(
        &client,
        &at,
        json!({"command": "id -un; pwd; echo $HOME; x=kept; cd ~; echo session >file"}),
    );
    assert_eq!(first["stdout"], "user\n/workspace\n/home/user\n", "{first}");
    assert_eq!(sh(&client, &id, "cat ~/file; echo run >~/other"), "session\n");
    // A limit ends the command, and neither the session nor what it has.
    let slow =
        executed(&client, &at, json!({"command": "setsid sleep 60 & while :; do :; done", "wall_ms": 300}));
    assert_eq!((&slow["ending"], &slow["state"]), (&json!("timeout"), &json!("rolled_back")), "{slow}");
    assert_eq!(slow["tree"]["survivors"], 0, "{slow}");
    let scope = slow["verdict"]["scope"].as_str().expect("a scope");
    assert!(scope.contains(&format!("sandbox-{id}")), "{slow}");
    let next = executed(&client, &at, json!({"command": "echo $x; pwd; cat other"}));
    assert_eq!(next["stdout"], "kept\n/home/user\nrun\n", "{next}");
    // Files from outside are the sandbox's, by the session's id as well.
    let session = at.rsplit('/').next().expect("an id");
    let read = client.bytes(&format!("/v1/files?session={session}&path=/home/user/file"), &[]);
    assert_eq!(read, (200, b"session\n".to_vec()));
    // Its runs are found by the sandbox.
    let listed = client.get(&format!("/v1/runs?sandbox={id}")).1;
    let runs = listed["runs"].as_array().expect("runs");
    assert_eq!((runs.len(), &listed["total"]), (4, &json!(4)), "{listed}");
    assert!(runs.iter().all(|run| run["sandbox"] == id.as_str()), "{listed}");
    let outside = client.run(&json!({"command": "true"}));
    assert_eq!(outside.get("sandbox"), None, "{outside}");
    assert_eq!(client.get("/v1/runs?sandbox=none").1["total"], 0);
}

#[test]
fn python_keeps_its_state_and_rolls_back() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = sandbox(&client);
    sh(&client, &id, "echo 'value = 42' >module.py");
    let at = opened(&client, "/v1/contexts", &json!({"sandbox": id, "env": {"GREETING": "hello"}}));
    let code = "import getpass, os, module\nx = module.value\nopen('/tmp/python', 'w').write('written')\n\
                [getpass.getuser(), os.getuid(), os.getcwd(), os.path.expanduser('~'), os.environ['GREETING'], x]";
    let first = executed(&client, &at, json!({"code": code}));
    assert_eq!(first["value"], json!(["user", 1000, "/workspace", "/home/user", "hello", 42]), "{first}");
    assert_eq!(sh(&client, &id, "cat /tmp/python"), "written");
    let loops = "x = 0\nopen('/tmp/python', 'w').write('late')\nimport subprocess\nsubprocess.Popen(['sleep', '60'])\n\
                 import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let slow = executed(&client, &at, json!({"code": loops, "wall_ms": 400}));
    assert_eq!((&slow["ending"], &slow["state"]), (&json!("timeout"), &json!("rolled_back")), "{slow}");
    assert_eq!(slow["tree"]["survivors"], 0, "{slow}");
    assert_eq!(executed(&client, &at, json!({"code": "x"}))["value"], 42);
    assert_eq!(sh(&client, &id, "cat /tmp/python"), "late", "files are not rolled back");
    executed(&client, &at, json!({"code": "x = 43"}));
    assert_eq!(client.post(&format!("{at}/undo"), &json!({})).0, 200);
    assert_eq!(executed(&client, &at, json!({"code": "x"}))["value"], 42);
    let (status, branches) = client.post(&format!("{at}/branch"), &json!({}));
    assert_eq!((status, &branches["code"]), (409, &json!("no_branch")), "{branches}");
    let killed = executed(&client, &at, json!({"code": "import os\nos._exit(3)"}));
    assert_eq!(
        (&killed["ending"], &killed["state"]),
        (&json!("no_result"), &json!("rolled_back")),
        "{killed}"
    );
    assert_eq!(executed(&client, &at, json!({"code": "x"}))["value"], 42);
}

#[test]
fn javascript_works_with_the_files_of_its_sandbox() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = sandbox(&client);
    sh(&client, &id, "echo 42 >~/number");
    let at = opened(&client, "/v1/contexts", &json!({"sandbox": id, "language": "javascript"}));
    let code = "const fs = require('fs'); const x = Number(fs.readFileSync('/home/user/number', 'utf8'));\n\
                fs.writeFileSync('/tmp/written', 'by node'); x + 1";
    let first = executed(&client, &at, json!({"code": code}));
    assert_eq!((&first["ending"], &first["value"]), (&json!("returned"), &json!(43)), "{first}");
    assert_eq!(sh(&client, &id, "cat /tmp/written"), "by node");
}

#[test]
fn deletion_ends_contexts_with_the_reason() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = sandbox(&client);
    let session = opened(&client, "/v1/sessions", &json!({"sandbox": id}));
    let context = opened(&client, "/v1/contexts", &json!({"sandbox": id}));
    executed(&client, &context, json!({"code": "x = 1"}));
    let body = json!({"command": "echo begun; sleep 60", "wait_ms": 0, "turn_ms": 20_000, "wall_ms": 60_000});
    let (_, running) = client.post(&format!("{session}/execute"), &body);
    let run = running["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).1["runs"], 2);
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).0, 204);
    let ended = client.ended(&run);
    assert_eq!(ended["outcome"]["ending"], "cancelled", "{ended}");
    assert!(ended.to_string().contains("its sandbox was deleted"), "{ended}");
    for at in [&session, &context] {
        let (status, gone) = client.post(&format!("{at}/execute"), &json!({"code": "1"}));
        assert_eq!((status, &gone["code"]), (410, &json!("context_ended")), "{gone}");
        assert!(
            gone["message"].as_str().expect("text").contains(&format!("sandbox `{id}` was deleted")),
            "{gone}"
        );
    }
    let sandboxes_directory = serving.state.path().join("sandboxes");
    wait_until("its files are removed", || {
        std::fs::read_dir(&sandboxes_directory).is_ok_and(|left| left.count() == 0)
    });
}

#[test]
fn what_cannot_be_in_a_sandbox_is_refused_by_name() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = sandbox(&client);
    let workspace = client.post("/v1/workspaces", &json!({})).1["workspace_id"].clone();
    let both = client.post("/v1/contexts", &json!({"sandbox": id, "workspace": workspace}));
    assert_eq!((both.0, &both.1["code"]), (400, &json!("bad_field")), "{}", both.1);
    let absent = client.post("/v1/sessions", &json!({"sandbox": "absent"}));
    assert_eq!((absent.0, &absent.1["code"]), (404, &json!("sandbox_not_found")), "{}", absent.1);
    assert_eq!(client.get("/v1/contexts").1["contexts"], json!([]));
}
