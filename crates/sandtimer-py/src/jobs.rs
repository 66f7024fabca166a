//! Stores of jobs, and workers whose handlers are Python functions. Every call releases the
//! interpreter's lock.
//!
//! A worker is a thread without that lock. It takes it for handlers alone: those make calls of a
//! sandbox's, so that what jobs ask for is executed in processes of their own, and this one only
//! waits for them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sandtimer::limits::Limits;
use sandtimer::model::Source;
use sandtimer_jobs::executor::{
    Handler, HandlerCall, HandlerMessage, HandlerResult, Handlers, Worker, WorkerContext, WorkerSettings,
};
use sandtimer_jobs::job::{
    self, FILE_PIECE, FileOf, Filter, JobSpec, JobState, LOCAL_OWNER, LineTimes, MAX_FAN_OUT_BYTES,
    ShownState, SpecError, StoreError, Submission, anchored, embedded, expanded, is_queue_name, parse_file,
    schedule_from,
};
use sandtimer_jobs::{NatsAddress, NatsJobs, SqliteJobs};
use sandtimer_records::{default_state_directory, named_state_directory};
use serde::Serialize;

use crate::calls::{Call, Engine, Scope};
use crate::errors;
use crate::limits::CallLimits;

/// The error of a store, as the exception of its name.
fn refused(py: Python<'_>, error: &StoreError) -> PyErr {
    let text = error.to_string();
    let plain = match error {
        StoreError::Spec(spec) => return spec_refused(py, spec, ""),
        StoreError::Conflict { key, existing } => {
            return errors::exception_of(py, "JobConflictError", (text, key, existing));
        }
        StoreError::Unknown(id) => return errors::exception_of(py, "JobNotFoundError", (text, id)),
        StoreError::WrongState { id, state, .. } => {
            return errors::exception_of(py, "JobStateRefusedError", (text, id, state.name()));
        }
        StoreError::Cursor(_) => return pyo3::exceptions::PyValueError::new_err(text),
        StoreError::Full(_) => "JobStoreFullError",
        StoreError::Busy => "JobStoreBusyError",
        StoreError::Newer { .. } => "JobStoreNewerError",
        StoreError::Unreachable(_) => "JobStoreUnreachableError",
        _ => "JobStoreUnavailableError",
    };
    errors::exception(py, plain, &text)
}

/// The exception for a refused field; `spec_prefix` names its spec, if there are several.
fn spec_refused(py: Python<'_>, error: &SpecError, spec_prefix: &str) -> PyErr {
    errors::exception_of(py, "JobSpecRefusedError", (format!("{spec_prefix}{error}"), &error.path))
}

fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyOSError::new_err(error.to_string()))
}

/// A file's spec as JSON.
#[pyfunction]
pub(crate) fn parse_job_file(py: Python<'_>, file: PathBuf, text: &str) -> PyResult<String> {
    let parsed = parse_file(&file, text);
    let spec_prefix = format!("{}: ", file.display());
    parsed.map(|spec| spec.to_string()).map_err(|error| spec_refused(py, &error, &spec_prefix))
}

/// A spec as JSON, the directory that its paths count from, and what it is called in messages.
type SubmittedSpec = (String, PathBuf, String);

/// Reads what was given, each refusal with its place.
fn submissions(given: &[SubmittedSpec], now_ms: u64) -> Result<Vec<Submission>, (SpecError, &str)> {
    let mut budget = MAX_FAN_OUT_BYTES;
    let mut read = |(text, directory, _): &SubmittedSpec| {
        let source = serde_json::from_str(text).map_err(|error: serde_json::Error| SpecError {
            path: String::new(),
            problem: error.to_string(),
        })?;
        let one = |source| {
            let spec = JobSpec::read(anchored(embedded(source, directory)?, directory, None))?;
            spec.check_deadline(now_ms)?;
            Ok(Submission { spec, owner: LOCAL_OWNER.to_owned() })
        };
        expanded(source, &mut budget)?.into_iter().map(one).collect::<Result<Vec<_>, SpecError>>()
    };
    let mut all = Vec::with_capacity(given.len());
    for one in given {
        all.extend(read(one).map_err(|error| (error, one.2.as_str()))?);
    }
    Ok(all)
}

/// Jobs in a database of this machine, or on a NATS server.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct JobStore {
    store: UnlockedDrop<Arc<dyn job::JobStore>>,
    /// Where workers have the directories of jobs with files, and the database of this machine is.
    state_directory: PathBuf,
}

/// A value that ends threads when it is dropped. They may be about to call Python, so it is dropped
/// without the interpreter's lock. In a fork of the process that made it there are no such threads,
/// and it stays.
struct UnlockedDrop<T: Send> {
    /// There until this is dropped.
    kept: Option<T>,
    process: u32,
}

