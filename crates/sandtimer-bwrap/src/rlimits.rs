//! The limits that the command's process puts on itself, and their numbers in messages.

/// What a process limits for itself; getrlimit(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessRlimit {
    CpuSeconds,
    FileBytes,
    OpenFiles,
    DataBytes,
    Processes,
}

/// Their numbers in messages.
pub(crate) const PROCESS_RLIMITS: [ProcessRlimit; 5] = [
    ProcessRlimit::CpuSeconds,
    ProcessRlimit::FileBytes,
    ProcessRlimit::OpenFiles,
    ProcessRlimit::DataBytes,
    ProcessRlimit::Processes,
];
