//! What a copy of this process would not have, or would have twice.

use crate::sys::{self, Fd, call};

pub struct Surroundings {
    /// This one and the other threads of this process; a negative error.
    pub threads: isize,
    /// Living children, and dead ones that were not reaped.
    pub has_children: bool,
    /// A negative error.
    pub resident_bytes: isize,
}

pub fn look() -> Surroundings {
    const WAITID: usize = 247;
    const P_ALL: usize = 0;
    const WEXITED: usize = 4;
    const WNOHANG: usize = 1;
    const WNOWAIT: usize = 0x0100_0000;
    // Also those without an exit signal.
    const WALL: usize = 0x4000_0000;
    // Counted first: with a single thread no child is started in between.
    let threads = threads();
    let waited = call!(WAITID, P_ALL, 0, 0, WEXITED | WNOHANG | WNOWAIT | WALL, 0);
    Surroundings { threads, has_children: waited != sys::ECHILD, resident_bytes: resident_bytes() }
}

/// Returns how many threads this process has, or a negative error. A directory has a link for each
/// one in it besides its own two.
pub fn threads() -> isize {
    const STAT: usize = 4;
    // `struct stat`: the third word is how many links there are.
    let mut status = [0u64; 18];
    match call!(STAT, c"/proc/self/task".as_ptr(), &raw mut status) {
        0 => status[2] as isize - 2,
        error => error,
    }
}

/// The second number of /proc/self/statm, in pages; proc_pid_statm(5).
fn resident_bytes() -> isize {
    let file = sys::open_at(sys::AT_FDCWD, c"/proc/self/statm".as_ptr().cast(), sys::O_RDONLY, 0);
    if file < 0 {
        return file;
    }
    let mut text = [0u8; 128];
    let length = sys::read(file as Fd, &mut text);
    sys::close(file as Fd);
    if length < 0 {
        return length;
    }
    let pages = text[..length as usize].split(|byte| *byte == b' ').nth(1).map_or(0, sys::decimal);
    pages as isize * 4096
}
