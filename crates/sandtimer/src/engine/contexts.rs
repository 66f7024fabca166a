//! Contexts: live interpreters, each in a jail that serves many runs, one after the other.
//!
//! ```text
//! caller ── waits for its turn ─▶ readies the interpreter ─▶ a cell is a run in the live jail ─▶ Outcome
//!                                    (checkpoint, see docs/design/contexts.md)      kept · rolled back · reset
//! ```
//! The context owns the jail between runs; during a run it shares the jail with the enforcer, which
//! ends every run that it has inspected; a run that was answered before that is ended by the thread
//! that took the answer. The thread that executes the cell drives the interpreter's channel; no
//! deadline depends on it.

mod branch;
mod channel;
mod displays;
mod execution;
mod heard;
mod image_account;
mod interpreter;
mod prewarm;
mod shell;
mod turns;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::wire::order;

use super::calls::Calls;
use super::error::Error;
use super::named_directories::NamedDirectories;
use super::pre_warmer::{ChildPool, Stats};
use super::run::Run;
use super::sandboxes::{self, Sandbox, SandboxError};
use super::spec::Require;
use super::{Engine, Inner};
use crate::limits::{Limits, nanoseconds};
use crate::model::{RemainingState, Source};
use crate::scope::ScopeId;
use crate::zygote::{Language, Profile};
pub use branch::BranchSpec;
pub use execution::{CellEvent, CellSpec, Execution, ExecutionAttempt};
pub use image_account::ImageAccount;
use interpreter::LiveInterpreter;
pub use prewarm::ShellPrewarm;
pub use turns::ContextTurn;
use turns::Turns;

const CLOSED: &str = "the context was closed";
/// How long an interpreter must be without requests before its surplus processes are ended.
const IDLE_WINDOW: Duration = Duration::from_millis(2);
/// Why a shell does not begin in its directory.
const NOT_ENTERED: &str =
    "it does not exist and may not be created, or is not a directory, or may not be entered";

/// A pool of warm interpreters, from which contexts are opened. When it is dropped, the warm
/// interpreters end; open contexts continue, but can no longer be branched.
#[derive(Debug)]
pub struct Contexts {
    calls: Calls,
}

/// The limits, directories and isolation of a context.
#[derive(Debug, Clone, Default)]
pub struct ContextSpec {
    /// What holds for the context as a whole: memory, processes, open files, disk.
    pub limits: Limits,
    /// Limits with lower precedence than `limits`, by source.
    pub defaults: Vec<(Source, Limits)>,
    /// The scope that the context belongs to; none by default.
    pub parent: Option<ScopeId>,
    /// As [`Spec::owner`](super::Spec::owner), for a session; an interpreter of a pool has the
    /// owner of the pool's profile.
    pub owner: Option<Arc<str>>,
    /// The minimum of isolation; with less the context is not opened.
    pub require: Require,
    /// Variables added to the clean environment.
    pub environment: HashMap<String, String>,
    /// Where it begins, inside; made if it is not there. Its workspace by default.
    pub directory: Option<String>,
    /// A directory made by [`make_workspace`](super::make_workspace) that is its /workspace.
    /// Without it, one of its own.
    pub workspace: Option<PathBuf>,
    /// A directory made by [`make_temporary_directory`](super::make_temporary_directory) that is
    /// its /tmp and its home directory, and may be that of others too. Without it, a private one
    /// that goes with it.
    pub temporary: Option<PathBuf>,
    /// The sandbox that it is in, in place of a workspace and a temporary directory: its files are
    /// the sandbox's. An interpreter of a pool can be in a sandbox of the template
    /// [`Template::Host`](super::Template::Host) only.
    pub sandbox: Option<Sandbox>,
    /// The host's network, for a session; for an interpreter of a pool the pool's profile decides.
    pub network: bool,
    /// Its cells are TypeScript, for a JavaScript interpreter.
    pub typescript: bool,
    /// What bounds the images of this context, of its branches, and of all others with the same
    /// account.
    pub images: Option<ImageAccount>,
    /// What each of its shells runs before the first command, for a session.
    pub prewarm: Option<Arc<ShellPrewarm>>,
}

