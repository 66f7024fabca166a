//! What serving a connection needs.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::bounds::ProxyBounds;
use crate::event::{Event, EventSink};
use crate::listener::ClientConnection;
use crate::policy::ProxyPolicy;
use crate::resolve::Resolver;
use crate::traffic::TrafficMeter;

/// One connection's number, and what all connections of a proxy share.
#[derive(Clone)]
pub(crate) struct ConnectionContext {
    pub(crate) connection: u64,
    pub(crate) policy: Arc<ProxyPolicy>,
    pub(crate) bounds: ProxyBounds,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) meter: Arc<TrafficMeter>,
}

impl ConnectionContext {
    pub(crate) fn of_connection(&self, connection: u64) -> ConnectionContext {
        ConnectionContext { connection, ..self.clone() }
    }

    pub(crate) fn reject(&self, reason: impl Into<String>) {
        self.events.record(Event::Rejected { connection: self.connection, reason: reason.into() });
    }
}

/// Sends `bytes` to a client that may not read. Returns false if they were not sent in time.
pub(crate) async fn send(context: &ConnectionContext, client: &mut ClientConnection, bytes: &[u8]) -> bool {
    matches!(timeout(context.bounds.head, client.writer.write_all(bytes)).await, Ok(Ok(())))
}
