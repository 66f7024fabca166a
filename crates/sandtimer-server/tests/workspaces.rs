//! Workspaces: which owners find them, what they outlive, and which user owns the files in them.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens};

fn made(client: &TestClient) -> String {
    let (status, workspace) = client.post("/v1/workspaces", &json!({}));
    assert_eq!(status, 201, "{workspace}");
    workspace["workspace_id"].as_str().expect("an id").to_owned()
}

/// Runs a line for the shell in a workspace. Returns its output.
fn sh(client: &TestClient, workspace: &str, line: &str) -> String {
    let run = client.run(&json!({"command": ["sh", "-c", line], "workspace": workspace, "wall_ms": 20_000}));
    let outcome = &run["outcome"];
    assert_eq!(outcome["exit_code"], 0, "{outcome}");
    outcome["stdout"].as_str().expect("text").to_owned()
}

fn state_of(serving: &ServerFixture) -> std::path::PathBuf {
    serving.state.path().join("workspaces")
}

fn opened(client: &TestClient, path: &str, body: &Value) -> String {
    let (status, context) = client.post(path, body);
    assert_eq!(status, 201, "{context}");
    context["context_id"].as_str().expect("an id").to_owned()
}

fn executed(client: &TestClient, at: &str, body: &Value) -> Value {
    let (status, answer) = client.post(&format!("{at}/execute"), body);
    assert_eq!((status, &answer["status"]), (200, &json!("ended")), "{answer}");
    answer["outcome"].clone()
}

#[test]
fn workspace_is_shared_by_runs_and_the_files_api() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client);
    assert_eq!(sh(&client, &id, "pwd; umask 077; mkdir -p a/b; echo one >a/b/x; id -u >uid"), "/workspace\n");
    let file = format!("/v1/files?workspace={id}&path=a/b/x");
    assert_eq!(client.bytes(&file, &[]), (200, b"one\n".to_vec()));
    let (status, written) = client.put(&file, b"two\n");
    assert_eq!((status, &written["created"], &written["size"]), (200, &json!(false), &json!(4)));
    assert_eq!(client.put(&format!("/v1/files?workspace={id}&path=new"), b"n").1["created"], true);
    assert_eq!(
        sh(&client, &id, "cat a/b/x; echo three >>a/b/x; rm new; stat -c %u . a/b/x | sort -u | wc -l"),
        "two\n1\n"
    );
    assert_eq!(client.bytes(&file, &[]).1, b"two\nthree\n");
    // Live ones see the same files, at the same time.
    let session = opened(&client, "/v1/sessions", &json!({"workspace": id}));
    let context = opened(&client, "/v1/contexts", &json!({"workspace": id}));
    let at = [format!("/v1/sessions/{session}"), format!("/v1/contexts/{context}")];
    assert_eq!(
        executed(&client, &at[0], &json!({"command": "pwd; echo four >>a/b/x"}))["stdout"],
        "/workspace\n"
    );
    let code = "import os\nos.getcwd(), open('a/b/x').read(), open('from_python', 'w').write('5')";
    assert_eq!(
        executed(&client, &at[1], &json!({"code": code}))["value"],
        json!(["/workspace", "two\nthree\nfour\n", 1])
    );
    assert_eq!(executed(&client, &at[0], &json!({"command": "cat from_python"}))["stdout"], "5");
    assert_eq!(
        client.bytes(&format!("/v1/files?session={session}&path=/workspace/from_python"), &[]).1,
        b"5"
    );
    // A workspace that is in use stays.
    assert_eq!(client.delete(&format!("/v1/workspaces/{id}")).1["code"], "workspace_in_use");
    assert_eq!(client.get(&format!("/v1/workspaces/{id}")).1["in_use"], 2);
    at.iter().for_each(|at| assert_eq!(client.delete(at).0, 204));
    assert_eq!(client.delete(&format!("/v1/workspaces/{id}")).0, 204);
    assert_eq!(client.bytes(&file, &[]).0, 404);
    let run = client.post("/v1/runs", &json!({"command": ["true"], "workspace": id}));
    assert_eq!((run.0, &run.1["code"]), (404, &json!("workspace_not_found")));
}

