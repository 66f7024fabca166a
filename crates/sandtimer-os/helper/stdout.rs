//! Standard output of a zygote's child, written to memory that the engine shares: as fast as a
//! buffer, and nothing of it is lost with the process.
//!
//! ```text
//! print ─▶ memory ─┬─▶ the pipe: at once where nothing was written for a moment, when it is full, flushed, or at the end
//!                  └─▶ the engine: a moment after it read the pipe, and when the process is dead
//! ```
//! Each cell of a context (`open_cell_output`) passes the file of its interpreter's memory: a
//! checkpoint from before the first cell maps it with its next cell. Elsewhere
//! (`open_timed_output`) the memory is the process's own, and a timer writes what waits there
//! (`stdout_timer.rs`).
//!
//! One word describes the contents of the memory (`wire::stdout`): how much was written, how much
//! of it was taken, and whether its process is writing it to the pipe. Every writer holds the GIL.
//! Where descriptor 1 is not the pipe any more, or the process is a fork, the memory is a buffer
//! that the engine does not look into.

use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::image::nr;
use crate::sys::{self, Fd, PollFd, call};
use crate::wire::stdout::{BUSY, CAPACITY, GENERATION, HEADER, LENGTH, PRIVATE, SIZE, TAKEN};
use crate::stdout_timer;
use crate::{Buffer, Object, Py_BuildValue, PyBuffer_Release, PyExc_OSError, Static, is_resumed_checkpoint};

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
    fn PyEval_SaveThread() -> *mut c_void;
    fn PyEval_RestoreThread(state: *mut c_void);
    fn Py_AtExit(function: extern "C" fn()) -> c_int;
    fn PyErr_CheckSignals() -> c_int;
    fn PyErr_Clear();
    fn PyErr_SetObject(kind: Object, value: Object);
    fn PyObject_CallFunctionObjArgs(callable: Object, ...) -> Object;
    fn PyObject_GetBuffer(object: Object, view: *mut Buffer, flags: c_int) -> c_int;
    fn PyUnicode_AsUTF8AndSize(text: Object, length: *mut isize) -> *const u8;
    fn PyUnicode_GetLength(text: Object) -> isize;
    fn PyLong_FromSsize_t(number: isize) -> Object;
    fn PyLong_AsLong(number: Object) -> core::ffi::c_long;
    fn Py_IncRef(object: Object);
}

const STDOUT: Fd = 1;
/// After this long without a write to the pipe, in nanoseconds, the next one goes there at once.
const QUIET: u64 = 20_000_000;
/// A pipe that has room at all takes this many bytes without blocking; pipe(7).
const PIECE: usize = 4096;
const POLLOUT: i16 = 4;
const READ_WRITE: usize = 3;
const PRIVATE_ANONYMOUS: usize = 0x22;
/// Characters of a text that is written as it is.
const LONGEST: isize = 65536;

/// What this process knows of its output.
struct Output {
    /// 0: there is none, and everything is written at once.
    memory: usize,
    /// Device and inode of the pipe.
    pipe: [u64; 2],
    /// When the pipe was last written to.
    written_at: u64,
    /// The pipe has the beginning of a line.
    is_mid_line: bool,
    is_fork: bool,
    /// No engine looks into the memory.
    is_timed: bool,
    /// No cell is executed: what threads write then is written at once.
    is_between_cells: bool,
    /// Device and inode of the memory that a cell has brought.
    file: [u64; 2],
    /// What takes a text that has no UTF-8: the stream's own way to write.
    other_way: Object,
}

static OUTPUT: Static<Output> = Static(core::cell::UnsafeCell::new(Output {
    memory: 0,
    pipe: [0; 2],
    written_at: 0,
    is_mid_line: false,
    is_fork: false,
    is_timed: false,
    is_between_cells: false,
    file: [0; 2],
    other_way: null_mut(),
}));

fn output() -> &'static mut Output {
    // SAFETY: touched with the GIL held, and never across a call that gives it up.
    unsafe { &mut *OUTPUT.0.get() }
}

/// Maps the memory that a child is born with; without any that can be mapped, output is written at
/// once.
pub fn map(file: Fd) {
    const SHARED: usize = 1;
    let mapped = call!(nr::MMAP, 0, SIZE, READ_WRITE, SHARED, file, 0);
    if !(-4095..=0).contains(&mapped) {
        output().memory = mapped as usize;
    }
}

