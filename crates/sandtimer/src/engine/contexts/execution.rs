//! One cell of a context, from when it is asked for to its Outcome.
//!
//! ```text
//! asked for ─▶ its turn ─▶ interpreter ready ─▶ begun: a run ─▶ read to its answer or verdict ─▶ Outcome ─▶ interpreter put back
//! tried     ─▶ not now, or the same, which another thread continues with where it takes longer
//! ```
//! The thread that executes owns the interpreter until the cell has ended: an [`Execution`] that is
//! dropped ends the interpreter.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

use super::super::error::Error;
use super::super::jail;
use super::super::opened;
#[cfg(feature = "javascript")]
use super::super::reading;
use super::super::run::Run;
use super::super::sandboxes::Sandbox;
use super::super::spec::{Spec, Stdin};
use super::super::start;
use super::super::streams::RunStreams;
use super::super::which_processor::ActiveWork;
use super::cell::{CellEvent, CellSpec};
use super::context::{CLOSED, Context};
use super::heard::{CellReadState, CellReader};
use super::interpreter::LiveInterpreter;
use super::turns::ContextTurn;
use crate::limits::{Limits, nanoseconds};
use crate::model::{LimitKind, Outcome, RemainingState, Source};
use crate::scope::ScopeId;
#[cfg(feature = "javascript")]
use crate::script;
use crate::supervise::at_once::RunHandoff;

/// How long an answer's Outcome usually takes if other threads contribute to it.
const OUTCOME_TIMEOUT: Duration = Duration::from_millis(1);
/// How long a short cell takes. A cell that takes longer may be writing to streams of earlier
/// cells, which are held.
const SHORT_CELL_TIMEOUT: Duration = Duration::from_millis(2);
/// Bytes of what a cell displays if no scope limits them; it becomes JSON in the caller.
const DEFAULT_RESULT: u64 = 64 << 20;

/// An active cell, and the interpreter that executes it. Dropping it ends the interpreter.
#[derive(Debug)]
pub struct Execution {
    interpreter: LiveInterpreter,
    run: Arc<Run>,
    handoff: RunHandoff,
    read_state: CellReadState,
    turn: ContextTurn,
    under_way: ActiveWork,
}

impl Execution {
    /// Whether its Outcome is there, and states what is left of the interpreter.
    fn is_settled(&self) -> bool {
        let waiting = &self.run.running.waiting;
        waiting.wait_for(OUTCOME_TIMEOUT, true, true)
            && waiting.wait_outcome(false).state != RemainingState::None
    }
}

/// The result of trying to execute a cell.
#[derive(Debug)]
pub enum ExecutionAttempt {
    /// The cell has finished; this is its Outcome.
    Finished(Arc<Outcome>),
    /// The cell is running; [`Context::continue_execution`] waits for its end.
    Continues(Box<Execution>),
    /// It has not begun: others come before it, or its interpreter is not ready.
    NotReady(Box<CellSpec>),
}

impl Context {
    /// Executes code when its turn has come, blocking the calling thread until the Outcome is
    /// there. `emit` is called with the cell's events. Waiting for the turn does not count against
    /// the run's limits.
    ///
    /// # Errors
    /// What stops Sandtimer before a run exists; a closed context.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{CellSpec, ContextSpec, Ending, Engine, Limits, Profile, RemainingState};
    ///
    /// let engine = Engine::new()?;
    /// let profile = Profile { interpreter: "python3".into(), ..Profile::default() };
    /// let context = engine.contexts(profile, 1)?.open(ContextSpec::default(), &mut || false)?;
    /// let limits = Limits::new().wall(Duration::from_millis(300));
    /// let source = "while True: pass".to_owned();
    /// let cell = CellSpec { source, limits, ..CellSpec::default() };
    /// let outcome = context.execute(cell, &mut |_| {})?;
    /// assert_eq!(outcome.ending, Ending::Timeout);
    /// // The interpreter and its variables are still there.
    /// assert_eq!(outcome.state, RemainingState::Kept);
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn execute(
        &self,
        mut cell: CellSpec,
        emit: &mut dyn FnMut(CellEvent),
    ) -> Result<Arc<Outcome>, Error> {
        self.check_running()?;
        let asked_at = monotonic_nanoseconds();
        let turn = cell.turn.take().unwrap_or_else(|| self.queue());
        self.wait_for(&turn, &|| is_withdrawn(&cell.withdrawn))?;
        self.ready(&mut self.standing(), &|| is_withdrawn(&cell.withdrawn))?;
        let execution = self.start(cell, turn, asked_at, emit)?;
        Ok(self.continue_execution(execution, emit))
    }

