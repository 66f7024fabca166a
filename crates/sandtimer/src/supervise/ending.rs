//! How a run ends: one state machine, one winner, every wait bounded.
//!
//! ```text
//! Starting ─▶ Running ─▶ Grace ─▶ Killed ─▶ dead
//!     └──────────┴─────────┴───────▲  (exit, limit, cancel, infrastructure: whichever seals the deadline cell first)
//! ```
//! Owned by one thread at a time: the one that begins the run, then the enforcer. The caller of
//! [`RunEnding::time`] and friends then asks for [`RunEnding::report`] and
//! [`RunEnding::next_time`]; nothing here waits.

mod death;
mod init_notices;
mod live;
mod overdue;
mod watching;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::process::Signal;
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::wire::order;

use overdue::PendingProof;

use super::run::{Job, Pauser, SharedRun};
use super::run_facts::{Cause, RunFacts};
use super::sentence;
use super::waiting::OwnerEvent;
use crate::model::{Enforcer, LimitKind, RemainingState, Warning};
use crate::time::{Fire, Moment, Stopwatch};

/// How long building a sandbox may take. Infrastructure: always finite.
const SPAWN_LIMIT: u64 = 60_000_000_000;
/// Where no pid namespace ends with init: how long init may sweep before it is asked again. It is
/// never killed: its descendants would become children of the host's first process, and could not
/// be found any more.
const SWEEP_LIMIT: u64 = 100_000_000;
/// How long a job that is ended without its sandbox may take, and init to look after it; then the
/// sandbox is ended.
pub(super) const VACATE_LIMIT: u64 = 100_000_000;
/// Signals that a run gets, where it is not extended after one.
const MAX_SIGNALS: usize = 4;
/// Events of which the owner cannot be notified at once.
const MAX_OWNER_EVENTS: usize = 4;
/// How soon to look again whether a killed group is empty.
const EMPTY_CHECK_NANOSECONDS: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndingPhase {
    Starting,
    Running,
    Grace,
    Killed,
    Dead,
}

/// What the collector knows of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportedState {
    Nothing,
    Pending,
    Unkillable,
    Dead,
}

/// A run that the enforcer watches.
#[derive(Debug)]
pub(crate) struct RunEnding {
    pub run: Arc<SharedRun>,
    pub control_closed: bool,
    /// The time the enforcer's heap already holds for it.
    pub scheduled: Option<u64>,
    facts: RunFacts,
    phase: EndingPhase,
    reported: ReportedState,
    announced: Option<u64>,
    published: bool,
    next_sample: Option<u64>,
    last_activity: u64,
    last_cpu: (u64, u64),
    /// What init's first sample of a live jail had: earlier jobs' use.
    cpu_before: Option<u64>,
    last_resort: Option<u64>,
    /// When to see whether the group is empty, once init is dead and it was not.
    next_empty_check: Option<u64>,
    /// The collector is to be asked to kill what is left one by one.
    kills_each: bool,
    /// The end of the wall, and of the silence, that a look was asked for before.
    inspected_for: [u64; 2],
    /// The collector is to be asked for a look.
    needs_inspection: bool,
    /// The same for a measurement, and when it was last.
    measure: bool,
    measured_at: u64,
    /// Its process is dead, and the collector is to reap it.
    to_reap: bool,
    /// The end of the wall that notice was given of.
    warned_of: u64,
    /// Notice was given of the limit of processor time.
    warned_of_cpu: bool,
    /// The warning that the run itself is to be given.
    notice: Option<Warning>,
    /// Since when it could have written output.
    quiet_since: u64,
    /// Since when it was quiet when notice of that was given.
    warned_of_quiet: u64,
    /// The end of the wall that an interpreter was interrupted before.
    interrupted_before: u64,
    /// Going back to a checkpoint was tried.
    last_resort_is_jail: bool,
    overdue: PendingProof,
    /// When it was killed in a harder way than before.
    harder_kill_at: u64,
    pause: Option<Stopwatch>,
    /// The holders of its pause: bits of [`Pauser`].
    paused_by: u8,
    /// Processors of the machine; 1 without a limit of processor time, which alone needs the
    /// number.
    processors: u64,
    /// Events that the owner did not get because another thread had the lock.
    owner_events: Vec<OwnerEvent>,
    /// Tasks wait for the events that the owner got.
    has_tasks_to_wake: bool,
}

