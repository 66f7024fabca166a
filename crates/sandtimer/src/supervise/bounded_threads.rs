//! Work on threads of its own, of which there are a bounded number: what one waits for may never
//! come.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Deep values are read on them as well.
const STACK_BYTES: usize = 1 << 20;

/// Threads for one kind of work.
#[derive(Debug)]
pub(crate) struct BoundedThreads {
    name: &'static str,
    most: usize,
    at_work: AtomicUsize,
}

/// One of them, as long as it lives.
struct BusyThread<A: Deref<Target = BoundedThreads>>(A);

impl<A: Deref<Target = BoundedThreads>> Drop for BusyThread<A> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::AcqRel);
    }
}

impl BoundedThreads {
    pub const fn new(name: &'static str, most: usize) -> Self {
        BoundedThreads { name, most, at_work: AtomicUsize::new(0) }
    }

    /// Has this done on a thread of its own. False where all of them are at work, perhaps for ever.
    pub fn try_spawn(&'static self, work: impl FnOnce() + Send + 'static) -> bool {
        start(self, work)
    }

    /// The same, for threads that are not the whole process's.
    pub fn try_spawn_shared(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> bool {
        start(self.clone(), work)
    }
}

fn start(
    threads: impl Deref<Target = BoundedThreads> + Send + 'static,
    work: impl FnOnce() + Send + 'static,
) -> bool {
    let (most, name) = (threads.most, threads.name.to_owned());
    let taken = threads
        .at_work
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
    let Ok(_) = taken else { return false };
    let at_work = BusyThread(threads);
    let work = move || {
        let _at_work = at_work;
        work();
    };
    std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(work).is_ok()
}
