//! What a thread of the engine asks of the scheduler, whose files it may use, and signals for a
//! command line.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Makes the calling thread real-time (SCHED_FIFO, priority 1), so that busy sandboxes cannot make
/// it late. Fails without CAP_SYS_NICE or RLIMIT_RTPRIO.
pub fn make_real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: a valid pointer; 0 names the calling thread. RESET_ON_FORK: no child inherits it.
    let result =
        unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has all threads of this process allocate from one heap, which grows in large steps and never
/// shrinks. For a command line that ends soon: a heap of its own costs each thread several system
/// calls and page faults.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    {
        const STEP_BYTES: i32 = 256 << 10;
        let settings =
            [(libc::M_ARENA_MAX, 1), (libc::M_TOP_PAD, STEP_BYTES), (libc::M_TRIM_THRESHOLD, i32::MAX)];
        for (parameter, value) in settings {
            // SAFETY: takes plain numbers. A refused setting costs time alone.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}

/// Keeps signals away from the calling thread and those it starts: they belong to the host
/// program's own threads.
pub fn block_signals() {
    // SAFETY: plain-data set on the stack, initialised by the call.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        for synchronous in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigdelset(&mut all, synchronous);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Blocks `signals` for the calling thread and those it starts later; returns a descriptor that
/// reads them. Each read gives 128 bytes, of which the first four are the signal's number;
/// signalfd(2).
pub fn signal_descriptor(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: plain-data set on the stack; the descriptor returned is new and has no other owner.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Lets a blocked signal reach the calling thread again.
pub fn unblock_signal(signal: i32) {
    change_mask(libc::SIG_UNBLOCK, signal);
}

/// Raises a blocked signal with its default action, then blocks it again. One that stops the
/// process returns once that is continued; a process group that no shell could continue is not
/// stopped (setpgid(2)).
///
/// # Errors
/// If `signal` is not a signal.
pub fn take_default_action(signal: i32) -> io::Result<()> {
    raise(signal)?;
    change_mask(libc::SIG_UNBLOCK, signal);
    change_mask(libc::SIG_BLOCK, signal);
    Ok(())
}

fn change_mask(how: libc::c_int, signal: i32) {
    // SAFETY: plain-data set on the stack, initialised by the first call.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(how, &set, std::ptr::null_mut());
    }
}

/// Sends the calling thread a signal.
///
/// # Errors
/// If `signal` is not a signal.
pub fn raise(signal: i32) -> io::Result<()> {
    // SAFETY: takes a plain number.
    if unsafe { libc::raise(signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the calling thread, and no other, meet files as this uid and gid would: in no other group,
/// without a capability, for the rest of its life. It stays root's in all else, so processes of
/// that uid cannot signal or trace it.
pub fn use_files_as(uid: u32, gid: u32) -> io::Result<()> {
    use_files_with(uid, gid, CapabilitySet::empty())
}

/// As [`use_files_as`], and the thread can read the marks that overlayfs keeps in attributes named
/// `trusted.`, which takes CAP_SYS_ADMIN (xattr(7)).
pub fn read_marks_as(uid: u32, gid: u32) -> io::Result<()> {
    use_files_with(uid, gid, CapabilitySet::SYS_ADMIN)
}

fn use_files_with(uid: u32, gid: u32, capabilities: CapabilitySet) -> io::Result<()> {
    let failed = |result: libc::c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // The system calls themselves: the C library's setgroups changes all threads; setgroups(2).
    // SAFETY: no pointer is followed for a list of none.
    failed(unsafe { libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<libc::gid_t>()) })?;
    // SAFETY: they take plain numbers. Each returns the id from before, so the second call of a
    // pair shows the result of the first.
    let (gid_now, uid_now) = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        (libc::syscall(libc::SYS_setfsgid, -1i32), libc::syscall(libc::SYS_setfsuid, -1i32))
    };
    if (gid_now as u32, uid_now as u32) != (gid, uid) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let left = CapabilitySets {
        effective: capabilities,
        permitted: capabilities,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, left)?)
}
