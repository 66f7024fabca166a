//! How a run ends: one state machine, one winner, every wait bounded.
//!
//! ```text
//! Starting ─▶ Running ─▶ Grace ─▶ Killed ─▶ dead
//!     └──────────┴─────────┴───────▲  (exit, limit, cancel, infrastructure: whichever seals the deadline cell first)
//! ```
//! Owned by one thread at a time: whoever begins the run, then the enforcer. The caller of [`Ending::time`] and friends then asks for
//! [`Ending::report`] and [`Ending::next_time`]; nothing here waits.

mod live;
mod watching;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::process::Signal;
use sandtimer_os::process;
use sandtimer_os::watchdog::SharedTable;
use sandtimer_os::wire::{Notice, notice, order};

use super::collector::ToCollector;
use super::run::{Cause, Exit, Facts, FailedStep, Job, Running, group_is_gone};
use super::sentence;
use crate::model::{Enforcer, LimitKind, State, Warning};
use crate::time::{Fire, Moment, Stopwatch};

/// How long building a sandbox may take. Infrastructure: always finite.
const SPAWN_LIMIT: u64 = 60_000_000_000;
/// How long the outcome waits for the proof of death.
const PROOF_LIMIT: u64 = 250_000_000;
/// After this long without death a slot counts as unkillable and is not used again.
const UNKILLABLE_AFTER: u64 = 2_000_000_000;
/// Where no pid namespace dies with init: how long init may sweep before it is killed itself.
const SWEEP_LIMIT: u64 = 100_000_000;
/// How long a job that is ended without its sandbox may take, and init to look after it; then the sandbox is ended.
const VACATE_LIMIT: u64 = 100_000_000;
/// How soon to look again whether a killed group is empty.
const LOOK_AGAIN: u64 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Grace,
    Killed,
    Dead,
}

/// What the collector has been told of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Pending,
    Unkillable,
    Dead,
}

/// A run under the enforcer's eyes.
#[derive(Debug)]
pub(crate) struct Ending {
    pub run: Arc<Running>,
    pub control_closed: bool,
    /// The time the enforcer's heap already holds for it.
    pub scheduled: Option<u64>,
    facts: Facts,
    phase: Phase,
    told: Told,
    announced: Option<u64>,
    published: bool,
    next_sample: Option<u64>,
    last_activity: u64,
    last_cpu: (u64, u64),
    last_resort: Option<u64>,
    /// When to see whether the group is empty, once init is dead and it was not.
    next_look: Option<u64>,
    /// The end of the wall, and of the silence, that a look was asked for before.
    looked_for: [u64; 2],
    /// The collector is to be asked for a look.
    look: bool,
    /// The same for a measurement, and when it was last.
    measure: bool,
    measured_at: u64,
    /// Its process is dead, and the collector is to reap it.
    to_reap: bool,
    /// The end of the wall that notice was given of.
    warned_of: u64,
    /// Notice was given of the limit of processor time.
    warned_of_cpu: bool,
    /// Of what the run itself is to be told.
    notice: Option<Warning>,
    /// Since when it could have written output.
    quiet_since: u64,
    /// Since when it was quiet when notice of that was given.
    warned_of_quiet: u64,
    /// The end of the wall that an interpreter was interrupted before.
    interrupted_before: u64,
    /// Going back to a checkpoint was tried.
    last_resort_is_sandbox: bool,
    pause: Option<Stopwatch>,
    processors: u64,
}

impl Ending {
    pub fn new(run: Arc<Running>, now: u64) -> Self {
        let begun_at = run.job.as_ref().map(|job| job.begun_at);
        let mut ending = Ending {
            run,
            control_closed: false,
            scheduled: None,
            facts: Facts::default(),
            phase: Phase::Starting,
            told: Told::Nothing,
            announced: None,
            published: false,
            next_sample: None,
            last_activity: now,
            last_cpu: (now, 0),
            last_resort: None,
            next_look: None,
            looked_for: [0; 2],
            look: false,
            measure: false,
            measured_at: 0,
            to_reap: false,
            warned_of: 0,
            warned_of_cpu: false,
            notice: None,
            quiet_since: now,
            warned_of_quiet: 0,
            interrupted_before: 0,
            last_resort_is_sandbox: false,
            pause: None,
            processors: sandtimer_os::probe::processors() as u64,
        };
        if let Some(at) = begun_at {
            ending.started(at);
        }
        ending
    }

