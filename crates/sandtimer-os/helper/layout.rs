//! The interpreter's memory, laid out for its children: with few mappings, and its code in large
//! pages.
//!
//! Each mapping costs a fork, and the end of what was forked, a microsecond. A loader makes five of
//! each library, for what it may read, execute and write to. A child is to be no safer from itself
//! than that nothing is both writable and executable, so what is only read is made executable with
//! the code between, what was written to once by the loader is made writable again with the data
//! after it, and each library has two.
//!
//! A fork copies nothing of what is mapped from a file: each child would take a fault for every
//! sixteen pages of code that it runs, and give them all back one by one when it ends. Anonymous
//! memory in a large page (2 MiB on x86-64) is inherited by one entry. So what lies in whole large
//! pages of the interpreter's libraries is copied into such memory, which takes the place of the
//! file's, at the same addresses (Linux, Documentation/admin-guide/mm/transhuge.rst; mremap(2)).
//!
//! It is a matter of speed only: what cannot be had is left as it is. A kernel that does not report
//! whether it gave a large page (MADV_COLLAPSE, Linux 6.1) is not asked for one.

use crate::image::maps::{EXECUTE, Line, MAPS, READ, WRITE, read_maps};
use crate::image::nr;
use crate::sys::{self, Fd, call};

const LARGE: u64 = 2 << 20;
const PAGE: u64 = 4096;
/// Pages of a large one.
const ENTRIES: usize = (LARGE / PAGE) as usize;
/// At least this many pages must be in use already, or the large page stays as it is.
const LEAST_IN_USE: usize = ENTRIES / 4;
/// Large pages of one interpreter.
const MOST: usize = 8;

const PRIVATE_ANONYMOUS: usize = 0x22;

/// Mappings of one file that follow one another, of which nothing can be written to.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
    inode: u64,
    has_code: bool,
    /// Of the last one.
    last_start: u64,
    last_is_code: bool,
    /// Where the next one begins in the file, if it is of the same part of it.
    next_offset: u64,
}

impl Span {
    fn of(line: &Line<'_>) -> Self {
        let is_code = line.protection & EXECUTE != 0;
        Span {
            start: line.start,
            end: line.end,
            inode: line.inode,
            has_code: is_code,
            last_start: line.start,
            last_is_code: is_code,
            next_offset: line.offset + (line.end - line.start),
        }
    }

    fn is_followed_by(&self, line: &Line<'_>) -> bool {
        line.start == self.end && line.inode == self.inode && !line.shared
    }

    fn with(self, line: &Line<'_>) -> Self {
        let last = Span::of(line);
        Span { start: self.start, has_code: self.has_code || last.has_code, ..last }
    }

    /// Leaves out what a loader has written to before it took the right away: its file continues in
    /// what is writable.
    fn without_relocated(self, next: &Line<'_>) -> Self {
        let is_one = next.protection & WRITE != 0 && next.offset == self.next_offset;
        let is_relocated = self.has_code && self.is_followed_by(next) && is_one && !self.last_is_code;
        if !is_relocated {
            return self;
        }
        call!(nr::MPROTECT, self.last_start, self.end - self.last_start, READ | WRITE);
        Span { end: self.last_start, ..self }
    }
}

/// Called once, in the zygote, by its only thread.
pub fn lay_out() {
    let buffer = call!(nr::MMAP, 0, MAPS, READ | WRITE, PRIVATE_ANONYMOUS, -1isize, 0);
    if (-4095..0).contains(&buffer) {
        return;
    }
    // SAFETY: just mapped.
    let maps = unsafe { core::slice::from_raw_parts_mut(buffer as *mut u8, MAPS) };
    let pagemap = sys::open_at(sys::AT_FDCWD, c"/proc/self/pagemap".as_ptr().cast(), sys::O_RDONLY, 0);
    if pagemap >= 0 {
        if let Ok(length) = read_maps(maps) {
            lay_out_spans(&maps[..length], pagemap as Fd);
        }
        sys::close(pagemap as Fd);
    }
    call!(nr::MUNMAP, buffer, MAPS);
}

fn lay_out_spans(maps: &[u8], pagemap: Fd) {
    let (mut span, mut left) = (None::<Span>, MOST);
    let mut end = |span: Span| {
        if span.has_code {
            call!(nr::MPROTECT, span.start, span.end - span.start, READ | EXECUTE);
            replace_pages(&span, pagemap, &mut left);
        }
    };
    for line in maps.split(|byte| *byte == b'\n').filter_map(Line::parse) {
        let fits = line.inode != 0 && !line.shared && line.protection & (READ | WRITE) == READ;
        span = match span {
            Some(span) if fits && span.is_followed_by(&line) => Some(span.with(&line)),
            before => {
                before.into_iter().for_each(|before| end(before.without_relocated(&line)));
                fits.then(|| Span::of(&line))
            }
        };
    }
    span.into_iter().for_each(end);
}

fn replace_pages(span: &Span, pagemap: Fd, left: &mut usize) {
    let mut at = span.start.next_multiple_of(LARGE);
    // The last page stays the file's: by it is known where the file begins.
    while *left > 0 && at + LARGE < span.end {
        if pages_in_use(at, pagemap) >= LEAST_IN_USE && replace(at).is_some() {
            *left -= 1;
        }
        at += LARGE;
    }
}

fn pages_in_use(at: u64, pagemap: Fd) -> usize {
    const PRESENT: u64 = 1 << 63;
    let mut entries = [0u64; ENTRIES];
    let bytes = size_of_val(&entries);
    let read = call!(nr::PREAD, pagemap, entries.as_mut_ptr(), bytes, at / PAGE * 8);
    let known = if read == bytes as isize { &entries[..] } else { &[] };
    known.iter().filter(|entry| **entry & PRESENT != 0).count()
}

/// Puts a large page with the same contents in the place of what is there.
fn replace(at: u64) -> Option<()> {
    const COLLAPSE: usize = 25;
    const HUGEPAGE: usize = 14;
    const MAYMOVE_FIXED: usize = 3;
    let length = LARGE as usize;
    let twice = call!(nr::MMAP, 0, 2 * length, READ | WRITE, PRIVATE_ANONYMOUS, -1isize, 0);
    if (-4095..0).contains(&twice) {
        return None;
    }
    let (twice, copy) = (twice as usize, (twice as usize).next_multiple_of(length));
    call!(nr::MADVISE, copy, length, HUGEPAGE);
    // SAFETY: what is copied is mapped and can be read; the copy lies within what was just mapped.
    unsafe { core::ptr::copy_nonoverlapping(at as *const u8, copy as *mut u8, length) };
    let is_large = call!(nr::MADVISE, copy, length, COLLAPSE) == 0
        && call!(nr::MPROTECT, copy, length, READ | EXECUTE) == 0
        && call!(nr::MREMAP, copy, length, length, MAYMOVE_FIXED, at) > 0;
    // Where the copy was moved away there is nothing left; unmapping nothing is no error.
    call!(nr::MUNMAP, twice, 2 * length);
    is_large.then_some(())
}