#[test]
fn a_workspace_is_its_owners_and_outlives_the_server() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("a aaaaaaaaaaaaaaaaaaaaaaaa\nb bbbbbbbbbbbbbbbbbbbbbbbb\n"))
    });
    let (a, b) =
        (serving.client_with("aaaaaaaaaaaaaaaaaaaaaaaa"), serving.client_with("bbbbbbbbbbbbbbbbbbbbbbbb"));
    let id = made(&a);
    sh(&a, &id, "head -c 100000 /dev/urandom >big; mkdir shut; touch shut/x; chmod 0 shut");
    let context = opened(&a, "/v1/contexts", &json!({}));
    for (status, answer) in [
        b.get(&format!("/v1/workspaces/{id}")),
        b.delete(&format!("/v1/workspaces/{id}")),
        b.get(&format!("/v1/files/list?workspace={id}")),
        b.put(&format!("/v1/files?workspace={id}&path=x"), b"x"),
        b.post("/v1/runs", &json!({"command": ["true"], "workspace": id})),
        b.post("/v1/contexts", &json!({"workspace": id})),
        b.post("/v1/files/mkdir", &json!({"workspace": id, "path": "x"})),
    ] {
        assert_eq!((status, &answer["code"]), (404, &json!("workspace_not_found")));
    }
    assert_eq!(b.get(&format!("/v1/files/list?context={context}")).1["code"], "context_not_found");
    assert_eq!(b.get("/v1/workspaces").1["workspaces"], json!([]));
    assert_eq!(a.get("/v1/workspaces").1["workspaces"].as_array().map(Vec::len), Some(1));
    let state = serving.stop();
    let own = state.path().join("workspaces/own");
    assert_eq!(std::fs::read_dir(&own).expect("a directory").count(), 0, "contexts' own go with them");
    // As a server that was killed leaves one.
    sandtimer::engine::make_workspace(&own.join("left")).expect("made");
    // As root it is root's still: its server was killed before it could give it away.
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(own.join("nobodys"))
        .expect("made");
    let serving =
        ServerFixture::at(state, |settings| settings.tokens = Some(tokens("a aaaaaaaaaaaaaaaaaaaaaaaa\n")));
    let a = serving.client_with("aaaaaaaaaaaaaaaaaaaaaaaa");
    let trash = state_of(&serving).join("trash");
    while std::fs::read_dir(&trash).expect("a directory").count() > 0 {}
    let (_, shown) = a.get(&format!("/v1/workspaces/{id}"));
    assert!(shown["size_bytes"].as_u64().is_some_and(|bytes| bytes >= 100_000), "{shown}");
    assert_eq!((&shown["files"], &shown["complete"]), (&json!(2), &json!(false)));
    assert_eq!(sh(&a, &id, "wc -c <big"), "100000\n");
    assert_eq!(a.delete(&format!("/v1/workspaces/{id}")).0, 204);
    assert_eq!(std::fs::read_dir(&own).expect("a directory").count(), 0);
    assert_eq!(std::fs::read_dir(state_of(&serving).join("kept")).expect("a directory").count(), 0);
}

#[test]
fn own_workspace_lives_as_long_as_its_context() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (path, write, read, end) in [
        ("/v1/contexts", "open('x', 'w').write('kept')", "print(open('x').read())", "import os; os._exit(3)"),
        ("/v1/sessions", "echo kept >x", "cat /workspace/x", "kill -9 $$"),
    ] {
        let id = opened(&client, path, &json!({}));
        let at = format!("{path}/{id}");
        let execute = |code: &str| executed(&client, &at, &json!({"code": code, "wall_ms": 20_000}));
        execute(write);
        assert_eq!(execute(read)["stdout"], "kept\n", "{path}");
        // Back to a checkpoint.
        execute(end);
        assert_eq!(execute(read)["stdout"], "kept\n", "{path}");
        // No checkpoint is made of an interpreter with threads: a new one.
        if path == "/v1/contexts" {
            execute(
                "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            );
            assert_eq!(execute(end)["state"], "reset");
            assert_eq!(execute(read)["stdout"], "kept\n", "{path}");
        }
        assert_eq!(client.bytes(&format!("/v1/files?context={id}&path=x"), &[]).1.trim_ascii(), b"kept");
        let own = state_of(&serving).join("own");
        let holding = || {
            std::fs::read_dir(&own)
                .expect("a directory")
                .flatten()
                .filter(|entry| entry.path().join("x").exists())
                .count()
        };
        assert_eq!(holding(), 1, "{path}");
        assert_eq!(client.delete(&at).0, 204);
        assert_eq!(holding(), 0, "{path}");
        assert_eq!(client.bytes(&format!("/v1/files?context={id}&path=x"), &[]).0, 404);
    }
}

