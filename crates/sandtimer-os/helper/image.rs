//! The memory image of an interpreter, written into a file, and another process of the same zygote
//! that takes its state from the file.
//!
//! ```text
//! origin ── write: a table, then the pages of its own ──▶ file, sealed by the engine
//!   └─▶ take: releases its memory, maps the file's, and continues where the origin wrote
//! while the origin writes a later image, the processes that will take it map its base
//! ```
//! The first image of an origin is whole, and the origin maps it in place of the memory it was
//! written from. Later images of the origin, and of processes that took its image, hold what has
//! changed since (a delta) and refer to that first one, the base, while the delta is small.
//!
//! Both come from one zygote, so programs, libraries, stack and thread pointer lie at the same
//! addresses: what differs is memory. A process that takes an image is sealed in a jail of its own
//! and gains only the origin's state from it; a forged image ends it.

mod ahead;
pub mod maps;
mod pages;
mod take;
mod write;

use crate::sys::{self, Fd, call};
use crate::wire::{IMAGE_CONTENTS, IMAGE_DELTA};
use maps::{EXECUTE, MAPS, READ, WRITE};
pub use maps::note_common;
pub use take::take;
pub use write::write;

const PAGE: usize = 4096;
const SEGMENTS: usize = 4096;
const RUNS: usize = 8192;
const TEXTS: usize = 128 << 10;
const STACK: usize = 64 << 10;
/// Pages that are inspected together.
const ENTRIES: usize = 8192;
/// Pages between two runs that are written along with them.
const GAP: usize = 1;
/// A run of this many bytes is mapped; shorter ones are copied.
const MAPPED_FROM: u64 = 64 << 10;
/// The same in a delta, of which most is written to again by the next cell: mapping a page or two
/// costs twice what copying does.
const MAPPED_FROM_IN_DELTA: u64 = 32 << 10;
/// Pieces of an image's segments: each run is one, with one before it, and one after the last run.
const PIECES: usize = SEGMENTS + 2 * RUNS;

const PRIVATE: usize = 0x02;
const SHARED: usize = 0x01;
const FIXED: usize = 0x10;
const ANONYMOUS: usize = 0x20;
const NO_RESERVE: usize = 0x4000;

/// Not a fault of the caller's memory but of its kind.
pub const SHARES_MEMORY: isize = -18;
pub const UNREADABLE: isize = -14;
pub const TOO_MUCH: isize = -7;
const NO_MEMORY: isize = -12;
const STALE: isize = sys::ESTALE;

pub mod nr {
    pub use crate::sys::nr::*;
    pub const FSTAT: usize = 5;
    pub const LSEEK: usize = 8;
    pub const MPROTECT: usize = 10;
    pub const BRK: usize = 12;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const PREAD: usize = 17;
    pub const PWRITE: usize = 18;
    pub const PREADV: usize = 295;
    pub const PWRITEV: usize = 296;
    pub const SIGALTSTACK: usize = 131;
    pub const FSTATFS: usize = 138;
}

/// What becomes of a range of memory.
mod kind {
    /// It is there already, and is the same.
    pub const KEPT: u64 = 0;
    /// Nothing but what the runs put there.
    pub const MEMORY: u64 = 1;
    /// A file that both see, with what the runs put over it.
    pub const FILE: u64 = 2;
    /// The base, with what the runs put over it.
    pub const BASE: u64 = 3;
    /// What could not be laid ahead.
    pub const MISSING: u64 = 4;
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Segment {
    start: u64,
    end: u64,
    kind: u64,
    protection: u64,
    /// PRIVATE or SHARED.
    sharing: u64,
    offset: u64,
    file: Identity,
    /// Where its path begins in the texts, followed by a NUL.
    path: u64,
}

/// By what a file is known again.
#[repr(C)]
#[derive(Clone, Copy, PartialEq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: [u64; 2],
}

/// Memory whose contents are in the file.
#[repr(C)]
#[derive(Clone, Copy)]
struct ImageRange {
    start: u64,
    length: u64,
    at: u64,
    /// Of its segment.
    protection: u64,
    /// It is mapped; else copied to where it belongs.
    mapped: bool,
}

