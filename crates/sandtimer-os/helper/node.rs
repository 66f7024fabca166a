//! The native half of a live JavaScript interpreter: an add-on that an unmodified Node.js loads
//! from a sealed memfd.
//!
//! ```text
//! ready() ─▶ settings ─▶ next(): sleeps until a cell comes ─▶ its streams are in place ─▶ answer() ─▶ next()
//! ```
//! While the engine asks for nothing the interpreter's only JavaScript thread sleeps here, so no
//! timer and no promise of an earlier cell runs then. A cell's messages carry the nonce that came
//! with it, which JavaScript can never read: what another thread or a child process writes to the
//! channel does not count. It uses the stable ABI (Node-API) only, and no libc.
#![no_std]

mod job;
mod runtime;
mod streams;
#[allow(dead_code, reason = "the other programs use the rest")]
mod sys;
#[allow(dead_code, reason = "the engine and the other programs use the rest")]
mod wire;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::{null, null_mut};

use sys::{Fd, call, nr};
use wire::{CHANNEL_PACKET, channel, script};

type Environment = *mut c_void;
type Value = *mut c_void;
type Callback = unsafe extern "C" fn(Environment, *mut c_void) -> Value;

// The part of Node-API that is used.
unsafe extern "C" {
    fn napi_create_function(
        env: Environment,
        name: *const c_char,
        length: usize,
        function: Callback,
        data: *mut c_void,
        result: *mut Value,
    ) -> i32;
    fn napi_set_named_property(env: Environment, object: Value, name: *const c_char, value: Value) -> i32;
    fn napi_get_cb_info(
        env: Environment,
        info: *mut c_void,
        count: *mut usize,
        arguments: *mut Value,
        this: *mut Value,
        data: *mut *mut c_void,
    ) -> i32;
    fn napi_get_value_string_utf8(
        env: Environment,
        value: Value,
        buffer: *mut u8,
        size: usize,
        length: *mut usize,
    ) -> i32;
    fn napi_create_string_utf8(env: Environment, text: *const u8, length: usize, result: *mut Value) -> i32;
    fn napi_get_value_int32(env: Environment, value: Value, result: *mut i32) -> i32;
    fn napi_create_int32(env: Environment, number: i32, result: *mut Value) -> i32;
    fn napi_get_buffer_info(env: Environment, value: Value, data: *mut *const u8, length: *mut usize) -> i32;
}

/// The channel's descriptor.
const CHANNEL: Fd = 3;

struct State {
    packet: [u8; CHANNEL_PACKET],
    nonce: [u8; script::NONCE],
}

struct Static<T>(UnsafeCell<T>);
// SAFETY: only the interpreter's main thread has the functions that touch it.
unsafe impl<T> Sync for Static<T> {}

static STATE: Static<State> =
    Static(UnsafeCell::new(State { packet: [0; CHANNEL_PACKET], nonce: [0; script::NONCE] }));

/// # Safety
/// Called by Node.js when it loads the add-on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn napi_register_module_v1(env: Environment, exports: Value) -> Value {
    let functions: [(&CStr, Callback); 5] =
        [(c"ready", ready), (c"next", next), (c"answer", answer), (c"display", display), (c"write", write)];
    for (name, function) in functions {
        let mut made = null_mut();
        // SAFETY: names and functions live as long as the library.
        unsafe {
            napi_create_function(env, name.as_ptr(), name.count_bytes(), function, null_mut(), &raw mut made);
            napi_set_named_property(env, exports, name.as_ptr(), made);
        }
    }
    exports
}

/// At most two arguments of a call.
///
/// # Safety
/// `info` is that of the call.
unsafe fn arguments(env: Environment, info: *mut c_void) -> [Value; 2] {
    let (mut count, mut values) = (2, [null_mut(); 2]);
    // SAFETY: room for as many as are asked for.
    unsafe { napi_get_cb_info(env, info, &raw mut count, values.as_mut_ptr(), null_mut(), null_mut()) };
    values
}

