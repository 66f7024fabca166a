//! One entry of an allow-list.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::policy::ranges::{IpNetwork, max_prefix};
use crate::target::{DEFAULT_PORTS, Host, HostError, parse_port, split_port};

/// An allow-list entry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("network allow-list entry {entry:?}: {problem}")]
pub struct EntryError {
    /// The entry as it was written.
    pub entry: String,
    /// What is wrong with it, and what to write.
    pub problem: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyEntry {
    pub(crate) pattern: Pattern,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Name(String),
    /// Names that end with a dot and this one.
    Subdomains(String),
    Network(IpNetwork),
}

impl PolicyEntry {
    pub(crate) fn parse(written: &str) -> Result<PolicyEntry, EntryError> {
        parse(written).map_err(|problem| EntryError { entry: written.to_owned(), problem })
    }

    pub(crate) fn matches_host(&self, host: &Host) -> bool {
        match (&self.pattern, host) {
            (Pattern::Name(own), Host::Name(name)) => own == name,
            (Pattern::Subdomains(domain), Host::Name(name)) => is_below(name, domain),
            (Pattern::Network(network), Host::Address(address)) => network.contains(*address),
            _ => false,
        }
    }

    pub(crate) fn ports(&self) -> &[u16] {
        self.port.as_ref().map_or(&DEFAULT_PORTS, std::slice::from_ref)
    }

    pub(crate) fn allows_port(&self, port: u16) -> bool {
        self.ports().contains(&port)
    }
}

impl Pattern {
    /// Whether all hosts of this one are among those of the other.
    pub(crate) fn is_within(&self, outer: &Pattern) -> bool {
        match (self, outer) {
            (Pattern::Name(name), Pattern::Name(other)) => name == other,
            (Pattern::Name(name), Pattern::Subdomains(domain)) => is_below(name, domain),
            (Pattern::Subdomains(own), Pattern::Subdomains(domain)) => own == domain || is_below(own, domain),
            (Pattern::Network(own), Pattern::Network(other)) => own.is_within(*other),
            _ => false,
        }
    }
}

impl fmt::Display for PolicyEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Name(name) => formatter.write_str(name)?,
            Pattern::Subdomains(domain) => write!(formatter, "*.{domain}")?,
            Pattern::Network(network) => write!(formatter, "{network}")?,
        }
        self.port.map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
}

fn parse(written: &str) -> Result<PolicyEntry, String> {
    if written.trim() != written || written.is_empty() {
        return Err("it is empty, or has spaces around it; write a host, such as \"pypi.org\"".to_owned());
    }
    if written.contains("://") {
        return Err("it is a URL; write the host alone, such as \"pypi.org:443\"".to_owned());
    }
    if written == "*" || written.starts_with("*:") {
        return Err("it allows every host; write hosts and domains, such as \"*.example.com\"".to_owned());
    }
    let (host, port) = split_port(written).map_err(|error| match error {
        HostError::BareIpv6 => {
            "an IPv6 address or network has brackets, such as \"[2001:db8::/32]:443\"".to_owned()
        }
        other => other.to_string(),
    })?;
    let port =
        port.map(parse_port).transpose().map_err(|error| format!("{error}, or no port for 80 and 443"))?;
    Ok(PolicyEntry { pattern: parse_pattern(host)?, port })
}

