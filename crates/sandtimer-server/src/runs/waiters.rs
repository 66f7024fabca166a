//! The requests that wait for a run.

use tokio::sync::watch;

/// The number of requests that wait for a run.
#[derive(Debug, Default)]
pub(crate) struct Waiters(watch::Sender<usize>);

/// A waiting request, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'run>(&'run Waiters);

impl Waiters {
    pub fn add(&self) -> Waiter<'_> {
        self.0.send_modify(|waiting| *waiting += 1);
        Waiter(self)
    }

    /// Follows their number.
    pub fn subscribe(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|waiting| *waiting -= 1);
    }
}
