//! How a job in a live sandbox ends: without the sandbox, if that can be.
//!
//! ```text
//! Running ─┬─ answer ──────────────────────────────▶ Dead, state kept: the interpreter continues
//!          ├─ interrupt, shortly before the wall ─▶ an answer; else the wall
//!          │                                      (only the interpreter handles it: init ends all others)
//!          └─ limit, cancel, crash ─▶ Killed ─┬─ init is back at the checkpoint ─▶ Dead, state rolled_back
//!                                             └─ no checkpoint, or not in time: the sandbox dies ─▶ Dead, state reset
//! ```
//! Commands to init are sent as for every run; it answers with [`notice::ROLLED_BACK`].

use std::os::fd::{AsFd, OwnedFd};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustix::process::Signal;
use sandtimer_os::process;
use sandtimer_os::wire::{Notice, notice, order};

use super::{Cause, EndingPhase, Enforcer, RunEnding};
use crate::model::{LimitKind, RemainingState};
use crate::supervise::deliveries::ToCollector;
use crate::supervise::run::IdleContents;
use crate::supervise::run_facts::Exit;

/// How long init may take to go back to a checkpoint before the sandbox is ended: what dies needs
/// 80 ms for each GB.
const ROLL_BACK_LIMIT: u64 = 1_500_000_000;
/// How long before its wall an interpreter is interrupted, at most; of a shorter wall a tenth.
const MAX_INTERRUPT_LEAD_NANOSECONDS: u64 = 50_000_000;

impl RunEnding {
    /// When to interrupt the interpreter, so that it may end the job itself; unless there is a
    /// grace, or that was done.
    pub(super) fn interrupt_at(&self) -> Option<u64> {
        let end = self.ending_starts();
        let listens = self.run.live().is_some_and(|live| !live.is_shell);
        let wanted = listens && self.run.grace == 0 && self.pause.is_none();
        if !wanted || end == u64::MAX || self.interrupted_before == end {
            return None;
        }
        let length = end.saturating_sub(self.facts.started_at?);
        Some(end - MAX_INTERRUPT_LEAD_NANOSECONDS.min(length / 10))
    }

    /// Interrupts the interpreter, once before each end of the wall.
    pub(super) fn interrupt(&mut self, now: u64) {
        self.interrupted_before = self.ending_starts();
        // An interpreter that ignores the interrupt is ended at the wall.
        let _ = process::send_command(&*self.run.control, order::SIGNAL_MAIN, Signal::INT.as_raw(), 0);
        if let Some(live) = self.run.live() {
            live.was_interrupted.store(true, Ordering::SeqCst);
        }
        self.facts.signals.push(("SIGINT", now));
    }

    /// An interpreter without a handler for it died of the interrupt that it got because of its
    /// wall.
    pub(super) fn died_of_interrupt(&self, exit: &Exit) -> bool {
        self.interrupted_before != 0 && exit.status & 0x7f == Signal::INT.as_raw()
    }

    /// The job answered: its interpreter continues, and with it what the job started.
    pub(super) fn finish_with_answer(&mut self, cause: Cause, now: u64) {
        let run = self.run.clone();
        let Some(live) = run.live() else { return };
        let reply = live.reply.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        let code = reply.exit_code;
        if let Some(code) = code {
            self.facts.exit = Some(Exit {
                status: i32::from(code) << 8,
                user_microseconds: 0,
                system_microseconds: 0,
                resident_peak_kib: 0,
                at: now,
            });
        }
        let interrupted = self.interrupted_before != 0 && reply.interrupted;
        self.facts.is_continuing = live.idle.has_more(&self.run.slot);
        // It raised because it was interrupted, and it was interrupted because of its wall.
        let cause = match code {
            Some(_) => Cause::Exit,
            None if interrupted => Cause::Limit(LimitKind::Wall),
            None => cause,
        };
        let by = if interrupted { Enforcer::Enforcer } else { Enforcer::Kernel };
        self.decide(cause, by, now);
        self.publish();
        if interrupted && self.facts.is_continuing && self.sweep(now) {
            // The interpreter has handled the interrupt, and the other processes have not.
            return;
        }
        if self.announced != Some(u64::MAX) {
            // Init knows the job's deadline, and must no longer end a process by it.
            let _ = self.run.control.end_by(u64::MAX);
        }
        self.stands(now);
    }

