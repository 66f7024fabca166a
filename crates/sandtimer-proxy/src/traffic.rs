//! Counting bytes, per connection and per sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::bounds::ProxyBounds;
use crate::event::{ConnectionEnd, Event, EventSink};
use crate::target::Target;

/// The bytes of a sandbox.
#[derive(Debug)]
pub(crate) struct TrafficMeter {
    sent: ByteCount,
    received: ByteCount,
}

#[derive(Debug)]
struct ByteCount {
    bytes: AtomicU64,
    max: Option<u64>,
}

impl ByteCount {
    /// Fails if the bytes are more than may be carried. Those must not be forwarded.
    fn add(&self, bytes: u64) -> Result<(), ConnectionEnd> {
        let total = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if self.max.is_some_and(|max| total > max) { Err(ConnectionEnd::BytesUsed) } else { Ok(()) }
    }

    fn is_used(&self) -> bool {
        self.max.is_some_and(|max| self.bytes.load(Ordering::Relaxed) >= max)
    }
}

impl TrafficMeter {
    pub(crate) fn new(bounds: &ProxyBounds) -> TrafficMeter {
        let count = |max| ByteCount { bytes: AtomicU64::new(0), max };
        TrafficMeter { sent: count(bounds.sent_bytes), received: count(bounds.received_bytes) }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.sent.is_used() || self.received.is_used()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.bytes.load(Ordering::Relaxed)
    }
}

/// A connection that is being carried. Reports its end when it is dropped.
pub(crate) struct Traffic {
    pub(crate) connection: u64,
    pub(crate) target: Target,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) meter: Arc<TrafficMeter>,
    pub(crate) end: ConnectionEnd,
    sent: AtomicU64,
    received: AtomicU64,
    progress: Notify,
}

impl Traffic {
    pub(crate) fn new(
        connection: u64,
        target: Target,
        meter: Arc<TrafficMeter>,
        events: Arc<dyn EventSink>,
    ) -> Traffic {
        Traffic {
            connection,
            target,
            events,
            meter,
            end: ConnectionEnd::ProxyDropped,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            progress: Notify::new(),
        }
    }

    /// Counts bytes that are about to be sent to the server.
    pub(crate) fn count_sent(&self, bytes: usize) -> Result<(), ConnectionEnd> {
        self.meter.sent.add(bytes as u64)?;
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.progress.notify_one();
        Ok(())
    }

    /// Counts bytes of the server that are about to be sent to the client.
    pub(crate) fn count_received(&self, bytes: usize) -> Result<(), ConnectionEnd> {
        self.meter.received.add(bytes as u64)?;
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.progress.notify_one();
        Ok(())
    }

    /// Returns once no byte has been counted for `idle`.
    pub(crate) async fn until_idle(&self, idle: Duration) {
        while tokio::time::timeout(idle, self.progress.notified()).await.is_ok() {}
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.events.record(Event::Closed {
            connection: self.connection,
            target: self.target.clone(),
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            end: self.end,
        });
    }
}