impl RunEnding {
    pub fn new(run: Arc<SharedRun>, now: u64) -> Self {
        let begun_at = run.job.as_ref().map(|job| job.begun_at);
        // To count them takes reading files, and only a limit of processor time needs the number.
        let has_cpu_limit = run.effective.get(LimitKind::Cpu).is_some();
        let processors = if has_cpu_limit { sandtimer_os::probe::processors() as u64 } else { 1 };
        let mut ending = RunEnding {
            run,
            control_closed: false,
            scheduled: None,
            // The enforcer is not to allocate when it sends a signal.
            facts: RunFacts { signals: Vec::with_capacity(MAX_SIGNALS), ..RunFacts::default() },
            phase: EndingPhase::Starting,
            reported: ReportedState::Nothing,
            announced: None,
            published: false,
            next_sample: None,
            last_activity: now,
            last_cpu: (now, 0),
            cpu_before: None,
            last_resort: None,
            next_empty_check: None,
            kills_each: false,
            inspected_for: [0; 2],
            needs_inspection: false,
            measure: false,
            measured_at: 0,
            to_reap: false,
            warned_of: 0,
            warned_of_cpu: false,
            notice: None,
            quiet_since: now,
            warned_of_quiet: 0,
            interrupted_before: 0,
            last_resort_is_jail: false,
            overdue: PendingProof::default(),
            harder_kill_at: 0,
            pause: None,
            paused_by: 0,
            processors,
            owner_events: Vec::with_capacity(MAX_OWNER_EVENTS),
            has_tasks_to_wake: false,
        };
        if let Some(at) = begun_at {
            ending.started(at);
        }
        ending
    }

    /// Whether it counts as unkillable: nothing waits for it any more.
    pub fn is_unkillable(&self) -> bool {
        self.facts.overdue == Some(true)
    }

    /// Whether it was killed and its death is not confirmed yet.
    pub fn is_dying(&self) -> bool {
        self.phase == EndingPhase::Killed
            && self.next_empty_check.is_none()
            && self.facts.overdue != Some(true)
    }

    pub fn is_dead(&self) -> bool {
        self.phase == EndingPhase::Dead
    }

    fn limit_of(&self, kind: LimitKind) -> Option<u64> {
        self.run.effective.get(kind).map(|effect| effect.value)
    }

    fn hard_end(&self, otherwise: u64) -> u64 {
        self.run.cell.hard_end().map_or(otherwise, Moment::as_nanos)
    }

    /// The next moment something is due.
    pub fn next_time(&self) -> Option<u64> {
        let cell = &self.run.cell;
        match self.phase {
            EndingPhase::Starting => {
                let own = self.run.spawned_at + SPAWN_LIMIT;
                Some(cell.hard_end().map_or(own, |bound| own.min(bound.as_nanos())))
            }
            EndingPhase::Running if self.pause.is_some() => cell.hard_end().map(Moment::as_nanos),
            EndingPhase::Running => {
                let wall = cell.wall_end().map(Moment::as_nanos);
                let hard = cell.hard_end().map(Moment::as_nanos);
                [
                    wall,
                    hard,
                    self.next_sample,
                    self.wall_inspection_at(),
                    self.wall_warning(),
                    self.interrupt_at(),
                ]
                .into_iter()
                .flatten()
                .min()
            }
            EndingPhase::Grace => Some(self.facts.due_at),
            EndingPhase::Killed => {
                let is_waited_for = matches!(self.reported, ReportedState::Nothing | ReportedState::Pending);
                let proof = is_waited_for.then(|| self.overdue.next(self.last_kill()));
                [proof, self.last_resort, self.next_empty_check].into_iter().flatten().min()
            }
            EndingPhase::Dead => None,
        }
    }

    /// Its time has come.
    pub fn time(&mut self, now: u64) {
        self.scheduled = None;
        match self.phase {
            EndingPhase::Starting => self.time_starting(now),
            EndingPhase::Running => self.time_running(now),
            EndingPhase::Grace if now >= self.facts.due_at => self.kill(now),
            EndingPhase::Killed => self.time_killed(now),
            _ => {}
        }
    }

    fn time_starting(&mut self, now: u64) {
        if self.run.cell.hard_end().is_some_and(|end| end.as_nanos() <= now) && self.run.cell.seal() {
            self.facts.due_at = self.hard_end(now);
            self.decide(Cause::Limit(LimitKind::Wall), Enforcer::Enforcer, now);
            self.kill(now);
        } else if now >= self.run.spawned_at + SPAWN_LIMIT {
            self.infrastructure("the sandbox was not ready within 60 s".to_owned(), now);
        }
    }

