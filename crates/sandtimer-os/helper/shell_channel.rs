//! Keeps the channel of a session's shell to the shell's own process.
//!
//! The calls that bash makes on descriptors do not reach the channel: a script can neither copy it,
//! nor close it, nor put another file in its place. A fork of the shell closes it before the fork
//! executes anything else, so that what runs in a subshell (a builtin that `enable -f` loads, for
//! example) has no channel to receive from. Only code that was loaded into the shell itself gets
//! past this, by making the system calls without the C library.

use core::ffi::c_void;

use crate::sys::{self, Fd, call, nr};
use crate::wire::shell;
use crate::{is_own, of_libc, own_channel, returned, shell_interrupt, streams_are_in_place};

/// Whether a descriptor is the channel. In a fork of the shell that number is free for the fork's
/// own files.
pub fn is_channel(fd: Fd) -> bool {
    fd == shell::CHANNEL && is_own()
}

/// fork(2) without the channel in the child.
#[unsafe(no_mangle)]
pub extern "C" fn fork() -> i32 {
    let has_channel = is_own();
    if has_channel {
        // Before the first command the channel has another number.
        own_channel();
    }
    let made = next_fork();
    if made == 0 && has_channel {
        sys::close(shell::CHANNEL);
    }
    if made > 0 && has_channel {
        shell_interrupt::interrupt_fork(made);
    }
    made
}

/// The C library's fork, which also calls what programs and libraries have registered for it.
fn next_fork() -> i32 {
    // SAFETY: null or fork(2), which has this type.
    let found =
        unsafe { core::mem::transmute::<*mut c_void, Option<extern "C" fn() -> i32>>(of_libc(c"fork")) };
    found.map_or_else(|| returned(sys::ENOSYS) as i32, |fork| fork())
}

/// Makes a call on a descriptor of the shell's, or fails as if the descriptor were not open where
/// it is the channel.
fn unless_channel(fds: [Fd; 2], make: impl FnOnce() -> isize) -> i32 {
    let is_hidden = fds.into_iter().any(is_channel);
    returned(if is_hidden { sys::EBADF } else { make() }) as i32
}

/// close(2)
#[unsafe(no_mangle)]
pub extern "C" fn close(fd: Fd) -> i32 {
    unless_channel([fd, -1], || call!(nr::CLOSE, fd))
}

/// dup(2)
#[unsafe(no_mangle)]
pub extern "C" fn dup(fd: Fd) -> i32 {
    unless_channel([fd, -1], || call!(nr::DUP, fd))
}

/// dup2(2)
#[unsafe(no_mangle)]
pub extern "C" fn dup2(fd: Fd, number: Fd) -> i32 {
    let result = unless_channel([fd, number], || call!(nr::DUP2, fd, number));
    if result >= 0 {
        streams_are_in_place(fd, number);
    }
    result
}

/// fcntl(2); its third argument, where it has one, comes in the same register as if it always had
/// one.
#[unsafe(no_mangle)]
pub extern "C" fn fcntl(fd: Fd, command: i32, argument: usize) -> i32 {
    unless_channel([fd, -1], || call!(nr::FCNTL, fd, command, argument))
}

/// What bash calls where it was built with 64-bit file offsets.
#[unsafe(no_mangle)]
pub extern "C" fn fcntl64(fd: Fd, command: i32, argument: usize) -> i32 {
    fcntl(fd, command, argument)
}
