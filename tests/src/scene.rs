//! The canaries of a suite: things on the host that an attack must not reach, and that a bare run
//! does reach.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::command::{hostile, hostile_arguments};
use crate::process::{StartedProcess, new_marker, start};

/// What the canary secret holds.
const SECRET: &str = "nobody reads this\n";

/// Credentials that lie in the workspace, as a project's own files may: by directory and name.
const CREDENTIALS: [(&str, &str); 4] = [
    ("project/.aws", "credentials"),
    ("project", ".netrc"),
    ("project/.docker", "config.json"),
    ("", ".pypirc"),
];

/// Canaries, alive as long as this is.
#[derive(Debug)]
pub struct CanaryScene {
    directory: TempDir,
    canary: Option<StartedProcess>,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    nameless: UnixListener,
    nameless_name: String,
}

impl Default for CanaryScene {
    fn default() -> Self {
        CanaryScene::new()
    }
}

impl CanaryScene {
    /// # Panics
    /// When a canary cannot be set up.
    #[must_use]
    pub fn new() -> Self {
        let directory =
            tempfile::Builder::new().prefix("st-scene-").tempdir().expect("a temporary directory");
        let mode = std::fs::Permissions::from_mode;
        std::fs::set_permissions(directory.path(), mode(0o755)).expect("own directory");
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("secret"), SECRET).expect("a secret");
        std::fs::set_permissions(at("secret"), mode(0o600)).expect("own file");
        std::fs::create_dir(at("workspace")).expect("a workspace");
        std::fs::copy(hostile(), at("workspace/setuid")).expect("a copy");
        std::fs::set_permissions(at("workspace/setuid"), mode(0o4755)).expect("own file");
        for (directory, file) in CREDENTIALS {
            std::fs::create_dir_all(at("workspace").join(directory)).expect("a directory");
            std::fs::write(at("workspace").join(directory).join(file), SECRET).expect("a credential");
        }
        let nameless_name = new_marker();
        let name = SocketAddr::from_abstract_name(&nameless_name).expect("a short name");
        let scene = CanaryScene {
            canary: Some(sleeper()),
            tcp: TcpListener::bind("127.0.0.1:0").expect("a TCP port"),
            udp: UdpSocket::bind("127.0.0.1:0").expect("a UDP port"),
            unix: UnixListener::bind(at("socket")).expect("a socket"),
            nameless: UnixListener::bind_addr(&name).expect("an abstract socket"),
            nameless_name,
            directory,
        };
        scene.tcp.set_nonblocking(true).expect("own socket");
        scene.udp.set_nonblocking(true).expect("own socket");
        scene.unix.set_nonblocking(true).expect("own socket");
        scene.nameless.set_nonblocking(true).expect("own socket");
        scene
    }

    /// The writable directory of this scene.
    #[must_use]
    pub fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    /// `text` with the names of canaries put in: `{canary}`, `{secret}`, `{scene}`, `{workspace}`,
    /// `{tcp}`, `{udp}`, `{unix}`, `{abstract}`.
    ///
    /// # Panics
    /// When a socket has no address.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let path = |name: &str| self.directory.path().join(name).to_string_lossy().into_owned();
        text.replace("{canary}", &self.canary.as_ref().map_or(0, StartedProcess::pid).to_string())
            .replace("{secret}", &path("secret"))
            .replace("{scene}", &path(""))
            .replace("{workspace}", &path("workspace"))
            .replace("{tcp}", &self.tcp.local_addr().expect("bound").port().to_string())
            .replace("{udp}", &self.udp.local_addr().expect("bound").port().to_string())
            .replace("{unix}", &path("socket"))
            .replace("{abstract}", &self.nameless_name)
    }

    /// What was reached since the last look: nothing, after an attack that a wall stopped.
    #[must_use]
    pub fn reached(&mut self) -> Vec<&'static str> {
        let mut reached = vec![];
        if self.canary.as_ref().is_none_or(StartedProcess::has_ended) {
            reached.push("the canary process was ended");
            self.canary = Some(sleeper());
        }
        if std::fs::read_to_string(self.directory.path().join("secret")).ok().as_deref() != Some(SECRET) {
            reached.push("the canary file was changed");
        }
        let quiet = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
        if !self.tcp.accept().is_err_and(quiet) {
            reached.push("the TCP canary was connected to");
        }
        if !self.udp.recv_from(&mut [0; 16]).is_err_and(quiet) {
            reached.push("the UDP canary got a datagram");
        }
        if !self.unix.accept().is_err_and(quiet) {
            reached.push("the socket canary was connected to");
        }
        if !self.nameless.accept().is_err_and(quiet) {
            reached.push("the abstract socket canary was connected to");
        }
        reached
    }
}

/// A process that waits to be hit. Its marker is not one the census knows a payload by.
fn sleeper() -> StartedProcess {
    let life = Duration::from_secs(1200);
    let mut command = Command::new(hostile());
    command.args(hostile_arguments("canary", life, &["sleep".to_string()]));
    start(&mut command, vec![], life)
}
