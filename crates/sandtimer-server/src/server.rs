//! A server from its start to its end.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandtimer::Engine;
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_records::{RunStore, StoreError};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::api::{self, FrontDoorService};
use crate::auth;
use crate::contexts::{self, ContextService};
use crate::intake::Messages;
use crate::jobs::{JobService, WorkerResources};
use crate::listen;
use crate::mcp::AgentService;
use crate::metrics::Metrics;
use crate::policy::PYTHON;
use crate::programs::ProgramService;
use crate::quota::QuotaTable;
use crate::runs::{self, RunService, Runs};
use crate::sandboxes::{self, SandboxService};
use crate::service_core::ServiceCore;
use crate::settings::{Listen, MAX_BLOCKING_THREADS, Settings, StartError};
use crate::state::{App, SharedApp};
use crate::tasks::{Durations, TaskService, Tasks};
use crate::tenants::Tenants;
use crate::trace::Traces;
use crate::workspaces::Workspaces;

/// The runtime's threads. Handlers wait; they do not compute.
const WORKER_THREADS: usize = 2;
/// How long open requests, and jobs, may continue once the server is to stop.
const OPEN_REQUESTS: Duration = Duration::from_secs(5);
/// How long the runs' own ends may take then, before those with a grace are not given it.
const GRACEFUL_END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long their Outcomes may take to be recorded and answered.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(4);
/// How long threads that are in a system call are waited for at the end.
const THREAD_TIMEOUT: Duration = Duration::from_secs(2);

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
        let sandboxes = SandboxService::open(
            &engine,
            runtime.handle(),
            &settings.state_directory,
            settings.templates,
            &tenants,
            &settings.host.log_error,
        )?;
        let traces = Traces::start(settings.collector).map_err(StartError::Threads)?;
        let owners = auth::owners(settings.tokens.as_ref());
        let core = Arc::new(ServiceCore {
            engine,
            tenants,
            quotas: QuotaTable::of(settings.tokens.as_ref()),
            messages: Messages::new(&owners, settings.patience, settings.heartbeat),
            metrics: Metrics::default(),
            traces,
            host: settings.host,
            closing: watch::Sender::new(false),
        });
        let programs = Arc::new(sandtimer::engine::Interpreters::new(core.engine.clone(), PYTHON));
        let runs = Arc::new(RunService {
            core: core.clone(),
            records: Runs::new(opened.store, opened.runs, settings.retention),
            defaults: settings.defaults.commands.clone(),
            programs,
            durations,
            workspaces,
            sandboxes,
        });
        let contexts =
            ContextService::open(&settings.state_directory, &runs, settings.defaults, settings.interpreters)
                .map_err(|source| StoreError::Directory { path: settings.state_directory.clone(), source })?;
        let programs = ProgramService::open(&settings.state_directory, runs.clone())
            .map_err(|source| StoreError::Directory { path: settings.state_directory.clone(), source })?;
        let contexts = Arc::new(contexts);
        let jobs = JobService::start(
            &settings.state_directory,
            WorkerResources { core: &core, interpreters: &runs.programs, defaults: runs.defaults.clone() },
            &settings.jobs,
        )?;
        let has_tokens = settings.tokens.is_some();
        let app = Arc::new(App {
            core,
            runs: runs.clone(),
            contexts: contexts.clone(),
            front_doors: FrontDoorService {
                programs: Arc::new(programs),
                contexts: contexts.clone(),
                submissions: Arc::new(submissions),
            },
            jobs: Arc::new(jobs),
            agents: AgentService {
                contexts,
                tasks: Arc::new(TaskService { tasks: Tasks::default(), runs: runs.clone() }),
                shows_estimates: settings.estimate_tools,
                tool_names: settings.tool_names,
            },
        });
        // Without tokens there is one owner.
        let share = if has_tokens { listen::MAX_CONNECTIONS / 2 } else { listen::MAX_CONNECTIONS };
        let connections = listen::Connections::new(share);
        let guard = runtime.enter();
        let listener = listener.into_listener().map_err(StartError::Threads)?;
        drop(guard);
        runtime.spawn(listen::serve(listener, app.clone(), connections.clone()));
        runtime.spawn(runs::remove_expired_records(runs.clone()));
        runtime.spawn(runs::sync_records(runs.clone()));
        runtime.spawn(runs::prepare_records(runs.clone()));
        runtime.spawn(contexts::reap_idle(app.contexts.clone()));
        runtime.spawn(sandboxes::end_expired(app.contexts.clone()));
        runtime.spawn(api::maintain_records(app.front_doors.clone()));
        let filled = app.contexts.clone();
        runtime.spawn_blocking(move || filled.fill(&owners));
        runtime.spawn_blocking(move || runs.workspaces.sweep(&runs.core.host.log_error));
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
        let executes = app.runs.records.counts().0 > 0 || app.jobs.running() > 0;
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
        app.core.closing.send_replace(true);
        app.jobs.drain();
        runtime.block_on(async {
            let end = tokio::time::Instant::now() + OPEN_REQUESTS;
            let drained = tokio::time::timeout_at(end, connections.drained()).await.is_ok();
            let _ = tokio::time::timeout_at(end, app.jobs.ended()).await;
            app.jobs.give_back();
            app.runs.records.end_all(GRACEFUL_END_TIMEOUT, OUTCOME_TIMEOUT).await;
            // What does not end by then dies with the engine.
            let closed = async {
                tokio::join!(contexts::close_all(&app.contexts), sandboxes::owned_are_deleted(&app.contexts))
            };
            let _ = tokio::time::timeout(OUTCOME_TIMEOUT, closed).await;
            // So does what a job does, and the next server takes the job back.
            let _ = tokio::time::timeout(GRACEFUL_END_TIMEOUT, app.jobs.ended()).await;
            let programs = app.runs.programs.clone();
            let closed = tokio::task::spawn_blocking(move || programs.close());
            let _ = tokio::time::timeout(GRACEFUL_END_TIMEOUT, closed).await;
            // A disk that takes longer has the records all the same, unless the power goes.
            let _ = tokio::time::timeout(GRACEFUL_END_TIMEOUT, runs::sync(&app.runs)).await;
            if !drained {
                // What waited for these runs has its answer now.
                let _ = tokio::time::timeout(GRACEFUL_END_TIMEOUT, connections.drained()).await;
            }
        });
        // A thread that holds the state directory longer than that keeps the next server out of it.
        runtime.shutdown_timeout(THREAD_TIMEOUT);
        // The engine goes with the last of its handles, here, where blocking does no harm.
        drop(app);
    }
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
