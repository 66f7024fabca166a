//! Attack G2: two runs that want to talk by an object of the kernel's that both can name.
//!
//! `meeting hold NAME` makes one of each kind and waits to be ended; `meeting find NAME` looks for
//! them; `meeting both NAME` does both, which shows that what is held can be found.

use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::report::Finding;

/// The port that belongs to a name: outside of what the kernel hands out.
fn port(name: &str) -> u16 {
    10_000 + (key(name) % 20_000) as u16
}

/// The System V key that belongs to a name.
fn key(name: &str) -> u32 {
    name.bytes().fold(7, |key: u32, byte| key.wrapping_mul(31).wrapping_add(u32::from(byte))) & 0x0fff_ffff
        | 1
}

struct HeldSockets {
    _unix: UnixListener,
    _tcp: TcpListener,
}

fn hold(name: &str) -> Result<HeldSockets, Finding> {
    let unix = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    let tcp = TcpListener::bind(("127.0.0.1", port(name)))?;
    let mode = libc::IPC_CREAT | 0o666;
    call!(libc::SYS_shmget, key(name), 4096, mode).map_err(Finding::Denied)?;
    call!(libc::SYS_semget, key(name), 1, mode).map_err(Finding::Denied)?;
    call!(libc::SYS_msgget, key(name), mode).map_err(Finding::Denied)?;
    std::fs::write(format!("/dev/shm/{name}"), "x")?;
    std::fs::write(format!("/tmp/{name}"), "x")?;
    Ok(HeldSockets { _unix: unix, _tcp: tcp })
}

/// The kinds of object by which `name` was found.
fn found(name: &str) -> Vec<&'static str> {
    let listed = |file: &str, text: &str| {
        std::fs::read_to_string(format!("/proc/self/net/{file}")).is_ok_and(|table| table.contains(text))
    };
    let address = SocketAddr::from_abstract_name(name);
    let is_taken = address.is_ok_and(|address| {
        UnixListener::bind_addr(&address).is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
    });
    let loopback = (std::net::Ipv4Addr::LOCALHOST, port(name)).into();
    let mut kinds = vec![
        ("/proc/net/unix", listed("unix", name)),
        ("/proc/net/tcp", listed("tcp", &format!("0100007F:{:04X}", port(name)))),
        ("an abstract name", is_taken),
        ("a TCP port", TcpStream::connect_timeout(&loopback, Duration::from_secs(2)).is_ok()),
        ("a System V segment", call!(libc::SYS_shmget, key(name), 0, 0).is_ok()),
        ("a System V semaphore", call!(libc::SYS_semget, key(name), 0, 0).is_ok()),
        ("a System V queue", call!(libc::SYS_msgget, key(name), 0).is_ok()),
        ("a POSIX segment", std::path::Path::new(&format!("/dev/shm/{name}")).exists()),
        ("a file in /tmp", std::path::Path::new(&format!("/tmp/{name}")).exists()),
    ];
    kinds.retain(|(_, is_found)| *is_found);
    kinds.into_iter().map(|(kind, _)| kind).collect()
}

/// G2: `meeting hold|find|both NAME`.
pub(crate) fn meeting(arguments: &PayloadArguments) -> Finding {
    let (part, name) = (arguments.text(0, "find"), arguments.text(1, "hostile-meeting"));
    let held = match part.as_str() {
        "find" => None,
        _ => match hold(&name) {
            Ok(held) => Some(held),
            Err(finding) => return finding,
        },
    };
    if part == "hold" {
        // What a test sees from outside.
        let named = call!(libc::SYS_prctl, libc::PR_SET_NAME, c"held".as_ptr());
        if let Err(errno) = named {
            return Finding::Denied(errno);
        }
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let kinds = found(&name);
    drop(held);
    if kinds.is_empty() { Finding::Denied(libc::ENOENT) } else { Finding::Succeeded(kinds.join(", ")) }
}