    /// As [`Context::execute`] for code that ends soon, on a thread that is not to be kept for
    /// longer than `most`: [`Context::continue_execution`] brings what has not finished by then to
    /// its end, on another thread. Only Python's cells are tried.
    ///
    /// # Errors
    /// As [`Context::execute`].
    pub fn try_execute(
        &self,
        mut cell: CellSpec,
        most: Duration,
        emit: &mut dyn FnMut(CellEvent),
    ) -> Result<ExecutionAttempt, Error> {
        self.check_running()?;
        let asked_at = monotonic_nanoseconds();
        let until = asked_at.saturating_add(nanoseconds(most));
        let turn = cell.turn.take().unwrap_or_else(|| self.queue());
        if !turn.has_come() || !self.is_ready_by(until) {
            cell.turn = Some(turn);
            return Ok(ExecutionAttempt::NotReady(Box::new(cell)));
        }
        self.check_wanted(&|| is_withdrawn(&cell.withdrawn))?;
        let mut execution = self.start(cell, turn, asked_at, emit)?;
        if !self.read_cell(&mut execution, Some(until), emit) || !execution.is_settled() {
            return Ok(ExecutionAttempt::Continues(Box::new(execution)));
        }
        Ok(ExecutionAttempt::Finished(self.finish(execution, false, emit)))
    }

    /// Whether there is a live interpreter that has made its checkpoint by `end`, without steps
    /// that may take longer.
    fn is_ready_by(&self, end: u64) -> bool {
        let mut holder = self.standing();
        let Some(interpreter) = holder.as_mut().filter(|interpreter| !interpreter.is_shell()) else {
            return false;
        };
        let is_ready = interpreter.is_ready_by(end);
        if is_ready {
            self.note(interpreter);
        }
        is_ready
    }

    /// Begins a cell in an interpreter that is ready.
    fn start(
        &self,
        cell: CellSpec,
        turn: ContextTurn,
        asked_at: u64,
        emit: &mut dyn FnMut(CellEvent),
    ) -> Result<Execution, Error> {
        if let Some((state, reason)) = self.lost().take() {
            emit(CellEvent::Lost(state, reason));
        }
        let mut holder = self.standing();
        let Some(interpreter) = holder.as_mut() else { return Err(Error::Closed) };
        let (run, handoff, read_state) = self.begin(interpreter, cell, asked_at)?;
        let Some(mut interpreter) = holder.take() else { return Err(Error::Closed) };
        drop(holder);
        *self.current() = Some(run.clone());
        if self.closed.load(Ordering::SeqCst) {
            // The thread that closed the context may have read `current` before this run was there.
            run.cancel(CLOSED);
        }
        self.executions.fetch_add(1, Ordering::Relaxed);
        emit(CellEvent::Started(run.clone()));
        interpreter.was_sent(asked_at);
        let (under_way, _) = ActiveWork::begin(&self.inner.cells);
        Ok(Execution { interpreter, run, handoff, read_state, turn, under_way })
    }

    /// Reads the messages of a cell to its answer or verdict. Returns false if neither was there by
    /// `until`.
    fn read_cell(
        &self,
        execution: &mut Execution,
        until: Option<u64>,
        emit: &mut dyn FnMut(CellEvent),
    ) -> bool {
        let Execution { interpreter, run, handoff, read_state, .. } = execution;
        let reader = CellReader::new(&self.inner, &run.running, interpreter, read_state, handoff);
        reader.is_none_or(|mut reader| reader.read(until, emit))
    }

    /// Continues an active cell to its end, blocking the calling thread until the Outcome is there.
    pub fn continue_execution(
        &self,
        mut execution: Execution,
        emit: &mut dyn FnMut(CellEvent),
    ) -> Arc<Outcome> {
        let soon = monotonic_nanoseconds().saturating_add(nanoseconds(SHORT_CELL_TIMEOUT));
        if !self.read_cell(&mut execution, Some(soon), emit) {
            execution.interpreter.let_streams_go();
            self.read_cell(&mut execution, None, emit);
        }
        self.finish(execution, true, emit)
    }

    /// Waits for the Outcome, and puts the interpreter back where the next run finds it. `prepare`:
    /// that has its checkpoint made at once.
    fn finish(&self, execution: Execution, prepare: bool, emit: &mut dyn FnMut(CellEvent)) -> Arc<Outcome> {
        let Execution { mut interpreter, run, read_state, turn, under_way, .. } = execution;
        let mut outcome = run.running.waiting.wait_outcome(false);
        if outcome.state == RemainingState::None {
            // What is left of the interpreter is known when what was killed is dead.
            outcome = run.running.waiting.wait_outcome(true);
        }
        *self.current() = None;
        let before_wall = run.running.live().is_some_and(|live| live.was_interrupted.load(Ordering::SeqCst));
        interpreter.was_interrupted = self.was_interrupted.swap(false, Ordering::SeqCst) || before_wall;
        read_state.close(emit);
        let stands = match outcome.state {
            RemainingState::Kept => {
                interpreter.is_kept();
                true
            }
            RemainingState::RolledBack => {
                interpreter.resumed(&run.running);
                true
            }
            // The shell ended by itself: a new one continues where it was.
            RemainingState::Reset => interpreter.is_shell() && interpreter.restart_shell(&run.running),
            _ => false,
        };
        if stands {
            // The checkpoint is made while no caller waits for it.
            interpreter.finish_cell(prepare, under_way.is_alone());
            if let Some(sandbox) = &self.spec.sandbox {
                // A ceiling may have ended the run in a pause.
                sandbox.keep_paused(&interpreter.jail_handle);
            }
            *self.standing() = Some(interpreter);
        }
        drop(under_way);
        // The next one finds it there.
        drop(turn);
        outcome
    }

