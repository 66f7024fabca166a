//! What is chosen for each layer of the isolation.

/// A layer that tests can leave out, to show that an attack succeeds without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLayer {
    /// The filter of system calls.
    Seccomp,
    /// The rules of paths and ports that Landlock enforces.
    Landlock,
    /// The mount namespace and the root of its own.
    Mount,
    /// The pid namespace.
    Pid,
    /// The IPC namespace.
    Ipc,
    /// The network namespace.
    Net,
    /// The job's own user ID, or the user namespace.
    Uid,
    /// The control group of the slot.
    Cgroup,
    /// The limits of setrlimit(2).
    Rlimits,
}

/// The network of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// The host's, which was granted.
    Host,
    /// A namespace of its own, or its sandbox's, and why the loopback in it is down, if it is.
    Own {
        /// Why the loopback is down; `None` if it is up.
        loopback_error: Option<String>,
    },
    /// No namespace of its own, for this reason: internet sockets are refused.
    Refused(String),
}

impl Network {
    /// Whether internet sockets can be made.
    pub fn has_sockets(&self) -> bool {
        !matches!(self, Network::Refused(_))
    }
}

/// Uids (and gids) of a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct Identity {
    /// The ID under which the job runs.
    pub job: u32,
    /// The ID under which init runs, so that the job cannot trace it.
    pub init: u32,
    /// Where a workspace cannot be id-mapped: its owner's uid and gid, which the job has on the
    /// outside.
    pub owner: Option<(u32, u32)>,
}
