//! What an interpreter is, written into a file, and another process of the same zygote that becomes it.
//!
//! ```text
//! origin ── write: a table, then the pages that are its own ──▶ file, sealed by the engine
//!                                                                 └─▶ take: lets go of its own memory, maps the file's,
//!                                                                     and goes on where the origin wrote
//! ```
//! The first image of an origin is whole, and the origin maps it in place of the memory it was written from. Later ones of it, and
//! of whoever took it, hold what has changed since (a delta) and refer to that first one, the base: as long as that is little.
//!
//! Both come from one zygote, so programs, libraries, stack and thread pointer lie at the same addresses: what differs is
//! memory. Whoever takes an image is sealed in a sandbox of its own and gains nothing by it but the origin's state; of a
//! forged one it dies.

use crate::sys::{self, Fd, call};

const PAGE: usize = 4096;
const SEGMENTS: usize = 4096;
const RUNS: usize = 8192;
const TEXTS: usize = 128 << 10;
/// The longest /proc/self/maps.
const MAPS: usize = 1 << 20;
const STACK: usize = 64 << 10;
/// Pages that are looked at together.
const ENTRIES: usize = 8192;
/// Pages between two runs that are written along with them.
const GAP: usize = 1;
/// A run of so many bytes is mapped; shorter ones are copied.
const MAPPED_FROM: u64 = 64 << 10;
/// The same in a delta, whose length bounds into how many pieces memory falls by that.
const MAPPED_FROM_IN_DELTA: u64 = 8 << 10;
/// A delta of more is written as a whole image.
const LONGEST_DELTA: u64 = 4 << 20;

const READ: u64 = 1;
const WRITE: u64 = 2;
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

mod nr {
    pub use crate::sys::nr::*;
    pub const FSTAT: usize = 5;
    pub const LSEEK: usize = 8;
    pub const MPROTECT: usize = 10;
    pub const BRK: usize = 12;
    pub const MADVISE: usize = 28;
    pub const PREAD: usize = 17;
    pub const PWRITE: usize = 18;
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
    /// Where its path begins in the texts, with a NUL behind it.
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
struct Run {
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
    /// What to go on with.
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
    runs: [Run; RUNS],
    texts: [u8; TEXTS],
}

/// Where pages begin in the file.
const CONTENTS: u64 = size_of::<Table>().next_multiple_of(PAGE) as u64;

/// Memory of neither process's own, at the same address in both.
#[repr(C, align(4096))]
struct Scratch {
    table: Table,
    /// There is memory that was not written since the base was.
    has_base: bool,
    entries: [u64; ENTRIES],
    maps: [u8; MAPS],
    stack: [u8; STACK],
}

struct Place(core::cell::UnsafeCell<usize>);
// SAFETY: one thread.
unsafe impl Sync for Place {}
static SCRATCH: Place = Place(core::cell::UnsafeCell::new(0));

/// Where the zygote's /proc/self/maps stands, and how long it is.
static COMMON: [Place; 2] = [const { Place(core::cell::UnsafeCell::new(0)) }; 2];

/// Notes, in the zygote, what is mapped there: all of its children have it, at the same addresses.
pub fn note_common() {
    let address = call!(nr::MMAP, 0, MAPS, READ | WRITE, PRIVATE | ANONYMOUS | NO_RESERVE, -1isize, 0);
    if (-4095..0).contains(&address) {
        return;
    }
    // SAFETY: just mapped.
    let maps = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, MAPS) };
    if let Ok(length) = read_maps(maps) {
        // SAFETY: one thread.
        unsafe { (*COMMON[0].0.get(), *COMMON[1].0.get()) = (address as usize, length) };
    }
}

/// The zygote's lines; none where they are not known.
fn common() -> &'static [u8] {
    // SAFETY: one thread; what was noted is never unmapped in a process that asks: it is common as well.
    unsafe {
        match *COMMON[0].0.get() {
            0 => &[],
            address => core::slice::from_raw_parts(address as *const u8, *COMMON[1].0.get()),
        }
    }
}

/// What became of an image, in the lowest bits beside its length.
const WHOLE: u64 = 1;
const DELTA: u64 = 2;
/// Nothing was written: the file is too short for it.
const TOO_SHORT: u64 = 3;

