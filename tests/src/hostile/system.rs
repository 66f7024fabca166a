//! The few system primitives payloads are made of.
//!
//! The one hard fact: this process holds nothing worth protecting. A wrong pointer handed to the
//! kernel gets EFAULT or spoils this throw-away process only, which is why [`call`] may be a safe
//! function here.

use std::time::Duration;

pub(crate) type Pid = libc::pid_t;

/// Makes any system call; the error is the errno.
pub(crate) fn call(number: libc::c_long, arguments: [usize; 6]) -> Result<i64, i32> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: see the head of this file; memory is only ever this process's own, and pointers
    // passed point to values that live across the call.
    let returned = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if returned == -1 { Err(errno()) } else { Ok(returned) }
}

/// [`call`] with up to six arguments.
#[macro_export]
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        let given: &[usize] = &[$($argument as usize),*];
        let mut all = [0usize; 6];
        all[..given.len()].copy_from_slice(given);
        $crate::system::call($number, all)
    }};
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A null pointer, as an argument.
pub(crate) const NULL: usize = 0;

/// The address of a value, as an argument.
pub(crate) fn address<T>(value: &T) -> usize {
    std::ptr::from_ref(value) as usize
}

/// Ends this process after `seconds`, whatever state it is in.
///
/// The timer sends SIGKILL, so it also ends a process that is stopped or blocks every signal. It is
/// not inherited by fork: [`fork`] arms it again in each child with what is left.
pub(crate) fn bound_life(seconds: u64) {
    let until = now() + Duration::from_secs(seconds.max(1));
    // SAFETY: written before any thread or child exists, and again only by single-threaded
    // children.
    unsafe { END_OF_LIFE = Some(until) };
    arm_end_of_life();
}

/// When this process and its descendants die, on the monotonic clock.
static mut END_OF_LIFE: Option<Duration> = None;

pub(crate) fn end_of_life() -> Duration {
    // SAFETY: only written before threads exist.
    unsafe { END_OF_LIFE }.unwrap_or_default()
}

fn arm_end_of_life() {
    let left = end_of_life().saturating_sub(now()).max(Duration::from_millis(1));
    // SAFETY: all-zero is a valid sigevent and itimerspec.
    let (mut event, mut spec) =
        unsafe { (std::mem::zeroed::<libc::sigevent>(), std::mem::zeroed::<libc::itimerspec>()) };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = libc::SIGKILL;
    spec.it_value.tv_sec = left.as_secs() as libc::time_t;
    spec.it_value.tv_nsec = left.subsec_nanos().into();
    let mut timer = std::ptr::null_mut();
    // SAFETY: the three structures live across both calls.
    let armed = unsafe {
        libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) == 0
            && libc::timer_settime(timer, 0, &spec, std::ptr::null_mut()) == 0
    };
    if !armed {
        // SAFETY: alarm has no memory effects.
        unsafe { libc::alarm(left.as_secs() as u32 + 1) };
    }
}

/// Time since boot on the monotonic clock.
pub(crate) fn now() -> Duration {
    clock(libc::CLOCK_MONOTONIC)
}

/// Processor time of this process.
pub(crate) fn processor_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec.
    unsafe { libc::clock_gettime(id, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits for a signal; returns after each.
pub(crate) fn pause() {
    // SAFETY: pause has no arguments.
    unsafe { libc::pause() };
}

/// Sleeps until the end of life, whatever signals arrive.
pub(crate) fn pause_forever() -> ! {
    while now() < end_of_life() {
        pause();
    }
    leave(1)
}

/// Sleeps for `duration`.
pub(crate) fn pause_for(duration: Duration) {
    std::thread::sleep(duration);
}

/// Uses the processor until `until` on the monotonic clock, and never beyond the end of life.
pub(crate) fn burn_until(until: Duration) {
    let until = until.min(end_of_life());
    while now() < until {
        for round in 0..10_000u32 {
            std::hint::black_box(round);
        }
    }
}

/// `_exit`: no exit handlers, no flushing.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: ends this process.
    unsafe { libc::_exit(code) }
}

/// Forks; the child has its own end-of-life timer. `Ok(0)` in the child.
pub(crate) fn fork() -> Result<Pid, i32> {
    // SAFETY: payloads fork only while they have one thread, so the child may run any code.
    match unsafe { libc::fork() } {
        -1 => Err(errno()),
        0 => {
            arm_end_of_life();
            Ok(0)
        }
        child => Ok(child),
    }
}

/// Forks a child that runs `body` and exits with its value.
pub(crate) fn fork_running(body: impl FnOnce() -> i32) -> Result<Pid, i32> {
    match fork()? {
        0 => leave(body()),
        child => Ok(child),
    }
}

/// How a child ended.
pub(crate) enum ChildEnd {
    Exited(i32),
    Signaled(i32),
}

/// Waits for `child`, and kills it when it takes longer than `timeout`.
pub(crate) fn reap_within(child: Pid, timeout: Duration) -> Result<ChildEnd, i32> {
    let end = now() + timeout;
    while now() < end {
        // SAFETY: all zero is a valid value of it.
        let mut state: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `state` lives across the call, which leaves the child to be reaped.
        let looked = unsafe { libc::waitid(libc::P_PID, child as libc::id_t, &mut state, options) };
        // SAFETY: the call filled it in, or left it all zero.
        if looked == 0 && unsafe { state.si_pid() } != 0 {
            return reap(child);
        }
        pause_for(Duration::from_millis(1));
    }
    let _ = signal(child, libc::SIGKILL);
    reap(child)
}

/// Waits for `child`.
pub(crate) fn reap(child: Pid) -> Result<ChildEnd, i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives across the call.
        match unsafe { libc::waitpid(child, &mut status, libc::__WALL) } {
            -1 if errno() == libc::EINTR => {}
            -1 => return Err(errno()),
            _ if libc::WIFSIGNALED(status) => return Ok(ChildEnd::Signaled(libc::WTERMSIG(status))),
            _ => return Ok(ChildEnd::Exited(libc::WEXITSTATUS(status))),
        }
    }
}

/// Sends `signal` to a pid of this process's own namespace.
pub(crate) fn signal(pid: Pid, signal: i32) -> Result<i64, i32> {
    call!(libc::SYS_kill, pid, signal)
}

/// Anonymous memory shared with children, all zero.
pub(crate) fn shared_counter() -> &'static std::sync::atomic::AtomicU64 {
    // SAFETY: a fresh page-sized mapping that is never unmapped holds one aligned, zeroed
    // AtomicU64.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED, "a page of shared memory");
        &*page.cast()
    }
}

/// The symbolic name of an error number, or `errno N`.
pub(crate) fn errno_name(errno: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::EBADF, "EBADF"),
        (libc::ECHILD, "ECHILD"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENFILE, "ENFILE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::EDQUOT, "EDQUOT"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENOEXEC, "ENOEXEC"),
        (libc::ELOOP, "ELOOP"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
        (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (libc::ENETUNREACH, "ENETUNREACH"),
        (libc::EHOSTUNREACH, "EHOSTUNREACH"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ECONNRESET, "ECONNRESET"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EUSERS, "EUSERS"),
        (libc::EOVERFLOW, "EOVERFLOW"),
    ];
    let known = NAMES.iter().find(|(number, _)| *number == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).into())
}
