//! The proxy of one sandbox: its listeners, its connections, and their end.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::task::{JoinHandle, JoinSet};

use crate::bounds::ProxyBounds;
use crate::capacity::Capacity;
use crate::connection;
use crate::context::ConnectionContext;
use crate::event::{Event, EventSink};
use crate::listener::{AsyncListener, ClientConnection, ProxyListener};
use crate::policy::ProxyPolicy;
use crate::resolve::Resolver;
use crate::traffic::TrafficMeter;

/// The pause after an accept that failed, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a proxy is made from.
pub struct ProxyConfig {
    pub policy: ProxyPolicy,
    pub bounds: ProxyBounds,
    pub resolver: Arc<dyn Resolver>,
    pub events: Arc<dyn EventSink>,
    /// What it shares with the other proxies.
    pub capacity: Capacity,
}

impl fmt::Debug for ProxyConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("ProxyConfig");
        fields.field("policy", &self.policy).field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// What a sandbox has used of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Connections at this moment.
    pub connections: usize,
    /// Bytes to servers.
    pub sent: u64,
    /// Bytes from servers.
    pub received: u64,
}

/// A proxy that serves a sandbox's listeners. Dropping it closes them, and ends all connections.
pub struct Proxy {
    task: JoinHandle<()>,
    meter: Arc<TrafficMeter>,
    slots: Arc<Semaphore>,
    bound: usize,
}

impl Proxy {
    /// Starts to serve. Must be called within a Tokio runtime; fails if a listener cannot be
    /// registered with it.
    pub fn start(
        listeners: impl IntoIterator<Item = ProxyListener>,
        config: ProxyConfig,
    ) -> io::Result<Proxy> {
        let listeners = listeners.into_iter().map(AsyncListener::new).collect::<io::Result<Vec<_>>>()?;
        let bound = config.bounds.connections.clamp(1, Semaphore::MAX_PERMITS);
        let slots = Arc::new(Semaphore::new(bound));
        let meter = Arc::new(TrafficMeter::new(&config.bounds));
        let context = ConnectionContext {
            connection: 0,
            policy: Arc::new(config.policy),
            bounds: config.bounds,
            resolver: config.resolver,
            events: config.events,
            meter: Arc::clone(&meter),
        };
        let all = config.capacity.connections;
        let task = tokio::spawn(accept_all(listeners, context, Arc::clone(&slots), bound, all));
        Ok(Proxy { task, meter, slots, bound })
    }

    pub fn usage(&self) -> Usage {
        Usage {
            connections: self.bound - self.slots.available_permits(),
            sent: self.meter.sent(),
            received: self.meter.received(),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Proxy").field("usage", &self.usage()).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The task owns the listeners and, in its set, all connections.
        self.task.abort();
    }
}

/// `slots` are those of this proxy, of which there were `bound`; `all` are those of all proxies.
async fn accept_all(
    listeners: Vec<AsyncListener>,
    context: ConnectionContext,
    slots: Arc<Semaphore>,
    bound: usize,
    all: Arc<Semaphore>,
) {
    let mut connections = JoinSet::new();
    let mut number = 0;
    loop {
        let client = match accept(&listeners).await {
            Ok(client) => client,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let permits = [take_slot(&slots, &context, bound).await, acquire(&all).await];
        while connections.try_join_next().is_some() {}
        number += 1;
        let context = context.of_connection(number);
        connections.spawn(serve(context, client, permits));
    }
}

async fn serve(context: ConnectionContext, client: ClientConnection, permits: [OwnedSemaphorePermit; 2]) {
    connection::serve(&context, client).await;
    drop(permits);
}

/// Takes a slot of the bound. A client that has been accepted waits for one; the next ones wait in
/// the backlog.
async fn take_slot(
    slots: &Arc<Semaphore>,
    context: &ConnectionContext,
    bound: usize,
) -> OwnedSemaphorePermit {
    match Arc::clone(slots).try_acquire_owned() {
        Ok(permit) => permit,
        Err(TryAcquireError::NoPermits) => {
            context.events.record(Event::ConnectionsUsed { bound });
            acquire(slots).await
        }
        Err(TryAcquireError::Closed) => acquire(slots).await,
    }
}

async fn acquire(slots: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    match Arc::clone(slots).acquire_owned().await {
        Ok(permit) => permit,
        Err(_) => unreachable!("the semaphore is never closed"),
    }
}

async fn accept(listeners: &[AsyncListener]) -> io::Result<ClientConnection> {
    poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    })
    .await
}
