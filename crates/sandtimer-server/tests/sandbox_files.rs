//! Files of sandboxes over HTTP: what can be done from outside, and what code inside cannot make of
//! it.
#![allow(clippy::disallowed_methods)] // one starts this process as another user

use crate::as_user;
use crate::support;

use std::path::Path;

use as_user::as_a_user;
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, raw, tokens, wait_until};

struct SandboxClient<'a> {
    client: &'a TestClient,
    id: String,
}

impl<'a> SandboxClient<'a> {
    fn of(client: &'a TestClient) -> Self {
        let (status, sandbox) = client.post("/v1/sandboxes", &json!({}));
        assert_eq!(status, 201, "{sandbox}");
        SandboxClient { client, id: sandbox["sandbox_id"].as_str().expect("an id").to_owned() }
    }

    fn at(&self, what: &str, query: &str) -> String {
        format!("/v1/files{what}?sandbox={}&{query}", self.id)
    }

    fn put(&self, path: &str, body: &[u8]) -> (u16, Value) {
        self.client.put(&self.at("", &format!("path={path}")), body)
    }

    fn read(&self, path: &str) -> (u16, Vec<u8>) {
        self.client.bytes(&self.at("", &format!("path={path}")), &[])
    }

    fn code(&self, path: &str) -> Value {
        let (status, refused) = self.client.get(&self.at("", &format!("path={path}")));
        assert!(status >= 400, "{path}: {refused}");
        refused["code"].clone()
    }

    fn post(&self, what: &str, mut body: Value) -> (u16, Value) {
        body["sandbox"] = self.id.as_str().into();
        self.client.post(&format!("/v1/files/{what}"), &body)
    }

    fn sh(&self, line: &str) -> String {
        let run = self.client.run(&json!({"command": line, "sandbox": self.id, "wall_ms": 20_000}));
        assert_eq!(run["outcome"]["exit_code"], 0, "{run}");
        run["outcome"]["stdout"].as_str().expect("text").to_owned()
    }
}

fn paths(listing: &Value) -> Vec<&str> {
    let entries = listing["entries"].as_array().expect("entries");
    entries.iter().map(|entry| entry["path"].as_str().expect("a path")).collect()
}

#[test]
fn any_path_is_used_as_the_sandboxs_user() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let sandbox = SandboxClient::of(&client);
    assert_eq!(sandbox.put("/home/user/a/b&parents=true&mode=0750", b"home").1["path"], "/home/user/a/b");
    assert_eq!(sandbox.put("relative", b"work").1["path"], "/workspace/relative");
    assert_eq!(sandbox.put("/tmp/t", b"temporary").0, 200);
    assert_eq!(
        sandbox.sh("cat ~/a/b /workspace/relative /tmp/t; stat -c ' %U %a' ~/a/b; echo inside >>/tmp/t"),
        "homeworktemporary user 750\n"
    );
    assert_eq!(sandbox.read("/tmp/t").1, b"temporaryinside\n");
    assert_eq!(
        client.post_bytes(&sandbox.at("/append", "path=/tmp/t"), b"more").1,
        json!({"path": "/tmp/t", "size": 20})
    );
    // The programs of the template are read, and nothing of it is written.
    assert_eq!(sandbox.read("/etc/passwd").0, 200);
    assert_eq!(sandbox.put("/etc/own", b"x").1["code"], "file_permission");
    assert_eq!(sandbox.put("/usr/own", b"x").1["code"], "file_permission");
    assert_eq!(sandbox.put("/own", b"x").1["code"], "file_permission");
    let (_, made) = sandbox.post("mkdir", json!({"path": "/var/tmp/d/e", "parents": true}));
    assert_eq!((&made["path"], &made["type"]), (&json!("/var/tmp/d/e"), &json!("directory")));
    let moved = sandbox.post("move", json!({"from": "/tmp/t", "to": "/var/tmp/d/t"}));
    assert_eq!(moved.1["path"], "/var/tmp/d/t");
    let listing = client.get(&sandbox.at("/list", "path=/var/tmp&recursive=true")).1;
    assert_eq!(paths(&listing), ["/var/tmp/d", "/var/tmp/d/e", "/var/tmp/d/t"]);
    let page = client.get(&sandbox.at("/list", "path=/var/tmp&recursive=true&limit=1&after=/var/tmp/d")).1;
    assert_eq!((paths(&page), &page["next_after"]), (vec!["/var/tmp/d/e"], &json!("/var/tmp/d/e")));
    let top = client.get(&sandbox.at("/list", "path=/")).1;
    assert!(paths(&top).contains(&"/tmp") && paths(&top).contains(&"/usr"), "{top}");
    assert_eq!(paths(&client.get(&sandbox.at("/list", "")).1), ["/workspace/relative"]);
    assert_eq!(client.get(&sandbox.at("/stat", "path=/var/tmp/d/t")).1["size"], 20);
    assert_eq!(client.delete(&sandbox.at("", "path=/var/tmp/d&recursive=true")).0, 204);
    assert_eq!(sandbox.sh("ls /var/tmp"), "");
    let path = format!("/v1/sandboxes/{}", sandbox.id);
    wait_until("nothing runs: work with files is no run", || client.get(&path).1["runs"] == 0);
    // A directory as an archive, there and back.
    let (status, archive) = client.bytes(&sandbox.at("/tar", "path=/home/user"), &[]);
    assert_eq!(status, 200);
    let put = client.put(&sandbox.at("/tar", "path=/tmp/copy&parents=true"), &archive);
    assert_eq!((&put.1["path"], &put.1["members"]), (&json!("/tmp/copy"), &json!(2)), "{}", put.1);
    assert_eq!(sandbox.sh("cat /tmp/copy/a/b; ls -A /tmp"), "homecopy\n", "and nothing else is left");
    // The server was started again: the files are the same, before any run.
    let id = sandbox.id;
    let serving = ServerFixture::at(serving.stop(), |_| {});
    let client = serving.client();
    let sandbox = SandboxClient { client: &client, id };
    assert_eq!(sandbox.read("/home/user/a/b"), (200, b"home".to_vec()));
}