/// Writes what this process is; `base` is the number of the base's inode, 0 for none. The length of the image and, in its lowest
/// two bits, what became of it; 0 in the process that has become it; a negated errno.
pub fn write(file: Fd, base: u64) -> isize {
    let result = write_here(file, base);
    // SAFETY: one thread; in the process that took the image it is what the origin had written there.
    let scratch = unsafe { *SCRATCH.0.get() };
    if scratch != 0 {
        call!(nr::MUNMAP, scratch, size_of::<Scratch>());
    }
    result
}

/// Keeps what a function keeps on the stack, in a place that is written along: whoever takes the image returns from here.
#[unsafe(naked)]
extern "C" fn write_here(file: Fd, base: u64) -> isize {
    core::arch::naked_asm!(
        "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15", "sub rsp, 8",
        "stmxcsr [rsp]", "fnstcw [rsp + 4]",
        "mov rdx, rsp",
        "call {write_all}",
        "add rsp, 8", "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx", "ret",
        write_all = sym write_all,
    )
}

/// Returns from [`write_here`], with 0.
#[unsafe(naked)]
extern "C" fn go_on(stack: u64) -> ! {
    core::arch::naked_asm!(
        "mov rsp, rdi", "xor eax, eax",
        "ldmxcsr [rsp]", "fldcw [rsp + 4]",
        "add rsp, 8", "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx", "ret",
    )
}

extern "C" fn write_all(file: Fd, base: u64, stack: u64) -> isize {
    // Shared, so that it is no part of what lies beside it.
    let address = call!(nr::MMAP, 0, size_of::<Scratch>(), READ | WRITE, SHARED | ANONYMOUS, -1isize, 0);
    if (-4095..0).contains(&address) {
        return address;
    }
    // SAFETY: one thread; the memory is mapped, and all zeros are a value of it.
    let scratch = unsafe {
        *SCRATCH.0.get() = address as usize;
        &mut *(address as *mut Scratch)
    };
    let table = &mut scratch.table;
    (table.address, table.stack) = (address as u64, stack);
    match written(scratch, file, base) {
        Ok(said) => said as isize,
        Err(error) => error,
    }
}

fn written(scratch: &mut Scratch, file: Fd, base: u64) -> Result<u64, isize> {
    let mut length = describe(scratch, base)?;
    let delta = scratch.has_base && length - CONTENTS <= LONGEST_DELTA;
    if scratch.has_base && !delta {
        length = describe(scratch, 0)?;
    }
    if (checked(call!(nr::LSEEK, file, 0, 2))? as u64) < length {
        return Ok(length << 2 | TOO_SHORT);
    }
    let table = &mut scratch.table;
    for (start, length) in parts(table) {
        transfer(nr::PWRITE, file, start, length, start - table.address)?;
    }
    for run in &table.runs[..table.run_count] {
        transfer(nr::PWRITE, file, run.start, run.length, run.at)?;
    }
    // From here on this is a process that has taken the image, too: what it changes is told from what it does not.
    for run in table.runs[..table.run_count].iter().filter(|run| run.mapped && !delta) {
        map(run.start, run.length, run.protection, PRIVATE | FIXED, file, run.at)?;
    }
    Ok(length << 2 | if delta { DELTA } else { WHOLE })
}

fn checked(result: isize) -> Result<isize, isize> {
    if result < 0 { Err(result) } else { Ok(result) }
}

/// Fills the table in; how long the image will be.
fn describe(scratch: &mut Scratch, base: u64) -> Result<u64, isize> {
    let table = &mut scratch.table;
    (table.segment_count, table.run_count, table.text_length) = (0, 0, 0);
    scratch.has_base = false;
    table.brk = call!(nr::BRK, 0) as u64;
    table.umask = call!(nr::UMASK, 0) as u64;
    call!(nr::UMASK, table.umask);
    call!(nr::SIGALTSTACK, 0, table.alternate_stack.as_mut_ptr());
    for signal in 1..65 {
        call!(nr::RT_SIGACTION, signal, 0, table.actions[signal].as_mut_ptr(), 8);
    }
    let length = read_maps(&mut scratch.maps)?;
    let pagemap = checked(sys::open_at(sys::AT_FDCWD, c"/proc/self/pagemap".as_ptr().cast(), sys::O_RDONLY, 0))? as Fd;
    let mapped_from = if base == 0 { MAPPED_FROM } else { MAPPED_FROM_IN_DELTA };
    let mut pages = Pages { file: pagemap, entries: &mut scratch.entries, mapped_from, end: CONTENTS };
    let mut known = Known { path: (0, 0), identity: None, base, has_base: false };
    let mut result = Ok(());
    // Both in the order of addresses.
    let mut common = common().split(|byte| *byte == b'\n').peekable();
    for text in scratch.maps[..length].split(|byte| *byte == b'\n') {
        let Some(mut line) = Line::parse(text) else { continue };
        if line.start == table.address {
            continue;
        }
        while common.next_if(|other| start_of(other) < line.start).is_some() {}
        line.is_common = common.peek() == Some(&text);
        result = add(table, &line, &mut pages, &mut known);
        if result.is_err() {
            break;
        }
    }
    sys::close(pagemap);
    scratch.has_base = known.has_base;
    result.map(|()| pages.end)
}

