//! clone3(2) without a libc, and clone(2) where a container's filter refuses it.

use crate::sys::{self, Fd, call, nr};

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
    match (arguments(flags, pidfd, cgroup, exit_signal).call(), cgroup) {
        // Docker's default profile. Under a profile that answers EPERM no C library can make
        // threads, and no engine can run.
        (sys::ENOSYS, None) => by_clone2(flags | exit_signal, pidfd),
        (sys::ENOSYS, Some(cgroup)) => into_group(flags | exit_signal, pidfd, cgroup),
        (result, _) => result,
    }
}

/// Its third argument is where CLONE_PIDFD stores the descriptor.
fn by_clone2(flags: u64, pidfd: &mut Fd) -> isize {
    call!(nr::CLONE, flags, 0, &raw mut *pidfd, 0, 0)
}

/// In place of CLONE_INTO_CGROUP: the child moves itself, and returns once it has; so does its
/// parent. A child that cannot move ends.
fn into_group(flags: u64, pidfd: &mut Fd, cgroup: Fd) -> isize {
    let procs = sys::open_at(cgroup as isize, c"cgroup.procs".as_ptr().cast(), sys::O_WRONLY, 0);
    if procs < 0 {
        return procs;
    }
    let mut moved: [Fd; 2] = [-1; 2];
    let mut pid = call!(nr::PIPE2, moved.as_mut_ptr(), sys::O_CLOEXEC);
    if pid >= 0 {
        pid = by_clone2(flags, pidfd);
        if pid == 0 && sys::write(procs as Fd, b"0") < 0 {
            sys::exit(122);
        }
        sys::close(moved[1]);
        if pid > 0 {
            // Its end: the child has moved or is dead.
            while sys::read(moved[0], &mut [0; 1]) == sys::EINTR {}
        }
        sys::close(moved[0]);
    }
    sys::close(procs as Fd);
    pid
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
