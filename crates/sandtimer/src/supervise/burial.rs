//! The end of an answered job whose sandbox is to see another, on a thread that has time for it: a refiller's, which then puts
//! the next child there.
//!
//! ```text
//! brought ─┬─ the enforcer looks at it ─▶ its own, as every run
//!          └─ answered before that ─▶ begun: taken back and killed ─▶ finished: reaped, init asked, Outcome, sandbox offered
//!                                           └─ somebody waits for its end, or it does not come, or nobody sees to it
//!                                              within 20 ms ─▶ the enforcer's again
//! ```
//! The steps are those of `ending`; what is spared is waking the enforcer for each of them, and the collector for the Outcome. No limit
//! is left to be enforced: the answer has sealed the deadline's cell.

use std::os::fd::AsFd;
use std::sync::Arc;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;

use super::at_once::{Brought, settle};
use super::collector::{Attachment, CollectorHandle, Fate, ToCollector};
use super::ending::{Ending, VACATE_LIMIT};
use super::offer::Offer;
use super::orders::EnforcerHandle;
use super::run::Running;

/// How long its death may take where somebody waits for it: what has much memory goes on dying under the enforcer's eyes.
const DEATH_LIMIT_MILLISECONDS: u64 = 5;
/// When the enforcer sees to it, whatever became of who was to.
const BURIAL_LIMIT: u64 = 20_000_000;

/// A job that was killed, and is to be seen to.
#[derive(Debug)]
pub(crate) struct Burial {
    run: Arc<Running>,
    ending: Arc<Offer<Box<Ending>>>,
    /// `None` where the collector has them.
    streams: Option<Arc<Offer<Box<Attachment>>>>,
}

impl Burial {
    /// Takes the run back and kills its job. `None` where the enforcer sees to its end: it has looked at the run, or the sandbox
    /// is to end with it.
    pub fn begin(
        brought: &Brought,
        run: &Arc<Running>,
        enforcer: &EnforcerHandle,
        collector: &CollectorHandle,
    ) -> Option<Self> {
        let Some(mut ending) = brought.ending.take() else {
            // The death of the job wakes it.
            if !run.kill_answered() {
                enforcer.wake();
            }
            return None;
        };
        // Neither is woken by its death.
        enforcer.overlook(run);
        let streams = brought.streams.take();
        if let Some(streams) = &streams {
            collector.forget(streams);
        }
        let now = monotonic_nanoseconds();
        ending.answered(now);
        let streams = streams.map(|streams| collector.offer(streams));
        if ending.leaves() {
            return Some(Burial {
                run: run.clone(),
                ending: enforcer.give_at(now + BURIAL_LIMIT, ending),
                streams,
            });
        }
        enforcer.give(ending);
        None
    }

    /// Has the enforcer see to it at once.
    pub fn hand_over(self, enforcer: &EnforcerHandle) {
        enforcer.see(self.run.row);
    }

    /// Sees to it, unless the enforcer does already: until the job is dead, and init has said that nothing of it is left.
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
            ending.hear(monotonic_nanoseconds());
        }
        match ending.report() {
            Some(ToCollector::Dead { run, facts }) => {
                ending.tell_owner_the_rest();
                enforcer.forget_vacated(&ending);
                let streams = self.streams.and_then(|streams| streams.take());
                if let Some(ended) = settle(streams, run, facts, collector) {
                    collector.recycle.tell(&ended.run, Fate::Vacant);
                }
            }
            _ => {
                // It is nobody's next sandbox.
                ending.killed_by_watchdog();
                self.run.slot.kill_all();
                enforcer.give(ending);
            }
        }
    }
}
