//! The network of a sandbox: one namespace for all that runs in it, and what it may reach outside.
//!
//! ```text
//! mounted ─▶ a namespace is taken, which no other sandbox has had ─▶ with an allow-list: sockets made in it, served from outside
//! unmounted ─▶ what serves is ended ─▶ the namespace is freed
//! ```
//! The engine does not serve the sockets: a [`NetworkServer`] does. A socket keeps its namespace
//! alive.

use std::fmt::Debug;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sandtimer_os::networks::NetworkObject;
use serde::{Deserialize, Serialize};

use super::super::Inner;
use super::super::error::Error;
use super::Sandbox;
use super::error::SandboxError;
use crate::isolate::host::NamespaceSupport;
use crate::isolate::networks::{LentNetwork, NetworkUse};
use crate::isolate::sandbox_proxy::PROXY_VARIABLES;
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

/// The network of a sandbox that is mounted.
#[derive(Debug, Default)]
pub(super) struct MountedNetwork {
    /// First: its sockets keep the namespace alive.
    _served: Option<ServedNetwork>,
    pub namespace: Option<Arc<LentNetwork>>,
}

impl Sandbox {
    /// What it may reach outside.
    pub fn network(&self) -> &SandboxNetwork {
        &self.state.network
    }

    /// Whether all that runs in it has the host's network.
    pub fn has_network_of_host(&self) -> bool {
        self.state.network == SandboxNetwork::Host
    }

    /// The variables by which programs in it find its proxy, if it has one.
    pub(in crate::engine) fn network_variables(&self) -> &'static [(&'static str, &'static str)] {
        match self.state.network {
            SandboxNetwork::Allowed(_) => &PROXY_VARIABLES,
            _ => &[],
        }
    }

    /// Where connections that its network was refused are recorded, if it has an allow-list.
    pub(in crate::engine) fn denials(&self) -> Option<Arc<NetworkDenials>> {
        matches!(self.state.network, SandboxNetwork::Allowed(_)).then(|| self.state.denials.clone())
    }
}

/// Checks whether this host can give a sandbox such a network.
pub(super) fn check(inner: &Inner, network: &SandboxNetwork) -> Result<(), Error> {
    let host = inner.host()?;
    match (network, &host.private_network) {
        (SandboxNetwork::Host, _) if host.namespaces == NamespaceSupport::User => {
            let remedy = "give an allow-list, or run the engine as root";
            Err(SandboxError::Conflict { field: "network", remedy }.into())
        }
        (SandboxNetwork::Allowed(_), Err(reason)) => Err(SandboxError::NoNetwork(reason.clone()).into()),
        (SandboxNetwork::Allowed(_), _) if inner.network_server.get().is_none() => {
            let reason = "this program has no proxy for network allow-lists".to_owned();
            Err(SandboxError::NoNetwork(reason).into())
        }
        _ => Ok(()),
    }
}

/// Takes a namespace for a sandbox, and has its sockets served.
pub(super) fn start(
    inner: &Inner,
    owner: &str,
    network: &SandboxNetwork,
    denials: Arc<NetworkDenials>,
) -> Result<MountedNetwork, Error> {
    check(inner, network)?;
    if *network == SandboxNetwork::Host || inner.host()?.private_network.is_err() {
        return Ok(MountedNetwork::default());
    }
    let namespace = inner.launchers.network(NetworkUse::Sandbox)?;
    let served = match (network, inner.network_server.get()) {
        (SandboxNetwork::Allowed(entries), Some(server)) => {
            let doing = "cannot serve the sandbox's network";
            let sockets = sockets(&namespace).map_err(Error::system(doing))?;
            let request = NetworkRequest { owner, entries, sockets, denials };
            Some(server.serve(request).map_err(Error::system(doing))?)
        }
        _ => None,
    };
    Ok(MountedNetwork { _served: served, namespace: Some(Arc::new(namespace)) })
}

fn sockets(namespace: &LentNetwork) -> io::Result<NetworkSockets> {
    let stream = |object| namespace.open(object).map(TcpListener::from);
    let mut proxy = vec![stream(NetworkObject::ProxyV4)?];
    match stream(NetworkObject::ProxyV6) {
        Ok(listener) => proxy.push(listener),
        Err(error) if lacks_ipv6(&error) => {}
        Err(error) => return Err(error),
    }
    let datagrams: OwnedFd = namespace.open(NetworkObject::NamesDatagram)?;
    Ok(NetworkSockets { proxy, datagrams: datagrams.into(), names: stream(NetworkObject::NamesStream)? })
}

/// Whether the error is that of a kernel without IPv6.
pub(super) fn lacks_ipv6(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].into_iter().any(|lacking| errno == Some(lacking))
}