fn read_maps(maps: &mut [u8]) -> Result<usize, isize> {
    let file = checked(sys::open_at(sys::AT_FDCWD, c"/proc/self/maps".as_ptr().cast(), sys::O_RDONLY, 0))? as Fd;
    let mut length = 0;
    let result = loop {
        match sys::read(file, &mut maps[length..]) {
            0 if length < maps.len() => break Ok(length),
            0 => break Err(TOO_MUCH),
            sys::EINTR => {}
            read if read < 0 => break Err(read),
            read => length += read as usize,
        }
    };
    sys::close(file);
    result
}

/// A line of /proc/self/maps.
struct Line<'a> {
    start: u64,
    end: u64,
    protection: u64,
    shared: bool,
    offset: u64,
    inode: u64,
    path: &'a [u8],
    /// The zygote had it, too.
    is_common: bool,
}

fn start_of(line: &[u8]) -> u64 {
    let digits = line.iter().position(|byte| *byte == b'-').unwrap_or(0);
    hexadecimal(&line[..digits])
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |byte| *byte == b' ');
        let mut range = fields.next()?.splitn(2, |byte| *byte == b'-');
        let (start, end) = (hexadecimal(range.next()?), hexadecimal(range.next()?));
        let flags = fields.next()?;
        let offset = hexadecimal(fields.next()?);
        let _device = fields.next()?;
        let inode = fields.next()?.iter().fold(0, |value, digit| value * 10 + u64::from(digit.wrapping_sub(b'0')));
        let path = fields.next().unwrap_or(b"");
        let blank = path.iter().position(|byte| *byte != b' ').unwrap_or(path.len());
        let bit = |at: usize, letter: u8, bit: u64| if flags.get(at) == Some(&letter) { bit } else { 0 };
        let protection = bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', 4);
        let shared = flags.get(3) == Some(&b's');
        Some(Line { start, end, protection, shared, offset, inode, path: &path[blank..], is_common: false })
    }
}

fn hexadecimal(text: &[u8]) -> u64 {
    text.iter().fold(0, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => 0,
        };
        value << 4 | u64::from(digit)
    })
}

/// The file of the last line.
struct Known {
    /// Where its path lies in the texts, and how long it is.
    path: (usize, usize),
    identity: Option<Identity>,
    base: u64,
    has_base: bool,
}

/// Notes what becomes of one range.
fn add(table: &mut Table, line: &Line<'_>, pages: &mut Pages<'_>, known: &mut Known) -> Result<(), isize> {
    if line.path == b"[vsyscall]" {
        return Ok(());
    }
    let own = line.path.starts_with(b"/memfd:sandtimer-zygote");
    // Libraries of the zygote's, as far as nobody may write to them.
    let same = line.is_common && line.inode != 0 && !line.shared && line.protection & WRITE == 0;
    let kept = own || same || line.path.starts_with(b"[vdso") || line.path.starts_with(b"[vvar") || line.path == b"[stack]";
    let is_base = known.base != 0 && line.inode == known.base && line.path.starts_with(b"/memfd:sandtimer-image");
    known.has_base |= is_base;
    let named = line.inode != 0 && !kept && !is_base;
    // What may be written to is written down, so that nobody has to look for its file.
    let identity = if named && line.protection & WRITE == 0 { known.of(table, line.path)? } else { None };
    if line.shared && identity.is_none() {
        return Err(SHARES_MEMORY);
    }
    let kind = match (kept, identity) {
        (true, _) => kind::KEPT,
        _ if is_base => kind::BASE,
        (_, Some(_)) => kind::FILE,
        _ => kind::MEMORY,
    };
    if table.segment_count == SEGMENTS {
        return Err(TOO_MUCH);
    }
    table.segments[table.segment_count] = Segment {
        start: line.start,
        end: line.end,
        kind,
        protection: line.protection,
        sharing: if line.shared { SHARED } else { PRIVATE } as u64,
        offset: line.offset,
        file: identity.unwrap_or(Identity { device: 0, inode: 0, size: 0, modified: [0; 2] }),
        path: known.path.0 as u64,
    };
    table.segment_count += 1;
    let is_same = kept && (line.protection & WRITE == 0 || !own && line.path != b"[stack]");
    if line.shared || is_same {
        return Ok(());
    }
    // Of a file that the other does not see, or sees another of, everything counts.
    let all = named && identity.is_none();
    pages.note(table, line, all, if line.path == b"[stack]" { Put::Copied } else { Put::ByLength })
}

