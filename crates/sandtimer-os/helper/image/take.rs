//! The other side: lets go of its own memory, puts the image's in its place, and goes on where that was written.

use super::*;

/// Where the file that comes along is found by whoever has taken an image.
const COMPANION: Fd = 4;

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

/// Returns from [`write_here`], with 0.
#[unsafe(naked)]
extern "C" fn go_on(stack: u64) -> ! {
    core::arch::naked_asm!(
        "mov rsp, rdi", "xor eax, eax",
        "ldmxcsr [rsp]", "fldcw [rsp + 4]",
        "add rsp, 8", "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx", "ret",
    )
}
