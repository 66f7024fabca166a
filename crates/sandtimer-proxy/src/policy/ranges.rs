//! Networks, and the special ones among them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address with the length of its prefix; the bits after the prefix are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpNetwork {
    address: IpAddr,
    prefix: u8,
}

impl IpNetwork {
    /// Fails with the network's first address if bits after the prefix are set. The prefix must not
    /// be longer than an address.
    pub(crate) fn new(address: IpAddr, prefix: u8) -> Result<IpNetwork, IpNetwork> {
        let first = match address {
            IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(masked_v4(address, prefix))),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(masked_v6(address, prefix))),
        };
        let network = IpNetwork { address: first, prefix };
        if first == address { Ok(network) } else { Err(network) }
    }

    pub(crate) fn of_one(address: IpAddr) -> IpNetwork {
        IpNetwork { address, prefix: max_prefix(address) }
    }

    pub(crate) fn is_one_address(self) -> bool {
        self.prefix == max_prefix(self.address)
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                masked_v4(own, self.prefix) == masked_v4(other, self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                masked_v6(own, self.prefix) == masked_v6(other, self.prefix)
            }
            _ => false,
        }
    }

    pub(crate) fn is_within(self, outer: IpNetwork) -> bool {
        outer.prefix <= self.prefix && outer.contains(self.address)
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.is_one_address() { String::new() } else { format!("/{}", self.prefix) };
        match self.address {
            IpAddr::V4(address) => write!(formatter, "{address}{suffix}"),
            IpAddr::V6(address) => write!(formatter, "[{address}{suffix}]"),
        }
    }
}

