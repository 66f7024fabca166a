//! What is chosen for each layer of the isolation.

/// A layer that tests can leave out, to show that an attack succeeds without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolationLayer {
    Seccomp,
    Landlock,
    Mount,
    Pid,
    Ipc,
    Net,
    Uid,
    Cgroup,
    Rlimits,
}

/// The network of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// The host's, which was granted.
    Host,
    /// A namespace of its own, or its sandbox's, and why the loopback in it is down, if it is.
    Own { loopback_error: Option<String> },
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
    pub job: u32,
    pub init: u32,
    /// Where a workspace cannot be id-mapped: its owner's uid and gid, which the job has on the
    /// outside.
    pub owner: Option<(u32, u32)>,
}
