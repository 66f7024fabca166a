//! From a target to a connection: allow-list, resolver, check of each address, connect.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::buffered::Buffered;
use crate::context::ConnectionContext;
use crate::denial::{Denial, DenialReason};
use crate::event::{Event, Protocol};
use crate::target::{Host, Target};
use crate::traffic::Traffic;

/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 16;

/// A connection to a server.
pub(crate) struct Upstream {
    pub(crate) reader: Buffered<OwnedReadHalf>,
    pub(crate) writer: OwnedWriteHalf,
}

pub(crate) enum DialError {
    Denied(Denial),
    Unreachable { failure: DialFailure, sentence: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DialFailure {
    /// The name has no address.
    Name,
    Refused,
    Timeout,
    Network,
    Other,
}

/// Connects to the target if the policy allows it, and reports what happened.
pub(crate) async fn dial(
    context: &ConnectionContext,
    protocol: Protocol,
    target: &Target,
) -> Result<(Upstream, Traffic), DialError> {
    let connection = context.connection;
    let result = try_dial(context, target).await;
    context.events.record(match &result {
        Ok((address, entry, _)) => Event::Allowed {
            connection,
            protocol,
            target: target.clone(),
            address: *address,
            entry: entry.clone(),
        },
        Err(DialError::Denied(denial)) => Event::Denied { connection, protocol, denial: denial.clone() },
        Err(DialError::Unreachable { sentence, .. }) => {
            Event::Unreachable { connection, protocol, target: target.clone(), reason: sentence.clone() }
        }
    });
    let (_, _, stream) = result?;
    // Without it small writes are late, no more.
    let _ = stream.set_nodelay(true);
    let (reader, writer) = stream.into_split();
    let traffic = Traffic::new(connection, target.clone(), context.meter.clone(), context.events.clone());
    Ok((Upstream { reader: Buffered::new(reader), writer }, traffic))
}

async fn try_dial(
    context: &ConnectionContext,
    target: &Target,
) -> Result<(SocketAddr, String, TcpStream), DialError> {
    let denied = |reason| DialError::Denied(Denial { target: target.clone(), reason });
    if context.meter.is_used() {
        return Err(denied(DenialReason::BytesUsed));
    }
    // Before the lookup: names of hosts that are not allowed must not leave the machine either.
    let entry = context.policy.entry_for(target).map_err(denied)?.to_string();
    let addresses = addresses(context, target).await?;
    let mut checked = Vec::new();
    let mut refused = None;
    for address in addresses {
        match context.policy.check_address(address, target.port, is_own(address)) {
            Ok(()) => checked.push(SocketAddr::new(address, target.port)),
            Err(reason) => refused = refused.or(Some(reason)),
        }
    }
    match refused {
        Some(reason) if checked.is_empty() => Err(denied(reason)),
        _ => {
            let (address, stream) = connect(context.bounds.connect, target, &checked).await?;
            Ok((address, entry, stream))
        }
    }
}

async fn addresses(context: &ConnectionContext, target: &Target) -> Result<Vec<IpAddr>, DialError> {
    let name = match &target.host {
        Host::Address(address) => return Ok(vec![*address]),
        Host::Name(name) => name,
    };
    let unreachable = |failure, sentence| DialError::Unreachable { failure, sentence };
    match timeout(context.bounds.connect, context.resolver.resolve(name)).await {
        Ok(Ok(mut addresses)) if !addresses.is_empty() => {
            addresses.truncate(MAX_ADDRESSES);
            Ok(addresses)
        }
        Ok(Ok(_)) => Err(unreachable(DialFailure::Name, format!("The name {name} has no address."))),
        Ok(Err(error)) => {
            Err(unreachable(DialFailure::Name, format!("The name {name} cannot be resolved: {error}.")))
        }
        Err(_) => {
            let sentence = format!("The name {name} was not resolved within {:?}.", context.bounds.connect);
            Err(unreachable(DialFailure::Timeout, sentence))
        }
    }
}

/// Connects to the first address that answers, within `limit` for all of them.
async fn connect(
    limit: Duration,
    target: &Target,
    addresses: &[SocketAddr],
) -> Result<(SocketAddr, TcpStream), DialError> {
    let mut last = (DialFailure::Other, format!("The host {} has no address.", target.host));
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for address in addresses {
        last = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok((*address, stream)),
            Ok(Err(error)) => {
                (failure(&error), format!("Cannot connect to {target} at {}: {error}.", address.ip()))
            }
            Err(_) => (
                DialFailure::Timeout,
                format!("{target} at {} did not answer within {share:?}.", address.ip()),
            ),
        };
    }
    let (failure, sentence) = last;
    Err(DialError::Unreachable { failure, sentence })
}

fn failure(error: &io::Error) -> DialFailure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => DialFailure::Refused,
        io::ErrorKind::TimedOut => DialFailure::Timeout,
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => DialFailure::Network,
        _ => DialFailure::Other,
    }
}

/// True if packets to `address` stay on this machine. No packet is sent: the routing table is
/// asked, and whether the address can be bound, since packets to a secondary address begin at the
/// primary one.
fn is_own(address: IpAddr) -> bool {
    if !address.is_loopback() && UdpSocket::bind((address, 0)).is_ok() {
        return true;
    }
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    // Without a route there is no connection either.
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_recognised() {
        assert!(is_own([127, 0, 0, 1].into()));
        assert!(!is_own([192, 0, 2, 1].into()));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test starts a helper of its own")]
    fn secondary_addresses_are_recognised() {
        // In a network namespace of its own, by a process that has just made it.
        let script = "ip link set lo up && ip address add 203.0.113.4/24 dev lo && ip address add 203.0.113.5/24 dev lo \
            && \"$0\" --exact dial::tests::addresses_of_the_namespace --ignored";
        let program = std::env::current_exe().expect("the test");
        let mut command = std::process::Command::new("unshare");
        let done = command.args(["-Urn", "sh", "-c", script]).arg(program).output().expect("unshare");
        assert!(done.status.success(), "{done:?}");
    }

    #[test]
    #[ignore = "the other test runs it where these addresses are"]
    fn addresses_of_the_namespace() {
        for own in [[203, 0, 113, 4], [203, 0, 113, 5]] {
            assert!(is_own(own.into()), "{own:?}");
        }
        assert!(!is_own([198, 51, 100, 6].into()));
    }
}
