//! Messages between the three processes: small packets, each with at most one descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sandtimer_os::socket;

/// Longest packet: a file name, and what goes with it.
const MAX_BYTES: usize = 512;

/// A packet: what it is about, three numbers, and bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub kind: u8,
    pub values: [u64; 6],
    pub text: Vec<u8>,
}

/// Kinds of [`Message`].
pub(crate) mod kind {
    /// To the guard: the v2 group that the setup is to be born in.
    pub const CGROUP: u8 = 1;
    /// To the guard: a `tasks` file of a v1 group that the setup enters.
    pub const TASKS: u8 = 2;
    /// To the guard: what takes the place of stdout (1) or stderr (2).
    pub const OUTPUT: u8 = 3;
    /// To the guard: a limit of the command's processes. values: which, how much.
    pub const LIMIT: u8 = 12;
    /// To the guard: start. values: wall, grace (nanoseconds).
    pub const GO: u8 = 4;
    /// From the guard: the setup was started. values: its PID.
    pub const CREATED: u8 = 5;
    /// From the setup: it lives.
    pub const ALIVE: u8 = 6;
    /// From the setup, passed on by the guard: the command is about to be executed. values: when.
    pub const STARTED: u8 = 7;
    /// The same: executing it failed.
    pub const NOT_EXECUTED: u8 = 8;
    /// From the init: the command ended. values: wait status, user and system microseconds, peak
    /// KiB.
    pub const EXITED: u8 = 9;
    /// From the setup: a mount point that was made. values: device, inode, 1 for a directory. text:
    /// its name. With it comes its directory.
    pub const MOUNT_POINT: u8 = 10;
    /// From the setup: the lock of a mount point, held until the guard ends. With it comes the open
    /// file.
    pub const LOCK: u8 = 11;
}

impl Message {
    /// A message without values.
    pub fn of(kind: u8) -> Self {
        Message { kind, ..Message::default() }
    }

    /// A message with numbers.
    pub fn with(kind: u8, given: &[u64]) -> Self {
        let mut values = [0; 6];
        for (to, from) in values.iter_mut().zip(given) {
            *to = *from;
        }
        Message { kind, values, text: Vec::new() }
    }

    pub fn send(&self, socket: impl AsFd, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut bytes = vec![self.kind];
        for value in self.values {
            bytes.extend_from_slice(&value.to_ne_bytes());
        }
        bytes.extend_from_slice(&self.text);
        match fd {
            Some(fd) => socket::send(socket, &bytes, &[fd], true),
            // A call that the filters of a command rarely refuse.
            None => {
                rustix::io::retry_on_intr(|| rustix::io::write(&socket, &bytes)).map(drop).map_err(Into::into)
            }
        }
    }

    /// The next one; `Ok(None)` once the other end is closed.
    pub fn receive(socket: impl AsFd, wait: bool) -> io::Result<Option<(Self, Option<OwnedFd>)>> {
        let mut bytes = [0; MAX_BYTES];
        let (length, fd) = match socket::receive(socket, &mut bytes, wait) {
            Ok(received) => received,
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CONNRESET.raw_os_error()) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some((kind, rest)) = bytes[..length].split_first() else { return Ok(None) };
        let mut values = [0; 6];
        let (numbers, text) = rest.split_at_checked(size_of_val(&values)).unwrap_or((&[], &[]));
        for (to, from) in values.iter_mut().zip(numbers.chunks_exact(8)) {
            *to = u64::from_ne_bytes(from.try_into().unwrap_or_default());
        }
        Ok(Some((Message { kind: *kind, values, text: text.to_vec() }, fd)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_arrives_with_its_descriptor() {
        let (one, other) = socket::pair().expect("a pair");
        let sent = Message { text: b"name".to_vec(), ..Message::with(kind::MOUNT_POINT, &[1, u64::MAX]) };
        sent.send(&one, Some(one.as_fd())).expect("sent");
        let (received, fd) = Message::receive(&other, true).expect("received").expect("a message");
        assert_eq!(received, sent);
        assert!(fd.is_some());
        drop((one, fd));
        assert!(Message::receive(&other, true).expect("the end").is_none());
    }
}
