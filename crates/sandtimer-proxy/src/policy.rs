//! The allow-list: pure functions from names, addresses and ports to decisions.

mod entry;
mod ranges;

use std::net::IpAddr;

pub use entry::EntryError;
use entry::{Pattern, PolicyEntry};
use ranges::{SpecialRange, embedded_v4};

use crate::denial::DenialReason;
use crate::target::{Host, Target};

/// The entries of an allow-list. An empty one allows nothing.
///
/// An entry is a host name (`pypi.org`), all sub-domains of one (`*.githubusercontent.com`), an
/// IPv4 address or network (`10.1.0.0/16`), or an IPv6 address or network in brackets
/// (`[2001:db8::/32]`), each with or without a port after a colon. Without a port it allows the
/// ports 80 and 443. A wildcard does not include the domain itself.
///
/// ```
/// let policy = sandtimer_proxy::ProxyPolicy::parse(["pypi.org", "*.githubusercontent.com:443", "10.1.0.0/16:5432"])?;
/// let error = sandtimer_proxy::ProxyPolicy::parse(["https://pypi.org/simple"]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "network allow-list entry \"https://pypi.org/simple\": it is a URL; write the host alone, such as \"pypi.org:443\""
/// );
/// # Ok::<(), sandtimer_proxy::EntryError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ProxyPolicy {
    entries: Vec<PolicyEntry>,
    /// What targets must pass as well: the operator's.
    ceiling: Option<Box<ProxyPolicy>>,
}

impl ProxyPolicy {
    /// Fails at the first entry that is not one, with the entry, what is wrong, and what to write.
    pub fn parse<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Result<ProxyPolicy, EntryError> {
        let entries = entries.into_iter().map(|entry| PolicyEntry::parse(entry.as_ref()));
        Ok(ProxyPolicy { entries: entries.collect::<Result<_, _>>()?, ceiling: None })
    }

    /// Returns the policy that allows what both allow.
    #[must_use]
    pub fn under(self, ceiling: ProxyPolicy) -> ProxyPolicy {
        ProxyPolicy { ceiling: Some(Box::new(ceiling)), ..self }
    }

    /// Returns an entry that allows more than the ceiling does, if there is one.
    pub fn entry_above(&self, ceiling: &ProxyPolicy) -> Option<String> {
        let is_within = |entry: &PolicyEntry| {
            let mut ports = entry.ports().iter();
            ports.all(|port| {
                let mut outer = ceiling.entries.iter();
                outer.any(|outer| outer.allows_port(*port) && entry.pattern.is_within(&outer.pattern))
            })
        };
        self.entries.iter().find(|entry| !is_within(entry)).map(ToString::to_string)
    }

    /// Whether it allows a host on any port.
    pub(crate) fn has_host(&self, host: &Host) -> bool {
        self.entries.iter().any(|entry| entry.matches_host(host))
            && self.ceiling.as_ref().is_none_or(|ceiling| ceiling.has_host(host))
    }

    /// Returns the entry that allows the target, before any name is resolved.
    ///
    /// An address is allowed only by an entry with an address or a network, and is checked as one
    /// that was resolved.
    pub(crate) fn entry_for(&self, target: &Target) -> Result<&PolicyEntry, DenialReason> {
        let entry = self.own_entry_for(target)?;
        if let Some(ceiling) = &self.ceiling {
            ceiling.own_entry_for(target).map_err(|_| DenialReason::Operator)?;
        }
        Ok(entry)
    }

    fn own_entry_for(&self, target: &Target) -> Result<&PolicyEntry, DenialReason> {
        let mut matching = self.entries.iter().filter(|entry| entry.matches_host(&target.host)).peekable();
        let Some(first) = matching.peek().copied() else { return Err(DenialReason::NoEntry) };
        matching
            .find(|entry| entry.allows_port(target.port))
            .ok_or_else(|| DenialReason::OtherPort { entry: first.to_string() })
    }

