//! The native half of a Python zygote: a library loaded into an unmodified CPython from a sealed
//! memfd.
//!
//! ```text
//! interpreter ── imports ──▶ serve(): one message, one child, one answer, until the engine is gone
//!                               └─▶ child: enters init's namespaces, seals itself, returns into the interpreter
//! ```
//! The whole loop runs here with the GIL held, so waiting touches no Python object and the
//! children's pages stay shared. A live interpreter gives the GIL up between cells where there are
//! other threads (`requests.rs`). Children are made with CLONE_PARENT: they are the engine's, which
//! reads their end from a pidfd; losing the zygote loses no job. It uses the stable ABI only (PEP
//! 384) and no libc, so one library fits every CPython from 3.9 on, with whatever libc. clone3(2)
//! knows nothing of the libc's forking: with one thread, the thread id that the libc keeps is the
//! only thing that must be put right.
#![no_std]

mod clone;
mod copy;
mod image;
mod job;
mod layout;
mod requests;
mod runtime;
mod shelf;
mod signal_action;
mod stdout;
mod stdout_timer;
mod steps;
mod streams;
mod surroundings;
mod sys;
#[allow(dead_code, reason = "the other programs use the rest")]
mod wire;
mod written;

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ptr::{null, null_mut};

use clone::{CLONE_PARENT, CLONE_PIDFD};
use steps::Program;
use surroundings::Surroundings;
use sys::{Fd, call, nr};
use wire::{
    BIRTH_CHANNEL, BIRTH_EXTRA, BIRTH_OUTPUT, BIRTH_PIDS, BIRTH_PROGRAM, BIRTH_STDIN, Birth, CHANNEL_PACKET, Reply, channel, op,
};

type Object = *mut c_void;

// The part of CPython's stable ABI that is used; PEP 384.
unsafe extern "C" {
    fn PyModule_Create2(definition: *mut ModuleDefinition, version: c_int) -> Object;
    fn PyArg_ParseTuple(arguments: Object, format: *const c_char, ...) -> c_int;
    #[link_name = "_Py_BuildValue_SizeT"]
    fn Py_BuildValue(format: *const c_char, ...) -> Object;
    fn PyErr_SetString(kind: Object, message: *const c_char);
    fn PyOS_BeforeFork();
    fn PyOS_AfterFork_Parent();
    fn PyOS_AfterFork_Child();
    fn PyBuffer_Release(view: *mut Buffer);
    static PyExc_OSError: Object;
}

/// `Py_buffer`; its layout has been the same since 3.0, although only 3.11 made it part of the
/// stable ABI.
#[repr(C)]
struct Buffer {
    start: *mut c_void,
    /// The owner, the length in bytes, and what is not used.
    rest: [usize; 9],
}

/// `PyModuleDef` of interpreters with a GIL; those without have a longer object header and are
/// refused before this is loaded.
#[repr(C)]
struct ModuleDefinition {
    reference_count: isize,
    kind: Object,
    initialise: *const c_void,
    index: isize,
    copy: Object,
    name: *const c_char,
    documentation: *const c_char,
    size: isize,
    methods: *const Method,
    rest: [*const c_void; 4],
}

#[repr(C)]
struct Method {
    name: *const c_char,
    function: Option<unsafe extern "C" fn(Object, Object) -> Object>,
    flags: c_int,
    documentation: *const c_char,
}

const METH_VARARGS: c_int = 1;
const METH_NOARGS: c_int = 4;
const METH_O: c_int = 8;
const PYTHON_API_VERSION: c_int = 3;

struct Static<T>(core::cell::UnsafeCell<T>);
// SAFETY: touched with the GIL held, or by the interpreter's own thread alone.
unsafe impl<T> Sync for Static<T> {}

const fn method(name: &'static CStr, function: unsafe extern "C" fn(Object, Object) -> Object) -> Method {
    Method { name: name.as_ptr(), function: Some(function), flags: METH_VARARGS, documentation: null() }
}

/// A function that takes one argument, or none.
const fn plain(
    name: &'static CStr,
    function: unsafe extern "C" fn(Object, Object) -> Object,
    flags: c_int,
) -> Method {
    Method { name: name.as_ptr(), function: Some(function), flags, documentation: null() }
}