    fn time_running(&mut self, now: u64) {
        if self.run.cell.is_fired() {
            // Its answer was taken, and its end was not handled in time.
            self.answered(now);
            if self.phase == EndingPhase::Running {
                self.infrastructure("its deadline was sealed without a cause".to_owned(), now);
            }
            return;
        }
        let bound = self.hard_end(u64::MAX);
        if let Fire::Fired(_) = self.run.cell.fire(Moment::from_nanos(now)) {
            self.end_by_wall(bound, now);
        } else if bound <= now && self.run.cell.seal() {
            // An ancestor's end comes before the own wall.
            self.end_by_wall(bound, now);
        } else {
            if self.wall_inspection_at().is_some_and(|at| at <= now) {
                self.inspected_for[0] = self.ending_starts();
                self.needs_inspection = true;
                self.sample_before_wall();
            }
            if self.interrupt_at().is_some_and(|at| at <= now) {
                self.interrupt(now);
            }
            if self.wall_warning().is_some_and(|at| at <= now) {
                self.warned_of = self.ending_starts();
                let left_ms = (self.warned_of - now) / 1_000_000;
                self.warn(Warning::Wall { left_ms });
            }
            if self.next_sample.is_some_and(|at| at <= now) {
                self.sample(now);
            }
        }
    }

    fn end_by_wall(&mut self, hard: u64, now: u64) {
        self.facts.due_at = hard;
        self.decide(Cause::Limit(LimitKind::Wall), Enforcer::Enforcer, now);
        self.kill_after_grace(now);
    }

    /// SIGTERM to all if there is a grace left, the kill when it has ended.
    fn kill_after_grace(&mut self, now: u64) {
        if self.facts.due_at <= now {
            self.kill(now);
            return;
        }
        self.phase = EndingPhase::Grace;
        self.signal(Signal::TERM, "SIGTERM", now);
    }

    fn signal(&mut self, signal: Signal, name: &'static str, now: u64) {
        // An init that does not read is killed when the grace has passed.
        let _ = process::send_command(&*self.run.control, order::SIGNAL_ALL, signal.as_raw(), 0);
        self.facts.signals.push((name, now));
    }

    /// When something was last done to end it.
    fn last_kill(&self) -> u64 {
        self.harder_kill_at.max(self.facts.killed_at.unwrap_or(0))
    }

    fn time_killed(&mut self, now: u64) {
        if self.last_resort.is_some_and(|at| at <= now) && self.run.live().is_some() {
            self.last_resort = None;
            self.harder(now);
        } else if self.last_resort.is_some_and(|at| at <= now) && self.waits_for_sweep() {
            self.ask_for_sweep(now);
        } else if self.last_resort.is_some_and(|at| at <= now) {
            self.last_resort = None;
            self.harder_kill_at = now;
            let _ = process::kill(std::os::fd::AsFd::as_fd(&self.run.pidfd));
        }
        if self.next_empty_check.is_some_and(|at| at <= now) {
            self.confirm_death(now);
        }
        if self.phase == EndingPhase::Killed && self.facts.overdue != Some(true) {
            self.facts.overdue = self.overdue.check(self.last_kill(), now);
            if self.facts.overdue == Some(true) {
                self.facts.state = self.run.live().map(|_| RemainingState::Lost);
            }
        }
    }

    /// Publishes the verdict to all that wait for it; once.
    fn publish(&mut self) {
        if !self.published {
            self.published = true;
            self.facts.verdict_at = monotonic_nanoseconds();
            let ending = self.facts.cause.as_ref().and_then(sentence::ending_of);
            self.notify_owner(OwnerEvent::Verdict { at: self.facts.verdict_at, ending });
            if let Some(job) = &self.run.job {
                job.hang_up();
            }
        }
    }

    /// The first cause is the cause.
    fn decide(&mut self, cause: Cause, by: Enforcer, now: u64) {
        debug_assert!(self.facts.cause.is_none(), "a run has one cause");
        self.facts.cause = Some(cause);
        self.facts.enforced_by = Some(by);
        self.facts.verdict_at = now;
        if self.facts.due_at == 0 {
            self.facts.due_at = now;
        }
        if let Some(mut pause) = self.pause.take()
            && let Ok(paused) = pause.resume(Moment::from_nanos(now))
        {
            self.facts.paused += paused;
            // A frozen process could not handle the signal that announces the kill.
            self.run.slot.freeze(false);
        }
    }

