//! The engine's end of an interpreter's channel.
//!
//! Every process of the context may have a descriptor of the other end: a fork of the interpreter
//! has all that the interpreter has. So a packet counts only if the kernel says that the
//! interpreter's own process sent it. What the nonce of an execution adds is that a packet about an
//! earlier one, or of a process that had the interpreter's number before, does not count either.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use sandtimer_os::{process, zygote as os};

use crate::supervise::proc_files::number_of;

#[derive(Debug, Clone)]
pub(super) struct Channel {
    pub socket: Arc<OwnedFd>,
    /// The process whose packets count, and its number in the engine's pid namespace.
    pub interpreter: Arc<OwnedFd>,
    number: Option<u32>,
}

impl Channel {
    /// The channel's senders are named: [`os::name_senders`]. `number` is the interpreter's in the
    /// engine's pid namespace.
    pub fn new(socket: OwnedFd, interpreter: OwnedFd, number: Option<u32>) -> Self {
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
    /// As [`os::whole_packet_from`]; `InvalidData` for an empty packet, and for one that another
    /// process sent.
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

    /// Whether the interpreter is alive. If it is, everything with its number that was received
    /// before was its own.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // the interpreters here are processes that the test starts

    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, PidfdFlags, getuid, pidfd_open};
    use sandtimer_os::socket;

    use super::*;

    /// Sends a packet from a process with the PID that is given, or from its own where that is 0,
    /// and waits for the end of its stdin.
    const SENDS: &str = r"
import ctypes, os, signal, struct, sys, time
pid, channel = int(sys.argv[1]), 1
if pid == 0:
    os.write(channel, b'packet')
    sys.stdin.read()
    sys.exit()
libc = ctypes.PyDLL(None, use_errno=True)
pids = (ctypes.c_int * 1)(pid)
arguments = struct.pack('11Q', 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(pids), 1, 0)
end = time.monotonic() + 20
while True:
    child = libc.syscall(435, arguments, len(arguments))
    if child >= 0 or ctypes.get_errno() != 17 or time.monotonic() > end: break
    time.sleep(0.01)
if child == 0:
    os.write(channel, b'packet')
    os._exit(0)
if child < 0: sys.exit('clone3: %d' % ctypes.get_errno())
os.waitpid(child, 0)
";

    fn sender(pid: u32, channel: OwnedFd) -> Child {
        let mut command = Command::new("python3");
        command.args(["-c", SENDS, &pid.to_string()]).stdin(Stdio::piped()).stdout(channel);
        command.spawn().expect("python3")
    }

    /// The engine's end of a channel to a process, and that process's end.
    fn channel() -> (OwnedFd, OwnedFd) {
        let (ours, theirs) = socket::pair().expect("a socket");
        os::name_senders(ours.as_fd()).expect("senders are named");
        (ours, theirs)
    }

    fn pidfd(process: &Child) -> OwnedFd {
        let pid = Pid::from_raw(process.id().try_into().expect("a PID")).expect("a PID");
        pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd")
    }

    #[test]
    fn packet_of_living_interpreter_counts() {
        let (ours, theirs) = channel();
        let mut interpreter = sender(0, theirs);
        let channel = Channel::new(ours, pidfd(&interpreter), Some(interpreter.id()));
        assert!(process::wait_readable(channel.as_fd(), 20_000));
        assert_eq!(channel.receive().expect("a packet"), b"packet");
        assert!(channel.is_alive());
        drop(interpreter.stdin.take());
        interpreter.wait().expect("its end");
    }

    #[test]
    fn packet_of_interpreter_that_has_ended_counts() {
        let (ours, theirs) = channel();
        let mut interpreter = sender(0, theirs);
        let (pidfd, number) = (pidfd(&interpreter), interpreter.id());
        drop(interpreter.stdin.take());
        interpreter.wait().expect("its end");
        let channel = Channel::new(ours, pidfd, Some(number));
        assert_eq!(channel.receive().expect("a packet"), b"packet");
        assert!(!channel.is_alive());
    }

    /// With the same PID the packet is received; that it is not the interpreter's shows in the
    /// interpreter's pidfd.
    #[test]
    fn packet_of_reused_pid_is_of_no_living_interpreter() {
        // Only root chooses the PID of a process.
        if !getuid().is_root() {
            return;
        }
        let (ours, theirs) = channel();
        let mut interpreter = Command::new("sleep").arg("60").spawn().expect("sleep");
        let channel = Channel::new(ours, pidfd(&interpreter), Some(interpreter.id()));
        assert!(channel.is_alive());
        interpreter.kill().expect("killed");
        interpreter.wait().expect("its end");
        let taker = sender(interpreter.id(), theirs).wait_with_output().expect("its end");
        assert!(taker.status.success(), "{taker:?}");
        assert_eq!(channel.receive().expect("a packet"), b"packet", "the PID is the same");
        assert!(!channel.is_alive());
    }

    #[test]
    fn packet_of_another_pid_is_dropped() {
        let (ours, theirs) = channel();
        let mut interpreter = Command::new("sleep").arg("60").spawn().expect("sleep");
        let channel = Channel::new(ours, pidfd(&interpreter), Some(interpreter.id()));
        let mut other = sender(0, theirs);
        assert!(process::wait_readable(channel.as_fd(), 20_000));
        assert_eq!(channel.receive().expect_err("dropped").kind(), io::ErrorKind::InvalidData);
        for process in [&mut interpreter, &mut other] {
            process.kill().expect("killed");
            process.wait().expect("its end");
        }
    }
}
