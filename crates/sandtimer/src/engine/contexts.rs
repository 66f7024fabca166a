//! Contexts: live interpreters, each in a sandbox that stands for many runs, one after the other.
//!
//! ```text
//! caller ── waits for its turn ─▶ readies the interpreter ─▶ a cell is a run in the standing sandbox ─▶ Outcome
//!                                    (checkpoint, see docs/design/contexts.md)      kept · rolled back · reset
//! ```
//! The context owns the sandbox between runs; while a run is on it shares it with the enforcer, which ends every run
//! that it has looked at; one that was answered before is ended by whoever took the answer.
//! Whoever executes drives the interpreter's channel; no deadline depends on that.

mod branch;
mod heard;
mod prewarm;
mod shell;
mod standing;
mod turns;
mod words;

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
use super::opened;
use super::place;
#[cfg(feature = "javascript")]
use super::reading;
use super::refill::{Shared, Stats};
use super::run::Run;
use super::spec::{Require, Spec, Stdin};
use super::start;
use super::streams::Streams;
use super::which_processor::UnderWay;
use super::{Engine, Inner};
use crate::limits::{Limits, nanoseconds};
use crate::model::{LimitKind, Outcome, Source, State};
use crate::scope::ScopeId;
#[cfg(feature = "javascript")]
use crate::script;
use crate::supervise::at_once::Brought;
use crate::zygote::{Language, Profile};
pub use branch::BranchSpec;
use heard::Heard;
pub use prewarm::ShellPrewarm;
use standing::Standing;
pub use turns::Turn;
use turns::Turns;

const CLOSED: &str = "the context was closed";
/// How long an answer's Outcome takes, as a rule, where others have a part in it.
const SETTLES: Duration = Duration::from_millis(1);
/// How long a short cell takes. One that takes longer may be writing to streams of earlier ones, which are held.
const SOON: Duration = Duration::from_millis(2);
/// How long nobody has to want anything of an interpreter before what it needs no more is ended.
const LULL: Duration = Duration::from_millis(2);
/// Why a shell does not begin in its directory.
const NOT_ENTERED: &str = "it is not there and may not be made, or is no directory, or may not be entered";
/// Bytes of what a cell shows unless somebody says otherwise; it becomes JSON in the caller.
const DEFAULT_RESULT: u64 = 64 << 20;

/// A pool of interpreters that stand ready to become contexts. Dropping it ends those; contexts go on.
#[derive(Debug)]
pub struct Contexts {
    calls: Calls,
}

/// How a context is to be.
#[derive(Debug, Clone, Default)]
pub struct ContextSpec {
    /// What holds for the context as a whole: memory, processes, open files, disk.
    pub limits: Limits,
    pub defaults: Vec<(Source, Limits)>,
    pub parent: Option<ScopeId>,
    pub require: Require,
    /// Variables added to the clean environment.
    pub environment: HashMap<String, String>,
    /// Where it begins, inside; made if it is not there. Its workspace by default.
    pub directory: Option<String>,
    /// A directory made by [`make_workspace`](super::make_workspace) that is its /workspace. Without it, one of its own.
    pub workspace: Option<PathBuf>,
    /// Its cells are TypeScript, for a JavaScript interpreter.
    pub typescript: bool,
    /// What each of its shells runs before the first command, for a session.
    pub prewarm: Option<Arc<ShellPrewarm>>,
}

/// A piece of code for a context, and what bounds it.
#[derive(Debug, Default)]
pub struct Cell {
    pub source: String,
    /// What it reads from stdin; nothing by default.
    pub stdin: Option<Vec<u8>>,
    pub limits: Limits,
    pub defaults: Vec<(Source, Limits)>,
    /// As [`Spec::warn`] and [`Spec::warn_signal`].
    pub warn: Option<Duration>,
    pub warn_signal: Option<i32>,
    pub end_on_output_limit: bool,
    /// The scope that its run belongs to, instead of the context's.
    pub parent: Option<ScopeId>,
    /// Its place in the order of this context's runs, from [`Context::queue`]; the last one by default.
    pub turn: Option<Turn>,
    /// Set by a caller who has left: what has not begun then does not begin.
    pub withdrawn: Option<Arc<AtomicBool>>,
    /// The run's id, from [`new_run_id`](super::new_run_id), for a caller who names it before it begins.
    pub run_id: Option<String>,
}

