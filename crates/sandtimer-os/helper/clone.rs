//! clone3(2) without a libc.

use crate::sys::{Fd, call, nr};

pub const CLONE_PIDFD: u64 = 0x1000;
pub const CLONE_PARENT: u64 = 0x8000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// clone3(2) arguments, as many as the kernel of 5.7 knows.
#[repr(C)]
#[derive(Default)]
pub struct CloneArguments {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

/// fork with flags: returns in both processes. The stack is copied, as no CLONE_VM is ever given.
pub fn process(flags: u64, pidfd: &mut Fd, cgroup: Option<Fd>, exit_signal: u64) -> isize {
    arguments(flags, pidfd, cgroup, exit_signal).call()
}

/// Arguments for a new process.
pub fn arguments(flags: u64, pidfd: &mut Fd, cgroup: Option<Fd>, exit_signal: u64) -> CloneArguments {
    CloneArguments {
        flags: flags | if cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 },
        pidfd: &raw mut *pidfd as u64,
        exit_signal,
        cgroup: cgroup.unwrap_or(0) as u64,
        ..CloneArguments::default()
    }
}

impl CloneArguments {
    /// Returns in both processes.
    pub fn call(&self) -> isize {
        call!(nr::CLONE3, &raw const *self, size_of::<CloneArguments>())
    }
}
