//! Network allow-lists of sandboxes: what real clients reach, what they do not, and where denials
//! are reported.
#![allow(clippy::disallowed_methods)] // tests start servers outside of sandboxes

use crate::namespaces;
use crate::support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use namespaces::{PRINT_NAMESPACE, holders};
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens, wait_until};
use tempfile::TempDir;

/// Not 127.0.0.1, which every sandbox has for itself: clients do not use the proxy for it.
const OUTSIDE: &str = "127.0.0.2";

/// Serves a directory, and prints its port.
const SERVES: &str = "
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[2])
server = http.server.ThreadingHTTPServer((sys.argv[1], 0), handler)
print(server.server_port, flush=True)
server.serve_forever()
";

/// A web server outside of all sandboxes.
pub(crate) struct Outside {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Outside {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("file"), "from outside\n").expect("written");
        let mut child = Command::new("python3")
            .args(["-c", SERVES, OUTSIDE])
            .arg(directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        Outside { child, port: line.trim().parse().expect("a port"), directory }
    }

    pub(crate) fn entry(&self) -> String {
        format!("{OUTSIDE}:{}", self.port)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{OUTSIDE}:{}/{path}", self.port)
    }

    /// Makes a repository, and returns its URL.
    pub(crate) fn repository(&self) -> String {
        let repository = self.directory.path().join("repository");
        std::fs::create_dir(&repository).expect("made");
        std::fs::write(repository.join("file"), "committed\n").expect("written");
        git(&repository, &["init", "-q"]);
        git(&repository, &["add", "file"]);
        git(&repository, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]);
        git(&repository, &["update-server-info"]);
        self.url("repository/.git")
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // It is this test's own child.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn made(client: &TestClient, network: &Value) -> String {
    let (status, sandbox) = client.post("/v1/sandboxes", &json!({"network": network}));
    assert_eq!((status, &sandbox["network"]), (201, network), "{sandbox}");
    sandbox["sandbox_id"].as_str().expect("an id").to_owned()
}

fn exec(client: &TestClient, id: &str, line: &str) -> Value {
    let (status, run) =
        client.post(&format!("/v1/sandboxes/{id}/exec"), &json!({"command": line, "wall_ms": 25_000}));
    assert_eq!((status, &run["status"]), (200, &json!("ended")), "{run}");
    run["outcome"].clone()
}

#[track_caller]
fn succeeds(client: &TestClient, id: &str, line: &str) -> String {
    let outcome = exec(client, id, line);
    assert_eq!(outcome["exit_code"], 0, "{line}: {outcome}");
    outcome["stdout"].as_str().expect("text").to_owned()
}

fn remarks(outcome: &Value) -> Vec<String> {
    let all = outcome["remarks"].as_array().into_iter().flatten();
    let denials = all.filter(|remark| remark["kind"] == "network_denied");
    denials.map(|remark| remark["message"].as_str().expect("text").to_owned()).collect()
}

fn git(directory: &Path, arguments: &[&str]) {
    let done = Command::new("git").current_dir(directory).args(arguments).output().expect("git");
    assert!(done.status.success(), "{arguments:?}: {done:?}");
}

#[test]
fn named_address_is_reached_and_no_other() {
    let outside = Outside::start();
    let serving = ServerFixture::start();
    let client = serving.client();
    let [allowed, other] = [json!([outside.entry()]), json!(["pypi.org"])].map(|list| made(&client, &list));
    let curl = format!("curl -sS -m 20 {}", outside.url("file"));
    assert_eq!(succeeds(&client, &allowed, &curl), "from outside\n");
    let refused = exec(&client, &other, &curl);
    let page = refused["stdout"].as_str().expect("text");
    assert!(page.contains("no entry for 127.0.0.2") && page.contains(&outside.entry()), "{refused}");
    let denied = remarks(&refused);
    assert!(denied.len() == 1 && denied[0].contains(&outside.entry()), "{refused}");
    assert_eq!(remarks(&exec(&client, &other, "true")), [""; 0]);
    // Without the proxy there is no way, in either of them.
    for id in [&allowed, &other] {
        let direct = exec(&client, id, &format!("{curl} --noproxy '*'"));
        assert_eq!(direct["exit_code"], 7, "{direct}");
    }
    // A sandbox with nothing reaches nothing: there is no proxy in it.
    let none = made(&client, &json!("none"));
    assert_eq!(exec(&client, &none, &format!("{curl} -x http://127.0.0.1:3128"))["exit_code"], 7);
    let metrics = client.get("/metrics").1.as_str().expect("text").to_owned();
    assert!(metrics.contains("sandtimer_sandbox_network_connections_total 1\n"), "{metrics}");
    assert!(metrics.contains("sandtimer_sandbox_network_denials_total 1\n"), "{metrics}");
}

