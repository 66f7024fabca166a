//! Contexts and their runs, as Python objects.
//!
//! ```text
//! the caller ── waits without the interpreter's lock ◀── messages ── a thread for the run, which drives the context
//! ```
//! The thread is there so that the caller's thread can handle signals, call back, or leave: then
//! the run is cancelled, and a run that waits for its turn does not begin. A forked process removes
//! nothing of a context.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sandtimer::engine::{self, BranchSpec, CellEvent, CellSpec, ContextSpec, Run, Stream};
use sandtimer::model::{RemainingState, Source};
use serde_json::Value;

use crate::ended::Ended;
use crate::signals::{SIGNAL_POLL_INTERVAL, poll_signals};
use crate::{errors, limits};

/// How often the caller's thread polls for output to pass to the callback: no event announces
/// output.
const OUTPUT_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of output that are called back at a time.
const OUTPUT_PIECE_BYTES: usize = 64 * 1024;
/// Displays that wait to be called back, until the cell has to wait.
const MAX_WAITING_DISPLAYS: usize = 2;
/// Messages at a time, so that an event loop has its turn.
const MAX_MESSAGES: usize = 64;

/// How a context is to be: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ContextOf {
    environment: HashMap<String, String>,
    directory: Option<String>,
}

/// A cell, and what of it is called back: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct CellOf {
    source: String,
    stdin: Option<Vec<u8>>,
    stdout: bool,
    stderr: bool,
    display: bool,
}

/// The exception for an error of the engine, as a user of a context expects it.
fn context_exception(py: Python<'_>, error: &sandtimer::Error) -> PyErr {
    match error {
        sandtimer::Error::Closed => errors::exception(
            py,
            "SandboxUnavailableError",
            "the context is closed; open another with `Sandbox.context`",
        ),
        error => errors::from_engine(py, error),
    }
}

/// Does it without the interpreter's lock, where there is an interpreter.
fn unlocked(act: impl FnOnce() + Send) {
    let mut act = Some(act);
    Python::try_attach(|py| py.detach(|| act.take().map(|act| act())));
    if let Some(act) = act {
        act();
    }
}

/// Warm interpreters that can become contexts.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Contexts {
    contexts: Mutex<Option<Arc<engine::Contexts>>>,
}

impl Contexts {
    pub(crate) fn new(contexts: engine::Contexts) -> Self {
        Contexts { contexts: Mutex::new(Some(Arc::new(contexts))) }
    }

    fn get(&self) -> MutexGuard<'_, Option<Arc<engine::Contexts>>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Contexts {
    /// Opens a context whose limits as a whole are these.
    fn open(&self, py: Python<'_>, context: ContextOf, limits: &limits::CallLimits) -> PyResult<Context> {
        let ContextOf { environment, directory } = context;
        let (limits, require) = (limits.limits.clone(), limits.require);
        let spec = ContextSpec { limits, require, environment, directory, ..ContextSpec::default() };
        let contexts = self.get().clone();
        let mut raised = None;
        let opened =
            py.detach(|| contexts.map(|contexts| contexts.open(spec, &mut || poll_signals(&mut raised))));
        raised.map_or(Ok(()), Err)?;
        match opened {
            Some(Ok(context)) => Ok(Context { context: Mutex::new(Some(Arc::new(context))) }),
            None | Some(Err(sandtimer::Error::Closed)) => {
                Err(errors::exception(py, "SandboxUnavailableError", "the sandbox is closed; make a new one"))
            }
            Some(Err(error)) => Err(errors::from_engine(py, &error)),
        }
    }

    /// Ends the warm interpreters. Contexts continue.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.get().take()));
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // Not locked: in a process that was forked, a thread that is not there may have held the
        // lock.
        let contexts = self.contexts.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        unlocked(move || drop(contexts));
    }
}

/// A live interpreter.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Context {
    /// Taken out when this is dropped, and only then.
    context: Mutex<Option<Arc<engine::Context>>>,
}

impl Context {
    fn get(&self) -> PyResult<Arc<engine::Context>> {
        let context = self.context.lock().unwrap_or_else(PoisonError::into_inner).clone();
        context.ok_or_else(|| PyOSError::new_err("the context is gone"))
    }
}

