//! Reads a whole line of the session's script with two system calls.
//!
//! Bash reads a script that it cannot seek in byte by byte, so as to leave what comes after the
//! line to the commands in it: a call for each of several hundred bytes. A command of a session has
//! an input of its own, and the engine sends a line at a time. So the line is read from the socket
//! as a whole, to its end and not beyond, and bash is given its bytes from here.

use core::cell::UnsafeCell;

use crate::sys::{self, Fd, call, nr};
use crate::is_script;

/// Longer lines are read in pieces of this many bytes.
const MAX_PIECE_BYTES: usize = 2048;
const MSG_PEEK: usize = 2;

/// The bytes of a line that were read ahead, and how many of them bash has.
struct LineBuffer {
    fd: Fd,
    bytes: [u8; MAX_PIECE_BYTES],
    given: usize,
    length: usize,
}

struct Shared(UnsafeCell<LineBuffer>);
// SAFETY: touched by `read` alone, and bash has one thread.
unsafe impl Sync for Shared {}

static LINE: Shared = Shared(UnsafeCell::new(LineBuffer { fd: -1, bytes: [0; MAX_PIECE_BYTES], given: 0, length: 0 }));

/// read(2), for what the shell reads before it executes a line.
pub fn read(fd: Fd, buffer: *mut u8, length: usize) -> isize {
    // SAFETY: see `Shared`.
    let line = unsafe { &mut *LINE.0.get() };
    let is_left = line.given < line.length && line.fd == fd;
    if !is_left && !is_script(fd) {
        return call!(nr::READ, fd, buffer, length);
    }
    if !is_left {
        let read = line.fill(fd);
        if read <= 0 {
            return read;
        }
    }
    let rest = &line.bytes[line.given..line.length];
    let count = rest.len().min(length);
    // SAFETY: the caller's buffer has room for `count` bytes.
    unsafe { core::ptr::copy_nonoverlapping(rest.as_ptr(), buffer, count) };
    line.given += count;
    count as isize
}

impl LineBuffer {
    /// Reads what there is of the next line. 0 at the script's end, negative where it cannot be
    /// read.
    fn fill(&mut self, fd: Fd) -> isize {
        let seen = sys::receive(fd, &mut self.bytes, MSG_PEEK).length;
        let Ok(seen @ 1..) = usize::try_from(seen) else { return seen };
        let end = self.bytes[..seen].iter().position(|byte| *byte == b'\n').map_or(seen, |at| at + 1);
        let read = call!(nr::READ, fd, self.bytes.as_mut_ptr(), end);
        (self.fd, self.given, self.length) = (fd, 0, usize::try_from(read).unwrap_or(0));
        read
    }
}
