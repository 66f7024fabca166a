//! Policy × host → an ordered list of small steps, or a refusal.
//!
//! The order is the safety argument: init's steps make the isolation layers, its child takes the
//! job's identity and what cannot be undone (no new privileges, seccomp), waits for the layers,
//! adds Landlock, and becomes the command. Nothing of the job runs before the last step, and init
//! has dropped its privileges by then.

mod builder;
mod command;
mod layers;
mod limits;
mod policy;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sandtimer_os::program::StepProgram;
use sandtimer_os::seccomp::FilterPart;
use sandtimer_os::wire::op;

use super::files::{HOST_NAME, Mount, WORKSPACE};
use super::filter::filter_of;
use super::host::{HostCapabilities, NamespaceSupport};
use super::sandbox::USER_ID;
use crate::model::{KillClass, Tier};

pub(super) use builder::{Builder, NEWIPC};
use builder::{NEWCGROUP, NEWUTS, empty};
pub use builder::{NEWNS, NEWPID, Plan, StepName};
pub use command::{execute, execute_first};
pub use layers::{Identity, IsolationLayer, Network};
use limits::process_limit;
pub use limits::{ProcessLimits, resource_limits};
pub use policy::{IsolationPolicy, RootView};

/// The host cannot give what was required.
#[derive(Debug, thiserror::Error)]
#[error("{required} is required and this host gives {possible}: {reason}")]
pub struct PlanRejection {
    /// The tier or kill class that was required.
    pub required: String,
    /// The tier or kill class that the host gives.
    pub possible: String,
    /// Why it gives no more.
    pub reason: String,
}

/// What a zygote keeps: DAC_OVERRIDE, SETGID, SETUID, SYS_CHROOT, SYS_ADMIN; see the helper's
/// `zygote.rs`.
const ZYGOTE_CAPABILITIES: u64 = 1 << 1 | 1 << 6 | 1 << 7 | 1 << 18 | 1 << 21;

/// Makes the plan. `cgroup_files` is how many `tasks` descriptors come first among the extra ones.
pub fn plan(host: &HostCapabilities, policy: &IsolationPolicy<'_>, cgroup_files: usize) -> Plan {
    let mut builder = Builder {
        host,
        policy,
        plan: Plan {
            flags: 0,
            program: StepProgram::new(),
            optional: Vec::new(),
            tier: Tier::T3,
            kill: KillClass::K3,
            degraded: Vec::new(),
            idmapped: Vec::new(),
            names: Vec::new(),
        },
        idmap_base: cgroup_files,
    };
    builder.classify();
    if policy.sandbox.is_some() {
        builder.in_sandbox(cgroup_files as u64);
    } else if builder.namespaced() && !builder.without(IsolationLayer::Mount) {
        builder.root();
    } else if !builder.namespaced() {
        builder.push::<&str>("become subreaper", op::SUBREAPER, &[], &[]);
    }
    if builder.plan.flags & NEWUTS != 0 {
        builder.push("set host name", op::HOSTNAME, &[], &[HOST_NAME]);
    }
    // Last: mounts and directories made in a fresh memory group pay for its first pages of each
    // kind, one by one.
    builder.enter_cgroups(cgroup_files);
    builder.plan
}

/// The clock of a run as init counts it, nanoseconds; `u64::MAX` for none.
#[derive(Debug, Clone, Copy)]
pub struct InitClock {
    /// From the start of the command to the wall-clock limit.
    pub wall: u64,
    /// From the wall-clock limit to the kill; 0 for none.
    pub grace: u64,
}

