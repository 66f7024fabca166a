//! Engines, pools of children and calls, as Python objects. Every wait releases the interpreter's
//! lock.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sandtimer::engine::{self, CallEvent, CallSpec, Output, Spec, Stdin};
use sandtimer::model::Layer;
use sandtimer::zygote::{AnswerKind, AnswerPart, CallAnswer, Profile};

use crate::contexts::Contexts;
use crate::ended::Ended;
use crate::signals::{SIGNAL_POLL_INTERVAL, poll_signals};
use crate::{errors, limits, memory};

/// What bounds many calls together, as long as it is kept.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Scope {
    pub(crate) scope: engine::ScopeHandle,
    /// Closing one closes what is in it.
    pub(crate) _outer: Option<Py<Scope>>,
}

/// An interpreter's settings: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ProfileOf {
    interpreter: OsString,
    preload: Vec<String>,
    learned: Vec<String>,
    paths: Option<Vec<String>>,
    network: bool,
    gpu: bool,
    shown: Vec<String>,
}

impl From<ProfileOf> for Profile {
    fn from(ProfileOf { interpreter, preload, learned, paths, network, gpu, shown }: ProfileOf) -> Self {
        Profile { interpreter, preload, learned, paths, network, gpu, shown, ..Profile::default() }
    }
}

/// A job: an object with these attributes.
#[derive(FromPyObject)]
struct JobOf {
    bytes: Vec<u8>,
    /// Numbers of files that the object holds open.
    files: Vec<i32>,
    program: bool,
    scope: Option<Py<Scope>>,
}

/// A command: a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct CommandOf {
    argv: Vec<Vec<u8>>,
    stdin: Option<Vec<u8>>,
    /// Its output goes nowhere.
    drop: bool,
    scope: Option<Py<Scope>>,
}

impl CommandOf {
    /// How it is run: with the network, the files and the GPU that calls of this profile have.
    fn spec(self, profile: ProfileOf, limits: &limits::CallLimits) -> Spec {
        let mut spec = Spec::command(self.argv.into_iter().map(OsString::from_vec));
        spec.stdin = self.stdin.map_or(Stdin::Null, Stdin::Bytes);
        let output = if self.drop { Output::Null } else { Output::Capture };
        (spec.stdout, spec.stderr) = (output, output);
        spec.read_only = profile.paths.into_iter().flatten().map(Into::into).collect();
        spec.follows_package_links = true;
        spec.world_readable = profile.shown.into_iter().map(Into::into).collect();
        spec.private_workspace = true;
        spec.network = profile.network;
        spec.gpu = profile.gpu;
        spec.limits = limits.limits.clone();
        spec.require = limits.require;
        (spec.warn, spec.warn_signal) = limits.notice.unzip();
        spec
    }
}

/// The engine of a process.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Engine {
    pub(crate) engine: engine::Engine,
}

