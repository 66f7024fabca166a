//! A live interpreter between its runs, and what can be asked of it then.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::wire::order;

use super::super::error::Error;
use super::super::inner::Inner;
use super::super::pre_warmer::ChildPool;
use super::super::run::Run;
use super::super::sandboxes::Sandbox;
use super::interpreter::LiveInterpreter;
use super::spec::ContextSpec;
use super::turns::{ContextTurn, Turns};
use crate::limits::nanoseconds;
use crate::model::RemainingState;

pub(super) const CLOSED: &str = "the context was closed";
/// How long an interpreter must be without requests before its surplus processes are ended.
const IDLE_WINDOW: Duration = Duration::from_millis(2);
/// Why a shell does not begin in its directory.
const NOT_ENTERED: &str =
    "it does not exist and may not be created, or is not a directory, or may not be entered";

/// What is known of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextInfo {
    /// Runs that wait for their turn.
    pub waiting: usize,
    /// Runs that have begun.
    pub executions: u64,
    /// Whether there is a checkpoint that the next run would be rolled back to; else why not.
    /// According to the last message of the interpreter.
    pub checkpoint: Result<(), String>,
    /// Whether the last run can be undone.
    pub can_undo: bool,
}

/// A live interpreter, which ends when the context is dropped.
#[derive(Debug)]
pub struct Context {
    pub(super) inner: Arc<Inner>,
    /// Where its interpreters come from; a shell is started when it is needed.
    pub(super) source: Option<Arc<ChildPool>>,
    pub(super) spec: ContextSpec,
    pub(super) turns: Arc<Turns>,
    /// Held, together with the turn, by the thread that settles the context.
    pub(super) settling: Mutex<()>,
    pub(super) standing: Mutex<Option<LiveInterpreter>>,
    pub(super) info: Mutex<(Result<(), String>, bool)>,
    /// A loss of state that was found while there was no run to report it.
    pub(super) lost: Mutex<Option<(RemainingState, String)>>,
    pub(super) executions: AtomicU64,
    /// Why its shell has not run its script, where that is because of what it is itself.
    pub(super) not_prewarmed: OnceLock<String>,
    /// The run that is on.
    pub(super) current: Mutex<Option<Arc<Run>>>,
    /// The run that is on, or was the last one, was interrupted.
    pub(super) was_interrupted: AtomicBool,
    pub(super) closed: AtomicBool,
}