fn parse_pattern(host: &str) -> Result<Pattern, String> {
    if let Some(domain) = host.strip_prefix("*.") {
        return match Host::parse(domain) {
            Ok(Host::Name(domain)) => Ok(Pattern::Subdomains(domain)),
            Ok(Host::Address(_)) | Err(HostError::OddAddress) => {
                Err("a wildcard is for names; write a network with its prefix, such as \"10.1.0.0/16\""
                    .to_owned())
            }
            Err(HostError::Character('*')) => Err(ONE_WILDCARD.to_owned()),
            Err(error) => Err(error.to_string()),
        };
    }
    let inner = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    if let Some((address, prefix)) = inner.unwrap_or(host).split_once('/') {
        let address = match inner {
            Some(_) => address.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => address.parse().ok().filter(IpAddr::is_ipv4),
        };
        return parse_network(address, prefix);
    }
    match Host::parse(host) {
        Ok(Host::Name(name)) => Ok(Pattern::Name(name)),
        Ok(Host::Address(address)) => Ok(Pattern::Network(IpNetwork::of_one(address))),
        Err(HostError::Character('*')) => Err(ONE_WILDCARD.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

const ONE_WILDCARD: &str = "a wildcard is the first label and nothing else, such as \"*.example.com\"";

fn parse_network(address: Option<IpAddr>, prefix: &str) -> Result<Pattern, String> {
    let address = address.ok_or(
        "only an address has a prefix after the `/`; write a host without a path, or a network, such as \"10.1.0.0/16\" or \
         \"[2001:db8::/32]\"",
    )?;
    let max = max_prefix(address);
    let plain =
        prefix.bytes().all(|byte| byte.is_ascii_digit()) && (prefix == "0" || !prefix.starts_with('0'));
    let prefix = prefix.parse().ok().filter(|length| plain && *length <= max);
    let prefix = prefix.ok_or_else(|| format!("the prefix is not a number from 0 to {max}"))?;
    let network = IpNetwork::new(address, prefix);
    network.map(Pattern::Network).map_err(|network| {
        format!("bits after the prefix are set; write \"{network}\" for the network, or the address without a prefix")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_written_as_they_are_read() {
        for entry in [
            "pypi.org",
            "*.githubusercontent.com:443",
            "10.1.0.0/16:5432",
            "[2001:db8::/32]:443",
            "127.0.0.1:8080",
            "[::1]",
            "0.0.0.0/0",
            "[::/0]",
            "localhost:1",
        ] {
            assert_eq!(PolicyEntry::parse(entry).unwrap().to_string(), entry);
        }
        assert_eq!(PolicyEntry::parse("PyPI.ORG.:443").unwrap().to_string(), "pypi.org:443");
        assert_eq!(PolicyEntry::parse("10.0.0.1/32").unwrap().to_string(), "10.0.0.1");
    }

    #[test]
    fn wrong_entries_are_refused_with_the_remedy() {
        let cases = [
            ("", "pypi.org"),
            (" pypi.org", "spaces"),
            ("https://pypi.org", "write the host alone"),
            ("pypi.org/simple", "without a path"),
            ("pypi.org:443/simple", "from 1 to 65535"),
            ("*", "every host"),
            ("*:443", "every host"),
            ("*.", "empty"),
            ("*.*.com", "first label"),
            ("a.*.com", "first label"),
            ("*example.com", "first label"),
            ("*.10.0.0.1", "10.1.0.0/16"),
            ("*.0.0.1", "10.1.0.0/16"),
            ("münchen.de", "xn--"),
            ("pypi%2eorg", "'%'"),
            ("user@pypi.org", "@"),
            ("pypi.org:", "no port for 80 and 443"),
            ("pypi.org:0", "from 1 to 65535"),
            ("pypi.org:65536", "from 1 to 65535"),
            ("pypi.org:https", "from 1 to 65535"),
            ("2001:db8::/32", "[2001:db8::/32]:443"),
            ("::1", "[2001:db8::/32]:443"),
            ("[2001:db8::/32", "brackets"),
            ("[10.0.0.0/8]", "only an address"),
            ("10.1.2.3/16", "write \"10.1.0.0/16\""),
            ("[2001:db8::1/32]", "write \"[2001:db8::/32]\""),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/+8", "from 0 to 32"),
            ("10.0.0.0/", "from 0 to 32"),
            ("[::/129]", "from 0 to 128"),
            ("10.1", "four decimal numbers"),
            ("0x7f000001", "four decimal numbers"),
            ("010.0.0.1", "four decimal numbers"),
            ("[fe80::1%eth0]", "without a zone"),
            ("pypi..org", "empty label"),
        ];
        for (entry, expected) in cases {
            let error = PolicyEntry::parse(entry).expect_err(entry);
            assert_eq!(error.entry, entry);
            assert!(error.problem.contains(expected), "{error}");
        }
    }
}
