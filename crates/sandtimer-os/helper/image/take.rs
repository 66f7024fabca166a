//! The other side: lets go of its own memory, puts the image's in its place, and continues where
//! that was written.
//!
//! ```text
//! base assigned   ─▶ the base's segments mapped, pages made for the runs of the image before ─▶ the image comes ─▶ what differs mapped again ─▶ its runs
//! no base         ────────────────────────────────────────────────────────────────────────────▶ the image comes ─▶ its segments mapped ─▶ its runs
//! ```
//! What is done before the image comes is done while the origin writes it, on another processor.
//! What of it fails is not missed: the image may not need it.

use super::*;
use crate::wire::channel::IMAGE;

/// The descriptor at which a process that has taken an image finds the file that came with it.
const COMPANION: Fd = 4;

/// Takes the image in the file that comes next over `channel`. If that is over `base`, as the
/// `last` one was (each -1: none), most is mapped already. Returns a negated errno if nothing was
/// changed yet; ends the process after a later error, and reports it.
pub fn take([base, last]: [Fd; 2], channel: Fd, thread_id: *mut i32) -> isize {
    let every = !0u64;
    call!(nr::RT_SIGPROCMASK, 0, &raw const every, 0, 8);
    let files = [above(base), above(last)];
    let mut taking = Taking { image: -1, base: files[0], last: files[1], channel, thread_id, from: core::ptr::null() };
    call!(nr::CLOSE_RANGE, COMPANION, 15, 0);
    // Elsewhere the place of the image may overlap with that of its base.
    let is_ahead = taking.base >= 0 && taking.address() == Ok(ADDRESS as u64);
    if !is_ahead && let Err(error) = taking.receive() {
        return error;
    }
    taking.go_on_there()
}

