//! What bounds the life of a sandbox, and its pauses.
//!
//! ```text
//! used ⇄ unused, for less than `idle` ─▶ ended: as deletion does it, and its id answers with the limit
//!   └──────── `wall` is over ───────────┘
//! paused: neither clock runs, and no process of its runs and contexts
//! ```
//! The wall-clock limit is that of the sandbox's scope, so that the enforcer ends the runs inside
//! on time. Both clocks are those of the record, so that the end of the engine neither moves nor
//! stops them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, TryLockError, Weak};
use std::time::Duration;

use rustix::process::Signal;
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use sandtimer_os::control::InitControl;
use sandtimer_os::process;
use sandtimer_os::wire::order;
use serde::{Deserialize, Serialize};

use super::super::error::Error;
use super::super::jail::JailHandle;
use super::ended::SandboxEnd;
use super::record::{Home, Record};
use super::{Life, Sandbox, SandboxError, SandboxUse, Sandboxes, lock};
use crate::isolate::cgroup::Slot;
use crate::limits::{Limits, Setting};
use crate::model::LimitKind;
use crate::scope::{CarriedDeadline, Extension, ScopeTree};
use crate::supervise::commands::{EnforcerCommand, Pauser};
use crate::time::Moment;

/// A limit of a sandbox as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SandboxLimit {
    /// How long it may be unused.
    Idle,
    /// How long it may exist, pauses not counted.
    Wall,
}

impl SandboxLimit {
    /// Its name in messages.
    pub fn text(self) -> &'static str {
        match self {
            SandboxLimit::Idle => "idle limit",
            SandboxLimit::Wall => "wall-clock limit",
        }
    }
}

/// The limits of a sandbox as a whole, and what is left of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SandboxLife {
    /// The time without use after which the sandbox is deleted; `None` without such a limit.
    pub idle: Option<Duration>,
    /// What is left of `idle` now; `None` without such a limit.
    pub idle_left: Option<Duration>,
    /// With its extensions.
    pub wall: Option<Duration>,
    /// What is left of `wall` now; `None` without such a limit.
    pub wall_left: Option<Duration>,
    /// Whether the processes are frozen and the clocks stand still.
    pub is_paused: bool,
}

/// The part of a record that says how long a sandbox lives.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RecordedLife {
    pub idle_ms: Option<u64>,
    /// With its extensions.
    pub wall_ms: Option<u64>,
    /// Milliseconds since the epoch; moved by the length of a pause when that ends.
    pub wall_end_ms: Option<u64>,
    /// Milliseconds since the epoch; there while it is paused.
    pub paused_at_ms: Option<u64>,
}

impl RecordedLife {
    /// Of a sandbox that begins now.
    pub fn new(limits: &Limits, now_ms: u64) -> Self {
        let milliseconds = |kind| match limits.get(kind) {
            Setting::At(nanoseconds) => Some(nanoseconds.div_ceil(1_000_000)),
            _ => None,
        };
        let life = RecordedLife {
            idle_ms: milliseconds(LimitKind::Idle),
            wall_ms: milliseconds(LimitKind::Wall),
            ..RecordedLife::default()
        };
        life.renewed(now_ms)
    }

    /// The same limits, of a sandbox that begins now.
    pub fn renewed(&self, now_ms: u64) -> Self {
        let wall_end_ms = self.wall_ms.map(|wall| now_ms.saturating_add(wall));
        RecordedLife { wall_end_ms, paused_at_ms: None, ..self.clone() }
    }

    /// What its scope has for its own.
    pub fn scope_limits(&self) -> Limits {
        self.wall_ms.map_or_else(Limits::new, |wall| Limits::new().wall(Duration::from_millis(wall)))
    }

    /// The clock of its scope, as it was recorded.
    pub fn carried(&self, now: Moment, now_ms: u64) -> CarriedDeadline {
        let left = self.wall_end_ms.map(|end| end.saturating_sub(self.paused_at_ms.unwrap_or(now_ms)));
        let own_end = left.map(|left| now.after(Duration::from_millis(left)));
        let start = own_end.zip(self.wall_ms).map(|(end, wall)| end.before(Duration::from_millis(wall)));
        CarriedDeadline { start: start.map_or(now, |start| start.min(now)), own_end }
    }

    fn resumed(&self, now_ms: u64) -> Self {
        let pause = self.paused_at_ms.map_or(0, |at| now_ms.saturating_sub(at));
        let wall_end_ms = self.wall_end_ms.map(|end| end.saturating_add(pause));
        RecordedLife { wall_end_ms, paused_at_ms: None, ..self.clone() }
    }

