//! The network of a sandbox: one namespace for all that runs in it, and what it may reach outside.
//!
//! ```text
//! mounted ─▶ a namespace is taken, which no other sandbox has had ─▶ with an allow-list: sockets made in it, served from outside
//! unmounted ─▶ what serves is ended ─▶ the namespace is freed
//! ```
//! The engine does not serve the sockets: a [`NetworkServer`](super::NetworkServer) does. A socket
//! keeps its namespace alive.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sandtimer_os::networks::NetworkObject;

use super::super::Inner;
use super::super::error::Error;
use super::error::SandboxError;
use super::mounted::MountedNetwork;
use super::network_server::{NetworkRequest, NetworkSockets, SandboxNetwork};
use super::sandbox::Sandbox;
use crate::isolate::host::NamespaceSupport;
use crate::isolate::networks::{LentNetwork, NetworkUse};
use crate::supervise::denials::NetworkDenials;

impl Sandbox {
    /// What it may reach outside.
    pub fn network(&self) -> &SandboxNetwork {
        &self.state.network
    }

    /// Whether all that runs in it has the host's network.
    pub fn has_network_of_host(&self) -> bool {
        self.state.network == SandboxNetwork::Host
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
