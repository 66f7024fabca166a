//! Sandtimer over HTTP. A handler parses, calls one function, and renders; what happens to a run is
//! the engine's.
//!
//! ```text
//! listen       connections, their bounds, the end of the server
//! connection   whose its other end is, and waiting only while that is there
//! auth         the owner of a request, before any handler: Owner, or a Refusal
//! body         fields of requests, each refusal naming its field; limits by the engine's own parser
//! scan         bounds of the JSON that is received, before it is parsed
//! intake       memory for what is received and answered, and the threads that parse long messages
//! owned        things by id that are there for their owner only
//! runs         /v1/runs: request → Spec, the driver of each run, output, events, records
//! contexts     /v1/contexts and /v1/sessions: live interpreters and shells, what is executed in them, when they end
//! jobs         /v1/jobs: durable work, in a store and by a worker of this server
//! tasks        /v1/tasks: estimates, what durations are known, and tasks that are compared with them
//! policy       what holds where a request says nothing
//! quota        how much an owner may have at once
//! tenants      what a token allows each run: ceilings, the network
//! compat       /api/*: the same runs and contexts in another interface's form, one module
//! api          the interfaces of other systems that execute programs, each a module over `programs`
//! programs     programs in a language: compiled, run, and how that ended
//! mcp          /mcp: the same runs and contexts as tools for agents
//! workspaces   /v1/workspaces: directories that outlive what works in them
//! files        /v1/files: their files, used with the rights of their owner
//! page         /: live runs and contexts, for people
//! events       server-sent events with ids from which a reader continues
//! trace        log lines and spans, for operators
//! error        the one list of errors
//! ```
//! No thread per run or request: a run is a task that waits for the engine's futures. Building a
//! sandbox, the disk, and what is executed or waits for its turn in a context block, on the
//! runtime's pool of threads.
#![forbid(unsafe_code)]

mod api;
mod auth;
mod body;
mod compat;
mod connection;
mod contexts;
pub mod error;
mod events;
mod facts;
mod files;
mod intake;
mod jobs;
mod judge;
mod listen;
mod mcp;
mod metrics;
mod openapi;
mod page;
mod policy;
mod programs;
mod quota;
mod registry;
mod runs;
mod sandboxes;
mod scan;
mod tasks;
mod tenants;
mod trace;
mod webhook_sender;
mod workspaces;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandtimer::{Engine, Limits};
use sandtimer_agents::estimate::FinishedRun;
use sandtimer_jobs::job::JobStore;
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_records::{RunStore, StoreError};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::watch;

pub use auth::{OwnerId, TokenError, Tokens};
pub use mcp::document as mcp_tools;
pub use openapi::document as openapi;
pub use policy::{DEFAULT_READY, Defaults, Interpreters, PoolSettings};
pub use trace::{Collector, CollectorError};
pub use webhook_sender::HttpWebhookSender;

use contexts::LiveContexts;
use facts::HostFacts;
use intake::{Intake, MessageKind};
use jobs::{JobService, WorkerResources};
use metrics::Metrics;
use quota::QuotaTable;
use runs::Runs;
use sandboxes::SandboxService;
use tasks::{Durations, Tasks};
use tenants::Tenants;
use trace::Traces;
use workspaces::Workspaces;

/// The interpreter of Python programs, as it is found on PATH.
pub(crate) const PYTHON: &str = "python3";
/// The runtime's threads. Handlers wait; they do not compute.
const WORKER_THREADS: usize = 2;
/// Threads at a time that build sandboxes, wait for the disk, or for what is executed in a context.
pub(crate) const MAX_BLOCKING_THREADS: usize = 1024;
/// How long open requests, and jobs, may continue once the server is to stop.
const OPEN_REQUESTS: Duration = Duration::from_secs(5);
/// How long the runs' own ends may take then, before those with a grace are not given it.
const GRACEFUL_END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long their Outcomes may take to be recorded and answered.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(4);
/// How long threads that are in a system call are waited for at the end.
const THREAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How many ended runs are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// `None` is without end.
    pub runs: Option<u64>,
    pub age: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { runs: Some(1_000), age: Some(Duration::from_secs(7 * 24 * 3600)) }
    }
}

/// What only the host program knows.
pub struct HostProgram {
    /// What this machine can enforce. May take seconds.
    pub facts: Box<dyn Fn() -> Value + Send + Sync>,
    /// Each setting with its value and where it came from.
    pub config: Value,
    /// Receives errors that concern no single request.
    pub log_error: Box<dyn Fn(&str) + Send + Sync>,
}

