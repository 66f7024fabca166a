//! Waiting for a port of a process, or of any process of the sandbox. Without a sandbox of the
//! engine each process has its own loopback: that is reported, instead of a wait without end.
//!
//! ```text
//! watching ─▶ a process listens ─▶ (mode "http") its answer has the status that is waited for ─▶ ready
//!          └▶ the process has ended: process_exited
//! ```

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use sandtimer::Run;
use sandtimer::engine::Sandbox;
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::caller::{BodyFields, Caller};
use super::failure::ContainerFailure;
use super::frames::respond;
use super::storage::SandboxStorage;
use super::{outcome, processes};
use crate::auth::OwnerId;
use crate::body::RequestFields;
use crate::contexts::ContextService;
use crate::error::ApiRejection;
use crate::events::{EventSource, StreamEvent};
use crate::quota::ConcurrencyLimit;
use crate::registry::OwnedResource;
use crate::runs::{self, LiveRun, RunPhase};
use crate::sandboxes::ports::{POLL_INTERVAL, connect, ports};

/// The error for a port without a process, if there is no sandbox of the engine.
const NO_PROCESS: &str = "each process on this server has a loopback of its own: give `processId`, the process that listens on the \
                          port";
/// How long a server has for its answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read at most: the first line has its status.
const MAX_READ: usize = 1024;
/// Bytes of a path.
const MAX_PATH: usize = 2048;
/// The default interval between two requests, in milliseconds.
const INTERVAL_MS: u64 = 500;
/// The shortest and the longest interval that a client may give.
const INTERVAL_BOUNDS_MS: (u64, u64) = (50, 10_000);

/// Requests at a time, of one owner and in all: each keeps a thread until it is answered.
static REQUESTS: ConcurrencyLimit = ConcurrencyLimit::new(4, 16);
/// Reads of a sandbox's ports at a time, as `runs::listens` has them for those of a run.
static PORT_READS: ConcurrencyLimit = ConcurrencyLimit::new(2, 8);

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new().route("/api/port-watch", post(watch))
}

async fn watch(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let port = fields.number("port")?.filter(|port| (1..=65_535).contains(port));
    let port = port.and_then(|port| u16::try_from(port).ok());
    let port = port
        .ok_or_else(|| ContainerFailure::new(400, "INVALID_PORT", "port: give a number from 1 to 65535"))?;
    let http = HttpProbe::parse(&mut fields)?;
    let listener = match fields.string("processId")? {
        Some(id) => PortListener::Process(processes::run_of(&caller, &id)?),
        None => match caller.sandbox.storage(&service).await? {
            SandboxStorage::Sandbox(sandbox) => PortListener::Any(sandbox),
            SandboxStorage::Directories(_) => PortListener::Nothing,
        },
    };
    Ok(respond(PortWatch { port, http, listener, step: 0 }, service.runs.core.messages.heartbeat))
}

/// What a server is asked, and the answer that is waited for.
#[derive(Debug, Clone)]
struct HttpProbe {
    path: String,
    status: (u64, u64),
    interval: Duration,
}

impl HttpProbe {
    /// `None`: it is enough that a process listens.
    fn parse(fields: &mut RequestFields) -> Result<Option<Self>, ContainerFailure> {
        if fields.enumeration("mode", &["http", "tcp"])? != Some("http") {
            return Ok(None);
        }
        let path = fields.string("path")?.unwrap_or_else(|| "/".to_owned());
        let is_path = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_path || path.len() > MAX_PATH {
            let why = format!("give a path that begins with `/`, of at most {MAX_PATH} printable characters");
            return Err(ContainerFailure::invalid("path", &why));
        }
        let status = (fields.number("statusMin")?.unwrap_or(200), fields.number("statusMax")?.unwrap_or(399));
        let interval = fields
            .number("interval")?
            .unwrap_or(INTERVAL_MS)
            .clamp(INTERVAL_BOUNDS_MS.0, INTERVAL_BOUNDS_MS.1);
        Ok(Some(HttpProbe { path, status, interval: Duration::from_millis(interval) }))
    }

    /// Waits for the answer, or the end of the process. Where this server may not enter the
    /// process's network, a listening process counts as ready.
    async fn wait(&self, run: &LiveRun, port: u16) -> Value {
        let mut phase = run.watch_phase();
        loop {
            let now = phase.borrow_and_update().clone();
            let RunPhase::Running(running) = now else { return exited(run, port) };
            match self.ask(run, running, port).await {
                Ok(status) if self.accepts(status) => return answered(port, status),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return json!({"type": "ready", "port": port});
                }
                Ok(_) | Err(_) => {}
            }
            // After the time, or once the process has ended, it is asked again.
            let _ = timeout(self.interval, phase.changed()).await;
        }
    }

    fn accepts(&self, status: u16) -> bool {
        (self.status.0..=self.status.1).contains(&u64::from(status))
    }

    /// Waits for the answer of any process of the sandbox.
    async fn wait_any(&self, sandbox: &Sandbox, port: u16) -> Result<Value, ApiRejection> {
        loop {
            any_listens(sandbox, port).await?;
            match self.ask_any(sandbox, port).await {
                Ok(status) if self.accepts(status) => return Ok(answered(port, status)),
                Ok(_) | Err(_) => tokio::time::sleep(self.interval).await,
            }
        }
    }

    async fn ask_any(&self, sandbox: &Sandbox, port: u16) -> io::Result<u16> {
        let turn = REQUESTS.enter(&OwnerId::recorded(&sandbox.owner())).await;
        let stream = connect(sandbox, port).await.map_err(|rejection| io::Error::other(rejection.message))?;
        let (stream, path) = (stream.into_std()?, self.path.clone());
        stream.set_nonblocking(false)?;
        let asked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            answer_status(stream, &path, port)
        });
        asked.await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }

    async fn ask(&self, run: &LiveRun, running: Arc<Run>, port: u16) -> io::Result<u16> {
        let turn = REQUESTS.enter(run.owner()).await;
        let path = self.path.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            answer_status(running.connect(port, ANSWER_TIMEOUT)?, &path, port)
        });
        asked.await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