impl ContextSpec {
    /// What it shows of the host, unless all of it is its own.
    fn directories(&self) -> Option<NamedDirectories> {
        let (workspace, temporary) = (self.workspace.clone(), self.temporary.clone());
        let sandbox = self.sandbox.clone();
        let is_named = workspace.is_some() || temporary.is_some() || sandbox.is_some();
        is_named.then_some(NamedDirectories { workspace, temporary, sandbox })
    }
}

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
    inner: Arc<Inner>,
    /// Where its interpreters come from; a shell is started when it is needed.
    source: Option<Arc<ChildPool>>,
    spec: ContextSpec,
    turns: Arc<Turns>,
    /// Held, together with the turn, by the thread that settles the context.
    settling: Mutex<()>,
    standing: Mutex<Option<LiveInterpreter>>,
    info: Mutex<(Result<(), String>, bool)>,
    /// A loss of state that was found while there was no run to report it.
    lost: Mutex<Option<(RemainingState, String)>>,
    executions: AtomicU64,
    /// Why its shell has not run its script, where that is because of what it is itself.
    not_prewarmed: OnceLock<String>,
    /// The run that is on.
    current: Mutex<Option<Arc<Run>>>,
    /// The run that is on, or was the last one, was interrupted.
    was_interrupted: AtomicBool,
    closed: AtomicBool,
}

impl Engine {
    /// A pool of `size` interpreters of this profile, being filled.
    ///
    /// # Errors
    /// As [`Engine::calls`]; JavaScript where this was built without the feature `javascript`.
    ///
    /// ```
    /// use sandtimer::{CellSpec, ContextSpec, Engine, Profile};
    ///
    /// let engine = Engine::new()?;
    /// let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    /// let contexts = engine.contexts(profile, 1)?;
    /// let context = contexts.open(ContextSpec::default(), &mut || false)?;
    /// let cell = |source: &str| CellSpec { source: source.to_owned(), ..CellSpec::default() };
    /// context.execute(cell("x = 40"), &mut |_| {})?;
    /// let outcome = context.execute(cell("x + 2"), &mut |_| {})?;
    /// assert_eq!(outcome.results[0]["text/plain"], "42");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn contexts(&self, profile: Profile, size: usize) -> Result<Contexts, Error> {
        if cfg!(not(feature = "javascript")) && profile.language == Language::JavaScript {
            return Err(Error::Interpreter(
                "is not in this build (its feature `javascript` is off)".to_owned(),
            ));
        }
        Ok(Contexts { calls: self.calls(Profile { live: true, ..profile }, size)? })
    }

    /// Opens a session: a context whose interpreter is bash, and whose cells are commands.
    ///
    /// # Errors
    /// Only what stops Sandtimer before a session exists; see [`Error`].
    ///
    /// ```
    /// use sandtimer::{CellSpec, ContextSpec, Engine};
    ///
    /// let session = Engine::new()?.session(ContextSpec::default())?;
    /// let command = |line: &str| CellSpec { source: line.to_owned(), ..CellSpec::default() };
    /// session.execute(command("cd /usr; greeting=hello"), &mut |_| {})?;
    /// let outcome = session.execute(command("echo $greeting from $PWD"), &mut |_| {})?;
    /// assert_eq!(outcome.stdout, "hello from /usr\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn session(&self, spec: ContextSpec) -> Result<Context, Error> {
        self.session_unless(spec, &|| false)
    }

    /// As [`Engine::session`], for a caller that may have left before the session's script has run.
    ///
    /// # Errors
    /// As [`Engine::session`].
    pub fn session_unless(
        &self,
        spec: ContextSpec,
        is_withdrawn: &dyn Fn() -> bool,
    ) -> Result<Context, Error> {
        let session = Context::new(self.inner.clone(), None, in_sandbox(spec, None)?, None);
        let standing = session.shell(is_withdrawn)?;
        session.note(&standing);
        *session.standing() = Some(standing);
        Ok(session)
    }
}

