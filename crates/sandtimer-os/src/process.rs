//! Processes by pidfd: waiting, signalling and init's control socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use crate::clock::monotonic_nanoseconds;
use crate::socket::{self, bytes_of, from_bytes};
use crate::wire::{Notice, Order};

/// A copy of a descriptor that this process was started with, by its number.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: borrowed for the next call alone, in which the kernel refuses a number that is not
    // open.
    let given = unsafe { BorrowedFd::borrow_raw(number) };
    given.try_clone_to_owned()
}

/// Whether two descriptors of this process are of one open file: one offset, one set of flags
/// (kcmp(2)). `None` if the kernel does not report that.
pub fn is_same_open_file(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Option<bool> {
    const KCMP_FILE: libc::c_long = 0;
    let own = std::process::id();
    // SAFETY: it takes plain numbers.
    let compared =
        unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, one.as_raw_fd(), other.as_raw_fd()) };
    if compared < 0 { None } else { Some(compared == 0) }
}

/// Sends SIGKILL. A process that is gone already is not an error.
pub fn kill(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    signal(pidfd, Signal::KILL)
}

/// Sends a signal by pidfd. A process that is gone already is not an error.
pub fn signal(pidfd: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(pidfd, signal) {
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether the process of a pidfd is dead (all its threads, waited for or not).
pub fn is_dead(pidfd: BorrowedFd<'_>) -> bool {
    wait_readable(pidfd, 0)
}

/// Waits at most `milliseconds` until the descriptor is readable.
pub fn wait_readable(fd: BorrowedFd<'_>, milliseconds: u64) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll_for(&mut fds, milliseconds)
}

/// As [`wait_readable`], unless `other` is readable first or as well.
pub fn wait_readable_unless(fd: BorrowedFd<'_>, other: BorrowedFd<'_>, milliseconds: u64) -> bool {
    let mut fds =
        [PollFd::from_borrowed_fd(fd, PollFlags::IN), PollFd::from_borrowed_fd(other, PollFlags::IN)];
    poll_for(&mut fds, milliseconds) && fds[1].revents().is_empty()
}

/// Polls until one is ready or the time has passed, whatever signals the caller's process has
/// handlers for.
fn poll_for(fds: &mut [PollFd<'_>], milliseconds: u64) -> bool {
    let end = monotonic_nanoseconds().saturating_add(milliseconds.saturating_mul(1_000_000));
    loop {
        let left = Duration::from_nanos(end.saturating_sub(monotonic_nanoseconds()));
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            polled => return matches!(polled, Ok(1..)),
        }
    }
}

/// Whether one of these descriptors is readable now. Allocates nothing.
pub fn any_readable<'a>(mut fds: impl Iterator<Item = BorrowedFd<'a>>) -> bool {
    const AT_A_TIME: usize = 4;
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    while let Some(first) = fds.next() {
        // The first one again where there are fewer.
        let mut some: [PollFd<'_>; AT_A_TIME] = std::array::from_fn(|index| {
            let fd = if index == 0 { first } else { fds.next().unwrap_or(first) };
            PollFd::from_borrowed_fd(fd, PollFlags::IN)
        });
        if matches!(poll(&mut some, Some(&now)), Ok(1..)) {
            return true;
        }
    }
    false
}

/// Reaps a dead child by pidfd, so that no zombie stays. Works for children without an exit signal
/// (__WALL).
pub fn reap(pidfd: BorrowedFd<'_>) -> bool {
    // SAFETY: siginfo_t is plain data that the kernel fills in.
    let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: a live descriptor and a valid pointer; __WALL is accepted by waitid on Linux.
    let result =
        unsafe { libc::waitid(libc::P_PIDFD, pidfd.as_raw_fd() as libc::id_t, &mut information, flags) };
    // SAFETY: for WEXITED the kernel fills in the pid, or 0 when nothing was there to reap.
    result == 0 && unsafe { information.si_pid() } != 0
}

/// Ends a child of which no descriptor came, and reaps it within a bounded time: until it is
/// reaped, its number is its own.
#[allow(
    clippy::disallowed_methods,
    reason = "there is no descriptor left for a pidfd, and the number of a child is not reused"
)]
pub fn kill_and_reap_by_number(pid: i32) {
    if pid <= 1 {
        return;
    }
    // SAFETY: takes no pointers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    for _ in 0..100 {
        // SAFETY: a null pointer is allowed for the status.
        if unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) } != 0 {
            return;
        }
        // Nothing to wait for without a descriptor.
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
    }
}

/// How a child ended and what it and its waited-for children used; wait4(2).
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// As wait(2) gives it.
    pub status: i32,
    pub user_microseconds: u64,
    pub system_microseconds: u64,
    pub resident_peak_kib: u64,
}

impl End {
    /// As a shell has it: the exit code, or 128 and the number of the signal.
    pub fn exit_code(&self) -> i32 {
        match self.status & 0x7f {
            0 => self.status >> 8 & 0xff,
            signal => 128 + signal,
        }
    }
}

