//! The parts of an answer that are too long for its packet.
//!
//! ```text
//! unknown ─▶ memory      copied out of the job's memory
//!      └───▶ streamed    the kernel does not let this process read it: the job is asked, once, to send them all
//! ```
//! Which of them is settled by the first part that is not empty. The job may send anything at all:
//! a packet counts only if it is as long as the next one must be, so what is read is bounded by
//! what the reader has room for. A job that sends nothing is ended by its limits, which shuts its
//! channel down.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use sandtimer_os::wire::channel;
use sandtimer_os::{process, socket, zygote as os};

use crate::supervise::run::Job;

/// Bytes of a large part that are copied before the job is checked again.
const READ_AT_A_TIME: usize = 16 << 20;
/// Bytes of each packet of a part but its last; the same in the children's program.
pub(super) const SENT_AT_A_TIME: usize = 48 * 1024;

/// How the parts of a call's answer come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Parts {
    #[default]
    Unknown,
    Memory,
    Streamed,
}

impl Parts {
    /// Reads the next part. `is_cancelled` is asked now and then, and whenever a signal interrupts
    /// the wait.
    pub fn read(
        &mut self,
        job: &Job,
        address: u64,
        buffer: &mut [u8],
        is_cancelled: &mut dyn FnMut() -> bool,
    ) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        if *self != Parts::Streamed {
            match (copy(job, address, buffer), *self) {
                (Err(error), Parts::Unknown) if is_permission_denied(&error) => {
                    socket::send(&*job.channel, &[channel::SEND], &[], false)?;
                    *self = Parts::Streamed;
                }
                // Asked now it would send what was read already as well.
                (Err(error), _) if is_permission_denied(&error) => return Err(Errno::PROTO.into()),
                (result, _) => {
                    *self = Parts::Memory;
                    return result;
                }
            }
        }
        receive(job.channel.as_fd(), buffer, is_cancelled)
    }
}

/// Whether the kernel does not let this process read that one's memory: it lacks CAP_SYS_PTRACE, or
/// a security module, a filter or the kernel's configuration forbids it.
fn is_permission_denied(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS))
}

fn copy(job: &Job, mut address: u64, buffer: &mut [u8]) -> io::Result<()> {
    // A limit that fires during the copy is noticed between two of these chunks.
    for chunk in buffer.chunks_mut(READ_AT_A_TIME) {
        process::read_memory(job.pid, address, chunk)?;
        // Were it dead, its number could be another's by now.
        if process::is_dead(job.pidfd.as_fd()) {
            return Err(ErrorKind::NotFound.into());
        }
        address = address.saturating_add(chunk.len() as u64);
    }
    Ok(())
}

/// What a job sends, in packets of a length that is agreed on.
pub(super) fn receive(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
    is_cancelled: &mut dyn FnMut() -> bool,
) -> io::Result<()> {
    for chunk in buffer.chunks_mut(SENT_AT_A_TIME) {
        loop {
            match os::wait_for_packet(from).and_then(|()| os::packet(from, chunk, false)) {
                Ok(length) if length == chunk.len() => break,
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Err(Errno::PROTO.into()),
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
                        && !is_cancelled() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
