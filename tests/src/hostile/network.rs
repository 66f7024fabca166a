//! Attacks H, G1 and E13: payloads that look for somebody to talk to.

use std::io::Write;
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::report::Finding;

/// How long a connection may take: unreachable must not look like slow.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

fn address(arguments: &PayloadArguments) -> Result<std::net::SocketAddr, Finding> {
    let (host, port) = (arguments.text(0, "127.0.0.1"), arguments.number(1, 0) as u16);
    let found = (host.as_str(), port).to_socket_addrs()?.next();
    found.ok_or(Finding::Denied(libc::EADDRNOTAVAIL))
}

fn probing(result: Result<String, Finding>) -> Finding {
    result.map_or_else(|refused| refused, Finding::Succeeded)
}

/// Errors of `connect` that Rust reports without a number.
fn refused(error: std::io::Error) -> Finding {
    match error.kind() {
        std::io::ErrorKind::TimedOut => Finding::Denied(libc::ETIMEDOUT),
        _ => error.into(),
    }
}

/// F8, H2: `socket FAMILY TYPE PROTOCOL`, by numbers.
pub(crate) fn socket(arguments: &PayloadArguments) -> Finding {
    let [family, kind, protocol] = [0, 1, 2].map(|index| arguments.number(index, 0));
    Finding::of(call!(libc::SYS_socket, family, kind, protocol))
}

/// F8: urgent data on a Unix socket, whose code has had holes: `urgent-data`.
pub(crate) fn urgent_data(_: &PayloadArguments) -> Finding {
    let mut pair = [0i32; 2];
    let made = call!(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr());
    if let Err(errno) = made {
        return Finding::Denied(errno);
    }
    Finding::of(call!(libc::SYS_sendto, pair[0], c"x".as_ptr(), 1, libc::MSG_OOB, 0, 0))
}

/// H1: a connection and one byte: `connect HOST PORT`.
pub(crate) fn connect(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let mut stream =
            TcpStream::connect_timeout(&address(arguments)?, CONNECT_TIMEOUT).map_err(refused)?;
        stream.write_all(b"x")?;
        Ok("connected".into())
    })())
}

/// H1, H2: one datagram: `udp HOST PORT`.
pub(crate) fn udp(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let target = address(arguments)?;
        let own = if target.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
        UdpSocket::bind(own)?.send_to(b"x", target)?;
        Ok("sent".into())
    })())
}

/// H5: data in the first packet of a connection: `fast-open HOST PORT`.
pub(crate) fn fast_open(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let std::net::SocketAddr::V4(target) = address(arguments)? else {
            return Err(Finding::Untried("IPv4 only".into()));
        };
        let socket = call!(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0).map_err(Finding::Denied)?;
        let to = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: target.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*target.ip()).to_be() },
            sin_zero: [0; 8],
        };
        let to_address = std::ptr::from_ref(&to);
        let length = size_of_val(&to);
        let sent = call!(libc::SYS_sendto, socket, c"x".as_ptr(), 1, libc::MSG_FASTOPEN, to_address, length);
        sent.map(|_| "sent".into()).map_err(Finding::Denied)
    })())
}

/// H3: listens where others could connect: `listen HOST PORT`.
pub(crate) fn listen(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let listener = TcpListener::bind(address(arguments)?)?;
        Ok(format!("listening on {}", listener.local_addr()?))
    })())
}

/// H4: a socket in the file system: `unix-path PATH`.
pub(crate) fn unix_path(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        UnixStream::connect(arguments.path(0)?)?.write_all(b"x")?;
        Ok("connected".into())
    })())
}

/// E13: gives a descriptor of its own to whoever listens there: `send-descriptor PATH`.
pub(crate) fn send_descriptor(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let stream = UnixStream::connect(arguments.path(0)?)?;
        let given = std::fs::File::open("/dev/null")?;
        // One control message of one descriptor, as cmsg(3) lays it out.
        let message = [
            (16u64 + 4),
            (libc::SOL_SOCKET as u64) | (libc::SCM_RIGHTS as u64) << 32,
            given.as_raw_fd() as u64,
        ];
        let byte = libc::iovec { iov_base: c"x".as_ptr().cast_mut().cast(), iov_len: 1 };
        // SAFETY: all-zero is a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (std::ptr::from_ref(&byte).cast_mut(), 1);
        header.msg_control = std::ptr::from_ref(&message).cast_mut().cast();
        header.msg_controllen = size_of_val(&message);
        let sent = call!(libc::SYS_sendmsg, stream.as_raw_fd(), std::ptr::from_ref(&header), 0);
        sent.map(|_| "sent a descriptor".into()).map_err(Finding::Denied)
    })())
}

fn abstract_name(arguments: &PayloadArguments) -> Result<SocketAddr, Finding> {
    Ok(SocketAddr::from_abstract_name(arguments.text(0, "hostile"))?)
}

/// G1: a socket with no file: `unix-abstract NAME`.
pub(crate) fn unix_abstract(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        UnixStream::connect_addr(&abstract_name(arguments)?)?.write_all(b"x")?;
        Ok("connected".into())
    })())
}

/// G1: waits for another run to connect: `unix-abstract-listen NAME`.
pub(crate) fn unix_abstract_listen(arguments: &PayloadArguments) -> Finding {
    probing((|| {
        let listener = UnixListener::bind_addr(&abstract_name(arguments)?)?;
        crate::report::line("{\"listening\":true}");
        listener.accept()?;
        Ok("accepted".into())
    })())
}