    /// Checks an address that is about to be connected to. Public addresses pass; special ones, and
    /// those of the own machine, need an entry that names them.
    pub(crate) fn check_address(&self, address: IpAddr, port: u16, is_own: bool) -> Result<(), DenialReason> {
        if let Some(ceiling) = &self.ceiling {
            ceiling.check_address(address, port, is_own).map_err(|_| DenialReason::Operator)?;
        }
        let own = is_own.then(|| SpecialRange::of_own_machine(address));
        let Some(range) = own.or_else(|| SpecialRange::of(address)) else { return Ok(()) };
        let refused = DenialReason::Address { address, description: range.description };
        let naming = self.entries.iter().filter(|entry| entry.allows_port(port)).filter_map(|entry| {
            match entry.pattern {
                Pattern::Network(network) => Some(network),
                _ => None,
            }
        });
        let mut naming =
            naming.filter(|network| network.contains(address) && range.is_named_by(*network)).peekable();
        if naming.peek().is_none() {
            return Err(refused);
        }
        // A translator's network that is named does not name what it leads to.
        match embedded_v4(address) {
            Some(inner) if !naming.any(|network| network.is_one_address()) => {
                self.check_address(inner.into(), port, false).map_err(|_| refused)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(entries: &[&str]) -> ProxyPolicy {
        ProxyPolicy::parse(entries).unwrap()
    }

    fn allowed(entries: &[&str], target: &str) -> bool {
        policy(entries).entry_for(&Target::parse(target, None).unwrap()).is_ok()
    }

    #[test]
    fn names_match_exactly() {
        let entries = ["PyPI.org."];
        assert!(allowed(&entries, "pypi.org:443") && allowed(&entries, "PYPI.ORG.:80"));
        for target in
            ["pypi.org:8080", "evilpypi.org:443", "pypi.org.evil.com:443", "files.pypi.org:443", "org:443"]
        {
            assert!(!allowed(&entries, target), "{target}");
        }
    }

    #[test]
    fn wildcards_match_subdomains_at_a_label() {
        let entries = ["*.example.com:443"];
        assert!(allowed(&entries, "a.example.com:443") && allowed(&entries, "a.b.EXAMPLE.com:443"));
        for target in
            ["example.com:443", "evilexample.com:443", "a.example.com:80", "a.example.com.evil.com:443"]
        {
            assert!(!allowed(&entries, target), "{target}");
        }
    }

    #[test]
    fn addresses_need_an_entry_with_addresses() {
        let entries = ["8.8.8.8", "10.1.0.0/16:5432", "[2606:4700::/32]:443", "*.example.com"];
        assert!(allowed(&entries, "8.8.8.8:443") && allowed(&entries, "10.1.255.1:5432"));
        assert!(allowed(&entries, "[2606:4700::1111]:443"));
        for target in
            ["8.8.4.4:443", "10.2.0.1:5432", "10.1.0.1:443", "[2606:4701::1]:443", "[::ffff:8.8.8.8]:443"]
        {
            assert!(!allowed(&entries, target), "{target}");
        }
    }

    #[test]
    fn a_denial_names_the_entry_with_another_port() {
        let target = Target::parse("pypi.org:22", None).unwrap();
        let reason = policy(&["pypi.org:443"]).entry_for(&target).unwrap_err();
        assert_eq!(reason, DenialReason::OtherPort { entry: "pypi.org:443".to_owned() });
    }

    fn checked(entries: &[&str], address: &str) -> bool {
        policy(entries).check_address(address.parse().unwrap(), 443, false).is_ok()
    }

    #[test]
    fn special_addresses_need_an_entry_within_their_range() {
        assert!(checked(&[], "8.8.8.8"));
        assert!(!checked(&[], "10.1.2.3") && !checked(&["10.1.2.3:80"], "10.1.2.3"));
        assert!(checked(&["10.1.0.0/16"], "10.1.2.3") && checked(&["10.0.0.0/8"], "10.1.2.3"));
        // A network of everything names nothing in particular.
        assert!(!checked(&["0.0.0.0/0"], "10.1.2.3") && !checked(&["[::/0]"], "fd00::1"));
        assert!(!checked(&["169.254.0.0/16"], "169.254.169.254"));
        assert!(checked(&["169.254.169.254"], "169.254.169.254"));
    }

    #[test]
    fn addresses_in_addresses_are_checked_too() {
        assert!(!checked(&["10.0.0.0/8"], "::ffff:10.1.2.3"));
        assert!(!checked(&["[64:ff9b::/96]"], "64:ff9b::10.1.2.3"));
        assert!(checked(&["[64:ff9b::/96]"], "64:ff9b::8.8.8.8"));
        assert!(checked(&["[64:ff9b::/96]", "10.1.0.0/16"], "64:ff9b::10.1.2.3"));
        assert!(checked(&["[64:ff9b::a01:203]"], "64:ff9b::10.1.2.3"));
        assert!(!checked(&["[2002::/16]"], "2002:7f00:1::1"));
    }

    #[test]
    fn ceiling_bounds_entries_and_targets() {
        let ceiling = ["pypi.org", "*.example.com:443", "10.0.0.0/8:5432", "0.0.0.0/0"];
        let above = |entry: &str| policy(&[entry]).entry_above(&policy(&ceiling));
        for entry in [
            "pypi.org",
            "pypi.org:80",
            "a.example.com:443",
            "*.b.example.com:443",
            "10.1.0.0/16:5432",
            "8.8.8.8",
        ] {
            assert_eq!(above(entry), None, "{entry}");
        }
        let outside = [
            "evil.org",
            "pypi.org:22",
            "a.example.com",
            "example.com:443",
            "*.com:443",
            "10.0.0.0/7:5432",
            "[::1]",
        ];
        for entry in outside {
            assert_eq!(above(entry), Some(entry.to_owned()));
        }
        // An operator whose list has changed since: what was allowed before is refused now.
        let bounded = policy(&["a.org", "b.org", "10.1.2.3"]).under(policy(&["a.org", "0.0.0.0/0"]));
        let target = |written: &str| Target::parse(written, None).unwrap();
        assert!(bounded.entry_for(&target("a.org:443")).is_ok());
        assert_eq!(bounded.entry_for(&target("b.org:443")), Err(DenialReason::Operator));
        // A network of everything names no private address, of a ceiling either.
        let address: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(bounded.check_address(address, 443, false), Err(DenialReason::Operator));
        assert!(policy(&["10.1.2.3"]).check_address(address, 443, false).is_ok());
    }

    #[test]
    fn own_addresses_must_be_named_themselves() {
        let check = |entries: &[&str]| policy(entries).check_address([8, 8, 8, 8].into(), 443, true).is_ok();
        assert!(!check(&[]) && !check(&["8.8.8.0/24"]) && check(&["8.8.8.8"]));
        let private = policy(&["10.0.0.0/8"]);
        assert!(private.check_address([10, 0, 0, 5].into(), 443, true).is_err());
        assert!(private.check_address([10, 0, 0, 6].into(), 443, false).is_ok());
    }
}
