//! The owner of the other end of a loopback connection, from /proc/net/tcp and tcp6.
//!
//! The hard fact: a socket that its process has closed is still listed, with uid 0 and inode 0,
//! while the connection winds down. To a server of root it would look like root's. So only an entry
//! with an inode, which a living process holds, counts; a client that wants an answer keeps its
//! socket open.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// A table that changes while it is read can miss an entry.
const MAX_READS: usize = 3;

/// Whether the process at the other end of a connection of this machine has this uid. No further
/// table is read once it is not wanted any more.
pub(super) fn belongs_to(
    peer: SocketAddr,
    local: SocketAddr,
    uid: u32,
    is_wanted: &dyn Fn() -> bool,
) -> bool {
    for _ in 0..MAX_READS {
        for table in TABLES {
            if !is_wanted() {
                return false;
            }
            let listed = std::fs::read_to_string(table).unwrap_or_default();
            if let Some(owner) = owner(&listed, canonical(peer), canonical(local)) {
                return owner == uid;
            }
        }
    }
    false
}

/// The uid of the socket that is `peer` for itself and whose other end is `local`.
fn owner(table: &str, peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let own = address(fields.next()?)?;
        let other = address(fields.next()?)?;
        if own != peer || other != local {
            return None;
        }
        // State, queues, timer, retransmits; uid, timeout, inode.
        let uid = fields.nth(4)?.parse().ok()?;
        let inode: u64 = fields.nth(1)?.parse().ok()?;
        (inode != 0).then_some(uid)
    })
}

/// `0100007F:1F90`: words of the address as this machine's memory holds them, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let address_part = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(address_part(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&address_part(index * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?)))
}

/// An IPv4 address is the same one where a socket of IPv6 uses it.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn only_entries_with_an_inode_count() {
        let entry = |state: &str, uid: u32, inode: u32| {
            format!(
                "{HEAD}   2: 0100007F:C350 0100007F:1EC8 {state} 00000000:00000000 00:00000000 00000000  {uid}        0 {inode} 1 0 20 4\n"
            )
        };
        let find = |table: &str| owner(table, socket("127.0.0.1:50000"), socket("127.0.0.1:7880"));
        assert_eq!(find(&entry("01", 1000, 77)), Some(1000));
        assert_eq!(find(&entry("06", 0, 0)), None);
        assert_eq!(find(&entry("05", 0, 0)), None);
        // The server's own end of it is another entry.
        let swapped = owner(&entry("01", 1000, 77), socket("127.0.0.1:7880"), socket("127.0.0.1:50000"));
        assert_eq!(swapped, None);
        assert_eq!(find("nonsense\n1 2 3\n: : :\n"), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn an_ipv4_peer_may_use_a_socket_of_ipv6() {
        let table = format!(
            "{HEAD}   0: 0000000000000000FFFF00000100007F:C350 0000000000000000FFFF00000100007F:1EC8 01 0:0 0:0 0  5 0 9 1 0\n"
        );
        assert_eq!(owner(&table, socket("127.0.0.1:50000"), socket("127.0.0.1:7880")), Some(5));
    }

    #[test]
    fn a_real_connection_is_found_and_a_closed_one_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (server, peer) = listener.accept().expect("accepted");
        let local = server.local_addr().expect("connected");
        let uid = rustix::process::geteuid().as_raw();
        let belongs_to = |uid| belongs_to(peer, local, uid, &|| true);
        assert!(belongs_to(uid));
        assert!(!super::belongs_to(peer, local, uid, &|| false));
        assert!(!belongs_to(uid + 1));
        drop(client);
        assert!(!belongs_to(uid));
        assert!(!belongs_to(0));
    }
}
