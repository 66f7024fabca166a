//! What this host can do, found out by doing it.

use std::io;

use sandtimer_os::launcher::Launcher;
use sandtimer_os::probe;

use super::cgroup::Cgroups;
use super::lease::{has_uids, user_namespace};

const CLONE_NEWNS: u64 = 0x0002_0000;
const CLONE_NEWUSER: u64 = 0x1000_0000;
const CLONE_NEWNET: u64 = 0x4000_0000;

/// How namespaces can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamespaceSupport {
    /// As root: directly, and the job under a uid of its own.
    Root,
    /// By a user namespace, the job under the caller's own uid.
    User,
    /// Not at all, for this reason.
    None(String),
}

/// What the host can do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HostCapabilities {
    /// The user ID of this process.
    pub uid: u32,
    /// The group ID of this process.
    pub gid: u32,
    /// How a run gets namespaces.
    pub namespaces: NamespaceSupport,
    /// Whether the network namespace of the sandboxes is empty; else why not.
    pub private_network: Result<(), String>,
    /// Memory and process limits by cgroup; else why not.
    pub cgroup_limits: Result<(), String>,
    /// cgroup.kill; else why not.
    pub cgroup_kill: Result<(), String>,
    /// Landlock ABI, 0 for none.
    pub landlock_abi: u32,
    /// Whether the kernel takes seccomp filters.
    pub seccomp: bool,
    /// Whether a channel can refuse descriptors that a job sends.
    pub refuses_descriptors: bool,
    /// Whether what the launcher writes to `oom_score_adj` is the least that its sandboxes can
    /// have.
    pub fixes_oom_score: bool,
}

/// Brings a launcher into the namespaces its sandboxes inherit. With `network`, the host's network
/// stays.
pub fn enter(
    launcher: &Launcher,
    uid: u32,
    gid: u32,
    network: bool,
) -> (NamespaceSupport, Result<(), String>) {
    let net = if network { 0 } else { CLONE_NEWNET };
    let kept = Err("the host's network was granted".to_owned());
    if has_uids() {
        match launcher.enter_namespaces(CLONE_NEWNS | net, None) {
            Ok(()) => return (NamespaceSupport::Root, if network { kept } else { Ok(()) }),
            Err(error) if net == 0 => return (NamespaceSupport::None(explain(&error)), kept),
            Err(_) => {}
        }
        return match launcher.enter_namespaces(CLONE_NEWNS, None) {
            Ok(()) => (NamespaceSupport::Root, Err("unshare(CLONE_NEWNET) was refused".to_owned())),
            Err(error) => (NamespaceSupport::None(explain(&error)), Err("no network namespace".to_owned())),
        };
    }
    let maps = (format!("{uid} {uid} 1"), format!("{gid} {gid} 1"));
    match launcher.enter_namespaces(CLONE_NEWUSER | CLONE_NEWNS | net, Some((&maps.0, &maps.1))) {
        Ok(()) => (NamespaceSupport::User, if network { kept } else { Ok(()) }),
        Err(error) => (NamespaceSupport::None(explain(&error)), Err("no network namespace".to_owned())),
    }
}

fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(1 | 13) => format!("the kernel refuses namespaces to this user ({error})"),
        Some(28) => format!("user.max_user_namespaces is used up or 0 ({error})"),
        _ => error.to_string(),
    }
}

/// Whether the engine, and with it the launcher, has CAP_SYS_RESOURCE of the machine, which alone
/// fixes the least `oom_score_adj` of a process and of those it makes; proc_pid_oom_score_adj(5).
fn has_system_resource() -> bool {
    let has = rustix::thread::capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_RESOURCE));
    has && user_namespace().is_none()
}

impl HostCapabilities {
    /// Puts together what was found.
    pub fn new(namespaces: NamespaceSupport, private_network: Result<(), String>, cgroups: &Cgroups) -> Self {
        let missing = || {
            if cgroups.missing.is_empty() {
                "no cgroup hierarchy with memory and pids is mounted".to_owned()
            } else {
                cgroups.missing.join("; ")
            }
        };
        HostCapabilities {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            namespaces,
            private_network,
            cgroup_limits: if cgroups.limits() { Ok(()) } else { Err(missing()) },
            cgroup_kill: if cgroups.kill() { Ok(()) } else { Err(missing()) },
            landlock_abi: probe::landlock_abi(),
            seccomp: probe::seccomp_available(),
            refuses_descriptors: probe::descriptors_can_be_refused(),
            fixes_oom_score: has_system_resource(),
        }
    }

    /// Whether sandboxes are pid namespaces.
    pub fn has_namespaces(&self) -> bool {
        !matches!(self.namespaces, NamespaceSupport::None(_))
    }
}
