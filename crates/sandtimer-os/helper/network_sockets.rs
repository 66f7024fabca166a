//! Sockets that are made in a network namespace for a process that is not in it: a socket belongs
//! to the namespace it was made in.
//!
//! What listens is bound without SO_REUSEPORT, before any run is in the namespace, so that no run
//! can have the same port.

use crate::sys::{self, Fd, call, nr};
use crate::wire::{PROXY_PORT, network_object};

const CLONE_NEWNET: usize = 0x4000_0000;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const SOCK_STREAM: usize = 1;
const SOCK_DGRAM: usize = 2;
const SOCK_NONBLOCK: usize = 0o4000;
const BACKLOG: usize = 128;
const NAMES_PORT: u16 = 53;

/// Opens an object of [`network_object`] in a namespace, in which this process is afterwards. Fails
/// with an errno.
pub fn open(namespace: Fd, object: u32) -> Result<Fd, isize> {
    let entered = call!(nr::SETNS, namespace, CLONE_NEWNET);
    if entered < 0 {
        return Err(entered);
    }
    match object {
        network_object::PROXY_V4 => listening(AF_INET, PROXY_PORT),
        network_object::PROXY_V6 => listening(AF_INET6, PROXY_PORT),
        network_object::NAMES_DATAGRAM => bound(AF_INET, SOCK_DGRAM, NAMES_PORT),
        network_object::NAMES_STREAM => listening(AF_INET, NAMES_PORT),
        network_object::CLIENT_V4 => socket(AF_INET, SOCK_STREAM),
        network_object::CLIENT_V6 => socket(AF_INET6, SOCK_STREAM),
        network_object::TABLE_V4 => table(c"/proc/self/net/tcp"),
        network_object::TABLE_V6 => table(c"/proc/self/net/tcp6"),
        _ => Err(sys::EINVAL),
    }
}

fn table(path: &core::ffi::CStr) -> Result<Fd, isize> {
    result(sys::open_at(sys::AT_FDCWD, path.as_ptr().cast(), sys::O_RDONLY | sys::O_CLOEXEC, 0))
}

fn socket(family: u16, kind: usize) -> Result<Fd, isize> {
    result(call!(nr::SOCKET, family, kind | sys::O_CLOEXEC | SOCK_NONBLOCK, 0))
}

/// A socket on the loopback address of its family.
fn bound(family: u16, kind: usize, port: u16) -> Result<Fd, isize> {
    let socket = socket(family, kind)?;
    // struct sockaddr_in6 or, its beginning, struct sockaddr_in.
    let mut address = [0u8; 28];
    address[..2].copy_from_slice(&family.to_ne_bytes());
    address[2..4].copy_from_slice(&port.to_be_bytes());
    let length = if family == AF_INET {
        address[4..8].copy_from_slice(&[127, 0, 0, 1]);
        16
    } else {
        address[23] = 1;
        28
    };
    closed_on_error(socket, call!(nr::BIND, socket, address.as_ptr(), length))
}

fn listening(family: u16, port: u16) -> Result<Fd, isize> {
    let socket = bound(family, SOCK_STREAM, port)?;
    closed_on_error(socket, call!(nr::LISTEN, socket, BACKLOG))
}

fn closed_on_error(socket: Fd, called: isize) -> Result<Fd, isize> {
    if called < 0 {
        sys::close(socket);
        return Err(called);
    }
    Ok(socket)
}

fn result(opened: isize) -> Result<Fd, isize> {
    if opened < 0 { Err(opened) } else { Ok(opened as Fd) }
}
