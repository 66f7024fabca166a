//! `sandtimer mcp`: carries lines between a client's stdin and stdout and a server of this user,
//! which it starts where there is none. The server is a program of its own, so that runs outlive
//! the client.
//!
//! ```text
//! connect ─▶ no server: start one ─▶ connect again, for at most 30 s ─▶ upgrade ─▶ carry until either side ends
//!                              └─▶ it ends: what it said, unless another server has the records ─▶ connect to that one
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use sandtimer::limits::{Format, Setting, parse_string};
use sandtimer::model::LimitKind;
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_records::{MCP_DIRECTORY, named_state_directory};
use sandtimer_server::ToolNames;

use super::{CommandFailure, serve};
use crate::args::McpArguments;
use crate::render::{self, To};

/// How long a server may take to come up, including the end of one before it.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval between two tries to connect to it.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long until a server is started again where another has the records: that one comes up, or is
/// ending.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);
/// The most bytes of the head of an answer, and of a server's last output.
const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_LOG_TAIL_BYTES: u64 = 2000;
/// A log that is longer is begun again by the next server.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// The most bytes that the path of a socket can have.
const MAX_SOCKET_PATH_BYTES: usize = 107;
const BUFFER_BYTES: usize = 64 * 1024;

/// Where the server of this user is, and where it keeps its records.
#[derive(Debug)]
struct ServerLocation {
    socket: PathBuf,
    state: PathBuf,
}

pub(crate) fn main(given: &McpArguments) -> Result<ExitCode, CommandFailure> {
    let query = query(given)?;
    let location = ServerLocation::find(given.state_dir.as_deref())?.prepared()?;
    let stream = connect_or_start(&location, |stream| request_upgrade(stream, &query))?;
    carry(stream)
}

/// `sandtimer serve --on-demand`: starts the server of this user if it is not running, and prints
/// the path of its socket.
pub(crate) fn start_on_demand() -> Result<ExitCode, CommandFailure> {
    let location = ServerLocation::find(None)?.prepared()?;
    connect_or_start(&location, check_health)?;
    render::print(&format!("unix:{}\n", location.socket.display()));
    Ok(ExitCode::SUCCESS)
}

/// A connection to this user's server for MCP clients, where there is one.
pub(super) fn connect() -> io::Result<UnixStream> {
    let location = ServerLocation::find(None).map_err(|_| io::ErrorKind::NotFound)?;
    let stream = UnixStream::connect(&location.socket)?;
    if socket_peercred(&stream)?.uid != rustix::process::geteuid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(stream)
}

/// The budget and the directory of this connection, as the server takes them.
fn query(given: &McpArguments) -> Result<String, CommandFailure> {
    // The server has the environment of whichever client started it.
    let names = match serve::tool_names(given.tools.as_deref())? {
        ToolNames::Ours => "ours",
        ToolNames::Trained => "trained",
        _ => "both",
    };
    let mut query = vec![format!("estimates={}", serve::estimate_tools()), format!("tools={names}")];
    for (flag, kind, text) in [
        ("--wall", LimitKind::Wall, &given.wall),
        ("--turns", LimitKind::Turns, &given.turns),
        ("--stall", LimitKind::Stall, &given.stall),
    ] {
        let Some(text) = text else { continue };
        let text = text
            .to_str()
            .ok_or_else(|| CommandFailure::usage(format!("{flag}: `{}` is not text", text.display())))?;
        if let Setting::At(value) = parse_string(flag, Format::flag(kind), text, "the command line")? {
            query.push(match kind {
                LimitKind::Turns => format!("turns={value}"),
                kind => {
                    format!("{}={}", sandtimer::limits::Key::Kind(kind).wire(), value.div_ceil(1_000_000))
                }
            });
        }
    }
    if given.network {
        query.push("network=true".to_owned());
    }
    if let Some(template) = &given.sandbox {
        query.push(format!("sandbox={}", encoded(template)));
    }
    if let Some(directory) = &given.workspace {
        let failed = |why: &dyn std::fmt::Display| {
            CommandFailure::usage(format!("--workspace: {} cannot be used: {why}", directory.display()))
        };
        let path = directory.canonicalize().map_err(|error| failed(&error))?;
        let path = path.to_str().ok_or_else(|| failed(&"its path is not text"))?;
        query.push(format!("workspace={}", encoded(path)));
    }
    Ok(query.join("&"))
}

/// A text as a part of an address.
fn encoded(text: &str) -> String {
    let each = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(each).collect()
}

impl ServerLocation {
    fn find(state_dir: Option<&Path>) -> Result<Self, CommandFailure> {
        let state = match state_dir {
            Some(directory) => std::path::absolute(directory).map_err(|error| {
                CommandFailure::usage(format!("--state-dir: {} {error}", directory.display()))
            })?,
            None => {
                let of_all = serve::state_directory()?;
                let of_all = std::path::absolute(&of_all).map_err(|error| {
                    CommandFailure::usage(format!("SANDTIMER_STATE_DIR: {} {error}", of_all.display()))
                })?;
                of_all.join(MCP_DIRECTORY)
            }
        };
        let runtime =
            std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let is_named = state_dir.is_some() || named_state_directory().is_some();
        let directory = match runtime {
            Some(runtime) if !is_named => runtime.join("sandtimer"),
            _ => state.clone(),
        };
        Ok(ServerLocation { socket: directory.join("mcp.sock"), state })
    }

