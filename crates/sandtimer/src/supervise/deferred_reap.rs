//! The end of an answered job whose jail is to be used again, on a thread that is not on a caller's
//! path: a pre-warmer's, which then puts the next child there.
//!
//! ```text
//! pending ─┬─ the enforcer takes it up ─▶ its own, as every run
//!          └─ answered before that ─▶ begun: taken back and killed ─▶ finished: reaped, init asked, Outcome, sandbox offered
//!                                           └─ a caller waits for its end, or it does not come, or no pre-warmer handles
//!                                              it within 20 ms ─▶ the enforcer's again
//! ```
//! The steps are those of `ending`, without waking the enforcer for each of them, and the collector
//! for the Outcome. No limit is left to be enforced: the answer has sealed the deadline's cell.

use std::os::fd::AsFd;
use std::sync::Arc;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;

use super::at_once::{RunHandoff, settle};
use super::commands::EnforcerHandle;
use super::deliveries::{Attachment, CollectorHandle, SlotDisposition, ToCollector};
use super::ending::{RunEnding, VACATE_LIMIT};
use super::offer::Offer;
use super::run::SharedRun;

/// How long its death may take while a caller waits for it: the enforcer handles what has much
/// memory and takes longer.
const DEATH_LIMIT_MILLISECONDS: u64 = 5;
/// When the enforcer handles it, if no pre-warmer thread has.
const REAP_TIMEOUT_NANOSECONDS: u64 = 20_000_000;

/// A job that was killed, whose end is to be handled.
#[derive(Debug)]
pub(crate) struct DeferredReap {
    run: Arc<SharedRun>,
    ending: Arc<Offer<Box<RunEnding>>>,
    /// `None` where the collector has them.
    streams: Option<Arc<Offer<Box<Attachment>>>>,
}

impl DeferredReap {
    /// Takes the run back and kills its job. `None` if the enforcer handles its end: it has taken
    /// the run up, or the sandbox is to end with it.
    pub fn begin(
        handoff: &RunHandoff,
        run: &Arc<SharedRun>,
        enforcer: &EnforcerHandle,
        collector: &CollectorHandle,
    ) -> Option<Self> {
        let Some(mut ending) = handoff.ending.take() else {
            // The death of the job wakes it.
            if !run.kill_answered() {
                enforcer.wake();
            }
            return None;
        };
        // Neither is woken by its death.
        enforcer.overlook(run);
        let streams = handoff.streams.take();
        if let Some(streams) = &streams {
            collector.forget(streams);
        }
        let now = monotonic_nanoseconds();
        ending.answered(now);
        let streams = streams.map(|streams| collector.offer(streams));
        if ending.leaves() {
            return Some(DeferredReap {
                run: run.clone(),
                ending: enforcer.give_at(now + REAP_TIMEOUT_NANOSECONDS, ending),
                streams,
            });
        }
        enforcer.give(ending);
        None
    }

    /// Has the enforcer handle it at once.
    pub fn hand_over(self, enforcer: &EnforcerHandle) {
        enforcer.request_take_up(self.run.slot_index);
    }

    /// Handles it, unless the enforcer does already: until the job is dead, and init has reported
    /// that nothing of it is left.
    pub fn finish(self, enforcer: &EnforcerHandle, collector: &CollectorHandle) {
        let (Some(job), Some(mut ending)) = (&self.run.job, self.ending.take()) else { return };
        if !process::wait_readable(job.pidfd.as_fd(), DEATH_LIMIT_MILLISECONDS) {
            enforcer.give(ending);
            return;
        }
        ending.job_ended(monotonic_nanoseconds());
        let until = monotonic_nanoseconds() + VACATE_LIMIT;
        let left = || until.saturating_sub(monotonic_nanoseconds()) / 1_000_000;
        while !ending.is_dead()
            && !ending.control_closed
            && process::wait_readable(self.run.control.as_fd(), left())
        {
            ending.read_notices(monotonic_nanoseconds());
        }
        match ending.report() {
            Some(ToCollector::Dead { run, facts }) => {
                ending.notify_owner_of_rest();
                enforcer.forget_vacated(&ending);
                let streams = self.streams.and_then(|streams| streams.take());
                if let Some(ended) = settle(streams, run, facts, collector) {
                    collector.release.call(&ended.run, SlotDisposition::Vacant);
                }
            }
            _ => {
                // It is not used again.
                ending.killed_by_watchdog();
                self.run.slot.kill_all();
                enforcer.give(ending);
            }
        }
    }
}