#[pymethods]
impl Context {
    /// Has a cell executed when its turn has come, under `limits`, and under `defaults` where these
    /// are unset.
    fn execute(
        &self,
        cell: CellOf,
        limits: &limits::CallLimits,
        defaults: &limits::CallLimits,
    ) -> PyResult<Execution> {
        let CellOf { source, stdin, stdout, stderr, display } = cell;
        let context = self.get()?;
        let line = Arc::new(ExecutionChannel::new(display));
        let (warn, warn_signal) = limits.notice.or(defaults.notice).unzip();
        let cell = CellSpec {
            source,
            stdin,
            limits: limits.limits.clone(),
            defaults: vec![(Source::Session, defaults.limits.clone())],
            warn,
            warn_signal,
            // Taken here, so that the order of asking is that of the calls, and not that of the
            // threads.
            turn: Some(context.queue()),
            withdrawn: Some(line.withdrawn.clone()),
            ..CellSpec::default()
        };
        Execution::begin(context, line, [stdout, stderr], move |context, line| {
            context.execute(cell, &mut |event| line.receive(event)).map(|_| true)
        })
    }

    /// Makes contexts that begin with what this one is, under these limits where they are set; see
    /// [`Execution::made`].
    fn branch(&self, count: usize, limits: &limits::CallLimits) -> PyResult<Execution> {
        let line = Arc::new(ExecutionChannel::new(false));
        let context = self.get()?;
        let turn = context.queue();
        let spec = BranchSpec { count, limits: limits.limits.clone(), shares_workspace: false };
        Execution::begin(context, line, [false; 2], move |context, line| {
            let made = context.branch_unless(&spec, turn, &|| line.withdrawn.load(Ordering::Acquire))?;
            *line.made() = made;
            Ok(true)
        })
    }

    /// Goes back to the state before the last run that changed something; the message is whether
    /// there was such a state.
    fn undo(&self) -> PyResult<Execution> {
        let line = Arc::new(ExecutionChannel::new(false));
        let context = self.get()?;
        let turn = context.queue();
        Execution::begin(context, line, [false; 2], move |context, line| {
            context.undo_unless(turn, &|| line.withdrawn.load(Ordering::Acquire))
        })
    }

    /// Interrupts the run that is on, as Ctrl-C does. False when none is.
    fn interrupt(&self) -> PyResult<bool> {
        Ok(self.get()?.interrupt())
    }

    /// Executions, runs that wait, why there is no checkpoint (None: there is one), whether the
    /// last run can be undone.
    fn info(&self, py: Python<'_>) -> PyResult<(u64, usize, Option<String>, bool)> {
        let context = self.get()?;
        let info = py.detach(|| context.settled_info());
        Ok((info.executions, info.waiting, info.checkpoint.err(), info.can_undo))
    }

    /// Ends it, and all that runs in it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let context = self.get()?;
        py.detach(move || context.close());
        Ok(())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let context = self.context.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Its interpreter's death is waited for.
        unlocked(move || drop(context));
    }
}

/// Notifies that the execution has ended, however it ends.
struct EndGuard(Arc<ExecutionChannel>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.over(Err(sandtimer::Error::Withdrawn));
    }
}

/// A message about an active run.
enum ContextMessage {
    Displayed(Value),
    Lost(RemainingState, String),
    Raised(String),
}

/// Connects the thread that drives the context with the caller's thread.
struct ExecutionChannel {
    inbox: Mutex<Inbox>,
    changed: Condvar,
    withdrawn: Arc<AtomicBool>,
    calls_back: bool,
    /// Branches that the caller has not taken yet.
    made: Mutex<Vec<engine::Context>>,
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<ContextMessage>,
    /// Displays among them.
    waiting: usize,
    run: Option<Arc<Run>>,
    over: Option<Result<bool, sandtimer::Error>>,
    /// Where an event loop listens: what is read, and what is written.
    waker: Option<(UnixStream, UnixStream)>,
}

impl ExecutionChannel {
    fn new(calls_back: bool) -> Self {
        let (inbox, changed, withdrawn, made) = Default::default();
        ExecutionChannel { inbox, changed, withdrawn, calls_back, made }
    }

