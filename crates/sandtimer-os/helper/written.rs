//! Pages that every cell of an interpreter writes to, which are copied for it before one comes.
//!
//! ```text
//! copy made ─▶ a cell, rehearsed ─▶ noted: what has been written to since the copy
//! copy made ─▶ what was noted is this process's own again, while it waits
//! ```
//! A fork leaves all pages to both processes, and the first write to each is a fault: of two
//! hundred, as a small cell makes, a third of a millisecond. If the interpreter has a processor for
//! itself after a copy, it asks the kernel for those pages then, and stops as soon as there is a
//! cell. Only the interpreter's own data is noted (`shelf.rs`), where no other memory is ever
//! mapped.
//!
//! It is a matter of speed only: what cannot be had is left as it is (MADV_POPULATE_WRITE is of
//! Linux 5.14).

use crate::image::maps::{Line, MAPS, READ, WRITE, read_maps};
use crate::image::nr;
use crate::sys::{self, Fd, PollFd, call};
use crate::{Static, shelf};

const PAGE: u64 = 4096;
/// What is noted at most, and of how many pages one run is at most.
const MOST_RUNS: usize = 256;
const LONGEST: u64 = 4 * PAGE;
/// Runs requested at a time: a cell may have to wait for that long, for pages that it would write
/// to itself.
const AT_A_TIME: usize = 8;
/// Pages that are inspected together.
const ENTRIES: usize = 512;

#[derive(Clone, Copy)]
struct DirtyRange {
    start: u64,
    length: u64,
}

struct Noted {
    count: usize,
    runs: [DirtyRange; MOST_RUNS],
}

static NOTED: Static<Noted> =
    Static(core::cell::UnsafeCell::new(Noted { count: 0, runs: [DirtyRange { start: 0, length: 0 }; MOST_RUNS] }));

/// Notes which pages this process alone has: those that it has written to since it was last copied.
pub fn note() {
    const PRIVATE_ANONYMOUS: usize = 0x22;
    let buffer = call!(nr::MMAP, 0, MAPS, READ | WRITE, PRIVATE_ANONYMOUS, -1isize, 0);
    if (-4095..0).contains(&buffer) {
        return;
    }
    // SAFETY: just mapped; and one thread, with the GIL held.
    let (maps, noted) =
        unsafe { (core::slice::from_raw_parts_mut(buffer as *mut u8, MAPS), &mut *NOTED.0.get()) };
    noted.count = 0;
    let pagemap = sys::open_at(sys::AT_FDCWD, c"/proc/self/pagemap".as_ptr().cast(), sys::O_RDONLY, 0);
    if pagemap >= 0 {
        if let Ok(length) = read_maps(maps) {
            let lines = maps[..length].split(|byte| *byte == b'\n').filter_map(Line::parse);
            lines.filter(|line| shelf::is_of_it(line)).for_each(|line| note_range(noted, &line, pagemap as Fd));
        }
        sys::close(pagemap as Fd);
    }
    call!(nr::MUNMAP, buffer, MAPS);
}

/// proc_pid_pagemap(5).
fn note_range(noted: &mut Noted, line: &Line<'_>, pagemap: Fd) {
    const PRESENT: u64 = 1 << 63;
    const OF_A_FILE: u64 = 1 << 61;
    const NOBODY_ELSES: u64 = 1 << 56;
    let mut entries = [0u64; ENTRIES];
    let mut at = line.start;
    while at < line.end {
        let count = (((line.end - at) / PAGE) as usize).min(ENTRIES);
        if call!(nr::PREAD, pagemap, entries.as_mut_ptr(), count * 8, at / PAGE * 8) != (count * 8) as isize {
            return;
        }
        for (index, entry) in entries[..count].iter().enumerate() {
            if entry & (PRESENT | OF_A_FILE | NOBODY_ELSES) == PRESENT | NOBODY_ELSES {
                noted.add(at + index as u64 * PAGE);
            }
        }
        at += count as u64 * PAGE;
    }
}

impl Noted {
    fn add(&mut self, page: u64) {
        if let Some(last) = self.runs[..self.count].last_mut()
            && last.start + last.length == page
            && last.length < LONGEST
        {
            last.length += PAGE;
        } else if let Some(free) = self.runs.get_mut(self.count) {
            *free = DirtyRange { start: page, length: PAGE };
            self.count += 1;
        }
    }
}

/// Has what was noted copied for this process, until there is something to read from `channel`.
pub fn write_ahead(channel: Fd) {
    const POPULATE_WRITE: usize = 23;
    // SAFETY: one thread, with the GIL held.
    let noted = unsafe { &*NOTED.0.get() };
    for runs in noted.runs[..noted.count].chunks(AT_A_TIME) {
        let mut waiting = [PollFd { fd: channel, events: sys::POLLIN, revents: 0 }];
        if sys::poll(&mut waiting, 0) != 0 {
            return;
        }
        for run in runs {
            if call!(nr::MADVISE, run.start, run.length, POPULATE_WRITE) == sys::EINVAL {
                return;
            }
        }
    }
}
