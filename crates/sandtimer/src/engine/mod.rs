//! The engine, which starts runs, enforces their limits and returns their outcomes.
//!
//! It owns four threads (enforcer, collector, recycler, and one that starts the helper processes),
//! one or more in addition while workspaces are watched for a disk limit, and two or three helper
//! processes (watchdog, launchers). In an engine of a single run the collector is the recycler too;
//! one that only adopts runs has no launcher. A run has no thread of its own: while it is waited
//! for, it costs a few descriptors, an entry in a table, and its init process.
//!
//! Each module uses only those below it. From the bottom: what all handles of an engine share
//! (`inner`); a run that is described (`spec`) and checked (`opened`); its jail (`spawn`, `jail`)
//! and its start (`start`); warm children (`children`, `pre_warmer`); then calls, sandboxes and
//! contexts; and on top the methods of [`Engine`] here.

mod adopted_runs;
mod answered_jobs;
mod calls;
mod children;
mod contexts;
mod disk;
mod environment;
mod error;
mod follow;
mod idle_jails;
mod inner;
mod interpreters;
mod jail;
mod known_files;
mod launchers;
mod memory;
mod memory_file;
mod named_directories;
mod opened;
mod options;
mod owners;
mod park;
mod parts;
mod plans;
mod pool;
mod pre_warmer;
mod private_directory;
mod program_file;
mod programs;
#[cfg(feature = "javascript")]
mod reading;
mod room;
mod run;
mod sandboxes;
mod scopes;
mod spawn;
mod spec;
mod start;
mod streams;
mod taking;
mod templates;
mod temporary_directory;
mod terminal;
mod threads;
mod which_processor;
mod workspace;
mod zygotes;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};

// For runs whose first process another program of this project starts.
#[doc(hidden)]
pub use adopted_runs::{AdoptedInit, StartSettings};
// For the Python module, whose calls these are.
#[doc(hidden)]
pub use calls::{CallCompletion, CallEvent, CallHandle, CallSpec, Calls};
pub use contexts::{
    BranchSpec, CellEvent, CellSpec, Context, ContextInfo, ContextSpec, ContextTurn, Contexts, Execution,
    ExecutionAttempt, ImageAccount, ShellPrewarm,
};
// For the tests of the command line, which check these variables.
#[doc(hidden)]
pub use environment::{WITHOUT_INPUT, WITHOUT_NETWORK, WITHOUT_TERMINAL};
pub use error::{BRANCHES, Error};
pub use inner::Engine;
use inner::Inner;
// For the server and the worker of jobs, which keep interpreters for the code of their owners.
#[doc(hidden)]
pub use interpreters::Interpreters;
// For the command line and the worker of jobs, whose ceilings are shares of it.
#[doc(hidden)]
pub use memory::machine_memory;
pub use opened::new_run_id;
pub use options::Options;
pub use park::ParkedJail;
// For the Python module, which reports the GPUs that a run would get.
#[doc(hidden)]
pub use plans::gpus;
// For `sandtimer doctor` and `sandtimer bench`, which start no more runs than that.
#[doc(hidden)]
pub use pool::CAPACITY;
pub use pre_warmer::Stats;
pub use run::{
    OutcomeFuture, OutputFuture, Run, RunOutput, SettledFuture, StartFuture, Stream, WarningFuture,
};
pub use sandboxes::{
    Change, ChangedFile, Durability, Import, ListeningPort, MAX_FORKS, MAX_LAYERS, Origin, Reading, Sandbox,
    SandboxEnd, SandboxError, SandboxFiles, SandboxLife, SandboxLimit, SandboxNetwork, SandboxSpec,
    SandboxUsage, Sandboxes, StoredTemplate, Template,
};
// For the proxy of this project, which serves the networks of sandboxes.
#[doc(hidden)]
pub use sandboxes::{NetworkRequest, NetworkServer, NetworkSockets, ServedNetwork};
pub use scopes::ScopeHandle;
pub use spec::{Output, Require, Spec, Stdin};
pub use start::PROGRESS_VARIABLE;
pub use terminal::{Terminal, TerminalOutputs};
pub use threads::EnforcementStatus;
// For the server, which reads and writes files of workspaces.
#[doc(hidden)]
pub use workspace::{as_files_owner, open_workspace, remove, workspace_owner};
pub use workspace::{make_temporary_directory, make_workspace, remove_workspace};

pub use crate::isolate::cgroup::CgroupLayout;
pub use crate::isolate::files::FilesError;
pub use crate::isolate::host::{HostCapabilities, NamespaceSupport};
pub use crate::isolate::plan::PlanRejection;
#[doc(hidden)]
pub use crate::supervise::denials::NetworkDenials;
pub use crate::supervise::output::Chunk;
pub use crate::supervise::{ProcessInspection, RunInspection};

