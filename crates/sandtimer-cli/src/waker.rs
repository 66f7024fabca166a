//! A waker: any thread notifies it, and the thread that polls its descriptor is woken.
//!
//! It carries no message: the woken thread reads the state that has changed. A notification is
//! never lost; several may be received as one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// An eventfd.
#[derive(Debug, Clone)]
pub(crate) struct EventWaker(Arc<OwnedFd>);

impl EventWaker {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(EventWaker(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub(crate) fn notify(&self) {
        // Fails only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Drains it until the next notification.
    pub(crate) fn drain(&self) {
        // Fails only if it was not notified.
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
    }
}

impl AsFd for EventWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}