    /// Whether it counts as unkillable: nothing waits for it any more.
    pub fn is_given_up(&self) -> bool {
        self.facts.overdue == Some(true)
    }

    pub fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }

    fn limit_of(&self, kind: LimitKind) -> Option<u64> {
        self.run.effective.get(kind).map(|effect| effect.value)
    }

    /// Reads everything init has said so far.
    pub fn hear(&mut self, now: u64) {
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
                    self.phase = Phase::Killed;
                }
            }
            notice::FIRED if self.run.cell.seal() => {
                self.facts.due_at = self.hard_end(now);
                self.decide(Cause::Limit(LimitKind::Wall), Enforcer::Init, now);
                self.publish();
                // Of a live sandbox the notice behind this one counts what was killed.
                self.facts.killed = if self.run.live().is_some() { 0 } else { notice.b };
                self.facts.killed_at = Some(now);
                self.phase = Phase::Killed;
            }
            notice::SAMPLE => self.sampled(notice, now),
            notice::VACATED => self.vacated(notice.a == 1, now),
            notice::SWEPT => {
                self.facts.swept = Some(notice.a);
                self.facts.killed += notice.b;
                self.swept(now);
            }
            _ => {}
        }
    }

    /// The command's process ended; whether that is the cause of the run's end.
    fn exited(&mut self, exit: Exit, now: u64) -> bool {
        self.facts.exit = Some(exit);
        // It was seen to end before the deadline was, or it was not: this is where one of them wins.
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
            // Init says how it ended.
            return;
        }
        // Where a thread of it is still on its way out, the kernel spins in waitid(2) until that has run, which it cannot while
        // this thread, of a higher priority, has its processor.
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
                // Reaped by somebody else.
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
        // By itself, or in its grace: there is nothing left to wait for.
        self.kill(now);
    }

    /// The job answered. Whoever waited for it took the answer, and sealed the deadline's cell before; or came too late.
    pub fn answered(&mut self, now: u64) {
        if let Some(cause) = self.run.job.as_ref().and_then(|job| job.answer())
            && self.facts.cause.is_none()
        {
            if self.run.live().is_some() {
                self.goes_on(cause, now);
                return;
            }
            self.decide(cause, Enforcer::Kernel, now);
            self.publish();
            self.kill(now);
        } else if self.phase == Phase::Grace {
            self.kill(now);
        }
    }

    fn hard_end(&self, otherwise: u64) -> u64 {
        self.run.cell.hard_end().map_or(otherwise, Moment::as_nanos)
    }

    /// The command's clock starts here: building the sandbox is not on its bill.
    fn started(&mut self, at: u64) {
        if self.phase != Phase::Starting {
            return;
        }
        self.phase = Phase::Running;
        self.facts.started_at = Some(at);
        self.last_activity = at;
        self.quiet_since = at;
        self.last_cpu = (at, 0);
        self.run.started_at.store(at, Ordering::Release);
        // Whoever extended the run before it started moved an end that was counted from its submission.
        let early = self.run.cell.wall_end().map(|end| end.as_nanos().saturating_sub(self.run.submitted_at));
        let own_end = early.or(self.run.wall).map(|wall| Moment::from_nanos(at.saturating_add(wall)));
        // Too late only if an ancestor's deadline has fired meanwhile; then that one stands.
        let _ = self.run.cell.begin(Moment::from_nanos(at), own_end);
        self.next_sample = self.sample_interval().map(|interval| at + interval);
        self.run.waiting.started();
    }

    /// The next moment something is due.
    pub fn next_time(&self) -> Option<u64> {
        let cell = &self.run.cell;
        match self.phase {
            Phase::Starting => {
                let own = self.run.spawned_at + SPAWN_LIMIT;
                Some(cell.hard_end().map_or(own, |bound| own.min(bound.as_nanos())))
            }
            Phase::Running if self.pause.is_some() => cell.hard_end().map(Moment::as_nanos),
            Phase::Running => {
                let wall = cell.wall_end().map(Moment::as_nanos);
                let hard = cell.hard_end().map(Moment::as_nanos);
                [wall, hard, self.next_sample, self.wall_look(), self.wall_warning(), self.interrupt_at()]
                    .into_iter()
                    .flatten()
                    .min()
            }
            Phase::Grace => Some(self.facts.due_at),
            Phase::Killed => {
                let killed = self.facts.killed_at.unwrap_or(0);
                let proof = match self.told {
                    Told::Nothing => Some(killed + PROOF_LIMIT),
                    Told::Pending => Some(killed + UNKILLABLE_AFTER),
                    _ => None,
                };
                [proof, self.last_resort, self.next_look].into_iter().flatten().min()
            }
            Phase::Dead => None,
        }
    }

    /// Its time has come.
    pub fn time(&mut self, now: u64) {
        self.scheduled = None;
        match self.phase {
            Phase::Starting => self.time_starting(now),
            Phase::Running => self.time_running(now),
            Phase::Grace if now >= self.facts.due_at => self.kill(now),
            Phase::Killed => self.time_killed(now),
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
            // Its answer was taken, and nobody has come to end it yet.
            self.answered(now);
            if self.phase == Phase::Running {
                self.infrastructure("its deadline was sealed, and nobody has said why".to_owned(), now);
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
            if self.wall_look().is_some_and(|at| at <= now) {
                self.looked_for[0] = self.ending_starts();
                self.look = true;
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

    /// SIGTERM to all if there is a grace left, the kill when it is over.
    fn kill_after_grace(&mut self, now: u64) {
        if self.facts.due_at <= now {
            self.kill(now);
            return;
        }
        self.phase = Phase::Grace;
        self.signal(Signal::TERM, "SIGTERM", now);
    }

    fn signal(&mut self, signal: Signal, name: &'static str, now: u64) {
        // An init that does not listen is killed when the grace is over.
        let _ = process::order(&*self.run.control, order::SIGNAL_ALL, signal.as_raw(), 0);
        self.facts.signals.push((name, now));
    }

    fn time_killed(&mut self, now: u64) {
        if self.last_resort.is_some_and(|at| at <= now) && self.run.live().is_some() {
            self.last_resort = None;
            self.harder(now);
        } else if self.last_resort.is_some_and(|at| at <= now) {
            self.last_resort = None;
            let _ = process::kill(std::os::fd::AsFd::as_fd(&self.run.pidfd));
        }
        if self.next_look.is_some_and(|at| at <= now) {
            self.buried(now);
        }
        let since = now.saturating_sub(self.facts.killed_at.unwrap_or(now));
        if since >= UNKILLABLE_AFTER {
            self.facts.overdue = Some(true);
            self.facts.state = self.run.live().map(|_| State::Lost);
        } else if since >= PROOF_LIMIT {
            self.facts.overdue = Some(false);
        }
    }

    /// The verdict is there for whoever waits for it; once.
    fn publish(&mut self) {
        if !self.published {
            self.published = true;
            self.facts.verdict_at = sandtimer_os::clock::monotonic_nanoseconds();
            let ending = self.facts.cause.as_ref().and_then(sentence::ending_of);
            self.run.waiting.verdict(self.facts.verdict_at, ending);
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
            // A frozen process could not hear the signal that announces the kill.
            self.run.slot.freeze(false);
        }
    }

    /// Ends the whole tree now.
    fn kill(&mut self, now: u64) {
        if matches!(self.phase, Phase::Killed | Phase::Dead) {
            return;
        }
        if self.facts.cause.as_ref().is_some_and(|cause| !matches!(cause, Cause::Exit | Cause::Answer { .. }))
        {
            if self.facts.signals.is_empty() || self.phase == Phase::Grace {
                self.facts.signals.push(("SIGKILL", now));
            }
            // Before the kill: that takes milliseconds with thousands of threads, and the verdict does not change.
            self.publish();
        }
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
            self.facts.killed_at = Some(now);
            self.phase = Phase::Killed;
            self.last_resort = self.leaves().then_some(now + VACATE_LIMIT);
            return;
        }
        // Without a controller that counts them, the last sample; the command itself is known to be one.
        let counted = run.slot.processes_now().map(|count| count.saturating_sub(1));
        self.facts.killed = counted.unwrap_or(self.facts.sampled_processes.max(1));
        let by_cgroup = run.slot.kill_all();
        if !by_cgroup && run.sweeps_itself {
            let ordered = process::order(&*run.control, order::END, 0, 0);
            self.last_resort = Some(if ordered.is_ok() { now + SWEEP_LIMIT } else { now });
        } else if !by_cgroup {
            let _ = process::kill(std::os::fd::AsFd::as_fd(&run.pidfd));
        }
        self.facts.killed_at = Some(now);
        self.phase = Phase::Killed;
    }

    /// Ends the run because a limit other than wall is passed.
    pub fn limit(&mut self, kind: LimitKind, now: u64) {
        if matches!(self.phase, Phase::Starting | Phase::Running) && self.run.cell.seal() {
            self.facts.due_at = now.saturating_add(self.run.grace);
            self.decide(Cause::Limit(kind), Enforcer::Enforcer, now);
            self.kill_after_grace(now);
        }
    }

    /// The caller wants it ended.
    pub fn cancel(&mut self, reason: String, now: u64) {
        match self.phase {
            Phase::Starting | Phase::Running if self.run.cell.seal() => {
                self.facts.due_at = now.saturating_add(self.run.grace);
                self.decide(Cause::Cancel(reason), Enforcer::Enforcer, now);
                self.kill_after_grace(now);
            }
            // A second cancel does not wait for the grace.
            Phase::Grace => self.kill(now),
            _ => {}
        }
    }

    /// Sandtimer cannot go on with it.
    pub fn infrastructure(&mut self, reason: String, now: u64) {
        if self.run.cell.seal() {
            self.decide(Cause::Infrastructure(reason), Enforcer::Enforcer, now);
        }
        self.kill(now);
    }

    /// Stops the processes and the run's own clocks, or lets both go on.
    pub fn pause(&mut self, paused: bool, now: u64) {
        if self.phase != Phase::Running || paused == self.pause.is_some() {
            return;
        }
        if !self.run.slot.freeze(paused) {
            // Without a freezer: what init can reach is stopped by signal, which the run's processes may see.
            let signal = if paused { Signal::STOP } else { Signal::CONT };
            let _ = process::order(&*self.run.control, order::SIGNAL_ALL, signal.as_raw(), 0);
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

    /// The hard end, once each time it is new; init is told here, the watchdog by the caller.
    pub fn unannounced_deadline(&mut self) -> Option<u64> {
        if let Some(hard) = self.patience() {
            // The watchdog's alone: init is at it.
            let is_new = self.announced.replace(hard) != Some(hard);
            return is_new.then_some(hard);
        }
        if !matches!(self.phase, Phase::Starting | Phase::Running | Phase::Grace) {
            return None;
        }
        let hard = match self.phase {
            Phase::Grace => self.facts.due_at,
            _ => self.run.cell.hard_end().map_or(u64::MAX, Moment::as_nanos),
        };
        if self.announced == Some(hard) {
            return None;
        }
        if self.phase == Phase::Starting && hard == u64::MAX {
            return None;
        }
        // Init works out the command's own end by itself; what it cannot know is an ancestor's bound, and changes. Before
        // the start it must not take a bound for the end.
        let bound_only = i32::from(self.phase == Phase::Starting);
        let _ = process::order(&*self.run.control, order::DEADLINE, bound_only, hard);
        self.announced = Some(hard);
        Some(self.run.watched_until(hard))
    }

    /// When all of a job must be dead; none for what has not begun.
    pub fn begun_until(&self) -> Option<u64> {
        let hard = || self.run.cell.hard_end().map_or(u64::MAX, Moment::as_nanos);
        (self.phase == Phase::Running).then(hard)
    }

    /// Init and the watchdog's row have this end already.
    pub fn note_announced(&mut self, hard: u64) {
        self.announced = Some(hard);
    }

    /// The watchdog killed it: its row says so.
    pub fn ended_by_watchdog(&mut self, now: u64) {
        if self.run.cell.seal() {
            self.facts.due_at = self.hard_end(now);
            self.decide(Cause::Limit(LimitKind::Wall), Enforcer::Watchdog, now);
            self.publish();
            // It may not have been told how.
            self.run.slot.kill_all();
            self.facts.killed_at = Some(now);
            self.phase = Phase::Killed;
        }
    }

    /// The watchdog has killed its sandbox, or is about to: that is nobody's any more, whatever init has said of it.
    pub fn killed_by_watchdog(&self) {
        drop(self.run.job.as_ref().and_then(Job::take_vacancy));
    }

    /// Init is dead, and with it its namespace.
    pub fn died(&mut self, table: &SharedTable, now: u64) {
        if self.phase == Phase::Dead || !process::is_dead(std::os::fd::AsFd::as_fd(&self.run.pidfd)) {
            return;
        }
        if self.run.live().is_none() {
            process::reap(std::os::fd::AsFd::as_fd(&self.run.pidfd));
        }
        // Its own event may come behind this one.
        self.job_ended(now);
        self.sandbox_is_gone();
        if self.facts.cause.is_none() {
            self.explain_death(table, now);
        }
        if self.facts.cause != Some(Cause::Exit) {
            self.publish();
        }
        self.facts.killed_at.get_or_insert(now);
        self.buried(now);
    }

    /// Init is dead. So is all that was in its pid namespace; elsewhere the group, or init's own last word, must say so.
    fn buried(&mut self, now: u64) {
        let run = &self.run;
        let grouped = run.slot.unified().is_some() && !group_is_gone(&run.slot);
        let dead =
            if grouped { run.slot.is_empty() } else { !run.sweeps_itself || self.facts.swept == Some(0) };
        self.next_look = None;
        if dead {
            self.facts.dead_at = Some(now);
            self.phase = Phase::Dead;
        } else if grouped {
            run.slot.kill_all();
            self.phase = Phase::Killed;
            self.next_look = Some(now + LOOK_AGAIN);
        } else {
            // Its orphans cannot be found any more. Nothing will ever prove their death.
            self.phase = Phase::Killed;
            self.facts.overdue = Some(true);
        }
    }

    /// Its sandbox is to outlive it.
    fn leaves(&self) -> bool {
        self.run.job.as_ref().is_some_and(Job::leaves)
    }

    /// The job that leaves its sandbox is dead: init is asked whether anything else is there.
    fn vacate(&mut self, now: u64) {
        if self.phase == Phase::Killed && self.leaves() {
            self.last_resort = Some(now + VACATE_LIMIT);
            if process::order(&*self.run.control, order::VACATE, 0, 0).is_err() {
                self.run.slot.kill_all();
            }
        }
    }

    /// Init has looked at what the job has left.
    fn vacated(&mut self, vacant: bool, now: u64) {
        // Without a time by which this is to be here the sandbox has been killed meanwhile.
        if self.phase != Phase::Killed || !self.leaves() || self.last_resort.is_none() {
            return;
        }
        if !vacant || self.facts.cause.is_none() {
            self.run.slot.kill_all();
            return;
        }
        self.last_resort = None;
        self.facts.vacant = true;
        self.facts.dead_at = Some(now);
        self.phase = Phase::Dead;
    }

    /// It died and nobody here did it.
    fn explain_death(&mut self, table: &SharedTable, now: u64) {
        let taken = !self.run.cell.seal();
        if taken && let Some(cause) = self.run.job.as_ref().and_then(|job| job.answer()) {
            self.decide(cause, Enforcer::Kernel, now);
            return;
        }
        if table.fired(self.run.row) {
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
    fn failed_step(&self) -> Option<String> {
        let step = self.facts.failed_steps.iter().find(|step| step.required)?;
        let name = self.run.step_names.get(step.number as usize).copied().unwrap_or("start");
        let error = std::io::Error::from_raw_os_error(step.errno);
        Some(format!("the sandbox could not be built: {name} (step {}): {error}", step.number))
    }

    /// What the collector has not heard yet.
    pub fn report(&mut self) -> Option<ToCollector> {
        let (told, message) = match (self.phase, self.facts.overdue) {
            (Phase::Dead, _) => {
                (Told::Dead, ToCollector::Dead { run: self.run.clone(), facts: Box::new(self.facts.clone()) })
            }
            (_, Some(unkillable)) => (
                if unkillable { Told::Unkillable } else { Told::Pending },
                ToCollector::Overdue { run: self.run.clone(), facts: Box::new(self.facts.clone()) },
            ),
            _ => return None,
        };
        if told == self.told {
            return None;
        }
        self.told = told;
        Some(message)
    }
}