static METHODS: Static<[Method; 25]> = Static(core::cell::UnsafeCell::new([
    method(c"lay_out", lay_out),
    method(c"shelve", shelve),
    method(c"restrict", restrict),
    method(c"serve", serve),
    method(c"surroundings", surroundings),
    method(c"put_streams", put_streams),
    method(c"reads_nothing", reads_nothing),
    method(c"checkpoint", checkpoint),
    method(c"is_checkpoint", is_checkpoint),
    method(c"note_written", note_written),
    method(c"image", image),
    method(c"take", take),
    method(c"receive", receive),
    method(c"address", address),
    plain(c"open_output", stdout::open, METH_O),
    plain(c"open_timed_output", stdout::open_timed, METH_O),
    plain(c"open_cell_output", stdout::open_for_cells, METH_O),
    plain(c"begin_output", stdout::begin_cell, METH_O),
    plain(c"end_output", stdout::end_cell, METH_NOARGS),
    plain(c"drop_output", stdout::drop_memory, METH_NOARGS),
    plain(c"forked_output", stdout::forked, METH_NOARGS),
    plain(c"write_text", stdout::write_text, METH_O),
    plain(c"write_bytes", stdout::write_bytes, METH_O),
    plain(c"flush_output", stdout::flush_all, METH_NOARGS),
    Method { name: null(), function: None, flags: 0, documentation: null() },
]));

static DEFINITION: Static<ModuleDefinition> = Static(core::cell::UnsafeCell::new(ModuleDefinition {
    reference_count: 1,
    kind: null_mut(),
    initialise: null(),
    index: 0,
    copy: null_mut(),
    name: c"_sandtimer_zygote".as_ptr(),
    documentation: null(),
    size: -1,
    methods: METHODS.0.get() as *const Method,
    rest: [null(); 4],
}));

/// # Safety
/// Called by the interpreter when it imports the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PyInit__sandtimer_zygote() -> Object {
    // SAFETY: a definition that lives as long as the library.
    unsafe { PyModule_Create2(DEFINITION.0.get(), PYTHON_API_VERSION) }
}

/// `lay_out() -> int`: prepares the memory of a zygote for many children; before it serves. Always
/// 0.
unsafe extern "C" fn lay_out(_module: Object, _arguments: Object) -> Object {
    layout::lay_out();
    // SAFETY: the format makes a Python int of a C long.
    unsafe { Py_BuildValue(c"l".as_ptr(), 0 as c_long) }
}

/// `shelve(pool, heap) -> int`: see `shelf.rs`; `pool`: how large the pools of the interpreter's
/// allocator are; `heap`: whether the C library's heap may be moved. Always 0.
unsafe extern "C" fn shelve(_module: Object, arguments: Object) -> Object {
    let (mut pool, mut heap): (c_int, c_int) = (0, 0);
    // SAFETY: the format asks for two C ints.
    if unsafe { PyArg_ParseTuple(arguments, c"ii".as_ptr(), &raw mut pool, &raw mut heap) } == 0 {
        return null_mut();
    }
    shelf::shelve(pool as u64, heap != 0);
    // SAFETY: the format makes a Python int of a C long.
    unsafe { Py_BuildValue(c"l".as_ptr(), 0 as c_long) }
}

/// Whether this process, or what it is a fork of, has loaded what children inherit of their filter.
static IS_RESTRICTED: Static<bool> = Static(core::cell::UnsafeCell::new(false));

/// `restrict(filter) -> int`: loads a filter for this process and all its children; none where it
/// is empty. Always 0.
unsafe extern "C" fn restrict(_module: Object, arguments: Object) -> Object {
    let mut view = Buffer { start: null_mut(), rest: [0; 9] };
    // SAFETY: the format fills in one Py_buffer.
    if unsafe { PyArg_ParseTuple(arguments, c"y*".as_ptr(), &raw mut view) } == 0 {
        return null_mut();
    }
    let filter = steps::Text { pointer: view.start.cast(), length: view.rest[1] };
    let failed = filter.length > 0 && steps::seccomp(filter, 0) < 0;
    // SAFETY: one thread, GIL held; the view is given back; a static message and an exception that
    // the interpreter owns; an int of a C long.
    unsafe {
        *IS_RESTRICTED.0.get() = filter.length > 0 && !failed;
        PyBuffer_Release(&raw mut view);
        if failed {
            PyErr_SetString(PyExc_OSError, c"the kernel refuses the filter of this process's children".as_ptr());
            return null_mut();
        }
        Py_BuildValue(c"l".as_ptr(), 0 as c_long)
    }
}