use sandtimer_os::probe::read_string;
use sandtimer_os::watchdog::Watchdog;

use crate::isolate::cgroup::{Cgroups, Hierarchies};
use crate::isolate::lease::{CgroupIdentity, Lease};
use crate::isolate::ptys::Ptys;
use crate::limits::Ceilings;
use crate::model::Outcome;
use crate::scope::ScopeTree;
use launchers::{LauncherKind, Launchers};
use pool::Pool;
use threads::Threads;

impl Engine {
    /// Makes an engine with default options.
    ///
    /// # Errors
    /// If the system refuses threads, descriptors or the lock directory.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let outcome = engine.run_blocking(Spec::command(["true"]))?;
    /// assert!(outcome.ok);
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn new() -> Result<Self, Error> {
        Self::with_options(Options::default())
    }

    /// Makes an engine with `options`.
    ///
    /// # Errors
    /// As [`Engine::new`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Ending, Engine, Limits, Options, Source, Spec};
    ///
    /// let maxima = Limits::new().wall(Duration::from_millis(200));
    /// let engine = Engine::with_options(Options { maxima, ..Options::default() })?;
    /// // The run has no limit of its own, and the ceiling ends it.
    /// let outcome = engine.run_blocking(Spec::command(["sleep", "3600"]))?;
    /// assert_eq!(outcome.ending, Ending::Timeout);
    /// assert_eq!(outcome.verdict.as_ref().unwrap().source, Source::Ceiling);
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn with_options(options: Options) -> Result<Self, Error> {
        Self::make(options, None)
    }

    /// Makes an engine with a watchdog that is running already.
    ///
    /// # Errors
    /// As [`Engine::new`].
    #[doc(hidden)]
    pub fn with_watchdog(options: Options, watchdog: Watchdog) -> Result<Self, Error> {
        Self::make(options, Some(watchdog))
    }

    fn make(options: Options, watchdog: Option<Watchdog>) -> Result<Self, Error> {
        let kind = if options.is_one_shot { LauncherKind::OneShot } else { LauncherKind::Plain };
        let first = (!options.only_adopts).then_some(kind);
        let launchers = Launchers::start(options.no_namespaces, first)?;
        let uid = rustix::process::getuid().as_raw();
        let hierarchies = Hierarchies::find();
        let clean = |number, noted: &[CgroupIdentity]| hierarchies.sweep(number, noted);
        let lease = Lease::take(uid, options.runtime_directory.as_deref(), clean)
            .map_err(Error::system("cannot take an engine number"))?;
        // Those below were tried when this one was taken.
        let is_one_shot = options.only_adopts || options.is_one_shot;
        for number in abandoned(&hierarchies, &lease, is_one_shot).range(lease.number() + 1..) {
            // What stays now is swept by the next engine that starts.
            lease.sweep_noted(*number, |noted| clean(*number, noted));
        }
        let lock = lease.lock().map_err(Error::system("cannot copy a descriptor"))?;
        let mut cgroups = Cgroups::prepare(&hierarchies, lease.number(), lock);
        let machine_memory = machine_memory();
        cgroups.bound_sum(memory::memory_of_all(machine_memory, &options.maxima), processes_of_all());
        lease.note(&hierarchies.groups(lease.number()));
        let pool = Arc::new(Pool::new(cgroups));
        let threads = Threads::start(&pool, &launchers, &lease, is_one_shot, watchdog)?;
        let ceilings = Ceilings::for_machine(machine_memory).with_operator(&options.maxima);
        let inner = Inner {
            process: rustix::process::getpid(),
            host: OnceLock::new(),
            scopes: Mutex::new(ScopeTree::new(ceilings.clone())),
            ceilings,
            machine_memory,
            ptys: Arc::new(Ptys::of_machine()),
            homes: OnceLock::new(),
            callers_directories: Mutex::default(),
            spool_directory: OnceLock::new(),
            plans: Mutex::default(),
            templates: Mutex::default(),
            idmaps: Mutex::default(),
            mappable: Mutex::default(),
            private_swept: OnceLock::new(),
            launchers,
            enforcer: threads.enforcer,
            collector: threads.collector,
            arming: threads.arming,
            disk: disk::DiskWatch::default(),
            callers: Arc::default(),
            cells: Arc::default(),
            threads: Mutex::new(threads.handles),
            network_server: OnceLock::new(),
            removals: Mutex::default(),
            recycler: Mutex::new(threads.recycler),
            pool,
            lease,
            options,
        };
        Ok(Engine { inner: Arc::new(inner) })
    }