#[repr(C)]
struct Table {
    /// Where this lies, in both processes.
    address: u64,
    /// The stack pointer with which to continue.
    stack: u64,
    brk: u64,
    umask: u64,
    alternate_stack: [u64; 3],
    /// `struct sigaction` of the kernel, by signal.
    actions: [[u64; 4]; 65],
    segment_count: usize,
    run_count: usize,
    text_length: usize,
    segments: [Segment; SEGMENTS],
    runs: [ImageRange; RUNS],
    texts: [u8; TEXTS],
}

/// Where pages begin in the file.
const CONTENTS: u64 = IMAGE_CONTENTS;
const _: () = assert!(size_of::<Table>().next_multiple_of(PAGE) as u64 == CONTENTS);

/// Where [`Scratch`] usually lies: far below what mmap(2) chooses by itself, and above programs
/// that want a place of their own, so that it is the same from one image to the next.
const ADDRESS: usize = 0x1000_0000_0000;

/// Memory of neither process's own, at the same address in both.
#[repr(C, align(4096))]
struct Scratch {
    table: Table,
    /// There is memory that was not written since the base was.
    has_base: bool,
    entries: [u64; ENTRIES],
    /// The segments that the taking process mapped before the image came.
    laid: [Segment; PIECES],
    laid_count: usize,
    /// Pages were made where the last image had its runs; most are where the next one has them.
    has_pages: bool,
    maps: [u8; MAPS],
    stack: [u8; STACK],
}

struct Place(core::cell::UnsafeCell<usize>);
// SAFETY: one thread.
unsafe impl Sync for Place {}
static SCRATCH: Place = Place(core::cell::UnsafeCell::new(0));

fn identity(file: Fd) -> Option<Identity> {
    // struct stat in words.
    let mut stat = [0u64; 18];
    let known = call!(nr::FSTAT, file, stat.as_mut_ptr()) >= 0;
    known.then_some(Identity { device: stat[0], inode: stat[1], size: stat[6], modified: [stat[11], stat[12]] })
}

/// Of the table, what is used: address and length of each part.
fn parts(table: &Table) -> [(u64, u64); 4] {
    let start = &raw const *table as u64;
    let segments = table.segments.as_ptr() as u64;
    let runs = table.runs.as_ptr() as u64;
    [
        (start, segments - start),
        (segments, (table.segment_count * size_of::<Segment>()) as u64),
        (runs, (table.run_count * size_of::<ImageRange>()) as u64),
        (table.texts.as_ptr() as u64, table.text_length as u64),
    ]
}

/// All of it, by pread(2) or pwrite(2).
pub fn transfer(number: usize, file: Fd, mut start: u64, mut length: u64, mut at: u64) -> Result<(), isize> {
    while length > 0 {
        match call!(number, file, start, length, at) {
            0 => return Err(NO_MEMORY),
            sys::EINTR => {}
            moved if moved < 0 => return Err(moved),
            moved => {
                start += moved as u64;
                length -= moved as u64;
                at += moved as u64;
            }
        }
    }
    Ok(())
}

/// Transfers runs that lie one after the other in the file, by preadv(2) or pwritev(2).
fn transfer_runs(number: usize, file: Fd, runs: &[ImageRange]) -> Result<(), isize> {
    const MOST: usize = 128;
    let by_itself = if number == nr::PREADV { nr::PREAD } else { nr::PWRITE };
    for runs in runs.chunks(MOST) {
        let mut vectors = [[0u64; 2]; MOST];
        for (vector, run) in vectors.iter_mut().zip(runs) {
            *vector = [run.start, run.length];
        }
        let (at, length) = (runs[0].at, runs.iter().fold(0u64, |length, run| length.wrapping_add(run.length)));
        let moved = call!(number, file, vectors.as_ptr(), runs.len(), at, 0);
        if moved >= 0 && moved as u64 == length {
            continue;
        }
        // Interrupted, or cut short: a single transfer for each run reports the error of the run
        // that fails.
        for run in runs {
            transfer(by_itself, file, run.start, run.length, run.at)?;
        }
    }
    Ok(())
}

fn checked(result: isize) -> Result<isize, isize> {
    if result < 0 { Err(result) } else { Ok(result) }
}

fn map(start: u64, length: u64, protection: u64, flags: usize, file: Fd, at: u64) -> Result<(), isize> {
    let mapped = call!(nr::MMAP, start, length, protection, flags, file as isize, at);
    if (-4095..0).contains(&mapped) { Err(mapped) } else { Ok(()) }
}