/// # Safety
/// `length` bytes lie at `text`.
unsafe fn string(env: Environment, text: *const u8, length: usize) -> Value {
    let mut made = null_mut();
    // SAFETY: the caller passes `length` valid bytes; the interpreter copies them.
    unsafe { napi_create_string_utf8(env, text, length, &raw mut made) };
    made
}

fn number(env: Environment, value: i32) -> Value {
    let mut made = null_mut();
    // SAFETY: a place for one value.
    unsafe { napi_create_int32(env, value, &raw mut made) };
    made
}

/// The next packet that is long enough to be one. Ends the process when the engine has closed its
/// end.
fn receive(packet: &mut [u8]) -> sys::Received {
    loop {
        let received = sys::receive(CHANNEL, packet, 0);
        if received.length == sys::EINTR {
            continue;
        }
        if received.length <= 0 && received.length != sys::EINVAL {
            sys::exit(0);
        }
        return received;
    }
}

/// `ready() -> string`: reports that the interpreter is ready, waits until a context takes it,
/// applies the resource limits that come then, and returns the context's settings.
unsafe extern "C" fn ready(env: Environment, _info: *mut c_void) -> Value {
    const F_SETFD: usize = 2;
    const FD_CLOEXEC: usize = 1;
    call!(nr::FCNTL, CHANNEL, F_SETFD, FD_CLOEXEC);
    sys::send(CHANNEL, &[channel::READY], None, 0);
    // SAFETY: one thread.
    let state = unsafe { &mut *STATE.0.get() };
    let received = receive(&mut state.packet);
    let Some(start) = job::prepare(&state.packet, received.length) else { sys::exit(0) };
    // SAFETY: the bytes lie within the packet.
    unsafe { string(env, state.packet.as_ptr().add(start), received.length as usize - start) }
}

/// `next() -> string`: waits for the next cell, puts its streams in place, and returns its mode
/// followed by its text.
unsafe extern "C" fn next(env: Environment, _info: *mut c_void) -> Value {
    // SAFETY: one thread.
    let state = unsafe { &mut *STATE.0.get() };
    loop {
        let received = receive(&mut state.packet);
        let body = usize::try_from(received.length).unwrap_or(0);
        let fds = &received.fds[..received.fd_count];
        let request = state.packet.get(size_of::<wire::JobHeader>()..body).unwrap_or_default();
        match request.split_first() {
            Some((b'C', nonce)) if nonce.len() == 8 => no_checkpoint(nonce),
            Some((b'X', rest)) if rest.len() == size_of::<script::Cell>() && fds.len() >= 3 => {
                // SAFETY: as long as that, and plain bytes.
                let cell = unsafe { rest.as_ptr().cast::<script::Cell>().read_unaligned() };
                state.nonce = cell.nonce;
                return take(env, &cell, fds);
            }
            _ => fds.iter().for_each(|fd| sys::close(*fd)),
        }
    }
}

/// Reports that there is no checkpoint.
fn no_checkpoint(nonce: &[u8]) {
    let reason = script::NO_CHECKPOINT.as_bytes();
    let mut said = [0u8; 13 + script::NO_CHECKPOINT.len()];
    said[0] = b'K';
    said[1..9].copy_from_slice(nonce);
    said[13..].copy_from_slice(reason);
    sys::send(CHANNEL, &said, None, 0);
}

/// Puts a cell's streams in place: its stdout, stderr, its stdin where it has one, and its text.
fn take(env: Environment, cell: &script::Cell, fds: &[Fd]) -> Value {
    let (streams, text) = fds.split_at(fds.len() - 1);
    // Before the streams take their places, where it may have come.
    let mapped = call!(nr::MMAP, 0, cell.length, 1, 2, text[0], 0);
    sys::close(text[0]);
    let stdin = streams.get(2).copied().unwrap_or(-1);
    if streams::put([stdin, streams[0], streams[1]]) < 0 {
        // What it prints would come where it is not looked for.
        sys::exit(1);
    }
    if mapped < 0 {
        // Not even its mode: it is no cell.
        // SAFETY: nothing is read.
        return unsafe { string(env, null(), 0) };
    }
    // SAFETY: a mapping of that length.
    let made = unsafe { string(env, mapped as *const u8, cell.length as usize) };
    call!(nr::MUNMAP, mapped, cell.length);
    made
}

