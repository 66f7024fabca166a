//! What all handles of one engine share: its threads, its helpers and what it keeps.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, getpid};

use super::disk::DiskWatch;
use super::error::Error;
use super::known_files::FilesPlans;
use super::launchers::Launchers;
use super::options::Options;
use super::pool::Pool;
use super::sandboxes::NetworkServer;
use super::templates::Templates;
use super::temporary_directory::temporary_directory;
use super::threads::{Arming, EnforcementStatus, RECYCLING_LIMIT, Recycler};
use super::which_processor::Callers;
use crate::isolate::files::home_directories;
use crate::isolate::host::HostCapabilities;
use crate::isolate::lease::Lease;
use crate::isolate::ptys::Ptys;
use crate::limits::Ceilings;
use crate::model::LimitKind;
use crate::scope::ScopeTree;
use crate::supervise::commands::{EnforcerCommand, EnforcerHandle};
use crate::supervise::deliveries::{CollectorHandle, ToCollector};
use crate::supervise::output::SpoolDirectory;

/// The default of [`Options::spawn_limit`].
const SPAWN_LIMIT: Duration = Duration::from_secs(60);

/// Runs commands under hard limits.
///
/// Clones are cheap and share the engine. When the last one is dropped, its runs are killed.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::{Engine, Limits, Spec};
///
/// # fn main() -> Result<(), sandtimer::Error> {
/// let engine = Engine::new()?;
/// let spec = Spec::command(["sh", "-c", "while :; do :; done"]).limits(Limits::new().wall(Duration::from_millis(100)));
/// let outcome = engine.run_blocking(spec)?;
/// assert_eq!(outcome.ending, sandtimer::Ending::Timeout);
/// println!("{}", outcome.verdict.as_ref().unwrap().sentence);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Engine {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// The process whose engine it is.
    pub(super) process: Pid,
    pub(super) options: Options,
    pub(super) host: OnceLock<HostCapabilities>,
    pub(super) ceilings: Ceilings,
    /// In bytes, as far as a container may use it.
    pub(super) machine_memory: u64,
    pub(super) ptys: Arc<Ptys>,
    pub(super) homes: OnceLock<Vec<PathBuf>>,
    /// Workspaces that are directories of the caller's.
    pub(super) callers_directories: Mutex<HashSet<PathBuf>>,
    pub(super) scopes: Mutex<ScopeTree>,
    pub(super) spool_directory: OnceLock<Arc<SpoolDirectory>>,
    pub(super) plans: Mutex<FilesPlans>,
    pub(super) templates: Mutex<Templates>,
    /// Idmapped user namespaces by owner (uid, gid) and row.
    pub(super) idmaps: Mutex<HashMap<(u32, u32, usize), Arc<OwnedFd>>>,
    /// Whether mounts of a device can be id-mapped.
    pub(super) mappable: Mutex<HashMap<u64, bool>>,
    /// Done before the first private directory is made.
    pub(super) private_swept: OnceLock<()>,
    pub(super) launchers: Launchers,
    pub(super) enforcer: EnforcerHandle,
    pub(super) collector: CollectorHandle,
    pub(super) arming: Arming,
    pub(super) disk: DiskWatch,
    pub(super) callers: Arc<Callers>,
    /// The same of cells and branches.
    pub(super) cells: Arc<Callers>,
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
    /// What carries the connections of sandboxes with a network allow-list.
    pub(super) network_server: OnceLock<Arc<dyn NetworkServer>>,
    /// Threads that remove the files of sandboxes.
    pub(super) removals: Mutex<Vec<JoinHandle<()>>>,
    pub(super) recycler: Mutex<Option<Recycler>>,
    pub(super) pool: Arc<Pool>,
    // Last: released when everything above is gone.
    pub(super) lease: Lease,
}

impl Inner {
    /// What the host can do; waits for the first launcher the first time.
    pub(super) fn host(&self) -> Result<&HostCapabilities, Error> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let (namespaces, network) = self.launchers.found()?.clone();
        Ok(self.host.get_or_init(|| HostCapabilities::new(namespaces, network, self.pool.cgroups())))
    }

    /// The home directories of this machine.
    pub(super) fn homes(&self) -> &[PathBuf] {
        self.homes.get_or_init(|| {
            let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
            home_directories(&passwd, std::env::var_os("HOME").as_deref())
        })
    }

    /// The status of the watchdog and the other enforcers; waits for it the first time.
    pub(super) fn armed(&self) -> &EnforcementStatus {
        self.arming.wait()
    }

    /// Where output goes that outgrows memory; opened when it is first needed.
    pub(super) fn spool_directory(&self) -> Result<Arc<SpoolDirectory>, Error> {
        if let Some(directory) = self.spool_directory.get() {
            return Ok(directory.clone());
        }
        let (path, is_temporary) = match &self.options.spool_directory {
            Some(path) => (path.clone(), false),
            None => (temporary_directory(), true),
        };
        let opened = SpoolDirectory::open(&path);
        let opened = opened.map_err(|source| Error::SpoolDirectory { path, is_temporary, source })?;
        Ok(self.spool_directory.get_or_init(|| Arc::new(opened)).clone())
    }
}

impl Inner {
    /// What most runs are shown as the machine's memory, in bytes.
    pub(super) fn usual_memory(&self) -> u64 {
        self.ceilings.get(LimitKind::Memory).map_or(self.machine_memory, |most| most.min(self.machine_memory))
    }

    /// How long an interpreter or a shell may take to start. Infrastructure: always finite.
    pub(super) fn spawn_limit(&self) -> Duration {
        self.options.spawn_limit.unwrap_or(SPAWN_LIMIT)
    }

    /// Whether no pid namespace dies with a sandbox's init.
    pub(super) fn sweeps_itself(&self) -> bool {
        self.host.get().is_some_and(|host| !host.has_namespaces())
    }

    /// Whether this is a process that the host program forked: it has copies of the descriptors and
    /// none of the threads. Nothing of the engine may be taken down there.
    pub(super) fn is_a_copy(&self) -> bool {
        getpid() != self.process
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.inner.is_a_copy() {
            std::mem::forget(self.inner.clone());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pool.close();
        self.launchers.dismiss();
        self.enforcer.send(EnforcerCommand::Shutdown);
        // The collector continues until the death of each run is known.
        self.collector.send(ToCollector::Shutdown);
        self.pool.remove_idle();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let removals = std::mem::take(&mut *self.removals.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads.into_iter().chain(removals) {
            // A panic there was reported by itself.
            let _ = thread.join();
        }
        let recycler = self.recycler.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(recycler) = recycler {
            recycler.finish(RECYCLING_LIMIT);
        }
    }
}