    fn made(&self) -> MutexGuard<'_, Vec<engine::Context>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, mut inbox: MutexGuard<'_, Inbox>) {
        if let Some((_, waker)) = &mut inbox.waker {
            // If the socket is full it is readable as well.
            let _ = waker.write(b"!");
        }
        drop(inbox);
        self.changed.notify_all();
    }

    fn receive(&self, event: CellEvent) {
        let mut inbox = self.inbox();
        match event {
            CellEvent::Started(run) => {
                if self.withdrawn.load(Ordering::Acquire) {
                    run.cancel("the caller no longer waits for it");
                }
                inbox.run = Some(run);
            }
            CellEvent::Displayed(value) => {
                if !self.calls_back {
                    return;
                }
                inbox = self.room(inbox);
                inbox.waiting += 1;
                inbox.messages.push_back(ContextMessage::Displayed(value));
            }
            CellEvent::Lost(state, reason) => inbox.messages.push_back(ContextMessage::Lost(state, reason)),
            CellEvent::Raised(pickled) => inbox.messages.push_back(ContextMessage::Raised(pickled)),
        }
        self.note(inbox);
    }

    /// Waits until there is room for another display, but not for longer than the run is on.
    fn room<'a>(&'a self, mut inbox: MutexGuard<'a, Inbox>) -> MutexGuard<'a, Inbox> {
        loop {
            let is_over = inbox.run.as_ref().is_none_or(|run| run.has_finished());
            if inbox.waiting < MAX_WAITING_DISPLAYS || is_over || self.withdrawn.load(Ordering::Acquire) {
                return inbox;
            }
            (inbox, _) = self
                .changed
                .wait_timeout(inbox, SIGNAL_POLL_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn over(&self, result: Result<bool, sandtimer::Error>) {
        let mut inbox = self.inbox();
        if inbox.over.is_none() {
            inbox.over = Some(result);
            self.note(inbox);
        }
    }
}

/// Something that is done in a context, when its turn has come.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Execution {
    line: Arc<ExecutionChannel>,
    /// Whether stdout and stderr are called back.
    watched: [bool; 2],
    cursors: Mutex<[u64; 2]>,
    context: Weak<engine::Context>,
    process: u32,
}

/// A message for Python: its kind, and its content.
type PythonMessage<'py> = (&'static str, Bound<'py, PyAny>);

/// The next message, if any.
enum Next {
    Output(Stream, Vec<u8>),
    Message(ContextMessage),
    Finished,
    Nothing,
}

impl Execution {
    /// Does something with a context on a thread of its own.
    fn begin(
        context: Arc<engine::Context>,
        line: Arc<ExecutionChannel>,
        watched: [bool; 2],
        act: impl FnOnce(&engine::Context, &ExecutionChannel) -> Result<bool, sandtimer::Error> + Send + 'static,
    ) -> PyResult<Self> {
        let (weak, over) = (Arc::downgrade(&context), EndGuard(line.clone()));
        let resting = weak.clone();
        let work = move || {
            let done = act(&context, &over.0);
            // If this is the last reference, the interpreter ends here, before the caller is
            // notified.
            drop(context);
            over.0.over(done);
            if let Some(context) = resting.upgrade() {
                context.rest();
            }
        };
        std::thread::Builder::new().name("sandtimer-context".to_owned()).spawn(work)?;
        Ok(Execution { line, watched, cursors: Mutex::default(), context: weak, process: std::process::id() })
    }

    /// Returns the next message, if there is one now.
    fn next(&self) -> PyResult<Next> {
        let (run, is_over) = {
            let inbox = self.line.inbox();
            (inbox.run.clone(), inbox.over.is_some())
        };
        if let Some(run) = run {
            let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
            for stream in [Stream::Stdout, Stream::Stderr] {
                if self.watched[stream as usize] {
                    let cursor = &mut cursors[stream as usize];
                    let chunk = run.output(stream, *cursor, OUTPUT_PIECE_BYTES);
                    let chunk = chunk.map_err(|error| PyOSError::new_err(error.to_string()))?;
                    *cursor = chunk.next_cursor;
                    if !chunk.bytes.is_empty() {
                        return Ok(Next::Output(stream, chunk.bytes));
                    }
                }
            }
        }
        let mut inbox = self.line.inbox();
        let Some(message) = inbox.messages.pop_front() else {
            return Ok(if is_over { Next::Finished } else { Next::Nothing });
        };
        if matches!(message, ContextMessage::Displayed(_)) {
            inbox.waiting -= 1;
            drop(inbox);
            self.line.changed.notify_all();
        }
        Ok(Next::Message(message))
    }

    fn to_python<'py>(py: Python<'py>, next: Next) -> PyResult<Option<PythonMessage<'py>>> {
        let text = |text: String| text.into_pyobject(py).map(Bound::into_any).map_err(PyErr::from);
        Ok(Some(match next {
            Next::Output(Stream::Stdout, bytes) => ("stdout", PyBytes::new(py, &bytes).into_any()),
            Next::Output(Stream::Stderr, bytes) => ("stderr", PyBytes::new(py, &bytes).into_any()),
            Next::Message(ContextMessage::Displayed(value)) => ("display", text(value.to_string())?),
            Next::Message(ContextMessage::Raised(pickled)) => ("raised", text(pickled)?),
            Next::Message(ContextMessage::Lost(state, reason)) => {
                let what = if state == RemainingState::RolledBack { "rolled_back" } else { "reset" };
                (what, text(reason)?)
            }
            Next::Finished | Next::Nothing => return Ok(None),
        }))
    }

    /// How long a wait continues before it polls.
    fn patience(&self) -> Duration {
        if self.watched.contains(&true) { OUTPUT_POLL_INTERVAL } else { SIGNAL_POLL_INTERVAL }
    }

    fn run(&self) -> Option<Arc<Run>> {
        self.line.inbox().run.clone()
    }
}

