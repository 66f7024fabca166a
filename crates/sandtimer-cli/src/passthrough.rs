//! Moves what a run writes to the caller's descriptors, one thread for each.
//!
//! A thread here may be stuck for ever in a write that no process reads, so it is never joined: its
//! owner checks its progress, and leaves when there is none. Bytes are moved by splice(2) where the
//! descriptors allow it. Those of stderr are copied: their end is inspected for remarks on the run.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fstat};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};
use rustix::stdio::{stderr, stdout};
use sandtimer::Run;
use sandtimer_os::process::is_same_open_file;

use crate::waker::EventWaker;

/// How much a pipe is made to hold, and how much one splice moves at most.
const PIPE_BYTES: usize = 1 << 20;
/// The buffer where splice cannot be used.
const BUFFER_BYTES: usize = 128 << 10;

/// One of the caller's output descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    Stdout,
    Stderr,
}

impl Sink {
    fn descriptor(self) -> BorrowedFd<'static> {
        match self {
            Sink::Stdout => stdout(),
            Sink::Stderr => stderr(),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Sink::Stdout => "stdout",
            Sink::Stderr => "stderr",
        }
    }
}

/// Whether stdout and stderr of the caller are one: what is written to both keeps its order only if
/// it comes by one pipe.
pub(crate) fn is_same_sink() -> bool {
    let (Ok(one), Ok(other)) = (fstat(stdout()), fstat(stderr())) else { return false };
    if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) {
        return false;
    }
    if is_same_open_file(stdout(), stderr()) == Some(true) {
        return true;
    }
    // Two that are opened by themselves are written to at two places, unless there is only the end.
    let appends = |fd| fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    FileType::from_raw_mode(one.st_mode) != FileType::RegularFile || (appends(stdout()) && appends(stderr()))
}

/// What is written to a sink.
#[derive(Debug)]
pub(crate) enum Flow {
    /// What a run writes, up to `limit` bytes; of a watched stream the end is detected.
    Stream { from: OwnedFd, limit: Option<u64>, is_watched: bool },
    /// A text that is there already.
    Message(String),
}

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const BROKEN: u8 = 2;
const FAILED: u8 = 3;

/// How far a pump is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpState {
    Running,
    /// Everything was delivered.
    Delivered,
    /// The reader is gone.
    Broken,
    /// The system refused a write.
    Failed(Errno),
}

/// What a pump's thread reports to its owner.
#[derive(Debug, Default)]
struct PumpProgress {
    state: AtomicU8,
    errno: AtomicI32,
    delivered: AtomicU64,
    dropped: AtomicU64,
    mid_line: AtomicBool,
    /// The end of what was copied.
    copied: Mutex<Vec<u8>>,
}

impl PumpProgress {
    fn copied(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        // Bytes to be searched; whole whatever happened.
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the end of what was copied.
    fn keep(&self, bytes: &[u8]) {
        let mut copied = self.copied();
        copied.extend_from_slice(&bytes[bytes.len().saturating_sub(Run::REMARKED_OUTPUT)..]);
        let surplus = copied.len().saturating_sub(Run::REMARKED_OUTPUT);
        copied.drain(..surplus);
    }
}

/// One direction: from a run to the caller.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) sink: Sink,
    shared: Arc<PumpProgress>,
}

/// What every pump needs of its owner.
#[derive(Debug, Clone)]
pub(crate) struct PumpOwner {
    /// Notified when a pump has ended or passed its limit.
    pub(crate) wake: EventWaker,
    /// Notified, and never drained, when the run is dead: what is in the pipes then is all there
    /// will be.
    pub(crate) dead: EventWaker,
    /// For its stall limit. Weak: a stuck thread must not keep the engine from cleaning up.
    pub(crate) run: Weak<Run>,
}