/// `serve(orders) -> (channel, hurried)`: makes children as the engine asks, and returns in each of
/// them. Never returns in the zygote.
unsafe extern "C" fn serve(_module: Object, arguments: Object) -> Object {
    let mut orders: c_int = -1;
    // SAFETY: the format asks for one C int.
    if unsafe { PyArg_ParseTuple(arguments, c"i".as_ptr(), &raw mut orders) } == 0 {
        return null_mut();
    }
    sys::prctl(sys::PR_SET_DUMPABLE, 0);
    // No signal to the group of the process that started it reaches it; a group leader stays as it
    // is.
    call!(nr::SETSID);
    let thread_id = copy::thread_id_address();
    // SAFETY: one thread, GIL held.
    unsafe { *THREAD_ID.0.get() = thread_id };
    if thread_id.is_null() {
        // SAFETY: a static message and an exception that the interpreter owns.
        unsafe { PyErr_SetString(PyExc_OSError, c"the C library keeps its thread id where it was not found".as_ptr()) };
        return null_mut();
    }
    image::note_common();
    loop {
        let mut birth = Birth { program_length: 0, cgroup: u32::MAX, namespaces: u32::MAX, users: u32::MAX, hurried: 0 };
        // SAFETY: Birth is plain numbers; any bytes are a valid value of it.
        let bytes = unsafe { core::slice::from_raw_parts_mut((&raw mut birth).cast::<u8>(), size_of::<Birth>()) };
        let received = sys::receive(orders, bytes, 0);
        if received.length == sys::EINTR {
            continue;
        }
        if received.length <= 0 && received.length != sys::EINVAL {
            sys::exit(0);
        }
        let fds = &received.fds[..received.fd_count];
        if received.length == sys::EINVAL {
            answer(orders, sys::EMFILE, None);
        } else if fds.len() < BIRTH_EXTRA {
            answer(orders, sys::EINVAL, None);
        } else if let Some(channel) = bear(&birth, fds, orders, thread_id) {
            // SAFETY: the format makes Python ints of two C ints.
            return unsafe { Py_BuildValue(c"ii".as_ptr(), channel, birth.hurried) };
        }
        for fd in fds {
            sys::close(*fd);
        }
    }
}

/// Makes one child; in it, returns the descriptor of its channel once it is sealed.
fn bear(birth: &Birth, fds: &[Fd], orders: Fd, thread_id: *mut i32) -> Option<c_int> {
    const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
    const CLONE_CHILD_SETTID: u64 = 0x100_0000;
    const CLONE_NEWPID: usize = 0x2000_0000;
    let mut entered = 0;
    if let Some(users) = fds.get(birth.users as usize) {
        const CLONE_NEWUSER: usize = 0x1000_0000;
        entered = call!(nr::SETNS, *users, CLONE_NEWUSER);
    }
    if entered < 0 {
        answer(orders, entered, None);
        return None;
    }
    // Only for children: this process stays where it is; setns(2).
    entered = call!(nr::SETNS, fds[BIRTH_PIDS], CLONE_NEWPID);
    if entered < 0 {
        answer(orders, entered, None);
        return None;
    }
    let mut pidfd: Fd = -1;
    let flags = CLONE_PARENT | CLONE_PIDFD | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
    let mut arguments = clone::arguments(flags, &mut pidfd, fds.get(birth.cgroup as usize).copied(), 0);
    arguments.child_tid = thread_id as u64;
    // Always the first PID after init's, even if init had other children: a job cannot notice, and
    // init knows the PID.
    let number: i32 = 2;
    arguments.set_tid = &raw const number as u64;
    arguments.set_tid_size = 1;
    // SAFETY: the GIL is held, as these three ask.
    unsafe { PyOS_BeforeFork() };
    let pid = arguments.call();
    if pid == 0 {
        let channel = seal(birth, fds, orders);
        // SAFETY: as above.
        unsafe { PyOS_AfterFork_Child() };
        return Some(channel);
    }
    // SAFETY: as above.
    unsafe { PyOS_AfterFork_Parent() };
    answer(orders, pid, (pid > 0).then_some(pidfd));
    if pid > 0 {
        sys::close(pidfd);
    }
    None
}

/// Where the C library keeps the id of its main thread; the same in all children.
static THREAD_ID: Static<*mut i32> = Static(core::cell::UnsafeCell::new(null_mut()));

