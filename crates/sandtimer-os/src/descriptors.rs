//! Descriptors that a process was started with, by number, and locks on open files.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::monotonic_nanoseconds;

/// Whether a number is an open descriptor of this process.
pub fn is_open(number: i32) -> bool {
    // SAFETY: takes plain numbers.
    number >= 0 && unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0
}

/// Closes a descriptor that this process was started with and that no value here owns.
pub fn close_inherited(number: i32) {
    // SAFETY: by the contract above no owner of it is left without its descriptor.
    unsafe { libc::close(number) };
}

/// Closes every descriptor above 2 but those in `kept`. For a process that owns no others: a
/// process that was just forked, or has just started.
pub fn close_others(kept: &[i32]) {
    let mut kept: Vec<u32> =
        kept.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    let mut first = 3u32;
    for fd in kept.into_iter().chain([u32::MAX]) {
        if fd > first {
            let last = if fd == u32::MAX { u32::MAX } else { fd - 1 };
            // SAFETY: takes plain numbers; by the contract above nothing owns what it closes.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = fd.saturating_add(1);
    }
}

/// How many descriptors this process may have at once (RLIMIT_NOFILE); `None` without a limit.
pub fn limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// How many descriptors this process has open. Since Linux 6.2 the size of their directory is that
/// number; before, they are listed, which takes up to 10 ms where there are 10,000, so that a list
/// is good for 5 ms.
///
/// # Errors
/// Their directory cannot be read: this process has no descriptor left, or no /proc.
pub fn opened() -> io::Result<u64> {
    const DIRECTORY: &str = "/proc/self/fd";
    const MAX_AGE: u64 = 5_000_000;
    // When they were listed last, and how many there were.
    static LISTED_AT: AtomicU64 = AtomicU64::new(0);
    static LISTED: AtomicU64 = AtomicU64::new(0);
    let size = std::fs::metadata(DIRECTORY)?.len();
    if size > 0 {
        return Ok(size);
    }
    let now = monotonic_nanoseconds();
    if now.saturating_sub(LISTED_AT.load(Ordering::Acquire)) < MAX_AGE {
        return Ok(LISTED.load(Ordering::Relaxed));
    }
    // The directory's own descriptor is counted, too.
    let count = (std::fs::read_dir(DIRECTORY)?.count() as u64).saturating_sub(1);
    LISTED.store(count, Ordering::Relaxed);
    LISTED_AT.store(now, Ordering::Release);
    Ok(count)
}

/// Makes `number` another descriptor of the same open file; dup2(2).
pub fn replace(number: i32, by: impl AsFd) -> io::Result<()> {
    // SAFETY: a live descriptor; `number` is one of the standard ones, which no value owns.
    match unsafe { libc::dup2(by.as_fd().as_raw_fd(), number) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Shares a lock on one byte for the open file, which must be open for reading; the lock ends with
/// its last descriptor.
///
/// # Errors
/// `WouldBlock` while another open file has a lock in the way, and as fcntl(2).
pub fn lock_byte(file: impl AsFd, byte: i64) -> io::Result<()> {
    let lock = range(libc::F_RDLCK, byte);
    // SAFETY: a live descriptor and a valid pointer.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether another open file has a lock on this byte.
pub fn is_byte_locked(file: impl AsFd, byte: i64) -> bool {
    let mut lock = range(libc::F_WRLCK, byte);
    // SAFETY: a live descriptor and a valid pointer.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    result == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Locks a whole file for reading, for as long as this process has it open; fcntl(2).
pub fn lock_for_reading(file: impl AsFd) -> io::Result<()> {
    let lock = libc::flock { l_len: 0, ..range(libc::F_RDLCK, 0) };
    // SAFETY: a live descriptor and a valid pointer.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLK, &raw const lock) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn range(kind: libc::c_int, byte: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_belong_to_the_open_file() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("sandtimer-lock-{}", std::process::id()));
        std::fs::write(&path, "").expect("a file");
        let open = || std::fs::File::open(&path).expect("the file");
        let (one, other) = (open(), open());
        lock_byte(&one, 0).expect("a lock");
        assert!(is_byte_locked(&other, 0));
        assert!(!is_byte_locked(&one, 0), "its own lock is not in its way");
        assert!(!is_byte_locked(&other, 1));
        drop(one);
        assert!(!is_byte_locked(&other, 0));
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn open_descriptors_are_counted() {
        // Other tests of this process open some at the same time.
        let files: Vec<_> = (0..200).map(|_| std::fs::File::open("/dev/null").expect("a file")).collect();
        let with_files = opened().expect("counted");
        assert!(with_files >= files.len() as u64, "{with_files}");
        drop(files);
        assert!(opened().expect("counted") < with_files);
    }

    #[test]
    fn numbers_that_are_not_open() {
        assert!(is_open(0) || is_open(1));
        assert!(!is_open(-1));
        assert!(!is_open(1_000_000));
    }
}
