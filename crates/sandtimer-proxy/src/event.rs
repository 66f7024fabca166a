//! What a proxy reports.

use std::net::SocketAddr;

use crate::denial::Denial;
use crate::target::Target;

/// How a client asked for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `CONNECT`, and a tunnel.
    HttpConnect,
    /// A request with an absolute `http` URL.
    Http,
    Socks5,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Both sides have finished.
    Finished,
    /// No byte in either direction for [`ProxyBounds::idle`](crate::ProxyBounds::idle).
    Idle,
    /// [`ProxyBounds::sent_bytes`](crate::ProxyBounds::sent_bytes) or
    /// [`ProxyBounds::received_bytes`](crate::ProxyBounds::received_bytes).
    BytesUsed,
    /// The first TLS message asked for another server, or could not be read.
    Denied,
    /// A side closed its connection in the middle, or sent what is not HTTP.
    Failed,
    /// The [`Proxy`](crate::Proxy) was dropped.
    ProxyDropped,
}

/// An event of one connection between a client and the proxy, whose numbers begin at 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The proxy has connected to an address that it had checked. `entry` is what allowed it.
    Allowed { connection: u64, protocol: Protocol, target: Target, address: SocketAddr, entry: String },
    /// The allow-list or a bound refused the target.
    Denied { connection: u64, protocol: Protocol, denial: Denial },
    /// The client sent what the proxy does not carry: a malformed or ambiguous request, an
    /// unsupported command.
    Rejected { connection: u64, reason: String },
    /// The target is allowed, and could not be connected to.
    Unreachable { connection: u64, protocol: Protocol, target: Target, reason: String },
    /// A connection that was allowed has ended.
    Closed { connection: u64, target: Target, sent: u64, received: u64, end: ConnectionEnd },
    /// A program looked a name up by itself, which cannot succeed: `is_allowed` if the allow-list
    /// has the name.
    NameAsked { name: String, is_allowed: bool },
    /// All connections of the bound are in use; the next one waits.
    ConnectionsUsed { bound: usize },
}

/// Receives the events of a proxy, on the threads that serve its connections: it must not block.
///
/// A sandbox decides how many events there are. The receiver bounds what it keeps.
pub trait EventSink: Send + Sync {
    fn record(&self, event: Event);
}

impl<F: Fn(Event) + Send + Sync> EventSink for F {
    fn record(&self, event: Event) {
        self(event);
    }
}

/// Characters of what a client has sent that a reason or an answer quotes.
const MAX_QUOTED: usize = 300;

/// Cuts text that quotes a client to a readable length.
pub(crate) fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MAX_QUOTED) {
        text.truncate(end);
        text.push('…');
    }
    text
}