/// The same file by a number that none is closed at; negative where there is none.
fn above(fd: Fd) -> Fd {
    call!(nr::FCNTL, fd, 0, 16) as Fd
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Taking {
    /// -1 until it has come.
    image: Fd,
    base: Fd,
    last: Fd,
    channel: Fd,
    thread_id: *mut i32,
    /// Where it was laid ahead; null where it was not.
    from: *const Scratch,
}

impl Taking {
    /// Waits for the image, for the file that comes with it, and for the base if the image is over
    /// one.
    fn receive(&mut self) -> Result<(), isize> {
        let mut packet = [0u8; 64];
        let received = loop {
            let received = sys::receive(self.channel, &mut packet, 0);
            if received.length != sys::EINTR {
                break received;
            }
        };
        if received.length <= 0 {
            // The engine no longer wants this process.
            sys::exit(0);
        }
        let length = size_of::<crate::wire::JobHeader>();
        if received.length as usize != length + 1 || packet[length] != IMAGE || received.fd_count < 2 {
            return Err(sys::EINVAL);
        }
        self.image = above(received.fds[0]);
        if received.fd_count > 2 {
            self.base = above(received.fds[2]);
        }
        let companion = above(received.fds[1]);
        call!(nr::CLOSE_RANGE, COMPANION, 15, 0);
        call!(nr::DUP2, companion, COMPANION);
        sys::close(companion);
        Ok(())
    }

    /// Returns the address of the last known table in the process that wrote it.
    fn address(&self) -> Result<u64, isize> {
        let file = if self.image < 0 { self.base } else { self.image };
        let mut head = [0u64; 1];
        transfer(nr::PREAD, file, head.as_mut_ptr() as u64, 8, 0).map(|()| head[0])
    }

    /// Continues in memory that is free in the origin, so that the image replaces nothing that this
    /// process still needs. Returns a negated errno if it cannot.
    fn go_on_there(self) -> isize {
        let address = match self.address() {
            Ok(address) => address,
            Err(error) => return error,
        };
        let length = size_of::<Scratch>();
        let mapped = call!(nr::MMAP, address, length, READ | WRITE, PRIVATE | ANONYMOUS | FIXED, -1isize, 0);
        if mapped < 0 || mapped as u64 != address {
            return if mapped < 0 { mapped } else { sys::EINVAL };
        }
        // SAFETY: just mapped; zeros are a value of it.
        let scratch = unsafe { &mut *(mapped as *mut Scratch) };
        scratch.table.address = address;
        let top = (scratch.stack.as_mut_ptr() as u64 + STACK as u64) & !15;
        on_stack(scratch, &raw const self, top)
    }
}

#[unsafe(naked)]
extern "C" fn on_stack(scratch: *mut Scratch, taking: *const Taking, top: u64) -> ! {
    core::arch::naked_asm!("mov rsp, rdx", "call {take_on}", "ud2", take_on = sym take_on)
}

/// On a stack that is no part of what is let go.
extern "C" fn take_on(scratch: *mut Scratch, taking: *const Taking) -> ! {
    // SAFETY: both live: the first is where this runs, and of the second a copy is made before
    // anything is let go.
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

/// What went wrong, a negated errno, and at which stage.
type Step = Result<(), (isize, usize)>;

fn become_it(scratch: &mut Scratch, mut taking: Taking) -> Step {
    let at = |stage: usize| move |error: isize| (error, stage);
    if taking.image < 0 {
        lay_ahead(scratch, taking.base, taking.last);
        taking.receive().map_err(at(6))?;
        let (address, here) = (taking.address().map_err(at(6))?, &raw const *scratch as u64);
        if address != here {
            // The origin has other memory where this process has its scratch memory.
            taking.from = &raw const *scratch;
            let apart = address.abs_diff(here) >= size_of::<Scratch>() as u64;
            return Err((if apart { taking.go_on_there() } else { sys::EINVAL }, 7));
        }
    } else if !taking.from.is_null() {
        // SAFETY: mapped until all that is not the image's is let go.
        let from = unsafe { &*taking.from };
        scratch.laid_count = from.laid_count;
        scratch.laid[..from.laid_count].copy_from_slice(&from.laid[..from.laid_count]);
        scratch.has_pages = from.has_pages;
    }
    read_table(scratch, taking.image)?;
    lay_all(scratch, taking.base)?;
    put_runs(scratch, taking.image).map_err(at(5))?;
    call!(nr::CLOSE_RANGE, COMPANION + 1, u32::MAX, 0);
    let table = &scratch.table;
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

fn read_table(scratch: &mut Scratch, file: Fd) -> Step {
    let own = &raw const *scratch as u64;
    let table = &mut scratch.table;
    // First how long the parts are.
    for part in 0..4 {
        let (start, length) = parts(table)[part];
        transfer(nr::PREAD, file, start, length, start - own).map_err(|error| (error, 1))?;
        if table.segment_count > SEGMENTS || table.run_count > RUNS || table.text_length > TEXTS {
            return Err((sys::EINVAL, 2));
        }
    }
    Ok(())
}

/// Lays what an image over this base will most likely be of, and notes it; has pages where the last
/// one had its runs, or else where the origin has had its own ever since it wrote the base. Nothing
/// is noted where the base has no table.
fn lay_ahead(scratch: &mut Scratch, base: Fd, last: Fd) {
    if read_table(scratch, base).is_err() {
        return;
    }
    call!(nr::BRK, scratch.table.brk);
    let_all_go(scratch);
    let table = &mut scratch.table;
    for segment in &mut table.segments[..table.segment_count] {
        if lay(segment, &table.texts, base).is_err() {
            segment.kind = kind::MISSING;
        }
    }
    for run in table.runs[..table.run_count].iter_mut().filter(|run| run.mapped) {
        if map(run.start, run.length, run.protection, PRIVATE | FIXED, base, run.at).is_err() {
            run.at = ahead::NOWHERE;
        }
    }
    ahead::note(scratch);
    if last >= 0 && read_table(scratch, last).is_err() {
        return;
    }
    // No delta has more pages.
    let mut left = IMAGE_DELTA;
    for run in scratch.table.runs[..scratch.table.run_count].iter().filter(|run| is_copied_as_it_is(run)) {
        let Some(rest) = left.checked_sub(run.length) else { return };
        left = rest;
        call!(nr::MADVISE, run.start, run.length, POPULATE_WRITE);
    }
    scratch.has_pages = last >= 0;
}

/// Maps the segments of a table; those that are there already stay.
fn lay_all(scratch: &Scratch, base: Fd) -> Step {
    let table = &scratch.table;
    if call!(nr::BRK, table.brk) as u64 != table.brk {
        return Err((NO_MEMORY, 3));
    }
    let_all_go(scratch);
    let mut laid = ahead::Laid::of(scratch);
    for segment in &table.segments[..table.segment_count] {
        if !laid.has(segment, table.stack).map_err(|error| (error, 8))? {
            lay(segment, &table.texts, base).map_err(|error| (error, 4))?;
        }
    }
    Ok(())
}

/// Unmaps all that is no segment of the table's, but for the scratch memory.
fn let_all_go(scratch: &Scratch) {
    let own = (&raw const *scratch as u64, size_of::<Scratch>() as u64);
    let mut free = PAGE as u64;
    for segment in &scratch.table.segments[..scratch.table.segment_count] {
        let_go(free, segment.start, own);
        free = free.max(segment.end);
    }
    const LAST: u64 = 0x7fff_ffff_f000;
    let_go(free, LAST, own);
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

/// MADV_POPULATE_WRITE (Linux 5.14).
const POPULATE_WRITE: usize = 23;

/// Nothing needs to be allowed for it.
fn is_copied_as_it_is(run: &ImageRange) -> bool {
    !run.mapped && run.protection & WRITE != 0
}

/// Puts the runs where they belong.
fn put_runs(scratch: &Scratch, file: Fd) -> Result<(), isize> {
    let mut left = &scratch.table.runs[..scratch.table.run_count];
    while let Some(run) = left.first() {
        let mut at = run.at;
        let together = left.iter().take_while(|run| {
            let goes_on = is_copied_as_it_is(run) && run.at == at;
            at = at.wrapping_add(run.length);
            goes_on
        });
        let (now, later) = left.split_at(together.count().max(1));
        left = later;
        match run.mapped {
            true => map(run.start, run.length, run.protection, PRIVATE | FIXED, file, run.at)?,
            false if run.protection & WRITE == 0 => {
                protect(run, READ | WRITE)?;
                transfer(nr::PREAD, file, run.start, run.length, run.at)?;
                protect(run, run.protection)?;
            }
            false => {
                for run in now.iter().filter(|_| !scratch.has_pages) {
                    // All pages at once, where the kernel can: one by one each costs a fault.
                    call!(nr::MADVISE, run.start, run.length, POPULATE_WRITE);
                }
                transfer_runs(nr::PREADV, file, now)?;
            }
        }
    }
    Ok(())
}

fn protect(run: &ImageRange, protection: u64) -> Result<(), isize> {
    checked(call!(nr::MPROTECT, run.start, run.length, protection)).map(|_| ())
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
