//! curl, git and pip, which are required: their files and packages by way of the proxy.
#![allow(clippy::disallowed_methods, reason = "the clients under test are started here")]

use crate::support;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use sandtimer_proxy::{Event, ProxyBounds};
use support::{RecordingServer, World};
use tokio::task::spawn_blocking;

/// Python, as `cargo xtask test` names it.
fn python() -> String {
    std::env::var("SANDTIMER_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// A command without the proxies and configurations of this machine.
fn client(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    let pip =
        std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("PIP_"));
    pip.for_each(|name| {
        command.env_remove(name);
    });
    for variable in [
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
    ] {
        command.env_remove(variable);
    }
    command
        .env("HOME", home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("PIP_CONFIG_FILE", "/dev/null");
    command.current_dir(home).stdin(Stdio::null());
    command
}

/// Runs a command to its end while the proxy serves.
async fn output(mut command: Command) -> Output {
    let program = format!("{command:?}");
    spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

async fn succeed(command: Command) -> String {
    let program = format!("{command:?}");
    let output = output(command).await;
    assert!(output.status.success(), "{program}: {}", shown(&output));
    shown(&output)
}

/// Python's own server of a directory. Ended when it is dropped.
struct FileServer {
    child: std::process::Child,
    port: u16,
}

impl FileServer {
    fn start(directory: &Path) -> FileServer {
        let mut command = Command::new(python());
        let program = "import functools, http.server as h, sys\n\
                       server = h.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(h.SimpleHTTPRequestHandler, directory=sys.argv[1]))\n\
                       print(server.server_port, flush=True)\nserver.serve_forever()";
        command.args(["-c", program]).arg(directory).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("Python is required");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line)
            .unwrap();
        FileServer { port: line.trim().parse().unwrap(), child }
    }

    /// A proxy that allows `files.test`, and 127.0.0.1, at the server's port.
    fn world(&self) -> World {
        let entries = [format!("files.test:{}", self.port), format!("127.0.0.1:{}", self.port)];
        let world = World::new(&entries, ProxyBounds::default());
        world.resolver.answer("files.test", &[&["127.0.0.1"]]);
        world
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn allowed(world: &World) -> usize {
    world.events.take().iter().filter(|event| matches!(event, Event::Allowed { .. })).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn curl_fetches_by_every_protocol() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("file"), "the file").unwrap();
    let server = FileServer::start(home.path());
    let world = server.world();
    let url = format!("http://files.test:{}/file", server.port);
    let proxies = [
        vec!["--proxy".to_owned(), format!("http://{}", world.address)],
        vec!["--proxytunnel".to_owned(), "--proxy".to_owned(), format!("http://{}", world.address)],
        vec!["--socks5-hostname".to_owned(), world.address.to_string()],
    ];
    for proxy in &proxies {
        let mut curl = client("curl", home.path());
        // Two URLs: the connection to the proxy is used again where it can be.
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "20"]).args(proxy).args([&url, &url]);
        assert_eq!(succeed(curl).await, "the filethe file", "{proxy:?}");
    }
    assert!(allowed(&world) >= 4);
    for proxy in &proxies {
        let mut curl = client("curl", home.path());
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "20"])
            .args(proxy)
            .arg("http://other.test/");
        let refused = output(curl).await;
        assert!(!refused.status.success(), "{proxy:?}: {}", shown(&refused));
    }
    let denied = world.events.take();
    let denied = denied.iter().filter(
        |event| matches!(event, Event::Denied { denial, .. } if denial.target.to_string() == "other.test:80"),
    );
    assert_eq!(denied.count(), 3);
}

/// The answer of a denial is what curl shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn curl_shows_the_denial() {
    let home = tempfile::tempdir().unwrap();
    let world = World::new(&["allowed.test".to_owned()], ProxyBounds::default());
    let mut curl = client("curl", home.path());
    curl.args([
        "--silent",
        "--max-time",
        "20",
        "--proxy",
        &format!("http://{}", world.address),
        "http://other.test/",
    ]);
    let shown = succeed(curl).await;
    assert!(
        shown.contains("no entry for other.test, port 80. To allow the connection, add \"other.test\""),
        "{shown}"
    );
}