#[pymethods]
impl Engine {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let engine = py.detach(engine::Engine::new).map_err(|error| errors::from_engine(py, &error))?;
        Ok(Engine { engine })
    }

    /// A pool of `size` children of an interpreter.
    fn pool(&self, py: Python<'_>, profile: ProfileOf, size: usize) -> PyResult<Pool> {
        let calls = py.detach(|| self.engine.calls(profile.into(), size));
        let calls = calls.map_err(|error| errors::from_engine(py, &error))?;
        Ok(Pool { calls: Mutex::new(Some(Arc::new(calls))) })
    }

    /// `size` live interpreters ready to become contexts.
    fn contexts(&self, py: Python<'_>, profile: ProfileOf, size: usize) -> PyResult<Contexts> {
        let contexts = py.detach(|| self.engine.contexts(profile.into(), size));
        Ok(Contexts::new(contexts.map_err(|error| errors::from_engine(py, &error))?))
    }

    /// A scope whose calls together take at most `total` seconds (None: unlimited) from now, within
    /// `outer`.
    #[pyo3(signature = (name, total, outer=None))]
    fn scope(
        &self,
        py: Python<'_>,
        name: &str,
        total: &Bound<'_, PyAny>,
        outer: Option<Py<Scope>>,
    ) -> PyResult<Scope> {
        let limits = limits::wall("total", total)?;
        let parent = outer.as_ref().map(|outer| outer.get().scope.id());
        let opened = self.engine.open_scope(parent, Layer::Job, name, &limits);
        Ok(Scope { scope: opened.map_err(|error| errors::from_engine(py, &error))?, _outer: outer })
    }

    /// Calls in an interpreter started for this call alone.
    fn spawn(
        &self,
        py: Python<'_>,
        profile: ProfileOf,
        job: JobOf,
        limits: &limits::CallLimits,
    ) -> PyResult<Call> {
        let spec = spec(job, limits)?;
        let profile = profile.into();
        begun(py, py.detach(|| self.engine.call_spawned(&profile, spec)))
    }

    /// Runs a command. FileNotFoundError and PermissionError say that there is none, or none that
    /// can be executed.
    fn command(
        &self,
        py: Python<'_>,
        profile: ProfileOf,
        mut command: CommandOf,
        limits: &limits::CallLimits,
    ) -> PyResult<Call> {
        // Open until the run is in it.
        let scope = command.scope.take();
        let mut spec = command.spec(profile, limits);
        spec.parent = scope.as_ref().map(|scope| scope.get().scope.id());
        match py.detach(|| self.engine.start(spec)) {
            Err(error) if error.exit_code() == 127 => Err(PyFileNotFoundError::new_err(error.to_string())),
            Err(error) if error.exit_code() == 126 => Err(PyPermissionError::new_err(error.to_string())),
            started => begun(py, started.map(Into::into)),
        }
    }

    /// Calls in a fork of this process, which serves at the other end of `orders`.
    #[pyo3(signature = (profile, orders, job, limits))]
    fn fork(
        &self,
        py: Python<'_>,
        profile: ProfileOf,
        orders: i32,
        job: JobOf,
        limits: &limits::CallLimits,
    ) -> PyResult<Call> {
        let spec = spec(job, limits)?;
        let orders = memory::borrow(orders).try_clone_to_owned()?;
        let profile = profile.into();
        begun(py, py.detach(|| self.engine.call_forked(&profile, orders, spec)))
    }
}

/// The program of the children, and the number of the file that holds its native half.
#[pyfunction]
pub(crate) fn child_source() -> PyResult<(String, i32)> {
    let library = sandtimer::zygote::library()?;
    Ok((sandtimer::zygote::source(), std::os::fd::AsRawFd::as_raw_fd(&library)))
}

/// The device nodes of the GPU that calls would be given. SandboxUnavailableError says why there
/// are none.
#[pyfunction]
pub(crate) fn gpu_nodes(py: Python<'_>) -> PyResult<Vec<PathBuf>> {
    let gpus = py.detach(engine::gpus).map_err(|error| errors::from_engine(py, &error))?;
    Ok(gpus.nodes)
}

/// A call of a job under these limits.
fn spec(job: JobOf, limits: &limits::CallLimits) -> PyResult<CallSpec> {
    let JobOf { bytes: job, files, program, scope } = job;
    let files = files.into_iter().map(|file| memory::borrow(file).try_clone_to_owned());
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let (warn, warn_signal) = limits.notice.unzip();
    let (limits, require) = (limits.limits.clone(), limits.require);
    let parent = scope.map(|scope| scope.get().scope.id());
    Ok(CallSpec { job, files, program, limits, parent, require, warn, warn_signal, ..CallSpec::default() })
}

/// A call that was begun by the engine itself, without a pool.
fn begun(py: Python<'_>, call: Result<engine::CallHandle, sandtimer::Error>) -> PyResult<Call> {
    let call = call.map_err(|error| errors::from_engine(py, &error))?;
    Ok(Call { call, answer: Mutex::default(), over: AtomicBool::new(false) })
}

/// Children of one interpreter, ready for calls.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Pool {
    calls: Mutex<Option<Arc<engine::Calls>>>,
}

