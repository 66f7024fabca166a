//! What the connections of one sandbox may use.

use std::time::Duration;

/// The bounds of a proxy, which has one sandbox's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyBounds {
    /// Connections at once, at least 1. A further one waits in the listener's backlog until one of
    /// them ends.
    pub connections: usize,
    /// Bytes from the sandbox to its servers, over all connections; `None`: unlimited.
    pub sent_bytes: Option<u64>,
    /// Bytes from the servers to the sandbox, over all connections; `None`: unlimited.
    pub received_bytes: Option<u64>,
    /// How long a connection may be without a byte in either direction.
    pub idle: Duration,
    /// How long the head of a request may take: an HTTP head, a SOCKS5 handshake, the first TLS
    /// message.
    pub head: Duration,
    /// How long a name may take to resolve, and after that an address to connect.
    pub connect: Duration,
    /// The size of a request's or a response's HTTP head.
    pub head_bytes: usize,
}

impl Default for ProxyBounds {
    fn default() -> ProxyBounds {
        ProxyBounds {
            connections: 256,
            sent_bytes: None,
            received_bytes: None,
            idle: Duration::from_secs(300),
            head: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            head_bytes: 64 * 1024,
        }
    }
}
