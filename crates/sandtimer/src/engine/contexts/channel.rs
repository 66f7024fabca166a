//! The engine's end of an interpreter's channel.
//!
//! Every process of the context may have a descriptor of the other end: a fork of the interpreter has all that the interpreter has.
//! So a packet counts only if the kernel says that the interpreter's own process sent it. What the nonce of an execution adds is that
//! a packet about an earlier one, or of a process that had the interpreter's number before, does not count either.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use sandtimer_os::{process, zygote as os};

use crate::supervise::look::number_of;

#[derive(Debug, Clone)]
pub(super) struct Channel {
    pub socket: Arc<OwnedFd>,
    /// The process whose packets count, and its number in the engine's pid namespace.
    pub interpreter: Arc<OwnedFd>,
    number: Option<u32>,
}

impl Channel {
    /// The channel's senders are named: [`os::name_senders`].
    pub fn new(socket: OwnedFd, interpreter: OwnedFd) -> Self {
        let number = number_of(interpreter.as_fd());
        Channel { socket: Arc::new(socket), interpreter: Arc::new(interpreter), number }
    }

    /// Another process is the interpreter from now on.
    pub fn is_now_of(&mut self, interpreter: OwnedFd) {
        self.number = number_of(interpreter.as_fd());
        self.interpreter = Arc::new(interpreter);
    }

    pub fn number(&self) -> Option<u32> {
        self.number
    }

    /// The interpreter's next packet, without waiting for one; empty where the other end is closed.
    ///
    /// # Errors
    /// As [`os::whole_packet_from`]; `InvalidData` for an empty packet, and for one that another process sent.
    pub fn receive(&self) -> io::Result<Vec<u8>> {
        let (packet, sender) = os::whole_packet_from(self.socket.as_fd())?;
        match sender {
            Some(sender) if packet.is_empty() || !self.is_own(sender) => {
                Err(io::ErrorKind::InvalidData.into())
            }
            _ => Ok(packet),
        }
    }

    /// As [`Channel::receive`], into a buffer; the length is the packet's.
    pub fn receive_to(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match os::packet_from(self.socket.as_fd(), buffer)? {
            (length, Some(sender)) if length == 0 || !self.is_own(sender) => {
                Err(io::ErrorKind::InvalidData.into())
            }
            (length, _) => Ok(length),
        }
    }

    fn is_own(&self, sender: i32) -> bool {
        self.number.is_some() && u32::try_from(sender).ok() == self.number
    }

    /// Whether the interpreter is alive. If it is, everything with its number that was received before was its own.
    pub fn is_alive(&self) -> bool {
        !process::is_dead(self.interpreter.as_fd())
    }

    /// Whether nothing is to be received, and the other end is not closed.
    pub fn is_empty(&self) -> bool {
        rustix::io::ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes == 0)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