    fn extended(&self, by_ms: u64) -> Self {
        let later = |time: Option<u64>| time.map(|time| time.saturating_add(by_ms));
        RecordedLife { wall_ms: later(self.wall_ms), wall_end_ms: later(self.wall_end_ms), ..self.clone() }
    }
}

/// The clocks of a sandbox, for readers that do not wait for its record.
#[derive(Debug)]
pub(super) struct Lifetime {
    /// Nanoseconds; under the ceilings.
    idle: Option<u64>,
    has_wall: bool,
    /// When it has been unused for long enough, if it is not used until then. Monotonic
    /// nanoseconds.
    idle_end: AtomicU64,
    is_paused: AtomicBool,
}

impl Lifetime {
    pub fn new(recorded: &RecordedLife, ceiling: Option<u64>, used_at_ms: u64) -> Self {
        let own = recorded.idle_ms.map(|idle| idle.saturating_mul(1_000_000));
        let idle = own.into_iter().chain(ceiling).min();
        let unused = calendar_milliseconds().saturating_sub(used_at_ms).saturating_mul(1_000_000);
        let left = idle.map_or(u64::MAX, |idle| idle.saturating_sub(unused));
        Lifetime {
            idle,
            has_wall: recorded.wall_ms.is_some(),
            idle_end: AtomicU64::new(monotonic_nanoseconds().saturating_add(left)),
            is_paused: AtomicBool::new(recorded.paused_at_ms.is_some()),
        }
    }

    /// Begins the idle clock again, also for an engine that finds the sandbox later.
    pub fn note_use(&self, home: &Home) {
        let Some(idle) = self.idle else { return };
        self.idle_end.store(monotonic_nanoseconds().saturating_add(idle), Ordering::Relaxed);
        // What is not noted ends the sandbox earlier at the next start, and no run.
        let _ = home.note_use();
    }

    fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }
}

/// What a live context or session of a sandbox runs in.
#[derive(Debug)]
pub(super) struct Freezable {
    slot: Weak<Slot>,
    control: Weak<InitControl>,
}

impl Freezable {
    /// Stops or continues its processes. False if it has ended.
    fn freeze(&self, is_frozen: bool) -> bool {
        let (Some(slot), Some(control)) = (self.slot.upgrade(), self.control.upgrade()) else { return false };
        freeze(&slot, &control, is_frozen);
        true
    }
}

fn freeze(slot: &Slot, control: &InitControl, is_frozen: bool) {
    if !slot.freeze(is_frozen) {
        // Without a freezer: what init can reach is stopped by a signal.
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        let _ = process::send_command(control, order::SIGNAL_ALL, signal.as_raw(), 0);
    }
}

impl SandboxUse {
    /// Has what a context runs in be paused with the sandbox.
    pub(in super::super) fn note_jail(&self, jail: &JailHandle) {
        let mut life = lock(&self.state.life);
        life.jails.retain(|jail| jail.slot.strong_count() > 0);
        life.jails
            .push(Freezable { slot: Arc::downgrade(&jail.slot), control: Arc::downgrade(&jail.control) });
    }
}

impl Life {
    /// Stops or continues all that runs in it.
    fn freeze(&mut self, sandbox: &Sandbox, is_paused: bool) {
        self.jails.retain(|jail| jail.freeze(is_paused));
        self.runs.retain(|run| !run.waiting.has_finished());
        for run in &self.runs {
            let (slot_index, id) = (run.slot_index, run.id.clone());
            let pause = EnforcerCommand::Pause { slot_index, id, paused: is_paused, by: Pauser::Sandbox };
            sandbox.inner.enforcer.send(pause);
        }
    }
}

impl Sandbox {
    /// The limits of its life, and what is left of them.
    pub fn life(&self) -> SandboxLife {
        let lifetime = &self.state.lifetime;
        let recorded = lock(&self.state.record).life.clone();
        let is_paused = lifetime.is_paused();
        let left = |idle: u64| {
            let end = lifetime.idle_end.load(Ordering::Relaxed);
            let unused = !is_paused && self.runs() == 0;
            if unused { end.saturating_sub(monotonic_nanoseconds()).min(idle) } else { idle }
        };
        SandboxLife {
            idle: lifetime.idle.map(Duration::from_nanos),
            idle_left: lifetime.idle.map(|idle| Duration::from_nanos(left(idle))),
            wall: recorded.wall_ms.map(Duration::from_millis),
            wall_left: self.wall_left(),
            is_paused,
        }
    }

    /// Whether it is paused: nothing runs in it, and nothing can be started.
    pub fn is_paused(&self) -> bool {
        self.state.lifetime.is_paused()
    }