#[test]
fn a_disk_limit_holds_for_what_grows_in_a_workspace() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client);
    let line =
        "i=0; while :; do head -c 1000000 /dev/zero >f$i; i=$((i + 1)); [ $i -lt 500 ] || sleep 20; done";
    let run = client.run(
        &json!({"command": ["sh", "-c", line], "workspace": id, "disk_bytes": 10_000_000, "wall_ms": 20_000}),
    );
    assert_eq!(run["outcome"]["ending"], "disk_limit", "{run}");
    let context = opened(&client, "/v1/contexts", &json!({"disk_bytes": 10_000_000}));
    let code =
        "import time\nfor i in range(500): open(f'f{i}', 'wb').write(bytes(1_000_000))\ntime.sleep(20)";
    let outcome =
        executed(&client, &format!("/v1/contexts/{context}"), &json!({"code": code, "wall_ms": 20_000}));
    assert_eq!(outcome["ending"], "disk_limit", "{outcome}");
}

/// A file system in memory whose mounts cannot be id-mapped; unmounted when it goes.
pub(crate) struct Overlay(tempfile::TempDir);

impl Overlay {
    /// `None` where it cannot be mounted.
    pub(crate) fn mounted() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let subdirectory = |name: &str| directory.path().join(name);
        for name in ["lower", "upper", "work", "merged"] {
            std::fs::create_dir(subdirectory(name)).expect("made");
        }
        let options = ["lower", "upper", "work"]
            .map(|name| format!("{name}dir={}", subdirectory(name).display()))
            .join(",");
        let options = std::ffi::CString::new(options).expect("no NUL");
        let flags = rustix::mount::MountFlags::empty();
        let mounted =
            rustix::mount::mount("overlay", subdirectory("merged"), "overlay", flags, options.as_c_str());
        mounted.is_ok().then_some(Overlay(directory))
    }

    /// For a server whose files are to be in it.
    pub(crate) fn state_directory(&self) -> std::path::PathBuf {
        self.0.path().join("merged/state")
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path().join("merged"), rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn workspaces_are_shared_where_mounts_cannot_be_mapped_too() {
    // Without root there is nothing to map.
    let Some(overlay) = Overlay::mounted() else { return };
    let serving = ServerFixture::with(|settings| settings.state_directory = overlay.state_directory());
    let client = serving.client();
    let id = made(&client);
    let run = client.run(&json!({"command": ["sh", "-c", "echo run >f"], "workspace": id}));
    assert_eq!(run["outcome"]["exit_code"], 0, "{run}");
    let degraded = run["outcome"]["isolation"]["degraded"].to_string();
    assert!(degraded.contains("no idmapped mounts"), "{degraded}");
    let session = format!("/v1/sessions/{}", opened(&client, "/v1/sessions", &json!({"workspace": id})));
    assert_eq!(executed(&client, &session, &json!({"command": "echo session >>f"}))["exit_code"], 0);
    let context = format!("/v1/contexts/{}", opened(&client, "/v1/contexts", &json!({"workspace": id})));
    executed(
        &client,
        &context,
        &json!({"code": "import signal\nsignal.signal(2, signal.SIG_IGN)\nwhile True: pass", "wall_ms": 200}),
    );
    executed(&client, &context, &json!({"code": "open('f', 'a').write('context\\n')"}));
    let at = format!("/v1/files?workspace={id}&path=f");
    assert_eq!(client.bytes(&at, &[]).1, b"run\nsession\ncontext\n");
    assert_eq!(client.put(&at, b"api").0, 200);
    assert_eq!(sh(&client, &id, "cat f; echo more >>f"), "api");
    drop(serving);
}
