//! Limits of each process, as the kernel takes them.

use crate::isolate::host::HostCapabilities;

/// Limits that are put on the process itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Whole seconds, rounded up.
    pub cpu_seconds: Option<u64>,
    /// Bytes of data per process; applies if no control group limits memory.
    pub memory_bytes: Option<u64>,
    /// Processes of the user; applies if no control group limits them.
    pub processes: Option<u64>,
    /// Open files per process; `None` for the default.
    pub open_files: Option<u64>,
    /// The size of one file in bytes; `None` for no limit.
    pub disk_bytes: Option<u64>,
    /// Size of the private directories together.
    pub private_bytes: u64,
}

/// Resource limits, as prlimit(2) takes them: resource, soft, hard. `counted`: whether the
/// processes of the job's user are the job's alone.
pub fn resource_limits(
    host: &HostCapabilities,
    limits: &ProcessLimits,
    counted: bool,
) -> Vec<(u64, u64, u64)> {
    const CPU: u64 = 0;
    const FSIZE: u64 = 1;
    const DATA: u64 = 2;
    const CORE: u64 = 4;
    const NOFILE: u64 = 7;
    const SIGPENDING: u64 = 11;
    const MSGQUEUE: u64 = 12;
    const NICE: u64 = 13;
    const RTPRIO: u64 = 14;
    // 1, not 0: only that keeps a piped core_pattern handler from starting; core(5).
    let mut list = vec![(CORE, 1, 1), (NICE, 0, 0), (RTPRIO, 0, 0), (SIGPENDING, 16_384, 16_384)];
    list.push((MSGQUEUE, 819_200, 819_200));
    if let Some(seconds) = limits.cpu_seconds {
        list.push((CPU, seconds, seconds + 1));
    }
    if let Some(bytes) = limits.disk_bytes {
        list.push((FSIZE, bytes, bytes));
    }
    // Without CAP_SYS_RESOURCE a process cannot exceed the engine's own limit.
    let own = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(65_536);
    let files = limits.open_files.unwrap_or(65_536).min(own);
    let soft = if limits.open_files.is_some() { files } else { files.min(1024) };
    list.push((NOFILE, soft, files));
    if let (true, Some(bytes)) = (host.cgroup_limits.is_err(), limits.memory_bytes) {
        list.push((DATA, bytes, bytes));
    }
    if counted && let Some(limit) = process_limit(host, limits) {
        list.push(limit);
    }
    list
}

/// The limit of processes, as prlimit(2) takes it, if no controller counts them. The kernel counts
/// those of a uid in each user namespace: exact for a uid of the run's own, and for any uid in a
/// user namespace of the run's own, if it is set there. Set in the launcher's, it would count all
/// runs of this engine; without any, the caller's own processes.
pub(crate) fn process_limit(host: &HostCapabilities, limits: &ProcessLimits) -> Option<(u64, u64, u64)> {
    const NPROC: u64 = 6;
    let count = limits.processes.filter(|_| host.cgroup_limits.is_err())?;
    Some((NPROC, count, count))
}