    /// Ends the whole tree now.
    fn kill(&mut self, now: u64) {
        if matches!(self.phase, EndingPhase::Killed | EndingPhase::Dead) {
            return;
        }
        if self.facts.cause.as_ref().is_some_and(|cause| !matches!(cause, Cause::Exit | Cause::Answer { .. }))
        {
            if self.facts.signals.is_empty() || self.phase == EndingPhase::Grace {
                self.facts.signals.push(("SIGKILL", now));
            }
            // Before the kill: that takes milliseconds with thousands of threads, and the verdict
            // does not change.
            self.publish();
        }
        // Where memory is short this thread may have waited for some since.
        let now = monotonic_nanoseconds();
        if self.roll_back(now) {
            return;
        }
        let run = &self.run;
        if matches!(self.facts.cause, Some(Cause::Answer { .. })) {
            run.kill_answered();
        }
        let killed = run.job.as_ref().map_or(0, |job| job.killed.load(Ordering::Acquire));
        if killed > 0 {
            self.facts.killed = killed - 1;
            self.facts.leftovers = run.job.as_ref().map_or(0, |job| job.leftovers.load(Ordering::Relaxed));
            self.facts.killed_at = Some(now);
            self.phase = EndingPhase::Killed;
            self.last_resort = self.leaves().then_some(now + VACATE_LIMIT);
            return;
        }
        // Without a controller that counts them, the last sample; the command itself is known to be
        // one.
        let counted = run.slot.processes_now().map(|count| count.saturating_sub(1));
        self.facts.killed = counted.unwrap_or(self.facts.sampled_processes.max(1));
        if matches!(self.facts.cause, Some(Cause::Exit | Cause::Answer { .. })) {
            self.facts.leftovers = counted.map_or(0, |tasks| run.leftovers(tasks));
        }
        let by_cgroup = run.slot.kill_all();
        if !by_cgroup && run.sweeps_itself {
            let ordered = process::send_command(&*run.control, order::END, 0, 0);
            self.last_resort = Some(if ordered.is_ok() { now + SWEEP_LIMIT } else { now });
        } else if !by_cgroup {
            let _ = process::kill(std::os::fd::AsFd::as_fd(&run.pidfd));
        }
        self.facts.killed_at = Some(now);
        self.phase = EndingPhase::Killed;
    }

    /// Ends the run because a limit other than wall is passed.
    pub fn limit(&mut self, kind: LimitKind, now: u64) {
        if matches!(self.phase, EndingPhase::Starting | EndingPhase::Running) && self.run.cell.seal() {
            self.facts.due_at = now.saturating_add(self.run.grace);
            self.decide(Cause::Limit(kind), Enforcer::Enforcer, now);
            self.kill_after_grace(now);
        }
    }

    /// The caller wants it ended. Takes the reason if that is the cause.
    pub fn cancel(&mut self, reason: &mut String, now: u64) {
        match self.phase {
            EndingPhase::Starting | EndingPhase::Running if self.run.cell.seal() => {
                self.facts.due_at = now.saturating_add(self.run.grace);
                self.decide(Cause::Cancel(std::mem::take(reason)), Enforcer::Enforcer, now);
                self.kill_after_grace(now);
            }
            // A second cancel does not wait for the grace.
            EndingPhase::Grace => self.kill(now),
            _ => {}
        }
    }

    /// Ends it because Sandtimer cannot continue.
    pub fn infrastructure(&mut self, reason: String, now: u64) {
        if self.run.cell.seal() {
            self.decide(Cause::Infrastructure(reason), Enforcer::Enforcer, now);
        }
        self.kill(now);
    }

    /// Stops or continues the processes and the run's own clocks.
    pub fn pause(&mut self, paused: bool, by: Pauser, now: u64) {
        if paused {
            self.paused_by |= by as u8;
        } else {
            self.paused_by &= !(by as u8);
        }
        self.follow_pausers(now);
    }

    /// Pauses it if it is to be, or continues it. A run that has not started is paused once it has.
    pub(super) fn follow_pausers(&mut self, now: u64) {
        let paused = self.paused_by != 0;
        if self.phase != EndingPhase::Running {
            return;
        }
        // Also if nothing has changed: its sandbox continues all that is in it.
        if !self.run.slot.freeze(paused) {
            // Without a freezer: what init can reach is stopped by signal, which the run's
            // processes may see.
            let signal = if paused { Signal::STOP } else { Signal::CONT };
            let _ = process::send_command(&*self.run.control, order::SIGNAL_ALL, signal.as_raw(), 0);
        }
        if paused == self.pause.is_some() {
            return;
        }
        if paused {
            let mut watch = Stopwatch::started(Moment::from_nanos(now));
            // A fresh watch is never paused already.
            let _ = watch.pause(Moment::from_nanos(now));
            self.pause = Some(watch);
        } else if let Some(mut watch) = self.pause.take()
            && let Ok(length) = watch.resume(Moment::from_nanos(now))
        {
            self.facts.paused += length;
            self.last_activity = now;
            self.quiet_since = now;
            self.last_cpu.0 = now;
        }
    }