    /// The run has ended, and its interpreter is alive.
    fn stands(&mut self, now: u64) {
        if self.facts.swept.is_some() {
            // After a limit, threads of the interpreter continue; Node.js has some of its own.
            let counts_threads =
                self.run.live().is_some_and(|live| matches!(live.idle, IdleContents::Tasks(_)));
            self.facts.is_continuing = counts_threads && self.facts.threads_left > 1;
        }
        self.last_resort = None;
        self.facts.state = Some(RemainingState::Kept);
        self.facts.stands = true;
        self.facts.dead_at = Some(now);
        self.phase = EndingPhase::Dead;
    }

    /// Has init end all processes but the interpreter. Returns false if the command cannot be sent.
    fn sweep(&mut self, now: u64) -> bool {
        if process::send_command(&*self.run.control, order::SWEEP, 0, 0).is_err() {
            return false;
        }
        self.last_resort = Some(now + ROLL_BACK_LIMIT);
        self.facts.killed_at = Some(now);
        self.phase = EndingPhase::Killed;
        true
    }

    /// Init has ended everything but the interpreter, which had answered.
    pub(super) fn swept(&mut self, now: u64) {
        let is_left = self.facts.swept == Some(0) && !self.last_resort_is_jail;
        if self.phase == EndingPhase::Killed && is_left && self.run.live().is_some() {
            self.stands(now);
        }
    }

    /// Until when init may be rolling back: until then the watchdog does not kill the jail.
    pub(super) fn roll_back_deadline(&self) -> Option<u64> {
        let goes_back = self.phase == EndingPhase::Killed && self.run.live().is_some();
        self.last_resort.filter(|_| goes_back)
    }

    /// Init did not report in time: the next harder way.
    pub(super) fn harder(&mut self, now: u64) {
        if self.last_resort_is_jail || !self.roll_back(now) {
            self.harder_kill_at = now;
            let _ = process::kill(self.run.pidfd.as_fd());
        }
    }

    /// Handles the end of the interpreter. `won`: that is the cause of the job's end.
    pub(super) fn interpreter_ended(&mut self, won: bool, now: u64) {
        if won {
            self.publish();
        }
        if self.facts.killed_at.is_none() {
            self.kill(now);
        }
    }

    /// Has init go back to the checkpoint. Returns false if there is none, or the command cannot be
    /// sent: then the jail is ended.
    pub(super) fn roll_back(&mut self, now: u64) -> bool {
        let Some(checkpoint) = self.run.live().and_then(|live| live.checkpoint) else { return false };
        if process::send_command(&*self.run.control, order::ROLL_BACK, checkpoint, 0).is_err() {
            return false;
        }
        self.last_resort_is_jail = true;
        self.last_resort = Some(now + ROLL_BACK_LIMIT);
        self.facts.killed_at = Some(now);
        self.phase = EndingPhase::Killed;
        true
    }

    /// Init went back, or could not.
    pub(super) fn rolled_back(&mut self, notice: &Notice, process: Option<OwnedFd>, now: u64) {
        debug_assert_eq!(notice.kind, notice::ROLLED_BACK);
        let run = self.run.clone();
        let Some(live) = run.live() else { return };
        self.facts.killed += notice.b;
        self.facts.swept = Some(notice.a);
        self.facts.is_continuing = false;
        let (0, Some(process)) = (notice.a, process) else {
            // Nothing to go back to, or something that does not die.
            self.harder_kill_at = now;
            if !run.slot.kill_all() {
                let _ = process::kill(run.pidfd.as_fd());
            }
            return;
        };
        *live.resumed.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        self.last_resort = None;
        // A shell that ended by itself begins again; the context handles it.
        let by_itself = live.is_shell && self.facts.cause == Some(Cause::Exit);
        self.facts.stands = true;
        self.facts.state = Some(if by_itself { RemainingState::Reset } else { RemainingState::RolledBack });
        self.facts.dead_at = Some(now);
        self.phase = EndingPhase::Dead;
    }

    /// Returns the message that has the collector reap a dead interpreter: the thread that reaps
    /// must not have a higher priority than the interpreter had.
    pub fn reap(&mut self) -> Option<ToCollector> {
        std::mem::take(&mut self.to_reap).then(|| ToCollector::Reap(self.run.clone()))
    }

    /// All that was in the sandbox is dead.
    pub(super) fn note_jail_end(&mut self) {
        if self.run.live().is_some() {
            self.facts.state = Some(RemainingState::Reset);
        }
    }
}
