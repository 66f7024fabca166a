//! The way to a run's stdin.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use sandtimer::Run;
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, watch};

use crate::error::{ApiRejection, Code};
use crate::intake::Reservation;

/// What was given with the request, and the memory that is reserved for it.
pub(crate) type FirstInput = (Vec<u8>, Option<Reservation>);

/// The way to a run's stdin, for [`sandtimer::Stdin::Piped`], or to its terminal.
#[derive(Debug)]
pub(crate) struct RunInput {
    /// The request that writes holds the lock, so that bytes of two requests do not mix.
    pipe: Mutex<Option<pipe::Sender>>,
    /// What was given with the request, written before anything else.
    first: SyncMutex<Option<FirstInput>>,
    closed: watch::Sender<bool>,
}

impl RunInput {
    pub fn closed() -> Self {
        RunInput::later(None)
    }

    /// Closed until the run that it is for has begun.
    pub fn later(first: Option<FirstInput>) -> Self {
        RunInput { pipe: Mutex::new(None), first: SyncMutex::new(first), closed: watch::Sender::new(true) }
    }

    /// Opens it where the run has a stdin to write to. Inside the runtime, and before anything is
    /// written.
    pub fn open(&self, run: &Run) {
        let pipe = run.take_stdin().and_then(|pipe| sender(pipe).ok());
        if let (Some(pipe), Ok(mut pipe_slot)) = (pipe, self.pipe.try_lock()) {
            *pipe_slot = Some(pipe);
            self.closed.send_replace(false);
        }
    }

    /// Of a run that has one. Must be called inside the runtime.
    pub fn of(run: &Run, first: Option<FirstInput>) -> Self {
        let input = RunInput::later(first);
        input.open(run);
        input
    }

    /// Writes what was given with the request.
    pub async fn feed_first(&self) {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((first, _reserved)) = first {
            // A command may not read its first input; a request that writes more gets that error.
            let _ = self.write(&first, Duration::MAX).await;
        }
    }

    /// Closes it, also under one that waits to write, and forgets what was not written.
    pub fn close(&self) {
        self.closed.send_replace(true);
        drop(self.first.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Ok(mut pipe) = self.pipe.try_lock() {
            *pipe = None;
        }
    }

    /// Writes as much as is taken within `most`.
    pub async fn write(&self, bytes: &[u8], most: Duration) -> Result<usize, ApiRejection> {
        let mut written = 0;
        let work = async {
            let mut pipe = self.pipe.lock().await;
            let Some(open) = &*pipe else { return Err(is_closed()) };
            let mut closed = self.closed.subscribe();
            while written < bytes.len() {
                let ready = tokio::select! {
                    ready = open.writable() => ready,
                    _ = closed.wait_for(|closed| *closed) => Err(io::ErrorKind::BrokenPipe.into()),
                };
                match ready.and_then(|()| open.try_write(&bytes[written..])) {
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => {
                        *pipe = None;
                        return Err(is_closed());
                    }
                }
            }
            if *closed.borrow() {
                *pipe = None;
            }
            Ok(())
        };
        match tokio::time::timeout(most, work).await {
            Ok(Err(rejection)) if written == 0 => Err(rejection),
            _ => Ok(written),
        }
    }
}

fn is_closed() -> ApiRejection {
    ApiRejection::new(Code::StdinClosed, "the run's stdin is closed")
}

fn sender(pipe: OwnedFd) -> io::Result<pipe::Sender> {
    rustix::fs::fcntl_setfl(&pipe, OFlags::WRONLY | OFlags::NONBLOCK)?;
    // A terminal is used in the same way, and is not a pipe.
    pipe::Sender::from_owned_fd_unchecked(pipe)
}