/// Code inside puts all that it can in the way; nothing of the host comes out, and nothing blocks.
#[test]
fn hostile_trees_lead_nowhere() {
    let host = tempfile::tempdir().expect("a directory");
    let secret = host.path().join("secret");
    std::fs::write(&secret, "the host's").expect("written");
    let serving = ServerFixture::start();
    let client = serving.client();
    let sandbox = SandboxClient::of(&client);
    let secret_path = secret.display();
    sandbox.sh(&format!(
        "cd /tmp; ln -s /etc/shadow shadow; ln -s {secret_path} secret; ln -s ../../../../../..{secret_path} up; \
         ln -s /proc/self/environ environ; ln -s /proc/self/root root; ln -s /proc/1/root/etc/shadow one; \
         ln -s loop loop; mkfifo fifo; ln -s /dev/zero zero; ln -s /workspace/there good; ln -s / slash; \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'; echo inside >/workspace/there"
    ));
    assert_eq!(sandbox.read("/tmp/good").1, b"inside\n", "the control: links inside are followed");
    assert_eq!(sandbox.read("/tmp/slash/workspace/there").1, b"inside\n");
    for (path, code) in [
        ("/tmp/shadow", "file_not_found"),
        ("/tmp/secret", "file_not_found"),
        ("/tmp/up", "file_not_found"),
        ("/tmp/environ", "file_not_found"),
        ("/tmp/one", "file_not_found"),
        ("/tmp/loop", "path_outside"),
        ("/tmp/fifo", "wrong_file_type"),
        ("/tmp/socket", "wrong_file_type"),
        ("/tmp/zero", "wrong_file_type"),
        ("/proc/self/environ", "path_outside"),
        ("/sys/kernel", "path_outside"),
        ("/dev/null", "path_outside"),
        ("/tmp/../etc/passwd", "path_outside"),
        ("/..", "path_outside"),
        ("%2e%2e/x", "path_outside"),
        ("/tmp/a%00b", "nul_byte"),
    ] {
        assert_eq!(sandbox.code(path), code, "{path}");
    }
    // Writing over a link writes inside, or nowhere.
    for path in ["/tmp/secret", "/tmp/up", "/tmp/shadow", "/tmp/fifo", "/tmp/environ", "/tmp/root/x"] {
        let (status, refused) = sandbox.put(path, b"forged");
        assert!(status >= 400, "{path}: {refused}");
    }
    assert_eq!(std::fs::read_to_string(&secret).expect("there"), "the host's");
    let (status, archive) = client.bytes(&sandbox.at("/tar", "path=/tmp"), &[]);
    assert_eq!(status, 200);
    assert!(!archive.windows(10).any(|part| part == b"the host's"));
    let everything = client.get(&sandbox.at("/list", "path=/&recursive=true&limit=10000")).1;
    assert!(!paths(&everything).iter().any(|path| path.starts_with("/proc/1")), "nothing of processes");
}