/// `surroundings() -> (int, int, int)`: how many threads this process has, whether it has children,
/// and its resident bytes; numbers that cannot be had are negative. In one call: each step of
/// Python's writes to pages that a copy shares.
unsafe extern "C" fn surroundings(_module: Object, _arguments: Object) -> Object {
    let Surroundings { threads, has_children, resident_bytes } = surroundings::look();
    let (threads, resident_bytes) = (threads as c_long, resident_bytes as c_long);
    // SAFETY: the format makes Python ints of two C longs and of an int between them.
    unsafe { Py_BuildValue(c"lil".as_ptr(), threads, c_int::from(has_children), resident_bytes) }
}

/// `put_streams(stdin, stdout, stderr) -> int`: makes the standard streams of these files, which
/// are closed; stdin that is -1 reads nothing. 0, or a negated errno.
unsafe extern "C" fn put_streams(_module: Object, arguments: Object) -> Object {
    let mut files: [c_int; 3] = [-1; 3];
    let [stdin, stdout, stderr] = &mut files;
    // SAFETY: the format asks for three C ints.
    if unsafe { PyArg_ParseTuple(arguments, c"iii".as_ptr(), &raw mut *stdin, &raw mut *stdout, &raw mut *stderr) } == 0 {
        return null_mut();
    }
    let put = streams::put(files);
    // SAFETY: the format makes a Python int of a C long.
    unsafe { Py_BuildValue(c"l".as_ptr(), put as c_long) }
}

/// `reads_nothing() -> int`: whether stdin is /dev/null.
unsafe extern "C" fn reads_nothing(_module: Object, _arguments: Object) -> Object {
    const NULL: u64 = 1 << 8 | 3;
    // `struct stat`: the sixth word is the device of a device file.
    let mut status = [0u64; 18];
    let is_null = call!(nr::FSTAT, 0, &raw mut status) == 0 && status[5] == NULL;
    // SAFETY: the format makes a Python int of a C int.
    unsafe { Py_BuildValue(c"i".as_ptr(), c_int::from(is_null)) }
}

/// `checkpoint(channel, nonce, ahead) -> int`: makes a copy of this process that waits until it is
/// to continue, and reports that on the channel in the interpreter's place: the first step of
/// Python after a fork costs more than the report. `ahead`: then writes to pages before a cell
/// does; see `written.rs`. Returns the copy's PID here, or a negative error that was not reported;
/// 0 in the copy, once it continues.
unsafe extern "C" fn checkpoint(_module: Object, arguments: Object) -> Object {
    let (mut channel, mut nonce, mut ahead): (c_int, u64, c_int) = (-1, 0, 0);
    // SAFETY: the format names the variables' types.
    if unsafe { PyArg_ParseTuple(arguments, c"iKi".as_ptr(), &raw mut channel, &raw mut nonce, &raw mut ahead) } == 0 {
        return null_mut();
    }
    let (every, mut before) = (!0u64, 0u64);
    // A signal must find neither a handler in the copy nor this process between two.
    call!(nr::RT_SIGPROCMASK, 2, &raw const every, &raw mut before, 8);
    // SAFETY: the GIL is held, as these three ask.
    unsafe { PyOS_BeforeFork() };
    // SAFETY: one thread, GIL held.
    let made = copy::make(unsafe { *THREAD_ID.0.get() });
    if made == 0 {
        drop_streams();
        copy::wait_to_go_on();
        // SAFETY: as above.
        unsafe {
            *IS_CHECKPOINT.0.get() = true;
            PyOS_AfterFork_Child();
            *IS_CHECKPOINT.0.get() = false;
        }
    } else {
        if made > 0 {
            let mut word = [0u8; 13];
            word[0] = b'K';
            word[1..9].copy_from_slice(&nonce.to_le_bytes());
            word[9..].copy_from_slice(&(made as u32).to_le_bytes());
            // If the engine does not receive this, it ends this process.
            call!(nr::WRITE, channel, word.as_ptr(), word.len());
        }
        // SAFETY: as above.
        unsafe { PyOS_AfterFork_Parent() };
    }
    call!(nr::RT_SIGPROCMASK, 2, &raw const before, 0, 8);
    if made > 0 && ahead != 0 {
        written::write_ahead(channel);
    }
    // SAFETY: the format makes a Python int of a C long.
    unsafe { Py_BuildValue(c"l".as_ptr(), made as c_long) }
}

/// Whether the at-fork handlers that are being called are those of a checkpoint.
static IS_CHECKPOINT: Static<bool> = Static(core::cell::UnsafeCell::new(false));

fn is_resumed_checkpoint() -> bool {
    // SAFETY: one thread, GIL held.
    unsafe { *IS_CHECKPOINT.0.get() }
}