    /// Sets what carries the connections of sandboxes with a network allow-list; the first that is
    /// set stays.
    #[doc(hidden)]
    pub fn serve_networks(&self, server: Arc<dyn NetworkServer>) {
        let _ = self.inner.network_server.set(server);
    }

    /// Starts a run and returns its handle, without waiting for the command.
    ///
    /// # Errors
    /// If no run could be started; see [`Error`].
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let first = engine.start(Spec::command(["echo", "1"]))?;
    /// let second = engine.start(Spec::command(["echo", "2"]))?;
    /// assert_ne!(first.id(), second.id());
    /// assert_eq!(second.wait_blocking().stdout, "2\n");
    /// assert_eq!(first.wait_blocking().stdout, "1\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn start(&self, spec: Spec) -> Result<Run, Error> {
        start::start(&self.inner, spec)
    }

    /// Starts a run and awaits its Outcome.
    ///
    /// # Errors
    /// As [`Engine::start`].
    ///
    /// ```
    /// # use std::{future::Future, sync::Arc, task::{Context, Poll, Wake, Waker}, thread::Thread};
    /// # struct Unpark(Thread);
    /// # impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark(); } }
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    /// #     loop {
    /// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
    /// #             Poll::Ready(output) => return output,
    /// #             Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// use sandtimer::{Engine, Spec};
    ///
    /// let engine = Engine::new()?;
    /// // `block_on` stands for any runtime.
    /// let outcome = block_on(engine.run(Spec::command(["echo", "hello"])))?;
    /// assert_eq!(outcome.stdout, "hello\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub async fn run(&self, spec: Spec) -> Result<Arc<Outcome>, Error> {
        let run = self.start(spec)?;
        Ok(run.wait().await)
    }

    /// Starts a run and waits for its Outcome, blocking the calling thread.
    ///
    /// # Errors
    /// As [`Engine::start`].
    ///
    /// ```
    /// use sandtimer::{Ending, Engine, Spec};
    ///
    /// let outcome = Engine::new()?.run_blocking(Spec::command(["sh", "-c", "exit 3"]))?;
    /// assert_eq!(outcome.ending, Ending::Exited);
    /// assert_eq!((outcome.exit_code, outcome.ok), (Some(3), false));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn run_blocking(&self, spec: Spec) -> Result<Arc<Outcome>, Error> {
        Ok(self.start(spec)?.wait_blocking())
    }

    /// Returns what the host supports, as probed when the engine was made.
    ///
    /// # Errors
    /// If the process that probes cannot be started because descriptors or processes are exhausted;
    /// a later call tries again.
    pub fn host(&self) -> Result<&HostCapabilities, Error> {
        self.inner.host()
    }

    /// Returns which enforcers are active.
    pub fn armed(&self) -> &EnforcementStatus {
        self.inner.armed()
    }

    /// Returns the layout of the host's control groups.
    pub fn cgroup_layout(&self) -> crate::isolate::cgroup::CgroupLayout {
        self.inner.pool.cgroups().layout()
    }

    /// Returns the ceilings that bound every run.
    ///
    /// ```
    /// use sandtimer::{Engine, LimitKind, Limits, Options};
    ///
    /// let maxima = Limits::new().processes(64);
    /// let engine = Engine::with_options(Options { maxima, ..Options::default() })?;
    /// assert_eq!(engine.ceilings().get(LimitKind::Processes), Some(64));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn ceilings(&self) -> &Ceilings {
        &self.inner.ceilings
    }

    /// Returns the number of slots that are out of use because they hold a process that cannot be
    /// killed.
    pub fn quarantined(&self) -> usize {
        self.inner.pool.quarantined()
    }
}

/// Numbers of engines that may have left groups. An engine of a single run (`is_one_shot`) reads
/// the notes alone: one directory instead of one more of each hierarchy. Groups whose note could
/// not be written are left to another engine, or to the next with their number.
fn abandoned(hierarchies: &Hierarchies, lease: &Lease, is_one_shot: bool) -> BTreeSet<u32> {
    let noted = lease.noted();
    if is_one_shot { noted } else { &hierarchies.numbers() | &noted }
}

/// Processes and threads of all runs together: 80 % of what the kernel has numbers and room for.
fn processes_of_all() -> Option<u64> {
    let read = |file: &str| read_string(file).ok()?.trim().parse::<u64>().ok();
    let most = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"];
    most.into_iter().filter_map(read).min().map(|most| most / 100 * 80)
}