impl Contexts {
    /// Opens a context with a warm interpreter, or waits for the next one. `is_cancelled` is called
    /// now and then during the wait.
    ///
    /// # Errors
    /// Only what stops Sandtimer before a context exists; see [`Error`].
    pub fn open(&self, spec: ContextSpec, is_cancelled: &mut dyn FnMut() -> bool) -> Result<Context, Error> {
        let spec = in_sandbox(spec, Some(self.calls.shared().profile.language))?;
        let source = self.calls.shared().clone();
        let mut standing = LiveInterpreter::take(&source, &spec, is_cancelled)?;
        begun(&mut standing, &spec)?;
        let spec =
            ContextSpec { workspace: spec.workspace.or_else(|| standing.own_workspace.take()), ..spec };
        Ok(Context::new(source.inner.clone(), Some(source), spec, Some(standing)))
    }

    /// Waits until `count` interpreters are warm.
    ///
    /// # Errors
    /// As [`Calls::warm`].
    pub fn warm(&self, count: usize, is_cancelled: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.calls.warm(count, is_cancelled)
    }

    /// What the pool has done so far.
    pub fn stats(&self) -> Stats {
        self.calls.stats()
    }
}

impl Context {
    fn new(
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

    fn standing(&self) -> MutexGuard<'_, Option<LiveInterpreter>> {
        // Poisoning is harmless: the interpreter is intact or dead, which is checked before every
        // use.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Run>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory that is its /workspace. A private one ([`Profile::workspaces`]) is removed by
    /// the caller that opened the context.
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

    fn note(&self, standing: &LiveInterpreter) {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) =
            (standing.checkpoint(), standing.can_undo());
    }

    /// Whether something can be asked of its interpreter: its sandbox is not paused.
    fn check_running(&self) -> Result<(), Error> {
        self.spec.sandbox.as_ref().map_or(Ok(()), Sandbox::check_running)
    }

    /// Whether its sandbox is paused: its interpreter answers nothing.
    fn is_paused(&self) -> bool {
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
    fn ready(
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
    fn wait_for(&self, turn: &ContextTurn, is_withdrawn: &dyn Fn() -> bool) -> Result<(), Error> {
        turn.wait_while(&|| self.check_wanted(is_withdrawn).is_ok());
        self.check_wanted(is_withdrawn)
    }

    fn check_wanted(&self, is_withdrawn: &dyn Fn() -> bool) -> Result<(), Error> {
        match (self.closed.load(Ordering::Acquire), is_withdrawn()) {
            (true, _) => Err(Error::Closed),
            (_, true) => Err(Error::Withdrawn),
            _ => Ok(()),
        }
    }

    fn lost(&self) -> MutexGuard<'_, Option<(RemainingState, String)>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a loss of state for the next run to report; of two the worse.
    fn note_loss(&self, state: RemainingState, reason: String) {
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

/// The spec of a context in a sandbox with what the sandbox's user has by default; any other as it
/// is. `language`: of an interpreter.
fn in_sandbox(mut spec: ContextSpec, language: Option<Language>) -> Result<ContextSpec, Error> {
    let Some(sandbox) = &spec.sandbox else { return Ok(spec) };
    let conflict = |field, remedy| Err(SandboxError::Conflict { field, remedy }.into());
    if spec.workspace.is_some() || spec.temporary.is_some() {
        return conflict("workspace", "its files are the sandbox's");
    }
    if language == Some(Language::Python) && !sandbox.has_programs_of_host() {
        return conflict("language", "use a session, or a sandbox of the template `host`");
    }
    for (name, value) in sandboxes::user_variables() {
        spec.environment.entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }
    for (name, value) in sandbox.network_variables() {
        spec.environment.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
    }
    spec.network |= sandbox.has_network_of_host();
    Ok(spec)
}

/// Waits until a new interpreter has begun in its directory and with its limits.
fn begun(standing: &mut LiveInterpreter, spec: &ContextSpec) -> Result<(), Error> {
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

/// What an interpreter begins with, as JSON; or that it is to become an image.
fn variables(spec: &ContextSpec, branch: bool) -> serde_json::Value {
    serde_json::json!({"environment": spec.environment, "directory": spec.directory, "branch": branch})
}

/// What an interpreter of this profile is called, for messages.
fn interpreter_name(source: &ChildPool) -> OsString {
    source.profile.interpreter.clone()
}