impl<T: Send> UnlockedDrop<T> {
    fn of(kept: T) -> Self {
        UnlockedDrop { kept: Some(kept), process: std::process::id() }
    }
}

impl<T: Send> Deref for UnlockedDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.kept.as_ref().expect("only taken when dropped")
    }
}

impl<T: Send> Drop for UnlockedDrop<T> {
    fn drop(&mut self) {
        let kept = self.kept.take();
        if self.process != std::process::id() {
            return std::mem::forget(kept);
        }
        Python::attach(|py| py.detach(|| drop(kept)));
    }
}

impl JobStore {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&dyn job::JobStore) -> Result<T, StoreError> + Send,
    ) -> PyResult<T> {
        py.detach(|| act(&**self.store)).map_err(|error| refused(py, &error))
    }
}

fn filter(queue: Option<String>, state: Option<&str>) -> PyResult<Filter> {
    let known = || ShownState::NAMES.join(", ");
    let wrong = |name: &str| PyValueError::new_err(format!("state='{name}': use one of {}", known()));
    let state = state.map(|name| ShownState::from_name(name).ok_or_else(|| wrong(name))).transpose()?;
    Ok(Filter { queue, ..Filter::default() }.shown(state))
}

#[pymethods]
impl JobStore {
    /// Opens the jobs of a server, or those below a state directory, making what is missing.
    #[new]
    fn new(py: Python<'_>, state_dir: Option<PathBuf>, server: Option<&str>) -> PyResult<Self> {
        let homeless = || StoreError::Broken("there is no home to keep jobs in; give state_dir".to_owned());
        let opened = py.detach(|| {
            let named = state_dir.or_else(named_state_directory).or_else(default_state_directory);
            let state_directory = named.ok_or_else(homeless)?;
            let store: Arc<dyn job::JobStore> = match server {
                Some(url) => Arc::new(NatsJobs::open(&NatsAddress::with_environment(url)?, complain)?),
                None => Arc::new(SqliteJobs::open(&state_directory)?),
            };
            Ok((store, state_directory))
        });
        let (store, state_directory) = opened.map_err(|error: StoreError| refused(py, &error))?;
        Ok(JobStore { store: UnlockedDrop::of(store), state_directory })
    }

    /// Submits all or none. Returns JSON of the result of each.
    fn submit(&self, py: Python<'_>, given: Vec<SubmittedSpec>) -> PyResult<String> {
        let read = py.detach(|| submissions(&given, self.store.calendar_ms()));
        let read = read.map_err(|(error, spec_prefix)| spec_refused(py, &error, spec_prefix))?;
        json(&self.with(py, |store| store.submit(&read))?)
    }

    /// JSON of a page.
    fn list(
        &self,
        py: Python<'_>,
        queue: Option<String>,
        state: Option<&str>,
        cursor: Option<&str>,
        most: usize,
    ) -> PyResult<String> {
        let filter = filter(queue, state)?;
        json(&self.with(py, |store| {
            store.sweep()?;
            store.list(&filter, cursor, most)
        })?)
    }

    /// JSON of all that is known of a job.
    fn get(&self, py: Python<'_>, id: &str) -> PyResult<String> {
        json(&self.with(py, |store| {
            store.sweep()?;
            store.get(id)?.ok_or_else(|| StoreError::Unknown(id.to_owned()))
        })?)
    }

