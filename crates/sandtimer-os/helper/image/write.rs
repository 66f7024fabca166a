//! The origin's side: describes what it is, writes it, and continues over what it wrote.

use super::maps::{Line, common, read_maps, start_of};
use super::pages::{Known, Pages, add};
use super::*;

/// The result of writing an image, in the lowest bits of its length.
const WHOLE: u64 = 1;
const DELTA: u64 = 2;
/// Nothing was written: the file is too short for it.
const TOO_SHORT: u64 = 3;

/// Writes what this process is; `base` is the number of the base's inode, 0 for none. Returns the
/// length of the image and, in its lowest two bits, the result; 0 in the process that has taken it;
/// or a negated errno.
pub fn write(file: Fd, base: u64) -> isize {
    let result = write_here(file, base);
    // SAFETY: one thread; in the process that took the image it is what the origin had written
    // there.
    let scratch = unsafe { SCRATCH.0.get().replace(0) };
    if scratch != 0 {
        call!(nr::MUNMAP, scratch, size_of::<Scratch>());
    }
    result
}

/// Saves the registers that a function preserves on the stack, which is part of the image: the
/// process that takes the image returns from here.
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

extern "C" fn write_all(file: Fd, base: u64, stack: u64) -> isize {
    // Shared, so that the kernel does not merge it with an adjacent mapping. Linux before 4.17
    // treats the address as a hint.
    const FIXED_NO_REPLACE: usize = 0x10_0000;
    let reserve =
        |at: usize, flags: usize| call!(nr::MMAP, at, size_of::<Scratch>(), READ | WRITE, SHARED | ANONYMOUS | flags, -1isize, 0);
    let mut address = reserve(ADDRESS, FIXED_NO_REPLACE);
    if (-4095..0).contains(&address) {
        // Something of the code's own lies there.
        address = reserve(0, 0);
    }
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
    let delta = scratch.has_base && length - CONTENTS <= IMAGE_DELTA;
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
    transfer_runs(nr::PWRITEV, file, &table.runs[..table.run_count])?;
    // From here on this process has taken the image, too, so that changed pages can be
    // distinguished from unchanged ones.
    for run in table.runs[..table.run_count].iter().filter(|run| run.mapped && !delta) {
        map(run.start, run.length, run.protection, PRIVATE | FIXED, file, run.at)?;
    }
    Ok(length << 2 | if delta { DELTA } else { WHOLE })
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
