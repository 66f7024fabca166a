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

/// The two NULL-terminated pointer arrays for execve(2), in fresh memory.
pub fn vectors(step: &Step) -> Result<(*const usize, *const usize), isize> {
    let argument_count = step.number(0) as usize;
    let count = step.header.string_count as usize - 1;
    let address = call!(nr::MMAP, 0, (count + 2) * 8, 3, 0x22, -1isize, 0);
    if (-4095..0).contains(&address) {
        return Err(address);
    }
    let slots = address as *mut usize;
    let mut text = step.string(1);
    for index in 0..count {
        let slot = if index < argument_count { index } else { index + 1 };
        // SAFETY: slot <= count, inside the mapping just made; strings lie one behind another in the program.
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
