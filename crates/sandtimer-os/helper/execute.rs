//! Getting ready to become another program.

use crate::steps::{Step, Text};
use crate::sys::{self, Fd, call, nr};

pub const F_DUPFD_CLOEXEC: usize = 1030;

/// Gives `fds` (at most 8) the numbers from `first` on, to be kept across exec.
pub fn place(fds: &[Fd], first: usize) -> isize {
    // High first: one of them may itself have arrived with a number that is wanted.
    let mut high = [-1 as Fd; 8];
    for (place, fd) in high.iter_mut().zip(fds) {
        let copy = call!(nr::FCNTL, *fd, F_DUPFD_CLOEXEC, 20);
        if copy < 0 {
            return copy;
        }
        *place = copy as Fd;
    }
    for (index, fd) in high[..fds.len()].iter().enumerate() {
        call!(nr::DUP2, *fd, first + index);
        sys::close(*fd);
    }
    0
}

/// Executes the first of the paths in `candidates`, which NULs separate, as execvp(3): one that is
/// absent or may not be executed is passed over, and a file of no known format is given to /bin/sh.
/// `arguments` and `environment` are those of [`vectors`]. Returns a negated errno.
pub fn search(candidates: Text, arguments: *const usize, environment: *const usize) -> isize {
    let mut failure = sys::ENOENT;
    for candidate in candidates.bytes().split(|byte| *byte == 0) {
        // The text ends with a NUL as well.
        let path = candidate.as_ptr();
        match call!(nr::EXECVE, path, arguments, environment) {
            sys::ENOENT | sys::ENOTDIR => {}
            sys::EACCES => failure = sys::EACCES,
            sys::ENOEXEC => return by_shell(path, arguments, environment),
            error => return error,
        }
    }
    failure
}

/// The path takes the place of the program's name, and `sh` the place before it.
fn by_shell(path: *const u8, arguments: *const usize, environment: *const usize) -> isize {
    let first = arguments.cast_mut().wrapping_sub(1);
    // SAFETY: `vectors` leaves one slot free in front of the arguments, of which there is at least
    // one.
    unsafe {
        *first = c"sh".as_ptr() as usize;
        *first.add(1) = path as usize;
    }
    call!(nr::EXECVE, c"/bin/sh".as_ptr(), first, environment)
}

/// The two NULL-terminated pointer arrays for execve(2), in fresh memory, with a free slot in front
/// of the first.
pub fn vectors(step: &Step) -> Result<(*const usize, *const usize), isize> {
    let argument_count = step.number(0) as usize;
    let count = step.header.string_count as usize - 1;
    let address = call!(nr::MMAP, 0, (count + 3) * 8, 3, 0x22, -1isize, 0);
    if (-4095..0).contains(&address) {
        return Err(address);
    }
    let slots = (address as *mut usize).wrapping_add(1);
    let mut text = step.string(1);
    for index in 0..count {
        let slot = if index < argument_count { index } else { index + 1 };
        // SAFETY: slot <= count, inside the mapping just made, whose first slot stays free; strings
        // lie one after another in the program.
        unsafe {
            *slots.add(slot) = text.pointer as usize;
            if index + 1 < count {
                let next = text.pointer.add(text.length + 1);
                text = Text { pointer: next.add(4), length: next.cast::<u32>().read_unaligned() as usize };
            }
        }
    }
    Ok((slots, slots.wrapping_add(argument_count + 1)))
}
