//! The native half of a shell session: a library that an unmodified bash is started with
//! (LD_PRELOAD).
//!
//! It replaces the C library's `kill`, because bash has a builtin for that and none for what is
//! needed here: `kill -0` with a number that no process can have takes the next command from the
//! engine, makes a checkpoint when the engine requests one, and sends how the last command ended.
//! It replaces `read` as well: a shell that reads its script again in the middle of a command's
//! line executes nothing any more (`set -n`, a builtin that is gone), and is ended, unless it was
//! interrupted ([`shell_interrupt`]). [`shell_script`] has it read a line at once,
//! [`shell_channel`] has the calls that keep the channel out of scripts and of the shell's forks,
//! and [`shell_end`] what a shell that exits leaves to the next one.
#![no_std]

mod copy;
mod shell_channel;
mod shell_end;
mod shell_interrupt;
mod shell_script;
mod signal_action;
#[allow(dead_code, reason = "the other programs use the rest")]
mod sys;
#[allow(dead_code, reason = "the engine and the other programs use the rest")]
mod wire;

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64};

use sys::{Fd, call, nr};
use wire::{JobHeader, channel, shell};

// The C library that bash was linked with.
unsafe extern "C" {
    fn __errno_location() -> *mut i32;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Returns the address of a name in bash itself, which exports its own for builtins that `enable
/// -f` loads; null where it does not.
fn of_bash(name: &CStr) -> *mut c_void {
    const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
    // SAFETY: a string that ends with NUL.
    unsafe { dlsym(RTLD_DEFAULT, name.as_ptr()) }
}

/// Returns the address of a name that this library replaces; null where the C library has none.
fn of_libc(name: &CStr) -> *mut c_void {
    const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
    // SAFETY: a string that ends with NUL.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    sys::exit(121)
}

/// The prebuilt core library names it although nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// kill(2), and the calls of [`shell`], which are for the shell itself: a subshell has a copy of
/// this library.
#[unsafe(no_mangle)]
pub extern "C" fn kill(pid: i32, signal: i32) -> i32 {
    let result = match pid {
        shell::BEGINS.. if signal == 0 && !is_own() => sys::ESRCH,
        shell::BEGINS if signal == 0 => begin(),
        shell::LEAVES_STATE if signal == 0 => shell_end::begin(),
        shell::NEXT if signal == 0 => next(),
        shell::UNREAD if signal == 0 => leave(shell::FIRST + 1, NOT_READ),
        shell::ENDED.. if signal == 0 => answer(pid - shell::ENDED),
        _ => {
            if signal > 0 && is_own() && pid == OWNER.load(Relaxed) {
                // What ends by a signal that it has a handler for sends itself that signal once
                // more.
                shell_end::leave_state();
            }
            call!(nr::KILL, pid, signal)
        }
    };
    returned(result) as i32
}

/// What a function of the C library returns for a system call's result: -1 and errno where that is
/// an error.
fn returned(result: isize) -> isize {
    if result < 0 {
        // SAFETY: the address of this thread's own errno.
        unsafe { *__errno_location() = -result as i32 };
        return -1;
    }
    result
}

/// The shell's process; 0 before its first call.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Whether this process is the shell, and not a fork of it.
fn is_own() -> bool {
    let own = call!(nr::GETPID) as i32;
    OWNER.compare_exchange(0, own, Relaxed, Relaxed).map_or_else(|owner| owner == own, |_| true)
}

/// The channel's descriptor, out of the way of scripts that use small numbers, and closed in what
/// the shell executes.
fn own_channel() -> Fd {
    const F_GETFD: usize = 1;
    if call!(nr::FCNTL, shell::CHANNEL, F_GETFD) < 0 {
        keep_as(3, shell::CHANNEL);
        for (part, known) in file_at(0).iter().flatten().zip(&SCRIPT) {
            known.store(*part, Relaxed);
        }
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

/// Whether this shell was a checkpoint, and has not been asked for one yet: what is sent before
/// that was for the one before it.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// What the engine knows the answer to the command by that was taken last.
static NONCE: AtomicU64 = AtomicU64::new(0);
const _: () = assert!(channel::NONCE == size_of::<u64>());

/// How far the shell is with a command.
static STAGE: AtomicU8 = AtomicU8::new(BEGINNING);
/// Before the first command.
const BEGINNING: u8 = 0;
/// A command was taken, and the line that executes it is still to be read.
const BEFORE_LINE: u8 = 1;
/// The line was read. It ends where the next command is taken, so that no more of the script is
/// read before.
const IN_LINE: u8 = 2;
/// The command was read, and is being executed.
const IN_COMMAND: u8 = 3;
/// The shell has sent how the command ended, and the rest of the line is still to be executed.
const ANSWERED: u8 = 4;
/// The script's pipe, by device and number.
static SCRIPT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

const NO_DESCRIPTORS: &str =
    "sandtimer: the session's shell could not open what it needs for a command (ulimit -n); the session is reset\n";
const NOT_READ: &str =
    "sandtimer: the session's shell could not read the command (`__sandtimer` or `read` is not what it was); the session is reset\n";
const EXECUTES_NOTHING: &str =
    "sandtimer: the command left a shell that executes nothing any more (as `set -n` does); a new one takes its place\n";

/// read(2), which keeps [`STAGE`] up to date.
#[unsafe(no_mangle)]
pub extern "C" fn read(fd: Fd, buffer: *mut u8, length: usize) -> isize {
    if shell_channel::is_channel(fd) {
        // A request would be lost to the shell.
        return returned(sys::EBADF);
    }
    let is_between = matches!(STAGE.load(Relaxed), IN_LINE | IN_COMMAND | ANSWERED);
    if is_between && is_script(fd) {
        if !shell_interrupt::forget_drop() {
            leave(shell::FIRST + 1, EXECUTES_NOTHING);
        }
        // The interrupt has had the rest of the line dropped.
        if STAGE.load(Relaxed) == IN_COMMAND {
            answer(shell_interrupt::EXIT_CODE);
        }
        next();
    }
    let is_before_line = STAGE.load(Relaxed) == BEFORE_LINE;
    let result =
        if is_before_line { shell_script::read(fd, buffer, length) } else { call!(nr::READ, fd, buffer, length) };
    // SAFETY: as many bytes were written there.
    if is_before_line && result > 0 && unsafe { *buffer.add(result as usize - 1) } == b'\n' {
        STAGE.store(IN_LINE, Relaxed);
    }
    returned(result)
}

/// What is open there, by device and number.
fn file_at(fd: Fd) -> Option<[u64; 2]> {
    // `struct stat` of x86-64, in words.
    let mut status = [0u64; 18];
    (call!(nr::FSTAT, fd, status.as_mut_ptr()) == 0).then_some([status[0], status[1]])
}

fn is_script(fd: Fd) -> bool {
    file_at(fd) == Some([SCRIPT[0].load(Relaxed), SCRIPT[1].load(Relaxed)])
}

/// A command's stderr, before it has its place.
fn stderr(fds: &[Fd]) -> Fd {
    fds.get(1).copied().unwrap_or(-1)
}

/// Ends a shell that is of no use, and writes the reason to its command's output.
fn leave(fd: Fd, why: &str) -> ! {
    sys::write(fd, why.as_bytes());
    sys::exit(shell::NOT_TAKEN)
}

/// Marks the command as begun. Interrupts stay blocked until its streams are in place
/// ([`streams_are_in_place`]): a trap for one writes to them.
fn begin() -> isize {
    STAGE.store(IN_COMMAND, Relaxed);
    AWAITS_STREAMS.store(true, Relaxed);
    0
}

/// The command has begun, and bash has not redirected its streams yet.
static AWAITS_STREAMS: AtomicBool = AtomicBool::new(false);

/// Lets interrupts in, once bash has made the last of the command's redirections.
fn streams_are_in_place(fd: Fd, number: Fd) {
    if number == 0 && fd == shell::FIRST + 2 && AWAITS_STREAMS.load(Relaxed) && is_own() {
        AWAITS_STREAMS.store(false, Relaxed);
        shell_interrupt::unblock();
    }
}

/// Waits for the next command, and puts its descriptors in place.
fn next() -> isize {
    let socket = own_channel();
    shell_interrupt::block();
    shell_interrupt::forget_drop();
    shell_interrupt::install();
    let mut packet = [0u8; 64];
    loop {
        let received = sys::receive(socket, &mut packet, 0);
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
                shell_interrupt::drop_blocked();
                checkpoint(socket, nonce);
            }
            Some((b'X', nonce)) if nonce.len() == channel::NONCE && !IS_NEW.load(Relaxed) => {
                NONCE.store(nonce.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)), Relaxed);
                let placed = fds.iter().zip(shell::FIRST..).take_while(|(fd, number)| keep_as(**fd, *number)).count();
                if placed == shell::COUNT {
                    forget_read();
                    STAGE.store(BEFORE_LINE, Relaxed);
                    return 0;
                }
                // Such as under a limit of open files that the shell has put on itself.
                leave(if placed > 1 { shell::FIRST + 1 } else { stderr(fds) }, NO_DESCRIPTORS);
            }
            // Its descriptors did not all arrive.
            None if received.length == sys::EINVAL => leave(stderr(fds), NO_DESCRIPTORS),
            _ => fds.iter().for_each(|fd| sys::close(*fd)),
        }
    }
}

