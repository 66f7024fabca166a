//! The interpreter's data, in memory of which a fork copies only what is in use.
//!
//! A fork copies an entry for each anonymous page, and the end of what was forked gives it back: a
//! fifth of a microsecond for both. With numpy an interpreter has four thousand of them, of which a
//! call touches a few hundred. An entry for a page of a file is made when the page is touched. So,
//! once all is imported, the interpreter's data is written into a file, which is sealed against any
//! change, and mapped from there, privately, at the same addresses: what the zygote touches from
//! then on its children have at once, and what only they touch they take from the file.
//!
//! Memory of a file is not zero again after madvise(MADV_DONTNEED), and has an end that mremap(2)
//! can pass: an allocator that counts on either would go wrong. So this is done only to what is
//! known to be used otherwise: the data of programs and libraries, the heap of the GNU C library,
//! and the pools of CPython's allocator (Objects/obmalloc.c), which are known by their headers. The
//! file has no holes, so that a process that maps more of it finds no room in which to leave data.
//!
//! It is a matter of speed only: what cannot be had is left as it is.

use core::ffi::CStr;

use crate::image::maps::{EXECUTE, Line, MAPS, READ, WRITE, read_maps};
use crate::image::{nr, transfer};
use crate::sys::{self, Fd, call};

const NAME: &CStr = c"sandtimer-zygote-data";

/// More is left where it is.
const MOST_RANGES: usize = 1024;
/// Of one library: most of a larger one's was never touched.
const MOST_DATA: u64 = 8 << 20;
const PAGE: u64 = 4096;
const PRIVATE_ANONYMOUS: usize = 0x22;

/// Memory in a new mapping; all zeros are a valid value of it.
#[repr(C)]
struct Scratch {
    count: usize,
    ranges: [Range; MOST_RANGES],
    maps: [u8; MAPS],
    entries: [u64; 512],
}

#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
}

/// Whether it is a mapping of the interpreter's data.
pub fn is_of_it(line: &Line<'_>) -> bool {
    let path = line.path.strip_prefix(b"/memfd:").unwrap_or(b"");
    path.starts_with(NAME.to_bytes()) && line.protection == READ | WRITE
}

/// Called once, in the zygote, by its only thread. `pool`: the bytes of one; `heap`: the C library
/// is one whose heap may be moved.
pub fn shelve(pool: u64, heap: bool) {
    let address = call!(nr::MMAP, 0, size_of::<Scratch>(), READ | WRITE, PRIVATE_ANONYMOUS, -1isize, 0);
    if (-4095..0).contains(&address) {
        return;
    }
    // SAFETY: just mapped; zeros are a value of it.
    let scratch = unsafe { &mut *(address as *mut Scratch) };
    if let Ok(length) = read_maps(&mut scratch.maps) {
        find(scratch, length, pool, heap);
        if let Ok(file) = make_file() {
            move_into(file, &scratch.ranges[..scratch.count]);
            sys::close(file);
        }
    }
    call!(nr::MUNMAP, address, size_of::<Scratch>());
}

fn find(scratch: &mut Scratch, length: usize, pool: u64, heap: bool) {
    let pagemap = sys::open_at(sys::AT_FDCWD, c"/proc/self/pagemap".as_ptr().cast(), sys::O_RDONLY, 0) as Fd;
    let Scratch { count, ranges, maps, entries } = scratch;
    let mut add = |range: Range| {
        if let Some(free) = ranges.get_mut(*count) {
            *free = range;
            *count += 1;
        }
    };
    let mut program: &[u8] = b"";
    for line in maps[..length].split(|byte| *byte == b'\n').filter_map(Line::parse) {
        if line.protection & EXECUTE != 0 && line.inode != 0 {
            program = line.path;
        }
        if line.shared || line.protection != READ | WRITE {
            continue;
        }
        let all = Range { start: line.start, end: line.end };
        let is_data = line.inode != 0 && line.path == program && all.end - all.start <= MOST_DATA;
        match line.path {
            path if path.starts_with(b"/memfd:") => {}
            b"[heap]" if heap => add(all),
            b"" => find_pools(all, pool, pagemap, entries, &mut add),
            _ if is_data => add(all),
            _ => {}
        }
    }
    sys::close(pagemap);
}

/// `struct pool_header`, the same from 3.9 on.
#[repr(C)]
struct PoolHeader {
    count: u64,
    pointers: [u64; 3],
    arena: u32,
    class: u32,
    next: u32,
    last: u32,
}

impl PoolHeader {
    /// Blocks of 16 bytes to 512, and where the last one may begin.
    fn is_one(&self, size: u64) -> bool {
        const CLASSES: u32 = 32;
        let block = 16 * (self.class.min(CLASSES) + 1);
        self.class < CLASSES && self.last == size as u32 - block && self.next <= size as u32 && self.count <= size / u64::from(block)
    }
}

