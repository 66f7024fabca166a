//! The standard streams of a cell, whatever the cells before it have done to theirs.

use crate::sys::{self, Fd, call, nr};

/// Puts files in the place of the standard streams, /dev/null where `stdin` is negative, and closes
/// them. A negative error where one of them has not come there.
pub fn put([stdin, stdout, stderr]: [Fd; 3]) -> isize {
    let stdin = match stdin {
        ..0 => sys::open_at(sys::AT_FDCWD, c"/dev/null".as_ptr().cast(), sys::O_RDONLY, 0),
        _ => stdin as isize,
    };
    let files = [stdin, stdout as isize, stderr as isize].map(above);
    let mut result = 0;
    for (standard, file) in files.into_iter().enumerate() {
        let put = if file < 0 { file } else { call!(nr::DUP2, file, standard) };
        if file >= 0 {
            sys::close(file as Fd);
        }
        result = if put < 0 { put } else { result };
    }
    result
}

/// A file by a number above those of the standard streams: where a job has closed its own, what
/// comes next has theirs, and would be closed or replaced there. What it was before is replaced.
fn above(file: isize) -> isize {
    const F_DUPFD_CLOEXEC: usize = 1030;
    match file {
        0..3 => call!(nr::FCNTL, file, F_DUPFD_CLOEXEC, 3),
        _ => file,
    }
}
