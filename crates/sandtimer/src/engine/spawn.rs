//! A jail that is prepared, how the launcher starts it, and what was started.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use rustix::fs::{Mode, OFlags, open};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::control::InitControl;
use sandtimer_os::launcher::{self, Launcher, SpawnRequest, SpawnedProcess};
use sandtimer_os::process;

use super::error::Error;
use super::inner::Inner;
use super::known_files::KnownFiles;
use super::memory_file::MemoryFile;
use super::sandboxes::SandboxUse;
use super::spec::Spec;
use crate::isolate::cgroup::Slot;
use crate::isolate::networks::LentNetwork;
use crate::isolate::plan::{self, IsolationLayer, Plan};
use crate::isolate::ptys::PtyShare;
use crate::model::Path as RunPath;
use crate::supervise::run::{PrivateDirectory, WatchdogId};

/// What a jail is built from, worked out and opened.
pub(super) struct PreparedJail {
    pub files: Arc<KnownFiles>,
    pub plan: Plan,
    pub template: Option<usize>,
    pub private: Option<PrivateDirectory>,
    pub network: Option<Arc<LentNetwork>>,
    pub ptys: Option<Arc<PtyShare>>,
    pub tasks: Vec<OwnedFd>,
    pub idmaps: Vec<Arc<OwnedFd>>,
    pub sandbox: Option<SandboxUse>,
}

/// A sandbox that was started.
#[derive(Debug)]
pub(super) struct Jail {
    pub slot: Slot,
    pub control: Arc<InitControl>,
    pub pidfd: Arc<OwnedFd>,
    pub plan: Plan,
    pub files: Arc<KnownFiles>,
    pub private: Option<PrivateDirectory>,
    pub spawned_at: u64,
    pub path: RunPath,
    pub namespace: Option<OwnedFd>,
    /// Its network namespace, where that is its own.
    pub network: Option<Arc<LentNetwork>>,
    /// The watchdog that knows how it is killed.
    pub shown: Option<WatchdogId>,
    /// What it may open pseudo-terminals by.
    pub ptys: Option<Arc<PtyShare>>,
    /// What it shows as /proc/meminfo, where its limit of memory may change.
    pub memory_file: Option<Arc<MemoryFile>>,
    /// Its first process is none of the engine's helpers, and sweeps what is left.
    pub is_adopted: bool,
    /// The long-lived sandbox that it is in.
    pub sandbox: Option<SandboxUse>,
}

impl Jail {
    /// The same sandbox once more, for the next job in it.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(super) fn again(&self) -> std::io::Result<Self> {
        Ok(Jail {
            slot: self.slot.again(),
            control: self.control.clone(),
            pidfd: self.pidfd.clone(),
            plan: self.plan.carried_out(),
            files: self.files.clone(),
            private: None,
            spawned_at: self.spawned_at,
            path: self.path,
            namespace: self.namespace.as_ref().map(OwnedFd::try_clone).transpose()?,
            network: self.network.clone(),
            shown: self.shown,
            ptys: self.ptys.clone(),
            memory_file: self.memory_file.clone(),
            is_adopted: self.is_adopted,
            sandbox: None,
        })
    }

    /// Sends the watchdog how the jail is killed. Done long before there is a run, because it wakes
    /// the watchdog.
    pub(super) fn show(mut self, inner: &Inner) -> Self {
        self.shown = inner.enforcer.show(&self.slot, self.pidfd.as_fd(), inner.sweeps_itself());
        self
    }
}

/// The descriptors that a jail starts with, besides those of its plan.
pub(super) struct Descriptors<'a> {
    pub slot: &'a Slot,
    pub stdio: [BorrowedFd<'a>; 3],
    pub control: BorrowedFd<'a>,
    /// Those after the plan's own that its last steps name: the dispatch socket of a jail that is
    /// to be parked.
    pub given: &'a [BorrowedFd<'a>],
}

impl PreparedJail {
    /// Makes a jail from a plan alone, without a template or other resources.
    pub(super) fn of_plan(files: Arc<KnownFiles>, plan: Plan, idmaps: Vec<Arc<OwnedFd>>) -> Self {
        PreparedJail {
            files,
            plan,
            template: None,
            private: None,
            network: None,
            ptys: None,
            tasks: Vec::new(),
            idmaps,
            sandbox: None,
        }
    }