/// Appends the fork and the steps that seal the job's process. `cgroup_files` as for [`plan`].
///
/// Steps that need neither the new root nor what follows from it come before the join: the child
/// executes them while init builds.
pub fn seal(
    plan: &mut Plan,
    host: &HostCapabilities,
    policy: &IsolationPolicy<'_>,
    cgroup_files: usize,
    clock: InitClock,
) {
    let mut builder = Builder { host, policy, plan: std::mem::replace(plan, empty()), idmap_base: 0 };
    builder.end_of_init("fork", op::FORK, clock, &[], &[]);
    // A process cannot make a user namespace while its root directory is being replaced;
    // unshare(2).
    let waits = builder.makes_user_namespace();
    if waits {
        builder.push::<&str>("wait for the root", op::JOIN, &[], &[]);
    }
    builder.take_identity(cgroup_files);
    // The first descriptor after the plan's own is the socket that the listener is sent over.
    let socket = builder.first_given(cgroup_files);
    builder.give_up_privileges(&[1, socket], FilterPart::Whole);
    if !waits {
        builder.push::<&str>("wait for the root", op::JOIN, &[], &[]);
    }
    if let Some(outputs) = policy.terminal {
        builder.push::<&str>("open a terminal", op::TERMINAL, &outputs.map(u64::from), &[]);
    }
    builder.enter_root();
    *plan = builder.plan;
}

/// Appends init's last step where a zygote puts the job's process into the sandbox. `cgroup_files`
/// as for [`plan`].
pub fn serve(plan: &mut Plan, host: &HostCapabilities, policy: &IsolationPolicy<'_>, cgroup_files: usize) {
    let mut builder = Builder { host, policy, plan: std::mem::replace(plan, empty()), idmap_base: 0 };
    // A job that owns the rest of its root too could change that; and without a directory to
    // inspect, init guarantees nothing.
    let owns_no_other =
        builder.identity().is_some() && builder.namespaced() && !builder.without(IsolationLayer::Mount);
    let is_private = |mount: &&Mount| owns_no_other && matches!(mount, Mount::Tmpfs { .. });
    let mut private: Vec<&Path> = policy.files.mounts.iter().filter(is_private).map(Mount::target).collect();
    // A job that opens it leaves the time in it.
    let has_ptys = policy.files.mounts.iter().any(|mount| matches!(mount, Mount::Terminals { .. }));
    private.extend((owns_no_other && has_ptys).then(|| Path::new("/dev/pts/ptmx")));
    // The first descriptor after the plan's own is the timer of its deadline.
    let timer = builder.first_given(cgroup_files);
    let clock = InitClock { wall: u64::MAX, grace: 0 };
    let owns_network = matches!(policy.network, Network::Own { .. }) && policy.sandbox.is_none();
    builder.end_of_init("serve", op::SERVE, clock, &[timer, u64::from(owns_network)], &private);
    *plan = builder.plan;
}

/// What a zygote's child carries out, in the namespaces of an init that serves and has built its
/// root. `inherits`: it is under its zygote's filter (`filter::inherited_filter`) already.
pub fn child(
    host: &HostCapabilities,
    policy: &IsolationPolicy<'_>,
    flags: u64,
    cgroup_files: usize,
    inherits: bool,
) -> Plan {
    let mut builder = Builder { host, policy, plan: Plan { flags, ..empty() }, idmap_base: 0 };
    builder.take_identity(cgroup_files);
    builder.push::<&str>("belong to the engine", op::OWN, &[], &[]);
    builder.give_up_privileges(&[1], if inherits { FilterPart::Rest } else { FilterPart::Whole });
    builder.enter_root();
    builder.plan
}

/// What a zygote itself is: a process with the files of a sandbox, in the engine's pid namespace.
///
/// `descriptors` are the indices of those it is given from number 3 on.
pub fn zygote(
    plan: &mut Plan,
    policy: &IsolationPolicy<'_>,
    command: &[OsString],
    path: &Path,
    environment: &[(OsString, OsString)],
    descriptors: &[u64],
) {
    // It enters the pid namespaces of inits and clones into other groups: from inside a namespace
    // it could do neither.
    plan.flags &= !(NEWPID | NEWCGROUP);
    let uid = policy.identity.map_or(u64::MAX, |identity| u64::from(identity.job));
    let mut push = |name, op, numbers: &[u64]| {
        plan.program.push(op, true, numbers, &[]);
        plan.names.push(StepName::Borrowed(name));
    };
    push("keep the zygote's capabilities", op::PRIVILEGED_IDENTITY, &[uid, uid, ZYGOTE_CAPABILITIES]);
    execute(&mut plan.program, path, command, environment, descriptors);
    plan.names.push("execute the interpreter".into());
}

