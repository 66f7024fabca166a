//! TCP ports of a sandbox: which ones its runs listen on, and sockets to connect to them, made in
//! its network namespace.
//!
//! The tables are those of the namespace. No descriptor of this process gets into a run, and none
//! is held for a run.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;

use sandtimer_os::networks::NetworkObject;

use super::super::error::Error;
use super::network::lacks_ipv6;
use super::{Sandbox, SandboxError, SandboxNetwork, lock};
use crate::isolate::networks::LentNetwork;

/// Bytes of a table that are read.
const MAX_TABLE_BYTES: u64 = 16 << 20;
/// TCP_LISTEN, as the tables write it.
const LISTEN: &str = "0A";
/// Ports at which the engine listens in a sandbox with an allow-list.
const OWN_PORTS: [u16; 2] = [53, sandtimer_os::wire::PROXY_PORT];

/// A port on which something in a sandbox listens.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListeningPort {
    /// The TCP port inside the sandbox.
    pub port: u16,
    /// The local addresses of its sockets.
    pub addresses: Vec<IpAddr>,
}

impl Sandbox {
    /// The ports on which something in it listens, the lowest first; without those of its own
    /// proxy.
    ///
    /// # Errors
    /// It was deleted, it has the host's network, or the tables cannot be read.
    pub fn listening_ports(&self) -> Result<Vec<ListeningPort>, Error> {
        let Some(namespace) = self.port_namespace()? else { return Ok(Vec::new()) };
        let doing = "cannot read the ports of the sandbox";
        let mut ports: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
        for object in [NetworkObject::TableV4, NetworkObject::TableV6] {
            let table = match namespace.open(object) {
                // A kernel without IPv6 has no such table.
                Err(error) if object == NetworkObject::TableV6 && error.kind() == io::ErrorKind::NotFound => {
                    continue;
                }
                opened => opened.map_err(Error::system(doing))?,
            };
            let mut text = String::new();
            File::from(table)
                .take(MAX_TABLE_BYTES)
                .read_to_string(&mut text)
                .map_err(Error::system(doing))?;
            for address in listeners(&text) {
                ports.entry(address.port()).or_default().push(address.ip());
            }
        }
        ports.retain(|port, _| !self.is_own_port(*port));
        Ok(ports.into_iter().map(|(port, addresses)| ListeningPort { port, addresses }).collect())
    }

    /// A socket in its network namespace, which does not block and is not connected: for its
    /// loopback of IPv4, or of IPv6. `None`: nothing can listen in it.
    ///
    /// # Errors
    /// It was deleted, it has the host's network, or no socket can be made.
    pub fn port_socket(&self, is_v6: bool) -> Result<Option<TcpStream>, Error> {
        let Some(namespace) = self.port_namespace()? else { return Ok(None) };
        let object = if is_v6 { NetworkObject::ClientV6 } else { NetworkObject::ClientV4 };
        match namespace.open(object) {
            Err(error) if lacks_ipv6(&error) => Ok(None),
            opened => Ok(Some(opened.map_err(Error::system("cannot make a socket in the sandbox"))?.into())),
        }
    }

    /// Whether the engine listens on a port for the sandbox.
    pub fn is_own_port(&self, port: u16) -> bool {
        matches!(self.network(), SandboxNetwork::Allowed(_)) && OWN_PORTS.contains(&port)
    }

    /// Its namespace, if it is mounted: nothing is in one that is not.
    fn port_namespace(&self) -> Result<Option<Arc<LentNetwork>>, Error> {
        if self.has_network_of_host() {
            let remedy = "a sandbox with the host's network has the ports of the host: connect to them there";
            return Err(SandboxError::Conflict { field: "port", remedy }.into());
        }
        if self.is_deleted() {
            return Err(SandboxError::NotFound(self.id().to_owned()).into());
        }
        let life = lock(&self.state.life);
        Ok(life.mounted.as_ref().and_then(|mounted| mounted.network.namespace.clone()))
    }
}

/// The local addresses of the sockets of a table that listen; proc_pid_net(5).
fn listeners(table: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let (address, port) = local.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        (state == LISTEN).then_some(SocketAddr::new(parse_address(address)?, port))
    };
    table.lines().skip(1).filter_map(address).collect()
}

/// Words of 32 bits in the byte order of the machine, each written as a number.
fn parse_address(written: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(written.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    match written.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?);
            }
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_are_ports() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0\n\
            1: 0100007F:1F91 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 12 1 0 20 4 30 10 -1\n\
            2: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 0 5 0 13 1\n\
            nonsense\n 4: é:x y 0A\n";
        let found: Vec<String> = listeners(table).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.1:8080", "[::1]:80"]);
    }
}