impl Pump {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(sink: Sink, flow: Flow, owner: &PumpOwner) -> io::Result<Self> {
        let shared = Arc::new(PumpProgress::default());
        let is_watched = matches!(flow, Flow::Stream { is_watched: true, .. });
        let copy = is_watched.then(|| vec![0; BUFFER_BYTES].into_boxed_slice());
        let worker = Worker { sink: sink.descriptor(), owner: owner.clone(), shared: shared.clone(), copy };
        std::thread::Builder::new().name(format!("st-{}", sink.name())).stack_size(64 << 10).spawn(
            move || {
                worker.serve(flow);
            },
        )?;
        Ok(Pump { sink, shared })
    }

    pub(crate) fn state(&self) -> PumpState {
        match self.shared.state.load(Ordering::Acquire) {
            RUNNING => PumpState::Running,
            DONE => PumpState::Delivered,
            BROKEN => PumpState::Broken,
            _ => PumpState::Failed(Errno::from_raw_os_error(self.shared.errno.load(Ordering::Relaxed))),
        }
    }

    /// Bytes the sink has taken.
    pub(crate) fn delivered(&self) -> u64 {
        self.shared.delivered.load(Ordering::Relaxed)
    }

    /// The end of what it has copied, which is what there was of a stream that is watched.
    pub(crate) fn copied(&self) -> Vec<u8> {
        self.shared.copied().clone()
    }

    /// Bytes past the output limit.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Whether the last byte on a terminal was not the end of a line.
    pub(crate) fn is_mid_line(&self) -> bool {
        self.shared.mid_line.load(Ordering::Relaxed)
    }
}

/// Why a pump stops before the end of its flow.
enum PumpStop {
    Broken,
    Failed(Errno),
}

impl From<Errno> for PumpStop {
    fn from(errno: Errno) -> Self {
        if errno == Errno::PIPE { PumpStop::Broken } else { PumpStop::Failed(errno) }
    }
}

struct Worker {
    sink: BorrowedFd<'static>,
    owner: PumpOwner,
    shared: Arc<PumpProgress>,
    /// Present where splice is not used, or has turned out not to work.
    copy: Option<Box<[u8]>>,
}

impl Worker {
    fn serve(mut self, flow: Flow) {
        let result = match flow {
            Flow::Message(text) => self.write(text.as_bytes()),
            Flow::Stream { from, limit, .. } => self.stream(&from, limit),
        };
        let state = match result {
            Ok(()) => DONE,
            Err(PumpStop::Broken) => BROKEN,
            Err(PumpStop::Failed(errno)) => {
                self.shared.errno.store(errno.raw_os_error(), Ordering::Relaxed);
                FAILED
            }
        };
        self.shared.state.store(state, Ordering::Release);
        self.owner.wake.notify();
    }

    fn stream(&mut self, from: &OwnedFd, limit: Option<u64>) -> Result<(), PumpStop> {
        // Refused where the user's pipes together are too large; it is only for speed.
        let _ = fcntl_setpipe_size(from, PIPE_BYTES);
        while wait_for_input(from.as_fd(), &self.owner.dead) {
            let delivered = self.shared.delivered.load(Ordering::Relaxed);
            let room = limit.map_or(u64::MAX, |limit| limit.saturating_sub(delivered));
            if room == 0 {
                return self.discard(from);
            }
            let most = usize::try_from(room).unwrap_or(PIPE_BYTES).min(PIPE_BYTES);
            if self.forward(from, most)? == 0 {
                break;
            }
            if let Some(run) = self.owner.run.upgrade() {
                run.note_output();
            }
        }
        Ok(())
    }