    /// Bytes of its log from there on, and where the next are; with the time before each line,
    /// which no position counts.
    fn read_log<'py>(
        &self,
        py: Python<'py>,
        id: &str,
        cursor: u64,
        most: usize,
        timestamps: bool,
    ) -> PyResult<(Bound<'py, PyBytes>, u64)> {
        let (log, before) = self.with(py, |store| {
            let before = match cursor.checked_sub(1).filter(|_| timestamps) {
                Some(before) => store.read_log(id, before, 1)?.bytes.pop(),
                None => None,
            };
            Ok((store.read_log(id, cursor, most)?, before))
        })?;
        let stamped = timestamps.then(|| LineTimes::after(before).stamp(&log));
        Ok((PyBytes::new(py, stamped.as_ref().unwrap_or(&log.bytes)), log.next_cursor))
    }

    /// Bytes of a file that a job has left, from `start` on; none after its end.
    fn read_file<'py>(
        &self,
        py: Python<'py>,
        id: &str,
        name: &str,
        start: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let read = self.with(py, |store| store.read_file(id, FileOf::Output(name), start, FILE_PIECE))?;
        Ok(PyBytes::new(py, &read))
    }

    /// "cancelled", "asked" or "too_late".
    fn cancel(&self, py: Python<'_>, id: &str, reason: &str) -> PyResult<String> {
        let done = json(&self.with(py, |store| store.cancel(id, reason))?)?;
        Ok(done.trim_matches('"').to_owned())
    }

    /// The state that it is in then.
    fn retry(&self, py: Python<'_>, id: &str) -> PyResult<&'static str> {
        self.with(py, |store| store.retry(id)).map(JobState::name)
    }

    fn purge(&self, py: Python<'_>, queue: Option<String>, state: Option<&str>) -> PyResult<u64> {
        let filter = filter(queue, state)?;
        if let Some(state) = filter.state.filter(|state| !state.is_over()) {
            return Err(PyValueError::new_err(format!(
                "state='{}': such a job is not over, and only those that are can be forgotten; use 'ended', 'dead' or 'cancelled', \
                 or cancel it first",
                state.name()
            )));
        }
        self.with(py, |store| store.purge(&filter))
    }

    fn pause(&self, py: Python<'_>, queue: &str, paused: bool) -> PyResult<()> {
        if !is_queue_name(queue) {
            return Err(PyValueError::new_err(format!(
                "queue={queue:?}: use a name of 1 to 200 printable characters"
            )));
        }
        self.with(py, |store| store.pause(queue, paused))
    }

    /// Stores a schedule. JSON of its record.
    fn put_schedule(&self, py: Python<'_>, given: SubmittedSpec) -> PyResult<String> {
        let (text, directory, place) = given;
        let read = |text: &str| {
            let source = serde_json::from_str(text).map_err(|error: serde_json::Error| SpecError {
                path: String::new(),
                problem: error.to_string(),
            })?;
            schedule_from(source, &directory)
        };
        let spec = py.detach(|| read(&text)).map_err(|error| spec_refused(py, &error, &place))?;
        json(&self.with(py, |store| store.put_schedule(LOCAL_OWNER, &spec.job.queue, &spec))?)
    }

    /// JSON of its record; None if there is no such schedule.
    fn pause_schedule(&self, py: Python<'_>, name: &str, paused: bool) -> PyResult<Option<String>> {
        let record = self.with(py, |store| store.pause_schedule(LOCAL_OWNER, name, paused))?;
        record.as_ref().map(json).transpose()
    }

    /// Whether there was one.
    fn remove_schedule(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.with(py, |store| store.remove_schedule(LOCAL_OWNER, name))
    }

    /// JSON of all of them.
    fn schedules(&self, py: Python<'_>) -> PyResult<String> {
        json(&self.with(py, |store| {
            store.sweep()?;
            store.schedules(Some(LOCAL_OWNER))
        })?)
    }

    /// JSON of the live workers.
    fn workers(&self, py: Python<'_>) -> PyResult<String> {
        json(&self.with(py, |store| {
            store.sweep()?;
            store.workers()
        })?)
    }

    /// JSON of a part of the breakers.
    fn breakers(&self, py: Python<'_>, cursor: Option<&str>, most: usize) -> PyResult<String> {
        json(&self.with(py, |store| store.breakers(Some(LOCAL_OWNER), cursor, most))?)
    }

    /// Sends the webhook of an ended job again. JSON of its state.
    fn redeliver(&self, py: Python<'_>, id: &str) -> PyResult<String> {
        json(&self.with(py, |store| store.redeliver_webhook(id))?)
    }

    /// JSON of all of them.
    fn queues(&self, py: Python<'_>) -> PyResult<String> {
        json(&self.with(py, |store| {
            store.sweep()?;
            store.queues()
        })?)
    }
}

/// Is given each run that a handler begins.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
struct Begun(Sender<HandlerMessage>);

#[pymethods]
impl Begun {
    fn __call__(&self, call: &Call) {
        // A worker that has gone on does not want to know.
        let _ = self.0.send(HandlerMessage::Started(call.run()));
    }
}

/// A Python function: takes the input as JSON, a scope, limits and the receiver of runs, and
/// returns the result: "returned" with JSON, or "failed" or "unavailable" with the reason, and a
/// traceback or nothing.
#[derive(Debug)]
struct PythonHandler {
    function: Py<PyAny>,
    /// The limits that a job's spec leaves unset.
    limits: Arc<Py<CallLimits>>,
}

impl PythonHandler {
    fn invoke(
        &self,
        py: Python<'_>,
        call: HandlerCall,
        say: &Sender<HandlerMessage>,
    ) -> PyResult<(String, String, String, Option<String>)> {
        let own = self.limits.get();
        let (require, notice) = (own.require, own.notice);
        let limits = CallLimits { limits: call.limits.over(&own.limits), require, notice };
        let scope = Scope { scope: call.scope, _outer: None };
        let begun = Begun(say.clone());
        self.function.bind(py).call1((call.input.to_string(), scope, limits, begun))?.extract()
    }
}

