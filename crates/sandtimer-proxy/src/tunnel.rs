//! Bytes in both directions between a client and a server.

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::buffered::Buffered;
use crate::client_hello::{self, Hello};
use crate::context::{ConnectionContext, send};
use crate::denial::{Denial, DenialReason};
use crate::dial::Upstream;
use crate::event::{ConnectionEnd, Event, Protocol, shortened};
use crate::listener::ClientConnection;
use crate::target::Host;
use crate::traffic::Traffic;

/// A fatal alert: unrecognized_name (RFC 6066).
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// Carries a tunnel until both directions have ended. If the target is a name, and the client
/// begins with a TLS handshake, the handshake must be for that name.
pub(crate) async fn carry(
    context: &ConnectionContext,
    protocol: Protocol,
    client: &mut ClientConnection,
    upstream: &mut Upstream,
    traffic: &mut Traffic,
) {
    let result = {
        let upload = async {
            check_hello(context, &traffic.target.host, &mut client.reader).await?;
            let count = |bytes| traffic.count_sent(bytes);
            pump(&mut client.reader, &mut upstream.writer, count).await.map_err(TunnelEnd::End)
        };
        let download = async {
            let count = |bytes| traffic.count_received(bytes);
            pump(&mut upstream.reader, &mut client.writer, count).await.map_err(TunnelEnd::End)
        };
        tokio::select! {
            result = async { tokio::try_join!(upload, download) } => result.map(|_| ()),
            () = traffic.until_idle(context.bounds.idle) => Err(TunnelEnd::End(ConnectionEnd::Idle)),
        }
    };
    traffic.end = match result {
        Ok(()) => ConnectionEnd::Finished,
        Err(TunnelEnd::End(end)) => end,
        Err(TunnelEnd::ServerName(name)) => {
            let denial = Denial { target: traffic.target.clone(), reason: DenialReason::ServerName { name } };
            context.events.record(Event::Denied { connection: context.connection, protocol, denial });
            send(context, client, &ALERT).await;
            ConnectionEnd::Denied
        }
        Err(TunnelEnd::Rejected(reason)) => {
            context.reject(reason);
            ConnectionEnd::Denied
        }
    };
}

enum TunnelEnd {
    End(ConnectionEnd),
    /// The handshake is for another server.
    ServerName(String),
    Rejected(&'static str),
}

/// Reads the first TLS message, and compares its server name. Everything stays in the reader.
///
/// A message without a name is allowed, because the target was. An encrypted ClientHello has an
/// outer one, which is compared.
async fn check_hello<R: AsyncRead + Unpin>(
    context: &ConnectionContext,
    host: &Host,
    reader: &mut Buffered<R>,
) -> Result<(), TunnelEnd> {
    // An entry that allows an address allows every server at it.
    let Host::Name(expected) = host else { return Ok(()) };
    if reader.data().is_empty() && fill(reader).await? == 0 {
        return Ok(());
    }
    let read = async {
        loop {
            match client_hello::inspect(reader.data()) {
                Hello::NotTls | Hello::ServerName(None) => return Ok(()),
                Hello::ServerName(Some(name)) => return compare(expected, &name),
                Hello::Malformed(reason) => return Err(TunnelEnd::Rejected(reason)),
                Hello::Incomplete if reader.data().len() > client_hello::MAX_BYTES => {
                    return Err(TunnelEnd::Rejected("the ClientHello is too long"));
                }
                Hello::Incomplete => {
                    if fill(reader).await? == 0 {
                        return Err(TunnelEnd::Rejected("the connection ended in the ClientHello"));
                    }
                }
            }
        }
    };
    timeout(context.bounds.head, read)
        .await
        .unwrap_or(Err(TunnelEnd::Rejected("the ClientHello was not complete in time")))
}

async fn fill<R: AsyncRead + Unpin>(reader: &mut Buffered<R>) -> Result<usize, TunnelEnd> {
    reader.fill().await.map_err(|_| TunnelEnd::End(ConnectionEnd::Failed))
}

fn compare(expected: &str, name: &[u8]) -> Result<(), TunnelEnd> {
    let parsed = std::str::from_utf8(name).ok().and_then(|name| Host::parse(name).ok());
    match parsed {
        Some(Host::Name(name)) if name == expected => Ok(()),
        _ => Err(TunnelEnd::ServerName(shortened(name.escape_ascii().to_string()))),
    }
}

/// Copies until the source ends, and ends the sink then: a half that is closed is closed on the
/// other side.
async fn pump<R, W>(
    source: &mut Buffered<R>,
    sink: &mut W,
    count: impl Fn(usize) -> Result<(), ConnectionEnd>,
) -> Result<(), ConnectionEnd>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let bytes = source.data().len();
        if bytes == 0 {
            if source.fill().await.map_err(|_| ConnectionEnd::Failed)? == 0 {
                // It fails only if the other side has closed already.
                let _ = sink.shutdown().await;
                return Ok(());
            }
            continue;
        }
        count(bytes)?;
        sink.write_all(source.data()).await.map_err(|_| ConnectionEnd::Failed)?;
        source.consume(bytes);
    }
}
