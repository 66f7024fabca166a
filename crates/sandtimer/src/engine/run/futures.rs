//! Futures of what a run comes to; they need no particular async runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::model::{Outcome, Warning};
use crate::supervise::output::SharedSpool;
use crate::supervise::run::SharedRun;

/// A future of a run's Outcome; needs no particular async runtime.
#[derive(Debug)]
pub struct OutcomeFuture {
    pub(super) running: Arc<SharedRun>,
    pub(super) settled: bool,
    pub(super) key: Option<u64>,
}

impl OutcomeFuture {
    /// Returns the Outcome if it exists already; never waits for it.
    pub fn outcome(&self) -> Option<Arc<Outcome>> {
        let waiting = &self.running.waiting;
        waiting.wait_for(Duration::ZERO, true, self.settled).then(|| waiting.wait_outcome(self.settled))
    }
}

impl Future for OutcomeFuture {
    type Output = Arc<Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match this.running.waiting.poll_outcome(this.settled, &mut this.key, context.waker()) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

impl Drop for OutcomeFuture {
    fn drop(&mut self) {
        self.running.waiting.forget(self.key);
    }
}

/// A future of a run's next [`Warning`].
#[derive(Debug)]
pub struct WarningFuture {
    pub(super) running: Arc<SharedRun>,
    pub(super) key: Option<u64>,
}

impl Future for WarningFuture {
    type Output = Option<Warning>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.running.waiting.poll_warning(&mut this.key, context.waker())
    }
}

impl Drop for WarningFuture {
    fn drop(&mut self) {
        self.running.waiting.forget(self.key);
    }
}

/// A future of a run's start.
#[derive(Debug)]
pub struct StartFuture {
    pub(super) running: Arc<SharedRun>,
    pub(super) key: Option<u64>,
}

impl Future for StartFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.running.waiting.poll_started(&mut this.key, context.waker())
    }
}

impl Drop for StartFuture {
    fn drop(&mut self) {
        self.running.waiting.forget(self.key);
    }
}

/// A future of more captured output.
#[derive(Debug)]
pub struct OutputFuture {
    pub(super) running: Arc<SharedRun>,
    pub(super) spools: [Option<SharedSpool>; 2],
    pub(super) cursors: [u64; 2],
    pub(super) key: Option<u64>,
}

impl Future for OutputFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Before the look: what comes after it rings.
        this.running.waiting.output.listen(&mut this.key, context.waker());
        let grown = this.spools.iter().zip(this.cursors).any(|(spool, cursor)| {
            let spool = spool.as_ref().map(|spool| spool.lock().unwrap_or_else(PoisonError::into_inner));
            spool.is_some_and(|spool| spool.total() > cursor)
        });
        if grown || this.running.waiting.has_finished() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for OutputFuture {
    fn drop(&mut self) {
        self.running.waiting.output.forget(self.key);
    }
}

/// A future of a run's Outcome with its final proof.
#[derive(Debug)]
pub struct SettledFuture(pub(super) OutcomeFuture);

impl Future for SettledFuture {
    type Output = Arc<Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}
