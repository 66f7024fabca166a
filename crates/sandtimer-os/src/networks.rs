//! The engine's side of the process that makes network namespaces: orders go without waiting, namespaces come when they are made.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::process;
use crate::socket::{self, bytes_of, from_bytes};
use crate::wire::{NetworkOrder, NetworkReply, network_order};

/// The process, which ends with this.
#[derive(Debug)]
pub struct Maker(OwnedFd);

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

    fn send_command(&self, kind: u32, count: u32, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        socket::send(&self.0, bytes_of(&NetworkOrder { kind, count }), fds, false)
    }

    /// Waits at most so long until there is an answer.
    pub fn wait(&self, milliseconds: u64) {
        process::wait_readable(self.0.as_fd(), milliseconds);
    }

    /// The next answer; `None`: there is none yet.
    ///
    /// # Errors
    /// BrokenPipe when the process is gone; else why one was not made, or ENOTEMPTY for one that was left unclean.
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