    /// The sandbox that the launcher has just started from it.
    pub(super) fn started(
        self,
        slot: Slot,
        control: impl Into<InitControl>,
        pidfd: OwnedFd,
        path: RunPath,
    ) -> Jail {
        let pidfd = Arc::new(pidfd);
        // Only a pid namespace ends with its init as a whole.
        let ends_whole = self.plan.flags & plan::NEWPID != 0;
        if let Some(network) = self.network.as_ref().filter(|_| ends_whole) {
            network.set_init(pidfd.clone());
        }
        Jail {
            slot,
            control: Arc::new(control.into()),
            pidfd,
            plan: self.plan,
            files: self.files,
            private: self.private,
            spawned_at: monotonic_nanoseconds(),
            path,
            namespace: None,
            network: self.network,
            shown: None,
            ptys: self.ptys,
            memory_file: None,
            is_adopted: false,
            sandbox: self.sandbox,
        }
    }

    /// The descriptors that the plan's steps name by index; a dispatch socket comes next.
    pub(super) fn numbered(&self) -> Vec<BorrowedFd<'_>> {
        self.tasks
            .iter()
            .map(AsFd::as_fd)
            .chain(self.idmaps.iter().map(|namespace| namespace.as_fd()))
            .chain(self.sandbox.iter().filter_map(SandboxUse::lock))
            .collect()
    }
}

/// Asks the launcher for the sandbox.
pub(super) fn spawn(
    inner: &Inner,
    spec: &Spec,
    prepared: &PreparedJail,
    given: &Descriptors<'_>,
) -> Result<SpawnedProcess, Error> {
    spawn_by(inner, spec, prepared, given, Launcher::spawn)
}

/// As [`spawn`], by another request to the launcher.
pub(super) fn spawn_by(
    inner: &Inner,
    spec: &Spec,
    prepared: &PreparedJail,
    given: &Descriptors<'_>,
    ask: impl Fn(&Launcher, &SpawnRequest<'_>) -> std::io::Result<SpawnedProcess>,
) -> Result<SpawnedProcess, Error> {
    let program =
        prepared.plan.program.seal().map_err(Error::system("cannot write the sandbox's program"))?;
    let mut extra = prepared.numbered();
    extra.extend_from_slice(given.given);
    let mut cgroup = None;
    if let Some(unified) = given.slot.unified() {
        cgroup = Some(extra.len());
        extra.push(unified);
    }
    let namespace = prepared.network.as_ref().and_then(|network| network.namespace());
    let network_index = namespace.map(|namespace| {
        extra.push(namespace);
        extra.len() - 1
    });
    let mounts_index = prepared.sandbox.as_ref().and_then(SandboxUse::namespace).map(|namespace| {
        extra.push(namespace);
        extra.len() - 1
    });
    let request = SpawnRequest {
        flags: prepared.plan.flags,
        cgroup,
        network: network_index,
        mounts: mounts_index,
        program: program.as_fd(),
        program_length: prepared.plan.program.length(),
        control: given.control,
        stdio: given.stdio,
        extra: &extra,
    };
    let template = match prepared.template {
        Some(index) => {
            let templates = inner.templates.lock().unwrap_or_else(PoisonError::into_inner);
            templates.mounts(index).map(|mounts| (index, mounts))
        }
        None => None,
    };
    let network = spec.network || spec.without.contains(&IsolationLayer::Net);
    // Before anything runs: the enforcer receives the run only after this.
    inner.armed();
    inner.launchers.with(network, |ready| {
        if let Some((index, mounts)) = &template {
            let made = ready.made.ensure(&ready.launcher, *index, mounts, monotonic_nanoseconds());
            made.inspect_err(|_| inner.templates.lock().unwrap_or_else(PoisonError::into_inner).disable())?;
        }
        match ask(&ready.launcher, &request) {
            Err(error) if launcher::dies_at_birth(&error) => {
                let procs = inner.pool.cgroups().launcher_procs()?;
                ready.launcher.enter_group(procs.as_fd())?;
                ask(&ready.launcher, &request)
            }
            answer => answer,
        }
    })
}

/// Ends and reaps the init of a sandbox that was started and is to be no run's. The engine's end of
/// its control socket is closed.
pub(super) fn abandon(slot: &Slot, init: BorrowedFd<'_>) {
    if !slot.kill_all() && !process::wait_readable(init, 1000) {
        // Gone already is as good.
        let _ = process::kill(init);
    }
    process::wait_readable(init, 1000);
    process::reap(init);
}

/// /dev/null, for what has no streams of its own.
pub(super) fn null() -> Result<OwnedFd, Error> {
    open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Error::System { doing: "cannot open /dev/null", source: error.into() })
}