/// Has bash forget what an interrupted `read` has taken from its file and not used: its next
/// `read`, which is for the command, would use it.
fn forget_read() {
    let function = of_bash(c"zreset");
    if !function.is_null() {
        // SAFETY: `void zreset(void)` of bash's lib/sh/zread.c.
        unsafe { core::mem::transmute::<*mut c_void, extern "C" fn()>(function)() };
    }
}

/// Makes a copy of the shell, and sends its PID. The copy returns here when it continues, and waits
/// for the next request.
fn checkpoint(channel: Fd, nonce: &[u8]) {
    let (every, mut before) = (!0u64, 0u64);
    // A signal must find neither a trap in the copy nor this process between two.
    call!(nr::RT_SIGPROCMASK, 2, &raw const every, &raw mut before, 8);
    let made = copy::make(copy::thread_id_address());
    if made == 0 {
        copy::wait_to_go_on();
        IS_NEW.store(true, Relaxed);
        OWNER.store(call!(nr::GETPID) as i32, Relaxed);
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

/// Sends how a command ended: an answer with the command's nonce, and then the exit code.
fn answer(code: i32) -> isize {
    let mut packet = [0u8; shell::ANSWER];
    let (nonce, answer) = packet.split_at_mut(channel::NONCE);
    nonce.copy_from_slice(&NONCE.load(Relaxed).to_le_bytes());
    answer[0] = channel::ANSWER;
    answer[8] = 1;
    answer[16] = code as u8;
    // Before it is sent: an interrupt that comes from now on is not this command's.
    shell_interrupt::block();
    STAGE.store(ANSWERED, Relaxed);
    sys::send(own_channel(), &packet, None, 0);
    0
}