impl Context {
    pub(super) fn new(
        inner: Arc<Inner>,
        source: Option<Arc<ChildPool>>,
        spec: ContextSpec,
        standing: Option<LiveInterpreter>,
    ) -> Self {
        Context {
            inner,
            source,
            spec,
            turns: Arc::default(),
            settling: Mutex::default(),
            standing: Mutex::new(standing),
            info: Mutex::new((Ok(()), false)),
            lost: Mutex::default(),
            executions: AtomicU64::new(0),
            not_prewarmed: OnceLock::new(),
            current: Mutex::default(),
            was_interrupted: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    pub(super) fn standing(&self) -> MutexGuard<'_, Option<LiveInterpreter>> {
        // Poisoning is harmless: the interpreter is intact or dead, which is checked before every
        // use.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn current(&self) -> MutexGuard<'_, Option<Arc<Run>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory that is its /workspace. A private one
    /// ([`Profile::workspaces`](crate::zygote::Profile::workspaces)) is removed by the caller that
    /// opened the context.
    pub fn workspace(&self) -> Option<&Path> {
        self.spec.workspace.as_deref()
    }

    /// Whether it has the host's network.
    pub fn has_network(&self) -> bool {
        self.source.as_ref().map_or(self.spec.network, |pool| pool.profile.network)
    }

    /// Why its shell has not run its script, which others may.
    pub fn not_prewarmed(&self) -> Option<&str> {
        self.not_prewarmed.get().map(String::as_str)
    }

    /// What is known of it, without waiting for it.
    ///
    /// ```
    /// # use sandtimer::{CellSpec, ContextSpec, Engine, Profile};
    /// #
    /// # let engine = Engine::new()?;
    /// # let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    /// # let contexts = engine.contexts(profile, 1)?;
    /// # let context = contexts.open(ContextSpec::default(), &mut || false)?;
    /// # let cell = |source: &str| CellSpec { source: source.to_owned(), ..CellSpec::default() };
    /// assert_eq!(context.info().executions, 0);
    /// context.execute(cell("x = 1"), &mut |_| {})?;
    /// assert_eq!(context.info().executions, 1);
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn info(&self) -> ContextInfo {
        let (checkpoint, can_undo) = self.info.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let executions = self.executions.load(Ordering::Relaxed);
        ContextInfo { waiting: self.turns.waiting(), executions, checkpoint, can_undo }
    }

    /// What is known of it once the checkpoint is made, or why not, that follows the last run; at
    /// once where another is on.
    pub fn settled_info(&self) -> ContextInfo {
        let _alone = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_paused()
            && let Some(_turn) = self.turns.enter_free()
        {
            let mut holder = self.standing();
            if holder.is_some() {
                // What goes wrong is noted, and met again by the next run.
                let _ = self.ready(&mut holder, &|| false);
            }
            if let Some(standing) = holder.as_mut() {
                standing.end_surplus();
                standing.count();
                if standing.checkpoint().is_err() {
                    // Threads and processes that run between cells write to them.
                    standing.let_streams_go();
                }
            }
        }
        self.info()
    }

    /// Settles the context once no thread has wanted its turn for a moment, and otherwise does
    /// nothing: processes that end then would keep a processor from the thread that takes an
    /// answer.
    pub fn rest(&self) {
        if self.turns.is_free_for(IDLE_WINDOW) {
            self.settled_info();
        }
    }

    pub(super) fn note(&self, standing: &LiveInterpreter) {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) =
            (standing.checkpoint(), standing.can_undo());
    }

    /// Whether something can be asked of its interpreter: its sandbox is not paused.
    pub(super) fn check_running(&self) -> Result<(), Error> {
        self.spec.sandbox.as_ref().map_or(Ok(()), Sandbox::check_running)
    }

    /// Whether its sandbox is paused: its interpreter answers nothing.
    pub(super) fn is_paused(&self) -> bool {
        self.spec.sandbox.as_ref().is_some_and(Sandbox::is_paused)
    }

    /// A place in the order of its runs, for a caller that waits on another thread than it requests
    /// on.
    pub fn queue(&self) -> ContextTurn {
        self.turns.enter()
    }

    /// Has the interpreter make the checkpoint that is due since the last cell that was tried,
    /// unless that has been asked for. To be called once the answer was sent: a copy that is made
    /// at the same time keeps a processor from the thread that takes the answer.
    pub fn prepare(&self) {
        if !self.is_paused()
            && let Ok(_alone) = self.settling.try_lock()
            && let Some(_turn) = self.turns.enter_free()
            && let Some(standing) = self.standing().as_mut()
        {
            standing.ask_if_due();
        }
    }

    /// Makes sure that there is a live interpreter that has made its checkpoint.
    pub(super) fn ready(
        &self,
        holder: &mut Option<LiveInterpreter>,
        is_withdrawn: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        self.check_wanted(is_withdrawn)?;
        self.check_running()?;
        if let Some(standing) = holder.as_mut() {
            match standing.ready() {
                Ok(None) => {}
                Ok(Some(reason)) => self.note_loss(RemainingState::RolledBack, reason),
                Err(reason) => {
                    *holder = None;
                    self.note_loss(RemainingState::Reset, reason);
                }
            }
        }
        if holder.is_none() {
            let mut standing = match &self.source {
                Some(source) => {
                    let mut is_cancelled = || self.check_wanted(is_withdrawn).is_err();
                    let mut standing = LiveInterpreter::take(source, &self.spec, &mut is_cancelled)?;
                    begun(&mut standing, &self.spec)?;
                    standing
                }
                None => self.shell(is_withdrawn)?,
            };
            let doing = "the context's interpreter does not begin";
            let failed = |reason| Error::System { doing, source: std::io::Error::other(reason) };
            standing.ready().map_err(failed)?;
            *holder = Some(standing);
        }
        if let Some(standing) = holder.as_ref() {
            self.note(standing);
        }
        // In a pause it may not have made its checkpoint.
        self.check_running()?;
        self.check_wanted(is_withdrawn)
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// When the context is closed, or the caller leaves, before it comes.
    pub(super) fn wait_for(&self, turn: &ContextTurn, is_withdrawn: &dyn Fn() -> bool) -> Result<(), Error> {
        turn.wait_while(&|| self.check_wanted(is_withdrawn).is_ok());
        self.check_wanted(is_withdrawn)
    }

    pub(super) fn check_wanted(&self, is_withdrawn: &dyn Fn() -> bool) -> Result<(), Error> {
        match (self.closed.load(Ordering::Acquire), is_withdrawn()) {
            (true, _) => Err(Error::Closed),
            (_, true) => Err(Error::Withdrawn),
            _ => Ok(()),
        }
    }

    pub(super) fn lost(&self) -> MutexGuard<'_, Option<(RemainingState, String)>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a loss of state for the next run to report; of two the worse.
    pub(super) fn note_loss(&self, state: RemainingState, reason: String) {
        let mut lost = self.lost();
        if !matches!(*lost, Some((RemainingState::Reset, _))) {
            *lost = Some((state, reason));
        }
    }

    /// Interrupts the run that is on, as Ctrl-C does: the interpreter, or a shell and what its
    /// command has started. False when none is.
    pub fn interrupt(&self) -> bool {
        // Held until it is sent: it comes before whatever is sent for the next run.
        let current = self.current();
        let Some(run) = current.as_ref() else { return false };
        const INTERRUPT: i32 = 2;
        self.was_interrupted.store(true, Ordering::SeqCst);
        let is_shell = run.running.live().is_some_and(|live| live.is_shell);
        let send = |command| process::send_command(&*run.running.control, command, INTERRUPT, 0).is_ok();
        // The shell first: a shell whose child died of an interrupt that the shell did not get
        // itself executes what comes next.
        send(order::SIGNAL_MAIN) && (!is_shell || send(order::SIGNAL_ALL))
    }

    /// The run that is on.
    pub fn running(&self) -> Option<Arc<Run>> {
        self.current().clone()
    }

    /// Goes back to the state before the last run that changed it. False where there is no such
    /// state any more.
    ///
    /// # Errors
    /// A closed context; the interpreter was lost on the way, and begins again.
    ///
    /// ```
    /// # use sandtimer::{CellSpec, ContextSpec, Engine, Profile};
    /// #
    /// # let engine = Engine::new()?;
    /// # let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    /// # let contexts = engine.contexts(profile, 1)?;
    /// # let context = contexts.open(ContextSpec::default(), &mut || false)?;
    /// # let cell = |source: &str| CellSpec { source: source.to_owned(), ..CellSpec::default() };
    /// context.execute(cell("x = 1"), &mut |_| {})?;
    /// context.execute(cell("x = 2"), &mut |_| {})?;
    /// assert!(context.undo()?);
    /// let outcome = context.execute(cell("x"), &mut |_| {})?;
    /// assert_eq!(outcome.results[0]["text/plain"], "1");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn undo(&self) -> Result<bool, Error> {
        self.undo_unless(self.queue(), &|| false)
    }

    /// As [`Context::undo`], for a caller that may have left before it begins.
    ///
    /// # Errors
    /// As [`Context::undo`].
    pub fn undo_unless(&self, turn: ContextTurn, is_withdrawn: &dyn Fn() -> bool) -> Result<bool, Error> {
        self.check_running()?;
        self.wait_for(&turn, is_withdrawn)?;
        let mut holder = self.standing();
        self.ready(&mut holder, is_withdrawn)?;
        let Some(standing) = holder.as_mut() else { return Err(Error::Closed) };
        if !standing.can_undo() {
            return Ok(false);
        }
        let undone = standing.undo();
        if undone.is_err() {
            *holder = None;
        } else {
            standing.ask_for_checkpoint();
            self.note(standing);
        }
        undone.map(|()| true)
    }

    /// Ends it: an active run is cancelled, and runs that wait for their turn are refused.
    ///
    /// ```
    /// # use sandtimer::{CellSpec, ContextSpec, Engine, Profile};
    /// #
    /// # let engine = Engine::new()?;
    /// # let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    /// # let contexts = engine.contexts(profile, 1)?;
    /// # let context = contexts.open(ContextSpec::default(), &mut || false)?;
    /// # let cell = |source: &str| CellSpec { source: source.to_owned(), ..CellSpec::default() };
    /// context.close();
    /// assert!(context.execute(cell("1"), &mut |_| {}).is_err());
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn close(&self) {
        self.close_because(CLOSED);
    }

    /// As [`Context::close`], with the reason that a run which is on is cancelled for.
    pub fn close_because(&self, reason: &str) {
        self.closed.store(true, Ordering::SeqCst);
        if let Some(run) = self.current().clone() {
            run.cancel(reason);
        }
        let turn = self.queue();
        turn.wait();
        *self.standing() = None;
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.inner.is_a_copy() {
            // The interpreter belongs to the process that this one was forked from. No thread of
            // this process holds the lock, whichever thread held it there.
            let holder = self.standing.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((holder.take(), self.inner.clone(), self.source.take()));
        }
    }
}

/// Waits until a new interpreter has begun in its directory and with its limits.
pub(super) fn begun(standing: &mut LiveInterpreter, spec: &ContextSpec) -> Result<(), Error> {
    let limit = standing.spawn_limit();
    let most = nanoseconds(limit);
    let end = monotonic_nanoseconds().saturating_add(most);
    let Err(reason) = standing.begun_within(most) else { return Ok(()) };
    let rejection = standing.rejection.take();
    let ended = || standing.is_shell().then(|| standing.not_executed()).flatten();
    if let Some(reason) = rejection.is_none().then(ended).flatten() {
        let source = std::io::Error::other(reason);
        return Err(Error::System { doing: "cannot start the session's shell", source });
    }
    // A shell that does not begin sends no reason: it ends where it cannot continue.
    let rejection = rejection.or_else(|| standing.is_shell().then(|| NOT_ENTERED.to_owned()));
    Err(match (&spec.directory, rejection) {
        _ if monotonic_nanoseconds() >= end => Error::SpawnLimit(limit),
        (Some(directory), Some(reason)) => Error::Directory { directory: directory.clone(), reason },
        _ => {
            let source = std::io::Error::other(reason);
            Error::System { doing: "the context's interpreter does not begin", source }
        }
    })
}