/// `open_output(other_way) -> int`: has this process write what is its standard output now through
/// the memory; whether it has any.
pub unsafe extern "C" fn open(_module: Object, other_way: Object) -> Object {
    let output = output();
    // The engine looks into the memory only once something has come by the pipe.
    (output.written_at, output.is_mid_line) = (0, false);
    match identity(STDOUT) {
        Some(pipe) if output.memory != 0 => output.pipe = pipe,
        _ => output.memory = 0,
    }
    // SAFETY: the interpreter's own object, which is kept for good; an int of a C long.
    unsafe {
        Py_IncRef(other_way);
        output.other_way = other_way;
        PyLong_FromSsize_t(isize::from(output.memory != 0))
    }
}

/// `open_cell_output(other_way) -> int`: has this process write through the memory that cells
/// bring, while they are executed; 1.
pub unsafe extern "C" fn open_for_cells(_module: Object, other_way: Object) -> Object {
    let output = output();
    (output.memory, output.is_between_cells) = (0, true);
    // SAFETY: the interpreter's own object, which is kept for good; an int of a C long.
    unsafe {
        Py_IncRef(other_way);
        output.other_way = other_way;
        PyLong_FromSsize_t(1)
    }
}

/// `begin_output(file) -> int`: begins a cell, whose pipe is standard output now and whose memory
/// is this file, which is closed. Returns whether it could be mapped; else everything is written at
/// once.
pub unsafe extern "C" fn begin_cell(_module: Object, number: Object) -> Object {
    // SAFETY: any object may be asked; one that is not a number gives -1, which is not a file.
    let file = unsafe { PyLong_AsLong(number) } as Fd;
    let output = output();
    let found = identity(file).unwrap_or_default();
    if output.memory == 0 || output.file != found {
        unmap(output);
        map(file);
        output.file = found;
    }
    call!(nr::CLOSE, file);
    if output.memory != 0 {
        // What an earlier cell has left is not this one's.
        discard(word(output.memory));
    }
    output.pipe = identity(STDOUT).unwrap_or_default();
    (output.written_at, output.is_mid_line, output.is_between_cells) = (0, false, false);
    // SAFETY: an int of a C long.
    unsafe {
        PyErr_Clear();
        PyLong_FromSsize_t(isize::from(output.memory != 0))
    }
}

/// `end_output(_)`: a cell has ended: what waits is written to its pipe, and what comes later is at
/// once.
pub unsafe extern "C" fn end_cell(_module: Object, _arguments: Object) -> Object {
    // A second time, because a signal may have interrupted the first.
    if output().memory != 0 && !flush_quietly() && !flush_quietly() {
        // The pipe is broken, or the cell has closed it: what waits is lost, as with a buffer.
        discard(word(output().memory));
    }
    output().is_between_cells = true;
    // SAFETY: an int of a C long.
    unsafe { PyLong_FromSsize_t(0) }
}

/// `drop_output(_)`: between two cells, has this process share no memory; the next cell brings it
/// again.
pub unsafe extern "C" fn drop_memory(_module: Object, _arguments: Object) -> Object {
    unmap(output());
    // SAFETY: an int of a C long.
    unsafe { PyLong_FromSsize_t(0) }
}

fn unmap(output: &mut Output) {
    if output.memory != 0 {
        call!(nr::MUNMAP, output.memory, SIZE);
        output.memory = 0;
    }
}

/// `open_timed_output(other_way) -> int`: the same, with memory of this process's own.
pub unsafe extern "C" fn open_timed(module: Object, other_way: Object) -> Object {
    let output = output();
    if output.memory == 0 && stdout_timer::install() {
        let own = call!(nr::MMAP, 0, SIZE, READ_WRITE, PRIVATE_ANONYMOUS, -1isize, 0);
        if !(-4095..=0).contains(&own) {
            (output.memory, output.is_timed) = (own as usize, true);
            // What objects print while they are destroyed comes when the stream is gone.
            // SAFETY: a function of this library, which stays loaded.
            unsafe { Py_AtExit(write_rest) };
        }
    }
    // SAFETY: as this.
    unsafe { open(module, other_way) }
}

