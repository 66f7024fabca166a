//! TCP ports of a run: whether a process of it listens on one, inspected from outside in /proc, and
//! connections to it.
//!
//! The table of the run's network namespace names sockets by their inodes, and the descriptors of
//! the run's own processes name which of them are theirs: a port on which another process listens
//! does not count. Every read is bounded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::Duration;
use std::{fs, io};

use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use sandtimer_os::{process, thread};

use super::proc_files::{children, number_of, read_prefix};

const TABLES: [&str; 2] = ["net/tcp", "net/tcp6"];
/// TCP_LISTEN, as the tables write it.
const LISTEN: &str = "0A";
/// Bytes read of a table; processes of a run, and descriptors of each, that are inspected.
const MAX_TABLE_BYTES: u64 = 16 << 20;
const MAX_PROCESSES: usize = 8192;
const MAX_DESCRIPTORS: usize = 65_536;

/// Whether a process of a run listens on the port: one below its init, or below its `job`, which is
/// not init's child. Stops, with no, once it is not wanted any more.
pub(crate) fn listens(
    init: BorrowedFd<'_>,
    job: Option<BorrowedFd<'_>>,
    port: u16,
    is_wanted: &dyn Fn() -> bool,
) -> bool {
    let Some(init_pid) = number_of(init) else { return false };
    let tables = TABLES.map(|table| read_prefix(&format!("/proc/{init_pid}/{table}"), MAX_TABLE_BYTES));
    let wanted: Vec<String> = tables
        .iter()
        .flatten()
        .flat_map(|table| listeners(table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let roots = [Some(init_pid), job.and_then(number_of)];
    let processes =
        || tree(roots.into_iter().flatten().collect(), is_wanted).into_iter().take_while(|_| is_wanted());
    let found = !wanted.is_empty() && processes().any(|pid| has_one(pid, &wanted));
    // PIDs are reused: what was read belongs to this run if its init is still alive.
    found && !process::is_dead(init)
}

/// A connection to a port of this process's loopback. A thread of its own makes it: that takes the
/// process's network namespace as its own, which needs CAP_SYS_ADMIN (setns(2)).
pub(crate) fn connect(process: BorrowedFd<'_>, port: u16, within: Duration) -> io::Result<TcpStream> {
    let there = || {
        thread::block_signals();
        move_into_thread_name_spaces(process, ThreadNameSpaceType::NETWORK)?;
        let to = |address: IpAddr| TcpStream::connect_timeout(&SocketAddr::new(address, port), within);
        to(Ipv4Addr::LOCALHOST.into()).or_else(|_| to(Ipv6Addr::LOCALHOST.into()))
    };
    std::thread::scope(|scope| {
        let connecting =
            std::thread::Builder::new().name("st-connect".to_owned()).spawn_scoped(scope, there)?;
        connecting.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

/// Inodes of the sockets that listen on the port.
fn listeners(table: &str, port: u16) -> Vec<u64> {
    let inode = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
        let own = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        // Queues, timer, retransmits, uid, timeout; inode.
        let inode = fields.nth(5)?.parse().ok()?;
        (own == port && state == LISTEN && inode != 0).then_some(inode)
    };
    table.lines().skip(1).filter_map(inode).collect()
}

/// These processes, and those below them. An orphan becomes a child of init, so all of them are
/// included.
fn tree(mut found: Vec<u32>, is_wanted: &dyn Fn() -> bool) -> Vec<u32> {
    let mut at = 0;
    while at < found.len() && found.len() < MAX_PROCESSES && is_wanted() {
        let threads = fs::read_dir(format!("/proc/{}/task", found[at])).into_iter().flatten().flatten();
        for thread in threads {
            found.extend(children(&thread.path().to_string_lossy()));
        }
        at += 1;
    }
    found
}

fn has_one(pid: u32, wanted: &[String]) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.take(MAX_DESCRIPTORS).any(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| wanted.iter().any(|socket| target.as_os_str() == socket.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_listen_on_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0 0 10 0\n\
            1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 12 1 0 20 4 30 10 -1\n\
            2: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  5 0 13 1 0\n\
            3: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 14 1 0\n\
            nonsense\n";
        assert_eq!(listeners(table, 8080), [11, 13]);
        assert_eq!(listeners(table, 80), [0u64; 0]);
    }

    #[test]
    fn search_stops_when_unwanted() {
        use std::os::fd::AsFd;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let own = rustix::process::getpid();
        let own = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty()).expect("opened");
        assert!(listens(own.as_fd(), None, port, &|| true));
        assert!(!listens(own.as_fd(), None, port, &|| false));
    }
}