/// `is_checkpoint() -> int`: whether the at-fork handlers that are being called are those of a
/// checkpoint, which is to be the interpreter, and not of a process that the code has forked.
unsafe extern "C" fn is_checkpoint(_module: Object, _arguments: Object) -> Object {
    // SAFETY: the format makes a Python int of a C int.
    unsafe { Py_BuildValue(c"i".as_ptr(), c_int::from(is_resumed_checkpoint())) }
}

/// `note_written() -> int`: see `written.rs`. Always 0.
unsafe extern "C" fn note_written(_module: Object, _arguments: Object) -> Object {
    written::note();
    // SAFETY: the format makes a Python int of a C long.
    unsafe { Py_BuildValue(c"l".as_ptr(), 0 as c_long) }
}

/// `image(file, base) -> int`: writes what this process is into a file; see `image.rs`. 0 in the
/// process that has become it.
unsafe extern "C" fn image(_module: Object, arguments: Object) -> Object {
    let (mut file, mut base): (c_int, u64) = (-1, 0);
    // SAFETY: the format asks for a C int and a C unsigned long.
    if unsafe { PyArg_ParseTuple(arguments, c"ik".as_ptr(), &raw mut file, &raw mut base) } == 0 {
        return null_mut();
    }
    let (every, mut before) = (!0u64, 0u64);
    call!(nr::RT_SIGPROCMASK, 2, &raw const every, &raw mut before, 8);
    let written = image::write(file, base);
    if written == 0 {
        drop_streams();
    }
    call!(nr::RT_SIGPROCMASK, 2, &raw const before, 0, 8);
    // SAFETY: the format makes a Python int of a C long.
    unsafe { Py_BuildValue(c"l".as_ptr(), written as c_long) }
}

/// `take(base, last) -> int`: becomes what is written in the image that comes next over the
/// channel, over `base`, over which there was `last`; -1 for none. The file that comes along is
/// descriptor 4 then. A negated errno if it cannot.
unsafe extern "C" fn take(_module: Object, arguments: Object) -> Object {
    let (mut base, mut last): (c_int, c_int) = (-1, -1);
    // SAFETY: the format asks for two C ints.
    if unsafe { PyArg_ParseTuple(arguments, c"ii".as_ptr(), &raw mut base, &raw mut last) } == 0 {
        return null_mut();
    }
    // SAFETY: one thread, GIL held.
    let failed = image::take([base, last], CHANNEL, unsafe { *THREAD_ID.0.get() });
    // SAFETY: as above.
    unsafe { Py_BuildValue(c"l".as_ptr(), failed as c_long) }
}

/// In the copy of a process with streams of its own: their reader must not wait for the end of a
/// process that never writes.
fn drop_streams() {
    let null = sys::open_at(sys::AT_FDCWD, c"/dev/null".as_ptr().cast(), 2, 0);
    for standard in 0..3 {
        call!(nr::DUP2, null, standard);
    }
    sys::close(null as Fd);
}

/// The channel's descriptor in a child.
const CHANNEL: Fd = 3;

/// In the child: enters the jail and releases everything else. Does not return if a step fails.
fn seal(birth: &Birth, fds: &[Fd], orders: Fd) -> Fd {
    sys::close(orders);
    for namespace in fds.iter().skip(birth.namespaces as usize) {
        let entered = call!(nr::SETNS, *namespace, 0);
        if entered < 0 {
            fail(fds[BIRTH_CHANNEL], entered, u64::MAX);
        }
    }
    stdout::map(fds[BIRTH_OUTPUT]);
    let mapped = Program::map(fds[BIRTH_PROGRAM], birth.program_length as usize);
    let Ok(program) = mapped else { fail(fds[BIRTH_CHANNEL], sys::EINVAL, u64::MAX) };
    let start = program.start();
    // Parked descriptors are above the standard ones, which are the zygote's own.
    for (target, fd) in fds[BIRTH_STDIN..BIRTH_STDIN + 3].iter().enumerate() {
        call!(nr::DUP2, *fd, target);
    }
    for (number, step) in program.enumerate() {
        let result = match step.header.op {
            op::SESSION => call!(nr::SETSID),
            op::SECCOMP | op::SECCOMP_REST => filter(&step, fds[BIRTH_CHANNEL]),
            _ => steps::apply(&step, &fds[BIRTH_EXTRA..]),
        };
        if result < 0 {
            tell_failure(fds[BIRTH_CHANNEL], result, number as u64, u8::from(step.header.required == 1));
            if step.header.required == 1 {
                sys::exit(1);
            }
        }
    }
    call!(nr::MUNMAP, start, birth.program_length);
    if fds[BIRTH_CHANNEL] != CHANNEL {
        call!(nr::DUP2, fds[BIRTH_CHANNEL], CHANNEL);
    }
    // What the interpreter executes does not have it.
    const F_SETFD: usize = 2;
    const FD_CLOEXEC: usize = 1;
    call!(nr::FCNTL, CHANNEL, F_SETFD, FD_CLOEXEC);
    call!(nr::CLOSE_RANGE, CHANNEL + 1, u32::MAX, 0);
    CHANNEL
}