impl Known {
    /// A file that is the same for everybody: it is shown read-only. Its path is the last one in the texts then.
    fn of(&mut self, table: &mut Table, path: &[u8]) -> Result<Option<Identity>, isize> {
        let (start, length) = self.path;
        if length == path.len() && &table.texts[start..start + length] == path {
            return Ok(self.identity);
        }
        let start = table.text_length;
        if start + path.len() + 1 > TEXTS {
            return Err(TOO_MUCH);
        }
        table.texts[start..start + path.len()].copy_from_slice(path);
        table.texts[start + path.len()] = 0;
        table.text_length = start + path.len() + 1;
        self.path = (start, path.len());
        let file = sys::open_at(sys::AT_FDCWD, table.texts[start..].as_ptr(), sys::O_RDONLY, 0);
        self.identity = None;
        if file >= 0 {
            let mut system = [0u64; 15];
            const FLAGS: usize = 10;
            let known = call!(nr::FSTATFS, file, system.as_mut_ptr()) >= 0 && system[FLAGS] & 1 != 0;
            self.identity = if known { identity(file as Fd) } else { None };
            sys::close(file as Fd);
        }
        Ok(self.identity)
    }
}

fn identity(file: Fd) -> Option<Identity> {
    // struct stat in words.
    let mut stat = [0u64; 18];
    let known = call!(nr::FSTAT, file, stat.as_mut_ptr()) >= 0;
    known.then_some(Identity { device: stat[0], inode: stat[1], size: stat[6], modified: [stat[11], stat[12]] })
}

/// How the contents of a run come to where they belong.
#[derive(Clone, Copy)]
enum Put {
    Copied,
    Mapped,
    ByLength,
}

/// Which pages are a process's own.
struct Pages<'a> {
    file: Fd,
    entries: &'a mut [u64; ENTRIES],
    mapped_from: u64,
    /// Where the next run goes in the image.
    end: u64,
}

impl Pages<'_> {
    /// Notes the runs of own pages in a range, or that all of it is one.
    fn note(&mut self, table: &mut Table, line: &Line<'_>, all: bool, put: Put) -> Result<(), isize> {
        if line.protection & READ == 0 && line.end - line.start > 1 << 30 {
            // Reserved, and never used as long as nobody may read it.
            return Ok(());
        }
        if all {
            return self.run(table, line, (line.start, line.end), Put::Mapped);
        }
        let (mut run, mut at) = (None, line.start);
        while at < line.end {
            let count = (((line.end - at) as usize) / PAGE).min(ENTRIES);
            let offset = at / PAGE as u64 * 8;
            let read = call!(nr::PREAD, self.file, self.entries.as_mut_ptr(), count * 8, offset);
            if read != (count * 8) as isize {
                return Err(if read < 0 { read } else { UNREADABLE });
            }
            for index in 0..count {
                const HELD: u64 = 0b11 << 62;
                const FILES: u64 = 1 << 61;
                let page = at + (index * PAGE) as u64;
                if self.entries[index] & HELD == 0 || self.entries[index] & FILES != 0 {
                    continue;
                }
                run = match run {
                    Some((start, end)) if page - end <= (GAP * PAGE) as u64 => Some((start, page + PAGE as u64)),
                    Some(run) => {
                        self.run(table, line, run, put)?;
                        Some((page, page + PAGE as u64))
                    }
                    None => Some((page, page + PAGE as u64)),
                };
            }
            at += (count * PAGE) as u64;
        }
        run.map_or(Ok(()), |run| self.run(table, line, run, put))
    }

    fn run(&mut self, table: &mut Table, line: &Line<'_>, (start, end): (u64, u64), put: Put) -> Result<(), isize> {
        if line.protection & READ == 0 {
            return Err(UNREADABLE);
        }
        if table.run_count == RUNS {
            return Err(TOO_MUCH);
        }
        let length = end - start;
        let mapped = match put {
            Put::Copied => false,
            Put::Mapped => true,
            Put::ByLength => line.protection & WRITE == 0 || length >= self.mapped_from,
        };
        table.runs[table.run_count] = Run { start, length, at: self.end, protection: line.protection, mapped };
        table.run_count += 1;
        self.end += length;
        Ok(())
    }
}

