//! Watches an active run: samples of its processor time, its silence, and the warnings before a
//! limit ends it.

use std::sync::atomic::Ordering;

use sandtimer_os::process;
use sandtimer_os::wire::{Notice, order};

use super::{EndingPhase, RunEnding};
use crate::model::{LimitKind, Source, Warning};
use crate::supervise::deliveries::ToCollector;
use crate::supervise::waiting::OwnerEvent;
use crate::time::Moment;

/// Shortest time between two samples of a run's processor time.
const MIN_SAMPLE_INTERVAL_NANOSECONDS: u64 = 1_000_000;
/// The same where time is counted in ticks.
const MIN_TICKED_INTERVAL_NANOSECONDS: u64 = 50_000_000;
/// How often a chosen memory limit is sampled.
const MEMORY_SAMPLE_NANOSECONDS: u64 = 100_000_000;
/// CPU share of one processor below which a run counts as idle, in parts of a hundred.
const IDLE_PERCENT: u64 = 1;
/// How long at least between two measurements of what a quiet run reads and writes: each reads
/// /proc.
const MEASURE_INTERVAL_NANOSECONDS: u64 = 100_000_000;
/// How long before a wall the command is inspected, to report what it was waiting for; at most a
/// tenth of the wall.
const INSPECT_BEFORE_NANOSECONDS: u64 = 100_000_000;
/// The shortest wall before which usage is sampled by a walk through all of the host's processes.
const MIN_SAMPLED_WALL: u64 = 1_000_000_000;

impl RunEnding {
    /// How long until processor time must be sampled again; `None` if no limit needs it.
    pub(super) fn sample_interval(&self) -> Option<u64> {
        let cpu = self.limit_of(LimitKind::Cpu).map(|limit| {
            let ahead = if self.warned_of_cpu { 0 } else { self.run.warn.unwrap_or(0) };
            let until = limit.saturating_sub(ahead);
            let left = until.saturating_sub(self.last_cpu.1.saturating_mul(1000));
            // With every processor busy it cannot be used up earlier.
            (left / self.processors).max(MIN_SAMPLE_INTERVAL_NANOSECONDS)
        });
        // Init counts in ticks of 10 ms: a shorter look could take a busy run for an idle one.
        let shortest = if self.run.slot.counts_cpu() {
            MIN_SAMPLE_INTERVAL_NANOSECONDS
        } else {
            MIN_TICKED_INTERVAL_NANOSECONDS
        };
        let stall = self.limit_of(LimitKind::Stall).map(|limit| (limit / 10).max(shortest));
        let memory = self.memory_is_chosen().then_some(MEMORY_SAMPLE_NANOSECONDS);
        [cpu, stall, memory].into_iter().flatten().min()
    }

    /// Whether a scope set the memory limit. Such a limit is watched: without a memory controller
    /// by init's samples; with a controller that kills one process of a tree and lets the others
    /// continue, by its count of kills.
    pub(super) fn memory_is_chosen(&self) -> bool {
        self.run.effective.get(LimitKind::Memory).is_some_and(|effect| effect.source != Source::Ceiling)
    }

    /// Samples processor time, directly or with a request to init.
    pub(super) fn sample(&mut self, now: u64) {
        self.next_sample = self.sample_interval().map(|interval| now + interval);
        if self.run.slot.counts_cpu() {
            if self.memory_is_chosen() && self.run.out_of_memory_kills() > 0 {
                self.limit(LimitKind::Memory, now);
                return;
            }
            let used = self.run.cpu_microseconds();
            self.judge(used, now);
        } else {
            let _ = process::send_command(&*self.run.control, order::SAMPLE, 0, 0);
        }
        self.next_sample = self.sample_interval().map(|interval| now + interval);
    }

    /// Asks init for a sample if no control group counts: init, which is killed with the run, takes
    /// its own counts along. Of a live jail a sample has what earlier jobs have used as well;
    /// without a pid namespace init reads all of the host's /proc, and is not to be at it when a
    /// short wall passes.
    pub(super) fn sample_before_wall(&self) {
        let length = self.ending_starts().saturating_sub(self.facts.started_at.unwrap_or(0));
        let is_late = self.run.sweeps_itself && length < MIN_SAMPLED_WALL;
        if !self.run.slot.counts_cpu() && self.run.live().is_none() && !is_late {
            let _ = process::send_command(&*self.run.control, order::SAMPLE, 0, 0);
        }
    }

    pub(super) fn sampled(&mut self, notice: &Notice, now: u64) {
        let is_live = self.run.live().is_some();
        let before = if is_live { *self.cpu_before.get_or_insert(notice.a) } else { 0 };
        let used = notice.a.saturating_sub(before);
        self.facts.sampled_cpu_microseconds = self.facts.sampled_cpu_microseconds.max(used);
        self.facts.sampled_processes = self.facts.sampled_processes.max(notice.b);
        self.facts.sampled_resident_bytes = self.facts.sampled_resident_bytes.max(notice.c);
        if self.memory_is_chosen() && self.limit_of(LimitKind::Memory).is_some_and(|limit| notice.c > limit) {
            self.limit(LimitKind::Memory, now);
        } else {
            self.judge(used, now);
            self.next_sample = self.sample_interval().map(|interval| now + interval);
        }
    }