/// `answer(raised, text)`: the end of a cell.
unsafe extern "C" fn answer(env: Environment, info: *mut c_void) -> Value {
    // SAFETY: of this call.
    let [raised, text] = unsafe { arguments(env, info) };
    let mut kind = 0;
    // SAFETY: a place for one number.
    unsafe { napi_get_value_int32(env, raised, &raw mut kind) };
    let last = if kind == 0 { script::RETURNED } else { script::RAISED };
    // SAFETY: a value of this call.
    number(env, unsafe { say(env, text, [script::PART, last]) })
}

/// `display(text)`: something that a cell shows.
unsafe extern "C" fn display(env: Environment, info: *mut c_void) -> Value {
    // SAFETY: of this call; a value of it.
    unsafe {
        let [text, _] = arguments(env, info);
        number(env, say(env, text, [script::DISPLAY_PART, script::DISPLAY]))
    }
}

/// Sends a text in packets, each with the cell's nonce; `kinds` are that of all but the last, and
/// that of the last. A negated errno, or 0.
///
/// # Safety
/// `text` is a value of the call.
unsafe fn say(env: Environment, text: Value, kinds: [u8; 2]) -> i32 {
    let mut length = 0;
    // SAFETY: without a buffer it only measures.
    if unsafe { napi_get_value_string_utf8(env, text, null_mut(), 0, &raw mut length) } != 0 {
        return sys::EINVAL as i32;
    }
    let mapped = call!(nr::MMAP, 0, length + 1, 3, 0x22, -1isize, 0);
    if mapped < 0 {
        return mapped as i32;
    }
    // SAFETY: a mapping of that length, which is this function's own.
    let bytes = unsafe {
        napi_get_value_string_utf8(env, text, mapped as *mut u8, length + 1, &raw mut length);
        core::slice::from_raw_parts(mapped as *const u8, length)
    };
    // SAFETY: one thread.
    let state = unsafe { &mut *STATE.0.get() };
    let mut rest = bytes;
    loop {
        let (now, later) = rest.split_at(rest.len().min(script::MOST_OF_ONE));
        let end = script::HEADER + now.len();
        state.packet[0] = script::SAID;
        state.packet[1..=script::NONCE].copy_from_slice(&state.nonce);
        state.packet[script::NONCE + 1] = kinds[usize::from(later.is_empty())];
        state.packet[script::HEADER..end].copy_from_slice(now);
        while sys::send(CHANNEL, &state.packet[..end], None, 0) == sys::EINTR {}
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    call!(nr::MUNMAP, mapped, length + 1);
    0
}

/// `write(descriptor, bytes) -> int`: writes all of it, and waits even if the descriptor was made
/// non-blocking. A negated errno, or 0.
unsafe extern "C" fn write(env: Environment, info: *mut c_void) -> Value {
    let (mut fd, mut data, mut length) = (-1, null(), 0);
    // SAFETY: of this call; places for one number and one buffer.
    unsafe {
        let [descriptor, bytes] = arguments(env, info);
        if napi_get_value_int32(env, descriptor, &raw mut fd) != 0
            || napi_get_buffer_info(env, bytes, &raw mut data, &raw mut length) != 0
        {
            return number(env, sys::EINVAL as i32);
        }
    }
    while length > 0 {
        match call!(nr::WRITE, fd, data, length) {
            sys::EINTR => {}
            sys::EAGAIN => {
                const POLLOUT: i16 = 4;
                sys::poll(&mut [sys::PollFd { fd, events: POLLOUT, revents: 0 }], -1);
            }
            written if written < 0 => return number(env, written as i32),
            written => {
                // SAFETY: within the buffer.
                data = unsafe { data.add(written as usize) };
                length -= written as usize;
            }
        }
    }
    number(env, 0)
}
