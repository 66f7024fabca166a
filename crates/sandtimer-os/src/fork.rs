//! Processes that are copies of this one, for a process with a single thread: the namespaces and
//! the control group that they are born in, and their ends.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::process::End;

/// What a child exits with after a panic, whose message is on stderr.
const PANIC_EXIT_CODE: i32 = 1;

/// A child that was started.
#[derive(Debug)]
pub struct Child {
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// What [`clone_process`] gives a child besides a copy of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct CloneRequest<'a> {
    /// Namespace flags of clone(2), or CLONE_PARENT.
    pub flags: u64,
    /// The v2 group to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
}

#[repr(C)]
#[derive(Default)]
struct ForkCloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Runs `child` in a copy of this process, which exits with what it returns.
///
/// # Errors
/// When this process has other threads, whose locks the copy could not release, and as clone3(2).
pub fn clone_process(request: CloneRequest<'_>, child: impl FnOnce() -> i32) -> io::Result<Child> {
    check_single_thread()?;
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut pidfd: libc::c_int = -1;
    let into = if request.cgroup.is_some() { INTO_CGROUP } else { 0 };
    let parent = libc::CLONE_PARENT as u64;
    let exit_signal = if request.flags & parent == 0 { libc::SIGCHLD as u64 } else { 0 };
    let arguments = ForkCloneArguments {
        flags: request.flags | into | libc::CLONE_PIDFD as u64,
        pidfd: &raw mut pidfd as u64,
        exit_signal,
        cgroup: request.cgroup.map_or(0, |fd| fd.as_raw_fd() as u64),
        ..ForkCloneArguments::default()
    };
    let size = size_of::<ForkCloneArguments>();
    // SAFETY: the pointers live until the call returns; without CLONE_VM the child has a copy of
    // everything, and this process has one thread, so no lock of it is held by a thread that the
    // child lacks.
    let mut pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) };
    if pid < 0 && request.cgroup.is_none() && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS)
    {
        // The default profile of Docker refuses clone3(2) this way.
        let flags = arguments.flags | exit_signal;
        // SAFETY: as above; the third argument is where CLONE_PIDFD stores the descriptor.
        pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
    }
    if pid == 0 {
        let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(PANIC_EXIT_CODE);
        // SAFETY: ends the copy without running what is this process's to run at its end.
        unsafe { libc::_exit(code) };
    }
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel stored a new descriptor that nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Child { pid: pid as i32, pidfd })
}

fn check_single_thread() -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    // Does nothing in a process with a single thread, and fails in any other; unshare(2).
    // SAFETY: takes plain numbers.
    if unsafe { libc::unshare(libc::CLONE_THREAD) } == 0 {
        return Ok(());
    }
    // Filters of containers refuse the call in any case. A directory has a link for itself, one
    // from its parent, and one for each directory in it: here a thread.
    match std::fs::metadata("/proc/self/task") {
        Ok(tasks) if tasks.nlink() == 3 => Ok(()),
        Ok(_) => Err(io::Error::other("a process with several threads cannot be copied")),
        Err(error) => Err(error),
    }
}

/// The next dead child, whichever it is; `None` while there is none.
pub fn reap_any() -> Option<(i32, End)> {
    reap(libc::WNOHANG)
}

/// Waits for the next child that dies; `None` when there is no child.
pub fn reap_next() -> Option<(i32, End)> {
    reap(0)
}

fn reap(flags: libc::c_int) -> Option<(i32, End)> {
    let mut status = 0;
    // SAFETY: rusage is plain data that the kernel fills in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: valid pointers.
        let pid = unsafe { libc::wait4(-1, &raw mut status, flags | libc::__WALL, &raw mut usage) };
        if pid > 0 {
            let microseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
            let end = End {
                status,
                user_microseconds: microseconds(usage.ru_utime),
                system_microseconds: microseconds(usage.ru_stime),
                resident_peak_kib: usage.ru_maxrss as u64,
            };
            return Some((pid, end));
        }
        if pid == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

/// Whether this process has children, dead ones included.
pub fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: siginfo_t is plain data, and a valid pointer.
    let result = unsafe {
        let mut information: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &raw mut information, flags)
    };
    result == 0
}

/// Sends a signal to a child by its number, which is its own until it is reaped.
#[allow(clippy::disallowed_methods, reason = "the number of a child that was not reaped is not reused")]
pub fn signal_child(pid: i32, signal: i32) {
    if pid > 1 {
        // SAFETY: takes plain numbers. A child that has ended by itself needs no signal.
        unsafe { libc::kill(pid, signal) };
    }
}

/// A program with its arguments and environment, ready to be executed by the one system call that a
/// filter must allow.
#[derive(Debug)]
pub struct Executable {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Executable {
    /// Makes it from the program's name, its arguments, of which the first is argv[0], and
    /// `NAME=VALUE` pairs.
    ///
    /// # Errors
    /// When one of them holds a NUL.
    pub fn new(
        program: &OsStr,
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = OsString>,
    ) -> io::Result<Self> {
        let terminated = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::from);
        // The C library's start-up code of this program has it ignored.
        // SAFETY: takes plain numbers.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        Ok(Executable {
            program: terminated(program.to_owned())?,
            arguments: arguments.into_iter().map(terminated).collect::<io::Result<_>>()?,
            environment: environment.into_iter().map(terminated).collect::<io::Result<_>>()?,
        })
    }

    /// Becomes the program, which is searched for on the PATH of its own environment; execvp(3).
    /// Returns why it could not.
    pub fn execute(&self) -> io::Error {
        let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
            list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        unsafe extern "C" {
            static mut environ: *const *const libc::c_char;
        }
        // SAFETY: the vectors live until the process is another program; this process has a single
        // thread, or is a copy with one, so that no other reads its environment.
        unsafe {
            environ = environment.as_ptr();
            libc::execvp(self.program.as_ptr(), arguments.as_ptr());
        }
        let error = io::Error::last_os_error();
        // The vector of pointers is about to be freed.
        // SAFETY: as above; no list at all is an empty environment.
        unsafe { environ = std::ptr::null() };
        error
    }
}

/// Gives SIGCHLD its default action: a parent that ignores it has its children reaped by the
/// kernel.
pub fn watch_children() {
    // SAFETY: takes plain numbers.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test harness has threads.
    #[test]
    fn threaded_process_is_not_copied() {
        let error = clone_process(CloneRequest::default(), || 0).expect_err("several threads");
        assert!(error.to_string().contains("several threads"), "{error}");
    }
}