#[pymethods]
impl Execution {
    /// Waits for the next message: its kind, and its content; None when the run has ended.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Option<PythonMessage<'py>>> {
        loop {
            match py.detach(|| self.next())? {
                Next::Nothing => {}
                next => return Self::to_python(py, next),
            }
            py.detach(|| {
                let nothing = |inbox: &mut Inbox| inbox.messages.is_empty() && inbox.over.is_none();
                let inbox = self.line.inbox();
                drop(self.line.changed.wait_timeout_while(inbox, self.patience(), nothing));
            });
            py.check_signals()?;
        }
    }

    /// Returns the messages that there are now, at most `MAX_MESSAGES`, and whether the run has
    /// ended.
    fn words<'py>(&self, py: Python<'py>) -> PyResult<(Vec<PythonMessage<'py>>, bool)> {
        if let Some((waker, _)) = &mut self.line.inbox().waker {
            let _ = waker.read(&mut [0; 64]);
        }
        let mut messages = Vec::new();
        while messages.len() < MAX_MESSAGES {
            match py.detach(|| self.next())? {
                Next::Nothing => break,
                Next::Finished => return Ok((messages, true)),
                next => messages.extend(Self::to_python(py, next)?),
            }
        }
        Ok((messages, false))
    }

    /// Returns a descriptor that is readable when there may be messages; this object still owns it.
    fn descriptor(&self) -> PyResult<i32> {
        let mut inbox = self.line.inbox();
        if inbox.waker.is_none() {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            write.set_nonblocking(true)?;
            // Messages that arrived before the waker existed did not notify it.
            (&write).write_all(b"!")?;
            inbox.waker = Some((read, write));
        }
        Ok(inbox.waker.as_ref().map_or(-1, |(read, _)| read.as_raw_fd()))
    }

    /// Interrupts it, as Ctrl-C does. False when it has not begun, and then it does not.
    fn interrupt(&self) -> bool {
        if self.run().is_none() && self.withdraw() {
            return false;
        }
        if let (Some(context), Some(run)) = (self.context.upgrade(), self.run())
            && context.running().is_some_and(|on| on.id() == run.id())
        {
            context.interrupt();
        }
        true
    }

    /// Leaves it. True when it has not begun, and then it does not; else it continues.
    fn withdraw(&self) -> bool {
        self.line.withdrawn.store(true, Ordering::Release);
        self.line.changed.notify_all();
        self.run().is_none()
    }

    /// Ends it. False when it has not begun, and then it does not.
    fn cancel(&self, reason: &str) -> bool {
        self.withdraw();
        let run = self.run();
        if let Some(run) = &run {
            run.cancel(reason);
        }
        run.is_some()
    }

    /// The branches that it has made, once.
    fn made(&self) -> Vec<Context> {
        let made = std::mem::take(&mut *self.line.made());
        made.into_iter().map(|context| Context { context: Mutex::new(Some(Arc::new(context))) }).collect()
    }

    /// Its result, once it has ended: the end of the run, or whether it was undone.
    fn ended(&self, py: Python<'_>) -> PyResult<(Option<Ended>, bool)> {
        let mut inbox = self.line.inbox();
        match inbox.over.take() {
            Some(Ok(done)) => {
                let ended = inbox.run.take().map(|run| Ended::new(run.id().to_owned(), run.completion()));
                inbox.over = Some(Ok(done));
                Ok((ended, done))
            }
            Some(Err(error)) => Err(context_exception(py, &error)),
            None => Err(PyOSError::new_err("it is not over")),
        }
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        // In a process that was forked the thread does not exist, and may have held any lock.
        if self.process != std::process::id() {
            return;
        }
        // Their interpreters' death is waited for.
        let made = std::mem::take(self.line.made.lock().as_deref_mut().unwrap_or(&mut Vec::new()));
        if !made.is_empty() {
            unlocked(move || drop(made));
        }
        if self.line.inbox().over.is_none() {
            self.cancel("the caller was interrupted");
        }
    }
}