/// The status of the answer to a request for this path (RFC 9112, section 4).
fn answer_status(mut stream: TcpStream, path: &str, port: u16) -> io::Result<u16> {
    let end = monotonic_nanoseconds() + ANSWER_TIMEOUT.as_nanos() as u64;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\nAccept: */*\r\n\r\n");
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut read = Vec::with_capacity(MAX_READ);
    let mut part = [0; MAX_READ];
    while !read.contains(&b'\n') && read.len() < MAX_READ {
        let left = Duration::from_nanos(end.saturating_sub(monotonic_nanoseconds()));
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => break,
            count => read.extend_from_slice(&part[..count]),
        }
    }
    let line = String::from_utf8_lossy(&read);
    let mut parts = line.lines().next().unwrap_or_default().split(' ');
    let is_http = parts.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let status = parts.next().and_then(|part| part.parse().ok()).filter(|_| is_http);
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn answered(port: u16, status: u16) -> Value {
    json!({"type": "ready", "port": port, "statusCode": status})
}

fn exited(run: &LiveRun, port: u16) -> Value {
    json!({"type": "process_exited", "port": port, "exitCode": outcome::exit_code(run)})
}

/// What is to listen on a port.
enum PortListener {
    Process(Arc<LiveRun>),
    /// Any process of the sandbox.
    Any(Sandbox),
    Nothing,
}

struct PortWatch {
    port: u16,
    http: Option<HttpProbe>,
    listener: PortListener,
    step: u8,
}

/// Waits until a process of the sandbox listens, for as long as the sandbox is there.
async fn any_listens(sandbox: &Sandbox, port: u16) -> Result<(), ApiRejection> {
    let owner = OwnerId::recorded(&sandbox.owner());
    loop {
        let turn = PORT_READS.enter(&owner).await;
        let found = ports(sandbox).await?;
        drop(turn);
        if found.iter().any(|one| one.port == port) {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl PortWatch {
    async fn outcome(&self) -> Value {
        let ready = || json!({"type": "ready", "port": self.port});
        let error = |message: &str| json!({"type": "error", "port": self.port, "error": message});
        match &self.listener {
            PortListener::Nothing => error(NO_PROCESS),
            PortListener::Any(sandbox) => {
                let listening = match &self.http {
                    Some(probe) => probe.wait_any(sandbox, self.port).await,
                    None => any_listens(sandbox, self.port).await.map(|()| ready()),
                };
                listening.unwrap_or_else(|rejection| error(&rejection.message))
            }
            PortListener::Process(run) => match runs::listens(run, self.port, None).await {
                Ok(true) => match &self.http {
                    Some(probe) => probe.wait(run, self.port).await,
                    None => ready(),
                },
                Ok(false) => exited(run, self.port),
                Err(rejection) => error(&rejection.message),
            },
        }
    }
}

impl EventSource for PortWatch {
    async fn next(&mut self) -> Option<StreamEvent> {
        let data = match self.step {
            0 => json!({"type": "watching", "port": self.port}),
            1 => self.outcome().await,
            _ => return None,
        };
        // Only here: the future may be dropped before.
        self.step += 1;
        Some(StreamEvent { id: String::new(), name: "", data })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answered(answer: &'static [u8]) -> io::Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepted");
            let mut asked = [0; 256];
            let count = stream.read(&mut asked).expect("a request");
            stream.write_all(answer).expect("written");
            String::from_utf8_lossy(&asked[..count]).into_owned()
        });
        let status =
            answer_status(TcpStream::connect(("127.0.0.1", port)).expect("connected"), "/ready", port);
        let asked = serving.join().expect("served");
        assert!(asked.starts_with("GET /ready HTTP/1.1\r\n") && asked.ends_with("\r\n\r\n"), "{asked}");
        status
    }

    #[test]
    fn status_is_that_of_the_first_line() {
        assert_eq!(answered(b"HTTP/1.0 404 Not Found\r\n\r\n").expect("a status"), 404);
        assert_eq!(answered(b"HTTP/1.1 204\r\n\r\n").expect("a status"), 204);
        for wrong in [&b"SSH-2.0-OpenSSH\r\n"[..], b"HTTP/1.1 two hundred\r\n", b"", &[b'x'; 4096]] {
            assert_eq!(answered(wrong).expect_err("no status").kind(), io::ErrorKind::InvalidData);
        }
    }
}
