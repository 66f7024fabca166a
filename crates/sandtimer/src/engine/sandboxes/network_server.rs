//! The network that a sandbox may have, and what serves one with an allow-list.

use std::fmt::Debug;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::supervise::denials::NetworkDenials;

/// What a sandbox may reach outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxNetwork {
    /// Nothing. Its loopback is its own in any case.
    #[default]
    None,
    /// What the host reaches, in the host's network, as every run in it.
    Host,
    /// What these entries name, by a proxy at the loopback of the sandbox.
    Allowed(Vec<String>),
}

/// Sockets in the network namespace of a sandbox, which do not block.
#[derive(Debug)]
pub struct NetworkSockets {
    /// Listen at [`PROXY_PORT`](sandtimer_os::wire::PROXY_PORT) of 127.0.0.1 and, unless the kernel
    /// has no IPv6, of ::1.
    pub proxy: Vec<TcpListener>,
    /// Port 53 of 127.0.0.1.
    pub datagrams: UdpSocket,
    /// Port 53 of 127.0.0.1 for name queries over TCP.
    pub names: TcpListener,
}

/// A sandbox whose network is to be served.
#[derive(Debug)]
pub struct NetworkRequest<'a> {
    /// The token or user to whom the sandbox belongs.
    pub owner: &'a str,
    /// The network allow-list: hosts, networks and ports, as they were given.
    pub entries: &'a [String],
    /// The sockets to serve, which the server owns from now on.
    pub sockets: NetworkSockets,
    /// Where connections that are refused are recorded.
    pub denials: Arc<NetworkDenials>,
}

/// What serves the network of a sandbox, until it is dropped.
pub type ServedNetwork = Box<dyn Debug + Send + Sync>;

/// Carries the connections of sandboxes with an allow-list.
pub trait NetworkServer: Debug + Send + Sync {
    /// Begins to serve a sandbox that is being mounted.
    ///
    /// # Errors
    /// An entry is invalid, or a socket cannot be used.
    fn serve(&self, request: NetworkRequest<'_>) -> io::Result<ServedNetwork>;
}