/// The index of the first descriptor after those that a plan's own steps name: files of control
/// groups, user namespaces, and the lock of the sandbox.
pub fn first_given(plan: &Plan, policy: &IsolationPolicy<'_>, cgroup_files: usize) -> u64 {
    (cgroup_files + plan.idmapped.len() + usize::from(policy.sandbox.is_some())) as u64
}

/// The same for the command of a whole plan, by its name.
pub fn execute_with(
    plan: &mut Plan,
    command: &[OsString],
    path: &Path,
    environment: &[(OsString, OsString)],
    descriptors: &[u64],
) {
    execute(&mut plan.program, path, command, environment, descriptors);
    plan.names.push("execute the command".into());
}

impl Builder<'_> {
    /// The index of the first descriptor after the plan's own.
    fn first_given(&self, cgroup_files: usize) -> u64 {
        first_given(&self.plan, self.policy, cgroup_files)
    }

    /// The process that carries this out moves itself: in `tasks` of a v1 group, `0` means the
    /// writer.
    fn enter_cgroups(&mut self, cgroup_files: usize) {
        for index in 0..cgroup_files {
            self.push("enter cgroup", op::WRITE, &[index as u64], &["0"]);
        }
    }

    /// Settles tier, kill class and namespace flags, and lists what is missing.
    fn classify(&mut self) {
        let (host, without) = (self.host, self.policy.without);
        for layer in without {
            self.degrade(
                &format!("{layer:?}").to_lowercase(),
                "left out by SANDTIMER_UNSAFE_TESTING".to_owned(),
            );
        }
        // With a mount namespace Landlock is the second layer for files; without one it is the only
        // one.
        let sealed = host.seccomp && (host.landlock_abi > 0 || self.namespaced());
        if let NamespaceSupport::None(reason) = &host.namespaces {
            self.degrade("namespaces", reason.clone());
            let covered = self.covered();
            if covered > 0 {
                let reason = format!(
                    "{covered} places that may hold credentials lie in what is shown, and only a mount namespace could cover them"
                );
                self.degrade("credentials", reason);
            }
        }
        if host.landlock_abi == 0 {
            self.degrade(
                "landlock",
                "the kernel has no Landlock or it is not enabled (lsm=landlock,…)".to_owned(),
            );
        }
        if !host.seccomp {
            self.degrade("seccomp", "the kernel has no seccomp filters".to_owned());
        }
        if let Err(reason) = &host.cgroup_limits {
            let reason = format!("{reason}; memory is sampled, without what waits in sockets and pipes");
            self.degrade("cgroup limits", reason);
        }
        if let Err(reason) = &host.cgroup_kill {
            self.degrade("cgroup kill", reason.clone());
        }
        match self.policy.network {
            Network::Host => self.degrade("network", "the host's network was granted".to_owned()),
            Network::Own { loopback_error: Some(error) } => self.degrade("loopback", error.clone()),
            Network::Refused(reason) if !self.without(IsolationLayer::Net) => {
                self.degrade("network namespace", reason.clone());
            }
            _ => {}
        }
        if let Some(gpus) = &self.policy.files.gpus {
            self.degrade("devices", gpus.grant());
            for lacking in &gpus.lacking {
                self.degrade("devices", lacking.clone());
            }
        }
        // Landlock keeps the file shut, except for what CUDA writes next to it.
        if let Some(sandbox) = self.policy.sandbox {
            self.plan.degraded.extend(sandbox.degraded.iter().cloned());
            let shared = match self.policy.network {
                Network::Own { .. } => "its files and its loopback",
                _ => "its files",
            };
            let reason = format!(
                "each run has processes and a /dev/shm of its own: runs of a sandbox share {shared} alone"
            );
            self.degrade("sandbox", reason);
        }
        if !host.fixes_oom_score && (host.landlock_abi == 0 || self.policy.files.gpus.is_some()) {
            let reason = "the run can lower its oom_score_adj: only CAP_SYS_RESOURCE fixes it";
            self.degrade("out-of-memory score", reason.to_owned());
        }
        let owner = self.identity().and_then(|identity| identity.owner);
        if let Some((uid, _)) = owner.filter(|_| self.policy.sandbox.is_none()) {
            let reason = format!(
                "the file system of the workspace has no idmapped mounts: outside its user namespace the run has the \
                 workspace owner's uid, {uid}"
            );
            self.degrade("own uid", reason);
        }
        let is_root_without_uids = host.uid == 0 && self.policy.identity.is_none();
        if is_root_without_uids {
            let reason = "init and job share the caller's uid: this root is in a user namespace without the uids of runs, or lacks \
                          CAP_SETUID, CAP_SETGID, CAP_CHOWN or CAP_KILL";
            self.degrade("own uid", reason.to_owned());
            if host.cgroup_limits.is_err() {
                let reason =
                    "the kernel holds no limit of processes against root, if this root is it outside as well";
                self.degrade("processes limit", reason.to_owned());
            }
        } else if self.identity().is_none() {
            let reason = "init and job share the caller's uid: a uid of their own needs root";
            self.degrade("own uid", reason.to_owned());
        }
        self.plan.tier = match (self.namespaced(), sealed, host.cgroup_limits.is_ok()) {
            (true, true, true)
                if without.is_empty() && host.landlock_abi > 0 && self.policy.network.has_sockets() =>
            {
                Tier::T3
            }
            (true, true, _) => Tier::T2,
            (false, true, _) => Tier::T1,
            _ => Tier::T0,
        };
        if is_root_without_uids
            || self.identity().and_then(|identity| identity.owner).is_some_and(|(uid, _)| uid == 0)
        {
            // Without a capability, but what root owns is kept from it by mounts and Landlock
            // alone.
            self.plan.tier = self.plan.tier.min(Tier::T2);
        }
        self.plan.kill = match (host.cgroup_kill.is_ok(), self.namespaced()) {
            (true, _) => KillClass::K3,
            (false, true) => KillClass::K2,
            (false, false) => KillClass::K1,
        };
        if self.namespaced() {
            self.plan.flags = NEWNS | NEWPID | NEWUTS | NEWCGROUP;
            if !self.without(IsolationLayer::Ipc) {
                self.plan.flags |= NEWIPC;
            }
            if self.without(IsolationLayer::Pid) {
                self.plan.flags &= !NEWPID;
            }
        }
    }

    /// Whether the job is in a user namespace of its own for the sake of its process limit: the
    /// kernel counts the processes of a uid in each namespace apart, and holds them against the
    /// limit that is set there; since Linux 5.14.
    fn counts_apart(&self) -> bool {
        let host = self.host;
        host.namespaces == NamespaceSupport::User
            && host.cgroup_limits.is_err()
            && !self.without(IsolationLayer::Rlimits)
    }

    /// Whether it is the user of a sandbox by a user namespace alone: the engine has no uid for it.
    fn is_user_by_name(&self) -> bool {
        self.policy.sandbox.is_some() && self.identity().is_none()
    }

    fn rlimits(&mut self) {
        let counted = self.identity().map_or(self.namespaced(), |identity| identity.owner.is_none());
        for (resource, soft, hard) in resource_limits(self.host, &self.policy.limits, counted) {
            self.optional::<&str>("set a resource limit", op::RLIMIT, &[resource, soft, hard], &[]);
        }
    }

    /// Init's own last step: what it keeps, and the clock it counts.
    /// `private` are the directories in which a job can leave something for another.
    fn end_of_init(
        &mut self,
        name: &'static str,
        op: u16,
        clock: InitClock,
        descriptors: &[u64],
        private: &[&Path],
    ) {
        // CAP_KILL: init signals the job, which has another uid.
        let (init, keep) =
            self.identity().map_or((u64::MAX, 0), |identity| (u64::from(identity.init), 1 << 5));
        let init = if self.namespaced() { init } else { u64::MAX };
        let numbers = [&[init, init, keep, clock.wall, clock.grace], descriptors].concat();
        self.push(name, op, &numbers, private);
    }

    /// Makes a process the job's: its group, session, limits and user, without any capability.
    fn take_identity(&mut self, cgroup_files: usize) {
        self.enter_cgroups(cgroup_files);
        self.push::<&str>("start a session", op::SESSION, &[], &[]);
        if self.is_user_by_name() {
            let maps = [self.host.uid, self.host.gid].map(|id| format!("{USER_ID} {id} 1"));
            self.push("become the sandbox's user", op::USER_NAMESPACE, &[], &maps);
        } else if self.counts_apart() {
            // Before the limit is set: a namespace holds its creator's limit against all that its
            // parent counts.
            let maps = [self.host.uid, self.host.gid].map(|id| format!("{id} {id} 1"));
            self.optional("count processes for each run apart", op::USER_NAMESPACE, &[], &maps);
        }
        if !self.without(IsolationLayer::Rlimits) {
            self.rlimits();
        }
        if let Some(identity) = self.identity() {
            let (uid, gid) = identity.owner.unwrap_or((identity.job, identity.job));
            let groups = self.policy.files.gpus.iter().flat_map(|gpus| &gpus.groups).copied();
            let numbers: Vec<u64> = [uid, gid].into_iter().chain(groups).map(u64::from).collect();
            self.push::<&str>("take the job's uid", op::IDENTITY, &numbers, &[]);
            if identity.owner.is_some() {
                let maps = [uid, gid].map(|outside| format!("{} {outside} 1", identity.job));
                self.push("make the job's user namespace", op::USER_NAMESPACE, &[], &maps);
                // Only here: outside it counts all processes of a uid that other runs have as well.
                if !self.without(IsolationLayer::Rlimits)
                    && let Some((resource, soft, hard)) = process_limit(self.host, &self.policy.limits)
                {
                    let numbers = [resource, soft, hard];
                    self.optional::<&str>("set the limit of processes", op::RLIMIT, &numbers, &[]);
                }
            }
        }
        self.push::<&str>("drop capabilities", op::NO_CAPABILITIES, &[], &[]);
        self.push::<&str>("set umask", op::UMASK, &[self.policy.umask.into()], &[]);
    }

    /// Whether one of the steps by which a process becomes the job's makes a user namespace.
    fn makes_user_namespace(&self) -> bool {
        self.counts_apart()
            || self.is_user_by_name()
            || self.identity().is_some_and(|identity| identity.owner.is_some())
    }

    /// What cannot be undone. `listener` are the numbers of a filter that is loaded with one;
    /// `part`: what of it is not in force yet.
    fn give_up_privileges(&mut self, listener: &[u64], part: FilterPart) {
        self.push::<&str>("no new privileges", op::NO_NEW_PRIVILEGES, &[], &[]);
        if let Some(filter) = filter_of(self.host, self.policy, self.plan.flags, part) {
            let numbers = if self.policy.supervised { listener } else { &[] };
            let op = if part == FilterPart::Rest { op::SECCOMP_REST } else { op::SECCOMP };
            self.push("seccomp", op, numbers, &[OsStr::from_bytes(filter)]);
        }
    }

    /// What needs the root: where the job starts, and Landlock.
    fn enter_root(&mut self) {
        // An empty private workspace is the run's own directory where nothing is mounted.
        let cwd = match self.policy.private {
            Some(private) if self.policy.files.cwd == Path::new(WORKSPACE) => private,
            _ => &self.policy.files.cwd,
        };
        let name = format!("enter the working directory {}", cwd.display());
        self.push(name, op::WORKING_DIRECTORY, &[], &[cwd]);
        if self.host.landlock_abi > 0 && !self.without(IsolationLayer::Landlock) {
            self.landlock();
        }
    }
}