    /// Makes its directories where they are missing.
    fn prepared(self) -> Result<Self, CommandFailure> {
        let location = self;
        own_directory(&location.state)?;
        location.socket.parent().map_or(Ok(()), own_directory)?;
        if location.socket.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
            let path = location.socket.display();
            return Err(CommandFailure::usage(format!(
                "{path} is longer than the {MAX_SOCKET_PATH_BYTES} bytes that the path of a socket can have; use a shorter one (--state-dir of `sandtimer mcp`, SANDTIMER_STATE_DIR)"
            )));
        }
        Ok(location)
    }

    fn log(&self) -> PathBuf {
        self.state.join("mcp.log")
    }
}

/// Makes a directory if it is missing; fails if another user could change it.
fn own_directory(path: &Path) -> Result<(), CommandFailure> {
    let failed =
        |error: io::Error| CommandFailure::usage(format!("{} cannot be used: {error}", path.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let found = std::fs::metadata(path).map_err(failed)?;
    if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(CommandFailure::usage(format!(
            "{} belongs to another user, or others may write to it; use a directory of your own (--state-dir of `sandtimer mcp`, SANDTIMER_STATE_DIR)",
            path.display()
        )));
    }
    Ok(())
}

/// Connects to the server of this user, which is started if it is not running, and returns what
/// `handshake` does. A server that is ending closes the connection before it answers: then
/// `handshake` returns `None`, and is called again.
fn connect_or_start<T>(
    location: &ServerLocation,
    handshake: impl Fn(UnixStream) -> Result<Option<T>, CommandFailure>,
) -> Result<T, CommandFailure> {
    let begun = monotonic_nanoseconds();
    let (until, mut start_at) = (begun + SERVER_START_TIMEOUT.as_nanos() as u64, begun);
    let (mut started, mut message) = (None, "nothing".to_owned());
    loop {
        match UnixStream::connect(&location.socket) {
            Ok(stream) => {
                if let Some(answered) = handshake(stream)? {
                    return Ok(answered);
                }
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
            {
                if started.is_none() && monotonic_nanoseconds() >= start_at {
                    started = Some(StartedServer::begin(location)?);
                }
                if let Some(server) = &mut started
                    && let Some(output) = server.made_room()?
                {
                    (started, message) = (None, output);
                    start_at = monotonic_nanoseconds() + RESTART_INTERVAL.as_nanos() as u64;
                }
            }
            Err(error) => {
                return Err(CommandFailure::usage(format!(
                    "cannot connect to {}: {error}",
                    location.socket.display()
                )));
            }
        }
        if monotonic_nanoseconds() > until {
            return Err(CommandFailure::usage(format!(
                "no server came up at {} within {} s; the last one that was started printed: {message}; end the process that holds the directory, or use another directory (--state-dir of `sandtimer mcp`, SANDTIMER_STATE_DIR)",
                location.socket.display(),
                SERVER_START_TIMEOUT.as_secs()
            )));
        }
        // Nothing to poll: a pause.
        let _ = poll(&mut [], Some(&POLL_INTERVAL));
    }
}

/// A server that this program has started.
#[derive(Debug)]
struct StartedServer {
    child: Child,
    log: PathBuf,
    /// Where in the log its messages begin.
    output_offset: u64,
}

impl StartedServer {
    /// Starts a server that ends by itself once it is unused.
    #[allow(clippy::disallowed_methods, reason = "it is this program itself, not untrusted code")]
    fn begin(location: &ServerLocation) -> Result<Self, CommandFailure> {
        let mut listen = std::ffi::OsString::from("unix:");
        listen.push(&location.socket);
        let (log, output_offset) = open_log(&location.log()).map_err(|error| {
            CommandFailure::usage(format!("{} cannot be written: {error}", location.log().display()))
        })?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("serve")
            .arg("--end-when-unused")
            .arg("--listen")
            .arg(listen)
            .arg("--state-dir")
            .arg(&location.state);
        // Only this user can use the socket, and the server works on no other user's jobs.
        command.env_remove("SANDTIMER_TOKEN_FILE").env_remove("SANDTIMER_STORE").current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(CommandFailure::system("a server cannot be started"))?;
        Ok(StartedServer { child, log: location.log(), output_offset })
    }

    /// Its output, if it has ended because another server is there. An end for another reason is a
    /// failure.
    fn made_room(&mut self) -> Result<Option<String>, CommandFailure> {
        let ended =
            self.child.try_wait().map_err(CommandFailure::system("the server cannot be waited for"))?;
        match ended {
            None => Ok(None),
            // Another server is there, or a signal has ended this one before it was used.
            Some(status) if status.success() || status.code() == Some(serve::EXIT_IN_USE.into()) => {
                Ok(Some(self.read_output()))
            }
            Some(status) => Err(CommandFailure::usage(format!(
                "the server that was started has ended ({status}); it printed: {}",
                self.read_output()
            ))),
        }
    }

    /// Its last output.
    fn read_output(&self) -> String {
        let mut message = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| {
            let from = file.metadata()?.len().saturating_sub(MAX_LOG_TAIL_BYTES).max(self.output_offset);
            file.seek(SeekFrom::Start(from))?;
            file.take(MAX_LOG_TAIL_BYTES).read_to_end(&mut message)
        });
        let message = String::from_utf8_lossy(&message);
        let lines = message.lines().map(|line| line.trim().trim_start_matches("sandtimer: "));
        let message = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        if read.is_err() || message.is_empty() { "nothing".to_owned() } else { message }
    }
}

/// Opens the log for appending, and returns where new messages begin. A server that is ending may
/// still write to it.
fn open_log(path: &Path) -> io::Result<(File, u64)> {
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let length = log.metadata()?.len();
    if length <= MAX_LOG_BYTES {
        return Ok((log, length));
    }
    log.set_len(0)?;
    Ok((log, 0))
}

fn no_answer(error: io::Error) -> CommandFailure {
    CommandFailure::usage(format!("the server does not answer: {error}"))
}

/// Sends the head of a request, and reads the head of the answer. `None` if the connection was
/// closed first.
fn exchange(stream: &mut UnixStream, request: &str) -> Result<Option<Vec<u8>>, CommandFailure> {
    let owner = socket_peercred(&*stream).map_err(|error| no_answer(error.into()))?.uid;
    if owner != rustix::process::geteuid() {
        return Err(CommandFailure::usage("the server belongs to another user"));
    }
    stream.set_read_timeout(Some(SERVER_START_TIMEOUT)).map_err(no_answer)?;
    if stream.write_all(request.as_bytes()).is_err() {
        return Ok(None);
    }
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
        match stream.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => head.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(no_answer(error)),
        }
    }
    Ok(Some(head))
}