/// Loads the filter, or the rest of one of which this process is under the other part.
fn filter(step: &steps::Step, channel: Fd) -> isize {
    // SAFETY: one thread, GIL held.
    let inherits = unsafe { *IS_RESTRICTED.0.get() };
    match (step.header.op == op::SECCOMP_REST && !inherits, step.header.number_count) {
        (true, _) => sys::EPERM,
        (false, 1) => steps::supervised(step, channel),
        (false, _) => steps::seccomp(step.string(0), 0),
    }
}

fn fail(channel: Fd, error: isize, number: u64) -> ! {
    tell_failure(channel, error, number, 1);
    sys::exit(1)
}

fn tell_failure(channel_fd: Fd, error: isize, number: u64, required: u8) {
    let mut packet = [0u8; 16];
    packet[0] = channel::FAILED;
    packet[1] = required;
    packet[4..8].copy_from_slice(&(-error as i32).to_ne_bytes());
    packet[8..].copy_from_slice(&number.to_ne_bytes());
    sys::send(channel_fd, &packet, None, 0);
}

fn answer(orders: Fd, result: isize, pidfd: Option<Fd>) {
    let reply = Reply { error: if result < 0 { -result as i32 } else { 0 }, pid: result.max(0) as i32 };
    // SAFETY: Reply is plain numbers without padding.
    let bytes = unsafe { core::slice::from_raw_parts((&raw const reply).cast::<u8>(), size_of::<Reply>()) };
    sys::send(orders, bytes, pidfd, 0);
}

static PACKET: Static<[u8; CHANNEL_PACKET]> = Static(core::cell::UnsafeCell::new([0; CHANNEL_PACKET]));

/// `receive(channel, releases_gil=0) -> (bytes, and six descriptors, -1 for those that did not
/// come)`: waits for the job, and puts the resource limits on this process that come before it.
/// `releases_gil`: other threads run until then; see `requests.rs`. Ends the process when the
/// engine has closed its end.
unsafe extern "C" fn receive(_module: Object, arguments: Object) -> Object {
    let (mut socket, mut releases_gil): (c_int, c_int) = (-1, 0);
    // SAFETY: the format asks for one C int, or two.
    if unsafe { PyArg_ParseTuple(arguments, c"i|i".as_ptr(), &raw mut socket, &raw mut releases_gil) } == 0 {
        return null_mut();
    }
    // SAFETY: the interpreter's own thread, which alone receives.
    let packet = unsafe { &mut *PACKET.0.get() };
    let Some((received, start)) = requests::next(socket, packet, releases_gil != 0) else { sys::exit(0) };
    let [first, second, third, fourth, fifth, sixth] = [0, 1, 2, 3, 4, 5].map(|index: usize| received.fds[index]);
    // SAFETY: the bytes lie within the packet; the interpreter copies them.
    unsafe {
        let length = (received.length as usize - start) as c_long;
        let bytes = packet.as_ptr().add(start);
        Py_BuildValue(c"y#iiiiii".as_ptr(), bytes, length, first, second, third, fourth, fifth, sixth)
    }
}

/// `address(buffer) -> int`: where a bytes-like object lies. It is the caller's to keep it alive.
unsafe extern "C" fn address(_module: Object, arguments: Object) -> Object {
    let mut view = Buffer { start: null_mut(), rest: [0; 9] };
    // SAFETY: the format fills in one Py_buffer, which is given back; the other makes an int of a C
    // unsigned long.
    unsafe {
        if PyArg_ParseTuple(arguments, c"y*".as_ptr(), &raw mut view) == 0 {
            return null_mut();
        }
        let start = view.start as usize;
        PyBuffer_Release(&raw mut view);
        Py_BuildValue(c"k".as_ptr(), start)
    }
}