/// Finds the ranges of a mapping from one pool to another, with adjacent and enclosed memory that
/// is no longer than a pool: the ends of arenas that do not begin where a pool could.
fn find_pools(all: Range, size: u64, pagemap: Fd, entries: &mut [u64; 512], add: &mut impl FnMut(Range)) {
    const PRESENT: u64 = 1 << 63;
    const LONGEST: u64 = 64 << 30;
    if all.end - all.start > LONGEST {
        return;
    }
    let (mut range, mut at) = (None::<Range>, all.start);
    while at < all.end {
        let count = (((all.end - at) / PAGE) as usize).min(entries.len());
        if call!(nr::PREAD, pagemap, entries.as_mut_ptr(), count * 8, at / PAGE * 8) != (count * 8) as isize {
            break;
        }
        for (index, entry) in entries[..count].iter().enumerate() {
            let page = at + index as u64 * PAGE;
            // SAFETY: the page is there; any bytes are a value of it.
            if entry & PRESENT == 0 || page % size != 0 || !unsafe { &*(page as *const PoolHeader) }.is_one(size) {
                continue;
            }
            let end = (page + size).min(all.end);
            range = match range {
                Some(before) if page - before.end <= size => Some(Range { end, ..before }),
                before => {
                    before.into_iter().for_each(&mut *add);
                    Some(Range { start: if page - all.start < size { all.start } else { page }, end })
                }
            };
        }
        at += count as u64 * PAGE;
    }
    if let Some(last) = range {
        add(Range { end: if all.end - last.end < size { all.end } else { last.end }, ..last });
    }
}

fn make_file() -> Result<Fd, ()> {
    const MEMFD_CREATE: usize = 319;
    const CLOSE_ON_EXEC: usize = 1;
    const ALLOW_SEALING: usize = 2;
    const NO_EXEC: usize = 8;
    let mut file = call!(MEMFD_CREATE, NAME.as_ptr(), CLOSE_ON_EXEC | ALLOW_SEALING | NO_EXEC);
    if file == sys::EINVAL {
        file = call!(MEMFD_CREATE, NAME.as_ptr(), CLOSE_ON_EXEC | ALLOW_SEALING);
    }
    if file < 0 { Err(()) } else { Ok(file as Fd) }
}

/// Piece by piece, so that memory is never needed twice for more than one.
fn move_into(file: Fd, ranges: &[Range]) {
    const PIECE: u64 = 8 << 20;
    let mut at = 0;
    let mut moved = Ok(());
    for range in ranges {
        let mut start = range.start;
        while moved.is_ok() && start < range.end {
            let length = (range.end - start).min(PIECE);
            moved = transfer(nr::PWRITE, file, start, length, at).and_then(|()| put(file, start, length, at));
            (start, at) = (start + length, at + length);
        }
    }
    enlarge(file, at);
    const ADD_SEALS: usize = 1033;
    const ALL: usize = 0b1111;
    const BUSY: isize = -16;
    // More than once for the reason that `program::seal` of the engine gives.
    let sealed = || call!(nr::FCNTL, file, ADD_SEALS, ALL);
    if (0..20).map(|_| sealed()).find(|result| *result != BUSY) != Some(0) {
        // What could still be changed is nothing for children.
        sys::exit(1);
    }
}

/// Has the file in large pages, as far as it fills them (MADV_COLLAPSE, Linux 6.1): then a fork and
/// an exit take entries of neighbours together.
fn enlarge(file: Fd, length: u64) {
    const LARGE: u64 = 2 << 20;
    const COLLAPSE: usize = 25;
    const SHARED_FIXED: usize = 0x11;
    let whole = length - length % LARGE;
    let room = call!(nr::MMAP, 0, whole + LARGE, READ, PRIVATE_ANONYMOUS, -1isize, 0);
    if (-4095..0).contains(&room) {
        return;
    }
    let at = (room as u64).next_multiple_of(LARGE);
    if whole > 0 && call!(nr::MMAP, at, whole, READ, SHARED_FIXED, file, 0) > 0 {
        call!(nr::MADVISE, at, whole, COLLAPSE);
    }
    call!(nr::MUNMAP, room, whole + LARGE);
}

/// Maps a piece of the file in the place of what it was written from; elsewhere first, so that
/// where that fails nothing is changed.
fn put(file: Fd, start: u64, length: u64, at: u64) -> Result<(), isize> {
    const PRIVATE: usize = 2;
    const MAYMOVE_FIXED: usize = 3;
    let elsewhere = call!(nr::MMAP, 0, length, READ | WRITE, PRIVATE, file, at);
    if (-4095..0).contains(&elsewhere) {
        return Err(elsewhere);
    }
    let put = call!(nr::MREMAP, elsewhere, length, length, MAYMOVE_FIXED, start);
    if (-4095..0).contains(&put) {
        call!(nr::MUNMAP, elsewhere, length);
        return Err(put);
    }
    Ok(())
}