/// What is told of a cell while it runs.
#[derive(Debug)]
pub enum Told {
    /// It has begun; its output can be read, and it can be cancelled.
    Begun(Arc<Run>),
    /// Something that it displays, by MIME type.
    Displayed(serde_json::Value),
    /// The exception that ends it, pickled, as base64: for callers that can rebuild one. Not to be trusted.
    Raised(String),
    /// The interpreter was lost since the last cell: what remains of its state, and why.
    Lost(State, String),
}

/// A cell that goes on, and the interpreter it is executed in. One that is dropped takes the interpreter along.
#[derive(Debug)]
pub struct Execution {
    standing: Standing,
    run: Arc<Run>,
    brought: Brought,
    heard: Heard,
    turn: Turn,
    under_way: UnderWay,
}

impl Execution {
    /// Whether its Outcome is there, and says what is left of the interpreter.
    fn is_settled(&self) -> bool {
        let waiting = &self.run.running.waiting;
        waiting.wait_for(SETTLES, true, true) && waiting.wait_outcome(false).state != State::None
    }
}

/// What became of a cell that was tried.
#[derive(Debug)]
pub enum Tried {
    Over(Arc<Outcome>),
    GoesOn(Box<Execution>),
    /// It has not begun: others come before it, or its interpreter is not ready.
    NotNow(Box<Cell>),
}

/// What is known of a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Runs that wait for their turn.
    pub waiting: usize,
    /// Runs that have begun.
    pub executions: u64,
    /// Whether there is a checkpoint that the next run would be rolled back to; else why not. As far as was heard.
    pub checkpoint: Result<(), String>,
    /// Whether the last run can be undone.
    pub can_undo: bool,
}

/// A live interpreter. Dropping it ends it.
#[derive(Debug)]
pub struct Context {
    inner: Arc<Inner>,
    /// Where its interpreters come from; a shell is started when it is needed.
    source: Option<Arc<Shared>>,
    spec: ContextSpec,
    turns: Arc<Turns>,
    standing: Mutex<Option<Standing>>,
    info: Mutex<(Result<(), String>, bool)>,
    /// A loss that was met where no run could be told of it.
    lost: Mutex<Option<(State, String)>>,
    executions: AtomicU64,
    /// Why its shell has not run its script, where that is because of what it is itself.
    not_prewarmed: OnceLock<String>,
    /// The run that is on.
    current: Mutex<Option<Arc<Run>>>,
    closed: AtomicBool,
}

impl Engine {
    /// A pool of `size` interpreters of this profile, being filled.
    ///
    /// # Errors
    /// As [`Engine::calls`]; JavaScript where this was built without the feature `javascript`.
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
    pub fn session(&self, spec: ContextSpec) -> Result<Context, Error> {
        self.session_unless(spec, &|| false)
    }

    /// As [`Engine::session`], for a caller who may have left before its script has run.
    ///
    /// # Errors
    /// As [`Engine::session`].
    pub fn session_unless(
        &self,
        spec: ContextSpec,
        is_withdrawn: &dyn Fn() -> bool,
    ) -> Result<Context, Error> {
        let session = Context::new(self.inner.clone(), None, spec, None);
        let standing = session.shell(is_withdrawn)?;
        session.note(&standing);
        *session.standing() = Some(standing);
        Ok(session)
    }
}

impl Contexts {
    /// Opens a context with an interpreter that stands ready, or the next one that does. `give_up` is asked now and then while
    /// there is none.
    ///
    /// # Errors
    /// Only what stops Sandtimer before a context exists; see [`Error`].
    pub fn open(&self, spec: ContextSpec, give_up: &mut dyn FnMut() -> bool) -> Result<Context, Error> {
        let source = self.calls.shared().clone();
        let mut standing = Standing::take(&source, &spec, give_up)?;
        begun(&mut standing, &spec)?;
        let spec =
            ContextSpec { workspace: spec.workspace.or_else(|| standing.own_workspace.take()), ..spec };
        Ok(Context::new(source.inner.clone(), Some(source), spec, Some(standing)))
    }