    /// Stops all processes of the runs, contexts and sessions in it, and the clocks of its limits
    /// and theirs. Ceilings of the operator stay where they are.
    ///
    /// # Errors
    /// It is paused, over, or deleted; the disk.
    pub fn pause(&self) -> Result<(), Error> {
        let mut life = lock(&self.state.life);
        self.check_open(&life)?;
        self.check_running()?;
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.scopes(|scopes| scopes.pause(self.scope(), now).map(drop))?;
        let paused_at_ms = Some(calendar_milliseconds());
        if let Err(error) = self.record_life(|recorded| RecordedLife { paused_at_ms, ..recorded.clone() }) {
            let now = Moment::from_nanos(monotonic_nanoseconds());
            self.scopes(|scopes| scopes.resume(self.scope(), now).map(drop))?;
            return Err(error);
        }
        self.state.lifetime.is_paused.store(true, Ordering::Relaxed);
        life.freeze(self, true);
        Ok(())
    }

    /// Continues what [`Sandbox::pause`] has stopped: its limits end later by the length of the
    /// pause.
    ///
    /// # Errors
    /// It is not paused, or deleted; the disk.
    pub fn resume(&self) -> Result<(), Error> {
        let mut life = lock(&self.state.life);
        self.check_open(&life)?;
        if !self.is_paused() {
            return Err(SandboxError::NotPaused(self.id().to_owned()).into());
        }
        let now_ms = calendar_milliseconds();
        self.record_life(|recorded| recorded.resumed(now_ms))?;
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.scopes(|scopes| scopes.resume(self.scope(), now).map(drop))?;
        self.state.lifetime.is_paused.store(false, Ordering::Relaxed);
        self.state.lifetime.note_use(&self.state.home);
        life.freeze(self, false);
        Ok(())
    }

    /// Moves the end of its wall-clock limit, if it has one. Counts as use.
    ///
    /// # Errors
    /// Its limit has passed, or it is deleted; the disk.
    pub fn extend(&self, by: Duration) -> Result<(), Error> {
        let life = lock(&self.state.life);
        self.check_open(&life)?;
        let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.record_life(|recorded| recorded.extended(by_ms))?;
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.scopes(|scopes| scopes.extend(self.scope(), Extension::By(by), now).map(drop))?;
        self.state.lifetime.note_use(&self.state.home);
        // Their inits and the watchdog have the end of before.
        for run in &life.runs {
            self.inner.enforcer.send(EnforcerCommand::Moved { slot_index: run.slot_index });
        }
        Ok(())
    }

    /// Whether it can be used at all.
    pub(super) fn check_open(&self, life: &Life) -> Result<(), SandboxError> {
        if let Some(limit) = life.ending {
            return Err(SandboxError::Ended(self.end_by(limit)));
        }
        if life.is_deleted {
            return Err(SandboxError::NotFound(self.id().to_owned()));
        }
        match self.wall_left() {
            // What removes it has not seen it yet.
            Some(Duration::ZERO) if !self.is_paused() => {
                Err(SandboxError::Ended(self.end_by(SandboxLimit::Wall)))
            }
            _ => Ok(()),
        }
    }

    /// Whether something can be started in it, or its files be written.
    ///
    /// # Errors
    /// It is paused.
    pub fn check_running(&self) -> Result<(), Error> {
        match self.is_paused() && !self.is_deleted() {
            true => Err(SandboxError::Paused(self.id().to_owned()).into()),
            false => Ok(()),
        }
    }

    /// Stops a context's processes again, after what had to continue them in a pause.
    pub(in super::super) fn keep_paused(&self, jail: &JailHandle) {
        // Under the lock: a resume that comes later finds it stopped.
        let life = lock(&self.state.life);
        if self.is_paused() && !life.is_deleted {
            freeze(&jail.slot, &jail.control, true);
        }
    }

