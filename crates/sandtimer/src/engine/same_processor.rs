//! Has a job begin on the processor of the caller that is about to wait for it.
//!
//! The kernel puts a process that wakes on an idle processor, if there is one (select_idle_sibling() in
//! kernel/sched/fair.c). For a job of some tenths of a millisecond that is the dearer place: the processor must be woken
//! too, and its caches know nothing of what the caller has just written. So the job's process is bound to the caller's
//! processor when it is handed its job, and frees itself as the first thing that it does (`helper/job.rs`): nothing of the job
//! ever sees that, and none of its threads is bound. The caller waits from then on.
//!
//! That is for callers that come one at a time. With several at once no processor is idle for long, and binding would keep work
//! from one that comes free.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::process::Pid;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Nanoseconds for which calls must have come from one thread alone.
const ALONE: u64 = 5_000_000;

/// Who calls.
#[derive(Debug, Default)]
pub(super) struct Callers {
    last: AtomicI32,
    changed_at: AtomicU64,
}

impl Callers {
    /// Notes a call of this thread's, at this monotonic time; whether it has been the only one to call for a while.
    pub fn is_alone(&self, now: u64) -> bool {
        let own = gettid().as_raw_nonzero().get();
        // Two that come at once may each miss the other: then one job begins in the dearer place.
        if self.last.swap(own, Ordering::Relaxed) != own {
            self.changed_at.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.changed_at.load(Ordering::Relaxed)) >= ALONE
    }
}

/// The processors that a process may run on; sched_setaffinity(2).
#[derive(Debug)]
pub(super) struct Processors(CpuSet);

impl Processors {
    /// None where that cannot be told, or where there is no choice.
    pub fn of(process: i32) -> Option<Self> {
        let all = sched_getaffinity(Pid::from_raw(process)).ok()?;
        (all.count() > 1).then_some(Processors(all))
    }

    /// Binds the process to this thread's processor, if it may run there; whether it is bound, and to free itself.
    pub fn bind_here(&self, process: i32) -> bool {
        let here = sched_getcpu();
        let mut only = CpuSet::new();
        here < CpuSet::MAX_CPU && self.0.is_set(here) && {
            only.set(here);
            sched_setaffinity(Pid::from_raw(process), &only).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_alone_once_no_other_has_called_for_a_while() {
        let callers = Callers::default();
        let other = |now| std::thread::scope(|scope| scope.spawn(|| callers.is_alone(now)).join().ok());
        assert!(!callers.is_alone(1_000), "the first call");
        assert!(callers.is_alone(1_000 + ALONE));
        assert_eq!(other(2_000 + ALONE), Some(false));
        assert!(!callers.is_alone(3_000 + ALONE));
        assert!(!callers.is_alone(2_999 + 2 * ALONE));
        assert!(callers.is_alone(3_000 + 2 * ALONE));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process that waits")]
    fn a_process_is_bound_to_the_processor_of_who_binds_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id() as i32;
        let of = || sched_getaffinity(Pid::from_raw(pid)).expect("its processors");
        let before = of();
        let all = Processors::of(pid);
        assert_eq!(all.is_some(), before.count() > 1);
        if let Some(all) = all {
            let may_run_here = before.is_set(sched_getcpu());
            assert_eq!(all.bind_here(pid), may_run_here);
            assert_eq!(of().count() == 1, may_run_here);
        }
        child.kill().and_then(|()| child.wait()).expect("its end");
    }
}
