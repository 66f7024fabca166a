//! The standard streams of a run: pipes or a terminal for the sandbox, and for each engine's end who gets it.
//!
//! What is captured goes to the collector, what is piped to the run's owner. Nothing is read or written here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::error::Error;
use super::run::Pipes;
use super::{Inner, Output, Spec, Stdin};
use crate::limits::Effective;
use crate::model::LimitKind;
use crate::supervise::collector::{Attachment, SharedSpool};
use crate::supervise::output::Spool;
use crate::supervise::run::Running;

/// One output stream: the write end for the sandbox, and what becomes of the read end.
struct OutputStream {
    inside: OwnedFd,
    read: Option<OwnedFd>,
    spool: Option<SharedSpool>,
}

/// Both ends of a run's three standard streams, until they are handed out.
pub(super) struct Streams {
    stdin: OwnedFd,
    stdin_write: Option<OwnedFd>,
    stdin_bytes: Option<Vec<u8>>,
    outputs: [OutputStream; 2],
    /// Both ends of the progress channel, the engine's first.
    reports: Option<(OwnedFd, OwnedFd)>,
}

impl Streams {
    pub(super) fn make(inner: &Inner, spec: &mut Spec, effective: &Effective) -> Result<Self, Error> {
        let pipe = || -> Result<(OwnedFd, OwnedFd), Error> {
            pipe_with(PipeFlags::CLOEXEC)
                .map_err(|error| Error::System { doing: "cannot make a pipe", source: error.into() })
        };
        let reports = if spec.progress_channel { Some(pipe()?) } else { None };
        if let Some((read, _)) = &reports {
            set_nonblocking(read)?;
        }
        if let Some(terminal) = spec.terminal.take() {
            let copy = || terminal.try_clone().map_err(Error::system("cannot copy the terminal"));
            let output = || -> Result<OutputStream, Error> {
                Ok(OutputStream { inside: copy()?, read: None, spool: None })
            };
            return Ok(Streams {
                stdin: copy()?,
                stdin_write: None,
                stdin_bytes: None,
                outputs: [output()?, output()?],
                reports,
            });
        }
        let (stdin, stdin_write, stdin_bytes) = match std::mem::take(&mut spec.stdin) {
            Stdin::Null => (null(OFlags::RDONLY)?, None, None),
            Stdin::Descriptor(fd) => (fd, None, None),
            Stdin::Piped => {
                let (read, write) = pipe()?;
                (read, Some(write), None)
            }
            Stdin::Bytes(bytes) => {
                let (read, write) = pipe()?;
                set_nonblocking(&write)?;
                (read, Some(write), Some(bytes))
            }
        };
        let limit = effective.get(LimitKind::Output).map(|effect| effect.value);
        let output = |kind: Output| -> Result<OutputStream, Error> {
            if kind == Output::Null {
                return Ok(OutputStream { inside: null(OFlags::WRONLY)?, read: None, spool: None });
            }
            let (read, inside) = pipe()?;
            let mut spool = None;
            if kind == Output::Capture {
                set_nonblocking(&read)?;
                spool = Some(Arc::new(Mutex::new(Spool::new(limit, inner.spool_directory()?))));
            }
            Ok(OutputStream { inside, read: Some(read), spool })
        };
        let outputs = [output(spec.stdout)?, output(spec.stderr)?];
        Ok(Streams { stdin, stdin_write, stdin_bytes, outputs, reports })
    }

    /// Where captured output goes, for those who read it by cursor.
    pub(super) fn spools(&self) -> [Option<SharedSpool>; 2] {
        [self.outputs[0].spool.clone(), self.outputs[1].spool.clone()]
    }

    pub(super) fn inside(&self) -> [BorrowedFd<'_>; 3] {
        [self.stdin.as_fd(), self.outputs[0].inside.as_fd(), self.outputs[1].inside.as_fd()]
    }

    /// The sandbox's end of the progress channel.
    pub(super) fn reports(&self) -> Vec<BorrowedFd<'_>> {
        self.reports.iter().map(|(_, inside)| inside.as_fd()).collect()
    }

    /// Splits the engine's ends between the collector and the owner; the sandbox's ends are closed.
    pub(super) fn attach(self, run: Arc<Running>) -> (Attachment, Pipes) {
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
        let reports = self.reports.map(|(read, _)| read);
        (Attachment { run, outputs, stdin, reports }, pipes)
    }
}

fn null(access: OFlags) -> Result<OwnedFd, Error> {
    rustix::fs::open("/dev/null", access | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::System { doing: "cannot open /dev/null", source: error.into() })
}

fn set_nonblocking(fd: &OwnedFd) -> Result<(), Error> {
    rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK)
        .map_err(|error| Error::System { doing: "cannot prepare a pipe", source: error.into() })
}