/// Does something that waits without the interpreter's lock, and asks whether a signal's handler
/// raised.
fn interruptible<T: Send>(
    py: Python<'_>,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> std::io::Result<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let result = py.detach(|| wait(&mut || poll_signals(&mut raised)));
    raised.map_or(Ok(()), Err)?;
    Ok(result?)
}

impl Pool {
    /// Does something with the pool, without the interpreter's lock. It may have been closed by
    /// then, and this the last to leave it.
    fn with<T: Send>(&self, py: Python<'_>, act: impl FnOnce(&engine::Calls) -> T + Send) -> PyResult<T> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let done = py.detach(move || calls.map(|calls| act(&calls)));
        done.ok_or_else(|| {
            errors::exception(py, "SandboxUnavailableError", "the sandbox is closed; make a new one")
        })
    }
}

#[pymethods]
impl Pool {
    /// Gives a job to a child.
    fn call(&self, py: Python<'_>, job: JobOf, limits: &limits::CallLimits) -> PyResult<Call> {
        let spec = spec(job, limits)?;
        let mut raised = None;
        let called = self.with(py, |calls| calls.call(spec, &mut || poll_signals(&mut raised)))?;
        match (called, raised) {
            (Ok(call), None) => Ok(Call { call, answer: Mutex::default(), over: AtomicBool::new(false) }),
            (Ok(call), Some(raised)) => {
                call.run().cancel("interrupted");
                Err(raised)
            }
            (Err(_), Some(raised)) => Err(raised),
            (Err(error), None) => Err(errors::from_engine(py, &error)),
        }
    }

    /// Waits until `count` children are ready.
    fn warm(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        let mut raised = None;
        let warmed = self.with(py, |calls| calls.warm(count, &mut || poll_signals(&mut raised)))?;
        raised.map_or(Ok(()), Err)?;
        warmed.map_err(|error| errors::from_engine(py, &error))
    }