/// `forked_output(_)`: in a fork, which shares neither the memory nor what is in it.
pub unsafe extern "C" fn forked(_module: Object, _arguments: Object) -> Object {
    let output = output();
    if is_resumed_checkpoint() {
        // A copy that takes the interpreter's place, and its memory.
    } else if output.is_timed {
        // It has a copy of what waits, as of any buffer, and nothing that writes it.
        word(output.memory).fetch_and(!BUSY, Ordering::AcqRel);
        stdout_timer::forget();
    } else if output.memory != 0 && !output.is_fork {
        output.is_fork = true;
        make_own(output);
    }
    // SAFETY: an int of a C long.
    unsafe { PyLong_FromSsize_t(0) }
}

/// Puts empty memory of this process's own in the place of the shared one: what waited there was
/// written before the fork, and what its parent has put there since is the parent's to write.
fn make_own(output: &mut Output) {
    const MAYMOVE_FIXED: usize = 3;
    let own = call!(nr::MMAP, 0, SIZE, READ_WRITE, PRIVATE_ANONYMOUS, -1isize, 0);
    if (-4095..0).contains(&own) {
        output.memory = 0;
        return;
    }
    word(own as usize).store(PRIVATE, Ordering::Release);
    if call!(nr::MREMAP, own, SIZE, SIZE, MAYMOVE_FIXED, output.memory) < 0 {
        output.memory = 0;
    }
}

/// `write_text(text) -> int`: as the stream's own `write`.
pub unsafe extern "C" fn write_text(_module: Object, text: Object) -> Object {
    let mut length = 0isize;
    // SAFETY: any object may be asked; the bytes live as long as the text.
    let (characters, bytes) = unsafe {
        let characters = PyUnicode_GetLength(text);
        // A text keeps its UTF-8: not one that is long.
        let is_short = (0..=LONGEST).contains(&characters);
        (characters, if is_short { PyUnicode_AsUTF8AndSize(text, &raw mut length) } else { null() })
    };
    if bytes.is_null() {
        // Not a text, one with half a character, or a long one: the stream knows what is to become
        // of it. SAFETY: an object that is kept for good, and one that the caller holds.
        return unsafe {
            PyErr_Clear();
            PyObject_CallFunctionObjArgs(output().other_way, text, null::<c_void>())
        };
    }
    // SAFETY: the interpreter passes `length` valid bytes.
    let bytes = unsafe { core::slice::from_raw_parts(bytes, length as usize) };
    match write(bytes) {
        // SAFETY: an int of a C long.
        true => unsafe { PyLong_FromSsize_t(characters) },
        false => null_mut(),
    }
}

/// `write_bytes(bytes) -> int`: as `write` of the buffer below the stream.
pub unsafe extern "C" fn write_bytes(_module: Object, object: Object) -> Object {
    let mut view = Buffer { start: null_mut(), rest: [0; 9] };
    // SAFETY: any object may be asked; the view is filled in, and given back.
    unsafe {
        if PyObject_GetBuffer(object, &raw mut view, 0) < 0 {
            return null_mut();
        }
        let length = view.rest[1];
        let is_written =
            length == 0 || write(core::slice::from_raw_parts(view.start.cast::<u8>().cast_const(), length));
        PyBuffer_Release(&raw mut view);
        if is_written { PyLong_FromSsize_t(length as isize) } else { null_mut() }
    }
}

/// `flush_output()`: as `flush`.
pub unsafe extern "C" fn flush_all(_module: Object, _arguments: Object) -> Object {
    if output().memory != 0 && !flush() {
        return null_mut();
    }
    // SAFETY: the format makes None.
    unsafe { Py_BuildValue(c"".as_ptr()) }
}

/// Whether all of it is written, or kept; an exception is set where not.
fn write(bytes: &[u8]) -> bool {
    if output().memory == 0 || output().is_between_cells {
        return write_through(bytes);
    }
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = append(rest);
        rest = &rest[written..];
        if !rest.is_empty() && !flush() {
            return false;
        }
    }
    let output = output();
    // Forks write to the pipe line by line, and the rest of a line that is there in part follows at
    // once.
    let ends_line = (output.is_fork || output.is_mid_line) && bytes.contains(&b'\n');
    let is_due = ends_line || !output.is_fork && now().saturating_sub(output.written_at) > QUIET;
    if !is_due {
        if output.is_timed {
            stdout_timer::set();
        }
        return true;
    }
    let is_flushed = flush();
    self::output().is_mid_line = bytes.last() != Some(&b'\n');
    is_flushed
}

