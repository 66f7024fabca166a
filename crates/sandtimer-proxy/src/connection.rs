//! One connection of a client: which protocol it speaks.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::bounds::Bounds;
use crate::event::{Event, EventSink};
use crate::http;
use crate::listener::Client;
use crate::policy::Policy;
use crate::resolve::Resolver;
use crate::socks;
use crate::traffic::Meter;

/// What serving a connection needs.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) connection: u64,
    pub(crate) policy: Arc<Policy>,
    pub(crate) bounds: Bounds,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) meter: Arc<Meter>,
}

impl Context {
    pub(crate) fn of_connection(&self, connection: u64) -> Context {
        Context { connection, ..self.clone() }
    }

    pub(crate) fn reject(&self, reason: impl Into<String>) {
        self.events.record(Event::Rejected { connection: self.connection, reason: reason.into() });
    }
}

const TLS_HANDSHAKE: u8 = 22;

/// Serves a client until its connection ends. The first byte decides on the protocol.
pub(crate) async fn serve(context: &Context, mut client: Client) {
    let first = match timeout(context.bounds.head, client.reader.fill()).await {
        Ok(Ok(1..)) => client.reader.data()[0],
        Ok(_) => return,
        Err(_) => return context.reject("the client sent nothing"),
    };
    match first {
        socks::VERSION => socks::serve(context, client).await,
        socks::OLD_VERSION => socks::reject_version_4(context, client).await,
        byte if byte.is_ascii_alphabetic() => http::serve(context, client).await,
        TLS_HANDSHAKE => {
            http::reject_connection(
                context,
                client,
                "The proxy is reached without TLS. Give its address as http://, or as socks5h://.",
            )
            .await;
        }
        _ => {
            http::reject_connection(
                context,
                client,
                "The proxy serves HTTP/1.1 and SOCKS5. The first byte is of neither.",
            )
            .await;
        }
    }
}

/// Sends `bytes` to a client that may not read. Returns false if they were not sent in time.
pub(crate) async fn send(context: &Context, client: &mut Client, bytes: &[u8]) -> bool {
    matches!(timeout(context.bounds.head, client.writer.write_all(bytes)).await, Ok(Ok(())))
}
