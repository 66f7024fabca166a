//! Contexts and their runs, as Python objects.
//!
//! ```text
//! whoever runs ── waits without the interpreter's lock ◀── words ── a thread of the run's own, which drives the context
//! ```
//! The thread is there so that whoever waits can look at signals, call back, or leave: then the run is cancelled, and one that
//! waits for its turn does not begin. Nothing of a context is taken down in a process that was forked.

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
use sandtimer::engine::{self, BranchSpec, Cell, ContextSpec, Run, Stream, Told};
use sandtimer::model::{Source, State};
use serde_json::Value;

use crate::calls::{Ended, LOOK_UP, look_up};
use crate::{errors, limits};

/// How long output may wait for being called back: nobody is told of it, so it is looked for.
const LOOK_FOR_OUTPUT: Duration = Duration::from_millis(20);
/// Bytes of output that are called back at a time.
const OUTPUT: usize = 64 * 1024;
/// Displays that wait to be called back, until the cell has to wait.
const MOST_WAITING: usize = 2;
/// Words at a time, so that an event loop has its turn.
const MOST_WORDS: usize = 64;

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

/// What stopped the engine, in words for whoever has a context.
fn refusal(py: Python<'_>, error: &sandtimer::Error) -> PyErr {
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

/// Interpreters that stand ready to become contexts.
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
    fn open(&self, py: Python<'_>, context: ContextOf, limits: &limits::Checked) -> PyResult<Context> {
        let ContextOf { environment, directory } = context;
        let (limits, require) = (limits.limits.clone(), limits.require);
        let spec = ContextSpec { limits, require, environment, directory, ..ContextSpec::default() };
        let contexts = self.get().clone();
        let mut raised = None;
        let opened = py.detach(|| contexts.map(|contexts| contexts.open(spec, &mut || look_up(&mut raised))));
        raised.map_or(Ok(()), Err)?;
        match opened {
            Some(Ok(context)) => Ok(Context { context: Mutex::new(Some(Arc::new(context))) }),
            None | Some(Err(sandtimer::Error::Closed)) => {
                Err(errors::exception(py, "SandboxUnavailableError", "the sandbox is closed; make a new one"))
            }
            Some(Err(error)) => Err(errors::from_engine(py, &error)),
        }
    }

    /// Ends what stands ready. Contexts go on.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.get().take()));
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // Not locked: in a process that was forked, a thread that is not there may have held the lock.
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
    /// Has a cell executed when its turn has come, under `limits`, and under `defaults` where these say nothing.
    fn execute(
        &self,
        cell: CellOf,
        limits: &limits::Checked,
        defaults: &limits::Checked,
    ) -> PyResult<Execution> {
        let CellOf { source, stdin, stdout, stderr, display } = cell;
        let context = self.get()?;
        let line = Arc::new(Line::new(display));
        let (warn, warn_signal) = limits.notice.or(defaults.notice).unzip();
        let cell = Cell {
            source,
            stdin,
            limits: limits.limits.clone(),
            defaults: vec![(Source::Session, defaults.limits.clone())],
            warn,
            warn_signal,
            // Taken here, so that the order of asking is that of the calls, and not that of the threads.
            turn: Some(context.queue()),
            withdrawn: Some(line.withdrawn.clone()),
            ..Cell::default()
        };
        Execution::begin(context, line, [stdout, stderr], move |context, line| {
            context.execute(cell, &mut |told| line.tell(told)).map(|_| true)
        })
    }

    /// Makes contexts that begin with what this one is, under these limits where they say something; see [`Execution::made`].
    fn branch(&self, count: usize, limits: &limits::Checked) -> PyResult<Execution> {
        let line = Arc::new(Line::new(false));
        let context = self.get()?;
        let turn = context.queue();
        let spec = BranchSpec { count, limits: limits.limits.clone(), shares_workspace: false };
        Execution::begin(context, line, [false; 2], move |context, line| {
            let made = context.branch_unless(&spec, turn, &|| line.withdrawn.load(Ordering::Acquire))?;
            *line.made() = made;
            Ok(true)
        })
    }

    /// Goes back to before the last run that changed something; the word on it is whether there was such a state.
    fn undo(&self) -> PyResult<Execution> {
        let line = Arc::new(Line::new(false));
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

    /// Executions, runs that wait, why there is no checkpoint (None: there is one), whether the last run can be undone.
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

/// Says that it is over, however it ends.
struct Over(Arc<Line>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over(Err(sandtimer::Error::Withdrawn));
    }
}

/// What is heard of a run while it is on.
enum Word {
    Displayed(Value),
    Lost(State, String),
    Raised(String),
}

/// Between the thread that drives the context and whoever waits.
struct Line {
    heard: Mutex<Heard>,
    changed: Condvar,
    withdrawn: Arc<AtomicBool>,
    calls_back: bool,
    /// Branches that nobody has taken yet.
    made: Mutex<Vec<engine::Context>>,
}

#[derive(Default)]
struct Heard {
    words: VecDeque<Word>,
    /// Displays among them.
    waiting: usize,
    run: Option<Arc<Run>>,
    over: Option<Result<bool, sandtimer::Error>>,
    /// Where an event loop listens: what is read, and what is written.
    bell: Option<(UnixStream, UnixStream)>,
}

impl Line {
    fn new(calls_back: bool) -> Self {
        let (heard, changed, withdrawn, made) = Default::default();
        Line { heard, changed, withdrawn, calls_back, made }
    }

    fn made(&self) -> MutexGuard<'_, Vec<engine::Context>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, mut heard: MutexGuard<'_, Heard>) {
        if let Some((_, bell)) = &mut heard.bell {
            // Full it is heard as well.
            let _ = bell.write(b"!");
        }
        drop(heard);
        self.changed.notify_all();
    }

    fn tell(&self, told: Told) {
        let mut heard = self.heard();
        match told {
            Told::Begun(run) => {
                if self.withdrawn.load(Ordering::Acquire) {
                    run.cancel("the caller no longer waits for it");
                }
                heard.run = Some(run);
            }
            Told::Displayed(value) => {
                if !self.calls_back {
                    return;
                }
                heard = self.room(heard);
                heard.waiting += 1;
                heard.words.push_back(Word::Displayed(value));
            }
            Told::Lost(state, reason) => heard.words.push_back(Word::Lost(state, reason)),
            Told::Raised(pickled) => heard.words.push_back(Word::Raised(pickled)),
        }
        self.note(heard);
    }

    /// Waits until there is room for another display, but not for longer than the run is on.
    fn room<'a>(&'a self, mut heard: MutexGuard<'a, Heard>) -> MutexGuard<'a, Heard> {
        loop {
            let is_over = heard.run.as_ref().is_none_or(|run| run.is_over());
            if heard.waiting < MOST_WAITING || is_over || self.withdrawn.load(Ordering::Acquire) {
                return heard;
            }
            (heard, _) = self.changed.wait_timeout(heard, LOOK_UP).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn over(&self, result: Result<bool, sandtimer::Error>) {
        let mut heard = self.heard();
        if heard.over.is_none() {
            heard.over = Some(result);
            self.note(heard);
        }
    }
}

/// Something that is done in a context, when its turn has come.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Execution {
    line: Arc<Line>,
    /// Whether stdout and stderr are called back.
    watched: [bool; 2],
    cursors: Mutex<[u64; 2]>,
    context: Weak<engine::Context>,
    process: u32,
}

/// A word for Python: what it is, and itself.
type Said<'py> = (&'static str, Bound<'py, PyAny>);

/// What there is to say.
enum Next {
    Output(Stream, Vec<u8>),
    Word(Word),
    Over,
    Nothing,
}

impl Execution {
    /// Does something with a context on a thread of its own.
    fn begin(
        context: Arc<engine::Context>,
        line: Arc<Line>,
        watched: [bool; 2],
        act: impl FnOnce(&engine::Context, &Line) -> Result<bool, sandtimer::Error> + Send + 'static,
    ) -> PyResult<Self> {
        let (weak, over) = (Arc::downgrade(&context), Over(line.clone()));
        let resting = weak.clone();
        let work = move || {
            let done = act(&context, &over.0);
            // Its interpreter ends here where nobody else has it, before anybody is told.
            drop(context);
            over.0.over(done);
            if let Some(context) = resting.upgrade() {
                context.rest();
            }
        };
        std::thread::Builder::new().name("sandtimer-context".to_owned()).spawn(work)?;
        Ok(Execution { line, watched, cursors: Mutex::default(), context: weak, process: std::process::id() })
    }

    /// What there is to say now.
    fn next(&self) -> PyResult<Next> {
        let (run, is_over) = {
            let heard = self.line.heard();
            (heard.run.clone(), heard.over.is_some())
        };
        if let Some(run) = run {
            let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
            for stream in [Stream::Stdout, Stream::Stderr] {
                if self.watched[stream as usize] {
                    let cursor = &mut cursors[stream as usize];
                    let chunk = run.output(stream, *cursor, OUTPUT);
                    let chunk = chunk.map_err(|error| PyOSError::new_err(error.to_string()))?;
                    *cursor = chunk.next_cursor;
                    if !chunk.bytes.is_empty() {
                        return Ok(Next::Output(stream, chunk.bytes));
                    }
                }
            }
        }
        let mut heard = self.line.heard();
        let Some(word) = heard.words.pop_front() else {
            return Ok(if is_over { Next::Over } else { Next::Nothing });
        };
        if matches!(word, Word::Displayed(_)) {
            heard.waiting -= 1;
            drop(heard);
            self.line.changed.notify_all();
        }
        Ok(Next::Word(word))
    }

    fn say<'py>(py: Python<'py>, next: Next) -> PyResult<Option<Said<'py>>> {
        let text = |text: String| text.into_pyobject(py).map(Bound::into_any).map_err(PyErr::from);
        Ok(Some(match next {
            Next::Output(Stream::Stdout, bytes) => ("stdout", PyBytes::new(py, &bytes).into_any()),
            Next::Output(Stream::Stderr, bytes) => ("stderr", PyBytes::new(py, &bytes).into_any()),
            Next::Word(Word::Displayed(value)) => ("display", text(value.to_string())?),
            Next::Word(Word::Raised(pickled)) => ("raised", text(pickled)?),
            Next::Word(Word::Lost(state, reason)) => {
                let what = if state == State::RolledBack { "rolled_back" } else { "reset" };
                (what, text(reason)?)
            }
            Next::Over | Next::Nothing => return Ok(None),
        }))
    }

    /// How long a wait goes on before something is looked for.
    fn patience(&self) -> Duration {
        if self.watched.contains(&true) { LOOK_FOR_OUTPUT } else { LOOK_UP }
    }

    fn run(&self) -> Option<Arc<Run>> {
        self.line.heard().run.clone()
    }
}