impl std::fmt::Debug for HostProgram {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Host").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Where a server listens: `127.0.0.1:7880`, or `unix:/run/user/1000/sandtimer.sock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// Port 0 is a free one.
    Address(SocketAddr),
    /// A socket in the file system, which only this user may use. A stale one, on which no server
    /// listens, is replaced.
    Unix(PathBuf),
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() {
                Ok(Listen::Unix(path))
            } else {
                Err("the path after `unix:` must begin with a slash".to_owned())
            };
        }
        let address = text.parse().map(Listen::Address);
        address.map_err(|_| "use an address such as 127.0.0.1:7880, or `unix:` and a path".to_owned())
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::Address(address) => address.fmt(formatter),
            Listen::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// How a server executes jobs.
#[derive(Debug, Clone)]
pub struct JobSettings {
    /// Where they are, perhaps with others that work on them; `None` is the state directory.
    pub store: Option<Arc<dyn JobStore>>,
    /// Jobs at a time; 0 leaves them to other workers on the same store.
    pub slots: usize,
    /// The number of bytes that are kept of the files that a job leaves.
    pub file_bytes: u64,
    /// Bytes for the runs of jobs that say how much memory they may have; `None` for as many jobs
    /// as there are slots.
    pub memory: Option<u64>,
    /// Whether webhooks may be sent to addresses that are not public.
    pub private_webhooks: bool,
}

/// Under which names the tools for agents are listed; all of them can be called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolNames {
    /// Our own, such as `bash`.
    Ours,
    /// The names that agents were trained on, such as `Bash`, and ours where there is no such name.
    Trained,
    #[default]
    Both,
}

impl ToolNames {
    /// The names of the choices.
    pub const NAMES: [&'static str; 3] = ["ours", "trained", "both"];

    /// The choice of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "ours" => Some(ToolNames::Ours),
            "trained" => Some(ToolNames::Trained),
            "both" => Some(ToolNames::Both),
            _ => None,
        }
    }
}

/// How a server is set up.
#[derive(Debug)]
pub struct Settings {
    pub listen: Listen,
    pub state_directory: PathBuf,
    /// Clients with one of these tokens are admitted; without tokens, the server's own user on this
    /// machine.
    pub tokens: Option<Tokens>,
    pub retention: Retention,
    /// Limits from further out than a request.
    pub defaults: Defaults,
    /// The operator's ceilings.
    pub maxima: Limits,
    pub interpreters: Interpreters,
    pub jobs: JobSettings,
    /// Directories that hold root trees for sandboxes, by the names that clients use.
    pub templates: BTreeMap<String, PathBuf>,
    /// How long a client may take for the head of a request, and for its body. It may take nothing
    /// of an answer for twice as long.
    pub patience: Duration,
    /// How long a stream of events is silent before a comment shows that it lives.
    pub heartbeat: Duration,
    /// Where spans of requests and runs are sent, if anywhere.
    pub collector: Option<Collector>,
    /// Agents see the tools that estimate.
    pub estimate_tools: bool,
    /// The names under which agents see tools.
    pub tool_names: ToolNames,
    pub host: HostProgram,
}

/// Why a server did not come up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error(
        "listening on {0}, which others can reach, needs a token file; give --token-file, or listen on 127.0.0.1"
    )]
    Open(SocketAddr),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: Listen, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    JobService(#[from] sandtimer_jobs::job::StoreError),
    #[error(transparent)]
    Engine(#[from] sandtimer::Error),
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}

impl StartError {
    /// Whether another server is there already, with these records or at this address.
    pub fn is_in_use(&self) -> bool {
        match self {
            StartError::Store(StoreError::InUse(_)) => true,
            StartError::Listen { source, .. } => source.kind() == io::ErrorKind::AddrInUse,
            _ => false,
        }
    }
}

/// What all handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub engine: Engine,
    pub tokens: Option<Tokens>,
    pub defaults: Defaults,
    pub interpreters: Interpreters,
    /// The interpreters that execute Python programs.
    pub programs: Arc<sandtimer::engine::Interpreters>,
    pub program_service: programs::ProgramService,
    pub submissions: api::Submissions,
    pub quotas: QuotaTable,
    pub tenants: Arc<Tenants>,
    pub intake: Intake,
    /// Memory for what is answered.
    pub answers: Intake,
    pub traces: Traces,
    pub patience: Duration,
    pub heartbeat: Duration,
    pub host: HostProgram,
    pub runs: Runs,
    pub contexts: LiveContexts,
    pub sandboxes: compat::Sandboxes,
    pub sandbox_service: SandboxService,
    pub workspaces: Workspaces,
    pub jobs: JobService,
    pub durations: Durations,
    pub estimate_tools: bool,
    pub tool_names: ToolNames,
    pub tasks: Tasks,
    pub facts: HostFacts,
    pub metrics: Metrics,
    /// True once the server is to stop.
    pub closing: watch::Sender<bool>,
}

