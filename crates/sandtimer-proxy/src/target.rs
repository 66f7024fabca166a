//! Host names, addresses and ports as clients and entries write them, normalised once.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest host name, without a dot at its end (RFC 1035).
const MAX_NAME_LEN: usize = 253;
const MAX_LABEL_LEN: usize = 63;
/// The ports of a network allow-list entry without one: those of HTTP and HTTPS.
pub(crate) const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// A host name in lower case without a dot at its end, or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    Name(String),
    Address(IpAddr),
}

/// The destination that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub host: Host,
    pub port: u16,
}

/// Why a string is not a host, or not a host with a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    #[error("the host is empty")]
    Empty,
    #[error(
        "the name has a character that is not ASCII; write its ASCII form, whose labels begin with `xn--`"
    )]
    NotAscii,
    #[error("{0:?} cannot be part of a host name, which has letters, digits, `-`, `_` and dots")]
    Character(char),
    #[error("the name has an empty label; labels are separated by single dots")]
    EmptyLabel,
    #[error("a label of the name has more than {MAX_LABEL_LEN} characters")]
    LongLabel,
    #[error("a label of the name begins or ends with `-`")]
    Hyphen,
    #[error("the name has more than {MAX_NAME_LEN} characters")]
    LongName,
    #[error(
        "an IPv4 address has four decimal numbers without leading zeros, such as 192.0.2.7; other forms are refused"
    )]
    OddAddress,
    #[error("an IPv6 address is written in brackets without a zone, such as [2001:db8::7]")]
    BareIpv6,
    #[error("the brackets have no IPv6 address; write it without a zone, such as [2001:db8::7]")]
    BadIpv6,
    #[error("a user name before the host is refused; remove what is before the `@`")]
    UserName,
    #[error("the port is missing; write it after the host, such as host:443")]
    NoPort,
    #[error("the port is not a number from 1 to 65535")]
    BadPort,
}

impl Host {
    /// Parses a name or an IPv4 address. IPv6 addresses have brackets.
    ///
    /// Names are normalised: lower case, without one dot at the end. Fails for names that are not
    /// ASCII, and for every form of an IPv4 address but the usual one: resolvers read `127.1`,
    /// `0x7f000001` and `2130706433` as addresses.
    pub fn parse(written: &str) -> Result<Host, HostError> {
        if let Some(inner) = written.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or(HostError::BadIpv6)?;
            return inner
                .parse::<Ipv6Addr>()
                .map(|address| Host::Address(address.into()))
                .map_err(|_| HostError::BadIpv6);
        }
        if let Ok(address) = written.parse::<Ipv4Addr>() {
            return Ok(Host::Address(address.into()));
        }
        normalised_name(written).map(Host::Name)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => formatter.write_str(name),
            Host::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Host::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl Target {
    /// Parses `HOST:PORT`, or `HOST` if there is a default port.
    pub fn parse(written: &str, default_port: Option<u16>) -> Result<Target, HostError> {
        let (host, port) = split_port(written)?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None => default_port.ok_or(HostError::NoPort)?,
        };
        Ok(Target { host: Host::parse(host)?, port })
    }

    /// Returns the network allow-list entry that allows this target.
    pub(crate) fn entry(&self) -> String {
        if DEFAULT_PORTS.contains(&self.port) { self.host.to_string() } else { self.to_string() }
    }