    /// Makes the cell a run, and sends it.
    pub(super) fn begin(
        &self,
        interpreter: &mut LiveInterpreter,
        cell: CellSpec,
        asked_at: u64,
    ) -> Result<(Arc<Run>, RunHandoff, CellReadState), Error> {
        let inner = &self.inner;
        let mut spec = Spec::command(["python3"]);
        spec.limits = cell.limits;
        let builtin = (Source::Builtin, Limits::new().result(DEFAULT_RESULT));
        // The context's own are in force already, and are what a verdict is to name.
        let whole = (Source::Session, self.spec.limits.clone());
        spec.defaults = [whole].into_iter().chain(cell.defaults).chain([builtin]).collect();
        spec.parent = cell.parent.or(self.spec.parent);
        spec.sandbox = self.spec.sandbox.clone();
        (spec.warn, spec.warn_signal) = (cell.warn, cell.warn_signal);
        spec.end_on_output_limit = cell.end_on_output_limit;
        let has_stdin = cell.stdin_open || cell.stdin.is_some();
        if cell.stdin_open {
            spec.stdin = Stdin::Piped;
        } else if let Some(bytes) = cell.stdin {
            spec.stdin = Stdin::Bytes(bytes);
        }
        let id = cell.run_id.unwrap_or_else(opened::new_run_id);
        let mut opened = opened::open_as(inner, &spec, id)?;
        let scope = opened.scope;
        opened.submitted_at = asked_at;
        let limit = opened.effective.get(LimitKind::Result).map_or(u64::MAX, |effect| effect.value);
        let displays = interpreter.next_displays(limit);
        let live = interpreter.live(displays.clone()).inspect_err(|_| opened::close(inner, scope))?;
        // The cell's time begins when the engine begins to read its code.
        let begun_at = monotonic_nanoseconds();
        let sent = self.source(interpreter, cell.source, &opened, spec.parent).and_then(|source| {
            let mut streams = RunStreams::make(inner, &mut spec, &opened.effective)?;
            let until = interpreter.send_cell(&source, begun_at, has_stdin, &streams, &opened)?;
            streams.unwritten = interpreter.unwritten();
            Ok((streams, until))
        });
        let (streams, until) = sent.inspect_err(|_| {
            // Init may already have the cell's deadline.
            let _ = interpreter.jail_handle.control.end_by(u64::MAX);
            opened::close(inner, scope);
        })?;
        let job = interpreter.job(live, begun_at, until);
        let spools = streams.spools();
        interpreter.jail_handle.spawned_at = begun_at;
        let running = jail::running_at(
            inner,
            &interpreter.jail_handle,
            opened,
            &spec,
            Some(job),
            jail::JailResources::default(),
        );
        let (attachment, pipes) = streams.attach(running.clone());
        let handoff = start::watch(inner, attachment);
        if let Some(sandbox) = &spec.sandbox {
            sandbox.note_run(&running, scope);
        }
        let layer = self.spec.sandbox.as_ref().map(Sandbox::upper);
        let own = self.spec.workspace.iter().chain(&self.spec.temporary).cloned();
        let growing: Vec<_> = own.chain(layer).collect();
        inner.disk.watch(&running, &growing, &inner.enforcer);
        let run = Run { inner: inner.clone(), running, scope, spools, pipes: Mutex::new(pipes) };
        Ok((Arc::new(run), handoff, CellReadState::new(displays, limit)))
    }

    /// The cell as its interpreter is sent it. It is read within its wall limit.
    #[cfg(feature = "javascript")]
    fn source(
        &self,
        interpreter: &LiveInterpreter,
        source: String,
        opened: &opened::OpenedRun,
        parent: Option<ScopeId>,
    ) -> Result<String, Error> {
        match (interpreter.is_script(), self.spec.typescript) {
            (false, _) => Ok(source),
            (true, false) => Ok(script::cell(&source, false)),
            (true, true) => {
                let wall = opened.effective.get(LimitKind::Wall);
                let within = wall.map(|effect| Duration::from_nanos(effect.value));
                reading::read(&self.inner, script::ReadTarget::Cell, &source, within, parent)
            }
        }
    }

    #[cfg(not(feature = "javascript"))]
    fn source(
        &self,
        _: &LiveInterpreter,
        source: String,
        _: &opened::OpenedRun,
        _: Option<ScopeId>,
    ) -> Result<String, Error> {
        Ok(source)
    }
}

fn is_withdrawn(withdrawn: &Option<Arc<AtomicBool>>) -> bool {
    withdrawn.as_ref().is_some_and(|withdrawn| withdrawn.load(Ordering::Acquire))
}