    /// Holds processor time and silence against their limits.
    pub(super) fn judge(&mut self, cpu_microseconds: u64, now: u64) {
        let (then, before) = self.last_cpu;
        let elapsed = now.saturating_sub(then);
        self.last_cpu = (now, cpu_microseconds);
        if self.limit_of(LimitKind::Cpu).is_some_and(|limit| cpu_microseconds.saturating_mul(1000) >= limit) {
            self.limit(LimitKind::Cpu, now);
            return;
        }
        self.warn_of_cpu(cpu_microseconds.saturating_mul(1000));
        let Some(stall) = self.limit_of(LimitKind::Stall) else { return };
        let output = self.run.active_at();
        let used = cpu_microseconds.saturating_sub(before).saturating_mul(1000);
        let busy = used > elapsed / 100 * IDLE_PERCENT && !self.run.stall_by_progress;
        if busy {
            self.last_activity = now;
        }
        // Where the collector waits for a disk, it is late to read what the run has written, and to
        // see what it reads and writes.
        let is_measured_late = self.run.is_to_be_measured.load(Ordering::Relaxed)
            && now.saturating_sub(self.measured_at) >= MEASURE_INTERVAL_NANOSECONDS;
        if is_measured_late || self.run.has_unread_output() {
            self.last_activity = now;
        }
        self.last_activity = self.last_activity.max(output);
        if !busy && now.saturating_sub(self.measured_at) >= MEASURE_INTERVAL_NANOSECONDS {
            self.measured_at = now;
            // One pending measurement is enough.
            self.measure = !self.run.is_to_be_measured.swap(true, Ordering::Relaxed);
        }
        let end = self.last_activity.saturating_add(stall);
        if self.inspected_for[1] != end && now >= end - stall / 5 {
            self.inspected_for[1] = end;
            self.needs_inspection = true;
        }
        self.quiet_since = self.quiet_since.max(output);
        let quiet = now.saturating_sub(self.quiet_since);
        if now.saturating_sub(self.last_activity) >= stall {
            self.limit(LimitKind::Stall, now);
        } else if busy && quiet >= stall && self.warned_of_quiet != self.quiet_since {
            self.warned_of_quiet = self.quiet_since;
            self.notify_owner(OwnerEvent::Warning(Warning::Stall { quiet_ms: quiet / 1_000_000 }));
        }
    }

    /// Gives notice of the limit of processor time once the part of it that is left is small
    /// enough.
    fn warn_of_cpu(&mut self, used: u64) {
        let (Some(limit), Some(before)) = (self.limit_of(LimitKind::Cpu), self.run.warn) else { return };
        let left = limit.saturating_sub(used);
        if left <= before
            && !self.warned_of_cpu
            && self.notice.is_none()
            && self.phase == EndingPhase::Running
        {
            self.warned_of_cpu = true;
            self.warn(Warning::Cpu { left_ms: left / 1_000_000 });
        }
    }

    /// Sends a warning to the owner, and keeps it for the run itself.
    pub(super) fn warn(&mut self, warning: Warning) {
        self.notify_owner(OwnerEvent::Warning(warning));
        self.notice = Some(warning);
    }

    /// Returns the message by which the collector gives the run its notice.
    pub fn notice(&mut self) -> Option<ToCollector> {
        let warning = self.notice.take().filter(|_| self.phase == EndingPhase::Running)?;
        Some(ToCollector::Warn(self.run.clone(), warning))
    }

    /// When the ending starts if nothing moves: at the wall, or an ancestor's hard end.
    pub(super) fn ending_starts(&self) -> u64 {
        let wall = self.run.cell.wall_end().map_or(u64::MAX, Moment::as_nanos);
        wall.min(self.hard_end(u64::MAX))
    }

    /// When to give notice of the present wall, if that is wanted and was not done.
    pub(super) fn wall_warning(&self) -> Option<u64> {
        let end = self.ending_starts();
        let wanted = end != u64::MAX && self.warned_of != end && self.pause.is_none();
        self.run.warn.filter(|_| wanted).map(|before| end.saturating_sub(before))
    }

    /// When to inspect the command before the wall, unless that was done or it is paused.
    pub(super) fn wall_inspection_at(&self) -> Option<u64> {
        let end = self.ending_starts();
        if end == u64::MAX || self.inspected_for[0] == end || self.pause.is_some() {
            return None;
        }
        let length = end.saturating_sub(self.facts.started_at?);
        Some(end - INSPECT_BEFORE_NANOSECONDS.min(length / 10))
    }

    /// Returns the message for an inspection of the command that is due. The collector makes it,
    /// for reading /proc takes a while.
    pub fn inspection(&mut self) -> Option<ToCollector> {
        let is_due = std::mem::take(&mut self.needs_inspection) && self.phase == EndingPhase::Running;
        is_due.then(|| ToCollector::Inspect(self.run.clone()))
    }

    /// The same for a measurement of what it reads and writes. A requested measurement is always
    /// sent: until it is taken, the collector counts as late.
    pub fn measurement(&mut self) -> Option<ToCollector> {
        let is_due = std::mem::take(&mut self.measure) && self.phase == EndingPhase::Running;
        is_due.then(|| ToCollector::Measure(self.run.clone()))
    }
}
