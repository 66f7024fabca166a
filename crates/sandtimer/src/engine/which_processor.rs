//! Has a job begin on the processor of the caller that is about to wait for it, and a copy be made
//! on another than that of a caller that continues.
//!
//! The kernel puts a process that wakes on an idle processor, if there is one
//! (select_idle_sibling() in kernel/sched/fair.c). For a job of some tenths of a millisecond that
//! is the dearer place: the processor must be woken too, and its caches know nothing of what the
//! caller has just written. So a parked process is bound to the caller's processor when it is
//! handed its job. The job's message contains the processors that it may run on from then on, and
//! the process applies that before its interpreter has the job (`helper/job.rs`), so that none of
//! the job's threads is bound.
//!
//! Where cells come back to back it is the other way round: while a context's interpreter is
//! copied, its caller takes the answer and sends the next cell. The busier the processors, the less
//! the kernel looks for an idle one (SIS_UTIL, there), and interpreter and caller take turns on one
//! while the other is idle; once apart, they stay so. So the interpreter is bound to all others
//! when a copy is requested, and that request permits it to run anywhere again.
//!
//! With one branch it is both: its origin is bound to the others while it writes its image, and the
//! child that will be the branch to this one.
//!
//! Each applies only while one call, or one cell or branch, is active: with several no processor is
//! idle for long, and binding would keep work from a processor that becomes free. A caller that
//! begins a call and continues working takes the processor from it for as long as the kernel
//! permits. Where the job has another uid, binding asks for CAP_SYS_NICE; without it the kernel
//! chooses, as ever.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::launcher::SpawnedProcess;
use sandtimer_os::process;
use sandtimer_os::processors::{self, Processors};

/// Nanoseconds for which no two calls must have been under way at a time.
const ALONE_NANOSECONDS: u64 = 5_000_000;

/// The calls of an engine that are under way, or its cells.
#[derive(Debug, Default)]
pub(super) struct Callers {
    under_way: AtomicUsize,
    /// When one last began while another was active.
    crowded_at: AtomicU64,
}

impl Callers {
    fn begin(&self, now: u64) -> bool {
        if self.under_way.fetch_add(1, Ordering::Relaxed) > 0 {
            self.crowded_at.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(self.crowded_at.load(Ordering::Relaxed)) >= ALONE_NANOSECONDS
    }

    fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether the only one under way has been that for a while.
    fn is_one_alone(&self, now: u64) -> bool {
        self.under_way.load(Ordering::Relaxed) == 1
            && now.saturating_sub(self.crowded_at.load(Ordering::Relaxed)) >= ALONE_NANOSECONDS
    }
}

/// A call or a cell that a caller may wait for, until this is dropped.
#[derive(Debug)]
pub(super) struct ActiveWork(Arc<Callers>);

impl ActiveWork {
    /// Counts it; whether they have come one at a time for a while.
    pub fn begin(callers: &Arc<Callers>) -> (Self, bool) {
        let is_alone = callers.begin(monotonic_nanoseconds());
        (ActiveWork(callers.clone()), is_alone)
    }

    /// Whether it has been the only one for a while.
    pub fn is_alone(&self) -> bool {
        self.0.is_one_alone(monotonic_nanoseconds())
    }
}

impl Drop for ActiveWork {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Binds a waiting process to this thread's processor. Returns the processors that it could run on
/// before, which it must be sent; `None` if it is not bound.
pub(super) fn bind_here(process: &SpawnedProcess) -> Option<Processors> {
    bind(process.pid, process.pidfd.as_fd(), |_, here| Processors::one(here))
}

/// As [`bind_here`], to all processors but this thread's.
pub(super) fn bind_elsewhere(pid: i32, process: BorrowedFd<'_>) -> Option<Processors> {
    bind(pid, process, |all, here| Some(all.without(here)))
}

fn bind(
    pid: i32,
    process: BorrowedFd<'_>,
    to: impl FnOnce(Processors, usize) -> Option<Processors>,
) -> Option<Processors> {
    let all = Processors::of(pid).ok()?;
    let here = processors::current()?;
    let is_choice = all.count() > 1 && all.has(here);
    // Its number is its own until it is reaped, which a host program may do that reaps whatever has
    // died.
    let lives = || pid > 0 && !process::is_dead(process);
    (is_choice && lives() && to(all, here)?.bind(pid).is_ok()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_as_single_after_a_time_without_overlap() {
        let callers = Callers::default();
        let began = 10 * ALONE_NANOSECONDS;
        assert!(callers.begin(began), "the first call");
        assert!(!callers.begin(began + 1), "beside the first");
        callers.end();
        callers.end();
        assert!(!callers.begin(began + 2));
        callers.end();
        assert!(!callers.begin(began + ALONE_NANOSECONDS));
        callers.end();
        assert!(callers.begin(began + ALONE_NANOSECONDS + 1));
        assert!(callers.is_one_alone(began + ALONE_NANOSECONDS + 2));
        assert!(!callers.begin(began + ALONE_NANOSECONDS + 2));
        callers.end();
        assert!(!callers.is_one_alone(began + ALONE_NANOSECONDS + 3), "another has begun beside it");
        assert!(callers.is_one_alone(began + 2 * ALONE_NANOSECONDS + 2));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a process that waits")]
    fn process_is_bound_to_the_callers_processor() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id() as i32;
        let pidfd = rustix::process::Pid::from_raw(pid)
            .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok());
        let process = SpawnedProcess { pid, pidfd: pidfd.expect("a pidfd") };
        let before = Processors::of(pid).expect("its processors");
        let may_choose = before.count() > 1 && processors::current().is_some_and(|here| before.has(here));
        assert_eq!(bind_here(&process), may_choose.then_some(before));
        assert_eq!(
            Processors::of(pid).expect("its processors").count() == 1,
            may_choose || before.count() == 1
        );
        before.bind(pid).expect("its freedom");
        let elsewhere = bind_elsewhere(pid, process.pidfd.as_fd());
        assert_eq!(elsewhere.is_some(), before.count() > 1, "{elsewhere:?}");
        let others = Processors::of(pid).expect("its processors").count();
        assert_eq!(others, (before.count() - 1).max(1));
        child.kill().expect("its end");
        assert!(process::wait_readable(process.pidfd.as_fd(), 10_000));
        // Dead, and its number still its own.
        assert_eq!(bind_here(&process), None);
        assert_eq!(bind_elsewhere(process.pid, process.pidfd.as_fd()), None);
        child.wait().expect("its end");
    }
}
