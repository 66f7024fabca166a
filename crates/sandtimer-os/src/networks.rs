//! The engine's side of the process that makes network namespaces: commands are sent without
//! waiting, namespaces come when they are made.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::process;
use crate::socket::{self, bytes_of, from_bytes};
use crate::wire::{NetworkOrder, NetworkReply, network_object, network_order};

/// How long an object of a namespace may take to come.
const OPEN_TIMEOUT_MILLISECONDS: u64 = 2_000;

/// The process, which ends with this.
#[derive(Debug)]
pub struct Maker(OwnedFd);

/// What can be opened in a network namespace, for a process that is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum NetworkObject {
    /// A socket that listens at the port of the proxy, on 127.0.0.1 or ::1.
    ProxyV4 = network_object::PROXY_V4,
    ProxyV6 = network_object::PROXY_V6,
    /// A datagram socket at port 53 of 127.0.0.1.
    NamesDatagram = network_object::NAMES_DATAGRAM,
    /// A socket that listens there.
    NamesStream = network_object::NAMES_STREAM,
    /// A TCP socket that is not connected.
    ClientV4 = network_object::CLIENT_V4,
    ClientV6 = network_object::CLIENT_V6,
    /// The table of TCP sockets, as a file.
    TableV4 = network_object::TABLE_V4,
    TableV6 = network_object::TABLE_V6,
}

/// A namespace in which nothing has been left.
#[derive(Debug)]
pub struct Namespace {
    pub fd: OwnedFd,
    /// errno of bringing its loopback up, or 0.
    pub loopback: i32,
}

impl Maker {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Maker(socket)
    }

    /// Asks for one namespace, now.
    pub fn make(&self) -> io::Result<()> {
        self.send_command(network_order::MAKE, 1, &[])
    }

    /// Asks for this many, made when nothing else is asked for.
    pub fn preallocate(&self, count: u32) -> io::Result<()> {
        self.send_command(network_order::MAKE_SPARE, count, &[])
    }

    /// Asks for a namespace back, if nothing was left in it. Its processes are dead.
    pub fn check(&self, namespace: BorrowedFd<'_>) -> io::Result<()> {
        self.send_command(network_order::CHECK, 1, &[namespace])
    }

    /// Opens something in a namespace. Sockets do not block. Waits at most two seconds.
    ///
    /// # Errors
    /// BrokenPipe or ConnectionReset if the process is gone, WouldBlock if it has too many
    /// commands, TimedOut, or the kernel's error.
    pub fn open(&self, namespace: BorrowedFd<'_>, object: NetworkObject) -> io::Result<OwnedFd> {
        let (answer, theirs) = socket::pair()?;
        self.send_command(network_order::OPEN, object as u32, &[namespace, theirs.as_fd()])?;
        drop(theirs);
        if !process::wait_readable(answer.as_fd(), OPEN_TIMEOUT_MILLISECONDS) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut bytes = [0u8; size_of::<NetworkReply>()];
        let (length, fd) = socket::receive(&answer, &mut bytes, false)?;
        let reply: NetworkReply = from_bytes(&bytes[..length]).ok_or(io::ErrorKind::BrokenPipe)?;
        match (reply.error, fd) {
            (0, Some(fd)) => Ok(fd),
            (0, None) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn send_command(&self, kind: u32, count: u32, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        socket::send(&self.0, bytes_of(&NetworkOrder { kind, count }), fds, false)
    }

    /// Waits at most this long until there is an answer.
    pub fn wait(&self, milliseconds: u64) {
        process::wait_readable(self.0.as_fd(), milliseconds);
    }

    /// The next answer; `None`: there is none yet.
    ///
    /// # Errors
    /// BrokenPipe when the process is gone; else why one was not made, or ENOTEMPTY for one that
    /// was left unclean.
    pub fn answer(&self) -> io::Result<Option<Namespace>> {
        let mut bytes = [0u8; size_of::<NetworkReply>()];
        let (length, fd) = match socket::receive(&self.0, &mut bytes, false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            received => received?,
        };
        let reply: NetworkReply = from_bytes(&bytes[..length]).ok_or(io::ErrorKind::BrokenPipe)?;
        match (reply.error, fd) {
            (0, Some(fd)) => Ok(Some(Namespace { fd, loopback: reply.loopback })),
            (0, None) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }
}
