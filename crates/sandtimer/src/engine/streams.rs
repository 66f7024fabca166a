//! The standard streams of a run: pipes or a terminal for the jail, and the owner of each engine's
//! end.
//!
//! Captured streams go to the collector, piped ones to the run's owner. Nothing is read or written
//! here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use sandtimer_os::stdout::UnwrittenOutput;

use super::error::Error;
use super::run::Pipes;
use super::terminal::PendingTerminal;
use super::{Inner, Output, Spec, Stdin};
use crate::limits::EffectiveLimits;
use crate::model::LimitKind;
use crate::supervise::deliveries::Attachment;
use crate::supervise::output::{SharedSpool, Spool};
use crate::supervise::run::SharedRun;

/// The engine's end of an output stream, and what becomes of it.
#[derive(Default)]
struct OutputStream {
    read: Option<OwnedFd>,
    spool: Option<SharedSpool>,
}

/// Both ends of a run's three standard streams, until they are handed out.
pub(super) struct RunStreams {
    /// The sandbox's ends.
    inside: Vec<OwnedFd>,
    stdin_write: Option<OwnedFd>,
    stdin_bytes: Option<Vec<u8>>,
    outputs: [OutputStream; 2],
    /// The terminal that is to take the place of stdin and others, and which output is what is
    /// shown on it.
    pending_terminal: Option<(PendingTerminal, usize)>,
    /// Its master, to resize it by; its slave, so that it does not hang up while something of the
    /// run lives.
    terminal: Option<(OwnedFd, OwnedFd)>,
    /// What stdout is written to before it is in its pipe, where the engine has both.
    pub(super) unwritten: Option<Arc<UnwrittenOutput>>,
    /// Both ends of the progress channel, the engine's first.
    reports: Option<(OwnedFd, OwnedFd)>,
    /// Both ends of the notice channel, the engine's first.
    notices: Option<(OwnedFd, OwnedFd)>,
}

impl RunStreams {
    pub(super) fn make(inner: &Inner, spec: &mut Spec, effective: &EffectiveLimits) -> Result<Self, Error> {
        let pipe = || -> Result<(OwnedFd, OwnedFd), Error> {
            pipe_with(PipeFlags::CLOEXEC)
                .map_err(|error| Error::System { doing: "cannot make a pipe", source: error.into() })
        };
        let reports = if spec.progress_channel { Some(pipe()?) } else { None };
        let notices = if spec.has_notices() { Some(pipe()?) } else { None };
        let notices = notices.map(|(read, write)| (write, read));
        for (ours, _) in reports.iter().chain(&notices) {
            set_nonblocking(ours)?;
        }
        reports.iter().for_each(|(_, theirs)| open_to_all(theirs, WRITING));
        notices.iter().for_each(|(_, theirs)| open_to_all(theirs, READING));
        let limit = effective.get(LimitKind::Output).map(|effect| effect.value);
        let terminal = spec.terminal.take();
        let is_terminal = terminal.as_ref().map_or([false; 2], |terminal| terminal.outputs.is());
        let (pending, socket) = terminal.as_ref().map(PendingTerminal::new).transpose()?.unzip();
        let copy = |socket: &OwnedFd| socket.try_clone().map_err(Error::system("cannot copy a descriptor"));
        let (stdin, stdin_write, stdin_bytes) = match (std::mem::take(&mut spec.stdin), &socket) {
            (_, Some(socket)) => (copy(socket)?, None, None),
            (Stdin::Null, None) => (null(OFlags::RDONLY)?, None, None),
            (Stdin::Descriptor(fd), None) => {
                open_to_all(&fd, READING);
                (fd, None, None)
            }
            (Stdin::Piped, None) => {
                let (read, write) = pipe()?;
                open_to_all(&read, READING);
                (read, Some(write), None)
            }
            (Stdin::Bytes(bytes), None) => {
                let (read, write) = pipe()?;
                open_to_all(&read, READING);
                set_nonblocking(&write)?;
                (read, Some(write), Some(bytes))
            }
        };
        let output = |kind: Output, is_terminal: bool| -> Result<(OwnedFd, OutputStream), Error> {
            if let Some(socket) = socket.as_ref().filter(|_| is_terminal) {
                return Ok((copy(socket)?, OutputStream { read: None, spool: spool(inner, kind, limit)? }));
            }
            if kind == Output::Null {
                return Ok((null(OFlags::WRONLY)?, OutputStream::default()));
            }
            let (read, inside) = pipe()?;
            open_to_all(&inside, WRITING);
            let spool = spool(inner, kind, limit)?;
            if spool.is_some() {
                set_nonblocking(&read)?;
            }
            Ok((inside, OutputStream { read: Some(read), spool }))
        };
        let (stdout, captured) = output(spec.stdout, is_terminal[0])?;
        let is_same = spec.stderr == Output::SameAsStdout || is_terminal == [true; 2];
        let (stderr, captured_errors) = match is_same {
            true => (copy(&stdout)?, OutputStream::default()),
            false => output(spec.stderr, is_terminal[1])?,
        };
        Ok(RunStreams {
            inside: vec![stdin, stdout, stderr],
            stdin_write,
            stdin_bytes,
            outputs: [captured, captured_errors],
            pending_terminal: pending.map(|pending| (pending, usize::from(!is_terminal[0]))),
            terminal: None,
            unwritten: None,
            reports,
            notices,
        })
    }