pub(crate) fn max_prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked_v4(address: Ipv4Addr, prefix: u8) -> u32 {
    address.to_bits() & u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn masked_v6(address: Ipv6Addr, prefix: u8) -> u128 {
    address.to_bits() & u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

const fn v4(octets: [u8; 4], prefix: u8) -> IpNetwork {
    let [a, b, c, d] = octets;
    IpNetwork { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
}

const fn v6(bits: u128, prefix: u8) -> IpNetwork {
    IpNetwork { address: IpAddr::V6(Ipv6Addr::from_bits(bits)), prefix }
}

/// The high 64 bits of an IPv6 address.
const fn high(bits: u64) -> u128 {
    (bits as u128) << 64
}

const METADATA: &str = "an address of a cloud's metadata service";
const DOCUMENTATION: &str = "a documentation address";
const PRIVATE: &str = "a private address";
const RESERVED: &str = "a reserved address";

/// Networks that only an entry within the same network allows, and what an address of them is. The
/// longest prefix counts.
///
/// From the registries of special-purpose addresses (RFC 6890 and its updates), and the metadata
/// services of clouds.
const SPECIAL: &[(IpNetwork, &str)] = &[
    (v4([169, 254, 169, 254], 32), METADATA), // most clouds
    (v4([169, 254, 170, 2], 32), METADATA),   // credentials of containers
    (v4([100, 100, 100, 200], 32), METADATA),
    (v4([168, 63, 129, 16], 32), METADATA),
    (v4([192, 0, 0, 192], 32), METADATA),
    (v6(high(0xfd00_0ec2_0000_0000) | 0x254, 128), METADATA),
    (v6(high(0xfd20_00ce_0000_0000) | 0x254, 128), METADATA),
    (v4([0, 0, 0, 0], 8), "an address of this network (0.0.0.0/8)"),
    (v4([10, 0, 0, 0], 8), PRIVATE),
    (v4([100, 64, 0, 0], 10), "an address of carrier-grade NAT"),
    (v4([127, 0, 0, 0], 8), "a loopback address"),
    (v4([169, 254, 0, 0], 16), "a link-local address"),
    (v4([172, 16, 0, 0], 12), PRIVATE),
    (v4([192, 0, 0, 0], 24), RESERVED),
    (v4([192, 0, 2, 0], 24), DOCUMENTATION),
    (v4([192, 88, 99, 0], 24), "a 6to4 relay"),
    (v4([192, 168, 0, 0], 16), PRIVATE),
    (v4([198, 18, 0, 0], 15), "a benchmarking address"),
    (v4([198, 51, 100, 0], 24), DOCUMENTATION),
    (v4([203, 0, 113, 0], 24), DOCUMENTATION),
    (v4([224, 0, 0, 0], 4), "a multicast address"),
    (v4([240, 0, 0, 0], 4), RESERVED),
    (v4([255, 255, 255, 255], 32), "the broadcast address"),
    // Everything that is not global unicast.
    (v6(0, 0), RESERVED),
    (v6(high(0x4000_0000_0000_0000), 2), RESERVED),
    (v6(high(0x8000_0000_0000_0000), 1), RESERVED),
    (v6(0, 96), "an IPv4-compatible address"),
    (v6(0, 128), "the unspecified address"),
    (v6(1, 128), "a loopback address"),
    (v6(0xffff_0000_0000, 96), "an IPv4-mapped address"),
    (v6(0xffff_0000_0000_0000, 96), "an IPv4-translated address"),
    (v6(high(0x0064_ff9b_0000_0000), 96), "a NAT64 address"),
    (v6(high(0x0064_ff9b_0001_0000), 48), "a local NAT64 address"),
    (v6(high(0x0100_0000_0000_0000), 64), "an address that discards packets"),
    (v6(high(0x2001_0000_0000_0000), 23), RESERVED),
    (v6(high(0x2001_0000_0000_0000), 32), "a Teredo address"),
    (v6(high(0x2001_0db8_0000_0000), 32), DOCUMENTATION),
    (v6(high(0x2002_0000_0000_0000), 16), "a 6to4 address"),
    (v6(high(0x3fff_0000_0000_0000), 20), DOCUMENTATION),
    (v6(high(0x5f00_0000_0000_0000), 16), "a segment-routing address"),
    (v6(high(0xfc00_0000_0000_0000), 7), PRIVATE),
    (v6(high(0xfe80_0000_0000_0000), 10), "a link-local address"),
    (v6(high(0xfec0_0000_0000_0000), 10), "a site-local address"),
    (v6(high(0xff00_0000_0000_0000), 8), "a multicast address"),
];

/// Global unicast: the only part of IPv6 that is public.
const GLOBAL_UNICAST: IpNetwork = v6(high(0x2000_0000_0000_0000), 3);

/// A network that must be named, and what its addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpecialRange {
    network: IpNetwork,
    pub(crate) description: &'static str,
}

impl SpecialRange {
    /// Returns the range of `address`; `None` if the address is public.
    pub(crate) fn of(address: IpAddr) -> Option<SpecialRange> {
        let ranges = SPECIAL.iter().filter(|(network, _)| network.contains(address));
        let (network, description) = *ranges.max_by_key(|(network, _)| network.prefix)?;
        let range = SpecialRange { network, description };
        (network.prefix != 0 || !GLOBAL_UNICAST.contains(address)).then_some(range)
    }

    pub(crate) fn of_own_machine(address: IpAddr) -> SpecialRange {
        SpecialRange {
            network: IpNetwork::of_one(address),
            description: "an address of the machine that runs the proxy",
        }
    }

    /// True if `network` names addresses of this range, rather than a larger network that happens
    /// to include them.
    pub(crate) fn is_named_by(self, network: IpNetwork) -> bool {
        network.is_within(self.network)
    }
}

/// Returns the IPv4 address that a packet to `address` ends at, for the forms of IPv6 that have
/// one.
pub(crate) fn embedded_v4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let bits = address.to_bits();
    let low = Some(Ipv4Addr::from_bits(bits as u32));
    match bits >> 32 {
        0 if bits > 1 => low,
        0xffff | 0xffff_0000 | 0x0064_ff9b_0000_0000_0000_0000 => low,
        _ if bits >> 112 == 0x2002 => Some(Ipv4Addr::from_bits((bits >> 80) as u32)),
        _ if bits >> 80 == 0x0064_ff9b_0001 => low,
        // Teredo has it inverted.
        _ if bits >> 96 == 0x2001_0000 => Some(Ipv4Addr::from_bits(!(bits as u32))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(address: &str) -> Option<&'static str> {
        SpecialRange::of(address.parse().unwrap()).map(|range| range.description)
    }

    #[test]
    fn special_addresses_are_recognised() {
        let cases = [
            ("0.0.0.0", "this network"),
            ("0.1.2.3", "this network"),
            ("10.255.0.1", "private"),
            ("100.64.0.1", "carrier-grade"),
            ("100.127.255.255", "carrier-grade"),
            ("127.0.0.1", "loopback"),
            ("127.255.0.9", "loopback"),
            ("169.254.0.1", "link-local"),
            ("169.254.169.254", "metadata"),
            ("169.254.170.2", "metadata"),
            ("100.100.100.200", "metadata"),
            ("168.63.129.16", "metadata"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.168.1.1", "private"),
            ("192.0.2.1", "documentation"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.1", "documentation"),
            ("198.19.0.1", "benchmarking"),
            ("192.0.0.1", "reserved"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::7f00:1", "IPv4-compatible"),
            ("::ffff:8.8.8.8", "IPv4-mapped"),
            ("::ffff:0:8.8.8.8", "IPv4-translated"),
            ("64:ff9b::808:808", "NAT64"),
            ("64:ff9b:1::1", "local NAT64"),
            ("100::1", "discards"),
            ("2001::1", "Teredo"),
            ("2001:10::1", "reserved"),
            ("2001:db8::1", "documentation"),
            ("3fff::1", "documentation"),
            ("2002:7f00:1::", "6to4"),
            ("fc00::1", "private"),
            ("fd12::1", "private"),
            ("fd00:ec2::254", "metadata"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("4000::1", "reserved"),
            ("9000::1", "reserved"),
            ("1::1", "reserved"),
            ("5f00::1", "segment-routing"),
        ];
        for (address, expected) in cases {
            let description = description(address);
            assert!(description.is_some_and(|found| found.contains(expected)), "{address}: {description:?}");
        }
    }

    #[test]
    fn public_addresses_are_not_special() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:200::1",
            "2003::1",
            "3ffe::1",
        ] {
            assert_eq!(description(address), None, "{address}");
        }
    }

    #[test]
    fn addresses_in_addresses_are_read() {
        for address in [
            "::ffff:10.1.2.3",
            "::10.1.2.3",
            "::ffff:0:10.1.2.3",
            "64:ff9b::10.1.2.3",
            "64:ff9b:1::10.1.2.3",
            "2002:0a01:0203::1",
            "2001:0:1:2:3:4:f5fe:fdfc",
        ] {
            assert_eq!(embedded_v4(address.parse().unwrap()), Some(Ipv4Addr::new(10, 1, 2, 3)), "{address}");
        }
        for address in ["::", "::1", "2606:4700::1111", "10.1.2.3"] {
            assert_eq!(embedded_v4(address.parse().unwrap()), None, "{address}");
        }
    }
}