impl Handler for PythonHandler {
    fn call(&self, call: HandlerCall, say: &Sender<HandlerMessage>) {
        let unavailable = |reason: &dyn Display| HandlerResult::Unavailable(reason.to_string());
        let answered = Python::try_attach(|py| self.invoke(py, call, say).map_err(|error| error.to_string()));
        let handled = match answered {
            None => unavailable(&"the interpreter ends"),
            Some(Err(error)) => unavailable(&error),
            Some(Ok((kind, text, detail, exception))) => match kind.as_str() {
                "returned" => serde_json::from_str(&text).map_or_else(
                    |error| HandlerResult::Failed { message: error.to_string(), detail, exception },
                    HandlerResult::Returned,
                ),
                "failed" => HandlerResult::Failed { message: text, detail, exception },
                _ => HandlerResult::Unavailable(text),
            },
        };
        // A worker that has gone on does not want to know.
        let _ = say.send(HandlerMessage::Over(handled));
    }
}

/// How a worker works: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SettingsOf {
    slots: usize,
    queues: Vec<String>,
    only: Option<String>,
    lease: f64,
}

/// Whether the program is ending.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Stops the reports of problems outside jobs: a thread that takes the interpreter's lock after
/// this could wait for ever.
#[pyfunction]
pub(crate) fn end_remarks() {
    ENDING.store(true, Ordering::Relaxed);
}

/// Reports a problem outside jobs through Python's logging.
fn complain(text: &str) {
    if ENDING.load(Ordering::Relaxed) {
        return;
    }
    let _ = Python::try_attach(|py| -> PyResult<()> {
        let log = py.import("logging")?.call_method1("getLogger", ("sandtimer",))?;
        log.call_method1("warning", ("%s", text)).map(drop)
    });
}

/// A thread that executes jobs.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct JobWorker {
    worker: UnlockedDrop<Arc<Worker>>,
    /// Nothing is ever sent; it closes when the worker has ended.
    over: Mutex<Receiver<()>>,
}

#[pymethods]
impl JobWorker {
    /// Begins at once. `limits` are those of each run that a job's spec leaves unset.
    #[new]
    fn new(
        store: &JobStore,
        engine: &Engine,
        settings: SettingsOf,
        limits: Py<CallLimits>,
        handlers: BTreeMap<String, Py<PyAny>>,
    ) -> PyResult<Self> {
        let SettingsOf { slots, queues, only, lease } = settings;
        let lease = Duration::try_from_secs_f64(lease)
            .map_err(|error| PyValueError::new_err(format!("lease={lease}: {error}")))?;
        let defaults: Limits = limits.get().limits.clone().with_origin("the worker's sandbox");
        let place =
            WorkerContext::new(engine.engine.clone(), Arc::clone(&store.store), &store.state_directory);
        let place = WorkerContext { defaults: vec![(Source::Session, defaults)], ..place };
        let limits = Arc::new(limits);
        let handler = |(name, function)| {
            let handler = PythonHandler { function, limits: Arc::clone(&limits) };
            (name, Arc::new(handler) as Arc<dyn Handler>)
        };
        let handlers = Handlers(handlers.into_iter().map(handler).collect());
        let settings = WorkerSettings { slots, queues, only, lease, ..WorkerSettings::new(complain) };
        let worker = Arc::new(Worker::new(place, settings).with_handlers(handlers));
        let (working, over) = channel();
        let ours = Arc::clone(&worker);
        std::thread::Builder::new().name("sandtimer-jobs".to_owned()).spawn(move || {
            let _working = working;
            ours.work();
        })?;
        Ok(JobWorker { worker: UnlockedDrop::of(worker), over: Mutex::new(over) })
    }

    /// Whether it has ended, within this time.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let most = Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))?;
        let waited = py.detach(|| {
            let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            over.recv_timeout(most)
        });
        Ok(waited != Err(RecvTimeoutError::Timeout))
    }

    /// Leases nothing more; what is active is brought to its end.
    fn drain(&self, py: Python<'_>) {
        py.detach(|| self.worker.drain());
    }

    /// Ends what is active, which is handed out again.
    fn give_back(&self, py: Python<'_>) {
        py.detach(|| self.worker.give_back());
    }
}

impl Drop for JobWorker {
    fn drop(&mut self) {
        if self.worker.process == std::process::id() {
            self.worker.give_back();
        }
    }
}