    /// None of the engine's: the run has descriptors of its own.
    pub(super) fn none() -> Self {
        RunStreams {
            inside: Vec::new(),
            stdin_write: None,
            stdin_bytes: None,
            outputs: Default::default(),
            pending_terminal: None,
            terminal: None,
            unwritten: None,
            reports: None,
            notices: None,
        }
    }

    /// Waits for the terminal of a sandbox that was started, if it is to have one.
    pub(super) fn open_terminal(&mut self) -> Result<(), Error> {
        let Some((pending, output)) = self.pending_terminal.take() else { return Ok(()) };
        // With the copies here, the end of a failed jail would not be detected.
        self.inside.clear();
        let Some(ends) = pending.open()? else { return Ok(()) };
        let copy = || ends.master.try_clone().map_err(Error::system("cannot copy the terminal"));
        if self.outputs[output].spool.is_some() {
            set_nonblocking(&ends.master)?;
        }
        self.stdin_write = Some(copy()?);
        self.outputs[output].read = Some(copy()?);
        self.terminal = Some((ends.master, ends.slave));
        Ok(())
    }

    /// The spools of captured output, for readers by cursor.
    pub(super) fn spools(&self) -> [Option<SharedSpool>; 2] {
        [self.outputs[0].spool.clone(), self.outputs[1].spool.clone()]
    }

    pub(super) fn inside(&self) -> [BorrowedFd<'_>; 3] {
        [self.inside[0].as_fd(), self.inside[1].as_fd(), self.inside[2].as_fd()]
    }

    /// Closes the sandbox's ends of the standard streams, which its process has.
    pub(super) fn close_inside(&mut self) {
        self.inside.clear();
    }

    /// The sandbox's ends of the progress channel and the notice channel.
    pub(super) fn channels(&self) -> Vec<BorrowedFd<'_>> {
        self.reports.iter().chain(&self.notices).map(|(_, inside)| inside.as_fd()).collect()
    }

    /// Splits the engine's ends between the collector and the owner; the sandbox's ends are closed.
    pub(super) fn attach(self, run: Arc<SharedRun>) -> (Attachment, Pipes) {
        let mut pipes = Pipes::default();
        let stdin = match (self.stdin_write, self.stdin_bytes) {
            (Some(write), Some(bytes)) => Some((write, bytes)),
            (write, _) => {
                pipes.stdin = write;
                None
            }
        };
        let [stdout, stderr] = self.outputs;
        let split = |stream: OutputStream, end: &mut Option<OwnedFd>| match (stream.read, stream.spool) {
            (Some(read), Some(spool)) => Some((Arc::new(read), spool)),
            (read, _) => {
                *end = read;
                None
            }
        };
        let outputs = [split(stdout, &mut pipes.stdout), split(stderr, &mut pipes.stderr)];
        let (master, terminal) = self.terminal.unzip();
        pipes.terminal = master;
        let [reports, notices] = [self.reports, self.notices].map(|ends| ends.map(|(ours, _)| ours));
        let unwritten = self.unwritten.filter(|_| outputs[0].is_some());
        (Attachment { run, outputs, unwritten, stdin, terminal, reports, notices }, pipes)
    }
}

/// Where a stream is kept, if it is.
fn spool(inner: &Inner, kind: Output, limit: Option<u64>) -> Result<Option<SharedSpool>, Error> {
    if kind != Output::Capture {
        return Ok(None);
    }
    Ok(Some(Arc::new(Mutex::new(Spool::new(limit, inner.spool_directory()?)))))
}

fn null(access: OFlags) -> Result<OwnedFd, Error> {
    rustix::fs::open("/dev/null", access | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::System { doing: "cannot open /dev/null", source: error.into() })
}

/// What users other than its maker may do with a pipe.
pub(super) const READING: Mode = Mode::from_raw_mode(0o604);
pub(super) const WRITING: Mode = Mode::from_raw_mode(0o602);

/// PIPEFS_MAGIC of the kernel's `include/uapi/linux/magic.h`: what has no name anywhere.
const PIPES: u64 = 0x5049_5045;

/// Lets a run, which is another user, open a pipe that it has by the name of its descriptor
/// (`/dev/stderr`) as well: for what it can do by that, and no more. A process without the
/// descriptor does not find it.
pub(super) fn open_to_all(pipe: &OwnedFd, mode: Mode) {
    if rustix::fs::fstatfs(pipe).is_ok_and(|system| system.f_type as u64 == PIPES) {
        // The mode of another user's pipe stays as it is: it is read by its descriptor.
        let _ = rustix::fs::fchmod(pipe, mode);
    }
}

fn set_nonblocking(fd: &OwnedFd) -> Result<(), Error> {
    rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK)
        .map_err(|error| Error::System { doing: "cannot prepare a pipe", source: error.into() })
}