/// Puts as much into the memory as there is room for; what fits into it as a whole, whole or not at
/// all: a handler of a signal may write while room is made.
fn append(bytes: &[u8]) -> usize {
    let output = output();
    let word = word(output.memory);
    let mut state = word.load(Ordering::Acquire);
    if is_empty(state) && !output.is_fork {
        state = settle(output, word, state);
    }
    loop {
        let length = (state & LENGTH) as usize;
        let room = CAPACITY.saturating_sub(length).min(bytes.len());
        if room == 0 || room < bytes.len() && bytes.len() <= CAPACITY {
            return 0;
        }
        // SAFETY: within the mapping; the writer holds the GIL.
        unsafe {
            let to = (output.memory as *mut u8).add(HEADER + length);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, room);
        }
        match word.compare_exchange(state, state + room as u64, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return room,
            // The engine has taken what there was.
            Err(other) => state = other,
        }
    }
}

/// Whether nothing waits in the memory, and no thread is writing it to the pipe.
fn is_empty(state: u64) -> bool {
    state & BUSY == 0 && (state & TAKEN) / (LENGTH + 1) >= state & LENGTH
}

/// Begins the memory again, and notes whether the engine may take what will be there.
fn settle(output: &Output, word: &AtomicU64, state: u64) -> u64 {
    let private = if identity(STDOUT) == Some(output.pipe) { 0 } else { PRIVATE };
    let settled = (state & !(LENGTH | TAKEN | PRIVATE)).wrapping_add(GENERATION) | private;
    match word.compare_exchange(state, settled, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => settled,
        Err(other) => other,
    }
}

/// Writes what is in the memory to the pipe. False where an exception is set.
fn flush() -> bool {
    let word = word(output().memory);
    let has_output = loop {
        let state = word.load(Ordering::Acquire);
        if state & BUSY != 0 {
            // Another thread does.
            if !interruptible(|| sys::poll(&mut [], 1)) {
                return false;
            }
            continue;
        }
        if word.compare_exchange(state, state | BUSY, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            break !is_empty(state);
        }
    };
    let is_written = empty(word);
    if has_output {
        // Without a write to the pipe the engine does not inspect the memory: the next text must
        // not wait there.
        output().written_at = now();
    }
    if !is_written {
        word.fetch_and(!BUSY, Ordering::AcqRel);
    }
    is_written
}

/// From where to where something waits; `None`, with the memory let go of, when nothing does. For
/// the writer that has it.
fn unwritten(word: &AtomicU64) -> Option<(usize, usize)> {
    loop {
        let state = word.load(Ordering::Acquire);
        let (length, taken) = ((state & LENGTH) as usize, ((state & TAKEN) / (LENGTH + 1)) as usize);
        if taken < length {
            return Some((taken, length));
        }
        let next = (state & !(BUSY | LENGTH | TAKEN)).wrapping_add(GENERATION);
        if word.compare_exchange(state, next, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return None;
        }
    }
}

/// As [`flush`], without an exception.
fn flush_quietly() -> bool {
    let is_written = flush();
    // SAFETY: the GIL is held.
    unsafe { PyErr_Clear() };
    is_written
}

/// Drops what waits in the memory.
fn discard(word: &AtomicU64) {
    // Cannot fail: the function returns a state for each.
    let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
        Some((state & !(BUSY | LENGTH | TAKEN)).wrapping_add(GENERATION))
    });
}

/// Writes until there is nothing left, and lets go of the memory then.
fn empty(word: &AtomicU64) -> bool {
    while let Some((taken, length)) = unwritten(word) {
        if sys::poll(&mut [PollFd { fd: STDOUT, events: POLLOUT, revents: 0 }], 0) == 0 {
            let waits = || sys::poll(&mut [PollFd { fd: STDOUT, events: POLLOUT, revents: 0 }], -1);
            without_gil(waits);
            continue;
        }
        let from = output().memory + HEADER + taken;
        match call!(nr::WRITE, STDOUT, from, (length - taken).min(PIECE)) {
            written if written >= 0 => {
                word.fetch_add(written as u64 * (LENGTH + 1), Ordering::AcqRel);
            }
            error if error == sys::EINTR || error == sys::EAGAIN => {
                let waits = || sys::poll(&mut [PollFd { fd: STDOUT, events: POLLOUT, revents: 0 }], 100);
                without_gil(waits);
            }
            error => return raise(error),
        }
    }
    true
}