pub(crate) type SharedApp = Arc<App>;

impl App {
    /// Keeps a duration for the next server, on a thread of the runtime that may block.
    pub(crate) fn keep_duration(&self, finished: &FinishedRun) {
        // Not on a thread for what blocks: waking one would cost more than what is written, as a
        // rule.
        if let Err(error) = tokio::task::block_in_place(|| self.durations.keep(finished)) {
            self.metrics.store_failed();
            (self.host.log_error)(&format!("the duration of a run is kept in memory only: {error}"));
        }
    }
}

/// A server that listens. Dropping it without [`ServerHandle::stop`] ends its runs without their
/// records.
#[derive(Debug)]
pub struct ServerHandle {
    address: Listen,
    app: SharedApp,
    connections: listen::Connections,
    // Last: its tasks use the others.
    runtime: Runtime,
}

impl ServerHandle {
    /// Opens the records, starts an engine, and listens.
    ///
    /// # Errors
    /// See [`StartError`]; nothing of the server is left then.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        if let Listen::Address(address) = settings.listen
            && settings.tokens.is_none()
            && !address.ip().to_canonical().is_loopback()
        {
            return Err(StartError::Open(address));
        }
        let opened = RunStore::open(&settings.state_directory, calendar_milliseconds())?;
        // After its lock: of two servers that start at once, the one that stays is the one whose
        // socket has the name.
        let (listener, address) = listen::bind(&settings.listen)
            .map_err(|source| StartError::Listen { address: settings.listen.clone(), source })?;
        for (path, error) in &opened.unreadable {
            (settings.host.log_error)(&format!("{} is left out: {error}", path.display()));
        }
        let workspaces = Workspaces::open(&settings.state_directory, &settings.host.log_error)
            .map_err(|source| StoreError::Directory { path: settings.state_directory.clone(), source })?;
        let contexts = LiveContexts::open(&settings.state_directory)
            .map_err(|source| StoreError::Directory { path: settings.state_directory.clone(), source })?;
        let program_service = programs::ProgramService::open(&settings.state_directory)
            .map_err(|source| StoreError::Directory { path: settings.state_directory.clone(), source })?;
        let submissions = api::Submissions::open(&settings.state_directory)
            .map_err(|source| StoreError::Directory { path: settings.state_directory.clone(), source })?;
        let durations = Durations::open(&settings.state_directory, &settings.host.log_error)?;
        let engine = Engine::with_options(sandtimer::Options {
            spool_directory: Some(spool_directory(&settings.state_directory)?),
            maxima: settings.maxima,
            spawn_limit: Some(settings.interpreters.spawn_limit),
            reader: settings.interpreters.reader.clone(),
            ..sandtimer::Options::default()
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_name("st-server")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let tenants = Arc::new(Tenants::open(&engine, settings.tokens.as_ref())?);
        let sandbox_service = SandboxService::open(
            &engine,
            runtime.handle(),
            &settings.state_directory,
            settings.templates,
            &tenants,
            &settings.host.log_error,
        )?;
        let limits = settings.defaults.commands.clone();
        let traces = Traces::start(settings.collector).map_err(StartError::Threads)?;
        let programs = Arc::new(sandtimer::engine::Interpreters::new(engine.clone(), PYTHON));
        let jobs = JobService::start(
            &settings.state_directory,
            WorkerResources {
                engine: &engine,
                interpreters: &programs,
                tenants: &tenants,
                defaults: limits,
                traces: &traces,
            },
            &settings.jobs,
        )?;
        let app = Arc::new(App {
            tenants,
            intake: Intake::of(MessageKind::Requests, auth::owners(settings.tokens.as_ref())),
            answers: Intake::of(MessageKind::Answers, auth::owners(settings.tokens.as_ref())),
            jobs,
            traces,
            engine,
            quotas: QuotaTable::of(settings.tokens.as_ref()),
            tokens: settings.tokens,
            defaults: settings.defaults,
            interpreters: settings.interpreters,
            programs,
            program_service,
            submissions,
            patience: settings.patience,
            heartbeat: settings.heartbeat,
            host: settings.host,
            runs: Runs::new(opened.store, opened.runs, settings.retention),
            contexts,
            sandboxes: compat::Sandboxes::default(),
            sandbox_service,
            workspaces,
            durations,
            estimate_tools: settings.estimate_tools,
            tool_names: settings.tool_names,
            tasks: Tasks::default(),
            facts: HostFacts::default(),
            metrics: Metrics::default(),
            closing: watch::Sender::new(false),
        });
        // Without tokens there is one owner.
        let share = if app.tokens.is_some() { listen::MAX_CONNECTIONS / 2 } else { listen::MAX_CONNECTIONS };
        let connections = listen::Connections::new(share);
        let guard = runtime.enter();
        let listener = listener.into_listener().map_err(StartError::Threads)?;
        drop(guard);
        runtime.spawn(listen::serve(listener, app.clone(), connections.clone()));
        runtime.spawn(runs::remove_expired_records(app.clone()));
        runtime.spawn(runs::sync_records(app.clone()));
        runtime.spawn(runs::prepare_records(app.clone()));
        runtime.spawn(contexts::reap_idle(app.clone()));
        runtime.spawn(sandboxes::end_expired(app.clone()));
        runtime.spawn(api::maintain_records(app.clone()));
        let filling = app.clone();
        runtime.spawn_blocking(move || contexts::fill(&filling));
        let swept = app.clone();
        runtime.spawn_blocking(move || workspaces::sweep(&swept));
        Ok(ServerHandle { address, app, connections, runtime })
    }

    /// Where it listens.
    pub fn listens(&self) -> &Listen {
        &self.address
    }

    /// Where it listens, unless that is a path.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.address {
            Listen::Address(address) => Some(address),
            Listen::Unix(_) => None,
        }
    }

    /// Whether no client is connected, no run or job is active, and no context is open.
    pub fn is_unused(&self) -> bool {
        let app = &self.app;
        let executes = app.runs.counts().0 > 0 || app.jobs.running() > 0;
        self.connections.are_closed() && !executes && app.contexts.is_empty()
    }

    /// Begins no more jobs; all else continues.
    pub fn drain_jobs(&self) {
        self.app.jobs.drain();
    }

    /// How many jobs are executed here.
    pub fn running_jobs(&self) -> usize {
        self.app.jobs.running()
    }

    /// Ends the jobs that are executed here and gives them back, which counts as no delivery.
    pub fn give_back_jobs(&self) {
        self.app.jobs.give_back();
    }

    /// Ends it: no new requests and jobs; open ones have 5 s; then all runs are cancelled and
    /// recorded, and active jobs are given back to the store, where the next server finds them.
    /// Takes at most 10 s.
    pub fn stop(self) {
        let ServerHandle { address, app, connections, runtime } = self;
        if let Listen::Unix(path) = &address {
            // A client that connects now finds no server, and does not wait.
            let _ = std::fs::remove_file(path);
        }
        app.closing.send_replace(true);
        app.jobs.drain();
        runtime.block_on(async {
            let end = tokio::time::Instant::now() + OPEN_REQUESTS;
            let drained = tokio::time::timeout_at(end, connections.drained()).await.is_ok();
            let _ = tokio::time::timeout_at(end, app.jobs.ended()).await;
            app.jobs.give_back();
            app.runs.end_all(GRACEFUL_END_TIMEOUT, OUTCOME_TIMEOUT).await;
            // What does not end by then dies with the engine.
            let _ = tokio::time::timeout(OUTCOME_TIMEOUT, contexts::close_all(&app)).await;
            // So does what a job does, and the next server takes the job back.
            let _ = tokio::time::timeout(GRACEFUL_END_TIMEOUT, app.jobs.ended()).await;
            let programs = app.programs.clone();
            let closed = tokio::task::spawn_blocking(move || programs.close());
            let _ = tokio::time::timeout(GRACEFUL_END_TIMEOUT, closed).await;
            // A disk that takes longer has the records all the same, unless the power goes.
            let _ = tokio::time::timeout(GRACEFUL_END_TIMEOUT, runs::sync(&app)).await;
            if !drained {
                // What waited for these runs has its answer now.
                let _ = tokio::time::timeout(GRACEFUL_END_TIMEOUT, connections.drained()).await;
            }
        });
        // A thread that holds the state directory longer than that keeps the next server out of it.
        runtime.shutdown_timeout(THREAD_TIMEOUT);
        // The engine goes with the last of its handles, here where blocking is no harm.
        drop(app);
    }
}

/// Returns an id that cannot be guessed.
pub(crate) fn new_id() -> String {
    let mut bytes = [0u8; 8];
    // The kernel's generator does not fail for so few bytes once the machine is up.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where output goes that outgrows memory. The files in it have no names.
fn spool_directory(state_directory: &Path) -> Result<PathBuf, StoreError> {
    let path = state_directory.join("spool");
    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(StoreError::Directory { path: state_directory.to_owned(), source })
        }
        _ => Ok(path),
    }
}
