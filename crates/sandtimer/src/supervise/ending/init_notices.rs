//! What the enforcer receives of a run: init's notices, the end of a zygote's child, its answer.

use std::sync::atomic::Ordering;

use sandtimer_os::process;
use sandtimer_os::wire::{Notice, notice};

use super::{EndingPhase, RunEnding};
use crate::model::{Enforcer, LimitKind};
use crate::supervise::run_facts::{Cause, Exit, FailedStep};
use crate::supervise::waiting::OwnerEvent;
use crate::time::Moment;

impl RunEnding {
    /// Reads all notices that init has sent so far.
    pub fn read_notices(&mut self, now: u64) {
        loop {
            match process::notice(&*self.run.control) {
                Ok(Some((notice, process))) if notice.kind == notice::ROLLED_BACK => {
                    self.rolled_back(&notice, process, now);
                }
                Ok(Some((_, Some(namespace)))) => self.run.keep_namespace(namespace),
                Ok(Some((notice, None))) => self.note(&notice, now),
                Ok(None) => {
                    self.control_closed = true;
                    return;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.control_closed = true;
                    return;
                }
            }
        }
    }

    fn note(&mut self, notice: &Notice, now: u64) {
        match notice.kind {
            notice::STEP_FAILED => {
                let failed = FailedStep { number: notice.a, errno: notice.b as i32, required: notice.c == 1 };
                self.facts.failed_steps.push(failed);
            }
            notice::EXECUTE_FAILED => self.facts.execute_errno = Some(notice.a as i32),
            notice::STARTED => self.started(notice.a),
            notice::EXITED => {
                self.facts.killed = self.facts.killed.max(notice.f);
                let exit = Exit {
                    status: notice.a as i32,
                    user_microseconds: notice.b,
                    system_microseconds: notice.c,
                    resident_peak_kib: notice.d,
                    at: notice.e,
                };
                let won = self.exited(exit, now);
                if self.run.live().is_some() {
                    self.interpreter_ended(won, now);
                } else if won {
                    // Init ends by itself, and all with it.
                    self.facts.killed_at = Some(now);
                    self.phase = EndingPhase::Killed;
                }
            }
            notice::FIRED if self.run.cell.seal() => {
                self.facts.due_at = self.hard_end(now);
                self.decide(Cause::Limit(LimitKind::Wall), Enforcer::Init, now);
                self.publish();
                // Of a live jail the notice after this one counts the killed processes.
                self.facts.killed = if self.run.live().is_some() { 0 } else { notice.b };
                self.facts.killed_at = Some(now);
                self.phase = EndingPhase::Killed;
            }
            notice::SAMPLE => self.sampled(notice, now),
            notice::VACATED => self.vacated(notice.a == 1, now),
            notice::SWEPT => {
                self.facts.swept = Some(notice.a);
                self.facts.killed += notice.b;
                self.facts.threads_left = notice.c;
                self.swept(now);
            }
            _ => {}
        }
    }

    /// The command's process ended; whether that is the cause of the run's end.
    fn exited(&mut self, exit: Exit, now: u64) -> bool {
        self.facts.exit = Some(exit);
        // Either the end or the deadline was noticed first: exactly one of them wins here.
        let won = self.run.cell.seal();
        if won && self.died_of_interrupt(&exit) {
            self.decide(Cause::Limit(LimitKind::Wall), Enforcer::Enforcer, now);
        } else if won {
            let cause = self.failed_step().map_or(Cause::Exit, Cause::Infrastructure);
            self.decide(cause, Enforcer::Kernel, now);
        }
        won
    }

    /// A zygote's child is dead. Init waits for it to be reaped before it can end itself.
    pub fn job_ended(&mut self, now: u64) {
        let Some(job) = &self.run.job else { return };
        let pidfd = std::os::fd::AsFd::as_fd(&job.pidfd);
        if job.live.as_ref().is_some_and(|live| live.is_inits) {
            // Init reports how it ended.
            return;
        }
        // Where a thread of it is still on its way out, the kernel spins in waitid(2) until that
        // has run, which it cannot while this thread, of a higher priority, has its processor.
        self.to_reap = job.live.is_some();
        if self.to_reap && (self.facts.killed_at.is_some() || self.facts.exit.is_some()) {
            return;
        }
        let end = if self.to_reap { process::peek_end(pidfd) } else { process::end_of(pidfd) };
        let Some(end) = end else {
            if process::is_dead(pidfd) && self.facts.cause.is_none() && job.answer().is_none() {
                let reason = "the job ended, and how is not known: the host program waits for every child of its own, \
                              or ignores SIGCHLD, and took its exit status";
                self.infrastructure(reason.to_owned(), now);
                self.publish();
            } else if process::is_dead(pidfd) {
                // Reaped by another thread.
                self.vacate(now);
            }
            return;
        };
        if job.answer().is_some() || self.facts.killed_at.is_some() {
            self.vacate(now);
            return;
        }
        let exit = Exit {
            status: end.status,
            user_microseconds: end.user_microseconds,
            system_microseconds: end.system_microseconds,
            resident_peak_kib: end.resident_peak_kib,
            at: now,
        };
        if self.exited(exit, now) {
            self.publish();
        }
        self.leave_jail();
        // By itself, or in its grace: there is nothing left to wait for.
        self.kill(now);
        self.vacate(now);
    }

    /// Handles a job's answer. The thread that waited for it took the answer, and either sealed the
    /// deadline's cell before that or came too late.
    pub fn answered(&mut self, now: u64) {
        if let Some(cause) = self.run.job.as_ref().and_then(|job| job.answer())
            && self.facts.cause.is_none()
        {
            if self.run.live().is_some() {
                self.finish_with_answer(cause, now);
                return;
            }
            self.decide(cause, Enforcer::Kernel, now);
            self.publish();
            self.kill(now);
        } else if self.phase == EndingPhase::Grace {
            self.kill(now);
        }
    }

    /// The command's clock starts here: building the jail does not count against its limits.
    pub(super) fn started(&mut self, at: u64) {
        if self.phase != EndingPhase::Starting {
            return;
        }
        self.phase = EndingPhase::Running;
        self.facts.started_at = Some(at);
        self.last_activity = at;
        self.quiet_since = at;
        self.last_cpu = (at, 0);
        self.run.started_at.store(at, Ordering::Release);
        // An extension before the run started moved an end that was counted from its submission.
        let run = self.run.clone();
        let own_end = |before: Option<Moment>| {
            let early = before.map(|end| end.as_nanos().saturating_sub(run.submitted_at));
            early.or(run.wall).map(|wall| Moment::from_nanos(at.saturating_add(wall)))
        };
        // This fails only if an ancestor's deadline has fired by now; then that verdict stays.
        let _ = self.run.cell.begin(Moment::from_nanos(at), own_end);
        // Of a live jail the first sample is what later ones are compared with.
        let counts_from_sample = self.run.live().is_some() && !self.run.slot.counts_cpu();
        let first = |interval| if counts_from_sample { at } else { at + interval };
        self.next_sample = self.sample_interval().map(first);
        self.notify_owner(OwnerEvent::Started);
        if self.paused_by != 0 {
            self.follow_pausers(at);
        }
    }
}