    fn scopes<T, E: Into<Error>>(
        &self,
        act: impl FnOnce(&mut ScopeTree) -> Result<T, E>,
    ) -> Result<T, Error> {
        if self.inner.is_a_copy() {
            return Err(Error::Closed);
        }
        let mut scopes = self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut scopes).map_err(Into::into)
    }

    fn record_life(&self, change: impl FnOnce(&RecordedLife) -> RecordedLife) -> Result<(), Error> {
        let mut record = lock(&self.state.record);
        let changed = Record { life: change(&record.life), ..record.clone() };
        let storage = |source| SandboxError::Storage { doing: "cannot record the sandbox", source };
        self.state.home.write(&changed).map_err(storage)?;
        *record = changed;
        Ok(())
    }

    fn wall_left(&self) -> Option<Duration> {
        if !self.state.lifetime.has_wall {
            return None;
        }
        let now = Moment::from_nanos(monotonic_nanoseconds());
        let carried = self.scopes(|scopes| scopes.carried(self.scope(), now)).ok()?;
        carried.own_end.map(|end| end.since(now))
    }

    fn reached(&self, life: &Life) -> Option<SandboxLimit> {
        if life.is_deleted || self.is_paused() {
            return life.ending;
        }
        if self.wall_left() == Some(Duration::ZERO) {
            return Some(SandboxLimit::Wall);
        }
        let lifetime = &self.state.lifetime;
        let is_overdue = lifetime.idle_end.load(Ordering::Relaxed) <= monotonic_nanoseconds();
        (lifetime.idle.is_some() && life.users == 0 && is_overdue).then_some(SandboxLimit::Idle)
    }

    /// Whether a limit is reached. What is used is noted as such on disk.
    fn is_due(&self) -> bool {
        let lifetime = &self.state.lifetime;
        if lifetime.idle.is_none() && !lifetime.has_wall {
            return false;
        }
        let life = match self.state.life.try_lock() {
            Ok(life) => life,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // It is being used.
            Err(TryLockError::WouldBlock) => return false,
        };
        if life.users > 0 && !life.is_deleted {
            lifetime.note_use(&self.state.home);
        }
        self.reached(&life).is_some()
    }

    fn end_by(&self, limit: SandboxLimit) -> SandboxEnd {
        let limit_ms = match limit {
            SandboxLimit::Idle => self.state.lifetime.idle.map(|idle| idle / 1_000_000),
            SandboxLimit::Wall => lock(&self.state.record).life.wall_ms,
        };
        SandboxEnd {
            id: self.id().to_owned(),
            owner: self.owner(),
            limit,
            limit_ms: limit_ms.unwrap_or(0),
            at_ms: calendar_milliseconds(),
        }
    }
}

impl Sandboxes {
    /// Those that have reached a limit, for [`Sandboxes::end_at_limit`]. To be asked about once a
    /// second: what uses a sandbox is noted then, so that the idle clock of one whose engine is
    /// killed begins at that time.
    pub fn due(&self) -> Vec<Sandbox> {
        self.all().into_iter().filter(Sandbox::is_due).collect()
    }

    /// Ends a sandbox that has reached a limit, as [`Sandboxes::delete`] does; from then on its id
    /// answers with that. False if it has not, or not any more. Blocks.
    ///
    /// # Errors
    /// As [`Sandboxes::delete`]: it is due again.
    pub fn end_at_limit(&self, sandbox: &Sandbox) -> Result<bool, Error> {
        let mut life = lock(&sandbox.state.life);
        let Some(limit) = sandbox.reached(&life) else { return Ok(false) };
        let is_first = life.ending.replace(limit).is_none();
        life.is_deleted = true;
        sandbox.state.is_closed.store(true, Ordering::Relaxed);
        drop(life);
        if is_first {
            self.ended.note(sandbox.end_by(limit));
        }
        self.remove(sandbox, &format!("its sandbox reached its {}", limit.text()))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(wall_ms: u64, wall_end_ms: u64, paused_at_ms: Option<u64>) -> RecordedLife {
        let (wall_ms, wall_end_ms) = (Some(wall_ms), Some(wall_end_ms));
        RecordedLife { idle_ms: None, wall_ms, wall_end_ms, paused_at_ms }
    }

    #[test]
    fn restart_neither_extends_nor_resets_the_wall() {
        let now = Moment::from_nanos(1_000_000_000_000);
        let milliseconds = |count| Duration::from_millis(count);
        let recorded = life(10_000, 50_000, None);
        for (now_ms, left) in [(40_000, 10_000), (47_000, 3_000), (50_000, 0), (90_000, 0)] {
            let carried = recorded.carried(now, now_ms);
            assert_eq!(carried.own_end, Some(now.after(milliseconds(left))), "{now_ms}");
            assert_eq!(carried.start, now.after(milliseconds(left)).before(milliseconds(10_000)));
        }
    }

    #[test]
    fn pause_moves_the_end_by_its_length() {
        let now = Moment::from_nanos(1_000_000_000_000);
        let paused = life(10_000, 50_000, Some(47_000));
        assert_eq!(paused.carried(now, 99_000).own_end, Some(now.after(Duration::from_secs(3))));
        assert_eq!(paused.resumed(60_000), life(10_000, 63_000, None));
        assert_eq!(paused.extended(500), life(10_500, 50_500, Some(47_000)));
        assert_eq!(paused.renewed(1_000), life(10_000, 11_000, None));
    }
}