    /// What the pool has done so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.with(py, engine::Calls::stats)?;
        let dictionary = PyDict::new(py);
        dictionary.set_item("ready", stats.ready)?;
        dictionary.set_item("wanted", stats.wanted)?;
        dictionary.set_item("calls", stats.calls)?;
        dictionary.set_item("cold", stats.cold)?;
        dictionary.set_item("lost", stats.lost)?;
        dictionary.set_item("zygotes", stats.zygotes)?;
        dictionary.set_item("version", stats.version)?;
        Ok(dictionary)
    }

    /// Ends the children that are warm or being started. Active calls continue.
    fn close(&self, py: Python<'_>) {
        py.detach(|| Self::end(self.calls.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl Pool {
    /// Ends it, and waits unless another thread is using it.
    fn end(calls: Option<Arc<engine::Calls>>) {
        if let Some(calls) = &calls {
            calls.close();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Not locked: in a process that was forked, a thread that is not there may have held the
        // lock.
        let mut calls = self.calls.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Without an interpreter there is no lock to release.
        if Python::try_attach(|py| py.detach(|| Self::end(calls.take()))).is_none() {
            Self::end(calls);
        }
    }
}

/// A call under way.
#[pyclass(frozen, module = "sandtimer._sandtimer")]
pub(crate) struct Call {
    call: engine::CallHandle,
    answer: Mutex<Option<CallAnswer>>,
    /// It is known how it ended.
    over: AtomicBool,
}

impl Drop for Call {
    fn drop(&mut self) {
        // An interrupt may come between any two steps of the thread that waits for it.
        if !self.over.load(Ordering::Relaxed) {
            self.call.run().cancel("the caller was interrupted");
        }
    }
}

impl Call {
    /// Another handle of its run.
    pub(crate) fn run(&self) -> engine::Run {
        self.call.run().another()
    }

    fn part(&self, index: usize) -> PyResult<AnswerPart> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let part = answer.as_ref().and_then(|answer| answer.parts.get(index)).copied();
        part.ok_or_else(|| PyOSError::new_err("there is no such part"))
    }
}

#[pymethods]
impl Call {
    /// Waits for the answer: its kind, its inline bytes, and of each part the length and whether it
    /// is immutable. The kind is "value", "raised", "refused", or "malformed" with the reason, or
    /// "nothing" when there is a verdict or the job ended without an answer: then the bytes are the
    /// ending, where that is known already.
    #[allow(clippy::type_complexity)]
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<(String, Bound<'py, PyBytes>, Vec<(u64, bool)>)> {
        let update = loop {
            let update = interruptible(py, |is_interrupted| self.call.wait_interruptibly(is_interrupted));
            match update.inspect_err(|_| self.cancel("interrupted"))? {
                CallEvent::Progress => {}
                update => break update,
            }
        };
        match update {
            CallEvent::Nothing | CallEvent::Progress => {
                while !py.detach(|| self.call.verdict_within(SIGNAL_POLL_INTERVAL)) {
                    py.check_signals().inspect_err(|_| self.cancel("interrupted"))?;
                }
                self.over.store(true, Ordering::Relaxed);
                let ending = self.call.ending().and_then(|ending| serde_json::to_value(ending).ok());
                let ending = ending.as_ref().and_then(|ending| ending.as_str()).unwrap_or_default();
                Ok(("nothing".to_owned(), PyBytes::new(py, ending.as_bytes()), Vec::new()))
            }
            CallEvent::Malformed(malformed) => {
                let message = malformed.to_string();
                self.call.run().cancel(message.clone());
                Ok(("malformed".to_owned(), PyBytes::new(py, message.as_bytes()), Vec::new()))
            }
            CallEvent::Answer(answer) => {
                let kind = match answer.kind {
                    AnswerKind::Value => "value",
                    AnswerKind::Raised => "raised",
                    AnswerKind::Refused => "refused",
                };
                let lengths = answer.parts.iter().map(|part| (part.length, part.immutable)).collect();
                let inline = PyBytes::new(py, &answer.inline);
                *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                Ok((kind.to_owned(), inline, lengths))
            }
        }
    }

    /// Reads part `index` of the answer to `address`, where there must be room for it. Parts are
    /// read in their order.
    fn read(&self, py: Python<'_>, index: usize, address: usize) -> PyResult<()> {
        let part = self.part(index)?;
        interruptible(py, |poll_signals| memory::read_to(&self.call, part, address, poll_signals))
    }

    /// As `read`, but gives bytes.
    fn read_bytes<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let part = self.part(index)?;
        let bytes = memory::bytes_to_be_written(py, usize::try_from(part.length)?)?;
        let address = memory::address_of(&bytes);
        interruptible(py, |poll_signals| memory::read_to(&self.call, part, address, poll_signals))?;
        Ok(bytes)
    }

    /// Takes the answer: False when a limit has ended the run before. The job then waits for
    /// `release`.
    fn accept(&self, raised: bool) -> bool {
        self.over.store(true, Ordering::Relaxed);
        self.call.take(if raised { AnswerKind::Raised } else { AnswerKind::Value })
    }

    /// Ends the job whose answer was taken. Not left to the end of this object: an exception may
    /// keep that for ever.
    fn release(&self) {
        self.call.end_answered();
    }

    /// The wall-clock limit in seconds, where there is one.
    fn wall_limit(&self) -> Option<f64> {
        self.call.wall_limit().map(|wall| wall.as_secs_f64())
    }

    /// The most bytes of a result, where there is a limit.
    fn result_limit(&self) -> Option<u64> {
        self.call.result_limit()
    }

    /// Ends the run.
    fn cancel(&self, reason: &str) {
        self.call.run().cancel(reason);
    }

    /// How far it is, as JSON; None where that is not known.
    fn progress(&self) -> Option<String> {
        // Plain data always serialises.
        self.call.run().progress().and_then(|progress| serde_json::to_string(&progress).ok())
    }

    /// The run's end.
    fn ended(&self) -> Ended {
        Ended::new(self.call.run().id().to_owned(), self.call.completion())
    }
}