/// Of the table, what is used: address and length of each part.
fn parts(table: &Table) -> [(u64, u64); 4] {
    let start = &raw const *table as u64;
    let segments = table.segments.as_ptr() as u64;
    let runs = table.runs.as_ptr() as u64;
    [
        (start, segments - start),
        (segments, (table.segment_count * size_of::<Segment>()) as u64),
        (runs, (table.run_count * size_of::<Run>()) as u64),
        (table.texts.as_ptr() as u64, table.text_length as u64),
    ]
}

/// All of it, by pread(2) or pwrite(2).
fn transfer(number: usize, file: Fd, mut start: u64, mut length: u64, mut at: u64) -> Result<(), isize> {
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

/// Where the file that comes along is found by whoever has taken an image.
pub const COMPANION: Fd = 4;

/// Becomes what is written in `file`, over `base` (-1: none). Returns a negated errno where nothing was changed yet; dies of later ones, and says so.
pub fn take([file, companion, base]: [Fd; 3], channel: Fd, thread_id: *mut i32) -> isize {
    let every = !0u64;
    call!(nr::RT_SIGPROCMASK, 0, &raw const every, 0, 8);
    let mut head = [0u64; 1];
    if let Err(error) = transfer(nr::PREAD, file, head.as_mut_ptr() as u64, 8, 0) {
        return error;
    }
    // Free in the origin, so nothing of this process is there that is needed from now on.
    let length = size_of::<Scratch>();
    let mapped = call!(nr::MMAP, head[0], length, READ | WRITE, PRIVATE | ANONYMOUS | FIXED, -1isize, 0);
    if mapped < 0 || mapped as u64 != head[0] {
        return if mapped < 0 { mapped } else { sys::EINVAL };
    }
    // SAFETY: just mapped; zeros are a value of it.
    let scratch = unsafe { &mut *(mapped as *mut Scratch) };
    scratch.table.address = head[0];
    let above = |fd: Fd| call!(nr::FCNTL, fd, 0, 16) as Fd;
    let taking = Taking { file: above(file), base: above(base), channel, thread_id };
    let companion = above(companion);
    call!(nr::CLOSE_RANGE, COMPANION, 15, 0);
    call!(nr::DUP2, companion, COMPANION);
    sys::close(companion);
    let top = (scratch.stack.as_mut_ptr() as u64 + STACK as u64) & !15;
    on_stack(scratch, &raw const taking, top)
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Taking {
    file: Fd,
    base: Fd,
    channel: Fd,
    thread_id: *mut i32,
}

#[unsafe(naked)]
extern "C" fn on_stack(scratch: *mut Scratch, taking: *const Taking, top: u64) -> ! {
    core::arch::naked_asm!("mov rsp, rdx", "call {take_on}", "ud2", take_on = sym take_on)
}

/// On a stack that is no part of what is let go.
extern "C" fn take_on(scratch: *mut Scratch, taking: *const Taking) -> ! {
    // SAFETY: both live: the first is where this runs, and of the second a copy is made before anything is let go.
    let (scratch, taking) = unsafe { (&mut *scratch, *taking) };
    if let Err((error, stage)) = become_it(scratch, taking) {
        let mut packet = [0u8; 9];
        packet[0] = b'Y';
        packet[1..5].copy_from_slice(&(-error as i32).to_le_bytes());
        packet[5..].copy_from_slice(&(stage as u32).to_le_bytes());
        sys::send(taking.channel, &packet, None, 0);
        sys::exit(1);
    }
    go_on(scratch.table.stack)
}

fn become_it(scratch: &mut Scratch, taking: Taking) -> Result<(), (isize, usize)> {
    let own = (&raw const *scratch as u64, size_of::<Scratch>() as u64);
    let table = &mut scratch.table;
    // First how long the parts are.
    for part in 0..4 {
        let (start, length) = parts(table)[part];
        transfer(nr::PREAD, taking.file, start, length, start - own.0).map_err(|error| (error, 1))?;
        if table.segment_count > SEGMENTS || table.run_count > RUNS || table.text_length > TEXTS {
            return Err((sys::EINVAL, 2));
        }
    }
    if call!(nr::BRK, table.brk) as u64 != table.brk {
        return Err((NO_MEMORY, 3));
    }
    let segments = &table.segments[..table.segment_count];
    let mut free = PAGE as u64;
    for segment in segments {
        let_go(free, segment.start, own);
        free = free.max(segment.end);
    }
    const LAST: u64 = 0x7fff_ffff_f000;
    let_go(free, LAST, own);
    for segment in segments {
        lay(segment, &table.texts, taking.base).map_err(|error| (error, 4))?;
    }
    for run in &table.runs[..table.run_count] {
        let put = match run.mapped {
            true => map(run.start, run.length, run.protection, PRIVATE | FIXED, taking.file, run.at),
            false => copy(taking.file, run),
        };
        put.map_err(|error| (error, 5))?;
    }
    call!(nr::CLOSE_RANGE, COMPANION + 1, u32::MAX, 0);
    for signal in 1..65 {
        if signal != sys::SIGKILL as usize && signal != sys::SIGSTOP as usize {
            call!(nr::RT_SIGACTION, signal, table.actions[signal].as_ptr(), 0, 8);
        }
    }
    call!(nr::SIGALTSTACK, table.alternate_stack.as_ptr(), 0);
    call!(nr::UMASK, table.umask);
    // SAFETY: the word where the C library keeps it, which is mapped again.
    unsafe { taking.thread_id.write(call!(nr::GETTID) as i32) };
    Ok(())
}

/// Unmaps a range, but for the scratch memory.
fn let_go(start: u64, end: u64, own: (u64, u64)) {
    let own_end = own.0 + own.1;
    for (start, end) in [(start, end.min(own.0)), (start.max(own_end), end)] {
        if start < end {
            call!(nr::MUNMAP, start, end - start);
        }
    }
}

/// What a range is before the runs are put there.
fn lay(segment: &Segment, texts: &[u8], base: Fd) -> Result<(), isize> {
    let length = segment.end - segment.start;
    match segment.kind {
        kind::MEMORY => {
            let flags = PRIVATE | ANONYMOUS | FIXED | NO_RESERVE;
            map(segment.start, length, segment.protection, flags, -1, 0)
        }
        kind::BASE => map(segment.start, length, segment.protection, PRIVATE | FIXED, base, segment.offset),
        kind::FILE => {
            let path = texts.get(segment.path as usize..).ok_or(sys::EINVAL)?;
            let file = checked(sys::open_at(sys::AT_FDCWD, path.as_ptr(), sys::O_RDONLY, 0))? as Fd;
            let is_same = identity(file) == Some(segment.file);
            let flags = segment.sharing as usize | FIXED;
            let result = match is_same {
                true => map(segment.start, length, segment.protection, flags, file, segment.offset),
                false => Err(STALE),
            };
            sys::close(file);
            result
        }
        _ => Ok(()),
    }
}

fn map(start: u64, length: u64, protection: u64, flags: usize, file: Fd, at: u64) -> Result<(), isize> {
    let mapped = call!(nr::MMAP, start, length, protection, flags, file as isize, at);
    if (-4095..0).contains(&mapped) { Err(mapped) } else { Ok(()) }
}

fn copy(file: Fd, run: &Run) -> Result<(), isize> {
    let allow = |protection: u64| match run.protection & WRITE {
        0 => checked(call!(nr::MPROTECT, run.start, run.length, protection)).map(|_| ()),
        _ => Ok(()),
    };
    allow(READ | WRITE)?;
    // All pages at once, where the kernel can (Linux 5.14): one by one each costs a fault.
    const POPULATE_WRITE: usize = 23;
    call!(nr::MADVISE, run.start, run.length, POPULATE_WRITE);
    transfer(nr::PREAD, file, run.start, run.length, run.at)?;
    allow(run.protection)
}