/// Checks that the server answers. `None` if it does not, because it is ending.
fn check_health(mut stream: UnixStream) -> Result<Option<()>, CommandFailure> {
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let head = exchange(&mut stream, request)?;
    Ok(head.filter(|head| head.starts_with(b"HTTP/1.1 200")).map(drop))
}

/// Requests a stream of lines. `None` if the connection was closed first.
fn request_upgrade(mut stream: UnixStream, query: &str) -> Result<Option<UnixStream>, CommandFailure> {
    let request = format!(
        "GET /mcp/stdio?{query} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: sandtimer-mcp\r\n\r\n"
    );
    let Some(head) = exchange(&mut stream, &request)? else { return Ok(None) };
    if head.starts_with(b"HTTP/1.1 101") {
        if let Some(remark) = header_of(&head, "sandtimer-remark") {
            render::note(&remark);
        }
        stream.set_read_timeout(None).map_err(no_answer)?;
        return Ok(Some(stream));
    }
    let mut body = vec![0; MAX_HEAD_BYTES];
    let length = stream.read(&mut body).unwrap_or(0);
    let message: serde_json::Value = serde_json::from_slice(&body[..length]).unwrap_or_default();
    if message["code"] == "shutting_down" {
        return Ok(None);
    }
    let status = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    Err(CommandFailure::usage(message["message"].as_str().map_or(status, str::to_owned)))
}

/// A line of the head of an answer.
fn header_of(head: &[u8], name: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value.trim().to_owned())
}

/// Carries bytes both ways until the server closes the connection, which it does once stdin has
/// ended and all is sent.
fn carry(mut stream: UnixStream) -> Result<ExitCode, CommandFailure> {
    let mut forth = stream.try_clone().map_err(CommandFailure::system("the connection cannot be shared"))?;
    let ended = Arc::new(AtomicBool::new(false));
    let stdin_ended = ended.clone();
    let feeding = move || {
        // A client that cannot be read any more is one that has gone.
        let _ = io::copy(&mut io::stdin().lock(), &mut forth);
        stdin_ended.store(true, Ordering::Release);
        let _ = forth.shutdown(Shutdown::Write);
    };
    std::thread::Builder::new().spawn(feeding).map_err(CommandFailure::system("cannot start a thread"))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        if !render::write(To::Stdout, &buffer[..count]) {
            // No process reads stdout: the client has gone, and runs for which it waited end with
            // this connection.
            return Ok(ExitCode::SUCCESS);
        }
    }
    if ended.load(Ordering::Acquire) {
        return Ok(ExitCode::SUCCESS);
    }
    Err(CommandFailure::usage(
        "the server ended; what it ran is recorded, and the next `sandtimer mcp` shows it",
    ))
}