/// A server without root has the uid that owns the sandbox's root directory, and another mount
/// namespace than the sandbox: the kernel does not protect the mount points.
#[test]
fn mount_points_stay_where_they_are() {
    if as_a_user("mount_points_stay_where_they_are") {
        // And as root, below.
    }
    let serving = ServerFixture::start();
    let client = serving.client();
    let sandbox = SandboxClient::of(&client);
    sandbox.sh("ln -s / /tmp/top; ln -s /dev /tmp/devices; echo x >/tmp/file");
    let check = "test -c /dev/null && test -x /usr/bin/env && id -un";
    for path in ["/usr", "/tmp/top/usr", "/tmp/devices/null", "/tmp/devices/shm", "/tmp/top/dev", "/var"] {
        let answers = [
            client.delete(&sandbox.at("", &format!("path={path}"))),
            sandbox.post("move", json!({"from": path, "to": "/home/user/away"})),
            sandbox.post("move", json!({"from": "/tmp/file", "to": path, "overwrite": true})),
        ];
        for (status, refused) in answers {
            let code = refused["code"].as_str().unwrap_or_default();
            assert!(
                status == 403 && ["path_outside", "file_permission"].contains(&code),
                "{path}: {refused}"
            );
        }
        assert_eq!(sandbox.sh(check), "user\n", "{path}");
    }
    for path in ["/usr", "/tmp/devices/null"] {
        let (_, refused) = client.delete(&sandbox.at("", &format!("path={path}")));
        assert_eq!(refused["code"], "path_outside", "{path}: {refused}");
    }
    assert!(sandbox.put("/tmp/devices/null", b"x").0 >= 400);
    assert_eq!(sandbox.put("/tmp/top/own", b"x").1["code"], "file_permission");
    assert_eq!(client.delete(&sandbox.at("", "path=/tmp/file")).0, 204, "the control");
    // The layer has no trace of it either.
    let id = sandbox.id;
    let serving = ServerFixture::at(serving.stop(), |_| {});
    let client = serving.client();
    assert_eq!(SandboxClient { client: &client, id }.sh(check), "user\n");
}

/// A directory that is exchanged for a link while it is walked through leads to the one or the
/// other, both of them inside.
#[test]
fn exchanged_directories_stay_inside() {
    let host = tempfile::tempdir().expect("a directory");
    std::fs::write(host.path().join("file"), "the host's").expect("written");
    let serving = ServerFixture::start();
    let client = serving.client();
    let sandbox = SandboxClient::of(&client);
    let host_path = host.path().display();
    let line = format!(
        "mkdir -p /tmp/a /tmp/real; echo inside >/tmp/real/file; echo ready; \
         while :; do rm -rf /tmp/a; ln -s {host_path} /tmp/a; rm /tmp/a; ln -s /tmp/real /tmp/a; rm /tmp/a; \
         mkdir /tmp/a; echo inside >/tmp/a/file; done"
    );
    let run = client.start(json!({"command": line, "sandbox": sandbox.id, "wall_ms": 60_000}));
    wait_until("it has begun", || {
        client.get(&format!("/v1/runs/{run}/output")).1["data"].as_str().is_some_and(|data| !data.is_empty())
    });
    let mut found = 0;
    for attempt in 0..150 {
        let (status, bytes) = sandbox.read("/tmp/a/file");
        match status {
            200 => {
                assert!(b"inside\n".starts_with(&bytes[..]), "{}", String::from_utf8_lossy(&bytes));
                found += 1;
            }
            _ => assert!(!bytes.windows(10).any(|part| part == b"the host's")),
        }
        if attempt % 3 == 0 {
            sandbox.put("/tmp/a/written", b"from outside");
            client.get(&sandbox.at("/list", "path=/tmp&recursive=true"));
        }
    }
    assert!(found > 0, "the control: it is read in between");
    assert_eq!(std::fs::read_dir(host.path()).expect("there").count(), 1, "nothing was written outside");
    assert_eq!(std::fs::read_to_string(host.path().join("file")).expect("there"), "the host's");
    client.delete(&format!("/v1/sandboxes/{}", sandbox.id));
}

#[test]
fn deletion_ends_uploads_and_other_tokens_see_nothing() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("a secret-of-a-0123456789\nb secret-of-b-0123456789\n"))
    });
    let [a, b] = ["secret-of-a-0123456789", "secret-of-b-0123456789"].map(|token| serving.client_with(token));
    let sandbox = SandboxClient::of(&a);
    sandbox.put("/tmp/file", b"mine");
    let of_b = SandboxClient { client: &b, id: sandbox.id.clone() };
    assert_eq!(of_b.code("/tmp/file"), "sandbox_not_found");
    assert_eq!(of_b.put("/tmp/file", b"x").1["code"], "sandbox_not_found");
    let both = a.get(&sandbox.at("", "path=/tmp/file&workspace=x"));
    assert_eq!((both.0, &both.1["code"]), (400, &json!("bad_field")), "{}", both.1);
    let path = sandbox.at("", "path=/tmp/large");
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret-of-a-0123456789\r\n\
         Content-Length: 1000000\r\n\r\npart"
    );
    let upload = raw(serving.address, head.as_bytes());
    wait_until("it is being written", || sandbox.sh("ls -A /tmp | wc -l") == "2\n");
    assert_eq!(a.delete(&format!("/v1/sandboxes/{}", sandbox.id)).0, 204);
    assert_eq!(sandbox.code("/tmp/file"), "sandbox_not_found");
    let host_path = serving.state.path().join("sandboxes");
    wait_until("its files are removed", || empty(&host_path));
    drop(upload);
}

fn empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|left| left.count() == 0)
}
