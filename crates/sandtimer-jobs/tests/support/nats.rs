//! A `nats-server` of a test's own, on loopback, with a directory of its own and a port that was
//! free; ended with the test. And a wire to it that can be cut.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandtimer_os::clock::monotonic_nanoseconds;
use tempfile::TempDir;

/// After this a test has failed.
const HARD_STOP: u64 = 60_000_000_000;
const STEP: Duration = Duration::from_millis(10);

/// A server that runs, or that a test has killed.
pub struct NatsServer {
    child: Child,
    pub port: u16,
    address: &'static str,
    directory: TempDir,
    configuration: Option<PathBuf>,
    with_jetstream: bool,
}

impl NatsServer {
    /// Starts a server with JetStream; returns `None`, with a message, if the program is not
    /// installed.
    pub fn start() -> Option<Self> {
        Self::start_with("", true)
    }

    /// One with these lines in its configuration.
    pub fn start_with(configuration: &str, with_jetstream: bool) -> Option<Self> {
        Self::start_at("127.0.0.1", configuration, with_jetstream)
    }

    /// Starts a server that listens on all addresses of the calling thread's network namespace.
    pub fn start_everywhere(configuration: &str) -> Option<Self> {
        Self::start_at("0.0.0.0", configuration, true)
    }

    fn start_at(address: &'static str, configuration: &str, with_jetstream: bool) -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("nats.conf");
        std::fs::write(&file, configuration).expect("written");
        let configuration = (!configuration.is_empty()).then_some(file);
        let child = spawn(directory.path(), address, 0, configuration.as_deref(), with_jetstream)?;
        let mut server = NatsServer { child, port: 0, address, directory, configuration, with_jetstream };
        server.port = server.until_it_listens();
        Some(server)
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it keeps the streams.
    pub fn kept(&self) -> PathBuf {
        self.directory.path().join("jetstream")
    }

    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("it ends");
    }

    /// Whether the server has ended, for example because a test killed it.
    pub fn is_dead(&mut self) -> bool {
        self.child.try_wait().expect("waited").is_some()
    }

    /// Starts it again, on the same port and directory.
    pub fn again(&mut self) {
        let known = ports(self.directory.path());
        known.into_iter().for_each(|file| std::fs::remove_file(file).expect("removed"));
        let (directory, configuration) = (self.directory.path(), self.configuration.as_deref());
        self.child = spawn(directory, self.address, self.port, configuration, self.with_jetstream)
            .expect("it was there before");
        self.until_it_listens();
    }

    pub fn signal(&self, signal: Signal) {
        let server = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).expect("a pidfd");
        pidfd_send_signal(server.as_fd(), signal).expect("sent");
    }

    /// Waits for the port that it reports.
    fn until_it_listens(&mut self) -> u16 {
        let begun = monotonic_nanoseconds();
        loop {
            for file in ports(self.directory.path()) {
                let text = std::fs::read_to_string(file).unwrap_or_default();
                let port = text.split("://127.0.0.1:").nth(1).and_then(|rest| rest.split('"').next());
                if let Some(port) = port.and_then(|port| port.parse().ok())
                    && TcpStream::connect(("127.0.0.1", port)).is_ok()
                {
                    return port;
                }
            }
            assert!(self.child.try_wait().expect("waited").is_none(), "nats-server ended at once");
            assert!(monotonic_nanoseconds() - begun < HARD_STOP, "nats-server never listened");
            std::thread::park_timeout(STEP);
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "the server is a process of its own, which is waited for")]
fn spawn(
    directory: &Path,
    address: &str,
    port: u16,
    configuration: Option<&Path>,
    with_jetstream: bool,
) -> Option<Child> {
    // Debian's place of it, which is not in every user's PATH.
    let program = ["/usr/sbin/nats-server", "/usr/local/bin/nats-server", "/usr/bin/nats-server"];
    let Some(program) = program.into_iter().find(|path| Path::new(path).exists()) else {
        let _ = writeln!(std::io::stderr(), "skipped: there is no nats-server");
        return None;
    };
    let mut command = Command::new(program);
    let port = if port == 0 { "-1".to_owned() } else { port.to_string() };
    command.args(["-a", address, "-p", &port, "--ports_file_dir"]).arg(directory);
    if with_jetstream {
        command.arg("-js").arg("-sd").arg(directory);
    }
    if let Some(file) = configuration {
        command.arg("-c").arg(file);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Some(command.spawn().expect("it starts"))
}

fn ports(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("readable").flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "ports")).collect()
}

/// A certificate authority, `ca.pem`, and a certificate of it for these names, `own.pem` with
/// `own.key`; `None`, with a message, if openssl is not installed.
#[allow(clippy::disallowed_methods, reason = "openssl is waited for")]
pub fn certificates(directory: &Path, names: &str) -> Option<()> {
    let make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca -keyout ca.key \
        -out ca.pem -addext basicConstraints=critical,CA:TRUE && \
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=own -keyout own.key -out own.csr && \
        printf 'subjectAltName=%s' \"$0\" > names && \
        openssl x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out own.pem";
    let made = Command::new("sh").args(["-c", make, names]).current_dir(directory).output().expect("a shell");
    if !made.status.success() {
        let _ =
            writeln!(std::io::stderr(), "skipped: no certificate: {}", String::from_utf8_lossy(&made.stderr));
    }
    made.status.success().then_some(())
}

/// The part of a server's configuration for them.
pub fn tls(directory: &Path) -> String {
    let file = |name: &str| directory.join(name);
    format!("tls {{ cert_file: {:?}, key_file: {:?} }}\n", file("own.pem"), file("own.key"))
}

/// A connection to a server that can be cut silently, and mended. Its threads end with their
/// connections.
pub struct Wire {
    pub port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Wire {
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let own = listener.local_addr().expect("bound").port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let ends = (client.try_clone().expect("a copy"), server.try_clone().expect("a copy"));
                let (one, other) = (Arc::clone(&cut), Arc::clone(&cut));
                std::thread::spawn(move || carry(client, server, &one));
                std::thread::spawn(move || carry(ends.1, ends.0, &other));
            }
        });
        Wire { port: own, is_cut }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        while is_cut.load(Ordering::SeqCst) {
            std::thread::park_timeout(STEP);
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // Closes the other end, too; it may be closed already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
