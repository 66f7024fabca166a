//! The tasks that wait for new output of a run.
//!
//! The collector wakes them after each piece that it has stored; without a waiting task that costs
//! one atomic exchange. A task registers first and reads the output then, so output that arrives
//! after the read wakes it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The tasks that the next piece of output wakes.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    any: AtomicBool,
    wakers: Mutex<Wakers>,
}

/// The wakers of tasks that wait, each under a number of its own.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    next: u64,
    list: Vec<(u64, Waker)>,
}

impl Wakers {
    /// Keeps a task's waker. `key` is the task's own, `None` at first.
    pub fn listen(&mut self, key: &mut Option<u64>, waker: &Waker) {
        let number = *key.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        match self.list.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => known.clone_from(waker),
            None => self.list.push((number, waker.clone())),
        }
    }

    pub fn forget(&mut self, key: Option<u64>) {
        self.list.retain(|(known, _)| Some(*known) != key);
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Takes all wakers; a task that continues to wait registers again.
    pub fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.list).into_iter().map(|(_, waker)| waker)
    }
}

impl Listeners {
    fn lock(&self) -> MutexGuard<'_, Wakers> {
        // A list of wakers is whole whatever happened.
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `waker` woken by the next ring. `key` is the listener's own, `None` at first.
    pub fn listen(&self, key: &mut Option<u64>, waker: &Waker) {
        let mut wakers = self.lock();
        wakers.listen(key, waker);
        self.any.store(true, Ordering::SeqCst);
    }

    /// Forgets a listener that went away.
    pub fn forget(&self, key: Option<u64>) {
        if key.is_some() {
            self.lock().forget(key);
        }
    }

    /// Wakes all that listen.
    pub fn notify(&self) {
        if self.any.swap(false, Ordering::SeqCst) {
            let wakers = self.lock().take();
            for waker in wakers {
                // The caller's code: a panic there must not end the collector.
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn each_remaining_listener_is_notified_once() {
        let (listeners, count) = (Listeners::default(), Arc::new(WakeCount::default()));
        let waker = Waker::from(count.clone());
        let (mut first, mut second) = (None, None);
        listeners.notify();
        listeners.listen(&mut first, &waker);
        listeners.listen(&mut first, &waker);
        listeners.listen(&mut second, &waker);
        listeners.forget(second);
        listeners.notify();
        listeners.notify();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        listeners.listen(&mut first, &waker);
        listeners.notify();
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
    }
}