/// A real ClientHello, with a real client's way to name another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn curl_with_another_server_name_gets_no_bytes() {
    let home = tempfile::tempdir().unwrap();
    let server = RecordingServer::answering("\u{0}", "");
    let port = server.address.port();
    let world = World::for_server(&server, ProxyBounds::default());
    let curl = |url: &str, more: &[&str]| {
        let mut curl = client("curl", home.path());
        curl.args(["--silent", "--show-error", "--insecure", "--max-time", "20", "--proxy"]);
        curl.arg(format!("http://{}", world.address)).args(more).arg(url);
        curl
    };
    let through = format!("evil.test:443:server.test:{port}");
    let refused = output(curl("https://evil.test/", &["--connect-to", &through])).await;
    assert!(
        !refused.status.success() && shown(&refused).contains("unrecognized name"),
        "{}",
        shown(&refused)
    );
    assert_eq!((server.count(), server.received().as_str()), (1, ""));
    // The control: the same with the name of the target.
    let _ = output(curl(&format!("https://server.test:{port}/"), &[])).await;
    assert!(server.received().contains("server.test"), "{:?}", server.received());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn git_clones_over_http() {
    let home = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let mut git = client("git", home.path());
        git.args(["-c", "user.name=n", "-c", "user.email=e@x.test", "-c", "init.defaultBranch=main"])
            .args(arguments);
        git
    };
    std::fs::create_dir(home.path().join("work")).unwrap();
    std::fs::write(home.path().join("work/file"), "from git").unwrap();
    succeed(git(&["init", "--quiet", "work"])).await;
    succeed(git(&["-C", "work", "add", "file"])).await;
    succeed(git(&["-C", "work", "commit", "--quiet", "--message", "one"])).await;
    succeed(git(&["clone", "--quiet", "--bare", "work", "served/project.git"])).await;
    succeed(git(&["-C", "served/project.git", "update-server-info"])).await;
    let server = FileServer::start(&home.path().join("served"));
    let world = server.world();
    let url = format!("http://files.test:{}/project.git", server.port);
    for (scheme, copy) in [("http", "first"), ("socks5h", "second")] {
        let mut clone = git(&["clone", "--quiet", &url, copy]);
        clone.env("http_proxy", format!("{scheme}://{}", world.address));
        succeed(clone).await;
        assert_eq!(std::fs::read_to_string(home.path().join(copy).join("file")).unwrap(), "from git");
        assert!(allowed(&world) > 0);
    }
    let mut refused = git(&["clone", "--quiet", "http://other.test/project.git", "third"]);
    refused.env("http_proxy", format!("http://{}", world.address));
    let refused = output(refused).await;
    assert!(!refused.status.success() && shown(&refused).contains("403"), "{}", shown(&refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pip_downloads_from_an_index() {
    let home = tempfile::tempdir().unwrap();
    let project = home.path().join("served/simple/tiny");
    std::fs::create_dir_all(&project).unwrap();
    let wheel = "import sys, zipfile\n\
                 with zipfile.ZipFile(sys.argv[1] + '/tiny-1.0-py3-none-any.whl', 'w') as wheel:\n\
                 \x20 wheel.writestr('tiny.py', '')\n\
                 \x20 wheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
                 \x20 wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
                 \x20 wheel.writestr('tiny-1.0.dist-info/RECORD', '')\n";
    let mut make = client(&python(), home.path());
    make.args(["-c", wheel]).arg(&project);
    succeed(make).await;
    std::fs::write(
        project.join("index.html"),
        "<a href=\"tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>",
    )
    .unwrap();
    let server = FileServer::start(&home.path().join("served"));
    let world = server.world();
    let mut pip = client(&python(), home.path());
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--retries",
        "0",
        "--no-deps",
    ]);
    pip.args([
        "--index-url",
        &format!("http://files.test:{}/simple", server.port),
        "--trusted-host",
        "files.test",
        "tiny",
    ]);
    pip.env("HTTP_PROXY", format!("http://{}", world.address))
        .env("http_proxy", format!("http://{}", world.address));
    succeed(pip).await;
    assert!(home.path().join("tiny-1.0-py3-none-any.whl").exists());
    assert!(allowed(&world) >= 2);
}

/// Python's clients, pip among them, show the line of the answer to CONNECT.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn urllib_shows_the_denial() {
    let home = tempfile::tempdir().unwrap();
    let world = World::new(&["allowed.test".to_owned()], ProxyBounds::default());
    let mut fetch = client(&python(), home.path());
    fetch.args(["-c", "import urllib.request; urllib.request.urlopen('https://other.test/')"]);
    fetch.env("https_proxy", format!("http://{}", world.address));
    let refused = output(fetch).await;
    assert!(shown(&refused).contains("403 Not in the sandbox's network allow-list"), "{}", shown(&refused));
}
