//! The native half of a shell session: a library that an unmodified bash is started with (LD_PRELOAD).
//!
//! It stands before the C library's `kill`, because bash has a builtin for that and none for what is needed here: `kill -0` with a
//! number that no process can have takes the next command from the engine, makes a checkpoint when the engine asks for one, and
//! says how the last command ended.
#![no_std]

mod copy;
#[allow(dead_code, reason = "the other programs use the rest")]
mod sys;
#[allow(dead_code, reason = "the engine and the other programs use the rest")]
mod wire;

use core::sync::atomic::Ordering::Relaxed;

use sys::{Fd, call, nr};
use wire::{JobHeader, channel, shell};

// The C library that bash was linked with.
unsafe extern "C" {
    fn __errno_location() -> *mut i32;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(121)
}

/// The prebuilt core library names it although nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// kill(2), and the calls of [`shell`].
#[unsafe(no_mangle)]
pub extern "C" fn kill(pid: i32, signal: i32) -> i32 {
    let result = match pid {
        shell::NEXT if signal == 0 => next(),
        shell::ENDED.. if signal == 0 => answer(pid - shell::ENDED),
        _ => call!(nr::KILL, pid, signal),
    };
    if result < 0 {
        // SAFETY: the address of this thread's own errno.
        unsafe { *__errno_location() = -result as i32 };
        return -1;
    }
    0
}

/// The channel's descriptor, out of the way of scripts that use small numbers, and closed in what the shell executes.
fn own_channel() -> Fd {
    const F_GETFD: usize = 1;
    if call!(nr::FCNTL, shell::CHANNEL, F_GETFD) < 0 {
        keep_as(3, shell::CHANNEL);
        // This library.
        sys::close(4);
    }
    shell::CHANNEL
}

/// Gives a descriptor another number, closed at exec.
fn keep_as(fd: Fd, number: Fd) -> bool {
    let kept = call!(nr::DUP3, fd, number, sys::O_CLOEXEC) >= 0;
    sys::close(fd);
    kept
}

/// Whether this shell was a checkpoint, and has not been asked for one yet: what is sent before that was for the one before it.
static IS_NEW: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Waits for the next command, and puts its descriptors in place.
fn next() -> isize {
    let channel = own_channel();
    let mut packet = [0u8; 64];
    loop {
        let received = sys::receive(channel, &mut packet, 0);
        if received.length == sys::EINTR {
            continue;
        }
        // The engine is gone, and so is all that it started.
        let body = usize::try_from(received.length).unwrap_or(0);
        if body == 0 && received.length != sys::EINVAL {
            sys::exit(0);
        }
        let fds = &received.fds[..received.fd_count];
        let request = packet.get(size_of::<JobHeader>()..body).unwrap_or_default();
        match request.split_first() {
            Some((b'C', nonce)) if nonce.len() == 8 => {
                IS_NEW.store(false, Relaxed);
                checkpoint(channel, nonce);
            }
            Some((b'X', _)) if !IS_NEW.load(Relaxed) => {
                let mut placed = fds.len() == shell::COUNT;
                for (fd, number) in fds.iter().zip(shell::FIRST..) {
                    placed &= keep_as(*fd, number);
                }
                if placed {
                    return 0;
                }
                // Such as under a limit of open files that the shell has put on itself.
                answer(shell::NOT_TAKEN);
            }
            // Its descriptors did not all arrive.
            None if received.length == sys::EINVAL => {
                answer(shell::NOT_TAKEN);
            }
            _ => fds.iter().for_each(|fd| sys::close(*fd)),
        }
    }
}

/// Makes a copy of the shell, and says its number. The copy comes back here when it goes on, and waits for the next request.
fn checkpoint(channel: Fd, nonce: &[u8]) {
    let (every, mut before) = (!0u64, 0u64);
    // A signal must find neither a trap in the copy nor this process between two.
    call!(nr::RT_SIGPROCMASK, 2, &raw const every, &raw mut before, 8);
    let made = copy::make(copy::thread_id_address());
    if made == 0 {
        copy::wait_to_go_on();
        IS_NEW.store(true, Relaxed);
    }
    call!(nr::RT_SIGPROCMASK, 2, &raw const before, 0, 8);
    if made == 0 {
        return;
    }
    let mut said = [0u8; 13];
    said[0] = b'K';
    said[1..9].copy_from_slice(nonce);
    said[9..].copy_from_slice(&(made.max(0) as u32).to_le_bytes());
    sys::send(channel, &said, None, 0);
}

/// Says how a command ended: an answer whose bytes are the exit code.
fn answer(code: i32) -> isize {
    let mut packet = [0u8; 17];
    packet[0] = channel::ANSWER;
    packet[8] = 1;
    packet[16] = code as u8;
    sys::send(own_channel(), &packet, None, 0);
    0
}