    /// Moves what there is, at most `most` bytes; 0 at the end.
    fn forward(&mut self, from: &OwnedFd, most: usize) -> Result<usize, PumpStop> {
        while self.copy.is_none() {
            match splice(from, None, self.sink, None, most, SpliceFlags::MOVE) {
                Ok(count) => {
                    self.shared.delivered.fetch_add(count as u64, Ordering::Relaxed);
                    return Ok(count);
                }
                // A terminal, a file opened for appending: splice(2).
                Err(Errno::INVAL | Errno::NOSYS) => {
                    self.copy = Some(vec![0; BUFFER_BYTES].into_boxed_slice())
                }
                Err(Errno::AGAIN) => wait_for_room(self.sink),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let Some(mut buffer) = self.copy.take() else { return Ok(0) };
        let count = read_some(from.as_fd(), &mut buffer[..most.min(BUFFER_BYTES)]);
        self.shared.keep(&buffer[..count]);
        let result = self.write(&buffer[..count]);
        self.copy = Some(buffer);
        result.map(|()| count)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), PumpStop> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(self.sink, &rest[..rest.len().min(BUFFER_BYTES)]) {
                Ok(count) => {
                    rest = &rest[count..];
                    self.shared.delivered.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(Errno::AGAIN) => wait_for_room(self.sink),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        if let Some(last) = bytes.last() {
            self.shared
                .mid_line
                .store(*last != b'\n' && rustix::termios::isatty(self.sink), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads on past the limit, so that the run does not block on its output.
    fn discard(&mut self, from: &OwnedFd) -> Result<(), PumpStop> {
        let null = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut spliced = true;
        while wait_for_input(from.as_fd(), &self.owner.dead) {
            let count = match spliced {
                true => match splice(from, None, &null, None, PIPE_BYTES, SpliceFlags::MOVE) {
                    Ok(count) => count,
                    Err(Errno::INTR) => continue,
                    Err(_) => {
                        spliced = false;
                        continue;
                    }
                },
                false => read_some(from.as_fd(), &mut buffer),
            };
            if count == 0 {
                break;
            }
            if self.shared.dropped.fetch_add(count as u64, Ordering::Relaxed) == 0 {
                self.owner.wake.notify();
            }
            if let Some(run) = self.owner.run.upgrade() {
                run.note_output();
            }
        }
        Ok(())
    }
}

/// Waits until there is something to read, or the end of it; false when the run is dead and nothing
/// is left.
fn wait_for_input(from: BorrowedFd<'_>, dead: &EventWaker) -> bool {
    loop {
        let mut watched = [PollFd::new(&from, PollFlags::IN), PollFd::new(dead, PollFlags::IN)];
        match poll(&mut watched, None) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(_) if watched[0].revents().contains(PollFlags::IN) => return true,
            Ok(_) if watched[1].revents().is_empty() => return false,
            // Polled again after the notification: what was written before the death is there by
            // now.
            Ok(_) => {
                return poll(&mut watched[..1], Some(&Timespec::default())) == Ok(1)
                    && watched[0].revents().contains(PollFlags::IN);
            }
        }
    }
}

fn wait_for_room(sink: BorrowedFd<'_>) {
    // A failure to wait shows again at the next write.
    let _ = poll(&mut [PollFd::new(&sink, PollFlags::OUT)], None);
}

/// Reads once; 0 at the end, and at an error, which for a pseudo-terminal is what the end looks
/// like (EIO).
pub(crate) fn read_some(from: BorrowedFd<'_>, buffer: &mut [u8]) -> usize {
    loop {
        match rustix::io::read(from, &mut *buffer) {
            Ok(count) => return count,
            Err(Errno::INTR) => {}
            Err(_) => return 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_the_death_is_still_read() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let dead = EventWaker::new().expect("a bell");
        rustix::io::write(&write, b"last words").expect("room");
        dead.notify();
        assert!(wait_for_input(read.as_fd(), &dead));
        assert_eq!(read_some(read.as_fd(), &mut [0; 64]), 10);
        // The write end is still open, as in a process that cannot die: there is no end to wait
        // for.
        assert!(!wait_for_input(read.as_fd(), &dead));
    }

    #[test]
    fn the_end_of_a_pipe_ends_the_wait() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let dead = EventWaker::new().expect("a bell");
        drop(write);
        let more = wait_for_input(read.as_fd(), &dead);
        assert!(!more || read_some(read.as_fd(), &mut [0; 64]) == 0);
    }
}