#[pymethods]
impl Execution {
    /// Waits for the next word: what it is, and itself; None when it is over.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Option<Said<'py>>> {
        loop {
            match py.detach(|| self.next())? {
                Next::Nothing => {}
                next => return Self::say(py, next),
            }
            py.detach(|| {
                let nothing = |heard: &mut Heard| heard.words.is_empty() && heard.over.is_none();
                let heard = self.line.heard();
                drop(self.line.changed.wait_timeout_while(heard, self.patience(), nothing));
            });
            py.check_signals()?;
        }
    }

    /// The words that there are now, so many at most, and whether it is over.
    fn words<'py>(&self, py: Python<'py>) -> PyResult<(Vec<Said<'py>>, bool)> {
        if let Some((bell, _)) = &mut self.line.heard().bell {
            let _ = bell.read(&mut [0; 64]);
        }
        let mut words = Vec::new();
        while words.len() < MOST_WORDS {
            match py.detach(|| self.next())? {
                Next::Nothing => break,
                Next::Over => return Ok((words, true)),
                next => words.extend(Self::say(py, next)?),
            }
        }
        Ok((words, false))
    }

    /// The number of a file that is readable when there may be words; it stays this object's.
    fn descriptor(&self) -> PyResult<i32> {
        let mut heard = self.line.heard();
        if heard.bell.is_none() {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            write.set_nonblocking(true)?;
            // Of what there was before nobody told it.
            (&write).write_all(b"!")?;
            heard.bell = Some((read, write));
        }
        Ok(heard.bell.as_ref().map_or(-1, |(read, _)| read.as_raw_fd()))
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

    /// Leaves it. True when it has not begun, and then it does not; else it goes on.
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

    /// What became of it, when it is over: the end of the run, or whether it was undone.
    fn ended(&self, py: Python<'_>) -> PyResult<(Option<Ended>, bool)> {
        let mut heard = self.line.heard();
        match heard.over.take() {
            Some(Ok(done)) => {
                let ended = heard.run.take().map(|run| Ended::new(run.id().to_owned(), run.ended()));
                heard.over = Some(Ok(done));
                Ok((ended, done))
            }
            Some(Err(error)) => Err(refusal(py, &error)),
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
        if self.line.heard().over.is_none() {
            self.cancel("the caller was interrupted");
        }
    }
}
