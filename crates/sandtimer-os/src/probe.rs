//! Questions to the kernel that change nothing.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

/// The Landlock ABI, 0 where there is none; landlock(7).
pub fn landlock_abi() -> u32 {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with the version flag the kernel reads no memory.
    let abi =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Whether seccomp filters can return an errno; seccomp(2).
pub fn seccomp_available() -> bool {
    const GET_ACTION_AVAILABLE: libc::c_uint = 2;
    const RETURN_ERRNO: u32 = 0x0005_0000;
    let action = RETURN_ERRNO;
    // SAFETY: a valid pointer to the action asked about.
    unsafe { libc::syscall(libc::SYS_seccomp, GET_ACTION_AVAILABLE, 0, &raw const action) == 0 }
}

/// Processors this process may use, as it was when first asked: the answer takes reading files.
pub fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// Memory of the machine in bytes.
pub fn total_memory_bytes() -> u64 {
    // SAFETY: sysinfo is plain data that the kernel fills in.
    let mut information: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: a valid pointer.
    unsafe { libc::sysinfo(&mut information) };
    information.totalram * u64::from(information.mem_unit)
}

/// Takes an exclusive lock on an open file without waiting; false when another process has it.
pub fn try_lock(file: BorrowedFd<'_>) -> bool {
    // SAFETY: a live descriptor.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
}