/// Writes what waits, as far as the pipe has room; for a handler of a signal, which may have
/// interrupted any of this. False where something is left.
pub fn write_without_waiting() -> bool {
    let memory = output().memory;
    let word = word(memory);
    let state = word.load(Ordering::Acquire);
    let is_taken = state & BUSY == 0
        && word.compare_exchange(state, state | BUSY, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !is_taken {
        return false;
    }
    while let Some((taken, length)) = unwritten(word) {
        let has_room = sys::poll(&mut [PollFd { fd: STDOUT, events: POLLOUT, revents: 0 }], 0) == 1;
        let piece = (length - taken).min(PIECE);
        let written = if has_room { call!(nr::WRITE, STDOUT, memory + HEADER + taken, piece) } else { -1 };
        if written <= 0 {
            word.fetch_and(!BUSY, Ordering::AcqRel);
            // If the bytes cannot be written at all, the program's next write fails.
            return has_room;
        }
        word.fetch_add(written as u64 * (LENGTH + 1), Ordering::AcqRel);
    }
    true
}

/// At the end of the interpreter.
extern "C" fn write_rest() {
    // Another thread may be writing; one that was ended in the middle is not waited for.
    let mut turns = 0;
    while !write_without_waiting() && turns < 100 {
        let is_busy = word(output().memory).load(Ordering::Acquire) & BUSY != 0;
        sys::poll(&mut [PollFd { fd: STDOUT, events: POLLOUT, revents: 0 }], if is_busy { 0 } else { -1 });
        if is_busy {
            sys::poll(&mut [], 10);
            turns += 1;
        }
    }
}

/// Writes at once.
fn write_through(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (start, length) = (rest.as_ptr() as usize, rest.len());
        let mut written = 0;
        let writes = || {
            written = call!(nr::WRITE, STDOUT, start, length);
            written
        };
        let goes_on = interruptible(writes);
        if !goes_on {
            return false;
        }
        match written {
            count if count >= 0 => rest = &rest[count as usize..],
            error if error == sys::EINTR => {}
            error if error == sys::EAGAIN => {
                sys::poll(&mut [PollFd { fd: STDOUT, events: POLLOUT, revents: 0 }], 100);
            }
            error => return raise(error),
        }
    }
    true
}

/// Does something that may block while other threads run. Handlers of signals run later: one that
/// writes would wait for the thread that it has interrupted.
fn without_gil(block: impl FnOnce() -> isize) {
    // SAFETY: the GIL is held here, and again when this returns.
    unsafe {
        let state = PyEval_SaveThread();
        block();
        PyEval_RestoreThread(state);
    }
}

/// The same, with handlers of signals at its end. False where one has raised an exception.
fn interruptible(block: impl FnOnce() -> isize) -> bool {
    without_gil(block);
    // SAFETY: the GIL is held.
    unsafe { PyErr_CheckSignals() == 0 }
}

fn raise(error: isize) -> bool {
    // SAFETY: the format makes a tuple of an int and a text, by which OSError finds its own kind.
    unsafe {
        let value = Py_BuildValue(c"(is)".as_ptr(), -error as c_int, c"cannot write to standard output".as_ptr());
        PyErr_SetObject(PyExc_OSError, value);
    }
    false
}

fn word(memory: usize) -> &'static AtomicU64 {
    // SAFETY: the first word of a mapping that lasts; every process that shares it uses it as an
    // atomic.
    unsafe { &*(memory as *const AtomicU64) }
}

/// Device and inode of what a descriptor is.
fn identity(file: Fd) -> Option<[u64; 2]> {
    let mut status = [0u64; 18];
    (call!(nr::FSTAT, file, status.as_mut_ptr()) == 0).then_some([status[0], status[1]])
}

pub fn now() -> u64 {
    const MONOTONIC_COARSE: c_int = 6;
    let mut time = [0i64; 2];
    // SAFETY: room for what it fills in.
    unsafe { clock_gettime(MONOTONIC_COARSE, &raw mut time) };
    (time[0] as u64).wrapping_mul(1_000_000_000).wrapping_add(time[1] as u64)
}
