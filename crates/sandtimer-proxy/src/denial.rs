//! Why a connection was refused, in two sentences.

use std::fmt;
use std::net::IpAddr;

use crate::target::{Host, Target};

/// A connection that the allow-list or a bound refused. Displayed: what is missing, and what would
/// allow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    pub target: Target,
    pub reason: DenialReason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DenialReason {
    /// The allow-list does not have the host.
    NoEntry,
    /// The allow-list has the host, but not with this port.
    OtherPort { entry: String },
    /// The address, or every address that the name resolved to, is one that an entry must name.
    Address { address: IpAddr, description: &'static str },
    /// The TLS connection to an allowed host asks for another server.
    ServerName { name: String },
    /// The operator's list does not have the host, the port or the address.
    Operator,
    /// The sandbox has sent or received as many bytes as it may.
    BytesUsed,
}

impl fmt::Display for Denial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { host, port } = &self.target;
        let entry = self.target.entry();
        match &self.reason {
            DenialReason::NoEntry => write!(
                formatter,
                "The network allow-list of the sandbox has no entry for {host}, port {port}. To allow the connection, add \
                 \"{entry}\" to the list."
            ),
            DenialReason::OtherPort { entry: other } => write!(
                formatter,
                "The network allow-list of the sandbox has \"{other}\", but no entry for {host} with port {port}. To allow \
                 the connection, add \"{entry}\" to the list."
            ),
            DenialReason::Address { address, description } => {
                let entry = Target { host: Host::Address(*address), port: *port }.entry();
                match host {
                    Host::Name(name) => write!(
                        formatter,
                        "The network allow-list of the sandbox has {name}, but the name resolves to {address}, which is \
                         {description} that no entry names. To allow the connection, add \"{entry}\" to the list."
                    ),
                    Host::Address(_) => write!(
                        formatter,
                        "The address {address} is {description}, which an entry of the sandbox's network allow-list must \
                         name by itself or by a network of such addresses. To allow the connection, add \"{entry}\" to the list."
                    ),
                }
            }
            DenialReason::ServerName { name } => write!(
                formatter,
                "The TLS connection to {host} asks for the server \"{name}\". To reach that server, connect to its own name, \
                 and add the name to the network allow-list of the sandbox."
            ),
            DenialReason::Operator => write!(
                formatter,
                "The operator's network allow-list does not allow {host}, port {port}. To allow the connection, ask the operator \
                 for \"{entry}\" in the list of the token."
            ),
            DenialReason::BytesUsed => write!(
                formatter,
                "The sandbox has used the bytes that its network may carry, so the connection to {host}, port {port}, was \
                 refused. To allow more, raise the limit of bytes."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(target: &str, reason: DenialReason) -> String {
        Denial { target: Target::parse(target, None).unwrap(), reason }.to_string()
    }

    #[test]
    fn denial_is_two_sentences_with_the_entry() {
        let address =
            DenialReason::Address { address: [10, 0, 0, 1].into(), description: "a private address" };
        let cases = [
            (denial("evil.example:443", DenialReason::NoEntry), "add \"evil.example\" to"),
            (denial("[::1]:8080", DenialReason::NoEntry), "add \"[::1]:8080\" to"),
            (
                denial("a.example:22", DenialReason::OtherPort { entry: "a.example:443".into() }),
                "\"a.example:22\"",
            ),
            (denial("a.example:5432", address.clone()), "add \"10.0.0.1:5432\" to"),
            (denial("10.0.0.1:80", address), "add \"10.0.0.1\" to"),
            (denial("a.example:443", DenialReason::ServerName { name: "b.example".into() }), "\"b.example\""),
            (denial("a.example:443", DenialReason::Operator), "\"a.example\""),
            (denial("a.example:443", DenialReason::BytesUsed), "raise the limit"),
        ];
        for (sentences, expected) in cases {
            assert!(sentences.contains(expected), "{sentences}");
            assert_eq!(sentences.matches(". ").count(), 1, "{sentences}");
            assert!(sentences.ends_with('.'), "{sentences}");
        }
    }
}
