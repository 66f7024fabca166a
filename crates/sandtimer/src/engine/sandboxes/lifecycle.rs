//! What changes the life of a sandbox: pauses, extensions, and its end at a limit.

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};

use super::super::error::Error;
use super::super::jail::JailHandle;
use super::ended::SandboxEnd;
use super::lifetime::{Freezable, RecordedLife, SandboxLife, SandboxLimit};
use super::record::Record;
use super::{Life, RunHandle, Sandbox, SandboxError, SandboxState, SandboxUse, Sandboxes, lock};
use crate::model::Layer;
use crate::scope::{Extension, ScopeTree};
use crate::supervise::commands::EnforcerCommand;
use crate::supervise::run::Pauser;
use crate::time::Moment;

impl SandboxState {
    /// Begins the idle clock again, also for an engine that finds the sandbox later.
    pub(super) fn note_use(&self) {
        self.lifetime.restart_idle();
        // Also without an idle limit: the operator may set a ceiling before the next start. What is
        // not noted ends the sandbox earlier then, and no run.
        let _ = self.home.note_use();
    }
}

impl SandboxUse {
    /// Has what a context runs in be paused with the sandbox.
    pub(in super::super) fn note_jail(&self, jail: &JailHandle) {
        let mut life = lock(&self.state.life);
        life.jails.retain(Freezable::is_there);
        life.jails.push(Freezable::new(&jail.slot, &jail.control));
    }
}

/// The enforcer ends the runs of a sandbox at its wall-clock limit, with the verdict that it is.
/// The sandbox is ended this long after it at the earliest, unless nothing runs in it.
const RUNS_END_FIRST: Duration = Duration::from_millis(250);

impl Life {
    fn has_runs(&self) -> bool {
        self.runs.iter().any(|run| !run.waiting.has_finished())
    }

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

impl RunHandle {
    /// Has the run's verdict quote the wall limit that bounds it now, after an extension of its
    /// sandbox.
    fn note_wall(&self, scopes: &ScopeTree, by: Duration) {
        let (Some(running), Ok(Some(deadline))) = (self.running.upgrade(), scopes.deadline(self.scope))
        else {
            return;
        };
        let is_sandboxs = deadline.effect.layer == Layer::Sandbox;
        let by = if is_sandboxs { u64::try_from(by.as_nanos()).unwrap_or(u64::MAX) } else { 0 };
        running.note_wall(&deadline, by);
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
            let unused = !is_paused && self.state.visitors.count() == 0;
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

    /// Continues what [`Sandbox::pause`] has stopped: its wall-clock limit ends later by the length
    /// of the pause, and its idle limit begins again.
    ///
    /// # Errors
    /// It is not paused, or deleted; the disk.
    pub fn resume(&self) -> Result<(), Error> {
        let mut life = lock(&self.state.life);
        self.check_open(&life)?;
        if !self.is_paused() {
            return Err(SandboxError::NotPaused(self.id().to_owned()).into());
        }
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.scopes(|scopes| scopes.resume(self.scope(), now).map(drop))?;
        let now_ms = calendar_milliseconds();
        if let Err(error) = self.record_life(|recorded| recorded.resumed(now_ms)) {
            let now = Moment::from_nanos(monotonic_nanoseconds());
            self.scopes(|scopes| scopes.pause(self.scope(), now).map(drop))?;
            return Err(error);
        }
        self.state.lifetime.is_paused.store(false, Ordering::Relaxed);
        self.state.note_use();
        life.freeze(self, false);
        Ok(())
    }

    /// Moves the end of its wall-clock limit, if it has one. Counts as use.
    ///
    /// # Errors
    /// Its limit has passed, or it is deleted. The disk: then the extension ends with the engine.
    pub fn extend(&self, by: Duration) -> Result<(), Error> {
        let life = lock(&self.state.life);
        self.check_open(&life)?;
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.scopes(|scopes| {
            scopes.extend(self.scope(), Extension::By(by), now)?;
            life.runs.iter().for_each(|run| run.note_wall(scopes, by));
            Ok::<(), Error>(())
        })?;
        let by_ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let recorded = self.record_life(|recorded| recorded.extended(by_ms));
        self.state.note_use();
        // Their inits and the watchdog have the end of before.
        for run in &life.runs {
            self.inner.enforcer.send(EnforcerCommand::Moved { slot_index: run.slot_index });
        }
        recorded
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
            // The thread that removes it has not found it yet.
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
            Freezable::new(&jail.slot, &jail.control).freeze(true);
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
        self.wall_end(now).map(|end| end.since(now))
    }

    fn wall_end(&self, now: Moment) -> Option<Moment> {
        self.scopes(|scopes| scopes.carried(self.scope(), now)).ok()?.own_end
    }

    fn reached(&self, life: &Life) -> Option<SandboxLimit> {
        if life.ending.is_some() || self.is_paused() {
            return life.ending;
        }
        // Also of one whose deletion has begun: where that has failed, the limit ends it.
        if self.wall_left() == Some(Duration::ZERO) {
            return Some(SandboxLimit::Wall);
        }
        if life.is_deleted {
            return None;
        }
        let lifetime = &self.state.lifetime;
        let is_over = lifetime.idle_end.load(Ordering::Relaxed) <= monotonic_nanoseconds();
        (lifetime.idle.is_some() && life.users == 0 && is_over).then_some(SandboxLimit::Idle)
    }

    /// Whether a limit is reached. What is used is noted as such on disk.
    fn is_due(&self) -> bool {
        let life = match self.state.life.try_lock() {
            Ok(life) => life,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // It is being used.
            Err(TryLockError::WouldBlock) => return false,
        };
        if life.users > 0 && !life.is_deleted {
            self.state.note_use();
        }
        match self.reached(&life) {
            Some(SandboxLimit::Wall) => !life.has_runs() || self.wall_passed() >= RUNS_END_FIRST,
            limit => limit.is_some(),
        }
    }

    /// How long ago its wall-clock limit has passed.
    fn wall_passed(&self) -> Duration {
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.wall_end(now).map_or(Duration::ZERO, |end| now.since(end))
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
    /// The sandboxes that have reached a limit, for [`Sandboxes::end_at_limit`]. To be called about
    /// twice a second: it also notes which sandboxes are in use, so that the idle clock of a
    /// sandbox whose engine is killed begins at that time.
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