/// Reaps a dead child by pidfd and returns how it ended; `None` while it lives.
pub fn end_of(pidfd: BorrowedFd<'_>) -> Option<End> {
    ended(pidfd, 0)
}

/// As [`end_of`], and leaves it to be reaped.
pub fn peek_end(pidfd: BorrowedFd<'_>) -> Option<End> {
    ended(pidfd, libc::WNOWAIT)
}

fn ended(pidfd: BorrowedFd<'_>, more: i32) -> Option<End> {
    // SAFETY: both are plain data that the kernel fills in.
    let (mut information, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::__WALL | more;
    // SAFETY: a live descriptor and valid pointers; the libc's waitid leaves out the fifth
    // argument.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            pidfd.as_raw_fd(),
            &raw mut information,
            flags,
            &raw mut usage,
        )
    };
    // SAFETY: for WEXITED the kernel fills in the pid, or 0 when nothing was there to reap.
    if result != 0 || unsafe { information.si_pid() } == 0 {
        return None;
    }
    // SAFETY: filled in by the kernel for a child's end.
    let status = unsafe { information.si_status() };
    let status = match information.si_code {
        libc::CLD_EXITED => (status & 0xff) << 8,
        libc::CLD_DUMPED => status | 0x80,
        _ => status,
    };
    let microseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Some(End {
        status,
        user_microseconds: microseconds(usage.ru_utime),
        system_microseconds: microseconds(usage.ru_stime),
        resident_peak_kib: usage.ru_maxrss as u64,
    })
}

/// Copies from another process's memory into `buffer`; process_vm_readv(2). The caller must check
/// by its pidfd afterwards whether it is still the same process.
pub fn read_memory(pid: i32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    // The kernel copies at most 2 GiB at a time and stops at what is not mapped.
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote = libc::iovec { iov_base: (address as usize + done) as *mut _, iov_len: rest.len() };
        // SAFETY: the local vector is exactly the rest of the caller's buffer; the remote one is
        // not dereferenced here.
        let copied = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match copied {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            ..0 => return Err(io::Error::last_os_error()),
            copied => done += copied as usize,
        }
    }
    Ok(())
}

/// Kills a helper and reaps it; waits at most one second for it to die.
pub(crate) fn kill_and_reap(pidfd: BorrowedFd<'_>) {
    // A failure means that it is gone or not ours; either way there is nothing left to do here.
    let _ = kill(pidfd);
    wait_readable(pidfd, 1000);
    reap(pidfd);
}

/// Sends a command to a jail's init. Never blocks: an init that does not read is killed by other
/// means.
pub fn send_command(control: impl AsFd, kind: u32, argument: i32, value: u64) -> io::Result<()> {
    socket::send(control, bytes_of(&Order { kind, argument, value }), &[], false)
}

/// Returns the next notice of a jail's init; `Ok(None)` when its end is closed, `WouldBlock` when
/// there is none yet.
pub fn notice(control: impl AsFd) -> io::Result<Option<(Notice, Option<OwnedFd>)>> {
    let mut bytes = [0u8; size_of::<Notice>()];
    let (length, fd) = socket::receive(control, &mut bytes, false)?;
    Ok(from_bytes(&bytes[..length]).map(|notice| (notice, fd)))
}

/// The next order, for an init that is not the helper's; `Ok(None)` when the engine's end is
/// closed, `WouldBlock` when there is none yet.
pub fn receive_command(control: impl AsFd) -> io::Result<Option<Order>> {
    let mut bytes = [0u8; size_of::<Order>()];
    let (length, _) = socket::receive(control, &mut bytes, false)?;
    Ok(from_bytes(&bytes[..length]))
}

/// Sends the engine a notice from such an init. Never blocks.
pub fn send_notice(control: impl AsFd, kind: u32, values: [u64; 6]) -> io::Result<()> {
    let [a, b, c, d, e, f] = values;
    socket::send(control, bytes_of(&Notice { kind, reserved: 0, a, b, c, d, e, f }), &[], false)
}

/// Gives a parked sandbox its second program and standard descriptors.
pub fn dispatch(
    parked: impl AsFd,
    program: &crate::program::StepProgram,
    stdio: [BorrowedFd<'_>; 3],
) -> io::Result<()> {
    let memfd = program.seal()?;
    let length = u64::from(program.length());
    socket::send(parked, &length.to_ne_bytes(), &[memfd.as_fd(), stdio[0], stdio[1], stdio[2]], false)
}

/// Processor time that this process and the children it waited for have used, in microseconds.
pub fn own_cpu_microseconds() -> u64 {
    let of = |who| {
        // SAFETY: rusage is plain data that the kernel fills in.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a valid pointer.
        unsafe { libc::getrusage(who, &mut usage) };
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        micros(usage.ru_utime) + micros(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}
