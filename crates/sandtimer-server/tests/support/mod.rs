//! A real server on a port of loopback, and a client that speaks to it.
#![allow(dead_code, reason = "each suite uses its part of it")]

pub mod node;
pub mod workspace;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use sandtimer::Limits;
use sandtimer_server::{
    Defaults, HostProgram, Interpreters, JobSettings, PoolSettings, Retention, ServerHandle, Settings, Tokens,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::Agent;
use ureq::http::Response;

/// No test waits longer for anything.
pub const HARD_STOP: Duration = Duration::from_secs(30);

pub fn settings(state: &Path) -> Settings {
    Settings {
        listen: "127.0.0.1:0".parse().expect("an address"),
        state_directory: state.to_owned(),
        tokens: None,
        retention: Retention::default(),
        defaults: Defaults::default(),
        maxima: Limits::new(),
        // What a test asks for comes when it asks.
        interpreters: Interpreters {
            python: PoolSettings { ready: 0, prewarm: None },
            ..Interpreters::default()
        },
        jobs: JobSettings {
            store: None,
            slots: 2,
            file_bytes: 1 << 20,
            private_webhooks: false,
            memory: None,
        },
        templates: std::collections::BTreeMap::new(),
        patience: HARD_STOP,
        heartbeat: HARD_STOP,
        collector: None,
        estimate_tools: true,
        tool_names: sandtimer_server::ToolNames::Both,
        host: HostProgram {
            facts: Box::new(|| json!({"tier": "T3"})),
            config: json!({"limits": {}, "policy": {}, "server": {}}),
            log_error: Box::new(|message| panic!("nothing goes wrong here: {message}")),
        },
    }
}

/// A server with a directory of its own. Both go with it.
pub struct ServerFixture {
    pub server: Option<ServerHandle>,
    pub address: SocketAddr,
    pub state: TempDir,
}

impl ServerFixture {
    pub fn start() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::at(tempfile::tempdir().expect("a directory"), change)
    }

    pub fn at(state: TempDir, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings(state.path());
        change(&mut settings);
        let server = ServerHandle::start(settings).expect("it comes up");
        ServerFixture { address: server.address().expect("an address"), server: Some(server), state }
    }

    /// Stops it as SIGTERM does; its directory stays.
    pub fn stop(mut self) -> TempDir {
        self.server.take().expect("started").stop();
        std::mem::replace(&mut self.state, tempfile::tempdir().expect("a directory"))
    }

    /// Where it is and by which token, for programs.
    pub fn variables(&self, token: &str) -> [(&'static str, String); 2] {
        [("SANDTIMER_URL", format!("http://{}", self.address)), ("SANDTIMER_TOKEN", token.to_owned())]
    }

    pub fn client(&self) -> TestClient {
        TestClient::new(self.address, None)
    }

    pub fn client_with(&self, token: &str) -> TestClient {
        TestClient::new(self.address, Some(token))
    }
}

impl Drop for ServerFixture {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

/// Tokens from a file as a server reads them.
pub fn tokens(text: &str) -> Tokens {
    use std::os::unix::fs::PermissionsExt;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600)).expect("set");
    Tokens::read(file.path()).expect("tokens")
}

pub struct TestClient {
    agent: Agent,
    pub address: SocketAddr,
    token: Option<String>,
}

impl TestClient {
    pub fn new(address: SocketAddr, token: Option<&str>) -> Self {
        let config =
            Agent::config_builder().http_status_as_error(false).timeout_global(Some(HARD_STOP)).build();
        TestClient { agent: config.into(), address, token: token.map(str::to_owned) }
    }