#[test]
fn pip_git_and_python_use_the_proxy() {
    let outside = Outside::start();
    let root = outside.directory.path();
    std::fs::create_dir_all(root.join("simple/greeting")).expect("made");
    let wheel = "import zipfile\n\
        with zipfile.ZipFile('greeting-1.0-py3-none-any.whl', 'w') as wheel:\n\
        \twheel.writestr('greeting.py', 'word = \"hello\"\\n')\n\
        \twheel.writestr('greeting-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n')\n\
        \twheel.writestr('greeting-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        \twheel.writestr('greeting-1.0.dist-info/RECORD', '')\n";
    let done = Command::new("python3").current_dir(root.join("simple/greeting")).args(["-c", wheel]).status();
    assert!(done.expect("python3").success());
    let repository = outside.repository();
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!([outside.entry()]));
    let clone = format!("git clone -q {repository} c && cat c/file");
    assert_eq!(succeeds(&client, &id, &clone), "committed\n");
    let pip = format!(
        "python3 -m pip install -q --disable-pip-version-check --no-deps --target t --trusted-host {OUTSIDE} -i {} greeting && \
         PYTHONPATH=t python3 -c 'import greeting; print(greeting.word)'",
        outside.url("simple")
    );
    assert_eq!(succeeds(&client, &id, &pip), "hello\n");
    // Programs without the variables find the files.
    let bare = pip
        .replace("python3 -m", "env -i PATH=$PATH HOME=$HOME python3 -m")
        .replace("--target t", "--target u");
    assert_eq!(succeeds(&client, &id, &bare.replace("PYTHONPATH=t", "PYTHONPATH=u")), "hello\n");
    let python = format!(
        "import urllib.request as r; print(r.urlopen('{}').read().decode(), end='')",
        outside.url("file")
    );
    assert_eq!(succeeds(&client, &id, &format!("python3 -c \"{python}\"")), "from outside\n");
    for kind in ["contexts", "sessions"] {
        let (status, opened) = client.post(&format!("/v1/{kind}"), &json!({"sandbox": id}));
        assert_eq!(status, 201, "{opened}");
        let code = match kind {
            "contexts" => python.clone(),
            _ => format!("curl -sS {}", outside.url("file")),
        };
        let path = format!("/v1/{kind}/{}/execute", opened["context_id"].as_str().expect("an id"));
        let field = if kind == "contexts" { "code" } else { "command" };
        let (status, run) = client.post(&path, &json!({field: code, "wall_ms": 25_000}));
        assert_eq!((status, &run["outcome"]["stdout"]), (200, &json!("from outside\n")), "{run}");
    }
}

#[test]
fn names_do_not_resolve_and_are_remarked() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!(["pypi.org"]));
    let looked = exec(&client, &id, "getent hosts evil.example; echo $?; getent hosts pypi.org; echo $?");
    assert_eq!(looked["stdout"], "2\n2\n", "{looked}");
    let denied = remarks(&looked);
    assert_eq!(denied.len(), 2, "{looked}");
    assert!(denied[0].contains("add \"evil.example\" to the network allow-list"), "{denied:?}");
    assert!(denied[1].contains("use the proxy"), "{denied:?}");
    // What listens for the sandbox cannot be taken over by a run.
    let bind = "import socket\nfor port in (53, 3128):\n for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n  \
        s = socket.socket(socket.AF_INET, kind); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n  \
        try: s.bind(('127.0.0.1', port)); print(port, kind.name)\n  except OSError as e: print(type(e).__name__, e.errno)";
    let bound = succeeds(&client, &id, &format!("python3 -c \"{bind}\""));
    assert_eq!(bound, "OSError 98\nOSError 98\nOSError 98\n3128 SOCK_DGRAM\n");
}

#[test]
fn allow_list_outlives_the_server_and_its_sockets_do_not() {
    let outside = Outside::start();
    let serving = ServerFixture::start();
    let id = made(&serving.client(), &json!([outside.entry()]));
    let curl = format!("curl -sS -m 20 {}", outside.url("file"));
    assert_eq!(succeeds(&serving.client(), &id, &curl), "from outside\n");
    let serving = ServerFixture::at(serving.stop(), |_| {});
    let client = serving.client();
    assert_eq!(client.get(&format!("/v1/sandboxes/{id}")).1["network"], json!([outside.entry()]));
    assert_eq!(succeeds(&client, &id, &curl), "from outside\n");
    let (status, fork) = client.post(&format!("/v1/sandboxes/{id}/fork"), &json!({"count": 1}));
    assert_eq!((status, &fork["sandboxes"][0]["network"]), (201, &json!([outside.entry()])), "{fork}");
    assert_eq!(
        succeeds(&client, fork["sandboxes"][0]["sandbox_id"].as_str().expect("an id"), &curl),
        "from outside\n"
    );
    // A fork unmounts the sandbox: this is the namespace of a new mount.
    let own = succeeds(&client, &id, &format!("python3 -c \"{PRINT_NAMESPACE}\"")).trim_end().to_owned();
    // The control: the search for holders finds the server.
    assert!(!holders(&own).is_empty(), "{own}");
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).0, 204);
    wait_until("nothing is in its namespace", || holders(&own).is_empty());
}