    /// Returns the host with its port, which is left out if it is `default`.
    pub(crate) fn authority(&self, default: u16) -> String {
        if self.port == default { self.host.to_string() } else { self.to_string() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// Splits off what is after the colon. The brackets of an IPv6 address stay.
pub(crate) fn split_port(written: &str) -> Result<(&str, Option<&str>), HostError> {
    if written.contains('@') {
        return Err(HostError::UserName);
    }
    let after_brackets = match written.strip_prefix('[') {
        Some(inner) => 1 + inner.find(']').ok_or(HostError::BadIpv6)? + 1,
        None => written.find(':').unwrap_or(written.len()),
    };
    let (host, rest) = written.split_at(after_brackets);
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Ok((host, None)),
        None => Err(HostError::BadIpv6),
        Some(port) if port.contains(':') => Err(HostError::BareIpv6),
        Some(port) => Ok((host, Some(port))),
    }
}

/// Parses decimal digits without sign and leading zero.
pub(crate) fn parse_port(written: &str) -> Result<u16, HostError> {
    let plain = written.bytes().all(|byte| byte.is_ascii_digit()) && !written.starts_with('0');
    written.parse().ok().filter(|_| plain).ok_or(HostError::BadPort)
}

fn normalised_name(written: &str) -> Result<String, HostError> {
    if !written.is_ascii() {
        return Err(HostError::NotAscii);
    }
    let name = written.strip_suffix('.').unwrap_or(written).to_ascii_lowercase();
    if name.is_empty() {
        return Err(HostError::Empty);
    }
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    if let Some(character) = name.chars().find(|character| !allowed(*character)) {
        return Err(HostError::Character(character));
    }
    if name.len() > MAX_NAME_LEN {
        return Err(HostError::LongName);
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err(HostError::EmptyLabel);
        }
        if label.len() > MAX_LABEL_LEN {
            return Err(HostError::LongLabel);
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(HostError::Hyphen);
        }
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if is_number(last) { Err(HostError::OddAddress) } else { Ok(name) }
}

/// True for a last label that resolvers may read as the last part of an IPv4 address.
fn is_number(label: &str) -> bool {
    let digits = label.strip_prefix("0x");
    label.bytes().all(|byte| byte.is_ascii_digit())
        || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(written: &str) -> Result<Host, HostError> {
        Ok(Host::Name(written.to_owned()))
    }

    #[test]
    fn names_are_normalised_once() {
        assert_eq!(Host::parse("PyPI.org."), name("pypi.org"));
        assert_eq!(Host::parse("xn--mnchen-3ya.de"), name("xn--mnchen-3ya.de"));
        assert_eq!(Host::parse("_dmarc.example.com"), name("_dmarc.example.com"));
        assert_eq!(Host::parse("3com.com"), name("3com.com"));
    }

    #[test]
    fn names_that_resolvers_disagree_about_are_refused() {
        let long = format!("{}.example", "a".repeat(64));
        let cases = [
            ("", HostError::Empty),
            (".", HostError::Empty),
            ("pypi.org..", HostError::EmptyLabel),
            ("pypi..org", HostError::EmptyLabel),
            ("pypi%2eorg", HostError::Character('%')),
            ("pypi.org\0.evil.com", HostError::Character('\0')),
            ("pypi.org\\evil.com", HostError::Character('\\')),
            ("pypi.org evil.com", HostError::Character(' ')),
            ("münchen.de", HostError::NotAscii),
            ("pypi。org", HostError::NotAscii),
            ("-a.example", HostError::Hyphen),
            (&long, HostError::LongLabel),
            ("*.example", HostError::Character('*')),
        ];
        for (written, error) in cases {
            assert_eq!(Host::parse(written), Err(error), "{written:?}");
        }
        assert_eq!(Host::parse(&"a.".repeat(127)), name(&"a.".repeat(127)[..253]));
        assert_eq!(Host::parse(&"a.".repeat(128)), Err(HostError::LongName));
    }

    #[test]
    fn odd_forms_of_addresses_are_refused() {
        for written in [
            "2130706433",
            "0x7f000001",
            "0X7F000001",
            "017700000001",
            "127.1",
            "127.0.1",
            "0177.0.0.1",
            "127.0.0.1.",
            "127.0.0.0x1",
            "127.0.0.256",
            "1.2.3.4.5",
            "a.0x",
            "a.1",
        ] {
            assert_eq!(Host::parse(written), Err(HostError::OddAddress), "{written:?}");
        }
        for written in ["[::1%lo]", "[fe80::1%25eth0]", "[127.0.0.1]", "[]", "[::1", "[v1.a]"] {
            assert_eq!(Host::parse(written), Err(HostError::BadIpv6), "{written:?}");
        }
        assert_eq!(Host::parse("192.0.2.7"), Ok(Host::Address([192, 0, 2, 7].into())));
        assert_eq!(Host::parse("[::FFFF:1.2.3.4]").unwrap().to_string(), "[::ffff:1.2.3.4]");
    }

    #[test]
    fn ports_are_plain_numbers() {
        assert_eq!(Target::parse("a.example:443", None).unwrap().to_string(), "a.example:443");
        assert_eq!(Target::parse("[::1]:443", None).unwrap().to_string(), "[::1]:443");
        assert_eq!(Target::parse("a.example", Some(80)).unwrap().port, 80);
        let cases = [
            ("a.example", HostError::NoPort),
            ("a.example:", HostError::BadPort),
            ("a.example:0", HostError::BadPort),
            ("a.example:+80", HostError::BadPort),
            ("a.example:080", HostError::BadPort),
            ("a.example:65536", HostError::BadPort),
            ("a.example:80 ", HostError::BadPort),
            ("a.example:80:90", HostError::BareIpv6),
            ("2001:db8::7", HostError::BareIpv6),
            ("[::1]a:80", HostError::BadIpv6),
            ("a@b.example:80", HostError::UserName),
        ];
        for (written, error) in cases {
            assert_eq!(Target::parse(written, None), Err(error), "{written:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn normalised_hosts_stay_as_they_are(written in "[\\[]?[a-zA-Z0-9.:%_*é-]{0,20}[\\].]?") {
            if let Ok(host) = Host::parse(&written) {
                proptest::prop_assert_eq!(Host::parse(&host.to_string()), Ok(host.clone()));
                proptest::prop_assert!(host.to_string().is_ascii());
            }
        }
    }
}
