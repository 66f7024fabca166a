//! What changes an active run: cancel, extend, pause, resume, signal.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::wire::order;

use super::Run;
use crate::engine::error::Error;
use crate::limits::nanoseconds;
use crate::model::LimitKind;
use crate::scope::{Deadline, Extension, ScopeTree};
use crate::supervise::commands::EnforcerCommand;
use crate::supervise::run::Pauser;
use crate::time::Moment;

impl Run {
    /// Ends the run, with SIGTERM first if it has a grace. A second call does not wait for the
    /// grace. Does nothing in a process that was forked from the engine's.
    ///
    /// ```
    /// use sandtimer::{Ending, Engine, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["sleep", "3600"]))?;
    /// run.cancel("the user has left");
    /// let outcome = run.wait_blocking();
    /// assert_eq!(outcome.ending, Ending::Cancelled);
    /// assert!(outcome.verdict.as_ref().unwrap().sentence.contains("the user has left"));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn cancel(&self, reason: impl Into<String>) {
        if self.inner.is_a_copy() {
            return;
        }
        self.inner.enforcer.send(EnforcerCommand::Cancel {
            slot_index: self.running.slot_index,
            id: self.running.id.clone(),
            reason: reason.into(),
        });
    }

    /// Ends the run because its piped output, which the caller reads, has passed the output limit.
    pub fn end_at_output_limit(&self) {
        if self.inner.is_a_copy() {
            return;
        }
        let (slot_index, id) = (self.running.slot_index, self.running.id.clone());
        self.inner.enforcer.send(EnforcerCommand::Limit { slot_index, id, kind: LimitKind::Output });
    }

    /// Moves the wall later. Ancestors and ceilings continue to bound it: see the deadline's
    /// `effect`.
    ///
    /// # Errors
    /// Too late once the limit has fired.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, Limits, Spec};
    ///
    /// let limits = Limits::new().wall(Duration::from_secs(60));
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["sleep", "3600"]).limits(limits))?;
    /// let deadline = run.extend(Duration::from_secs(30))?.unwrap();
    /// assert_eq!(deadline.limit, Duration::from_secs(90));
    /// run.cancel("the example has ended");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn extend(&self, by: Duration) -> Result<Option<Deadline>, Error> {
        let now = Moment::from_nanos(monotonic_nanoseconds());
        let mut scopes = self.scopes()?;
        scopes.extend(self.scope, Extension::By(by), now)?;
        // The command may have started since; what was counted from its submission would end too
        // early.
        self.begin_clock(&mut scopes)?;
        let deadline = scopes.deadline(self.scope)?;
        if let Some(deadline) = &deadline {
            self.running.note_wall(deadline, nanoseconds(by));
        }
        drop(scopes);
        self.inner.enforcer.send(EnforcerCommand::Moved { slot_index: self.running.slot_index });
        Ok(deadline)
    }

    /// The scopes, in which this run's clock began when its command did.
    ///
    /// # Errors
    /// In a process that was forked from the engine's, where a thread may have held the lock.
    pub(super) fn scopes(&self) -> Result<MutexGuard<'_, ScopeTree>, Error> {
        if self.inner.is_a_copy() {
            return Err(Error::Closed);
        }
        let mut scopes = self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin_clock(&mut scopes)?;
        Ok(scopes)
    }

    /// Has the run's clock begin with its command, if that was started.
    fn begin_clock(&self, scopes: &mut ScopeTree) -> Result<(), Error> {
        match self.running.started_at.load(Ordering::Acquire) {
            0 => Ok(()),
            started => Ok(scopes.begin(self.scope, Moment::from_nanos(started))?),
        }
    }

    /// Stops the processes and the run's own clocks.
    ///
    /// # Errors
    /// Already paused, or too late.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, Limits, Spec};
    ///
    /// let limits = Limits::new().wall(Duration::from_secs(60));
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["echo", "hello"]).limits(limits))?;
    /// if run.pause().is_ok() {
    ///     assert!(run.is_paused());
    ///     run.resume()?; // fails only if the run has ended
    /// }
    /// assert_eq!(run.wait_blocking().stdout, "hello\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn pause(&self) -> Result<(), Error> {
        let now = Moment::from_nanos(monotonic_nanoseconds());
        self.scopes()?.pause(self.scope, now)?;
        self.send_pause(true);
        Ok(())
    }

    /// Resumes a paused run; its wall ends later by the length of the pause.
    ///
    /// # Errors
    /// Not paused, or too late.
    pub fn resume(&self) -> Result<(), Error> {
        let now = Moment::from_nanos(monotonic_nanoseconds());
        let mut scopes = self.scopes()?;
        scopes.resume(self.scope, now)?;
        // The limit of an outer scope, which the pause did not move, may come first now.
        if let Some(deadline) = &scopes.deadline(self.scope)? {
            self.running.note_wall(deadline, 0);
        }
        drop(scopes);
        self.send_pause(false);
        Ok(())
    }

    /// Whether it is paused. One that has ended is not.
    pub fn is_paused(&self) -> bool {
        self.scopes().and_then(|scopes| Ok(scopes.is_paused(self.scope)?)).unwrap_or(false)
    }

    fn send_pause(&self, paused: bool) {
        let (slot_index, id) = (self.running.slot_index, self.running.id.clone());
        self.inner.enforcer.send(EnforcerCommand::Pause { slot_index, id, paused, by: Pauser::Run });
    }

    /// Sends a signal to every process of the run.
    ///
    /// # Errors
    /// When the run has ended.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec, Stream};
    ///
    /// const SIGHUP: i32 = 1;
    /// let script = "trap 'echo again; exit 0' HUP; echo ready; while :; do sleep 0.1; done";
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["sh", "-c", script]))?;
    /// while run.output(Stream::Stdout, 0, 16)?.bytes.is_empty() {
    ///     std::thread::yield_now();
    /// }
    /// run.signal(SIGHUP)?;
    /// assert_eq!(run.wait_blocking().stdout, "ready\nagain\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn signal(&self, signal: i32) -> Result<(), Error> {
        if self.inner.is_a_copy() {
            return Err(Error::Closed);
        }
        let token = self.running.job.as_ref().map_or(0, |job| u64::from(job.token()));
        let send =
            || sandtimer_os::process::send_command(&*self.running.control, order::SIGNAL_ALL, signal, token);
        let sent = self.running.waiting.unless_finished(send);
        sent.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
            .map_err(Error::system("cannot signal the run"))
    }
}