/// Sockets and network namespaces of this process, in which the server is.
fn held() -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links
        .filter(|link| {
            link.to_string_lossy().starts_with("socket:") || link.to_string_lossy().starts_with("net:")
        })
        .count()
}

#[test]
fn deletion_closes_all_descriptors() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let once = |check: &dyn Fn()| {
        let id = made(&client, &json!(["pypi.org"]));
        succeeds(&client, &id, "true");
        check();
        assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).0, 204);
    };
    once(&|| ());
    std::thread::sleep(std::time::Duration::from_secs(1));
    let before = held();
    for _ in 0..5 {
        // The control: two listeners of the proxy, two sockets for names, and the namespace.
        once(&|| assert!(held() >= before + 5, "{} of {before}", held()));
    }
    // There may be more pooled namespaces than before.
    wait_until("all are closed", || held() <= before + 4);
}

#[test]
fn tokens_bound_what_sandboxes_reach() {
    let outside = Outside::start();
    let entry = outside.entry();
    let list = format!(
        "a tttttttttttttttttttttttttttttttttttttttt network={entry},*.example.com\n\
        b uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu\nc vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv network\n"
    );
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(&list)));
    let [a, b, c] = ["t", "u", "v"].map(|letter| serving.client_with(&letter.repeat(40)));
    let asked = |client: &TestClient, network: &Value| {
        let (status, answer) = client.post("/v1/sandboxes", &json!({"network": network}));
        (status, answer["code"].as_str().unwrap_or_default().to_owned(), answer["details"]["value"].clone())
    };
    let refused = |value: &str| (403, "network_refused".to_owned(), json!(value));
    assert_eq!(asked(&a, &json!([entry, "a.example.com"])).0, 201);
    assert_eq!(asked(&a, &json!(["a.example.com", "evil.org"])), refused("evil.org"));
    assert_eq!(asked(&a, &json!(["127.0.0.0/8"])), refused("127.0.0.0/8"));
    assert_eq!(asked(&b, &json!([entry])), refused(&entry));
    assert_eq!(asked(&b, &json!("none")).0, 201);
    for client in [&a, &b] {
        assert_eq!(asked(client, &json!("host")), (403, "network_refused".to_owned(), Value::Null));
    }
    assert_eq!((asked(&c, &json!("host")).0, asked(&c, &json!(["evil.org"])).0), (201, 201));
    let id = made(&a, &json!([entry]));
    let curl = format!("curl -sS -m 20 {}", outside.url("file"));
    assert_eq!(succeeds(&a, &id, &curl), "from outside\n");
    // A list that has become shorter bounds what there is already.
    let shorter = list.replace(&format!("{entry},"), "");
    let serving = ServerFixture::at(serving.stop(), |settings| settings.tokens = Some(tokens(&shorter)));
    let refused = exec(&serving.client_with(&"t".repeat(40)), &id, &curl);
    assert!(refused["stdout"].as_str().is_some_and(|page| page.contains("operator")), "{refused}");
}

#[test]
fn bad_entries_name_the_field_and_the_value() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let cases = [
        (json!(["https://pypi.org"]), "https://pypi.org", "write the host alone"),
        (json!(["pypi.org", "10.1.2.3/16"]), "10.1.2.3/16", "10.1.0.0/16"),
        (json!(["a.org:65536"]), "a.org:65536", "from 1 to 65535"),
        (json!("some"), "some", "`none`, `host`, or a list"),
        (json!(true), "true", "`none`, `host`, or a list"),
        (json!([7]), "7", "a host such as"),
    ];
    for (network, value, expected) in cases {
        let (status, error) = client.post("/v1/sandboxes", &json!({"network": network}));
        assert_eq!((status, &error["code"]), (400, &json!("bad_field")), "{error}");
        assert_eq!(
            (&error["details"]["key"], &error["details"]["value"]),
            (&json!("network"), &json!(value)),
            "{error}"
        );
        assert!(error["message"].as_str().is_some_and(|message| message.contains(expected)), "{error}");
    }
    let many: Vec<String> = (0..201).map(|number| format!("{number}.example")).collect();
    assert_eq!(client.post("/v1/sandboxes", &json!({"network": many})).1["code"], "bad_field");
    assert_eq!(client.get("/v1/sandboxes").1["sandboxes"], json!([]));
}