    /// Returns the hard end, once each time it is new, and sends it to init; the caller sends it to
    /// the watchdog.
    pub fn unannounced_deadline(&mut self) -> Option<u64> {
        if let Some(hard) = self.roll_back_deadline() {
            // Only for the watchdog: init is rolling back.
            let is_new = self.announced.replace(hard) != Some(hard);
            return is_new.then_some(hard);
        }
        if !matches!(self.phase, EndingPhase::Starting | EndingPhase::Running | EndingPhase::Grace) {
            return None;
        }
        let hard = match self.phase {
            EndingPhase::Grace => self.facts.due_at,
            _ => self.run.cell.hard_end().map_or(u64::MAX, Moment::as_nanos),
        };
        if self.announced == Some(hard) {
            return None;
        }
        if self.phase == EndingPhase::Starting && hard == u64::MAX {
            return None;
        }
        // Init works out the command's own end by itself; what it cannot know is an ancestor's
        // bound, and changes. Before the start it must not take a bound for the end.
        let control = &self.run.control;
        let _ = if self.phase == EndingPhase::Starting {
            control.end_no_later_than(hard)
        } else {
            control.end_by(hard)
        };
        self.announced = Some(hard);
        Some(self.run.watched_until(hard))
    }

    /// When all of a job must be dead; none for what has not begun.
    pub fn begun_until(&self) -> Option<u64> {
        let hard = || self.run.cell.hard_end().map_or(u64::MAX, Moment::as_nanos);
        (self.phase == EndingPhase::Running).then(hard)
    }

    /// Init and the watchdog's row have this end already.
    pub fn note_announced(&mut self, hard: u64) {
        self.announced = Some(hard);
    }

    /// The watchdog killed it, as its row shows.
    pub fn ended_by_watchdog(&mut self, now: u64) {
        if self.run.cell.seal() {
            self.facts.due_at = self.hard_end(now);
            self.decide(Cause::Limit(LimitKind::Wall), Enforcer::Watchdog, now);
            self.publish();
            // It may not have had the means.
            self.run.slot.kill_all();
            self.facts.killed_at = Some(now);
            self.phase = EndingPhase::Killed;
        }
    }

    /// The watchdog has killed its sandbox, or is about to: it is not used again, whatever init has
    /// reported.
    pub fn killed_by_watchdog(&self) {
        drop(self.run.job.as_ref().and_then(Job::take_reusable_jail));
    }

    /// Notifies the owner of an event, without waiting: if that fails, [`RunEnding::owner_events`]
    /// has the event.
    fn notify_owner(&mut self, event: OwnerEvent) {
        match self.run.waiting.try_note(event) {
            Ok(has_tasks) => self.has_tasks_to_wake |= has_tasks,
            Err(event) => self.owner_events.push(event),
        }
    }

    /// Notifies the owner of the remaining events here, on a thread that may wait.
    pub fn notify_owner_of_rest(&mut self) {
        if let Some(events) = self.unsent_owner_events() {
            self.run.waiting.note(events);
        }
    }

    pub(super) fn unsent_owner_events(&mut self) -> Option<Vec<OwnerEvent>> {
        let has_tasks = std::mem::take(&mut self.has_tasks_to_wake);
        (has_tasks || !self.owner_events.is_empty()).then(|| std::mem::take(&mut self.owner_events))
    }

    /// Returns what the collector does not know yet, with the facts.
    pub(super) fn take_report(&mut self) -> Option<(ReportedState, Box<RunFacts>)> {
        let reported = match (self.phase, self.facts.overdue) {
            (EndingPhase::Dead, _) => ReportedState::Dead,
            (_, Some(true)) => ReportedState::Unkillable,
            (_, Some(false)) => ReportedState::Pending,
            _ => return None,
        };
        if reported == self.reported {
            return None;
        }
        self.reported = reported;
        Some((reported, Box::new(self.facts.clone())))
    }
}
