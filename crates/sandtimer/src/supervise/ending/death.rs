//! How the death of all processes in a jail is proven, and its cause if no part of the engine ended
//! them.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use sandtimer_os::process;
use sandtimer_os::watchdog::SharedTable;
use sandtimer_os::wire::order;

use super::{EMPTY_CHECK_NANOSECONDS, EndingPhase, RunEnding, SWEEP_LIMIT, VACATE_LIMIT};
use crate::model::{Enforcer, LimitKind};
use crate::supervise::deliveries::ToCollector;
use crate::supervise::run::{Job, group_is_gone};
use crate::supervise::run_facts::Cause;

impl RunEnding {
    /// Init is dead, and with it its namespace.
    pub fn died(&mut self, table: &SharedTable, now: u64) {
        if self.phase == EndingPhase::Dead || !process::is_dead(self.run.pidfd.as_fd()) {
            return;
        }
        if self.run.live().is_none() {
            process::reap(self.run.pidfd.as_fd());
        }
        // The job's own event may come after this one.
        self.job_ended(now);
        self.note_jail_end();
        if self.facts.cause.is_none() {
            self.explain_death(table, now);
        }
        if self.facts.cause != Some(Cause::Exit) {
            self.publish();
        }
        self.facts.killed_at.get_or_insert(now);
        self.confirm_death(now);
    }

    /// Confirms the death of the tree once init is dead. A pid namespace dies with init; without
    /// one the group, or init's last notice, must prove it.
    pub(super) fn confirm_death(&mut self, now: u64) {
        let run = &self.run;
        let grouped = run.slot.unified().is_some() && !group_is_gone(&run.slot);
        let dead =
            if grouped { run.slot.is_empty() } else { !run.sweeps_itself || self.facts.swept == Some(0) };
        self.next_empty_check = None;
        if dead {
            self.facts.dead_at = Some(now);
            self.phase = EndingPhase::Dead;
        } else if grouped {
            run.slot.kill_all();
            // No pid namespace has ended what a kill of the whole group does not reach.
            self.kills_each = run.sweeps_itself;
            self.phase = EndingPhase::Killed;
            self.next_empty_check = Some(now + EMPTY_CHECK_NANOSECONDS);
        } else {
            // Its orphans cannot be found any more. Nothing will ever prove their death.
            self.phase = EndingPhase::Killed;
            self.facts.overdue = Some(true);
        }
    }

    /// Returns the message by which the collector kills the rest of the group one by one, since
    /// that opens descriptors. One pending message is enough.
    pub fn kill_each(&mut self) -> Option<ToCollector> {
        let is_due = std::mem::take(&mut self.kills_each)
            && !self.run.is_killed_one_by_one.swap(true, Ordering::Relaxed);
        is_due.then(|| ToCollector::KillEach(self.run.clone()))
    }

    /// Whether init's sweep is the only way to end the run.
    pub(super) fn waits_for_sweep(&self) -> bool {
        self.run.sweeps_itself && !self.leaves()
    }

    /// Asks an init that may be stopped, or not have read the order, to sweep; until its death is
    /// known, or counts as overdue.
    pub(super) fn ask_for_sweep(&mut self, now: u64) {
        self.run.end_init();
        let is_overdue = self.facts.overdue == Some(true);
        self.last_resort = (!is_overdue).then_some(now + SWEEP_LIMIT);
    }

    /// Its sandbox is to outlive it.
    pub fn leaves(&self) -> bool {
        self.run.job.as_ref().is_some_and(Job::leaves)
    }

    /// A program that exited, and has left no process, is ended without its sandbox as a job that
    /// answered is. A program that a signal or a limit of the kernel ended takes its jail with it,
    /// as does every job if the jail cannot be killed as a whole.
    pub(super) fn leave_jail(&mut self) {
        let (run, facts) = (&self.run, &self.facts);
        let Some(job) = &run.job else { return };
        let is_program = job.program && job.one_of_many.is_some() && run.slot.kill_file().is_some();
        let has_exited =
            facts.cause == Some(Cause::Exit) && facts.exit.is_some_and(|exit| exit.status & 0x7f == 0);
        if !is_program || !has_exited || run.out_of_memory_kills() > 0 {
            return;
        }
        // Only init is left.
        if run.slot.processes_now() == Some(1) {
            job.killed.store(1, Ordering::Release);
        }
    }

    /// The job that leaves its sandbox is dead: init is asked whether anything else is there.
    pub(super) fn vacate(&mut self, now: u64) {
        let job = self.run.job.as_ref().filter(|job| job.leaves());
        let began = job.and_then(|job| Some((job.one_of_many?, job.token())));
        if self.phase == EndingPhase::Killed
            && let Some((began, token)) = began
        {
            self.last_resort = Some(now + VACATE_LIMIT);
            if process::send_command(&*self.run.control, order::VACATE, token.cast_signed(), began).is_err() {
                self.harder_kill_at = now;
                self.run.slot.kill_all();
            }
        }
    }

    /// Handles init's report of what the job has left in the jail.
    pub(super) fn vacated(&mut self, vacant: bool, now: u64) {
        // If no time is set by which this report is due, the jail was killed before it arrived.
        if self.phase != EndingPhase::Killed || !self.leaves() || self.last_resort.is_none() {
            return;
        }
        if !vacant || self.facts.cause.is_none() {
            self.harder_kill_at = now;
            self.run.slot.kill_all();
            return;
        }
        self.last_resort = None;
        self.facts.vacant = true;
        self.facts.dead_at = Some(now);
        self.phase = EndingPhase::Dead;
    }

    /// Decides the cause of a death that the engine did not cause.
    fn explain_death(&mut self, table: &SharedTable, now: u64) {
        let taken = !self.run.cell.seal();
        if taken && let Some(cause) = self.run.job.as_ref().and_then(|job| job.answer()) {
            self.decide(cause, Enforcer::Kernel, now);
            return;
        }
        if table.fired(self.run.slot_index) {
            self.facts.due_at = self.hard_end(now);
            self.decide(Cause::Limit(LimitKind::Wall), Enforcer::Watchdog, now);
            return;
        }
        if self.run.out_of_memory_kills() > 0 {
            self.decide(Cause::Limit(LimitKind::Memory), Enforcer::Kernel, now);
            return;
        }
        let outside = || "the sandbox's first process was killed from outside".to_owned();
        self.decide(Cause::Infrastructure(self.failed_step().unwrap_or_else(outside)), Enforcer::Kernel, now);
    }

    /// The step without which there is no sandbox, if one failed.
    pub(super) fn failed_step(&self) -> Option<String> {
        let step = self.facts.failed_steps.iter().find(|step| step.required)?;
        let name = self.run.step_names.get(step.number as usize).map_or("start", |name| name);
        let error = std::io::Error::from_raw_os_error(step.errno);
        Some(format!("the run's isolation could not be built: {name} (step {}): {error}", step.number))
    }
}
