//! SOCKS5 (RFC 1928): CONNECT without authentication.

use std::io;
use std::net::IpAddr;

use tokio::time::timeout;

use crate::context::{ConnectionContext, send};
use crate::dial::{DialError, DialFailure, dial};
use crate::event::Protocol;
use crate::listener::ClientConnection;
use crate::target::{Host, Target};
use crate::tunnel;

pub(crate) const VERSION: u8 = 5;
pub(crate) const OLD_VERSION: u8 = 4;

const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;

const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// The code of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocksReply {
    Succeeded = 0,
    Failed = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// A handshake that cannot be served: the bytes to answer, and the reason.
struct Rejection {
    answer: Vec<u8>,
    reason: String,
}

/// Serves the connection of a client whose first byte is [`VERSION`].
pub(crate) async fn serve(context: &ConnectionContext, mut client: ClientConnection) {
    let target = match timeout(context.bounds.head, handshake(context, &mut client)).await {
        Ok(Ok(target)) => target,
        Ok(Err(rejection)) => {
            context.reject(rejection.reason);
            send(context, &mut client, &rejection.answer).await;
            return;
        }
        Err(_) => return context.reject("the SOCKS5 handshake was not complete in time"),
    };
    match dial(context, Protocol::Socks5, &target).await {
        Ok((mut upstream, mut traffic)) => {
            if send(context, &mut client, &reply(SocksReply::Succeeded)).await {
                tunnel::carry(context, Protocol::Socks5, &mut client, &mut upstream, &mut traffic).await;
            }
        }
        Err(error) => {
            send(context, &mut client, &reply(reply_code(&error))).await;
        }
    }
}

/// Answers in the older protocol that the request is rejected: it has no names.
pub(crate) async fn reject_version_4(context: &ConnectionContext, mut client: ClientConnection) {
    context.reject("SOCKS4 is not served; use socks5h://");
    send(context, &mut client, &[0, 0x5b, 0, 0, 0, 0, 0, 0]).await;
}

fn reply(code: SocksReply) -> Vec<u8> {
    // The address that the proxy connects from means nothing inside a sandbox.
    vec![VERSION, code as u8, 0, IPV4, 0, 0, 0, 0, 0, 0]
}

fn reply_code(error: &DialError) -> SocksReply {
    match error {
        DialError::Denied(_) => SocksReply::NotAllowed,
        DialError::Unreachable { failure, .. } => match failure {
            DialFailure::Name => SocksReply::HostUnreachable,
            DialFailure::Refused => SocksReply::ConnectionRefused,
            DialFailure::Timeout => SocksReply::TimedOut,
            DialFailure::Network => SocksReply::NetworkUnreachable,
            DialFailure::Other => SocksReply::Failed,
        },
    }
}

fn rejection(code: SocksReply, reason: impl Into<String>) -> Rejection {
    Rejection { answer: reply(code), reason: reason.into() }
}

impl From<io::Error> for Rejection {
    fn from(error: io::Error) -> Rejection {
        Rejection {
            answer: Vec::new(),
            reason: format!("the connection ended in the SOCKS5 handshake: {error}"),
        }
    }
}

/// Reads the greeting and the request.
async fn handshake(context: &ConnectionContext, client: &mut ClientConnection) -> Result<Target, Rejection> {
    let methods = usize::from(client.reader.fill_to(2).await?[1]);
    let greeting = client.reader.fill_to(2 + methods).await?;
    if !greeting[2..].contains(&NO_AUTHENTICATION) {
        let reason =
            "the SOCKS5 client offers no method without authentication; remove user name and password"
                .to_owned();
        return Err(Rejection { answer: vec![VERSION, NO_METHOD], reason });
    }
    client.reader.consume(2 + methods);
    if !send(context, client, &[VERSION, NO_AUTHENTICATION]).await {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
    }
    let &[version, command, _, kind] = client.reader.fill_to(4).await? else {
        unreachable!("four bytes were read")
    };
    if version != VERSION {
        return Err(rejection(SocksReply::Failed, "the SOCKS5 request has another version"));
    }
    let host_length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => 1 + usize::from(client.reader.fill_to(5).await?[4]),
        _ => {
            return Err(rejection(
                SocksReply::AddressNotSupported,
                format!("SOCKS5 has no address of type {kind}"),
            ));
        }
    };
    let length = 4 + host_length + 2;
    let request = client.reader.fill_to(length).await?;
    let (host, port) = request[4..].split_at(host_length);
    let port = u16::from_be_bytes([port[0], port[1]]);
    let host = match kind {
        NAME => named_host(&host[1..]),
        _ => address(host)
            .ok_or_else(|| rejection(SocksReply::Failed, "the address of the SOCKS5 request is damaged")),
    };
    client.reader.consume(length);
    if command != CONNECT {
        let reason = format!("the SOCKS5 command {command} is not served; only CONNECT (1) is");
        return Err(rejection(SocksReply::CommandNotSupported, reason));
    }
    Ok(Target { host: host?, port })
}

fn address(bytes: &[u8]) -> Option<Host> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| v6()).ok().map(Host::Address)
}

fn named_host(bytes: &[u8]) -> Result<Host, Rejection> {
    let refused = |reason: String| {
        rejection(SocksReply::NotAllowed, format!("the SOCKS5 name \"{}\": {reason}", bytes.escape_ascii()))
    };
    let name = std::str::from_utf8(bytes).map_err(|error| refused(error.to_string()))?;
    if name.starts_with('[') {
        return Err(refused("an IPv6 address is sent as an address".to_owned()));
    }
    Host::parse(name).map_err(|error| refused(error.to_string()))
}