    fn answered(response: Result<Response<ureq::Body>, ureq::Error>) -> (u16, Value) {
        let mut response = response.expect("an answer");
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string().expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn bearer(&self) -> String {
        self.token.as_ref().map(|token| format!("Bearer {token}")).unwrap_or_default()
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    pub fn post_bytes(&self, path: &str, body: &[u8]) -> (u16, Value) {
        let mut request = self.agent.post(self.url(path));
        if self.token.is_some() {
            request = request.header("Authorization", self.bearer());
        }
        Self::answered(request.send(body))
    }

    pub fn post_with(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> (u16, Value) {
        let mut request = self.agent.post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Self::answered(request.send(body.to_string().as_bytes()))
    }

    pub fn get(&self, path: &str) -> (u16, Value) {
        self.get_with(path, &[])
    }

    pub fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        Self::answered(self.request(path, headers))
    }

    fn request(&self, path: &str, headers: &[(&str, &str)]) -> Result<Response<ureq::Body>, ureq::Error> {
        let mut request = self.agent.get(self.url(path));
        if self.token.is_some() {
            request = request.header("Authorization", self.bearer());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.call()
    }

    pub fn put(&self, path: &str, body: &[u8]) -> (u16, Value) {
        let mut request = self.agent.put(self.url(path));
        if self.token.is_some() {
            request = request.header("Authorization", self.bearer());
        }
        Self::answered(request.send(body))
    }

    /// The bytes of an answer.
    pub fn bytes(&self, path: &str, headers: &[(&str, &str)]) -> (u16, Vec<u8>) {
        let mut response = self.request(path, headers).expect("an answer");
        let bytes = response.body_mut().with_config().limit(1 << 30).read_to_vec().expect("a body");
        (response.status().as_u16(), bytes)
    }

    pub fn delete(&self, path: &str) -> (u16, Value) {
        let mut request = self.agent.delete(self.url(path));
        if self.token.is_some() {
            request = request.header("Authorization", self.bearer());
        }
        Self::answered(request.call())
    }

    /// A run that is answered to its end or to `wait_ms`.
    pub fn run(&self, body: &Value) -> Value {
        let (status, answer) = self.post("/v1/runs", body);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The id of a run that is active.
    pub fn start(&self, mut body: Value) -> String {
        body["wait_ms"] = 0.into();
        let answer = self.run(&body);
        answer["run_id"].as_str().expect("an id").to_owned()
    }

    /// The run once it has ended.
    pub fn ended(&self, id: &str) -> Value {
        let (status, answer) = self.get(&format!("/v1/runs/{id}?wait_ms=20000"));
        assert_eq!((status, answer["status"].as_str()), (200, Some("ended")), "{answer}");
        answer
    }

    /// The events of a run, after one of them.
    pub fn events(&self, id: &str, last: Option<&str>) -> Events {
        let headers: Vec<(&str, &str)> = last.map(|last| ("Last-Event-ID", last)).into_iter().collect();
        self.events_at(&format!("/v1/runs/{id}/events"), &headers)
    }

    /// The events at a path.
    pub fn events_at(&self, path: &str, headers: &[(&str, &str)]) -> Events {
        let response = self.request(path, headers).expect("an answer");
        assert_eq!(response.status().as_u16(), 200);
        Events(Box::new(BufReader::new(response.into_body().into_reader())))
    }
}

#[derive(Debug, Clone)]
pub struct ReceivedEvent {
    pub id: String,
    pub name: String,
    pub data: Value,
}

pub struct Events(Box<dyn BufRead>);

impl Iterator for Events {
    type Item = ReceivedEvent;

    fn next(&mut self) -> Option<ReceivedEvent> {
        let mut event = ReceivedEvent { id: String::new(), name: String::new(), data: Value::Null };
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("a line") == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("event", name)) => event.name = name.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).expect("JSON"),
                Some(("", _)) => {}
                _ if event.name.is_empty() => {}
                _ => return Some(event),
            }
        }
    }
}

/// A connection of its own, for what no client would send.
pub fn raw(address: SocketAddr, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(HARD_STOP)).expect("set");
    stream.write_all(request).expect("sent");
    stream
}

/// What a server answers to a body that is longer than it takes.
pub fn refused_for_its_length(serving: &ServerFixture, path: &str) -> String {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 70000000\r\n\
         Connection: close\r\n\r\n",
        serving.address
    );
    read_to_end(raw(serving.address, head.as_bytes()))
}

/// Returns everything that the server sends until it closes.
pub fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Looks again until it is so.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = sandtimer_os::clock::monotonic_nanoseconds() + HARD_STOP.as_nanos() as u64;
    while !is_so() {
        assert!(sandtimer_os::clock::monotonic_nanoseconds() < end, "not in time: {what}");
        std::thread::yield_now();
    }
}