    /// Waits until `count` interpreters stand ready.
    ///
    /// # Errors
    /// As [`Calls::warm`].
    pub fn warm(&self, count: usize, give_up: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.calls.warm(count, give_up)
    }

    /// What the pool has done so far.
    pub fn stats(&self) -> Stats {
        self.calls.stats()
    }
}

impl Context {
    fn new(
        inner: Arc<Inner>,
        source: Option<Arc<Shared>>,
        spec: ContextSpec,
        standing: Option<Standing>,
    ) -> Self {
        Context {
            inner,
            source,
            spec,
            turns: Arc::default(),
            standing: Mutex::new(standing),
            info: Mutex::new((Ok(()), false)),
            lost: Mutex::default(),
            executions: AtomicU64::new(0),
            not_prewarmed: OnceLock::new(),
            current: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    fn standing(&self) -> MutexGuard<'_, Option<Standing>> {
        // What stands was left whole, or is dead: that is looked at before every use.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Run>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory that is its /workspace. One of its own ([`Profile::workspaces`]) is whoever's opened it to remove.
    pub fn workspace(&self) -> Option<&Path> {
        self.spec.workspace.as_deref()
    }

    /// Why its shell has not run its script, which others may.
    pub fn not_prewarmed(&self) -> Option<&str> {
        self.not_prewarmed.get().map(String::as_str)
    }

    /// What is known of it, without waiting for it.
    pub fn info(&self) -> Info {
        let (checkpoint, can_undo) = self.info.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let executions = self.executions.load(Ordering::Relaxed);
        Info { waiting: self.turns.waiting(), executions, checkpoint, can_undo }
    }

    /// What is known of it once the checkpoint is made, or why not, that follows the last run; at once where another is on.
    pub fn settled_info(&self) -> Info {
        if let Some(_turn) = self.turns.enter_free() {
            let mut place = self.standing();
            if place.is_some() {
                // What goes wrong is noted, and met again by the next run.
                let _ = self.ready(&mut place, &|| false);
            }
            if let Some(standing) = place.as_mut() {
                standing.end_surplus();
                standing.count();
            }
        }
        self.info()
    }

    /// Settles it in a moment when nobody wants anything of it, if one comes: what ends there keeps a processor from whoever
    /// takes an answer.
    pub fn rest(&self) {
        if self.turns.is_free_for(LULL) {
            self.settled_info();
        }
    }

    fn note(&self, standing: &Standing) {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) =
            (standing.checkpoint(), standing.can_undo());
    }

    /// A place in the order of its runs, for a caller who waits on another thread than he asks on.
    pub fn queue(&self) -> Turn {
        self.turns.enter()
    }

    /// Executes code when its turn has come, blocking the calling thread until the Outcome is there. `tell` is told of it as
    /// it goes on. Waiting for the turn is not on the run's bill.
    ///
    /// # Errors
    /// What stops Sandtimer before a run exists; a closed context.
    pub fn execute(&self, mut cell: Cell, tell: &mut dyn FnMut(Told)) -> Result<Arc<Outcome>, Error> {
        let asked_at = monotonic_nanoseconds();
        let turn = cell.turn.take().unwrap_or_else(|| self.queue());
        turn.wait();
        self.ready(&mut self.standing(), &|| is_withdrawn(&cell.withdrawn))?;
        let execution = self.start(cell, (turn, asked_at), tell)?;
        Ok(self.go_on(execution, tell))
    }

    /// As [`Context::execute`] for code that ends soon, on a thread that is not to be kept for longer than `most`: what is not
    /// over by then, [`Context::go_on`] sees to its end on another. Only Python's cells are tried.
    ///
    /// # Errors
    /// As [`Context::execute`].
    pub fn try_execute(
        &self,
        mut cell: Cell,
        most: Duration,
        tell: &mut dyn FnMut(Told),
    ) -> Result<Tried, Error> {
        let asked_at = monotonic_nanoseconds();
        let until = asked_at.saturating_add(nanoseconds(most));
        let turn = cell.turn.take().unwrap_or_else(|| self.queue());
        if !turn.has_come() || !self.is_ready_by(until) {
            cell.turn = Some(turn);
            return Ok(Tried::NotNow(Box::new(cell)));
        }
        self.check_wanted(&|| is_withdrawn(&cell.withdrawn))?;
        let mut execution = self.start(cell, (turn, asked_at), tell)?;
        if !self.hear(&mut execution, Some(until), tell) || !execution.is_settled() {
            return Ok(Tried::GoesOn(Box::new(execution)));
        }
        Ok(Tried::Over(self.finish(execution, false, tell)))
    }

    /// Has the interpreter make the checkpoint that is due since the last cell that was tried, unless that has been asked for.
    /// For when the answer is on its way: a copy that is made beside it keeps a processor from whoever takes it.
    pub fn prepare(&self) {
        if let Some(_turn) = self.turns.enter_free()
            && let Some(standing) = self.standing().as_mut()
        {
            standing.ask_if_due();
        }
    }

    /// Whether an interpreter stands there and has made its checkpoint, without anything that may take longer.
    fn is_ready_by(&self, end: u64) -> bool {
        let mut place = self.standing();
        let Some(standing) = place.as_mut().filter(|standing| !standing.is_shell()) else { return false };
        let is_ready = standing.is_ready_by(end);
        if is_ready {
            self.note(standing);
        }
        is_ready
    }

    /// Begins a cell in an interpreter that is ready.
    fn start(
        &self,
        cell: Cell,
        (turn, asked_at): (Turn, u64),
        tell: &mut dyn FnMut(Told),
    ) -> Result<Execution, Error> {
        if let Some((state, reason)) = self.lost().take() {
            tell(Told::Lost(state, reason));
        }
        let mut place = self.standing();
        let Some(standing) = place.as_mut() else { return Err(Error::Closed) };
        let (run, brought, heard) = self.begin(standing, cell, asked_at)?;
        let Some(mut standing) = place.take() else { return Err(Error::Closed) };
        drop(place);
        *self.current() = Some(run.clone());
        if self.closed.load(Ordering::SeqCst) {
            // Whoever closed it may have looked before.
            run.cancel(CLOSED);
        }
        self.executions.fetch_add(1, Ordering::Relaxed);
        tell(Told::Begun(run.clone()));
        standing.was_sent(asked_at);
        let (under_way, _) = UnderWay::begin(&self.inner.cells);
        Ok(Execution { standing, run, brought, heard, turn, under_way })
    }

    /// Hears a cell to its answer or verdict. False where neither was there by `until`.
    fn hear(&self, execution: &mut Execution, until: Option<u64>, tell: &mut dyn FnMut(Told)) -> bool {
        let Execution { standing, run, brought, heard, .. } = execution;
        heard::hear(&self.inner, &run.running, standing, (heard, brought), until, tell)
    }

    /// Sees a cell that goes on to its end, blocking the calling thread until the Outcome is there.
    pub fn go_on(&self, mut execution: Execution, tell: &mut dyn FnMut(Told)) -> Arc<Outcome> {
        let soon = monotonic_nanoseconds().saturating_add(nanoseconds(SOON));
        if !self.hear(&mut execution, Some(soon), tell) {
            execution.standing.let_streams_go();
            self.hear(&mut execution, None, tell);
        }
        self.finish(execution, true, tell)
    }

    /// Waits for the Outcome, and puts the interpreter back where the next run finds it. `prepare`: that has its checkpoint made
    /// at once.
    fn finish(&self, execution: Execution, prepare: bool, tell: &mut dyn FnMut(Told)) -> Arc<Outcome> {
        let Execution { mut standing, run, heard, turn, under_way, .. } = execution;
        let mut outcome = run.running.waiting.wait_outcome(false);
        if outcome.state == State::None {
            // What is left of the interpreter is known when what was killed is dead.
            outcome = run.running.waiting.wait_outcome(true);
        }
        *self.current() = None;
        heard.close(tell);
        let stands = match outcome.state {
            State::Kept => {
                standing.is_kept();
                true
            }
            State::RolledBack => {
                standing.resumed(&run.running);
                true
            }
            // The shell ended by itself: a new one goes on where it was.
            State::Reset => standing.is_shell() && standing.begin_anew(&run.running),
            _ => false,
        };
        if stands {
            // Made while nobody waits for it.
            standing.is_over(prepare, under_way.is_alone());
            *self.standing() = Some(standing);
        }
        drop(under_way);
        // The next one finds it there.
        drop(turn);
        outcome
    }

    /// Sees that an interpreter stands there and has made its checkpoint.
    fn ready(&self, place: &mut Option<Standing>, is_withdrawn: &dyn Fn() -> bool) -> Result<(), Error> {
        self.check_wanted(is_withdrawn)?;
        if let Some(standing) = place.as_mut() {
            match standing.ready() {
                Ok(None) => {}
                Ok(Some(reason)) => self.note_loss(State::RolledBack, reason),
                Err(reason) => {
                    *place = None;
                    self.note_loss(State::Reset, reason);
                }
            }
        }
        if place.is_none() {
            let mut standing = match &self.source {
                Some(source) => {
                    let mut give_up = || self.check_wanted(is_withdrawn).is_err();
                    let mut standing = Standing::take(source, &self.spec, &mut give_up)?;
                    begun(&mut standing, &self.spec)?;
                    standing
                }
                None => self.shell(is_withdrawn)?,
            };
            let doing = "the context's interpreter does not begin";
            let failed = |reason| Error::System { doing, source: std::io::Error::other(reason) };
            standing.ready().map_err(failed)?;
            *place = Some(standing);
        }
        if let Some(standing) = place.as_ref() {
            self.note(standing);
        }
        self.check_wanted(is_withdrawn)
    }

    fn check_wanted(&self, is_withdrawn: &dyn Fn() -> bool) -> Result<(), Error> {
        match (self.closed.load(Ordering::Acquire), is_withdrawn()) {
            (true, _) => Err(Error::Closed),
            (_, true) => Err(Error::Withdrawn),
            _ => Ok(()),
        }
    }

    fn lost(&self) -> MutexGuard<'_, Option<(State, String)>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a loss for the next run to be told of; of two the worse.
    fn note_loss(&self, state: State, reason: String) {
        let mut lost = self.lost();
        if !matches!(*lost, Some((State::Reset, _))) {
            *lost = Some((state, reason));
        }
    }

    /// Makes the cell a run, and sends it.
    fn begin(
        &self,
        standing: &mut Standing,
        cell: Cell,
        asked_at: u64,
    ) -> Result<(Arc<Run>, Brought, Heard), Error> {
        let inner = &self.inner;
        let mut spec = Spec::command(["python3"]);
        spec.limits = cell.limits;
        let builtin = (Source::Builtin, Limits::new().result(DEFAULT_RESULT));
        // The context's own are in force already, and are what a verdict is to name.
        let whole = (Source::Session, self.spec.limits.clone());
        spec.defaults = [whole].into_iter().chain(cell.defaults).chain([builtin]).collect();
        spec.parent = cell.parent.or(self.spec.parent);
        (spec.warn, spec.warn_signal) = (cell.warn, cell.warn_signal);
        spec.end_on_output_limit = cell.end_on_output_limit;
        let has_stdin = cell.stdin.is_some();
        if let Some(bytes) = cell.stdin {
            spec.stdin = Stdin::Bytes(bytes);
        }
        let id = cell.run_id.unwrap_or_else(opened::new_run_id);
        let mut opened = opened::open_as(inner, &spec, id)?;
        let scope = opened.scope;
        opened.submitted_at = asked_at;
        let limit = opened.effective.get(LimitKind::Result).map_or(u64::MAX, |effect| effect.value);
        let words = standing.next_words(limit);
        let live = standing.live(words.clone()).inspect_err(|_| opened::close(inner, scope))?;
        // Its time begins when somebody begins to read it.
        let begun_at = monotonic_nanoseconds();
        let sent = self.source(standing, cell.source, &opened).and_then(|source| {
            let streams = Streams::make(inner, &mut spec, &opened.effective)?;
            let until = standing.send_cell((&source, begun_at), has_stdin, &streams, &opened)?;
            Ok((streams, until))
        });
        let (streams, until) = sent.inspect_err(|_| {
            // Init may have been told already when it was to end.
            let _ = standing.place.control.end_by(u64::MAX);
            opened::close(inner, scope);
        })?;
        let job = standing.job(live, begun_at, until);
        let spools = streams.spools();
        standing.place.spawned_at = begun_at;
        let running = place::running_at(
            inner,
            &standing.place,
            opened,
            &spec,
            (Some(job), place::Belongings::default()),
        );
        let (attachment, _) = streams.attach(running.clone());
        let brought = start::watch(inner, attachment);
        inner.disk.watch(&running, self.spec.workspace.as_slice(), &inner.enforcer);
        let run = Run { inner: inner.clone(), running, scope, spools, pipes: Mutex::default() };
        Ok((Arc::new(run), brought, Heard::new(words, limit)))
    }

    /// The cell as its interpreter is sent it. It is read within its wall limit.
    #[cfg(feature = "javascript")]
    fn source(&self, standing: &Standing, source: String, opened: &opened::Opened) -> Result<String, Error> {
        match (standing.is_script(), self.spec.typescript) {
            (false, _) => Ok(source),
            (true, false) => Ok(script::cell(&source, false)),
            (true, true) => {
                let wall = opened.effective.get(LimitKind::Wall);
                let within = wall.map(|effect| Duration::from_nanos(effect.value));
                reading::read(&self.inner, script::Wanted::Cell, &source, within)
            }
        }
    }

    #[cfg(not(feature = "javascript"))]
    fn source(&self, _: &Standing, source: String, _: &opened::Opened) -> Result<String, Error> {
        Ok(source)
    }

    /// Interrupts the run that is on, as Ctrl-C does: the interpreter, or what a shell's command has started. False when none is.
    pub fn interrupt(&self) -> bool {
        // Held until it is sent: it comes before whatever is sent for the next run.
        let current = self.current();
        let Some(run) = current.as_ref() else { return false };
        const INTERRUPT: i32 = 2;
        let is_shell = run.running.live().is_some_and(|live| live.is_shell);
        let order = if is_shell { order::SIGNAL_ALL } else { order::SIGNAL_MAIN };
        process::order(&*run.running.control, order, INTERRUPT, 0).is_ok()
    }

    /// The run that is on.
    pub fn running(&self) -> Option<Arc<Run>> {
        self.current().clone()
    }

    /// Goes back to the state before the last run that changed it. False where there is no such state any more.
    ///
    /// # Errors
    /// A closed context; the interpreter was lost on the way, and begins anew.
    pub fn undo(&self) -> Result<bool, Error> {
        self.undo_unless(self.queue(), &|| false)
    }

    /// As [`Context::undo`], for a caller who may have left before it begins.
    ///
    /// # Errors
    /// As [`Context::undo`].
    pub fn undo_unless(&self, turn: Turn, is_withdrawn: &dyn Fn() -> bool) -> Result<bool, Error> {
        turn.wait();
        let mut place = self.standing();
        self.ready(&mut place, is_withdrawn)?;
        let Some(standing) = place.as_mut() else { return Err(Error::Closed) };
        if !standing.can_undo() {
            return Ok(false);
        }
        let undone = standing.undo();
        if undone.is_err() {
            *place = None;
        } else {
            standing.ask_for_checkpoint();
            self.note(standing);
        }
        undone.map(|()| true)
    }

    /// Ends it: a run that is on is cancelled, those that wait for their turn are refused.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Some(run) = self.current().clone() {
            run.cancel(CLOSED);
        }
        let turn = self.queue();
        turn.wait();
        *self.standing() = None;
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.inner.is_a_copy() {
            // The interpreter is another process's. Nobody else can hold the lock, whoever did in that process.
            let place = self.standing.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(place.take());
        }
    }
}

fn is_withdrawn(withdrawn: &Option<Arc<AtomicBool>>) -> bool {
    withdrawn.as_ref().is_some_and(|withdrawn| withdrawn.load(Ordering::Acquire))
}

/// Waits until a new interpreter stands there as it is to be.
fn begun(standing: &mut Standing, spec: &ContextSpec) -> Result<(), Error> {
    let limit = standing.spawn_limit();
    let most = nanoseconds(limit);
    let end = monotonic_nanoseconds().saturating_add(most);
    let Err(reason) = standing.begun_within(most) else { return Ok(()) };
    let said = standing.refusal.take();
    // A shell that does not begin has said nothing, and ended where it could not go on.
    let said = said.or_else(|| standing.is_shell().then(|| NOT_ENTERED.to_owned()));
    Err(match (&spec.directory, said) {
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
fn interpreter(source: &Shared) -> OsString {
    source.profile.interpreter.clone()
}
